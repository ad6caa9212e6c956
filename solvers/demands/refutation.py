"""Plans of a given number of slots that last no longer than a limit, until there is none."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock
from optmatch.solvers.demands.board import Board, lay
from optmatch.solvers.demands.partitions import EXHAUSTED, FOUND, FULL, search
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.programmes import ROUNDING, WIDTH
from optmatch.solvers.demands.ranges import make_ranges

PORTION = 1_000
"""Linear programmes between two looks at the clock: some 50 ms."""

_SAMPLED, _ONE_OF = 6, 3  # frames behind the first line of which one way of so many is taken
_COARSE, _BEST = 4, 3  # parts of which one is sampled for all lines; lines sampled again
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
    first: int,
    portion: int = PORTION,
    part: int = 0,
    parts: int = 1,
) -> Generator[tuple[int, Plan | None], int | None, None]:
    """Search all plans of so many slots.

    Parameters
    ----------
    demand
        In ticks.
    slots, shortest
        How many, and how many ticks each lasts at least.
    most
        Ticks that all slots may last together. Each plan found must be shorter than the one
        before, and no longer than a number of ticks that is sent to the generator.
    first
        Line to begin with: rows from 0, columns from n; any gives the same answer.
    portion
        Linear programmes between two yields; fewer where there are many sets of slots to try.
    part, parts
        Search one part of so many; the ways to divide the slots on the first line are dealt out.
        Parts make up the whole only if they have the same first line; their limits may differ.

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
    >>> [int(plan.ticks.sum()) for _, plan in seek(demand, 2, 1, 9, first=0) if plan]
    [3]
    >>> [plan for _, plan in seek(demand, 2, 1, 2, first=0) if plan]
    []
    """
    programmes, board = lay(demand, slots, shortest)
    ranges = make_ranges(board)
    board.share[:] = (first, board.left[first] - 1, part, parts)
    code = -1
    while code != EXHAUSTED:
        code = int(search(programmes, board, ranges, most + _rounding(most), portion))
        if code == FULL:
            raise MemoryError("too many sets of slots could serve the entries")
        plan = _whole(board, demand, shortest, most) if code == FOUND else None
        if plan is not None:
            most = int(plan.ticks.sum()) - 1
        sent = yield int(programmes.solved[0]), plan
        most = most if sent is None else min(most, sent)


def _rounding(ticks: int) -> float:
    return max(10 * ROUNDING, 1e-9 * ticks)


def promising_lines(demand: NDArray[np.int64]) -> list[int]:
    """Sort lines, the busiest first, and of these the most uneven.

    What a line does not need may be held too long there, so a busy line leaves the fewest ways to
    divide the slots.
    """
    lines = np.concatenate([demand, demand.T]).astype(np.float64)
    ranks = np.lexsort([-(lines**2).sum(axis=1), -lines.sum(axis=1)])
    return [int(line) for line in ranks]


def quickest_lines(
    demand: NDArray[np.int64],
    slots: int,
    shortest: int,
    most: int,
    lines: list[int],
    programmes: int,
    clock: Clock,
) -> list[int]:
    """Try with which lines first a search that finds nothing ends after the fewest programmes.

    One with a slot less takes a small part of the time, and the same lines are good for both.
    Returned is the better half of the lines, the best first; fewer if few end within the given
    number of programmes.
    """
    took: dict[int, int] = {}
    for line in lines:
        solved = 0
        for some, plan in seek(demand, slots, shortest, most, line):
            solved += some
            if plan is not None or solved >= programmes or clock.remaining_s <= 0:
                break
        else:
            took[line] = solved
    return sorted(took, key=took.__getitem__)[: (len(lines) + 1) // 2]


@dataclass
class Refutation:
    """A search for plans of so many slots that goes on, portion by portion."""

    slots: int
    most: int
    steps: Generator[tuple[int, Plan | None], int | None, None]
    took_s: float = 0.0

    def go_on(self, most: int | None) -> tuple[int, Plan | None] | None:
        """Return what comes of another portion, None at the end; plans must be no longer."""
        begun_s = perf_counter()
        try:
            return self.steps.send(most)
        except StopIteration:
            return None
        finally:
            self.took_s = perf_counter() - begun_s


def estimate_work(
    demand: NDArray[np.int64],
    slots: int,
    shortest: int,
    most: int,
    first: int,
    parts: int,
    programmes: int,
    clock: Clock,
) -> float:
    """Estimate how many programmes a search takes that finds nothing, from a sample of its ways.

    Behind the first line, in six frames one after the other, one of three ways is followed, and
    counts three times (Knuth 1975, *Estimating the efficiency of backtrack programs*,
    doi 10.2307/2005469). So the expectation is right; of long searches samples are within a
    third of it, mostly.

    Parameters
    ----------
    demand, slots, shortest, most, first
        As for `seek`.
    parts
        The sample is of one of so many parts, and so is the estimate.
    programmes, clock
        Infinite if the sample takes more, or too long.

    Examples
    --------
    >>> from optmatch.model import Limits
    >>> demand, clock = np.array([[3, 2, 4], [4, 3, 2], [2, 4, 3]]), Limits().start()
    >>> estimate_work(demand, 3, 1, 9, 0, parts=1, programmes=99, clock=clock)
    8.0
    """
    state, board = lay(demand, slots, shortest)
    ranges = make_ranges(board)
    board.share[:] = (first, board.left[first] - 1, 0, parts)
    board.sample[:] = (_SAMPLED, _ONE_OF, first + 1)
    code, solved = -1, 0
    while code != EXHAUSTED:
        code = int(search(state, board, ranges, most + _rounding(most), PORTION))
        solved += int(state.solved[0])
        if code == FULL or solved > programmes or clock.remaining_s <= 0:
            return np.inf
    return float(board.work[0])


def choose_line(
    demand: NDArray[np.int64],
    slots: int,
    shortest: int,
    most: int,
    lines: list[int],
    work: int,
    clock: Clock,
    threads: Executor,
) -> int:
    """Choose with which of some lines first a long search ends after the fewest programmes.

    How many those with a slot less take tells it only roughly. So the search itself is sampled,
    coarsely for all lines and again for the best; the first of them is kept if nothing is learnt.
    `work` is how many programmes the search with a slot less took.
    """

    def sort(some: list[int], parts: int, programmes: int) -> list[int]:
        asked = partial(estimate_work, demand, slots, shortest, most)
        told = threads.map(lambda line: asked(line, parts, programmes, clock), some)
        return [line for _, line in sorted(zip(told, some, strict=True), key=itemgetter(0))]

    best = sort(lines, _COARSE, work // 20)[:_BEST]
    return sort(best, 1, work // 2)[0]


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
