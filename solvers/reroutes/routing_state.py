"""A running state on its flow graph: the circuit on each part, and routes through free parts.

A *unit* is a chip with its ports, or one port of a switch; a circuit is *hit* if a failure takes
its light or one of its ends.

The *flow graph* says where light can go through cells of a mesh, or fibres of a rack. Nodes are
light going one way: out of a unit, towards a terminal of a cell, over the fibres of an edge, into
a unit. Arcs lead from node to node, through a cell in a state or through an ideal interposer. A
node uses one unit of its *resource*: the waveguide, of which both directions are one resource, the
fibres of the edge, or the ports of the chip; the *capacity* of a resource is the number of
circuits that may use it at once. A *path* is a circuit on the flow graph: the nodes from its unit
out to its unit in. Circuits hold together if no resource is overdrawn: through a cell in two
states there are no two paths that share no waveguide.

A *waveguide*, or link, joins two terminals (`optmatch.solvers.routing` numbers them), or ends at
one where a port may be. A *stub* is the waveguide between a port and its first cell. An *edge* is
a bundle of fibres from one server of a rack to another.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import EXITS, CellGraph, Fabric, Units, units_of
from optmatch.model import FREE, uncounted
from optmatch.problems import Reroute
from optmatch.solvers.kernels.arrays import make_read_only
from optmatch.solvers.kernels.two_sided import new_search_end
from optmatch.solvers.reroutes.splice import (
    LOSS_COST,
    FlowGraph,
    Net,
    RerouteSpace,
    route,
    weigh,
)


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
    nodes are each unit out, each unit in, each edge, and each is a resource of its own: with 4
    units, 0 to 3 is light out of them, 4 to 7 light into them, and 8 is edge 0.
    """
    n_units = rack.n_units
    units_per_server = n_units // rack.n_servers
    edges = rack.edges.tolist()
    n_unit_nodes = 2 * n_units

    # ``edges_out[place]``: the edges that begin at a server, or at a switch between racks.
    edges_out = defaultdict[int, list[int]](list)
    for edge, (start, _) in enumerate(edges):
        edges_out[start].append(edge)

    # ``nodes_into[server]``: the nodes of light into its units.
    into_units = np.arange(n_units, n_unit_nodes).reshape(rack.n_servers, units_per_server)
    nodes_into = into_units.tolist()

    # ``heads_of_node[node]``: where its arcs lead. Light that is in a unit goes nowhere.
    heads_of_node: list[list[int]] = []
    for unit in range(n_units):
        server = unit // units_per_server
        edge_nodes = [n_unit_nodes + edge for edge in edges_out[server]]
        heads_of_node.append(edge_nodes + nodes_into[server])
    heads_of_node += [[] for _ in range(n_units)]

    # Light of an edge comes to the units at its end, and goes on over other edges if servers pass
    # light through, or if it ends at a switch; not back to where it came from.
    for start, end in edges:
        is_switch = end >= rack.n_servers
        onward = edges_out[end] if rack.through or is_switch else []
        heads = [n_unit_nodes + edge for edge in onward if edges[edge][1] != start]
        if not is_switch:
            heads += nodes_into[end]
        heads_of_node.append(heads)

    # A unit sends, and receives, as many circuits as it has ports; an edge carries one for each
    # fibre.
    n_nodes = n_unit_nodes + len(edges)
    n_arcs = sum(map(len, heads_of_node))
    none = np.full(n_nodes, -1)
    return _make_flow_graph(
        rack,
        first=np.cumsum([0, *map(len, heads_of_node)]),
        head=np.array([head for heads in heads_of_node for head in heads]),
        cell=np.full(n_arcs, -1),
        state=np.zeros(n_arcs),
        resource=np.arange(n_nodes),
        capacity=np.append(np.full(n_unit_nodes, rack.ports_per_unit), rack.edge_fibres),
        fibre=np.append(none[:n_unit_nodes], np.arange(len(edges))),
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

    With 2 units and 2 cells these are 0 to 1, 2 to 3, 4 to 11 and 12 to 19.

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

    # Through cells, as if none were faulty: faults are known later. Cell c has the terminals 4 c
    # to 4 c + 3. ``exits[terminal, state]`` is where light leaves the cell that it entered at a
    # terminal, and the terminal joined to it (`mate`) is where it enters the next cell. An exit
    # without a mate and without a port leads nowhere: its head is -1.
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

    # Both nodes of a terminal are one waveguide, which holds one circuit. Arrays by node are in
    # three parts: units, light into cells, and light out of the fabric.
    links = graph.links
    none = np.full(n_nodes, -1)
    port_in = none.copy()
    port_in[entering_sources] = ports
    port_out = none.copy()
    port_out[leaving_destinations] = ports
    no_unit = none[:n_unit_nodes]
    no_terminal = none[first_leaving:]
    resource = np.concatenate(
        [links.count + np.arange(n_unit_nodes), links.of_terminal, links.of_terminal]
    )
    return _make_flow_graph(
        units,
        first=np.searchsorted(tail[order], np.arange(n_nodes + 1)),
        head=head[order],
        cell=cell[order],
        state=state[order],
        resource=resource,
        capacity=np.append(np.ones(links.count), np.full(n_unit_nodes, per_unit)),
        fibre=np.concatenate([no_unit, units.fibre_of_terminal, no_terminal]),
        terminal=np.concatenate([no_unit, terminals, no_terminal]),
        port_in=port_in,
        port_out=port_out,
    )


def _make_flow_graph(
    units: Units, first: NDArray[Any], head: NDArray[Any], **node_and_arc_data: NDArray[Any]
) -> FlowGraph:
    """Make a graph of read-only int32 arrays, with tails of arcs and the arcs into each node."""
    nodes = np.arange(len(first) - 1)
    back_arc = np.argsort(head, kind="stable")
    node_and_arc_data |= {
        "first": first,
        "head": head,
        "tail": np.repeat(nodes, np.diff(first)),
        "back_first": np.searchsorted(head[back_arc], np.arange(len(first))),
        "back_arc": back_arc,
    }
    arrays = {name: array.astype(np.int32) for name, array in node_and_arc_data.items()}
    make_read_only(*arrays.values())
    return FlowGraph(units.n_units, units.ports_per_unit, 2 * units.n_units, **arrays)


_DEAD_CELL = 2  # a `mode` that no arc asks for: its states are 0 and 1
ROUNDS = 24
"""How often circuits are routed before it is given up that they get out of each other's way."""
Path = NDArray[np.int32]
"""The nodes of a circuit on the flow graph."""
NOBODY = -1
"""The user of a part that is free."""
DEAD = -2
"""The user of a part that has failed."""
SOURCE = 0
DESTINATION = 1


class Users(NamedTuple):
    """The circuit that uses each port and fibre; `NOBODY` or `DEAD` without one."""

    ports: NDArray[np.int32]
    """``ports[end, port]``, where end 0 is the source."""
    fibres: NDArray[np.int32]
    """``fibres[fibre]``: the same for fibres."""


class HitCircuits(NamedTuple):
    """Circuits and units that a failure took away, and the spares that are there."""

    hit: tuple[int, ...]
    """Circuits without light, or with an end that is lost."""
    lost: tuple[int, ...]
    """Units with circuits that have failed: each needs a spare."""
    spares: tuple[int, ...]
    """Units that can take over."""
    owners: NDArray[np.int32]
    """(circuits,): the job that each circuit belongs to."""
    priorities: NDArray[np.int64] | None = None
    """``priorities[circuit]``, of its job: those with lower ones give way first."""

    def foreign(self, circuit: int) -> bool:
        """Tell whether a circuit is of a job without hit circuits."""
        return not bool((self.owners[list(self.hit)] == self.owners[circuit]).any())


class RoutingState:
    """The free parts around the circuits of a state; `without` takes circuits off.

    Parts that have failed are not free.

    Attributes
    ----------
    graph : FlowGraph
        The flow graph, whose arrays nobody changes.
    circuits : int array, shape (circuits, 2)
        The source and the destination port of each circuit.
    free : int32 array, shape (resources,)
        How many further circuits each resource of the flow graph can hold.
    shut : bool array, shape (nodes,)
        Whether no light passes a node, whoever it belongs to.
    mode : int8 array, shape (cells,)
        The only state that a cell can take: 0 bar, 1 cross; -1 if it can take both, 2 if it is
        dead.
    now : int8 array, shape (cells,)
        The present states, -1 where not known.
    ends : int array, shape (circuits, 2)
        The units of the source and the destination of each circuit.
    paths : list of int32 array
        The nodes of each circuit, from the unit out to the unit in.
    cost : int64 array, shape (arcs,)
        Loss and length of each arc: hundredths of a dB times `LOSS_COST`, plus the number of
        cells and fibres.
    users : Users
        The circuit on each port and fibre of a rack with ideal interposers.
    old_routes : sequence of tuples
        The route of each circuit as the problem has it: fibres passed in a rack with ideal
        interposers, else terminals entered.
    first_fibre : list of int
        In a rack with ideal interposers, edge e has the fibres from ``first_fibre[e]`` up to
        ``first_fibre[e + 1]``. Empty on a fabric with cells.
    work : RerouteSpace
        The arrays of searches, which `route` overwrites.
    """

    def __init__(self, problem: Reroute) -> None:
        """Put all circuits of a running state on its flow graph, and close what has failed.

        Each circuit first takes one unit of every resource on its path, also of those that have
        failed: a circuit that has lost its light keeps its parts until it is taken off. Failed
        ports, fibres and cells are then shut for all further paths, and a stuck cell keeps its
        state in `mode`.
        """
        # The fabric with its flow graph, and the circuits as they run.
        fabric = problem.fabric
        graph = build_flow_graph(fabric)
        self.graph: FlowGraph = graph
        self.fabric = fabric
        self.units = problem.units
        self.circuits = problem.circuits
        self.old_routes = problem.circuit_routes

        # The circuit on each port, and on each fibre of a rack with ideal interposers.
        ports = np.full((2, fabric.n_ports), NOBODY, dtype=np.int32)
        for end in (SOURCE, DESTINATION):
            ports[end, problem.circuits[:, end]] = np.arange(len(problem.circuits))
        fibres = np.full(problem.units.n_fibres, NOBODY, dtype=np.int32)
        if fabric.graph is None:
            fibres[problem.passed.part] = problem.passed.circuit
        self.users = Users(ports, fibres)

        # ``_mate[terminal]`` is the joined terminal, on a fabric with cells.
        self.first_fibre: list[int] = []
        self._mate: NDArray[np.int32] = np.empty(0, dtype=np.int32)
        if fabric.graph is not None:
            self._mate = fabric.graph.mate
        else:
            self.first_fibre = [0, *np.cumsum(problem.units.edge_fibres).tolist()]

        # ``mode[cell]``: the only state that it can take, `FREE` as long as no cell is known to
        # be stuck; ``now[cell]``: its present state. Kernels get arrays of one entry at least.
        self.mode = np.full(max(1, fabric.n_cells), FREE, dtype=np.int8)
        self.now = self.mode.copy()
        if problem.cell_states is not None:
            self.now[:] = problem.cell_states

        # ``cost[arc]``: loss and length, of the cell that it passes and the fibre that it enters.
        # One number holds both: a hundredth of a dB counts `LOSS_COST` and is compared first, a
        # cell or a fibre counts 1.
        cell_loss, fibre_loss = problem.loss_units
        fibre_cost = np.where(graph.fibre >= 0, fibre_loss * LOSS_COST + 1, 0)
        cell_cost = np.where(graph.cell >= 0, cell_loss * LOSS_COST + 1, 0)
        self.cost: NDArray[np.int64] = (cell_cost + fibre_cost[graph.head]).astype(np.int64)

        # The circuits of now use up resources; then what has failed is closed.
        self.free = graph.capacity.astype(np.int32)
        self.shut = np.zeros(len(graph.resource), dtype=np.bool_)
        self.ends = problem.circuits // graph.per_unit  # ``per_unit`` ports belong to a unit
        nodes, stops = self._list_nodes_of_paths(problem)
        self.paths = [nodes[start:stop] for start, stop in pairwise([0, *stops.tolist()])]
        self.free -= np.bincount(graph.resource[nodes], minlength=len(self.free))
        self.shut_ports(problem.dead_ports)
        self.shut_fibres(problem.failed_fibres)
        self.break_cells(problem.stuck, problem.dead_cells)

        # The search begins with a workspace for 16 circuits at once, which grows if more come.
        self.work = self._new_workspace(16)

    def fork(self, work: RerouteSpace | None = None) -> RoutingState:
        """Copy this state, so that parts can be closed and circuits moved in the copy alone.

        The flow graph and the costs are shared, since nobody changes them; `work` is the workspace
        for searches in the copy, None for one of its own.
        """
        twin = copy.copy(self)
        twin.free = self.free.copy()
        twin.shut = self.shut.copy()
        twin.mode = self.mode.copy()
        twin.now = self.now.copy()
        twin.users = Users(self.users.ports.copy(), self.users.fibres.copy())
        twin.paths = list(self.paths)
        twin.work = self._new_workspace(16) if work is None else work
        return twin

    def close(self, fibres: Iterable[int], ports: Iterable[int], cells: Iterable[int]) -> None:
        """Leave parts to the circuits that have them now: no other circuit gets them.

        All three arguments are numbers of parts; a circuit that has lost its light has its parts
        as well. Parts that nobody has are closed to everybody, and the `cells` are dead from now
        on. On a fabric with cells, all `fibres` are shut to further paths, and the `ports` that no
        circuit has. In a rack without cells, ``users.ports[end, port]`` (end 0 sends, 1 receives)
        and ``users.fibres[fibre]`` say who has a part, and these fibres stay taken when their
        circuit is taken off.
        """
        # With cells, a circuit that runs keeps its ports: only ports without one are closed.
        self.break_cells({}, cells)
        if self.fabric.graph is not None:
            self.shut_fibres(fibres)
            self.shut_ports(np.setdiff1d(list(ports), self.circuits).tolist())
            return
        graph = self.graph
        users = self.users
        edges = self.units.edge_of_fibre
        for fibre in fibres:
            node = graph.inner + edges[fibre]
            user = users.fibres[fibre]

            # ``free[node]`` counts the free fibres of the edge. A circuit that is taken off adds 1
            # for each node of its path: once the edge is deleted from the path, the fibre of its
            # user is not given back. A fibre of nobody is subtracted; one that is dead already
            # stays as it is, since it was subtracted before.
            if user >= 0:
                path = self.paths[user]
                places = np.flatnonzero(path == node)[:1]
                self.paths[user] = np.delete(path, places)
            elif user == NOBODY:
                self.free[node] -= 1
            users.fibres[fibre] = DEAD
        for port in ports:
            unit = port // graph.per_unit
            for end, node in enumerate((graph.leaving(unit), graph.entering(unit))):
                if users.ports[end, port] == NOBODY:
                    self.free[node] -= 1
                    users.ports[end, port] = DEAD

    def shut_ports(self, ports: Iterable[int]) -> None:
        """Let no more light in and out at ports.

        In a rack without cells, each takes one from what is free of its unit, in both directions;
        with cells, the nodes at the stub of the port are shut.
        """
        graph = self.graph
        for port in ports:
            unit = port // graph.per_unit
            if self.fabric.graph is None:
                self.free[[graph.leaving(unit), graph.entering(unit)]] -= 1
                self.users.ports[:, port] = DEAD
            else:
                self.shut[(graph.port_in == port) | (graph.port_out == port)] = True

    def shut_fibres(self, fibres: Iterable[int]) -> None:
        """Send no more light through fibres.

        In a rack without cells, each takes one from what is free of its edge; with cells, its
        nodes are shut.
        """
        for fibre in fibres:
            if self.fabric.graph is None:
                edge = self.units.edge_of_fibre[fibre]
                self.free[self.graph.inner + edge] -= 1
                self.users.fibres[fibre] = DEAD
            else:
                self.shut[self.graph.fibre == fibre] = True

    def break_cells(self, stuck: Mapping[int, int], dead: Iterable[int]) -> None:
        """Leave cells in a state for good, or dark.

        ``stuck[cell]`` is the only state of a cell, 0 bar or 1 cross; cells of `dead` lead no
        light.
        """
        for cell, state in stuck.items():
            self.mode[cell] = state
            self.now[cell] = state
        self.mode[list(dead)] = _DEAD_CELL

    def _list_nodes_of_paths(self, problem: Reroute) -> tuple[Path, NDArray[np.int64]]:
        """List the nodes of all paths one behind the other, and where each path ends.

        A path begins with the node of the unit that its circuit leaves, and ends with that of the
        unit that it enters. Returns the nodes, and ``stops[circuit]``: the place behind the last
        node of the path, where that of the next circuit begins. With two paths of 4 and 5 nodes
        these are 4 and 9.
        """
        # Nodes are numbered in this order: units left; units entered, from ``graph.units`` on; and
        # from ``graph.inner`` on, with cells, terminals at which light enters a cell and then
        # those by which it leaves the fabric; without cells, edges of fibres.
        #
        # The nodes between both units, in the order of the light, and whose they are. With cells:
        # the terminals that each circuit enters (``passed.part``), then the one by which its light
        # leaves the fabric. Without cells: the edges of the fibres that it passes.
        fabric = problem.fabric
        passed = problem.passed
        each_circuit = np.arange(len(self.ends))
        if fabric.graph is None:
            inner_nodes: list[NDArray[Any]] = [problem.units.edge_of_fibre[passed.part]]
            inner_circuits = [passed.circuit]
        else:
            last = fabric.destination_terminals[problem.circuits[:, 1]]
            inner_nodes = [passed.part, len(fabric.graph.mate) + last]
            inner_circuits = [passed.circuit, each_circuit]

        # First all units left, then these nodes, at last all units entered: a stable sort by
        # circuit brings each path together, and keeps this order.
        inner = self.graph.inner + np.concatenate(inner_nodes)
        node = np.concatenate([self.ends[:, 0], inner, self.graph.units + self.ends[:, 1]])
        circuit = np.concatenate([each_circuit, *inner_circuits, each_circuit])
        order = np.argsort(circuit, kind="stable")
        stops = np.cumsum(np.bincount(circuit))
        return node[order].astype(np.int32), stops

    def _new_workspace(self, circuits: int) -> RerouteSpace:
        """Make a workspace for so many circuits at once."""
        # A route that is found passes each node once; one that runs may go round a ring.
        n_nodes = len(self.graph.resource)
        most_on_path = max([n_nodes, *map(len, self.paths)])
        n_resources = len(self.graph.capacity)
        n_places = len(self.graph.head) + 2
        return RerouteSpace(
            using=np.zeros(n_resources, dtype=np.int32),
            history=np.zeros(n_resources, dtype=np.int64),
            forward=new_search_end(n_nodes, n_places),
            backward=new_search_end(n_nodes, n_places),
            path=np.zeros((circuits, most_on_path), dtype=np.int32),
            length=np.zeros(circuits, dtype=np.int64),
            passing=np.zeros(len(self.now), dtype=np.int8),
        )

    @contextmanager
    def without(self, circuits: Iterable[int]) -> Iterator[None]:
        """Take circuits off for a while: the resources on their paths are free."""
        no_nodes = np.empty(0, dtype=np.int32)
        nodes = np.concatenate([no_nodes, *(self.paths[circuit] for circuit in circuits)])
        resources = self.graph.resource[nodes]
        np.add.at(self.free, resources, 1)
        try:
            yield
        finally:
            np.subtract.at(self.free, resources, 1)

    def cells_of(self, path: Path) -> list[tuple[int, int]]:
        """List the cells that a path passes, and the states they must have.

        Returns pairs (cell, state) in the order of the light, 0 for bar and 1 for cross; none
        where interposers are ideal.
        """
        # A path is numbers of nodes: a unit, each terminal that light enters, numbered from
        # `graph.inner` on, the one by which it leaves the fabric, and a unit. Those of leaving
        # come behind those of entering. A cell is left where the next link begins: at the other
        # end of the link to the next terminal (`mate`). Cell c has the terminals 4 c to 4 c + 3,
        # two on each side; cross changes the lowest bit, the place on the side.
        if self.first_fibre:
            return []
        entering = self.graph.terminal[path[1:-2]]
        last = path[-2] - self.graph.inner - len(self._mate)
        leaving = np.append(self._mate[entering[1:]], last)
        state = (entering ^ leaving) & 1
        return list(zip((entering // 4).tolist(), state.tolist(), strict=True))

    def sum_up(self, paths: Sequence[Path]) -> tuple[int, int, int]:
        """Count cells to be set, the worst loss in hundredths of a dB, and the length.

        The results are in this order. A cell that several paths need in another state than it has
        counts once; the length is the number of cells and fibres on all paths.
        """
        self._make_room(len(paths))
        for k, path in enumerate(paths):
            self.work.path[k, : len(path)] = path
            self.work.length[k] = len(path)
        cells_set, worst_loss, length = weigh(self._arrays(), self.work, len(paths))
        return int(cells_set), int(worst_loss), int(length)

    def route(self, ends: Sequence[tuple[int, int]], rounds: int = ROUNDS) -> list[Path] | None:
        """Route circuits from unit to unit together through free parts, by negotiated congestion.

        ``ends[k]`` are the units of the source and the destination of a circuit, and the k-th path
        of the result has the nodes of its route. None if some circuit is cut off, or circuits do
        not get out of each other's way in so many rounds.
        """
        self._make_room(len(ends))
        nodes = np.array(ends, dtype=np.int64).reshape(-1, 2)
        nodes[:, 1] += self.graph.units
        if route(self._arrays(), self.work, nodes, rounds) <= 0:
            return None
        sizes = self.work.length[: len(ends)].tolist()
        return [self.work.path[k, :size].copy() for k, size in enumerate(sizes)]

    def open_arcs(self) -> NDArray[np.bool_]:
        """Tell which arcs light can take, were it not for other circuits; shape (arcs,)."""
        mode = self.mode[self.graph.cell]
        lit = (self.graph.cell < 0) | (mode < 0) | (mode == self.graph.state)
        are_open: NDArray[np.bool_] = (
            lit & ~self.shut[self.graph.head] & ~self.shut[self.graph.tail]
        )
        return are_open

    def _make_room(self, count: int) -> None:
        """Replace the workspace if it is too small for so many circuits."""
        if count > len(self.work.length):
            self.work = self._new_workspace(2 * count)

    def _arrays(self) -> Net:
        """Return the arrays of the graph and of the state that kernels need."""
        return Net(
            graph=self.graph,
            cost=self.cost,
            free=self.free,
            shut=self.shut,
            mode=self.mode,
            now=self.now,
        )


def spread(
    n: int, seeds: Sequence[int] | NDArray[Any], tail: NDArray[Any], head: NDArray[Any]
) -> NDArray[np.bool_]:
    """Mark which nodes can be reached from some of them over arcs (breadth-first search).

    There are `n` nodes, those in `seeds` are reached to begin with, and arc k leads from
    ``tail[k]`` to ``head[k]``. The result has the shape (n,).
    """
    with uncounted():
        from scipy.sparse import csr_array  # takes a third of a second
        from scipy.sparse.csgraph import breadth_first_order

    # The search begins at a node of its own, from which arcs lead to the seeds.
    tails = np.append(tail, np.full(len(seeds), n))
    heads = np.append(head, seeds)
    graph = csr_array((np.ones(len(tails)), (tails, heads)), shape=(n + 1, n + 1))
    reached = np.zeros(n + 1, dtype=np.bool_)
    reached[breadth_first_order(graph, n, return_predecessors=False)] = True
    return reached[:n]
