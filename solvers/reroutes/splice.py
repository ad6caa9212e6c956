"""Routing a few circuits at once through what a running state leaves free: negotiated congestion.

After McMurchie and Ebeling, PathFinder (FPGA 1995, https://doi.org/10.1145/201310.201328): each
circuit takes its cheapest way, what is shared becomes dearer, and all are routed again until
nothing is shared. Here the circuits that stay are obstacles, and what is negotiated is small. A
way is searched from both ends at once, and when all is settled each is routed once more.
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
PUSH_COST = 1 << 42
"""The cost of what somebody uses who may be pushed aside: a few cells that must be set."""
FAR = 1 << 62
_SHARED = 1 << 46
_HISTORY = 1 << 44
_FAR = np.int64(FAR)


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
    first, head, back_first, back_arc, tail, cell, state, cost_of_arc, resource,
    free, shut, mode, now, start, goal, shared,
    using, history, distance, link, heap_cost, heap_node, touched, way,
):  # fmt: skip
    """Find the cheapest way from both ends at once; return its number of nodes, 0 for none.

    ``way`` then has its nodes from start to goal. `distance` is `_FAR` everywhere before and
    after.
    """
    if free[resource[goal]] <= 0 or shut[goal]:
        return 0
    count = 0
    size = np.zeros(2, dtype=np.int64)
    for side in range(2):
        node = start if side == 0 else goal
        distance[side, node] = 0
        link[side, node] = -1
        touched[count] = 2 * node + side
        count += 1
        size[side] = _push(heap_cost[side], heap_node[side], 0, 0, node)
    best, meeting = _FAR, -1
    while size[0] > 0 and size[1] > 0 and heap_cost[0, 0] + heap_cost[1, 0] < best:
        side = 0 if heap_cost[0, 0] <= heap_cost[1, 0] else 1
        size[side] = _pop(heap_cost[side], heap_node[side], size[side])
        cost, node = heap_cost[side, size[side]], heap_node[side, size[side]]
        if cost > distance[side, node]:
            continue
        starts = first if side == 0 else back_first
        for at in range(starts[node], starts[node + 1]):
            arc = at if side == 0 else back_arc[at]
            onward = head[arc] if side == 0 else tail[arc]
            if (free[resource[onward]] <= 0 or shut[onward]) and onward != start:
                continue
            reached = cost + cost_of_arc[arc]
            through = cell[arc]
            if through >= 0:
                if mode[through] >= 0 and mode[through] != state[arc]:
                    continue
                if now[through] != state[arc]:
                    reached += SET_COST
            entered = resource[head[arc]]
            if using[entered] >= free[entered]:
                reached += shared
            reached += history[entered]
            if reached < distance[side, onward]:
                if distance[side, onward] == _FAR:
                    touched[count] = 2 * onward + side
                    count += 1
                distance[side, onward] = reached
                link[side, onward] = node
                size[side] = _push(heap_cost[side], heap_node[side], size[side], reached, onward)
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


@kernel
def negotiate(
    first, head, back_first, back_arc, tail, cell, state, cost_of_arc, resource,
    free, shut, mode, now, starts, goals, rounds,
    using, history, distance, link, heap_cost, heap_node, touched, path, length,
):  # fmt: skip
    """Route circuits together; return the rounds it took, 0 if they share to the end, -1 if cut.

    ``path[k, : length[k]]`` are the nodes of circuit k from start to goal. `history` is what
    resources cost besides, as a rule nothing, and zero afterwards; `using` is zero before and
    after. A circuit that has no way at all, whatever the others do, ends the search at once:
    ``length[0]`` names it.
    """
    outcome, dear = 0, False
    for turn in range(1, rounds + 1):
        routed = 0
        for k in range(len(starts)):
            using[resource[starts[k]]] += 1
            length[k] = _find(
                first, head, back_first, back_arc, tail, cell, state, cost_of_arc, resource,
                free, shut, mode, now, starts[k], goals[k], _SHARED * turn,
                using, history, distance, link, heap_cost, heap_node, touched, path[k],
            )  # fmt: skip
            if length[k] == 0:
                using[resource[starts[k]]] -= 1
                outcome = -1
                break
            for at in range(1, length[k]):
                using[resource[path[k, at]]] += 1
            routed += 1
        clean = outcome == 0
        for k in range(routed if clean else 0):
            for at in range(length[k]):
                used = resource[path[k, at]]
                if using[used] > free[used]:
                    history[used] += _HISTORY
                    clean = False
        dear |= not clean
        for k in range(routed):
            for at in range(length[k]):
                using[resource[path[k, at]]] -= 1
        if clean:
            outcome = turn
        if outcome != 0:
            if outcome < 0:
                length[0] = routed
            break
    if dear:
        history[:] = 0
    return outcome


@kernel
def _pass_cells(path, length, first, head, cell, state, now, told, passing, step):
    """Put a route's cells in the states it needs, or back if no other route passes."""
    for at in range(length - 1):
        for arc in range(first[path[at]], first[path[at] + 1]):
            if head[arc] == path[at + 1]:
                through = cell[arc]
                if through >= 0:
                    passing[through] += step
                    told[through] = state[arc] if passing[through] > 0 else now[through]
                break


