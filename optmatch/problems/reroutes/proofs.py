"""Proofs that no transition gets over a failure: a cut through a rack, or around some chips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Range, Value, check_fields


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CutProof(Value):
    """Servers that more circuits must leave than live fibres lead out, whichever spare is taken.

    Parameters
    ----------
    servers
        The servers on one side of the cut; int32, ascending.

    See Also
    --------
    BlockProof : The same for chips and broken cells.

    Notes
    -----
    The reader counts. Circuits between units that stay and lie on both sides must cross. A lost
    unit with a spare inside must send to all its partners outside, with a spare outside it must be
    sent to by all its partners inside; the cheapest choice, with as many inside as there can be,
    is what must cross at least. Circuits between two lost units are left out.

    Examples
    --------
    >>> CutProof(servers=[3]).servers.tolist()
    [3]
    """

    servers: Annotated[NDArray[np.int32], Range(0)]

    def __post_init__(self) -> None:
        check_fields(self)
        if len(self.servers) == 0 or (np.diff(self.servers) <= 0).any():
            raise InputError("servers: at least one, ascending", where="servers")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockProof(Value):
    """Chips of a rack with cells that more circuits must leave than waveguides lead away.

    Parameters
    ----------
    chips
        Chips that are not lost; int32, ascending.
    links
        Waveguides, by their numbers without faults, each of which one circuit can use: without
        them no light gets from a transmitter of these chips to a receiver of any, whatever state
        the cells that work are in; int32, ascending.
    leaving
        True if it is about light from the chips; False if it is about light to them, from any.

    See Also
    --------
    CutProof : The same for servers and broken fibres.

    Notes
    -----
    The reader follows light in all states of the cells, and counts: the chips have more circuits
    than there are links.

    Examples
    --------
    >>> BlockProof(chips=[3], links=[], leaving=True).chips.tolist()
    [3]
    """

    chips: Annotated[NDArray[np.int32], Range(0)]
    links: Annotated[NDArray[np.int32], Range(0)]
    leaving: bool

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("chips", "links"):
            if (np.diff(getattr(self, name)) <= 0).any():
                raise InputError(f"{name}: ascending", where=name)
