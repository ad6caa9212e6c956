"""Routes between servers of one rack: the shortest simple ones, and those offered to a circuit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import RackFabric

POOL = 50
"""So many shortest simple routes of two servers are looked at."""


class RoutePool(NamedTuple):
    """The shortest simple routes between the servers of any rack of a fabric, all racks alike.

    Servers and edges are counted from the first of the rack; unused places hold -1.
    """

    edges: NDArray[np.int16]
    """``edges[source, destination, rank, hop]``: ordered by hops, then by servers passed."""
    hops: NDArray[np.int16]
    """``hops[source, destination, rank]``."""


def pool_routes(fabric: RackFabric) -> RoutePool:
    """List the ``POOL`` shortest simple routes of each two servers of a rack.

    Parameters
    ----------
    fabric
        The racks.

    Notes
    -----
    By depth-first search that never moves further away than a length allows; a rack of 16 servers
    takes 0.1 s, once in a process.
    """
    return _pool(fabric.chips, fabric.server, fabric.wrap)


@lru_cache(maxsize=16)
def _pool(chips: tuple[int, int, int], server: tuple[int, int, int], wrap: bool) -> RoutePool:
    rack = RackFabric(chips=chips, server=server, wrap=wrap)
    n = rack.n_servers
    number = {(int(u), int(v)): edge for edge, (u, v) in enumerate(rack.edges)}
    ahead: list[list[int]] = [[] for _ in range(n)]
    for u, v in number:
        ahead[u].append(v)
    away = _distances(ahead)
    found = {
        (u, v): _shortest(u, v, ahead, away)
        for u in range(n)
        for v in range(n)
        if u != v and away[u][v] < n
    }
    longest = max((len(route) - 1 for routes in found.values() for route in routes), default=1)
    edges = np.full((n, n, POOL, longest), -1, dtype=np.int16)
    hops = np.full((n, n, POOL), -1, dtype=np.int16)
    for (u, v), routes in found.items():
        for rank, route in enumerate(routes):
            hops[u, v, rank] = len(route) - 1
            steps = pairwise(route)
            edges[u, v, rank, : len(route) - 1] = [number[step] for step in steps]
    edges.flags.writeable = hops.flags.writeable = False
    return RoutePool(edges, hops)


def _distances(ahead: list[list[int]]) -> list[list[int]]:
    """Count the hops between all servers, breadth first; as many as servers if there is no way."""
    table = []
    for start in range(len(ahead)):
        away = [len(ahead)] * len(ahead)
        away[start], front = 0, [start]
        while front:
            reached = []
            for u in front:
                for v in ahead[u]:
                    if away[v] > away[u] + 1:
                        away[v] = away[u] + 1
                        reached.append(v)
            front = reached
        table.append(away)
    return table


def _shortest(
    source: int, destination: int, ahead: list[list[int]], away: list[list[int]]
) -> list[list[int]]:
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
