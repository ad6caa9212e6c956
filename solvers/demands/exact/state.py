"""Which slots serve which entry of a demand: what is decided, and what is still possible."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.demands.exact.dual_simplex import LinearPrograms, make_programs
from optmatch.solvers.kernel import inner_kernel

UNKNOWN = -1
LONGEST_LIST = 1 << 13
"""Sets of slots for one entry; where there are more, nothing is concluded from them."""

_POOL = 1 << 18


class SearchState(NamedTuple):
    """Which slots serve which entry, as far as decided. Line i is a row, line n + j a column.

    A set of slots is a bit mask.
    """

    demand: NDArray[np.float64]  # (n, n)
    number: NDArray[np.int64]  # (n, n) of the entries that are demanded, from 0
    open: NDArray[np.bool_]  # (n, n) entries that are not decided
    seat: NDArray[np.int64]  # (k, n) column of a slot in a row, or -1
    free: NDArray[np.int64]  # (2 n,) slots that are not decided on a line
    rest: NDArray[np.float64]  # (2 n,) ticks of those that are open
    left: NDArray[np.int64]  # (2 n,) how many those are
    full: NDArray[np.bool_]  # (2 n,) whether slots never idle on a line
    pool: NDArray[np.int64]  # (choices, 3) row, column, slots of a choice; frame by frame
    next: NDArray[np.int64]  # (frames,) the choice of a frame that is tried next
    end: NDArray[np.int64]  # (frames,) where a frame's choices end
    line: NDArray[np.int64]  # (frames,) the line that a frame decides
    twins: NDArray[np.int64]  # (k,) slots before each that serve the same so far
    sets: NDArray[np.int64]  # (entries, LONGEST_LIST) slots that could serve an entry
    counts: NDArray[np.int64]  # (entries,) how many; UNKNOWN where they are not listed
    tried: NDArray[np.int64]  # (1,) sets in this portion
    progress: NDArray[np.int64]  # (4,) first line, frame, whether its choices are listed, overflow


def begin(
    demand: NDArray[np.int64], slots: int, shortest: int, first: int
) -> tuple[LinearPrograms, SearchState]:
    """Begin the search for `slots` slots that serve a demand; nothing is decided.

    Lines without a zero use every slot: a matching that leaves ports idle can be made a
    permutation, which serves no less.
    """
    n, entries = len(demand), int((demand > 0).sum())
    frames = entries + 2
    lines = np.concatenate([demand, demand.T])
    state = SearchState(
        demand=demand.astype(np.float64),
        number=np.cumsum(demand > 0).reshape(n, n) - 1,
        open=demand > 0,
        seat=np.full((slots, n), -1, dtype=np.int64),
        free=np.full(2 * n, (1 << slots) - 1, dtype=np.int64),
        rest=lines.sum(axis=1).astype(np.float64),
        left=(lines > 0).sum(axis=1).astype(np.int64),
        full=np.asarray(np.all(lines > 0, axis=1)),
        pool=np.zeros((_POOL, 3), dtype=np.int64),
        next=np.zeros(frames, dtype=np.int64),
        end=np.zeros(frames, dtype=np.int64),
        line=np.zeros(frames, dtype=np.int64),
        twins=np.zeros(slots, dtype=np.int64),
        sets=np.zeros((entries, LONGEST_LIST), dtype=np.int64),
        counts=np.zeros(entries, dtype=np.int64),
        tried=np.zeros(1, dtype=np.int64),
        progress=np.array([first, 0, 0, 0], dtype=np.int64),
    )
    return make_programs(slots, shortest, frames + 1, rows=4 * n * n + 64), state


@inner_kernel
def entry_at(n, line, cross):
    """Row and column of an entry of a line."""
    return (line, cross) if line < n else (cross, line - n)
