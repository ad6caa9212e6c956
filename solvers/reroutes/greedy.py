"""Method `greedy` for failures: the quick repair, for a control loop.

A *handover* chooses a live spare for each lost unit, a chip or a port. Circuits are *hit* that
lost their light or an end; they are routed anew through what is free.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from optmatch.fabrics.units import measure_reach
from optmatch.model import Clock, Limit, Limits, NewBest, OnEvent, Score, Solution
from optmatch.problems import Reroute
from optmatch.solvers.frame import conclude, stoppable
from optmatch.solvers.reroutes.changes import make_transition, replace_racks
from optmatch.solvers.reroutes.impossible import explain, explain_bound, find_cut, prove_handovers
from optmatch.solvers.reroutes.repair import EFFORT, Recovery, repair
from optmatch.solvers.reroutes.routing_state import HitCircuits, RoutingState

_FEW = 20  # cases of a proof, for each handover


def case_of(problem: Reroute) -> HitCircuits:
    """Return the hit circuits of a problem, its lost units and live spares."""
    return HitCircuits(
        hit=tuple(np.flatnonzero(problem.hit).tolist()),
        lost=problem.lost,
        spares=problem.live_spares,
        owners=problem.owners,
    )


def solve(
    problem: Reroute, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Get over a failure quickly.

    Spares near the neighbours of what is lost come first. Circuits that the failure did not hit
    move only if there is no other way, few and those of hit jobs first. Iterations bound how many
    sets of circuits that make room are tried.

    A search through the flow graph for each hit circuit and spare: a fraction of a millisecond
    where no other circuit has to move. Where nothing is found, a second or so goes into a proof
    that there is nothing: a cut of the rack, or prices for every handover of ports. The solution
    is INFEASIBLE then, with a certificate.
    """
    clock = limits.start()
    bound = problem.lower_bound()
    decided = answer_at_once(problem, "greedy", bound, clock)
    if decided is not None:
        return decided

    # The repair returns a plan, a proof that nothing helps, or None.
    case = case_of(problem)
    routing = RoutingState(problem)
    reach = measure_reach(problem.units, problem.loss_units)
    cut = partial(find_cut, problem) if problem.units.n_chips else None
    repaired = repair(routing, case, reach, clock=clock, prove=cut)
    if isinstance(repaired, Recovery):
        with stoppable() as stop:
            on_event(NewBest(repaired.levels))
        limit = stop.limit or Limit.EXHAUSTED
        return make_solution(problem, routing, repaired, bound, limit=limit)

    # Without a plan the certificate is that proof, or one that is sought now.
    certificate: Any = repaired or find_cut(problem) or prove_handovers(problem, clock, 0, _FEW)
    if certificate is None:
        # Nothing was found and nothing proved: `conclude` makes that UNKNOWN.
        return conclude(problem, "greedy", None, bound, clock.exceeded(EFFORT))
    return refuse(problem, "greedy", explain(problem, certificate), certificate)


def answer_at_once(problem: Reroute, method: str, bound: Score, clock: Clock) -> Solution | None:
    """Answer a reroute that needs no search, or has no time for one; None if it has to be solved.

    It is INFEASIBLE if there are fewer spares than lost units. Where spares are whole racks, which
    rack takes over is all that there is to choose. `method` is the name for the solution, and
    `bound` the least that its five levels can be, infinite if there are too few spares.
    """
    if not isinstance(bound, tuple):
        return refuse(problem, method, explain_bound(problem))
    if not problem.units.through:
        answer, levels = replace_racks(problem, problem.damage)
        return conclude(problem, method, levels, bound, Limit.EXHAUSTED, answer=answer)
    if clock.remaining_s <= 0.0:
        return conclude(problem, method, None, bound, Limit.TIME)
    return None


def make_solution(
    problem: Reroute,
    routing: RoutingState,
    plan: Recovery,
    bound: Score,
    *,
    limit: Limit,
    method: str = "greedy",
    bound_by: str | None = None,
) -> Solution:
    """Make a solution of a plan that gets over the failure.

    `limit` is why the search stopped, which counts only where the levels of the plan are above the
    bound; `bound_by` the search that proved the bound, None for the bound of the problem itself.
    """
    names = "disturbed", "changed", "cells_set", "worst_loss_centidb", "length"
    stats: dict[str, Any] = dict(zip(names, plan.levels, strict=True))
    stats |= {} if bound_by is None else {"bound_by": bound_by}
    answer = make_transition(routing, case_of(problem), plan)
    return conclude(problem, method, plan.levels, bound, limit, answer=answer, stats=stats)


def refuse(
    problem: Reroute,
    method: str,
    reason: str,
    certificate: Any = None,
    *,
    bound_by: str | None = None,
) -> Solution:
    """Make the INFEASIBLE solution of a failure that no plan gets over.

    `method` is the name for the solution, and `reason` says in words why. `certificate` is the
    proof. Without one, either the bound of the problem itself is infinite, or an exhaustive search
    has found nothing; `bound_by` is the name of that search.
    """
    # Without an objective, an infinite bound makes the status INFEASIBLE.
    stats = {"reason": reason} | ({} if bound_by is None else {"bound_by": bound_by})
    return conclude(problem, method, None, math.inf, certificate=certificate, stats=stats)
