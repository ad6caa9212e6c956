"""The schedule: which matching holds when, and in which state every cell is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model.declarations import (
    Amount,
    Axes,
    Given,
    GivenOrNone,
    Range,
    Value,
    brief_tuple,
    check_fields,
    given,
)
from optmatch.model.errors import InputError
from optmatch.model.numbers import check_length, check_seconds, refuse_entries

IDLE = -1
"""In a matching: this source port has no circuit."""

BAR = 0
"""The state of a cell in which light goes straight on."""
CROSS = 1
"""The state of a cell in which light changes the side."""
FREE = -1
"""Instead of a state: no light passes the cell, so it may have any."""

Switching = Literal["all-stop", "per-circuit"]


@brief_tuple
class PlannedSlot(NamedTuple):
    """One slot of a schedule, as iterating over the schedule yields it."""

    matching: NDArray[np.int32]
    """``matching[source] = destination``, -1 where idle; shape (ports,)."""
    duration_s: float
    """How long the matching carries traffic, in seconds."""
    delay_s: float
    """The reconfiguration delay before it, in seconds."""
    cell_states: NDArray[np.int8] | None
    """``cell_states[cell]``: 0 bar, 1 cross, -1 free; None where the fabric has no cells."""


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
    delays_s
        The delay before each matching where they differ, in seconds; float64, shape (slots,).
        `delay_s` is then the longest. None where all are alike.
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
    >>> len(schedule), schedule.makespan_s
    (2, 4.0)
    >>> [(slot.matching.tolist(), slot.duration_s) for slot in schedule]
    [([1, 0], 2.0), ([-1, -1], 1.0)]
    """

    matchings: Annotated[Given[np.int32], Axes(2)] = given()
    durations_s: Annotated[Given[np.float64], Range(0, above=True)] = given()
    delay_s: Amount = 0.0
    cell_states: Annotated[GivenOrNone[np.int8], Axes(2), Range(FREE, CROSS)] = given(default=None)
    switching: Switching = "all-stop"
    delays_s: Annotated[GivenOrNone[np.float64], Range(0)] = given(
        default=None, metadata={"brief": True}
    )

    def __post_init__(self) -> None:
        """Refuse fields without one entry for each slot, and slots that are no matchings."""
        check_fields(self)
        n_slots = len(self.matchings)
        check_length("durations_s", self.durations_s, n_slots, "slots")
        check_matchings(self.matchings)
        check_length("cell_states", self.cell_states, n_slots, "slots")
        check_length("delays_s", self.delays_s, n_slots, "slots")

        # Delays that differ: `delay_s` is the longest of them.
        if self.delays_s is not None:
            longest_s = float(self.delays_s.max(initial=0.0))
            if self.delay_s != longest_s:
                raise InputError(
                    f"delay_s = {self.delay_s:g}: the longest of delays_s is {longest_s:g}",
                    where="delay_s",
                )

    def __len__(self) -> int:
        return len(self.matchings)

    def __iter__(self) -> Iterator[PlannedSlot]:
        """Yield the slots in order.

        Each has its circuits (``matching[source] = destination``, -1 idle), its duration and the
        delay before it in seconds, and the state of each cell; None if states are not stated.
        """
        delays_s = self.waits_s.tolist()
        durations_s = self.durations_s.tolist()
        for slot, matching in enumerate(self.matchings):
            states = None
            if self.cell_states is not None:
                states = self.cell_states[slot]
            yield PlannedSlot(matching, durations_s[slot], delays_s[slot], states)

    def __bool__(self) -> bool:
        # `if solution.schedule` asks whether there is a schedule, also of one without slots.
        return True

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
        total_delay_s = self.delay_s * self.n_slots
        if self.delays_s is not None:
            total_delay_s = float(self.delays_s.sum())
        return float(self.durations_s.sum() + total_delay_s)

    @property
    def waits_s(self) -> NDArray[np.float64]:
        """``waits_s[slot]``: the reconfiguration delay before it, in seconds; float64."""
        if self.delays_s is not None:
            return self.delays_s
        return np.full(self.n_slots, self.delay_s)

    @property
    def ends_s(self) -> NDArray[np.float64]:
        """``ends_s[slot]``: when it ends, in seconds; float64."""
        return np.asarray(np.cumsum(self.durations_s + self.waits_s))

    def check_fits(self, problem: Any, where: str = "") -> None:
        """Refuse a schedule whose arrays belong to another switch, or whose time is too long."""
        if problem.fabric is None:
            raise InputError(f"{problem.kind} has no switch, and no schedule")
        columns = {"matchings": problem.fabric.n_ports, "cell_states": problem.fabric.n_cells}
        for name, expected in columns.items():
            array = getattr(self, name)
            if array is not None and array.shape[1] != expected:
                raise InputError(
                    f"{name} has rows of {array.shape[1]} entries, the fabric needs {expected}",
                    where=f"{where}{name}",
                )
        check_seconds(f"{where}durations_s", self.makespan_s)


def check_matchings(matchings: ArrayLike) -> None:
    """Refuse rows that are no matchings: ports out of range, or a destination of two sources.

    Parameters
    ----------
    matchings
        ``matchings[slot, source] = destination``, -1 where idle; shape (slots, ports).

    Raises
    ------
    InputError
        Naming slot and port of the first entry that is wrong.
    """
    rows = np.asarray(matchings)
    n_ports = rows.shape[1]
    refuse_entries(
        "matchings",
        (rows < IDLE) | (rows >= n_ports),
        lambda *place: f" = {rows[place]}: ports are 0 .. {n_ports - 1}, -1 is idle",
    )
    for slot, row in enumerate(rows):
        check_destinations(f"matchings[{slot}]", row)


def check_destinations(name: str, matching: NDArray[np.int32]) -> None:
    """Refuse a matching in which two sources have one destination; its ports are in range."""
    used = np.bincount(matching[matching >= 0])
    for port in np.flatnonzero(used > 1)[:1]:
        first, second = np.flatnonzero(matching == port)[:2]
        raise InputError(f"{name}: sources {first} and {second} share destination {port}")
