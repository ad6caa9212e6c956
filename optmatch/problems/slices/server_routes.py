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

_POOL = 50
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
    """List the ``_POOL`` shortest simple routes of each two servers of a rack.

    By depth-first search that never moves further away than a length allows; a rack of 16 servers
    takes 0.1 s, joined or not, once in a process.

    Parameters
    ----------
    fabric
        The racks, which are all alike.

    Returns
    -------
    RoutePool
        The edges and hops of each route, by source, destination and rank; read-only.
    """
    return _pool(_alone(fabric))


def routes_between(fabric: RackFabric, source: int, destination: int) -> list[list[int]]:
    """List the routes of one pair of servers in `pool_routes`.

    Parameters
    ----------
    fabric
        The racks.
    source
        A server of the first rack.
    destination
        Another one; servers of a second rack count on.

    Returns
    -------
    list of list of int
        The edges of each route in order, the shortest routes first.
    """
    return _routes(_alone(fabric), source, destination)


@lru_cache(maxsize=16)
def _alone(fabric: RackFabric) -> RackFabric:
    """Return one rack with the parts that its routes depend on."""
    return replace(fabric, fibres=8, ports_per_chip=6, racks=1, interposer=None)


@lru_cache(maxsize=16)
def _pool(alone: RackFabric) -> RoutePool:
    """List the routes between all servers of one rack, and into a second rack if racks are joined.

    A route is a list of edges (bundles of fibres between neighbours), a hop is one edge. All racks
    are alike, so that these routes serve every rack, or pair of racks.

    Parameters
    ----------
    alone
        One rack, as `_alone` returns it.

    Returns
    -------
    RoutePool
        Arrays by source, destination and rank: the edges of each route, -1 behind its end, and its
        number of hops, -1 where there are fewer routes. Destinations from the number of servers on
        are in the second rack.
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
    shape = (n_sources, n_destinations, _POOL)
    edges = np.full((*shape, max(lengths, default=1)), -1, dtype=np.int16)
    hops = np.full(shape, -1, dtype=np.int16)
    for (source, destination), routes in routes_of_pair.items():
        for rank, route in enumerate(routes):
            hops[source, destination, rank] = len(route)
            edges[source, destination, rank, : len(route)] = route
    edges.flags.writeable = False
    hops.flags.writeable = False
    return RoutePool(edges, hops)


@lru_cache(maxsize=100_000)
def _routes(alone: RackFabric, source: int, destination: int) -> list[list[int]]:
    """List the edges of the shortest routes of a pair of servers.

    Parameters
    ----------
    alone
        One rack.
    source
        A server of it.
    destination
        A server of it, or of a second rack, whose servers count on.

    Returns
    -------
    list of list of int
        The edges of each route in order, the shortest routes first; empty from a server to itself,
        or where there is no way.
    """
    in_second_rack = destination >= alone.n_servers
    racks = replace(alone, racks=2) if in_second_rack else alone
    graph = _build_graph(racks)
    distance = graph.distances[source][destination]
    if source == destination or distance >= len(graph.successors):
        return []  # the distance of what is not reached is larger than any route
    n_closed = 0 if alone.through else racks.n_servers
    return [
        [graph.edge_between[hop] for hop in pairwise(route)]
        for route in _list_shortest(graph, source, destination, n_closed)
    ]


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
    """Build the graph of some racks.

    Parameters
    ----------
    racks
        One rack or several that are joined.

    Returns
    -------
    _RackGraph
        Its nodes are servers, then the switches between racks; its edges are bundles of fibres.
    """
    n_nodes = racks.n_servers + racks.n_rack_switches
    check_size("entries", 16 * n_nodes**2, "fabric")
    edge_between = {(tail, head): edge for edge, (tail, head) in enumerate(racks.edges.tolist())}
    successors: list[list[int]] = [[] for _ in range(n_nodes)]
    for tail, head in sorted(edge_between):
        successors[tail].append(head)
    return _RackGraph(edge_between, successors, count_hops(n_nodes, racks.edges).tolist())


def _list_shortest(
    graph: _RackGraph, source: int, destination: int, n_closed: int
) -> list[list[int]]:
    """List the shortest routes between two servers, at most `_POOL` of them.

    A route passes no node twice; nodes are servers, and then switches. If no light may pass
    through servers, a route has two hops at most: one node in the middle, which is a switch.

    Parameters
    ----------
    graph
        Servers and switches.
    source, destination
        The servers at its ends.
    n_closed
        How many nodes let no light pass: all servers, or 0.

    Returns
    -------
    list of list of int
        The nodes of each route, both ends included; routes of fewer hops first.
    """
    check_time()
    routes: list[list[int]] = []
    end = 3 if n_closed else len(graph.successors)
    for length in range(graph.distances[source][destination], end):
        for route in _list_of_length(graph, source, destination, length):
            if any(node < n_closed for node in route[1:-1]):
                continue
            routes.append(route)
            if len(routes) == _POOL:
                return routes
    return routes


def _list_of_length(
    graph: _RackGraph, source: int, destination: int, length: int
) -> Iterator[list[int]]:
    """Yield all routes between two servers that have exactly so many hops and no node twice.

    The nodes of a route are servers and switches; a hop leads from one to a neighbour. Depth-first
    search goes on from a node only if the destination can be reached in the hops that are left.

    Parameters
    ----------
    graph
        ``successors[node]`` are the neighbours of a node, and ``distances[node][node]`` the fewest
        hops from one to another.
    source, destination
        The servers at its ends.
    length
        The number of hops.

    Yields
    ------
    list of int
        The nodes of a route, both ends included.
    """
    route = [source]

    def extend(hops_left: int) -> Iterator[list[int]]:
        """Yield all ways to go on from the end of `route` to the destination in so many hops.

        Nodes that are too far from the destination are cut off.

        Parameters
        ----------
        hops_left
            How many hops are still to be made.
        """
        if hops_left == 0:
            yield list(route)
            return
        for node in graph.successors[route[-1]]:
            # Routes are simple, end at the destination, and have to be able to reach it in time.
            arrives_early = node == destination and hops_left > 1
            too_far = graph.distances[node][destination] > hops_left - 1
            if node in route or too_far or arrives_early:
                continue
            route.append(node)
            yield from extend(hops_left - 1)
            route.pop()

    yield from extend(length)
