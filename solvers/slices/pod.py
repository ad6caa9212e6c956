"""The state of racks that slices come to and leave, and three rules to place the next one.

A slice is a torus of chips: its *slots* lie on a server each, and *pairs* of slots are joined by
circuits over *edges*, bundles of fibres between servers. A *plan* is a slice turned in one way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import RackFabric
from optmatch.model import check_time
from optmatch.problems import Allocation, SliceAllocation, SliceShape
from optmatch.problems.slices.problem import connect
from optmatch.problems.slices.server_routes import pool_routes
from optmatch.problems.slices.shape import Shape, cut_shape, orient
from optmatch.solvers.slices.kernels import EXHAUSTED, FOUND
from optmatch.solvers.slices.search import Placement, Rack, SliceSearch

NODES = 1000
"""The steps that a scheduler looks at for each largest load in one rack and each start."""

TURNS = 6
"""The number of starts of a search, each from other servers: one that starts badly stays bad."""

_BLOCKS_OF_A_PLAN = 4
"""How many free blocks of a turned slice are tried; the first nearly always has its routes."""

_NODES_OF_A_PAIR = 10
"""The budget for each pair of slots of a slice that is spread over racks, `NODES` at least."""

_MOST_SPREAD_SLOTS = 16
"""Larger slices are not spread over racks where light passes no server: few routes fit there."""


class Block(NamedTuple):
    """A block of free servers on which a slice may lie."""

    plan: SliceShape
    """The slice as it is turned."""
    racks: tuple[int, ...]
    """The racks over which it lies."""
    servers: NDArray[np.int64]
    """``servers[slot]``, counted rack by rack from the first one of `racks`."""


class Pod:
    """Racks with the slices that lie in them now.

    Methods that place a slice take `plans`: its slots and circuits, for each way to turn it.

    Parameters
    ----------
    fabric
        The racks.
    reserved
        Servers that are kept out.
    routes
        How many routes are offered to each pair; see `SliceAllocation`.

    Attributes
    ----------
    servers, edges
        How many servers and edges one rack has.
    free
        ``free[server]``: whether a slice can take it.
    lit
        ``lit[fibre]``: whether a slice has it.
    loads
        ``loads[edge]``: how many circuits it carries.
    changes
        ``changes[rack]``: how often slices have come to it or left it.

    Examples
    --------
    >>> pod = Pod(RackFabric())
    >>> slice_ = pod.allocate((2, 2, 4), "first-fit")
    >>> slice_.servers.tolist(), int(pod.free.sum())
    ([0, 4, 8, 12], 12)
    >>> pod.remove(slice_)
    >>> int(pod.free.sum())
    16
    """

    def __init__(
        self, fabric: RackFabric, *, reserved: tuple[int, ...] = (), routes: int = 5
    ) -> None:
        """Begin with empty racks."""
        self.fabric: RackFabric = fabric
        self.routes: int = routes
        self.servers: int = fabric.n_servers // fabric.racks
        self.edges: int = len(fabric.edges) // fabric.racks
        self.free: NDArray[np.bool_] = np.ones(fabric.n_servers, dtype=np.bool_)
        self.free[list(reserved)] = False
        self.lit: NDArray[np.bool_] = np.zeros(fabric.n_fibres, dtype=np.bool_)
        self.loads: NDArray[np.int64] = np.zeros(len(fabric.edges), dtype=np.int64)
        self.changes: NDArray[np.int64] = np.zeros(fabric.racks, dtype=np.int64)
        self._fibres_of_edge = fabric.edge_fibres.astype(np.int64)
        self._known_to_fit = dict[tuple[Shape, bytes], bool]()

    @classmethod
    def of(cls, problem: SliceAllocation) -> Pod:
        """Return the pod that a problem asks about."""
        pod = cls(problem.fabric, reserved=problem.reserved, routes=problem.routes)
        for slice_ in problem.placed:
            pod.add(slice_)
        return pod

    def add(self, slice_: Allocation) -> None:
        """Take a slice into the state: its servers are taken, its fibres lit."""
        self.free[slice_.servers] = False
        self.lit[slice_.fibres[:, 1]] = True
        self._count_circuits(slice_, 1)

    def remove(self, slice_: Allocation) -> None:
        """Remove a slice from the state: its servers are free, its fibres dark."""
        self.free[slice_.servers] = True
        self.lit[slice_.fibres[:, 1]] = False
        self._count_circuits(slice_, -1)

    def _count_circuits(self, slice_: Allocation, sign: int) -> None:
        """Add `sign` times the circuits of a slice to the loads of edges, and count the change."""
        self.changes[np.unique(slice_.servers // self.servers)] += 1
        np.add.at(self.loads, self.fabric.edge_of_fibre[slice_.fibres[:, 1]], sign)

    def allocate(self, shape: Shape, rule: str, *, twisted: bool = False) -> Allocation | None:
        """Place a slice by a rule, and take it into the state; None if the rule finds nothing.

        `shape` is its chips along x, y and z; it may be turned.
        ``"first-fit"`` takes the first free block, each side aligned to its own length.
        ``"optical"`` takes the fullest rack that can hold the slice, on such a block, else on
        scattered servers. In joined racks a block may also be of whole racks, and ``"optical"``
        spreads a slice that no rack can hold over the fewest racks that have the servers.
        """
        turned_shapes = orient(self.fabric, shape)
        plans = [cut_shape(turned, self.fabric.server, twisted) for turned in turned_shapes]
        if rule == "optical":
            placements = self._place_anywhere(plans)
        else:
            placements = self._join_blocks(self._free_blocks(plans, fullest_first=False))
        for plan, placement in placements:
            slice_ = connect(self.fabric, self.lit, plan, placement.servers, placement.routes)
            self.add(slice_)
            return slice_
        return None

    def _place_anywhere(self, plans: list[SliceShape]) -> Iterator[tuple[SliceShape, Placement]]:
        """List placements by the rule ``"optical"``, the best first, each searched on demand."""
        blocks = self._free_blocks(plans, fullest_first=True)
        blocks_of_racks = defaultdict[tuple[int, ...], list[Block]](list)
        for block in blocks:
            blocks_of_racks[block.racks].append(block)

        # In each rack that has the servers: on a block, else scattered.
        for rack in self.fullest_first(plans):
            yield from self._join_blocks(blocks_of_racks[rack,])
            yield from self._scatter_all((rack,), plans)

        # On several racks: on a block of whole ones, else scattered.
        yield from self._join_blocks(block for block in blocks if len(block.racks) > 1)
        if plans and (self.fabric.through or plans[0].n_slots <= _MOST_SPREAD_SLOTS):
            for racks in self.spreads(plans):
                yield from self._scatter_all(racks, plans, nodes_of_a_pair=_NODES_OF_A_PAIR)

    def _join_blocks(self, blocks: Iterable[Block]) -> Iterator[tuple[SliceShape, Placement]]:
        """List the blocks whose servers can be joined by circuits."""
        for block in blocks:
            placement = self.join(block.plan, block.racks, block.servers)
            if placement is not None:
                yield block.plan, placement

    def _scatter_all(
        self, racks: tuple[int, ...], plans: list[SliceShape], *, nodes_of_a_pair: int = 0
    ) -> Iterator[tuple[SliceShape, Placement]]:
        """List placements on scattered servers of some racks, one for each turned slice.

        A search has ``nodes_of_a_pair`` nodes for each pair of slots, at least `NODES` in all.
        """
        for plan in tell_apart(plans):
            budget = max(NODES, nodes_of_a_pair * len(plan.pairs))
            placement = self.scatter(racks, plan, budget)
            if placement is not None:
                yield plan, placement

    def fullest_first(self, plans: list[SliceShape]) -> list[int]:
        """List the racks with enough free servers, those with the fewest first."""
        n_free = self._free_by_rack()
        n_slots = plans[0].n_slots if plans else self.servers + 1
        order = np.argsort(n_free, kind="stable")
        return [int(rack) for rack in order if n_free[rack] >= n_slots]

    def _free_by_rack(self) -> NDArray[np.int64]:
        """Count the free servers of each rack."""
        count: NDArray[np.int64] = self.free.reshape(self.fabric.racks, -1).sum(axis=1)
        return count

    def carries(self, plan: SliceShape) -> bool:
        """Tell whether a block of an empty rack has the fibres of a slice.

        All racks are alike, so that the first aligned block of rack 0 is asked. Answers are kept.
        """
        key = (plan.grid, plan.pairs.tobytes() + plan.weights.tobytes())
        if key not in self._known_to_fit:
            blocks = aligned_blocks(self.fabric.server_grid, plan.grid)
            fits = False
            if len(blocks):
                empty = Pod(self.fabric, routes=self.routes)
                fits = empty.join(plan, (0,), blocks[0]) is not None
            self._known_to_fit[key] = fits
        return self._known_to_fit[key]

    def holds(self, server: int, plans: list[SliceShape]) -> bool:
        """Tell whether a slice of one of `plans` could lie on this free server of joined racks.

        Only a part of all placements is tried: False if none is found within the budget.
        """
        # The rack of the server comes first, by a rank that no other has, and then the emptiest
        # ones, until there are twice as many servers as the slice needs.
        n_free = self._free_by_rack()
        home = server // self.servers
        rank = n_free.copy()
        rank[home] = self.servers + 1
        order = np.argsort(-rank, kind="stable")
        n_reached = np.cumsum(n_free[order])
        n_racks = int(np.searchsorted(n_reached, 2 * plans[0].n_slots)) + 1
        racks = [rack for rack in order[:n_racks].tolist() if n_free[rack]]

        # A search begins with the first server of its list, which is this one. The order of the
        # others is turned a few times, as a search that begins badly does not end in time. No load
        # is too large: edges may carry as much as they have fibres.
        rack = self.rack(*racks)
        server_in_rack = server % self.servers
        other_servers = rack.servers[rack.servers != server_in_rack]
        any_load = int(rack.fibres.max(initial=0))
        for turn, plan in product(range(TURNS), tell_apart(plans)):
            turned = np.roll(other_servers, turn * len(other_servers) // TURNS)
            from_server = rack._replace(servers=np.append(server_in_rack, turned))
            search = SliceSearch(from_server, plan, self.routes, any_load)
            if search.run(NODES) == FOUND and server_in_rack in search.answer().servers:
                return True
        return False

    def spreads(self, plans: list[SliceShape]) -> Iterator[tuple[int, ...]]:
        """List at most two sets of joined racks that have enough free servers for a slice.

        `plans` are the ways to turn one slice, all of equally many slots. Example: 12 servers are
        needed, racks have 8, 6 and 5 free ones. First come as few racks as will do: the emptiest
        (8), and the fullest one that has the other 4 (5). Then come the emptiest racks with twice
        as many free servers as are needed, as these leave more routes.
        """
        n_free = self._free_by_rack()
        n_slots = plans[0].n_slots if plans else 0
        if not self.fabric.joined or not n_slots or n_free.sum() < n_slots:
            return

        # `n_reached[k]` are the free servers of the k + 1 emptiest racks.
        emptiest = np.argsort(-n_free, kind="stable")
        n_reached = np.cumsum(n_free[emptiest])

        # The first set: the emptiest racks that are not enough, and one more for the rest. If one
        # rack is enough, slices in a single rack are found elsewhere.
        n_before_last = int(np.searchsorted(n_reached, n_slots))
        if n_before_last:
            n_missing = n_slots - int(n_reached[n_before_last - 1])
            other_racks = emptiest[n_before_last:]
            fullest_that_does = other_racks[n_free[other_racks] >= n_missing][-1]
            yield (*emptiest[:n_before_last].tolist(), int(fullest_that_does))

        # The second set. Where light passes no server, a ring through three racks needs them all.
        n_racks = int(np.searchsorted(n_reached, 2 * n_slots)) + 1
        if not self.fabric.through:
            n_racks = max(3, n_racks)
        yield tuple(rack for rack in emptiest[:n_racks].tolist() if n_free[rack])

    def rack(self, *numbers: int) -> Rack:
        """Return the arrays of a rack for a search, or of joined racks as if they were one."""
        racks = np.array(numbers)
        by_rack = (self.fabric.racks, -1)
        return Rack(
            pool=pool_routes(self.fabric),
            n_rack_edges=self.edges,
            edges=_ends_of_edges(self.fabric, len(numbers)),
            fibres=self._fibres_of_edge.reshape(by_rack)[racks].ravel(),
            loads=self.loads.reshape(by_rack)[racks].ravel(),
            servers=np.flatnonzero(self.free.reshape(by_rack)[racks]),
        )

    def join(
        self, plan: SliceShape, racks: tuple[int, ...], block: NDArray[np.int64]
    ) -> Placement | None:
        """Find routes between given servers; None if none are found within the budget.

        The servers are ``block[slot]``, counted rack by rack from the first one of `racks`.
        """
        if not self.fabric.through:
            return self._join_directly(plan, self._all_servers(racks, block))
        rack = self.rack(*racks)
        places = np.searchsorted(rack.servers, block)
        any_load = int(rack.fibres.max(initial=0))
        search = SliceSearch(rack, plan, self.routes, any_load, places)
        if search.run(NODES * len(racks)) != FOUND:
            return None
        return self.globally(racks, search.answer())

    def _join_directly(self, plan: SliceShape, servers: NDArray[np.int64]) -> Placement | None:
        """Find routes where light passes no server: an edge between two, or one switch between.

        Each pair takes the first route with room (greedy); None if some pair has none. `servers`
        are numbered in the whole pod.
        """
        edge_between, switches_of_server = _direct_edges(self.fabric)
        room_of_edge = (self._fibres_of_edge - self.loads).tolist()
        routes = []
        ends_of_pair = servers[plan.pairs].tolist()
        for (source, destination), weight in zip(ends_of_pair, plan.weights.tolist(), strict=True):
            by_switch = [(source, switch, destination) for switch in switches_of_server[source]]

            # Edge by edge: -1 where no edge joins two nodes. If no route has room, there is no
            # placement.
            for nodes in [(source, destination), *by_switch]:
                route = [edge_between.get(step, -1) for step in pairwise(nodes)]
                if -1 not in route and all(room_of_edge[edge] >= weight for edge in route):
                    break
            else:
                return None
            for edge in route:
                room_of_edge[edge] -= weight
            routes.append(np.array(route))
        return Placement(servers, routes)

    def scatter(self, racks: tuple[int, ...], plan: SliceShape, budget: int) -> Placement | None:
        """Find servers and routes anywhere in racks, first for the least conceivable load.

        `budget` is the most nodes for each load and each start; None if nothing is found within
        it.
        """
        # A start is the list of free servers, turned by a sixth for each of `TURNS` starts.
        rack = self.rack(*racks)
        for largest_load in loads_possible(rack, plan):
            for turn in range(TURNS):
                check_time()
                turned = np.roll(rack.servers, turn * len(rack.servers) // TURNS)
                search = SliceSearch(
                    rack._replace(servers=turned), plan, self.routes, largest_load
                )
                status = search.run(budget)
                if status == FOUND:
                    return self.globally(racks, search.answer())
                if status == EXHAUSTED:
                    break  # no start finds anything under this load
        return None

    def globally(self, racks: Sequence[int], placement: Placement) -> Placement:
        """Renumber the servers and edges of a placement from the racks of a search to the pod.

        The k-th rack of a search is rack ``racks[k]`` of the pod, so that its numbers are those of
        ``racks[k] - k`` racks higher. With the racks 2 and 5 of 16 servers each, server 17 of the
        search, server 1 of rack 1, is number 17 + 4 * 16 = 81 of the pod.
        """
        extra_racks = np.array(racks, dtype=np.int64) - np.arange(len(racks))
        routes = [
            route + extra_racks[route // self.edges] * self.edges for route in placement.routes
        ]
        return Placement(self._all_servers(racks, placement.servers), routes)

    def _all_servers(self, racks: Sequence[int], servers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Renumber servers from the racks that were searched to the whole pod; see `globally`."""
        extra_racks = np.array(racks, dtype=np.int64) - np.arange(len(racks))
        return servers + extra_racks[servers // self.servers] * self.servers

    def _free_blocks(self, plans: list[SliceShape], *, fullest_first: bool) -> list[Block]:
        """List boxes of free servers on which a slice may lie, the best ones first.

        First come aligned boxes within one rack, the best `_BLOCKS_OF_A_PLAN` for each way to turn
        the slice. They are in the order of racks; with `fullest_first`, the rack with the fewest
        free servers comes first. Boxes of whole empty racks follow, if racks are joined.
        """
        # ``is_free[rack, server]``, and ``n_free[rack]``: its free servers, or 0 if these do not
        # count for the order. Blocks are ranked by the key (n_free, rack, way to turn, number of
        # the block in its rack).
        is_free = self.free.reshape(self.fabric.racks, -1)
        n_free = self._free_by_rack() if fullest_first else np.zeros(self.fabric.racks, np.int64)
        ranked: list[tuple[tuple[int, ...], Block]] = []
        for turn, plan in enumerate(plans):
            blocks = aligned_blocks(self.fabric.server_grid, plan.grid)
            if not len(blocks):
                continue

            # ``blocks[box, slot]`` are servers of a rack: boxes of which all servers are free, by
            # rack and number of the box in it. The first ones are taken: by free servers of the
            # rack, then by rack, then by box (`lexsort` sorts by the last array first).
            racks, boxes = np.nonzero(is_free[:, blocks].all(axis=2))
            order = np.lexsort((boxes, racks, n_free[racks]))
            for place in order[:_BLOCKS_OF_A_PLAN].tolist():
                rack = int(racks[place])
                box = int(boxes[place])
                block = Block(plan, (rack,), blocks[box])
                ranked.append(((int(n_free[rack]), rack, turn, box), block))
        ranked.sort(key=lambda entry: entry[0])
        free_blocks = [block for _, block in ranked]

        # Boxes of two and more whole racks: ``servers[slot]``, of `self.servers` in each rack.
        empty_racks = np.flatnonzero(is_free.all(axis=1))
        for plan in plans if self.fabric.joined else ():
            servers = whole_racks(self.fabric.server_grid, plan.grid)
            n_racks = len(servers) // self.servers
            if 1 < n_racks <= len(empty_racks):
                free_blocks.append(Block(plan, tuple(empty_racks[:n_racks].tolist()), servers))
        return free_blocks


@lru_cache(maxsize=64)
def aligned_blocks(server_grid: Shape, grid: Shape) -> NDArray[np.int64]:
    """List the blocks of a rack's servers whose corner is a multiple of their sides.

    `server_grid` is the servers of a rack along x, y and z, and `grid` those of a block. The
    result is ``blocks[block, slot] = server``; blocks, slots and servers are numbered x fastest.

    Example: a rack of 4 x 2 x 2 servers has four blocks of 2 x 2 x 1: two along x, and two along
    z.
    """
    n_x, n_y, _ = server_grid
    corners_x, corners_y, corners_z = (
        range(0, most - side + 1, side) for most, side in zip(server_grid, grid, strict=True)
    )
    slots = list(product(range(grid[2]), range(grid[1]), range(grid[0])))
    blocks = [
        [corner_x + x + n_x * (corner_y + y + n_y * (corner_z + z)) for z, y, x in slots]
        for corner_z, corner_y, corner_x in product(corners_z, corners_y, corners_x)
    ]
    return np.array(blocks, dtype=np.int64).reshape(-1, len(slots))


@lru_cache(maxsize=64)
def whole_racks(server_grid: Shape, grid: Shape) -> NDArray[np.int64]:
    """Return the server of each slot of a slice that fills whole racks; empty if none can.

    `server_grid` is the servers of a rack, and `grid` the slots of the slice, along x, y and z.
    Servers count rack by rack; slots, and the racks of the slice, x fastest. Example: with racks
    of 2 x 2 x 2 servers and a slice of 4 x 2 x 2, slots with x = 0 and 1 are in rack 0, others in
    rack 1.
    """
    if any(side % part for side, part in zip(grid, server_grid, strict=True)):
        return np.empty(0, dtype=np.int64)
    n_x, n_y, n_z = server_grid
    racks_x = grid[0] // n_x
    racks_y = grid[1] // n_y

    # The place of each slot, then the number of its rack, and that of the server in the rack.
    z, y, x = (axis.ravel() for axis in np.indices(grid[::-1]))
    rack = x // n_x + racks_x * (y // n_y + racks_y * (z // n_z))
    server_in_rack = x % n_x + n_x * (y % n_y + n_y * (z % n_z))
    block: NDArray[np.int64] = rack * (n_x * n_y * n_z) + server_in_rack
    return block


@lru_cache(maxsize=64)
def _ends_of_edges(fabric: RackFabric, n_racks: int) -> NDArray[np.int64]:
    """Return the ends of the edges of joined racks: servers rack by rack, then shared switches.

    The shape is (edges, 2). Racks are alike: with 16 servers and no switches, the edge 3-5 of a
    rack is 19-21 in the second one.
    """
    n_edges = len(fabric.edges) // fabric.racks
    n_servers = fabric.n_servers // fabric.racks
    ends_in_rack = fabric.edges[:n_edges].astype(np.int64)
    is_switch = ends_in_rack >= n_servers
    ends_in_rack[is_switch] += n_racks * n_servers - fabric.n_servers
    ends = np.tile(ends_in_rack, (n_racks, 1))
    first_server = np.repeat(np.arange(n_racks), n_edges)[:, None] * n_servers
    return np.where(np.tile(is_switch, (n_racks, 1)), ends, ends + first_server)


@lru_cache(maxsize=8)
def _direct_edges(fabric: RackFabric) -> tuple[dict[tuple[int, int], int], list[list[int]]]:
    """Index the edges of racks where light passes no server.

    Returns ``edge_between[source, destination]``, and by server the switches to which its edges
    lead. Nodes are servers, then switches.
    """
    edge_between = {}
    switches_of_server: list[list[int]] = [[] for _ in range(fabric.n_servers)]
    for edge, (source, destination) in enumerate(fabric.edges.tolist()):
        edge_between[source, destination] = edge
        if destination >= fabric.n_servers:
            switches_of_server[source].append(destination)
    return edge_between, switches_of_server


def loads_possible(rack: Rack, plan: SliceShape) -> list[int]:
    """List the largest loads that a slice can have in a rack, ascending; ``[0]`` without circuits.

    A slice adds a multiple of the common divisor of its weights to an edge, and its largest weight
    at least to one of them. Circuits of earlier slices count.

    Example: weights of 4 and 8, and edges of 16 fibres with 0 and 3 circuits. The loads are 8, 12
    and 16, and 11 and 15; 4 and 7 are less than the largest weight.
    """
    if not len(plan.pairs):
        return [0]
    step = int(np.gcd.reduce(plan.weights))
    has_room = rack.fibres - rack.loads >= step
    edges = zip(rack.loads[has_room].tolist(), rack.fibres[has_room].tolist(), strict=True)
    loads = {
        load + added
        for load, fibres in set(edges)
        for added in range(step, fibres - load + 1, step)
    }
    return sorted(load for load in loads if load >= int(plan.weights.max()))


def tell_apart(plans: list[SliceShape]) -> list[SliceShape]:
    """Keep the first of the turned slices whose graphs of slots and circuits are isomorphic.

    `plans` are all ways to turn one slice. A ring of four slots has the graph of a square of two
    by two. Where all pairs have equally many circuits, the order of the sides makes no difference
    either.
    """
    plan_of_graph: dict[tuple[int, ...], SliceShape] = {}
    for plan in plans:
        weights = set(plan.weights.tolist())
        if len(weights) == 1 and not plan.twisted:
            sides: list[int] = []
            for side in plan.grid:
                if side == 4:
                    sides += [2, 2]
                elif side > 1:
                    sides.append(side)
            graph = (*weights, *sorted(sides))
        else:
            graph = (0, *plan.shape)
        plan_of_graph.setdefault(graph, plan)
    return list(plan_of_graph.values())
