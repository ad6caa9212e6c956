"""A method that fails is a logged defect, and `solve` takes the next best answer."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.kinds import default_method
from optmatch.model import Clock, Event, Limits
from optmatch.solvers.collectives import methods as collective_methods
from optmatch.solvers.collectives.conclusion import FoundPlan
from tests.helpers.defects import DefectError

DEMAND = om.Demand.from_matrix([[0, 3, 1], [2, 0, 1], [1, 1, 0]], delay_s=1.0)
GATHER = om.Collective("all-gather", 6, 1e6, alpha_s=1e-6, delay_s=1e-5)


def fail_by_default(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[om.Solution], om.Solution]
) -> None:
    """Let the default method of demands change its answer, or raise an error instead."""

    def run(*args: Any, **options: Any) -> om.Solution:
        return change(default.run(*args, **options))

    default = default_method(DEMAND)
    broken = replace(default, load=lambda: run, warm=False)
    monkeypatch.setattr("optmatch.entrances.default_method", lambda problem: broken)


def raising(error: BaseException) -> Callable[[om.Solution], om.Solution]:
    def change(solution: om.Solution) -> om.Solution:
        raise error

    return change


def claim_too_much(solution: om.Solution) -> om.Solution:
    """Return a solution whose schedule is said to take half of its time."""
    half = solution.objective / 2
    return replace(solution, objective=half, lower_bound=min(half, solution.lower_bound))


FAILURES = {
    "a wrong answer": claim_too_much,
    "an exception": raising(IndexError("list index out of range")),
    "an answer that cannot be": raising(
        om.InputError("matchings[0]: twice", where="matchings[0]")
    ),
}


@pytest.mark.usefixtures("defects_are_passed_over")
@pytest.mark.parametrize("change", FAILURES.values(), ids=FAILURES)
def test_the_next_best_method_answers(
    change: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = om.solve(DEMAND, seed=0)
    fail_by_default(monkeypatch, change)
    solution = om.solve(DEMAND, seed=0)
    assert om.verify(solution).valid
    assert solution.objective == right.objective
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("optmatch.defects", logging.ERROR)
    assert record.getMessage().startswith(f"method {default_method(DEMAND).name} is left out")


@pytest.mark.parametrize("change", FAILURES.values(), ids=FAILURES)
def test_in_tests_a_logged_defect_fails(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_by_default(monkeypatch, change)
    with pytest.raises(DefectError, match="a defect of optmatch"):
        om.solve(DEMAND, seed=0)


OTHERS = {
    "memory": MemoryError(),
    "a demand that cannot be served": om.InputError("too many ports", where="fabric"),
    "a package that is missing": om.SolverUnavailable("pip install it"),
}


@pytest.mark.parametrize("error", OTHERS.values(), ids=OTHERS)
def test_errors_that_no_other_method_can_help_are_raised(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_by_default(monkeypatch, raising(error))
    with pytest.raises(type(error)):
        om.solve(DEMAND, seed=0)


def test_ctrl_c_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_by_default(monkeypatch, raising(KeyboardInterrupt()))
    solution = om.solve(DEMAND, seed=0)
    assert solution.limit is om.Limit.INTERRUPTED and solution.objective is None


def test_an_error_of_the_listener_is_raised() -> None:
    def listen(event: Event) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        om.solve(DEMAND, seed=0, on_event=listen)


def break_finder(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception) -> None:
    """Let one method of collectives raise an error instead of finding a plan."""

    def find(problem: om.Collective, clock: Clock, below_s: float) -> FoundPlan:
        raise error

    row = collective_methods.FINDERS[name]
    monkeypatch.setitem(collective_methods.FINDERS, name, row._replace(find=find))


@pytest.mark.usefixtures("defects_are_passed_over")
def test_plans_of_collectives_do_without_a_method_that_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    best = om.solve(GATHER, seed=0)
    name = best.stats["algorithm"]
    break_finder(monkeypatch, name, om.InputError("sends[1, 2] = -1", where="sends[1, 2]"))
    solution = om.solve(GATHER, "best", seed=0)
    assert om.verify(solution).valid
    assert solution.stats["algorithm"] != name
    assert f"method {name} is left out" in caplog.text


@pytest.mark.usefixtures("defects_are_passed_over")
def test_without_any_method_that_works_the_last_error_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in list(collective_methods.FINDERS):
        break_finder(monkeypatch, name, IndexError(name))
    with pytest.raises(IndexError):
        om.solve(GATHER, seed=0, limits=Limits(iterations=1))


@pytest.mark.usefixtures("defects_are_passed_over")
def test_a_method_that_was_asked_for_by_name_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(problem: om.Collective, clock: Clock, below_s: float) -> FoundPlan:
        found: Any = right.find(problem, clock, below_s)
        sends = np.zeros((0, 5), dtype=np.int64)
        laid = found.laid._replace(plan=replace(found.laid.plan, sends=sends))
        return FoundPlan(laid, found.stats)

    right = collective_methods.FINDERS["ring"]
    monkeypatch.setitem(collective_methods.FINDERS, "ring", right._replace(find=find))
    with pytest.raises(om.VerificationError, match=r"^method ring: "):
        om.solve(GATHER, "ring", seed=0)
