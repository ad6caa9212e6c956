"""The fewest slots and then the fewest cells of a small mesh, one exact model after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optmatch.model import Clock, Limit, OnEvent, Solution, Status
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all.conclusion import FEWEST_SLOTS, REFUTED_BY_SEARCH, conclude
from optmatch.solvers.all_to_all.joint_model import MOST_LITERALS, JointModel
from optmatch.solvers.all_to_all.planner import SlotPlanner
from optmatch.solvers.cpsat import Outcome, minimise
from optmatch.solvers.routing.router import Router

_SECONDS_LITERALS = 3_000
"""Models of this size are solved in seconds: 19 cells with 6 ports."""
_MINUTES_LITERALS = 10_000
"""Models of this size take minutes at most: 38 cells with 8 ports."""


def finish_small(
    problem: AllToAll, found: Solution, clock: Clock, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Let the exact model improve on a schedule, or prove it, where the mesh is small.

    Parameters
    ----------
    problem
        On live ports.
    found
        A schedule in more slots than by counting.
    clock, rng, on_event
        As of every method. Without a time limit, only meshes that take seconds are small.

    Returns
    -------
    Solution
        As `JointSearch` gives it; as found where the mesh is larger.
    """
    slots = 0 if found.schedule is None else found.schedule.n_slots
    most = _SECONDS_LITERALS if clock.limits.time_s is None else _MINUTES_LITERALS
    try:
        if JointModel(problem, slots).n_literals > most:
            return found
        return JointSearch(problem, found, clock, rng, on_event).run()
    except KeyboardInterrupt:
        return replace(found, limit=Limit.INTERRUPTED)


class JointSearch:
    """The fewest slots, then the fewest cells, by one model after the other."""

    def __init__(
        self,
        problem: AllToAll,
        start: Solution,
        clock: Clock,
        rng: np.random.Generator,
        on_event: OnEvent,
    ) -> None:
        self.problem = problem
        self.start = start
        self.clock = clock
        self.rng = rng
        self.on_event = on_event

    def run(self) -> Solution:
        """Refute or solve each number of slots up to that of the start."""
        known = self.start.schedule.n_slots if self.start.schedule is not None else 0
        refuted = str(self.start.stats.get(FEWEST_SLOTS, "")).startswith("refuted")
        for slots in range(self.problem.min_slots + refuted, known + 1):
            model = JointModel(self.problem, slots)
            if model.n_literals > MOST_LITERALS:
                return replace(self.start, limit=Limit.MEMORY)
            model.build(below=self.start.objective if slots == known else None)
            seed = int(self.rng.integers(1 << 30))
            outcome = minimise(model.model, self.clock, self.on_event, seed=seed)
            if outcome.found:
                found = self._schedule(model, outcome)
                return _claim(found, outcome.lower_bound, outcome.limit, slots)
            if not outcome.infeasible:
                bound = outcome.lower_bound if slots == known else self.start.lower_bound
                return _claim(self.start, bound, outcome.limit, slots)
        return _claim(self.start, self.start.objective or 0.0, None, known)

    def _schedule(self, model: JointModel, outcome: Outcome) -> Solution:
        """Order the slots of a solution and count, by the means of the search."""
        planner = SlotPlanner(
            self.problem, Router(self.problem.fabric), self.clock, self.rng, self.on_event
        )
        planner.plan = model.plan(outcome, planner)
        return conclude(
            planner, outcome.limit, "ilp", polish=outcome.limit is not Limit.INTERRUPTED
        )


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
