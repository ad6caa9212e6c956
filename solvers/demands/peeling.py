"""Kernels that peel permutations off a matrix of whole numbers whose lines all have one sum.

What is left of an entry is in `Bench.left`. The entries that may be used form a graph, a set of
bits for each row, so that a search passes over dozens of columns in one step. Matchings are kept
from one permutation to the next: only rows whose entry is used up look for another column.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernel import kernel

WORD = 62
"""Columns in one word: as many as leave the sign of int64 alone."""

_PRIME = 67  # the powers of two below 2**62 all differ modulo it
_PLACE = np.zeros(_PRIME, dtype=np.int64)
for _k in range(WORD):
    _PLACE[(1 << _k) % _PRIME] = _k

LINE_SUM, THRESHOLD, FLOOR, HEAP_SIZE, SUPPORT_SIZE = range(5)
"""Indices of `Bench.state`."""


class Bench(NamedTuple):
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
    support: NDArray[np.int64]  # places that may not be zero
    heap: NDArray[np.int64]  # places below the threshold and not below the floor, largest first
    state: NDArray[np.int64]


def set_up(matrix: NDArray[np.int64], *, threshold: int) -> Bench:
    """Lay out the bench for a matrix of which all lines have the same sum.

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
    support = np.flatnonzero(matrix)
    state = [int(matrix[0].sum()), threshold, threshold, 0, len(support)]

    def room(size: int, fill: int = 0) -> NDArray[np.int64]:
        return np.full(size, fill, dtype=np.int64)

    return Bench(
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
        support=support,
        heap=room(len(support)),
        state=np.array(state, dtype=np.int64),
    )


@kernel
def _augment(bench, row, column):
    """Exchange columns along the path that ends in `row` and the idle `column`."""
    bench.idle[bench.word[column]] ^= bench.bit[column]
    while True:
        before = bench.column_of[row]
        bench.column_of[row] = column
        bench.row_of[column] = row
        if before < 0:
            return
        column = before
        row = bench.parent[column]


@kernel
def _search(bench, head):
    """Search on from the last row of a queue, in ``queue[head]``; augment at an idle column.

    Returns the new end of the queue, or -1 after an augmentation.
    """
    graph, idle, fresh, queue = bench.graph, bench.idle, bench.fresh, bench.queue
    parent, row_of = bench.parent, bench.row_of
    words = len(idle)
    end = head + 1
    while head < end:
        row = queue[head]
        head += 1
        for w in range(words):
            found = graph[row, w] & idle[w]
            if found:
                _augment(bench, row, WORD * w + _PLACE[(found & -found) % _PRIME])
                return -1
        for w in range(words):
            found = graph[row, w] & fresh[w]
            fresh[w] ^= found
            while found:
                lowest = found & -found
                found ^= lowest
                column = WORD * w + _PLACE[lowest % _PRIME]
                parent[column] = row
                queue[end] = row_of[column]
                end += 1
    return end


@kernel
def _match(bench, size):
    """Match as many of the first `size` waiting rows as the graph allows.

    Returns how many wait still. The rows to which those lead are reached then, and the columns to
    which they do not are fresh.
    """
    if size == 0:
        return 0
    fresh, saved, queue, waiting = bench.fresh, bench.saved, bench.queue, bench.waiting
    words = len(fresh)
    for w in range(words):
        fresh[w] = bench.every[w]
    bench.reached[:] = False
    kept = 0
    end = 0
    for k in range(size):
        row = waiting[k]
        if bench.column_of[row] >= 0:
            continue
        for w in range(words):
            saved[w] = fresh[w]
        queue[end] = row
        stop = _search(bench, end)
        if stop < 0:  # what it has seen may serve the next; dead ends stay closed
            for w in range(words):
                fresh[w] = saved[w]
            continue
        for place in range(end, stop):
            bench.reached[queue[place]] = True
        end = stop
        waiting[kept] = row
        kept += 1
    return kept


