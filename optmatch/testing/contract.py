"""The tests that every method passes, ours or a plugin's."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any, get_origin, get_type_hints

import numpy as np
import pytest

from optmatch.entrances import verify
from optmatch.model import (
    RTOL,
    Bound,
    Event,
    Limit,
    Limits,
    NewBest,
    Problem,
    Score,
    Stats,
    Status,
    Tick,
)
from optmatch.testing.problems import fewest_slots, relabelled, smallest_problems
from optmatch.testing.runs import Runs, essence, on_each, on_each_tiny, rank, solve_there

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
            assert not _beats(solution.objective, problem.lower_bound())

    @on_each_tiny
    def test_tiny_problems_agree_with_brute_force(self, problem: Problem) -> None:
        """Answers to tiny problems agree with an exhaustive search.

        They are never better than the best one, as good where the method says optimal, and there
        is none where it says infeasible.
        """
        best = self._best(problem)
        solution = self._answer(problem)
        if solution.status is Status.INFEASIBLE:
            assert best is None

        # The oracle of an all-to-all knows schedules with the fewest slots alone.
        fewest = fewest_slots(problem)
        n_slots = solution.schedule.n_slots if solution.schedule is not None else fewest
        if best is None or (fewest is not None and n_slots != fewest):
            return
        assert not _beats(best, solution.lower_bound)
        if solution.objective is not None:
            assert not _beats(solution.objective, best)
        if solution.status is Status.OPTIMAL:
            assert solution.objective == pytest.approx(best, rel=RTOL)

    def __init_subclass__(cls, **options: Any) -> None:
        """Take the test of exact methods from classes whose method is not exact.

        Parameters
        ----------
        **options
            Keyword arguments of the class statement, for classes further up.
        """
        super().__init_subclass__(**options)
        if hasattr(cls, "method") and not cls.may_be_exact():
            # pytest has nothing to collect then, and nothing to skip.
            setattr(cls, "test_an_exact_method_settles_tiny_problems", None)  # noqa: B010

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
                    assert not _beats(rank_with_fewer, rank_now)
                rank_with_fewer = rank_now

        self._each(self.problems, check)
        assert Limit.ITERATIONS in reasons_to_stop or not self.iterates

    @on_each
    def test_no_time_is_a_normal_outcome(self, problem: Problem) -> None:
        """A time limit of zero gives a solution that says so, or a proof that cost nothing."""
        solution = self._solve(problem, limits=Limits(time_s=0.0))
        assert solution.limit in (None, Limit.TIME)
        assert verify(problem, solution).valid

    def test_ctrl_c_keeps_the_best(self) -> None:
        """An interrupt at the first event ends the run, which returns the best answer so far.

        It is raised out of `on_event`, as Ctrl-C is on the command line. A proof may be finished
        all the same; any other answer says that it was interrupted. At least one run must report
        an event.
        """
        interrupted_problems = []

        def check(problem: Problem) -> None:
            """Interrupt the solve of a problem at its first event, and look at what it returns."""
            events: list[Event] = []

            def interrupt(event: Event) -> None:
                events.append(event)
                raise KeyboardInterrupt

            try:
                solution = self._solve(problem, on_event=interrupt)
            except KeyboardInterrupt:
                pytest.fail("the interrupt came through", pytrace=False)
            assert verify(problem, solution).valid

            # A method that reports nothing was not interrupted.
            if events:
                interrupted_problems.append(problem)
                is_proved = solution.status in _PROVED
                assert is_proved or solution.limit is Limit.INTERRUPTED
            if any(isinstance(event, NewBest) for event in events):
                assert solution.status in (Status.OPTIMAL, Status.FEASIBLE)

        self._each(self.problems, check)
        assert interrupted_problems, "no run reported any event, so none could be interrupted"

    def test_ctrl_c_keeps_what_was_told(self) -> None:
        """A run that is interrupted as it tells of a best returns an answer that is as good.

        The first and the last best are tried: a method that tells before it keeps loses the last.
        """

        def check(problem: Problem) -> None:
            """Interrupt a run at its first better answer, and another at its last one."""
            events = self._first_run(problem).events
            n_bests = sum(isinstance(event, NewBest) for event in events)
            if n_bests:
                for number in sorted({1, n_bests}):
                    self._check_interrupt_at_best(problem, number)

        self._each(self.problems, check)

    def _check_interrupt_at_best(self, problem: Problem, number: int) -> None:
        """Interrupt a run at its better answer of this number, counted from 1.

        The solution must be as good.
        """
        bests: list[Score] = []

        def interrupt(event: Event) -> None:
            if isinstance(event, NewBest):
                bests.append(event.objective)
            if len(bests) >= number:
                raise KeyboardInterrupt

        solution = self._solve(problem, on_event=interrupt)
        if bests:
            assert solution.objective is not None
            assert not _beats(bests[-1], solution.objective)

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
        solutions_of_process = solve_there(self._method(), sample, self.limits)
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
        bests = [event.objective for event in events if isinstance(event, NewBest)]
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
                assert not _beats(solution.objective, bounds[-1])

        for event in events:
            if isinstance(event, Tick):
                assert event.phase
                assert 0 <= event.done <= (event.total or event.done)


def _beats(score: Score, other: Score) -> bool:
    """Tell whether a score is lower, and so better, than another, by more than rounding.

    The first level of two tuples that differs decides; one tuple alone meets a bound of an
    infeasible problem, which is infinite.
    """
    if isinstance(score, tuple) and isinstance(other, tuple):
        # The first level that differs decides.
        for level, other_level in zip(score, other, strict=True):
            if level != other_level:
                return _beats(level, other_level)
        return False
    if isinstance(score, tuple) or isinstance(other, tuple):  # a bound that is infinite
        return bool(other == math.inf)
    return bool(score < other - RTOL * abs(other))
