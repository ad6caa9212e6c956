"""The kernels of `rows` with a fabric and arrays to work in: the calls of a scheduler.

The *rule* of a feed-forward fabric is its exact router (`optmatch.solvers.feedforward`), which
finds states for every matching without a search. A *mesh* is any other fabric with cells: its
routes are negotiated.
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

    A *row* is one matching, ``row[source] = destination``, -1 where idle, int32, shape (ports,).
    States are 0 bar, 1 cross, -1 free, int8, shape (cells,). This class is for fabrics without
    cells: there every matching is held, and nothing has to be set. Subclasses find routes through
    cells.

    Attributes
    ----------
    fabric : Fabric
    ports : PortTable
        The arrays that rows are checked against.
    width : int
        The most cells on a route: routes have the shape (ports, width).
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
        """Route rows, each a matching for itself.

        Without cells there are no states and no routes: rows are checked, and only `outcome` is
        written. Subclasses write all four arrays.

        Parameters
        ----------
        rows
            ``rows[k, source] = destination``, -1 where idle.
        states
            ``states[k, cell]`` receives 0 bar, 1 cross, -1 where no light passes.
        routes
            ``routes[source, step]`` receives, for the last row, the terminals by which light
            leaves cells.
        lengths
            ``lengths[k, source]`` receives the number of cells on the route.
        outcome
            ``outcome[k]`` receives `ROUTED`, `NOT_ROUTED` or `NO_MATCHING`.
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

        A toggle is a cell that is driven to its other state. ``present_states[cell]`` is 0 bar, 1
        cross, or -1 where it is not known, and ``row[source]`` a destination. Three arrays receive
        the answer: ``states[cell]``, ``routes[source, step]`` of shape (ports, `width`), and
        ``lengths[source]``: the terminals by which light leaves cells, and the number of cells, 0
        where a port starts no circuit. Searches for fewer toggles end when the time of
        `clock` is over; the row is routed in any case. The outcome is `ROUTED`, `NOT_ROUTED`,
        `NO_MATCHING`, or `WRONG_STATES` if a present state is none of 0, 1 and -1.
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
        """Read the routes of a matching out of cell states; nothing is to be read without cells.

        ``row[source]`` is the destination, -1 where idle, and ``states[cell]`` 0 bar, 1 cross or
        -1. ``routes[source, step]`` and ``lengths[source]`` receive the terminals by which light
        leaves cells, and the number of cells.
        """


class ForwardRouter(RowRouter):
    """For feed-forward fabrics, whose rule constructs the states for every matching.

    ``_exact_fabric`` is the fabric without its faults, or None where there is no rule, and
    ``_has_faults`` tells whether any of its cells is stuck or dead. ``_paths`` is the graph along
    which light is followed.
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
        """Route matchings, ``rows[k, source] = destination`` or -1, by the rule of the fabric.

        Writes ``states[k, cell]``, ``lengths[k, source]`` and ``outcome[k]``, and the routes of
        the last row, ``routes[source, step]``. If some row is no matching, outcomes alone are
        written.
        """
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
        time of `clock` is over. ``present_states[cell]`` is 0 bar, 1 cross or -1, and
        ``row[source]`` a destination or -1. Writes ``states[cell]``, ``routes[source, step]``, the
        terminals by which light leaves its cells, and ``lengths[source]`` in cells. Dark cells,
        which no circuit passes, keep their present states unless they are stuck. Returns `ROUTED`,
        `NOT_ROUTED`, `NO_MATCHING` or `WRONG_STATES`.
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
        """Follow the light of ``row[source]`` through ``states[cell]``.

        Writes ``routes[source, step]``, and ``lengths[source]``: 0 where light does not arrive or
        nothing begins.
        """
        outcome = np.empty(1, dtype=np.int8)
        read_rows(self._paths, RowBatch(row[None], states[None], routes, lengths[None], outcome))


def _count_toggles(present_states: NDArray[np.int8], states: NDArray[np.int8]) -> int:
    """Count the cells that two settings, shape (cells,), drive to different states."""
    return int(((present_states != FREE) & (states != FREE) & (present_states != states)).sum())


class MeshRouter(ForwardRouter):
    """For all other fabrics with cells: by negotiated congestion.

    A route costs the losses of its cells on the chip `cells`, or the number of its cells if that
    is None. ``_router`` (a `CellRouter`) has the graph and the workspace of searches, and
    ``_work`` is a `RowScratch`.
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
        """Route matchings, ``rows[k, source]``, by negotiation, each for itself.

        Writes ``states[k, cell]``, ``lengths[k, source]`` and ``outcome[k]``, and of the last row
        ``routes[source, step]``.
        """
        batch = RowBatch(rows, states, routes, lengths, outcome)
        route_rows(
            self._router.wiring, self._router.workspace, self.ports, self._work, TRIES, batch
        )

    def change(self, present_states, row, states, routes, lengths, clock=None) -> int:
        """Keep circuits that the states hold already, and fit new ones in between.

        If they do not fit, all circuits are rerouted at a price for each toggle, which falls from
        try to try (`TOLLS`), unless `clock` leaves no time for that; at last the matching is
        routed as if no state were given, and toggles are saved afterwards.

        ``present_states[cell]`` is 0 bar, 1 cross or -1, and ``row[source]`` a destination or -1.
        Writes ``states[cell]``, ``routes[source, step]``, the terminals by which light leaves its
        cells, and ``lengths[source]`` in cells. Returns `ROUTED`, `NOT_ROUTED`, `NO_MATCHING` or
        `WRONG_STATES`.
        """
        # `fit_in_circuits` reads the present states out of `states`, and writes the new ones
        # there.
        router = self._router
        states[:] = present_states
        routed = RoutedRow(states, routes, lengths)
        begin_s = clock.elapsed_s if clock is not None else 0.0

        # It also lists the source ports of all circuits in ``self._work.order``. After `NO_ROOM`
        # there is something left to try; other outcomes are final.
        outcome = fit_in_circuits(
            router.wiring,
            router.workspace,
            self.ports,
            self._work,
            row,
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
        # `route` overwrites `states`; `finish_change` reads the present ones there. Ports with a
        # length above 0 are the source ports of the circuits.
        present = states.copy()
        outcomes = np.empty(1, dtype=np.int8)
        self.route(row[None], states[None], routes, lengths[None], outcomes)
        states[:] = present
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

    To relieve is to reroute circuits while the objective falls (`Relief`): ``_relief`` has the
    kernels for that, and ``_max_moves`` is how many circuits are rerouted at most for a matching.
    Where the fabric has a rule, ``_rule_cost`` chooses among its routes.
    """

    def __init__(self, fabric: Fabric, objective: str, cells: CellDevice) -> None:
        """Build the graph of the fabric, and the search that improves the worst circuit."""
        super().__init__(fabric, cells, power=objective == "power-mw")
        self._relief = Relief(self._router, cells, objective)
        self._max_moves = MAX_MOVES[objective]
        self._rule_cost = cell_costs(fabric, cells, objective)
        self._by_worst = objective == "worst-loss-db"

    def route(self, rows, states, routes, lengths, outcome) -> None:
        """Route by rule or by negotiation, then move circuits while that helps the objective.

        Routes ``rows[k, source]`` and writes ``states[k, cell]``, ``lengths[k, source]`` and
        ``outcome[k]``, and of the last row ``routes[source, step]``. If some row is no matching,
        none is improved.
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
