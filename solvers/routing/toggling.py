"""Kernels that change the circuits of a switch by few toggles: most stay, others fit in."""

from __future__ import annotations

import numpy as np

from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.routing.pathfinder import FAR, UNIT
from optmatch.solvers.routing.rows import line_up, write_states

TOLL = 32 * UNIT
"""The cost of a toggle: as much as a detour of so many cells."""

NO_ROOM, WRONG, WRONG_STATES = -1, -2, -3
"""The answers of `change_row` that are no number of toggles."""

_TOGGLE = 1 << 32  # the cost of one where toggles come before all cells


@kernel
def _follow(wiring, room, given, port):
    """Follow light of a port through given states; note its route, and return how long that is.

    The result is 0 if light goes astray. Arriving light has each link for itself: as light in a
    cell goes back the way it came, other light there could only come from the place where this
    light goes to.
    """
    at, left, count, route = wiring.source[port], -1, 0, room.routes[port]
    while at >= 0 and given[at >> 2] >= 0 and count < len(route):
        left = wiring.exits[at, given[at >> 2]]
        route[count] = left
        at = wiring.mate[left]
        count += 1
    if left != wiring.target[room.partner[port]]:
        count = 0
    room.lengths[port] = count
    return count


@kernel
def _hold(wiring, space, toll, port, route, count):
    """Close the links of a route to the others; its cells are set, so its toggles are paid.

    Returns False if the route passes a link twice, once each way.
    """
    entered = wiring.source[port]
    space.exit_cost[entered] = FAR
    space.use[wiring.link[entered]] += 1
    once = True
    for step in range(count):
        left = route[step]
        link = wiring.link[left]
        space.use[link] += 1
        once = once and space.use[link] == 1
        for end in range(2):
            terminal = wiring.ends[link, end]
            if terminal >= 0:
                space.exit_cost[terminal] = FAR
        state = (left ^ entered) & 1
        toll[left >> 2, state] = wiring.cell_cost[left >> 2, state]
        entered = wiring.mate[left]
    return once


@inner_kernel
def _spread(wiring, space, toll, queue, count, later, level, best, cost, back, before):
    """Go on from all terminals of a level; return how many wait for the next one.

    ``cost[terminal]`` is that of coming to a cell from one end, ``back[terminal]`` from the other
    end; as light in a cell goes back the way it came, the work is the same from both. Returns,
    too, the best total so far, and the terminals of the cell where its sides meet, -1 as before.
    """
    head = waiting = 0
    mine = others = -1
    while head < count:
        at = queue[head]
        head += 1
        if cost[at] < level * _TOGGLE:  # reached by fewer toggles in the meantime
            continue
        for state in range(2):
            leaving = wiring.exits[at, state]
            if space.exit_cost[leaving] >= FAR:
                continue
            price = toll[at >> 2, state]
            total = cost[at] + price
            if total + back[leaving] < best:
                best, mine, others = total + back[leaving], at, leaving
            entered = wiring.mate[leaving]
            if entered < 0 or total >= cost[entered] or total >= best:
                continue
            if max(count, waiting) == len(queue):
                return 0, best, mine, others
            cost[entered] = total
            before[entered] = at
            if price >= _TOGGLE:
                later[waiting] = entered
                waiting += 1
            else:
                queue[count] = entered
                count += 1
    return waiting, best, mine, others


@kernel
def find_fewest(wiring, space, room, port, most, route):
    """Write the way of the fewest toggles, the shortest of these; return its cells and toggles.

    From both ends, level by level of toggles, that side first where fewer terminals wait: where
    cells are set light has one way to go on, so that there is nothing to sort. Levels 0 to a of
    one side and 0 to b of the other have seen all ways of a + b + 1 toggles. Without a way of at
    most `most` toggles there are 0 cells.
    """
    source, target = wiring.source[port], wiring.target[room.partner[port]]
    cost, entered, mate = space.cost, space.entered, wiring.mate
    back, after = space.keys, space.items
    for terminal in range(len(mate)):
        cost[terminal] = back[terminal] = FAR
    cost[source] = back[target] = 0
    room.queue[0, 0], room.queue[2, 0] = source, target
    ahead = behind = 1  # how many wait
    near = far = 0  # levels that are done
    best, first, last = np.int64(FAR), source, target
    while ahead and behind and near + far <= most and best >= (near + far) * _TOGGLE:
        if ahead <= behind:
            queue, later = room.queue[near & 1], room.queue[1 - (near & 1)]
            ahead, best, mine, others = _spread(
                wiring, space, room.toll, queue, ahead, later, near, best, cost, back, entered
            )
            near += 1
            if mine >= 0:
                first, last = mine, others
        else:
            queue, later = room.queue[2 + (far & 1)], room.queue[3 - (far & 1)]
            behind, best, mine, others = _spread(
                wiring, space, room.toll, queue, behind, later, far, best, back, cost, after
            )
            far += 1
            if mine >= 0:
                first, last = others, mine
    if best >= min(FAR, (most + 1) * _TOGGLE):
        return 0, 0
    place, at = 0, first
    while at != source:
        place, at = place + 1, entered[at]
    count, at = place + 1, last
    while at != target:
        count, at = count + 1, after[at]
    if count > len(route):
        return 0, 0
    at = last
    for step in range(place, count):
        route[step] = at
        at = after[at]
    at = first
    for step in range(place - 1, -1, -1):
        route[step] = mate[at]
        at = entered[at]
    return count, best // _TOGGLE


