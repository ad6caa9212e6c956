"""Method `constructive` for matchings: the exact router of a feed-forward fabric.

First the plain algorithm, in microseconds. Then, where it may help, the loops of a Benes network
are turned: to pass fewer cells, to lose less, to get past faults. Where faults leave no way by
these rules, a general method takes over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Limit, Limits, OnEvent, Solution
from optmatch.problems import Routing
from optmatch.solvers.feedforward.router import MICRO_DB, cost_states, count_cells, route_cheaply
from optmatch.solvers.frame import conclude, take_best
from optmatch.solvers.routing import ilp, negotiated
from optmatch.solvers.routing.answers import one_slot
from optmatch.solvers.routing.causes import refuse_dead_pairs

_NAME = "constructive"
_FEW_CELLS = 200  # so few that a general method may be the exact one


def route(
    problem: Routing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Route one matching of a feed-forward fabric.

    The first iteration routes, the second turns loops for a lower cost. The solution is OPTIMAL
    where the routes meet the bound of the problem.
    """
    clock = limits.start()
    refuted = ilp.refute_by(problem, limits, clock, rng)
    refused = refuse_dead_pairs(problem, problem.dead_circuits(), _NAME, refuted, clock)
    if refused is not None:
        return refused
    matching, worst = problem.matching[None], problem.objective == "worst-cells"
    cell_cost = _cell_cost(problem)

    def attempts() -> Iterator[tuple[float, NDArray[np.int8]]]:
        for wanted in (None, cell_cost):
            routed = route_cheaply(problem.fabric, matching, wanted, worst=worst)
            if not routed.held[0]:
                impossible.append(bool(routed.exact[0]))
                return
            yield _measure(problem, routed.states), routed.states

    impossible = list[bool]()
    bound = problem.lower_bound()
    best, limit, _ = take_best(attempts(), bound, clock, on_event, "route", 2)
    if best is None and limit is Limit.EXHAUSTED:
        if problem.fabric.n_cells > _FEW_CELLS and impossible[0]:
            return ilp.hand_over(problem, limits, rng, on_event, _NAME)
        general = ilp.route if problem.fabric.n_cells <= _FEW_CELLS else negotiated.route
        return replace(general(problem, limits, rng, on_event), method=_NAME)
    if best is None:
        return conclude(problem, _NAME, None, bound, limit)
    passed, _ = count_cells(problem.fabric, matching, best)
    return conclude(
        problem,
        _NAME,
        _measure(problem, best),
        bound,
        limit,
        schedule=one_slot(problem, best),
        stats={"worst_route_cells": int(passed.max(initial=0))},
    )


def _cell_cost(problem: Routing) -> NDArray[np.int64]:
    if problem.objective == "loss-db":
        losses = problem.bar_loss_db, problem.cross_loss_db
        return cost_states(problem.fabric, *(loss / MICRO_DB for loss in losses))
    return cost_states(problem.fabric, 1, 1)


def _measure(problem: Routing, states: NDArray[np.int8]) -> float:
    passed, crossed = count_cells(problem.fabric, problem.matching[None], states)
    if problem.objective == "worst-cells":
        return float(passed.max(initial=0))
    if problem.objective == "loss-db":
        crosses = int(crossed.sum())
        bars = int(passed.sum()) - crosses
        return bars * problem.bar_loss_db + crosses * problem.cross_loss_db
    return float(passed.sum())
