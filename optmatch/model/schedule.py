"""The schedule: which matching holds when, and in which state every cell is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model.errors import InputError
from optmatch.model.values import Value, frozen, number

IDLE = -1
"""In a matching: this source port has no circuit."""

BAR, CROSS, FREE = 0, 1, -1
"""Cell states: straight, swapped, and no light in either way (any state will do)."""

Switching = Literal["all-stop", "per-circuit"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule(Value):
    """A sequence of matchings, each held for a while.

    Parameters
    ----------
    matchings
        ``matchings[slot, source] = destination``, -1 where idle; int32, shape (slots, ports).
        No destination occurs twice in a slot.
    durations_s
        How long each matching carries traffic, in seconds; float64, shape (slots,), > 0.
    delay_s
        The reconfiguration delay before each matching, in seconds.
    cell_states
        ``cell_states[slot, cell]``: 0 bar, 1 cross, -1 free; int8, shape (slots, cells). None
        where the fabric has no cells.
    switching
        ``"all-stop"``: during a reconfiguration no circuit carries anything. ``"per-circuit"``:
        circuits that stay go on.

    Raises
    ------
    InputError
        If shapes disagree, a port is out of range or used twice, or a duration is not positive.

    Examples
    --------
    >>> schedule = Schedule(matchings=[[1, 0], [-1, -1]], durations_s=[2.0, 1.0], delay_s=0.5)
    >>> schedule.n_slots, schedule.makespan_s
    (2, 4.0)
    """

    matchings: NDArray[np.int32]
    durations_s: NDArray[np.float64]
    delay_s: float = 0.0
    cell_states: NDArray[np.int8] | None = None
    switching: Switching = "all-stop"

    def __post_init__(self) -> None:
        matchings = frozen("matchings", self.matchings, 2, np.int32)
        durations = frozen("durations_s", self.durations_s, 1, np.float64)
        if len(durations) != len(matchings):
            raise InputError(
                f"durations_s has {len(durations)} entries, but there are {len(matchings)} slots"
            )
        for slot in np.flatnonzero(durations <= 0):
            raise InputError(f"durations_s[{slot}] = {durations[slot]:g}: a slot lasts > 0 s")
        check_matchings(matchings)
        object.__setattr__(self, "matchings", matchings)
        object.__setattr__(self, "durations_s", durations)
        object.__setattr__(self, "delay_s", number("delay_s", self.delay_s))
        if self.cell_states is not None:
            states = frozen("cell_states", self.cell_states, 2, np.int8)
            if len(states) != len(matchings):
                raise InputError(
                    f"cell_states has {len(states)} rows, but there are {len(matchings)} slots"
                )
            for slot, cell in np.argwhere((states < FREE) | (states > CROSS)):
                raise InputError(
                    f"cell_states[{slot}, {cell}] = {states[slot, cell]}:"
                    " 0 is bar, 1 is cross, -1 is free"
                )
            object.__setattr__(self, "cell_states", states)
        if self.switching not in ("all-stop", "per-circuit"):
            raise InputError(f"switching = {self.switching!r}: all-stop or per-circuit")

    @property
    def n_slots(self) -> int:
        """The number of matchings."""
        return len(self.matchings)

    @property
    def n_ports(self) -> int:
        """The number of ports of the switch."""
        return int(self.matchings.shape[1])

    @property
    def makespan_s(self) -> float:
        """The time from the first reconfiguration to the end of the last slot, in seconds."""
        return float(self.durations_s.sum() + self.delay_s * self.n_slots)


def check_matchings(matchings: ArrayLike) -> None:
    """Refuse rows that are no matchings.

    Parameters
    ----------
    matchings
        Integers, shape (slots, ports).

    Raises
    ------
    InputError
        Naming slot and port of the first entry that is out of range or a destination used twice.
    """
    rows = np.asarray(matchings)
    n_ports = rows.shape[1]
    for slot, port in np.argwhere((rows < IDLE) | (rows >= n_ports)):
        raise InputError(
            f"matchings[{slot}, {port}] = {rows[slot, port]}:"
            f" ports are 0 .. {n_ports - 1}, -1 is idle"
        )
    for slot, row in enumerate(rows):
        used = np.bincount(row[row >= 0], minlength=n_ports)
        for port in np.flatnonzero(used > 1):
            first, second = np.flatnonzero(row == port)[:2]
            raise InputError(
                f"matchings[{slot}]: sources {first} and {second} share destination {port}"
            )
