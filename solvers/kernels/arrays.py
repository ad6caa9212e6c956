"""Steps on arrays and words that kernels share, none of which allocates as numba's own would."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel

_BIAS = 1023  # of the exponent of a float64


def make_read_only(*arrays: NDArray[Any]) -> None:
    """Make arrays read-only: kernels are compiled for that, and for no other type."""
    for array in arrays:
        array.flags.writeable = False


@inner_kernel
def copy_into(array, values):
    """Copy values to the first places of an array, which is as long as them or longer."""
    for place in range(len(values)):
        array[place] = values[place]


@inner_kernel
def sort_first(values, count):
    """Sort the first `count` numbers of a vector in place, ascending.

    Shell's sort with the steps of Knuth, 1, 4, 13, 40, ...: about ``count**1.5`` steps at worst,
    which is quick for the hundreds of values that slots have.

    The values 5, 2, 9, 1 become 2, 5, 9, 1 with a `count` of 3.
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


@inner_kernel
def number_of_bit(bit):
    """Return k for the single bit 2**k of a word of 64 bits, k < 64: the exponent of its float.

    The last bit is the sign: the word is then -2**63, whose exponent is 63 as well.
    """
    return ((np.float64(bit).view(np.int64) >> 52) & 2047) - _BIAS
