"""A heap of keys, each with an item, in two arrays: the least key is in front."""

from __future__ import annotations

from optmatch.solvers.kernels.decorators import inner_kernel


@inner_kernel
def push(keys, items, size, key, item):
    """Add an item to the heap; return its new size."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if keys[above] <= key:
            break
        keys[place] = keys[above]
        items[place] = items[above]
        place = above
    keys[place] = key
    items[place] = item
    return size + 1


@inner_kernel
def pop(keys, items, size):
    """Remove the first item, which the caller has read."""
    size -= 1
    key = keys[size]
    item = items[size]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and keys[below + 1] < keys[below]:
            below += 1
        if keys[below] >= key:
            break
        keys[place] = keys[below]
        items[place] = items[below]
        place = below
    keys[place] = key
    items[place] = item
    return size
