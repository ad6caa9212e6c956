"""The bound of groups, counted by two programs, and against the rule of Smith."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import optmatch as om
from optmatch.verify.demands import bounds
from optmatch.verify.demands.bounds import EXACT, bound_weighted, count_groups


def draw(rng: np.random.Generator, n_ports: int, n_groups: int) -> om.Demand:
    """Draw a demand whose entries belong to groups, with weights, deadlines and a delay."""
    shape = n_ports, n_ports
    groups = rng.integers(0, n_groups, shape)
    groups.flat[: min(n_groups, groups.size)] = np.arange(min(n_groups, groups.size))
    matrix = rng.integers(0, 9, shape) * (rng.random(shape) < 0.8)
    options: dict[str, Any] = {}
    if rng.random() < 0.7:
        options["weights"] = tuple(rng.integers(0, 5, n_groups).astype(float).tolist())
    if rng.random() < 0.7:
        options["deadlines_s"] = tuple(rng.integers(0, 30, n_groups).astype(float).tolist())
    return om.Demand(
        om.IdealSwitch(n_ports),
        matrix / 4,
        delay_s=float(rng.integers(0, 3)),
        objective="weighted-completion-s",
        groups=groups.astype(np.int32),
        **options,
    )


@pytest.mark.parametrize("seed", range(24))
def test_two_programs_count_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = draw(rng, 4, EXACT + 3) if seed % 4 == 0 else draw(rng, 3, int(rng.integers(1, 7)))
    assert bound_weighted(problem) == pytest.approx(problem.lower_bound())


def test_one_sender_is_bounded_by_the_best_order() -> None:
    rng = np.random.default_rng(1)
    n = EXACT + 2
    seconds, weights = rng.integers(1, 20, n), rng.integers(1, 20, n).astype(float)
    groups, matrix = np.full((n, n), -1, dtype=np.int32), np.zeros((n, n))
    groups[0], matrix[0] = np.arange(n), seconds
    problem = om.Demand(
        om.IdealSwitch(n),
        matrix,
        objective="weighted-completion-s",
        groups=groups,
        weights=tuple(weights.tolist()),
    )
    order = np.argsort(-weights / seconds)
    best = float((weights[order] * np.cumsum(seconds[order])).sum())
    assert bound_weighted(problem) == pytest.approx(best)
    assert bound_weighted(replace(problem, weights=(0.0,) * n)) == 0.0


@pytest.mark.parametrize(("n", "cost"), [(EXACT, 13.5), (EXACT + 1, 1.0)])
def test_of_so_many_groups_all_orders_are_compared(n: int, cost: float) -> None:
    """Of more, two bounds are 1: what all prices pay for, and what the first group costs alone."""
    groups, matrix = np.full((n, n), -1, dtype=np.int32), np.zeros((n, n))
    groups[0], matrix[0] = np.arange(n), 1.0
    problem = om.Demand(
        om.IdealSwitch(n),
        matrix,
        objective="weighted-completion-s",
        groups=groups,
        deadlines_s=(0.0, *[7.5] * (n - 1)),
    )
    assert bound_weighted(problem) == pytest.approx(problem.lower_bound()) == pytest.approx(cost)


@pytest.mark.parametrize(("most", "groups"), [(5, 2), (6, 1)])
def test_of_so_many_numbers_all_groups_are_tried(
    most: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more, each group is taken to have three; no three of these add up to nothing."""
    monkeypatch.setattr(bounds, "MOST_NUMBERS", most)
    assert count_groups([1, 1, 7, -3, -3, -3]) == groups


def from_one_port(seconds: Any, **options: Any) -> om.Demand:
    """Give a demand of port 0 alone, each entry of which is a group."""
    n = len(seconds)
    groups, matrix = np.full((n, n), -1, dtype=np.int32), np.zeros((n, n))
    groups[0], matrix[0] = np.arange(n), seconds
    return om.Demand(
        om.IdealSwitch(n), matrix, objective="weighted-completion-s", groups=groups, **options
    )


@given(k=st.integers(2, 10**6), tick=st.sampled_from([0.1, 0.3, 0.7, 1e-9, 3e-7]))
def test_a_deadline_that_is_met_exactly_costs_nothing(k: int, tick: float) -> None:
    """Also one that rounding has moved, or the circuit's time: 3 * 0.1 is 0.30000000000000004."""
    circuit_s = float(Decimal(repr(tick)) * (k - 1))
    for seconds in (circuit_s, (k - 1) * tick):
        problem = from_one_port([seconds], delay_s=tick, deadlines_s=(k * tick,))
        solution = om.solve(problem, seed=0)
        assert solution.objective == problem.lower_bound() == 0.0
        assert om.verify(problem, solution).figures["groups_late"] == 0
    problem = from_one_port([circuit_s], delay_s=tick, deadlines_s=((k - 0.25) * tick,))
    assert om.solve(problem, seed=0).objective == pytest.approx(tick / 4)


FEW = 7
"""So many groups are compared in all orders where `EXACT` of them would take long."""


@pytest.mark.parametrize("seed", range(30))
def test_long_groups_are_bounded_exactly(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of forty digits differ in the last few: without deadlines int64 overflows, too."""
    monkeypatch.setattr(bounds, "EXACT", FEW)
    monkeypatch.setattr("optmatch.problems.demands.problem.EXACT_GROUPS", FEW)
    rng = np.random.default_rng(seed)
    scale = 10 ** int(rng.integers(6, 13))
    ticks = rng.integers(scale, 2 * scale, FEW + 1)
    # A part of a tick counts where it is more than a billionth of the deadline.
    early = int(10 ** rng.uniform(0, 4)) + 0.25 * (scale < 10**8)
    ends = np.cumsum(ticks)
    options: dict[str, Any] = {"weights": tuple(ticks.astype(float).tolist()), "quantum_s": 1.0}
    for late, due in ((ends, ()), (np.full(len(ends), early), tuple((ends - early).tolist()))):
        problem = from_one_port(ticks, delay_s=0.0, deadlines_s=due, **options)
        one_by_one = [[k] + [-1] * FEW for k in range(FEW + 1)]
        report = om.verify(problem, problem.schedule(one_by_one, ticks))
        cost = float((ticks.astype(object) * late).sum())
        assert report.figures["objective"] == pytest.approx(cost, rel=1e-12)
        assert 0 < bound_weighted(problem) <= cost * (1 + 1e-12)
        assert problem.lower_bound() == pytest.approx(bound_weighted(problem), rel=1e-12)


def test_a_deadline_after_all_schedules_proves_nothing() -> None:
    n = EXACT + 2
    dues, weights = (1e300, *[0.0] * (n - 1)), (0.0, *[1.0] * (n - 1))
    problem = from_one_port([1.0] * n, deadlines_s=dues, weights=weights, quantum_s=1e-9)
    cost = (n - 1) * n / 2
    assert bound_weighted(problem) == pytest.approx(problem.lower_bound()) == pytest.approx(cost)
    claim = om.Solution(
        problem=problem, status=om.Status.INFEASIBLE, lower_bound=np.inf, method="none"
    )
    assert not om.verify(problem, claim).valid
