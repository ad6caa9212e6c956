"""A plan of slots for an all-to-all: factors, routes for each, and exchanges of pairs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from queue import Queue
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Clock, Limit, OnEvent, Tick
from optmatch.model.limits import for_other_threads
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all import factors as combinatorics
from optmatch.solvers.all_to_all.factors import exchange, find_swap, swap
from optmatch.solvers.routing.pathfinder import BLOCKED, EFFORTS, UNIT, Effort
from optmatch.solvers.routing.router import CellRouter

FAILED = 1000 * UNIT
"""The weight of a contested link in the excess; a slot of less excess has all its routes."""


class RoutedSlot(NamedTuple):
    """One factor and the routes of its circuits.

    A factor pairs vertices, ``partner[vertex]``. Bidirectional ports are the vertices, with one
    more to be benched with if their number is odd. Otherwise each port has a vertex `port` that
    sends and a vertex ``n_ports + port`` that receives.

    Slots are replaced whole, so Ctrl-C never sees half of one.
    """

    partner: NDArray[np.int64]  # of each vertex
    routes: NDArray[np.int32]  # (ports, width): terminals left, by source port
    lengths: NDArray[np.int64]  # (ports,): 0 where the port starts no circuit
    excess: int  # cost beyond the shortest routes, `FAILED` for each contested link


class SlotPlanner:
    """The planned slots of one all-to-all, and the router that finds their routes."""

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
        self.slots_bound = problem.min_slots
        """No schedule has fewer slots, by counting or by link prices."""

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
        router: CellRouter | None = None,
        allowed: int | None = None,
    ) -> RoutedSlot:
        """Route one factor by negotiation, starting from the routes that are there.

        Parameters
        ----------
        partner
            ``partner[vertex]``, see `RoutedSlot`.
        routes, lengths
            As of `RoutedSlot`; changed in place, and part of the result.
        effort
            When the negotiation gives up.
        router
            Another router than that of the planner, for other threads.
        allowed
            The negotiation gives up where the excess would be larger.

        Returns
        -------
        RoutedSlot
            Its excess is `FAILED` for each link that is still contested if the negotiation failed,
            and for each circuit if one has no way at all.
        """
        router = router or self.router
        order = self.sources(partner)
        destinations = self.destinations(partner)
        least = int(self.router.least[order, destinations[order]].sum())
        if allowed is not None:
            effort = effort._replace(most=least + allowed)
        cost = router.settle(order, destinations, routes, lengths, effort=effort)
        contested = -cost if cost > BLOCKED else len(order)
        excess = cost - least if cost >= 0 else contested * FAILED
        return RoutedSlot(partner, routes, lengths, excess)

    def route_all(self, factors: NDArray[np.int64]) -> Limit | None:
        """Route the factors with little effort, each for itself, on all processors.

        Where most fail, negotiations go on from the routes that are there, with more patience: few
        links are contested then, and that is quicker than to exchange pairs.
        """
        threads = min(os.cpu_count() or 1, 1 + len(factors) // 64)
        spare = Queue[CellRouter]()
        for _ in range(threads):
            spare.put(CellRouter(self.problem.fabric))

        def route(partner: NDArray[np.int64], failed: RoutedSlot | None = None) -> RoutedSlot:
            router = spare.get()
            try:
                if failed is None:
                    return self.settle(partner, *router.empty_routes(), EFFORTS[0], router)
                routes = failed.routes.copy()
                lengths = failed.lengths.copy()
                found = self.settle(partner, routes, lengths, EFFORTS[1], router)
                return min(found, failed, key=lambda slot: slot.excess)
            finally:
                spare.put(router)

        pool = ThreadPoolExecutor(threads)
        try:
            route_slot = for_other_threads(route)
            slots = chain(map(route, factors[:1]), pool.map(route_slot, factors[1:]))
            for _ in factors:
                if self.clock.remaining_s <= 0:
                    return Limit.TIME
                self.plan.append(next(slots))
                self.on_event(Tick("route", len(self.plan), len(factors)))
            failed = [k for k, slot in enumerate(self.plan) if slot.excess >= FAILED]
            if 2 * len(failed) > len(factors):
                again = pool.map(route_slot, factors[failed], [self.plan[k] for k in failed])
                for done, k in enumerate(failed):
                    if self.clock.remaining_s <= 0:
                        return Limit.TIME
                    self.plan[k] = next(again)
                    self.on_event(Tick("insist", done + 1, len(failed)))
        finally:
            pool.shutdown(cancel_futures=True)
        return None

    def insist(self) -> None:
        """Route slots afresh that failed, with more patience from try to try."""
        for k, slot in enumerate(self.plan):
            for effort in EFFORTS[1:]:
                if slot.excess < FAILED or self.clock.remaining_s <= 0:
                    break
                slot = self.settle(slot.partner, *self.router.empty_routes(), effort)
            self.plan[k] = slot

    def beyond(self, slot: RoutedSlot) -> NDArray[np.int64]:
        """Return what each circuit of a slot costs beyond its shortest route.

        Returns
        -------
        int64 array, shape (vertices,)
            In 1/`UNIT` of a cell, half of it at each end of the circuit. `FAILED` is added for
            each contested link that a circuit passes, and for a circuit without a route.
        """
        starts = self.sources(slot.partner)
        ends = slot.partner[starts]
        lengths = slot.lengths[starts]
        destinations = self.destinations(slot.partner)[starts]
        cost = UNIT * lengths - self.router.least[starts, destinations]
        if slot.excess >= FAILED:
            on_route = np.arange(slot.routes.shape[1]) < lengths[:, None]
            links = np.where(on_route, self.router.wiring.link[slot.routes[starts]], -1)
            used = np.bincount(links[on_route], minlength=1)
            contested = (used[links] > 1) & on_route
            cost += FAILED * np.where(lengths, contested.sum(axis=1), 1)
        cost_of_vertex = np.zeros(len(slot.partner), dtype=np.int64)
        cost_of_vertex[starts] = cost // 2
        cost_of_vertex[ends] = cost // 2
        return cost_of_vertex

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
        """Return a copy of a slot with the circuit from port `i` to port `j` added.

        `terminals` are those by which light leaves the cells of its route; if there are none, the
        circuit has no route yet. The excess is that of the slot before.
        """
        far_vertex = j if self.bidirectional else j + self.n_ports
        partner = slot.partner.copy()
        partner[i] = far_vertex
        partner[far_vertex] = i
        routes = slot.routes.copy()
        routes[i, : len(terminals)] = terminals
        lengths = slot.lengths.copy()
        lengths[i] = len(terminals)
        return RoutedSlot(partner, routes, lengths, slot.excess)


MOVES_PER_SLOT = 96
"""Exchanges to try where nothing gets better, for each slot."""

QUICK = Effort(rounds=24)
"""Most negotiations end within ten rounds, or never."""

GENTLE = Effort(first=UNIT // 8, rounds=24)
"""Cheap links first: it takes more rounds, and routes are shorter by half of their excess."""

_NEW_EXCESS = 3  # times the mean excess: what a new circuit is expected to cost
_THREE = 10  # one move of so many is among three slots


def exchange_pairs(planner: SlotPlanner, tolerated: int = 0) -> Limit | None:
    """Exchange pairs between slots until no slot has more excess than is tolerated.

    Parameters
    ----------
    planner
        ``planner.plan`` is changed.
    tolerated
        Excess of a slot, in 1/`UNIT` of a cell.

    Returns
    -------
    Limit or None
        None if no slot has more; `Limit.EXHAUSTED` after `MOVES_PER_SLOT` moves for each slot, or
        as many as the limits allow; or the limit that was reached.
    """
    wanted = planner.clock.limits.iterations
    most = MOVES_PER_SLOT * len(planner.plan) if wanted is None else wanted
    for move, _ in enumerate(exchanges(planner, tolerated)):
        limit = planner.clock.exceeded(move)
        if limit is not None or move >= most:
            return limit or Limit.EXHAUSTED
    excess = max((slot.excess for slot in planner.plan), default=0)
    return Limit.EXHAUSTED if excess > tolerated else None


def exchanges(planner: SlotPlanner, tolerated: int = 0) -> Iterator[None]:
    """Exchange pairs between slots, one move after each value, while a slot has excess.

    Most moves swap what two slots do on a cycle of ports; some split three slots anew, without
    which two would never be other than they began.
    """
    slots = len(planner.plan)
    vertices = len(planner.plan[0].partner) if planner.plan else 0
    if slots < 3:
        return
    rng = planner.rng
    n_pairs = len(planner.problem.pairs)
    place = np.empty(vertices, dtype=np.int64)
    path = np.empty(vertices + 2, dtype=np.int64)
    cycle = np.empty(2, dtype=np.int64)
    factors = np.stack([slot.partner for slot in planner.plan])
    beyond = np.stack([planner.beyond(slot) for slot in planner.plan])
    while excessive := [k for k, slot in enumerate(planner.plan) if slot.excess > tolerated]:
        yield
        failed = [k for k in excessive if planner.plan[k].excess >= FAILED]
        coins = int(rng.integers(1 << 31))
        if rng.integers(_THREE):
            routed = sum(slot.excess for slot in planner.plan if slot.excess < FAILED)
            penalty = _NEW_EXCESS * routed // (2 * n_pairs)
            first = int(rng.choice(failed or excessive))
            find_swap(factors, beyond, first, penalty, coins, cycle, place)
            if cycle[0] < 0:
                continue
            chosen = [first, int(cycle[0])]
            new = np.empty((2, vertices), dtype=np.int64)
            swap(factors[chosen], int(cycle[1]), new)
        else:
            chosen = three_slots(planner, failed or excessive)
            new = np.empty((3, vertices), dtype=np.int64)
            start = int(rng.integers(vertices))
            if not exchange(factors[chosen], start, coins, new, place, path):
                continue
        if replace_slots(planner, chosen, new):
            for k in chosen:
                factors[k] = planner.plan[k].partner
                beyond[k] = planner.beyond(planner.plan[k])


def three_slots(planner: SlotPlanner, excessive: list[int]) -> list[int]:
    """Pick a slot with excess cells and two others, in random order."""
    first = excessive[planner.rng.integers(len(excessive))]
    others = planner.rng.choice(len(planner.plan) - 1, size=2, replace=False)
    chosen = [first, *(int(k) + (k >= first) for k in others)]
    planner.rng.shuffle(chosen)
    return chosen


def replace_slots(planner: SlotPlanner, chosen: list[int], new: NDArray[np.int64]) -> bool:
    """Route new factors of some slots, and keep them if their excess is no larger in all.

    Circuits that are in the old and the new factor of a slot keep their routes to begin with.

    Parameters
    ----------
    planner
        ``planner.plan`` is replaced if the move is kept.
    chosen
        The numbers of the slots.
    new
        ``new[index, vertex]``: the partner of a vertex in the new factor of ``chosen[index]``.

    Returns
    -------
    bool
        Whether the new factors are kept.
    """
    # A slot can hardly save more than what its circuits that leave cost beyond their shortest
    # routes. A move is given up as soon as its losses exceed what the slots that follow can save.
    old_slots = [planner.plan[number] for number in chosen]
    can_save = [
        int(planner.beyond(old)[partner != old.partner].sum())
        for old, partner in zip(old_slots[1:], new[1:], strict=True)
    ]
    lost = 0
    new_slots = list[RoutedSlot]()
    for index, (old, partner) in enumerate(zip(old_slots, new, strict=True)):
        stays = partner[: planner.n_ports] == old.partner[: planner.n_ports]
        allowed = old.excess - lost + sum(can_save[index:])
        routes = old.routes.copy()
        lengths = np.where(stays, old.lengths, 0)
        slot = planner.settle(partner, routes, lengths, GENTLE, allowed=allowed)
        if slot.excess > allowed:
            return False
        new_slots.append(slot)
        lost += slot.excess - old.excess

    # The plan is replaced at once: an interrupt never sees half of a move.
    plan = list(planner.plan)
    for number, slot in zip(chosen, new_slots, strict=True):
        plan[number] = slot
    planner.plan = plan
    return True
