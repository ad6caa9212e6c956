"""The fewest slots and then the fewest cells of a small mesh, one exact model after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optmatch.model import Clock, Limit, OnEvent, Solution, Status
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all.conclusion import FEWEST_SLOTS, REFUTED_BY_SEARCH, conclude
from optmatch.solvers.all_to_all.joint_model import MOST_LITERALS, JointModel
from optmatch.solvers.all_to_all.planner import SlotPlanner
from optmatch.solvers.cpsat import minimise
from optmatch.solvers.routing.router import CellRouter

_SECONDS_LITERALS = 3_000
"""Models of this size are solved in seconds: 19 cells with 6 ports."""
_MINUTES_LITERALS = 10_000
"""Models of this size take minutes at most: 38 cells with 8 ports."""


def finish_small(
    problem: AllToAll, found: Solution, clock: Clock, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Let the exact model improve on a schedule, or prove it, where the mesh is small.

    Without a time limit, only meshes that take seconds are small.
    """
    slots = 0 if found.schedule is None else found.schedule.n_slots
    most = _SECONDS_LITERALS if clock.limits.time_s is None else _MINUTES_LITERALS
    try:
        if JointModel(problem, slots).n_literals > most:
            return found
        return improve(problem, found, clock, rng, on_event)
    except KeyboardInterrupt:
        return replace(found, limit=Limit.INTERRUPTED)


def improve(
    problem: AllToAll, start: Solution, clock: Clock, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Refute or solve each number of slots up to that of the start, then improve on its cells."""
    known = 0 if start.schedule is None else start.schedule.n_slots
    refuted = str(start.stats.get(FEWEST_SLOTS, "")).startswith("refuted")
    for slots in range(problem.min_slots + refuted, known + 1):
        model = JointModel(problem, slots)
        if model.n_literals > MOST_LITERALS:
            return replace(start, limit=Limit.MEMORY)
        model.build(below=start.objective if slots == known else None)
        outcome = minimise(model.model, clock, on_event, seed=int(rng.integers(1 << 30)))
        if outcome.found:
            planner = SlotPlanner(problem, CellRouter(problem.fabric), clock, rng, on_event)
            planner.plan = model.plan(outcome, planner)
            done = outcome.limit is not Limit.INTERRUPTED
            found = conclude(planner, outcome.limit, "ilp", polish=done)
            return _claim(found, outcome.lower_bound, outcome.limit, slots)
        if not outcome.infeasible:
            bound = outcome.lower_bound if slots == known else start.lower_bound
            return _claim(start, bound, outcome.limit, slots)
    return _claim(start, start.objective or 0.0, None, known)


def _claim(found: Solution, bound: float, limit: Limit | None, refuted_below: int) -> Solution:
    """Say what CP-SAT refuted about a schedule: fewer slots, and totals below the bound."""
    objective = found.objective or 0.0
    bound = min(max(bound, found.lower_bound), objective)
    slots = found.schedule.n_slots if found.schedule is not None else 0
    optimal = bound >= objective and slots == refuted_below
    stats = {**found.stats, "bound_by": "cp-sat"}
    if found.stats["slots_lower_bound"] < min(slots, refuted_below):
        stats[FEWEST_SLOTS] = REFUTED_BY_SEARCH
    return replace(
        found,
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        limit=None if optimal else (limit or Limit.EXHAUSTED),
        lower_bound=bound,
        stats=stats,
    )
