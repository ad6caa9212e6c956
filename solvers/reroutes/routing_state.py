"""A running state on its flow graph: the circuit on each part, and routes through free parts.

A *running state* is a fabric with circuits in use. *Units* are what spares replace: chips with all
their ports, or single ports (`flow_graph`). A *path* is a circuit on the flow graph: the nodes
from its unit out to its unit in. Each node uses one unit of a *resource*: a waveguide, the fibres
of an edge, the ports of a chip. A circuit is *hit* if a failure takes its light, or one of its
ends.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import FREE
from optmatch.problems import Reroute
from optmatch.solvers.reroutes.flow_graph import FlowGraph, build_flow_graph
from optmatch.solvers.reroutes.naming import DEAD, NOBODY, list_users
from optmatch.solvers.reroutes.splice import (
    LOSS_COST,
    Net,
    RerouteSpace,
    make_workspace,
    route,
    weigh,
)

_DEAD_CELL = 2
ROUNDS = 24
"""How often circuits are routed before it is given up that they get out of each other's way."""
Path = NDArray[np.int32]


class HitCircuits(NamedTuple):
    """Circuits and units that a failure took away, and the spares that are there."""

    hit: tuple[int, ...]  # circuits without light, or with an end that is lost
    lost: tuple[int, ...]  # units with circuits that have failed: each needs a spare
    spares: tuple[int, ...]  # units that can take over
    owners: NDArray[np.int32]  # (circuits,): the job that each circuit belongs to
    priorities: NDArray[np.int64] | None = None
    """``priorities[circuit]``, of its job: those with lower ones give way first."""

    def foreign(self, circuit: int) -> bool:
        """Tell whether a circuit is of a job without hit circuits."""
        return not bool((self.owners[list(self.hit)] == self.owners[circuit]).any())


class FoundRoutes(NamedTuple):
    """Routes of some circuits that hold together."""

    levels: tuple[int, int, int]
    """Cells to be set, the worst loss in hundredths of a dB, and the length."""
    paths: list[Path]  # the nodes of each, from start to goal


