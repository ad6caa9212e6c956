"""Rivals that forward data inside rounds, over graphs that stay or over rings that change."""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

import optmatch as om
from tests.rivals.collectives.costs import padded, phases

MOST_RANKS = 256


def forwarding_s(problem: om.Collective) -> float:
    """Time the best of the three graphs, whose circuits never change."""
    n = problem.n_ranks
    if problem.hop_s is None or problem.planes > 1 or not 2 < n <= MOST_RANKS:
        return math.inf
    if problem.demand_bytes is not None:
        return math.inf
    low = next(side for side in range(math.isqrt(n), 0, -1) if n % side == 0)
    graphs: list[tuple[int, ...]] = [(n,), (n // low, low)] if low > 1 else [(n,)]
    if n & (n - 1) == 0:
        graphs.append((2,) * (n.bit_length() - 1))
    return min(_over_graph_s(problem, sides) for sides in graphs)


def _over_graph_s(problem: om.Collective, sides: tuple[int, ...]) -> float:
    """Time the operation over a graph whose sides are rings; each takes a port, or two."""
    ports = sum(2 if problem.two_way and side > 2 else 1 for side in sides)
    bundles = problem.lanes // ports  # parallel circuits of each edge
    if not bundles:
        return math.inf
    size, n = problem.size_bytes, problem.n_ranks
    busiest, longest = _load(problem, sides)

    def exchange_s(chunk_bytes: float, blocks: float, hops: int) -> float:
        sent_s = blocks * padded(problem, chunk_bytes) / bundles / problem.rate_bytes_per_s
        return problem.alpha_s + hops * (problem.hop_s or 0.0) + sent_s

    once_s = exchange_s(size / n, busiest, longest)
    if problem.operation == "all-to-all":
        return once_s
    if problem.operation == "broadcast":
        # The root's first side leads to all ranks that are not its neighbours along the others.
        from_root = [side - 1 if not problem.two_way else side // 2 for side in sides]
        rest = [n // math.prod(sides[: k + 1]) for k in range(len(sides))]
        load = max(count * more for count, more in zip(from_root, rest, strict=True))
        scatter_s = exchange_s(size / n, load, longest)
        return min(exchange_s(size, load, longest), scatter_s + once_s)

    # A gather in two rounds goes along the first side, and then brings all of it along the others.
    gather_s = once_s
    if len(sides) > 1:
        first, first_longest = _load(problem, sides[:1])
        others, others_longest = _load(problem, sides[1:])
        gather_s = exchange_s(size / n, first, first_longest)
        gather_s += exchange_s(size / n, sides[0] * others, others_longest)
    if problem.operation == "all-reduce":
        return min(2 * once_s, exchange_s(size, busiest, longest))
    return min(once_s, gather_s)


def _load(problem: om.Collective, sides: tuple[int, ...]) -> tuple[float, int]:
    """Return the blocks over the busiest circuit if all ranks send to all, and the most hops."""
    offsets = np.indices(sides).reshape(len(sides), -1)
    busiest = 0.0
    most = 0
    for offset, side in zip(offsets, sides, strict=True):
        onward: NDArray[np.int64] = offset
        if problem.two_way:
            onward = np.where(2 * offset <= side, offset, 0)
        busiest = max(busiest, float(onward.sum()))
        most += int(onward.max())
    return busiest, most


def held_rings_s(problem: om.Collective) -> float:
    """Time the best gather over one-way rings that stay for some rounds and forward data in them.

    After each round all offsets that are multiples of its stride are reached, as in doubling with
    the farthest partner first; each stride divides the one before, and the shift of the ring
    divides the stride. All strides and rings are tried, by dynamic programming.
    """
    n = problem.n_ranks
    is_broadcast = problem.operation == "broadcast"
    times = 1 if is_broadcast else phases(problem)
    if problem.hop_s is None or problem.two_way or not times or not 2 < n <= MOST_RANKS:
        return math.inf
    hop_s = problem.hop_s
    chunk_bytes = padded(problem, problem.size_bytes / (1 if is_broadcast else n))
    chunk_s = chunk_bytes / problem.lanes / problem.rate_bytes_per_s

    @cache
    def count(before: int, stride: int) -> tuple[int, int]:
        """Return the longest way and the work of a round: chunks of the root, or places of all."""
        offsets = np.arange(stride, n, stride)
        behind = offsets % before if before else offsets
        work = -(-(before or n) // stride) - 1 if is_broadcast else int(behind.sum())
        return int(behind.max(initial=0)), work

    @cache
    def rest_s(before: int, shift: int) -> float:
        if before == 1:
            return 0.0
        best_s = math.inf
        for stride in range(1, before or n):
            if before % stride:
                continue
            places, work = count(before, stride)
            for ring in range(1, stride + 1):
                if stride % ring == 0 and places:
                    change_s = problem.delay_s if shift and ring != shift else 0.0
                    sent_s = (work if is_broadcast else work / ring) * chunk_s
                    round_s = problem.alpha_s + places / ring * hop_s + sent_s
                    best_s = min(best_s, change_s + round_s + rest_s(stride, ring))
        return best_s

    return times * rest_s(0, 0)
