"""Method `negotiated` for all-to-all: search over 1-factorisations, every factor routed as it goes.

Start from a randomly relabelled tournament and route its matchings. Then exchange pairs among three slots
at a time, keep the routes of circuits that stay, negotiate the others, and accept what does not need more
cells. The sum of all shortest routes is the same for every 1-factorisation, so the cells beyond it are
what the search has to get rid of.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    Clock,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Schedule,
    Solution,
    SolverError,
    Status,
    Tick,
)
from optmatch.problems import AllToAll
from optmatch.solvers import factors as combinatorics
from optmatch.solvers.router import BLOCKED, UNIT, Effort, Router
from optmatch.solvers.toggles import Sequence

MOVES_PER_SLOT = 96
"""Exchanges to try without an iteration limit, for each slot."""

_FAILED = 1000 * UNIT  # the price of a contested link in the search
_QUICK = Effort(rounds=24)  # most negotiations end within ten rounds, or never


@dataclass
class Plan:
    """A 1-factorisation and the routes of all its circuits."""

    factors: NDArray[np.int64]  # (slots, vertices): partner
    routes: NDArray[np.int32]  # (slots, ports, width): terminals left, by source port
    lengths: NDArray[np.int64]  # (slots, ports): 0 where the port starts no circuit
    excess: NDArray[np.int64]  # (slots,): cost beyond the shortest routes, `_FAILED` per contested link


def solve(
    problem: AllToAll, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve an all-to-all problem by search over 1-factorisations.

    Parameters
    ----------
    problem
        The problem.
    limits
        An iteration is one attempted exchange; `MOVES_PER_SLOT` per slot unless limited.
    rng
        Source of all randomness.
    on_event
        Listener.

    Returns
    -------
    Solution
        OPTIMAL where every route is a shortest one in the fewest slots. Where not all matchings of
        the fewest slots could be routed, pairs that were left over fill further slots.
    """
    return schedule_all(problem, limits, rng, on_event, name="negotiated", search=True)


def schedule_all(
    problem: AllToAll,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    *,
    name: str,
    search: bool,
) -> Solution:
    """Route a tournament: relabelled and searched on from (`search`), or as it is."""
    clock = limits.start()
    trivial = without_routing(problem, name)
    if trivial is not None:
        return trivial
    fabric = problem.fabric
    router = Router(fabric)
    factory = _Factory(problem, router, clock, rng, on_event)
    factors = combinatorics.tournament(fabric.n_ports, fabric.bidirectional)
    if search:
        factors = combinatorics.relabel(factors, factory.random_names(factors.shape[1]))
    limit: Limit | None = None
    plan = factory.empty_plan(factors)
    try:
        limit = factory.route_all(plan)
        if limit is None and search:
            limit = factory.exchange_pairs(plan)
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    if (plan.excess < 0).any():  # not even looked at
        return Solution(
            problem=problem,
            status=Status.UNKNOWN,
            limit=limit,
            lower_bound=problem.lower_bound(),
            method=name,
            stats={"slots_routed": int((plan.excess >= 0).sum()), "slots_lower_bound": problem.min_slots},
        )
    try:
        return factory.finish(plan, limit, name, polish=limit is None or limit is Limit.EXHAUSTED)
    except KeyboardInterrupt:
        return factory.finish(plan, Limit.INTERRUPTED, name, polish=False)


