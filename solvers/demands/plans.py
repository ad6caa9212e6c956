"""Plans: matchings and durations in ticks, and operations on them without a search.

In all of this room demands are in ticks, the slots of a plan serve them together, and no slot is
shorter than `shortest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.solvers.kernels.decorators import kernel


class Plan(NamedTuple):
    """Matchings and how long each is held."""

    matchings: NDArray[np.int32]  # (slots, ports)
    ticks: NDArray[np.int64]  # (slots,)

    @classmethod
    def of(cls, matchings: Sequence[NDArray[np.int32]], ticks: Sequence[int], ports: int) -> Plan:
        """Put slots together that were found one by one, perhaps none."""
        rows = np.array(matchings, dtype=np.int32).reshape(-1, ports)
        return cls(rows, np.array(ticks, dtype=np.int64))

    def take(self, slots: NDArray[Any]) -> Plan:
        """Return a plan of some slots: by number, in their order, or by a mask."""
        return Plan(self.matchings[slots], self.ticks[slots])

    def cost(self, delay: int) -> int:
        """Return the time of all slots, each with a delay before it."""
        return int(self.ticks.sum()) + delay * len(self.ticks)


def serve(plan: Plan) -> NDArray[np.int64]:
    """``served[source, destination]``: how long each circuit is up."""
    n = plan.matchings.shape[1]
    served = np.zeros((n, n), dtype=np.int64)
    slots, sources = np.nonzero(plan.matchings != IDLE)
    np.add.at(served, (sources, plan.matchings[slots, sources]), plan.ticks[slots])
    return served


@kernel
def _trim(demand, served, matchings, ticks, order, shortest):
    for slot in order:
        slack = ticks[slot]
        for i in range(len(demand)):
            j = matchings[slot, i]
            if j >= 0 and demand[i, j] > 0:
                slack = min(slack, served[i, j] - demand[i, j])
        if slack < ticks[slot]:
            slack = max(0, min(slack, ticks[slot] - shortest))
        if slack > 0:
            ticks[slot] -= slack
            for i in range(len(demand)):
                j = matchings[slot, i]
                if j >= 0:
                    served[i, j] -= slack


def trim(plan: Plan, demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Shorten each slot by the time that no demand needs, shortest first; drop empty slots."""
    served, ticks = serve(plan), plan.ticks.copy()
    _trim(demand, served, plan.matchings, ticks, np.argsort(ticks, kind="stable"), shortest)
    return Plan(plan.matchings, ticks).take(ticks > 0)


def join(first: Plan, second: Plan) -> Plan:
    """Put the slots of two plans one after the other."""
    return Plan(
        np.concatenate([first.matchings, second.matchings]),
        np.concatenate([first.ticks, second.ticks]),
    )


def tidy(plan: Plan) -> Plan:
    """Put slots with the same matching together, the longest slots first."""
    if not len(plan.ticks):
        return plan
    held = dict[bytes, int]()
    rows = (plan.matchings + 1).astype(">u4")  # bytes that sort as the numbers do
    for row, ticks in zip(rows, plan.ticks.tolist(), strict=True):
        held[row.tobytes()] = held.get(row.tobytes(), 0) + ticks
    order = sorted(held)
    found = np.frombuffer(b"".join(order), dtype=">u4").reshape(len(order), rows.shape[1])
    merged = Plan(found.astype(np.int32) - 1, np.array([held[row] for row in order]))
    return merged.take(np.argsort(-merged.ticks, kind="stable"))


def only_demanded(plan: Plan, demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Take out circuits without demand, drop empty slots, lengthen slots that are too short."""
    sources = np.arange(plan.matchings.shape[1])
    asked = (plan.matchings != IDLE) & (demand[sources, plan.matchings] > 0)
    matchings = np.where(asked, plan.matchings, IDLE).astype(np.int32)
    kept = asked.any(axis=1) & (plan.ticks > 0)
    return Plan(matchings[kept], np.maximum(plan.ticks[kept], shortest))
