"""Walks among decompositions into few permutations."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from optmatch.problems.demands import traffic
from optmatch.solvers.demands.annealing import Annealing, Walks
from optmatch.solvers.demands.plans import serve


def even_demand(n: int, count: int, seed: int) -> NDArray[np.int64]:
    """Draw a demand whose lines have all the same sum: that of so many permutations."""
    rng = np.random.default_rng(seed)
    return np.asarray(traffic.permutations(n, rng, count=count, bytes=1000)).astype(np.int64)


def left_of(demand: NDArray[np.int64], walk: Any) -> NDArray[np.int64]:
    """Take what the state serves from the demand, by plain sums."""
    left = demand.copy()
    for matching, ticks in zip(walk._matchings, walk._ticks, strict=True):
        left[np.arange(len(left)), matching] -= ticks
    return left


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 6), st.integers(1, 8), st.integers(1, 9), st.integers(0, 10**6))
def test_a_walk_keeps_account(n: int, slots: int, shortest: int, seed: int) -> None:
    """Wherever it is: permutations, none too short, and it knows what they leave."""
    demand = even_demand(n, slots, seed) + n * shortest * slots
    walk = Annealing(demand, slots, shortest, np.random.default_rng(seed))
    for _ in range(3):
        plan = walk.go_on()
        assert (np.sort(walk._matchings, axis=1) == np.arange(n)).all()
        assert walk._ticks.min() >= shortest
        assert (left_of(demand, walk) == walk._left).all()
        if plan is not None:
            assert (serve(plan) == demand).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_demand_of_few_permutations_is_taken_apart(seed: int) -> None:
    """Ten permutations of five ports hide in sums; heuristics need more."""
    demand = even_demand(5, 10, seed)
    cost = int(demand[0].sum()) + 10  # of ten slots
    walks = Walks(demand, 1, 1, np.random.default_rng(seed))
    found = walks.go_on(9, 0, cost, cost + 1, bursts=4_000)
    assert found is not None
    assert (serve(found) == demand).all()
    assert len(found.ticks) == 10


def state_of(walks: Walks) -> tuple[int, int]:
    """Return slots and bursts of the walk that is being made."""
    assert walks._walk is not None
    return walks._walk.slots, walks._bursts


def test_walks_take_numbers_of_slots_that_are_of_use() -> None:
    """Not fewer than the bound allows, not those searched, not more than would be better."""
    demand, delay = even_demand(5, 20, 0), 50
    busiest = int(demand[0].sum())
    bound, sought, best = busiest + 5 * delay + 1, busiest + 7 * delay, busiest + 9 * delay
    walks = Walks(demand, delay, 1, np.random.default_rng(0))
    taken = set()
    for _ in range(130):
        assert walks.go_on(4, bound, sought, best, bursts=10) is None  # too few
        taken.add(state_of(walks)[0])
    assert taken == {6, 7}
    for searched in (6, 7):
        assert walks.go_on(searched, bound, sought, best, bursts=1) is None
        assert state_of(walks)[0] == searched + 1
    before = state_of(walks)
    assert walks.go_on(8, bound, sought, best, bursts=1) is None
    assert walks.go_on(1, best, best, best, bursts=1) is None
    assert state_of(walks) == before
    short = Walks(demand, delay, busiest, np.random.default_rng(0))
    assert short.go_on(0, 0, best, best, bursts=1) is None
    assert state_of(short)[0] == 1


def test_walks_are_more_where_a_plan_would_be_the_proof() -> None:
    """Half of the time once a bound has come to so many delays, a fifth after a while."""
    demand = even_demand(5, 10, 0)
    walks = Walks(demand, 50, 1, np.random.default_rng(0))
    bound = int(demand[0].sum()) + 7 * 50
    assert walks.allot(bound, 1_000) == 10
    assert walks.allot(bound + 1, 1_050) == 0
    assert walks.allot(bound + 49, 3_000_000) == 8_000 + 10_000 - 10
    assert walks.allot(bound + 49, 3_000_900) == 3
    assert walks.allot(bound + 50, 3_001_900) == 10  # of the last thousand programmes


def test_walks_return_a_plan_at_once() -> None:
    """Two permutations are met after few bursts; the rest of those asked for need not be."""
    demand = np.array([[5, 2, 0], [0, 5, 2], [2, 0, 5]])
    walks = Walks(demand, 1, 1, np.random.default_rng(0))
    plan = walks.go_on(1, 0, 10, 10, bursts=4_000)
    assert plan is not None
    assert (serve(plan) == demand).all()
