"""Schedules of groups (coflows) by weight: the best order of a relaxation, and orders near it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, InputError, Limits, OnEvent, Solution, uncounted
from optmatch.problems import Demand
from optmatch.problems.demands.bounds import load_lines, order_groups, weigh_groups
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.scheduling import former_plan
from optmatch.solvers.feedforward import holds_every_matching
from optmatch.solvers.frame import conclude, take_best
from optmatch.solvers.kernels.decorators import kernel
from optmatch.solvers.params import DemandParams

_BONUSES = (0.0, 1.0, 3.0)


@kernel
def _follow(
    source,
    destination,
    group,
    left,
    delay,
    shortest,
    bonus,
    ends,
    taken,
    chosen,
    matchings,
    ticks,
):
    """Serve entries in their order: each slot takes all that fit, and lasts as long as one needs.

    The length is the one that serves most for its time. The first group counts three times, and
    what is done earns a delay, `bonus` times.
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
        count = 0
        for k in range(first, len(left)):
            if left[k] > 0 and matching[source[k]] < 0 and not taken[destination[k]]:
                matching[source[k]] = destination[k]
                taken[destination[k]] = True
                chosen[count] = k
                count += 1
        most, held = -1.0, shortest
        for a in range(count):
            length, total = left[chosen[a]], 0.0
            for b in range(count):
                k = chosen[b]
                serves = left[k] + bonus * delay if left[k] <= length else float(length)
                total += 3.0 * serves if group[k] == group[first] else serves
            if total > most * (length + delay):
                most = total / (length + delay)
                held = max(length, shortest)
        clock += delay
        for a in range(count):
            k = chosen[a]
            if left[k] <= held:
                ends[group[k]] = max(ends[group[k]], clock + left[k])
            left[k] -= min(left[k], held)
        clock += held
        ticks[slot] = held
        slot += 1
    return slot


def solve_groups(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
    orders: int = DemandParams().orders,
) -> Solution:
    """Schedule entries by their groups, in the best order of these, then in orders near the best.

    Each slot is a greedy matching of the entries in that order, so idle ports serve later groups.
    Without delays slots end with their first circuit, which makes this the 4-approximation of
    Sincronia [1]_: while an entry waits, its source or its destination serves an earlier one. Then
    a group or a single entry goes to another place of the order, at random, or `bonus` changes.
    Every matching must be possible on the fabric. An iteration is one order.

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

    source, destination = np.nonzero(problem.ticks)
    ticks = problem.ticks[source, destination]
    group = np.asarray(problem.groups)[source, destination].astype(np.int64)

    def serve(order: NDArray[np.int64], bonus: float) -> tuple[float, Plan]:
        n, most = problem.fabric.n_ports, len(order)
        rows, held = np.empty((most, n), dtype=np.int32), np.empty(most, dtype=np.int64)
        ends, chosen = np.zeros(len(weights), dtype=np.int64), np.empty(n, dtype=np.int64)
        entries = source[order], destination[order], group[order], ticks[order]
        times = problem.delay_ticks, problem.min_slot_ticks, bonus
        room = ends, np.empty(n, dtype=np.bool_), chosen, rows, held
        count = _follow(*entries, *times, *room)
        late_s = np.maximum(ends * problem.tick_s - deadlines_s, 0)
        return float((weights * late_s).sum()), Plan(rows[:count], held[:count])

    former = former_plan(problem, start)
    known: tuple[float, tuple[Plan, float]] | None = None
    if start is not None and former is not None and start.problem == problem:
        cost_s: Any = start.objective
        known = cost_s, (former, cost_s)

    def candidates() -> Iterator[tuple[float, tuple[Plan, float]]]:
        least, best, bonus = np.inf, np.arange(len(ticks)), 0.0
        firsts = list[NDArray[np.int64]]()
        if former is not None:  # entries in the order in which they were done
            done = np.zeros(problem.ticks.shape, dtype=np.int64)
            for slot, matching in enumerate(former.matchings, 1):
                ports = np.flatnonzero(matching != IDLE)
                done[ports, matching[ports]] = slot
            firsts.append(np.lexsort((-ticks, done[source, destination])))
        due, place = deadlines_s / problem.tick_s, np.empty(len(weights), dtype=np.int64)
        for groups in (
            order_groups(*load_lines(problem), weights, due)[0],
            np.argsort(due, kind="stable"),
        ):
            place[groups] = np.arange(len(groups))
            firsts.append(np.lexsort((-ticks, place[group])))
        for order in firsts:
            for other in _BONUSES:
                cost, plan = serve(order, other)
                if cost < least:
                    least, best, bonus = cost, order, other
                yield cost, (plan, cost)
        for _ in range(orders if clock.limits.time_s is None else 10**9):
            if len(best) < 2:
                return
            order, other, move = best, bonus, rng.random()
            if move < 0.1:
                other = float(rng.uniform(0, _BONUSES[-1]))
            elif move < 0.4:
                moved = group[order] == rng.integers(len(weights))
                order = _move(order, moved, int(rng.integers(len(order))))
            else:  # not far
                at, n = int(rng.integers(len(order))), problem.fabric.n_ports
                to = max(0, at + int(rng.integers(-n, n + 1)))
                order = _move(order, np.arange(len(order)) == at, to)
            cost, plan = serve(order, other)
            if cost <= least:
                least, best, bonus = cost, order, other
            yield cost, (plan, cost)

    best, limit, done = take_best(candidates(), bound, clock, on_event, "orders", start=known)
    if best is None:
        return conclude(problem, "best", None, bound, limit)
    plan, least = best
    states = None
    if problem.fabric.graph is not None:
        with uncounted():
            from optmatch.solvers.feedforward.router import route_cheaply  # loads its kernels

        states = route_cheaply(problem.fabric, plan.matchings).states
    schedule = problem.schedule(plan.matchings, plan.ticks, states)
    stats = {"plans": done, "slots": len(plan.ticks)}
    return conclude(problem, "best", least, bound, limit, schedule=schedule, stats=stats)


def _move(order: NDArray[np.int64], moved: NDArray[np.bool_], to: int) -> NDArray[np.int64]:
    """Put some entries of an order before the others from a place on."""
    rest = order[~moved]
    return np.concatenate([rest[:to], order[moved], rest[to:]])
