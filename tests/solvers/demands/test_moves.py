"""Rounds of moves: what they serve, that they never make a plan longer, and when they end."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from optmatch.solvers.demands import moves, portfolio
from optmatch.solvers.demands.first_fit import cover_heaviest_first
from optmatch.solvers.demands.moves import MoveSearch
from optmatch.solvers.demands.plans import Plan, finish_plan, serve
from optmatch.solvers.demands.tasks import CoverTask, Size

pytestmark = pytest.mark.kernels


def first_plan(demand: np.ndarray, shortest: int = 1) -> Plan:
    return finish_plan(cover_heaviest_first(demand, shortest), demand, shortest)


def search_of(demand: np.ndarray, delay: int, shortest: int, n_moves: int) -> MoveSearch:
    """Make a search of rounds of so many moves."""
    task = CoverTask.of(demand, delay, shortest)
    search = MoveSearch(task, Size.of(task))
    search.moves_per_round = n_moves
    return search


@given(st.integers(2, 8), st.integers(0, 40), st.integers(1, 12), st.integers(0, 10_000))
def test_rounds_serve_everything_and_make_no_plan_longer(
    n: int, delay: int, shortest: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    demand = rng.integers(1, 60, (n, n)) * (rng.random((n, n)) < 0.7)
    demand[0, 1] = 7
    plan = first_plan(demand, shortest)
    search = search_of(demand, delay, shortest, 3)
    for _ in range(6):
        if len(plan.ticks) < 2:
            return
        after = search.play_round(plan, np.inf)
        assert after is not None
        assert after.cost(delay) <= plan.cost(delay)
        assert (serve(after) >= demand).all()
        assert after.ticks.min() >= shortest

        # Each circuit has a demand, no slot holds a port twice, and no two slots are equal.
        slots, sources = np.nonzero(after.matchings >= 0)
        assert (demand[sources, after.matchings[slots, sources]] > 0).all()
        for matching in after.matchings:
            destinations = matching[matching >= 0]
            assert len(np.unique(destinations)) == len(destinations) > 0
        assert len(np.unique(after.matchings, axis=0)) == len(after.ticks)
        plan = after


def test_moves_find_the_optimum_of_a_small_demand() -> None:
    """Two permutations of 9 and 5 ticks, and one entry more: 9 + 5 + 2 ticks and three delays."""
    demand = np.array([[2, 9, 5], [5, 0, 9], [9, 5, 0]])
    search = search_of(demand, 3, 1, 200)
    best = search.play_round(first_plan(demand), np.inf)
    assert best is not None
    assert best.cost(3) == 25


def test_random_numbers_go_on_from_round_to_round() -> None:
    """Six moves are the same in one round and in two."""
    demand = np.random.default_rng(0).integers(1, 99, (7, 7))
    plan = first_plan(demand)
    together = search_of(demand, 20, 1, 6).play_round(plan, np.inf)
    search = search_of(demand, 20, 1, 3)
    half = search.play_round(plan, np.inf)
    assert half is not None
    apart = search.play_round(half, np.inf)
    assert together is not None
    assert apart is not None
    assert together.matchings.tolist() == apart.matchings.tolist()
    assert together.ticks.tolist() == apart.ticks.tolist()


def test_a_round_without_enough_time_gives_nothing() -> None:
    demand = np.random.default_rng(0).integers(1, 99, (30, 30))
    plan = first_plan(demand)
    search = search_of(demand, 20, 1, 10)
    assert search.play_round(plan, 1e-7) is None
    assert search.play_round(plan, np.inf) is not None


def test_a_longer_plan_gets_more_room() -> None:
    """Each entry in a slot of its own: 90 slots, where room was laid out for fewer."""
    demand = np.random.default_rng(1).integers(1, 99, (10, 10))
    np.fill_diagonal(demand, 0)
    matchings = []
    ticks = []
    for source, destination in itertools.permutations(range(10), 2):
        matching = np.full(10, -1, np.int32)
        matching[source] = destination
        matchings.append(matching)
        ticks.append(int(demand[source, destination]))
    plan = Plan.of(matchings, ticks, 10)
    search = search_of(demand, 20, 1, 20)
    after = search.play_round(plan, np.inf)
    assert after is not None
    assert after.cost(20) < plan.cost(20)
    assert (serve(after) >= demand).all()


def test_a_round_that_something_else_slowed_down_ends_no_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a round of a hundred seconds the next one still fits into a hundredth of a second."""
    demand = np.random.default_rng(0).integers(1, 99, (5, 5))
    plan = first_plan(demand)
    search = search_of(demand, 20, 1, 10)
    shown = itertools.count(0.0, 100.0)
    monkeypatch.setattr(moves, "counted_time", lambda: next(shown))
    assert search.play_round(plan, 1000.0) is not None
    assert search.play_round(plan, 0.01) is not None


def test_there_are_no_moves_where_one_would_take_long() -> None:
    """No clock is read while one is made, and Ctrl-C has to wait."""
    demand = np.random.default_rng(0).integers(1, 10**6, (400, 400))
    task = CoverTask.of(demand, 20)
    plans = [cover_heaviest_first(demand)]
    assert list(portfolio._yield_moves(task, Size.of(task), plans)) == []
    small = CoverTask.of(demand[:30, :30].copy(), 20)
    assert next(portfolio._yield_moves(small, Size.of(small), [first_plan(small.demand)]))
