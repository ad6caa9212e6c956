"""Answers about one matching: what needs no search, and what a search concludes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import RTOL, Clock, Limit, Schedule, Solution, Status
from optmatch.problems import Routing, RoutingProof
from optmatch.solvers.routing.causes import Refuted
from optmatch.solvers.routing.dead import refuse_dead_pairs
from optmatch.solvers.routing.negotiation import Routes


def answer_at_once(
    problem: Routing, name: str, refuted: Refuted | None = None, clock: Clock | None = None
) -> Solution | None:
    """Answer what needs no search: dead circuits, no circuits, a fabric without cells.

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
    problem: Routing,
    best: Routes | None,
    bound: float,
    limit: Limit | None,
    name: str,
    *,
    certificate: RoutingProof | None = None,
    stats: dict[str, object] | None = None,
) -> Solution:
    """Make the solution from the best routes found, if any, and a proved bound.

    Parameters
    ----------
    problem
        The problem.
    best
        The best routes, None if none were found.
    bound
        No routes cost less; infinite if there are none.
    limit
        Why the search ended, where it leaves the question open.
    name
        The method.
    certificate
        A proof of the bound, if the problem's own bound is less.
    stats
        Statistics of the search.
    """
    stats = stats or {}
    if best is None:
        refuted = bound == np.inf
        return Solution(
            problem=problem,
            status=Status.INFEASIBLE if refuted else Status.UNKNOWN,
            limit=None if refuted else (limit or Limit.EXHAUSTED),
            lower_bound=bound,
            method=name,
            certificate=certificate,
            stats=stats,
        )
    proved = best.objective <= bound * (1 + RTOL)
    return Solution(
        problem=problem,
        schedule=one_slot(problem, best.states[None]),
        status=Status.OPTIMAL if proved else Status.FEASIBLE,
        limit=None if proved else (limit or Limit.EXHAUSTED),
        objective=best.objective,
        lower_bound=min(bound, best.objective),
        method=name,
        certificate=certificate,
        stats=stats | {"worst_route_cells": int(best.lengths.max())},
    )
