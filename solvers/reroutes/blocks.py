"""Chips of a rack that more circuits must leave, or reach, than the cells that work can carry."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import BlockProof
from optmatch.solvers.reroutes.routing_state import Case, RoutingState, spread


def find_block(routing: RoutingState, case: Case) -> BlockProof | None:
    """Find chips from which, or to which, fewer waveguides lead than they have circuits.

    Parameters
    ----------
    routing
        The state, with all that has failed taken out.
    case
        Whom the failure hits.

    Returns
    -------
    BlockProof or None
        None if no server of a hit circuit has such chips, or there are no cells.

    Notes
    -----
    A largest flow from the chips of a server to all chips, and one back, through what would be
    free without any circuit; some 10 ms each where a rack has thousands of cells.
    """
    rack = routing.fabric
    if not rack.n_chips or rack.graph is None:
        return None
    server = rack.server_of_unit
    for side in (0, 1):
        units = routing.ends[:, side]
        for place in sorted({int(server[unit]) for unit in units[list(case.hit)].tolist()}):
            chips = np.setdiff1d(np.flatnonzero(server == place), case.lost)
            loads = np.array([np.count_nonzero(units == chip) for chip in chips.tolist()])
            proof = _cut_off(routing, chips, loads, side)
            if proof is not None:
                return proof
    return None


def _cut_off(
    routing: RoutingState, chips: NDArray[Any], loads: NDArray[Any], side: int
) -> BlockProof | None:
    """Compare the largest flow out of chips (side 0), or into them, with their circuits."""
    from scipy.sparse import csr_array  # a third of a second, and for what fails alone
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    graph, n = routing.graph, len(routing.graph.capacity)
    room = routing.free.copy()
    np.add.at(room, graph.resource[np.concatenate(routing.paths)], 1)
    arcs = np.flatnonzero(routing.open_arcs())
    tail, head = graph.tail[arcs], graph.head[arcs]
    leaving, entering = np.arange(graph.units), graph.units + np.arange(graph.units)
    if side:
        tail, head, leaving, entering = head, tail, entering, leaving
    reached = spread(len(graph.resource), leaving[chips], tail, head)
    tail, head = tail[reached[tail]], head[reached[tail]]
    # a resource is an edge from its number to n further; then come the source and the sink
    source, sink = 2 * n, 2 * n + 1
    chip_in, goals = graph.resource[leaving[chips]], graph.resource[entering]
    rows: list[Any] = [
        np.arange(n),
        n + graph.resource[tail],
        np.full(len(chips), source),
        n + goals,
    ]
    columns: list[Any] = [
        n + np.arange(n),
        graph.resource[head],
        chip_in,
        np.full(len(goals), sink),
    ]
    most = int(loads.sum()) + 1
    sizes: list[Any] = [
        np.maximum(room, 0),
        np.full(len(tail), most),
        loads,
        np.full(len(goals), most),
    ]
    network = csr_array(
        (np.concatenate(sizes), (np.concatenate(rows), np.concatenate(columns))),
        shape=(sink + 1, sink + 1),
        dtype=np.int32,
    )
    network.data = np.minimum(network.data, most).astype(np.int32)
    found = maximum_flow(network, source, sink)
    if found.flow_value >= loads.sum():
        return None
    rest = (network - found.flow).tocsr()
    rest.eliminate_zeros()
    near = np.zeros(sink + 1, dtype=np.bool_)
    near[breadth_first_order(rest, source, return_predecessors=False)] = True
    links: Any = np.flatnonzero(near[:n] & ~near[n : 2 * n] & (room > 0))
    if len(links) and links[-1] >= routing.fabric.graph.links.count:  # type: ignore[union-attr]
        return None  # the ports of chips are what is short
    return BlockProof(chips=chips[near[chip_in]], links=links, leaving=side == 0)
