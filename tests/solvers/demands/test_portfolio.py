"""The default for demands: which rules it tries, when it rebuilds, and when it stops."""

import itertools
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import Clock, TimeUp
from optmatch.solvers.demands import portfolio
from optmatch.solvers.demands.birkhoff import Terms, decompose
from optmatch.solvers.demands.plans import Plan, serve, trim
from optmatch.solvers.demands.portfolio import rebuild, yield_all
from optmatch.solvers.demands.scheduling import CoverTask

pytestmark = pytest.mark.kernels


def work_on(n: int, limits: om.Limits, *ticks: float, delay: int = 20) -> CoverTask:
    """Draw a demand and a clock that shows so many seconds, then goes on by one each time."""
    rng = np.random.default_rng(n)
    demand = rng.integers(1, 99, (n, n)) * (rng.random((n, n)) < 0.6)
    demand[0] += 1
    problem = om.Demand.from_matrix(demand, delay_s=float(delay), quantum_s=1.0)
    shown = itertools.chain(ticks, itertools.count(ticks[-1] + 1 if ticks else 0.0))
    clock = Clock(limits, lambda: next(shown), 0.0)
    return CoverTask(problem, problem.ticks, delay, problem.min_slot_ticks, rng, clock)


@pytest.mark.parametrize(("n", "delay"), [(4, 0), (7, 20)])
def test_rules_then_so_many_rebuilds(n: int, delay: int) -> None:
    rules = list(yield_all(work_on(n, om.Limits(), delay=delay)))
    plans = list(rebuild(work_on(n, om.Limits(), delay=delay), 5))
    assert len(plans) == len(rules) + 5
    asked = rebuild(work_on(n, om.Limits(iterations=20), delay=delay))
    assert len(list(itertools.islice(asked, 20))) == 20
    demand = work_on(n, om.Limits()).demand
    for plan in plans:
        assert (serve(plan) >= demand).all()
        assert trim(plan, demand).ticks.tolist() == plan.ticks.tolist()


def test_rebuilds_start_from_the_best_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Plan] = []
    replace_some = portfolio._replace_some
    monkeypatch.setattr(
        portfolio,
        "_replace_some",
        lambda work, plan: begun.append(plan) or replace_some(work, plan),  # type: ignore[func-returns-value]
    )
    seen: list[Plan] = []
    work = work_on(8, om.Limits())
    for plan in rebuild(work, 12):
        if begun:
            assert begun[-1].cost(20) == min(plan.cost(20) for plan in seen)
        seen.append(plan)
    assert len({id(plan) for plan in begun}) > 1
    assert len(begun) == 12


@pytest.mark.parametrize(
    ("n", "huge", "began_s", "rules"),
    [
        (15, 20, 0.0, 8),
        (16, 20, 0.0, 8),
        (16, 16, 600.0, 5),
        (6, 5, 0.0, 7),
        (6, 5, 600.0, 1),
    ],
)
def test_rules_where_time_is_short(
    monkeypatch: pytest.MonkeyPatch, n: int, huge: int, began_s: float, rules: int
) -> None:
    monkeypatch.setattr(portfolio, "_HUGE", huge)
    rebuilt: list[Plan] = []
    monkeypatch.setattr(
        portfolio,
        "_replace_some",
        lambda _, plan: rebuilt.append(plan) or plan,  # type: ignore[func-returns-value]
    )
    work = work_on(n, om.Limits(time_s=1000.0), began_s)
    plans = list(rebuild(work))
    assert len(plans) - len(rebuilt) == rules
    assert rebuilt
    assert 990 <= work.clock.elapsed_s <= 1010


def test_many_ports_get_plans_that_a_deadline_cuts_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portfolio, "_MOST", 8)
    demand = work_on(9, om.Limits()).demand
    for plans in (rebuild, yield_all):
        found = list(plans(work_on(9, om.Limits())))
        assert len(found) > 20
        assert all((serve(plan) >= demand).all() for plan in found)
        late = plans(work_on(9, om.Limits(time_s=5.0), 6.0))
        next(late)
        with pytest.raises(TimeUp):
            list(late)


def exactly_of(monkeypatch: pytest.MonkeyPatch, work: CoverTask) -> tuple[list[Plan], int]:
    """Take the plans of all rules as they are; say which of them is an exact decomposition."""
    plans: list[Plan] = []
    exact: list[int] = []

    def noted(*args: Any, **options: Any) -> Terms:
        exact.append(len(plans))
        return decompose(*args, **options)

    monkeypatch.setattr(portfolio, "_SMALL", 1)
    monkeypatch.setattr(portfolio, "_trimmed", lambda _, plan: plan)
    monkeypatch.setattr(portfolio, "decompose", noted)
    for plan in yield_all(work):  # one by one: `noted` counts them
        plans.append(plan)
    (place,) = exact
    return plans, place


@pytest.mark.parametrize(("n", "delay", "rules"), [(5, 20, 7), (5, 0, 8), (6, 20, 8)])
def test_few_ports_with_a_delay_are_not_decomposed(n: int, delay: int, rules: int) -> None:
    assert len(list(yield_all(work_on(n, om.Limits(), delay=delay)))) == rules


@pytest.mark.parametrize(
    ("demand", "delay", "first"),
    [
        ([[9, 1], [1, 5]], 0, True),
        ([[399, 1], [1, 399]], 9, True),  # 9 * 2 * 20 < 400
        ([[399, 1], [1, 399]], 10, False),
        ([[398, 1], [1, 399]], 9, False),
        ([[399, 1, 0], [1, 0, 399], [0, 401, 0]], 9, False),
    ],
)
def test_exact_decompositions_first_where_delays_are_short(
    monkeypatch: pytest.MonkeyPatch, demand: list[list[int]], delay: int, first: bool
) -> None:
    problem = om.Demand.from_matrix(demand, delay_s=float(delay), quantum_s=1.0)
    work = work_on(2, om.Limits())._replace(problem=problem, demand=problem.ticks, delay=delay)
    plans, exact = exactly_of(monkeypatch, work)
    assert exact == (0 if first else len(plans) - 1)


def test_exact_decompositions_end_with_the_busiest_line(monkeypatch: pytest.MonkeyPatch) -> None:
    work = work_on(6, om.Limits(time_s=1000.0))
    busiest = max(work.demand.sum(axis=0).max(), work.demand.sum(axis=1).max())
    plans, exact = exactly_of(monkeypatch, work)
    assert plans[exact].ticks.sum() == busiest
    plans, exact = exactly_of(monkeypatch, work._replace(shortest=30))
    assert plans[exact].ticks.min() == 30
    assert (serve(plans[exact]) >= work.demand).all()
