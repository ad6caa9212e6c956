"""Routing circuits through cells by negotiated congestion, with A* as the search for one route.

**Rip-up and reroute** (PathFinder, McMurchie and Ebeling 1995, doi 10.1145/201310.201328): every
circuit takes its cheapest path; links that several circuits pass become dearer from round to
round, and whoever passes them is ripped up and rerouted, until every circuit has its links for
itself.

**The search** (A*, Hart, Nilsson and Raphael 1968) goes from terminal to terminal. A state of it
is the terminal by which light *leaves* a cell: the direction of travel is part of it, so a route
cannot turn round inside a link. The estimate of the cost to go is exact but for prices.

**What is scarce** are links. If no link is on two routes, all routes through a cell agree on its
state, since any way through in bar and any way through in cross share a link; so states need no
variables of their own. Costs are whole numbers, in 1/10,000 of a cell.

In all kernels ``base[terminal]`` is the cost of leaving a cell there, beside what cells and
contests cost, in 1/`UNIT` of a cell.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.routing import PRICE_UNITS
from optmatch.solvers.kernels.arrays import copy_into
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.kernels.heap import pop, push

UNIT = PRICE_UNITS
"""The cost of one cell."""

FAR = 1 << 40
"""A cost that no route reaches: closed."""

BLOCKED = -(1 << 30)
"""Negotiation failed because a circuit has no path at all."""

_MAX_PRICE = 64 * UNIT
"""No link becomes dearer than this by one contest."""

_TIE_BITS = 26
"""Low bits of a key of the heap: of equally good terminals the one nearer to the goal is first."""
_TIE_MASK = (1 << _TIE_BITS) - 1


class MeshArrays(NamedTuple):
    """The graph of a fabric, which no kernel changes."""

    mate: NDArray[np.int64]
    """(terminals,): the terminal at the other end of the link, or -1."""
    exits: NDArray[np.int64]
    """(terminals, states): where light leaves that enters its cell at a terminal."""
    link: NDArray[np.int64]
    """(terminals,): the link at a terminal."""
    ends: NDArray[np.int64]
    """(links, 2): the one or two terminals of a link, -1 for none."""
    cell_cost: NDArray[np.int64]
    """(cells, states): what passing a cell costs."""
    source: NDArray[np.int64]
    """(ports,): where light of a port enters."""
    target: NDArray[np.int64]
    """(ports,): where light to a port leaves."""
    to_go: NDArray[np.int64]
    """(ports, terminals): least cost from leaving there to that port."""


class Effort(NamedTuple):
    """How the price of contested links rises, and when a negotiation gives up."""

    first: int = UNIT // 2
    """The price, in the first round, of each circuit that is on a link already."""
    growth_percent: int = 120
    """That price in a round, in percent of the round before."""
    history: int = UNIT // 2
    """By how much a contest makes a link dearer for good."""
    rounds: int = 60
    """After so many rounds it gives up."""
    most: int = 1 << 60
    """The cost of all routes, prices aside, above which it gives up."""


FULL = Effort()
"""The usual effort: routes are 2 % longer than the shortest ones on crowded meshes."""

PATIENT = Effort(first=UNIT // 5, growth_percent=110)
"""The effort of method `negotiated`: on 80 crowded meshes, half of them with dead cells, routes
are never worse than with all of `EFFORTS` in turn, in three quarters of the time."""

EFFORTS = (
    FULL,
    PATIENT,
    Effort(first=UNIT, history=UNIT, growth_percent=110, rounds=200),
    Effort(first=UNIT // 4, history=2 * UNIT, growth_percent=103, rounds=300),
)
"""The efforts to try in turn where one negotiation is not enough: ever more patience."""


class RoutingSpace(NamedTuple):
    """The arrays in which kernels work, so that none allocates."""

    exit_cost: NDArray[np.int64]
    """(terminals,): the price of leaving there, `FAR` if closed."""
    cost: NDArray[np.int64]
    """(terminals,): the least cost of leaving there that the present search knows."""
    entered: NDArray[np.int64]
    """(terminals,): by which terminal the cell is entered on that path."""
    use: NDArray[np.int64]
    """(links,): how many circuits pass."""
    history: NDArray[np.int64]
    """(links,): the price of contests so far."""
    keys: NDArray[np.int64]
    """(places,): keys of the heap."""
    items: NDArray[np.int64]
    """(places,): terminals in the heap."""
    spare: NDArray[np.int32]
    """(width,): a route on trial."""


class RoutedCircuits(NamedTuple):
    """The circuits of one matching and their routes, which kernels change."""

    order: NDArray[np.int64]
    """(circuits,): their source ports, in the order of routing."""
    partner: NDArray[np.int64]
    """(ports,): the destination of each source port."""
    routes: NDArray[np.int32]
    """(ports, width): the terminals by which light leaves its cells."""
    lengths: NDArray[np.int64]
    """(ports,): cells on the route, 0 where there is none."""


def new_workspace(terminals: int, links: int, width: int) -> RoutingSpace:
    """Allocate the arrays of searches for routes of at most `width` cells."""
    return RoutingSpace(
        exit_cost=np.zeros(terminals, dtype=np.int64),
        cost=np.zeros(terminals, dtype=np.int64),
        entered=np.zeros(terminals, dtype=np.int64),
        use=np.zeros(links, dtype=np.int64),
        history=np.zeros(links, dtype=np.int64),
        keys=np.zeros(2 * terminals + 8, dtype=np.int64),
        items=np.zeros(2 * terminals + 8, dtype=np.int64),
        spare=np.zeros(width, dtype=np.int32),
    )


@inner_kernel
def cell_of(terminal):
    """Return the cell that a terminal belongs to."""
    return terminal >> 2


@inner_kernel
def state_between(entering, leaving):
    """Return the state, 0 bar or 1 cross, that leads light from a terminal to another one.

    Both are terminals of the same cell, on different sides of it.
    """
    return (entering ^ leaving) & 1


@inner_kernel
def terminal_beside(terminal):
    """Return the other terminal on the same side of the cell."""
    return terminal ^ 1


@inner_kernel
def with_cell_cost(graph: MeshArrays, cell_cost) -> MeshArrays:
    """Return a graph with other costs of cells, ``cell_cost[cell, state]``.

    ``graph.to_go`` stays as it is, so the costs may not be below those that it was made with.
    """
    return MeshArrays(
        graph.mate,
        graph.exits,
        graph.link,
        graph.ends,
        cell_cost,
        graph.source,
        graph.target,
        graph.to_go,
    )


@kernel
def find_route(graph: MeshArrays, space: RoutingSpace, port, partner, route):
    """Find the cheapest path from a port to its partner by A*, and return the number of its cells.

    ``space.exit_cost[terminal]`` has the prices of leaving cells, `FAR` where that is closed;
    ``space.cost`` and ``space.entered`` are written. ``route[step]`` receives the terminals by
    which light leaves its cells, from the first cell on. The result is 0 if there is no path, or
    the cheapest one does not fit into `route`; else ``space.cost[graph.target[partner]]`` is its
    cost in 1/`UNIT` of a cell, prices included.

    On a graph whose ``to_go`` is 0 and whose ``target`` is -1 everywhere (`search_all_paths`) it
    never comes to a target, and returns 0 when nothing is left to expand. This is the search of
    Dijkstra (1959) for the cheapest paths to all terminals: ``space.cost`` has their costs, `FAR`
    where no light comes.
    """
    source = graph.source[port]
    target = graph.target[partner]
    to_go = graph.to_go[partner]
    mate = graph.mate
    cost = space.cost
    cost[:] = FAR

    # Each turn passes the cell that is entered at `entered`, then takes the best terminal so far.
    # Light leaves a cell by the terminal `leaving`, and enters the next one by ``mate[leaving]``.
    size = 0
    entered = source
    cost_so_far = np.int64(0)
    while True:
        for state in range(2):
            leaving = graph.exits[entered, state]
            price = space.exit_cost[leaving]
            if to_go[leaving] >= FAR or price >= FAR:
                continue

            # The key of the heap has the estimate of the whole path in its high bits. Its lowest
            # `_TIE_BITS` bits break ties: of two terminals with an estimate of 9 cells, that with
            # 2 to go comes before that with 5.
            total = cost_so_far + graph.cell_cost[cell_of(entered), state] + price
            if total < cost[leaving]:
                cost[leaving] = total
                space.entered[leaving] = entered
                estimate = total + to_go[leaving]
                key = (estimate << _TIE_BITS) | min(to_go[leaving], _TIE_MASK)
                if mate[leaving] >= 0 or leaving == target:
                    size = push(space.keys, space.items, size, key, leaving)

        # Entries whose cost has fallen since they were pushed are skipped.
        while True:
            if size == 0:
                return 0
            leaving = space.items[0]
            key = space.keys[0]
            size = pop(space.keys, space.items, size)
            if (key >> _TIE_BITS) == cost[leaving] + to_go[leaving]:
                break
        if leaving == target:
            break
        cost_so_far = cost[leaving]
        entered = mate[leaving]

    # The way is followed back twice, from `leaving` to where its cell was entered and over the
    # link to where the cell before was left: to count its cells, and to write them down.
    length = 1
    entered = space.entered[target]
    while entered != source:
        length += 1
        entered = space.entered[mate[entered]]
    if length > len(route):
        return 0
    leaving = target
    for step in range(length - 1, -1, -1):
        route[step] = leaving
        leaving = mate[space.entered[leaving]]
    return length


@inner_kernel
def _count_use(graph: MeshArrays, use, port, route, amount):
    """Add an amount to the use of all links of a route, that of the source port included.

    ``use[link]`` is the number of circuits on a link; `amount` is 1 for a circuit that comes, and
    -1 for one that goes. `port` is the source port, ``route[step]`` the terminals left.
    """
    use[graph.link[graph.source[port]]] += amount
    for step in range(len(route)):
        use[graph.link[route[step]]] += amount


@inner_kernel
def _set_price(graph: MeshArrays, space: RoutingSpace, base, pressure, link):
    """Set the price of entering a link, from either end: its history, and who is there now.

    Writes ``space.exit_cost[terminal]`` of both ends. `pressure` is the price of each circuit on
    the link in this round, and ``base[terminal]`` what leaving there costs before any contest.
    """
    price = space.history[link] + pressure * space.use[link]
    for end in range(2):
        terminal = graph.ends[link, end]
        if terminal >= 0:
            space.exit_cost[terminal] = base[terminal] + price


@inner_kernel
def _set_prices_along(graph: MeshArrays, space: RoutingSpace, base, pressure, route):
    """Set the prices of all links of a route but that of its source port, which is its own."""
    for step in range(len(route)):
        _set_price(graph, space, base, pressure, graph.link[route[step]])


@inner_kernel
def sum_cell_costs(graph: MeshArrays, cell_cost, port, route):
    """Add up ``cell_cost[cell, state]``, in whatever unit, over the cells of a route.

    `port` is its source port, and ``route[step]`` are the terminals by which light leaves cells.
    """
    total = np.int64(0)
    entered = graph.source[port]
    for step in range(len(route)):
        leaving = route[step]
        total += cell_cost[cell_of(leaving), state_between(entered, leaving)]
        entered = graph.mate[leaving]
    return total


@inner_kernel
def _route_cost(graph: MeshArrays, base, port, route):
    """Add up the cost of a route without the prices of contests, in 1/`UNIT` of a cell."""
    total = sum_cell_costs(graph, graph.cell_cost, port, route)
    for step in range(len(route)):
        total += base[route[step]]
    return total


@inner_kernel
def least_cost(graph: MeshArrays, port, partner):
    """Return the cost of the cheapest path from a port to its partner, if no link has a price."""
    source = graph.source[port]
    to_go = graph.to_go[partner]
    cell_cost = graph.cell_cost[cell_of(source)]
    cost_in_bar = cell_cost[0] + to_go[graph.exits[source, 0]]
    cost_in_cross = cell_cost[1] + to_go[graph.exits[source, 1]]
    return min(cost_in_bar, cost_in_cross)


@inner_kernel
def _most_use(graph: MeshArrays, use, route):
    """Return the most circuits on a link of a route; ``use[link]`` counts circuits."""
    largest_use = 0
    for step in range(len(route)):
        largest_use = max(largest_use, use[graph.link[route[step]]])
    return largest_use


@kernel
def negotiate(
    graph: MeshArrays, space: RoutingSpace, effort: Effort, base, circuits: RoutedCircuits
):
    """Route circuits by negotiated congestion, starting from the routes that are there.

    Changes ``circuits.routes[port, step]`` and ``circuits.lengths[port]``, and uses the arrays of
    `space`. In each round, every circuit that passes a contested link is ripped up and rerouted on
    its cheapest path at the prices of the moment. Then contested links become dearer: for good by
    ``effort.history``, and in the next round by the *pressure* of each circuit that is on them: at
    a pressure of 5, two circuits on a link with a history of 3 raise its price to 13. A
    circuit that has a cheap way elsewhere gives way in the end to one that has none.

    A round takes a pass over all links, and one search for each circuit on a contested link.
    Routes of length 0 are still to be found. ``base[terminal]`` is the price of leaving there
    before any contest, 0 for most uses and `FAR` where it is closed.

    The result is 0 once no link is contested, and `BLOCKED` if a circuit has no path at all. If
    rounds are used up, or all routes together cost more than ``effort.most``, it is a negative
    number: -3 if three links are still contested.
    """
    routes = circuits.routes
    lengths = circuits.lengths
    space.use[:] = 0
    space.history[:] = 0

    # The cost of all routes, prices aside; what is not routed yet costs its shortest path at
    # least.
    total = np.int64(0)
    for place in range(len(circuits.order)):
        port = circuits.order[place]
        if lengths[port]:
            route = routes[port, : lengths[port]]
            _count_use(graph, space.use, port, route, 1)
            total += _route_cost(graph, base, port, route)
        else:
            total += least_cost(graph, port, circuits.partner[port])

    # `total` is kept up to date as circuits are ripped up and rerouted.
    pressure = effort.first
    n_contested = 0
    for _ in range(effort.rounds):
        for link in range(len(space.use)):
            _set_price(graph, space, base, pressure, link)
        for place in range(len(circuits.order)):
            port = circuits.order[place]
            partner = circuits.partner[port]

            # Rip up a circuit on a contested link; the others stay.
            if lengths[port]:
                route = routes[port, : lengths[port]]
                if _most_use(graph, space.use, route) < 2:
                    continue
                _count_use(graph, space.use, port, route, -1)
                total -= _route_cost(graph, base, port, route)
                _set_prices_along(graph, space, base, pressure, route)
            else:
                total -= least_cost(graph, port, partner)

            # Reroute it at the prices of the moment.
            lengths[port] = find_route(graph, space, port, partner, routes[port])
            if lengths[port] == 0:
                return BLOCKED
            route = routes[port, : lengths[port]]
            _count_use(graph, space.use, port, route, 1)
            _set_prices_along(graph, space, base, pressure, route)
            total += _route_cost(graph, base, port, route)

        # Each circuit beyond the first on a link makes it dearer for good.
        n_contested = 0
        for link in range(len(space.use)):
            if space.use[link] > 1:
                n_contested += 1
                price = space.history[link] + effort.history * (space.use[link] - 1)
                space.history[link] = min(price, _MAX_PRICE)
        if n_contested == 0:
            return 0
        if total > effort.most:
            break
        pressure = min(pressure * effort.growth_percent // 100, _MAX_PRICE)
    return -n_contested


@kernel
def close_route(graph: MeshArrays, exit_cost, port, route):
    """Close the links of a route that starts at a port, from both ends: no search enters them.

    ``route[step]`` are the terminals by which light leaves its cells. ``exit_cost[terminal]``, the
    price of leaving there, becomes `FAR` at both ends of each link, and at the source port.
    """
    exit_cost[graph.source[port]] = FAR
    for step in range(len(route)):
        link = graph.link[route[step]]
        for end in range(2):
            terminal = graph.ends[link, end]
            if terminal >= 0:
                exit_cost[terminal] = FAR


@inner_kernel
def open_route(graph: MeshArrays, exit_cost, base, port, route):
    """Undo `close_route`: ``exit_cost[terminal]`` becomes ``base[terminal]`` at its links."""
    exit_cost[graph.source[port]] = base[graph.source[port]]
    for step in range(len(route)):
        link = graph.link[route[step]]
        for end in range(2):
            terminal = graph.ends[link, end]
            if terminal >= 0:
                exit_cost[terminal] = base[terminal]


@inner_kernel
def passes_link_twice(graph: MeshArrays, use, route):
    """Return whether a route passes some link once each way.

    A search from terminal to terminal cannot see that: the directions of a link are two terminals,
    of which ``route[step]`` may have both. ``use[link]`` is 0 on the links of the route before and
    after.
    """
    is_double = False
    for step in range(len(route)):
        link = graph.link[route[step]]
        use[link] += 1
        if use[link] > 1:
            is_double = True
    for step in range(len(route)):
        use[graph.link[route[step]]] -= 1
    return is_double


@kernel
def shorten(graph: MeshArrays, space: RoutingSpace, base, circuits: RoutedCircuits):
    """Put each circuit on its cheapest path past the others, until nothing gets cheaper.

    Changes ``circuits.routes[port, step]`` and ``circuits.lengths[port]``, and uses
    ``space.exit_cost`` and ``space.use``. The result is the cost of all routes, in 1/`UNIT` of a
    cell: of their cells, and ``base[terminal]`` for leaving a cell there, `FAR` where that is
    closed.

    All have routes, and no two share a link; the same holds afterwards.
    """
    routes = circuits.routes
    lengths = circuits.lengths
    space.use[:] = 0
    copy_into(space.exit_cost, base)
    for place in range(len(circuits.order)):
        port = circuits.order[place]
        close_route(graph, space.exit_cost, port, routes[port, : lengths[port]])

    # All links of circuits are closed to searches. A circuit that is longer than its shortest path
    # opens its own links, looks for a cheaper path past the others, and closes those of the better
    # one. The links left free may help another one: hence passes, until one brings nothing.
    last_total = np.int64(FAR)
    while True:
        total = np.int64(0)
        for place in range(len(circuits.order)):
            port = circuits.order[place]
            partner = circuits.partner[port]
            cost = _route_cost(graph, base, port, routes[port, : lengths[port]])
            if cost > least_cost(graph, port, partner):
                # Its own links are open for the search, those of all others are closed.
                open_route(graph, space.exit_cost, base, port, routes[port, : lengths[port]])
                length = find_route(graph, space, port, partner, space.spare)
                is_cheaper = length > 0 and space.cost[graph.target[partner]] < cost
                if is_cheaper and not passes_link_twice(graph, space.use, space.spare[:length]):
                    copy_into(routes[port], space.spare[:length])
                    lengths[port] = length
                    cost = space.cost[graph.target[partner]]
                close_route(graph, space.exit_cost, port, routes[port, : lengths[port]])
            total += cost
        if total >= last_total:
            return total
        last_total = total
