"""Plans of a given number of slots that last no longer than a limit, until there is none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.demands.board import Board, lay
from optmatch.solvers.demands.partitions import EXHAUSTED, FOUND, FULL, search
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.programmes import ROUNDING, WIDTH

Lines = tuple[int, int]
"""The two that a search begins with: rows from 0, columns from n."""

PORTION = 20_000
"""Linear programmes between two looks at the clock: some 50 ms."""

_LARGEST = 144  # entries
_LARGEST_SUM = 10**8  # ticks; far beyond, rounding in the programmes would reach whole ticks


def fits(demand: NDArray[np.int64], slots: int) -> bool:
    """Tell whether a search for so many slots has room."""
    small = len(demand) >= 2 and int(np.count_nonzero(demand)) <= _LARGEST
    return small and slots <= WIDTH and int(demand.sum()) <= _LARGEST_SUM


def seek(
    demand: NDArray[np.int64],
    slots: int,
    shortest: int,
    most: int,
    first: Lines,
    portion: int = PORTION,
    part: int = 0,
    parts: int = 1,
) -> Iterator[tuple[int, Plan | None]]:
    """Search all plans of so many slots.

    Parameters
    ----------
    demand
        In ticks.
    slots, shortest
        How many, and how many ticks each lasts at least.
    most
        Ticks that all slots may last together. Each plan found must be shorter than the one
        before.
    first
        Lines to begin with; any give the same answer.
    portion
        Linear programmes between two yields.
    part, parts
        Search one part of so many; the ways to divide the slots on the first line are dealt out.
        Parts make up the whole only if they have the same first lines; their limits may differ.

    Yields
    ------
    tuple of int and (Plan or None)
        Linear programmes solved since the last time, and a plan if one was found. That nothing
        more comes proves, as far as floating point programmes can, that there is nothing shorter.

    Raises
    ------
    MemoryError
        Too many sets of slots could serve the entries.

    Examples
    --------
    >>> demand = np.array([[1, 2], [2, 1]])
    >>> [int(plan.ticks.sum()) for _, plan in seek(demand, 2, 1, 9, (0, 1)) if plan]
    [3]
    >>> [plan for _, plan in seek(demand, 2, 1, 2, (0, 1)) if plan]
    []
    """
    programmes, board = lay(demand, slots, shortest)
    board.first[:] = first
    board.share[:] = (board.left[first[0]] - 1, part, parts)
    code = -1
    while code != EXHAUSTED:
        code = int(search(programmes, board, most + 10 * ROUNDING, portion))
        if code == FULL:
            raise MemoryError("too many sets of slots could serve the entries")
        plan = _whole(board, demand, shortest, most) if code == FOUND else None
        if plan is not None:
            most = int(plan.ticks.sum()) - 1
        yield int(programmes.solved[0]), plan


def first_lines(demand: NDArray[np.int64]) -> Lines:
    """Choose two rows or two columns: the busiest, and of these the most uneven.

    What a line does not need may be held too long there, so a busy line leaves the fewest ways to
    divide the slots.
    """
    return min(_pairs(demand), key=lambda pair: _rank(demand, pair))


def quickest_lines(
    demand: NDArray[np.int64], slots: int, shortest: int, most: int, programmes: int
) -> Lines | None:
    """Try with which two lines first a search that finds nothing ends after the fewest programmes.

    One with a slot less takes a small part of the time, and the same lines are good for both: the
    best pair may take a tenth of the programmes of another.
    """
    best = None
    for pair in sorted(_pairs(demand), key=lambda pair: _rank(demand, pair)):
        state, board = lay(demand, slots, shortest)
        board.first[:] = pair
        code = int(search(state, board, most + 10 * ROUNDING, programmes))
        if code == EXHAUSTED and state.solved[0] < programmes:
            best, programmes = pair, int(state.solved[0])
    return best


def _pairs(demand: NDArray[np.int64]) -> list[Lines]:
    n = len(demand)
    rows = list(itertools.permutations(range(n), 2))
    return rows + [(n + one, n + other) for one, other in rows]


def _rank(demand: NDArray[np.int64], pair: Lines) -> tuple[float, float]:
    lines = np.concatenate([demand, demand.T]).astype(np.float64)[list(pair)]
    return -float(lines.sum()), -float((lines**2).sum())


def _whole(board: Board, demand: NDArray[np.int64], shortest: int, most: int) -> Plan | None:
    """Return decided matchings with the whole durations of least sum, unless that is too long."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    rows, columns = np.nonzero(demand)
    holds = (board.seat[:, rows] == columns).T.astype(np.float64)
    found = milp(
        np.ones(len(board.seat)),
        constraints=LinearConstraint(holds, lb=demand[rows, columns]),
        integrality=np.ones(len(board.seat)),
        bounds=Bounds(lb=shortest),
        options={"mip_rel_gap": 0.0},  # the default may miss a tick of a long plan
    )
    if found.x is None:
        return None
    ticks = np.rint(found.x).astype(np.int64)
    if ticks.sum() > most or (holds @ ticks < demand[rows, columns]).any():
        return None
    return Plan(board.seat.astype(np.int32), ticks)