@kernel
def _cost_of(path, length, first, head, cell, state, cost_of_arc, told):
    """Add up the cost of a route."""
    total = 0
    for at in range(length - 1):
        for arc in range(first[path[at]], first[path[at] + 1]):
            if head[arc] == path[at + 1]:
                total += cost_of_arc[arc]
                if cell[arc] >= 0 and told[cell[arc]] != state[arc]:
                    total += SET_COST
                break
    return total


@kernel
def polish(
    first, head, back_first, back_arc, tail, cell, state, cost_of_arc, resource,
    free, shut, mode, now, starts, goals, passes,
    using, history, distance, link, heap_cost, heap_node, touched, path, length,
    told, passing, way,
):  # fmt: skip
    """Route each circuit once more around all others, until none gets a cheaper way.

    A cell that another of them sets already costs nothing. `told` is as `now`; it, and the zeros
    of `using`, `history` and `passing`, are the same afterwards.
    """
    count = len(starts)
    for k in range(count):
        for at in range(length[k]):
            free[resource[path[k, at]]] -= 1
        _pass_cells(path[k], length[k], first, head, cell, state, now, told, passing, 1)
    for _ in range(passes):
        better = False
        for k in range(count):
            for at in range(length[k]):
                free[resource[path[k, at]]] += 1
            _pass_cells(path[k], length[k], first, head, cell, state, now, told, passing, -1)
            old = _cost_of(path[k], length[k], first, head, cell, state, cost_of_arc, told)
            size = _find(
                first, head, back_first, back_arc, tail, cell, state, cost_of_arc, resource,
                free, shut, mode, told, starts[k], goals[k], 0,
                using, history, distance, link, heap_cost, heap_node, touched, way,
            )  # fmt: skip
            if size > 0:
                sound = _cost_of(way, size, first, head, cell, state, cost_of_arc, told) < old
                for at in range(size):  # a way that turns back would meet itself
                    using[resource[way[at]]] += 1
                for at in range(size):
                    sound &= using[resource[way[at]]] <= free[resource[way[at]]]
                for at in range(size):
                    using[resource[way[at]]] = 0
                if sound:
                    better = True
                    length[k] = size
                    path[k, :size] = way[:size]
            for at in range(length[k]):
                free[resource[path[k, at]]] -= 1
            _pass_cells(path[k], length[k], first, head, cell, state, now, told, passing, 1)
        if not better:
            break
    for k in range(count):
        for at in range(length[k]):
            free[resource[path[k, at]]] += 1
        _pass_cells(path[k], length[k], first, head, cell, state, now, told, passing, -1)


