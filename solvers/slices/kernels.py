"""Kernels that search for a slice: slots on servers, routes for pairs, under a load.

The search goes depth first through steps: a slot takes a server, then every pair that it forms
with earlier slots takes one of its routes. It ends a branch where a server has too little room
left on its edges for the pairs that still have to start or end there, or all edges together for
the least hops of all pairs. Without a budget it is exhaustive: ``EXHAUSTED`` proves that no slice
keeps the load. `optmatch.solvers.slices.search` has the Python around them.
"""

from __future__ import annotations

import numpy as np

from optmatch.solvers.kernel import kernel

FOUND, EXHAUSTED, BUDGET = 1, 0, -1


@kernel
def offer(edges, hops, span, loads, fibres, servers, weight, routes, lengths):
    """Write the routes offered between servers: fewest hops, least load, first in the pool.

    Parameters
    ----------
    edges, hops
        The pool of routes; `optmatch.problems.slices.server_routes.RoutePool`.
    span
        Edges of a rack.
    loads, fibres
        By edge, rack by rack.
    servers
        The free servers, counted rack by rack.
    weight
        Circuits of a pair.
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


@kernel
def stretch(slot, server, mine, pairs, weights, kinds, least, seat):
    """Return the hops beyond one that pairs of a slot with earlier ones need, times circuits.

    So much that no room suffices if one of them has no way.
    """
    total = 0
    for k in range(mine.shape[1]):
        pair = mine[slot, k]
        if pair < 0:
            break
        first, second = pairs[pair, 0], pairs[pair, 1]
        u = server if first == slot else seat[first]
        v = server if second == slot else seat[second]
        hops = least[kinds[pair], u, v]
        if hops == 0:
            return 1 << 40
        total += weights[pair] * (hops - 1)
    return total


@kernel
def has_room(server, owed, leaving, arriving, room):
    """Tell whether what a slot still owes fits on the edges out of its server, and into it."""
    out = into = 0
    for k in range(leaving.shape[1]):
        if leaving[server, k] >= 0:
            out += max(0, room[leaving[server, k]])
    for k in range(arriving.shape[1]):
        if arriving[server, k] >= 0:
            into += max(0, room[arriving[server, k]])
    return out >= owed[0] and into >= owed[1]


@kernel
def sort_servers(slot, mine, pairs, weights, kinds, least, seat, holder, order):
    """List the servers for a slot, with what `stretch` says of each, least first."""
    for u in range(len(holder)):
        cost = 1 << 40
        if holder[u] < 0:
            cost = stretch(slot, u, mine, pairs, weights, kinds, least, seat)
        at = u
        while at > 0 and order[at - 1, 0] > cost:
            order[at, 0], order[at, 1] = order[at - 1, 0], order[at - 1, 1]
            at -= 1
        order[at, 0], order[at, 1] = cost, u


@kernel
def lay(route, hops, weight, room):
    """Take room on the edges of a route; a negative weight gives it back."""
    for hop in range(hops):
        room[route[hop]] -= weight


@kernel
def fits(route, hops, weight, room):
    """Tell whether all edges of a route have room."""
    for hop in range(hops):  # noqa: SIM110, since numba has no generators in all()
        if room[route[hop]] < weight:
            return False
    return True


@kernel
def search(
    steps, pairs, weights, kinds, below, mine, routes, lengths, least, leaving, arriving,
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
    mine
        ``mine[slot]``: its pairs with earlier slots, -1 in unused places.
    routes, lengths, least
        One table of `offer` for each kind; the shortest that is offered, 0 if none is.
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
        ``state = step, nodes, slack``: where to go on; the room on all edges beyond what all pairs
        without a route need at least; changed.
    budget
        Nodes at which it stops.

    Returns
    -------
    int
        FOUND, with the answer in `seat` and `choice`; EXHAUSTED; or BUDGET.
    """
    step, nodes, slack = state[0], state[1], state[2]
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
                sort_servers(slot, mine, pairs, weights, kinds, least, seat, holder, order[step])
            else:
                slack += order[step, choice[step], 0]
                holder[seat[slot]] = -1
                seat[slot] = -1
            while choice[step] + 1 < len(holder) and not found:
                choice[step] += 1
                extra, u = order[step, choice[step], 0], order[step, choice[step], 1]
                if extra > slack:
                    break  # the others are no better
                found = has_room(u, owes[slot], leaving, arriving, room)
                for k in range(below.shape[1]):
                    found = found and (below[slot, k] < 0 or seat[below[slot, k]] < u)
                if found:
                    seat[slot], holder[u] = u, slot
                    slack -= extra
        else:
            first, second, weight = pairs[pair, 0], pairs[pair, 1], weights[pair]
            offered = routes[kinds[pair], seat[first], seat[second]]
            hops = lengths[kinds[pair], seat[first], seat[second]]
            shortest = least[kinds[pair], seat[first], seat[second]]
            if choice[step] >= 0:
                lay(offered[choice[step]], hops[choice[step]], -weight, room)
                slack += weight * (hops[choice[step]] - shortest)
                owes[first, 0] += weight
                owes[second, 1] += weight
            while choice[step] + 1 < len(hops) and not found:
                choice[step] += 1
                k = choice[step]
                extra = weight * (hops[k] - shortest)
                if hops[k] == 0 or extra > slack:
                    break
                if not fits(offered[k], hops[k], weight, room):
                    continue
                lay(offered[k], hops[k], weight, room)
                owes[first, 0] -= weight
                owes[second, 1] -= weight
                found = True
                for u in range(len(holder)):  # does everybody who is placed still get out and in?
                    if found and holder[u] >= 0:
                        found = has_room(u, owes[holder[u]], leaving, arriving, room)
                if found:
                    slack -= extra
                else:
                    lay(offered[k], hops[k], -weight, room)
                    owes[first, 0] += weight
                    owes[second, 1] += weight
        if found:
            step += 1
            if step < len(steps):
                choice[step] = -1
            continue
        choice[step] = -1
        step -= 1
        if step < 0:
            outcome = 0
            break
    state[0], state[1], state[2] = step, nodes, slack
    return outcome
