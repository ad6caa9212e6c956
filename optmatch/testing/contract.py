"""The tests that every method passes, ours or a plugin's, and how it is run for them."""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache, partial
from multiprocessing import get_context
from multiprocessing.pool import Pool
from typing import Any, ClassVar, NamedTuple, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings, strategies as st

from optmatch.entrances import verify
from optmatch.kinds import all_methods, find_method
from optmatch.model import (
    RTOL,
    Bound,
    Event,
    Limit,
    Limits,
    NewBest,
    Problem,
    Score,
    Solution,
    Stats,
    Status,
    Tick,
    ignore,
)
from optmatch.solvers import Method
from optmatch.testing.problems import brute_force, fewest_slots, relabelled, smallest_problems

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
    """Search exhaustively, once for all methods that are run on the same tiny problem."""
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


@cache
def _another_process() -> Pool:
    """Spawn a process, which all tests share."""
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
    return _levels(solution.objective)


def _bests(events: Sequence[Event]) -> list[Score]:
    """Return the objectives of better answers, in the order in which they were told."""
    return [event.objective for event in events if isinstance(event, NewBest)]


_STATS = {name: get_origin(hint) or hint for name, hint in get_type_hints(Stats).items()}
_PROVED = (Status.OPTIMAL, Status.INFEASIBLE)


