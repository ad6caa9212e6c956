"""The kernels of `pathfinder` with a fabric: its graph and a workspace.

Routes are kept as the terminals by which light leaves the cells; ``terminal >> 2`` is the cell.
`terminals` explains how terminals are numbered.
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
from optmatch.solvers.routing.pathfinder import (
    FULL,
    UNIT,
    Effort,
    MeshArrays,
    RoutedCircuits,
    cost_to_go,
    negotiate,
    new_workspace,
    shorten,
)

_PASSING = UNIT // 20
"""What each cell costs beside the power of its heater, in 1/`UNIT` of an average heater."""


@lru_cache(maxsize=16)
def _build_graph(
    fabric: Fabric, bar_cost: int, cross_cost: int, cells: CellDevice | None, power: bool
) -> tuple[MeshArrays, NDArray[np.int64]]:
    """Build the arrays of a fabric that the kernels search, and the costs of its cheapest ways.

    One run of Dijkstra for each port. All arrays are read-only: they are shared by routers.

    Parameters
    ----------
    fabric
        A fabric with cells.
    bar_cost, cross_cost
        What passing a cell costs in each state, in 1/`UNIT` of a cell.
    cells
        If given, costs of cells are in proportion to their losses, `UNIT` on average.
    power
        If costs are in proportion to heater powers instead, above those of dark cells.

    Returns
    -------
    graph : MeshArrays
        ``graph.to_go[port, terminal]`` is the cost of the cheapest way from there to the port.
    least : int64 array, shape (ports, ports)
        ``least[source, destination]``: the cost of the cheapest way of a circuit that is alone.
    """
    cell_graph: Any = fabric.graph
    cell_cost = _cell_costs(fabric, bar_cost, cross_cost, cells, power)
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
        to_go=np.empty((len(target), n_terminals), dtype=np.int64),
    )
    space = new_workspace(n_terminals, links.count, 0)
    for port, terminal in enumerate(target):
        check_time()
        cost_to_go(graph, terminal, space, graph.to_go[port])

    # The first cell of a way is passed in one of two states, to one of two exits.
    first_cell = graph.source >> 2
    first_exits = cell_graph.exits[graph.source]  # (source, state)
    cost = graph.to_go[:, first_exits] + graph.cell_cost[first_cell][None]
    least = np.ascontiguousarray(cost.min(axis=2).T)
    for array in (*graph, least):
        array.flags.writeable = False
    return graph, least


def _cell_costs(
    fabric: Fabric, bar_cost: int, cross_cost: int, cells: CellDevice | None, power: bool
) -> NDArray[np.int64]:
    """Return ``cost[cell, state]`` of passing, in 1/`UNIT` of a cell, shape (cells, 2).

    Losses and heater powers are divided by their mean, so that a cell costs `UNIT` on average.

    Parameters
    ----------
    fabric
        A fabric with cells.
    bar_cost, cross_cost
        The cost of passing a cell in each state, in 1/`UNIT` of a cell, where cells are alike.
    cells
        If given, costs are in proportion to the losses of the cells.
    power
        Whether they are in proportion to heater powers above those of dark cells instead.
    """
    equal_costs = np.tile(np.array([bar_cost, cross_cost], dtype=np.int64), (fabric.n_cells, 1))
    if cells is None:
        return equal_costs
    weight = split_power(fabric, cells)[1] if power else cells.loss_db
    mean = float(weight.mean())
    if mean == 0.0:
        return equal_costs
    cost = np.rint(weight / mean * UNIT).astype(np.int64)
    if power:
        cost += _PASSING  # a way of fewer cells is better even if no heater is on
    return cost


class CellRouter:
    """The kernels with a fabric and a workspace; one for each thread.

    Parameters
    ----------
    fabric
    bar_cost, cross_cost
        What passing a cell costs in each state, in 1/`UNIT` of a cell.
    cells
        If given, passing a cell costs what it loses, `UNIT` on average.
    power
        With `cells`, passing costs what heaters take above the power of dark cells, instead.

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
        """Build the graph of the fabric and the costs of its shortest ways, and allocate scratch.

        Parameters
        ----------
        fabric
            A fabric with cells.
        bar_cost, cross_cost
            The cost of passing a cell in each state, in 1/`UNIT` of a cell.
        cells
            If given, passing a cell costs what it loses, `UNIT` on average.
        power
            With `cells`, passing a cell costs what its heater takes beyond that of a dark cell.

        Raises
        ------
        ValueError
            The fabric has no cells.
        """
        graph = fabric.graph
        if graph is None:
            raise ValueError("a fabric without cells needs no routes")
        self.fabric = fabric
        self.graph = graph
        self.bidirectional = fabric.bidirectional
        self.wiring, self.least = _build_graph(fabric, bar_cost, cross_cost, cells, power)
        self.no_cost = np.zeros(len(graph.mate), dtype=np.int64)
        longest = int(fabric.route_cells()[fabric.route_cells() != UNREACHED].max(initial=0))
        self.width = min(len(graph.mate), 4 * longest + 64)  # no route in use is longer
        self.workspace = new_workspace(len(graph.mate), graph.links.count, self.width)

    def empty_routes(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Allocate routes and lengths of one matching, as of `RoutedCircuits`: no routes yet."""
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
        """Route circuits by negotiated congestion, then shorten their routes.

        Parameters
        ----------
        order, partner, routes, lengths
            As of `RoutedCircuits`; routes that are there are where the negotiation starts.
        base
            ``base[terminal]``: what leaving there costs on top of cells and contests.
        effort
            When the negotiation gives up.

        Returns
        -------
        int
            The cost of all routes, in 1/`UNIT` of a cell. If it failed, minus the number of links
            that are still contested, or `BLOCKED` if a circuit has no way.
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
        """Put each circuit of a routed matching on its cheapest way past the others.

        That is done for one circuit after the other, in place, until nothing gets cheaper. No two
        circuits share a link, before or after.

        Parameters
        ----------
        order
            The source ports of the circuits, one by one in this order, int64, shape (circuits,).
        partner
            ``partner[source]``: the destination port of each circuit, int64, shape (ports,).
        routes
            ``routes[source, step]``: the terminals by which light leaves the cells on the route,
            int32, shape (ports, width). All circuits have routes; they are changed.
        lengths
            ``lengths[source]``: the number of cells on the route, int64, shape (ports,). Changed.
        cell_cost
            ``cell_cost[cell, state]``: what passing a cell in bar (0) or cross (1) costs, in
            1/`UNIT` of an average cell, int64, shape (cells, 2). Takes the place of the costs that
            the router was made with for this call. None is below those, as the search relies on
            their least costs from each terminal to each port. None: the router's own costs.

        Returns
        -------
        int
            The cost of all routes, in 1/`UNIT` of a cell.
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

        Parameters
        ----------
        order
            The source ports of the circuits, shape (circuits,).
        routes, lengths
            As of `RoutedCircuits`; those of other ports are not read.

        Returns
        -------
        int8 array, shape (cells,)
            0 bar, 1 cross, -1 where no light passes.
        """
        states = np.full(self.graph.n_cells, FREE, dtype=np.int8)
        on_route = np.arange(routes.shape[1]) < lengths[order, None]
        leaving = routes[order]
        entering = np.empty_like(leaving)
        entering[:, 0] = self.wiring.source[order]
        entering[:, 1:] = self.wiring.mate[leaving[:, :-1]]

        # Terminals of one side differ in the lowest bit: it stays in bar and changes in cross.
        crosses = (leaving ^ entering) & 1
        states[leaving[on_route] >> 2] = crosses[on_route]
        return states

    def follow(
        self, matching: NDArray[np.int32], states: NDArray[np.int8]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Follow the light of a matching through cell states.

        Parameters
        ----------
        matching
            ``matching[source] = destination``, -1 where idle.
        states
            ``states[cell]``: 0 bar, 1 cross, -1 free.

        Returns
        -------
        routes, lengths
            ``routes[source, step]``: the terminals by which light leaves its cells, and
            ``lengths[source]``: the number of cells. A circuit that the states do not
            carry, or whose route has more than `width` cells, has length 0.
        """
        routes, lengths = self.empty_routes()
        wiring = self.wiring
        for source, partner in enumerate(matching.tolist()):
            if partner == IDLE or (self.bidirectional and partner < source):
                continue
            entering = int(wiring.source[source])
            route = list[int]()
            while entering >= 0 and states[entering >> 2] != FREE and len(route) < self.width:
                leaving = int(wiring.exits[entering, states[entering >> 2]])
                route.append(leaving)
                entering = int(wiring.mate[leaving])
            if route and route[-1] == wiring.target[partner]:
                routes[source, : len(route)] = route
                lengths[source] = len(route)
        return routes, lengths
