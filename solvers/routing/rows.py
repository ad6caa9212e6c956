"""Kernels of a scheduler: rows of matchings in, cell states out, and few toggles between two.

They check, route and write in one call each, so that the call costs little more than the routing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernel import bare_kernel
from optmatch.solvers.routing.pathfinder import (
    EFFORTS,
    FAR,
    FULL,
    UNIT,
    Effort,
    Wiring,
    negotiate,
)

QUICK = Effort(first=UNIT, growth_percent=110, history=UNIT)
"""A negotiation that ends soon: routes are 3 % longer than the shortest, not 2 %."""

TOLL = 32 * UNIT
"""The cost of a toggle: as much as a detour of so many cells."""

_HARD = Effort(first=UNIT // 2, growth_percent=120, history=4 * UNIT)

TRIES = np.array([QUICK, FULL, EFFORTS[1]] + [FULL, _HARD] * 20, dtype=np.int64)
"""Negotiations of a row, one after the other, until one finds routes."""

_TOGGLE = 1 << 32  # the cost of one where toggles come before all cells

ROUTED, NOT_ROUTED, NO_MATCHING = 1, 0, -1
"""What became of a row."""

NO_ROOM, WRONG, WRONG_STATES = -1, -2, -3
"""What `change_row` says instead of a number of toggles."""


class Ports(NamedTuple):
    """What rows are checked against."""

    live: NDArray[np.bool_]
    least: NDArray[np.int64]  # (source, destination): the cost of the shortest route
    stuck: NDArray[np.int8]  # by cell, as of `CellGraph`
    mutual: bool  # whether ports are bidirectional


class Room(NamedTuple):
    """Arrays to work in, beside the workspace of `pathfinder`."""

    order: NDArray[np.int64]  # source ports of circuits, the longest first
    partner: NDArray[np.int64]
    taken: NDArray[np.int8]
    lengths: NDArray[np.int64]
    routes: NDArray[np.int32]
    states: NDArray[np.int8]
    toll: NDArray[np.int64]  # (cells, state): what cells cost if toggles are paid
    queue: NDArray[np.int64]  # (2, places): terminals, at this number of toggles and at one more


def new_room(wiring: Wiring, width: int) -> Room:
    """Allocate it."""
    ports, cells = len(wiring.source), len(wiring.cell_cost)
    order, partner, lengths = np.zeros((3, ports), dtype=np.int64)
    return Room(
        order,
        partner,
        np.zeros(ports, dtype=np.int8),
        lengths,
        np.zeros((ports, width), dtype=np.int32),
        np.zeros(cells, dtype=np.int8),
        np.zeros((cells, 2), dtype=np.int64),
        np.zeros((2, 16 * cells), dtype=np.int64),
    )


@bare_kernel
def line_up(ports, matching, order, partner, taken):
    """Put the circuits of a row in order, the longest first; return how many, -1 if it is wrong.

    A circuit that has no way even alone comes first.
    """
    n, count = len(matching), 0
    for port in range(n):
        taken[port] = 0
    for port in range(n):
        other = matching[port]
        partner[port] = other
        if other == -1:
            continue
        if other < 0 or other >= n or taken[other] or not (ports.live[port] and ports.live[other]):
            return -1
        taken[other] = 1
        if ports.mutual:
            if other == port or matching[other] != port:
                return -1
            if other < port:
                continue
        far = ports.least[port, other]
        place = count
        while place > 0 and ports.least[order[place - 1], partner[order[place - 1]]] < far:
            order[place] = order[place - 1]
            place -= 1
        order[place] = port
        count += 1
    return count


@bare_kernel
def _shuffle(order, turn):
    """Put an order into another one, always the same for this turn."""
    drawn = np.int64(turn)
    for place in range(len(order) - 1, 0, -1):
        drawn = (drawn * 1103515245 + 12345) & 0x7FFFFFFF
        other = (drawn >> 8) % (place + 1)
        order[place], order[other] = order[other], order[place]


@bare_kernel
def _write_states(wiring, order, routes, lengths, states):
    """Set the cells on some routes."""
    for place in range(len(order)):
        port = order[place]
        entered = wiring.source[port]
        for step in range(lengths[port]):
            left = routes[port, step]
            states[left >> 2] = (left ^ entered) & 1
            entered = wiring.mate[left]


@bare_kernel
def route_rows(wiring, space, ports, room, base, tries, matchings, states, routes, lengths, held):
    """Route matchings, each for itself; ``held[row]`` says what became of it.

    `base` costs nothing. ``routes`` are those of the last row.
    """
    for row in range(len(matchings)):
        for cell in range(states.shape[1]):
            states[row, cell] = -1
        for port in range(lengths.shape[1]):
            lengths[row, port] = 0
        held[row] = NO_MATCHING
        count = line_up(ports, matchings[row], room.order, room.partner, room.taken)
        if count < 0:
            continue
        order, status = room.order[:count], -1
        if count > 0 and ports.least[order[0], room.partner[order[0]]] < FAR:
            for k in range(len(tries)):
                if k > 1:
                    _shuffle(order, k)
                effort = Effort(tries[k, 0], tries[k, 1], tries[k, 2], tries[k, 3])
                for port in range(lengths.shape[1]):
                    lengths[row, port] = 0
                status = negotiate(
                    wiring, space, effort, base, order, room.partner, routes, lengths[row]
                )
                if status >= 0:
                    break
        if status < 0 < count:
            held[row] = NOT_ROUTED
            continue
        held[row] = ROUTED
        _write_states(wiring, order, routes, lengths[row], states[row])


@bare_kernel
def _read(wiring, use, given, port, target, route):
    """Follow light through given states; return how many cells it passes, 0 if it goes astray.

    Links that it passes are in use then; one that was in use before leads it astray.
    """
    at, count = wiring.source[port], 0
    use[wiring.link[at]] += 1
    clash = use[wiring.link[at]] > 1
    while given[at >> 2] >= 0 and count < len(route) and not clash:
        left = wiring.exits[at, given[at >> 2]]
        route[count] = left
        count += 1
        use[wiring.link[left]] += 1
        clash = use[wiring.link[left]] > 1
        at = wiring.mate[left]
        if at < 0:
            break
    if count > 0 and not clash and at < 0 and route[count - 1] == target:
        return count
    use[wiring.link[wiring.source[port]]] -= 1
    for step in range(count):
        use[wiring.link[route[step]]] -= 1
    return 0


@bare_kernel
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


@bare_kernel
def find_fewest(wiring, space, room, port, most, route):
    """Write the way of the fewest toggles, the shortest of these; return its cells and toggles.

    As `find_route`, but level by level of toggles, `most` at most: where cells are set light has
    one way to go on, so that there is nothing to sort. Without a way there are 0 cells.
    """
    source, target = wiring.source[port], wiring.target[room.partner[port]]
    to_go, mate, cost = wiring.to_go[room.partner[port]], wiring.mate, space.cost
    for terminal in range(len(mate)):
        cost[terminal] = FAR
    at, so_far, best, level = source, np.int64(0), np.int64(FAR), 0
    here, head, end, later = 0, 0, 0, 0
    while True:
        for state in range(2):
            leaving = wiring.exits[at, state]
            if to_go[leaving] >= FAR or space.exit_cost[leaving] >= FAR:
                continue
            total = so_far + wiring.cell_cost[at >> 2, state]
            pays = room.toll[at >> 2, state] >= TOLL
            if pays and level == most:
                continue
            if pays:
                total += _TOGGLE
            if total >= cost[leaving] or total + to_go[leaving] >= best:
                continue
            cost[leaving] = total
            space.entered[leaving] = at
            if leaving == target:
                best = total
            elif pays:
                if later == room.queue.shape[1]:
                    return 0, 0
                room.queue[1 - here, later] = leaving
                later += 1
            else:
                if end == room.queue.shape[1]:
                    return 0, 0
                room.queue[here, end] = leaving
                end += 1
        leaving = -1
        while leaving < 0:
            if head == end:
                if best < (level + 1) * _TOGGLE or later == 0:
                    break
                here, head, end, later, level = 1 - here, 0, later, 0, level + 1
            leaving = room.queue[here, head]
            head += 1
            if cost[leaving] < level * _TOGGLE:  # reached by fewer toggles in the meantime
                leaving = -1
        if leaving < 0:
            break
        so_far, at = cost[leaving], mate[leaving]
    if best >= FAR:
        return 0, 0
    count = 1
    at = space.entered[target]
    while at != source:
        count += 1
        at = space.entered[mate[at]]
    if count > len(route):
        return 0, 0
    leaving = target
    for place in range(count - 1, -1, -1):
        route[place] = leaving
        leaving = mate[space.entered[leaving]]
    return count, best // _TOGGLE


@bare_kernel
def _set_toll(wiring, given, toll):
    """Let each state cost what passing costs, and a toggle where it is another one."""
    for cell in range(len(given)):
        for state in range(2):
            pays = given[cell] == 1 - state
            toll[cell, state] = wiring.cell_cost[cell, state] + (TOLL if pays else 0)


@bare_kernel
def _fit_in(wiring, space, room, given, count, kept, backwards, most):
    """Route what does not stay past what does, one by one; return toggles, -1 if it fails.

    It fails if one finds no way, or only with more than `most` toggles of all.
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


