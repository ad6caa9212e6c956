"""A plan of a demand within milliseconds: quick rules, then parts of the best covered anew."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
from numpy.typing import NDArray

from optmatch.model import TimeUp, counted_time
from optmatch.solvers.demands.entry_covers import CRITICAL, MEDIAN, RATED, STABLE
from optmatch.solvers.demands.plans import Plan, join, only_demanded, serve, tidy, trim
from optmatch.solvers.demands.quick_rules import (
    FIRST,
    QuickTask,
    Size,
    cover_by_rule,
    rules_by_time,
)

_GRACE_S = 0.0008
"""A former plan may prolong the work by so much, so that other steps miss nothing; and slots of
the best rating are searched in any case if they are estimated to take no longer."""

_MOVES = 50
"""Moves without a limit of time."""

_NEVER_S = 60.0
"""A rule that is estimated to take longer than this is left to those who name it."""

_WORTH_WAITING_S = 0.01
"""A rule of at least this estimate that does not fit leaves its time to moves; before shorter ones
the work ends, so that more time is never worse."""

_SECONDS_OF_A_MOVE = 0.005
"""Moves use the heaviest matchings where a cover of the whole demand by them is estimated to take
no longer, or else stable ones."""


def cover_quickly(
    demand: NDArray[np.int64], delay: int, shortest: int = 1, *, exact: bool = True
) -> Plan:
    """Cover a demand by slots that serve much for their time.

    Each slot holds the best matching for its length, or, unless `exact`, a stable one.
    """
    return cover_by_rule(QuickTask(demand, delay, shortest), RATED if exact else STABLE)


def plan_quickly(
    demand: NDArray[np.int64], delay: int, deadline: float, previous: Plan | None = None
) -> Plan:
    """Cover a demand as well as time allows.

    The steps and their order do not depend on the time there is: heaviest first, in any case; then
    the rules that fit, the quickest first; then moves, each of which covers a part of the best
    plan anew. `previous` patched is one more plan; no step follows from it.

    Parameters
    ----------
    demand
        ``demand[source, destination]`` in ticks, int64, shape (n, n).
    delay
        In ticks, before each slot.
    deadline
        When to stop, by `counted_time`; infinite for a number of moves.
    previous
        Slots of a demand like this one, to start from.
    """
    if not demand.any():
        return Plan.of([], [], len(demand))
    bound = _bound_by_lines(demand, delay)
    began_s = counted_time()
    task = QuickTask(demand, delay, deadline=deadline)
    first = finish_plan(FIRST.build(task), demand)
    finish_s = (counted_time() - began_s) / 2  # which every plan takes in the end, too

    if _best_slots_s(Size.of(demand)) < _GRACE_S:
        rated = finish_plan(cover_by_rule(task._replace(deadline=np.inf), RATED), demand)
        first = min(first, rated, key=lambda plan: plan.cost(delay))

    best = first
    late = deadline - finish_s
    if previous is not None:
        began_s = counted_time()
        is_soon = began_s + finish_s < late
        if is_soon or finish_s < _GRACE_S:
            patched = _patch_previous(task, previous)
            best = min(first, patched, key=lambda plan: plan.cost(delay))
        late += min(_GRACE_S, counted_time() - began_s)

    steps = yield_plans(task._replace(deadline=late), first, endless=deadline < np.inf)
    try:
        while best.cost(delay) > bound and counted_time() < late:
            plan = next(steps, None)
            if plan is None:
                break
            if plan.cost(delay) <= best.cost(delay):
                best = plan
    except TimeUp:
        pass
    return best


def _best_slots_s(size: Size) -> float:
    """Estimate the time of a cover by the best slots where entries differ, as in most demands."""
    return 4e-8 * size.n_entries * size.degree


def _bound_by_lines(demand: NDArray[np.int64], delay: int) -> int:
    """Return the time that the busiest line needs, in ticks."""
    bounds = [
        int((demand.sum(axis=axis) + delay * np.count_nonzero(demand, axis=axis)).max())
        for axis in (0, 1)
    ]
    return max(bounds)


def yield_plans(task: QuickTask, best: Plan, *, endless: bool) -> Iterator[Plan]:
    """Yield the plans of the rules that fit, then those of moves from the best of them.

    Parameters
    ----------
    task
        At its deadline `TimeUp` is raised.
    best
        A plan that is known.
    endless
        Whether moves go on until the deadline; else there is a fixed number of them.
    """
    delay = task.delay
    size = Size.of(task.demand)
    for estimate_s, rule in rules_by_time(size):
        if estimate_s > _NEVER_S:
            break
        if counted_time() + estimate_s > task.deadline:
            if estimate_s < _WORTH_WAITING_S:
                raise TimeUp
            break
        plan = finish_plan(rule.build(task), task.demand, task.shortest)
        best = plan if plan.cost(delay) <= best.cost(delay) else best
        yield plan

    rng = np.random.default_rng(0)
    for _ in count() if endless else range(_MOVES):
        if len(best.ticks) < 2:
            return
        plan = cover_part_anew(task, best, rng, size)
        best = plan if plan.cost(delay) <= best.cost(delay) else best
        yield plan


def cover_part_anew(task: QuickTask, plan: Plan, rng: np.random.Generator, size: Size) -> Plan:
    """Take out some slots, short ones rather than long ones, and cover what they served anew.

    A move of large neighbourhood search; raises `TimeUp` at the deadline.
    """
    n_slots = len(plan.ticks)
    stay = plan.ticks / plan.ticks.max() + rng.random(n_slots)
    n_out = int(rng.integers(min(2, n_slots - 1), n_slots))
    base = plan.take(np.argsort(stay, kind="stable")[n_out:])
    if _best_slots_s(size) > _SECONDS_OF_A_MOVE:
        rule = STABLE
    else:
        rule = int(rng.choice([RATED, RATED, CRITICAL, MEDIAN]))
    return finish_plan(_patch(task, base, rule), task.demand, task.shortest)


def _patch(task: QuickTask, plan: Plan, rule: int) -> Plan:
    """Cover the rest that some slots leave."""
    rest = np.maximum(task.demand - serve(plan), 0)
    return join(plan, cover_by_rule(task._replace(demand=rest), rule))


def _patch_previous(task: QuickTask, previous: Plan) -> Plan:
    """Complete the slots of a former plan, in a time that does not depend on the limit."""
    rest = np.maximum(task.demand - serve(previous), 0)
    patch = task._replace(demand=rest, deadline=np.inf)
    if _best_slots_s(Size.of(rest)) < _GRACE_S:
        plan = join(previous, cover_by_rule(patch, RATED))
    else:
        plan = join(previous, FIRST.build(patch))
    return finish_plan(plan, task.demand, task.shortest)


def finish_plan(plan: Plan, demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Put equal slots together, shorten slots, and take out circuits that no demand needs."""
    return only_demanded(trim(tidy(plan), demand, shortest), demand, shortest)
