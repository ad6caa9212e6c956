"""Paths of blocks over a sequence of circuits, and circuits that make such paths cheaper.

A *block* is what one rank sends to one other. A *sequence* says which circuits are there in each
round, and a *step* is one lane (a port of all ranks) of one round. A path takes circuits of later
and later rounds. Circuits have prices, and the cost of a path is their sum.
"""

from __future__ import annotations

from itertools import combinations, pairwise, product
from typing import NamedTuple

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
NO_PATH = 99.0
"""The cost of ranks that no path joins; circuits cost less than ten each."""

Sequence = IntArray
"""``sequence[round, lane, rank]``: to whom it transmits; to itself stands for nobody."""


class Paths(NamedTuple):
    """Paths of blocks, by number."""

    source: IntArray
    """``source[path]``: the rank whose block it carries, where the path begins."""
    target: IntArray
    """``target[path]``: the rank to which the block goes, where the path ends."""
    hop: IntArray
    """Rows of path, round, lane and rank that sends, by path and then by round."""


def list_paths(demand_s: FloatArray, sequence: Sequence, every: bool) -> Paths | None:
    """List paths of each block over a given sequence of circuits, the short ones first.

    The circuits change from round to round. A path takes one circuit in each of some rounds, one
    after another, and waits at a rank in the rounds between. It comes to no rank twice.

    Example: the circuit 0 -> 1 in round 0, and 1 -> 2 and 0 -> 2 in round 1. The block from 0 to 2
    has two paths: directly in round 1, or over rank 1 in both rounds.

    Once a block has `ENOUGH` paths, no longer ones are listed for it.

    ``demand_s[source, target]`` is the size of the block of each pair of ranks, as the seconds
    that one circuit takes for it; shape (ranks, ranks). ``sequence[round, lane, rank]`` is the
    rank to which a rank transmits; its own number stands for nobody. Returns ``source[path]`` and
    ``target[path]``, the ranks at the ends of each path, and ``hop``, an int array of shape (hops,
    4): rows of path, round, lane, and the rank that sends. It is None if some block has no path,
    or there are more paths than `MOST`.
    """
    rounds, lanes, n = sequence.shape
    ranks = np.arange(n)
    wanted = demand_s > 0
    n_paths = np.zeros((n, n), dtype=np.int64)
    ends = [np.empty((0, 2), np.int64)]
    hops = [np.empty((0, 4), np.int64)]
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
                for hop, (turn, lane) in enumerate(zip(turns, chosen_lanes, strict=True)):
                    visited[hop + 1] = sequence[turn, lane][visited[hop]]

                # A path is of use if its block needs it, and it comes to no rank twice.
                is_path = is_open[ranks, visited[-1]]
                for earlier, later in combinations(range(length + 1), 2):
                    is_path &= visited[earlier] != visited[later]

                # Its paths get the next numbers, and a row for each of their hops.
                source = np.flatnonzero(is_path)
                target = visited[-1, source]
                number = total + np.arange(len(source))
                total += len(source)
                n_new[source, target] += 1
                ends.append(np.column_stack([source, target]))
                for hop, (turn, lane) in enumerate(zip(turns, chosen_lanes, strict=True)):
                    same_turn = np.full(len(source), turn)
                    same_lane = np.full(len(source), lane)
                    rank = visited[hop, source]
                    hops.append(np.column_stack([number, same_turn, same_lane, rank]))
        n_paths += n_new
        if total > MOST:
            return None

    # Every block needs a path. Hops are sorted by path, and those of a path by round.
    if (wanted & (n_paths == 0)).any():
        return None
    rows = np.concatenate(hops)
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    source, target = np.concatenate(ends).T
    return Paths(source, target, rows)


class _Draw(NamedTuple):
    """The cheapest path of each block, by the prices of one draw."""

    used: NDArray[np.bool_]
    """``used[step, block]``: whether the path takes a circuit of this step."""
    loads: FloatArray
    """``loads[step, rank]``: the seconds that all paths together put on a circuit."""


