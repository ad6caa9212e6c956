"""Plans of a given number of slots that last no longer than a limit, until there is none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from optmatch.model import uncounted
from optmatch.solvers.demands.exact.dual_simplex import ROUNDING
from optmatch.solvers.demands.exact.partitions import EXHAUSTED, FOUND, FULL, search
from optmatch.solvers.demands.exact.state import begin
from optmatch.solvers.demands.plans import Plan

PORTION = 1_000
"""Linear programs between two looks at the clock: some 50 ms."""

_LARGEST = 144  # entries
_MOST_SLOTS = 13  # all sets of them are tried for an entry
_LARGEST_SUM = 10**8  # ticks; far beyond, rounding in the programs would reach whole ticks


def fits(demand: NDArray[np.int64], slots: int) -> bool:
    """Tell whether a search for so many slots has room."""
    small = len(demand) >= 2 and int(np.count_nonzero(demand)) <= _LARGEST
    return small and slots <= _MOST_SLOTS and int(demand.sum()) <= _LARGEST_SUM


def choose_line(demand: NDArray[np.int64]) -> int:
    """Choose the line to begin with: the busiest, and of these the most uneven.

    A line may be served longer than it needs, up to the sum of the slots. On a busy line that
    leaves the fewest ways to divide the slots.
    """
    lines = np.concatenate([demand, demand.T]).astype(np.float64)
    return int(np.lexsort([-(lines**2).sum(axis=1), -lines.sum(axis=1)])[0])


def list_plans(
    demand: NDArray[np.int64],
    slots: int,
    shortest: int,
    most: int,
    first: int,
    portion: int = PORTION,
) -> Iterator[tuple[int, Plan | None]]:
    """Search all plans of so many slots, each shorter than the one before.

    Parameters
    ----------
    demand
        In ticks.
    slots, shortest
        How many, and how many ticks each lasts at least.
    most
        Ticks that all slots may last together.
    first
        Line to begin with: rows from 0, columns from n; any gives the same answer.
    portion
        Linear programs between two yields; fewer where there are many sets of slots to try.

    Yields
    ------
    tuple of int and (Plan or None)
        Linear programs solved since the last time, and a plan if one was found. That nothing
        more comes proves, as far as floating point programs can, that there is nothing shorter.

    Raises
    ------
    MemoryError
        Too many sets of slots could serve the entries.

    Examples
    --------
    >>> demand = np.array([[1, 2], [2, 1]])
    >>> [int(plan.ticks.sum()) for _, plan in list_plans(demand, 2, 1, 9, first=0) if plan]
    [3]
    >>> [plan for _, plan in list_plans(demand, 2, 1, 2, first=0) if plan]
    []
    """
    programs, state = begin(demand, slots, shortest, first)
    code = -1
    while code != EXHAUSTED:
        rounding = max(10 * ROUNDING, 1e-9 * most)
        code = int(search(programs, state, most + rounding, portion))
        if code == FULL:
            raise MemoryError("too many sets of slots could serve the entries")
        plan = _whole(state.seat, demand, shortest, most) if code == FOUND else None
        if plan is not None:
            most = int(plan.ticks.sum()) - 1
        yield int(programs.solved[0]), plan


def _whole(
    seat: NDArray[np.int64], demand: NDArray[np.int64], shortest: int, most: int
) -> Plan | None:
    """Return decided matchings with the whole durations of least sum, unless that is too long."""
    with uncounted():
        from scipy.optimize import Bounds, LinearConstraint, milp

    rows, columns = np.nonzero(demand)
    holds = (seat[:, rows] == columns).T.astype(np.float64)
    found = milp(
        np.ones(len(seat)),
        constraints=LinearConstraint(holds, lb=demand[rows, columns]),
        integrality=np.ones(len(seat)),
        bounds=Bounds(lb=shortest),
        options={"mip_rel_gap": 0.0},  # the default may miss a tick of a long plan
    )
    if found.x is None:
        return None
    ticks = np.rint(found.x).astype(np.int64)
    if ticks.sum() > most or (holds @ ticks < demand[rows, columns]).any():
        return None
    return Plan(seat.astype(np.int32), ticks)
