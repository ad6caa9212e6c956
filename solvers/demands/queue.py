"""Kernels of the queue of entries: the largest first, in a heap above a floor that sinks."""

from __future__ import annotations

from optmatch.solvers.demands.workspace import FLOOR, HEAP_SIZE, LOW_SIZE
from optmatch.solvers.kernel import kernel


@kernel
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


@kernel
def order(heap, values, size):
    """Make a heap of items in any order."""
    for place in range(size // 2 - 1, -1, -1):
        sink(heap, values, place, size)


@kernel
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


@kernel
def lay(low, low_value, state, item, value):
    """Put an entry among the low ones."""
    low[state[LOW_SIZE]] = item
    low_value[state[LOW_SIZE]] = value
    state[LOW_SIZE] += 1


@kernel
def refill(bench):
    """Fill the empty heap with the largest entries below the floor; False if there are none."""
    heap, values, low, low_value = bench.heap, bench.heap_value, bench.low, bench.low_value
    state = bench.state
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