def without_routing(problem: AllToAll, name: str) -> Solution | None:
    """Answer at once what needs no routes: dead pairs, a single port, a fabric without cells."""
    fabric = problem.fabric
    dead = fabric.dead_pairs()
    if dead:
        pairs = "; ".join(f"{fabric.describe_port(i)} and {fabric.describe_port(j)}" for i, j in dead)
        return Solution(
            problem=problem,
            status=Status.INFEASIBLE,
            lower_bound=float("inf"),
            method=name,
            stats={"reason": f"no state of the cells connects {pairs}", "dead_pairs": [list(pair) for pair in dead]},
        )
    if fabric.graph is not None and fabric.n_ports > 1:
        return None
    found = combinatorics.tournament(fabric.n_ports, fabric.bidirectional)[: problem.min_slots]
    matchings = combinatorics.matchings(found, fabric.n_ports, fabric.bidirectional)
    states = None if fabric.graph is None else np.zeros((0, fabric.n_cells), dtype=np.int8)
    return Solution(
        problem=problem,
        schedule=_schedule(problem, matchings, states),
        status=Status.OPTIMAL,
        objective=0.0,
        lower_bound=0.0,
        method=name,
        stats={"slots": len(matchings), "slots_lower_bound": problem.min_slots},
    )


def _schedule(
    problem: AllToAll, matchings: NDArray[np.int32], states: NDArray[np.int8] | None
) -> Schedule:
    return Schedule(
        matchings=matchings.reshape(-1, problem.fabric.n_ports),
        durations_s=np.full(len(matchings), problem.slot_s),
        delay_s=problem.delay_s,
        cell_states=states,
    )


