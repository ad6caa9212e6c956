"""The contract of methods notices what a method must not do."""

import dataclasses
import logging
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.kinds import find_method
from optmatch.model import NewBest
from optmatch.testing import SolverContract
from optmatch.testing.contract import beats

PROBLEM = om.Demand.from_matrix([[0, 3, 1], [2, 0, 2], [0, 1, 0]], delay_s=1.0)
GOOD = find_method("solstice", PROBLEM)


class _Calls:
    """How often a method was called: some do wrong only later."""

    count = 0


def _print(problem: Any, rng: np.random.Generator) -> None:
    print("looking")


def _print_once_more(problem: Any, rng: np.random.Generator) -> None:
    _Calls.count += 1
    if _Calls.count > 1:
        print("looking again")


def _draw_globally(problem: Any, rng: np.random.Generator) -> None:
    random.random()


def _draw_from_numpy(problem: Any, rng: np.random.Generator) -> None:
    np.random.random()  # noqa: NPY002


def _log(problem: Any, rng: np.random.Generator) -> None:
    logging.getLogger().addHandler(logging.NullHandler())


def _change_problem(problem: Any, rng: np.random.Generator) -> None:
    object.__setattr__(problem, "delay_s", problem.delay_s + 1e-9)


CASES: dict[str, Callable[[Any, np.random.Generator], None]] = {
    "print": _print,
    "print_once_more": _print_once_more,
    "draw_globally": _draw_globally,
    "draw_from_numpy": _draw_from_numpy,
    "log": _log,
}


def contract_of(act: Callable[[Any, np.random.Generator], None]) -> SolverContract:
    """Return the contract of a method that does something beside its work."""

    def run(problem: Any, limits: Any, rng: np.random.Generator, on_event: Any) -> om.Solution:
        act(problem, rng)
        return GOOD.run(problem, limits, rng, on_event)

    class Contract(SolverContract):
        method = dataclasses.replace(GOOD, load=lambda: run)
        problems = (PROBLEM,)

    return Contract()


@pytest.fixture(autouse=True)
def _clean() -> Any:
    """Forget calls, and take handlers away that a bad method has added."""
    _Calls.count = 0
    handlers = list(logging.getLogger().handlers)
    yield
    logging.getLogger().handlers[:] = handlers


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("trajectory_first", [False, True])
def test_what_is_global_is_left_alone(
    name: str, trajectory_first: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    contract = contract_of(CASES[name])
    if trajectory_first:
        contract.test_one_seed_one_trajectory(capfd)
    with pytest.raises(AssertionError):
        contract.test_nothing_global_changes(capfd)


def test_a_problem_that_changes_is_noticed() -> None:
    contract: Any = contract_of(_change_problem)
    with pytest.raises(AssertionError):
        contract.test_the_problem_stays_as_it_was()


def test_another_trajectory_is_noticed(capfd: pytest.CaptureFixture[str]) -> None:
    """With the same seed a later run tells another event, or has another statistic."""

    def run(problem: Any, limits: Any, rng: np.random.Generator, on_event: Any) -> om.Solution:
        _Calls.count += 1
        if _Calls.count > 2:
            on_event(NewBest(99.0))
        return GOOD.run(problem, limits, rng, on_event)

    class Contract(SolverContract):
        method = dataclasses.replace(GOOD, load=lambda: run)
        problems = (PROBLEM,)

    with pytest.raises(AssertionError):
        Contract().test_one_seed_one_trajectory(capfd)


def test_an_answer_beats_the_bound_of_a_problem_that_has_none() -> None:
    """Only a problem without an answer has an infinite bound, so that any answer is noticed."""
    assert beats(5.0, math.inf)
    assert beats((0, 3), math.inf)
    assert not beats(math.inf, math.inf)
    assert not beats((0, 3), -math.inf)


def test_a_good_method_passes(capfd: pytest.CaptureFixture[str]) -> None:
    contract: Any = contract_of(lambda problem, rng: None)
    contract.test_one_seed_one_trajectory(capfd)
    contract.test_nothing_global_changes(capfd)
    contract.test_the_problem_stays_as_it_was()
