"""The subjects of the tests of the contract: a method, and problems drawn for it."""

from __future__ import annotations

import atexit
import logging
import os
import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache, partial
from multiprocessing import get_context
from multiprocessing.pool import Pool
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings, strategies as st

from optmatch.kinds import all_methods, find_method
from optmatch.model import Event, Limits, Problem, Score, Solution, ignore
from optmatch.solvers import Method
from optmatch.testing.problems import brute_force, fewest_slots

Problems = st.SearchStrategy[Any] | Sequence[Problem]
Check = Callable[[Any, Any], None]
"""A test of a contract that checks one problem; its arguments are the contract and the problem."""


class Runs:
    """The class attributes of a contract, and how they become runs."""

    method: ClassVar[str | Method]
    problems: ClassVar[Problems]
    tiny_problems: ClassVar[Problems] = ()
    oracle: ClassVar[Callable[[Any], Score | None]] = brute_force
    examples: ClassVar[int] = 50
    limits: ClassVar[Limits] = Limits(iterations=20)
    iterates: ClassVar[bool] = True
    own_stats: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def may_be_exact(cls) -> bool:
        """Tell whether the method, or any of that name, can prove optimality."""
        if isinstance(cls.method, Method):
            return cls.method.exact
        return any(method.exact for method in all_methods() if method.name == cls.method)

    def _method(self) -> Method:
        """Return the method under test.

        Methods of several kinds of problems may have the same name: the kind of the drawn problems
        decides between them.
        """
        if isinstance(self.method, Method):
            return self.method
        kind = self._kind()
        return next(
            method
            for method in all_methods()
            if method.name == self.method and method.solves.kind == kind
        )

    def _solve(
        self,
        problem: Problem,
        *,
        number: int = 0,
        limits: Limits | None = None,
        on_event: Callable[[Event], None] = ignore,
    ) -> Solution:
        """Run the method on a problem with this seed, without keeping the answer for other tests.

        None as limits are those of the class.
        """
        method = self.method
        if not isinstance(method, Method):
            method = find_method(method, problem)
        rng = np.random.default_rng(number)
        return method.run(problem, limits or self.limits, rng, on_event)

    def _answer(self, problem: Any, number: int = 0) -> Solution:
        """Solve a problem once for all tests that only look at the answer."""
        return self._first_run(problem, number).solution

    def _first_run(self, problem: Any, number: int = 0) -> Run:
        """Return the run of `_answer`, which is the first one on its copy of the problem."""
        contract: Any = type(self)
        return _solve_once(contract, problem, number)

    def _second_run(self, problem: Any, capfd: pytest.CaptureFixture[str]) -> Run:
        """Repeat the run of `_answer` after one with another seed, once for all tests.

        Both runs are on the same copy of the problem.
        """
        key = type(self), problem
        if key not in _SECOND_RUNS:
            copy = self._first_run(problem).problem
            self._answer(problem, number=1)
            run = _record_run(self, copy, 0)
            _SECOND_RUNS[key] = run._replace(printed="".join(capfd.readouterr()))
        return _SECOND_RUNS[key]

    def _best(self, problem: Any) -> Score | None:
        """Search exhaustively, once for all methods that are run on the same tiny problem."""
        return _ask(type(self).oracle, problem)

    def _each(self, problems: Problems, check: Callable[[Any], Any]) -> None:
        """Run a check on each of some problems, the same ones in every run of the suite.

        Problems are drawn once for all tests. Where the check fails, hypothesis draws them again
        and looks for a smaller one that fails too.
        """
        hashable_problems: Any = tuple(problems) if isinstance(problems, Sequence) else problems
        n_examples = self.examples * int(os.environ.get("OPTMATCH_EXAMPLES", "1"))
        try:
            for problem in _draw_once(hashable_problems, n_examples):
                check(problem)
        except (Exception, pytest.fail.Exception):
            _run_hypothesis(hashable_problems, n_examples, check)
            raise  # hypothesis did not find the failure again

    @classmethod
    @cache
    def _kind(cls) -> str:
        """Return the kind of its problems: that of the first one drawn."""
        kinds: list[str] = []
        cls()._each(cls.problems, lambda problem: kinds.append(problem.kind))
        return kinds[0]

    def _tiny(self) -> Problems:
        if isinstance(self.tiny_problems, Sequence) and not self.tiny_problems:
            pytest.skip("the class names no tiny_problems")
        return self.tiny_problems

    def _needs_determinism(self) -> None:
        if not self._method().deterministic:
            pytest.skip("the method does not claim to be deterministic")


