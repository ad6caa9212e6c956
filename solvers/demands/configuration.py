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
    directions. The result is None if there is no demand, or no solution of the linear programme.
    The search ends with the best prices so far when the time of `clock` is up.
    """
    demand = problem.ticks if matchings is None else np.triu(problem.ticks)
    delay = problem.delay_ticks
    rows, columns = np.nonzero(demand)
    if not len(rows):
        return None
    needs = demand[rows, columns]
    least_durations = np.maximum(needs, problem.min_slot_ticks)

    # The slots of the linear programme: what each serves of all entries, and the time it takes.
    # The first ones serve one entry alone, each to its end: they bound all prices.
    served_by_slot = list(np.diag(needs).astype(np.float64))
    time_of_slot = (least_durations + delay).tolist()

    # Column generation, until no slot earns more than it takes.
    best: NDArray[np.float64] | None = None
    best_bound = 0.0
    for _ in range(_MOST_ROUNDS):
        prices_of_entries = _price_entries(needs, served_by_slot, time_of_slot)
        if prices_of_entries is None:
            break

        # Find what earns most at these prices; lowered by its rate, they are a proof: if a slot
        # that takes 10 ticks earns 12, the rate is 1.2, and all prices are divided by it.
        prices = np.zeros(demand.shape)
        prices[rows, columns] = prices_of_entries
        slots, greatest_rate = _find_dearest_slots(
            prices, demand, np.unique(least_durations).tolist(), delay, matchings
        )
        lowered = prices / max(1.0, greatest_rate)
        bound = float((lowered * demand).sum())
        if bound > best_bound:
            best_bound = bound
            best = lowered
        if greatest_rate <= 1 + 1e-9 or clock.remaining_s <= 0:
            break

        # A slot serves each of its entries for its duration, or as long as the entry needs.
        for duration, matching in slots:
            served = np.where(matching[rows] == columns, np.minimum(duration, needs), 0)
            served_by_slot.append(served.astype(np.float64))
            time_of_slot.append(duration + delay)
    if best is None:
        return None

    # Prices become whole numbers of a unit, of which a tick has `units`, so that a checker can add
    # them without rounding: it adds price times ticks over n**2 entries, in integers of 64 bits.
    # No time that occurs in such a product is longer than `largest` ticks. There are as many units
    # as keep n**2 * largest * (greatest price) * units at 2**58 or below, but no more than 2**40.
    largest = int(problem.ticks.max()) + delay + problem.min_slot_ticks
    most = largest * best.size * max(1, int(np.ceil(best.max())))
    units = int(min(2**40, 2**58 // most))

    # The prices are floating-point numbers, which may be too high by their rounding errors.
    # `_SAFE`, which is 1 - 1e-9, takes off much more than these.
    duals = np.floor(best * (units * _SAFE)).astype(np.int64)
    return ConfigurationProof(duals=duals, units=max(1, units))


def bound_of(proof: ConfigurationProof, problem: Demand) -> float:
    """Return the bound that prices prove on the completion time, in seconds.

    If no slot earns more than it takes, then by weak duality no plan is complete before all
    demand, at its price, is earned.
    """
    earned = int((proof.duals * problem.ticks).sum())
    return float(-(-earned // proof.units)) * problem.tick_s


def _find_dearest_slots(
    prices: NDArray[np.float64],
    demand: NDArray[np.int64],
    durations: list[int],
    delay: int,
    matchings: NDArray[np.int32] | None,
) -> tuple[list[tuple[int, NDArray[Any]]], float]:
    """Find slots that earn more than they take at given prices (column generation's pricing).

    ``prices[source, destination]`` are ticks for a tick of ``demand[source, destination]``;
    `durations`, those that are tried, and `delay` are in ticks. The rate of a slot is what it
    earns, divided by its duration and a delay. Returned are the duration and ``matching[source]``
    of each slot with a rate above 1, the greatest rates first, `_MOST_DURATIONS` at most; and the
    greatest rate of all slots. ``matchings[k, source]`` are those that a slot may have, None for
    all.
    """
    slots = []
    greatest_rate = 0.0
    for duration in durations:
        # The earnings of each circuit in a slot of this duration, and the time of the slot.
        earnings = prices * np.minimum(demand, duration)
        time = duration + delay

        # No matching earns more than the best circuits of all rows, or of all columns. Where that
        # cannot raise the greatest rate, the assignment problem need not be solved.
        most_earned = min(earnings.max(axis=0).sum(), earnings.max(axis=1).sum())
        if greatest_rate >= 1.0 and most_earned <= greatest_rate * time:
            continue
        rows, columns = _match_heaviest(earnings, matchings)
        rate = float(earnings[rows, columns].sum()) / time
        greatest_rate = max(greatest_rate, rate)
        if rate > 1 + 1e-9:
            slots.append((rate, duration, np.where(earnings[rows, columns] > 0, columns, IDLE)))
    slots.sort(key=lambda slot: -slot[0])
    return [
        (duration, matching) for _, duration, matching in slots[:_MOST_DURATIONS]
    ], greatest_rate


def _match_heaviest(
    value: NDArray[np.float64], matchings: NDArray[np.int32] | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return rows and columns of the matching of the greatest value, of all or of those listed.

    The first result has the sources, the second the destination of each, by which
    ``value[source, destination]`` is indexed. ``matchings[k, source]`` are listed, -1 where idle.
    """
    if matchings is None:
        with uncounted():
            from scipy.optimize import linear_sum_assignment

        assigned: tuple[NDArray[Any], NDArray[Any]] = linear_sum_assignment(value, True)
        return assigned

    # A port has no demand for itself: there an idle port earns nothing.
    ports = np.arange(len(value))
    partners = np.where(matchings == IDLE, ports, matchings)
    return ports, partners[value[ports, partners].sum(axis=1).argmax()]


def _price_entries(
    needs: NDArray[np.int64], served_by_slot: list[NDArray[np.float64]], time_of_slot: list[int]
) -> NDArray[np.float64] | None:
    """Find the best prices for some slots: the dual of the linear programme over them.

    ``served_by_slot[slot][entry]``, ``time_of_slot[slot]`` and ``needs[entry]`` are in ticks.
    Prices maximise the sum of price times need such that no slot earns more than its time. None if
    the linear programme has no solution in floats.
    """
    with uncounted():
        from scipy.optimize import linprog
        from scipy.sparse import csr_array

    # All ticks in parts of the longest slot: prices stay the same, and the solver sees no numbers
    # of 1e12.
    longest = float(max(time_of_slot))
    matrix = csr_array(np.stack(served_by_slot) / longest)
    times = np.array(time_of_slot) / longest
    optimum = linprog(-needs / longest, A_ub=matrix, b_ub=times, method="highs")
    return None if optimum.x is None else np.maximum(optimum.x, 0.0)
