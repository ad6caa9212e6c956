"""What circuits leave to a packet network: the slots that serve least for their time."""

from __future__ import annotations

import numpy as np

from optmatch.problems import Demand
from optmatch.solvers.demands.plans import Plan, serve


def leave_to_packets(problem: Demand, plan: Plan) -> Plan:
    """Keep the most useful slots of a plan, as many as make the whole finish first.

    Parameters
    ----------
    problem
        With a packet network.
    plan
        Slots that would carry everything.
    """
    demand, delay, sources = problem.directed_ticks, problem.delay_ticks, problem.fabric.n_ports
    ports = np.arange(sources)
    use = [
        np.minimum(demand[ports, m], w)[m >= 0].sum() / (w + delay)
        for m, w in zip(plan.matchings, plan.ticks.tolist(), strict=True)
    ]
    order = np.argsort(-np.array(use), kind="stable")
    ends = np.concatenate([[0], np.cumsum(plan.ticks[order] + delay)])
    best, kept = np.inf, 0
    for count, end in enumerate(ends.tolist()):
        if end / problem.planes >= best:
            break
        chosen = order[:count]
        left = np.maximum(demand - serve(plan.take(chosen)), 0)
        busiest = max(left.sum(axis=0).max(), left.sum(axis=1).max())
        finish = max(end / problem.planes, busiest / problem.packet_share)
        if finish < best:
            best, kept = finish, count
    return plan.take(order[:kept])
