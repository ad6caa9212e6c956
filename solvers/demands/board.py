"""Which slots serve which entry of a demand: what is decided, and what could be."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.demands.programmes import Programmes, stack
from optmatch.solvers.kernel import bare_kernel

CUT = -1  # codes of slacks: of what follows for a while
LINE = -2  # minus the line: of what its open entries need
HELD = -1000  # minus n i + j: of what an entry needs
_POOL = 1 << 18
_NOBODY = -1


class Board(NamedTuple):
    """Which slots serve which entry, as far as decided. Line i is a row, line n + j a column."""

    demand: NDArray[np.float64]  # (n, n)
    number: NDArray[np.int64]  # (n, n) of the entries that are demanded, from 0
    place: NDArray[np.int64]  # (entries, 2) row and column of each
    open: NDArray[np.bool_]  # (n, n) entries that are not decided
    seat: NDArray[np.int64]  # (k, n) column of a slot in a row, or -1
    free: NDArray[np.int64]  # (2 n,) slots that are not decided on a line, as bits
    sums: NDArray[np.float64]  # (2 n,) ticks of a line's entries
    rest: NDArray[np.float64]  # (2 n,) ticks of those that are open
    left: NDArray[np.int64]  # (2 n,) how many those are
    full: NDArray[np.bool_]  # (2 n,) whether slots never idle on a line
    suspects: NDArray[np.int64]  # (2 n,) lines, those that failed or were chosen last first
    pool: NDArray[np.int64]  # (ways, 4) row, column, slots, entries of a way; frame by frame
    next: NDArray[np.int64]  # (frames,) the way of a frame that is tried next
    end: NDArray[np.int64]  # (frames,) where a frame's ways end
    line: NDArray[np.int64]  # (frames,) the line that a frame decides
    order: NDArray[np.int64]  # (n,) numbers of a line's entries, those with the fewest sets first
    ticks: NDArray[np.float64]  # (k,) durations
    ranked: NDArray[np.int64]  # (2 n, n) columns or rows of a line's entries, the largest first
    twins: NDArray[np.int64]  # (k + 1,) slots before it that nothing tells apart; all with such
    longest: NDArray[np.int64]  # (k,) slots, those that last longest first
    share: NDArray[np.int64]  # (4,) first line, its last frame; part, parts
    sample: NDArray[np.int64]  # (3,) frames of which one way of so many is taken; random number
    work: NDArray[np.float64]  # (1,) programmes of the whole search, estimated from a sample
    state: NDArray[np.int64]  # (3,) frame, whether its ways are listed, whether the pool ran over


def lay(demand: NDArray[np.int64], slots: int, shortest: int) -> tuple[Programmes, Board]:
    """Lay out the search for `slots` slots that hold a demand; nothing is decided.

    Lines without a zero use every slot: a matching that leaves ports idle can be made a
    permutation, which holds no less.
    """
    n = len(demand)
    entries = int((demand > 0).sum())
    frames = entries + 2
    lines = np.concatenate([demand, demand.T])
    full = np.all(lines > 0, axis=1)
    programmes = stack(slots, shortest, frames + 1, rows=4 * n * n + 64)
    board = Board(
        demand=demand.astype(np.float64),
        number=np.cumsum(demand > 0).reshape(n, n) - 1,
        place=np.argwhere(demand > 0),
        open=demand > 0,
        seat=np.full((slots, n), _NOBODY, dtype=np.int64),
        free=np.full(2 * n, (1 << slots) - 1, dtype=np.int64),
        sums=lines.sum(axis=1).astype(np.float64),
        rest=lines.sum(axis=1).astype(np.float64),
        left=(lines > 0).sum(axis=1).astype(np.int64),
        full=np.asarray(full),
        suspects=np.arange(2 * n),
        pool=np.zeros((_POOL, 4), dtype=np.int64),
        next=np.zeros(frames, dtype=np.int64),
        end=np.zeros(frames, dtype=np.int64),
        line=np.zeros(frames, dtype=np.int64),
        order=np.zeros(n, dtype=np.int64),
        ticks=np.zeros(slots),
        ranked=np.argsort(-lines, axis=1, kind="stable"),
        twins=np.zeros(slots + 1, dtype=np.int64),
        longest=np.zeros(slots, dtype=np.int64),
        share=np.array([0, 0, 0, 1], dtype=np.int64),
        sample=np.array([0, 1, 1], dtype=np.int64),
        work=np.zeros(1),
        state=np.zeros(3, dtype=np.int64),
    )
    return programmes, board


@bare_kernel
def entry_at(n, line, cross):
    """Row and column of an entry of a line."""
    return (line, cross) if line < n else (cross, line - n)
