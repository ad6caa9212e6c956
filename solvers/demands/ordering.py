"""The order of slots where circuits that stay carry on during the delay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.problems import Demand
from optmatch.solvers.demands.plans import Plan


def order_slots(matchings: NDArray[np.int32]) -> NDArray[np.int64]:
    """Order matchings so that few circuits change in between: nearest neighbours, then 2-opt.

    Examples
    --------
    >>> order_slots(np.array([[0, 1, 2], [1, 2, 0], [0, 2, 1]], dtype=np.int32)).tolist()
    [0, 2, 1]
    """
    slots = len(matchings)
    if slots < 3:
        return np.arange(slots)
    stays = np.zeros((slots, slots), dtype=np.int64)
    for k in range(slots):
        stays[k] = ((matchings == matchings[k]) & (matchings != IDLE)).sum(axis=1)
    np.fill_diagonal(stays, 0)
    order = [int(stays.sum(axis=1).argmin())]
    free = np.ones(slots, dtype=bool)
    free[order[0]] = False
    while len(order) < slots:
        order.append(int(np.where(free, stays[order[-1]], -1).argmax()))
        free[order[-1]] = False
    path = np.array(order)
    for _ in range(20):
        if not _turn(path, stays):
            break
    return path


def _turn(path: NDArray[np.int64], stays: NDArray[np.int64]) -> bool:
    """Turn the part of a path over that gains most, in place; tell whether one gains."""
    best, cut = 0, (0, 0)
    after = np.concatenate([stays[path[:-1], path[1:]], [0]])
    for first in range(1, len(path) - 1):
        ends = np.arange(first + 1, len(path))
        follows = np.where(ends + 1 < len(path), path[np.minimum(ends + 1, len(path) - 1)], -1)
        joined = np.where(follows >= 0, stays[path[first], follows], 0)
        gain = stays[path[first - 1], path[ends]] + joined - after[first - 1] - after[ends]
        if gain.max() > best:
            best, cut = int(gain.max()), (first, int(ends[gain.argmax()]) + 1)
    if best:
        path[cut[0] : cut[1]] = path[cut[0] : cut[1]][::-1].copy()
    return best > 0


def keep_circuits(plan: Plan, problem: Demand) -> Plan:
    """Order the slots, and shorten each by what its circuits carry during delays.

    Parameters
    ----------
    plan
        Slots that serve the demand without that.
    problem
        With per-circuit switching on one plane.
    """
    order = order_slots(plan.matchings)
    matchings, ticks = plan.matchings[order], plan.ticks[order].copy()
    if not len(ticks):
        return plan
    demand, ports = problem.ticks, np.arange(problem.fabric.n_ports)
    served = np.zeros_like(demand)
    for slot, matching in enumerate(matchings):
        used = matching != IDLE
        gained = np.full(len(ports), ticks[slot])
        if slot:
            gained += np.where(matching == matchings[slot - 1], problem.delay_ticks, 0)
        served[ports[used], matching[used]] += gained[used]
    for slot in np.argsort(ticks, kind="stable"):
        used = ports[matchings[slot] != IDLE]
        far = matchings[slot][used]
        slack = int((served[used, far] - demand[used, far]).min(initial=ticks[slot]))
        slack = max(0, min(slack, int(ticks[slot]) - problem.min_slot_ticks))
        ticks[slot] -= slack
        served[used, far] -= slack
    return Plan(matchings, ticks)
