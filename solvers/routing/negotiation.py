"""One matching, routed by negotiated congestion again and again, and what its routes cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Routing
from optmatch.solvers.routing.pathfinder import EFFORTS, UNIT
from optmatch.solvers.routing.router import CellRouter

RESTARTS = 40
"""Negotiations to try without an iteration limit."""

WARM_STARTS = 4
"""Negotiations before an exact method: each effort once."""


class Routes:
    """Routes of one matching, as the router keeps them, and what they cost."""

    def __init__(
        self,
        problem: Routing,
        router: CellRouter,
        order: NDArray[np.int64],
        routes: NDArray[np.int32],
        lengths: NDArray[np.int64],
    ) -> None:
        self.routes, self.lengths = routes, lengths
        self.states = router.states(order, routes, lengths)
        if problem.objective == "worst-cells":
            self.objective = float(lengths.max(initial=0))
        elif problem.objective == "loss-db":
            passed = np.concatenate([routes[port, : lengths[port]] for port in order]) >> 2
            crossed = int(np.count_nonzero(self.states[passed] == 1))
            self.objective = (
                problem.bar_loss_db * (len(passed) - crossed) + problem.cross_loss_db * crossed
            )
        else:
            self.objective = float(lengths.sum())


class Negotiation:
    """A matching with the router of its fabric, and attempts to route it."""

    def __init__(self, problem: Routing) -> None:
        self.problem = problem
        self.router = CellRouter(problem.fabric, *cell_costs(problem))
        self.circuits = problem.circuits.astype(np.int64)
        self.partner = problem.matching.astype(np.int64)
        sources, destinations = self.circuits.T
        far = self.router.least[sources, destinations]
        self.order = sources[np.argsort(-far, kind="stable")]
        self.longest = int(self.problem.fabric.route_cells()[sources, destinations].max(initial=0))

    def attempt(
        self, turn: int, rng: np.random.Generator, prices: NDArray[np.int64] | None = None
    ) -> Routes | None:
        """Negotiate once: first in the given order, then in random orders and with random ties.

        The number of the turn chooses order and effort. `prices` are what links cost from the
        start, in `UNIT`.
        """
        routes, lengths = self.router.empty_routes()
        order, link = self.order, self.router.wiring.link
        base = self.router.no_cost if prices is None else prices[link]
        if turn:
            order = rng.permutation(self.order) if turn % 2 else self.order
            # less than a cell on any route, so only ties are broken; the same from both ends
            ties = rng.integers(0, max(2, UNIT // (2 * self.router.width)), size=link.max() + 1)
            base = base + ties[link]
        effort = EFFORTS[turn % len(EFFORTS)]
        if self.router.settle(order, self.partner, routes, lengths, base=base, effort=effort) < 0:
            return None
        if turn:
            self.router.shorten(order, self.partner, routes, lengths)
        return Routes(self.problem, self.router, self.order, routes, lengths)


def cell_costs(problem: Routing) -> tuple[int, int]:
    """Return what bar and cross cost the router, in `UNIT`."""
    if problem.objective != "loss-db":
        return UNIT, UNIT
    return round(problem.bar_loss_db * UNIT), round(problem.cross_loss_db * UNIT)
