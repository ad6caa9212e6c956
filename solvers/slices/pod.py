"""The state of racks that slices come to and leave, and three rules to place the next one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, product

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
"""A scheduler looks at so many steps for each largest load in one rack and each start."""

_MOST_SPREAD = 16  # slots, where light passes no server
TURNS = 6
"""The number of starts that are tried."""

Option = tuple[SliceShape, tuple[int, ...], NDArray[np.int64]]
"""Where a slice may lie: as it is turned, in which racks, on which servers counted from the first
of them."""


class Pod:
    """Racks with the slices that lie in them now.

    Parameters
    ----------
    fabric
        The racks.
    reserved
        Servers that are kept out.
    routes
        How many routes are offered to each pair; see `SliceAllocation`.

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
        self.fabric: RackFabric = fabric
        self.routes: int = routes
        self.servers: int = fabric.n_servers // fabric.racks
        self.edges: int = len(fabric.edges) // fabric.racks
        self.free: NDArray[np.bool_] = np.ones(fabric.n_servers, dtype=np.bool_)
        self.free[list(reserved)] = False
        self.lit: NDArray[np.bool_] = np.zeros(fabric.n_fibres, dtype=np.bool_)
        self.loads: NDArray[np.int64] = np.zeros(len(fabric.edges), dtype=np.int64)
        self.changes: NDArray[np.int64] = np.zeros(fabric.racks, dtype=np.int64)
        self._fibres = fabric.edge_fibres.astype(np.int64)
        self._carried = dict[tuple[Shape, bytes], bool]()

    @classmethod
    def of(cls, problem: SliceAllocation) -> Pod:
        """Return the pod that a problem asks about."""
        pod = cls(problem.fabric, reserved=problem.reserved, routes=problem.routes)
        for slice_ in problem.placed:
            pod.add(slice_)
        return pod

    def add(self, slice_: Allocation) -> None:
        """Note a slice that has been placed."""
        self._change(slice_, 1)

    def remove(self, slice_: Allocation) -> None:
        """Note that a slice has gone."""
        self._change(slice_, -1)

    def _change(self, slice_: Allocation, by: int) -> None:
        self.free[slice_.servers] = by < 0
        self.changes[np.unique(slice_.servers // self.servers)] += 1
        self.lit[slice_.fibres[:, 1]] = by > 0
        np.add.at(self.loads, self.fabric.edge_of_fibre[slice_.fibres[:, 1]], by)

    def allocate(self, shape: Shape, rule: str, *, twisted: bool = False) -> Allocation | None:
        """Place a slice by a rule, and note it.

        Parameters
        ----------
        shape
            Chips along x, y and z.
        rule
            ``"first-fit"``: the first free block, each side aligned to its own length;
            ``"optical"``: the fullest rack that can hold the slice, on such a block if one is
            free, else on scattered servers joined by circuits. In racks that are joined a block
            may also be of whole racks, and ``"optical"``, if no rack has the servers, spreads the
            slice over the fewest racks that have them.
        twisted
            Whether the torus is twisted; see `SliceAllocation`.

        Returns
        -------
        Allocation or None
            None if the rule finds nothing.
        """
        turned = orient(self.fabric, shape)
        plans = [cut_shape(sides, self.fabric.server, twisted) for sides in turned]
        for plan, found in self._placements(plans, rule):
            slice_ = connect(self.fabric, self.lit, plan, found.servers, found.routes)
            self.add(slice_)
            return slice_
        return None

    def _placements(
        self, plans: list[SliceShape], rule: str
    ) -> Iterator[tuple[SliceShape, Placement]]:
        blocks = self._blocks(plans, fullest=rule == "optical")
        block = next(blocks, None)
        for rack in self.fullest_first(plans) if rule == "optical" else ():
            while block is not None and block[1] == (rack,):
                found = self.join(*block)
                if found is not None:
                    yield block[0], found
                block = next(blocks, None)
            for plan in tell_apart(plans):
                found = self.scatter((rack,), plan, NODES)
                if found is not None:
                    yield plan, found
        while block is not None:
            found = self.join(*block)
            if found is not None:
                yield block[0], found
            block = next(blocks, None)
        scattered = self.fabric.through or (plans and plans[0].n_slots <= _MOST_SPREAD)
        for racks in self.spreads(plans) if rule == "optical" and scattered else ():
            for plan in tell_apart(plans):
                found = self.scatter(racks, plan, max(NODES, 10 * len(plan.pairs)))
                if found is not None:
                    yield plan, found

    def fullest_first(self, plans: list[SliceShape]) -> list[int]:
        """List the racks with enough free servers, those with the fewest first."""
        counts = self.free.reshape(self.fabric.racks, -1).sum(axis=1)
        slots = plans[0].n_slots if plans else self.servers + 1
        order = np.argsort(counts, kind="stable")
        return [int(rack) for rack in order if counts[rack] >= slots]

    def carries(self, plan: SliceShape) -> bool:
        """Tell whether a block of an empty rack has the fibres that a slice needs."""
        key = plan.grid, plan.pairs.tobytes() + plan.weights.tobytes()
        if key not in self._carried:
            blocks, empty = (
                aligned_blocks(self.fabric.server_grid, plan.grid),
                Pod(self.fabric, routes=self.routes),
            )
            self._carried[key] = len(blocks) > 0 and empty.join(plan, (0,), blocks[0]) is not None
        return self._carried[key]

    def holds(self, server: int, plans: list[SliceShape]) -> bool:
        """Tell whether a slice is found that takes this server of joined racks, at any load."""
        counts = self.free.reshape(self.fabric.racks, -1).sum(axis=1)
        own = server // self.servers
        counts[own] = self.servers + 1  # the server's rack first, then the emptiest
        order = np.argsort(-counts, kind="stable")
        counts[own] = self.free[own * self.servers : (own + 1) * self.servers].sum()
        most = int(np.searchsorted(np.cumsum(counts[order]), 2 * plans[0].n_slots)) + 1
        racks = [rack for rack in order[:most].tolist() if counts[rack]]
        there = self.rack(*racks)
        others = there.servers[there.servers != server % self.servers]
        for turn, plan in product(range(TURNS), tell_apart(plans)):
            turned = np.roll(others, turn * len(others) // TURNS)
            first = there._replace(servers=np.append(server % self.servers, turned))
            search = SliceSearch(first, plan, self.routes, int(there.fibres.max(initial=0)))
            # The search begins with the first server; slices without this server are found late.
            if search.run(NODES) == FOUND and first.servers[0] in search.answer().servers:
                return True
        return False

    def spreads(self, plans: list[SliceShape]) -> Iterator[tuple[int, ...]]:
        """List joined racks that together have enough free servers.

        Choose the emptiest racks, and of those that have room for the rest the fullest: no fewer
        racks do. Then the emptiest ones with twice as many servers as are needed, for more ways;
        three at least where light passes no server, as a ring of three then needs them.
        """
        counts = self.free.reshape(self.fabric.racks, -1).sum(axis=1)
        slots = plans[0].n_slots if plans else 0
        if not self.fabric.joined or not slots or counts.sum() < slots:
            return
        order = np.argsort(-counts, kind="stable")
        held = np.cumsum(counts[order])
        last = int(np.searchsorted(held, slots))
        if last:
            rest = slots - int(held[last - 1])
            others = order[last:]
            yield (*order[:last].tolist(), int(others[counts[others] >= rest][-1]))
        most = max(3 - self.fabric.through, int(np.searchsorted(held, 2 * slots)) + 1)
        yield tuple(rack for rack in order[:most].tolist() if counts[rack])

    def rack(self, *numbers: int) -> Rack:
        """Return the arrays of a rack for a search, or of joined racks as if they were one."""
        racks = np.array(numbers)
        free = self.free.reshape(self.fabric.racks, -1)[racks]
        return Rack(
            pool=pool_routes(self.fabric),
            span=self.edges,
            edges=_ends_of(self.fabric, len(numbers)),
            fibres=self._fibres.reshape(self.fabric.racks, -1)[racks].ravel(),
            loads=self.loads.reshape(self.fabric.racks, -1)[racks].ravel(),
            servers=np.flatnonzero(free),
        )

    def join(
        self, plan: SliceShape, racks: tuple[int, ...], block: NDArray[np.int64]
    ) -> Placement | None:
        """Find routes between servers that are given."""
        if not self.fabric.through:
            return self._join_directly(plan, racks, block)
        there = self.rack(*racks)
        seats = np.searchsorted(there.servers, block)
        search = SliceSearch(there, plan, self.routes, int(there.fibres.max(initial=0)), seats)
        budget = NODES * len(racks)
        return self.globally(racks, search.answer()) if search.run(budget) == FOUND else None

    def _join_directly(
        self, plan: SliceShape, racks: tuple[int, ...], block: NDArray[np.int64]
    ) -> Placement | None:
        """Do the same where light passes no server: there is hardly a choice."""
        servers = (
            block + (np.array(racks)[block // self.servers] - block // self.servers) * self.servers
        )
        number, ahead = _neighbours_of(self.fabric)
        room, routes = (self._fibres - self.loads).tolist(), list[NDArray[np.int64]]()
        ends = servers[plan.pairs].tolist()
        for (tail, head), weight in zip(ends, plan.weights.tolist(), strict=True):
            ways = [(tail, head), *((tail, s, head) for s in ahead[tail])]
            for way in ways:
                route = [number.get(step, -1) for step in pairwise(way)]
                if -1 not in route and all(room[edge] >= weight for edge in route):
                    break
            else:
                return None
            for edge in route:
                room[edge] -= weight
            routes.append(np.array(route))
        return Placement(servers, routes)

    def scatter(self, racks: tuple[int, ...], plan: SliceShape, budget: int) -> Placement | None:
        """Find servers and routes anywhere in racks, first for the least conceivable load."""
        there = self.rack(*racks)
        for largest in loads_possible(there, plan):
            for turn in range(TURNS):  # from other servers: a search that starts badly stays bad
                check_time()
                turned = np.roll(there.servers, turn * len(there.servers) // TURNS)
                search = SliceSearch(there._replace(servers=turned), plan, self.routes, largest)
                status = search.run(budget)
                if status == FOUND:
                    return self.globally(racks, search.answer())
                if status == EXHAUSTED:
                    break
        return None

    def globally(self, racks: Sequence[int], found: Placement) -> Placement:
        """Count servers and edges of an answer from the first of all racks."""
        first = np.array(racks, dtype=np.int64) - np.arange(len(racks))
        routes = [route + first[route // self.edges] * self.edges for route in found.routes]
        return Placement(
            found.servers + first[found.servers // self.servers] * self.servers, routes
        )

    def _blocks(self, plans: list[SliceShape], *, fullest: bool) -> Iterator[Option]:
        """List free aligned blocks, in order or the fullest rack first; then whole racks."""
        free = self.free.reshape(self.fabric.racks, -1)
        options = []
        for turn, plan in enumerate(plans):
            blocks = aligned_blocks(self.fabric.server_grid, plan.grid)
            if not len(blocks):
                continue
            racks, places = np.nonzero(free[:, blocks].all(axis=2))
            left = fullest * free.sum(axis=1)[racks]
            order = np.lexsort((places, racks, left))
            for k in order[:4].tolist():
                key = (int(left[k]), int(racks[k]), turn, int(places[k]))
                options.append((key, plan, int(racks[k]), blocks[places[k]]))
        for _, plan, rack, block in sorted(options, key=lambda option: option[0]):
            yield plan, (rack,), block
        empty = np.flatnonzero(free.all(axis=1))
        for plan in plans if self.fabric.joined else ():
            block = whole_racks(self.fabric.server_grid, plan.grid)
            count = len(block) // self.servers
            if 1 < count <= len(empty):
                yield plan, tuple(empty[:count].tolist()), block


@lru_cache(maxsize=64)
def aligned_blocks(servers: Shape, grid: Shape) -> NDArray[np.int64]:
    """List the blocks of servers whose corner is a multiple of their sides.

    Returns ``blocks[block, slot] = server``, blocks and slots x fastest.
    """
    corners = [range(0, most - side + 1, side) for most, side in zip(servers, grid, strict=True)]
    blocks = [
        [
            x + dx + servers[0] * (y + dy + servers[1] * (z + dz))
            for dz, dy, dx in product(*map(range, reversed(grid)))
        ]
        for z, y, x in product(*reversed(corners))
    ]
    return np.array(blocks, dtype=np.int64).reshape(-1, int(np.prod(grid)))


@lru_cache(maxsize=64)
def whole_racks(servers: Shape, grid: Shape) -> NDArray[np.int64]:
    """Lay a block out on whole racks; empty if its sides are no multiples of a rack's.

    Returns ``block[slot] = server``, counted rack by rack; racks and slots x fastest.
    """
    if any(side % part for side, part in zip(grid, servers, strict=True)):
        return np.empty(0, dtype=np.int64)
    racks = [side // part for side, part in zip(grid, servers, strict=True)]
    z, y, x = (places.ravel() for places in np.indices(grid[::-1]))
    rack = x // servers[0] + racks[0] * (y // servers[1] + racks[1] * (z // servers[2]))
    inside = x % servers[0] + servers[0] * (y % servers[1] + servers[1] * (z % servers[2]))
    block: NDArray[np.int64] = rack * int(np.prod(servers)) + inside
    return block


@lru_cache(maxsize=64)
def _ends_of(fabric: RackFabric, racks: int) -> NDArray[np.int64]:
    """Return the edges of so many racks: servers rack by rack, then the shared switches."""
    count, servers = len(fabric.edges) // fabric.racks, fabric.n_servers // fabric.racks
    ends = fabric.edges[:count].astype(np.int64)
    switch = ends >= servers
    ends[switch] += racks * servers - fabric.n_servers
    many = np.tile(ends, (racks, 1))
    shift = np.repeat(np.arange(racks), count)[:, None] * servers
    return np.where(np.tile(switch, (racks, 1)), many, many + shift)


@lru_cache(maxsize=8)
def _neighbours_of(fabric: RackFabric) -> tuple[dict[tuple[int, int], int], list[list[int]]]:
    """Return the number of each edge, and the switches that each server has."""
    number = {(u, v): edge for edge, (u, v) in enumerate(fabric.edges.tolist())}
    switches: list[list[int]] = [[] for _ in range(fabric.n_servers)]
    for u, v in number:
        if v >= fabric.n_servers:
            switches[u].append(v)
    return number, switches


def loads_possible(rack: Rack, plan: SliceShape) -> list[int]:
    """List the largest loads that a slice can have in a rack, ascending."""
    if not len(plan.pairs):
        return [0]
    step = int(np.gcd.reduce(plan.weights))
    open_ = rack.fibres - rack.loads >= step
    loads, most = rack.loads[open_], rack.fibres[open_]
    values = {
        load + k
        for load, limit in set(zip(loads.tolist(), most.tolist(), strict=True))
        for k in range(step, limit - load + 1, step)
    }
    return sorted(value for value in values if value >= int(plan.weights.max()))


def tell_apart(plans: list[SliceShape]) -> list[SliceShape]:
    """Drop turned slices whose slots are joined as those of another one.

    A ring of four slots is a square of two by two; where all pairs have equally many circuits,
    only the other sides count.
    """
    kept: dict[tuple[int, ...], SliceShape] = {}
    for plan in plans:
        weights = set(plan.weights.tolist())
        sides = [part for side in plan.grid for part in ((2, 2) if side == 4 else (side,))]
        key = (*weights, *sorted(side for side in sides if side > 1))
        alike = len(weights) == 1 and not plan.twisted
        kept.setdefault(key if alike else (0, *plan.shape), plan)
    return list(kept.values())
