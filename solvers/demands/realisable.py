"""Plans on fabrics that do not hold every matching: slots of circuits with routes.

A slot of a plan is a wish. Its circuits are routed, all at once or else one by one, those with
most left to carry first; ports that stay idle take further circuits. Demand that a plan leaves
fills further slots. Where most pairs want something, the matchings of an all-to-all are a second
way.

A *wish* is the matching of a slot of the plan that is asked for. A matching is *realisable* if
there are routes for all its circuits side by side; the *cell states* that make the routes are then
*known*. Ports are *mutual* if they are bidirectional, so that each circuit leads back as well.

A *route* is the list of the terminals by which light leaves its cells, its length their number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED
from optmatch.model import IDLE, Limits, TimeUp, ignore, uncounted
from optmatch.problems import AllToAll, Demand, Routing
from optmatch.solvers.demands.plans import Plan, best_length, lengthen, matching_of, serve, trim
from optmatch.solvers.routing.pathfinder import EFFORTS, Effort
from optmatch.solvers.routing.router import CellRouter


def shorten(plan: Plan, demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Make the slots of a plan as short as can be, with the matchings that they have.

    ``demand[source, destination]`` is in ticks, and so is `shortest`, the least duration of a
    slot. A linear programme finds the durations of least sum such that each pair of ports is
    connected as long as it needs. Its durations are rounded up to whole ticks. The result is never
    longer than `plan`.
    """
    with uncounted():
        from scipy.optimize import linprog
        from scipy.sparse import csr_array

    n_slots, n_ports = plan.matchings.shape

    # List all circuits with a demand, one for each slot and pair: `slot` and `pair` (source *
    # n_ports + destination: 35 for ports 2 and 3 of 16). `pairs` has each pair once, `n_uses` in
    # how many slots it is, and `needed` its demand in ticks.
    slot, source = np.nonzero(plan.matchings != IDLE)
    destination = plan.matchings[slot, source]
    has_demand = demand[source, destination] > 0
    slot = slot[has_demand]
    pair = (source * n_ports + destination)[has_demand]
    pairs, pair_of_circuit, n_uses = np.unique(pair, return_inverse=True, return_counts=True)
    needed = demand.reshape(-1)[pairs]

    # A pair in one slot alone is a bound on its duration.
    least_ticks = np.zeros(n_slots)
    is_alone = n_uses[pair_of_circuit] == 1
    np.maximum.at(least_ticks, slot[is_alone], needed[pair_of_circuit[is_alone]])
    shared = np.flatnonzero(n_uses > 1)
    if not len(shared):
        return trim(plan, demand, shortest)

    # A pair that several slots share is a row: their durations together reach its demand.
    row_of_pair = np.full(len(pairs), -1)
    row_of_pair[shared] = np.arange(len(shared))
    rows = row_of_pair[pair_of_circuit[~is_alone]]
    columns = slot[~is_alone]
    matrix = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(shared), n_slots))
    optimum = linprog(
        np.ones(n_slots),
        A_ub=-matrix,
        b_ub=-needed[shared].astype(np.float64),
        bounds=np.stack([least_ticks, np.full(n_slots, np.inf)], axis=1),
        method="highs",
    )
    if optimum.x is None:
        return trim(plan, demand, shortest)

    # Whole ticks, with all demand served; the plan without the programme may still be shorter.
    whole_ticks = np.ceil(optimum.x - 1e-6).astype(np.int64)
    ticks = lengthen(Plan(plan.matchings, whole_ticks), demand).ticks
    ticks = np.where(ticks > 0, np.maximum(ticks, shortest), 0)
    rounded = trim(Plan(plan.matchings, ticks), demand, shortest)
    trimmed = trim(plan, demand, shortest)
    return min(trimmed, rounded, key=lambda plan: (int(plan.ticks.sum()), len(plan.ticks)))


_QUICK = Effort(rounds=24)
_DENSE = 0.3  # part of all pairs from which all-to-all matchings are worth a try

Pair = tuple[int, int]


