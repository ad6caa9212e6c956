"""Random decompositions of a matrix into weighted permutations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import IDLE
from optmatch.solvers.demands.assignment import assign_afresh, new_desk
from optmatch.solvers.demands.plans import Plan, join, serve
from optmatch.solvers.feedforward.router import route_cheaply

_CHOICES = 6  # least entries that are compared for a term
_CLOSED = -1e6


class Decomposer:
    """Random decompositions of one matrix with equal line sums into permutations.

    Parameters
    ----------
    demand
        The matrix, in ticks.
    rng
        Decides what else is free.
    fabric
        Where the permutations are to be held, any of them; None if that does not matter.
    """

    def __init__(
        self, demand: NDArray[np.int64], rng: np.random.Generator, fabric: Fabric | None = None
    ) -> None:
        self.demand, self.fabric = demand, fabric
        self.rng = rng
        self.desk = new_desk(len(demand))
        self.ports = np.arange(len(demand))

    def states(self, plan: Plan) -> NDArray[np.int8] | None:
        """Return the states of all cells in all slots of a decomposition made here."""
        if self.fabric is None or self.fabric.graph is None:
            return None
        return route_cheaply(self.fabric, plan.matchings).states

    def draw(self) -> Plan:
        """Decompose the whole."""
        return self._decompose(self.demand)

    def redraw(self, plan: Plan) -> Plan:
        """Decompose the sum of a few terms anew; `plan` as it was if that needs more of them."""
        slots = len(plan.ticks)
        count = int(self.rng.integers(2, max(3, min(slots, 12)) + 1))
        weights = self.rng.random(slots) * plan.ticks.astype(np.float64) ** self.rng.choice(
            [0.0, 0.5, 1.0]
        )
        order = np.argsort(weights, kind="stable")
        out, kept = order[:count], order[count:]
        new = self._decompose(serve(plan.take(out)), most=len(out))
        return plan if len(new.ticks) > len(out) else join(plan.take(kept), new)

    def _decompose(self, demand: NDArray[np.int64], most: int | None = None) -> Plan:
        """Take terms until nothing is left, or there are more than `most`."""
        rest = demand.copy()
        matchings: list[NDArray[np.int32]] = []
        weights: list[int] = []
        zeros, noise = self.rng.choice([0.02, 0.1, 0.3, 1.0]), self.rng.choice([0.1, 1.0, 3.0])
        while rest.any() and (most is None or len(weights) <= most):
            matching = self._term(rest, float(zeros), float(noise))
            held = np.flatnonzero(matching != IDLE)
            weight = int(rest[held, matching[held]].min())
            rest[held, matching[held]] -= weight
            matchings.append(matching)
            weights.append(weight)
        return Plan.of(matchings, weights, len(demand))

    def _term(self, rest: NDArray[np.int64], zeros: float, noise: float) -> NDArray[np.int32]:
        """Choose a permutation: its least entry, against the entries that it makes zero."""
        sizes = np.unique(rest[rest > 0])
        low, high = 0, len(sizes) - 1  # of the greatest least entry that a permutation can have
        while low < high:
            middle = (low + high + 1) // 2
            if assign_afresh(self.desk, rest >= sizes[middle]) > len(rest) - 0.5:
                low = middle
            else:
                high = middle - 1
        top = sizes[low]
        best, chosen = -1.0, None
        jitter = self.rng.random(rest.shape) * noise
        for size in sizes[max(0, low + 1 - _CHOICES) : low + 1][::-1]:
            worth = np.where(rest == size, 4.0 + jitter, jitter - rest / sizes[-1])
            assign_afresh(self.desk, np.where(rest >= size, worth, _CLOSED))
            made = int((rest[self.ports, self.desk.column_of] == size).sum())
            score = made * zeros + float(size) / float(top)
            if score > best:
                best, chosen = score, self.desk.column_of.astype(np.int32)
        if chosen is None:
            raise ValueError("the lines of the matrix have different sums")
        return chosen
