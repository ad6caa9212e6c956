"""Method `negotiated` for all-to-all: 1-factorisations, with every factor routed.

The search starts from a randomly relabelled tournament and routes its matchings. Then the search
exchanges pairs among two or three slots at a time, keeps the routes of circuits that stay,
negotiates the others, and accepts a move that does not need more cells. The sum of all shortest
routes is the same for every 1-factorisation, so the search has to remove the cells beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import numpy as np

from optmatch.model import IDLE, Bound, Limit, Limits, OnEvent, Solution, TimeUp, uncounted
from optmatch.problems import AllToAll, RoutingProof
from optmatch.solvers import frame
from optmatch.solvers.all_to_all import factors as combinatorics
from optmatch.solvers.all_to_all.conclusion import answer_at_once, conclude, prove_bound
from optmatch.solvers.all_to_all.planner import (
    FAILED,
    QUICK,
    RoutedSlot,
    SlotPlanner,
    exchanges,
)
from optmatch.solvers.all_to_all.slot_shortage import names_faults, on_live_ports
from optmatch.solvers.frame import take_best
from optmatch.solvers.params import AllToAllParams
from optmatch.solvers.routing.pathfinder import UNIT
from optmatch.solvers.routing.router import CellRouter

_SEARCH = 0.9  # of the time; the rest is for the order of the slots


@names_faults()
@on_live_ports
def solve(
    problem: AllToAll,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
    params: AllToAllParams | None = None,
) -> Solution:
    """Solve an all-to-all problem by search over 1-factorisations.

    An iteration is one attempted exchange. The search goes on until the total meets its bound or a
    limit is reached; where `moves_per_slot` brought nothing, it begins anew. Without a limit of
    time or iterations it begins `starts` times, and what it takes in all is a second for 32 ports,
    about a minute for 64, and some minutes for 128. The solution is OPTIMAL where every route is a
    shortest one in the fewest slots, or prices prove it.

    A small mesh goes to the exact model of `ilp` after these starts, also with limits. Where not
    all matchings of the fewest slots could be routed, pairs that were left over fill further
    slots; where it is proved that there must be more slots, a fabric with faults has those named
    that cause it.
    """
    clock = limits.start()
    found = schedule_all(
        problem, limits, rng, on_event, name="negotiated", start=start, params=params
    )
    if found.limit is not Limit.EXHAUSTED:
        return found
    with uncounted():
        from optmatch.solvers.all_to_all.joint_model import finish_small  # loads OR-tools

    return finish_small(problem, found, clock, rng, on_event)


def schedule_all(
    problem: AllToAll,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    *,
    name: str,
    starts: int | None = None,
    start: Solution | None = None,
    params: AllToAllParams | None = None,
) -> Solution:
    """Route a relabelled tournament, and search on from there; begin anew up to so many times.

    The search begins with the slots of a former solution, if there is one of the fewest slots.
    """
    clock = limits.start()
    trivial = answer_at_once(problem, name)
    if trivial is not None:
        return trivial
    searched = limits if limits.time_s is None else replace(limits, time_s=_SEARCH * limits.time_s)
    router = CellRouter(problem.fabric)
    planner = SlotPlanner(problem, router, searched.start(), rng, on_event)
    search = _SlotExchange(planner, starts, params or AllToAllParams())
    limit: Limit | None
    try:
        limit = search.take_up(start) if start else search.start()
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    if len(planner.plan) < search.slots:
        stats = {"slots_routed": len(planner.plan), "slots_lower_bound": problem.min_slots}
        return frame.conclude(problem, name, None, problem.lower_bound(), limit, stats=stats)
    if limit is None:
        best, limit, _ = take_best(
            search.answers(),
            problem.lower_bound(),
            planner.clock,
            on_event,
            "exchange",
            start=search.answer(),
        )
        planner.plan = search.least_failed if best is None else best
    planner.clock = clock
    bound = search.bound
    try:
        return conclude(planner, limit, name, bound, polish=limit is not Limit.INTERRUPTED)
    except KeyboardInterrupt:
        return conclude(planner, Limit.INTERRUPTED, name, bound, polish=False)


class _SlotExchange:
    """A plan that gets better from move to move, and what is proved about all plans."""

    def __init__(self, planner: SlotPlanner, starts: int | None, params: AllToAllParams) -> None:
        fabric = planner.problem.fabric
        self.planner = planner
        self.starts: float | None = starts
        self.params = params
        self.factors = combinatorics.tournament(fabric.n_ports, fabric.bidirectional)
        self.slots = len(self.factors)
        self.bound: tuple[float, RoutingProof | None] | None = None
        self.least_failed: list[RoutedSlot] = []

    def start(self) -> Limit | None:
        """Route the tournament under random names."""
        names = self.planner.random_names(self.factors.shape[1])
        self.planner.plan = []
        limit = self.planner.route_all(combinatorics.relabel(self.factors, names))
        self.least_failed = self.least_failed or self.planner.plan
        return limit

    def take_up(self, former: Solution) -> Limit | None:
        """Keep the slots of a former solution, and route again what has no route any more."""
        planner, schedule = self.planner, former.schedule
        fabric, states = planner.problem.fabric, None if schedule is None else schedule.cell_states
        here = (self.slots, fabric.n_ports), (self.slots, fabric.n_cells)
        if states is None or (schedule.matchings.shape, states.shape) != here:
            return self.start()
        idle = fabric.n_ports % 2 if fabric.bidirectional else 0
        if ((schedule.matchings == IDLE).sum(axis=1) != idle).any():
            return self.start()
        factors = np.stack([planner.factor(matching) for matching in schedule.matchings])
        if (np.sort(factors, axis=0) != np.sort(self.factors, axis=0)).any():
            return self.start()  # not each pair once
        for partner, matching, row in zip(factors, schedule.matchings, states, strict=True):
            if planner.clock.remaining_s <= 0.0:
                return Limit.TIME
            routes = planner.router.follow(matching, row)
            planner.plan.append(planner.settle(partner, *routes, QUICK))
        planner.insist()
        self.least_failed = planner.plan
        return None

    def answer(self) -> tuple[float, list[RoutedSlot]] | None:
        """Return the plan and its total cells; None where routes are missing."""
        excess, plan = self.planner.excess, self.planner.plan
        if any(slot.excess >= FAILED for slot in plan):
            if excess < sum(slot.excess for slot in self.least_failed):
                self.least_failed = plan
            return None
        return self.planner.problem.lower_bound() + excess / UNIT, plan

    def answers(self) -> Iterator[tuple[float, list[RoutedSlot]] | Bound | None]:
        """Exchange pairs, and begin anew where that brings nothing."""
        clock = self.planner.clock
        for begun in count(1):
            least, idle = self.planner.excess, 0
            for _ in exchanges(self.planner):
                yield self.answer()
                excess = self.planner.excess
                least, idle = (excess, 0) if excess < least else (least, idle + 1)
                if idle > self.params.moves_per_slot * self.slots:
                    break
                if self.bound is None and clock.remaining_s < clock.elapsed_s:
                    yield Bound(self._prove()[0])
            self.planner.insist()
            yield self.answer()
            proved = self.bound or self._prove()
            yield Bound(proved[0])
            self.starts = self.starts or self._count_starts()
            if self.slots < 3 or proved[0] == np.inf or begun >= self.starts:
                return
            if self.start() is not None:
                raise TimeUp("the time is up")

    def _count_starts(self) -> float:
        with uncounted():
            from optmatch.solvers.all_to_all.joint_model import is_small  # loads OR-tools

        limits = self.planner.clock.limits
        limited = limits.time_s is not None or limits.iterations is not None
        return (
            np.inf
            if limited and not is_small(self.planner.problem, self.planner.clock)
            else self.params.starts
        )

    def _prove(self) -> tuple[float, RoutingProof | None]:
        self.bound = prove_bound(self.planner, self.planner.excess)
        return self.bound
