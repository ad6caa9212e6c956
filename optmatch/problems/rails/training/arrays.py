"""Three operations on whole arrays: numbers of ranges, their values, and connected components."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def list_ranges(first: NDArray[Any], count: NDArray[Any]) -> Ints:
    """List the ``count[k]`` numbers from ``first[k]`` on, of all k one after another.

    With first 4, 9 and count 2, 1 these are 4, 5 and 9.
    """
    shift = first - np.cumsum(count) + count
    numbers: Ints = np.repeat(shift, count) + np.arange(count.sum())
    return numbers


def copy_ranges(values: NDArray[Any], first: NDArray[Any], count: NDArray[Any]) -> NDArray[Any]:
    """Copy the ``count[k]`` values from ``values[first[k]]`` on, of all k one after another.

    The result is a view of bytes, which a plan takes without a copy. Ranges are copied one by one,
    as a plan has 30 million values, and their numbers would take more memory than these.
    """
    ranges = [
        values[begin : begin + length].data
        for begin, length in zip(first.tolist(), count.tolist(), strict=True)
    ]
    return np.frombuffer(b"".join(ranges), values.dtype)


def join_members(n: int, member: NDArray[Any], owner: NDArray[Any]) -> Ints:
    """Find for each of `n` members the least one that it is joined to, by connected components.

    Members are the numbers 0 to n - 1. ``owner[k]``, a number from 0 on, owns ``member[k]``, and
    members of one owner are joined: if owner 0 has the members 0 and 1, and owner 1 the members 1
    and 2, all three get 0. Labels are propagated with pointer jumping.
    """
    least = np.arange(n)
    former = np.arange(0)
    while not np.array_equal(least, former):
        former = least

        # Each owner takes the least number of its members, and each member that of its owners.
        lowest = np.full(int(owner.max(initial=-1)) + 1, n)
        np.minimum.at(lowest, owner, least[member])
        least = least.copy()
        np.minimum.at(least, member, lowest[owner])

        # Numbers are followed one step further (pointer jumping): few rounds even on long chains.
        least = least[least]
    return least
