"""All-gathers of the fewest rounds, replayed, and what is made of them."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import optmatch as om
from optmatch.solvers.collectives.circulant import split_rounds
from optmatch.solvers.collectives.spreading import list_mixed_radix_offers
from tests.helpers.contributions import own_blocks, raw, replay
from tests.helpers.modes import examples


def configurations(sends: NDArray[np.int64], n: int) -> int:
    """Count the runs of rounds with the same circuits, which are shifts of all ranks."""
    shift = (sends[:, 2] - sends[:, 1]) % n
    _, first = np.unique(sends[:, 0], return_index=True)
    assert (shift == np.repeat(shift[first], np.diff([*first, len(sends)]))).all()
    return 1 + int(np.count_nonzero(np.diff(shift[first])))


DELAYS_S = (0.0, 1e-6, 3e-6, 1e-5, 1e-3)
"""Delays of a change of circuits that let many or few configurations be best."""


def make_sends(operation: Any, n: int, delay_s: float) -> NDArray[np.int64]:
    """Return the sends of a sequence of reduce-scatter and all-gather, or of one of them."""
    problem = om.Collective(operation, n, 64.0 * n, alpha_s=1e-6, delay_s=delay_s)
    plan = next(list_mixed_radix_offers(problem)).build().plan
    return plan.spelled_out(operation).sends.astype(np.int64)


def choose_split(n: int, delay_s: float) -> tuple[int, ...]:
    """Return the rounds of each configuration that take the least time."""
    splits = [split_rounds(n, k) for k in range(1, (n - 1).bit_length() + 1)]
    return min(splits, key=lambda split: (len(split) - 1) * delay_s + 1e-6 * sum(split))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 8, 11, 16])
def test_collectives_are_complete(n: int) -> None:
    for delay_s in DELAYS_S:
        held = choose_split(n, delay_s)
        gather, scatter, both = (
            make_sends(name, n, delay_s) for name in ("all-gather", "reduce-scatter", "all-reduce")
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
        assert configurations(gather, n) <= len(held)
        assert configurations(both, n) <= 2 * len(held) - 1


LARGE = [500, 1024] if examples(1, plain=0) > 1 else []  # up to a million blocks: `make soak`


@pytest.mark.parametrize("n", [3, 10, 63, 64, 100, *LARGE])
def test_every_block_arrives_once_in_as_many_rounds_as_the_bound(n: int) -> None:
    for delay_s in DELAYS_S:
        held = choose_split(n, delay_s)
        sends = make_sends("all-gather", n, delay_s)
        arrived = sends[:, 2] * n + sends[:, 3]
        assert len(np.unique(arrived)) == len(sends) == n * (n - 1)
        assert sends[-1, 0] + 1 == sum(held)
        assert configurations(sends, n) <= len(held)


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
