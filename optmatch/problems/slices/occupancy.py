"""Racks in use: slices on servers drawn at random, to ask for one more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optmatch.fabrics import RackFabric
from optmatch.problems.slices.problem import Allocation, SliceAllocation, connect
from optmatch.problems.slices.shape import Shape


def draw_occupancy(
    fabric: RackFabric,
    shapes: Sequence[Shape],
    rng: np.random.Generator,
    *,
    routes: int = 5,
    reserved: tuple[int, ...] = (),
) -> tuple[Allocation, ...]:
    """Put slices on random servers of random racks, each pair on a random route of those offered.

    In joined racks the servers of a slice are drawn from all of them. Of `shapes`, in chips, one
    that finds no rack with enough servers or fibres is left out. `routes` are offered to each
    pair; `reserved` servers are kept out.
    """
    placed: tuple[Allocation, ...] = ()
    for shape in shapes:
        problem = SliceAllocation(fabric, shape, placed=placed, reserved=reserved, routes=routes)
        found = None if problem.dead_end() else _put(problem, rng)
        if found is not None:
            placed = (*placed, found)
    return placed


def _put(problem: SliceAllocation, rng: np.random.Generator) -> Allocation | None:
    plan, fabric = problem.slice_shapes[0], problem.fabric
    free = problem.free_servers
    racks = fabric.server_coordinates[free, 0]
    counts = np.bincount(racks, minlength=fabric.racks)
    if not fabric.joined:
        free = free[racks == rng.choice(np.flatnonzero(counts >= plan.n_slots))]
    servers = rng.permutation(free)[: plan.n_slots].tolist()
    room = fabric.edge_fibres - problem.loads
    chosen = []
    for (a, b), weight in zip(plan.pairs.tolist(), plan.weights.tolist(), strict=True):
        offered = [
            route
            for route in problem.candidates(servers[a], servers[b], weight)
            if (room[list(route)] >= weight).all()
        ]
        if not offered:
            return None
        route = offered[int(rng.integers(len(offered)))]
        room[list(route)] -= weight
        chosen.append(route)
    return connect(fabric, problem.lit_fibres, plan, servers, chosen)
