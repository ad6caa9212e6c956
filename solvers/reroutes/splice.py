"""Routing a few circuits at once through what a running state leaves free: negotiated congestion.

After McMurchie and Ebeling, PathFinder (FPGA 1995, https://doi.org/10.1145/201310.201328): each
circuit takes its cheapest way, what is shared becomes dearer, and all are routed again until
nothing is shared. Here the circuits that stay are obstacles, and what is negotiated is small.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernel import kernel

SET_COST = 1 << 40
"""The cost of a cell that must be set: more than the loss of any route."""
LOSS_COST = 1 << 16
"""The cost of a hundredth of a dB: more than the length of any route."""
_SHARED = 1 << 46
_HISTORY = 1 << 44
_FAR = np.int64(1 << 62)


@kernel
def _push(heap_cost, heap_node, size, cost, node):
    """Add an entry to the heap; return its new size."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if heap_cost[parent] <= cost:
            break
        heap_cost[at] = heap_cost[parent]
        heap_node[at] = heap_node[parent]
        at = parent
    heap_cost[at] = cost
    heap_node[at] = node
    return size + 1


@kernel
def _pop(heap_cost, heap_node, size):
    """Take the least entry off the heap: it then stands behind the end."""
    top_cost, top_node = heap_cost[0], heap_node[0]
    size -= 1
    cost, node = heap_cost[size], heap_node[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap_cost[child + 1] < heap_cost[child]:
            child += 1
        if heap_cost[child] >= cost:
            break
        heap_cost[at] = heap_cost[child]
        heap_node[at] = heap_node[child]
        at = child
    heap_cost[at] = cost
    heap_node[at] = node
    heap_cost[size] = top_cost
    heap_node[size] = top_node
    return size


@kernel
def _find(
    first, head, cell, state, cost_of_arc, resource, free, shut, mode, now,
    start, goal, shared, using, history, distance, before, heap_cost, heap_node,
):  # fmt: skip
    """Find the cheapest way; `before` then leads back from the goal. Tell whether there is one."""
    for node in range(len(distance)):
        distance[node] = _FAR
    distance[start] = 0
    before[start] = -1
    size = _push(heap_cost, heap_node, 0, 0, start)
    while size > 0:
        size = _pop(heap_cost, heap_node, size)
        cost, node = heap_cost[size], heap_node[size]
        if node == goal:
            return True
        if cost > distance[node]:
            continue
        for arc in range(first[node], first[node + 1]):
            onward = head[arc]
            room = free[resource[onward]]
            if room <= 0 or shut[onward]:
                continue
            reached = cost + cost_of_arc[arc]
            through = cell[arc]
            if through >= 0:
                if mode[through] >= 0 and mode[through] != state[arc]:
                    continue
                if now[through] != state[arc]:
                    reached += SET_COST
            if using[resource[onward]] >= room:
                reached += shared
            reached += history[resource[onward]]
            if reached < distance[onward]:
                distance[onward] = reached
                before[onward] = node
                size = _push(heap_cost, heap_node, size, reached, onward)
    return False


@kernel
def negotiate(
    first, head, cell, state, cost_of_arc, resource, free, shut, mode, now,
    starts, goals, rounds,
    using, history, distance, before, heap_cost, heap_node, path, offsets,
):  # fmt: skip
    """Route circuits together; return the rounds it took, 0 if they share to the end, -1 if cut.

    ``path[offsets[k] : offsets[k + 1]]`` are the nodes of circuit k from goal to start. A circuit
    that has no way at all, whatever the others do, ends the search at once: circuit ``offsets[0]``
    is then named there.
    """
    history[:] = 0
    for turn in range(1, rounds + 1):
        using[:] = 0
        offsets[0] = 0
        for k in range(len(starts)):
            using[resource[starts[k]]] += 1
            found = _find(
                first, head, cell, state, cost_of_arc, resource, free, shut, mode, now,
                starts[k], goals[k], _SHARED * turn, using, history, distance, before,
                heap_cost, heap_node,
            )  # fmt: skip
            if not found:
                offsets[0] = k
                return -1
            at, node = offsets[k], goals[k]
            while node >= 0:
                path[at] = node
                at += 1
                if node != starts[k]:
                    using[resource[node]] += 1
                node = before[node]
            offsets[k + 1] = at
        clean = True
        for at in range(offsets[len(starts)]):
            used = resource[path[at]]
            if using[used] > free[used]:
                history[used] += _HISTORY
                clean = False
        if clean:
            return turn
    return 0


@kernel
def weigh(path, offsets, count, first, head, cell, state, now, marked, loss_of_arc, out):
    """Add up cells to be set (once each), the worst loss, and the length of routes.

    `marked` is zero for each cell before and after; routes lie as `negotiate` leaves them.
    """
    sets = worst = length = 0
    for turn in range(2):  # the second clears the marks
        for k in range(count):
            loss = 0
            for at in range(offsets[k + 1] - 1, offsets[k], -1):
                node, onward = path[at], path[at - 1]
                for arc in range(first[node], first[node + 1]):
                    if head[arc] == onward:
                        through = cell[arc]
                        if turn == 0:
                            loss += loss_of_arc[arc] // LOSS_COST
                            length += loss_of_arc[arc] % LOSS_COST
                            if through >= 0 and now[through] != state[arc]:
                                sets += marked[through] == 0
                                marked[through] = 1
                        elif through >= 0:
                            marked[through] = 0
                        break
            worst = max(worst, loss)
    out[0], out[1], out[2] = sets, worst, length


class Workspace(NamedTuple):
    """The arrays that `negotiate` writes, for graphs of one size."""

    using: NDArray[np.int32]
    history: NDArray[np.int64]
    distance: NDArray[np.int64]
    before: NDArray[np.int32]
    heap_cost: NDArray[np.int64]
    heap_node: NDArray[np.int32]
    path: NDArray[np.int32]
    offsets: NDArray[np.int64]
    marked: NDArray[np.int8]
    sums: NDArray[np.int64]


def make_workspace(nodes: int, arcs: int, resources: int, cells: int, circuits: int) -> Workspace:
    """Allocate what routing up to so many circuits at once needs."""
    zeros: Any = np.zeros
    return Workspace(
        zeros(resources, np.int32),
        zeros(resources, np.int64),
        zeros(nodes, np.int64),
        zeros(nodes, np.int32),
        zeros(arcs + 2, np.int64),
        zeros(arcs + 2, np.int32),
        zeros(nodes * max(1, circuits), np.int32),
        zeros(circuits + 1, np.int64),
        zeros(max(1, cells), np.int8),
        zeros(3, np.int64),
    )
