"""The shortest durations of given matchings: a linear programme, made whole afterwards."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, uncounted
from optmatch.solvers.demands.plans import Plan, serve, trim


def shorten(plan: Plan, demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Find the durations of least sum with which the matchings serve a demand.

    The result is never longer than `plan`: durations of the programme are rounded up to whole
    ticks, where they fall short by the solver's tolerance they are raised, and then trimmed.
    """
    with uncounted():
        from scipy.optimize import linprog
        from scipy.sparse import csr_array

    slots, n = plan.matchings.shape
    slot, source = np.nonzero(plan.matchings != IDLE)
    far = plan.matchings[slot, source]
    asked = demand[source, far] > 0
    slot, pair = slot[asked], (source * n + far)[asked]
    pairs, row, uses = np.unique(pair, return_inverse=True, return_counts=True)
    needs = demand.reshape(-1)[pairs]
    least = np.zeros(slots)
    alone = uses[row] == 1  # a pair in one slot is a bound on its duration, not a row
    np.maximum.at(least, slot[alone], needs[row[alone]])
    shared = np.flatnonzero(uses > 1)
    if not len(shared):
        return trim(plan, demand, shortest)
    place = np.full(len(pairs), -1)
    place[shared] = np.arange(len(shared))
    rows, columns = place[row[~alone]], slot[~alone]
    matrix = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(shared), slots))
    found = linprog(
        np.ones(slots),
        A_ub=-matrix,
        b_ub=-needs[shared].astype(np.float64),
        bounds=np.stack([least, np.full(slots, np.inf)], axis=1),
        method="highs",
    )
    if found.x is None:
        return trim(plan, demand, shortest)
    ticks = np.ceil(found.x - 1e-6).astype(np.int64)
    ticks = np.where(ticks > 0, np.maximum(ticks, shortest), 0)
    rounded = _repair(Plan(plan.matchings, ticks), demand, shortest)
    rounded = trim(rounded, demand, shortest)
    old = trim(plan, demand, shortest)
    return min(old, rounded, key=lambda plan: (int(plan.ticks.sum()), len(plan.ticks)))


def _repair(plan: Plan, demand: NDArray[np.int64], shortest: int) -> Plan:
    """Raise durations until whatever is short is not."""
    ticks = plan.ticks.copy()
    while True:
        short = demand - serve(Plan(plan.matchings, ticks))
        i, j = np.unravel_index(int(short.argmax()), short.shape)
        if short[i, j] <= 0:
            return Plan(plan.matchings, ticks)
        holds = np.flatnonzero(plan.matchings[:, i] == j)
        slot = holds[ticks[holds].argmax()]
        ticks[slot] = max(int(ticks[slot] + short[i, j]), shortest)
