"""The default for demands: which rules it tries, when it moves on, and when it stops."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import optmatch as om
from optmatch.model import counted_time
from optmatch.solvers.demands import portfolio
from optmatch.solvers.demands.plans import Plan, serve
from optmatch.solvers.demands.portfolio import list_rules, yield_plans
from optmatch.solvers.demands.rules import RULES, PlanRule
from optmatch.solvers.demands.tasks import CoverTask, Size
from tests.helpers.modes import compiled_only

pytestmark = pytest.mark.kernels


def work_on(n: int, delay: int = 20) -> CoverTask:
    """Draw a demand."""
    rng = np.random.default_rng(n)
    demand = rng.integers(1, 99, (n, n)) * (rng.random((n, n)) < 0.6)
    demand[0] += 1
    return CoverTask.of(demand, delay)


@pytest.mark.parametrize(("n", "delay"), [(4, 0), (7, 20)])
def test_rules_then_so_many_rounds_of_moves(n: int, delay: int) -> None:
    work = work_on(n, delay)
    rules = list(yield_plans(work, has_moves=False))
    plans = list(yield_plans(work._replace(n_moves=5)))
    assert len(plans) == len(rules) + 5
    assert len(list(itertools.islice(yield_plans(work), len(rules) + 20))) == len(rules) + 20
    for plan in plans:
        assert (serve(plan) >= work.demand).all()


@pytest.mark.parametrize("n", [3, pytest.param(12, marks=compiled_only)])
def test_the_default_makes_the_plans_of_schedule(n: int) -> None:
    """By the same loop: without a limit of time, those of more rounds."""
    work = work_on(n)
    slots = om.schedule(work.demand, work.delay, time_limit_s=None)
    problem = om.Demand.from_matrix(work.demand, delay_s=float(work.delay), quantum_s=1.0)
    best = om.solve(problem, seed=0).objective
    assert best <= slots.completion_s


def test_rules_come_by_their_estimates() -> None:
    estimates = [estimate_s for estimate_s, _ in list_rules(Size.of(work_on(30)))]
    assert estimates == sorted(estimates)
    assert len(estimates) == sum(rule.estimate_s is not None for rule in RULES)


def test_a_rule_without_time_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(task: CoverTask) -> Iterator[Plan]:
        raise AssertionError("it takes half a second, and there are 20 ms")

    monkeypatch.setattr(portfolio, "RULES", (PlanRule("slow", refuse, lambda _: 0.5),))
    task = work_on(90)._replace(deadline=counted_time() + 0.02)
    assert len(list(yield_plans(task, has_moves=False))) == 1


def test_no_rule_takes_the_time_of_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after a quarter of the time that is left, or four times its estimate if longer."""
    available_s = list[float]()

    def wait(task: CoverTask) -> Iterator[Plan]:
        available_s.append(task.deadline - counted_time())
        return iter(())

    rule = PlanRule("late", wait, lambda _: 0.01)
    monkeypatch.setattr(portfolio, "RULES", (rule,))
    for limit_s in (10.0, 0.2):
        task = work_on(12)._replace(deadline=counted_time() + limit_s)
        for _ in yield_plans(task, has_moves=False):
            pass
    assert 2.0 < available_s[0] <= 2.5
    assert 0.02 < available_s[1] <= 0.05


@pytest.mark.parametrize("n", [9, pytest.param(60, marks=compiled_only)])
def test_no_rule_of_a_paper_beats_the_portfolio(n: int) -> None:
    work = work_on(n)
    problem = om.Demand.from_matrix(work.demand, delay_s=20.0, quantum_s=1.0)
    best = om.solve(problem, "portfolio", seed=0).objective
    for method in ("greedy-cover", "solstice", "eclipse", "tms", "spectra", "birkhoff-bottleneck"):
        objective = om.solve(problem, method, seed=0).objective
        assert best <= objective * (1 + 1e-9)
