"""Method `negotiated` for all-to-all: 1-factorisations, with every factor routed.

It starts from a randomly relabelled tournament and routes its matchings. Then it
exchanges pairs among three slots at a time, keeps the routes of circuits that stay, negotiates the
others, and accepts what does not need more cells. The sum of all shortest routes is the same for
every 1-factorisation, so the search has to remove the cells beyond it.
"""

from __future__ import annotations

import numpy as np

from optmatch.model import Limit, Limits, OnEvent, Solution, uncounted
from optmatch.problems import AllToAll
from optmatch.solvers import frame
from optmatch.solvers.all_to_all import factors as combinatorics
from optmatch.solvers.all_to_all.conclusion import FEWEST_SLOTS, answer_at_once, conclude
from optmatch.solvers.all_to_all.planner import SlotPlanner, exchange_pairs
from optmatch.solvers.all_to_all.slot_shortage import names_faults, on_live_ports
from optmatch.solvers.routing.router import CellRouter


@names_faults()
@on_live_ports
def solve(
    problem: AllToAll, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve an all-to-all problem by search over 1-factorisations.

    An iteration is one attempted exchange; there are `MOVES_PER_SLOT` per slot unless limited. The
    solution is OPTIMAL where every route is a shortest one in the fewest slots. Where not all
    matchings of the fewest slots could be routed, pairs that were left over fill further slots,
    and a small mesh goes to the exact model of `ilp`; where it is proved that there must be more
    slots, a fabric with faults has those named that cause it.
    """
    clock = limits.start()
    found = schedule_all(problem, limits, rng, on_event, name="negotiated")
    if found.limit is not Limit.EXHAUSTED or FEWEST_SLOTS not in found.stats:
        return found
    with uncounted():
        from optmatch.solvers.all_to_all.joint_model import finish_small  # loads OR-tools

    return finish_small(problem, found, clock, rng, on_event)


def schedule_all(
    problem: AllToAll,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    *,
    name: str,
) -> Solution:
    """Route a relabelled tournament, and search on from there."""
    clock = limits.start()
    trivial = answer_at_once(problem, name)
    if trivial is not None:
        return trivial
    fabric = problem.fabric
    router = CellRouter(fabric)
    planner = SlotPlanner(problem, router, clock, rng, on_event)
    factors = combinatorics.tournament(fabric.n_ports, fabric.bidirectional)
    factors = combinatorics.relabel(factors, planner.random_names(factors.shape[1]))
    try:
        limit = planner.route_all(factors)
        if limit is None:
            limit = exchange_pairs(planner)
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    if len(planner.plan) < len(factors):
        stats = {"slots_routed": len(planner.plan), "slots_lower_bound": problem.min_slots}
        return frame.conclude(problem, name, None, problem.lower_bound(), limit, stats=stats)
    try:
        return conclude(planner, limit, name, polish=limit is None or limit is Limit.EXHAUSTED)
    except KeyboardInterrupt:
        return conclude(planner, Limit.INTERRUPTED, name, polish=False)
