"""Kernels that search for a slice: slots on servers, routes for pairs of slots, under a load.

Depth-first search with backtracking. Its steps are in a fixed order: a slot takes a free server,
then each pair that it forms with slots of earlier steps takes one of the routes that are offered
between their servers. A branch ends where a server has too little room left on its edges for the
circuits that still have to start or end there (forward checking). Without a budget the search is
exhaustive: ``EXHAUSTED`` proves that no slice keeps the load. `optmatch.solvers.slices.search` has
the Python around these kernels.

Free servers are numbered by their places in `RackLoads.servers`; -1 stands in unused places of all
tables. Kernels take records: `task` is a `PlacementTask`, `rack` a `RackLoads`, `table` a
`RouteTable`, `best` a `BestRoutes`, `pair` a `ServerPair`, and `pool` a `RoutePool`: route number
`rank` from a server to another one has ``pool.hops[source, destination, rank]`` hops, -1 if there
is none, over the edges ``pool.edges[source, destination, rank, hop]``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel, kernel

# What a search returns: there is an answer, there is none, or the budget is used up.
FOUND = 1
EXHAUSTED = 0
BUDGET = -1

_NO_WAY = 1 << 40
"""The stretch of a slot on a server that is taken, or from which a partner cannot be reached."""


class RackLoads(NamedTuple):
    """The load of a rack, or of joined racks; servers and edges are counted rack by rack."""

    n_rack_edges: int
    """The number of edges of one rack."""
    loads: NDArray[np.int64]
    """(edges,): circuits on each edge now."""
    fibres: NDArray[np.int64]
    """(edges,): the circuits that it can carry."""
    servers: NDArray[np.int64]
    """(free servers,): which servers are free."""


class RouteTable(NamedTuple):
    """Routes that are offered between free servers; `offer_routes` writes it."""

    routes: NDArray[np.int32]
    """(source, destination, choice, hop): the edges of a route."""
    lengths: NDArray[np.int16]
    """(source, destination, choice): hops of a route, 0 beyond the last choice."""


class BestRoutes(NamedTuple):
    """Scratch of `offer_routes`: the best routes of one pair of servers so far, best first."""

    rank: NDArray[np.int64]
    """(choices,): the number of a route in the pool, by which hops and edges are looked up."""
    load: NDArray[np.int64]
    """(choices,): the largest load on its edges."""


class ServerPair(NamedTuple):
    """Two servers as the pool of routes counts them, and their racks."""

    source: int
    destination: int
    source_rack: int
    destination_rack: int


@inner_kernel
def _pair_in_pool(pool, server, other):
    """Return two servers as the pool of routes counts them.

    `server` and `other` are counted rack by rack. The pool has the servers of one rack as sources.
    Destinations are those of the same rack, and behind them those of another one: with racks of 16
    servers, 3 and 21 become source 3 of rack 0 and destination 21 (16 + 5) of rack 1, and so do 35
    and 21 of the racks 2 and 1.
    """
    n_rack_servers = pool.hops.shape[0]
    source_rack = server // n_rack_servers
    destination_rack = other // n_rack_servers
    destination = other % n_rack_servers
    if source_rack != destination_rack:
        destination += n_rack_servers
    return ServerPair(server % n_rack_servers, destination, source_rack, destination_rack)


@inner_kernel
def _edge_of(pool, pair, rank, hop, n_rack_edges):
    """Return an edge of a route of the pool, counted rack by rack.

    In the pool, edges of the rack of the source come first, then those of another rack. With 100
    edges in a rack, and a route from rack 2 to rack 0, edge 7 of the pool is edge 207, and edge
    107 is edge 7.
    """
    edge = pool.edges[pair.source, pair.destination, rank, hop]
    if edge < n_rack_edges:
        return edge + pair.source_rack * n_rack_edges
    return edge - n_rack_edges + pair.destination_rack * n_rack_edges


@inner_kernel
def _largest_load(pool, pair, rank, rack, weight):
    """Return the largest load on route `rank` of a pair of servers, in circuits.

    -1 if an edge of it has no room for `weight` more circuits.
    """
    largest = 0
    for hop in range(pool.hops[pair.source, pair.destination, rank]):
        edge = _edge_of(pool, pair, rank, hop, rack.n_rack_edges)
        if rack.loads[edge] + weight > rack.fibres[edge]:
            return -1
        largest = max(largest, rack.loads[edge])
    return largest


@inner_kernel
def _rank_routes(pool, pair, rack, weight, best):
    """Write the best routes between two servers to `best`, and return how many there are.

    Routes with the fewest hops come first, of these the ones whose busiest edge carries the fewest
    circuits (insertion sort). Routes without room for `weight` more circuits are left out.

    Example: two choices, and routes of 1, 2 and 2 hops whose busiest edges carry 5, 7 and 3
    circuits. The first and the third one are kept.
    """
    hops = pool.hops[pair.source, pair.destination]
    n_choices = len(best.rank)
    count = 0
    for rank in range(len(hops)):
        if hops[rank] < 0:
            break
        # The pool is ordered by hops, so no later route replaces the last one kept either.
        if count == n_choices and hops[rank] > hops[best.rank[n_choices - 1]]:
            break

        # A route without room is left out.
        load = _largest_load(pool, pair, rank, rack, weight)
        if load < 0:
            continue

        # Equal routes stay in the order of the pool, so a later one goes behind its equals.
        place = count
        while (
            place > 0 and hops[best.rank[place - 1]] == hops[rank] and best.load[place - 1] > load
        ):
            place -= 1
        if place >= n_choices:
            continue

        # The routes behind its place move by one; the last one falls out if all places are taken.
        count = min(count + 1, n_choices)
        for moved in range(count - 1, place, -1):
            best.load[moved] = best.load[moved - 1]
            best.rank[moved] = best.rank[moved - 1]
        best.load[place] = load
        best.rank[place] = rank
    return count


@kernel
def offer_routes(pool, rack, weight, table, best):
    """Write the routes offered between all free servers to `table`: fewest hops, then least load.

    All edges of a route have room for `weight` more circuits. `best` is scratch.
    """
    table.lengths[:] = 0
    n_free = len(rack.servers)
    for source in range(n_free):
        for destination in range(n_free):
            if source == destination:
                continue
            pair = _pair_in_pool(pool, rack.servers[source], rack.servers[destination])
            count = _rank_routes(pool, pair, rack, weight, best)

            # The best routes, from the pool to the table of pairs of this weight.
            for choice in range(count):
                rank = best.rank[choice]
                length = pool.hops[pair.source, pair.destination, rank]
                table.lengths[source, destination, choice] = length
                for hop in range(length):
                    edge = _edge_of(pool, pair, rank, hop, rack.n_rack_edges)
                    table.routes[source, destination, choice, hop] = edge


class PlacementTask(NamedTuple):
    """The question of a search, and its progress.

    Pairs of equally many circuits share a table of routes, since these need as much room.
    """

    slot_of_step: NDArray[np.int64]
    """(steps,): the slot that takes a server; -1 where a pair takes a route."""
    pair_of_step: NDArray[np.int64]
    """(steps,): the pair that takes a route; -1 where a slot takes a server."""
    slots_of_pair: NDArray[np.int32]
    """(pairs, 2): the slots from which and to which its circuits lead."""
    weights: NDArray[np.int32]
    """(pairs,): its circuits."""
    table_of_pair: NDArray[np.int64]
    """(pairs,): the number of its table of routes."""
    smaller_slots: NDArray[np.int64]
    """(slots, any): slots that must have servers of smaller numbers; tells mirror images apart."""
    earlier_pairs: NDArray[np.int64]
    """(slots, any): the pairs of a slot with slots of earlier steps."""
    routes: NDArray[np.int32]
    """(tables, source, destination, choice, hop): edges, as `RouteTable` has them."""
    lengths: NDArray[np.int16]
    """(tables, source, destination, choice): hops, as `RouteTable` has them."""
    fewest_hops: NDArray[np.int64]
    """(tables, source, destination): of the shortest route, 0 if there is none."""
    edges_out: NDArray[np.int64]
    """(free servers, any): the edges that leave a server."""
    edges_in: NDArray[np.int64]
    """(free servers, any): the edges that lead to it."""

    room: NDArray[np.int64]
    """(edges,): circuits that still fit under the load; changed by the search, as all below."""
    server_of_slot: NDArray[np.int64]
    """(slots,): the server that a slot has taken."""
    slot_of_server: NDArray[np.int64]
    """(free servers,): the slot that has taken a server."""
    owed: NDArray[np.int64]
    """(slots, 2): circuits out of a slot, and into it, that still need a route."""
    candidates: NDArray[np.int64]
    """(steps, free servers, 2): the stretch and the server, in the order in which they come."""
    choice: NDArray[np.int64]
    """(steps,): the candidate, by its place, or the route that is tried; -1 before the first."""
    progress: NDArray[np.int64]
    """(2,): the step at which the search continues, and the nodes that it has visited."""


@inner_kernel
def _count_hops(task, slot, server):
    """Count the hops of the circuits of a slot to slots of earlier steps, if it took a server.

    This is the stretch: the sum over these pairs of circuits times the fewest hops. `server` is a
    place among the free ones. `_NO_WAY` if one of the other slots cannot be reached from there.
    """
    total = 0
    for place in range(task.earlier_pairs.shape[1]):
        pair = task.earlier_pairs[slot, place]
        if pair < 0:
            break
        source = server
        if task.slots_of_pair[pair, 0] != slot:
            source = task.server_of_slot[task.slots_of_pair[pair, 0]]
        destination = server
        if task.slots_of_pair[pair, 1] != slot:
            destination = task.server_of_slot[task.slots_of_pair[pair, 1]]

        # The fewest hops between both; 0 if no route is offered.
        hops = task.fewest_hops[task.table_of_pair[pair], source, destination]
        if hops == 0:
            return _NO_WAY
        total += task.weights[pair] * hops
    return total


@inner_kernel
def _room_at(task, edges_of_server, server):
    """Return the circuits that fit on the edges out of a server, or into it, together.

    `edges_of_server` is ``task.edges_out`` or ``task.edges_in``.
    """
    total = 0
    for place in range(edges_of_server.shape[1]):
        edge = edges_of_server[server, place]
        if edge >= 0:
            total += max(0, task.room[edge])
    return total


@inner_kernel
def _has_room(task, server, slot):
    """Tell whether the circuits that a slot still owes fit on the edges of a server."""
    room_out = _room_at(task, task.edges_out, server)
    room_in = _room_at(task, task.edges_in, server)
    return room_out >= task.owed[slot, 0] and room_in >= task.owed[slot, 1]


@inner_kernel
def _sort_servers(task, slot, step):
    """Write all free servers to ``task.candidates[step]``, least stretch first.

    Rows of candidates are stretch (`_count_hops`) and server (a place among the free ones), sorted
    by insertion. Servers in use have `_NO_WAY` and come last.
    """
    candidates = task.candidates[step]
    for server in range(len(task.slot_of_server)):
        stretch = _NO_WAY
        if task.slot_of_server[server] < 0:
            stretch = _count_hops(task, slot, server)
        place = server
        while place > 0 and candidates[place - 1, 0] > stretch:
            candidates[place, 0] = candidates[place - 1, 0]
            candidates[place, 1] = candidates[place - 1, 1]
            place -= 1
        candidates[place, 0] = stretch
        candidates[place, 1] = server


@inner_kernel
def _is_first_of_mirrors(task, slot, server):
    """Tell whether the slots that must have smaller servers have them, with a slot on `server`."""
    for place in range(task.smaller_slots.shape[1]):
        other = task.smaller_slots[slot, place]
        if other >= 0 and task.server_of_slot[other] >= server:
            return False
    return True


@inner_kernel
def _take_next_server(task, step):
    """Move the slot of a step to its next candidate; False, and no server, if none is left.

    Changes ``task.choice[step]``, ``task.server_of_slot`` and ``task.slot_of_server``.
    """
    # The first visit of a step sorts its candidates, and has no server to give back; later ones
    # give back the server that was tried last.
    slot = task.slot_of_step[step]
    if task.choice[step] < 0:
        _sort_servers(task, slot, step)
    else:
        task.slot_of_server[task.server_of_slot[slot]] = -1
        task.server_of_slot[slot] = -1

    while task.choice[step] + 1 < len(task.slot_of_server):
        task.choice[step] += 1
        stretch = task.candidates[step, task.choice[step], 0]
        server = task.candidates[step, task.choice[step], 1]
        if stretch >= _NO_WAY:
            return False  # those behind it are no better
        if _has_room(task, server, slot) and _is_first_of_mirrors(task, slot, server):
            task.server_of_slot[slot] = server
            task.slot_of_server[server] = slot
            return True
    return False


@inner_kernel
def _change_load(task, pair, choice, sign):
    """Put the circuits of a pair on a route (sign 1), or take them off (-1).

    `choice` is the number of the route among those offered between both servers. Changes
    ``task.room[edge]``, and ``task.owed`` of both slots, by the circuits of the pair.

    Example: 4 circuits over two edges take 4 of the room of each edge; the one slot owes 4 less
    out of it, the other one 4 less into it.
    """
    first = task.slots_of_pair[pair, 0]
    second = task.slots_of_pair[pair, 1]
    source = task.server_of_slot[first]
    destination = task.server_of_slot[second]
    table = task.table_of_pair[pair]
    circuits = sign * task.weights[pair]
    for hop in range(task.lengths[table, source, destination, choice]):
        task.room[task.routes[table, source, destination, choice, hop]] -= circuits
    task.owed[first, 0] -= circuits
    task.owed[second, 1] -= circuits


@inner_kernel
def _take_route(task, pair, choice):
    """Put a pair on a route if that fits, and return whether it does; if not, nothing is changed.

    `pair` is the index of a pair of slots, `choice` that of a route between their servers. All
    edges of the route need room, and then each server that is taken must have room on its edges
    for the circuits that its slot still owes.
    """
    source = task.server_of_slot[task.slots_of_pair[pair, 0]]
    destination = task.server_of_slot[task.slots_of_pair[pair, 1]]
    table = task.table_of_pair[pair]
    for hop in range(task.lengths[table, source, destination, choice]):
        edge = task.routes[table, source, destination, choice, hop]
        if task.room[edge] < task.weights[pair]:
            return False
    _change_load(task, pair, choice, 1)
    for server in range(len(task.slot_of_server)):
        slot = task.slot_of_server[server]
        if slot >= 0 and not _has_room(task, server, slot):
            _change_load(task, pair, choice, -1)
            return False
    return True


@kernel
def search_placement(task, budget):
    """Search for servers of slots and routes of pairs by depth-first search (backtracking).

    Each step gives one slot a server, or one pair, whose servers are then known, a route. A step
    without an alternative is undone, and the step before takes its next one. A call continues
    where the former one ended, and writes the fields of `task` from `room` on; `budget` are nodes,
    visits of steps, of all calls together. ``FOUND``: `server_of_slot` and `choice` have the
    answer. ``EXHAUSTED``: there is none. ``BUDGET``: open yet.
    """
    step = task.progress[0]
    nodes = task.progress[1]
    outcome = FOUND
    while step < len(task.slot_of_step):
        if nodes >= budget:
            outcome = BUDGET
            break
        nodes += 1

        # A step without a pair places a slot. Either way the step takes its next alternative.
        pair = task.pair_of_step[step]
        if pair < 0:
            is_taken = _take_next_server(task, step)
        else:
            # The pair leaves its present route, if any, and takes the next one that fits. This
            # loop stands here for speed: a call with the whole record, which is not inlined, made
            # the search a quarter slower.
            is_taken = False
            if task.choice[step] >= 0:
                _change_load(task, pair, task.choice[step], -1)
            source = task.server_of_slot[task.slots_of_pair[pair, 0]]
            destination = task.server_of_slot[task.slots_of_pair[pair, 1]]
            lengths = task.lengths[task.table_of_pair[pair], source, destination]
            while task.choice[step] + 1 < len(lengths) and not is_taken:
                task.choice[step] += 1
                if lengths[task.choice[step]] == 0:
                    break
                is_taken = _take_route(task, pair, task.choice[step])
        if is_taken:
            step += 1
            continue

        # Nothing is left to try in this step: the step before it is changed next.
        task.choice[step] = -1
        step -= 1
        if step < 0:
            outcome = EXHAUSTED
            break
    task.progress[0] = step
    task.progress[1] = nodes
    return outcome
