"""Uneven all-to-alls of many ranks: matchings for large blocks, circulants for the rest."""

from dataclasses import replace

import numpy as np
import pytest

import optmatch as om
from tests.helpers.collectives import compute
from tests.helpers.modes import examples, nightly_only
from tests.rivals.collectives.exchanges import greedy_matchings_s


def draw_zipf(n: int, seed: int, ports: int = 1, delay_s: float = 1e-5) -> om.Collective:
    """Return 64 MB of each rank, spread over the others by Zipf."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, n)
    demand = np.zeros((n, n))
    for rank in range(n):
        others = np.delete(np.arange(n), rank)
        demand[rank, others] = 64e6 * rng.permutation(weights) / weights.sum()
    return om.Collective(
        "all-to-all",
        n,
        0.0,
        demand_bytes=demand,
        alpha_s=2.7e-6,
        ports=ports,
        delay_s=delay_s,
    )


@pytest.mark.parametrize("seed", range(examples(4, plain=1)))
def test_blocks_arrive_whole(seed: int) -> None:
    problem = draw_zipf(7 + seed, seed)
    solution = om.solve(problem, "skewed", seed=0)
    assert om.verify(problem, solution).ok and compute(problem, solution.answer)


@pytest.mark.parametrize(
    ("n", "at_most_s"), [(32, np.inf), pytest.param(96, 4.15e-3, marks=nightly_only)]
)
def test_many_ranks_are_no_slower_than_greedy_matchings(n: int, at_most_s: float) -> None:
    problem = draw_zipf(n, 0)
    solution = om.solve(problem, "skewed", seed=0)
    assert solution.objective <= min(greedy_matchings_s(problem), at_most_s)


def test_rounds_of_a_late_rank_come_last() -> None:
    in_time = draw_zipf(24, 0)
    late = replace(in_time, late_s={"1": 1e-4})
    in_time_s = om.solve(in_time, "skewed", seed=0).objective
    solution = om.solve(late, "skewed", seed=0)
    assert in_time_s is not None and solution.objective is not None
    assert solution.objective < in_time_s + 2e-5


def test_ports_share_large_blocks_and_carry_small_ones_side_by_side() -> None:
    """The rival uses three ports as one that is three times as fast, and waits for each slot."""
    problem = draw_zipf(48, 1, ports=3, delay_s=2e-5)
    solution = om.solve(problem, "skewed", seed=0)
    assert solution.objective < 0.8 * greedy_matchings_s(problem)
