"""The shortest longest route of one matching: CP-SAT refutes or finds routes of each length."""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from optmatch.fabrics import UNREACHED, walk
from optmatch.model import Clock, Limit, OnEvent, Solution
from optmatch.problems import Routing
from optmatch.solvers.cpsat import LightFlow, minimise, share_links
from optmatch.solvers.routing.answers import conclude_routes, near_enough
from optmatch.solvers.routing.negotiation import RESTARTS, Negotiation, Routes


def route_worst(
    problem: Routing,
    clock: Clock,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Routes | None,
) -> Solution:
    """Find routes of which the longest is as short as possible.

    If the longest of all shortest routes is not enough, lengths are refuted one by one from there;
    such a bound is not certified (``stats["bound_by"]``).
    """
    negotiation = Negotiation(problem)
    graph, circuits = negotiation.router.graph, negotiation.circuits
    bound = int(problem.lower_bound())
    best = start and Routes(
        problem, negotiation.router, negotiation.order, start.routes, start.lengths
    )
    limit: Limit | None = None
    try:
        for turn in range(RESTARTS):
            limit = Limit.TIME if clock.remaining_s <= 0 else None
            if best is not None:
                limit = limit or near_enough(best.objective, bound, clock.limits.gap)
            if limit is not None or (best is not None and best.objective <= bound):
                return conclude_routes(problem, best, bound, limit, "ilp")
            found = negotiation.attempt(turn, rng)
            if found is not None and (best is None or found.objective < best.objective):
                best = found
    except KeyboardInterrupt:
        return conclude_routes(problem, best, bound, Limit.INTERRUPTED, "ilp")
    if best is None or best.objective <= bound:
        return conclude_routes(problem, best, bound, Limit.EXHAUSTED, "ilp")
    refuted = False
    sources = negotiation.router.wiring.source[circuits[:, 0]]
    targets = negotiation.router.wiring.target[circuits[:, 1]]
    from_source, to_target = (
        walk(graph, sources.tolist()).cells,
        walk(graph, targets.tolist()).cells,
    )
    back = np.where(graph.mate >= 0, to_target[:, graph.mate], UNREACHED)  # cells still to come
    while bound < best.objective:
        model = cp_model.CpModel()
        flows = []
        for k in range(len(circuits)):
            near = from_source[k].astype(np.int64) + back[k] <= bound
            allowed = np.flatnonzero(near & (graph.mate >= 0)).tolist()
            flow = LightFlow(model, graph, int(sources[k]), 1, {int(targets[k]): 1}, allowed)
            model.add(sum(flow.leaves.values()) <= bound)
            flows.append(flow)
        share_links(model, graph, [(flow, 1) for flow in flows])
        outcome = minimise(model, clock, on_event, seed=int(rng.integers(1 << 30)))
        if outcome.found:
            best = _routes(negotiation, flows, [flow.terminals(outcome) for flow in flows])
            break
        if not outcome.infeasible:
            limit = outcome.limit
            break
        bound, refuted = bound + 1, True
    stats: dict[str, object] = {"bound_by": "cp-sat"} if refuted else {}
    return conclude_routes(problem, best, bound, limit, "ilp", stats=stats)


def _routes(negotiation: Negotiation, flows: list[LightFlow], found: list[list[int]]) -> Routes:
    router = negotiation.router
    routes, lengths = router.empty_routes()
    if max(map(len, found)) > routes.shape[1]:
        routes = np.zeros((len(routes), max(map(len, found))), dtype=np.int32)
    for (source, _), terminals in zip(negotiation.circuits, found, strict=True):
        routes[source, : len(terminals)] = terminals
        lengths[source] = len(terminals)
    return Routes(negotiation.problem, router, negotiation.order, routes, lengths)
