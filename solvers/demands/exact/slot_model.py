"""CP-SAT model of a given number of slots, for any demand.

On every line each slot either serves one entry all the time or is idle. So what a line is served
too long and what it idles add up to the sum of the slots less its demand.

The m largest of d entries have at most k - d + m of k slots, so the longest so many last as long
as they need together. The m smallest have at least m slots, so the shortest m together are no
longer than they are, but for what is served too long. These inequalities contain the line bound,
and much more where delays are long.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.demands.plans import Plan


class SlotModel:
    """The variables of k slots, the longest first, that last at most `most` ticks together."""

    def __init__(
        self,
        model: cp_model.CpModel,
        demand: NDArray[np.int64],
        k: int,
        *,
        shortest: int,
        most: int,
    ) -> None:
        self.n, self.model = len(demand), model
        sums = np.maximum.outer(demand.sum(axis=1), demand.sum(axis=0))
        largest = max(int((demand + most - sums)[demand > 0].max()), shortest)
        self.longest = min(largest, most)
        self.ticks = [model.new_int_var(shortest, self.longest, "") for _ in range(k)]
        for longer, shorter in itertools.pairwise(self.ticks):
            model.add(longer >= shorter)
        self.total = model.new_int_var(int(sums.max()), most, "")
        model.add(sum(self.ticks) == self.total)
        pairs = [(int(i), int(j)) for i, j in np.argwhere(demand)]
        self.uses = [{pair: model.new_bool_var("") for pair in pairs} for _ in range(k)]
        self.parts: list[dict[tuple[int, int], cp_model.IntVar]] = [{} for _ in range(k)]
        self.held = {
            pair: self._hold(pair, int(demand[pair]), int(most - sums[pair])) for pair in pairs
        }
        for line in range(self.n):
            for axis, entries in ((0, demand[line]), (1, demand[:, line])):
                if entries.any():
                    self._share([p for p in pairs if p[axis] == line], entries[entries > 0])

    def _hold(self, pair: tuple[int, int], size: int, spare: int) -> cp_model.IntVar:
        """Hold a circuit long enough, over all slots; what is spare on its lines bounds it."""
        model = self.model
        for ticks, uses, parts in zip(self.ticks, self.uses, self.parts, strict=True):
            parts[pair] = self._duration_if(uses[pair], ticks)
        held = model.new_int_var(size, size + spare, "")
        model.add(sum(parts[pair] for parts in self.parts) == held)
        model.add_bool_or([uses[pair] for uses in self.uses])
        return held

    def _duration_if(self, holds: cp_model.IntVar, ticks: cp_model.IntVar) -> cp_model.IntVar:
        """Return what is the duration of a slot if a literal holds, and zero otherwise."""
        part = self.model.new_int_var(0, self.longest, "")
        self.model.add(part == ticks).only_enforce_if(holds)
        self.model.add(part == 0).only_enforce_if(~holds)
        return part

    def _share(self, pairs: list[tuple[int, int]], sizes: NDArray[np.int64]) -> None:
        """Let a port have one circuit or none at a time, and bound its slots by its entries."""
        model, k = self.model, len(self.ticks)
        idle_ticks = []
        for ticks, uses, parts in zip(self.ticks, self.uses, self.parts, strict=True):
            idle = model.new_bool_var("")
            model.add_exactly_one([uses[pair] for pair in pairs] + [idle])
            idle_ticks.append(self._duration_if(idle, ticks))
            model.add(sum(parts[pair] for pair in pairs) + idle_ticks[-1] == ticks)
        model.add(sum(self.held[pair] for pair in pairs) + sum(idle_ticks) == self.total)
        ascending = np.sort(sizes)
        for m, largest in enumerate(np.cumsum(ascending[::-1]).tolist(), start=1):
            model.add(sum(self.ticks[: k - len(pairs) + m]) >= largest)
        for m, smallest in enumerate(np.cumsum(ascending).tolist(), start=1):
            model.add(sum(self.ticks[k - m :]) <= self.total - int(ascending.sum()) + smallest)
        for pair in pairs:  # the others need a slot each
            model.add(sum(uses[pair] for uses in self.uses) <= k - len(pairs) + 1)

    def read(self, outcome: Outcome) -> Plan:
        """Return the plan of a solution."""
        matchings = np.full((len(self.uses), self.n), -1, dtype=np.int32)
        for slot, uses in enumerate(self.uses):
            for (i, j), use in uses.items():
                if outcome.holds(use):
                    matchings[slot, i] = j
        ticks = [outcome.value(ticks) for ticks in self.ticks]
        return Plan(matchings, np.array(ticks, dtype=np.int64))
