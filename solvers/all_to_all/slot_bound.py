"""A lower bound on the slots of an all-to-all by link prices.

Put a price on every link. A link carries at most one circuit in a slot, so all slots together can
pay each price once a slot, and the pairs pay at least what their cheapest ways cost:

    slots >= sum over pairs of the price of the cheapest way / sum of all prices

The best prices are the dual solution of a fractional packing of routes. They are approached by
multiplicative weights (Plotkin, Shmoys and Tardos 1995, doi 10.1287/moor.20.2.257): links that
many cheapest ways pass become dearer. All prices are whole numbers, so the bound is exact.

For example, if 12 pairs have no way but over one of two links, with the price 1 on these two links
and 0 on all others the pairs pay 12, and the prices add up to 2: there are at least 6 slots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock
from optmatch.problems import AllToAll, RoutingProof
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.routing.pathfinder import FAR, find_route
from optmatch.solvers.routing.router import CellRouter, search_all_ways

_PRICE_SCALE = 1_000_000
"""The dearest link has this price: a bound loses less than a thousandth by rounding."""

_ROUNDS = 150
_FIRST_STEP = 8.0
_STEP_FALL = 0.7
_ROUNDS_PER_STEP = 10
"""A round makes the link in most use dearer by exp(step); the step falls every ten rounds.

Tuned on hexagons of 12x12 with 76 and 20x20 with 128 ports, whose bounds are 92 and 156 then.
Half of the first step gives 91 and 153; a step of 0.3 that falls every fifty rounds gives 78 and
127 after 250 rounds.
"""

QUICK_ROUNDS = 40
"""Rounds that show whether slots are far too few, at a quarter of the time of all rounds.

On 12x12 with 24 ports side by side they give 32 slots, as all rounds do, where counting gives 23.
"""

_SHARE_OF_TIME = 0.4
"""Which part of the time that is left the prices may take."""


class SlotBound(NamedTuple):
    """The fewest slots that link prices allow, and the prices that prove it."""

    slots: int  # no schedule has fewer
    proof: RoutingProof  # the prices of links


@inner_kernel
def _load_way(wiring, space, first, last, link_use):
    """Follow a cheapest way back from its end, and add 1 to ``link_use`` of each of its links."""
    link_use[wiring.link[first]] += 1
    link_use[wiring.link[last]] += 1
    leaving = last
    while space.entered[leaving] != first:
        leaving = wiring.mate[space.entered[leaving]]
        link_use[wiring.link[leaving]] += 1


@kernel
def load_cheapest_ways(wiring, all_ways, space, must_meet, link_use):
    """Load the cheapest ways of all pairs onto the links, and return what they cost together.

    ``must_meet[source, destination]`` says which pairs there are. Writes ``link_use[link]``, how
    many pairs go over each link, from 0. ``space.exit_cost`` has the price of the link behind each
    terminal. `all_ways` is the wiring for searches to all terminals, one for each port that starts
    a pair; pairs without a way are left out.
    """
    for link in range(len(link_use)):
        link_use[link] = 0
    total = np.int64(0)
    n_ports = len(wiring.source)
    for source in range(n_ports):
        starts_any = False
        for destination in range(n_ports):
            starts_any = starts_any or must_meet[source, destination]
        if not starts_any:
            continue

        # One search finds the cheapest ways from this port to all others.
        first = wiring.source[source]
        find_route(all_ways, space, source, 0, space.spare)
        for destination in range(n_ports):
            leaving = wiring.target[destination]
            if must_meet[source, destination] and space.cost[leaving] < FAR:
                total += space.exit_cost[first] + space.cost[leaving]
                _load_way(wiring, space, first, leaving, link_use)
    return total


def bound_slots(
    problem: AllToAll, router: CellRouter, clock: Clock, rounds: int = _ROUNDS
) -> SlotBound | None:
    """Bound the slots of all schedules by prices of links; None if counting proves as much.

    The circuits of one slot share no link, so together they pay each price at most once. All
    circuits of all slots pay at least the cheapest way of each pair of ports. Hence there are at
    least as many slots as these cheapest ways cost in all, divided by the sum of all prices. This
    is the dual of a linear programme, and any prices give a bound.

    The search for good prices is the multiplicative-weights method: links on many cheapest ways
    become dearer. The best prices are a certificate: the bound can be recounted by one search for
    each port.
    """
    # All links have the same weight at first. Prices are the weights in whole numbers, the largest
    # one `_PRICE_SCALE`. After each round the weight of a link grows with its use.
    must_meet = np.zeros((problem.fabric.n_ports,) * 2, dtype=np.bool_)
    must_meet[tuple(problem.pairs.T)] = True
    wiring = router.wiring
    space = router.workspace
    all_ways = search_all_ways(wiring, np.zeros_like(wiring.cell_cost))
    n_links = len(space.use)
    link_use = np.zeros(n_links, dtype=np.int64)
    weights = np.ones(n_links)
    step = _FIRST_STEP
    best_slots = problem.min_slots
    best_prices: NDArray[np.int64] | None = None
    least_remaining_s = clock.remaining_s * (1 - _SHARE_OF_TIME)

    for turn in range(1, rounds + 1):
        if clock.remaining_s <= least_remaining_s and np.isfinite(clock.remaining_s):
            break

        # The price of the cheapest ways of all pairs together, over the sum of all prices, is how
        # many slots are needed.
        prices = np.rint(weights / weights.max() * _PRICE_SCALE).astype(np.int64)
        np.copyto(space.exit_cost, prices[wiring.link])
        paid = int(load_cheapest_ways(wiring, all_ways, space, must_meet, link_use))
        slots = -(-paid // int(prices.sum()))  # rounded up: slots are whole
        if slots > best_slots:
            best_slots = slots
            best_prices = prices

        # Links that many cheapest ways pass become dearer, by smaller steps from time to time.
        weights = weights / weights.max() * np.exp(step * link_use / link_use.max())
        if turn % _ROUNDS_PER_STEP == 0:
            step *= _STEP_FALL
    if best_prices is None:
        return None
    return SlotBound(best_slots, RoutingProof.of_prices(best_prices, infeasible=True))
