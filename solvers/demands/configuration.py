"""The bound of the configuration LP: prices of demands that no slot earns faster than time passes.

One variable for each slot that there could be (a duration and a matching), far too many to list:
slots are added as assignments at the current prices find them. Durations are entries of the
demand, since in between nothing but the time of a slot changes its slope.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Clock, Solution, Status, TimeUp, uncounted
from optmatch.problems import ConfigurationProof, Demand

_SAFE = 1 - 1e-9  # prices are lowered by this, so that rounding cannot make them too high
_MOST_ROUNDS = 200  # linear programmes
_MOST_DURATIONS = 64  # beyond this number durations are tried in turn


def certify(solution: Solution, clock: Clock) -> Solution:
    """Replace a search's word for an optimum by prices, where they prove as much."""
    problem = solution.problem
    assert isinstance(problem, Demand)
    if "bound_by" not in solution.stats or solution.status is not Status.OPTIMAL:
        return solution
    try:
        proof = bound_by_prices(problem, clock)
    except (KeyboardInterrupt, TimeUp):
        return solution
    if proof is None or bound_of(proof, problem) != solution.objective:
        return solution
    stats = {name: value for name, value in solution.stats.items() if name != "bound_by"}
    return replace(solution, certificate=proof, stats=stats)


def bound_by_prices(
    problem: Demand, clock: Clock, matchings: NDArray[np.int32] | None = None
) -> ConfigurationProof | None:
    """Find prices whose bound is as high as column generation gets in the time that there is.

    The problem is one plane that stops as a whole, without packets. `matchings` are those that
    there are, of bidirectional ports; None for all permutations. Prices are valid whenever the
    clock ends the search; None if nothing better than zero was found.
    """
    demand = problem.ticks if matchings is None else np.triu(problem.ticks)
    delay = problem.delay_ticks
    rows, columns = np.nonzero(demand)
    if not len(rows):
        return None
    pricing = _Pricing(demand, delay, problem.min_slot_ticks, matchings)
    master = _Master(demand[rows, columns])
    for k in range(len(rows)):
        alone = np.zeros(len(rows))
        alone[k] = demand[rows[k], columns[k]]
        master.add(alone, float(max(alone[k], problem.min_slot_ticks) + delay))
    best: NDArray[np.float64] | None = None
    value = 0.0
    for _ in range(_MOST_ROUNDS):
        prices = np.zeros(demand.shape)
        prices[rows, columns] = master.prices()
        slots, worst = pricing.dearest(prices)
        lowered = prices / max(1.0, worst)  # now no slot earns more than it takes
        if (lowered * demand).sum() > value:
            value, best = float((lowered * demand).sum()), lowered
        if worst <= 1 + 1e-9 or clock.remaining_s <= 0:
            break
        for duration, matching in slots:
            held = np.where(
                matching[rows] == columns, np.minimum(duration, demand[rows, columns]), 0
            )
            master.add(held.astype(np.float64), float(duration + delay))
    return None if best is None else _in_units(best, problem)


def bound_of(proof: ConfigurationProof, problem: Demand) -> float:
    """Return what prices show, in the unit of the objective."""
    earned = int((proof.duals * problem.ticks).sum())
    return float(-(-earned // proof.units)) * problem.tick_s


def _in_units(prices: NDArray[np.float64], problem: Demand) -> ConfigurationProof:
    """Round prices down to integers, small enough that a checker needs no more than 64 bits."""
    n = len(prices)
    largest = int(problem.ticks.max()) + problem.delay_ticks + problem.min_slot_ticks
    units = int(min(2**40, 2**58 // (largest * n * n * max(1, int(np.ceil(prices.max()))))))
    duals = np.floor(prices * (units * _SAFE)).astype(np.int64)
    return ConfigurationProof(duals=duals, units=max(1, units))


class _Pricing:
    """Which slots earn most at given prices."""

    def __init__(
        self,
        demand: NDArray[np.int64],
        delay: int,
        shortest: int,
        matchings: NDArray[np.int32] | None,
    ) -> None:
        self.demand, self.delay, self.matchings = demand, delay, matchings
        self.durations = np.unique(np.maximum(demand[demand > 0], shortest))

    def dearest(
        self, prices: NDArray[np.float64]
    ) -> tuple[list[tuple[int, NDArray[np.int64]]], float]:
        """List the slots that earn more than their time: the pricing step of column generation.

        For each duration the matching of greatest price is chosen: by an assignment problem, or
        from `matchings` where the fabric holds no others. A bound from the best circuits of rows
        or columns spares most of them.

        Parameters
        ----------
        prices
            ``prices[source, destination]``: the dual price of a tick of service.

        Returns
        -------
        tuple of (slots, rate)
            At most `_MOST_DURATIONS` slots as (ticks, matching), the greatest rate first; and the
            greatest rate of all, earnings divided by duration and delay, 0 if nothing earns.
        """
        found, worst = [], 0.0
        for duration in self.durations.tolist():
            value = prices * np.minimum(self.demand, duration)
            time = duration + self.delay
            most = min(value.max(axis=0).sum(), value.max(axis=1).sum())
            if worst >= 1.0 and most <= worst * time:
                continue
            rows, columns = self._choose(value)
            rate = float(value[rows, columns].sum()) / time
            worst = max(worst, rate)
            if rate > 1 + 1e-9:
                matching = np.where(value[rows, columns] > 0, columns, -1)
                found.append((rate, duration, matching))
        found.sort(key=lambda slot: -slot[0])
        return [(duration, matching) for _, duration, matching in found[:_MOST_DURATIONS]], worst

    def _choose(self, value: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return rows and columns of the dearest matching that there is."""
        if self.matchings is None:
            with uncounted():
                from scipy.optimize import linear_sum_assignment

            assigned: tuple[NDArray[Any], NDArray[Any]] = linear_sum_assignment(value, True)
            return assigned
        ports = np.arange(len(value))
        far = np.where(self.matchings == IDLE, ports, self.matchings)  # no demand of its own
        return ports, far[value[ports, far].sum(axis=1).argmax()]


class _Master:
    """The linear programme over the slots so far, as its dual: prices are its variables."""

    def __init__(self, needs: NDArray[np.int64]) -> None:
        self.needs = needs.astype(np.float64)
        self.slots: list[NDArray[np.float64]] = []
        self.times: list[float] = []

    def add(self, held: NDArray[np.float64], time: float) -> None:
        """Add a slot by what it carries and the time that it takes."""
        self.slots.append(held)
        self.times.append(time)

    def prices(self) -> NDArray[np.float64]:
        """Solve for the prices."""
        with uncounted():
            from scipy.optimize import linprog
            from scipy.sparse import csr_array

        matrix = csr_array(np.stack(self.slots))
        found = linprog(-self.needs, A_ub=matrix, b_ub=np.array(self.times), method="highs")
        prices: NDArray[np.float64] = np.maximum(found.x, 0.0)
        return prices
