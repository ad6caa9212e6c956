"""A plan of slots for an all-to-all: factors, routes for each, and local search by exchanges.

A slot is routed by negotiated congestion (`SlotPlanner.route_slot`). The local search exchanges
pairs between slots, and keeps an exchange if the excess of its slots does not grow
(`yield_exchanges`). Slots are replaced whole, so that Ctrl-C never sees half of one.

A *factor* pairs all ports, ``partner[vertex]``. The *excess* of a slot is how many cells its
routes pass beyond the shortest routes of its pairs. A negotiation rips up and reroutes circuits at
rising prices of links that two of them want; an *effort* says how fast prices rise and when it
gives up.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from queue import Queue
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Clock, Limit, OnEvent, Tick
from optmatch.model.limits import for_other_threads
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all.factors import (
    divide_three_factors,
    find_swap,
    matchings_of,
    swap_cycle,
)
from optmatch.solvers.routing.pathfinder import BLOCKED, EFFORTS, UNIT, Effort
from optmatch.solvers.routing.router import CellRouter

FAILED = 1000 * UNIT
"""The weight of a contested link in the excess; a slot of less excess has all its routes."""


class RoutedSlot(NamedTuple):
    """One factor and the routes of its circuits.

    A factor pairs vertices, ``partner[vertex]``. Bidirectional ports are the vertices, with one
    more to be benched with if their number is odd. Otherwise each port has a vertex `port` that
    sends and a vertex ``n_ports + port`` that receives.
    """

    partner: NDArray[np.int64]
    """(vertices,): ``partner[vertex]``, mutual. Vertices without a circuit have the partner
    `SlotPlanner.idle_partner`."""
    routes: NDArray[np.int32]
    """(ports, width): for each source port the terminals by which its light leaves cells."""
    lengths: NDArray[np.int64]
    """(ports,): the cells on the route, 0 where the port starts no circuit."""
    excess: int
    """In 1/`UNIT` of a cell; `FAILED` or more if some circuit has no route."""


class Decision(NamedTuple):
    """What a search has found out about schedules of some number of slots."""

    slots: list[RoutedSlot] | None
    """The slots of a schedule; None if none was found."""
    refuted: bool
    """Whether it is proved that there is none."""


class SlotPlanner:
    """The planned slots of one all-to-all, and the router that finds their routes.

    The workspace of the router is overwritten; `rng` draws names of ports and exchanges of pairs.

    Attributes
    ----------
    plan : list of RoutedSlot
        The slots so far, also those that have no routes for some of their circuits.
    slots_bound : int
        No schedule has fewer slots, by counting or by link prices.
    """

    def __init__(
        self,
        problem: AllToAll,
        router: CellRouter,
        clock: Clock,
        rng: np.random.Generator,
        on_event: OnEvent,
    ) -> None:
        """Begin a plan without slots."""
        self.problem = problem
        self.router = router
        self.clock = clock
        self.rng = rng
        self.on_event = on_event
        self.n_ports = problem.fabric.n_ports
        self.bidirectional = problem.fabric.bidirectional
        self.plan: list[RoutedSlot] = []
        self.slots_bound = problem.min_slots

    def draw_names(self, vertices: int) -> NDArray[np.int64]:
        """Draw new numbers ``names[vertex]`` of so many `vertices`, a permutation of them.

        Of ports with an input and an output, both vertices get the number of the same port.
        """
        names = self.rng.permutation(vertices if self.bidirectional else self.n_ports)
        return names if self.bidirectional else np.concatenate([names, names + self.n_ports])

    def matching(self, partner: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return ``matching[source] = destination``, -1 where idle, of a factor's partners."""
        return matchings_of(partner, self.n_ports, self.bidirectional)

    def factor(self, matching: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the factor of a matching: for each vertex the vertex that it is paired with.

        A bidirectional port is one vertex; if their number is odd, there is one vertex more, the
        bench, with which the idle port is paired: the matching 1, 0, -1 of three ports has the
        factor 1, 0, 3, 2. Another port has two vertices: its input has the number of the port, and
        its output n_ports more.
        """
        if not self.bidirectional:
            return np.concatenate([matching + self.n_ports, np.argsort(matching)])
        partner = np.where(matching == IDLE, self.n_ports, matching).astype(np.int64)
        return np.append(partner, np.flatnonzero(matching == IDLE)[: self.n_ports % 2])

    def sources(self, partner: NDArray[np.int64]) -> NDArray[np.int64]:
        """List the ports that start a circuit, those with the longest shortest routes first.

        These have the fewest alternatives. ``partner[vertex]`` is the vertex with which a factor
        pairs each vertex. A circuit of bidirectional ports is listed once, by its lower port: the
        matching 2, -1, 0 has the circuit from port 0 alone.
        """
        matching = self.matching(partner)
        starts = np.flatnonzero(matching >= 0)
        if self.bidirectional:
            starts = starts[starts < matching[starts]]
        least_costs = self.router.least[starts, matching[starts]]
        return starts[np.argsort(-least_costs, kind="stable")]

    def destinations(self, partner: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return ``destinations[source]`` of a factor as the router takes it, by ports."""
        return partner if self.bidirectional else partner[: self.n_ports] - self.n_ports

    def far_vertex(self, destination: Any) -> Any:
        """Return the vertex at the end of a circuit to a port, or those of an array of ports."""
        return destination if self.bidirectional else destination + self.n_ports

    def route_slot(
        self,
        partner: NDArray[np.int64],
        routes: NDArray[np.int32],
        lengths: NDArray[np.int64],
        effort: Effort,
        router: CellRouter | None = None,
        allowed: int | None = None,
    ) -> RoutedSlot:
        """Find routes for all circuits of a slot by negotiation, from the routes that are there.

        ``partner[vertex]`` is the factor. ``routes[port, step]`` and ``lengths[port]`` are the
        routes to begin with, of length 0 where there is none; they are changed and become part of
        the result. The negotiation gives up above an excess of `allowed`, None for never. If some
        circuit has no path at all, the excess is `FAILED` for every circuit. Other threads bring a
        `router` of their own.
        """
        # `least_cost` is what the shortest routes of all circuits cost together; negotiation gives
        # up above ``effort.most``.
        router = router or self.router
        order = self.sources(partner)
        destinations = self.destinations(partner)
        least_cost = int(self.router.least[order, destinations[order]].sum())
        if allowed is not None:
            effort = effort._replace(most=least_cost + allowed)

        # A cost below 0 is a failure: -3 says that three links are still contested, and `BLOCKED`,
        # which is less than any such number, that some circuit has no path at all.
        cost = router.settle(order, destinations, routes, lengths, effort=effort)
        contested = -cost if cost > BLOCKED else len(order)
        excess = cost - least_cost if cost >= 0 else contested * FAILED
        return RoutedSlot(partner, routes, lengths, excess)

    def route_all(self, factors: NDArray[np.int64]) -> Limit | None:
        """Route the factors, each for itself, on all processors.

        ``factors[slot, vertex]`` is the partner of a vertex, and ``plan`` receives the slots. If
        most fail, as circuits contend for links, they are negotiated further from the routes that
        they have, with more patience: few links are contested then, and that is quicker than to
        exchange pairs. Returns `Limit.TIME` if the time was up before all were done, when ``plan``
        has those that were; else None.
        """
        # Each thread has a router of its own, as routers work in their arrays.
        threads = min(os.cpu_count() or 1, 1 + len(factors) // 64)
        spare = Queue[CellRouter]()
        for _ in range(threads):
            spare.put(CellRouter(self.problem.fabric))

        # The first factor is routed by this thread. The other slots are taken as they come.
        pool = ThreadPoolExecutor(threads)
        try:
            route = partial(self._route_with_spare, spare)
            route_slot = for_other_threads(route)
            slots = chain(map(route, factors[:1]), pool.map(route_slot, factors[1:]))

            # All factors once. They are taken in order: a limit leaves a plan of the first ones.
            for _ in factors:
                if self.clock.remaining_s <= 0:
                    return Limit.TIME
                self.plan.append(next(slots))
                self.on_event(Tick("route", len(self.plan), len(factors)))

            # Slots of so much excess have contested links. If most failed, these are routed again.
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

    def _route_with_spare(
        self,
        spare: Queue[CellRouter],
        partner: NDArray[np.int64],
        failed: RoutedSlot | None = None,
    ) -> RoutedSlot:
        """Route the factor `partner` with a router that no thread is using.

        The router comes out of the queue `spare`, and goes back there. If `failed` is given, the
        negotiation goes on from the routes of that slot, with more patience; the result is
        `failed` itself if the new routes have more excess.
        """
        router = spare.get()
        try:
            # Afresh with little effort, or on from the routes of a failed slot with more.
            if failed is None:
                return self.route_slot(partner, *router.empty_routes(), EFFORTS[0], router)
            routes = failed.routes.copy()
            lengths = failed.lengths.copy()
            settled = self.route_slot(partner, routes, lengths, EFFORTS[1], router)
            return min(settled, failed, key=lambda slot: slot.excess)
        finally:
            spare.put(router)

    def reroute_failed(self) -> None:
        """Route slots afresh in which circuits have no routes, with growing effort."""
        for k, slot in enumerate(self.plan):
            for effort in EFFORTS[1:]:
                if slot.excess < FAILED or self.clock.remaining_s <= 0:
                    break
                slot = self.route_slot(slot.partner, *self.router.empty_routes(), effort)
            self.plan[k] = slot

    def vertex_excess(self, slot: RoutedSlot) -> NDArray[np.int64]:
        """Divide the excess of a slot among its vertices: half of each circuit's at both its ends.

        A circuit of vertices 0 and 5 with an excess of 6 has 3 at both.
        """
        starts = self.sources(slot.partner)
        ends = slot.partner[starts]
        lengths = slot.lengths[starts]
        destinations = self.destinations(slot.partner)[starts]
        cost = UNIT * lengths - self.router.least[starts, destinations]

        # The links of all routes, -1 behind the end of each, and how many circuits pass them. A
        # circuit of length 0 has no route: it counts as one contested link.
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
        """Return the cell states of a slot, shape (cells,): 0 bar, 1 cross, -1 without light."""
        return self.router.states(self.sources(slot.partner), slot.routes, slot.lengths)

    def empty_slot(self) -> RoutedSlot:
        """Return a slot without circuits."""
        vertices = self.n_ports + self.n_ports % 2 if self.bidirectional else 2 * self.n_ports
        return RoutedSlot(np.full(vertices, self.idle_partner), *self.router.empty_routes(), 0)

    @property
    def idle_partner(self) -> int:
        """The partner of a vertex without circuit: what `matchings_of` takes for idle."""
        return self.n_ports if self.bidirectional else self.n_ports - 1

    def with_circuit(self, slot: RoutedSlot, i: int, j: int, terminals: list[int]) -> RoutedSlot:
        """Return a copy of a slot with the circuit from port `i` to port `j` added.

        `terminals` are those of its route, none if it has no route yet; the excess stays as it
        was.
        """
        far_vertex = self.far_vertex(j)
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
_MOVES_PER_DIVISION = 10  # one move of so many divides the pairs of three slots


def exchange_pairs(planner: SlotPlanner, tolerated: int = 0) -> Limit | None:
    """Exchange pairs between slots until no slot has more excess than is tolerated.

    With ``FAILED - 1`` all routes have to be found, however long; with 0 they have to be the
    shortest ones. Returns None once that is so, else the limit that was met, or `Limit.EXHAUSTED`
    after `MOVES_PER_SLOT` moves for each slot, or with fewer than three slots; an iteration is a
    move.
    """
    max_iterations = planner.clock.limits.iterations
    max_moves = MOVES_PER_SLOT * len(planner.plan) if max_iterations is None else max_iterations
    for move, _ in enumerate(yield_exchanges(planner, tolerated)):
        limit = planner.clock.exceeded(move)
        if limit is not None or move >= max_moves:
            return limit or Limit.EXHAUSTED
    excess = max((slot.excess for slot in planner.plan), default=0)
    return Limit.EXHAUSTED if excess > tolerated else None


def yield_exchanges(planner: SlotPlanner, tolerated: int = 0) -> Iterator[None]:
    """Exchange pairs between slots while some slot has more excess than `tolerated`.

    None is yielded before each move, for the caller to end the search or to look at the plan. Most
    moves swap the pairs of two slots on a cycle of ports (`find_swap`, `swap_cycle`). Some divide
    the pairs of three slots anew (`divide_three_factors`), since swaps alone do not reach all
    1-factorisations. A move is kept if the excess of its slots together does not grow. Nothing
    happens with fewer than three slots.
    """
    # ``factors[slot, vertex]`` and ``vertex_excess[slot, vertex]`` are kept for all slots of the
    # plan. `place` and `path` are scratch, and `coins` is a random number from which the kernels
    # draw further ones.
    slots = len(planner.plan)
    vertices = len(planner.plan[0].partner) if planner.plan else 0
    if slots < 3:
        return
    rng = planner.rng
    n_pairs = len(planner.problem.pairs)
    place = np.empty(vertices, dtype=np.int64)
    path = np.empty(vertices + 2, dtype=np.int64)
    factors = np.stack([slot.partner for slot in planner.plan])
    vertex_excess = np.stack([planner.vertex_excess(slot) for slot in planner.plan])
    while excessive := [k for k, slot in enumerate(planner.plan) if slot.excess > tolerated]:
        yield

        # Slots without all of their routes come first. In nine of ten moves two slots, `first` and
        # `second`, swap the pairs on their cycle through `vertex`.
        candidates = [k for k in excessive if planner.plan[k].excess >= FAILED] or excessive
        coins = int(rng.integers(1 << 31))
        if rng.integers(_MOVES_PER_DIVISION):
            # `penalty` is the excess that is expected of a new circuit, `_NEW_EXCESS` times the
            # mean of all routed circuits; half of it counts at each end.
            routed = sum(slot.excess for slot in planner.plan if slot.excess < FAILED)
            penalty = _NEW_EXCESS * routed // (2 * n_pairs)
            first = candidates[rng.integers(len(candidates))]
            second, vertex = find_swap(factors, vertex_excess, first, penalty, coins, place)
            if second < 0:
                continue
            chosen = [first, second]
            new = np.empty((2, vertices), dtype=np.int64)
            swap_cycle(factors[chosen], vertex, new)
        else:
            # In one of ten, three slots divide their pairs anew.
            chosen = three_slots(planner, candidates)
            new = np.empty((3, vertices), dtype=np.int64)
            start = int(rng.integers(vertices))
            if not divide_three_factors(factors[chosen], start, coins, new, place, path):
                continue

        # The move is kept if the new slots can be routed with no more excess.
        if replace_slots(planner, chosen, new, vertex_excess):
            for k in chosen:
                factors[k] = planner.plan[k].partner
                vertex_excess[k] = planner.vertex_excess(planner.plan[k])


def three_slots(planner: SlotPlanner, excessive: list[int]) -> list[int]:
    """Draw the numbers of three different slots, one of them from `excessive`, in random order."""
    first = excessive[planner.rng.integers(len(excessive))]
    # The others are drawn from one number less; those from `first` on count one more, to skip it.
    other_slots = planner.rng.choice(len(planner.plan) - 1, size=2, replace=False)
    chosen = [first, *(int(k) + (k >= first) for k in other_slots)]
    planner.rng.shuffle(chosen)
    return chosen


def replace_slots(
    planner: SlotPlanner,
    chosen: list[int],
    new: NDArray[np.int64],
    vertex_excess: NDArray[np.int64],
) -> bool:
    """Route new factors of some slots, and keep them if their excess is no larger in all.

    `chosen` are numbers of slots, and ``new[k, vertex]`` are the partners in the factor for slot
    ``chosen[k]``. Circuits that are in the old and the new factor of a slot keep their routes to
    begin with. ``vertex_excess[slot, vertex]`` is that of all slots of the plan. False if the plan
    stays as it is.
    """
    # A slot can hardly save more than what its circuits that leave cost beyond their shortest
    # routes. A move is given up as soon as the slots so far have lost more than the slots that
    # follow can save. If three slots can save 5, 3 and 2, `can_save` is 3 and 2: what the slots
    # behind slot `index` can save is ``sum(can_save[index:])``. Once the first one has lost 4, the
    # second one has to save 2 at least.
    old_slots = [planner.plan[slot_number] for slot_number in chosen]
    stays = new == np.stack([slot.partner for slot in old_slots])
    can_save = np.where(stays, 0, vertex_excess[chosen]).sum(axis=1).tolist()[1:]
    lost = 0
    new_slots = list[RoutedSlot]()
    for index, (old, partner) in enumerate(zip(old_slots, new, strict=True)):
        allowed = old.excess - lost + sum(can_save[index:])
        routes = old.routes.copy()
        lengths = np.where(stays[index, : planner.n_ports], old.lengths, 0)
        slot = planner.route_slot(partner, routes, lengths, GENTLE, allowed=allowed)
        if slot.excess > allowed:
            return False
        new_slots.append(slot)
        lost += slot.excess - old.excess

    # The plan is replaced at once: an interrupt never sees half of a move.
    plan = list(planner.plan)
    for slot_number, slot in zip(chosen, new_slots, strict=True):
        plan[slot_number] = slot
    planner.plan = plan
    return True
