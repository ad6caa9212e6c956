"""Ways of blocks over a sequence of circuits, and circuits that make such ways cheaper."""

from __future__ import annotations

from itertools import combinations, pairwise, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ENOUGH = 4
"""Blocks get longer paths until they have so many."""
MOST = 1_600_000
"""Paths that are listed at most."""
DRAWS, KEPT = 300, 5
"""Times that paths are drawn, and how many of a block are kept: those that carry the most."""

Sequence = NDArray[np.int64]
"""``sequence[round, lane, rank]``: to whom it transmits; to itself stands for nobody."""


class Paths(NamedTuple):
    """Paths of blocks, by number."""

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    hop: NDArray[np.int64]
    """Rows of path, round, lane and rank that sends, by path and then by round."""


def list_paths(demand_s: NDArray[np.float64], sequence: Sequence, every: bool) -> Paths | None:
    """List paths of each block, the short ones first, until it has enough."""
    rounds, lanes, n = sequence.shape
    ranks, wanted = np.arange(n), demand_s > 0
    found = np.zeros((n, n), dtype=np.int64)
    ends, hops, total = [np.empty((0, 2), np.int64)], [np.empty((0, 4), np.int64)], 0
    for length in range(1, rounds + 1):
        open_ = wanted & (found < (ENOUGH if length > 1 else 1)) | (wanted & every)
        if not open_.any():
            break
        more = np.zeros_like(found)
        for turns in combinations(range(rounds), length):
            for chosen in product(range(lanes), repeat=length):
                passed = [ranks]
                for turn, lane in zip(turns, chosen, strict=True):
                    passed.append(sequence[turn, lane][passed[-1]])
                way = np.array(passed)
                fine = open_[ranks, way[-1]]
                for a, b in combinations(range(length + 1), 2):
                    fine &= way[a] != way[b]
                source = np.flatnonzero(fine)
                number = total + np.arange(len(source))
                total += len(source)
                more[source, way[-1, source]] += 1
                ends.append(np.column_stack([source, way[-1, source]]))
                for turn, lane, at in zip(turns, chosen, way[:-1, source], strict=True):
                    told = [np.full(len(source), each) for each in (turn, lane)]
                    hops.append(np.column_stack([number, *told, at]))
        found += more
        if total > MOST:
            return None
    if (wanted & (found == 0)).any():
        return None
    rows = np.concatenate(hops)
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    source, target = np.concatenate(ends).T
    return Paths(source, target, rows)