class Realiser:
    """Turns plans into plans that the fabric of a problem can hold, and knows the cell states.

    Attributes
    ----------
    has_cells
        Whether the fabric has cells to set; an ideal switch has none.
    router
        The router of a fabric with cells.
    n, mutual
        The number of ports, and whether they are bidirectional.
    known
        The states of all cells, shape (cells,), by the bytes of a matching.
    all_pairs
        The plan by the matchings of an all-to-all; None if few pairs have a demand.
    demand
        ``demand[source, destination]`` in ticks, without pairs that have no route at all.
    """

    def __init__(self, problem: Demand) -> None:
        """Prepare to turn plans of any matchings into plans that the fabric of a problem can hold.

        It makes a router for fabrics with cells (2 x 2 switches), and takes away the demand of
        pairs without any route. Where more than `_DENSE` of all pairs have a demand, it makes the
        matchings of an all-to-all, too, which together join each pair once.
        """
        self.problem = problem
        self.has_cells = problem.fabric.graph is not None
        if self.has_cells:
            self.router = CellRouter(problem.fabric)
        self.n = problem.fabric.n_ports
        self.mutual = problem.fabric.bidirectional
        self.known: dict[bytes, NDArray[np.int8]] = {}
        self.all_pairs: Plan | None = None

        # Where most pairs have a demand, a schedule of all pairs is one more plan.
        dead = problem.fabric.route_cells() == UNREACHED  # left to a packet network
        self.demand = np.where(dead, 0, problem.ticks)
        n_entries = np.count_nonzero(self.demand)
        if n_entries > _DENSE * self.n * (self.n - 1) and not problem.fabric.dead_pairs():
            self.all_pairs = self._all_to_all()

    def states(self, plan: Plan) -> NDArray[np.int8] | None:
        """``cell_states[slot, cell]`` of a plan made here; None on a switch without cells."""
        if not self.has_cells:
            return None
        rows = [self.known[matching.tobytes()] for matching in plan.matchings]
        return np.array(rows, dtype=np.int8).reshape(-1, self.problem.fabric.n_cells)

    def realise(self, plan: Plan) -> Plan:
        """Turn a plan for an ideal switch into one that the fabric can really hold.

        On a fabric of cells some circuits of a matching may have no routes side by side. The
        steps:

        1. The matchings of `plan` are taken as wishes, the longest slot first. Each gets routes
           for as many of its circuits as go, and is held as long as pays best.
        2. After the last wish, slots are made from the largest demands that are left.
        3. A linear programme shortens all slots together.

        Each slot finishes at least one entry of the demand, hence there are at most as many slots
        as entries.
        """
        shortest = self.problem.min_slot_ticks
        unserved = self.demand.copy()
        matchings: list[NDArray[np.int32]] = []
        ticks: list[int] = []

        # ``unserved[source, destination]``: the ticks that are not served yet. After the last wish
        # `next` gives None, and slots are made from the largest demands.
        wishes = iter(plan.matchings[np.argsort(-plan.ticks, kind="stable")])
        while unserved.any():
            # None: the slots before have served all that this wish asks for.
            matching = self._route_slot(next(wishes, None), unserved)
            if matching is None:
                continue
            sources = np.flatnonzero(matching != IDLE)
            destinations = matching[sources]
            needed = unserved[sources, destinations]
            length = best_length(needed[needed > 0], self.problem.delay_ticks, shortest)
            unserved[sources, destinations] -= np.minimum(needed, length)
            matchings.append(matching)
            ticks.append(length)

        realised = Plan.of(matchings, ticks, self.n)
        if len(realised.ticks):
            realised = shorten(realised, self.demand, shortest)
        if self.all_pairs is None:
            return realised
        return min(realised, self.all_pairs, key=lambda plan: plan.cost(self.problem.delay_ticks))

    def _all_to_all(self) -> Plan | None:
        """Hold each matching of an all-to-all as long as the neediest of its circuits.

        The matchings of an all-to-all join each two ports once. Keeps their cell states in
        ``self.known``; None if no routes are found, or if they do not serve the whole demand.
        """
        with uncounted():
            from optmatch.solvers.all_to_all.factorise import solve

        # No exchanges and no proof: the first schedule will do.
        without_proof = Limits(iterations=0, gap=1.0)
        all_to_all = AllToAll(self.problem.fabric)
        schedule = solve(all_to_all, without_proof, np.random.default_rng(0), ignore).schedule
        if schedule is None:
            return None
        matchings = schedule.matchings
        if schedule.cell_states is not None:
            for matching, states in zip(matchings, schedule.cell_states, strict=True):
                self.known[matching.tobytes()] = states

        # Each slot lasts as long as its largest demand. Without routes for some pairs the plan may
        # not serve everything.
        shortest = self.problem.min_slot_ticks
        asked_ticks = np.where(matchings >= 0, self.demand[np.arange(self.n), matchings], 0)
        ticks = np.maximum(asked_ticks.max(axis=1), shortest)
        plan = trim(Plan(matchings, ticks), self.demand, shortest)
        return plan if (serve(plan) >= self.demand).all() else None

    def _route_slot(
        self, wish: NDArray[np.int32] | None, unserved: NDArray[np.int64]
    ) -> NDArray[np.int32] | None:
        """Route the pairs that a slot asks for, then others that fit; None if it asks for none.

        `wish` is ``matching[source]`` of the slot, or None where any pairs will do; pairs without
        ``unserved[source, destination]`` ticks are not asked for.
        """
        wished_pairs: list[Pair] = []
        if wish is not None:
            for source in np.flatnonzero(wish != IDLE):
                destination = wish[source]
                if unserved[source, destination] > 0:
                    wished_pairs.append((int(source), int(destination)))
            if not wished_pairs:
                return None

        # The largest first; ports that the wish leaves idle take any other pairs.
        all_pairs = [
            (int(source), int(destination)) for source, destination in np.argwhere(unserved)
        ]
        wished_pairs.sort(key=lambda pair: -int(unserved[pair]))
        all_pairs.sort(key=lambda pair: -int(unserved[pair]))
        return self.place([*wished_pairs, *all_pairs])

    def place(self, pairs: list[Pair]) -> NDArray[np.int32]:
        """Make ``matching[source]`` that the fabric can hold of the pairs that are wanted most.

        `pairs` come in the order of their claim; the states of cells are kept in ``self.known``. A
        fabric is a mesh of cells, 2 x 2 switches whose states say how light passes. A matching can
        be held if the circuits of all its pairs have routes through the mesh at the same time.
        First all pairs whose ports are free are routed together. If that fails, pairs are added
        one by one, and those without a route beside the others are left out.
        """
        # An ideal switch holds all pairs with free ports as they are.
        chosen = self._keep_compatible(pairs)
        if not self.has_cells:
            return matching_of(chosen, self.n, is_mutual=self.mutual)

        # The router (rip-up and reroute) is asked with more and more effort, from empty routes
        # each time. It writes the routes, and returns a negative number where some circuit found
        # none.
        order, partner = self._order_for_router(chosen)
        for effort in (_QUICK, EFFORTS[1]):
            routes, lengths = self.router.empty_routes()
            if self.router.settle(order, partner, routes, lengths, effort=effort) >= 0:
                break
        else:
            # Pairs are tried one after the other: those that were left out for their ports get a
            # chance, too.
            chosen, routes, lengths = self._route_one_by_one([*chosen, *pairs])
            if not chosen:
                return self._place_exactly(pairs[0])

        # The states of the cells follow from the routes of the sources.
        matching = matching_of(chosen, self.n, is_mutual=self.mutual)
        order = np.array([i for i, _ in chosen], dtype=np.int64)
        self.known[matching.tobytes()] = self.router.states(order, routes, lengths)
        return matching

    def _place_exactly(self, pair: Pair) -> NDArray[np.int32]:
        """Make the matching of one pair for which the router finds no route, by the exact method.

        Light that comes back over a link of a cell with itself is what the router misses. The
        states are kept in ``self.known``.
        """
        with uncounted():
            from optmatch.solvers.routing.methods import route_exactly

        matching = matching_of([pair], self.n, is_mutual=self.mutual)
        routing = Routing(self.problem.fabric, matching)
        schedule = route_exactly(routing, Limits(), np.random.default_rng(0), ignore).schedule
        if schedule is None or schedule.cell_states is None:
            raise TimeUp("a pair has no route, which no bound had told")
        self.known[matching.tobytes()] = schedule.cell_states[0]
        return matching

    def _keep_compatible(self, pairs: list[Pair]) -> list[Pair]:
        """Keep pairs, in order, whose ports are still free.

        Pairs come in the order of their claim, and each that is kept makes its ports busy. Two-way
        pairs are returned with the smaller port first.
        """
        busy_sources = set[int]()
        busy_destinations = set[int]()
        compatible = list[Pair]()
        for source, destination in pairs:
            if self.mutual:
                # A bidirectional port is busy both ways, and its pair is named once.
                if not {source, destination} & busy_sources:
                    busy_sources |= {source, destination}
                    compatible.append((min(source, destination), max(source, destination)))
            elif source not in busy_sources and destination not in busy_destinations:
                busy_sources.add(source)
                busy_destinations.add(destination)
                compatible.append((source, destination))
        return compatible

    def _order_for_router(self, pairs: list[Pair]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Order the sources of pairs for the router: those with the longest ways come first.

        Long ways have the fewest alternatives, so they are routed while most cells are free.
        Returned are the sources of `pairs` in this order, and ``partner[source]``, the destination
        or -1 for a port that is no source.
        """
        partner = matching_of(pairs, self.n, is_mutual=False).astype(np.int64)
        order = np.array([i for i, _ in pairs], dtype=np.int64)
        least_length = self.router.least[order, partner[order]]
        return order[np.argsort(-least_length, kind="stable")], partner

    def _route_one_by_one(
        self, pairs: list[Pair]
    ) -> tuple[list[Pair], NDArray[np.int32], NDArray[np.int64]]:
        """Choose from a list of pairs those that fit side by side, one after the other.

        Each pair in turn gets a route through the fabric; the router may move routes of pairs
        before it for that. One that gets none beside the others, or whose port is taken, is left
        out. Returned are the pairs that have one, and their routes with the lengths of these, as
        the router keeps them.
        """
        chosen: list[Pair] = []
        routes, lengths = self.router.empty_routes()
        tried = set[Pair]()
        for pair in pairs:
            # `_keep_compatible` leaves out a pair whose port is taken, and writes a pair that
            # serves both directions with the lower port first, so that it is tried once.
            wider = self._keep_compatible([*chosen, pair])
            if len(wider) == len(chosen) or wider[-1] in tried:
                continue
            tried.add(wider[-1])
            order, partner = self._order_for_router(wider)

            # The router may move circuits of pairs chosen before; a copy keeps them if it fails,
            # which a negative result says.
            new_routes = routes.copy()
            new_lengths = lengths.copy()
            if self.router.settle(order, partner, new_routes, new_lengths, effort=_QUICK) >= 0:
                chosen = wider
                routes = new_routes
                lengths = new_lengths
        return chosen, routes, lengths
