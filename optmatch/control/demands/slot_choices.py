"""Which slot of a rolling schedule comes next: for short waits, or by a plan of the queue."""

from __future__ import annotations

from math import ceil, gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.control.demands.flows import FlowQueue, Place
from optmatch.control.demands.rolling_state import TICKS_PER_S
from optmatch.entrances import solve
from optmatch.fabrics import Fabric
from optmatch.model import IDLE, LimitReached
from optmatch.model.limits import counted_time
from optmatch.model.schedule import Switching
from optmatch.problems import Demand

_STAY = 1.2
"""A matching gives way to one that is worth so often as much."""

_LONGEST = 10
"""A slot lasts at most so many delays: new demand does not wait long for the next slot."""


class Rest(NamedTuple):
    """The part of a queue that committed slots leave."""

    queue: FlowQueue
    left: NDArray[np.float64]
    """``left[source, destination]`` in ticks."""
    rate: NDArray[np.float64]
    """As of `Entry`."""
    reserved: dict[Place, int]
    """Ticks that committed slots serve."""

    @classmethod
    def of(cls, queue: FlowQueue, reserved: dict[Place, int]) -> Rest:
        """Take reserved ticks out of a queue."""
        left, rate = queue.left.copy(), queue.rate.copy()
        for place, ticks in reserved.items():
            entry = queue.look(place, ticks)
            left[place], rate[place] = entry.ticks, entry.rate
        return cls(queue, left, rate, reserved)


def choose_matching(
    rest: Rest,
    held: NDArray[np.int32],
    must: Place | None,
    offers: NDArray[np.int32] | None,
    switching: Switching,
) -> NDArray[np.int32]:
    """Choose circuits by how soon their flows are complete and how busy their ports are.

    `must` is a circuit of the matching; `offers` are the matchings there are, None for all.
    """
    from scipy.optimize import linear_sum_assignment

    worth = np.sqrt(rest.rate * (rest.left.sum(axis=1)[:, None] + rest.left.sum(axis=0)))
    ports = np.arange(len(held))
    stay = np.where((held != IDLE) & (rest.left[ports, held] > 0), held, IDLE)
    on = stay != IDLE
    if switching == "per-circuit":
        worth[ports[on], stay[on]] *= _STAY
    if offers is not None:
        offers = offers if must is None else offers[offers[:, must[0]] == must[1]]
        found = np.asarray(max(offers, key=lambda row: worth[ports, row][row != IDLE].sum()))
    else:
        asked = worth.copy()
        if must is not None:
            asked[must] = 2 * (worth.max(axis=1).sum() + 1)
        rows, columns = linear_sum_assignment(asked, maximize=True)
        found = np.where(asked[rows, columns] > 0, columns, IDLE).astype(np.int32)
    if switching == "per-circuit" or (must is not None and stay[must[0]] != must[1]):
        return found
    kept = worth[ports[on], stay[on]].sum()
    gives = worth[ports, found][found != IDLE].sum()
    return np.asarray(stay if on.any() and gives <= _STAY * kept else found)


def choose_length(rest: Rest, matching: NDArray[np.int32], delay: int) -> int:
    """Hold a matching until a flow is complete, for a delay at least and ten at most."""
    places = zip(range(len(matching)), matching.tolist(), strict=True)
    entries = [rest.queue.look(p, rest.reserved.get(p, 0)) for p in places if p[1] != IDLE]
    ticks = max(min(entry.first for entry in entries if entry.ticks), delay)
    longest = max(entry.ticks for entry in entries)
    return min(ticks, longest, _LONGEST * delay or longest)


class QueuePlan:
    """A plan of the whole queue: its matchings, and how many ticks each is held."""

    def __init__(
        self, fabric: Fabric, delay_s: float, delay: int, limit_s: float | None, any_matching: bool
    ) -> None:
        self._fabric, self._delay_s, self._delay = fabric, delay_s, delay
        self._limit_s, self._any = limit_s, any_matching
        self.forget()

    def forget(self) -> None:
        """Plan anew the next time."""
        self._slots: tuple[NDArray[np.int32], list[int]] | None = None
        self.outdated = True
        """Whether demand has come or gone since."""

    def take_slot(
        self, rest: Rest, held: NDArray[np.int32] | None
    ) -> tuple[NDArray[np.int32], int]:
        """Take the slot of the plan that keeps the most circuits of a matching."""
        matchings, ticks = self.make(rest)
        asked = (matchings != IDLE) & (rest.left[np.arange(len(rest.left)), matchings] > 0)
        kept = asked & (False if held is None else matchings == held)
        goes_on = (kept | ~asked).all(axis=1) & (held is not None)
        first = int(np.lexsort((-kept.sum(axis=1), ~goes_on))[0])
        others = [k for k in range(len(ticks)) if k != first]
        self._slots = (matchings[others], [ticks[k] for k in others]) if others else None
        return matchings[first], ticks[first]

    def make(self, rest: Rest) -> tuple[NDArray[np.int32], list[int]]:
        """Go on as planned, or anew if that is shorter."""
        if not self._any:
            return self._solve(rest)
        if self._slots is not None and not self.outdated:
            return self._slots
        from optmatch.solvers.demands.plans import Plan
        from optmatch.solvers.demands.quick_cover import plan_quickly

        self.outdated = False
        places = list(zip(*np.nonzero(rest.left), strict=True))
        exact = [rest.queue.total(place) - rest.reserved.get(place, 0) for place in places]
        most = max(rest.left.sum(axis=0).max(), rest.left.sum(axis=1).max(), float(self._delay))
        # A line stays below 2^60 units; what is no whole number of them is rounded up.
        unit = max(gcd(self._delay, *exact), ceil(most / 2**60))
        units = np.zeros(rest.left.shape, dtype=np.int64)
        for place, ticks in zip(places, exact, strict=True):
            units[place] = -(-ticks // unit)
        delay = -(-self._delay // unit)
        previous: list[Plan | None] = [None]
        if self._slots is not None:
            held = np.array([-(-ticks // unit) for ticks in self._slots[1]], dtype=np.int64)
            previous.append(Plan(self._slots[0], held))
        limit_s = np.inf if self._limit_s is None else self._limit_s
        plans = [plan_quickly(units, delay, counted_time() + limit_s, old) for old in previous]
        best = min(plans, key=lambda plan: plan.cost(delay))
        return best.matchings, [unit * ticks for ticks in best.ticks.tolist()]

    def _solve(self, rest: Rest) -> tuple[NDArray[np.int32], list[int]]:
        """Plan for a fabric that cannot hold every matching."""
        demand = Demand(self._fabric, rest.left / TICKS_PER_S, delay_s=self._delay_s)
        found = solve(demand, seed=0, time_limit_s=self._limit_s)
        if found.schedule is None:
            raise LimitReached("no plan of the queue was found in time")
        ticks = np.ceil(found.schedule.durations_s * TICKS_PER_S * (1 + 1e-12)).tolist()
        return found.schedule.matchings, [int(length) for length in ticks]
