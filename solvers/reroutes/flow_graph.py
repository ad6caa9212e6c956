"""The flow graph of a fabric: where light can go through cells of a mesh, or fibres of a rack.

Nodes are light going one way: out of a unit (a chip or a port), towards a terminal of a cell, over
the fibres of an edge, into a unit. Arcs lead from node to node, through a cell in a state or
through an ideal interposer. A node uses one unit of its *resource*: the waveguide, of which both
directions are one resource, the fibres of the edge, or the ports of the chip. A circuit is a path
from a unit out to a unit in, and circuits hold together if no resource is overdrawn: through a
cell in two states there are no two paths that share no waveguide.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import EXITS, CellGraph, Fabric, Units, units_of

Ints = NDArray[np.int32]


class FlowGraph(NamedTuple):
    """A flow graph; arrays are read-only. Units come first: ``u`` out, ``units + u`` in."""

    units: int
    per_unit: int
    inner: int  # the first node that is no unit
    first: Ints  # ``first[node] .. first[node + 1]``: its arcs
    head: Ints  # ``head[arc]``: the node it leads to
    tail: Ints  # ``tail[arc]``: the node it leaves
    back_first: (
        Ints  # ``back_arc[back_first[node] .. back_first[node + 1]]``: arcs that lead to it
    )
    back_arc: Ints
    cell: Ints  # ``cell[arc]``: the cell it passes, -1 for none
    state: Ints  # ``state[arc]``: the state which that cell must have
    resource: Ints  # ``resource[node]``
    capacity: Ints  # ``capacity[resource]``: how many circuits it holds
    fibre: Ints  # ``fibre[node]``: the fibre (with cells) or edge (without) that it is, or -1
    terminal: Ints  # ``terminal[node]``: where light is about to enter a cell, or -1
    port_in: Ints  # ``port_in[node]``: the port of the stub into which its light enters, or -1
    port_out: Ints  # ``port_out[node]``: the port by whose stub it leaves, or -1

    def leaving(self, unit: int) -> int:
        """Return the node of light that comes out of a unit."""
        return unit

    def entering(self, unit: int) -> int:
        """Return the node of light that goes into a unit."""
        return self.units + unit


@lru_cache(maxsize=8)
def build_flow_graph(fabric: Fabric) -> FlowGraph:
    """Build the graph of a rack, or of a switch with cells.

    Time and memory are linear in cells, or in neighbouring fibres.
    """
    if fabric.graph is not None:
        return _through_cells(fabric, fabric.graph)
    return _through_servers(units_of(fabric))


def _through_servers(rack: Units) -> FlowGraph:
    units, size = rack.n_units, rack.n_units // rack.n_servers
    edges, inner = rack.edges.tolist(), 2 * rack.n_units
    out = defaultdict[int, list[int]](list)  # of servers, and of switches between racks
    for edge, (tail, _) in enumerate(edges):
        out[tail].append(edge)
    arcs: list[list[int]] = []
    for unit in range(units):
        server = unit // size
        arcs.append([inner + edge for edge in out[server]])
        arcs[unit] += [units + d for d in range(server * size, (server + 1) * size)]
    arcs += [[] for _ in range(units)]
    for tail, head in edges:
        ahead = out[head] if rack.through or head >= rack.n_servers else []
        onward = [inner + edge for edge in ahead if edges[edge][1] != tail]
        own = range(head * size, (head + 1) * size) if head < rack.n_servers else ()
        arcs.append(onward + [units + d for d in own])
    nodes = inner + len(edges)
    none = np.full(nodes, -1)
    fibre = none.copy()
    fibre[inner:] = np.arange(len(edges))
    arcs_in_all = sum(map(len, arcs))
    return _freeze(
        rack,
        first=np.cumsum([0, *map(len, arcs)]),
        head=np.array([head for heads in arcs for head in heads]),
        cell=np.full(arcs_in_all, -1),
        state=np.zeros(arcs_in_all),
        resource=np.arange(nodes),
        capacity=np.append(np.full(inner, rack.ports_per_unit), rack.edge_fibres),
        fibre=fibre,
        terminal=none,
        port_in=none,
        port_out=none,
    )


def _through_cells(fabric: Fabric, graph: CellGraph) -> FlowGraph:
    of_units = units_of(fabric)
    per_unit, units, n_terminals = of_units.ports_per_unit, of_units.n_units, len(graph.mate)
    inner = 2 * units
    into, out_of = inner, inner + n_terminals  # the first node towards a terminal, out of one
    sources, destinations = fabric.source_terminals, fabric.destination_terminals
    terminals = np.arange(n_terminals)
    exits = terminals[:, None] // 4 * 4 + EXITS[terminals % 4]  # faults are known later
    onward = graph.mate[exits]
    port_at = np.full(n_terminals, -1)
    port_at[destinations] = np.arange(fabric.n_ports)
    heads = np.where(onward >= 0, into + onward, np.where(port_at[exits] >= 0, out_of + exits, -1))
    tail = [np.arange(fabric.n_ports) // per_unit, np.repeat(into + terminals, 2)]
    head = [into + sources, heads.ravel()]
    cell = [np.full(fabric.n_ports, -1), np.repeat(terminals // 4, 2)]
    state = [np.zeros(fabric.n_ports, dtype=np.int64), np.tile([0, 1], n_terminals)]
    tail.append(np.asarray(out_of + destinations))
    head.append(units + np.arange(fabric.n_ports) // per_unit)
    cell.append(cell[0])
    state.append(state[0])
    tails, all_heads = np.concatenate(tail), np.concatenate(head)
    order = np.argsort(tails, kind="stable")
    order = order[all_heads[order] >= 0]
    nodes, links = inner + 2 * n_terminals, graph.links
    none = np.full(nodes, -1)
    port_in, port_out, terminal, fibre = (none.copy() for _ in range(4))
    port_in[into + sources] = np.arange(fabric.n_ports)
    port_out[out_of + destinations] = np.arange(fabric.n_ports)
    terminal[into:out_of] = terminals
    fibre[into:out_of] = of_units.fibre_of_terminal
    resource = np.concatenate(
        [links.count + np.arange(inner), links.of_terminal, links.of_terminal]
    )
    return _freeze(
        of_units,
        first=np.searchsorted(tails[order], np.arange(nodes + 1)),
        head=all_heads[order],
        cell=np.concatenate(cell)[order],
        state=np.concatenate(state)[order],
        resource=resource,
        capacity=np.append(np.ones(links.count), np.full(inner, per_unit)),
        fibre=fibre,
        terminal=terminal,
        port_in=port_in,
        port_out=port_out,
    )


def _freeze(
    units: Units, first: NDArray[Any], head: NDArray[Any], **others: NDArray[Any]
) -> FlowGraph:
    """Make a graph of arrays, with the tail of each arc and the arcs that lead to each node."""
    nodes, back_arc = np.arange(len(first) - 1), np.argsort(head, kind="stable")
    others |= {
        "first": first,
        "head": head,
        "tail": np.repeat(nodes, np.diff(first)),
        "back_first": np.searchsorted(head[back_arc], np.arange(len(first))),
        "back_arc": back_arc,
    }
    arrays = {name: array.astype(np.int32) for name, array in others.items()}
    for array in arrays.values():
        array.flags.writeable = False
    return FlowGraph(units.n_units, units.ports_per_unit, 2 * units.n_units, **arrays)
