"""The frame of all methods for demands: plans come in, the best of them goes out as a solution."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    RTOL,
    Clock,
    InputError,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Schedule,
    Solution,
    Status,
    Tick,
)
from optmatch.problems import Demand, OddSetProof, PlaneSchedules, completion_s
from optmatch.solvers.demands.odd_sets import bound_by_odd_set
from optmatch.solvers.demands.ordering import keep_circuits
from optmatch.solvers.demands.packets import leave_to_packets
from optmatch.solvers.demands.planes import spread
from optmatch.solvers.demands.plans import Plan, only_demanded, tidy
from optmatch.solvers.feedforward import holds_every_matching


class Work(NamedTuple):
    """What a method has to cover, and what it may spend."""

    problem: Demand
    demand: NDArray[np.int64]  # in ticks
    delay: int
    shortest: int  # ticks of the shortest slot
    rng: np.random.Generator
    clock: Clock


Build = Callable[[Work], Iterator[Plan]]
"""A method: it yields plans that serve the demand, as good as it can make them."""


def solve_demand(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    name: str,
    build: Build,
) -> Solution:
    """Take plans from a method until it is exhausted, a limit is reached or the bound is met.

    Parameters
    ----------
    problem, limits, rng, on_event
        As for every method. An iteration is one plan.
    name
        The name of the method.
    build
        What makes the plans. Circuits that cannot be realised together are its own business only
        where it says so: here plans are realised, spread over planes, ordered and shortened.

    Raises
    ------
    InputError
        If the objective is the number of matchings: a cover is no decomposition.
    """
    if problem.objective != "completion-s":
        raise InputError(
            f"method {name!r} covers a demand; objective {problem.objective!r} needs a"
            " decomposition: best, ilp or one of birkhoff-*",
            where="method",
        )
    clock = limits.start()
    best: Candidate | None = None
    bound, proof = _bound(problem)
    done, limit = 0, None
    work = Work(problem, problem.ticks, problem.delay_ticks, problem.min_slot_ticks, rng, clock)
    try:
        finish, plain = _finisher(problem), _plain(problem)
        plans = build(work) if work.demand.any() else iter([_empty(problem)])
        while best is None or not _reaches(problem, best.objective, bound):
            limit = clock.exceeded(done)
            if limit is None and best is not None and _gap(best, bound) <= limits.gap:
                limit = Limit.GAP
            if limit is not None:
                break
            on_event(Tick("plans", done))
            plan = next(plans, None)
            if plan is None:
                limit = Limit.EXHAUSTED
                break
            done += 1
            if best is not None and plain and plan.cost(work.delay) >= best.ticks:
                continue
            found = finish(only_demanded(plan, work.demand, work.shortest))
            if best is None or found.objective < best.objective:
                best = found
                on_event(NewBest(best.objective))
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    return conclude(problem, best, limit, name, {"plans": done}, bound, proof)


def _bound(problem: Demand) -> tuple[float, OddSetProof | None]:
    """Bound a demand by its lines and, with a proof, by an odd set of ports if that is more."""
    bound = problem.lower_bound()
    found = bound_by_odd_set(problem)
    if found is None or _reaches(problem, found[1], bound):
        return bound, None
    return found[1], found[0]


def _reaches(problem: Demand, objective: float, bound: float) -> bool:
    """Tell whether a time meets a bound: in whole ticks, unless packets end between them."""
    if problem.packet_share > 0:
        return objective <= bound * (1 + RTOL)
    if not math.isfinite(objective):
        return False
    return round(objective / problem.tick_s) <= round(bound / problem.tick_s)


class Candidate(NamedTuple):
    """Schedules of all planes, and when they have carried everything."""

    schedules: tuple[Schedule, ...]
    objective: float
    ticks: int  # of all slots and delays together


def _gap(best: Candidate, bound: float) -> float:
    return (best.objective - bound) / best.objective


def conclude(
    problem: Demand,
    best: Candidate | None,
    limit: Limit | None,
    name: str,
    stats: dict[str, object],
    bound: float,
    proof: OddSetProof | None,
) -> Solution:
    """Say what was found and what the bound proves about it."""
    if best is None:
        return Solution(
            problem=problem,
            status=Status.UNKNOWN,
            limit=limit or Limit.EXHAUSTED,
            lower_bound=bound,
            method=name,
            certificate=proof,
            stats=stats,
        )
    proved = _reaches(problem, best.objective, bound)
    slots = sum(schedule.n_slots for schedule in best.schedules)
    return Solution(
        problem=problem,
        schedule=best.schedules[0] if problem.planes == 1 else None,
        answer=None if problem.planes == 1 else PlaneSchedules(schedules=best.schedules),
        status=Status.OPTIMAL if proved else Status.FEASIBLE,
        limit=None if proved else (limit or Limit.EXHAUSTED),
        objective=best.objective,
        lower_bound=min(bound, best.objective),
        method=name,
        certificate=proof,
        stats=stats | {"slots": slots},
    )


def _empty(problem: Demand) -> Plan:
    n_ports = problem.fabric.n_ports
    return Plan(np.empty((0, n_ports), dtype=np.int32), np.empty(0, dtype=np.int64))


def _plain(problem: Demand) -> bool:
    """Tell whether the slots and delays of a plan are all that decides when it ends."""
    return (
        holds_every_matching(problem.fabric)
        and problem.planes == 1
        and problem.packet_share == 0
        and problem.switching == "all-stop"
    )


def _finisher(problem: Demand) -> Callable[[Plan], Candidate]:
    """Choose how a plan becomes schedules: as it is, routed, or cut down to what can be."""
    fabric = problem.fabric
    if not holds_every_matching(fabric):
        from optmatch.solvers.demands.realisable import Realiser  # elsewhere no router is needed

        realiser = Realiser(problem)
        return lambda plan: candidate(problem, realiser.realise(plan), realiser.states)
    if fabric.graph is None:
        return lambda plan: candidate(problem, plan)
    from optmatch.solvers.feedforward.router import route_cheaply  # loads its kernels

    return lambda plan: candidate(
        problem, plan, lambda share: route_cheaply(fabric, share.matchings).states
    )


def candidate(
    problem: Demand,
    plan: Plan,
    states: Callable[[Plan], NDArray[np.int8]] | None = None,
) -> Candidate:
    """Make schedules of a plan: without what packets take, spread over planes, in order."""
    plan = tidy(plan)
    if problem.packet_share > 0:
        plan = leave_to_packets(problem, plan)
    alone = problem.planes == 1 and problem.packet_share == 0
    schedules = []
    for share in spread(plan, problem):
        if alone and problem.switching == "per-circuit":
            share = keep_circuits(share, problem)
        schedules.append(problem.schedule(share.matchings, share.ticks, states and states(share)))
    ticks = plan.cost(problem.delay_ticks)
    return Candidate(tuple(schedules), completion_s(problem, schedules), ticks)
