"""The frame of all methods for demands: plans come in, the best of them goes out as a solution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    RTOL,
    Clock,
    InputError,
    Limits,
    OnEvent,
    Schedule,
    Solution,
    uncounted,
)
from optmatch.problems import Demand, PlaneSchedules, completion_s
from optmatch.solvers.demands.finish import keep_circuits, spread
from optmatch.solvers.demands.packets import leave_to_packets
from optmatch.solvers.demands.plans import Plan, only_demanded, tidy
from optmatch.solvers.feedforward import holds_every_matching
from optmatch.solvers.frame import ROUNDING, conclude, take_best


class CoverTask(NamedTuple):
    """What a method has to cover, and what it may spend."""

    problem: Demand
    demand: NDArray[np.int64]  # in ticks
    delay: int
    shortest: int  # ticks of the shortest slot
    rng: np.random.Generator
    clock: Clock


Build = Callable[[CoverTask], Iterator[Plan]]
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

    An iteration is one plan of `build`. Circuits that cannot be realised together are its business
    only where it says so: here plans are realised, spread over planes, ordered and shortened.
    """
    if problem.objective != "completion-s":
        raise InputError(
            f"method {name!r} covers a demand; objective {problem.objective!r} needs a"
            " decomposition: best, ilp or one of birkhoff-*",
            where="method",
        )
    clock = limits.start()
    bound = problem.lower_bound()
    work = CoverTask(
        problem, problem.ticks, problem.delay_ticks, problem.min_slot_ticks, rng, clock
    )

    def candidates() -> Iterator[tuple[float, Candidate] | None]:
        finish, plain, least = _finisher(problem), _plain(problem), np.inf
        nothing = Plan.of([], [], problem.fabric.n_ports)
        for plan in build(work) if work.demand.any() else [nothing]:
            if plain and plan.cost(work.delay) >= least:
                yield None
                continue
            found = finish(only_demanded(plan, work.demand, work.shortest))
            least = min(least, found.ticks)
            yield found.objective, found

    rtol = ROUNDING if problem.packet_share == 0 else RTOL  # packets end between two ticks
    best, limit, done = take_best(candidates(), bound, clock, on_event, "plans", rtol=rtol)
    stats: dict[str, object] = {"plans": done}
    if best is None:
        return conclude(problem, name, None, bound, limit, stats=stats)
    alone = problem.planes == 1
    return conclude(
        problem,
        name,
        best.objective,
        bound,
        limit,
        rtol=rtol,
        schedule=best.schedules[0] if alone else None,
        answer=None if alone else PlaneSchedules(schedules=best.schedules),
        stats=stats | {"slots": sum(schedule.n_slots for schedule in best.schedules)},
    )


class Candidate(NamedTuple):
    """Schedules of all planes, and when they have carried everything."""

    schedules: tuple[Schedule, ...]
    objective: float
    ticks: int  # of all slots and delays together


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
        with uncounted():
            from optmatch.solvers.demands.realisable import (
                Realiser,  # elsewhere no router is needed
            )

        realiser = Realiser(problem)
        return lambda plan: candidate(problem, realiser.realise(plan), realiser.states)
    if fabric.graph is None:
        return lambda plan: candidate(problem, plan)
    with uncounted():
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
