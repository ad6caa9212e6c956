"""Negotiated congestion, first fit into slots, and an exact model, each in plain Python."""

import heapq
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from optmatch.fabrics import Fabric

Pairs = list[tuple[int, int]]
Routes = dict[tuple[int, int], list[int]]


def cheapest_route(
    fabric: Fabric, pair: tuple[int, int], price: Mapping[int, float]
) -> list[int] | None:
    """Find the route of a circuit that costs least (Dijkstra 1959): 1 for a cell, and link prices.

    Parameters
    ----------
    fabric
        A fabric with cells. A terminal is a corner of a cell, where light enters or leaves.
    pair
        The source and the destination port.
    price
        ``price[link]``: infinite for a link that is shut; links without a price cost nothing.

    Returns
    -------
    list of int or None
        The terminals by which light leaves the cells, in its order; None if there is no route.
    """
    graph = fabric.graph
    assert graph is not None
    link_of = graph.links.of_terminal
    start = int(fabric.source_terminals[pair[0]])
    goal = int(fabric.destination_terminals[pair[1]])
    if price.get(int(link_of[start]), 0.0) == np.inf:
        return None
    came_from: dict[int, int] = {}
    queue: list[tuple[float, int, int]] = []  # cost, terminal left, terminal left before

    def leave_cell(cost: float, entered: int, before: int) -> None:
        for leaving in sorted({int(leaving) for leaving in graph.exits[entered]}):
            toll = price.get(int(link_of[leaving]), 0.0)
            if leaving not in came_from and toll < np.inf:
                heapq.heappush(queue, (cost + 1.0 + toll, leaving, before))

    leave_cell(0.0, start, -1)
    while queue:
        cost, leaving, before = heapq.heappop(queue)
        if leaving in came_from:
            continue
        came_from[leaving] = before
        if leaving == goal:
            return _walk_back(came_from, leaving)
        if graph.mate[leaving] >= 0:
            leave_cell(cost, int(graph.mate[leaving]), leaving)
    return None


def _walk_back(came_from: dict[int, int], leaving: int) -> list[int]:
    """List the terminals of a route in order; ``came_from[terminal]`` is the one before, or -1."""
    route = [leaving]
    while came_from[route[-1]] >= 0:
        route.append(came_from[route[-1]])
    return route[::-1]


def links_of(fabric: Fabric, pair: tuple[int, int], route: list[int]) -> list[int]:
    """List the links of a route, that of the source port first."""
    assert fabric.graph is not None
    terminals = [int(fabric.source_terminals[pair[0]]), *route]
    return [int(link) for link in fabric.graph.links.of_terminal[terminals]]


def negotiate(fabric: Fabric, pairs: Pairs, rounds: int = 60) -> Routes | None:
    """Route circuits by negotiated congestion (McMurchie and Ebeling 1995).

    In each round every circuit is ripped up and routed anew at the prices of the moment. The price
    of a link is its history, plus the pressure of the round for each circuit that uses it. Links
    that several circuits use get a longer history after the round.

    Parameters
    ----------
    fabric
        A fabric with cells.
    pairs
        The source and the destination port of each circuit.
    rounds
        How often all circuits are routed, at most.

    Returns
    -------
    dict or None
        ``routes[pair]``: the terminals by which light leaves the cells. None if circuits still
        share a link after all rounds.
    """
    history: dict[int, float] = {}
    users: dict[int, int] = {}
    routes: Routes = {}
    for turn in range(rounds):
        pressure = 0.5 * 1.2**turn
        for pair in pairs:
            for link in links_of(fabric, pair, routes[pair]) if pair in routes else []:
                users[link] -= 1
            price = {link: history.get(link, 0.0) + pressure * users[link] for link in users}
            route = cheapest_route(fabric, pair, price)
            if route is None:
                return None
            routes[pair] = route
            for link in links_of(fabric, pair, route):
                users[link] = users.get(link, 0) + 1
        contested = [link for link, count in users.items() if count > 1]
        if not contested:
            return routes
        for link in contested:
            history[link] = history.get(link, 0.0) + 0.5
    return None