class RoutingState:
    """The free parts around the circuits of a state; `lift` and `put` take circuits off and on.

    Parts that have failed are not free.

    Attributes
    ----------
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
    """

    def __init__(self, problem: Reroute) -> None:
        """Put all circuits of a running state on its flow graph, and close what has failed.

        Each circuit first takes one unit of every resource on its path, also of those that have
        failed: a circuit that has lost its light keeps its parts until it is taken off. Failed
        ports, fibres and cells are then shut for all further paths, and a stuck cell keeps its
        state in `mode`.
        """
        # The fabric with its flow graph, the circuits as they run, and who uses which port and
        # fibre of a rack.
        fabric = problem.fabric
        graph = build_flow_graph(fabric)
        self.graph: FlowGraph = graph
        self.fabric = fabric
        self.units = problem.units
        self.circuits = problem.circuits
        self.old_routes = problem.circuit_routes
        self.users = list_users(problem)

        # ``first_fibre[edge] .. first_fibre[edge + 1]``: the fibres of an edge, without cells;
        # ``_mate[terminal]``: the joined terminal, with cells.
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
        twin.users = self.users.copy()
        twin.paths = list(self.paths)
        twin.work = self._new_workspace(16) if work is None else work
        return twin

    def close(self, fibres: Iterable[int], ports: Iterable[int], cells: Iterable[int]) -> None:
        """Leave parts to the circuits that have them now, dark or not: no other circuit gets them.

        Such a circuit frees all its parts but these when it is taken off.
        """
        # With cells, a circuit that runs keeps its ports: only ports without one are closed.
        self.break_cells({}, cells)
        if self.fabric.graph is not None:
            used = self.circuits
            self.shut_fibres(fibres)
            self.shut_ports(np.setdiff1d(list(ports), used).tolist())
            return
        graph = self.graph
        users = self.users
        edges = self.units.edge_of_fibre
        for fibre in fibres:
            node = graph.inner + edges[fibre]
            user = users.fibres[fibre]

            # The path of the user no longer has the edge: the fibre stays taken when the circuit
            # is taken off. A fibre of nobody is taken from what is free on the edge.
            if user >= 0:  # it counts once, whether dead or in use
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
        """Let no more light in and out at ports."""
        graph = self.graph
        for port in ports:
            unit = port // graph.per_unit
            if self.fabric.graph is None:
                self.free[[graph.leaving(unit), graph.entering(unit)]] -= 1
                self.users.ports[:, port] = DEAD
            else:
                self.shut[(graph.port_in == port) | (graph.port_out == port)] = True

    def shut_fibres(self, fibres: Iterable[int]) -> None:
        """Send no more light through fibres."""
        graph = self.graph
        for fibre in fibres:
            if self.fabric.graph is None:
                edge = self.units.edge_of_fibre[fibre]
                self.free[graph.inner + edge] -= 1
                self.users.fibres[fibre] = DEAD
            else:
                self.shut[graph.fibre == fibre] = True

    def break_cells(self, stuck: Mapping[int, int], dead: Iterable[int]) -> None:
        """Leave cells in a state for good, or dark.

        ``stuck[cell]`` is the only state of a cell, 0 bar or 1 cross; cells of `dead` lead no
        light.
        """
        for cell, state in stuck.items():
            self.mode[cell] = state
            self.now[cell] = state
        for cell in dead:
            self.mode[cell] = _DEAD_CELL

    def _list_nodes_of_paths(self, problem: Reroute) -> tuple[Path, NDArray[np.int64]]:
        """List the nodes of all paths one behind the other, and where each path ends.

        A path begins with the node of the unit that its circuit leaves, and ends with that of the
        unit that it enters; ``graph.inner`` is the first node between them.
        """
        # Groups of nodes, in the order of light: units left; parts passed; on fabrics with cells
        # the terminals by which light leaves the fabric; units entered. In each group ``circuits``
        # has the circuit of every node.
        graph = self.graph
        fabric = problem.fabric
        passed = problem.passed
        numbers = np.arange(len(self.ends))
        circuits = [numbers, passed.circuit]
        nodes = [self.ends[:, 0], graph.inner + passed.part]
        if fabric.graph is None:
            nodes[1] = graph.inner + problem.units.edge_of_fibre[passed.part]
        else:
            last = fabric.destination_terminals[problem.circuits[:, 1]]
            circuits.append(numbers)
            nodes.append(graph.inner + len(fabric.graph.mate) + last)

        # A stable sort by circuit brings each path together, and keeps the order of the groups.
        circuit = np.concatenate([*circuits, numbers])
        node = np.concatenate([*nodes, graph.units + self.ends[:, 1]]).astype(np.int32)
        order = np.argsort(circuit, kind="stable")
        stops = np.cumsum(np.bincount(circuit))
        return node[order], stops

    def _new_workspace(self, circuits: int) -> RerouteSpace:
        """Make a workspace for so many circuits at once."""
        graph = self.graph
        sizes = len(graph.resource), len(graph.head), len(graph.capacity), len(self.now)
        return make_workspace(*sizes, circuits)

    def lift(self, paths: Sequence[Path]) -> None:
        """Take circuits off: the resources that they used are free."""
        if paths:
            np.add.at(self.free, self.graph.resource[np.concatenate(paths)], 1)

    def put(self, paths: Sequence[Path]) -> None:
        """Put circuits on: the resources that they use are no longer free."""
        if paths:
            np.subtract.at(self.free, self.graph.resource[np.concatenate(paths)], 1)

    @contextmanager
    def without(self, circuits: Iterable[int]) -> Iterator[None]:
        """Take circuits off for a while."""
        paths = [self.paths[circuit] for circuit in circuits]
        self.lift(paths)
        try:
            yield
        finally:
            self.put(paths)

    def cells_of(self, path: Path) -> list[tuple[int, int]]:
        """List the cells that a path passes, and the states they must have.

        Returns pairs (cell, state) in the order of the light, 0 for bar and 1 for cross; none
        where interposers are ideal.
        """
        # Between the units, a path has the terminals entered, and the one by which light leaves
        # the fabric. A cell is left where the next link begins: at the mate of the next terminal.
        if self.first_fibre:
            return []
        entered = self.graph.terminal[path[1:-2]]
        last = path[-2] - self.graph.inner - len(self._mate)
        left = np.append(self._mate[entered[1:]], last)
        return list(zip((entered // 4).tolist(), ((entered ^ left) & 1).tolist(), strict=True))

    def sum_up(self, paths: Sequence[Path]) -> tuple[int, int, int]:
        """Count cells to be set, the worst loss in hundredths of a dB, and the length.

        The length is the number of cells and fibres on all paths.
        """
        self._make_room(len(paths))
        for k, path in enumerate(paths):
            self.work.path[k, : len(path)] = path
            self.work.length[k] = len(path)
        weigh(self._net(), self.work, len(paths))
        return self._sums()

    def _sums(self) -> tuple[int, int, int]:
        """Return what `weigh` counted last: cells to be set, the worst loss, the length."""
        sets, worst, length = self.work.sums.tolist()
        return sets, worst, length

    def route(self, ends: Sequence[tuple[int, int]], rounds: int = ROUNDS) -> FoundRoutes | None:
        """Route circuits from unit to unit together through free parts, by negotiated congestion.

        None if some circuit is cut off, or circuits do not get out of each other's way in so many
        rounds.
        """
        self._make_room(len(ends))
        nodes = np.array(ends, dtype=np.int64).reshape(-1, 2)
        nodes[:, 1] += self.graph.units
        work = self.work
        if route(self._net(), work, nodes, rounds) <= 0:
            return None
        sizes = work.length[: len(ends)].tolist()
        return FoundRoutes(
            self._sums(), [work.path[k, :size].copy() for k, size in enumerate(sizes)]
        )

    def open_arcs(self) -> NDArray[np.bool_]:
        """Tell which arcs light can take, were it not for other circuits; shape (arcs,)."""
        graph = self.graph
        mode = self.mode[self.graph.cell]
        lit = (graph.cell < 0) | (mode < 0) | (mode == graph.state)
        are_open: NDArray[np.bool_] = lit & ~self.shut[graph.head] & ~self.shut[graph.tail]
        return are_open

    def _make_room(self, count: int) -> None:
        """Replace the workspace if it is too small for so many circuits."""
        if count > len(self.work.length):
            self.work = self._new_workspace(2 * count)

    def _net(self) -> Net:
        """Return the arrays of the graph and of the state that kernels need."""
        graph = self.graph
        return Net(
            graph.first, graph.head, graph.back_first, graph.back_arc, graph.tail, graph.cell,
            graph.state, graph.resource, self.cost, self.free, self.shut, self.mode, self.now,
        )  # fmt: skip


def spread(
    n: int, seeds: Sequence[int] | NDArray[Any], tail: NDArray[Any], head: NDArray[Any]
) -> NDArray[np.bool_]:
    """Mark which nodes can be reached from some of them over arcs (breadth-first search).

    There are `n` nodes, those in `seeds` are reached to begin with, and arc k leads from
    ``tail[k]`` to ``head[k]``.
    """
    reached = np.zeros(n, dtype=np.bool_)
    reached[seeds] = True
    front = reached
    while front.any():
        ahead = np.zeros(n, dtype=np.bool_)
        ahead[head[front[tail]]] = True
        front = ahead & ~reached
        reached |= ahead
    return reached
