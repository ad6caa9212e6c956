"""Covers without preemption: each demand in one slot, like with like."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.solvers.demands.assignment import new_workspace
from optmatch.solvers.demands.covering import cover_busiest
from optmatch.solvers.demands.plans import Plan, join, serve
from optmatch.solvers.kernels.decorators import kernel

_WORD = 62  # slots in one word, whose bits are those in which a port is busy


@kernel
def _first_free(rows, columns, row_busy, column_busy, partner):
    """Give each circuit the first slot in which both its ports are free; return the slots used."""
    most = 0
    for k in range(len(rows)):
        i, j, word = rows[k], columns[k], 0
        while row_busy[i, word] | column_busy[j, word] == (1 << _WORD) - 1:
            word += 1
        busy, slot, bit = row_busy[i, word] | column_busy[j, word], _WORD * word, 1
        while busy & bit:
            slot, bit = slot + 1, bit << 1
        row_busy[i, word] |= bit
        column_busy[j, word] |= bit
        partner[slot, i] = j
        most = max(most, slot + 1)
    return most


def cover_heaviest_first(demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Put each demand, heaviest first, into the first slot that has room.

    There are at most twice as many slots, less one, as the busiest port has partners.
    """
    n = len(demand)
    rows, columns = np.nonzero(demand)
    order = np.argsort(-demand[rows, columns], kind="stable")
    rows, columns = rows[order], columns[order]
    degree = int(max((demand > 0).sum(axis=0).max(), (demand > 0).sum(axis=1).max()))
    matchings = np.full((2 * degree, n), IDLE, dtype=np.int32)
    busy = np.zeros((2, n, 1 + 2 * degree // _WORD), dtype=np.int64)
    matchings = matchings[: _first_free(rows, columns, busy[0], busy[1], matchings)]
    needs = np.where(matchings >= 0, demand[np.arange(n), matchings], 0)
    return Plan(matchings, np.maximum(needs.max(axis=1), shortest))


def cover_by_busiest(demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Put each demand into one of as many slots as the busiest port has partners.

    Each slot is the heaviest matching that holds all ports that are busiest then.
    """
    slots = int(max((demand > 0).sum(axis=0).max(), (demand > 0).sum(axis=1).max()))
    matchings = np.full((slots, len(demand)), IDLE, dtype=np.int32)
    ticks = np.zeros(slots, dtype=np.int64)
    cover_busiest(new_workspace(len(demand)), demand.copy(), matchings, ticks)
    return Plan(matchings, np.maximum(ticks, shortest))


def complete(plan: Plan, demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Serve heaviest first what a plan leaves of a demand."""
    rest = np.maximum(demand - serve(plan), 0)
    return join(plan, cover_heaviest_first(rest, shortest)) if rest.any() else plan