@kernel
def _seize(bench, size):
    """Give each of the first `size` waiting rows its smallest entry in an idle column, if any."""
    graph, left, idle, waiting = bench.graph, bench.left, bench.idle, bench.waiting
    n = len(bench.word)
    threshold = bench.state[THRESHOLD]
    most = bench.state[LINE_SUM] + 1
    kept = 0
    for k in range(size):
        row = waiting[k]
        best = -1
        least = most
        for w in range(len(idle)):
            found = graph[row, w] & idle[w]
            while found and least > threshold:
                lowest = found & -found
                found ^= lowest
                column = WORD * w + _PLACE[lowest % _PRIME]
                value = left[row * n + column]
                if value < least:
                    best = column
                    least = value
        if best < 0:
            waiting[kept] = row
            kept += 1
        else:
            idle[bench.word[best]] ^= bench.bit[best]
            bench.column_of[row] = best
            bench.row_of[best] = row
    return kept


@kernel
def _release(bench, row):
    """Let a row wait and its column idle."""
    column = bench.column_of[row]
    bench.idle[bench.word[column]] |= bench.bit[column]
    bench.row_of[column] = -1
    bench.column_of[row] = -1


@kernel
def _sink(heap, left, place, size):
    """Let an item of the heap sink to where it belongs."""
    item = heap[place]
    value = left[item]
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and left[heap[below + 1]] > left[heap[below]]:
            below += 1
        if left[heap[below]] <= value:
            break
        heap[place] = heap[below]
        place = below
    heap[place] = item


@kernel
def _push(heap, left, state, item):
    """Put a place into the heap."""
    place = state[HEAP_SIZE]
    state[HEAP_SIZE] += 1
    while place > 0:
        above = (place - 1) >> 1
        if left[heap[above]] >= left[item]:
            break
        heap[place] = heap[above]
        place = above
    heap[place] = item


@kernel
def _admit(bench):
    """Move the largest entry of the heap into the graph; return its place."""
    heap, state = bench.heap, bench.state
    place = heap[0]
    state[HEAP_SIZE] -= 1
    heap[0] = heap[state[HEAP_SIZE]]
    _sink(heap, bench.left, 0, state[HEAP_SIZE])
    n = len(bench.word)
    row = place // n
    column = place - row * n
    bench.graph[row, bench.word[column]] |= bench.bit[column]
    return place


