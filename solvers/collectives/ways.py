"""Paths of blocks over a sequence of circuits, and circuits that make such paths cheaper.

A *block* is what one rank sends to one other. A *sequence* says which circuits are there:
``sequence[round, lane, rank]`` is to whom a rank transmits in a round over a *lane*, a port of all
ranks; to itself stands for nobody. A path takes circuits of later and later rounds. Circuits have
prices, and the cost of a path is their sum.
"""

from __future__ import annotations

from itertools import combinations, pairwise, product
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
NO_PATH = 99.0
"""The cost of ranks that no path joins; circuits cost less than ten each."""

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


def exchange(
    sequence: Sequence, demand_s: FloatArray, best: Sequence, price: FloatArray
) -> Sequence:
    """Change the circuits of an all-to-all a little, such that data get cheaper paths.

    ``demand_s[source, target]`` is the size of each block, as the seconds that one circuit takes
    for it. ``price[round, lane, rank]`` is a number for each circuit of `best`, high where it is
    busy. `sequence` is `best` itself, or `best` with such changes, as it has no prices of its own.
    Returns a changed copy of the sequence.
    """
    # toll[rank, peer]: what any circuit from one rank to another costs, up or not, by how busy the
    # two ranks are: 2, and 1 more for each of them that sends, or receives, at the mean price.
    n_ranks = best.shape[2]
    sent = price.sum(axis=(0, 1))
    received = np.bincount(best.reshape(-1), price.reshape(-1), n_ranks)
    toll = 2.0 + sent[:, None] / sent.mean() + received / received.mean()
    changed = sequence.copy()

    # Rounds `first` to `last` - 1 have the same circuits. Paths come to these rounds at the costs
    # `before`, and go on at the costs `after`; changes of earlier rounds count already.
    is_first = np.append(True, (np.diff(sequence, axis=0) != 0).any(axis=(1, 2)))
    for first, last in pairwise([*np.flatnonzero(is_first).tolist(), len(sequence)]):
        peer = changed[first, 0]
        tolls = toll[np.arange(n_ranks), changed]
        before = np.minimum(find_cheapest_paths(changed[:first], tolls[:first])[-1], NO_PATH)
        after = np.minimum(find_cheapest_paths(changed[last:], tolls[last:])[-1], NO_PATH)
        gain = _gains_of_exchange(peer, toll, demand_s, before, after)

        # Pairs of ranks that save most exchange their peers; no rank is in two of the pairs.
        for a, b in _choose_exchanges(gain):
            changed[first:last, 0, [a, b]] = changed[first:last, 0, [b, a]]
    return changed


def _choose_exchanges(gain: FloatArray) -> list[tuple[int, int]]:
    """Choose the exchanges that gain most, such that no rank takes part in two of them.

    Gains are counted for one exchange alone, and are less if others are made, too. Exchanges that
    gain less than 0.3 of the best one are therefore not made.

    ``gain[a, b]``: shape (ranks, ranks): what is saved if a and b exchange their circuits.
    """
    n_ranks = len(gain)
    least_gain = 0.3 * gain.max()
    is_taken = np.zeros(n_ranks, dtype=np.bool_)
    chosen: list[tuple[int, int]] = []
    for pair in np.argsort(-gain, axis=None)[:n_ranks].tolist():
        a, b = divmod(pair, n_ranks)
        if gain[a, b] > least_gain and not (is_taken[a] or is_taken[b]):
            chosen.append((a, b))
            is_taken[[a, b]] = True
    return chosen


def _gains_of_exchange(
    peer: IntArray,
    toll: FloatArray,
    demand_s: FloatArray,
    before: FloatArray,
    after: FloatArray,
) -> FloatArray:
    """Return what an all-to-all saves if two ranks exchange the ranks to which they transmit.

    Example: a transmits to c and b to d. After the exchange a transmits to d and b to c. Paths
    over the two old circuits are lost, and two new circuits can be used.

    ``peer[rank]`` is the rank to which a rank transmits at present. ``toll[rank, peer]`` is the
    price of a circuit between the two, a number without a unit. ``demand_s[source, target]`` is
    the size of each block, as the seconds that one circuit takes for it. ``before[source, rank]``
    is the price of the cheapest path from a source that is at the rank when these circuits begin;
    `NO_PATH`, a large number, if there is none. ``after[rank, target]`` is the price from a rank
    on to a target, when these circuits have ended. The result ``gain[a, b]`` is for a < b: the
    fall of the price of each block times its seconds, added up over all blocks; less than 0 if
    they lose.
    """
    # `without[source, target]` is the price of the cheapest path over none of these circuits.
    n = len(peer)
    without = np.minimum.reduce(before[:, :, None] + after[None], axis=1, initial=NO_PATH)
    to_rank = before.T  # to_rank[rank, source]

    # `over_circuit[rank, source, target]` is the price of the cheapest path over the circuit of a
    # rank. For each block the three best circuits are kept, as two of them may be exchanged:
    # `order[place, source, target]` has their ranks, and `cheapest` their prices, or that of a
    # path over none of them if it is less.
    over_circuit = to_rank[:, :, None] + (
        toll[np.arange(n), peer][:, None, None] + after[peer][:, None]
    )
    order = np.argpartition(over_circuit, 2, axis=0)[:3]
    by_cost = np.take_along_axis(over_circuit, order, 0).argsort(0)
    order = np.take_along_axis(order, by_cost, 0)
    cheapest = np.minimum(np.take_along_axis(over_circuit, order, axis=0), without)

    gain = np.zeros((n, n))
    for a in range(n - 1):
        # The price of the cheapest path of each block without the circuit of a: the first of the
        # three, or the second one if a is first. If b has that circuit, it is lost, too, and the
        # next one of the three is the cheapest: the third one if a is first or second.
        a_is_first = order[0] == a
        a_is_second = order[1] == a
        without_a = np.where(a_is_first, cheapest[1], cheapest[0])
        without_both = np.where(a_is_first | a_is_second, cheapest[2], cheapest[1])
        best_but_a = np.where(a_is_first, order[1], order[0])
        b = np.arange(a + 1, n)
        cost = np.where(best_but_a == b[:, None, None], without_both, without_a)
        # Or the path takes a new circuit, from a to the peer of b, or from b to the peer of a. All
        # b are treated at the same time, along the first axis of `cost`.
        for rank, new_peer in ((np.full(len(b), a), peer[b]), (b, np.full(len(b), peer[a]))):
            onward = toll[rank, new_peer][:, None, None] + after[new_peer][:, None]
            cost = np.minimum(cost, to_rank[rank][:, :, None] + onward)
        gain[a, b] = ((cheapest[0] - cost) * demand_s).sum(axis=(1, 2))
        gain[a, b[(peer[b] == a) | (peer[a] == b)]] = 0.0  # a rank would face itself
    return gain
