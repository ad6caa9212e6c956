"""A plan of slots for an all-to-all: factors with routes, how they change, and what comes out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    FREE,
    IDLE,
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
    ignore,
)
from optmatch.problems import AllToAll, Routing
from optmatch.solvers.all_to_all import factors as combinatorics
from optmatch.solvers.all_to_all.joint_bound import bound_together, can_be_priced
from optmatch.solvers.all_to_all.toggles import Sequence
from optmatch.solvers.routing.pathfinder import BLOCKED, EFFORTS, UNIT, Effort
from optmatch.solvers.routing.router import Router

MOVES_PER_SLOT = 96
"""Exchanges to try without an iteration limit, for each slot."""

FAILED = 1000 * UNIT
"""The price of a contested link in the search; a slot of less excess has routes."""

SHORT = "fewest_slots"
"""The statistic that says, of more slots than by counting, what is known about as many as that."""
OPEN = "neither routed nor refuted"
REFUTED_BY_PRICES = "refuted by link prices"
REFUTED_BY_SEARCH = "refuted by exhaustive search"

_QUICK = Effort(rounds=24)  # most negotiations end within ten rounds, or never


class Slot(NamedTuple):
    """One factor and the routes of its circuits.

    Slots are replaced whole, so Ctrl-C never sees half of one.
    """

    partner: NDArray[np.int64]  # of each vertex
    routes: NDArray[np.int32]  # (ports, width): terminals left, by source port
    lengths: NDArray[np.int64]  # (ports,): 0 where the port starts no circuit
    excess: int  # cost beyond the shortest routes, `FAILED` for each contested link


class Factory:
    """One solve: the plan so far, and the steps from a tournament to a schedule."""

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
        self.ports = np.arange(self.n_ports)
        self.plan: list[Slot] = []

    def random_names(self, vertices: int) -> NDArray[np.int64]:
        """Shuffle the ports; both vertices of a port with input and output get the same name."""
        names = self.rng.permutation(vertices if self.bidirectional else self.n_ports)
        return names if self.bidirectional else np.concatenate([names, names + self.n_ports])

    def matching(self, partner: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the matching of a factor."""
        return combinatorics.matchings(partner, self.n_ports, self.bidirectional)

    def factor(self, matching: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the factor of a matching of all ports, or of all but one that is benched."""
        if not self.bidirectional:
            return np.concatenate([matching + self.n_ports, np.argsort(matching)])
        partner = np.where(matching == IDLE, self.n_ports, matching).astype(np.int64)
        return np.append(partner, np.flatnonzero(matching == IDLE)[: self.n_ports % 2])

    def sources(self, partner: NDArray[np.int64]) -> NDArray[np.int64]:
        """List the ports that start a circuit, the farthest pairs first."""
        matching = self.matching(partner)
        starts = np.flatnonzero(matching > self.ports if self.bidirectional else matching >= 0)
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
    ) -> Slot:
        """Route one factor, starting from the routes that are there; changes the arrays."""
        order = self.sources(partner)
        destinations = self.destinations(partner)
        cost = self.router.settle(order, destinations, routes, lengths, effort=effort)
        if cost >= 0:
            excess = cost - int(self.router.least[order, destinations[order]].sum())
        else:
            excess = (-cost if cost > BLOCKED else len(order)) * FAILED
        return Slot(partner, routes, lengths, excess)

    def route_all(self, factors: NDArray[np.int64]) -> Limit | None:
        """Route the factors one after the other."""
        for partner in factors:
            if self.clock.remaining_s <= 0:
                return Limit.TIME
            self.plan.append(self._insist(partner))
            self.on_event(Tick("route", len(self.plan), len(factors)))
        return None

    def _insist(self, partner: NDArray[np.int64]) -> Slot:
        """Route one factor afresh, with more patience from try to try."""
        slot = self.settle(partner, *self.router.empty_routes(), EFFORTS[0])
        for effort in EFFORTS[1:]:
            if slot.excess < FAILED:
                break
            slot = self.settle(partner, *self.router.empty_routes(), effort)
        return slot

    def exchange_pairs(self, tolerated: int = 0) -> Limit | None:
        """Exchange pairs among three slots at a time, until none wastes more, or a limit."""
        slots, vertices = len(self.plan), len(self.plan[0].partner)
        if slots < 3:
            return Limit.EXHAUSTED if self._excess() else None
        wanted = self.clock.limits.iterations
        most = MOVES_PER_SLOT * slots if wanted is None else wanted
        base = self.problem.lower_bound()
        place = np.empty(vertices, dtype=np.int64)
        path = np.empty(vertices + 2, dtype=np.int64)
        three = np.arange(3)
        best = self._excess()
        move = 0
        while wasteful := [k for k, slot in enumerate(self.plan) if slot.excess > tolerated]:
            limit = self.clock.exceeded(move)
            if limit is not None:
                return limit
            if move >= most:
                return Limit.EXHAUSTED
            move += 1
            if move % 64 == 0:
                self.on_event(Tick("exchange", move, most))
            chosen = self._three_slots(wasteful)
            old = np.stack([self.plan[slot].partner for slot in chosen])
            new = np.empty_like(old)
            start = int(self.rng.integers(vertices))
            if not combinatorics.exchange(old, three, start, self.rng, new, place, path):
                continue
            if not self._replace(chosen, new):
                continue
            now = self._excess()
            if now < best:
                best = now
                if best < FAILED:
                    self.on_event(NewBest(base + best / UNIT))
        return None

    def _excess(self) -> int:
        return sum(slot.excess for slot in self.plan)

    def _three_slots(self, wasteful: list[int]) -> list[int]:
        """Pick a slot that wastes cells and two others, in random order."""
        first = wasteful[self.rng.integers(len(wasteful))]
        others = self.rng.choice(len(self.plan) - 1, size=2, replace=False)
        chosen = [first, *(int(k) + (k >= first) for k in others)]
        self.rng.shuffle(chosen)
        return chosen

    def _replace(self, chosen: list[int], new: NDArray[np.int64]) -> bool:
        """Route three new factors, keeping circuits that stay; take them if no worse."""
        allowed = sum(self.plan[slot].excess for slot in chosen)
        found: list[Slot] = []
        for slot, partner in zip(chosen, new, strict=True):
            old = self.plan[slot]
            lengths = np.where(
                partner[: self.n_ports] == old.partner[: self.n_ports], old.lengths, 0
            )
            found.append(self.settle(partner, old.routes.copy(), lengths, _QUICK))
            allowed -= found[-1].excess
            if allowed < 0:
                return False
        plan = list(self.plan)
        for slot, taken in zip(chosen, found, strict=True):
            plan[slot] = taken
        self.plan = plan
        return True

    def finish(self, limit: Limit | None, name: str, *, polish: bool) -> Solution:
        """Turn the plan into a schedule: spill what did not fit, order the slots, count."""
        self._spill()
        states = np.stack([self.states(slot) for slot in self.plan])
        sequence = Sequence(states)
        toggles = {"toggles_unordered": sequence.count()}
        if polish:
            self.on_event(Tick("order", 0))
            toggles["toggles_ordered"] = sequence.improve(self.rng, kicks=self._kicks(states))
            for _ in range(3):
                before = sequence.count()
                self._agree(sequence)
                if sequence.improve(self.rng, kicks=0) >= before:
                    break
        toggles["toggles"] = sequence.count()
        matchings = np.stack([self.matching(self.plan[slot].partner) for slot in sequence.order])
        cells = sum(int(slot.lengths.sum()) for slot in self.plan)
        slots, fewest = len(self.plan), self.problem.min_slots
        bound, proof = self.problem.lower_bound(), None
        small = can_be_priced(self.problem, self.router)
        if polish and small and (slots > fewest or cells > bound):
            self.on_event(Tick("bound", 0))
            wanted = float(cells) if slots == fewest else np.inf  # or refute so few
            bound, proof = bound_together(self.problem, self.router, wanted, self.clock)
        refuted = bound == np.inf  # so many slots; nothing is known of schedules in more
        if slots > fewest:
            bound, proof = self.problem.lower_bound(), proof if refuted else None
        known = REFUTED_BY_PRICES if refuted else OPEN
        proved = slots == fewest and cells == bound
        return Solution(
            problem=self.problem,
            schedule=all_slots(self.problem, matchings, states[sequence.order]),
            status=Status.OPTIMAL if proved else Status.FEASIBLE,
            limit=None if proved else (limit or Limit.EXHAUSTED),
            objective=float(cells),
            lower_bound=bound,
            method=name,
            certificate=proof,
            stats={
                "slots": slots,
                "slots_lower_bound": fewest,
                **({SHORT: known} if slots > fewest else {}),
                "worst_route_cells": max(int(slot.lengths.max()) for slot in self.plan),
                **toggles,
            },
        )

    def states(self, slot: Slot) -> NDArray[np.int8]:
        """Return the cell states of a slot."""
        return self.router.states(self.sources(slot.partner), slot.routes, slot.lengths)

    def _spill(self) -> None:
        """Take out of slots what could not be routed, and fill new slots with it."""
        plan, left = [], []
        for slot in self.plan:
            if slot.excess < FAILED:
                plan.append(slot)
                continue
            destinations = self.destinations(slot.partner)
            pairs = [(int(i), int(destinations[i])) for i in self.sources(slot.partner)]
            packed, rest = self._pack(pairs)
            plan.append(packed)
            left += rest
        while left:
            packed, rest = self._pack(left)
            if len(rest) == len(left):
                packed, rest = self._alone(*left[0]), left[1:]
            plan.append(packed)
            left = rest
        self.plan = plan

    def _alone(self, i: int, j: int) -> Slot:
        """Route a pair that is not dead, though its cheapest ways turn back through a link."""
        from optmatch.solvers.routing.ilp import search

        matching = np.full(self.n_ports, IDLE, dtype=np.int32)
        matching[i] = j
        if self.bidirectional:
            matching[j] = i
        found = search(Routing(self.problem.fabric, matching), Limits(), self.rng, ignore)
        if found.schedule is None or found.schedule.cell_states is None:
            raise SolverError(f"ports {i, j} could not be connected even alone")
        routes, lengths = follow_states(self.router, matching, found.schedule.cell_states[0])
        return self.with_circuit(self.empty_slot(), i, j, routes[i, : lengths[i]].tolist())

    def empty_slot(self) -> Slot:
        """Return a slot without circuits."""
        vertices = self.n_ports + self.n_ports % 2 if self.bidirectional else 2 * self.n_ports
        return Slot(np.full(vertices, self._idle), *self.router.empty_routes(), 0)

    @property
    def _idle(self) -> int:
        """The partner of a vertex without circuit: what `matchings` takes for idle."""
        return self.n_ports if self.bidirectional else self.n_ports - 1

    def with_circuit(self, slot: Slot, i: int, j: int, terminals: list[int]) -> Slot:
        """Return the slot with one circuit more; without a route if `terminals` is empty."""
        far = j if self.bidirectional else j + self.n_ports
        partner, routes, lengths = slot.partner.copy(), slot.routes.copy(), slot.lengths.copy()
        partner[i], partner[far] = far, i
        routes[i, : len(terminals)] = terminals
        lengths[i] = len(terminals)
        return Slot(partner, routes, lengths, slot.excess)

    def _pack(self, pairs: list[tuple[int, int]]) -> tuple[Slot, list[tuple[int, int]]]:
        """Fill a slot with the pairs that find a way, one after the other; return the rest."""
        packed = self.empty_slot()
        rest = []
        for i, j in pairs:
            far = j if self.bidirectional else j + self.n_ports
            wider = None
            if packed.partner[i] == packed.partner[far] == self._idle:
                tried = self.with_circuit(packed, i, j, [])
                wider = self.settle(tried.partner, tried.routes, tried.lengths, Effort())
            if wider is not None and wider.excess < FAILED:
                packed = wider
            else:
                rest.append((i, j))
        return packed, rest

    @staticmethod
    def _kicks(states: NDArray[np.int8]) -> int:
        """As many disturbances as cost about half a second, whatever the size."""
        slots, cells = states.shape
        return int(min(200, 2e8 // (5 * slots * slots * cells)))

    def _agree(self, sequence: Sequence) -> None:
        """Route the slots again, as short, but agreeing with the states before and after."""
        flat = self.router.wiring.cell_cost
        unit = UNIT // (4 * self.router.width)  # all toggles of a route weigh less than a cell
        cost = sequence.count()
        for place in range(len(sequence.order)):
            number = int(sequence.order[place])
            slot, old = self.plan[number], sequence.states[number].copy()
            routes, lengths = slot.routes.copy(), slot.lengths.copy()
            order = self.sources(slot.partner)
            self.router.shorten(
                order,
                self.destinations(slot.partner),
                routes,
                lengths,
                cell_cost=flat + sequence.agreement(place, unit),
            )
            sequence.states[number] = self.router.states(order, routes, lengths)
            now = sequence.count()
            if now < cost:
                cost = now
                self.plan[number] = slot._replace(routes=routes, lengths=lengths)
            else:
                sequence.states[number] = old
                sequence.count()


def follow_states(
    router: Router, matching: NDArray[np.int32], states: NDArray[np.int8]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Read routes out of cell states; a circuit that the states do not carry has none."""
    routes, lengths = router.empty_routes()
    wiring = router.wiring
    for source, partner in enumerate(matching.tolist()):
        if partner == IDLE or (router.bidirectional and partner < source):
            continue
        terminal, found = int(wiring.source[source]), list[int]()
        while terminal >= 0 and states[terminal >> 2] != FREE and len(found) < routes.shape[1]:
            found.append(int(wiring.exits[terminal, states[terminal >> 2]]))
            terminal = int(wiring.mate[found[-1]])
        if found and found[-1] == wiring.target[partner]:
            routes[source, : len(found)] = found
            lengths[source] = len(found)
    return routes, lengths


def all_slots(
    problem: AllToAll, matchings: NDArray[np.int32], states: NDArray[np.int8] | None
) -> Schedule:
    """Make the schedule of an all-to-all from its matchings and cell states."""
    return Schedule(
        matchings=matchings.reshape(-1, problem.fabric.n_ports),
        durations_s=np.full(len(matchings), problem.slot_s),
        delay_s=problem.delay_s,
        cell_states=states,
    )
