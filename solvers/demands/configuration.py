"""The bound of the configuration LP: prices of demands that no slot earns faster than time passes.

One variable for each slot that there could be (a duration and a matching), far too many to list:
slots are added as assignments at the current prices find them. Durations are entries of the
demand, since in between nothing but the time of a slot changes its slope.

A *price* is the dual value of one entry: how many ticks of time it is worth to serve one tick of
this demand. A slot *earns* the sum of the prices of what it serves, and *takes* its duration and
one delay. If no slot earns more than it takes, no plan can finish before all demand is earned, so
the sum of price times demand is a lower bound on the completion time (weak duality).

As an example, demands of 3 and 2 ticks leave the same port, with a delay of 1 tick. Prices of 4/3
and 3/2 let the slots of either demand alone earn 4 and 3 ticks, just what they take, and no slot
serves both. The bound is 4 + 3 = 7 ticks: the time of the two slots one after the other.
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
    """Add a certificate to an optimum that only an exhaustive search vouches for, if prices do.

    A search that has refuted all better plans leaves nothing that another program could check, and
    says so in ``stats["bound_by"]``: it names the search, such as ``"cp-sat"``. Here the bound of
    the configuration LP is tried. If it is as high as the objective, its prices become the
    certificate, and ``"bound_by"``, which marks an optimum without one, is taken out.
    """
    problem = solution.problem
    assert isinstance(problem, Demand)
    if "bound_by" not in solution.stats or solution.status is not Status.OPTIMAL:
        return solution

    # An interrupt ends the search for a proof alone: the solution is complete without it.
    try:
        proof = bound_by_prices(problem, clock)
    except (KeyboardInterrupt, TimeUp):
        return solution

    # The bound and the objective are whole ticks times the same tick, so equal numbers compare
    # equal without a tolerance; a lower bound proves less than the search has.
    if proof is None or bound_of(proof, problem) != solution.objective:
        return solution
    stats = {name: value for name, value in solution.stats.items() if name != "bound_by"}
    return replace(solution, certificate=proof, stats=stats)


def bound_by_prices(
    problem: Demand, clock: Clock, matchings: NDArray[np.int32] | None = None
) -> ConfigurationProof | None:
    """Find a proof that no plan serves a demand faster: prices that give a high lower bound.

    With ``matchings[k, port]`` only these can be slots, and a pair is priced once for both
    directions. A slot is a matching of ports that is held for some ticks, after a delay. Each
    entry of the demand gets a price: how many ticks of time one tick of its service is worth. A
    slot earns the prices of all that it serves, and takes its duration and a delay. If no slot
    earns more than it takes, no plan is complete before all demand is earned: the sum of price
    times demand is a lower bound on the time.

    As an example, demands of 3 and 2 ticks leave the same port, and the delay is 1 tick. At prices
    of 4/3 and 3/2 the slot of either demand earns just its time, 4 and 3 ticks: the bound is 7.
    """
    demand = problem.ticks if matchings is None else np.triu(problem.ticks)
    delay = problem.delay_ticks
    rows, columns = np.nonzero(demand)
    if not len(rows):
        return None
    pricing = _Pricing(demand, delay, problem.min_slot_ticks, matchings)
    master = _Master(demand[rows, columns])

    # The first slots serve one entry alone, each to its end: they bound all prices.
    for entry, ticks in enumerate(demand[rows, columns].tolist()):
        served = np.zeros(len(rows))
        served[entry] = ticks
        master.add(served, float(max(ticks, problem.min_slot_ticks) + delay))

    # Column generation, until no slot earns more than it takes.
    best: NDArray[np.float64] | None = None
    best_bound = 0.0
    for _ in range(_MOST_ROUNDS):
        prices_of_entries = master.prices()
        if prices_of_entries is None:
            break

        # Find what earns most at these prices; lowered by its rate, they are a proof.
        prices = np.zeros(demand.shape)
        prices[rows, columns] = prices_of_entries
        slots, worst = pricing.dearest(prices)
        lowered = prices / max(1.0, worst)  # now no slot earns more than it takes
        bound = float((lowered * demand).sum())
        if bound > best_bound:
            best_bound = bound
            best = lowered
        if worst <= 1 + 1e-9 or clock.remaining_s <= 0:
            break
        for duration, matching in slots:
            # A slot serves each of its entries for its duration, or as long as the entry needs.
            served = np.where(
                matching[rows] == columns, np.minimum(duration, demand[rows, columns]), 0
            )
            master.add(served.astype(np.float64), float(duration + delay))
    return None if best is None else _in_units(best, problem)


def bound_of(proof: ConfigurationProof, problem: Demand) -> float:
    """Return the bound that prices prove on the completion time, in seconds.

    If no slot earns more than it takes, then by weak duality no plan is complete before all
    demand, at its price, is earned.
    """
    earned = int((proof.duals * problem.ticks).sum())
    return float(-(-earned // proof.units)) * problem.tick_s


def _in_units(prices: NDArray[np.float64], problem: Demand) -> ConfigurationProof:
    """Turn the prices of a proof into whole numbers, which a checker can add without rounding."""
    # A checker adds price times ticks over n**2 entries, in integers of 64 bits. No time that
    # occurs in such a product is longer than `largest` ticks.
    n = len(prices)
    largest = int(problem.ticks.max()) + problem.delay_ticks + problem.min_slot_ticks

    # As many units as keep n**2 * largest * (greatest price) * units at 2**58 or below, but no
    # more than 2**40 to a tick.
    units = int(min(2**40, 2**58 // (largest * n * n * max(1, int(np.ceil(prices.max()))))))

    # The prices are floating-point numbers, which may be too high by their rounding errors.
    # `_SAFE`, which is 1 - 1e-9, takes off much more than these.
    duals = np.floor(prices * (units * _SAFE)).astype(np.int64)
    return ConfigurationProof(duals=duals, units=max(1, units))


class _Pricing:
    """The pricing step: which slots earn most for their time at given prices."""

    def __init__(
        self,
        demand: NDArray[np.int64],
        delay: int,
        shortest: int,
        matchings: NDArray[np.int32] | None,
    ) -> None:
        """List the durations that matter: those of entries, and the shortest slot."""
        self.demand = demand
        self.delay = delay
        self.matchings = matchings
        self.durations = np.unique(np.maximum(demand[demand > 0], shortest))

    def dearest(
        self, prices: NDArray[np.float64]
    ) -> tuple[list[tuple[int, NDArray[np.int64]]], float]:
        """Find slots that earn more than they take at given prices (column generation's pricing).

        A slot is a matching of sources with destinations that is held for some ticks, after a
        delay. The price of an entry of the demand is how many ticks of time one tick of its
        service is worth. A slot earns the prices of all that it serves, and takes its duration and
        the delay. Its rate is earnings by time; slots of a rate above 1 are wanted.
        """
        slots = []
        worst_rate = 0.0
        for duration in self.durations.tolist():
            # The earnings of each circuit in a slot of this duration, and the time of the slot.
            value = prices * np.minimum(self.demand, duration)
            time = duration + self.delay

            # No matching earns more than the best circuits of all rows, or of all columns. Where
            # that cannot raise the greatest rate, the assignment problem need not be solved.
            most = min(value.max(axis=0).sum(), value.max(axis=1).sum())
            if worst_rate >= 1.0 and most <= worst_rate * time:
                continue
            rows, columns = self._choose(value)
            rate = float(value[rows, columns].sum()) / time
            worst_rate = max(worst_rate, rate)
            if rate > 1 + 1e-9:
                matching = np.where(value[rows, columns] > 0, columns, -1)
                slots.append((rate, duration, matching))
        slots.sort(key=lambda slot: -slot[0])
        dearest = [(duration, matching) for _, duration, matching in slots[:_MOST_DURATIONS]]
        return dearest, worst_rate

    def _choose(self, value: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the matching of the greatest value that there is."""
        if self.matchings is None:
            with uncounted():
                from scipy.optimize import linear_sum_assignment

            assigned: tuple[NDArray[Any], NDArray[Any]] = linear_sum_assignment(value, True)
            return assigned
        ports = np.arange(len(value))
        # A port has no demand for itself: there an idle port earns nothing.
        partners = np.where(self.matchings == IDLE, ports, self.matchings)
        return ports, partners[value[ports, partners].sum(axis=1).argmax()]


class _Master:
    """The linear programme over the slots so far, as its dual: prices are its variables.

    It maximises the sum of price times demand, where each slot earns at most the time it takes.
    """

    def __init__(self, needs: NDArray[np.int64]) -> None:
        """Begin without slots."""
        self.needs = needs.astype(np.float64)
        self.slots: list[NDArray[np.float64]] = []
        self.times: list[float] = []

    def add(self, served: NDArray[np.float64], time: float) -> None:
        """Add a slot."""
        self.slots.append(served)
        self.times.append(time)

    def prices(self) -> NDArray[np.float64] | None:
        """Find the best prices for the slots so far: the dual of the linear programme over them.

        Prices maximise the sum of price times demand such that no slot so far earns more than it
        takes.
        """
        with uncounted():
            from scipy.optimize import linprog
            from scipy.sparse import csr_array

        # All ticks in parts of the longest slot: prices stay the same, and the solver sees no
        # numbers of 1e12.
        longest = max(self.times)
        matrix = csr_array(np.stack(self.slots) / longest)
        times = np.array(self.times) / longest
        optimum = linprog(-self.needs / longest, A_ub=matrix, b_ub=times, method="highs")
        if optimum.x is None:
            return None
        prices: NDArray[np.float64] = np.maximum(optimum.x, 0.0)
        return prices
