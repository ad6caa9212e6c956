"""Method `negotiated` for one matching: negotiated congestion with restarts.

Where negotiation finds nothing, there is often nothing to find. It cannot tell, so it hands the
matching over to branch and price (`ilp`), which finds routes or a proof that there are none.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import (
    Clock,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Schedule,
    Solution,
    Status,
    Tick,
    ignore,
)
from optmatch.problems import Routing
from optmatch.solvers.routing.causes import Refuted
from optmatch.solvers.routing.dead import refuse_dead_pairs
from optmatch.solvers.routing.pathfinder import EFFORTS, UNIT
from optmatch.solvers.routing.router import Router

RESTARTS = 40
"""Negotiations to try without an iteration limit."""

WARM_STARTS = 4
"""Negotiations before an exact method: each effort once."""

PATIENCE = 8
"""Negotiations without any routes until the exact method takes over: each effort twice."""


def route(
    problem: Routing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Route one matching.

    Parameters
    ----------
    problem
        The problem.
    limits
        An iteration is one negotiation; `RESTARTS` of them unless limited. With a limit of
        iterations there is nothing but negotiations; otherwise a proof is sought after `PATIENCE`
        of them without any routes, in the time that is left.
    rng
        Source of all randomness: orders and small differences of cost from the second try on.
    on_event
        Listener.

    Returns
    -------
    Solution
        OPTIMAL where the routes meet the bound of the problem. INFEASIBLE with a dead pair or a
        `RoutingProof`; on a fabric with faults it names those that forbid the matching.
    """
    clock = limits.start()
    decided = without_search(problem, "negotiated", refute_by(problem, limits, clock, rng), clock)
    if decided is not None:
        return decided
    bound = problem.lower_bound()
    most = RESTARTS if limits.iterations is None else limits.iterations
    best: Routes | None = None
    limit: Limit | None = Limit.EXHAUSTED
    try:
        negotiation = Negotiation(problem)
        for turn in range(most):
            limit = clock.exceeded(turn)
            if limit is not None:
                break
            limit = Limit.EXHAUSTED
            if best is None and turn == PATIENCE and limits.iterations is None:
                left = replace(limits, time_s=limits.time_s and clock.remaining_s)
                return hand_over(problem, left, rng, on_event, "negotiated")
            found = negotiation.attempt(turn, rng)
            if found is not None and (best is None or found.objective < best.objective):
                best = found
                on_event(NewBest(best.objective))
            if best is not None and best.objective <= bound * (1 + 1e-12):
                break
            on_event(Tick("negotiate", turn + 1, most))
        else:
            limit = clock.exceeded(most) or Limit.EXHAUSTED
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    return conclude(problem, best, bound, limit, "negotiated")


def hand_over(
    problem: Routing, limits: Limits, rng: np.random.Generator, on_event: OnEvent, name: str
) -> Solution:
    """Let the exact method find any routes of a matching, or prove that there are none.

    Parameters
    ----------
    problem, limits, rng, on_event
        As for every method.
    name
        The method that hands the matching over.

    Returns
    -------
    Solution
        Without a time limit never UNKNOWN. The first routes found are the answer: to prove more
        about them is not what this method is for.
    """
    from optmatch.solvers.routing.ilp import route as decide  # OR-tools is slow to import

    found = decide(problem, replace(limits, gap=1.0), rng, on_event)
    limit = Limit.EXHAUSTED if found.limit is Limit.GAP else found.limit
    return replace(found, method=name, limit=limit)


class Routes:
    """Routes of one matching, as the router keeps them, and what they cost."""

    def __init__(
        self,
        problem: Routing,
        router: Router,
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
    """A matching with the router of its fabric, to be tried again and again."""

    def __init__(self, problem: Routing) -> None:
        self.problem = problem
        self.router = Router(problem.fabric, *cell_costs(problem))
        self.circuits = problem.circuits.astype(np.int64)
        self.partner = problem.matching.astype(np.int64)
        sources, destinations = self.circuits.T
        far = self.router.least[sources, destinations]
        self.order = sources[np.argsort(-far, kind="stable")]
        self.longest = int(self.problem.fabric.route_cells()[sources, destinations].max(initial=0))

    def attempt(
        self, turn: int, rng: np.random.Generator, prices: NDArray[np.int64] | None = None
    ) -> Routes | None:
        """Negotiate once: the first time as it is, then in other orders and with other ties.

        Parameters
        ----------
        turn
            The number of the try; it chooses order and effort.
        rng
            Source of randomness.
        prices
            What links cost from the start, in `UNIT`.
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


def refute_by(problem: Routing, limits: Limits, clock: Clock, rng: np.random.Generator) -> Refuted:
    """Make the test whether a matching has no routing on another fabric, to find culprits by.

    Parameters
    ----------
    problem
        The matching.
    limits, clock
        What each test may take, and when all of them have to end.
    rng
        Source of randomness.
    """

    def refuted(fabric: Fabric) -> bool | None:
        fixed = replace(problem, fabric=fabric, objective="total-cells")
        if fixed.dead_circuits():
            return True
        negotiation = Negotiation(fixed)
        if any(negotiation.attempt(turn, rng) is not None for turn in range(WARM_STARTS)):
            return False
        from optmatch.solvers.routing.ilp import search  # OR-tools is slow to import

        left = replace(limits, time_s=limits.time_s and clock.remaining_s, gap=1.0)
        status = search(fixed, left, rng, ignore).status
        return None if status is Status.UNKNOWN else status is Status.INFEASIBLE

    return refuted


def without_search(
    problem: Routing, name: str, refuted: Refuted | None = None, clock: Clock | None = None
) -> Solution | None:
    """Answer at once what needs no search: dead circuits, no circuits, a fabric without cells.

    Parameters
    ----------
    problem
        The problem.
    name
        The method that answers.
    refuted, clock
        As of `refuse_dead_pairs`.
    """
    fabric = problem.fabric
    refused = refuse_dead_pairs(problem, problem.dead_circuits(), name, refuted, clock)
    if refused is not None:
        return refused
    if fabric.graph is not None and len(problem.circuits):
        return None
    states = None if fabric.graph is None else np.full((1, fabric.n_cells), -1, dtype=np.int8)
    return Solution(
        problem=problem,
        schedule=one_slot(problem, states),
        status=Status.OPTIMAL,
        objective=0.0,
        lower_bound=0.0,
        method=name,
    )


def one_slot(problem: Routing, states: NDArray[np.int8] | None) -> Schedule:
    """Make the schedule of a single slot of one second."""
    return Schedule(
        matchings=problem.matching[None],
        durations_s=np.ones(1),
        cell_states=states,
    )


def near_enough(objective: float, bound: float, gap: float) -> Limit | None:
    """Tell whether an objective is as near to its bound as asked for; no gap asks for all."""
    return Limit.GAP if gap and objective - bound <= gap * objective else None


def conclude(
    problem: Routing, best: Routes | None, bound: float, limit: Limit | None, name: str
) -> Solution:
    """Say what was found and what the bound of the problem proves about it."""
    if best is None:
        return Solution(
            problem=problem, status=Status.UNKNOWN, limit=limit, lower_bound=bound, method=name
        )
    proved = best.objective <= bound * (1 + 1e-12)
    return Solution(
        problem=problem,
        schedule=one_slot(problem, best.states[None]),
        status=Status.OPTIMAL if proved else Status.FEASIBLE,
        limit=None if proved else limit,
        objective=best.objective,
        lower_bound=min(bound, best.objective),
        method=name,
        stats={"worst_route_cells": int(best.lengths.max())},
    )
