"""Method `negotiated` for one matching: negotiated congestion with restarts.

Negotiation cannot prove that there are no routes. Where it finds none, it hands the matching over
to branch and price (`ilp`), which finds routes or a proof that there are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from optmatch.model import Limit, Limits, OnEvent, Solution
from optmatch.problems import Routing
from optmatch.solvers.frame import take_best
from optmatch.solvers.routing.answers import answer_at_once, conclude_routes
from optmatch.solvers.routing.ilp import hand_over, refute_by
from optmatch.solvers.routing.negotiation import RESTARTS, Negotiation, Routes

PATIENCE = 8
"""Negotiations without any routes until the exact method takes over: each effort twice."""


def route(
    problem: Routing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Route one matching.

    An iteration is one negotiation; there are `RESTARTS` of them unless limited. With a limit of
    iterations there is nothing but negotiations; otherwise a proof is sought after `PATIENCE` of
    them without any routes, in the time that is left. The solution is OPTIMAL where the routes
    meet the bound of the problem, and INFEASIBLE with a dead pair or a `RoutingProof`; on a fabric
    with faults it names those that cause it.
    """
    clock = limits.start()
    decided = answer_at_once(problem, "negotiated", refute_by(problem, limits, clock, rng), clock)
    if decided is not None:
        return decided
    bound, unlimited = problem.lower_bound(), limits.iterations is None
    most = RESTARTS if limits.iterations is None else limits.iterations

    def attempts() -> Iterator[tuple[float, Routes] | None]:
        negotiation, failed = Negotiation(problem), 0
        for turn in range(most):
            if unlimited and turn == failed == PATIENCE:
                return
            found = negotiation.attempt(turn, rng)
            failed += found is None
            yield None if found is None else (found.objective, found)

    best, limit, _ = take_best(attempts(), bound, clock, on_event, "negotiate", most)
    if best is None and unlimited and limit is Limit.EXHAUSTED:
        left = replace(limits, time_s=limits.time_s and clock.remaining_s)
        return hand_over(problem, left, rng, on_event, "negotiated")
    return conclude_routes(problem, best, bound, limit, "negotiated")
