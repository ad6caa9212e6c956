"""Ranges and connected components of whole arrays, compared with plain loops."""

import numpy as np

from optmatch.problems.rails.training.arrays import copy_ranges, join_members, list_ranges


def test_ranges_stand_one_after_another() -> None:
    rng = np.random.default_rng(0)
    values = rng.random(20)
    for n in (0, 1, 5):
        first = rng.integers(0, 15, n)
        count = rng.integers(0, 5, n)
        expected = [
            number
            for begin, length in zip(first.tolist(), count.tolist(), strict=True)
            for number in range(begin, begin + length)
        ]
        assert list_ranges(first, count).tolist() == expected
        copies = copy_ranges(values, first, count)
        assert copies.tolist() == values[expected].tolist() if expected else not len(copies)
        assert not copies.flags.writeable


def test_members_of_one_owner_are_joined() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        n = int(rng.integers(1, 9))
        member = rng.integers(0, n, int(rng.integers(0, 12)))
        owner = rng.integers(0, 6, len(member))

        # Each round lets members of one owner agree in the least of their numbers.
        least = np.arange(n)
        for _ in range(n):
            for number in np.unique(owner):
                joined = member[owner == number]
                least[np.isin(least, least[joined])] = least[joined].min()
        assert join_members(n, member, owner).tolist() == least.tolist()
    assert join_members(0, np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []
