"""Kernels that search for a slice: slots on servers, routes for pairs, under a load.

The search goes depth first through steps: a slot takes a server, then every pair that it forms
with earlier slots takes one of its routes. It ends a branch where a server has too little room
left on its edges for the pairs that still have to start or end there. Without a budget the search
is exhaustive: ``EXHAUSTED`` proves that no slice keeps the load. `optmatch.solvers.slices.search`
has the Python around them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import allocating_kernel, inner_kernel, kernel

FOUND, EXHAUSTED, BUDGET = 1, 0, -1
_NO_WAY = 1 << 40


@allocating_kernel
def offer(edges, hops, span, loads, fibres, servers, weight, routes, lengths):
    """Write the routes offered between servers: fewest hops, least load, first in the pool.

    Parameters
    ----------
    edges, hops
        The pool of routes; `optmatch.problems.slices.server_routes.RoutePool`.
    loads, fibres
        By edge, rack by rack.
    servers
        The free servers, counted rack by rack.
    routes
        ``routes[source, destination, choice, hop]``, written; sources and destinations are places
        in `servers`.
    lengths
        ``lengths[source, destination, choice]``: hops, 0 beyond the last; written.
    """
    most, inside = lengths.shape[2], hops.shape[0]
    best_load = np.empty(most, dtype=np.int64)
    best_rank = np.empty(most, dtype=np.int64)
    lengths[:] = 0
    for a in range(len(servers)):
        for b in range(len(servers)):
            if a == b:
                continue
            u, v = servers[a] % inside, servers[b] % inside
            base = servers[a] // inside * span  # of edges in the rack of u
            shift = servers[b] // inside * span - span  # of those in another rack of v
            if shift + span != base:
                v += inside
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
                    edge += base if edge < span else shift
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
                    edge = edges[u, v, best_rank[k], hop]
                    routes[a, b, k, hop] = edge + (base if edge < span else shift)


class PlacementTask(NamedTuple):
    """The question of a search, and its progress; -1 stands in unused places of tables."""

    steps: NDArray[np.int64]  # slot, -1 where a slot takes a server, else -1, pair
    pairs: NDArray[np.int32]  # the slots of each pair
    weights: NDArray[np.int32]  # and its circuits
    kinds: NDArray[np.int64]  # the table of `routes` for each number
    below: NDArray[np.int64]  # by slot: those with a smaller server; tell mirror images apart
    mine: NDArray[np.int64]  # by slot: its pairs with earlier slots
    routes: NDArray[np.int32]  # (kinds, source, destination, choice, hop), of `offer`
    lengths: NDArray[np.int16]  # (kinds, source, destination, choice)
    least: NDArray[np.int64]  # (kinds, source, destination): of the shortest, 0 if there is none
    leaving: NDArray[np.int64]  # by server: edges out of it
    arriving: NDArray[np.int64]  # and into it
    room: NDArray[np.int64]  # by edge: circuits that still fit; changed as all below
    seat: NDArray[np.int64]  # by slot: its server
    holder: NDArray[np.int64]  # by server: its slot
    owes: NDArray[np.int64]  # by slot: circuits out and in that still need a route
    order: NDArray[np.int64]  # by step: servers in the order they are tried, and `_stretch`
    choice: NDArray[np.int64]  # by step: the server that is tried
    state: NDArray[np.int64]
    """Step and nodes: where to go on."""


@inner_kernel
def _stretch(t, slot, server):
    """Return the hops that pairs of a slot with earlier ones need at least, times circuits."""
    total = 0
    for k in range(t.mine.shape[1]):
        pair = t.mine[slot, k]
        if pair < 0:
            break
        first, second = t.pairs[pair, 0], t.pairs[pair, 1]
        u = server if first == slot else t.seat[first]
        v = server if second == slot else t.seat[second]
        hops = t.least[t.kinds[pair], u, v]
        if hops == 0:
            return _NO_WAY
        total += t.weights[pair] * hops
    return total


@inner_kernel
def _has_room(t, server, slot):
    """Tell whether what a slot still owes fits on the edges out of its server, and into it."""
    out = into = 0
    for k in range(t.leaving.shape[1]):
        if t.leaving[server, k] >= 0:
            out += max(0, t.room[t.leaving[server, k]])
    for k in range(t.arriving.shape[1]):
        if t.arriving[server, k] >= 0:
            into += max(0, t.room[t.arriving[server, k]])
    return out >= t.owes[slot, 0] and into >= t.owes[slot, 1]


@inner_kernel
def _sort_servers(t, slot, step):
    """List the servers for a slot, with what `_stretch` says of each, least first."""
    order = t.order[step]
    for u in range(len(t.holder)):
        cost = _NO_WAY
        if t.holder[u] < 0:
            cost = _stretch(t, slot, u)
        at = u
        while at > 0 and order[at - 1, 0] > cost:
            order[at, 0], order[at, 1] = order[at - 1, 0], order[at - 1, 1]
            at -= 1
        order[at, 0], order[at, 1] = cost, u


@inner_kernel
def _lay(t, pair, k, sign):
    """Take room for a pair on the edges of a route that is offered, or give it back (-1)."""
    first, second, weight = t.pairs[pair, 0], t.pairs[pair, 1], sign * t.weights[pair]
    u, v, kind = t.seat[first], t.seat[second], t.kinds[pair]
    for hop in range(t.lengths[kind, u, v, k]):
        t.room[t.routes[kind, u, v, k, hop]] -= weight
    t.owes[first, 0] -= weight
    t.owes[second, 1] -= weight


@inner_kernel
def _fits(t, pair, k):
    """Tell whether all edges of a route have room, and all who are placed then get out and in."""
    u, v, kind = t.seat[t.pairs[pair, 0]], t.seat[t.pairs[pair, 1]], t.kinds[pair]
    for hop in range(t.lengths[kind, u, v, k]):
        if t.room[t.routes[kind, u, v, k, hop]] < t.weights[pair]:
            return False
    _lay(t, pair, k, 1)
    for server in range(len(t.holder)):
        if t.holder[server] >= 0 and not _has_room(t, server, t.holder[server]):
            _lay(t, pair, k, -1)
            return False
    return True


@kernel
def search(t, budget):
    """Go on with the search until a slice is found, all is tried, or the budget is used up.

    Returns FOUND, with the answer in ``t.seat`` and ``t.choice``; EXHAUSTED; or BUDGET.
    """
    steps, choice, holder, below = t.steps, t.choice, t.holder, t.below
    step, nodes = t.state[0], t.state[1]
    outcome = 1
    while step < len(steps):
        if nodes >= budget:
            outcome = -1
            break
        nodes += 1
        slot, pair = steps[step, 0], steps[step, 1]
        found = False
        if slot >= 0:
            if choice[step] < 0:
                _sort_servers(t, slot, step)
            else:
                holder[t.seat[slot]] = -1
                t.seat[slot] = -1
            while choice[step] + 1 < len(holder) and not found:
                choice[step] += 1
                u = t.order[step, choice[step], 1]
                if t.order[step, choice[step], 0] >= _NO_WAY:
                    break  # the other choices are no better
                found = _has_room(t, u, slot)
                for k in range(below.shape[1]):
                    found = found and (below[slot, k] < 0 or t.seat[below[slot, k]] < u)
                if found:
                    t.seat[slot], holder[u] = u, slot
        else:
            kind = t.kinds[pair]
            hops = t.lengths[kind, t.seat[t.pairs[pair, 0]], t.seat[t.pairs[pair, 1]]]
            if choice[step] >= 0:
                _lay(t, pair, choice[step], -1)
            while choice[step] + 1 < len(hops) and not found:
                choice[step] += 1
                if hops[choice[step]] == 0:
                    break
                found = _fits(t, pair, choice[step])
        if found:
            step += 1
            continue
        choice[step] = -1
        step -= 1
        if step < 0:
            outcome = 0
            break
    t.state[0], t.state[1] = step, nodes
    return outcome