@kernel
def _set_toll(wiring, given, toll):
    """Let each state of a cell cost its passage, plus a toggle if the state changes."""
    for cell in range(len(given)):
        for state in range(2):
            pays = given[cell] == 1 - state
            toll[cell, state] = wiring.cell_cost[cell, state] + (_TOGGLE if pays else 0)


@kernel
def _fit_in(wiring, space, room, given, count, kept, backwards, most):
    """Route circuits one by one around those that stay; return toggles, or -1.

    -1 is returned if a circuit has no way, or the sum of toggles would be above `most`.
    """
    for terminal in range(len(space.exit_cost)):
        space.exit_cost[terminal] = 0
    for link in range(len(space.use)):
        space.use[link] = 0
    _set_toll(wiring, given, room.toll)
    toggles = 0
    for place in range(count):
        turn = count - 1 + kept - place if backwards and place >= kept else place
        port = room.order[turn]
        if place >= kept:
            found, more = find_fewest(wiring, space, room, port, most - toggles, room.routes[port])
            room.lengths[port] = found
            toggles += more
            if found == 0:
                return -1
        if not _hold(wiring, space, room.toll, port, room.routes[port], room.lengths[port]):
            return -1
    return toggles


@kernel
def _keep(room, order, routes, lengths):
    """Copy the routes of the circuits out of the room."""
    for place in range(len(order)):
        port = order[place]
        lengths[port] = room.lengths[port]
        for step in range(room.lengths[port]):
            routes[port, step] = room.routes[port, step]


@kernel
def _fit_best(wiring, space, room, given, order, kept, most, routes, lengths):
    """Fit in circuits that change, in two orders, with at most so many toggles; keep the better.

    Returns one toggle less than that takes, or `most` as it was.
    """
    for backwards in range(2 if len(order) - kept > 1 else 1):
        if most < 0:
            break
        found = _fit_in(wiring, space, room, given, len(order), kept, backwards == 1, most)
        if found >= 0:
            most = found - 1
            _keep(room, order, routes, lengths)
    return most


@kernel
def _swap(order, one, other):
    order[one], order[other] = order[other], order[one]


@kernel
def change_row(wiring, space, ports, room, given, matching, states, routes, lengths):
    """Route a matching with few toggles from given states; return them, or the outcome.

    Circuits that the states carry stay. The other circuits are fitted in between, in two orders,
    of which the better one counts. Dark cells stay as they are. Returns `NO_ROOM` if some do not
    fit: then the order and the routes of what stays are in `room`; `WRONG` if the row is no
    matching, `WRONG_STATES` if an entry of `given` is no state.
    """
    count = line_up(ports, matching, room.order, room.partner, room.taken)
    if count < 0:
        return WRONG
    order = room.order[:count]
    for cell in range(len(states)):  # a stuck cell is stated as it is, or free
        if given[cell] < -1 or given[cell] > 1:
            return WRONG_STATES
        states[cell] = given[cell]
        if ports.stuck[cell] >= 0 and given[cell] != ports.stuck[cell]:
            states[cell] = -1
    for port in range(len(lengths)):
        lengths[port] = 0
        room.lengths[port] = 0
    kept = 0
    for place in range(count):
        port = order[place]
        if _follow(wiring, room, states, port):  # circuits that stay go to the front
            for back in range(place, kept, -1):
                order[back] = order[back - 1]
            order[kept] = port
            kept += 1
    most = _fit_best(wiring, space, room, states, order, kept, len(states), routes, lengths)
    if most == len(states):
        for one in range(kept):  # a circuit that stays gives way
            _swap(order, one, kept - 1)
            most = _fit_best(wiring, space, room, states, order, kept - 1, most, routes, lengths)
            _follow(wiring, room, states, order[kept - 1])
            _swap(order, one, kept - 1)
    if most == len(states):
        for one in range(kept):  # two give way
            _swap(order, one, kept - 1)
            for two in range(one):
                _swap(order, two, kept - 2)
                most = _fit_best(
                    wiring, space, room, states, order, kept - 2, most, routes, lengths
                )
                _follow(wiring, room, states, order[kept - 1])
                _follow(wiring, room, states, order[kept - 2])
                _swap(order, two, kept - 2)
            _swap(order, one, kept - 1)
    if most == len(states):
        for place in range(kept, count):
            room.lengths[order[place]] = 0
        return NO_ROOM
    for cell in range(len(states)):
        room.states[cell] = states[cell]
    write_states(wiring, order, routes, lengths, states)
    toggles = 0
    for cell in range(len(states)):
        if room.states[cell] >= 0 and room.states[cell] != states[cell]:
            toggles += 1
    return toggles