def first_fit(fabric: Fabric, pairs: Pairs) -> list[Routes]:
    """Fill the slots of an all-to-all one after the other, with every pair that still fits.

    Pairs come first whose ports have the most meetings left. A pair fits if its ports are idle in
    the slot, and if it has a route over links that nobody uses there.

    Parameters
    ----------
    fabric
        A fabric with cells.
    pairs
        The source and the destination port of each circuit.

    Returns
    -------
    list of dict
        For each slot ``routes[pair]``: the terminals by which light leaves the cells. Pairs that
        have no route even in an empty slot are left out.
    """
    left = list(pairs)
    slots: list[Routes] = []
    while left:
        meetings = np.bincount(np.array(left).ravel(), minlength=fabric.n_ports)
        left.sort(key=lambda pair: -max(meetings[list(pair)]))
        shut: dict[int, float] = {}
        senders: set[int] = set()
        receivers: set[int] = set()
        slot: Routes = {}
        for pair in left:
            busy = senders | receivers if fabric.bidirectional else set()
            if pair[0] in senders | busy or pair[1] in receivers | busy:
                continue
            route = cheapest_route(fabric, pair, shut)
            if route is None:
                continue
            links = links_of(fabric, pair, route)
            if len(set(links)) == len(links):
                slot[pair] = route
                shut |= dict.fromkeys(links, np.inf)
                senders.add(pair[0])
                receivers.add(pair[1])
        if not slot:
            break
        slots.append(slot)
        left = [pair for pair in left if pair not in slot]
    return slots


def fewest_cells(fabric: Fabric, pairs: Pairs, limit_s: float = 10.0) -> int | None:
    """Find the fewest cells that routes of given circuits take together, by CP-SAT.

    For each circuit and terminal, a variable says whether its light leaves a cell there. Light
    that enters a side of a cell, which has two terminals, leaves it by the other side. Each link
    carries one circuit at most.

    Parameters
    ----------
    fabric
        A fabric with cells and without faults.
    pairs
        The source and the destination port of each circuit.
    limit_s
        Seconds after which the search gives up.

    Returns
    -------
    int or None
        The number of cells on all routes; None if it was not proved in time, or if there are no
        routes.
    """
    graph = fabric.graph
    assert graph is not None
    model = cp_model.CpModel()
    users: dict[int, list[Any]] = {}
    cells: list[Any] = []
    for source, destination in pairs:
        start = int(fabric.source_terminals[source])
        goal = int(fabric.destination_terminals[destination])
        leaves = [model.new_bool_var("") for _ in graph.mate]
        cells += leaves
        users.setdefault(int(graph.links.of_terminal[start]), []).append(1)
        for terminal, variable in enumerate(leaves):
            users.setdefault(int(graph.links.of_terminal[terminal]), []).append(variable)
            if graph.mate[terminal] < 0:
                model.add(variable == (terminal == goal))
        for first in range(0, len(leaves), 2):
            side = [first, first + 1]
            enters = [
                leaves[graph.mate[terminal]] for terminal in side if graph.mate[terminal] >= 0
            ]
            other_side = sorted({int(exit_) for exit_ in graph.exits[first]})
            model.add(sum(enters) + (start in side) == sum(leaves[exit_] for exit_ in other_side))
    for variables in users.values():
        model.add(sum(variables) <= 1)
    model.minimize(sum(cells))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    return round(solver.objective_value) if status == cp_model.OPTIMAL else None


def total_cells(routes: Routes) -> int:
    """Count the cells on all routes."""
    return sum(len(route) for route in routes.values())


def set_cells(fabric: Fabric, routes: Routes) -> NDArray[np.int8]:
    """Return the cell states that routes need: 0 bar, 1 cross, -1 where no light passes.

    ``routes[pair]`` are the terminals by which light leaves its cells, and the result has shape
    (cells,). ``graph.exits[entered, state]`` is where light leaves that enters at a terminal.
    """
    assert fabric.graph is not None
    states = np.full(fabric.n_cells, -1, dtype=np.int8)
    for (source, _), route in routes.items():
        entered = int(fabric.source_terminals[source])
        for leaving in route:
            state = int(np.flatnonzero(fabric.graph.exits[entered] == leaving)[0])
            states[leaving // 4] = state  # four terminals to a cell
            entered = int(fabric.graph.mate[leaving])
    return states
