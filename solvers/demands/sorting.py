"""Order statistics inside kernels, which allocate nothing."""

from __future__ import annotations

from optmatch.solvers.kernels.decorators import inner_kernel


@inner_kernel
def sort_first(values, count):
    """Sort the first `count` numbers of a vector in place, ascending.

    Shell's sort with the steps of Knuth, 1, 4, 13, 40, ...: about ``count**1.5`` steps at worst,
    which is quick for the hundreds of values that slots have.
    """
    step = 1
    while step < count:
        step = 3 * step + 1
    while step > 1:
        step //= 3
        for position in range(step, count):
            value = values[position]
            place = position
            while place >= step and values[place - step] > value:
                values[place] = values[place - step]
                place -= step
            values[place] = value


@inner_kernel
def largest_of(values, count):
    """Return the largest of the first `count` numbers of a vector, of which there is one."""
    largest = values[0]
    for position in range(1, count):
        largest = max(largest, values[position])
    return largest
