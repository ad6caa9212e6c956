"""What circuits leave to a packet network: whole slots, and the ends of those that are kept."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from optmatch.problems import Demand
from optmatch.solvers.demands.plans import Plan, serve

_PARTS = 256  # slots are shortened by so many parts of each


def leave_to_packets(problem: Demand, plan: Plan) -> Plan:
    """Keep the most useful slots of a plan, as many and as long as make the whole finish first."""
    demand, delay = problem.directed_ticks, problem.delay_ticks
    ports = np.arange(problem.fabric.n_ports)
    use = [
        np.minimum(demand[ports, m], w)[m >= 0].sum() / (w + delay)
        for m, w in zip(plan.matchings, plan.ticks.tolist(), strict=True)
    ]
    order = np.argsort(-np.array(use), kind="stable")
    kept = [plan.take(order[:count]) for count in range(len(order) + 1)]
    best = min(kept, key=lambda part: max(_ends(problem, part)))

    def shorter(k: int) -> Plan:
        ticks = np.maximum(best.ticks * k // _PARTS, problem.min_slot_ticks)
        return Plan(best.matchings, ticks)

    def is_long(k: int) -> bool:
        circuits, packets = _ends(problem, shorter(k))
        return circuits >= packets

    k = bisect_left(range(_PARTS), True, key=is_long)
    near = best, shorter(k), shorter(max(k - 1, 0))
    return min(near, key=lambda part: max(_ends(problem, part)))


def _ends(problem: Demand, plan: Plan) -> tuple[float, float]:
    """Tell when circuits and packets are done, in ticks, with planes that end together."""
    left = np.maximum(problem.directed_ticks - serve(plan), 0)
    busiest = int(max(left.sum(axis=0).max(), left.sum(axis=1).max()))
    return plan.cost(problem.delay_ticks) / problem.planes, busiest / problem.packet_share
