"""One matching: answers without a search, and routes by negotiated congestion.

A negotiation rips up and reroutes circuits while links that several of them want get dearer. It
ends when each link has one circuit, or after the rounds of its *effort*. A route is the list of
terminals by which light leaves cells, numbered 4 * cell + 0 to 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Clock, Limit, Schedule, Solution
from optmatch.problems import Routing, RoutingProof
from optmatch.solvers.frame import conclude
from optmatch.solvers.routing.causes import Refuted, refuse_dead_pairs
from optmatch.solvers.routing.pathfinder import PATIENT, UNIT
from optmatch.solvers.routing.relief import Relief
from optmatch.solvers.routing.router import CellRouter


class ProvedBound(NamedTuple):
    """A lower bound of the cells on all routes of a schedule in the fewest slots."""

    cells: float
    """Infinite if there is no such schedule."""
    proof: RoutingProof | None
    """Prices of links; None where the bound is that of the problem itself."""


def answer_at_once(
    problem: Routing, name: str, refuted: Refuted | None = None, clock: Clock | None = None
) -> Solution | None:
    """Answer a matching that needs no search; None if routes have to be found.

    It is INFEASIBLE if no state of the cells carries some circuit, and OPTIMAL if there are no
    circuits, or a fabric without cells. `name` is that of the method; with `refuted`, a test of
    other fabrics, the faults that cause infeasibility are named until the time of `clock` is over.
    """
    fabric = problem.fabric
    refused = refuse_dead_pairs(problem, problem.dead_circuits(), name, refuted, clock)
    if refused is not None:
        return refused
    if fabric.graph is not None and len(problem.circuits):
        return None
    states = None if fabric.graph is None else np.full((1, fabric.n_cells), -1, dtype=np.int8)
    least = problem.lower_bound()  # dark cells have heaters, too
    return conclude(problem, name, least, least, schedule=one_slot(problem, states))


def one_slot(problem: Routing, states: NDArray[np.int8] | None) -> Schedule:
    """Make the schedule of a single slot of one second, from ``states[0, cell]``."""
    return Schedule(matchings=problem.matching[None], durations_s=np.ones(1), cell_states=states)


def total_of(problem: Routing, passed: NDArray[np.int64], n_crossed: int) -> float:
    """Return the objective of routes if it counts cells or adds up their losses.

    ``passed[source]`` are the cells on each route, of which `n_crossed` are in cross, all routes
    together.
    """
    if problem.objective == "worst-cells":
        return float(passed.max(initial=0))
    if problem.objective == "loss-db":
        n_in_bar = int(passed.sum()) - n_crossed
        return problem.bar_loss_db * n_in_bar + problem.cross_loss_db * n_crossed
    return float(passed.sum())


def conclude_routes(
    problem: Routing,
    best: Routes | None,
    bound: float,
    limit: Limit | None,
    name: str,
    *,
    certificate: RoutingProof | None = None,
    stats: dict[str, object] | None = None,
) -> Solution:
    """Make the solution from the best routes found, if any, and a proved bound.

    The bound is infinite if it is proved that there are no routes. `certificate` proves a bound
    above ``problem.lower_bound()``, which needs none. `name` is that of the method, and `limit`
    why the search stopped.
    """
    details: dict[str, Any] = {"certificate": certificate, "stats": stats or {}}
    if best is None:
        return conclude(problem, name, None, bound, limit, **details)
    details["schedule"] = one_slot(problem, best.states[None])
    details["stats"] = details["stats"] | {"worst_route_cells": int(best.lengths.max())}
    return conclude(problem, name, best.objective, bound, limit, **details)


WARM_STARTS = 4
"""Negotiations before an exact method."""


class Routes:
    """Routes of one matching, the states of cells that they need, and the objective.

    Parameters
    ----------
    problem
    router
    order
        The source ports of the circuits.
    routes, lengths
        As of `RoutedCircuits`: ``routes[source, step]`` is the terminal by which light leaves the
        cell, and ``lengths[source]`` the number of cells.
    """

    def __init__(
        self,
        problem: Routing,
        router: CellRouter,
        order: NDArray[np.int64],
        routes: NDArray[np.int32],
        lengths: NDArray[np.int64],
    ) -> None:
        """Set the cells on the routes, and measure the objective.

        It is the most cells of a route, the loss of all routes in dB, a figure of the device
        (worst loss, crosstalk, or heater power) where the problem has one, or else the cells of
        all routes. Arrays are kept and not copied.
        """
        self.routes = routes
        self.lengths = lengths
        self.states = router.states(order, routes, lengths)
        if problem.cells is not None:
            relief = Relief(router, problem.cells, problem.objective)
            self.objective = relief.measure(order, routes, lengths)
        else:
            passed = np.concatenate([routes[port, : lengths[port]] for port in order]) >> 2
            crossed = int(np.count_nonzero(self.states[passed] == 1))
            self.objective = total_of(problem, lengths, crossed)


class Negotiation:
    """A matching with the router of its fabric, and attempts to route it.

    Attributes
    ----------
    problem : Routing
        The matching, its fabric, and the objective.
    router : CellRouter
        Routes circuits at the costs of the objective.
    circuits : int64 array, shape (circuits, 2)
        The source and the destination port of each circuit.
    partner : int64 array, shape (ports,)
        ``partner[source]`` is the destination of a port, -1 where it is idle.
    order : int64 array, shape (circuits,)
        The source ports of the circuits, those with the longest shortest routes first.
    """

    def __init__(self, problem: Routing) -> None:
        """Make the router at the costs of the objective, and put the longest circuits first."""
        self.problem = problem

        # For the total loss, passing a cell costs the router its loss, `UNIT` for a dB; for other
        # objectives a cell in either state, or what the cells of a chip say.
        bar_cost = UNIT
        cross_cost = UNIT
        if problem.objective == "loss-db":
            bar_cost = round(problem.bar_loss_db * UNIT)
            cross_cost = round(problem.cross_loss_db * UNIT)
        self.router = CellRouter(
            problem.fabric,
            bar_cost,
            cross_cost,
            problem.cells,
            power=problem.objective == "power-mw",
        )
        self.circuits = problem.circuits.astype(np.int64)
        self.partner = problem.matching.astype(np.int64)
        sources, destinations = self.circuits.T
        least_costs = self.router.least[sources, destinations]
        self.order = sources[np.argsort(-least_costs, kind="stable")]

    def routes_of(self, terminals: Mapping[int, Sequence[int]]) -> Routes:
        """Make routes of ``terminals[source]``, by which light leaves the cells, in order."""
        # Routes of other searches may be too long for the arrays of the router, (ports, width).
        routes, lengths = self.router.empty_routes()
        longest = max(map(len, terminals.values()))
        if longest > routes.shape[1]:
            routes = np.zeros((len(routes), longest), dtype=np.int32)
        for source, route in terminals.items():
            routes[source, : len(route)] = route
            lengths[source] = len(route)
        return Routes(self.problem, self.router, self.order, routes, lengths)

    def take_up(self, start: Solution) -> Routes | None:
        """Keep the routes of a former solution where they fit, and negotiate what is left.

        A circuit of `start` that this matching has as well begins with its former route, and may
        be moved. None if `start` is no solution of this fabric, or the negotiation fails.
        """
        former = start.schedule
        fabric = self.problem.fabric
        states = None if former is None else former.cell_states
        if states is None or states.shape != (1, fabric.n_cells):
            return None
        matching = former.matchings[0]
        if len(matching) != fabric.n_ports:
            return None
        # Circuits of both matchings keep their routes; the others have a length of 0 for now.
        kept_matching = np.where(matching == self.problem.matching, matching, IDLE)
        routes, lengths = self.router.follow(kept_matching, states[0])
        if self.router.settle(self.order, self.partner, routes, lengths, effort=PATIENT) < 0:
            return None
        return Routes(self.problem, self.router, self.order, routes, lengths)

    def attempts(
        self,
        rng: np.random.Generator,
        n_turns: int,
        start: Solution | None = None,
        patience: int | None = None,
    ) -> Iterator[tuple[float, Routes] | None]:
        """Yield the objective and the routes of each negotiation, None for one that failed.

        There are `n_turns` of them. The routes of `start`, a former solution, come first if they
        fit. Without such routes, the negotiations end if the first `patience` of them (None: any
        number) have all failed: routes that are so hard to find may not exist.
        """
        former = None if start is None else self.take_up(start)
        if former is not None:
            yield former.objective, former
        n_failed = 0
        for turn in range(n_turns):
            all_failed = former is None and n_failed == turn
            if all_failed and turn == patience:
                return
            routes = self.attempt(turn, rng)
            n_failed += routes is None
            yield None if routes is None else (routes.objective, routes)

    def attempt(
        self, turn: int, rng: np.random.Generator, prices: NDArray[np.int64] | None = None
    ) -> Routes | None:
        """Negotiate once: first in the given order, then in random orders and with random ties.

        From turn 1 on, small random prices of links break ties, and the routes are shortened
        afterwards. `turn` is the number of the attempt, from 0 on; odd turns have a random order.
        ``prices[link]``, in 1/`UNIT` of a cell, are paid from the start. None if the negotiation
        failed, which proves nothing.
        """
        routes, lengths = self.router.empty_routes()
        order = self.order
        link = self.router.wiring.link
        base = self.router.no_cost if prices is None else prices[link]
        if turn:
            order = rng.permutation(self.order) if turn % 2 else self.order
            # less than a cell on any route, so only ties are broken; the same from both ends
            ties = rng.integers(0, max(2, UNIT // (2 * self.router.width)), size=link.max() + 1)
            base = base + ties[link]
        circuits = order, self.partner, routes, lengths
        if self.router.settle(*circuits, base=base, effort=PATIENT) < 0:
            return None
        if turn:
            self.router.shorten(order, self.partner, routes, lengths)
        return Routes(self.problem, self.router, self.order, routes, lengths)
