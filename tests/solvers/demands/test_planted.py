"""Sums of few permutations are decoded into them, whatever the number of ports."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import optmatch as om
from optmatch.model import TimeUp
from optmatch.solvers.demands import planted
from optmatch.solvers.demands.entries import Entries, LineSums
from optmatch.solvers.demands.plans import Plan, serve
from optmatch.solvers.demands.tasks import CoverTask

pytestmark = pytest.mark.kernels

Demand = NDArray[np.int64]


def sum_of_permutations(n: int, weights: list[int], seed: int) -> Demand:
    rng = np.random.default_rng(seed)
    demand = np.zeros((n, n), dtype=np.int64)
    for weight in weights:
        demand[np.arange(n), rng.permutation(n)] += weight
    return demand


def weights_drawn(count: int, seed: int) -> list[int]:
    """Draw different weights, of which no sum of two is another one."""
    rng = np.random.default_rng(seed)
    drawn = rng.choice(50_000, size=count, replace=False) + 50_000
    return [int(weight) for weight in drawn]


def plan_of(demand: Any, shortest: int = 1, deadline: float = np.inf) -> Plan | None:
    """Return the plan of the rule, None if the demand is none of those that it is for."""
    task = CoverTask.of(demand, 0, shortest)._replace(deadline=deadline)
    return next(planted.yield_planted(task), None)


@pytest.mark.parametrize(
    ("n", "count"), [(8, 2), (16, 4), (24, 8), (33, 16), (150, 32), (384, 16), (1024, 8)]
)
def test_there_is_a_slot_for_each_permutation(n: int, count: int) -> None:
    weights = weights_drawn(count, n)
    demand = sum_of_permutations(n, weights, n)
    plan = plan_of(demand)
    assert plan is not None
    assert sorted(plan.ticks.tolist()) == sorted(weights)
    assert (serve(plan) >= demand).all()


def test_equal_weights_have_copies() -> None:
    """Four heavy and eight light permutations; an entry may even hold two of one weight."""
    demand = sum_of_permutations(64, [7000] * 4 + [1100] * 8, 3)
    entries = Entries.of_matrix(demand)
    weights = planted.find_weights(entries, LineSums.of(entries))
    assert weights is not None
    copies = dict(zip(weights.ticks.tolist(), weights.copies.tolist(), strict=True))
    assert copies == {7000: 4, 1100: 8}
    plan = plan_of(demand)
    assert plan is not None
    assert sorted(plan.ticks.tolist()) == [1100] * 8 + [7000] * 4


def test_a_weight_that_is_a_sum_of_two_others() -> None:
    """The crossword of rows and columns tells the weight from the sum, but for a few entries."""
    demand = sum_of_permutations(48, [300, 500, 800, 1001], 5)
    plan = plan_of(demand)
    assert plan is not None
    assert (serve(plan) >= demand).all()
    assert len(plan.ticks) <= 6


def test_other_demands_have_no_weights() -> None:
    rng = np.random.default_rng(0)
    dense = rng.integers(1, 1000, (150, 150))
    sparse = dense * (rng.random((150, 150)) < 0.1)
    incast = np.zeros((30, 30), dtype=np.int64)
    incast[:, :2] = rng.integers(1, 1000, (30, 2))
    for demand in (dense, sparse, incast, np.full((12, 12), 5)):
        assert plan_of(demand) is None


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_small_demands_are_served_or_left(n: int) -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        demand = sum_of_permutations(n, rng.integers(1, 9, size=3).tolist(), seed)
        plan = plan_of(demand, shortest=2)
        if plan is not None:
            assert (serve(plan) >= demand).all()
            assert (plan.ticks >= 2).all()


@pytest.mark.usefixtures("limits_in_cpu_time")
def test_floats_are_decoded_although_sums_are_rounded() -> None:
    """`schedule` counts floats in ticks of 2**-40 of a line, each rounded up."""
    weights_s = np.random.default_rng(4).exponential(size=16)
    demand_s = np.zeros((64, 64))
    rng = np.random.default_rng(4)
    for weight_s in weights_s.tolist():
        demand_s[np.arange(64), rng.permutation(64)] += weight_s
    slots = om.schedule(demand_s, 0.5, time_limit_s=2.0)
    assert slots.completion_s == pytest.approx(weights_s.sum() + 16 * 0.5, rel=1e-9)
    problem = om.Demand.from_matrix(demand_s, delay_s=0.5)
    schedule = om.Schedule(
        matchings=slots.matchings, durations_s=slots.durations_s, delay_s=0.5, switching="all-stop"
    )
    assert om.verify(problem, schedule).valid


@pytest.mark.usefixtures("limits_in_cpu_time")
def test_best_finds_the_bound_where_delays_are_long() -> None:
    demand = sum_of_permutations(33, weights_drawn(16, 9), 9)
    problem = om.Demand.from_matrix(demand, delay_s=1e5, quantum_s=1.0)
    solution = om.solve(problem, time_limit_s=2.0, seed=0)
    assert solution.objective == demand.sum(axis=1).max() + 16 * 100_000


def test_decoding_ends_at_the_deadline() -> None:
    demand = sum_of_permutations(33, weights_drawn(16, 1), 1)
    entries = Entries.of_matrix(demand)
    weights = planted.find_weights(entries, LineSums.of(entries))
    assert weights is not None
    with pytest.raises(TimeUp):
        planted.decode(entries, weights, deadline=-1.0)
    assert plan_of(demand, deadline=-1.0) is None


def test_ambiguous_sums_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many small weights most sums fit in many ways; passes are few, and all is served."""
    looks = 0
    list_sets = planted._sets_with_sum

    def counted(*args: Any) -> Any:
        nonlocal looks
        looks += 1
        return list_sets(*args)

    monkeypatch.setattr(planted, "_sets_with_sum", counted)
    weights = np.random.default_rng(140).integers(1, 31, size=60).tolist()
    demand = sum_of_permutations(80, weights, 1)
    plan = plan_of(demand)
    assert plan is not None
    assert (serve(plan) >= demand).all()
    assert looks <= planted._MOST_PASSES * np.count_nonzero(demand)
