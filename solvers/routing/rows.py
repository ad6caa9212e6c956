"""Kernels of a scheduler: rows of matchings in, cell states out.

The kernels check, route and write in one call each, so that the call costs little more than the
routing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import kernel
from optmatch.solvers.routing.pathfinder import (
    EFFORTS,
    FAR,
    FULL,
    UNIT,
    Effort,
    MeshArrays,
    negotiate,
)

QUICK = Effort(first=UNIT, growth_percent=110, history=UNIT)
"""A negotiation that ends soon: routes are 3 % longer than the shortest, not 2 %."""

_HARD = Effort(first=UNIT // 2, growth_percent=120, history=8 * UNIT)

TRIES = np.array([QUICK, FULL, EFFORTS[1]] + [FULL, _HARD] * 3 + [_HARD] * 40, dtype=np.int64)
"""Negotiations of a row, one after the other, until one finds routes."""

ROUTED, NOT_ROUTED, NO_MATCHING = 1, 0, -1
"""The outcome of a row."""


class PortTable(NamedTuple):
    """The arrays that rows are checked against."""

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
    toll: NDArray[np.int64]  # (cells, state): costs of cells if toggles are paid
    queue: NDArray[np.int64]  # (4, places): terminals that wait at this level and the next, twice
    no_cost: NDArray[np.int64]  # (terminals,): zeros, the cost of leaving where nothing is charged


def new_room(wiring: MeshArrays, width: int) -> Room:
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
        np.zeros((4, 8 * cells), dtype=np.int64),
        np.zeros(len(wiring.mate), dtype=np.int64),
    )


@kernel
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


@kernel
def _shuffle(order, turn):
    """Put an order into another one, always the same for this turn."""
    drawn = np.int64(turn)
    for place in range(len(order) - 1, 0, -1):
        drawn = (drawn * 1103515245 + 12345) & 0x7FFFFFFF
        other = (drawn >> 8) % (place + 1)
        order[place], order[other] = order[other], order[place]


@kernel
def write_states(wiring, order, routes, lengths, states):
    """Set the cells on some routes."""
    for place in range(len(order)):
        port = order[place]
        entered = wiring.source[port]
        for step in range(lengths[port]):
            left = routes[port, step]
            states[left >> 2] = (left ^ entered) & 1
            entered = wiring.mate[left]


@kernel
def route_rows(wiring, space, ports, room, base, tries, matchings, states, routes, lengths, held):
    """Route matchings, each for itself; ``held[row]`` has the outcome.

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
                effort = Effort(tries[k, 0], tries[k, 1], tries[k, 2], tries[k, 3], tries[k, 4])
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
        write_states(wiring, order, routes, lengths[row], states[row])


@kernel
def check_rows(ports, order, partner, taken, matchings, held):
    """Tell of each row whether it is a matching of the ports, by ``held[row]``."""
    for row in range(len(matchings)):
        count = line_up(ports, matchings[row], order, partner, taken)
        held[row] = NO_MATCHING if count < 0 else ROUTED


@kernel
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
