"""How the servers of a rack, their cells and their fibres are numbered and joined."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.cellgraph import CellGraph
from optmatch.fabrics.fabric import Fabric
from optmatch.fabrics.reach import UNREACHED
from optmatch.model import read_only

Sides = tuple[int, int, int]


class Wiring(NamedTuple):
    """Values derived from the fields of a rack; arrays are read-only."""

    chips: NDArray[np.int32]
    """``chips[chip] = rack, x, y, z``."""
    servers: NDArray[np.int32]
    """``servers[server] = rack, x, y, z`` in the grid of servers."""
    # ``server_of_chip[chip]``, a number of `servers`.
    server_of_chip: NDArray[np.int32]
    edges: NDArray[np.int32]
    """``edges[edge] = node from, node to``, rack by rack in ascending order."""
    # ``edge_fibres[edge]``: how many fibres the edge has.
    edge_fibres: NDArray[np.int32]
    # ``edge_of_fibre[fibre]``: fibres are counted edge by edge.
    edge_of_fibre: NDArray[np.int32]
    switches: NDArray[np.int32]
    """``switches[switch] = axis, i, j``."""


class Cells(NamedTuple):
    """The cells of all servers as one graph, joined by fibres."""

    graph: CellGraph
    # ``sources[port]``: the terminal at which light of a port enters.
    sources: NDArray[np.int32]
    # ``destinations[port]``: the terminal at which light for a port leaves.
    destinations: NDArray[np.int32]
    fibre_of_terminal: NDArray[np.int32]
    """``fibre_of_terminal[terminal]``: the fibre that ends here, or -1."""


def number_of(place: Sequence[int], sides: Sequence[int]) -> int:
    """Return the number of a place, x fastest."""
    return place[0] + sides[0] * (place[1] + sides[1] * place[2])


def _places(count: int, sides: Sides) -> NDArray[np.int64]:
    """Return x, y, z of the numbers below `count`, x fastest."""
    numbers = np.arange(count) % prod(sides)
    return np.stack(np.unravel_index(numbers, sides, order="F"), axis=1)


def wire(
    grid: Sides, server: Sides, *, racks: int, fibres: int, wrap: bool, joined: bool
) -> Wiring:
    """Give numbers to chips, servers and fibres of racks, and list which fibre leads where.

    A rack is a box of servers, a server a box of chips; numbers count x fastest, then y, then z.
    Fibres lead between neighbouring servers and, if `joined`, between the servers on a face of
    each rack and switches outside. An edge is all fibres from one node to another; a node is a
    server, or a switch (these are numbered after the servers).

    Parameters
    ----------
    grid
        How many servers a rack has along x, y and z.
    server
        How many chips a server has along x, y and z.
    racks
        The number of racks.
    fibres
        How many fibres lead from a server to each neighbour, and as many back.
    wrap
        Whether servers at opposite faces are neighbours.
    joined
        Whether fibres of the faces lead to switches between racks instead.

    Returns
    -------
    Wiring
        Read-only arrays

        - ``chips``, ``servers``: rows (rack, x, y, z);
        - ``server_of_chip``: shape (chips,);
        - ``edges``: rows (node that light leaves, node that it enters);
        - ``edge_fibres``: how many fibres each edge has;
        - ``edge_of_fibre``: shape (fibres,);
        - ``switches``: a row for each switch: its axis, and its place on the face.
    """
    # Servers and chips with their racks and places.
    chips_per_server = prod(server)
    per_rack = prod(grid)
    n_servers = racks * per_rack
    places = _places(n_servers, grid)
    servers = np.concatenate([np.arange(n_servers)[:, None] // per_rack, places], axis=1)
    server_of_chip = np.arange(n_servers * chips_per_server) // chips_per_server
    chips = servers[server_of_chip].copy()
    # A chip is at the place of its server, plus its place within.
    chips[:, 1:] = places[server_of_chip] * server + _places(n_servers * chips_per_server, server)

    # A row (node from, node to) for each pair of neighbours in a rack; in a ring of two the same
    # pair is there twice, as two fibres lead from one to the other. With 4 servers along x, server
    # 3 has the neighbour 2 at step -1; at step 1 the place 4 is outside, and wraps to server 0.
    number = np.arange(n_servers)
    pairs: list[NDArray[np.int64]] = []
    for axis, side in enumerate(grid):
        for step in (-1, 1):
            neighbour = places.copy()
            neighbour[:, axis] += step
            is_inside = (neighbour[:, axis] >= 0) & (neighbour[:, axis] < side)
            is_joined = (is_inside | (wrap and not joined)) & (side > 1)
            in_rack = np.ravel_multi_index(tuple(neighbour.T), grid, mode="wrap", order="F")
            head = number // per_rack * per_rack + in_rack
            pairs.append(np.stack([number, head], axis=1)[is_joined])

    # Switches between racks stand by axis (0 to 2) and place i, j along the other two axes, of
    # which i counts fastest. A switch joins the servers at its place on both faces across the
    # axis, of all racks; a server that is at both faces has two fibres to it.
    switches: list[tuple[int, int, int]] = []
    for axis, side in enumerate(grid if joined else ()):
        place_on_face = np.delete(places, axis, axis=1)
        width, height = np.delete(grid, axis).tolist()
        switch = n_servers + len(switches) + place_on_face @ [1, width]
        switches += [(axis, i, j) for j in range(height) for i in range(width)]
        to_switch = np.stack([number, switch], axis=1)
        for face in (0, side - 1):
            at_face = to_switch[places[:, axis] == face]
            pairs += [at_face, at_face[:, ::-1]]

    # Edges are numbered rack by rack, and the fibres of an edge one after the other.
    edges, n_pairs = np.unique(np.concatenate(pairs), axis=0, return_counts=True)
    order = np.argsort(edges.min(axis=1) // per_rack, kind="stable")
    edges = edges[order]
    edge_fibres = fibres * n_pairs[order]
    edge_of_fibre = np.repeat(np.arange(len(edges), dtype=np.int32), edge_fibres)
    return Wiring(
        chips=_read_only(chips),
        servers=_read_only(servers),
        server_of_chip=_read_only(server_of_chip),
        edges=_read_only(edges),
        edge_fibres=_read_only(edge_fibres),
        edge_of_fibre=_read_only(edge_of_fibre),
        switches=_read_only(np.array(switches, dtype=np.int32).reshape(-1, 3)),
    )


def count_hops(n: int, edges: NDArray[np.int32]) -> NDArray[np.int32]:
    """Count the fewest edges on a way between any two nodes of a directed graph.

    Breadth-first search from all nodes at once. For each node, the set of nodes (sources) whose
    search comes to it in this step is a row of bits, packed 8 to a byte.

    Parameters
    ----------
    n
        The number of nodes.
    edges
        ``edges[edge]``: the node where an edge begins and the node where it ends; shape (edges,
        2).

    Returns
    -------
    NDArray
        ``hops[from, to]``; int32, shape (nodes, nodes), ``UNREACHED`` if there is no way.
    """
    hops = np.full((n, n), UNREACHED, dtype=np.int32)
    # Edges are sorted by the node where they end, so that `reduceat` unites what comes in.
    order = np.argsort(edges[:, 1], kind="stable")
    tails = edges[order, 0]
    heads, starts = np.unique(edges[order, 1], return_index=True)
    # sources_here[node]: the sources whose light first comes to a node in this step.
    sources_here = np.packbits(np.eye(n, dtype=bool), axis=1)
    sources_before = sources_here.copy()
    for step in range(n):
        if not sources_here.any():
            break
        # Bit s of row v: source s comes to node v in this step.
        hops.T[np.unpackbits(sources_here, axis=1, count=n).view(bool)] = step
        sources_ahead = np.zeros_like(sources_here)
        if len(heads):
            sources_ahead[heads] = np.bitwise_or.reduceat(sources_here[tails], starts)
        sources_here = sources_ahead & ~sources_before
        sources_before |= sources_here
    return hops


def count_direct_hops(n: int, edges: NDArray[np.int32]) -> NDArray[np.int32]:
    """Count the fewest edges between any two nodes, where light passes switches alone.

    The way is an edge, or two edges with a switch between them. Servers have the lower numbers,
    switches the higher ones. Arguments and result are those of `count_hops`; entries are 0, 1, 2
    or ``UNREACHED``.
    """
    hops = np.full((n, n), UNREACHED, dtype=np.int32)
    tails, heads = edges.T
    # No edge joins two switches, so that the lower node of each edge is a server.
    servers = int(np.minimum(tails, heads).max(initial=0)) + 1
    for switch in range(servers, n):
        hops[np.ix_(tails[heads == switch], heads[tails == switch])] = 2
    hops[tails, heads] = 1
    np.fill_diagonal(hops, 0)
    return hops


def join_cells(interposer: Fabric, inner: int, columns: int, wiring: Wiring) -> Cells:
    """Make one large mesh of cells out of the switches of all servers and the fibres between them.

    Each server has the same switch inside, its interposer, made of cells (2 x 2 switches) with
    four terminals each. The large mesh has a copy for each server: with 40 terminals in an
    interposer, terminal 3 of server 2 is number 2 * 40 + 3. A fibre joins the terminal where light
    leaves one server to the terminal where it enters another.

    Parameters
    ----------
    interposer
        The switch inside each server.
    inner
        Its first ports, which belong to chips; the others are for fibres, in the order in which
        `wiring` lists those of a server.
    columns
        How many servers are drawn beside each other.
    wiring
        The servers, and the fibres between them.

    Returns
    -------
    Cells
        - ``graph``: the large mesh;
        - ``sources``, ``destinations``: the terminals at which light of each chip's port enters
          and leaves, server by server;
        - ``fibre_of_terminal``: the fibre that ends at a terminal, -1 for none.
    """
    # A copy of the interposer for each server; its terminals are shifted by those before.
    cells: Any = interposer.graph
    n_servers = len(wiring.servers)
    first = len(cells.mate) * np.arange(n_servers)
    mate = np.where(cells.mate < 0, -1, cells.mate + first[:, None]).ravel()
    leaves = first[:, None] + interposer.destination_terminals
    enters = first[:, None] + interposer.source_terminals

    # Each fibre joins a port of the server that it leaves to a port of the one that it enters. The
    # fibres that leave a server have its ports from `inner` on, in their order; so have those that
    # enter it. `rank_in_group` counts the fibres of each server from 0.
    tails, heads = wiring.edges[wiring.edge_of_fibre].T
    out_of = leaves[tails, inner + rank_in_group(tails)]
    into = enters[heads, inner + rank_in_group(heads)]
    mate[out_of] = into
    mate[into] = out_of
    # Cells that lead light both ways may send it back through a fibre: it is known at both ends.
    fibre_of_terminal = np.full(len(mate), -1)
    fibre_of_terminal[into] = np.arange(len(into))
    fibre_of_terminal[out_of] = np.arange(len(out_of))

    # Servers are drawn in rows, with room between them.
    free = (first[:, None] + cells.perimeter).ravel()
    rows, column = np.divmod(np.arange(n_servers), columns)
    shift = (np.ptp(cells.ends, axis=(0, 1)) + 2) * np.stack([column, -rows], axis=1)
    graph = CellGraph(
        mate=mate.astype(np.int32),
        ends=(cells.ends + shift[:, None, None, :]).reshape(-1, 2, 2),
        perimeter=free[mate[free] < 0].astype(np.int32),
        stuck=np.tile(cells.stuck, n_servers),
    )
    return Cells(
        graph=graph,
        sources=_read_only(enters[:, :inner].ravel()),
        destinations=_read_only(leaves[:, :inner].ravel()),
        fibre_of_terminal=_read_only(fibre_of_terminal),
    )


def rank_in_group(groups: NDArray[np.integer]) -> NDArray[np.int64]:
    """Count for each entry how many equal ones stand before it: 5, 3, 5 have the ranks 0, 0, 1."""
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], groups[order])
    rank = np.empty(len(groups), dtype=np.int64)
    # Sorted, the rank of an entry is its distance from the first equal one.
    rank[order] = np.arange(len(groups)) - starts
    return rank


def _read_only(array: NDArray[Any]) -> NDArray[np.int32]:
    """Return an array as int32 that cannot be written to."""
    return read_only(array.astype(np.int32))
