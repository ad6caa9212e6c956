"""Search for a slice in one rack: slots on servers and routes for pairs, under a largest load.

The search goes depth first through steps: a slot takes a server, then every pair that it forms
with earlier slots takes one of its routes. It ends a branch where a server has too little room
left on its edges for the pairs that still have to start or end there. Without a budget it is
exhaustive: ``EXHAUSTED`` proves that no slice keeps the load.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.blueprint import Blueprint
from optmatch.problems.server_routes import RoutePool
from optmatch.solvers.kernel import kernel

FOUND, EXHAUSTED, BUDGET = 1, 0, -1


@kernel
def offer(edges, hops, loads, fibres, servers, weight, routes, lengths):
    """Write the routes offered between servers: fewest hops, least load, first in the pool.

    Parameters
    ----------
    edges, hops
        The pool of routes; `optmatch.problems.server_routes.RoutePool`.
    loads, fibres
        By edge of the rack.
    servers
        The free servers of the rack.
    weight
        Circuits of a pair.
    routes
        ``routes[source, destination, choice, hop]``, written; sources and destinations are places
        in `servers`.
    lengths
        ``lengths[source, destination, choice]``: hops, 0 beyond the last; written.
    """
    most = lengths.shape[2]
    best_load = np.empty(most, dtype=np.int64)
    best_rank = np.empty(most, dtype=np.int64)
    lengths[:] = 0
    for a in range(len(servers)):
        for b in range(len(servers)):
            if a == b:
                continue
            u, v = servers[a], servers[b]
            count = 0
            for rank in range(hops.shape[2]):
                length = hops[u, v, rank]
                if length < 0:
                    break
                if count == most and length > hops[u, v, best_rank[most - 1]]:
                    break
                worst = 0
                for hop in range(length):
                    edge = edges[u, v, rank, hop]
                    worst = max(worst, loads[edge])
                    if loads[edge] + weight > fibres[edge]:
                        worst = -1
                        break
                if worst < 0:
                    continue
                at = count
                while at > 0:
                    other = hops[u, v, best_rank[at - 1]]
                    if other < length or best_load[at - 1] <= worst:
                        break
                    at -= 1
                if at >= most:
                    continue
                count = min(count + 1, most)
                for k in range(count - 1, at, -1):
                    best_load[k], best_rank[k] = best_load[k - 1], best_rank[k - 1]
                best_load[at], best_rank[at] = worst, rank
            for k in range(count):
                length = hops[u, v, best_rank[k]]
                lengths[a, b, k] = length
                for hop in range(length):
                    routes[a, b, k, hop] = edges[u, v, best_rank[k], hop]


@kernel
def search(
    steps, pairs, weights, kinds, below, near, routes, lengths, away, leaving, arriving,
    room, seat, holder, owes, order, choice, state, budget,
):  # fmt: skip
    """Go on with the search until a slice is found, all is tried, or the budget is used up.

    Parameters
    ----------
    steps
        ``steps[step] = slot, -1`` where a slot takes a server, else ``-1, pair``.
    pairs, weights, kinds
        Of each pair: its slots, its circuits, and which table of `routes` is for so many.
    below
        ``below[slot]``: slots whose server has a smaller number, -1 in unused places; they tell
        mirror images apart.
    near
        ``near[slot]``: neighbours among the earlier slots, -1 in unused places.
    routes, lengths
        One table of `offer` for each kind.
    away
        ``away[server, server]``: hops; what is near is tried first.
    leaving, arriving
        ``leaving[server]``: edges out of it, -1 in unused places; and those into it.
    room
        By edge: circuits that still fit; changed.
    seat, holder
        ``seat[slot]``: its server, -1 if none; ``holder[server]``: its slot; changed.
    owes
        ``owes[slot] = out, in``: circuits that still need a route; changed.
    order, choice
        Work space: ``order[step, k]``: servers in the order they are tried; ``choice[step]``.
    state
        ``state = step, nodes``: where to go on; changed.
    budget
        Nodes at which it stops.

    Returns
    -------
    int
        FOUND, with the answer in `seat` and `choice`; EXHAUSTED; or BUDGET.
    """
    step, nodes = state[0], state[1]
    servers = len(holder)
    outcome = 1
    while step < len(steps):
        if nodes >= budget:
            outcome = -1
            break
        nodes += 1
        slot, pair = steps[step, 0], steps[step, 1]
        found = False
        if slot >= 0:
            if choice[step] < 0:  # entered from above: sort the servers by their distance
                for u in range(servers):
                    cost = 0
                    for k in range(near.shape[1]):
                        if near[slot, k] >= 0:
                            other = seat[near[slot, k]]
                            cost += away[other, u] + away[u, other]
                    at = u
                    while at > 0 and order[step, at - 1, 0] > cost:
                        order[step, at, 0] = order[step, at - 1, 0]
                        order[step, at, 1] = order[step, at - 1, 1]
                        at -= 1
                    order[step, at, 0], order[step, at, 1] = cost, u
            else:
                holder[seat[slot]] = -1
                seat[slot] = -1
            while not found and choice[step] + 1 < servers:
                choice[step] += 1
                u = order[step, choice[step], 1]
                if holder[u] >= 0:
                    continue
                fits = True
                for k in range(below.shape[1]):
                    if below[slot, k] >= 0 and seat[below[slot, k]] > u:
                        fits = False
                free_out = free_in = 0
                for k in range(leaving.shape[1]):
                    if leaving[u, k] >= 0:
                        free_out += max(0, room[leaving[u, k]])
                    if arriving[u, k] >= 0:
                        free_in += max(0, room[arriving[u, k]])
                if fits and free_out >= owes[slot, 0] and free_in >= owes[slot, 1]:
                    seat[slot], holder[u] = u, slot
                    found = True
        else:
            first, second = pairs[pair, 0], pairs[pair, 1]
            u, v = seat[first], seat[second]
            weight, kind = weights[pair], kinds[pair]
            if choice[step] >= 0:
                for hop in range(lengths[kind, u, v, choice[step]]):
                    room[routes[kind, u, v, choice[step], hop]] += weight
                owes[first, 0] += weight
                owes[second, 1] += weight
            while not found and choice[step] + 1 < lengths.shape[3]:
                choice[step] += 1
                length = lengths[kind, u, v, choice[step]]
                if length == 0:
                    break
                fits = True
                for hop in range(length):
                    if room[routes[kind, u, v, choice[step], hop]] < weight:
                        fits = False
                        break
                if not fits:
                    continue
                for hop in range(length):
                    room[routes[kind, u, v, choice[step], hop]] -= weight
                owes[first, 0] -= weight
                owes[second, 1] -= weight
                for s in range(servers):  # does everybody who is placed still get out and in?
                    if holder[s] < 0:
                        continue
                    free_out = free_in = 0
                    for k in range(leaving.shape[1]):
                        if leaving[s, k] >= 0:
                            free_out += max(0, room[leaving[s, k]])
                        if arriving[s, k] >= 0:
                            free_in += max(0, room[arriving[s, k]])
                    if free_out < owes[holder[s], 0] or free_in < owes[holder[s], 1]:
                        fits = False
                        break
                if fits:
                    found = True
                else:
                    for hop in range(length):
                        room[routes[kind, u, v, choice[step], hop]] += weight
                    owes[first, 0] += weight
                    owes[second, 1] += weight
        if found:
            step += 1
            if step < len(steps):
                choice[step] = -1
        else:
            choice[step] = -1
            step -= 1
            if step < 0:
                outcome = 0
                break
    state[0], state[1] = step, nodes
    return outcome


class Rack(NamedTuple):
    """One rack with its load; servers and edges counted from its first."""

    pool: RoutePool
    edges: NDArray[np.int64]
    """``edges[edge] = server, server``."""
    fibres: NDArray[np.int64]
    loads: NDArray[np.int64]
    servers: NDArray[np.int64]
    """Those that are free."""


class Plan(NamedTuple):
    """Where a slice lies: ``servers[slot]``, and the edges of each pair's route."""

    servers: NDArray[np.int64]
    routes: list[NDArray[np.int64]]


