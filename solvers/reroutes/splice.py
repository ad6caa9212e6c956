"""Routing a few circuits at once through the free parts of a running state: negotiated congestion.

After McMurchie and Ebeling, PathFinder (FPGA 1995, https://doi.org/10.1145/201310.201328): each
circuit takes its cheapest path, what is shared becomes dearer, and all are routed again until
nothing is shared. Here the circuits that stay are obstacles, and what is negotiated is small. A
path is searched by Dijkstra's algorithm from both ends at once. In all kernels `net` is the
running state, which they read, and `work` what they write.

A node of the flow graph is light going one way over a waveguide or a bundle of fibres, which is
its resource; an arc leads through a cell in a state, or through a chip.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.kernels.two_sided import (
    N_REACHED,
    N_WAITING,
    NOT_REACHED,
    Meeting,
    SearchEnd,
    begin_at,
    count_chain,
    forget,
    reach,
    take_nearest,
    turned,
    write_chain,
)

# Costs are ordered: no sum of the lower ones outweighs the next higher one. Arcs cost their loss
# and length, then come cells that must be set, then resources that circuits share.
LOSS_COST = 1 << 16
"""The cost of a hundredth of a dB: more than the length of any route."""
SET_COST = 1 << 40
"""The cost of a cell that must be set: more than the loss of any route."""
HISTORY_COST = 1 << 44
"""By how much a resource becomes dearer for each circuit and round that shared it."""
SHARED_COST = 1 << 46
"""The cost of a resource that is in use already, in the first round; it grows from round to round.