@kernel
def _refill(bench):
    """Fill the empty heap with the largest entries below the floor; False if there are none."""
    heap, left, support, state = bench.heap, bench.left, bench.support, bench.state
    while state[FLOOR] > 1:
        floor = state[FLOOR]
        lower = floor - max(1, floor >> 3)
        kept = 0
        size = 0
        for k in range(state[SUPPORT_SIZE]):
            place = support[k]
            value = left[place]
            if value > 0:
                support[kept] = place
                kept += 1
                if lower <= value < floor:
                    heap[size] = place
                    size += 1
        state[SUPPORT_SIZE] = kept
        state[FLOOR] = lower
        if size:
            for place in range(size // 2 - 1, -1, -1):
                _sink(heap, left, place, size)
            state[HEAP_SIZE] = size
            return True
    return False


@kernel
def _find_bottleneck(bench, size):
    """Lower the threshold until all `size` waiting rows are matched; True if it had to be.

    Entries matter only if one leads from a row that waiting rows reach to a column that they do
    not. Without the last that did, no matching is perfect: their value is the largest minimum.
    """
    state = bench.state
    n = len(bench.word)
    size = _match(bench, size)
    if size == 0:
        return False
    while size:
        if state[HEAP_SIZE] == 0 and not _refill(bench):
            state[THRESHOLD] = 0
            return False
        state[THRESHOLD] = bench.left[bench.heap[0]]
        leads = False
        while state[HEAP_SIZE] and bench.left[bench.heap[0]] == state[THRESHOLD]:
            place = _admit(bench)
            row = place // n
            column = place - row * n
            if bench.reached[row] and bench.fresh[bench.word[column]] & bench.bit[column]:
                leads = True
        if leads:
            size = _match(bench, size)
    return True


@kernel
def settle(bench, tidy):
    """Match all rows such that the smallest entry is as large as can be; return it, 0 if none can.

    With `tidy`, the other entries are small ones.
    """
    left, state, waiting = bench.left, bench.state, bench.waiting
    n = len(bench.word)
    size = 0
    for row in range(n):
        if bench.column_of[row] < 0:
            waiting[size] = row
            size += 1
    lowered = _find_bottleneck(bench, _seize(bench, size))
    weight = state[THRESHOLD]
    if not (lowered and tidy) or weight == 0:
        return weight
    # Of the matchings with this minimum, one of small entries leaves the fewest behind. That just
    # found is of large ones where possible: all but those of exactly the minimum are chosen anew.
    size = 0
    for row in range(n):
        if left[row * n + bench.column_of[row]] > weight:
            _release(bench, row)
            waiting[size] = row
            size += 1
    _match(bench, _seize(bench, size))
    return weight


@kernel
def lower(bench, rows, columns, values):
    """Reduce entries; rows that use one which falls below the threshold have to wait."""
    left, graph, state = bench.left, bench.graph, bench.state
    word, bit = bench.word, bench.bit
    n = len(word)
    for k in range(len(rows)):
        row, column, value = rows[k], columns[k], values[k]
        place = row * n + column
        before = left[place]
        left[place] = value
        if before >= state[THRESHOLD] > value:
            graph[row, word[column]] ^= bit[column]
            if bench.column_of[row] == column:
                _release(bench, row)
            if value >= state[FLOOR]:
                _push(bench.heap, left, state, place)
        elif before > value and before >= state[FLOOR]:
            state[HEAP_SIZE] = 0  # its place in the heap is wrong now: it is filled anew
            state[FLOOR] = state[THRESHOLD]


@kernel
def peel_bottleneck(bench, stop, permutations, weights):
    """Peel permutations whose smallest entry is as large as can be, until lines sum to `stop`.

    Returns how many there are; -1 if no permutation is left, so line sums were not equal.
    """
    left, state, graph, idle = bench.left, bench.state, bench.graph, bench.idle
    column_of, row_of, word, bit = bench.column_of, bench.row_of, bench.word, bench.bit
    n = len(word)
    for term in range(len(weights)):
        if state[LINE_SUM] <= stop:
            return term
        weight = settle(bench, True)
        if weight == 0:
            return -1
        state[LINE_SUM] -= weight
        weights[term] = weight
        for row in range(n):  # as `lower` does, which would take a tenth more time
            column = column_of[row]
            permutations[term, row] = column
            place = row * n + column
            value = left[place] - weight
            left[place] = value
            if value < weight:
                graph[row, word[column]] ^= bit[column]
                idle[word[column]] |= bit[column]
                row_of[column] = -1
                column_of[row] = -1
                if value >= state[FLOOR]:
                    _push(bench.heap, left, state, place)
    return len(weights)


@kernel
def peel_first(bench, stop, permutations, weights):
    """Peel the permutation at hand, as often as its smallest entry allows.

    Returns how many terms there are; -1 if no permutation is left, so line sums were not equal.
    """
    left, state, held = bench.left, bench.state, bench.waiting
    n = len(bench.word)
    for term in range(len(weights)):
        if state[LINE_SUM] <= stop:
            return term
        for row in range(n):
            if bench.column_of[row] < 0:
                bench.queue[0] = row
                for w in range(len(bench.fresh)):
                    bench.fresh[w] = bench.every[w]
                if _search(bench, 0) >= 0:
                    return -1
        weight = state[LINE_SUM]
        for row in range(n):
            place = row * n + bench.column_of[row]
            held[row] = place
            weight = min(weight, left[place])
        state[LINE_SUM] -= weight
        weights[term] = weight
        for row in range(n):
            place = held[row]
            column = place - row * n
            permutations[term, row] = column
            left[place] -= weight
            if left[place] == 0:
                bench.graph[row, bench.word[column]] ^= bench.bit[column]
                _release(bench, row)
    return len(weights)
