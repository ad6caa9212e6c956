"""All-gathers of the fewest rounds, replayed, and what is made of them."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from optmatch.solvers.collectives.circulant import all_gather, split_rounds
from optmatch.solvers.collectives.rounds import of_gathers
from tests.helpers.contributions import own_blocks, raw, replay
from tests.helpers.modes import examples


def configurations(sends: NDArray[np.int64], n: int) -> int:
    """Count the runs of rounds with the same circuits, which are shifts of all ranks."""
    shift = (sends[:, 2] - sends[:, 1]) % n
    _, first = np.unique(sends[:, 0], return_index=True)
    assert (shift == np.repeat(shift[first], np.diff([*first, len(sends)]))).all()
    return 1 + int(np.count_nonzero(np.diff(shift[first])))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 8, 11, 16])
def test_collectives_are_complete(n: int) -> None:
    for k in range(1, 6):
        held = split_rounds(n, k)
        gather, scatter, both = (
            of_gathers(name, partial(all_gather, n, held)).sends
            for name in ("all-gather", "reduce-scatter", "all-reduce")
        )
        assert replay(own_blocks(n), gather, two_way=False, shared=True)[
            :, range(n), range(n)
        ].all()
        ranks = range(n)
        summed = replay(raw(n, n), scatter, two_way=False, shared=True)
        assert summed[ranks, ranks].all()
        assert replay(raw(n, n), both, two_way=False, shared=True).all()
        assert len(gather) == len(scatter) == n * (n - 1) == len(both) / 2
        assert gather[-1, 0] + 1 == scatter[-1, 0] + 1 == (both[-1, 0] + 1) / 2 == sum(held)
        assert configurations(gather, n) <= k
        assert configurations(both, n) <= 2 * k - 1


LARGE = [1024] if examples(1, plain=0) > 1 else []  # a million blocks: `make soak`


@pytest.mark.parametrize("n", [3, 10, 63, 64, 100, 500, *LARGE])
def test_every_block_arrives_once_in_as_many_rounds_as_the_bound(n: int) -> None:
    for k in (1, 2, 3, 8):
        held = split_rounds(n, k)
        sends = all_gather(n, held).sends
        arrived = sends[:, 2] * n + sends[:, 3]
        assert len(np.unique(arrived)) == len(sends) == n * (n - 1)
        assert sends[-1, 0] + 1 == sum(held)
        assert configurations(sends, n) <= k


def test_the_bound_is_the_least_sum() -> None:
    for n, k in product(range(1, 20), range(1, 4)):
        ways = product(range(n), repeat=k)
        least = min(sum(way) for way in ways if np.prod([1 + r for r in way]) >= n)
        split = split_rounds(n, k)
        assert least == sum(split)
        assert len(split) <= k and np.prod([1 + r for r in split]) >= n


@pytest.mark.parametrize(
    ("n", "sums"),
    [
        (8, [7, 4, 3]),
        (64, [63, 14, 9, 8, 7, 6]),
        (1024, [1023, 62, 28, 19, 15, 14, 13, 12, 11, 10]),
    ],
)
def test_sums_that_are_known(n: int, sums: list[int]) -> None:
    assert [sum(split_rounds(n, k + 1)) for k in range(len(sums))] == sums
