"""The router of one fabric: its graph of cells and links, and a workspace for searches.

To *settle* circuits is to negotiate their routes, starting from those that they have; to *follow*
them is to read routes out of the states of cells.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Fabric
from optmatch.fabrics.reach import fit_stuck
from optmatch.model import FREE, IDLE, CellDevice, check_time
from optmatch.problems.routing import split_power
from optmatch.solvers.kernels.arrays import make_read_only
from optmatch.solvers.routing.pathfinder import (
    FAR,
    FULL,
    UNIT,
    Effort,
    MeshArrays,
    RoutedCircuits,
    close_route,
    find_route,
    negotiate,
    new_workspace,
    shorten,
)
from optmatch.solvers.routing.rows import RowBatch, light_graph, read_rows, write_states

_PASSING = UNIT // 20
"""The cost of each cell beside the power of its heater, in 1/`UNIT` of an average heater."""

_BESIDE = Effort(rounds=24)
"""The effort for circuits beside those that keep their routes."""


@lru_cache(maxsize=16)
def _build_graph(
    fabric: Fabric, bar_cost: int, cross_cost: int, cells: CellDevice | None, power: bool
) -> tuple[MeshArrays, NDArray[np.int64]]:
    """Build the arrays of a fabric that the kernels search, and ``least[source, destination]``.

    One run of Dijkstra for each port. All arrays are read-only: they are shared by routers. A cell
    costs `bar_cost` or `cross_cost`, in 1/`UNIT` of a cell; with `cells` costs are in proportion
    to losses instead, or with `power` to heater powers, `UNIT` on average. The second result,
    shape (ports, ports), has the cost of the cheapest route between two ports in the same unit,
    `FAR` or more if there is none.
    """
    cell_graph: Any = fabric.graph

    # ``cell_cost[cell, state]`` of passing. Losses and heater powers are divided by their mean, so
    # that a cell costs `UNIT` on average; with power a path of fewer cells is better even if no
    # heater is on.
    cell_cost = np.tile(np.array([bar_cost, cross_cost], dtype=np.int64), (fabric.n_cells, 1))
    if cells is not None:
        weight = split_power(fabric, cells)[1] if power else cells.loss_db
        mean = float(weight.mean())
        if mean != 0.0:
            cell_cost = np.rint(weight / mean * UNIT).astype(np.int64)
            cell_cost += _PASSING if power else 0
    n_terminals = len(cell_graph.mate)
    links = cell_graph.links
    target = fabric.destination_terminals.astype(np.int64)

    # A link has two terminals: the first one in the order of numbers, and its mate or -1.
    first_terminal = np.unique(links.of_terminal, return_index=True)[1]
    ends = np.stack([first_terminal, cell_graph.mate[first_terminal]], axis=1)
    graph = MeshArrays(
        mate=cell_graph.mate.astype(np.int64),
        exits=cell_graph.exits.astype(np.int64),
        link=links.of_terminal.astype(np.int64),
        ends=ends.astype(np.int64),
        cell_cost=fit_stuck(cell_graph, cell_cost),
        source=fabric.source_terminals.astype(np.int64),
        target=target,
        to_go=np.full((len(target), n_terminals), FAR),
    )
    backwards = search_all_paths(graph._replace(source=target), graph.cell_cost)

    # Light in a cell comes back the way it went, so paths to a port are found from there. A path
    # back that leaves a cell at a terminal is, forwards, one that enters the cell there, hence has
    # left the cell before at the mate of this terminal: ``space.cost`` is still to pay from there.
    space = new_workspace(n_terminals, links.count, 0)
    is_joined = graph.mate >= 0
    for port, terminal in enumerate(target):
        check_time()
        find_route(backwards, space, port, 0, space.spare)
        graph.to_go[port, graph.mate[is_joined]] = space.cost[is_joined]
        graph.to_go[port, terminal] = 0

    # The first cell of a way is passed in one of two states, to one of two exits; `cost` is
    # ``[destination, source, state]``.
    first_cell = graph.source >> 2
    first_exits = cell_graph.exits[graph.source]  # (source, state)
    cost = graph.to_go[:, first_exits] + graph.cell_cost[first_cell][None]
    least = np.ascontiguousarray(cost.min(axis=2).T)
    make_read_only(*graph, least)
    return graph, least


def search_all_paths(graph: MeshArrays, cell_cost: NDArray[np.int64]) -> MeshArrays:
    """Return a graph in which one search from a port finds the cheapest paths to all terminals.

    ``cell_cost[cell, state]``, in 1/`UNIT` of a cell, is what passing a cell costs in it. Its only
    destination, port 0, is at the terminal -1, which light never comes to, and the least cost from
    each terminal to it is taken for 0. Hence A* from any source port to the destination 0, by
    `find_route`, is a search of Dijkstra that never ends early: it writes the least cost of
    leaving at each terminal.
    """
    all_paths = graph._replace(
        cell_cost=cell_cost,
        target=np.full(1, -1),
        to_go=np.zeros((1, len(graph.mate)), dtype=np.int64),
    )
    make_read_only(*all_paths)
    return all_paths


class CellRouter:
    """The kernels with a fabric and a workspace; one for each thread.

    Parameters
    ----------
    fabric
        A fabric with cells.
    bar_cost, cross_cost
        The cost of passing a cell in each state, in 1/`UNIT` of a cell.
    cells
        If given, passing a cell costs what it loses, `UNIT` on average.
    power
        With `cells`, passing costs what heaters take above the power of dark cells, instead.

    Attributes
    ----------
    graph : CellGraph
        The cells of the fabric, and how they are joined.
    wiring : MeshArrays
        The same graph for kernels, with the costs of cells.
    least : int64 array, shape (ports, ports)
        ``least[source, destination]``: the cost of the cheapest route of a circuit alone, in
        1/`UNIT` of a cell.
    width : int
        The most cells of a route: searches find no longer ones.
    workspace : RoutingSpace
        The arrays of searches, which every call overwrites.
    no_cost : int64 array, shape (terminals,)
        0 everywhere: nothing is charged beside cells and contests.

    Raises
    ------
    ValueError
        The fabric has no cells.
    """

    def __init__(
        self,
        fabric: Fabric,
        bar_cost: int = UNIT,
        cross_cost: int = UNIT,
        cells: CellDevice | None = None,
        *,
        power: bool = False,
    ) -> None:
        """Build the graph of the fabric and the costs of shortest paths, and allocate arrays."""
        graph = fabric.graph
        if graph is None:
            raise ValueError("a fabric without cells needs no routes")
        self.fabric = fabric
        self.graph = graph
        self.bidirectional = fabric.bidirectional
        self.wiring, self.least = _build_graph(fabric, bar_cost, cross_cost, cells, power)
        self.no_cost = np.zeros(len(graph.mate), dtype=np.int64)

        # No route has more cells than there are terminals, and none in use is longer than four
        # times the longest of the shortest routes and 64 cells.
        longest = int(fabric.route_cells()[fabric.route_cells() != UNREACHED].max(initial=0))
        self.width = min(len(graph.mate), 4 * longest + 64)
        self.workspace = new_workspace(len(graph.mate), graph.links.count, self.width)

    def empty_routes(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Allocate ``routes[port, step]`` and ``lengths[port]`` of one matching: no routes yet."""
        n_ports = len(self.wiring.source)
        routes = np.zeros((n_ports, self.width), dtype=np.int32)
        lengths = np.zeros(n_ports, dtype=np.int64)
        return routes, lengths

    def settle(
        self,
        order: NDArray[np.int64],
        partner: NDArray[np.int64],
        routes: NDArray[np.int32],
        lengths: NDArray[np.int64],
        *,
        base: NDArray[np.int64] | None = None,
        effort: Effort = FULL,
    ) -> int:
        """Route circuits by negotiated congestion, then shorten routes; return their cost.

        `order` lists the source ports of the circuits, and ``partner[port]`` is the destination of
        each. ``routes[port, step]``, the terminals by which light leaves its cells, and
        ``lengths[port]``, the cells on the route, are changed: negotiation begins with the routes
        that are there, a length of 0 says that there is none. ``base[terminal]`` is what leaving
        there costs beside cells and contests, `FAR` where it is closed.

        The result is the cost of all routes in 1/`UNIT` of a cell. After a failure it is negative:
        -3 if three links are still contested, `BLOCKED` if a circuit has no path at all.
        """
        if base is None:
            base = self.no_cost
        circuits = RoutedCircuits(order, partner, routes, lengths)
        status = int(negotiate(self.wiring, self.workspace, effort, base, circuits))
        if status < 0:
            return status
        return int(shorten(self.wiring, self.workspace, base, circuits))

    def shorten(
        self,
        order: NDArray[np.int64],
        partner: NDArray[np.int64],
        routes: NDArray[np.int32],
        lengths: NDArray[np.int64],
        *,
        cell_cost: NDArray[np.int64] | None = None,
    ) -> int:
        """Put each circuit of a routed matching on its cheapest path past the others, in place.

        `order` lists the source ports of the circuits, and ``partner[port]`` is the destination of
        each. ``routes[port, step]``, the terminals by which light leaves its cells, and
        ``lengths[port]``, the cells on the route, are changed; all circuits have routes before and
        afterwards, and no two share a link. ``cell_cost[cell, state]`` takes the place of the
        costs that the router was made with; none may be below those, as the search relies on their
        least costs from each terminal to each port. The result is the cost of all routes, in
        1/`UNIT` of a cell.
        """
        # A stuck cell has one state only: whichever way light passes, the cost is that of it.
        wiring = self.wiring
        if cell_cost is not None:
            fitted = fit_stuck(self.graph, cell_cost)
            fitted.flags.writeable = False  # one type for all wiring: kernels are compiled once
            wiring = wiring._replace(cell_cost=fitted)
        circuits = RoutedCircuits(order, partner, routes, lengths)
        return int(shorten(wiring, self.workspace, self.no_cost, circuits))

    def states(
        self, order: NDArray[np.int64], routes: NDArray[np.int32], lengths: NDArray[np.int64]
    ) -> NDArray[np.int8]:
        """Return ``states[cell]`` under the routes of the circuits in `order`, -1 where dark.

        `order` lists source ports, ``routes[port, step]`` the terminals by which light leaves its
        cells, and ``lengths[port]`` the number of these.
        """
        states = np.full(self.graph.n_cells, FREE, dtype=np.int8)
        write_states(self.wiring, order, routes, lengths, states)
        return states

    def follow(
        self, matching: NDArray[np.int32], states: NDArray[np.int8]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Follow the light of a matching through cell states; return routes and lengths.

        ``matching[source]`` is the destination, -1 where idle; ``states[cell]`` is 0 bar, 1 cross
        or -1. ``routes[source, step]`` are the terminals by which light leaves its cells, and
        ``lengths[source]`` is the number of cells: 0 where the port is idle, its bidirectional
        circuit is listed at the lower port, the states do not carry it, or it has more than
        ``width`` cells.
        """
        routes, lengths = self.empty_routes()
        row = matching.astype(np.int32)
        row.flags.writeable = False  # kernels are compiled for one type
        outcome = np.empty(1, dtype=np.int8)
        rows = RowBatch(row[None], states.astype(np.int8)[None], routes, lengths[None], outcome)
        read_rows(light_graph(self.fabric), rows)
        return routes, lengths

    def keep_routes(
        self, matchings: NDArray[np.int32], states: NDArray[np.int8], *, repeats: bool = False
    ) -> NDArray[np.int8]:
        """Set the cells of slots anew so that circuits that two slots share keep their routes.

        ``states[slot, cell]`` hold ``matchings[slot, source]``, and so do those that are returned.
        Slot by slot, the links of circuits that the slot before has too are closed, and the others
        are routed past them. Where they find no routes, the slot keeps the states that it has.
        With `repeats` the slots begin again after the last one, whose matching is that of the
        first: it gets the states of the first, and circuits that stay until then get the routes
        that they have there. `states` itself is not changed.
        """
        states = states.copy()
        if repeats:
            states[-1] = states[0]
        for slot in range(1, len(matchings) - repeats):
            check_time()
            matching = matchings[slot]
            is_shared = matching == matchings[slot - 1]
            routes, lengths = self.follow(np.where(is_shared, matching, IDLE), states[slot - 1])

            # Other circuits that stay up until the slots begin again take their first routes now.
            if repeats:
                stays_to_end = (matchings[slot:] == matching).all(axis=0)
                first_routes = self.follow(np.where(stays_to_end, matching, IDLE), states[0])
                is_known = (lengths == 0) & (first_routes[1] > 0)
                routes[is_known] = first_routes[0][is_known]
                lengths[is_known] = first_routes[1][is_known]

            # Circuits with a known route keep it: `lengths` is above 0. Nothing is to do where the
            # slot has these routes already; `present` are its own routes and their lengths.
            is_fixed = lengths > 0
            present = self.follow(np.where(is_fixed, matching, IDLE), states[slot])
            if np.array_equal(present[0], routes) and np.array_equal(present[1], lengths):
                continue
            base = self.no_cost.copy()
            for port in np.flatnonzero(is_fixed):
                close_route(self.wiring, base, port, routes[port, : lengths[port]])

            # Circuits of bidirectional ports are routed once, from the lower one.
            partner = matching.astype(np.int64)
            is_circuit = partner != IDLE
            if self.bidirectional:
                is_circuit &= np.arange(len(partner)) < partner
            waiting = np.flatnonzero(is_circuit & ~is_fixed)
            waiting = waiting[np.argsort(-self.least[waiting, partner[waiting]], kind="stable")]
            if self.settle(waiting, partner, routes, lengths, base=base, effort=_BESIDE) < 0:
                continue
            new_states = self.states(np.flatnonzero(is_circuit), routes, lengths)

            # Routes of the slot before and of the first slot may be in each other's way.
            if ((self.follow(matching, new_states)[1] > 0) == is_circuit).all():
                states[slot] = new_states
        return states