class Search:
    """A search that can be interrupted and goes on where it was.

    Parameters
    ----------
    rack
        Where the slice is to lie.
    plan
        The slice.
    offered
        How many routes each pair may choose from.
    largest
        No edge that the slice uses may have a larger load.
    seats
        ``seats[slot]``: places in ``rack.servers``, if they are fixed; None to search for them.
    """

    def __init__(
        self,
        rack: Rack,
        plan: Blueprint,
        offered: int,
        largest: int,
        seats: NDArray[np.int64] | None = None,
    ) -> None:
        self.rack, self.plan = rack, plan
        servers, slots = len(rack.servers), plan.n_slots
        sizes, self.kinds = np.unique(plan.weights, return_inverse=True)
        kinds, hops = max(1, len(sizes)), rack.pool.edges.shape[3]
        self.routes = np.full((kinds, servers, servers, offered, hops), -1, dtype=np.int16)
        self.lengths = np.zeros((kinds, servers, servers, offered), dtype=np.int16)
        for kind, size in enumerate(sizes.tolist()):
            offer(
                rack.pool.edges, rack.pool.hops, rack.loads, rack.fibres, rack.servers, size,
                self.routes[kind], self.lengths[kind],
            )  # fmt: skip
        self._steps = _list_steps(plan)
        self._near = _list_near(plan)
        self.below = _tell_mirrors_apart(plan) if seats is None else np.full((slots, 1), -1)
        away = rack.pool.hops[:, :, 0].astype(np.int64)
        self._away = np.ascontiguousarray(away[np.ix_(rack.servers, rack.servers)])
        self._leaving = _edges_by_server(rack, 0)
        self._arriving = _edges_by_server(rack, 1)
        self.limit_room = np.minimum(largest, rack.fibres) - rack.loads
        self._room = self.limit_room.copy()
        self._seat = np.full(slots, -1, dtype=np.int64)
        self._holder = np.full(servers, -1, dtype=np.int64)
        self._owes = np.zeros((slots, 2), dtype=np.int64)
        np.add.at(self._owes[:, 0], plan.pairs[:, 0], plan.weights)
        np.add.at(self._owes[:, 1], plan.pairs[:, 1], plan.weights)
        if seats is not None:
            self._steps = self._steps[self._steps[:, 1] >= 0]
            self._seat[:], self._holder[seats] = seats, np.arange(slots)
        self._order = np.zeros((len(self._steps), servers, 2), dtype=np.int64)
        self._choice = np.full(len(self._steps), -1, dtype=np.int64)
        self._state = np.zeros(2, dtype=np.int64)

    @property
    def nodes(self) -> int:
        """How many steps were made and taken back."""
        return int(self._state[1])

    def run(self, budget: int) -> int:
        """Go on until so many nodes; return FOUND, EXHAUSTED or BUDGET."""
        status: int = search(
            self._steps, self.plan.pairs, self.plan.weights, self.kinds.astype(np.int64),
            self.below, self._near, self.routes, self.lengths, self._away, self._leaving,
            self._arriving, self._room, self._seat, self._holder, self._owes, self._order,
            self._choice, self._state, budget,
        )  # fmt: skip
        return status

    def answer(self) -> Plan:
        """Return what was found."""
        routes: list[Any] = [None] * len(self.plan.pairs)
        for (_, pair), chosen in zip(self._steps.tolist(), self._choice.tolist(), strict=True):
            if pair >= 0:
                u, v = self._seat[self.plan.pairs[pair]]
                kind = self.kinds[pair]
                length = self.lengths[kind, u, v, chosen]
                routes[pair] = self.routes[kind, u, v, chosen, :length].astype(np.int64)
        return Plan(self.rack.servers[self._seat], routes)


