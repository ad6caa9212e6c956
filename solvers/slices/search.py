"""The search for a slice in a rack, or in joined ones, which can be interrupted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.slices.server_routes import RoutePool
from optmatch.problems.slices.shape import SliceShape
from optmatch.solvers.slices.kernels import PlacementTask, offer, search


class Rack(NamedTuple):
    """One rack with its load, or several joined ones; servers and edges counted rack by rack."""

    pool: RoutePool
    span: int  # edges of a rack
    edges: NDArray[np.int64]  # ``edges[edge] = node, node``: servers, then switches
    fibres: NDArray[np.int64]
    loads: NDArray[np.int64]
    servers: NDArray[np.int64]  # free servers


class Placement(NamedTuple):
    """Where a slice lies: ``servers[slot]``, and the edges of each pair's route."""

    servers: NDArray[np.int64]
    routes: list[NDArray[np.int64]]


class SliceSearch:
    """A search that can be interrupted and goes on where it was.

    Parameters
    ----------
    seats
        ``seats[slot]``: places in ``rack.servers``, if they are fixed; None to search for them.
    """

    def __init__(
        self,
        rack: Rack,
        plan: SliceShape,
        offered: int,
        largest: int,
        seats: NDArray[np.int64] | None = None,
    ) -> None:
        self.rack, self.plan = rack, plan
        servers, slots = len(rack.servers), plan.n_slots
        sizes, self.kinds = np.unique(plan.weights, return_inverse=True)
        kinds, hops = max(1, len(sizes)), rack.pool.edges.shape[3]
        self.routes = np.full((kinds, servers, servers, offered, hops), -1, dtype=np.int32)
        self.lengths = np.zeros((kinds, servers, servers, offered), dtype=np.int16)
        for kind, size in enumerate(sizes.tolist()):
            offer(
                rack.pool.edges, rack.pool.hops, rack.span, rack.loads, rack.fibres, rack.servers,
                size, self.routes[kind], self.lengths[kind],
            )  # fmt: skip
        self.limit_room = np.minimum(largest, rack.fibres) - rack.loads
        self._drop_what_never_fits(sizes)
        below = _tell_mirrors_apart(plan) if seats is None else np.full((slots, 1), -1)
        mine = _pairs_of(plan)
        steps = _list_steps(mine)
        seat, holder = np.full(slots, -1), np.full(servers, -1)
        owes = np.zeros((slots, 2), dtype=np.int64)
        for end in (0, 1):
            np.add.at(owes[:, end], plan.pairs[:, end], plan.weights)
        if seats is not None:
            steps = steps[steps[:, 1] >= 0]
            seat[:], holder[seats] = seats, np.arange(slots)
        self.task = PlacementTask(
            steps=steps,
            pairs=plan.pairs,
            weights=plan.weights,
            kinds=self.kinds.astype(np.int64),
            below=below,
            mine=_padded(mine),
            routes=self.routes,
            lengths=self.lengths,
            least=self.lengths[:, :, :, 0].astype(np.int64),
            leaving=_edges_by_server(rack, 0),
            arriving=_edges_by_server(rack, 1),
            room=self.limit_room.copy(),
            seat=seat,
            holder=holder,
            owes=owes,
            order=np.zeros((len(steps), servers, 2), dtype=np.int64),
            choice=np.full(len(steps), -1, dtype=np.int64),
            state=np.zeros(2, dtype=np.int64),
        )

    def _drop_what_never_fits(self, sizes: NDArray[np.int32]) -> None:
        """Take away the routes that the largest load closes; the others move up."""
        for kind, size in enumerate(sizes.tolist()):
            routes, lengths = self.routes[kind], self.lengths[kind]
            open_ = np.append(self.limit_room >= size, True)  # -1 names the last: no edge
            kept = open_[routes].all(axis=3) & (lengths > 0)
            order = np.argsort(~kept, axis=2, kind="stable")
            lengths[:] = np.take_along_axis(np.where(kept, lengths, 0), order, axis=2)
            routes[:] = np.take_along_axis(routes, order[..., None], axis=2)

    @property
    def nodes(self) -> int:
        """How many steps were made and taken back."""
        return int(self.task.state[1])

    def run(self, budget: int) -> int:
        """Go on until so many nodes; return FOUND, EXHAUSTED or BUDGET."""
        status: int = search(self.task, budget)
        return status

    def answer(self) -> Placement:
        """Return the slice that was found."""
        routes: list[Any] = [None] * len(self.plan.pairs)
        task = self.task
        for (_, pair), chosen in zip(task.steps.tolist(), task.choice.tolist(), strict=True):
            if pair >= 0:
                u, v = task.seat[self.plan.pairs[pair]]
                kind = self.kinds[pair]
                length = self.lengths[kind, u, v, chosen]
                routes[pair] = self.routes[kind, u, v, chosen, :length].astype(np.int64)
        return Placement(self.rack.servers[task.seat], routes)


def _list_steps(mine: list[list[int]]) -> NDArray[np.int64]:
    """Order slots, and after each its pairs with earlier ones."""
    steps = []
    for slot, pairs in enumerate(mine):
        steps += [(slot, -1), *((-1, pair) for pair in pairs)]
    return np.array(steps, dtype=np.int64)


def _pairs_of(plan: SliceShape) -> list[list[int]]:
    """List for each slot its pairs with earlier ones."""
    pairs: list[list[int]] = [[] for _ in range(plan.n_slots)]
    for pair, (a, b) in enumerate(plan.pairs.tolist()):
        pairs[max(a, b)].append(pair)
    return pairs


def _tell_mirrors_apart(plan: SliceShape) -> NDArray[np.int64]:
    """List for each slot those that may be asked to have smaller servers.

    If servers are full, a torus looks the same from each slot, so slot 0 may have the smallest
    server; and in the mirror, so its neighbour up an axis may have a smaller one than that down
    (which lies elsewhere where the torus is twisted).
    """
    seats = np.unique(plan.circuits[:, :2], axis=0)[:, 0]
    full = len(set(np.bincount(seats, minlength=plan.n_slots).tolist())) == 1
    below: list[list[int]] = [[0] if full and slot else [] for slot in range(plan.n_slots)]
    stride = 1
    for side in plan.grid:
        if full and side > 2 and not plan.twisted:
            below[(side - 1) * stride].append(stride)
        stride *= side
    return _padded(below)


def _edges_by_server(rack: Rack, end: int) -> NDArray[np.int64]:
    """List the edges of each free server that leave it (0) or arrive there (1)."""
    place = np.full(1 + int(rack.edges.max(initial=rack.servers.max(initial=0))), -1)
    place[rack.servers] = np.arange(len(rack.servers))
    at = place[rack.edges[:, end]]
    order = np.argsort(at, kind="stable")[(at < 0).sum() :]
    counts = np.bincount(at[order], minlength=len(rack.servers))
    table = np.full((len(counts), max(1, int(counts.max(initial=0)))), -1, dtype=np.int64)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    table[at[order], rank] = order
    return table


def _padded(rows: list[list[int]]) -> NDArray[np.int64]:
    width = max([1, *map(len, rows)])
    table = np.full((len(rows), width), -1, dtype=np.int64)
    for k, row in enumerate(rows):
        table[k, : len(row)] = row
    return table
