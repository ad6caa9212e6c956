"""Method `negotiated` for all-to-all: search over 1-factorisations, with every factor routed.

Start from a randomly relabelled tournament and route its matchings. Then exchange pairs among
three slots at a time, keep the routes of circuits that stay, negotiate the others, and accept what
does not need more cells. The sum of all shortest routes is the same for every 1-factorisation, so
the cells beyond it are what the search has to get rid of.
"""

from __future__ import annotations

import numpy as np

from optmatch.model import Limit, Limits, OnEvent, Solution, Status
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all import factors as combinatorics
from optmatch.solvers.all_to_all.factory import Factory, all_slots
from optmatch.solvers.all_to_all.live import on_live_ports
from optmatch.solvers.all_to_all.slot_shortage import names_faults, settle_open
from optmatch.solvers.routing.dead import refuse_dead_pairs
from optmatch.solvers.routing.router import Router


@names_faults()
@on_live_ports
def solve(
    problem: AllToAll, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve an all-to-all problem by search over 1-factorisations.

    Parameters
    ----------
    problem
        The problem.
    limits
        An iteration is one attempted exchange; `MOVES_PER_SLOT` per slot unless limited.
    rng
        Source of all randomness.
    on_event
        Listener.

    Returns
    -------
    Solution
        OPTIMAL where every route is a shortest one in the fewest slots. Where not all matchings of
        the fewest slots could be routed, pairs that were left over fill further slots; where it is
        proved that they must, a fabric with faults has those named that are to blame.
    """
    clock = limits.start()
    found = schedule_all(problem, limits, rng, on_event, name="negotiated", search=True)
    if found.limit is not Limit.EXHAUSTED:
        return found
    return settle_open(problem, found, clock, rng, on_event)


def schedule_all(
    problem: AllToAll,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    *,
    name: str,
    search: bool,
) -> Solution:
    """Route a tournament: relabelled and searched on from (`search`), or as it is."""
    clock = limits.start()
    trivial = without_routing(problem, name)
    if trivial is not None:
        return trivial
    fabric = problem.fabric
    router = Router(fabric)
    factory = Factory(problem, router, clock, rng, on_event)
    factors = combinatorics.tournament(fabric.n_ports, fabric.bidirectional)
    if search:
        factors = combinatorics.relabel(factors, factory.random_names(factors.shape[1]))
    try:
        limit = factory.route_all(factors)
        if limit is None and search:
            limit = factory.exchange_pairs()
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    if len(factory.plan) < len(factors):
        return Solution(
            problem=problem,
            status=Status.UNKNOWN,
            limit=limit,
            lower_bound=problem.lower_bound(),
            method=name,
            stats={"slots_routed": len(factory.plan), "slots_lower_bound": problem.min_slots},
        )
    try:
        return factory.finish(limit, name, polish=limit is None or limit is Limit.EXHAUSTED)
    except KeyboardInterrupt:
        return factory.finish(Limit.INTERRUPTED, name, polish=False)


def without_routing(problem: AllToAll, name: str) -> Solution | None:
    """Answer at once what needs no routes: dead pairs, a single port, a fabric without cells."""
    fabric = problem.fabric
    refused = refuse_dead_pairs(problem, fabric.dead_pairs(), name)
    if refused is not None:
        return refused
    if fabric.graph is not None and fabric.n_ports > 1:
        return None
    found = combinatorics.tournament(fabric.n_ports, fabric.bidirectional)[: problem.min_slots]
    matchings = combinatorics.matchings(found, fabric.n_ports, fabric.bidirectional)
    states = None if fabric.graph is None else np.zeros((0, fabric.n_cells), dtype=np.int8)
    return Solution(
        problem=problem,
        schedule=all_slots(problem, matchings, states),
        status=Status.OPTIMAL,
        objective=0.0,
        lower_bound=0.0,
        method=name,
        stats={"slots": len(matchings), "slots_lower_bound": problem.min_slots},
    )
