"""Routers with a fabric and arrays to work in: the calls of a scheduler.

A *row* is one matching, ``row[source] = destination``, -1 where idle. The answer is written to
arrays of the caller: ``states[cell]`` is 0 bar, 1 cross, -1 where no light passes;
``routes[source, step]`` is the terminal by which light leaves each cell on its way, and
``lengths[source]`` the number of these cells, 0 without a circuit. Of a batch of rows, all but
`routes` have a further index k in front. An *outcome* says what became of a row: `ROUTED`,
`NOT_ROUTED`, `NO_MATCHING` or `WRONG_STATES`.

The *rule* of a feed-forward fabric such as a Benes network is its exact router, which finds states
for every matching without a search. A *mesh* is any other fabric with cells: there circuits are
negotiated, that is, ripped up and rerouted at rising prices of links that two of them want. A
*toggle* is a cell that is driven to its other state; where toggles are paid, a *toll* says how
much.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import CROSS, FREE, CellDevice, Clock
from optmatch.solvers.feedforward.router import (
    LOOPING,
    exact_router,
    route_cheaply,
    route_with_few_toggles,
    route_without_faults,
)
from optmatch.solvers.kernels.arrays import make_read_only
from optmatch.solvers.routing.relief import Relief
from optmatch.solvers.routing.router import CellRouter
from optmatch.solvers.routing.rows import (
    NO_MATCHING,
    NOT_ROUTED,
    ROUTED,
    TRIES,
    WRONG_STATES,
    PortTable,
    RowBatch,
    check_rows,
    light_graph,
    new_scratch,
    read_rows,
    route_rows,
)
from optmatch.solvers.routing.toggling import (
    NO_ROOM,
    TOLLS,
    RoutedRow,
    finish_change,
    fit_in_circuits,
    negotiate_change,
)
from optmatch.solvers.routing.worst import cell_costs

VISITS = 5_000
"""Blocks of a Benes network that a change may look at: 64 ports take 1.6 ms."""

MAX_MOVES = {"worst-loss-db": 12, "worst-snr-db": 3, "power-mw": 6}
"""Moves of circuits that help the worst one, for each matching: about as long as the routing."""


class RowRouter:
    """Checks matchings of a fabric and routes them; one for each thread.

    This class is for fabrics without cells: there every matching is held, and nothing has to be
    set. Subclasses find routes through cells. ``ports`` has what rows are checked against, and
    ``width`` is the most cells on a route: routes have the shape (ports, width).
    """

    width = 0

    def __init__(self, fabric: Fabric) -> None:
        """Make the arrays that matchings of this fabric are checked against."""
        # The ports: which of them are live, and the least cost of a route between any two. It is 0
        # here, for fabrics without cells and with fixed rules; the router of a mesh replaces it by
        # the shortest routes.
        n_ports = fabric.n_ports
        live = np.isin(np.arange(n_ports), fabric.live_ports)
        least_cost = np.zeros((n_ports, n_ports), dtype=np.int64)
        graph = fabric.graph
        stuck = np.empty(0, dtype=np.int8) if graph is None else graph.stuck
        make_read_only(live, least_cost, stuck)
        self.fabric = fabric
        self.ports = PortTable(
            live=live,
            least=least_cost,
            stuck=stuck,
            mutual=fabric.bidirectional,
        )

        # Scratch of the check: source ports of circuits in their order, the destination of each
        # source, and 1 for each port that is a destination already.
        self._scratch = (
            np.zeros(n_ports, dtype=np.int64),
            np.zeros(n_ports, dtype=np.int64),
            np.zeros(n_ports, dtype=np.int8),
        )

    def route(
        self,
        rows: NDArray[np.int32],
        states: NDArray[np.int8],
        routes: NDArray[np.int32],
        lengths: NDArray[np.int64],
        outcome: NDArray[np.int8],
    ) -> None:
        """Route rows, each a matching for itself; `routes` receives those of the last one.

        Without cells there are no states and no routes: rows are checked, and only `outcome` is
        written. Subclasses write all four arrays.
        """
        check_rows(self.ports, *self._scratch, rows, outcome)

    def change(
        self,
        present_states: NDArray[np.int8],
        row: NDArray[np.int32],
        states: NDArray[np.int8],
        routes: NDArray[np.int32],
        lengths: NDArray[np.int64],
        clock: Clock | None = None,
    ) -> int:
        """Route one matching with few toggles from the present states; return the outcome.

        ``present_states[cell]`` is -1 where it is not known; another value than -1, 0 and 1 has
        the outcome `WRONG_STATES`. Searches for fewer toggles end when the time of `clock` is
        over; the row is routed in any case.
        """
        if ((present_states < FREE) | (present_states > CROSS)).any():
            return WRONG_STATES
        outcome = np.empty(1, dtype=np.int8)
        RowRouter.route(self, row[None], states[None], routes, lengths[None], outcome)
        return int(outcome[0])

    def warm_up(self) -> None:
        """Compile, or load, the kernels that only some changes need."""

    def read(
        self,
        row: NDArray[np.int32],
        states: NDArray[np.int8],
        routes: NDArray[np.int32],
        lengths: NDArray[np.int64],
    ) -> None:
        """Read `routes` and `lengths` out of cell states; without cells there are none."""


class ForwardRouter(RowRouter):
    """For feed-forward fabrics, whose rule constructs the states for every matching.

    ``_exact_fabric`` is the fabric without its faults, whose rule counts; it is None in a
    subclass for fabrics without one. ``_has_faults`` tells whether any of its cells is stuck or
    dead. ``_paths`` is the graph along which light is followed.
    """

    _rule_cost: NDArray[np.int64] | None = None
    """``_rule_cost[cell, state, shared]``: what a cell in bar (0) or cross (1) costs a circuit
    that passes it alone (0) or with another one (1). The rule takes the routes of the least cost;
    None: any routes."""
    _by_worst = False
    """Whether the costs of the worst circuit count, and not the sum of all."""

    def __init__(self, fabric: Fabric) -> None:
        """Look up the rule of the fabric, and how light is followed through its cells."""
        super().__init__(fabric)
        graph: Any = fabric.graph
        longest = max(2 * fabric.n_ports, int(fabric.route_cells().max(initial=0)))
        self.width = min(fabric.n_cells, longest)  # light in planar networks may go all the way
        # Looked up once: a call for one matching takes twenty microseconds.
        self._exact_fabric: Any = exact_router(fabric)
        self._has_faults = bool((graph.stuck != FREE).any())
        self._paths = light_graph(fabric)

    def route(self, rows, states, routes, lengths, outcome) -> None:
        """Route matchings by the rule; if some row is no matching, write the outcomes alone."""
        # The base class checks the rows: an outcome is `ROUTED` or `NO_MATCHING` from here on.
        super().route(rows, states, routes, lengths, outcome)
        if (outcome == NO_MATCHING).any():
            return
        is_plain = self._rule_cost is None and not self._has_faults
        if self._exact_fabric is not None and is_plain:
            states[:] = route_without_faults(self._exact_fabric, rows)
        else:
            # ``by_rule.held[k]`` is False if faults forbid the states that the rule finds for row
            # k.
            by_rule = route_cheaply(self.fabric, rows, self._rule_cost, worst=self._by_worst)
            states[:] = by_rule.states
            outcome[~by_rule.held] = NOT_ROUTED
        read_rows(self._paths, RowBatch(rows, states, routes, lengths, outcome))

    def change(self, present_states, row, states, routes, lengths, clock=None) -> int:
        """Route a row by the rule of the fabric, with few toggles from the present states.

        Where the rule knows some routes only, a mesh router looks for fewer toggles, until the
        time of `clock` is over. Dark cells, which no circuit passes, keep their present states
        unless they are stuck.
        """
        # `RowRouter` checks the row and the present states, and routes nothing.
        checked = super().change(present_states, row, states, routes, lengths)
        if checked != ROUTED:
            return checked

        # By the rule, as a batch of one row. `is_held` is False if faults forbid the states that
        # it finds; ``lit[cell]`` is -1 where no light passes.
        by_rule = route_with_few_toggles(self.fabric, row, present_states, visits=VISITS)
        is_held = bool(by_rule.held[0])
        lit = by_rule.states[0]
        stuck = self.ports.stuck

        # Dark cells are not driven: they keep their states, as far as stuck cells allow that.
        stays = (lit == FREE) & ((stuck == FREE) | (stuck == present_states))
        states[:] = np.where(stays, present_states, lit)

        # The rule tries all routes in Benes networks alone (`LOOPING`), where it turns loops. For
        # other fabrics, and where faults forbid its routes, the row is also changed as on any
        # mesh, and of both answers that with fewer toggles counts.
        tries_all_routes = self._exact_fabric.type in LOOPING
        if not (is_held and tries_all_routes):
            states_of_mesh = states.copy()
            routes_of_mesh = np.zeros((len(row), self._mesh.width), dtype=np.int32)
            outcome = self._mesh.change(
                present_states, row, states_of_mesh, routes_of_mesh, lengths, clock
            )
            is_better = _count_toggles(present_states, states_of_mesh) < _count_toggles(
                present_states, states
            )
            if outcome == ROUTED and (is_better or not is_held):
                states[:] = states_of_mesh
                is_held = True
        self.read(row, states, routes, lengths)
        return ROUTED if is_held else NOT_ROUTED

    def warm_up(self) -> None:
        """Compile, or load, the kernels of changes where the exact router knows some ways only."""
        if self._exact_fabric.type not in LOOPING:
            self._mesh.warm_up()

    @cached_property
    def _mesh(self) -> MeshRouter:
        """The router of any mesh, for changes where the rule knows some of the ways only."""
        return MeshRouter(self.fabric)

    def read(self, row, states, routes, lengths) -> None:
        """Follow the light of each circuit through the states; 0 cells if it does not arrive."""
        outcome = np.empty(1, dtype=np.int8)
        read_rows(self._paths, RowBatch(row[None], states[None], routes, lengths[None], outcome))


def _count_toggles(present_states: NDArray[np.int8], states: NDArray[np.int8]) -> int:
    """Count the cells that two settings, shape (cells,), drive to different states."""
    return int(((present_states != FREE) & (states != FREE) & (present_states != states)).sum())


class MeshRouter(ForwardRouter):
    """For all other fabrics with cells: by negotiated congestion.

    A route costs the losses of its cells on the chip `cells`, or the number of its cells if that
    is None. ``_router`` has the graph of the fabric, the least cost between any two ports, and
    arrays for searches; ``_work`` has further arrays for kernels. Of the base class it keeps how
    light is followed.
    """

    def __init__(
        self, fabric: Fabric, cells: CellDevice | None = None, *, power: bool = False
    ) -> None:
        """Build the graph of the fabric, with the cost of each cell, and allocate scratch.

        With `power` a cell costs the power of its heater instead of its loss.
        """
        super().__init__(fabric)
        self._router = router = CellRouter(fabric, cells=cells, power=power)
        self.width = router.width
        self.ports = self.ports._replace(least=router.least)
        self._work = new_scratch(router.wiring, router.width)

    def route(self, rows, states, routes, lengths, outcome) -> None:
        """Route matchings by negotiation, with one effort after the other until one succeeds."""
        batch = RowBatch(rows, states, routes, lengths, outcome)
        route_rows(
            self._router.wiring, self._router.workspace, self.ports, self._work, TRIES, batch
        )

    def change(self, present_states, row, states, routes, lengths, clock=None) -> int:
        """Keep circuits that the states hold already, and fit new ones in between.

        If they do not fit, all circuits are rerouted at a price for each toggle, which falls from
        try to try (`TOLLS`), unless `clock` leaves no time for that; at last the matching is
        routed as if no state were given, and toggles are saved afterwards.
        """
        router = self._router
        routed = RoutedRow(states, routes, lengths)
        begin_s = clock.elapsed_s if clock is not None else 0.0

        # After `NO_ROOM` there is something left to try; other outcomes are final. ``self._work``
        # then has the source ports of all circuits in ``order``, and the present states.
        outcome = fit_in_circuits(
            router.wiring,
            router.workspace,
            self.ports,
            self._work,
            row,
            present_states,
            routed,
        )
        if outcome != NO_ROOM:
            return int(outcome)

        # A bidirectional circuit is in ``order`` once, though it has two entries in the row. A
        # negotiation takes about five times as long as fitting in: where the clock leaves less,
        # none is begun.
        n_circuits = int(np.count_nonzero(row >= 0))
        if self.ports.mutual:
            n_circuits //= 2
        order = self._work.order[:n_circuits]
        fit_s = clock.elapsed_s - begin_s if clock is not None else 0.0
        for toll in TOLLS:
            if clock is not None and clock.remaining_s < 5 * fit_s:
                break
            outcome = negotiate_change(
                router.wiring, router.workspace, self._work, order, toll, routed
            )
            if outcome != NO_ROOM:
                return ROUTED

        # At last the row is routed as if no circuit were up, and toggles are saved afterwards.
        # Ports with a length above 0 are the source ports of the circuits.
        outcomes = np.empty(1, dtype=np.int8)
        self.route(row[None], states[None], routes, lengths[None], outcomes)
        if outcomes[0] == ROUTED:
            order = np.flatnonzero(lengths)
            finish_change(router.wiring, router.workspace, self._work, order, routed)
        return int(outcomes[0])

    def warm_up(self) -> None:
        """Compile, or load from disk, the kernels that a change needs if its circuits do not fit.

        A first change would otherwise wait for them, as they are compiled when they are first
        called: here for a change of no circuits, which takes no time.
        """
        n_ports = len(self.ports.live)
        routed = RoutedRow(
            states=np.full(self.fabric.n_cells, FREE, dtype=np.int8),
            routes=np.zeros((n_ports, self.width), dtype=np.int32),
            lengths=np.zeros(n_ports, dtype=np.int64),
        )
        no_circuits = np.empty(0, dtype=np.int64)
        graph = self._router.wiring
        space = self._router.workspace
        negotiate_change(graph, space, self._work, no_circuits, TOLLS[0], routed)
        finish_change(graph, space, self._work, no_circuits, routed)


class WorstRouter(MeshRouter):
    """For the worst circuit, or for power: routes first, which are then relieved.

    To relieve is to reroute the worst circuit while the objective falls; ``_max_moves`` is how
    many circuits are rerouted at most for a matching. Where the fabric has a rule, ``_rule_cost``
    chooses among its routes.
    """

    def __init__(self, fabric: Fabric, objective: str, cells: CellDevice) -> None:
        """Build the graph of the fabric, and the search that improves the worst circuit."""
        super().__init__(fabric, cells, power=objective == "power-mw")
        self._relief = Relief(self._router, cells, objective)
        self._max_moves = MAX_MOVES[objective]
        self._rule_cost = cell_costs(fabric, cells, objective)
        self._by_worst = objective == "worst-loss-db"

    def route(self, rows, states, routes, lengths, outcome) -> None:
        """Route by rule or by negotiation, then reroute circuits while that helps the objective.

        If some row is no matching, none is improved.
        """
        route_first = ForwardRouter.route if self._exact_fabric is not None else MeshRouter.route
        route_first(self, rows, states, routes, lengths, outcome)
        if (outcome != NO_MATCHING).all():
            batch = RowBatch(rows, states, routes, lengths, outcome)
            self._relief.improve_rows(self.ports, self._work, batch, self._max_moves)


def new_row_router(
    fabric: Fabric, objective: str | None = None, cells: CellDevice | None = None
) -> RowRouter:
    """Choose the router of a fabric, perhaps for an objective on a chip.

    `objective` is one of `MAX_MOVES`, and counts only if the cells of the chip are known.
    """
    if fabric.graph is None:
        return RowRouter(fabric)
    if objective is not None and cells is not None:
        return WorstRouter(fabric, objective, cells)
    return (MeshRouter if exact_router(fabric) is None else ForwardRouter)(fabric)