class SolverContract(Runs):
    """Base class of the tests of one method on one kind of problem; pytest collects subclasses.

    Attributes
    ----------
    method
        The method, or its name.
    problems
        The problems: a hypothesis strategy, or a list.
    tiny_problems
        Problems that `oracle` can solve: a strategy, or a list; empty if there is no oracle.
    oracle
        A function that returns the best objective of a problem, None where there is no answer;
        `brute_force`, which knows routings, all-to-alls and demands, unless told.
    examples
        How many problems each test draws.
    limits
        The limits of a run where a test does not state others.
    iterates
        Whether it improves in steps that a limit can cut short.
    own_stats
        Names of statistics beyond those of `optmatch.model.Stats`.

    Examples
    --------
    >>> from optmatch.testing import SolverContract, routing_problems
    >>> class TestNegotiatedRouting(SolverContract):
    ...     method = "negotiated"
    ...     problems = routing_problems()
    ...     tiny_problems = routing_problems(tiny=True)
    """

    # -- what it finds ---------------------------------------------------------------------------

    @on_each
    def test_it_says_what_it_is(self, problem: Problem) -> None:
        """A method has a name, a line in the list of methods, and the kind of this suite."""
        method = self._method()
        assert method.name
        assert method.summary
        assert "\n" not in method.summary
        assert isinstance(problem, method.solves)

    @on_each
    def test_every_answer_passes_the_verifier(self, problem: Problem) -> None:
        """Answers with two seeds are valid at any limit, and statistics are those of the table.

        Each statistic has a name that `Stats` or the class knows, and the type that belongs to it.
        """
        solutions = [self._answer(problem)]
        other_seed = self._answer(problem, number=1)
        if essence(other_seed) != essence(solutions[0]):
            solutions.append(other_seed)
        for solution in solutions:
            report = verify(problem, solution)
            assert report.valid, report.complaint
            for name, value in solution.stats.items():
                assert name in _STATS or name in self.own_stats, name
                assert type(value) in (_STATS.get(name, type(value)), tuple), (name, value)

    @on_each
    def test_no_answer_beats_the_bound_of_the_problem(self, problem: Problem) -> None:
        """No answer is better than the problem's bound; `Solution` checks the claimed bound."""
        solution = self._answer(problem)
        if solution.objective is not None:
            assert not beats(solution.objective, problem.lower_bound())

    @on_each_tiny
    def test_tiny_problems_agree_with_brute_force(self, problem: Any) -> None:
        """Answers to tiny problems agree with an exhaustive search.

        They are never better than the best one, as good where the method says optimal, and there
        is none where it says infeasible.
        """
        best = _ask(type(self).oracle, problem)
        solution = self._answer(problem)
        if solution.status is Status.INFEASIBLE:
            assert best is None

        # The oracle of an all-to-all knows schedules with the fewest slots alone.
        fewest = fewest_slots(problem)
        n_slots = solution.schedule.n_slots if solution.schedule is not None else fewest
        if best is None or (fewest is not None and n_slots != fewest):
            return
        assert not beats(best, solution.lower_bound)
        if solution.objective is not None:
            assert not beats(solution.objective, best)
        if solution.status is Status.OPTIMAL:
            assert solution.objective == pytest.approx(best, rel=RTOL)

    @on_each_tiny
    def test_an_exact_method_settles_tiny_problems(self, problem: Problem) -> None:
        """Without limits the method proves an optimum, or that there is no answer."""
        if not self._method().exact:
            pytest.skip("the method does not claim to be exact")
        solution = self._solve(problem, limits=Limits())
        assert solution.status in _PROVED, solution.limit

    def test_next_to_nothing_is_a_problem_too(self) -> None:
        """One port, two ports, no circuit: solved to the end, or proved to have no answer."""
        for problem in filter(self._method().takes, smallest_problems(self._kind())):
            solution = self._solve(problem)
            assert verify(problem, solution).valid
            assert solution.status in _PROVED, problem

    @on_each
    def test_a_dead_pair_is_infeasible_with_a_reason(self, problem: Problem) -> None:
        """A pair that no state of the cells connects is found before any search, and named."""
        if problem.lower_bound() == float("inf"):
            solution = self._solve(problem, limits=Limits(iterations=0))
            assert solution.status is Status.INFEASIBLE
            assert isinstance(solution.stats["reason"], str)
            assert solution.stats["reason"]

    @on_each
    def test_the_names_of_ports_do_not_matter(self, problem: Problem) -> None:
        """With the ports in another order every answer is valid, and proofs agree.

        Answers themselves may differ, since searches meet the ports in another order. Two proved
        optima are equal, and what is proved infeasible has no answer under other names.
        """
        if problem.fabric is None:
            return
        n_ports = problem.fabric.n_ports
        order = np.random.default_rng(n_ports).permutation(n_ports)
        renamed_problem = relabelled(problem, order)
        if renamed_problem == problem:
            return
        solution = self._answer(problem)
        renamed = self._answer(renamed_problem)
        assert verify(renamed_problem, renamed).valid

        # Proofs must agree: the optimum is the same, and so is that there is no answer.
        if solution.status is Status.OPTIMAL and renamed.status is Status.OPTIMAL:
            assert renamed.objective == pytest.approx(solution.objective, rel=RTOL)
        if solution.status in _PROVED and renamed.status in _PROVED:
            assert renamed.status is solution.status

    # -- when it stops ---------------------------------------------------------------------------

    def test_iterations_are_a_limit(self) -> None:
        """A run of few iterations ends normally; more are never worse, and some end a run.

        Each problem is solved with limits of 0, 1 and 4 iterations. If the method improves in
        steps, at least one of all runs must stop at its limit.
        """
        reasons_to_stop = set[Limit | None]()

        def check(problem: Problem) -> None:
            """Solve a problem with more and more iterations, and compare the answers."""
            rank_with_fewer: Score = ()
            for iterations in (0, 1, 4):
                solution = self._solve(problem, limits=Limits(iterations=iterations))
                assert solution.limit in (None, Limit.ITERATIONS, Limit.EXHAUSTED)
                reasons_to_stop.add(solution.limit)

                # An answer that fewer iterations have found is not lost, nor made worse.
                rank_now = rank(solution)
                if rank_with_fewer:
                    assert rank_now
                    assert not beats(rank_with_fewer, rank_now)
                rank_with_fewer = rank_now

        self._each(self.problems, check)
        assert Limit.ITERATIONS in reasons_to_stop or not self.iterates

    @on_each
    def test_no_time_is_a_normal_outcome(self, problem: Problem) -> None:
        """A time limit of zero gives a solution that says so, or a proof that cost nothing."""
        solution = self._solve(problem, limits=Limits(time_s=0.0))
        assert solution.limit in (None, Limit.TIME)
        assert verify(problem, solution).valid

    def _interrupt(self, problem: Problem, *, n_bests: int) -> tuple[Solution, list[Event]]:
        """Interrupt a run as Ctrl-C does; return its solution, and what it told until then.

        The interrupt comes with its first event once so many better answers were told.
        """
        events: list[Event] = []

        def interrupt(event: Event) -> None:
            events.append(event)
            if len(_bests(events)) >= n_bests:
                raise KeyboardInterrupt

        try:
            return self._solve(problem, on_event=interrupt), events
        except KeyboardInterrupt:
            pytest.fail("the interrupt came through", pytrace=False)

    def test_ctrl_c_keeps_the_best(self) -> None:
        """An interrupt at the first event ends the run, which returns the best answer so far.

        It is raised out of `on_event`, as Ctrl-C is on the command line. A proof may be finished
        all the same; any other answer says that it was interrupted. At least one run must report
        an event.
        """
        interrupted_problems = []

        def check(problem: Problem) -> None:
            """Interrupt the solve of a problem at its first event, and look at what it returns."""
            solution, events = self._interrupt(problem, n_bests=0)
            assert verify(problem, solution).valid

            # A method that reports nothing was not interrupted.
            if events:
                interrupted_problems.append(problem)
                is_proved = solution.status in _PROVED
                assert is_proved or solution.limit is Limit.INTERRUPTED
            if _bests(events):
                assert solution.status in (Status.OPTIMAL, Status.FEASIBLE)

        self._each(self.problems, check)
        assert interrupted_problems, "no run reported any event, so none could be interrupted"

    @on_each
    def test_ctrl_c_keeps_what_was_told(self, problem: Problem) -> None:
        """A run that is interrupted as it tells of a best returns an answer that is as good.

        The first and the last best are tried: a method that tells before it keeps loses the last.
        """
        n_bests = len(_bests(self._first_run(problem).events))
        if not n_bests:
            return
        for number in sorted({1, n_bests}):
            solution, events = self._interrupt(problem, n_bests=number)
            if _bests(events):
                assert solution.objective is not None
                assert not beats(_bests(events)[-1], solution.objective)

    # -- what it depends on ----------------------------------------------------------------------

    def test_one_seed_one_trajectory(self, capfd: pytest.CaptureFixture[str]) -> None:
        """The same seed gives the same events and solution, also after other solves.

        Parameters
        ----------
        capfd
            Given by pytest; catches what is printed.
        """
        self._needs_determinism()

        def check(problem: Problem) -> None:
            """Compare the first run on a problem with the second one."""
            first = self._first_run(problem)
            repeated = self._second_run(problem, capfd)
            assert essence(repeated.solution) == essence(first.solution)
            assert repeated.events == first.events

        self._each(self.problems, check)

    def test_one_seed_one_answer_in_another_process(self) -> None:
        """A spawned process, with its own hash seed and its own kernels, finds the same answers.

        Methods that do not claim to be deterministic are skipped.
        """
        self._needs_determinism()
        problems: list[Problem] = []
        self._each(self.problems, problems.append)

        # Later problems are larger; a few of them are enough.
        sample = problems[-3:]
        arguments = (self._method(), sample, self.limits)
        solutions_of_process = _another_process().apply(solve_all, arguments)
        for problem, solution in zip(sample, solutions_of_process, strict=True):
            assert essence(solution) == essence(self._answer(problem))

    def test_nothing_global_changes(self, capfd: pytest.CaptureFixture[str]) -> None:
        """No global random numbers are drawn, nothing is printed, no logger is set up.

        Parameters
        ----------
        capfd
            Given by pytest; catches what is printed.
        """

        def check(problem: Problem) -> None:
            """Look at the second run on a problem: in the first one numba may seed itself."""
            run = self._second_run(problem, capfd)
            assert run.random_is_kept
            assert run.printed == ""
            assert run.logging_is_kept
            assert self._first_run(problem).logging_is_kept

        self._each(self.problems, check)

    @on_each
    def test_the_problem_stays_as_it_was(self, problem: Problem) -> None:
        """Byte by byte, in the first run on it and in one with another seed."""
        assert self._first_run(problem).problem_is_kept
        assert self._first_run(problem, number=1).problem_is_kept

    # -- what it hands back ----------------------------------------------------------------------

    @on_each
    def test_a_solution_says_where_it_comes_from(self, problem: Problem) -> None:
        """A solution carries the problem that was asked, and the name of the method."""
        solution = self._answer(problem)
        assert solution.problem == problem
        assert solution.method == self._method().name

    @on_each
    def test_a_solution_can_be_pickled(self, problem: Problem) -> None:
        """A pickled solution comes back equal, so it can be sent from one process to another."""
        solution = self._answer(problem)
        assert pickle.loads(pickle.dumps(solution)) == solution

    @on_each
    def test_stats_are_plain_json(self, problem: Problem) -> None:
        """Numbers, strings and lists by name; no arrays, nothing infinite."""
        stats = dict(self._answer(problem).stats)
        assert json.loads(json.dumps(stats, allow_nan=False)) == stats

    @on_each
    def test_events_tell_the_story(self, problem: Problem) -> None:
        """The events of a run agree with its answer.

        Each `NewBest` (a better answer) is better than the one before, and the last one is the
        answer. Each `Bound` (a proved lower bound) is higher than the one before, and none is
        above the answer. A `Tick` counts from 0 to its total at most.

        Parameters
        ----------
        problem
            A problem that the method takes; pytest runs the test for each.
        """
        solution = self._answer(problem)
        events = self._first_run(problem).events
        bests = _bests(events)
        bounds = [event.lower_bound for event in events if isinstance(event, Bound)]
        assert bests == sorted(set(bests), reverse=True)
        assert bounds == sorted(set(bounds))

        # The last best is the answer, which is no better than the last bound.
        if solution.objective is None:
            assert not bests
        else:
            if bests:
                assert bests[-1] == pytest.approx(solution.objective, rel=RTOL)
            if bounds:
                assert not beats(solution.objective, bounds[-1])

        for event in events:
            if isinstance(event, Tick):
                assert event.phase
                assert 0 <= event.done <= (event.total or event.done)


def _levels(score: Score) -> tuple[float, ...]:
    return score if isinstance(score, tuple) else (score,)


def beats(score: Score, other: Score) -> bool:
    """Tell whether a score is lower, and so better, than another, by more than rounding.

    The first level of two tuples that differs decides; one tuple alone meets a bound of an
    infeasible problem, which is infinite.
    """
    pairs = zip(_levels(score), _levels(other), strict=False)
    level, other_level = next((pair for pair in pairs if pair[0] != pair[1]), (0.0, 0.0))
    return level < other_level and not math.isclose(level, other_level, rel_tol=RTOL)
