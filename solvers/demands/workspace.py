"""What kernels that peel permutations off a matrix work on: arrays, and a queue of entries.

Every entry that is not zero is in one of three places: in the graph of entries that may be used,
in a heap of those just below, or among the low ones, of which the heap is filled again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernel import inner_kernel

WORD = 64
"""Columns in one word, whose last bit is the sign."""

LINE_SUM, THRESHOLD, FLOOR, HEAP_SIZE, LOW_SIZE = range(5)
"""Indices of `PeelingWorkspace.state`."""


class PeelingWorkspace(NamedTuple):
    """What a decomposition remembers between two permutations, and room to work in."""

    left: NDArray[np.int64]  # by place: row * n + column
    graph: NDArray[np.int64]  # (n, words): the entries that may be used
    column_of: NDArray[np.int64]  # by row, -1 where it waits
    row_of: NDArray[np.int64]  # by column, -1 where it is idle
    idle: NDArray[np.int64]  # (words): columns without a row
    fresh: NDArray[np.int64]  # (words): columns that no search has seen
    saved: NDArray[np.int64]  # (words): `fresh` before a search
    every: NDArray[np.int64]  # (words): all columns
    reached: NDArray[np.bool_]  # by row: some waiting row leads to it, and none to an idle column
    parent: NDArray[np.int64]  # by column: the row that a search came from
    queue: NDArray[np.int64]  # rows that a search has reached
    waiting: NDArray[np.int64]  # rows without a column
    word: NDArray[np.int64]  # by column: where its bit is
    bit: NDArray[np.int64]
    heap: NDArray[np.int64]  # places below the threshold and not below the floor, largest first
    heap_value: NDArray[np.int64]  # their entries: to look these up would be to leave the cache
    low: NDArray[np.int64]  # places below the floor, in any order
    low_value: NDArray[np.int64]
    admitted: NDArray[np.int64]  # places that came into the graph last
    state: NDArray[np.int64]


def set_up(matrix: NDArray[np.int64], *, threshold: int) -> PeelingWorkspace:
    """Lay out the space for a matrix of which all lines have the same sum.

    Parameters
    ----------
    matrix
        Entries, shape (n, n), n > 0.
    threshold
        Entries of at least this are in the graph from the start.
    """
    n = len(matrix)
    columns = np.arange(n)
    word = columns // WORD
    bit = np.left_shift(np.int64(1), columns % WORD)
    every = np.add.reduceat(bit, np.arange(0, n, WORD))
    usable = np.where(matrix >= threshold, bit, 0)
    graph = np.add.reduceat(usable, np.arange(0, n, WORD), axis=1)
    size = int(np.count_nonzero(matrix))
    low = np.flatnonzero((matrix > 0) & (matrix < threshold))
    state = [int(matrix[0].sum()), threshold, threshold, 0, len(low)]

    def room(size: int, fill: int = 0) -> NDArray[np.int64]:
        return np.full(size, fill, dtype=np.int64)

    return PeelingWorkspace(
        left=np.array(matrix, dtype=np.int64, order="C").ravel(),
        graph=graph,
        column_of=room(n, -1),
        row_of=room(n, -1),
        idle=every.copy(),
        fresh=every.copy(),
        saved=every.copy(),
        every=every,
        reached=np.zeros(n, dtype=np.bool_),
        parent=room(n),
        queue=room(n),
        waiting=room(n),
        word=word,
        bit=bit,
        heap=room(size),
        heap_value=room(size),
        low=np.concatenate([low, room(size - len(low))]),
        low_value=np.concatenate([matrix.ravel()[low], room(size - len(low))]),
        admitted=room(size),
        state=np.array(state, dtype=np.int64),
    )


@inner_kernel
def sink(heap, values, place, size):
    """Let an item of the heap sink to where it belongs."""
    item, value = heap[place], values[place]
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and values[below + 1] > values[below]:
            below += 1
        if values[below] <= value:
            break
        heap[place], values[place] = heap[below], values[below]
        place = below
    heap[place], values[place] = item, value


@inner_kernel
def order(heap, values, size):
    """Make a heap of items in any order."""
    for place in range(size // 2 - 1, -1, -1):
        sink(heap, values, place, size)


@inner_kernel
def push(heap, values, state, item, value):
    """Put an entry into the heap."""
    place = state[HEAP_SIZE]
    state[HEAP_SIZE] += 1
    while place > 0:
        above = (place - 1) >> 1
        if values[above] >= value:
            break
        heap[place], values[place] = heap[above], values[above]
        place = above
    heap[place], values[place] = item, value


@inner_kernel
def lay(low, low_value, state, item, value):
    """Put an entry among the low ones."""
    low[state[LOW_SIZE]] = item
    low_value[state[LOW_SIZE]] = value
    state[LOW_SIZE] += 1


@inner_kernel
def refill(space):
    """Fill the empty heap with the largest entries below the floor; False if there are none."""
    heap, values, low, low_value = space.heap, space.heap_value, space.low, space.low_value
    state = space.state
    while state[LOW_SIZE]:
        floor = state[FLOOR] - max(1, state[FLOOR] >> 3)
        state[FLOOR] = floor
        kept = size = 0
        for k in range(state[LOW_SIZE]):
            item, value = low[k], low_value[k]
            if value < floor:
                low[kept], low_value[kept] = item, value
                kept += 1
            else:
                heap[size], values[size] = item, value
                size += 1
        state[LOW_SIZE] = kept
        if size:
            order(heap, values, size)
            state[HEAP_SIZE] = size
            return True
    return False
