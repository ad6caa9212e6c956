"""A plan of slots for an all-to-all: factors, routes for each, and exchanges of pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Clock, Limit, NewBest, OnEvent, Tick
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all import factors as combinatorics
from optmatch.solvers.all_to_all.factors import exchange
from optmatch.solvers.routing.pathfinder import BLOCKED, EFFORTS, UNIT, Effort
from optmatch.solvers.routing.router import CellRouter

FAILED = 1000 * UNIT
"""What a contested link counts in the excess; a slot of less excess has all its routes."""


class RoutedSlot(NamedTuple):
    """One factor and the routes of its circuits.

    Slots are replaced whole, so Ctrl-C never sees half of one.
    """

    partner: NDArray[np.int64]  # of each vertex
    routes: NDArray[np.int32]  # (ports, width): terminals left, by source port
    lengths: NDArray[np.int64]  # (ports,): 0 where the port starts no circuit
    excess: int  # cost beyond the shortest routes, `FAILED` for each contested link


class SlotPlanner:
    """The slots of one all-to-all as they are planned so far, and what it takes to route them."""

    def __init__(
        self,
        problem: AllToAll,
        router: CellRouter,
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
        self.plan: list[RoutedSlot] = []

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
    ) -> RoutedSlot:
        """Route one factor, starting from the routes that are there; changes the arrays."""
        order = self.sources(partner)
        destinations = self.destinations(partner)
        cost = self.router.settle(order, destinations, routes, lengths, effort=effort)
        if cost >= 0:
            excess = cost - int(self.router.least[order, destinations[order]].sum())
        else:
            excess = (-cost if cost > BLOCKED else len(order)) * FAILED
        return RoutedSlot(partner, routes, lengths, excess)

    def route_all(self, factors: NDArray[np.int64]) -> Limit | None:
        """Route the factors one after the other."""
        for partner in factors:
            if self.clock.remaining_s <= 0:
                return Limit.TIME
            self.plan.append(self._insist(partner))
            self.on_event(Tick("route", len(self.plan), len(factors)))
        return None

    def _insist(self, partner: NDArray[np.int64]) -> RoutedSlot:
        """Route one factor afresh, with more patience from try to try."""
        slot = self.settle(partner, *self.router.empty_routes(), EFFORTS[0])
        for effort in EFFORTS[1:]:
            if slot.excess < FAILED:
                break
            slot = self.settle(partner, *self.router.empty_routes(), effort)
        return slot

    @property
    def excess(self) -> int:
        """The excess of all slots together."""
        return sum(slot.excess for slot in self.plan)

    def states(self, slot: RoutedSlot) -> NDArray[np.int8]:
        """Return the cell states of a slot."""
        return self.router.states(self.sources(slot.partner), slot.routes, slot.lengths)

    def empty_slot(self) -> RoutedSlot:
        """Return a slot without circuits."""
        vertices = self.n_ports + self.n_ports % 2 if self.bidirectional else 2 * self.n_ports
        return RoutedSlot(np.full(vertices, self.idle_partner), *self.router.empty_routes(), 0)

    @property
    def idle_partner(self) -> int:
        """The partner of a vertex without circuit: what `matchings` takes for idle."""
        return self.n_ports if self.bidirectional else self.n_ports - 1

    def with_circuit(self, slot: RoutedSlot, i: int, j: int, terminals: list[int]) -> RoutedSlot:
        """Return the slot with one circuit more; without a route if `terminals` is empty."""
        far = j if self.bidirectional else j + self.n_ports
        partner, routes, lengths = slot.partner.copy(), slot.routes.copy(), slot.lengths.copy()
        partner[i], partner[far] = far, i
        routes[i, : len(terminals)] = terminals
        lengths[i] = len(terminals)
        return RoutedSlot(partner, routes, lengths, slot.excess)


MOVES_PER_SLOT = 96
"""Exchanges to try without an iteration limit, for each slot."""

QUICK = Effort(rounds=24)
"""Most negotiations end within ten rounds, or never."""


def exchange_pairs(planner: SlotPlanner, tolerated: int = 0) -> Limit | None:
    """Exchange pairs among three slots at a time, until no slot has excess cells, or a limit."""
    slots, vertices = len(planner.plan), len(planner.plan[0].partner)
    if slots < 3:
        return Limit.EXHAUSTED if planner.excess else None
    wanted = planner.clock.limits.iterations
    most = MOVES_PER_SLOT * slots if wanted is None else wanted
    base = planner.problem.lower_bound()
    place = np.empty(vertices, dtype=np.int64)
    path = np.empty(vertices + 2, dtype=np.int64)
    best = planner.excess
    move = 0
    while excessive := [k for k, slot in enumerate(planner.plan) if slot.excess > tolerated]:
        limit = planner.clock.exceeded(move)
        if limit is not None:
            return limit
        if move >= most:
            return Limit.EXHAUSTED
        move += 1
        if move % 64 == 0:
            planner.on_event(Tick("exchange", move, most))
        chosen = three_slots(planner, excessive)
        old = np.stack([planner.plan[slot].partner for slot in chosen])
        new = np.empty_like(old)
        start = int(planner.rng.integers(vertices))
        coins = int(planner.rng.integers(1 << 31))
        if not exchange(old, start, coins, new, place, path):
            continue
        if not replace_slots(planner, chosen, new):
            continue
        now = planner.excess
        if now < best:
            best = now
            if best < FAILED:
                planner.on_event(NewBest(base + best / UNIT))
    return None


def three_slots(planner: SlotPlanner, excessive: list[int]) -> list[int]:
    """Pick a slot with excess cells and two others, in random order."""
    first = excessive[planner.rng.integers(len(excessive))]
    others = planner.rng.choice(len(planner.plan) - 1, size=2, replace=False)
    chosen = [first, *(int(k) + (k >= first) for k in others)]
    planner.rng.shuffle(chosen)
    return chosen


def replace_slots(planner: SlotPlanner, chosen: list[int], new: NDArray[np.int64]) -> bool:
    """Route new factors of some slots, keeping circuits that stay; take them if no worse."""
    allowed = sum(planner.plan[slot].excess for slot in chosen)
    found: list[RoutedSlot] = []
    for slot, partner in zip(chosen, new, strict=True):
        old = planner.plan[slot]
        lengths = np.where(
            partner[: planner.n_ports] == old.partner[: planner.n_ports], old.lengths, 0
        )
        found.append(planner.settle(partner, old.routes.copy(), lengths, QUICK))
        allowed -= found[-1].excess
        if allowed < 0:
            return False
    plan = list(planner.plan)
    for slot, taken in zip(chosen, found, strict=True):
        plan[slot] = taken
    planner.plan = plan
    return True
