"""What methods share: take the best of a series of answers, stop at limits, make a solution.

Costs and bounds are in the unit of the objective of a problem; less is better.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, TypeVar

from optmatch.model import (
    RTOL,
    Bound,
    Clock,
    Event,
    InputError,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Problem,
    Schedule,
    Score,
    Solution,
    SolverUnavailable,
    Status,
    Tick,
    TimeUp,
    VerificationError,
    is_known,
)

Answer = TypeVar("Answer")

ROUNDING = 2.0**-50
"""A relative tolerance for seconds that are whole numbers of ticks.

The same number of ticks, reckoned in two ways, differs by less; different numbers differ by more,
up to 2**49 ticks (`tick_rtol`).
"""

PROOF_RTOL = RTOL / 2
"""An answer is optimal if it exceeds its bound by no more than this part of it.

The verifier allows twice as much: it adds up the same numbers in another order.
"""

_DEFECTS = logging.getLogger("optmatch.defects")


def log_defect(method: str, failure: object) -> None:
    """Log that a method has failed, and that the next best one is taken; tests and races fail.

    `failure` is the exception of the method, or a text that says how it has failed.
    """
    if isinstance(failure, Exception) and not isinstance(failure, VerificationError):
        failure = f"{type(failure).__name__}: {failure}"
    _DEFECTS.error("method %s is left out, which is a defect of optmatch: %s", method, failure)


def is_defect(error: Exception, problem: Problem) -> bool:
    """Tell whether an exception of a method is a fault of the method, and not of the problem.

    An `InputError` is the answer to a problem that a method cannot take, unless it is about a
    field of an answer, which the method itself has made.
    """
    if isinstance(error, (MemoryError, TimeUp, SolverUnavailable)):
        return False
    if not isinstance(error, InputError):
        return True
    classes: list[Any] = [Schedule, Solution]
    if problem.answer_class is not None:
        classes.append(problem.answer_class)

    # The fields of an answer that the problem has not, too. A place such as ``matchings[0]`` or
    # ``schedule.matchings`` begins with the name of its field.
    names = {part.name for cls in classes for part in fields(cls)}
    asked: Any = problem
    names -= {part.name for part in fields(asked)}
    return re.split(r"[\[.]", error.where)[0] in names


class Stop:
    """Why a block of `stoppable` ended early."""

    limit: Limit | None = None
    """The limit that ended the block; None if it ran to its end."""


@contextmanager
def stoppable() -> Iterator[Stop]:
    """End the block at Ctrl-C, or when the time is up, and continue behind it.

    A method runs in such a block from its first answer on, so that whoever interrupts it gets the
    best answer so far.

    Yields
    ------
    Stop
        Its `limit` is set after the block, if `TimeUp` or KeyboardInterrupt has ended it. Neither
        is raised again.

    Examples
    --------
    >>> best = 5
    >>> with stoppable() as stop:
    ...     raise KeyboardInterrupt
    >>> best, stop.limit
    (5, <Limit.INTERRUPTED: 'interrupted'>)
    """
    stop = Stop()
    try:
        yield stop
    except (KeyboardInterrupt, TimeUp) as exception:
        stop.limit = limit_of(exception)


def limit_of(stop: BaseException) -> Limit:
    """Return the limit that an exception stands for: `TimeUp`, or else an interrupt."""
    return Limit.TIME if isinstance(stop, TimeUp) else Limit.INTERRUPTED


def limits_left(limits: Limits, clock: Clock) -> Limits:
    """Return limits with the time that is left of them, if they limit the time.

    `clock` was started with these limits.
    """
    if limits.time_s is None:
        return limits
    return replace(limits, time_s=clock.remaining_s)


def near_enough(objective: float, bound: float, gap: float) -> Limit | None:
    """Return `Limit.GAP` if an objective is within the relative gap of its bound, otherwise None.

    A gap of 0 asks for the optimum: then the answer is None.
    """
    return Limit.GAP if gap and objective - bound <= gap * objective else None


def tick_rtol(bound_s: float, tick_s: float) -> float:
    """Return `ROUNDING`, or 0 beyond 2**49 ticks, where it would be half a tick or more.

    Of 5e15 ticks it would be four, and a plan that takes a tick more than its bound would claim to
    be optimal.
    """
    return ROUNDING if bound_s < 2.0**49 * tick_s else 0.0


def meets_bound(cost: float, bound: float, rtol: float = PROOF_RTOL) -> bool:
    """Tell whether a lower bound proves that an answer of this cost is optimal."""
    return cost <= bound * (1 + rtol)


def take_best(
    answers: Iterator[tuple[float, Answer] | Bound | None],
    bound: float,
    clock: Clock,
    on_event: OnEvent,
    phase: str,
    total: int = 0,
    *,
    ties: bool = False,
    rtol: float = PROOF_RTOL,
    start: tuple[float, Answer] | None = None,
) -> tuple[Answer | None, Limit | None, int]:
    """Take answers until there are no more, one meets the bound, or a limit is reached.

    Ctrl-C is a limit, too. Returned are the best answer or None, the limit that ended the search
    (None where the answer meets the bound), and the number of tries.

    Parameters
    ----------
    answers
        Yields (cost, answer) for each try, or None for a try that finds no answer; each counts as
        an iteration. It may yield a `Bound`, which counts as none and raises `bound`.
    bound
        A proved lower bound on all costs; 0 if none is known.
    clock
        Has the limits of time, gap and iterations, and runs already.
    on_event
        Is told each bound, each better cost, and a tick before each try.
    phase, total
        The name of the work and the number of tries, for ticks; 0 if the number is not known.
    ties
        Whether the last one of several answers of the same cost is taken, instead of the first.
    rtol
        The tolerance of `meets_bound`.
    start
        The cost and the answer of a former search; None if there is none.
    """
    best = start
    tries = 0
    with stoppable() as stop:
        if bound > 0:
            on_event(Bound(bound))
        if best is not None:
            on_event(NewBest(best[0]))

        # Until an answer meets the bound. The limits come first: with none left, nothing is tried.
        while best is None or not meets_bound(best[0], bound, rtol):
            limit = clock.exceeded(tries)
            if limit is None and best is not None:
                cost = best[0]
                if cost - bound <= clock.limits.gap * cost:
                    limit = Limit.GAP
            if limit is not None:
                stop.limit = limit
                break

            # One more try. An iterator that ends has nothing more to try.
            on_event(Tick(phase, tries, total))
            try:
                candidate = next(answers)
            except StopIteration:
                stop.limit = Limit.EXHAUSTED
                break
            if isinstance(candidate, Bound):
                bound = max(bound, candidate.lower_bound)
                on_event(candidate)
                continue

            tries += 1
            if candidate is None:
                continue
            is_better = best is None or candidate[0] < best[0]
            is_tie = best is not None and candidate[0] == best[0]
            if is_better or (ties and is_tie):
                # It is kept before it is told: the listener may raise KeyboardInterrupt.
                best = candidate
            if is_better:
                on_event(NewBest(candidate[0]))
    answer = None if best is None else best[1]
    return answer, stop.limit, tries


def unite(former: Solution | None, newer: Solution) -> Solution:
    """Combine two solutions of one problem: the better answer, and the higher bound.

    The answer of `newer` is taken if both are equally good, and its limit says why the whole
    search has stopped. `former` may be None.
    """
    if former is None or former.objective is None or newer.status is Status.OPTIMAL:
        return newer

    # Each part comes from the solution that has the better one.
    newer_is_better = newer.objective is not None and _rank(newer) <= _rank(former)
    newer_bound_is_higher = is_known(newer.lower_bound) and (
        newer.lower_bound > former.lower_bound
        or (newer.lower_bound == former.lower_bound and newer_is_better)
    )
    answer = newer if newer_is_better else former
    proof = newer if newer_bound_is_higher else former
    if answer is proof:
        return replace(answer, limit=newer.limit or former.limit)

    # The answer of one and the bound of the other may meet, so the status is decided anew.
    stats = {name: value for name, value in answer.stats.items() if name != "bound_by"}
    if "bound_by" in proof.stats:
        stats["bound_by"] = proof.stats["bound_by"]
    tick_s = getattr(answer.problem, "tick_s", None)
    return conclude(
        answer.problem,
        answer.method,
        answer.objective,
        proof.lower_bound,
        newer.limit,
        rtol=ROUNDING if tick_s is None else tick_rtol(proof.lower_bound, tick_s),
        schedule=answer.schedule,
        answer=answer.answer,
        certificate=proof.certificate,
        stats=stats,
    )


def _rank(solution: Solution) -> tuple[int, Score]:
    """Return the key by which answers are compared, less is better: (slots, objective).

    The number of slots is 0 unless the problem minimises them before the objective.
    """
    slots_first = getattr(solution.problem, "slots_first", False)
    n_slots = solution.schedule.n_slots if slots_first else 0
    return n_slots, solution.objective


def only_better(on_event: OnEvent) -> OnEvent:
    """Make a listener for several methods in turn, which passes on only improvements.

    A method that follows another one begins with worse objectives and bounds than are known.
    """
    best_objective: Score | None = None
    best_bound: Score | None = None

    def tell(event: Event) -> None:
        """Pass an event on if it is an improvement, or a tick."""
        nonlocal best_objective, best_bound
        if isinstance(event, NewBest):
            if best_objective is not None and event.objective >= best_objective:
                return
            best_objective = event.objective
        elif isinstance(event, Bound):
            if best_bound is not None and event.lower_bound <= best_bound:
                return
            best_bound = event.lower_bound
        on_event(event)

    return tell


def only_ticks(on_event: OnEvent) -> OnEvent:
    """Make a listener for a search on an auxiliary problem: it passes on ticks alone.

    The objectives and bounds of such a problem say nothing about the problem of the user.
    """

    def tell(event: Event) -> None:
        """Pass a tick on."""
        if isinstance(event, Tick):
            on_event(event)

    return tell


def conclude(
    problem: Problem,
    method: str,
    objective: Score | None,
    bound: Score,
    limit: Limit | None = None,
    *,
    rtol: float = PROOF_RTOL,
    **parts: Any,
) -> Solution:
    """Make a solution of an answer and a bound, with the status that follows from both.

    It is optimal or infeasible, without a limit, if the bound proves it (`rtol` as in
    `meets_bound`); else feasible or unknown, with `limit`, or ``Limit.EXHAUSTED`` if that is None.

    Parameters
    ----------
    objective
        The objective of the answer; None if there is no answer. A tuple, for an objective of
        several levels, is optimal only if it equals the bound.
    bound
        A proved lower bound on the objective of all answers; infinite if there is no answer at
        all.
    **parts
        Other fields of the solution: its schedule, answer, certificate and statistics.
    """
    if objective is None:
        proved = bound == math.inf
        status = Status.INFEASIBLE if proved else Status.UNKNOWN
    else:
        if isinstance(objective, tuple) or isinstance(bound, tuple):
            proved = objective == bound
        else:
            proved = meets_bound(objective, bound, rtol)
        status = Status.OPTIMAL if proved else Status.FEASIBLE
        bound = min(bound, objective)
    return Solution(
        problem=problem,
        status=status,
        limit=None if proved else (limit or Limit.EXHAUSTED),
        objective=objective,
        lower_bound=bound,
        method=method,
        **parts,
    )