def _run_hypothesis(problems: Problems, n_examples: int, check: Callable[[Any], Any]) -> None:
    """Let hypothesis draw at most `n_examples` problems and check them, always the same ones.

    An error of the check makes it look for a smaller problem.
    """
    strategy = st.sampled_from(problems) if isinstance(problems, Sequence) else problems

    @seed(0)
    @settings(
        max_examples=n_examples,
        deadline=None,  # the first call compiles
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(strategy)
    def run(problem: Problem) -> None:
        """Check one problem that hypothesis has drawn."""
        check(problem)

    run()


@cache
def _draw_once(problems: Problems, n_examples: int) -> list[Problem]:
    """Draw different problems, once for all tests and all classes that share them."""
    drawn: list[Problem] = []
    _run_hypothesis(problems, n_examples, drawn.append)
    return list(dict.fromkeys(drawn))


class Run(NamedTuple):
    """A run of a method, and what it has changed beside its answer."""

    problem: Problem
    solution: Solution
    events: list[Event]
    problem_is_kept: bool
    """Whether the pickled problem has the same bytes as before."""
    random_is_kept: bool
    """Whether no number was drawn from the random generators of Python and NumPy."""
    logging_is_kept: bool
    """Whether the root logger has the handlers that it had."""
    printed: str = ""


_SECOND_RUNS: dict[tuple[type[Runs], Problem], Run] = {}


@cache
def _solve_once(contract: type[Runs], problem: Problem, number: int) -> Run:
    """Solve a copy of a problem, which no run has seen, once for all tests of a class."""
    return _record_run(contract(), pickle.loads(pickle.dumps(problem)), number)


def _record_run(contract: Runs, problem: Any, number: int) -> Run:
    """Solve a problem, and compare all that the method should not change."""
    events: list[Event] = []
    problem_before = pickle.dumps(problem)
    random_before = _random_states()
    handlers_before = list(logging.getLogger().handlers)
    solution = contract._solve(problem, number=number, on_event=events.append)
    return Run(
        problem,
        solution,
        events,
        problem_is_kept=pickle.dumps(problem) == problem_before,
        random_is_kept=_random_states() == random_before,
        logging_is_kept=logging.getLogger().handlers == handlers_before,
    )


def _random_states() -> tuple[object, bytes]:
    """Return the states of the random generators that a whole process shares."""
    return random.getstate(), pickle.dumps(np.random.get_state())  # noqa: NPY002


@cache
def _ask(oracle: Callable[[Any], Score | None], problem: Problem) -> Score | None:
    return oracle(problem)


def on_each(check: Check) -> Callable[[Any], None]:
    """Decorate a test of a contract that is to hold for each of the problems."""
    return _test_of_check(check, lambda contract: contract.problems)


def on_each_tiny(check: Check) -> Callable[[Any], None]:
    """Decorate a test of a contract that is to hold for each of the tiny problems."""
    return _test_of_check(check, lambda contract: contract._tiny())


def _test_of_check(check: Check, problems_of: Callable[[Runs], Problems]) -> Callable[[Any], None]:
    """Make a test, which pytest collects, that runs a check on each problem of a contract."""

    def test(self: Runs) -> None:
        """Run the check on each problem of the contract."""
        self._each(problems_of(self), partial(check, self))

    # Pytest collects and reports the test under the name of the check.
    test.__name__ = check.__name__
    test.__doc__ = check.__doc__
    test.__module__ = __name__
    return test


def essence(solution: Solution) -> dict[str, Any]:
    """Return the part of a solution that a repeated run must reproduce: all but the times.

    Returns
    -------
    dict
        The fields of the solution by name; `time_s` is 0, and statistics in seconds are left out.
    """
    repeatable = {field.name: getattr(solution, field.name) for field in fields(solution)}
    repeatable["time_s"] = 0.0
    repeatable["stats"] = {
        name: value for name, value in solution.stats.items() if not name.endswith("_s")
    }
    return repeatable


def solve_all(method: Method, problems: Sequence[Problem], limits: Limits) -> list[Solution]:
    """Solve several problems; a function of a module, so that another process can be sent it."""
    return [method.run(problem, limits, np.random.default_rng(0), ignore) for problem in problems]


def solve_there(method: Method, problems: Sequence[Problem], limits: Limits) -> list[Solution]:
    """Solve them in a spawned process, which all tests share."""
    return _another_process().apply(solve_all, (method, problems, limits))


@cache
def _another_process() -> Pool:
    pool = get_context("spawn").Pool(1)
    atexit.register(pool.terminate)
    return pool


def rank(solution: Solution) -> tuple[float, ...]:
    """Return a key that orders solutions of one problem, the best first.

    Returns
    -------
    tuple of float
        For an all-to-all the number of slots, then the objective; else the objective, with its
        levels where it has several. Empty without an answer.
    """
    if solution.objective is None:
        return ()
    if fewest_slots(solution.problem) is not None and solution.schedule is not None:
        return float(solution.schedule.n_slots), solution.objective
    levels = solution.objective
    return levels if isinstance(levels, tuple) else (levels,)
