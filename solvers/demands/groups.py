"""Schedules of groups (coflows) by weight: the primal-dual order, and orders near it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Limits, OnEvent, Solution
from optmatch.problems import Demand
from optmatch.problems.demands.groups import load_lines, order_groups, weigh_groups
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.feedforward import holds_every_matching
from optmatch.solvers.frame import conclude, take_best
from optmatch.solvers.kernel import kernel

MOVES = 300
"""Orders that are tried beside the first ones, without limits."""
_SHARES = (0.0, 0.5, 1.0)


@kernel
def _follow(
    source, destination, group, left, delay, shortest, share, ends, taken, matchings, ticks
):
    """Serve entries in their order: in each slot all that fit, until some are done.

    A slot lasts until its first circuit is done, or longer: by a share of what the longest
    circuit of the first group needs beyond that.
    """
    clock, slot, first = 0, 0, 0
    while first < len(left):
        if left[first] == 0:
            first += 1
            continue
        matching = matchings[slot]
        for i in range(len(matching)):
            matching[i] = -1
            taken[i] = False
        least, longest = left[first], left[first]
        for k in range(first, len(left)):
            if left[k] > 0 and matching[source[k]] < 0 and not taken[destination[k]]:
                matching[source[k]] = destination[k]
                taken[destination[k]] = True
                least = min(least, left[k])
                if group[k] == group[first]:
                    longest = max(longest, left[k])
        held = max(least + np.int64(share * (longest - least)), shortest)
        clock += delay
        for k in range(first, len(left)):
            if left[k] > 0 and matching[source[k]] == destination[k]:
                if left[k] <= held:
                    ends[group[k]] = max(ends[group[k]], clock + left[k])
                left[k] -= min(left[k], held)
        clock += held
        ticks[slot] = held
        slot += 1
    return slot


def solve_groups(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Schedule groups in the primal-dual order, then in orders that differ by one group's place.

    Each slot is a greedy matching of the entries in that order, so idle ports serve later groups.
    Without delays a slot that ends with its first circuit makes this the 4-approximation of
    Sincronia [1]_: while an entry waits, its source or its destination serves an earlier one.

    Parameters
    ----------
    problem
        Its objective is ``"weighted-completion-s"``, and its fabric holds every matching.
    limits, rng, on_event
        As for every method. An iteration is one order.

    References
    ----------
    .. [1] Agarwal, Rajakrishnan, Narayan, Agarwal, Shmoys and Vahdat (2018), Sincronia:
       Near-optimal network design for coflows, doi 10.1145/3230543.3230569.
    """
    if not holds_every_matching(problem.fabric):
        raise InputError(
            f"objective weighted-completion-s: not on a {problem.fabric.type}, which does not hold"
            " every matching",
            where="objective",
        )
    clock = limits.start()
    weights, deadlines_s = weigh_groups(problem)
    bound = problem.lower_bound()

    def cost(ends: NDArray[np.int64]) -> float:
        return float((weights * np.maximum(ends * problem.tick_s - deadlines_s, 0)).sum())

    def candidates() -> Iterator[tuple[float, tuple[Plan, float]]]:
        best = (np.inf, [0], 0.0)
        order, _ = order_groups(load_lines(problem), weights)
        for first in (order, np.argsort(deadlines_s, kind="stable").tolist()):
            for share in _SHARES:
                plan, ends = _serve(problem, first, share)
                best = min(best, (cost(ends), first, share))
                yield cost(ends), (plan, cost(ends))
        for _ in range(MOVES if clock.limits.time_s is None else 10**9):
            order = list(best[1])
            if len(order) < 2:
                return
            a, b = rng.choice(len(order), 2, replace=False).tolist()
            order.insert(b, order.pop(a))
            plan, ends = _serve(problem, order, best[2])
            best = min(best, (cost(ends), order, best[2]))
            yield cost(ends), (plan, cost(ends))

    best, limit, done = take_best(candidates(), bound, clock, on_event, "orders")
    if best is None:
        return conclude(problem, "best", None, bound, limit)
    plan, least = best
    states = None
    if problem.fabric.graph is not None:
        from optmatch.solvers.feedforward.router import route_cheaply  # loads its kernels

        states = route_cheaply(problem.fabric, plan.matchings).states
    schedule = problem.schedule(plan.matchings, plan.ticks, states)
    stats = {"plans": done, "slots": len(plan.ticks)}
    return conclude(problem, "best", least, bound, limit, schedule=schedule, stats=stats)


def _serve(problem: Demand, order: list[int], share: float) -> tuple[Plan, NDArray[np.int64]]:
    """Serve groups in an order; return the plan, and when each group is complete, in ticks."""
    assert problem.groups is not None
    ticks, place = problem.ticks, np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    source, destination = np.nonzero(ticks)
    group, left = problem.groups[source, destination].astype(np.int64), ticks[source, destination]
    first = np.lexsort((-left, place[group]))
    matchings = np.empty((len(left), len(ticks)), dtype=np.int32)
    held, ends = np.empty(len(left), dtype=np.int64), np.zeros(len(order), dtype=np.int64)
    taken = np.empty(len(ticks), dtype=np.bool_)
    rows = source[first], destination[first], group[first], left[first]
    times = problem.delay_ticks, problem.min_slot_ticks, share
    count = _follow(*rows, *times, ends, taken, matchings, held)
    return Plan(matchings[:count], held[:count]), ends
