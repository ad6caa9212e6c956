"""A binary heap of keys, each with an item, in two arrays: the least key is in front.

The children of the entry at place p are at places 2 p + 1 and 2 p + 2, and have no smaller key.
"""

from __future__ import annotations

from optmatch.solvers.kernels.decorators import inner_kernel


@inner_kernel
def push(keys, items, size, key, item):
    """Add an item with a key to a heap of `size` entries, in place, and return its new size.

    ``keys[place]`` and ``items[place]`` have the smallest key at place 0. Smaller keys come out
    first. It takes O(log size) and needs a free place in both arrays.
    """
    # Larger keys on the way to the root move down one level each.
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
    """Remove the entry in front, which the caller has read at place 0, and return the new size.

    `keys` and `items` are those of `push`. It takes O(log size); the heap has at least one entry
    and is changed in place.
    """
    # The last entry goes to the front and sinks: smaller keys below it move up one level each.
    size -= 1
    key = keys[size]
    item = items[size]
    place = 0

    # The smaller of both children moves up, if it is smaller than the one that sinks.
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
