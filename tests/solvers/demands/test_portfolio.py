"""The default for demands: which rules it tries, when it rebuilds, and when it stops."""

import itertools
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import Clock
from optmatch.solvers.demands import portfolio
from optmatch.solvers.demands.plans import Plan, serve, trim
from optmatch.solvers.demands.portfolio import rebuild, yield_all
from optmatch.solvers.demands.quick_cover import make_first_plan, yield_plans
from optmatch.solvers.demands.quick_rules import QuickTask
from optmatch.solvers.demands.scheduling import CoverTask
from tests.helpers.modes import compiled_only

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


@pytest.mark.parametrize("n", [3, pytest.param(12, marks=compiled_only)])
def test_the_search_begins_as_schedule_does(n: int) -> None:
    """Its first plans are those of `schedule`, in the same order, so that it is no worse."""
    work = work_on(n, om.Limits(time_s=400.0))
    task = QuickTask(work.demand, work.delay, work.shortest)
    first = make_first_plan(task)
    steps_of_schedule = [first, *yield_plans(task, first, endless=False)]
    steps = list(itertools.islice(rebuild(work), len(steps_of_schedule)))
    costs = [plan.cost(work.delay) for plan in steps]
    assert costs == [plan.cost(work.delay) for plan in steps_of_schedule]
    slots = om.schedule(work.demand, work.delay, time_limit_s=None)
    assert min(costs) <= round(slots.completion_s)


def test_rebuilds_start_from_the_best_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Plan] = []
    rebuild_part = portfolio._Moves.rebuild_part

    def noted(moves: Any, plan: Plan) -> Plan | None:
        begun.append(plan)
        return rebuild_part(moves, plan)

    monkeypatch.setattr(portfolio._Moves, "rebuild_part", noted)
    seen: list[Plan] = []
    work = work_on(8, om.Limits())
    for plan in rebuild(work, 12):
        if begun:
            assert begun[-1].cost(20) == min(plan.cost(20) for plan in seen)
        seen.append(plan)
    assert len({id(plan) for plan in begun}) > 1
    assert len(begun) == 12


@pytest.mark.parametrize(("n", "time_s"), [(6, 1e-3), (40, 1e-3), (40, 0.05), (40, 1000.0)])
def test_a_rule_runs_if_its_estimate_fits(
    monkeypatch: pytest.MonkeyPatch, n: int, time_s: float
) -> None:
    """Into its share of the time that is left, whatever the ports; the first one always."""
    work = work_on(n, om.Limits(time_s=time_s))
    clock = Clock(work.clock.limits, lambda: 0.0, 0.0)
    work = work._replace(clock=clock)
    rules = portfolio.list_rules(work)
    fitting = [rule for rule in rules[1:] if rule.estimate_s <= 0.8 * time_s * rule.overrun]
    assert [rule.estimate_s for rule in rules] == sorted(rule.estimate_s for rule in rules)
    begun: list[float] = []

    def yield_noted(rule: portfolio.TimedRule) -> portfolio.TimedRule:
        def build(work: CoverTask) -> Any:
            begun.append(rule.estimate_s)
            yield from rules[0].build(work)

        return rule._replace(build=build)

    monkeypatch.setattr(portfolio, "list_rules", lambda _: [yield_noted(rule) for rule in rules])
    assert len(list(yield_all(work))) == 1 + len(fitting)
    assert begun == [rules[0].estimate_s, *(rule.estimate_s for rule in fitting)]


@pytest.mark.parametrize("n", [9, pytest.param(60, marks=compiled_only)])
def test_no_rule_of_a_paper_beats_the_portfolio(n: int) -> None:
    """Its plans are among those of the portfolio."""
    work = work_on(n, om.Limits(time_s=30.0))
    clock = Clock(work.clock.limits, lambda: 0.0, 0.0)
    best = min(plan.cost(20) for plan in yield_all(work._replace(clock=clock)))
    for method in ("greedy-cover", "solstice", "eclipse", "tms", "spectra", "birkhoff-bottleneck"):
        objective = om.solve(work.problem, method, seed=0).objective
        assert objective is not None
        assert best <= objective * (1 + 1e-9)


@compiled_only
def test_moves_end_with_the_time() -> None:
    work = work_on(16, om.Limits(time_s=1000.0))
    plans = list(itertools.islice(rebuild(work), 2000))
    assert 900 <= work.clock.elapsed_s <= 1100
    assert all((serve(plan) >= work.demand).all() for plan in plans)
