"""Answers about one matching: what needs no search, and what a search concludes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, Limit, Schedule, Solution
from optmatch.problems import Routing, RoutingProof
from optmatch.solvers.frame import conclude
from optmatch.solvers.routing.causes import Refuted, refuse_dead_pairs
from optmatch.solvers.routing.negotiation import Routes


def answer_at_once(
    problem: Routing, name: str, refuted: Refuted | None = None, clock: Clock | None = None
) -> Solution | None:
    """Answer what needs no search: dead circuits, no circuits, a fabric without cells."""
    fabric = problem.fabric
    refused = refuse_dead_pairs(problem, problem.dead_circuits(), name, refuted, clock)
    if refused is not None:
        return refused
    if fabric.graph is not None and len(problem.circuits):
        return None
    states = None if fabric.graph is None else np.full((1, fabric.n_cells), -1, dtype=np.int8)
    return conclude(problem, name, 0.0, 0.0, schedule=one_slot(problem, states))


def one_slot(problem: Routing, states: NDArray[np.int8] | None) -> Schedule:
    """Make the schedule of a single slot of one second."""
    return Schedule(matchings=problem.matching[None], durations_s=np.ones(1), cell_states=states)


def near_enough(objective: float, bound: float, gap: float) -> Limit | None:
    """Tell whether an objective is as near to its bound as asked for; no gap asks for all."""
    return Limit.GAP if gap and objective - bound <= gap * objective else None


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
    """Make the solution from the best routes found, if any, and a proved bound."""
    known: dict[str, Any] = {"certificate": certificate, "stats": stats or {}}
    if best is None:
        return conclude(problem, name, None, bound, limit, **known)
    known["schedule"] = one_slot(problem, best.states[None])
    known["stats"] |= {"worst_route_cells": int(best.lengths.max())}
    return conclude(problem, name, best.objective, bound, limit, **known)
