"""The tests that every method passes, ours or a plugin's."""

from __future__ import annotations

import json
import logging
import math
import pickle
import random
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
from optmatch.testing.problems import relabelled, smallest_problems
from optmatch.testing.runs import Runs, essence, on_each, on_each_tiny, rank, solve_there

_STATS = {name: get_origin(hint) or hint for name, hint in get_type_hints(Stats).items()}


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
        """A method has a name, a line in the list of methods, and the kinds of this suite."""
        method = self._method()
        assert method.name
        assert method.summary
        assert "\n" not in method.summary
        assert isinstance(problem, method.solves)

    @on_each
    def test_every_answer_passes_the_verifier(self, problem: Problem) -> None:
        """Answers with several seeds are valid at any limit; statistics are those of the table."""
        first = self._answer(problem)
        second = self._answer(problem, number=1)
        for solution in (first,) if essence(second) == essence(first) else (first, second):
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
        """Never better; as good where it says optimal; none where it says infeasible."""
        best = self._best(problem)
        solution = self._answer(problem)
        if solution.status is Status.INFEASIBLE:
            assert best is None
        if best is None or not self._in_fewest_slots(problem, solution):
            return
        assert not _beats(best, solution.lower_bound)
        if solution.objective is not None:
            assert not _beats(solution.objective, best)
        if solution.status is Status.OPTIMAL:
            assert solution.objective == pytest.approx(best, rel=RTOL)

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        exact = "test_an_exact_method_settles_tiny_problems"
        if hasattr(cls, "method") and not cls.may_be_exact():
            setattr(cls, exact, None)  # pytest has nothing to collect, and nothing to skip

    @on_each_tiny
    def test_an_exact_method_settles_tiny_problems(self, problem: Problem) -> None:
        """Without limits the method proves an optimum, or that there is no answer."""
        if not self._method().exact:
            pytest.skip("the method does not claim to be exact")
        solution = self._solve(problem, limits=Limits())
        assert solution.status in (Status.OPTIMAL, Status.INFEASIBLE), solution.limit

    def test_next_to_nothing_is_a_problem_too(self) -> None:
        """One port, two ports, no circuit: solved to the end, or proved to have no answer."""
        for problem in filter(self._method().takes, smallest_problems(self._kind())):
            solution = self._solve(problem)
            assert verify(problem, solution).valid
            assert solution.status in (Status.OPTIMAL, Status.INFEASIBLE), problem

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
        """Ports in another order: proofs stay, and every answer is valid."""
        if problem.fabric is None:
            return
        order = np.random.default_rng(problem.fabric.n_ports).permutation(problem.fabric.n_ports)
        twin = relabelled(problem, order)
        if twin == problem:
            return
        first = self._answer(problem)
        second = self._answer(twin)
        assert verify(twin, second).valid
        if first.status is Status.OPTIMAL and second.status is Status.OPTIMAL:
            assert second.objective == pytest.approx(first.objective, rel=RTOL)
        proved = {Status.OPTIMAL, Status.INFEASIBLE}
        if first.status in proved and second.status in proved:
            assert second.status is first.status

    # -- when it stops ---------------------------------------------------------------------------

    def test_iterations_are_a_limit(self) -> None:
        """A run of few iterations ends normally; more are never worse, and some end a run."""
        limits = set[Limit | None]()

        def check(problem: Problem) -> None:
            before: Score = ()
            for iterations in (0, 1, 4):
                solution = self._solve(problem, limits=Limits(iterations=iterations))
                assert solution.limit in (None, Limit.ITERATIONS, Limit.EXHAUSTED)
                limits.add(solution.limit)
                value = rank(solution)
                if before:
                    assert value
                    assert not _beats(before, value)
                before = value

        self._each(self.problems, check)
        assert Limit.ITERATIONS in limits or not self.iterates

    @on_each
    def test_no_time_is_a_normal_outcome(self, problem: Problem) -> None:
        """A time limit of zero gives a solution that says so, or a proof that cost nothing."""
        solution = self._solve(problem, limits=Limits(time_s=0.0))
        assert solution.limit in (None, Limit.TIME)
        assert verify(problem, solution).valid

    def test_ctrl_c_keeps_the_best(self) -> None:
        """An interrupt, here out of `on_event`, ends the run, which returns the best so far."""
        interrupts = []

        def check(problem: Problem) -> None:
            heard: list[Event] = []

            def interrupt(event: Event) -> None:
                heard.append(event)
                raise KeyboardInterrupt

            try:
                solution = self._solve(problem, on_event=interrupt)
            except KeyboardInterrupt:
                pytest.fail("the interrupt came through", pytrace=False)
            assert verify(problem, solution).valid
            if heard:
                interrupts.append(problem)
                proved = solution.status in (Status.OPTIMAL, Status.INFEASIBLE)
                assert proved or solution.limit is Limit.INTERRUPTED
            if any(isinstance(event, NewBest) for event in heard):
                assert solution.status in (Status.OPTIMAL, Status.FEASIBLE)

        self._each(self.problems, check)
        assert interrupts, "no run reported any event, so none could be interrupted"

    def test_ctrl_c_keeps_what_was_told(self) -> None:
        """A run that is interrupted as it tells of a best returns an answer that is as good.

        The first and the last best are tried: a method that tells before it keeps loses the last.
        """

        def check(problem: Problem) -> None:
            events = self._told(problem)[1]
            n_bests = sum(isinstance(event, NewBest) for event in events)
            for last in sorted({1, n_bests}) if n_bests else ():
                told: list[Score] = []

                def interrupt(event: Event, told: list[Score] = told, last: int = last) -> None:
                    if isinstance(event, NewBest):
                        told.append(event.objective)
                    if len(told) >= last:
                        raise KeyboardInterrupt

                solution = self._solve(problem, on_event=interrupt)
                if told:
                    assert solution.objective is not None
                    assert not _beats(told[-1], solution.objective)

        self._each(self.problems, check)

    # -- what it depends on ----------------------------------------------------------------------

    @on_each
    def test_one_seed_one_trajectory(self, problem: Problem) -> None:
        """The same seed gives the same events and solution, also after other solves."""
        self._needs_determinism()
        solution, first = self._told(problem)
        self._answer(problem, number=1)
        second = list[Event]()
        again = self._solve(problem, on_event=second.append)
        assert essence(again) == essence(solution)
        assert second == first

    def test_one_seed_one_answer_in_another_process(self) -> None:
        """A spawned process, with its own hash seed and its own kernels, finds the same."""
        self._needs_determinism()
        found = list[Problem]()
        self._each(self.problems, found.append)
        sample = found[-3:]
        there = solve_there(self._method(), sample, self.limits)
        here = [self._answer(problem) for problem in sample]
        assert [essence(s) for s in there] == [essence(s) for s in here]

    def test_nothing_global_changes(self, capfd: pytest.CaptureFixture[str]) -> None:
        """No global random numbers are drawn, nothing is printed, no logger is set up."""
        handlers = list(logging.getLogger().handlers)

        def check(problem: Problem) -> None:
            self._answer(problem)  # a first call may compile, and numba may seed itself then
            here = random.getstate(), pickle.dumps(np.random.get_state())  # noqa: NPY002
            self._solve(problem)
            assert (random.getstate(), pickle.dumps(np.random.get_state())) == here  # noqa: NPY002

        self._each(self.problems, check)
        assert capfd.readouterr() == ("", "")
        assert logging.getLogger().handlers == handlers

    @on_each
    def test_the_problem_stays_as_it_was(self, problem: Problem) -> None:
        """Byte by byte."""
        fresh = pickle.loads(pickle.dumps(problem))  # a problem that no test before has solved
        before = pickle.dumps(fresh)
        self._solve(fresh)
        assert pickle.dumps(fresh) == before

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
        """Bests fall to the answer, bounds rise to it at most, ticks count up to their total."""
        solution, events = self._told(problem)
        bests = [event.objective for event in events if isinstance(event, NewBest)]
        bounds = [event.lower_bound for event in events if isinstance(event, Bound)]
        assert bests == sorted(set(bests), reverse=True)
        assert bounds == sorted(set(bounds))
        if solution.objective is not None and bests:
            assert bests[-1] == pytest.approx(solution.objective, rel=RTOL)
        if solution.objective is None:
            assert not bests
        elif bounds:
            assert not _beats(solution.objective, bounds[-1])
        for event in events:
            if isinstance(event, Tick):
                assert event.phase
                assert 0 <= event.done <= (event.total or event.done)


def _beats(score: Score, other: Score) -> bool:
    """Tell whether a score is lower than another, floats by more than rounding."""
    if isinstance(score, tuple) and isinstance(other, tuple):
        first = next(((a, b) for a, b in zip(score, other, strict=True) if a != b), (0, 0))
        return _beats(*first)
    if isinstance(score, tuple) or isinstance(other, tuple):  # a bound that is infinite
        return bool(other == math.inf)
    return bool(score < other - RTOL * abs(other))
