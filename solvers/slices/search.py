"""The search for a slice in a rack, or in joined ones, which can be interrupted.

The kernels of `optmatch.solvers.slices.kernels` do the depth-first search; here are its tables.
Each *slot* of a slice takes a server, and each *pair* of slots that circuits join takes a *route*
over *edges*, the fibres from one server to another. An edge carries at most as many circuits as
the largest *load* that is asked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.slices.server_routes import RoutePool
from optmatch.problems.slices.shape import SliceShape
from optmatch.solvers.slices.kernels import (
    BestRoutes,
    PlacementTask,
    RackLoads,
    RouteTable,
    offer_routes,
    search_placement,
)


class Rack(NamedTuple):
    """One rack with its load, or several joined ones; servers and edges counted rack by rack."""

    pool: RoutePool
    """The routes between servers of any rack."""
    n_rack_edges: int
    """The number of edges of one rack."""
    edges: NDArray[np.int64]
    """``edges[edge] = node, node``: servers, then switches."""
    fibres: NDArray[np.int64]
    """``fibres[edge]``: the circuits that it can carry."""
    loads: NDArray[np.int64]
    """``loads[edge]``: the circuits on it now."""
    servers: NDArray[np.int64]
    """The free servers."""


class Placement(NamedTuple):
    """The servers of a slice, and the routes of its circuits."""

    servers: NDArray[np.int64]
    """``servers[slot]``."""
    routes: list[NDArray[np.int64]]
    """``routes[pair]``: the edges that its circuits pass."""


class SliceSearch:
    """A depth-first search for servers and routes of a slice, which can be interrupted.

    The slice has the slots and circuits of `plan`, for one way to turn it; each pair is offered
    `n_routes` routes, and no edge carries more than `largest_load` circuits, those of earlier
    slices included. ``fixed_places[slot]`` are places in ``rack.servers``; None to search for
    them.

    Attributes
    ----------
    task
        The arrays of the kernel `search_placement`: the question, and the state of the search.
    limit_room
        ``limit_room[edge]``: the circuits that fit under the load without the slice.
    """

    def __init__(
        self,
        rack: Rack,
        plan: SliceShape,
        n_routes: int,
        largest_load: int,
        fixed_places: NDArray[np.int64] | None = None,
    ) -> None:
        """Prepare the tables of the search; nothing is searched yet.

        In each step either a slot takes a server or a pair takes a route, after both of its slots:
        with slots 0, 1 and 2 and the pairs 0-1 and 1-2 the steps are slot 0, slot 1, pair 0-1,
        slot 2, pair 1-2.
        """
        self.rack = rack
        self.plan = plan

        # Pairs with equally many circuits are of one kind and share a table of routes. Routes with
        # an edge that has no room for all circuits of the pair are left out.
        self.limit_room = np.minimum(largest_load, rack.fibres) - rack.loads
        weights, table_of_pair = np.unique(plan.weights, return_inverse=True)
        table = _offer_routes(rack, weights, n_routes)
        for kind, weight in enumerate(weights.tolist()):
            _drop_full_routes(table.routes[kind], table.lengths[kind], self.limit_room, weight)

        # The steps: ``pair_of_step[step]`` is -1 where a slot takes a server, and
        # ``slot_of_step[step]`` where a pair takes a route. A pair comes with its later slot.
        n_slots = plan.n_slots
        n_free = len(rack.servers)
        earlier_pairs: list[list[int]] = [[] for _ in range(n_slots)]
        for pair, slots in enumerate(plan.pairs.tolist()):
            earlier_pairs[max(slots)].append(pair)
        steps = [
            step
            for slot, pairs in enumerate(earlier_pairs)
            for step in [(slot, -1), *((-1, pair) for pair in pairs)]
        ]
        slot_of_step, pair_of_step = np.array(steps, dtype=np.int64).reshape(-1, 2).T.copy()
        server_of_slot = np.full(n_slots, -1)
        slot_of_server = np.full(n_free, -1)
        smaller_slots = np.full((n_slots, 1), -1)
        if fixed_places is None:
            # Of placements that are mirror images of each other one is searched.
            smaller_slots = _tell_mirrors_apart(plan)
        else:
            # The servers are fixed, so only the steps of pairs remain.
            is_pair = pair_of_step >= 0
            slot_of_step = slot_of_step[is_pair]
            pair_of_step = pair_of_step[is_pair]
            server_of_slot[:] = fixed_places
            slot_of_server[fixed_places] = np.arange(n_slots)

        # ``owed[slot, end]``: circuits out of the slot (end 0) and into it (1) without a route, at
        # first all of them.
        owed = np.zeros((n_slots, 2), dtype=np.int64)
        for end in (0, 1):
            np.add.at(owed[:, end], plan.pairs[:, end], plan.weights)

        # No step has chosen anything yet: -1 is no choice.
        n_steps = len(slot_of_step)
        self.task = PlacementTask(
            slot_of_step=slot_of_step,
            pair_of_step=pair_of_step,
            slots_of_pair=plan.pairs,
            weights=plan.weights,
            table_of_pair=table_of_pair.astype(np.int64),
            smaller_slots=smaller_slots,
            earlier_pairs=_as_table(earlier_pairs),
            routes=table.routes,
            lengths=table.lengths,
            fewest_hops=table.lengths[:, :, :, 0].astype(np.int64),
            edges_out=_edges_by_server(rack, 0),
            edges_in=_edges_by_server(rack, 1),
            room=self.limit_room.copy(),
            server_of_slot=server_of_slot,
            slot_of_server=slot_of_server,
            owed=owed,
            candidates=np.zeros((n_steps, n_free, 2), dtype=np.int64),
            choice=np.full(n_steps, -1, dtype=np.int64),
            progress=np.zeros(2, dtype=np.int64),
        )

    @property
    def nodes(self) -> int:
        """The nodes of the search so far: the number of visits of its steps."""
        return int(self.task.progress[1])

    def run(self, budget: int) -> int:
        """Go on with the search, until `budget` nodes with those of former calls.

        FOUND if there is an answer, EXHAUSTED if there is proved to be none, BUDGET if it is open
        yet.
        """
        status: int = search_placement(self.task, budget)
        return status

    def answer(self) -> Placement:
        """Return the servers and routes that were found; only after `run` has returned FOUND."""
        # A step of a pair has chosen one of the routes that are offered between its two servers;
        # its edges are the first entries of a row of the table, as many as the route has hops.
        task = self.task
        routes: list[Any] = [None] * len(self.plan.pairs)
        for step, pair in enumerate(task.pair_of_step.tolist()):
            if pair < 0:
                continue
            source, destination = task.server_of_slot[self.plan.pairs[pair]]
            place = (task.table_of_pair[pair], source, destination, task.choice[step])
            routes[pair] = task.routes[place][: task.lengths[place]].astype(np.int64)
        return Placement(self.rack.servers[task.server_of_slot], routes)


def _offer_routes(rack: Rack, weights: NDArray[np.int32], n_routes: int) -> RouteTable:
    """List the routes that a search may try between each two free servers, by kind of pair.

    Pairs of a kind have equally many circuits, ``weights[kind]``, and at most `n_routes` routes.
    ``rack.pool`` has all routes that there are. In the result, ``routes[kind, from, to, k]`` are
    edges, -1 behind the last one, and ``lengths[kind, from, to, k]`` is 0 where there is no k-th
    route; from and to are places in ``rack.servers``.
    """
    n_kinds = max(1, len(weights))
    n_free = len(rack.servers)
    max_hops = rack.pool.edges.shape[3]
    shape = (n_kinds, n_free, n_free, n_routes)
    table = RouteTable(
        routes=np.full((*shape, max_hops), -1, dtype=np.int32),
        lengths=np.zeros(shape, dtype=np.int16),
    )
    loads = RackLoads(
        n_rack_edges=rack.n_rack_edges,
        loads=rack.loads,
        fibres=rack.fibres,
        servers=rack.servers,
    )
    best = BestRoutes(
        rank=np.empty(n_routes, dtype=np.int64), load=np.empty(n_routes, dtype=np.int64)
    )
    for kind, weight in enumerate(weights.tolist()):
        table_of_kind = RouteTable(table.routes[kind], table.lengths[kind])
        offer_routes(rack.pool, loads, weight, table_of_kind, best)
    return table


def _drop_full_routes(
    routes: NDArray[np.int32],
    lengths: NDArray[np.int16],
    room_of_edge: NDArray[np.int64],
    weight: int,
) -> None:
    """Remove the routes without room for `weight` circuits, in place; the others move up.

    ``routes[server, server, place, hop]`` is an edge or -1, ``lengths[server, server, place]`` 0
    where there is no route. ``room_of_edge[edge]`` is how many circuits still fit there.
    """
    # A route is kept if each of its edges has room. Entries of -1, for no edge, read the last
    # entry of `is_open`, which is true.
    is_open = np.append(room_of_edge >= weight, True)
    is_kept = is_open[routes].all(axis=3) & (lengths > 0)

    # A stable sort moves the kept routes of each two servers to the front.
    order = np.argsort(~is_kept, axis=2, kind="stable")
    lengths[:] = np.take_along_axis(np.where(is_kept, lengths, 0), order, axis=2)
    routes[:] = np.take_along_axis(routes, order[..., None], axis=2)


def _tell_mirrors_apart(plan: SliceShape) -> NDArray[np.int64]:
    """List for each slot the slots that must have smaller servers (symmetry breaking).

    If all servers of a slice are full, a torus looks the same from each slot, so slot 0 may have
    the smallest server. It also looks the same in the mirror of each axis, so the neighbour of
    slot 0 up an axis may have a smaller server than the one down, unless the torus is twisted. The
    result is ``smaller_slots[slot, k]``, -1 behind the last one.

    Example: four slots along x alone. Slot 0 has the smallest server, and slot 1 a smaller one
    than slot 3.
    """
    smaller_slots: list[list[int]] = [[] for _ in range(plan.n_slots)]
    ports_of_slot = np.unique(plan.circuits[:, :2], axis=0)[:, 0]
    chips_per_slot = np.bincount(ports_of_slot, minlength=plan.n_slots)
    all_alike = len(set(chips_per_slot.tolist())) == 1
    if not all_alike:
        return _as_table(smaller_slots)

    # Slots are numbered x fastest, so the neighbour of slot 0 up an axis is `stride`, and the one
    # down is the last slot of that axis. With two slots along an axis both are the same.
    for slot in range(1, plan.n_slots):
        smaller_slots[slot].append(0)
    stride = 1
    for side in plan.grid:
        if side > 2 and not plan.twisted:
            neighbour_up = stride
            neighbour_down = (side - 1) * stride
            smaller_slots[neighbour_down].append(neighbour_up)
        stride *= side
    return _as_table(smaller_slots)


def _edges_by_server(rack: Rack, end: int) -> NDArray[np.int64]:
    """List the edges that leave each free server (end 0) or arrive there (end 1), padded by -1.

    ``table[server, k]`` is the k-th edge of a free server, counted in ``rack.servers``. With edges
    0-1, 1-0 and 0-2 and the servers 0 and 1 free, the rows of edges that leave are (0, 2) and (1,
    -1).
    """
    n_nodes = 1 + int(max(rack.edges.max(initial=0), rack.servers.max(initial=0)))
    place_of_node = np.full(n_nodes, -1)
    place_of_node[rack.servers] = np.arange(len(rack.servers))

    # Edges in the order of their servers; those of nodes that are no free servers come first.
    place_of_edge = place_of_node[rack.edges[:, end]]
    n_others = int((place_of_edge < 0).sum())
    edges = np.argsort(place_of_edge, kind="stable")[n_others:]
    places = place_of_edge[edges]
    n_edges_of_place = np.bincount(places, minlength=len(rack.servers))

    # Each edge goes to the row of its server, and to the column of its rank among its edges.
    first_of_place = np.cumsum(n_edges_of_place) - n_edges_of_place
    column = np.arange(len(edges)) - np.repeat(first_of_place, n_edges_of_place)
    width = max(1, int(n_edges_of_place.max(initial=0)))
    table = np.full((len(rack.servers), width), -1, dtype=np.int64)
    table[places, column] = edges
    return table


def _as_table(rows: list[list[int]]) -> NDArray[np.int64]:
    """Return rows of different lengths as a table, with -1 behind the end of each."""
    width = max([1, *map(len, rows)])
    table = np.full((len(rows), width), -1, dtype=np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table
