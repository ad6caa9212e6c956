"""Level routes of all-to-alls over circuits that stay: rip-up and reroute by prices.

Every block takes a way of its own through a fixed number of rounds. In each round it takes one
circuit or waits. The time is the sum, over all rounds, of the bytes on the busiest circuit. Blocks
are ripped up and rerouted one by one, over the way whose circuits are cheapest. The price of a
circuit in a round grows exponentially with its load (softmax of the loads of the round), more
steeply from sweep to sweep: multiplicative weights, as in the method of Garg and Koenemann (1998)
for flows of many commodities, but with blocks that are not split.

A *block* is what one rank sends to one other. A *lane* is a port of a rank on some plane. A *way*
says for each round over which lane a block leaves its rank, or that it waits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock
from optmatch.problems import Collective
from optmatch.solvers.collectives.topologies import IntArray
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

FloatArray = NDArray[np.float64]

WAITS = -1
"""In place of a lane: the block stays where it is in this round."""
NOT_ROUTED = -2
"""In place of the first lane of a way: the block has no way yet."""
SWEEPS = 14
"""How often all blocks are rerouted. Half as many leave circuits of 64 ranks 2 % more uneven,
twice as many 0.5 % less."""
FIRST_SMOOTHING = 0.3
"""The smoothing of the first sweep, in mean loads of a circuit: prices grow by e for so much."""
LAST_SMOOTHING = 0.03
"""The smoothing of the last sweep. With half or twice of it loads are up to 1 % more uneven."""
JITTER = 0.2
"""By how much of itself a price is changed at random in each sweep. Half and twice of it leave
circuits up to 1 % more uneven."""
MOST_EXPONENT = 60.0
"""Loads far above the mean have this exponent of the price at most, so that it stays finite."""
MOST_STEPS = 400_000_000
"""Looks at circuits, about two seconds, after which no other sweep begins."""
BLOCKS_BETWEEN_LOOKS_AT_CLOCK = 4096
"""So many blocks are rerouted before the clock is looked at again. For 1,024 ranks with four
two-way ports they take 20 ms, and a whole sweep 5 s; each look costs microseconds."""
LEVEL = 1.01
"""Routes whose time is so near the mean of all circuits are not improved."""


class RoutedBlocks(NamedTuple):
    """The blocks of an all-to-all, and the circuits that they can take."""

    peer: IntArray
    """``peer[lane, rank]``: the rank to which a port leads, -1 if it is dark."""
    distance: IntArray
    """``distance[destination, rank]``: the fewest hops from a rank to a destination."""
    source: IntArray
    """``source[block]``: the rank that sends the block."""
    destination: IntArray
    """``destination[block]``: the rank that receives it in the end."""
    n_bytes: FloatArray
    """``n_bytes[block]``: its bytes."""
    may_go_farther: bool = True
    """Whether a way may take a circuit that leads farther from the destination."""


class Ways(NamedTuple):
    """The ways of all blocks, and what they put on circuits."""

    lane_of: NDArray[np.int16]
    """``lane_of[block, round]``: the lane that the block takes, or `WAITS`; `NOT_ROUTED` in the
    first round of a block without a way."""
    load: FloatArray
    """``load[round, lane, rank]``: the bytes on the circuit of a port in a round."""
    price: FloatArray
    """``price[round, lane, rank]``: what a byte on this circuit costs."""


class LoadPrices(NamedTuple):
    """How loads become prices in a sweep; arrays have shape (rounds,) unless said."""

    reference: FloatArray
    """The load at which the exponent is 0, in bytes: the largest load when the sweep began."""
    smoothing: FloatArray
    """The bytes by which a load has to grow for its price to grow by the factor e."""
    total: FloatArray
    """The sum of the exponentials of all circuits when the sweep began."""
    factor: FloatArray
    """``factor[round, lane, rank]``: a random factor of the price near 1, shape (rounds, lanes,
    ranks). Without it blocks that have a choice between equals would all decide alike."""


class WaySearch(NamedTuple):
    """Scratch of `find_cheapest_way`: what is known of each rank before each round.

    Rounds count from 0, and one more entry is for the end: arrays have shape (rounds + 1, ranks),
    `n_reached` has shape (rounds + 1,).
    """

    cost: FloatArray
    """``cost[round, rank]``: the price of the cheapest way to a rank; infinite if unknown."""
    lane_to: NDArray[np.int16]
    """``lane_to[round, rank]``: the lane over which that way came in the round before, `WAITS` if
    it was at the rank already."""
    rank_before: IntArray
    """``rank_before[round, rank]``: where that way was one round before."""
    reached: IntArray
    """``reached[round, place]``: the ranks that some way reaches, in any order."""
    n_reached: IntArray
    """``n_reached[round]``: how many these are."""


@inner_kernel
def _change_load(ways, prices, circuit, n_bytes):
    """Add bytes to the load of one circuit in one round, and set its new price."""
    round_index, lane, rank = circuit
    ways.load[round_index, lane, rank] += n_bytes
    above_bytes = ways.load[round_index, lane, rank] - prices.reference[round_index]
    exponent = min(above_bytes / prices.smoothing[round_index], MOST_EXPONENT)
    price = np.exp(exponent) / prices.total[round_index]
    ways.price[round_index, lane, rank] = price * prices.factor[round_index, lane, rank]


@inner_kernel
def _reach_rank(search, round_index, rank, cost, lane, rank_before):
    """Note a way that is at a rank before a round, if it is cheaper than the one that is known.

    Changes ``search.cost``, ``lane_to`` and ``rank_before`` at ``[round_index, rank]``, and adds a
    rank that is new in the round to ``search.reached``.
    """
    if search.cost[round_index, rank] == np.inf:
        search.reached[round_index, search.n_reached[round_index]] = rank
        search.n_reached[round_index] += 1
    if cost < search.cost[round_index, rank]:
        search.cost[round_index, rank] = cost
        search.lane_to[round_index, rank] = lane
        search.rank_before[round_index, rank] = rank_before


@inner_kernel
def find_cheapest_way(blocks, block, ways, search):
    """Find the cheapest way of one block of data to its destination, in a fixed number of rounds.

    Writes ``ways.lane_of[block, round]``, and returns how many circuits were looked at. In each
    round the block goes over one circuit, at the price that this circuit has in the round, or
    waits, which costs nothing. The method is dynamic programming: round by round, the cheapest way
    to each rank that can be reached is found. Ranks that are too far from the destination for the
    rounds that are left are not looked at. ``search.cost`` has to be infinite everywhere, and is
    so again afterwards.
    """
    n_lanes = blocks.peer.shape[0]
    n_rounds = ways.lane_of.shape[1]
    destination = blocks.destination[block]
    n_looks = 0
    search.n_reached[:] = 0
    _reach_rank(search, 0, blocks.source[block], 0.0, WAITS, blocks.source[block])
    for round_index in range(n_rounds):
        # From each rank that some way reaches before the round, the block waits or takes a lane.
        n_rounds_left = n_rounds - round_index - 1
        for place in range(search.n_reached[round_index]):
            rank = search.reached[round_index, place]
            cost = search.cost[round_index, rank]
            if blocks.distance[destination, rank] <= n_rounds_left:
                _reach_rank(search, round_index + 1, rank, cost, WAITS, rank)
            most_hops_left = n_rounds_left
            if not blocks.may_go_farther:
                most_hops_left = min(n_rounds_left, blocks.distance[destination, rank])

            # Over a lane, at its price, to a rank that is still near enough.
            for lane in range(n_lanes):
                peer = blocks.peer[lane, rank]
                if peer >= 0 and blocks.distance[destination, peer] <= most_hops_left:
                    over_lane = cost + ways.price[round_index, lane, rank]
                    _reach_rank(search, round_index + 1, peer, over_lane, lane, rank)
            n_looks += n_lanes

    # The way is read backwards from the destination. Then the costs that were written, and only
    # these, become infinite again for the next call.
    rank = destination
    for round_index in range(n_rounds, 0, -1):
        ways.lane_of[block, round_index - 1] = search.lane_to[round_index, rank]
        rank = search.rank_before[round_index, rank]
    for round_index in range(n_rounds + 1):
        for place in range(search.n_reached[round_index]):
            search.cost[round_index, search.reached[round_index, place]] = np.inf
    return n_looks


@kernel
def reroute_blocks(blocks, order, ways, prices, search):
    """Reroute blocks of an all-to-all, one after another, each over its cheapest way.

    The bytes of a block are first taken off the circuits of its old way, and then put on those of
    the new one; prices follow.

    `search`: scratch of the search for one way.
    """
    n_rounds = ways.lane_of.shape[1]
    n_looks = 0
    for block in order:
        n_bytes = blocks.n_bytes[block]
        # Take the bytes off the old way, which is followed from the source; then put them on the
        # new one.
        is_routed = ways.lane_of[block, 0] != NOT_ROUTED
        rank = blocks.source[block]
        for round_index in range(n_rounds):
            lane = ways.lane_of[block, round_index]
            if is_routed and lane != WAITS:
                _change_load(ways, prices, (round_index, lane, rank), -n_bytes)
                rank = blocks.peer[lane, rank]

        n_looks += find_cheapest_way(blocks, block, ways, search)
        rank = blocks.source[block]
        for round_index in range(n_rounds):
            lane = ways.lane_of[block, round_index]
            if lane != WAITS:
                _change_load(ways, prices, (round_index, lane, rank), n_bytes)
                rank = blocks.peer[lane, rank]
    return n_looks


class LevelRoutes(NamedTuple):
    """The routes of all blocks of an all-to-all in so many rounds."""

    sends: list[tuple[IntArray, IntArray, IntArray]]
    """By round arrays of senders, receivers and chunks, one entry for each send; a chunk is
    ``source * ranks + destination``."""
    busiest_bytes: float
    """The bytes of the busiest circuit of a round, the sum over all rounds."""


def find_level_routes(
    problem: Collective, peer: IntArray, distance: IntArray, n_rounds: int, clock: Clock
) -> LevelRoutes | None:
    """Route the data of an all-to-all so that all circuits of a round carry about equally much.

    ``peer[lane, rank]`` is where a circuit leads, -1 for none; ``distance[destination, rank]`` is
    in hops. The result is None if there was no time for a whole sweep.
    """
    # At first no block has a way, and no circuit a load. `lane_of[block, round]` is the port over
    # which a block leaves its rank in a round; `load` and `price[round, lane, rank]` are the bytes
    # on a circuit and what a byte on it costs.
    n = problem.n_ranks
    source, destination = np.nonzero(problem.demand)
    blocks = RoutedBlocks(peer, distance, source, destination, problem.demand[source, destination])
    n_blocks = len(source)
    ways = Ways(
        lane_of=np.full((n_blocks, n_rounds), NOT_ROUTED, dtype=np.int16),
        load=np.zeros((n_rounds, *peer.shape)),
        price=np.zeros((n_rounds, *peer.shape)),
    )
    search = new_search(n, n_rounds)
    # The mean bytes on a circuit in a round, if all blocks take shortest ways: each block loads as
    # many circuits as its distance, and a dark port is no circuit.
    mean_load = (distance * problem.demand.T).sum() / np.count_nonzero(peer >= 0) / n_rounds
    rng = np.random.default_rng(0)

    # `smoothing` is by how many bytes more the price of a circuit becomes e times as high. It
    # falls from sweep to sweep, so prices become steeper: first ways are short, then loads are
    # level.
    best_lanes: NDArray[np.int16] | None = None
    best_bytes = np.inf
    n_looks = 0
    for smoothing in mean_load * np.geomspace(FIRST_SMOOTHING, LAST_SMOOTHING, SWEEPS):
        if clock.exceeded(0) is not None or n_looks > MOST_STEPS:
            break
        # The loads of all ways so far make the first prices of the sweep.
        prices = _set_prices(ways, peer, smoothing, rng)
        order = rng.permutation(n_blocks)
        is_cut_off = False
        for first in range(0, n_blocks, BLOCKS_BETWEEN_LOOKS_AT_CLOCK):
            if first > 0 and clock.exceeded(0) is not None:
                is_cut_off = True
                break
            portion = order[first : first + BLOCKS_BETWEEN_LOOKS_AT_CLOCK]
            n_looks += reroute_blocks(blocks, portion, ways, prices, search)
        # In a first sweep that is cut off, some blocks have no way; in a later one, the ways of
        # some blocks are of the sweep before, and loads have not settled.
        if is_cut_off:
            break
        busiest_bytes = float(ways.load.max(axis=(1, 2)).sum())
        if busiest_bytes < best_bytes:
            best_bytes = busiest_bytes
            best_lanes = ways.lane_of.copy()
    if best_lanes is None:
        return None
    return LevelRoutes(list_sends(blocks, best_lanes, n), best_bytes)


def new_search(n_ranks: int, n_rounds: int) -> WaySearch:
    """Allocate the scratch of the search for the cheapest way of a block.

    Returns costs are infinite, which says that no way to a rank is known.
    """
    shape = (n_rounds + 1, n_ranks)
    return WaySearch(
        cost=np.full(shape, np.inf),
        lane_to=np.zeros(shape, dtype=np.int16),
        rank_before=np.zeros(shape, dtype=np.int64),
        reached=np.zeros(shape, dtype=np.int64),
        n_reached=np.zeros(n_rounds + 1, dtype=np.int64),
    )


def _set_prices(
    ways: Ways, peer: IntArray, smoothing: float, rng: np.random.Generator
) -> LoadPrices:
    """Set the prices of all circuits to the softmax of the loads of their round.

    Writes ``ways.price[round, lane, rank]``, the softmax times a random factor near 1, from
    ``ways.load`` of the same shape; `smoothing` is the load in which prices grow by a factor e.
    ``peer[lane, rank]`` is the rank to which a port leads, -1 if it is dark.
    """
    # Dark ports have no load, but must not count in the sum.
    reference = ways.load.max(axis=(1, 2))
    exponentials = np.exp((ways.load - reference[:, None, None]) / smoothing)
    total = (exponentials * (peer >= 0)).sum(axis=(1, 2))
    factor = rng.uniform(1 - JITTER, 1 + JITTER, size=ways.price.shape)
    ways.price[:] = factor * exponentials / total[:, None, None]
    return LoadPrices(reference, np.full(len(reference), smoothing), total, factor)


def list_sends(
    blocks: RoutedBlocks, lane_of: NDArray[np.int16], n_ranks: int
) -> list[tuple[IntArray, IntArray, IntArray]]:
    """List the sends of each round, given over which lane each block leaves its rank.

    ``lane_of[block, round]`` is the lane (a port of every rank) that a block takes, or `WAITS`.

    A round has the ranks that send, those that receive, and the chunks,
    ``source * n_ranks + destination``.
    """
    # rank[block]: where the block is before the round.
    chunk = blocks.source * n_ranks + blocks.destination
    rank = blocks.source.copy()
    sends = list[tuple[IntArray, IntArray, IntArray]]()
    for lane in lane_of.T:
        moved = np.flatnonzero(lane != WAITS)
        receiver = blocks.peer[lane[moved], rank[moved]]
        sends.append((rank[moved], receiver, chunk[moved]))
        rank[moved] = receiver
    return sends
