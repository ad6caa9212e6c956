"""Kernels of a scheduler: rows of matchings in, cell states out.

The kernels check, route and write in one call each, so that the call costs little more than the
routing.

A *row* is one matching of a batch. It is routed by a negotiation. How fast prices rise, and when
it gives up, is an `Effort`; where one effort fails, the next one is tried.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.solvers.kernels.arrays import copy_into
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.kernels.two_sided import NOT_REACHED
from optmatch.solvers.routing.pathfinder import (
    EFFORTS,
    FAR,
    FULL,
    UNIT,
    Effort,
    MeshArrays,
    RoutedCircuits,
    RoutingSpace,
    cell_of,
    negotiate,
    state_between,
)

QUICK = Effort(first=UNIT, growth_percent=110, history=UNIT)
"""A negotiation that ends soon: routes are 3 % longer than the shortest, not 2 %."""

# The last effort to try: each contest makes a link dearer by eight cells for good.
_HARD = Effort(first=UNIT // 2, growth_percent=120, history=8 * UNIT)

TRIES = np.array([QUICK, FULL, EFFORTS[1]] + [FULL, _HARD] * 3 + [_HARD] * 40, dtype=np.int64)
"""Negotiations of a row, one after the other, until one finds routes."""

ROUTED = 1
NOT_ROUTED = 0
NO_MATCHING = -1
WRONG_STATES = -3
"""The outcome of a row; the last one is of a change from values that are no states."""


class PortTable(NamedTuple):
    """The arrays that rows are checked against."""

    live: NDArray[np.bool_]
    """(ports,): whether the port works."""
    least: NDArray[np.int64]
    """(ports, ports) ``[source, destination]``: the cost of the shortest route, in 1/`UNIT` of
    a cell; `FAR` or more if there is none."""
    stuck: NDArray[np.int8]
    """(cells,): -1 where the cell works, 0 or 1 where it stays in bar or cross, 2 where it is
    dead."""
    mutual: bool
    """Whether ports are bidirectional."""


class RowScratch(NamedTuple):
    """Arrays to work in, beside the workspace of `pathfinder`."""

    order: NDArray[np.int64]
    """(ports,): source ports of circuits, the longest first."""
    partner: NDArray[np.int64]
    """(ports,): the destination of each source port, -1 where idle."""
    taken: NDArray[np.int8]
    """(ports,): 1 where a port is a destination already."""
    lengths: NDArray[np.int64]
    """(ports,): cells on the route of each source port."""
    routes: NDArray[np.int32]
    """(ports, width): the terminals by which light leaves its cells."""
    known_states: NDArray[np.int8]
    """(cells,): the states before a change, 0 bar, 1 cross, -1 where a cell has another one or it
    is not known."""
    toll: NDArray[np.int64]
    """(cells, state): costs of cells if toggles are paid."""
    n_lit: NDArray[np.int64]
    """(cells,): how many times circuits pass a cell."""
    side_costs: NDArray[np.int64]
    """(2, terminals): the costs of both ends of a search for few toggles, `NOT_REACHED` between
    two searches."""
    side_marks: NDArray[np.int32]
    """(2, 6, places): the other six arrays of both ends, in the order of `SearchSide`: previous,
    reached, bucket, entered, next_entry, later."""
    no_cost: NDArray[np.int64]
    """(terminals,): zeros, the cost of leaving where nothing is charged."""


def new_scratch(wiring: MeshArrays, width: int) -> RowScratch:
    """Allocate the `RowScratch` of a fabric, for routes of at most `width` cells."""
    n_ports = len(wiring.source)
    n_cells = len(wiring.cell_cost)
    n_terminals = len(wiring.mate)
    return RowScratch(
        order=np.zeros(n_ports, dtype=np.int64),
        partner=np.zeros(n_ports, dtype=np.int64),
        taken=np.zeros(n_ports, dtype=np.int8),
        lengths=np.zeros(n_ports, dtype=np.int64),
        routes=np.zeros((n_ports, width), dtype=np.int32),
        known_states=np.zeros(n_cells, dtype=np.int8),
        toll=np.zeros((n_cells, 2), dtype=np.int64),
        n_lit=np.zeros(n_cells, dtype=np.int64),
        side_costs=np.full((2, n_terminals), NOT_REACHED, dtype=np.int64),
        side_marks=np.zeros((2, 6, 2 * n_terminals), dtype=np.int32),
        no_cost=np.zeros(n_terminals, dtype=np.int64),
    )


class RowBatch(NamedTuple):
    """Matchings, each to be routed for itself, and the arrays that receive the answers."""

    matchings: NDArray[np.int32]
    """``matchings[row, source] = destination``, -1 where idle."""
    states: NDArray[np.int8]
    """``states[row, cell]``: 0 bar, 1 cross, -1 where no light passes."""
    routes: NDArray[np.int32]
    """``routes[source, step]`` of the last row: the terminals by which light leaves its cells."""
    lengths: NDArray[np.int64]
    """``lengths[row, source]``: cells on the route."""
    outcome: NDArray[np.int8]
    """``outcome[row]``: `ROUTED`, `NOT_ROUTED` or `NO_MATCHING`."""


class LightGraph(NamedTuple):
    """The steps of light through a fabric, for those that only follow it."""

    mate: NDArray[np.int32]
    """(terminals,): the terminal at the other end of the link, or -1."""
    exits: NDArray[np.int32]
    """(terminals, 2) ``[terminal, state]``: where light leaves that enters a cell at a
    terminal."""
    source: NDArray[np.int32]
    """(ports,): the terminal where light of a port enters."""
    target: NDArray[np.int32]
    """(ports,): the terminal where light to a port leaves."""
    is_bidirectional: bool
    """Whether a circuit serves both ways, counted from its lower port."""


def light_graph(fabric: Fabric) -> LightGraph:
    """Return the arrays of a fabric with cells along which light is followed."""
    graph: Any = fabric.graph
    return LightGraph(
        mate=graph.mate,
        exits=graph.exits,
        source=fabric.source_terminals,
        target=fabric.destination_terminals,
        is_bidirectional=fabric.bidirectional,
    )


@kernel
def line_up(ports: PortTable, matching, order, partner, taken):
    """Check a matching, and put its circuits in order, those with the longest routes first.

    By insertion, since a row has few circuits; one that has no path even alone comes first.
    ``matching[source]`` is the destination, -1 where idle. ``order[place]`` receives the source
    ports, of bidirectional circuits the lower ones, and ``partner[port]`` the matching;
    ``taken[port]`` is scratch. Returns the number of circuits, -1 if it is no matching of the live
    ports. With bidirectional ports, for example, the matching 2, 3, 0, 1 has two circuits, and
    `order` begins with 0 and 1 if the route from 0 to 2 is no shorter than that from 1 to 3.
    """
    n_ports = len(matching)
    n_circuits = 0
    taken[:] = 0
    for port in range(n_ports):
        other = matching[port]
        partner[port] = other
        if other == -1:
            continue
        if other < 0 or other >= n_ports or taken[other]:
            return -1
        if not (ports.live[port] and ports.live[other]):
            return -1
        taken[other] = 1

        # Pairs of bidirectional ports name each other, and count once.
        if ports.mutual:
            if other == port or matching[other] != port:
                return -1
            if other < port:
                continue

        # Put the circuit behind those that are as long or longer.
        distance = ports.least[port, other]
        place = n_circuits
        while place > 0 and ports.least[order[place - 1], partner[order[place - 1]]] < distance:
            order[place] = order[place - 1]
            place -= 1
        order[place] = port
        n_circuits += 1
    return n_circuits


@inner_kernel
def follow_light(graph: MeshArrays | LightGraph, entered, states, route):
    """Follow light that enters a cell, write where it leaves each cell, and return their number.

    Writes ``route[step]``, the terminals by which it leaves cells; ``states[cell]`` is 0 bar, 1
    cross or -1. It ends outside the fabric, at a cell of state -1, or where the route is full.
    """
    length = 0
    while entered >= 0 and states[cell_of(entered)] >= 0 and length < len(route):
        route[length] = graph.exits[entered, states[cell_of(entered)]]
        entered = graph.mate[route[length]]
        length += 1
    return length


@inner_kernel
def follow_circuit(
    graph: MeshArrays | LightGraph, circuits: RoutedCircuits | RowScratch, states, port
):
    """Follow the light of a port to its partner, and write its route and its length.

    ``circuits.partner[port]`` is the destination. Writes ``circuits.routes[port]`` and
    ``circuits.lengths[port]``, in cells, and returns the length. The length is 0 if light does not
    come there. A route that arrives has each link for itself: as light in a cell goes back the way
    it came, other light there could only come from the place where this light goes to.
    """
    route = circuits.routes[port]
    length = follow_light(graph, graph.source[port], states, route)
    if length > 0 and route[length - 1] != graph.target[circuits.partner[port]]:
        length = 0
    circuits.lengths[port] = length
    return length


@kernel
def write_states(wiring: MeshArrays, order, routes, lengths, states):
    """Set the cells on the routes of the circuits in `order`; other cells stay as they are.

    Writes ``states[cell]``, 0 bar or 1 cross. ``order[place]`` are source ports;
    ``routes[port, step]`` are the terminals by which light leaves its cells, of which the first
    ``lengths[port]`` count.
    """
    for place in range(len(order)):
        port = order[place]
        entered = wiring.source[port]
        for step in range(lengths[port]):
            leaving = routes[port, step]
            states[cell_of(leaving)] = state_between(entered, leaving)
            entered = wiring.mate[leaving]


@inner_kernel
def copy_routes(order, original, copy):
    """Copy the routes of the circuits in `order` from one record of routes to another one.

    Writes ``copy.routes[port]`` and ``copy.lengths[port]``, for the source ports ``order[place]``.
    """
    for place in range(len(order)):
        port = order[place]
        copy.lengths[port] = original.lengths[port]
        copy_into(copy.routes[port], original.routes[port, : original.lengths[port]])


@inner_kernel
def _try_efforts(
    wiring: MeshArrays, space: RoutingSpace, scratch: RowScratch, tries, circuits: RoutedCircuits
):
    """Route the circuits of a matching, with one effort after the other until one succeeds.

    Writes ``circuits.routes`` and ``circuits.lengths``, and shuffles ``circuits.order``. A
    negotiation is deterministic: a further try needs another effort or another order, so the order
    is shuffled from the third try on. Each begins from scratch. ``tries[turn]`` are the five
    numbers of an `Effort`: first price, growth in percent, history, rounds, most cost. If the
    result is False, the routes are of no use.
    """
    for turn in range(len(tries)):
        if turn > 1:
            # By Fisher and Yates, for one turn always in the same way: the numbers are those of a
            # linear congruential generator, the one of the C standard.
            order = circuits.order
            drawn = np.int64(turn)
            for place in range(len(order) - 1, 0, -1):
                drawn = (drawn * 1103515245 + 12345) & 0x7FFFFFFF
                other = (drawn >> 8) % (place + 1)
                order[place], order[other] = order[other], order[place]

        # Efforts come as rows of an array, of which numba makes a record field by field.
        effort = Effort(
            first=tries[turn, 0],
            growth_percent=tries[turn, 1],
            history=tries[turn, 2],
            rounds=tries[turn, 3],
            most=tries[turn, 4],
        )
        circuits.lengths[:] = 0
        if negotiate(wiring, space, effort, scratch.no_cost, circuits) >= 0:
            return True
    return False


@kernel
def route_rows(
    wiring: MeshArrays,
    space: RoutingSpace,
    ports: PortTable,
    scratch: RowScratch,
    tries,
    rows: RowBatch,
):
    """Route matchings of a batch by negotiated congestion, each for itself, and set their cells.

    Writes ``rows.states[row, cell]``, ``rows.lengths[row, port]`` and ``rows.outcome[row]``.
    Lengths of rows that are not routed mean nothing. ``rows.routes`` is overwritten by each row,
    hence has those of the last one in the end. ``tries[turn]`` are the five numbers of an
    `Effort`, to be tried in turn.
    """
    for row in range(len(rows.matchings)):
        states = rows.states[row]
        lengths = rows.lengths[row]
        states[:] = -1
        lengths[:] = 0
        n_circuits = line_up(
            ports, rows.matchings[row], scratch.order, scratch.partner, scratch.taken
        )
        if n_circuits < 0:
            rows.outcome[row] = NO_MATCHING
            continue

        # The first circuit is the longest: if it has no path even alone, the row is not routed.
        order = scratch.order[:n_circuits]
        is_routed = n_circuits == 0
        if n_circuits > 0 and ports.least[order[0], scratch.partner[order[0]]] < FAR:
            circuits = RoutedCircuits(order, scratch.partner, rows.routes, lengths)
            is_routed = _try_efforts(wiring, space, scratch, tries, circuits)
        if is_routed:
            rows.outcome[row] = ROUTED
            write_states(wiring, order, rows.routes, lengths, states)
        else:
            rows.outcome[row] = NOT_ROUTED


@kernel
def check_rows(ports: PortTable, order, partner, taken, matchings, outcome):
    """Write `ROUTED` for each row that is a matching of the ports, or else `NO_MATCHING`.

    Writes ``outcome[row]`` of ``matchings[row, source]``, a destination or -1; `order`, `partner`
    and `taken` are scratch, by port.
    """
    for row in range(len(matchings)):
        is_matching = line_up(ports, matchings[row], order, partner, taken) >= 0
        outcome[row] = ROUTED if is_matching else NO_MATCHING


@kernel
def read_rows(paths: LightGraph, rows: RowBatch):
    """Follow the circuits of each row through its states; routes are those of the last row.

    Reads ``rows.states``. Writes ``rows.lengths[row, port]``, 0 where light does not arrive or
    nothing begins, and ``rows.routes[port, step]``.
    """
    for row in range(len(rows.matchings)):
        partner = rows.matchings[row]
        lengths = rows.lengths[row]
        lengths[:] = 0
        circuits = RoutedCircuits(partner, partner, rows.routes, lengths)  # the order is not read
        for port in range(len(partner)):
            if partner[port] >= 0 and (partner[port] > port or not paths.is_bidirectional):
                follow_circuit(paths, circuits, rows.states[row], port)
