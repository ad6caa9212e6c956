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
from optmatch.model import check_size, check_time, read_only

_POOL_ROUTES = 50
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
    """List the ``_POOL_ROUTES`` shortest simple routes of each two servers of a rack, by `_pool`.

    A rack of 16 servers takes 0.1 s, joined or not, once in a process. The arrays are read-only.
    """
    return _pool(_alone(fabric))


def routes_between(fabric: RackFabric, source: int, destination: int) -> list[list[int]]:
    """List the edges of each route of a pair of servers in `pool_routes`, shortest first.

    The source is in the first rack; destinations in a second rack count on.
    """
    return _routes(_alone(fabric), source, destination)


@lru_cache(maxsize=16)
def _alone(fabric: RackFabric) -> RackFabric:
    """Return one rack with the parts that its routes depend on."""
    return replace(fabric, fibres=8, ports_per_chip=6, racks=1, interposer=None)


@lru_cache(maxsize=16)
def _pool(alone: RackFabric) -> RoutePool:
    """List the routes between all servers of one rack, and into a second rack if racks are joined.

    All racks are alike, so that these routes serve every rack, or pair of racks. Edges are -1
    behind the end of a route, and hops -1 where there are fewer routes.
    """
    n_sources = alone.n_servers
    n_destinations = 2 * n_sources if alone.joined else n_sources
    routes_of_pair = {
        (source, destination): _routes(alone, source, destination)
        for source in range(n_sources)
        for destination in range(n_destinations)
    }

    # All routes in one array, as long as the longest one.
    lengths = [len(route) for routes in routes_of_pair.values() for route in routes]
    shape = (n_sources, n_destinations, _POOL_ROUTES)
    edges = np.full((*shape, max(lengths, default=1)), -1, dtype=np.int16)
    hops = np.full(shape, -1, dtype=np.int16)
    for (source, destination), routes in routes_of_pair.items():
        for rank, route in enumerate(routes):
            hops[source, destination, rank] = len(route)
            edges[source, destination, rank, : len(route)] = route
    return RoutePool(read_only(edges), read_only(hops))


@lru_cache(maxsize=100_000)
def _routes(alone: RackFabric, source: int, destination: int) -> list[list[int]]:
    """List the edges of the `_POOL_ROUTES` shortest simple routes of two servers, shortest first.

    There are none from a server to itself, or where there is no way.
    """
    in_second_rack = destination >= alone.n_servers
    racks = replace(alone, racks=2) if in_second_rack else alone
    graph = _build_graph(racks)
    distance = graph.distances[source][destination]
    if source == destination or distance >= len(graph.successors):
        return []  # the distance of what is not reached is larger than any route

    # The first `n_closed` nodes let no light pass: all servers, or none. With all closed, a route
    # has two hops at most, over a switch.
    check_time()
    n_closed = 0 if alone.through else racks.n_servers
    end = 3 if n_closed else len(graph.successors)
    routes: list[list[int]] = []
    for length in range(distance, end):
        for route in _extend_route(graph, [source], destination, length):
            if any(node < n_closed for node in route[1:-1]):
                continue
            routes.append([graph.edge_between[hop] for hop in pairwise(route)])
            if len(routes) == _POOL_ROUTES:
                return routes
    return routes


class _RackGraph(NamedTuple):
    """Servers and the switches between racks, as a graph; servers come first."""

    edge_between: dict[tuple[int, int], int]
    """``edge_between[tail, head]``: the number of the edge."""
    successors: list[list[int]]
    """``successors[node]``, ascending."""
    distances: list[list[int]]
    """``distances[node][node]`` in hops; as many as there are nodes, or more, if not reached."""


@lru_cache(maxsize=16)
def _build_graph(racks: RackFabric) -> _RackGraph:
    """Build the graph of some racks: servers, then the switches between racks, as nodes."""
    n_nodes = racks.n_servers + racks.n_rack_switches
    check_size("entries", 16 * n_nodes**2, "fabric")
    edge_between = {(tail, head): edge for edge, (tail, head) in enumerate(racks.edges.tolist())}
    successors: list[list[int]] = [[] for _ in range(n_nodes)]
    for tail, head in sorted(edge_between):
        successors[tail].append(head)
    return _RackGraph(edge_between, successors, count_hops(n_nodes, racks.edges).tolist())


def _extend_route(
    graph: _RackGraph, route: list[int], destination: int, hops_left: int
) -> Iterator[list[int]]:
    """Yield the nodes of all simple routes that go on from a route by exactly so many hops.

    Depth-first search goes on from a node only if the destination can be reached in the hops left.
    """
    if hops_left == 0:
        yield route
        return
    for node in graph.successors[route[-1]]:
        # Routes are simple, end at the destination, and have to be able to reach it in time.
        arrives_early = node == destination and hops_left > 1
        too_far = graph.distances[node][destination] > hops_left - 1
        if not (node in route or too_far or arrives_early):
            yield from _extend_route(graph, [*route, node], destination, hops_left - 1)
