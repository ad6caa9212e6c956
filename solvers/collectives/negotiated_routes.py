"""Routes of even all-to-alls in given time, over circuits that stay: negotiated congestion.

The time is given as a number of blocks: in each round a circuit may carry a few whole blocks, its
*capacity*, and the capacities of all rounds add up to that number. The method is PathFinder of
McMurchie and Ebeling (1995). Blocks may overuse circuits at first. Those that do are ripped up and
rerouted one by one, over the routes that are cheapest. Overuse costs more from sweep to sweep, and
a circuit that was overused in earlier sweeps stays dearer, so blocks that have another route give
it up to those that have none. The search ends when no circuit is overused.

With level loads as the aim (`level_routes`), the busiest circuits of all rounds carry 8 blocks
between 16 ranks with four ports; capacities are met with 7, where counting says 6.6.

The router is that of `optmatch.solvers.collectives.level_routes`, with loads that count blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optmatch.model import Clock
from optmatch.problems import Collective
from optmatch.solvers.collectives.level_routes import (
    LevelRoutes,
    LoadPrices,
    RoutedBlocks,
    begin_routing,
    reroute_blocks,
)
from optmatch.solvers.collectives.rounds import seconds_of
from optmatch.solvers.collectives.topologies import IntArray

SWEEPS = 60
"""After so many sweeps a search gives up. Between 16 and 64 ranks those that end take 4 to 50;
with twice as many hardly any other ends."""
WHOLE_SWEEPS = 3
"""In so many sweeps at the beginning all blocks are rerouted, then only those that overuse a
circuit. One whole sweep leaves loads so uneven that fewer searches end; six take longer."""
SWEEPS_BEFORE_VERDICT = 7
"""After so many sweeps a search is given up if much is overused."""
MUCH_OVERUSE = 0.03
"""How much that is, as a part of all hops. No search that ended had more than 2.6 %; circuits that
are uneven by nature, as in graphs of de Bruijn, keep 3 to 20 % for ever."""
FIRST_PENALTY = 0.5
"""By how much of itself a price grows for a block over capacity, in the first sweep."""
PENALTY_GROWTH = 1.3
"""The factor of the penalty from sweep to sweep, as in routers of integrated circuits."""
LARGEST_PENALTY = 1000.0
"""The penalty stops to grow here, where overuse costs more than any detour."""
JITTER = 0.3
"""How much is added to a price at random in each sweep, at most; without it blocks that have a
choice between equals would decide alike, sweep for sweep."""
ROUNDS_FOR_HOPS = (2, 3)
"""There are so many rounds for each hop of the farthest blocks, one after another. With one, fewer
searches end; three let some end that two do not, and more none, for up to three times the work."""
SLACKS = (0.0, 0.02, 0.04)
"""By how much the time may exceed that of level loads, one after another until a search ends."""
MOST_LOOKS = 100_000_000
"""Looks at circuits, about a second, after which no other sweep of a search begins."""


class CapacitySearch(NamedTuple):
    """What came of a search for routes that keep the capacities of circuits."""

    routes: LevelRoutes | None
    """The sends of each round, and the bytes of the busiest circuits of all rounds, added up; None
    if no such routes were found."""
    is_hopeless: bool = False
    """Whether so much was overused that some percent more capacity would not help."""


def find_routes_within_capacity(
    problem: Collective, peer: IntArray, distance: IntArray, capacity: IntArray, clock: Clock
) -> CapacitySearch:
    """Route the blocks of an all-to-all so that no circuit carries more than it may in a round.

    ``capacity[round]`` is the most blocks on a circuit, ``peer[lane, rank]`` where a circuit
    leads, -1 for none, and ``distance[destination, rank]`` is in hops. The circuits are the same
    in all rounds. The method is negotiated congestion, which may fail where routes exist.
    """
    # Loads and capacities are in blocks, and no route makes a detour.
    n_rounds = len(capacity)
    source, destination = np.nonzero(problem.demand)
    peer_by_round = np.repeat(peer[None], n_rounds, axis=0)
    sizes = np.ones(len(source))
    blocks = RoutedBlocks(peer_by_round, distance, source, destination, sizes, False)
    routes, search = begin_routing(blocks)
    rng = np.random.default_rng(0)

    overuse_before = np.zeros(routes.load.shape)
    penalty = FIRST_PENALTY
    n_looks = 0
    for sweep in range(SWEEPS):
        if clock.exceeded(0) is not None or n_looks > MOST_LOOKS:
            break
        # A circuit that would not be overused by one block more costs its weight: 1, 1 more for
        # each block over capacity in each sweep before, and a random part. Each block by which it
        # would be overused multiplies this by 1 + penalty.
        weight = 1 + overuse_before + rng.uniform(0, JITTER, size=routes.load.shape)
        most_load = capacity.astype(np.float64)
        prices = LoadPrices(weight, most_load - 1, 1 / np.log1p(penalty), 0.0)
        routes.price[:] = prices.of_loads(routes.load)
        if sweep < WHOLE_SWEEPS:
            most_load[:] = -1.0  # all blocks are rerouted
        order = rng.permutation(len(source))
        n_looks += reroute_blocks(blocks, order, routes, prices, search, most_load)

        overuse = np.maximum(0, routes.load - capacity[:, None, None])
        if not overuse.any():
            busiest_blocks = float(routes.load.max(axis=(1, 2)).sum())
            busiest_bytes = busiest_blocks * float(problem.demand.max())
            return CapacitySearch(LevelRoutes(blocks.list_sends(routes.lane_of), busiest_bytes))
        # Between few ranks single blocks are some percent, which says nothing.
        is_much = overuse.sum() > max(problem.n_ranks, MUCH_OVERUSE * routes.load.sum())
        if is_much and sweep + 1 >= SWEEPS_BEFORE_VERDICT:
            return CapacitySearch(None, is_hopeless=True)
        overuse_before += overuse
        penalty = min(penalty * PENALTY_GROWTH, LARGEST_PENALTY)
    return CapacitySearch(None)


def find_fewest_blocks(
    problem: Collective, peer: IntArray, distance: IntArray, faster_than_s: float, clock: Clock
) -> LevelRoutes | None:
    """Route the blocks of an even all-to-all so that busiest circuits carry as little as possible.

    ``peer[lane, rank]`` is where a circuit leads, -1 for none; ``distance[destination, rank]`` is
    in hops. The mean load of a circuit says how many blocks the busiest circuits of all rounds
    carry at least, added up; with many ports that is less than the hops of the farthest blocks,
    each of which takes a round. The larger one of the two numbers is tried, and then some percent
    more, until routes are found.

    The result is None if no routes were found that are faster than a plan of `faster_than_s`
    seconds.
    """
    mean_blocks = distance.sum() / np.count_nonzero(peer >= 0)
    most_hops = int(distance.max())
    enough = [int(np.ceil(mean_blocks * (1 + slack))) for slack in SLACKS]
    candidates = sorted({max(n_blocks, most_hops) for n_blocks in enough})
    for n_blocks in candidates:
        for rounds_for_hop in ROUNDS_FOR_HOPS:
            # Capacities add up to the blocks, and differ by one at most. A round without capacity
            # would be of no use.
            n_rounds = min(n_blocks, rounds_for_hop * most_hops)
            # More rounds of as many blocks would be slower still.
            if seconds_of(problem, n_rounds, n_blocks * problem.block_bytes) >= faster_than_s:
                break
            capacity = np.diff(np.arange(n_rounds + 1) * n_blocks // n_rounds)
            outcome = find_routes_within_capacity(problem, peer, distance, capacity, clock)
            if outcome.routes is not None or outcome.is_hopeless:
                return outcome.routes
    return None