class _Steps:
    """A sequence as steps, one for each lane of each round, with the blocks that it carries.

    Parameters
    ----------
    demand_s
        ``demand_s[source, target]``: the block of each pair of ranks, in seconds of a circuit;
        blocks of 0 are left out, and the others numbered row by row.
    sequence
        ``sequence[round, lane, rank]``: to whom a rank transmits; itself stands for nobody.
    """

    def __init__(self, demand_s: FloatArray, sequence: Sequence) -> None:
        """List the lanes of all rounds one after another, and the blocks that have bytes.

        ``demand_s[source, target]`` tells how long one circuit takes for a block, in seconds.
        ``sequence[round, lane, rank]`` tells to whom a rank transmits; itself stands for nobody.
        """
        self.rounds, self.lanes, self.n = sequence.shape
        self.peer = sequence.reshape(-1, self.n)
        """``peer[step, rank]``: to whom a rank transmits; itself stands for nobody."""
        self.source, self.target = np.nonzero(demand_s)
        self.amount_s = demand_s[self.source, self.target]
        """``amount_s[block]``: how long one circuit takes for the block from its source to its
        target, in seconds."""
        self.origins: list[IntArray] = []
        """For each step the ranks that have a circuit to another rank, ascending."""
        self.origin_of = np.zeros_like(self.peer)
        """``origin_of[step, rank]``: which rank transmits to this one; 0 also where none does."""
        for step, peer in enumerate(self.peer):
            origin = np.flatnonzero(peer != np.arange(self.n))
            self.origins.append(origin)
            self.origin_of[step, peer[origin]] = origin

    def draw(self, price: FloatArray) -> _Draw | None:
        """Find the cheapest path of each block, by dynamic programming over rounds.

        A path takes circuits of later and later rounds, at most one in each round, and costs the
        sum of their prices.

        ``price[step, rank]`` is the price of the circuit over which a rank sends. The result
        ``used[step, block]`` tells whether the path of a block takes a circuit of the step, and
        ``loads[step, rank]``, the seconds that all blocks together take on each circuit. It is
        None if some block has no path.
        """
        n_steps = len(self.peer)

        # Forwards: cost[rank, source] is the price of the cheapest path from a source to a rank
        # over all steps until now. improves[step, rank, source]: whether a step made it cheaper.
        cost = np.where(np.eye(self.n) > 0, 0.0, np.inf)
        improves = np.zeros((n_steps, self.n, self.n), dtype=np.bool_)
        before = cost
        for step, origin in enumerate(self.origins):
            # The first lane of a round: all its lanes start from the costs before the round.
            if step % self.lanes == 0:
                before = cost.copy()
            peer = self.peer[step, origin]
            over_circuit = before[origin] + price[step, origin, None]
            improves[step, peer] = over_circuit < cost[peer]
            cost[peer] = np.minimum(cost[peer], over_circuit)
        if not np.isfinite(cost[self.target, self.source]).all():
            return None

        # Backwards from the targets: a block came over the last step that improved its cost, at
        # most one of each round. Steps of a round are tried from where the block is after the
        # round (`rank_after`), since all of them started from the costs before it.
        used = np.zeros((n_steps, len(self.source)), dtype=np.bool_)
        loads = np.zeros((n_steps, self.n))
        rank = self.target.copy()
        rank_after = rank
        may_move = np.ones(len(rank), dtype=np.bool_)

        # From the target backwards: a path comes over the circuit of a step if that makes it
        # cheaper, at most one in each round.
        for step in reversed(range(n_steps)):
            if step % self.lanes == self.lanes - 1:
                rank_after = rank.copy()
                may_move = np.ones(len(rank), dtype=np.bool_)
            moved = np.flatnonzero(may_move & improves[step, rank_after, self.source])
            rank[moved] = self.origin_of[step, rank_after[moved]]
            may_move[moved] = False
            used[step, moved] = True
            loads[step] = np.bincount(rank[moved], self.amount_s[moved], self.n)
        return _Draw(used, loads)

    def list_hops(self, used: NDArray[np.bool_], block: IntArray) -> IntArray:
        """List rows of path, round, lane and rank of paths, of which ``used[step, path]`` tells.

        ``used[step, path]`` tells whether a path takes a circuit of this step, a lane of a round.
        ``block[path]`` is the number of the block that a path carries.
        """
        rank = self.source[block]
        rows = []
        for step, peer in enumerate(self.peer):
            path = np.flatnonzero(used[step])
            turn = np.full(len(path), step // self.lanes)
            lane = np.full(len(path), step % self.lanes)
            rows.append(np.column_stack([path, turn, lane, rank[path]]))
            rank[path] = peer[rank[path]]
        hops = np.concatenate(rows)
        return hops[np.argsort(hops[:, 0], kind="stable")]


def draw_paths(demand_s: FloatArray, sequence: Sequence) -> Paths | None:
    """Find a few good paths of each block, by a search that makes busy circuits dear.

    All blocks together should load the circuits of a round evenly.

    The method is that of Frank and Wolfe. It draws `DRAWS` times the cheapest path of every block.
    A draw number k = 0, 1, ... takes over the part 2 / (k + 2) of all blocks: all of them at
    first, then two thirds, a half, and so on. After each draw the busiest circuits of a round get
    higher prices.

    ``demand_s[source, target]`` is the size of the block of each pair of ranks, as the seconds
    that one circuit takes for it; shape (ranks, ranks). ``sequence[round, lane, rank]`` is the
    rank to which a rank transmits; its own number stands for nobody. The result is None if some
    block has no path.
    """
    steps = _Steps(demand_s, sequence)
    n_steps = len(steps.peer)
    n_blocks = len(steps.source)
    rng = np.random.default_rng(0)

    # Paths of several draws that are equal have to be recognised. Each step (a lane of a round)
    # and each block has a random number, its mark. The sum of the marks of a block and of the
    # steps of its path is the name of the path; equal names are equal paths.
    marks = rng.integers(1 << 62, size=(n_steps + 1, n_blocks), dtype=np.int64)
    step_mark = marks[:-1, 0]
    block_mark = marks[-1]
    names = np.empty((DRAWS, n_blocks), dtype=np.int64)
    used = np.zeros((DRAWS, n_steps, n_blocks), dtype=np.bool_)
    price = np.ones((n_steps, steps.n))
    loads = np.zeros((n_steps, steps.n))
    for number in range(DRAWS):
        drawn = steps.draw(price)
        if drawn is None:
            return None
        used[number] = drawn.used
        names[number] = block_mark + step_mark @ drawn.used

        # The mean of all draws: the new paths carry the part 2 / (number + 2) of all blocks, and
        # those of earlier draws the rest.
        loads += 2 / (number + 2) * (drawn.loads - loads)

        # The price of a circuit is exp(load / smoothing), such that all prices of a round add up
        # to 1 (a softmax). `longest` is the load of the busiest circuit of the round. The
        # smoothing falls from draw to draw, until in the end almost only the busiest circuit has a
        # price.
        longest = loads.reshape(steps.rounds, -1).max(axis=1).repeat(steps.lanes)[:, None]
        smoothing = longest.mean() * 0.2 * 0.03 ** (number / DRAWS)
        price = np.exp((loads - longest) / smoothing)
        price /= price.reshape(steps.rounds, -1).sum(axis=1).repeat(steps.lanes)[:, None]

    # Draw number k counts k + 1 times for its paths, as later draws carry more in the end.
    _, first, path_of_draw = np.unique(names, return_index=True, return_inverse=True)
    draw_weight = np.arange(1, DRAWS + 1).repeat(n_blocks)
    weight = np.bincount(path_of_draw.reshape(-1), draw_weight)
    first_draw, block = np.divmod(first, n_blocks)
    order = np.lexsort((-weight, block))
    place_in_block = np.arange(len(order)) - np.searchsorted(block[order], block[order])
    # `order` has the paths of block 0 first, the heaviest one first, then those of block 1.
    kept = order[place_in_block < KEPT]
    block = block[kept]
    hops = steps.list_hops(used[first_draw[kept], :, block].T, block)
    return Paths(steps.source[block], steps.target[block], hops)


def exchange(
    sequence: Sequence, demand_s: FloatArray, best: Sequence, price: FloatArray
) -> Sequence:
    """Change the circuits of an all-to-all a little, such that data get cheaper paths.

    ``demand_s[source, target]`` is the size of each block, as the seconds that one circuit takes
    for it. ``price[round, lane, rank]`` is a number for each circuit of `best`, high where it is
    busy. Returns a changed copy of the sequence.
    """
    # toll[rank, peer]: what any circuit from one rank to another costs, up or not.
    toll = _toll_of_circuits(best, price)
    changed = sequence.copy()

    # Rounds `first` to `last` - 1 have the same circuits. Paths come to these rounds at the costs
    # `before`, and go on at the costs `after`; changes of earlier rounds count already.
    is_first = np.append(True, (np.diff(sequence, axis=0) != 0).any(axis=(1, 2)))
    for first, last in pairwise([*np.flatnonzero(is_first).tolist(), len(sequence)]):
        peer = changed[first, 0]
        before = _cheapest_paths(changed[:first], toll)
        after = _cheapest_paths(changed[last:], toll)
        gain = _gains_of_exchange(peer, toll, demand_s, before, after)

        # Pairs of ranks that save most exchange their peers; no rank is in two of the pairs.
        for a, b in _choose_exchanges(gain):
            changed[first:last, 0, [a, b]] = changed[first:last, 0, [b, a]]
    return changed


def _toll_of_circuits(best: Sequence, price: FloatArray) -> FloatArray:
    """Set the price of each possible circuit by how busy its two ranks are in the best sequence.

    ``best[round, lane, rank]`` is the rank to which a rank transmits. ``price[round, lane, rank]``
    is the price of each of these circuits, high where it is busy.
    """
    n_ranks = best.shape[2]
    sent = price.sum(axis=(0, 1))
    received = np.bincount(best.reshape(-1), price.reshape(-1), n_ranks)
    toll: FloatArray = 2.0 + sent[:, None] / sent.mean() + received / received.mean()
    return toll


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


def _cheapest_paths(sequence: Sequence, toll: FloatArray) -> FloatArray:
    """Return the costs of the cheapest paths between all ranks over some rounds.

    A path takes one circuit at most in each round, in the order of rounds, and waits in others.

    ``sequence[round, lane, rank]`` tells to whom a rank transmits; itself stands for nobody.
    ``toll[rank, peer]``: what a circuit between the two costs. The result ``cost[source, target]``
    is the sum of the tolls of its circuits; `NO_PATH` without a path.
    """
    n = len(toll)
    cost = np.where(np.eye(n) > 0, 0.0, NO_PATH)
    for peer_of_lane in sequence:
        before = cost.copy()
        for peer in peer_of_lane:
            over_circuit = before + toll[np.arange(n), peer]
            cost[:, peer] = np.minimum(cost[:, peer], over_circuit)
    return cost