It is more than that of setting 63 cells."""


Ints = NDArray[np.int32]


class FlowGraph(NamedTuple):
    """A flow graph; arrays are read-only. Units come first: ``u`` out, ``units + u`` in.

    Arcs are numbered by the node that they leave, hence those of a node follow each other. Arrays
    by node have the shape (nodes,), arrays by arc (arcs,), `first` and `back_first` (nodes + 1,).
    """

    units: int
    """The number of units."""
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
    back_arc: Ints
    """(arcs,): the arcs in the order of the nodes that they lead to."""
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


class Net(NamedTuple):
    """The arrays of a running state that kernels need: the flow graph, costs, and free parts."""

    graph: FlowGraph
    """The nodes and arcs, without what is in use."""
    cost: NDArray[np.int64]
    """``cost[arc]``: hundredths of a dB times `LOSS_COST`, plus the number of cells and fibres."""
    free: NDArray[np.int32]
    """``free[resource]``: how many circuits it can still hold."""
    shut: NDArray[np.bool_]
    """``shut[node]``: whether no light passes."""
    mode: NDArray[np.int8]
    """``mode[cell]``: the only state that a cell can take, -1 if it can take both, 2 if none."""
    now: NDArray[np.int8]
    """``now[cell]``: its present state, -1 if it is not known."""


class RerouteSpace(NamedTuple):
    """The arrays that kernels write, for graphs of one size."""

    using: NDArray[np.int32]
    """``using[resource]``: how many of the new circuits use it in this round."""
    history: NDArray[np.int64]
    """``history[resource]``: by how much it has become dearer in this negotiation."""
    forward: SearchEnd
    """The end of a search at the start of a circuit."""
    backward: SearchEnd
    """The end at its goal, from which arcs are followed backward."""
    path: NDArray[np.int32]
    """``path[circuit, :length[circuit]]``: the nodes of each route, from start to end."""
    length: NDArray[np.int64]
    """(circuits,): the number of nodes of each route."""
    passing: NDArray[np.int8]
    """``passing[cell]``: a mark of `weigh`."""


@inner_kernel
def cost_of_arc(net: Net, work: RerouteSpace, arc, shared_cost):
    """Return what an arc adds to the cost of a path; -1 if its cell is stuck in the other state.

    The arc costs its loss and length, a cell that has to be set, and what the resource of its head
    costs by its history and, if other new circuits have used it up, `shared_cost`.
    """
    cost = net.cost[arc]
    cell = net.graph.cell[arc]
    if cell >= 0:
        if net.mode[cell] >= 0 and net.mode[cell] != net.graph.state[arc]:
            return np.int64(-1)
        if net.now[cell] != net.graph.state[arc]:
            cost += SET_COST
    entered = net.graph.resource[net.graph.head[arc]]
    if work.using[entered] >= net.free[entered]:
        cost += shared_cost
    return cost + work.history[entered]


_FORWARD = True
_BACKWARD = False
"""Which end is expanded; arguments of kernels have no names in plain Python."""


@inner_kernel
def _expand_nearest(
    net: Net, work: RerouteSpace, start, shared_cost, best: Meeting, is_forward
) -> Meeting:
    """Expand the nearest node of one end of the search, and return the best `Meeting` then.

    That is the end at the start if `is_forward`, else the end at the goal. `best` is the best
    meeting so far: ``best.near`` is the last node on the way that this end has reached, and
    ``best.far`` the node after it, which the opposite end has reached. `shared_cost` is what a
    resource costs more that other new circuits have used up.

    A node is closed if it is shut, or if its resource has nothing free. `start`, the node where
    the circuit begins, is always open: it is this circuit that has used its resource up.
    """
    end = work.forward
    opposite = work.backward
    arcs_first = net.graph.first
    if not is_forward:
        end = work.backward
        opposite = work.forward
        arcs_first = net.graph.back_first
    node = take_nearest(end)
    if node < 0:
        return best

    # Reach the next nodes, and join the paths of both ends that meet there.
    for place in range(arcs_first[node], arcs_first[node + 1]):
        # Forward, the arcs out of a node are numbered in a row. Backward, those into it are listed
        # in `back_arc`, and are followed from head to tail.
        arc = place
        next_node = net.graph.head[arc]
        if not is_forward:
            arc = net.graph.back_arc[place]
            next_node = net.graph.tail[arc]
        is_closed = net.free[net.graph.resource[next_node]] <= 0 or net.shut[next_node]
        if is_closed and next_node != start:
            continue

        # A cost of -1 is that of an arc whose cell is stuck in the other state.
        arc_cost = cost_of_arc(net, work, arc, shared_cost)
        cost = end.cost[node] + arc_cost
        if arc_cost < 0 or cost >= end.cost[next_node]:
            continue
        reach(end, next_node, node, cost)
        if cost + opposite.cost[next_node] < best.cost:
            joined_cost = cost + opposite.cost[next_node]
            best = Meeting(joined_cost, node, np.int64(next_node))  # type: ignore[arg-type]
    return best


@inner_kernel
def find_cheapest_path(net: Net, work: RerouteSpace, ends, shared_cost, way):
    """Find the cheapest path of a circuit, by Dijkstra's algorithm from both ends at once.

    `ends` are the first and the last node of the circuit, and `shared_cost` is what a resource
    costs more that other new circuits have used up. The end of the search goes on whose next node
    is nearer. `way` receives the nodes of the path, from the first to the last; the result is
    their number, 0 if there is no path.
    """
    start, goal = ends
    forward = work.forward
    backward = work.backward
    if net.free[net.graph.resource[goal]] <= 0:
        return 0

    # The search ends once the nearest nodes of both ends, ``keys[0]`` of their heaps, add up to
    # the cost of the best path: no unseen path can be cheaper.
    begin_at(forward, start)
    begin_at(backward, goal)
    best = Meeting(np.int64(NOT_REACHED), np.int64(-1), np.int64(-1))  # type: ignore[arg-type]
    while forward.counts[N_WAITING] and backward.counts[N_WAITING]:
        if forward.keys[0] + backward.keys[0] >= best.cost:
            break
        if forward.keys[0] <= backward.keys[0]:
            best = _expand_nearest(net, work, start, shared_cost, best, _FORWARD)
        else:
            # The end at the goal sees the meeting the other way round.
            seen = _expand_nearest(net, work, start, shared_cost, turned(best), _BACKWARD)
            best = turned(seen)
    forget(forward.cost, forward.reached, forward.counts[N_REACHED])
    forget(backward.cost, backward.reached, backward.counts[N_REACHED])
    if best.near < 0:
        return 0

    # From the place of meeting back to the start, and on to the goal: `write_chain` writes nodes
    # from the given place of `way` on, backward (-1) or forward (1).
    n_first = count_chain(forward.previous, best.near)
    write_chain(forward.previous, best.near, way, n_first - 1, -1)
    write_chain(backward.previous, best.far, way, n_first, 1)
    return n_first + count_chain(backward.previous, best.far)


@inner_kernel
def find_arc(net: Net, node, next_node):
    """Return the arc from a node of a route to the next one; there has to be one."""
    arc = net.graph.first[node]
    while net.graph.head[arc] != next_node:
        arc += 1
    return arc


@kernel
def weigh(net: Net, work: RerouteSpace, count):
    """Return the cells to be set (each once), the worst loss, and the length of all routes.

    The routes are the first `count` of ``work.path``. The loss is that of one route in hundredths
    of a dB, the length the cells and fibres of all. ``work.passing[cell]`` is scratch: 1 for a
    cell that was counted.
    """
    work.passing[:] = 0
    n_cells_set = 0
    worst_loss = np.int64(0)
    total_length = np.int64(0)
    for circuit in range(count):
        loss = np.int64(0)
        for place in range(work.length[circuit] - 1):
            arc = find_arc(net, work.path[circuit, place], work.path[circuit, place + 1])
            loss += net.cost[arc] // LOSS_COST
            total_length += net.cost[arc] % LOSS_COST
            cell = net.graph.cell[arc]
            if cell >= 0 and net.now[cell] != net.graph.state[arc]:
                n_cells_set += work.passing[cell] == 0
                work.passing[cell] = 1
        worst_loss = max(worst_loss, loss)
    return n_cells_set, worst_loss, total_length


@kernel
def route(net: Net, work: RerouteSpace, ends, rounds):
    """Route circuits together by negotiated congestion.

    ``ends[circuit]`` are the first and the last node of a circuit, the unit that it leaves and the
    one that it enters; `rounds` is the most rounds.

    In each round every circuit takes its cheapest path. A resource, such as a waveguide, that more
    circuits use than are free of it becomes dearer, and all are routed again, until no resource is
    overdrawn. ``work.path`` and ``work.length`` receive the routes. Returns the number of rounds
    that it took, 0 if circuits share resources to the end, or -1 if one has no path.
    """
    using = work.using
    work.history[:] = 0
    for turn in range(1, rounds + 1):
        # Each circuit in turn avoids what those before it use, the more the longer it takes.
        using[:] = 0
        for circuit in range(len(ends)):
            path = work.path[circuit]
            start_resource = net.graph.resource[ends[circuit, 0]]
            using[start_resource] += 1
            length = find_cheapest_path(
                net, work, (ends[circuit, 0], ends[circuit, 1]), SHARED_COST * turn, path
            )
            using[start_resource] -= 1
            if length == 0:
                return -1
            work.length[circuit] = length
            for place in range(length):
                using[net.graph.resource[path[place]]] += 1

        # Resources that are overdrawn become dearer for each circuit on them, and all circuits are
        # routed anew.
        is_clean = True
        for circuit in range(len(ends)):
            for place in range(work.length[circuit]):
                used = net.graph.resource[work.path[circuit, place]]
                if using[used] > net.free[used]:
                    work.history[used] += HISTORY_COST
                    is_clean = False
        if is_clean:
            return turn
    return 0
