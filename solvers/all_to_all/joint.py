"""Method `ilp` for all-to-all on small meshes: the fewest slots, then the fewest cells, proved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optmatch.model import Limit, Limits, OnEvent, Solution, Status
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all.conclusion import (
    FEWEST_SLOTS,
    REFUTED_BY_SEARCH,
    answer_at_once,
    conclude,
)
from optmatch.solvers.all_to_all.factorise import schedule_all
from optmatch.solvers.all_to_all.joint_model import MOST_LITERALS, JointModel, decide_fewest
from optmatch.solvers.all_to_all.live import on_live_ports
from optmatch.solvers.all_to_all.planner import SlotPlanner
from optmatch.solvers.all_to_all.slot_shortage import names_faults
from optmatch.solvers.cpsat import minimise
from optmatch.solvers.routing.router import Router


@names_faults(decide_fewest)
@on_live_ports
def solve(
    problem: AllToAll, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve an all-to-all problem exactly.

    Parameters
    ----------
    problem
        The problem.
    limits
        An iteration is a conflict of CP-SAT.
    rng
        Source of randomness of the warm start, and of the seeds of CP-SAT.
    on_event
        Listener.

    Returns
    -------
    Solution
        The method `negotiated` goes first; where its total meets the bound of the problem, that is
        the answer. Otherwise the fewest slots are sought one by one, then the least total in them.
        What CP-SAT refutes has no short certificate: ``stats["bound_by"]`` says so.
    """
    clock = limits.start()
    decided = answer_at_once(problem, "ilp")
    if decided is not None:
        return decided
    start = schedule_all(
        problem, replace(limits, iterations=None), rng, on_event, name="ilp", search=True
    )
    if start.schedule is None or start.limit in (None, Limit.TIME, Limit.INTERRUPTED):
        return start
    known = start.schedule.n_slots
    refuted = str(start.stats.get(FEWEST_SLOTS, "")).startswith("refuted")
    for slots in range(problem.min_slots + refuted, known + 1):
        model = JointModel(problem, slots)
        if model.n_literals > MOST_LITERALS:
            return replace(start, limit=Limit.MEMORY)
        model.build(below=start.objective if slots == known else None)
        outcome = minimise(model.model, clock, on_event, seed=int(rng.integers(1 << 30)))
        if outcome.found:
            planner = SlotPlanner(problem, Router(problem.fabric), clock, rng, on_event)
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
