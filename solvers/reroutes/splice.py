"""Routing a few circuits at once through the free parts of a running state: negotiated congestion.

After McMurchie and Ebeling, PathFinder (FPGA 1995, https://doi.org/10.1145/201310.201328): each
circuit takes its cheapest way, what is shared becomes dearer, and all are routed again until
nothing is shared. Here the circuits that stay are obstacles, and what is negotiated is small. A
way is searched from both ends at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.kernels.heap import pop, push

SET_COST = 1 << 40
"""The cost of a cell that must be set: more than the loss of any route."""
LOSS_COST = 1 << 16
"""The cost of a hundredth of a dB: more than the length of any route."""
FAR = 1 << 62
_SHARED = 1 << 46
_HISTORY = 1 << 44
_FAR = np.int64(FAR)


class Net(NamedTuple):
    """The arrays of a running state that kernels need: the flow graph, costs, and free parts."""

    first: NDArray[np.int32]
    head: NDArray[np.int32]
    back_first: NDArray[np.int32]
    back_arc: NDArray[np.int32]
    tail: NDArray[np.int32]
    cell: NDArray[np.int32]
    state: NDArray[np.int32]
    resource: NDArray[np.int32]
    cost: NDArray[np.int64]  # of an arc
    free: NDArray[np.int32]  # of a resource: how many circuits it can still hold
    shut: NDArray[np.bool_]  # whether no light passes a node
    mode: NDArray[np.int8]  # the only state that a cell can take, if it is not -1
    now: NDArray[np.int8]  # the states of cells


class RerouteSpace(NamedTuple):
    """The arrays that kernels write, for graphs of one size."""

    using: NDArray[np.int32]
    history: NDArray[np.int64]
    distance: NDArray[np.int64]
    link: NDArray[np.int32]
    heap_cost: NDArray[np.int64]
    heap_node: NDArray[np.int32]
    size: NDArray[np.int64]  # of both heaps
    touched: NDArray[np.int32]
    path: NDArray[np.int32]
    length: NDArray[np.int64]
    passing: NDArray[np.int8]
    sums: NDArray[np.int64]


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
        path=zeros((max(1, circuits), nodes), np.int32),
        length=zeros(max(1, circuits), np.int64),
        passing=zeros(max(1, cells), np.int8),
        sums=zeros(3, np.int64),
    )


@inner_kernel
def _find(net, work, start, goal, shared, way):
    """Find the cheapest way from both ends at once; return its number of nodes, 0 for none.

    ``way`` then has its nodes from start to goal. ``work.distance`` is `_FAR` everywhere before
    and after.
    """
    free, shut, resource = net.free, net.shut, net.resource
    distance, link, size, touched = work.distance, work.link, work.size, work.touched
    heap_cost, heap_node = work.heap_cost, work.heap_node
    if free[resource[goal]] <= 0:
        return 0
    count = 0
    for side in range(2):
        node = start if side == 0 else goal
        distance[side, node] = 0
        link[side, node] = -1
        touched[count] = 2 * node + side
        count += 1
        size[side] = push(heap_cost[side], heap_node[side], 0, 0, node)
    best, meeting = _FAR, -1
    while size[0] > 0 and size[1] > 0 and heap_cost[0, 0] + heap_cost[1, 0] < best:
        side = 0 if heap_cost[0, 0] <= heap_cost[1, 0] else 1
        cost, node = heap_cost[side, 0], heap_node[side, 0]
        size[side] = pop(heap_cost[side], heap_node[side], size[side])
        if cost > distance[side, node]:
            continue
        starts = net.first if side == 0 else net.back_first
        for at in range(starts[node], starts[node + 1]):
            arc = at if side == 0 else net.back_arc[at]
            onward = net.head[arc] if side == 0 else net.tail[arc]
            if (free[resource[onward]] <= 0 or shut[onward]) and onward != start:
                continue
            reached = cost + net.cost[arc]
            through = net.cell[arc]
            if through >= 0:
                if net.mode[through] >= 0 and net.mode[through] != net.state[arc]:
                    continue
                if net.now[through] != net.state[arc]:
                    reached += SET_COST
            entered = resource[net.head[arc]]
            if work.using[entered] >= free[entered]:
                reached += shared
            reached += work.history[entered]
            if reached < distance[side, onward]:
                if distance[side, onward] == _FAR:
                    touched[count] = 2 * onward + side
                    count += 1
                distance[side, onward] = reached
                link[side, onward] = node
                size[side] = push(heap_cost[side], heap_node[side], size[side], reached, onward)
                if distance[1 - side, onward] < best - reached:
                    best, meeting = reached + distance[1 - side, onward], onward
    for at in range(count):
        distance[touched[at] & 1, touched[at] >> 1] = _FAR
    if meeting < 0:
        return 0
    length, node = 0, meeting
    while node >= 0:
        length += 1
        node = link[0, node]
    node = meeting
    for at in range(length - 1, -1, -1):
        way[at] = node
        node = link[0, node]
    node = link[1, meeting]
    while node >= 0:
        way[length] = node
        length += 1
        node = link[1, node]
    return length


@inner_kernel
def _count(net, tally, path, length, step):
    """Count a route in or out of the free part, or the part in use, of its resources."""
    for at in range(length):
        tally[net.resource[path[at]]] += step


@inner_kernel
def _arc(net, node, onward):
    """Return the arc from a node of a route to the next."""
    arc = net.first[node]
    while net.head[arc] != onward:
        arc += 1
    return arc


@inner_kernel
def negotiate(net, work, ends, rounds):
    """Route circuits together; return the rounds it took, 0 if they share to the end, -1 if cut.

    ``ends[k]`` are the first and the last node of circuit k, ``work.path[k, : work.length[k]]``
    then all its nodes. ``work.history`` and ``work.using`` are zero before and after. A circuit
    that has no way at all, whatever the others do, ends the search at once.
    """
    path, length, using, free = work.path, work.length, work.using, net.free
    outcome, dear = 0, False
    for turn in range(1, rounds + 1):
        routed = 0
        for k in range(len(ends)):
            start = net.resource[ends[k, 0]]
            using[start] += 1
            length[k] = _find(net, work, ends[k, 0], ends[k, 1], _SHARED * turn, path[k])
            using[start] -= 1
            if length[k] == 0:
                outcome = -1
                break
            _count(net, using, path[k], length[k], 1)
            routed += 1
        clean = outcome == 0
        for k in range(routed if clean else 0):
            for at in range(length[k]):
                used = net.resource[path[k, at]]
                if using[used] > free[used]:
                    work.history[used] += _HISTORY
                    clean = False
        dear |= not clean
        for k in range(routed):
            _count(net, using, path[k], length[k], -1)
        if clean:
            outcome = turn
        if outcome != 0:
            break
    if dear:
        work.history[:] = 0
    return outcome


@kernel
def weigh(net, work, count):
    """Add up in ``work.sums`` cells to be set (once each), the worst loss, the length of routes.

    ``work.passing`` is zero for each cell before and after; routes lie as `negotiate` leaves them.
    """
    sets = worst = length = 0
    for turn in range(2):  # the second clears the marks
        for k in range(count):
            loss = 0
            for at in range(work.length[k] - 1):
                arc = _arc(net, work.path[k, at], work.path[k, at + 1])
                through = net.cell[arc]
                if turn == 0:
                    loss += net.cost[arc] // LOSS_COST
                    length += net.cost[arc] % LOSS_COST
                    if through >= 0 and net.now[through] != net.state[arc]:
                        sets += work.passing[through] == 0
                        work.passing[through] = 1
                elif through >= 0:
                    work.passing[through] = 0
            worst = max(worst, loss)
    work.sums[0], work.sums[1], work.sums[2] = sets, worst, length


@kernel
def route(net, work, ends, rounds):
    """Negotiate; if that ends well, weigh. Return as `negotiate`."""
    outcome = negotiate(net, work, ends, rounds)
    if outcome > 0:
        weigh(net, work, len(ends))
    return outcome
