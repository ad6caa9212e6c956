"""What circuits leave to a packet network: whole slots, and the ends of those that are kept.

The slots that serve least for their time are left out; a linear programme says how long the
others last, where the packet network takes what they leave of each pair.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, uncounted
from optmatch.problems import Demand
from optmatch.solvers.demands.plans import Plan, serve

_FEW = 6  # slots of a plan: so few that every number of them gets its programme
_MANY = 2000  # pairs: from so many on, a programme takes seconds, so there is one for each plan
_LARGE = 128  # ports: from so many on, the programme takes too long


def leave_to_packets(problem: Demand, plan: Plan) -> Plan:
    """Keep the most useful slots of a plan, as many and as long as make the whole finish first.

    Parameters
    ----------
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
    whole = [plan.take(order[:count]) for count in range(len(order) + 1)]
    ends = [_finish(problem, part) for part in whole]
    kept = int(np.argmin(ends))
    best, end = whole[kept], ends[kept]
    if sources >= _LARGE:
        return best
    around = int(np.count_nonzero(demand) <= _MANY)
    near = whole[1:] if len(order) <= _FEW else whole[max(1, kept - around) : kept + around + 1]
    for part in near:
        shorter = _shorten(problem, part)
        if _finish(problem, shorter) < end:
            best, end = shorter, _finish(problem, shorter)
    return best


def _finish(problem: Demand, plan: Plan) -> float:
    """Tell when circuits and packets are done, in ticks, with planes that end together."""
    left = np.maximum(problem.directed_ticks - serve(plan), 0)
    busiest = int(max(left.sum(axis=0).max(), left.sum(axis=1).max()))
    return max(plan.cost(problem.delay_ticks) / problem.planes, busiest / problem.packet_share)


def _shorten(problem: Demand, plan: Plan) -> Plan:
    """Find durations with which circuits and packets are done first, in whole ticks."""
    wanted = _durations(problem, plan)
    if wanted is None:
        return plan
    least = problem.min_slot_ticks
    plans = [
        Plan(plan.matchings, np.maximum(rounded, least).astype(np.int64))
        for rounded in (np.floor(wanted), np.rint(wanted), np.ceil(wanted - 1e-6))
    ]
    return min(plans, key=lambda tried: _finish(problem, tried))


def _durations(problem: Demand, plan: Plan) -> NDArray[np.float64] | None:
    """Solve the linear programme: variables are durations, what is left of pairs, and the end."""
    with uncounted():
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

    demand, (slots, n) = problem.directed_ticks, plan.matchings.shape
    rows, columns = np.nonzero(demand)
    pairs, end = len(rows), slots + len(rows)
    number = np.full((n, n), -1)
    number[rows, columns] = np.arange(pairs)
    slot, source = np.nonzero(plan.matchings != IDLE)
    served = number[source, plan.matchings[slot, source]]
    slot, served = slot[served >= 0], served[served >= 0]
    left = slots + np.arange(pairs)
    sums = pairs  # rows of the matrix: pairs, then lines of the packet network, then the circuits
    entries = [
        (served, slot, -1.0),  # demand - circuits <= left
        (np.arange(pairs), left, -1.0),
        (sums + rows, left, 1.0),  # left of a line <= share * end
        (sums + n + columns, left, 1.0),
        (sums + np.arange(2 * n), np.full(2 * n, end), -problem.packet_share),
        (np.full(slots, sums + 2 * n), np.arange(slots), 1.0),  # slots <= planes * end
        (np.full(1, sums + 2 * n), np.full(1, end), -float(problem.planes)),
    ]
    matrix = coo_array(
        (
            np.concatenate([np.full(len(at), value) for at, _, value in entries]),
            (np.concatenate([e[0] for e in entries]), np.concatenate([e[1] for e in entries])),
        ),
        shape=(pairs + 2 * n + 1, end + 1),
    )
    unit = float(demand.max())
    limits = np.concatenate(
        [-demand[rows, columns], np.zeros(2 * n), [-slots * problem.delay_ticks]]
    )
    least = np.concatenate([np.full(slots, problem.min_slot_ticks / unit), np.zeros(pairs + 1)])
    found = linprog(
        np.arange(end + 1) == end,
        A_ub=matrix.tocsr(),
        b_ub=limits / unit,
        bounds=np.stack([least, np.full(end + 1, np.inf)], axis=1),
        method="highs",
    )
    return None if found.x is None else found.x[:slots] * unit
