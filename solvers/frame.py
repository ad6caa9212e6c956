"""The frame of searches: take the best of the answers that come, with the proved bound."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from optmatch.model import (
    RTOL,
    Bound,
    Clock,
    Event,
    Limit,
    NewBest,
    OnEvent,
    Problem,
    Score,
    Solution,
    Status,
    Tick,
    TimeUp,
    is_known,
)

Answer = TypeVar("Answer")

ROUNDING = 2.0**-50
"""Equal numbers of whole ticks differ by less of their size in seconds, different ones by more."""


class Stop:
    """Why a block of `stoppable` ended early: `limit` is None if it ran to its end."""

    limit: Limit | None = None


@contextmanager
def stoppable() -> Iterator[Stop]:
    """End this block at Ctrl-C, or where the time is up, and go on behind it with what is known.

    A method runs in such a block from its first answer on: whoever interrupts it gets the best so
    far, not nothing.

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


def take_best(
    answers: Iterator[tuple[float, Answer] | Bound | None],
    bound: float,
    clock: Clock,
    on_event: OnEvent,
    phase: str,
    total: int = 0,
    *,
    ties: bool = False,
    rtol: float = RTOL,
    start: tuple[float, Answer] | None = None,
) -> tuple[Answer | None, Limit | None, int]:
    """Take answers until there are no more, one meets the bound, or a limit is reached.

    Parameters
    ----------
    answers
        The answers come one by one, each after its cost; None where a try finds none. Each counts
        as an iteration. A `Bound` among them, which does not, takes the place of a lower `bound`.
    bound
        No answer costs less.
    clock
        Its limits end the search: the time, the iterations, and the gap between cost and bound.
    on_event
        Called with a `Tick` of `phase` and `total` before each try, and with better costs and
        bounds.
    ties
        Whether of answers that cost the same the last is taken, not the first.
    rtol
        By how much of the bound a cost may be above it and still meet it.
    start
        An answer from before, and its cost.

    Returns
    -------
    tuple of (answer, limit, iterations)
        The best answer, or None; the limit that ended the search, None where the answer meets the
        bound (Ctrl-C is a limit); the number of tries.
    """
    best = start
    tries = 0
    with stoppable() as stop:
        if bound > 0:
            on_event(Bound(bound))
        if best is not None:
            on_event(NewBest(best[0]))

        while best is None or best[0] > bound * (1 + rtol):
            limit = clock.exceeded(tries)
            if limit is None and best is not None:
                cost = best[0]
                if cost - bound <= clock.limits.gap * cost:
                    limit = Limit.GAP
            if limit is not None:
                stop.limit = limit
                break

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
                best = candidate  # before the event: its listener may interrupt
            if is_better:
                on_event(NewBest(candidate[0]))
    answer = None if best is None else best[1]
    return answer, stop.limit, tries


def unite(former: Solution | None, newer: Solution) -> Solution:
    """Unite two solutions of one problem: the better answer, and the higher bound.

    Parameters
    ----------
    former
        The solution from before, if any.
    newer
        The newer one, which is taken where both answers are as good. Its limit says why the search
        as a whole has stopped.

    Returns
    -------
    Solution
        One of the two, or the answer of one with the bound and the certificate of the other.
    """
    if former is None or former.objective is None or newer.status is Status.OPTIMAL:
        return newer
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
    return conclude(
        answer.problem,
        answer.method,
        answer.objective,
        proof.lower_bound,
        newer.limit,
        rtol=ROUNDING,
        schedule=answer.schedule,
        answer=answer.answer,
        certificate=proof.certificate,
        stats=stats,
    )


def _rank(solution: Solution) -> tuple[int, Score]:
    """Return what decides between two answers: the objective, after the slots if they go first."""
    slots_first = getattr(solution.problem, "slots_first", False)
    n_slots = solution.schedule.n_slots if slots_first else 0
    return n_slots, solution.objective


def only_better(on_event: OnEvent) -> OnEvent:
    """Make a listener of several methods, one after the other, that passes on only what is new."""
    best_objective: Score | None = None
    best_bound: Score | None = None

    def tell(event: Event) -> None:
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
    """Make a listener of a search on another problem, whose objectives and bounds are not ours."""

    def tell(event: Event) -> None:
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
    rtol: float = RTOL,
    **parts: Any,
) -> Solution:
    """Make a solution of an answer and its proof.

    Parameters
    ----------
    problem, method
        The problem, and the name of the method that has solved it.
    objective
        That of the answer; None if there is no answer.
    bound
        No answer is better; infinite if it is proved that there is none.
    limit
        Why the search left the question open; None if it had nothing left to do.
    rtol
        By how much of the bound an objective may be above it and still be optimal. An objective of
        several levels is optimal only where it equals the bound.
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
            proved = objective <= bound * (1 + rtol)
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
