"""Routes between servers of one rack, or of two joined ones: the shortest simple ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import RackFabric
from optmatch.fabrics.wiring import count_hops
from optmatch.model import check_time

POOL = 50
"""So many shortest simple routes of two servers are looked at."""


class RoutePool(NamedTuple):
    """The shortest simple routes between the servers of any rack of a fabric, all racks alike.

    Servers and edges are counted from the first of the rack. Of racks that are joined there are
    routes to the servers of another one too, which follow on those of the rack itself, as its
    edges do; these routes pass no third rack. Unused places hold -1.
    """

    edges: NDArray[np.int16]
    """``edges[source, destination, rank, hop]``: ordered by hops, then by servers passed."""
    hops: NDArray[np.int16]
    """``hops[source, destination, rank]``."""


def pool_routes(fabric: RackFabric) -> RoutePool:
    """List the ``POOL`` shortest simple routes of each two servers of a rack.

    By depth-first search that never moves further away than a length allows; a rack of 16 servers
    takes 0.1 s, joined or not, once in a process.
    """
    return _pool(fabric.chips, fabric.server, fabric.wrap, fabric.joined)


@lru_cache(maxsize=16)
def _pool(
    chips: tuple[int, int, int], server: tuple[int, int, int], wrap: bool, joined: bool
) -> RoutePool:
    alone = RackFabric(chips=chips, server=server, wrap=wrap, joined=joined)
    n = alone.n_servers
    found = _routes_between(alone, range(n))
    if joined:
        found |= _routes_between(replace(alone, racks=2), range(n, 2 * n))
    longest = max((len(route) for routes in found.values() for route in routes), default=1)
    shape = n, 2 * n if joined else n, POOL
    edges = np.full((*shape, longest), -1, dtype=np.int16)
    hops = np.full(shape, -1, dtype=np.int16)
    for (u, v), routes in found.items():
        for rank, route in enumerate(routes):
            hops[u, v, rank] = len(route)
            edges[u, v, rank, : len(route)] = route
    edges.flags.writeable = hops.flags.writeable = False
    return RoutePool(edges, hops)


def _routes_between(racks: RackFabric, ends: range) -> dict[tuple[int, int], list[list[int]]]:
    """List the edges of the routes from each server of the first rack to some others."""
    number = {(u, v): edge for edge, (u, v) in enumerate(racks.edges.tolist())}
    ahead: list[list[int]] = [[] for _ in range(racks.n_servers + racks.n_rack_switches)]
    for u, v in sorted(number):
        ahead[u].append(v)
    away = count_hops(len(ahead), racks.edges).tolist()
    return {
        (u, v): [
            [number[step] for step in pairwise(route)] for route in _shortest(u, v, ahead, away)
        ]
        for u in range(racks.n_servers // racks.racks)
        for v in ends
        if u != v and away[u][v] < len(ahead)
    }


def _shortest(
    source: int, destination: int, ahead: list[list[int]], away: list[list[int]]
) -> list[list[int]]:
    check_time()
    found: list[list[int]] = []
    for length in range(away[source][destination], len(ahead)):
        for route in _of_length(source, destination, length, ahead, away):
            found.append(route)
            if len(found) == POOL:
                return found
    return found


def _of_length(
    source: int, destination: int, length: int, ahead: list[list[int]], away: list[list[int]]
) -> Iterator[list[int]]:
    route = [source]

    def extend(left: int) -> Iterator[list[int]]:
        if left == 0:
            yield list(route)
            return
        for v in ahead[route[-1]]:
            if v not in route and away[v][destination] <= left - 1:
                if v == destination and left > 1:
                    continue
                route.append(v)
                yield from extend(left - 1)
                route.pop()

    yield from extend(length)
