"""What a driver of a switch has to do: read circuits, change them, wait until light passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from optmatch.io.switches.circuits import CrossConnect, Difference
from optmatch.model import OptMatchError

CLAIM_EVERY_S = 5.0
"""How often the claim on a switch is renewed by those who play or watch. A claim of SONiC's driver
lasts for 30 s, so that several renewals may fail before it ends."""


class SwitchError(OptMatchError):
    """A switch cannot be reached, refuses, or holds something else than it should.

    Examples
    --------
    >>> import optmatch as om
    >>> issubclass(SwitchError, om.OptMatchError)
    True
    """


class SwitchReading(NamedTuple):
    """What a switch holds at one moment."""

    circuits: tuple[CrossConnect, ...]
    """The circuits that it is told to hold, its own and those of others."""
    status_of_side: Mapping[str, str]
    """``tuned``, ``tuning``, ``failed`` or ``blocked``, by the names of sides; empty for a switch
    that says nothing about its ports."""


class Tuning(NamedTuple):
    """The outcome of waiting for circuits."""

    delay_s: float
    """From the call to the moment when the last circuit was tuned, or the wait was over."""
    status_of_untuned: Mapping[CrossConnect, str]
    """What the switch says of circuits that are not tuned: ``tuning``, ``failed``, ``absent``."""


@runtime_checkable
class Switch(Protocol):
    """A switch that circuits can be read from and set on.

    All methods raise `SwitchError` where the switch cannot be reached or refuses.
    """

    @property
    def name(self) -> str:
        """The name of the switch in messages and journals, without any password."""

    def read(self) -> SwitchReading:
        """Return all circuits and what is known of the ports."""

    def read_circuits(self) -> tuple[CrossConnect, ...]:
        """Return all circuits, in as short a time as the switch allows."""

    def read_statuses(self) -> Mapping[str, str]:
        """Return the status of each side, as `read`, in as short a time as the switch allows."""

    def apply(self, difference: Difference) -> None:
        """Remove and add circuits; as a whole, or removals first where a side moves.

        Applying a difference twice has the effect of applying it once.
        """

    def wait(self, circuits: Sequence[CrossConnect], time_limit_s: float) -> Tuning:
        """Wait until these circuits carry light, one of them has failed, or the time is over."""

    def claim(self, owner: str) -> None:
        """Claim the switch for one player for some seconds, or claim it anew; others are refused.

        Drivers of switches that know no such claim do nothing.
        """

    def release(self, owner: str) -> None:
        """Give up a claim."""

    def close(self) -> None:
        """Close connections."""
