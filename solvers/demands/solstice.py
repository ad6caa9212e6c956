"""Method `solstice`: stuffing, then slots of halving thresholds.

Liu, Mukerjee et al. (2015), Scheduling techniques for hybrid circuit/packet networks, CoNEXT,
doi 10.1145/2716281.2836126. Here until everything is served, or a packet network takes the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optmatch.model import Limits, OnEvent, Solution
from optmatch.problems import Demand
from optmatch.solvers.demands.covering import assign, new_desk
from optmatch.solvers.demands.greedy import cover_heaviest_first
from optmatch.solvers.demands.plans import Plan, join, serve, trim
from optmatch.solvers.demands.scheduling import Work, solve_demand
from optmatch.solvers.demands.stuffing import stuff


def solve(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve a demand by Solstice.

    Parameters
    ----------
    problem, limits, rng, on_event
        As for every method. There is one plan, so more iterations change nothing.
    """
    return solve_demand(problem, limits, rng, on_event, "solstice", build)


def build(work: Work) -> Iterator[Plan]:
    """Yield the plan: BigSlice on the stuffed demand."""
    rest = stuff(work.demand, "quick")
    n, ports = len(rest), np.arange(len(rest))
    desk = new_desk(n)
    threshold = 1 << (int(rest.max()).bit_length() - 1)
    matchings: list[np.ndarray] = []
    ticks: list[int] = []
    while rest.any() and work.clock.remaining_s > 0:
        desk.value[:] = rest >= threshold
        if assign(desk) < n - 0.5:
            threshold = max(1, threshold // 2)
            continue
        matching = desk.column_of.astype(np.int32)
        length = int(rest[ports, matching].min())
        rest[ports, matching] -= length
        matchings.append(matching)
        ticks.append(max(length, work.shortest))
    plan = Plan(
        np.array(matchings, dtype=np.int32).reshape(-1, n), np.array(ticks, dtype=np.int64)
    )
    left = np.maximum(work.demand - serve(plan), 0)
    if left.any():
        plan = join(plan, cover_heaviest_first(left, work.shortest))
    yield trim(plan, work.demand, work.shortest)
