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
from optmatch.fabrics.racks.wiring import count_hops
from optmatch.model import check_size, check_time

POOL = 50
"""The number of shortest simple routes between two servers that are looked at."""


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
    return _pool(_alone(fabric))


def routes_between(fabric: RackFabric, source: int, destination: int) -> list[list[int]]:
    """List the routes of one pair of servers in `pool_routes`, by their edges."""
    return _routes(_alone(fabric), source, destination)


@lru_cache(maxsize=16)
def _alone(fabric: RackFabric) -> RackFabric:
    """Return one rack with the parts that its routes depend on."""
    return replace(fabric, fibres=8, ports_per_chip=6, racks=1, interposer=None)


@lru_cache(maxsize=16)
def _pool(alone: RackFabric) -> RoutePool:
    n = alone.n_servers
    shape = n, 2 * n if alone.joined else n, POOL
    found = {(u, v): _routes(alone, u, v) for u in range(n) for v in range(shape[1])}
    longest = max((len(route) for routes in found.values() for route in routes), default=1)
    edges = np.full((*shape, longest), -1, dtype=np.int16)
    hops = np.full(shape, -1, dtype=np.int16)
    for (u, v), routes in found.items():
        for rank, route in enumerate(routes):
            hops[u, v, rank] = len(route)
            edges[u, v, rank, : len(route)] = route
    edges.flags.writeable = hops.flags.writeable = False
    return RoutePool(edges, hops)


@lru_cache(maxsize=100_000)
def _routes(alone: RackFabric, source: int, destination: int) -> list[list[int]]:
    """List the edges of the routes of a pair; the other server may be in a second rack."""
    beyond = destination >= alone.n_servers
    racks = replace(alone, racks=2) if beyond else alone
    number, ahead, away = _ways(racks)
    if source == destination or away[source][destination] >= len(ahead):
        return []
    return [
        [number[step] for step in pairwise(route)]
        for route in _shortest(
            source, destination, ahead, away, 0 if alone.through else racks.n_servers
        )
    ]


@lru_cache(maxsize=16)
def _ways(
    racks: RackFabric,
) -> tuple[dict[tuple[int, int], int], list[list[int]], list[list[int]]]:
    """Return the number of each edge, where edges lead from each server, and all distances."""
    n = racks.n_servers + racks.n_rack_switches
    check_size("entries", 16 * n**2, "fabric")
    number = {(u, v): edge for edge, (u, v) in enumerate(racks.edges.tolist())}
    ahead: list[list[int]] = [[] for _ in range(n)]
    for u, v in sorted(number):
        ahead[u].append(v)
    return number, ahead, count_hops(n, racks.edges).tolist()


def _shortest(
    source: int, destination: int, ahead: list[list[int]], away: list[list[int]], solid: int
) -> list[list[int]]:
    """List routes, of which none passes the first `solid` nodes on its way."""
    check_time()
    found: list[list[int]] = []
    for length in range(away[source][destination], 3 if solid else len(ahead)):
        for route in _of_length(source, destination, length, ahead, away):
            if any(node < solid for node in route[1:-1]):
                continue
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
