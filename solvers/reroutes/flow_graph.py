"""The flow graph of a fabric: where light can go through cells of a mesh, or fibres of a rack.

Nodes are light going one way: out of a unit (a chip or a port), towards a terminal of a cell, over
the fibres of an edge, into a unit. Arcs lead from node to node, through a cell in a state or
through an ideal interposer. A node uses one unit of its *resource*: the waveguide, of which both
directions are one resource, the fibres of the edge, or the ports of the chip. A circuit is a path
from a unit out to a unit in, and circuits hold together if no resource is overdrawn: through a
cell in two states there are no two paths that share no waveguide.

A *unit* is what a spare replaces (`Units`): a chip with all its ports, or one port of a switch. A
*cell* has four *terminals*, numbered ``4 * cell + k``; light that enters at one leaves at another,
which depends on the state of the cell, 0 (bar) or 1 (cross). A *waveguide*, or link, joins two
terminals, or ends at one where a port may be. An *edge* is a bundle of fibres from one server of a
rack to another. A *stub* is the waveguide between a port and its first cell. The *capacity* of a
resource is the number of circuits that may use it at once: 1 for a waveguide, the number of fibres
for an edge, the number of ports for a unit.
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
    """A flow graph; arrays are read-only. Units come first: ``u`` out, ``units + u`` in.

    Arcs are numbered by the node that they leave, hence those of a node follow each other. Arrays
    by node have the shape (nodes,), arrays by arc (arcs,), `first` and `back_first` (nodes + 1,).
    """

    units: int  # the number of units
    per_unit: int
    """The ports of a unit."""
    inner: int
    """The first node that is no unit."""
    first: Ints
    """``first[node] .. first[node + 1]``: the arcs that leave a node."""
    head: Ints
    """``head[arc]``: the node it leads to."""
    tail: Ints
    """``tail[arc]``: the node it leaves."""
    back_first: Ints
    """``back_arc[back_first[node] .. back_first[node + 1]]``: the arcs that lead to a node."""
    back_arc: Ints  # (arcs,): the arcs in the order of the nodes that they lead to
    cell: Ints
    """``cell[arc]``: the cell it passes, -1 for none."""
    state: Ints
    """``state[arc]``: the state which that cell must have."""
    resource: Ints
    """``resource[node]``: what a circuit at this node uses one unit of."""
    capacity: Ints
    """``capacity[resource]``: how many circuits it holds."""
    fibre: Ints
    """``fibre[node]``: the fibre (with cells) or edge (without) that it is, or -1."""
    terminal: Ints
    """``terminal[node]``: where light is about to enter a cell, or -1."""
    port_in: Ints
    """``port_in[node]``: the port of the stub into which its light enters, or -1."""
    port_out: Ints
    """``port_out[node]``: the port by whose stub it leaves, or -1."""

    def leaving(self, unit: int) -> int:
        """Return the node of light that comes out of a unit."""
        return unit

    def entering(self, unit: int) -> int:
        """Return the node of light that goes into a unit."""
        return self.units + unit


@lru_cache(maxsize=8)
def build_flow_graph(fabric: Fabric) -> FlowGraph:
    """Build the graph of a rack, or of a switch with cells.

    The last graphs are kept: the same fabric gets the same graph, whose arrays are read-only.

    Time and memory are linear in cells, or in neighbouring fibres.
    """
    if fabric.graph is not None:
        return _through_cells(fabric, fabric.graph)
    return _through_servers(units_of(fabric))


def _through_servers(rack: Units) -> FlowGraph:
    """Build the graph of a rack with ideal interposers: a node for each edge between servers.

    An arc leads from a unit to the edges and units of its server, and from an edge to those of the
    server at its end, or onward through a switch between racks. Light does not turn back. The
    nodes are each unit out, each unit in, each edge, and each is a resource of its own.
    """
    n_units = rack.n_units
    units_per_server = n_units // rack.n_servers
    edges = rack.edges.tolist()
    n_unit_nodes = 2 * n_units

    # ``edges_out[place]``: the edges that begin at a server, or at a switch between racks.
    edges_out = defaultdict[int, list[int]](list)
    for edge, (start, _) in enumerate(edges):
        edges_out[start].append(edge)

    def unit_nodes(server: int) -> list[int]:
        """List the nodes of light into the units of a server."""
        first_unit = server * units_per_server
        return [n_units + unit for unit in range(first_unit, first_unit + units_per_server)]

    # ``heads_of_node[node]``: where its arcs lead. Light that is in a unit goes nowhere.
    heads_of_node: list[list[int]] = []
    for unit in range(n_units):
        server = unit // units_per_server
        edge_nodes = [n_unit_nodes + edge for edge in edges_out[server]]
        heads_of_node.append(edge_nodes + unit_nodes(server))
    heads_of_node += [[] for _ in range(n_units)]

    # Light of an edge comes to the units at its end, and goes on over other edges if servers pass
    # light through, or if it ends at a switch; not back to where it came from.
    for start, end in edges:
        is_switch = end >= rack.n_servers
        onward = edges_out[end] if rack.through or is_switch else []
        heads = [n_unit_nodes + edge for edge in onward if edges[edge][1] != start]
        if not is_switch:
            heads += unit_nodes(end)
        heads_of_node.append(heads)

    # A unit sends, and receives, as many circuits as it has ports; an edge carries one for each
    # fibre.
    n_nodes = n_unit_nodes + len(edges)
    n_arcs = sum(map(len, heads_of_node))
    none = np.full(n_nodes, -1)
    fibre = none.copy()
    fibre[n_unit_nodes:] = np.arange(len(edges))
    return _freeze(
        rack,
        first=np.cumsum([0, *map(len, heads_of_node)]),
        head=np.array([head for heads in heads_of_node for head in heads]),
        cell=np.full(n_arcs, -1),
        state=np.zeros(n_arcs),
        resource=np.arange(n_nodes),
        capacity=np.append(np.full(n_unit_nodes, rack.ports_per_unit), rack.edge_fibres),
        fibre=fibre,
        terminal=none,
        port_in=none,
        port_out=none,
    )


def _through_cells(fabric: Fabric, graph: CellGraph) -> FlowGraph:
    """Build the graph of a fabric with cells: two nodes for each terminal.

    The one is light on its way into a cell at the terminal, the other light that leaves the fabric
    there. Two arcs lead through a cell from each terminal, one for each state; they end where
    light enters the next cell, or leaves by a port. Both nodes of a terminal, and those of the
    terminal that it is joined to, use the same resource: the waveguide between the two.

    The nodes, in this order, for U units and T = 4 * cells terminals:

    - 0 ... U - 1: light that comes out of a unit;
    - U ... 2U - 1: light that goes into a unit;
    - 2U ... 2U + T - 1: light about to enter a cell, at terminal 0 ... T - 1;
    - 2U + T ... 2U + 2T - 1: light that leaves the fabric, by terminal 0 ... T - 1 (only those
      where a port is have arcs).

    The resources: the waveguides, each for one circuit, then the nodes of units, each for as many
    circuits as a unit has ports.
    """
    units = units_of(fabric)
    per_unit = units.ports_per_unit
    n_units = units.n_units
    n_terminals = len(graph.mate)
    ports = np.arange(fabric.n_ports)
    terminals = np.arange(n_terminals)
    n_unit_nodes = 2 * n_units
    first_entering = n_unit_nodes  # the node of light into a cell at terminal 0
    first_leaving = n_unit_nodes + n_terminals  # the node of light out of terminal 0
    n_nodes = n_unit_nodes + 2 * n_terminals
    entering_sources = first_entering + fabric.source_terminals
    leaving_destinations = first_leaving + fabric.destination_terminals

    # Through cells, as if none were faulty: faults are known later. ``exits[terminal, state]`` is
    # where light leaves the cell that it entered at a terminal, and its mate is where it enters
    # the next cell. An exit without a mate and without a port leads nowhere: its head is -1.
    exits = terminals[:, None] // 4 * 4 + EXITS[terminals % 4]
    entered_next = graph.mate[exits]
    port_at = np.full(n_terminals, -1)
    port_at[fabric.destination_terminals] = ports
    out_of_fabric = np.where(port_at[exits] >= 0, first_leaving + exits, -1)
    heads_through_cells = np.where(entered_next >= 0, first_entering + entered_next, out_of_fabric)

    # All arcs: from units into the fabric, one for each port; through cells, two for each
    # terminal; from the fabric into units, one for each port. They are sorted by the node that
    # they leave, and those that lead nowhere are left out.
    no_cells = np.full(fabric.n_ports, -1)
    no_states = np.zeros(fabric.n_ports, dtype=np.int64)
    tail = np.concatenate(
        [ports // per_unit, np.repeat(first_entering + terminals, 2), leaving_destinations]
    )
    head = np.concatenate(
        [entering_sources, heads_through_cells.ravel(), n_units + ports // per_unit]
    )
    cell = np.concatenate([no_cells, np.repeat(terminals // 4, 2), no_cells])
    state = np.concatenate([no_states, np.tile([0, 1], n_terminals), no_states])
    order = np.argsort(tail, kind="stable")
    order = order[head[order] >= 0]

    # Both nodes of a terminal are one waveguide, which holds one circuit.
    links = graph.links
    none = np.full(n_nodes, -1)
    port_in = none.copy()
    port_in[entering_sources] = ports
    port_out = none.copy()
    port_out[leaving_destinations] = ports
    terminal = none.copy()
    terminal[first_entering:first_leaving] = terminals
    fibre = none.copy()
    fibre[first_entering:first_leaving] = units.fibre_of_terminal
    resource = np.concatenate(
        [links.count + np.arange(n_unit_nodes), links.of_terminal, links.of_terminal]
    )
    return _freeze(
        units,
        first=np.searchsorted(tail[order], np.arange(n_nodes + 1)),
        head=head[order],
        cell=cell[order],
        state=state[order],
        resource=resource,
        capacity=np.append(np.ones(links.count), np.full(n_unit_nodes, per_unit)),
        fibre=fibre,
        terminal=terminal,
        port_in=port_in,
        port_out=port_out,
    )


def _freeze(
    units: Units, first: NDArray[Any], head: NDArray[Any], **others: NDArray[Any]
) -> FlowGraph:
    """Make a graph of read-only int32 arrays, with tails of arcs and the arcs into each node."""
    nodes = np.arange(len(first) - 1)
    back_arc = np.argsort(head, kind="stable")
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
