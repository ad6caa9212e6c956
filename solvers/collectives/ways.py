"""Paths of blocks over a sequence of circuits, and what they cost.

A *block* is what one rank sends to one other. A *sequence* says which circuits are there:
``sequence[round, lane, rank]`` is to whom a rank transmits in a round over a *lane*, a port of all
ranks; to itself stands for nobody. A path takes circuits of later and later rounds. Circuits have
prices, and the cost of a path is their sum.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

ENOUGH = 4
"""Blocks get longer paths until they have so many."""
MOST = 1_600_000
"""Paths that are listed at most."""
DRAWS = 300
"""Times that paths are drawn."""
KEPT = 5
"""How many paths of a block are kept: those that carry the most."""
NO_LANE = -1
"""In place of a lane: a path waits in this round."""

Sequence = IntArray
"""``sequence[round, lane, rank]``: to whom it transmits; to itself stands for nobody."""


class Paths(NamedTuple):
    """Paths of blocks, by number."""

    block: IntArray
    """``block[path]``: the block that it carries, among those that have bytes, row by row."""
    hop: IntArray
    """Rows of path, round, lane and rank that sends, by path and then by round."""


def list_paths(demand_s: FloatArray, sequence: Sequence, every: bool) -> Paths | None:
    """List paths of each block over a given sequence of circuits, the short ones first.

    The circuits change from round to round. A path takes one circuit in each of some rounds, one
    after another, and waits at a rank in the rounds between. It comes to no rank twice.

    Example: the circuit 0 -> 1 in round 0, and 1 -> 2 and 0 -> 2 in round 1. The block from 0 to 2
    has two paths: directly in round 1, or over rank 1 in both rounds.

    Once a block has `ENOUGH` paths, no longer ones are listed for it, unless `every` path is
    wanted.

    ``demand_s[source, target]`` is the size of the block of each pair of ranks, as the seconds
    that one circuit takes for it. The result is None if some block has no path, or there are more
    paths than `MOST`.
    """
    rounds, lanes, n = sequence.shape
    ranks = np.arange(n)
    wanted = demand_s > 0
    n_paths = np.zeros((n, n), dtype=np.int64)
    number_of_block = np.cumsum(wanted.reshape(-1)).reshape(wanted.shape) - 1
    blocks = [np.empty(0, np.int64)]
    sources = [np.empty(0, np.int64)]
    lanes_of_paths = [np.empty((0, rounds), np.int64)]
    total = 0

    # Paths of 1, 2, ... hops: each choice of rounds and of a lane in each of them is followed from
    # all sources at the same time. Blocks stay open during the paths of one length, so those of
    # equal length are all listed.
    for length in range(1, rounds + 1):
        # Blocks that have too few paths get those of this length. Direct paths are listed for all
        # blocks.
        enough = ENOUGH if length > 1 else 1
        is_open = wanted & (n_paths < enough) | (wanted & every)
        if not is_open.any():
            break
        # `turns` are the rounds of the hops, ascending, and `chosen_lanes` their lanes.
        n_new = np.zeros_like(n_paths)
        for turns in combinations(range(rounds), length):
            for chosen_lanes in product(range(lanes), repeat=length):
                # visited[hop, source]: where the path from each source is after so many hops.
                visited = np.empty((length + 1, n), dtype=np.int64)
                visited[0] = ranks
                lane_of_round = np.full(rounds, NO_LANE)
                for hop, (turn, lane) in enumerate(zip(turns, chosen_lanes, strict=True)):
                    visited[hop + 1] = sequence[turn, lane][visited[hop]]
                    lane_of_round[turn] = lane

                # A path is of use if its block needs it, and it comes to no rank twice.
                is_path = is_open[ranks, visited[-1]]
                for earlier, later in combinations(range(length + 1), 2):
                    is_path &= visited[earlier] != visited[later]

                source = np.flatnonzero(is_path)
                target = visited[-1, source]
                total += len(source)
                n_new[source, target] += 1
                blocks.append(number_of_block[source, target])
                sources.append(source)
                lanes_of_paths.append(np.tile(lane_of_round, (len(source), 1)))
        n_paths += n_new
        if total > MOST:
            return None

    # Every block needs a path.
    if (wanted & (n_paths == 0)).any():
        return None
    block = np.concatenate(blocks)
    return _list_hops(sequence, block, np.concatenate(sources), np.concatenate(lanes_of_paths))


def _list_hops(
    sequence: Sequence, block: IntArray, source: IntArray, lane_of: NDArray[np.integer[Any]]
) -> Paths:
    """List the hops of paths, given from which rank each starts, and over which lane it goes on.

    ``lane_of[path, round]`` is the lane, or `NO_LANE` where the path waits.
    """
    rank = source.copy()
    rows = []
    for turn, lane in enumerate(lane_of.T):
        path = np.flatnonzero(lane != NO_LANE)
        rows.append(np.column_stack([path, np.full(len(path), turn), lane[path], rank[path]]))
        rank[path] = sequence[turn, lane[path], rank[path]]
    hops = np.concatenate(rows)
    return Paths(block, hops[np.argsort(hops[:, 0], kind="stable")])


def draw_paths(demand_s: FloatArray, sequence: Sequence) -> Paths | None:
    """Find a few good paths of each block, which together load the circuits of a round evenly.

    The method is that of Frank and Wolfe. It draws `DRAWS` times the cheapest path of every block,
    at prices that grow exponentially with the loads of circuits. Draw k = 0, 1, ... takes over the
    part 2 / (k + 2) of all blocks: all of them at first, then two thirds, a half, and so on.
    ``demand_s[source, target]`` is the size of each block, as the seconds that one circuit takes
    for it. The result is None if some block has no path.
    """
    rounds, lanes, n = sequence.shape
    source, target = np.nonzero(demand_s)
    n_blocks = len(source)

    # origin[round, lane, rank]: which rank transmits to this one; itself if none does.
    origin = np.broadcast_to(np.arange(n), sequence.shape).copy()
    circuits = np.nonzero(sequence != np.arange(n))  # arrays of round, lane and sender
    origin[*circuits[:2], sequence[circuits]] = circuits[2]

    # A path has a name, by which it is known again: the sum of random numbers of its block and of
    # each of its circuits.
    rng = np.random.default_rng(0)
    block_mark = rng.integers(1 << 62, size=n_blocks)
    lane_mark = rng.integers(1 << 62, size=(rounds, lanes))
    names = np.tile(block_mark, (DRAWS, 1))
    # Hence names[draw, block], and lane_of[draw, round, block], the lanes of the path.
    lane_of = np.full((DRAWS, rounds, n_blocks), NO_LANE, dtype=np.int16)
    price = np.ones(sequence.shape)
    loads = np.zeros(sequence.shape)
    for draw in range(DRAWS):
        # Backwards from the targets: a block came over a circuit of the round if that made its
        # path cheaper, over the lane of the cheapest one.
        cost = find_cheapest_paths(sequence, price)
        if not np.isfinite(cost[-1, source, target]).all():
            return None
        drawn_loads = np.zeros((rounds, lanes * n))
        rank = target.copy()
        for turn in reversed(range(rounds)):
            moved = np.flatnonzero(cost[turn + 1, source, rank] < cost[turn, source, rank])
            senders = origin[turn][:, rank[moved]]  # [lane, moved block]
            costs = cost[turn, source[moved], senders]
            costs += np.take_along_axis(price[turn], senders, axis=1)
            lane = costs.argmin(axis=0)
            rank[moved] = senders[lane, np.arange(len(moved))]
            lane_of[draw, turn, moved] = lane
            names[draw, moved] += lane_mark[turn, lane]
            block_s = demand_s[source[moved], target[moved]]
            drawn_loads[turn] = np.bincount(lane * n + rank[moved], block_s, lanes * n)

        # The price of a circuit is exp(load / smoothing), such that all prices of a round add up
        # to 1 (a softmax). The smoothing falls from draw to draw, from 0.2 to 0.006 times the mean
        # load of the busiest circuits, until in the end almost only the busiest one has a price.
        loads += 2 / (draw + 2) * (drawn_loads.reshape(sequence.shape) - loads)
        longest = loads.max(axis=(1, 2), keepdims=True)
        smoothing = longest.mean() * 0.2 * 0.03 ** (draw / DRAWS)
        price = np.exp((loads - longest) / smoothing)
        price /= price.sum(axis=(1, 2), keepdims=True)

    # Draw number k counts k + 1 times for its paths, as later draws carry more in the end. The
    # heaviest paths of each block are kept, which come first in `order` among those of the block.
    _, first, path_of_draw = np.unique(names, return_index=True, return_inverse=True)
    draw_weight = np.arange(1, DRAWS + 1).repeat(n_blocks)
    weight = np.bincount(path_of_draw.reshape(-1), draw_weight)
    first_draw, block = np.divmod(first, n_blocks)
    order = np.lexsort((-weight, block))
    place_in_block = np.arange(len(order)) - np.searchsorted(block[order], block[order])
    kept = order[place_in_block < KEPT]
    block = block[kept]
    return _list_hops(sequence, block, source[block], lane_of[first_draw[kept], :, block])


def find_cheapest_paths(sequence: Sequence, price: FloatArray) -> FloatArray:
    """Return the costs of the cheapest paths between all ranks before each round, and at the end.

    A path takes one circuit at most in each round, in the order of rounds, and waits in others.
    ``price[round, lane, rank]`` is that of the circuit over which a rank sends. The result
    ``cost[round, source, rank]`` is the sum of the prices up to this round, infinite without a
    path; ``cost[-1]`` has those over all rounds. Cost O(rounds lanes ranks^2).
    """
    rounds, lanes, n = sequence.shape
    cost = np.empty((rounds + 1, n, n))
    cost[0] = np.where(np.eye(n) > 0, 0.0, np.inf)
    for turn, lane in product(range(rounds), range(lanes)):
        if lane == 0:
            cost[turn + 1] = cost[turn]
        # over_circuit[source, rank]: the cost of coming from the rank to its peer in this round.
        peer = sequence[turn, lane]
        over_circuit = cost[turn] + price[turn, lane]
        cost[turn + 1][:, peer] = np.minimum(cost[turn + 1][:, peer], over_circuit)
    return cost