def draw_paths(demand_s: NDArray[np.float64], sequence: Sequence) -> Paths | None:
    """Draw the cheapest path of each block again and again, by prices that follow the loads.

    Each draw takes a part of all blocks over (the method of Frank and Wolfe); a price is the
    part of a circuit in the length of its round, smoothed less and less.
    """
    rounds, lanes, n = sequence.shape
    steps, rng = rounds * lanes, np.random.default_rng(0)
    ways = sequence.reshape(steps, n)
    ends = [(np.flatnonzero(way != np.arange(n)), way[way != np.arange(n)]) for way in ways]
    back = np.zeros((steps, n), dtype=np.int64)
    for step, (origin, to) in enumerate(ends):
        back[step, to] = origin
    source, target = np.nonzero(demand_s)
    amount = demand_s[source, target]
    marks = rng.integers(1 << 62, size=(steps + 1, len(source)), dtype=np.int64)
    marks[:-1] = marks[:-1, :1]  # of a hop, and of a block
    price, loads = np.ones((steps, n)), np.zeros((steps, n))
    seen, names = np.zeros((DRAWS, steps, len(source)), dtype=np.bool_), []
    for draw in range(DRAWS):
        cost = np.where(np.eye(n) > 0, 0.0, np.inf)  # of a rank, from a source
        took = np.zeros((steps, n, n), dtype=np.bool_)
        for step, (origin, to) in enumerate(ends):
            if step % lanes == 0:
                was = cost.copy()
            other = was[origin] + price[step, origin, None]
            took[step, to] = other < cost[to]
            cost[to] = np.minimum(cost[to], other)
        if not draw and not np.isfinite(cost[target, source]).all():
            return None
        at, name, drawn = target.copy(), marks[-1].copy(), np.zeros((steps, n))
        for step in range(steps - 1, -1, -1):
            if step % lanes == lanes - 1:
                ahead, free = at.copy(), np.ones(len(at), dtype=np.bool_)
            go = np.flatnonzero(free & took[step, ahead, source])
            at[go], free[go], seen[draw, step, go] = back[step, ahead[go]], False, True
            drawn[step] = np.bincount(at[go], amount[go], n)
            name[go] += marks[step, 0]
        names.append(name)
        loads += 2 / (draw + 2) * (drawn - loads)
        long = loads.reshape(rounds, -1).max(axis=1).repeat(lanes)[:, None]
        smooth = long.mean() * 0.2 * 0.03 ** (draw / DRAWS)
        price = np.exp((loads - long) / smooth)
        price /= price.reshape(rounds, -1).sum(axis=1).repeat(lanes)[:, None]
    _, first, same = np.unique(np.array(names), return_index=True, return_inverse=True)
    weight = np.bincount(same.reshape(-1), np.arange(1, DRAWS + 1).repeat(len(source)))
    when, block = np.divmod(first, len(source))
    order = np.lexsort((-weight, block))
    place = np.arange(len(order)) - np.searchsorted(block[order], block[order])
    when, block = when[order][place < KEPT], block[order][place < KEPT]
    at, hops = source[block], []
    for step, way in enumerate(ways):
        go = np.flatnonzero(seen[when, step, block])
        turn = np.full(len(go), step // lanes)
        hops.append(np.column_stack([go, turn, 0 * turn + step % lanes, at[go]]))
        at[go] = way[at[go]]
    rows = np.concatenate(hops)
    return Paths(source[block], target[block], rows[np.argsort(rows[:, 0], kind="stable")])


def exchange(
    sequence: Sequence, demand_s: NDArray[np.float64], best: Sequence, price: NDArray[np.float64]
) -> Sequence:
    """Let circuits of a configuration exchange their ends where blocks then have cheaper ways.

    A circuit costs what its two ports do, by the prices of the best sequence; only those of the
    first lane change.
    """
    n, changed = len(demand_s), sequence.copy()
    sent = price.sum(axis=(0, 1))
    came = np.bincount(best.reshape(-1), price.reshape(-1), n)
    toll = 2.0 + sent[:, None] / sent.mean() + came / came.mean()
    starts = np.flatnonzero(np.append(True, (np.diff(sequence, axis=0) != 0).any(axis=(1, 2))))
    for first, last in pairwise([*starts.tolist(), len(sequence)]):
        way = changed[first, 0]
        before = _cost(changed[:first], toll)
        after = _cost(changed[last:], toll)
        without = np.minimum.reduce(before[:, :, None] + after[None], axis=1, initial=99.0)
        ahead = before.T
        each = ahead[:, :, None] + (toll[np.arange(n), way][:, None, None] + after[way][:, None])
        order = np.argpartition(each, 2, axis=0)[:3]
        order = np.take_along_axis(order, np.take_along_axis(each, order, 0).argsort(0), 0)
        least = np.take_along_axis(each, order, axis=0)
        cheap = np.minimum(least, without)
        gain = np.zeros((n, n))
        for a in range(n - 1):
            mine, next_ = order[0] == a, order[1] == a
            kept = np.where(mine, cheap[1], cheap[0])
            other = np.where(mine | next_, cheap[2], cheap[1])
            whose = np.where(mine, order[1], order[0])
            b = np.arange(a + 1, n)
            now = np.where(whose == b[:, None, None], other, kept)
            for u, v in ((np.full(len(b), a), way[b]), (b, np.full(len(b), way[a]))):
                paid = toll[u, v][:, None, None] + after[v][:, None]
                now = np.minimum(now, ahead[u][:, :, None] + paid)
            gain[a, b] = ((cheap[0] - now) * demand_s).sum(axis=(1, 2))
            gain[a, b[(way[b] == a) | (way[a] == b)]] = 0.0
        fixed = np.zeros(n, dtype=np.bool_)
        for pair in np.argsort(-gain, axis=None)[:n].tolist():
            a, b = divmod(pair, n)
            if gain[a, b] > 0.3 * gain.max() and not (fixed[a] or fixed[b]):
                changed[first:last, 0, [a, b]] = changed[first:last, 0, [b, a]]
                fixed[[a, b]] = True
    return changed


def _cost(sequence: Sequence, toll: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what the cheapest way from each rank to each costs over some rounds."""
    n = len(toll)
    cost = np.where(np.eye(n) > 0, 0.0, 99.0)
    for ways in sequence:
        was = cost.copy()
        for to in ways:
            cost[:, to] = np.minimum(cost[:, to], was + toll[np.arange(n), to])
    return cost
