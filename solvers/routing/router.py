"""The kernels of `pathfinder` with a fabric: its wiring and a workspace."""

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
"""What each cell costs beside the power of its heater."""


@lru_cache(maxsize=16)
def _wire(
    fabric: Fabric, bar_cost: int, cross_cost: int, cells: CellDevice | None, power: bool
) -> tuple[MeshArrays, NDArray[np.int64]]:
    """MeshArrays, and ``least[source, destination]``: the cost of the cheapest way if alone."""
    graph: Any = fabric.graph
    cell_cost = np.tile(np.array([bar_cost, cross_cost], dtype=np.int64), (graph.n_cells, 1))
    if cells is not None:
        weight = split_power(fabric, cells)[1] if power else cells.loss_db
        mean = float(weight.mean())
        if mean:
            cell_cost = np.rint(weight / mean * UNIT).astype(np.int64) + (_PASSING if power else 0)
    terminals, links = len(graph.mate), graph.links
    first = np.unique(links.of_terminal, return_index=True)[1]
    target = fabric.destination_terminals.astype(np.int64)
    wiring = MeshArrays(
        mate=graph.mate.astype(np.int64),
        exits=graph.exits.astype(np.int64),
        link=links.of_terminal.astype(np.int64),
        ends=np.stack([first, graph.mate[first]], axis=1).astype(np.int64),
        cell_cost=fit_stuck(graph, cell_cost),
        source=fabric.source_terminals.astype(np.int64),
        target=target,
        to_go=np.empty((len(target), terminals), dtype=np.int64),
    )
    space = new_workspace(terminals, links.count, 0)
    for port, terminal in enumerate(target):
        check_time()
        cost_to_go(wiring, terminal, space, wiring.to_go[port])
    leaving = graph.exits[wiring.source]  # (ports, state)
    cost = wiring.to_go[:, leaving] + wiring.cell_cost[wiring.source >> 2][None]
    least = np.ascontiguousarray(cost.min(axis=2).T)
    for array in (*wiring, least):
        array.flags.writeable = False
    return wiring, least


class CellRouter:
    """The kernels with a fabric and a workspace; one for each thread.

    Passing a cell costs `bar_cost` or `cross_cost`, in `UNIT`. If `cells` are given, it costs what
    they lose, `UNIT` on average; or with `power` what their heaters take more than dark ones.
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
        graph = fabric.graph
        if graph is None:
            raise ValueError("a fabric without cells needs no routes")
        self.fabric, self.graph = fabric, graph
        self.bidirectional = fabric.bidirectional
        self.wiring, self.least = _wire(fabric, bar_cost, cross_cost, cells, power)
        self.no_cost = np.zeros(len(graph.mate), dtype=np.int64)
        longest = int(fabric.route_cells()[fabric.route_cells() != UNREACHED].max(initial=0))
        self.width = min(len(graph.mate), 4 * longest + 64)  # no route in use is longer
        self.workspace = new_workspace(len(graph.mate), graph.links.count, self.width)

    def empty_routes(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Room for one matching: routes by source port, and their lengths (0: none)."""
        ports = len(self.wiring.source)
        return np.zeros((ports, self.width), dtype=np.int32), np.zeros(ports, dtype=np.int64)

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
        """Route circuits of the ports in `order`; return their cost, or the code of `negotiate`.

        ``partner[source]`` is a destination; `base` is the cost of leaving by each terminal, on
        top of cells and contest.
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
        """Put every circuit of a routed matching on its cheapest way past the others; total cost.

        ``cell_cost[cell, state]`` is not below the cost that the router was made with.
        """
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
        """Return the state of every cell under some routes, -1 where no light passes."""
        states = np.full(self.graph.n_cells, FREE, dtype=np.int8)
        on_route = np.arange(routes.shape[1]) < lengths[order, None]
        left = routes[order]
        entered = np.empty_like(left)
        entered[:, 0] = self.wiring.source[order]
        entered[:, 1:] = self.wiring.mate[left[:, :-1]]
        left, entered = left[on_route], entered[on_route]
        states[left >> 2] = (left ^ entered) & 1  # terminals of one side differ in the end alone
        return states

    def follow(
        self, matching: NDArray[np.int32], states: NDArray[np.int8]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Read routes out of cell states; a circuit that the states do not carry has none."""
        routes, lengths = self.empty_routes()
        wiring = self.wiring
        for source, partner in enumerate(matching.tolist()):
            if partner == IDLE or (self.bidirectional and partner < source):
                continue
            terminal, found = int(wiring.source[source]), list[int]()
            while terminal >= 0 and states[terminal >> 2] != FREE and len(found) < self.width:
                found.append(int(wiring.exits[terminal, states[terminal >> 2]]))
                terminal = int(wiring.mate[found[-1]])
            if found and found[-1] == wiring.target[partner]:
                routes[source, : len(found)] = found
                lengths[source] = len(found)
        return routes, lengths