@kernel
def weigh(path, lengths, count, first, head, cell, state, now, passing, cost_of_arc, out):
    """Add up cells to be set (once each), the worst loss, and the length of routes.

    `passing` is zero for each cell before and after; routes lie as `negotiate` leaves them.
    """
    sets = worst = length = 0
    for turn in range(2):  # the second clears the marks
        for k in range(count):
            loss = 0
            for at in range(lengths[k] - 1):
                for arc in range(first[path[k, at]], first[path[k, at] + 1]):
                    if head[arc] == path[k, at + 1]:
                        through = cell[arc]
                        if turn == 0:
                            loss += cost_of_arc[arc] // LOSS_COST
                            length += cost_of_arc[arc] % LOSS_COST
                            if through >= 0 and now[through] != state[arc]:
                                sets += passing[through] == 0
                                passing[through] = 1
                        elif through >= 0:
                            passing[through] = 0
                        break
            worst = max(worst, loss)
    out[0], out[1], out[2] = sets, worst, length


@kernel
def find_walls(
    first, head, back_first, back_arc, tail, cell, state, resource, free, shut, mode,
    start, goal, walls, waiting, seen,
):  # fmt: skip
    """Mark what stands in the way of a circuit that is cut off, seen from its two ends.

    ``walls[0, resource]`` and ``walls[1, resource]`` say that it is all in use and could be
    reached from the start, or could reach the goal. Returns whether there is a way after all.
    """
    walls[:] = False
    joined = False
    for side in range(2):
        seen[:] = False
        size = 1
        waiting[0] = start if side == 0 else goal
        other = goal if side == 0 else start
        seen[waiting[0]] = True
        starts = first if side == 0 else back_first
        if side == 1 and free[resource[goal]] <= 0:
            walls[1, resource[goal]] = True
            size = 0
        while size > 0:
            size -= 1
            node = waiting[size]
            for at in range(starts[node], starts[node + 1]):
                arc = at if side == 0 else back_arc[at]
                onward = head[arc] if side == 0 else tail[arc]
                through = cell[arc]
                if seen[onward] or shut[onward]:
                    continue
                if through >= 0 and mode[through] >= 0 and mode[through] != state[arc]:
                    continue
                if free[resource[onward]] <= 0 and onward != start:
                    walls[side, resource[onward]] = True
                    continue
                seen[onward] = True
                joined |= onward == other
                waiting[size] = onward
                size += 1
    return joined


class Workspace(NamedTuple):
    """The arrays that kernels write, for graphs of one size."""

    using: NDArray[np.int32]
    history: NDArray[np.int64]
    distance: NDArray[np.int64]
    link: NDArray[np.int32]
    heap_cost: NDArray[np.int64]
    heap_node: NDArray[np.int32]
    touched: NDArray[np.int32]
    path: NDArray[np.int32]
    length: NDArray[np.int64]
    told: NDArray[np.int8]
    passing: NDArray[np.int8]
    way: NDArray[np.int32]
    sums: NDArray[np.int64]


def make_workspace(nodes: int, arcs: int, resources: int, cells: int, circuits: int) -> Workspace:
    """Allocate what routing up to so many circuits at once needs."""
    zeros: Any = np.zeros
    return Workspace(
        zeros(resources, np.int32),
        zeros(resources, np.int64),
        np.full((2, nodes), FAR, dtype=np.int64),
        zeros((2, nodes), np.int32),
        zeros((2, arcs + 2), np.int64),
        zeros((2, arcs + 2), np.int32),
        zeros(2 * nodes, np.int32),
        zeros((max(1, circuits), nodes), np.int32),
        zeros(max(1, circuits), np.int64),
        zeros(max(1, cells), np.int8),
        zeros(max(1, cells), np.int8),
        zeros(nodes, np.int32),
        zeros(3, np.int64),
    )
