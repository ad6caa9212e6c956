"""All-to-all of a fabric with dead ports: solved on the live ports, answered for all ports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps

import numpy as np

from optmatch.fabrics import Fabric, SelectedPorts
from optmatch.model import IDLE, Limits, OnEvent, Schedule, Solution, Status
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all.conclusion import without_routes
from optmatch.solvers.routing.causes import refuse_dead_pairs

Solve = Callable[[AllToAll, Limits, np.random.Generator, OnEvent], Solution]


def live_part(fabric: Fabric) -> SelectedPorts:
    """Return the live ports of a fabric as one of their own."""
    return SelectedPorts(fabric, tuple(fabric.live_ports.tolist()))


def on_live_ports(solve: Solve) -> Solve:
    """Let a method for all-to-all solve on the live ports only."""

    @wraps(solve)
    def solve_all(
        problem: AllToAll, limits: Limits, rng: np.random.Generator, on_event: OnEvent
    ) -> Solution:
        fabric = problem.fabric
        if not len(fabric.dead_ports):
            return solve(problem, limits, rng, on_event)
        if not len(fabric.live_ports):
            nothing = np.empty((0, fabric.n_ports), dtype=np.int32)
            return without_routes(problem, nothing, solve.__module__.rpartition(".")[2])
        found = solve(replace(problem, fabric=live_part(fabric)), limits, rng, on_event)
        if found.status is Status.INFEASIBLE:
            refused = refuse_dead_pairs(problem, fabric.dead_pairs(), found.method)
            if refused is not None:
                return refused
        schedule = found.schedule and widen(found.schedule, fabric)
        return replace(found, problem=problem, schedule=schedule)

    return solve_all


def widen(schedule: Schedule, fabric: Fabric) -> Schedule:
    """Turn matchings of the live ports into matchings of all ports."""
    live = fabric.live_ports
    names = np.append(live, IDLE)  # the last entry is that of an idle port
    matchings = np.full((schedule.n_slots, fabric.n_ports), IDLE, dtype=np.int32)
    matchings[:, live] = names[schedule.matchings]
    return replace(schedule, matchings=matchings)