class _Factory:
    """One solve: the router, the clock, and the steps from a tournament to a schedule."""

    def __init__(
        self,
        problem: AllToAll,
        router: Router,
        clock: Clock,
        rng: np.random.Generator,
        on_event: OnEvent,
    ) -> None:
        self.problem = problem
        self.router = router
        self.clock = clock
        self.rng = rng
        self.on_event = on_event
        self.n_ports = problem.fabric.n_ports
        self.bidirectional = problem.fabric.bidirectional

    def random_names(self, vertices: int) -> NDArray[np.int64]:
        """Shuffle the ports; both vertices of a port with input and output get the same name."""
        names = self.rng.permutation(vertices if self.bidirectional else self.n_ports)
        return names if self.bidirectional else np.concatenate([names, names + self.n_ports])

    def empty_plan(self, factors: NDArray[np.int64]) -> Plan:
        """Make a plan without routes."""
        slots = len(factors)
        routes = np.zeros((slots, self.n_ports, self.router.width), dtype=np.int32)
        lengths = np.zeros((slots, self.n_ports), dtype=np.int64)
        return Plan(factors, routes, lengths, np.full(slots, -1, dtype=np.int64))

    def sources(self, partner: NDArray[np.int64]) -> NDArray[np.int64]:
        """List the ports that start a circuit, the farthest pairs first."""
        matching = combinatorics.matchings(partner[None], self.n_ports, self.bidirectional)[0]
        ports = np.arange(self.n_ports)
        starts = np.flatnonzero(matching > ports if self.bidirectional else matching >= 0)
        far = self.router.least[starts, matching[starts]]
        return starts[np.argsort(-far, kind="stable")]

    def destinations(self, partner: NDArray[np.int64]) -> NDArray[np.int64]:
        """``destinations[source]`` as the router takes it."""
        return partner if self.bidirectional else partner[: self.n_ports] - self.n_ports

    def settle(
        self,
        partner: NDArray[np.int64],
        routes: NDArray[np.int32],
        lengths: NDArray[np.int64],
        effort: Effort,
    ) -> int:
        """Route one slot from what is there; return its excess."""
        order = self.sources(partner)
        destinations = self.destinations(partner)
        cost = self.router.settle(order, destinations, routes, lengths, effort=effort)
        if cost >= 0:
            return cost - int(self.router.least[order, destinations[order]].sum())
        return -cost * _FAILED if cost > BLOCKED else len(order) * _FAILED

    def route_all(self, plan: Plan) -> Limit | None:
        """Route the slots one after the other."""
        for slot in range(len(plan.factors)):
            limit = self.clock.exceeded(0) if self.clock.remaining_s <= 0 else None
            if limit is not None:
                return limit
            plan.excess[slot] = self.settle(
                plan.factors[slot], plan.routes[slot], plan.lengths[slot], Effort()
            )
            self.on_event(Tick("route", slot + 1, len(plan.factors)))
        return None

    def exchange_pairs(self, plan: Plan) -> Limit | None:
        """Exchange pairs among three slots at a time until no cell is wasted, or a limit is reached."""
        slots, vertices = plan.factors.shape
        if slots < 3:
            return Limit.EXHAUSTED if plan.excess.any() else None
        wanted = self.clock.limits.iterations
        most = MOVES_PER_SLOT * slots if wanted is None else wanted
        base = self.problem.lower_bound()
        new = np.empty((3, vertices), dtype=np.int64)
        place = np.empty(vertices, dtype=np.int64)
        path = np.empty(vertices + 2, dtype=np.int64)
        routes = np.empty((3, *plan.routes.shape[1:]), dtype=np.int32)
        lengths = np.empty((3, self.n_ports), dtype=np.int64)
        best = int(plan.excess.sum())
        move = 0
        while plan.excess.any():
            limit = self.clock.exceeded(move)
            if limit is not None:
                return limit
            if move >= most:
                return Limit.EXHAUSTED
            move += 1
            chosen = self._three_slots(plan)
            start = int(self.rng.integers(vertices))
            if not combinatorics.exchange(plan.factors, chosen, start, self.rng, new, place, path):
                continue
            old = int(plan.excess[chosen].sum())
            np.copyto(routes, plan.routes[chosen])
            np.copyto(lengths, plan.lengths[chosen])
            lengths[(new != plan.factors[chosen])[:, : self.n_ports]] = 0
            excess = np.zeros(3, dtype=np.int64)
            for k in range(3):
                if self.bidirectional:  # a circuit belongs to its lower port
                    lengths[k, new[k, : self.n_ports] < np.arange(self.n_ports)] = 0
                excess[k] = self.settle(new[k], routes[k], lengths[k], _QUICK)
                if excess[: k + 1].sum() > old:
                    break
            else:
                plan.factors[chosen] = new
                plan.routes[chosen] = routes
                plan.lengths[chosen] = lengths
                plan.excess[chosen] = excess
            now = int(plan.excess.sum())
            if now < best:
                best = now
                if best < _FAILED:
                    self.on_event(NewBest(base + best / UNIT))
            if move % 64 == 0:
                self.on_event(Tick("exchange", move, most))
        return None

    def _three_slots(self, plan: Plan) -> NDArray[np.int64]:
        """Pick a slot that wastes cells and two others, in random order."""
        wasteful = np.flatnonzero(plan.excess)
        first = wasteful[self.rng.integers(len(wasteful))]
        slots = len(plan.excess)
        second = (first + 1 + self.rng.integers(slots - 1)) % slots
        third = second
        while third in (first, second):
            third = self.rng.integers(slots)
        return self.rng.permutation(np.array([first, second, third], dtype=np.int64))

    def finish(self, plan: Plan, limit: Limit | None, name: str, *, polish: bool) -> Solution:
        """Turn the plan into a schedule: spill what did not fit, order the slots, count."""
        plan = self._spill(plan)
        slots = len(plan.factors)
        states = np.empty((slots, self.problem.fabric.n_cells), dtype=np.int8)
        for slot in range(slots):
            states[slot] = self._states(plan, slot)
        sequence = Sequence(states)
        toggles = {"toggles_unordered": sequence.count()}
        if polish:
            self.on_event(Tick("order", 0))
            toggles["toggles_ordered"] = sequence.improve(self.rng, kicks=self._kicks(states))
            for _ in range(3):
                before = sequence.count()
                self._agree(plan, sequence)
                if sequence.improve(self.rng, kicks=0) >= before:
                    break
        toggles["toggles"] = sequence.count()
        order = sequence.order
        matchings = combinatorics.matchings(plan.factors[order], self.n_ports, self.bidirectional)
        cells = int(plan.lengths.sum())
        bound = self.problem.lower_bound()
        fewest = slots == self.problem.min_slots
        proved = fewest and cells == bound
        return Solution(
            problem=self.problem,
            schedule=_schedule(self.problem, matchings, states[order]),
            status=Status.OPTIMAL if proved else Status.FEASIBLE,
            limit=None if proved else (limit or Limit.EXHAUSTED),
            objective=float(cells),
            lower_bound=bound,
            method=name,
            stats={
                "slots": slots,
                "slots_lower_bound": self.problem.min_slots,
                "worst_route_cells": int(plan.lengths.max()),
                **toggles,
            },
        )

    def _states(self, plan: Plan, slot: int) -> NDArray[np.int8]:
        order = self.sources(plan.factors[slot])
        return self.router.states(order, plan.routes[slot], plan.lengths[slot])

    def _spill(self, plan: Plan) -> Plan:
        """Take out of slots that could not be routed what does not fit, and fill new slots with it."""
        failed = np.flatnonzero(plan.excess >= _FAILED)
        if not len(failed):
            return plan
        left = []
        for slot in failed:
            partner = self.destinations(plan.factors[slot]).copy()
            pairs = [(int(i), int(partner[i])) for i in self.sources(plan.factors[slot])]
            left += self._pack(plan, int(slot), pairs)
        while left:
            further = self.empty_plan(np.empty((1, plan.factors.shape[1]), dtype=np.int64))
            rest = self._pack(further, 0, left)
            if len(rest) == len(left):
                raise SolverError(f"ports {left[0]} could not be connected even alone")
            left = rest
            plan = Plan(
                *(np.concatenate([getattr(plan, f.name), getattr(further, f.name)]) for f in fields(plan))
            )
        return plan

    def _pack(
        self, plan: Plan, slot: int, pairs: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Fill a slot with as many of the pairs as find a way one after the other; return the rest."""
        idle = self.n_ports if self.bidirectional else self.n_ports - 1
        partner, routes, lengths = plan.factors[slot], plan.routes[slot], plan.lengths[slot]
        partner[:] = idle
        lengths[:] = 0
        rest = []
        for i, j in pairs:
            far = j if self.bidirectional else j + self.n_ports
            if partner[i] != idle or partner[far] != idle:
                rest.append((i, j))
                continue
            before = routes.copy(), lengths.copy()
            partner[i], partner[far] = far, i
            plan.excess[slot] = self.settle(partner, routes, lengths, Effort())
            if plan.excess[slot] >= _FAILED:
                routes[:], lengths[:] = before
                partner[i] = partner[far] = idle
                rest.append((i, j))
        return rest

    @staticmethod
    def _kicks(states: NDArray[np.int8]) -> int:
        """As many disturbances as cost about half a second, whatever the size."""
        slots, cells = states.shape
        return int(min(200, 2e8 // (5 * slots * slots * cells)))

    def _agree(self, plan: Plan, sequence: Sequence) -> None:
        """Route the slots again, equally short but with the states that cells have before and after."""
        flat = self.router.wiring.cell_cost
        unit = UNIT // (4 * self.router.width)  # all toggles of a route weigh less than a cell
        cost = sequence.count()
        for place in range(len(sequence.order)):
            slot = int(sequence.order[place])
            routes, lengths = plan.routes[slot].copy(), plan.lengths[slot].copy()
            old = sequence.states[slot].copy()
            order = self.sources(plan.factors[slot])
            self.router.shorten(
                order,
                self.destinations(plan.factors[slot]),
                routes,
                lengths,
                cell_cost=flat + sequence.agreement(place, unit),
            )
            sequence.states[slot] = self.router.states(order, routes, lengths)
            now = sequence.count()
            if now < cost:
                cost = now
                plan.routes[slot], plan.lengths[slot] = routes, lengths
            else:
                sequence.states[slot] = old
                sequence.count()