def _list_steps(plan: Blueprint) -> NDArray[np.int64]:
    """Order slots, and after each its pairs with earlier ones."""
    steps = []
    for slot in range(plan.n_slots):
        steps.append((slot, -1))
        steps += [(-1, k) for k, (a, b) in enumerate(plan.pairs.tolist()) if max(a, b) == slot]
    return np.array(steps, dtype=np.int64)


def _list_near(plan: Blueprint) -> NDArray[np.int64]:
    near: list[list[int]] = [[] for _ in range(plan.n_slots)]
    for a, b in plan.pairs.tolist():
        if b < a:
            near[a].append(b)
    return _padded(near)


def _tell_mirrors_apart(plan: Blueprint) -> NDArray[np.int64]:
    """List for each slot those that may be asked to have smaller servers.

    If servers are full, a torus looks the same from each slot, so slot 0 may have the smallest
    server; and in the mirror, so its neighbour up an axis may have a smaller one than that down.
    """
    seats = np.unique(plan.circuits[:, :2], axis=0)[:, 0]
    full = len(set(np.bincount(seats, minlength=plan.n_slots).tolist())) == 1
    below: list[list[int]] = [[0] if full and slot else [] for slot in range(plan.n_slots)]
    stride = 1
    for side in plan.grid:
        if full and side > 2:
            below[(side - 1) * stride].append(stride)
        stride *= side
    return _padded(below)


def _edges_by_server(rack: Rack, end: int) -> NDArray[np.int64]:
    """List the edges of each free server that leave it (0) or arrive there (1)."""
    place = {server: k for k, server in enumerate(rack.servers.tolist())}
    edges: list[list[int]] = [[] for _ in place]
    for edge, server in enumerate(rack.edges[:, end].tolist()):
        if server in place:
            edges[place[server]].append(edge)
    return _padded(edges)


def _padded(rows: list[list[int]]) -> NDArray[np.int64]:
    width = max([1, *map(len, rows)])
    table = np.full((len(rows), width), -1, dtype=np.int64)
    for k, row in enumerate(rows):
        table[k, : len(row)] = row
    return table
