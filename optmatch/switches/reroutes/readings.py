"""Reading the ports of several switches side by side."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from optmatch.switches.protocol import Switch, SwitchError

_LONGEST_READING_S = 1.0
"""A switch that has not answered by then counts as lost. Its thread goes on waiting, and the other
switches are read without it. Readings take milliseconds; half of it would call a switch lost whose
machine is merely busy, twice of it would hold up the failures of all other switches as long."""


class _Readings(NamedTuple):
    """What the switches said of their ports at one look."""

    statuses: dict[int, Mapping[str, str]]
    """``statuses[switch][side]``: ``tuned``, ``tuning``, ``failed`` or ``blocked``."""
    errors: dict[int, str]
    """Why a switch could not be read, by its number."""


class StatusReader:
    """Reads the status of all ports of some switches, each switch in a thread of its own.

    A switch that does not answer holds up the others once, for a second, and from then on no more.
    """

    def __init__(self, switches: Mapping[int, Switch]) -> None:
        """Start a pool of threads, one for each switch.

        Readings name switches by their numbers here.
        """
        self._switches = switches
        self._pool = ThreadPoolExecutor(
            max_workers=max(1, len(switches)), thread_name_prefix="optmatch reading"
        )
        self._unanswered: dict[int, Future[Mapping[str, str]]] = {}
        """Readings of former looks that have not ended yet, by switch."""

    def read(self) -> _Readings:
        """Read all switches once, side by side.

        The result has the status of each side of those that have answered within a second, and an
        error for each of the others. A switch that has not answered at a former look is not asked
        again before it does.
        """
        # Switches that owe an answer from a former look are not waited for.
        new_readings = {
            index: self._pool.submit(switch.read_statuses)
            for index, switch in self._switches.items()
            if index not in self._unanswered
        }
        wait(new_readings.values(), _LONGEST_READING_S)

        statuses: dict[int, Mapping[str, str]] = {}
        errors: dict[int, str] = {}
        for index, reading in (self._unanswered | new_readings).items():
            if not reading.done():
                self._unanswered[index] = reading
                name = self._switches[index].name
                errors[index] = f"{name}: no answer within {_LONGEST_READING_S:g} s"
                continue

            # The switch has answered now, or failed to.
            self._unanswered.pop(index, None)
            try:
                statuses[index] = reading.result()
            except SwitchError as error:
                errors[index] = str(error)
        return _Readings(statuses, errors)

    def close(self) -> None:
        """End all threads but those that still wait for a switch."""
        self._pool.shutdown(wait=False, cancel_futures=True)
