"""Method `ilp` for one matching: branch and price, and the faults that cause a refusal.

The search itself is in `branch_and_price`, which loads OR-tools and is imported where it runs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optmatch.fabrics import Fabric
from optmatch.model import Clock, Limit, Limits, OnEvent, Solution, Status, ignore, uncounted
from optmatch.problems import Routing
from optmatch.solvers.routing.answers import answer_at_once
from optmatch.solvers.routing.causes import Refuted, name_causes
from optmatch.solvers.routing.negotiation import WARM_STARTS, Negotiation


def route(
    problem: Routing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Route one matching as well as possible, or prove that it cannot be done.

    An iteration is one case of the proof. The solution has a `RoutingProof` as certificate where
    the bound of the problem itself is not enough. An infeasible matching comes with a reason: a
    dead pair, or a cut; on a fabric with faults it names those that cause it.
    """
    clock = limits.start()
    refuted = refute_by(problem, limits, clock, rng)
    decided = answer_at_once(problem, "ilp", refuted, clock)
    if decided is not None:
        return decided
    with uncounted():
        from optmatch.solvers.routing.branch_and_price import search

    return name_causes(search(problem, limits, rng, on_event), refuted, clock)


def hand_over(
    problem: Routing, limits: Limits, rng: np.random.Generator, on_event: OnEvent, name: str
) -> Solution:
    """Find any routes of a matching for another method, or prove that there are none.

    Without a time limit the status is never UNKNOWN. The first routes found are the answer; no
    more is proved about them.
    """
    found = route(problem, replace(limits, gap=1.0), rng, on_event)
    limit = Limit.EXHAUSTED if found.limit is Limit.GAP else found.limit
    return replace(found, method=name, limit=limit)


def refute_by(problem: Routing, limits: Limits, clock: Clock, rng: np.random.Generator) -> Refuted:
    """Make the test whether a matching has no routing on another fabric, for `find_causes`."""

    def refuted(fabric: Fabric) -> bool | None:
        fixed = replace(problem, fabric=fabric, objective="total-cells")
        if fixed.dead_circuits():
            return True
        negotiation = Negotiation(fixed)
        if any(negotiation.attempt(turn, rng) is not None for turn in range(WARM_STARTS)):
            return False
        with uncounted():
            from optmatch.solvers.routing.branch_and_price import search

        left = replace(limits, time_s=limits.time_s and clock.remaining_s, gap=1.0)
        status = search(fixed, left, rng, ignore).status
        return None if status is Status.UNKNOWN else status is Status.INFEASIBLE

    return refuted
