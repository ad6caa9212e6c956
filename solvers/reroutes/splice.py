"""Routing a few circuits at once through the free parts of a running state: negotiated congestion.

After McMurchie and Ebeling, PathFinder (FPGA 1995, https://doi.org/10.1145/201310.201328): each
circuit takes its cheapest way, what is shared becomes dearer, and all are routed again until
nothing is shared. Here the circuits that stay are obstacles, and what is negotiated is small. A
way is searched by Dijkstra's algorithm from both ends at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.chains import count_chain, write_chain
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.kernels.heap import pop, push

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

FAR = 1 << 62
_FAR = np.int64(FAR)

FORWARD = 0
"""The direction of the search from the start of a circuit."""
BACKWARD = 1
"""The direction of the search from the end of a circuit, against the arcs."""

BEST_COST, MEETING, N_TOUCHED = range(3)
"""Places of `RerouteSpace.joined`."""


class Net(NamedTuple):
    """The arrays of a running state that kernels need: the flow graph, costs, and free parts."""

    first: NDArray[np.int32]
    """``first[node] .. first[node + 1]``: the arcs that leave a node."""
    head: NDArray[np.int32]
    """``head[arc]``: the node that an arc leads to."""
    back_first: NDArray[np.int32]
    """``back_arc[back_first[node] .. back_first[node + 1]]``: the arcs that lead to a node."""
    back_arc: NDArray[np.int32]  # (arcs,): the arcs in the order of the nodes that they lead to
    tail: NDArray[np.int32]
    """``tail[arc]``: the node that an arc leaves."""
    cell: NDArray[np.int32]
    """``cell[arc]``: the cell that light passes there, -1 for none."""
    state: NDArray[np.int32]
    """``state[arc]``: the state that the cell must have for that."""
    resource: NDArray[np.int32]
    """``resource[node]``: what a circuit at this node uses one unit of."""
    cost: NDArray[np.int64]
    """``cost[arc]``: of loss and length."""
    free: NDArray[np.int32]
    """``free[resource]``: how many circuits it can still hold."""
    shut: NDArray[np.bool_]
    """``shut[node]``: whether no light passes."""
    mode: NDArray[np.int8]
    """``mode[cell]``: the only state that a cell can take, -1 if it can take both."""
    now: NDArray[np.int8]
    """``now[cell]``: its present state."""


class RerouteSpace(NamedTuple):
    """The arrays that kernels write, for graphs of one size."""

    using: NDArray[np.int32]
    """``using[resource]``: how many of the new circuits use it; 0 between calls."""
    history: NDArray[np.int64]
    """``history[resource]``: by how much it has become dearer; 0 between calls."""
    distance: NDArray[np.int64]
    """``distance[direction, node]``: the least cost known; `FAR` between searches."""
    link: NDArray[np.int32]
    """``link[direction, node]``: the node from which it was reached, -1 at the end of the way."""
    heap_cost: NDArray[np.int64]
    """``heap_cost[direction, place]``: a binary heap of nodes to be looked at."""
    heap_node: NDArray[np.int32]
    """``heap_node[direction, place]``."""
    size: NDArray[np.int64]
    """``size[direction]``: of both heaps."""
    touched: NDArray[np.int32]
    """Entries ``2 * node + direction`` of `distance` that a search has changed."""
    joined: NDArray[np.int64]
    """Of a search: at `BEST_COST`, `MEETING` and `N_TOUCHED`, the cost of the best way joined so
    far, the node where it was joined, and the number of entries of `touched`."""
    path: NDArray[np.int32]
    """``path[circuit, :length[circuit]]``: the nodes of each route, from start to end."""
    length: NDArray[np.int64]  # (circuits,): the number of nodes of each route
    passing: NDArray[np.int8]
    """``passing[cell]``: a mark of `weigh`; 0 between calls."""
    sums: NDArray[np.int64]
    """What `weigh` counts: cells to be set, worst loss in hundredths of a dB, length."""


def make_workspace(
    nodes: int, arcs: int, resources: int, cells: int, circuits: int
) -> RerouteSpace:
    """Allocate the workspace for routing up to so many circuits at once."""
    zeros: Any = np.zeros
    return RerouteSpace(
        using=zeros(resources, np.int32),
        history=zeros(resources, np.int64),
        distance=np.full((2, nodes), FAR, dtype=np.int64),
        link=zeros((2, nodes), np.int32),
        heap_cost=zeros((2, arcs + 2), np.int64),
        heap_node=zeros((2, arcs + 2), np.int32),
        size=zeros(2, np.int64),
        touched=zeros(2 * nodes, np.int32),
        joined=zeros(3, np.int64),
        path=zeros((max(1, circuits), nodes), np.int32),
        length=zeros(max(1, circuits), np.int64),
        passing=zeros(max(1, cells), np.int8),
        sums=zeros(3, np.int64),
    )


@inner_kernel
def cost_of_arc(net, work, arc, shared_cost):
    """Return what a way costs more for an arc; -1 if its cell is stuck in the other state.

    The arc costs its loss and length, a cell that has to be set, and what the resource of its head
    costs by its history and, if other new circuits have used it up, `shared_cost`.
    """
    cost = net.cost[arc]
    cell = net.cell[arc]
    if cell >= 0:
        if net.mode[cell] >= 0 and net.mode[cell] != net.state[arc]:
            return np.int64(-1)
        if net.now[cell] != net.state[arc]:
            cost += SET_COST
    entered = net.resource[net.head[arc]]
    if work.using[entered] >= net.free[entered]:
        cost += shared_cost
    return cost + work.history[entered]


@inner_kernel
def begin_search(work, node, direction):
    """Begin the search of one direction, `FORWARD` or `BACKWARD`, at a node.

    Puts the node into the heap of the direction, at distance 0 and with no arc before it (-1), and
    notes it in ``work.touched``, from which the arrays are reset later.
    """
    work.distance[direction, node] = 0
    work.link[direction, node] = -1
    work.touched[work.joined[N_TOUCHED]] = 2 * node + direction
    work.joined[N_TOUCHED] += 1
    heap_cost = work.heap_cost[direction]
    work.size[direction] = push(heap_cost, work.heap_node[direction], 0, 0, node)


@inner_kernel
def look_at_arcs(net, work, reached, start, shared_cost):
    """Reach the nodes next to one whose cheapest way is known, and join ways that meet there.

    `reached` is the direction of the search, the node, and the cost of its way. A node is closed
    if it is shut, or if its resource has nothing free, but for `start`, where the circuit itself
    counts. Writes the distances, links, heap and ``work.joined`` of the search.
    """
    direction, node, cost = reached
    distance = work.distance
    heap_cost = work.heap_cost[direction]
    heap_node = work.heap_node[direction]
    arcs_first = net.first
    if direction == BACKWARD:
        arcs_first = net.back_first
    for place in range(arcs_first[node], arcs_first[node + 1]):
        # Backward, arcs are listed apart, and lead from head to tail.
        if direction == FORWARD:
            arc = place
            next_node = net.head[arc]
        else:
            arc = net.back_arc[place]
            next_node = net.tail[arc]
        is_closed = net.free[net.resource[next_node]] <= 0 or net.shut[next_node]
        if is_closed and next_node != start:
            continue
        arc_cost = cost_of_arc(net, work, arc, shared_cost)
        next_cost = cost + arc_cost
        if arc_cost < 0 or next_cost >= distance[direction, next_node]:
            continue

        # A node that is reached for the first time is noted, so that it can be reset.
        if distance[direction, next_node] == _FAR:
            work.touched[work.joined[N_TOUCHED]] = 2 * next_node + direction
            work.joined[N_TOUCHED] += 1
        distance[direction, next_node] = next_cost
        work.link[direction, next_node] = node
        work.size[direction] = push(
            heap_cost, heap_node, work.size[direction], next_cost, next_node
        )

        # The other search may have been here: then a way is joined.
        other_cost = distance[1 - direction, next_node]
        if other_cost < work.joined[BEST_COST] - next_cost:
            work.joined[BEST_COST] = next_cost + other_cost
            work.joined[MEETING] = next_node


@inner_kernel
def find_cheapest_way(net, work, ends, shared_cost, way):
    """Find the cheapest way of a circuit, by Dijkstra's algorithm from both ends at once.

    The two searches take turns: the one goes on whose next node is nearer. They end once no way
    through nodes that are still to be looked at can be cheaper than the best one that they have
    joined. ``work.distance`` is `FAR` everywhere before and after. `way` receives the nodes; the
    result is their number, 0 if there is no way.
    """
    start, goal = ends
    distance = work.distance
    size = work.size
    heap_cost = work.heap_cost
    joined = work.joined
    if net.free[net.resource[goal]] <= 0:
        return 0

    # Both searches begin, with no way that joins them yet.
    joined[BEST_COST] = _FAR
    joined[MEETING] = -1
    joined[N_TOUCHED] = 0
    begin_search(work, start, FORWARD)
    begin_search(work, goal, BACKWARD)
    while (
        size[FORWARD] > 0
        and size[BACKWARD] > 0
        and heap_cost[FORWARD, 0] + heap_cost[BACKWARD, 0] < joined[BEST_COST]
    ):
        # The next node is the nearer one of both searches.
        direction = FORWARD
        if heap_cost[FORWARD, 0] > heap_cost[BACKWARD, 0]:
            direction = BACKWARD
        cost = heap_cost[direction, 0]
        node = work.heap_node[direction, 0]
        size[direction] = pop(heap_cost[direction], work.heap_node[direction], size[direction])
        # A node may have been reached at less cost since it was put on the heap.
        if cost <= distance[direction, node]:
            look_at_arcs(net, work, (direction, node, cost), start, shared_cost)

    for k in range(joined[N_TOUCHED]):
        distance[work.touched[k] & 1, work.touched[k] >> 1] = _FAR
    if joined[MEETING] < 0:
        return 0
    return read_way(work.link, joined[MEETING], way)


@inner_kernel
def read_way(link, meeting, way):
    """Read a way from the node where both searches met, towards both ends; return its length."""
    # The links of the forward search lead back to the start, those of the backward one on to the
    # goal.
    n_first = count_chain(link[FORWARD], meeting)
    write_chain(link[FORWARD], meeting, way, n_first - 1, -1)
    following = link[BACKWARD, meeting]
    write_chain(link[BACKWARD], following, way, n_first, 1)
    return n_first + count_chain(link[BACKWARD], following)


@inner_kernel
def add_to_usage(net, usage, path, length, change):
    """Add a number to ``usage[resource]`` for each resource on a route.

    The nodes of the route are ``path[:length]``; `change` is 1 or -1.
    """
    for place in range(length):
        usage[net.resource[path[place]]] += change


@inner_kernel
def find_arc(net, node, next_node):
    """Return the arc from a node of a route to the next one."""
    arc = net.first[node]
    while net.head[arc] != next_node:
        arc += 1
    return arc


@inner_kernel
def negotiate(net, work, ends, rounds):
    """Route circuits together by negotiated congestion.

    In each round every circuit takes its cheapest way. A resource, such as a waveguide, that more
    circuits use than are free of it becomes dearer, and all are routed again, until no resource is
    overdrawn. ``work.path`` and ``work.length`` receive the routes; ``work.history`` and
    ``work.using`` are zero before and after. The result is the rounds it took; 0 if circuits share
    resources to the end; -1 if one has no way.
    """
    path = work.path
    length = work.length
    using = work.using
    outcome = 0
    has_history = False
    for turn in range(1, rounds + 1):
        # Each circuit in turn avoids what those before it use, the more the longer it takes.
        n_routed = 0
        for circuit in range(len(ends)):
            start_resource = net.resource[ends[circuit, 0]]
            using[start_resource] += 1
            length[circuit] = find_cheapest_way(
                net, work, (ends[circuit, 0], ends[circuit, 1]), SHARED_COST * turn, path[circuit]
            )
            using[start_resource] -= 1
            if length[circuit] == 0:
                outcome = -1
                break
            add_to_usage(net, using, path[circuit], length[circuit], 1)
            n_routed += 1

        # What is overdrawn becomes dearer for each circuit on it.
        is_clean = outcome == 0
        if is_clean:
            for circuit in range(n_routed):
                for place in range(length[circuit]):
                    used = net.resource[path[circuit, place]]
                    if using[used] > net.free[used]:
                        work.history[used] += HISTORY_COST
                        is_clean = False
        has_history |= not is_clean

        # All are routed anew in the next round, or nothing is left in the workspace.
        for circuit in range(n_routed):
            add_to_usage(net, using, path[circuit], length[circuit], -1)
        if is_clean:
            outcome = turn
        if outcome != 0:
            break
    if has_history:
        work.history[:] = 0
    return outcome


@kernel
def weigh(net, work, count):
    """Add up cells to be set (each once), the worst loss, and the length of routes.

    ``work.sums`` receives them; ``work.passing`` is scratch, of zeros before and after.
    """
    n_cells_set = 0
    worst_loss = 0
    total_length = 0
    for circuit in range(count):
        loss = 0
        for place in range(work.length[circuit] - 1):
            arc = find_arc(net, work.path[circuit, place], work.path[circuit, place + 1])
            loss += net.cost[arc] // LOSS_COST
            total_length += net.cost[arc] % LOSS_COST
            cell = net.cell[arc]
            if cell >= 0 and net.now[cell] != net.state[arc]:
                n_cells_set += work.passing[cell] == 0
                work.passing[cell] = 1
        worst_loss = max(worst_loss, loss)

    # The marks are cleared for the next call.
    for circuit in range(count):
        for place in range(work.length[circuit] - 1):
            arc = find_arc(net, work.path[circuit, place], work.path[circuit, place + 1])
            if net.cell[arc] >= 0:
                work.passing[net.cell[arc]] = 0
    work.sums[0] = n_cells_set
    work.sums[1] = worst_loss
    work.sums[2] = total_length


@kernel
def route(net, work, ends, rounds):
    """Negotiate; if that ends well, weigh. Arguments and result are those of `negotiate`."""
    outcome = negotiate(net, work, ends, rounds)
    if outcome > 0:
        weigh(net, work, len(ends))
    return outcome
