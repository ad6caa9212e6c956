"""A bound on all slots of an all-to-all together: prices on links that count once a slot.

All pairs of ports are routed in one linear programme (`columns`), in which each link may be passed
as often as there are slots. Every schedule is a solution of it, hence its bound holds for them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock
from optmatch.problems import AllToAll, RoutingProof
from optmatch.solvers.routing.columns import Master, cost_step
from optmatch.solvers.routing.pathfinder import UNIT
from optmatch.solvers.routing.router import CellRouter

ROUNDS = 60
"""Rounds of pricing; most instances need ten."""

MOST_PRICED = 600_000
"""Pairs times links: larger linear programmes take minutes."""


def refute_again(problem: AllToAll, router: CellRouter, by_terminal: NDArray[np.int64]) -> bool:
    """Tell whether prices found for other faults prove that the fewest slots do not do.

    Most faults are not what a proof is about, so the prices that prove something with them often
    prove it without them too; to see that takes a shortest path for each pair. Prices come by
    terminal, as links may have other numbers than they had.
    """
    pairs = problem.pairs.astype(np.int64)
    slots = problem.min_slots
    master = Master(router, pairs, capacity=slots)
    prices = np.zeros(len(router.workspace.use), dtype=np.int64)
    np.maximum.at(prices, router.wiring.link, by_terminal)
    paid = sum(master.cheapest(k, prices, frozenset(), True)[0] for k in range(len(pairs)))
    return paid > slots * int(prices.sum())


def bound_jointly(
    problem: AllToAll, router: CellRouter, target_cells: float, clock: Clock
) -> tuple[float, RoutingProof | None]:
    """Bound the cells on all routes of a schedule in the fewest slots, by column generation.

    No more than `target_cells`, those of a known schedule, can be proved. The bound is infinite if
    the fewest slots are not enough; the proof is None if prices do not improve on the bound of the
    problem itself, or the linear programme would be too large.
    """
    pairs = problem.pairs.astype(np.int64)
    least = problem.lower_bound()
    if len(pairs) * len(router.workspace.use) > MOST_PRICED:
        return least, None
    step = cost_step(router, pairs)
    master = Master(router, pairs, capacity=problem.min_slots)
    outcome = master.bound({}, target_cells * UNIT - step, clock, rounds=ROUNDS)
    if outcome.prices is None:
        return least, None
    proof = RoutingProof.of_prices(outcome.prices, infeasible=outcome.infeasible)
    if outcome.infeasible:
        return np.inf, proof

    # Totals differ from that of the shortest routes by multiples of `step`: a bound rises to the
    # next one.
    steps = np.ceil((outcome.value - 1e-6 - least * UNIT) / step)
    bound = least + max(0, int(steps)) * step / UNIT
    return (bound, proof) if bound > least else (least, None)
