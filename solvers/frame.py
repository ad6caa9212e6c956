"""The frame of searches: take the best of the answers that come, with the proved bound."""

from __future__ import annotations

import math
from collections.abc import Iterator
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

    No answer costs less than `bound`. The limit that is returned is None where the best meets the
    bound; Ctrl-C is one.

    Parameters
    ----------
    answers
        The answers come one by one, each after its cost; None where a try finds none. Each counts
        as an iteration. A `Bound` among them, which does not, takes the place of a lower `bound`.
    ties
        Whether of answers that cost the same the last is taken, not the first.
    rtol
        By how much of the bound a cost may be above it and still meet it.
    start
        An answer from before, and its cost.
    """
    least, best = (math.inf, None) if start is None else start
    done = 0
    limit: Limit | None = None
    try:
        if bound > 0:
            on_event(Bound(bound))
        if start is not None:
            on_event(NewBest(least))
        while best is None or least > bound * (1 + rtol):
            limit = clock.exceeded(done)
            if limit is None and best is not None and least - bound <= clock.limits.gap * least:
                limit = Limit.GAP
            if limit is not None:
                break
            on_event(Tick(phase, done, total))
            try:
                found = next(answers)
            except StopIteration:
                limit = Limit.EXHAUSTED
                break
            if isinstance(found, Bound):
                bound = max(bound, found.lower_bound)
                on_event(found)
                continue
            done += 1
            if found is not None and (found[0] < least or (ties and found[0] == least)):
                before, (least, best) = least, found  # kept first: the listener may interrupt
                if least < before:
                    on_event(NewBest(least))
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    except TimeUp:
        limit = Limit.TIME
    return best, limit, done


def unite(known: Solution | None, found: Solution) -> Solution:
    """Take the better answer of two solutions, and the higher bound with what shows it."""
    if known is None or known.objective is None or found.status is Status.OPTIMAL:
        return found
    better = found.objective is not None and _rank(found) <= _rank(known)
    answer, proof = (found if better else known), known
    if is_known(found.lower_bound) and (found.lower_bound, better) > (known.lower_bound, False):
        proof = found
    if answer is proof:
        return replace(answer, limit=found.limit or known.limit)
    stats = {name: value for name, value in answer.stats.items() if name != "bound_by"}
    if "bound_by" in proof.stats:
        stats["bound_by"] = proof.stats["bound_by"]
    return conclude(
        answer.problem,
        answer.method,
        answer.objective,
        proof.lower_bound,
        found.limit,
        rtol=ROUNDING,
        schedule=answer.schedule,
        answer=answer.answer,
        certificate=proof.certificate,
        stats=stats,
    )


def _rank(solution: Solution) -> tuple[int, Score]:
    slots_first = getattr(solution.problem, "slots_first", False)
    return solution.schedule.n_slots if slots_first else 0, solution.objective


def only_better(on_event: OnEvent) -> OnEvent:
    """Tell a listener of several methods, one after the other, only what is new."""
    objective: Score | None = None
    bound: Score | None = None

    def tell(event: Event) -> None:
        nonlocal objective, bound
        if isinstance(event, NewBest):
            if objective is not None and event.objective >= objective:
                return
            objective = event.objective
        elif isinstance(event, Bound):
            if bound is not None and event.lower_bound <= bound:
                return
            bound = event.lower_bound
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
    **known: Any,
) -> Solution:
    """Make a solution of an answer and its proof.

    No answer is better than `bound`, which is infinite if it is proved that there is none. The
    limit says why the search left the question open, None if it had nothing left to do. An
    objective meets the bound up to `rtol`, one of several levels if they are equal.
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
        **known,
    )