@bare_kernel
def _keep(room, order, routes, lengths):
    """Copy the routes of the circuits out of the room."""
    for place in range(len(order)):
        port = order[place]
        lengths[port] = room.lengths[port]
        for step in range(room.lengths[port]):
            routes[port, step] = room.routes[port, step]


@bare_kernel
def _fit_best(wiring, space, room, given, order, kept, most, routes, lengths):
    """Fit in what does not stay, in two orders, with at most so many toggles; keep the better.

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


@bare_kernel
def _swap(order, one, other):
    order[one], order[other] = order[other], order[one]


@bare_kernel
def _restore(wiring, space, room, given, port):
    """Put a circuit that stays back on its route."""
    for link in range(len(space.use)):
        space.use[link] = 0
    target = wiring.target[room.partner[port]]
    found = _read(wiring, space.use, given, port, target, room.routes[port])
    room.lengths[port] = found


@bare_kernel
def change_row(wiring, space, ports, room, given, matching, states, routes, lengths):
    """Route a matching with few toggles from given states; return them, or what became of it.

    Circuits that the states carry stay. The others are fitted in between, in two orders, of which
    the better one counts. Dark cells stay as they are. Returns `NO_ROOM` if some do not fit:
    then the order and the routes of what stays are in `room`; `WRONG` if the row is no matching,
    `WRONG_STATES` if an entry of `given` is no state.
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
    for link in range(len(space.use)):
        space.use[link] = 0
    for port in range(len(lengths)):
        lengths[port] = 0
        room.lengths[port] = 0
    kept = 0
    for place in range(count):
        port = order[place]
        target = wiring.target[room.partner[port]]
        found = _read(wiring, space.use, states, port, target, room.routes[port])
        room.lengths[port] = found
        if found:  # what stays goes to the front
            for back in range(place, kept, -1):
                order[back] = order[back - 1]
            order[kept] = port
            kept += 1
    most = _fit_best(wiring, space, room, states, order, kept, len(states), routes, lengths)
    if most == len(states):
        for one in range(kept):  # one that stays gives way
            _swap(order, one, kept - 1)
            most = _fit_best(wiring, space, room, states, order, kept - 1, most, routes, lengths)
            _restore(wiring, space, room, states, order[kept - 1])
            _swap(order, one, kept - 1)
    if most == len(states):
        for one in range(kept):  # two give way
            _swap(order, one, kept - 1)
            for two in range(one):
                _swap(order, two, kept - 2)
                most = _fit_best(
                    wiring, space, room, states, order, kept - 2, most, routes, lengths
                )
                _restore(wiring, space, room, states, order[kept - 1])
                _restore(wiring, space, room, states, order[kept - 2])
                _swap(order, two, kept - 2)
            _swap(order, one, kept - 1)
    if most == len(states):
        for place in range(kept, count):
            room.lengths[order[place]] = 0
        return NO_ROOM
    for cell in range(len(states)):
        room.states[cell] = states[cell]
    _write_states(wiring, order, routes, lengths, states)
    toggles = 0
    for cell in range(len(states)):
        if room.states[cell] >= 0 and room.states[cell] != states[cell]:
            toggles += 1
    return toggles


@bare_kernel
def check_rows(ports, order, partner, taken, matchings, held):
    """Tell of each row whether it is a matching of the ports, by ``held[row]``."""
    for row in range(len(matchings)):
        count = line_up(ports, matchings[row], order, partner, taken)
        held[row] = NO_MATCHING if count < 0 else ROUTED


@bare_kernel
def read_rows(mate, exits, source, mutual, matchings, states, routes, lengths):
    """Follow the circuits of each row through its states; ``routes`` are those of the last row."""
    for row in range(len(matchings)):
        for port in range(matchings.shape[1]):
            lengths[row, port] = 0
            other = matchings[row, port]
            if other < 0 or (mutual and other < port):
                continue
            at, count = source[port], 0
            while at >= 0 and states[row, at >> 2] >= 0 and count < routes.shape[1]:
                routes[port, count] = exits[at, states[row, at >> 2]]
                at = mate[routes[port, count]]
                count += 1
            lengths[row, port] = count
