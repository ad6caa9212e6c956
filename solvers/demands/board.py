"""Which slots serve which entry of a demand: what is decided, and what could be."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.demands.programmes import Programmes, stack

ENTRY, SLOT = 0, 1  # kinds of questions: who serves an entry, where a slot of a line goes
_POOL = 1 << 18
_NOBODY = -1


class Board(NamedTuple):
    """Which slots serve which entry, as far as decided. Line i is a row, line n + j a column."""

    demand: NDArray[np.float64]  # (n, n)
    open: NDArray[np.bool_]  # (n, n) entries that are not decided
    seat: NDArray[np.int64]  # (k, n) column of a slot in a row, or -1
    free: NDArray[np.int64]  # (2 n,) slots that are not decided on a line, as bits
    rest: NDArray[np.float64]  # (2 n,) ticks of a line's open entries
    left: NDArray[np.int64]  # (2 n,) how many those are
    full: NDArray[np.bool_]  # (2 n,) whether slots never idle on a line
    first: NDArray[np.int64]  # (2,) the lines to begin with
    suspects: NDArray[np.int64]  # (questions, 3) those that failed last first: kind, line, which
    pool: NDArray[np.int64]  # (ways, 3) row, column, slots: ways to decide, frame by frame
    next: NDArray[np.int64]  # (frames,) the way of a frame that is tried next
    end: NDArray[np.int64]  # (frames,) where a frame's ways end
    line: NDArray[np.int64]  # (frames,) the line that a frame decides
    chosen: NDArray[np.int64]  # (k,) slots of the set that is being built
    ticks: NDArray[np.float64]  # (k,) durations
    sizes: NDArray[np.float64]  # (n,) demands of a line
    share: NDArray[np.int64]  # (3,) last frame of the first line; part, parts
    state: NDArray[np.int64]  # (3,) frame, whether its ways are listed, whether the pool ran over


def lay(demand: NDArray[np.int64], slots: int, shortest: int) -> tuple[Programmes, Board]:
    """Lay out the search for `slots` slots that hold a demand; nothing is decided.

    Lines without a zero use every slot: a matching that leaves ports idle can be made a
    permutation, which holds no less.
    """
    n = len(demand)
    entries = int((demand > 0).sum())
    frames = entries + 2
    levels = frames + slots + 3
    lines = np.concatenate([demand, demand.T])
    full = np.all(lines > 0, axis=1)
    asked = [(SLOT, int(line), s) for line in np.flatnonzero(full) for s in range(slots)]
    asked += [(ENTRY, int(i), int(j)) for i, j in np.argwhere(demand > 0)]
    programmes = stack(slots, shortest, levels, rows=4 * n * n + 64)
    board = Board(
        demand=demand.astype(np.float64),
        open=demand > 0,
        seat=np.full((slots, n), _NOBODY, dtype=np.int64),
        free=np.full(2 * n, (1 << slots) - 1, dtype=np.int64),
        rest=lines.sum(axis=1).astype(np.float64),
        left=(lines > 0).sum(axis=1).astype(np.int64),
        full=np.asarray(full),
        first=np.zeros(2, dtype=np.int64),
        suspects=np.array(asked, dtype=np.int64).reshape(-1, 3),
        pool=np.zeros((_POOL, 3), dtype=np.int64),
        next=np.zeros(frames, dtype=np.int64),
        end=np.zeros(frames, dtype=np.int64),
        line=np.zeros(frames, dtype=np.int64),
        chosen=np.zeros(slots + 1, dtype=np.int64),
        ticks=np.zeros(slots),
        sizes=np.zeros(n),
        share=np.array([0, 0, 1], dtype=np.int64),
        state=np.zeros(3, dtype=np.int64),
    )
    return programmes, board
