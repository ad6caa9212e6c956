"""The subjects of the tests of the contract: a method, and problems drawn for it."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache, partial
from multiprocessing import get_context
from multiprocessing.pool import Pool
from typing import Any, ClassVar

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
        if isinstance(self.method, Method):
            return self.method
        kind = self._kind()
        return next(m for m in all_methods() if (m.name, m.solves.kind) == (self.method, kind))

    def _solve(
        self,
        problem: Problem,
        *,
        number: int = 0,
        limits: Limits | None = None,
        on_event: Callable[[Event], None] = ignore,
    ) -> Solution:
        rng = np.random.default_rng(number)
        method = self.method
        method = method if isinstance(method, Method) else find_method(method, problem)
        return method.run(problem, limits or self.limits, rng, on_event)

    def _answer(self, problem: Any, number: int = 0) -> Solution:
        """Solve it once for all tests that only look at the answer."""
        return self._told(problem, number)[0]

    def _told(self, problem: Any, number: int = 0) -> tuple[Solution, list[Event]]:
        """Return this answer, and the events on the way to it."""
        contract: Any = type(self)
        return _solve_once(contract, problem, number)

    def _best(self, problem: Any) -> Score | None:
        """Search exhaustively, once for all methods that are run on the same tiny problem."""
        return _ask(type(self).oracle, problem)

    def _each(self, problems: Problems, check: Callable[[Any], Any]) -> None:
        """Run `check` on problems, the same ones in every run of the suite; drawn once.

        Where it fails, hypothesis draws them again and looks for a smaller one.
        """
        listed: Any = tuple(problems) if isinstance(problems, Sequence) else problems
        count = self.examples * int(os.environ.get("OPTMATCH_EXAMPLES", "1"))
        try:
            for problem in _drawn(listed, count):
                check(problem)
        except (Exception, pytest.fail.Exception):
            _run(listed, count, check)
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

    @staticmethod
    def _in_fewest_slots(problem: Problem, solution: Solution) -> bool:
        fewest = fewest_slots(problem)
        if fewest is None or solution.schedule is None:
            return True
        return solution.schedule.n_slots == fewest


def _run(problems: Problems, count: int, check: Callable[[Any], Any]) -> None:
    source = st.sampled_from(problems) if isinstance(problems, Sequence) else problems

    @seed(0)
    @settings(
        max_examples=count,
        deadline=None,  # the first call compiles
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(source)
    def run(problem: Problem) -> None:
        check(problem)

    run()


@cache
def _drawn(problems: Problems, count: int) -> list[Problem]:
    found: list[Problem] = []
    _run(problems, count, found.append)
    return list(dict.fromkeys(found))


@cache
def _solve_once(
    contract: type[Runs], problem: Problem, number: int
) -> tuple[Solution, list[Event]]:
    events: list[Event] = []
    return contract()._solve(problem, number=number, on_event=events.append), events


@cache
def _ask(oracle: Callable[[Any], Score | None], problem: Problem) -> Score | None:
    return oracle(problem)


def on_each(check: Check) -> Callable[[Any], None]:
    """Decorate a test of a contract that is to hold for each of the problems."""
    return _repeated(check, lambda contract: contract.problems)


def on_each_tiny(check: Check) -> Callable[[Any], None]:
    """Decorate a test of a contract that is to hold for each of the tiny problems."""
    return _repeated(check, lambda contract: contract._tiny())


def _repeated(check: Check, problems_of: Callable[[Runs], Problems]) -> Callable[[Any], None]:
    """Make a test without arguments that checks each problem of a contract."""

    def test(self: Runs) -> None:
        self._each(problems_of(self), partial(check, self))

    # Pytest collects and reports the test under the name of the check.
    test.__name__ = check.__name__
    test.__doc__ = check.__doc__
    test.__module__ = __name__
    return test


def essence(solution: Solution) -> dict[str, Any]:
    """Return the part of a solution that a repeated run must reproduce: all but the times."""
    stats = {name: value for name, value in solution.stats.items() if not name.endswith("_s")}
    kept = {field.name: getattr(solution, field.name) for field in fields(solution)}
    return kept | {"stats": stats, "time_s": 0.0}


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
    """Return a key that orders solutions: slots, then the objective; empty without an answer."""
    if solution.objective is None:
        return ()
    if fewest_slots(solution.problem) is not None and solution.schedule is not None:
        return float(solution.schedule.n_slots), solution.objective
    levels = solution.objective
    return levels if isinstance(levels, tuple) else (levels,)
