"""Rivals whose circuits change: hypercubes, Bruck, circulants, and greedy matchings."""

import math
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import optmatch as om
from tests.rivals.collectives.costs import padded, phases, round_s


def doubling_s(problem: om.Collective) -> float:
    """Time gathers by doubling, over new circuits in each round, and their mirror images."""
    n, lanes = problem.n_ranks, problem.lanes
    if n & (n - 1) or n < 2 or not phases(problem):
        return math.inf
    block_bytes = padded(problem, problem.size_bytes / n)
    rounds_s = [round_s(problem, 2**k * block_bytes / lanes) for k in range(n.bit_length() - 1)]
    changes = phases(problem) * (len(rounds_s) - 1)  # the two halves share the middle circuits
    return phases(problem) * sum(rounds_s) + changes * problem.delay_s


def gossip_pairs_s(problem: om.Collective) -> float:
    """Time gathers in which pairs of a Knoedel graph tell each other all, and mirror images.

    Rank i of the first half meets rank i + 2^k - 1 of the second half, k = 0, 1, ... With an odd
    number of ranks the last one tells rank 0 first, and is told in the end.
    """
    n = problem.n_ranks
    even, block_bytes = n - n % 2, padded(problem, problem.size_bytes / n)
    if not problem.two_way or n < 4 or not phases(problem):
        return math.inf
    half, left = even // 2, np.arange(even // 2)
    pairs = [
        (left, half + (left + 2 ** (k % (even.bit_length() - 1)) - 1) % half)
        for k in range((even - 1).bit_length())
    ]
    if n % 2:
        pairs = [(np.array([0]), np.array([n - 1])), *pairs, (np.array([0]), np.array([n - 1]))]
    knows = np.eye(n, dtype=bool)
    seconds = 0.0
    for first, second in pairs:
        lacks = np.concatenate([knows[second] & ~knows[first], knows[first] & ~knows[second]]).sum(
            axis=1
        )
        seconds += round_s(problem, int(lacks.max()) * block_bytes / problem.lanes)
        knows[first] |= knows[second]
        knows[second] = knows[first]
    assert knows.all()
    return phases(problem) * (seconds + (len(pairs) - 1) * problem.delay_s)


def folded_doubling_s(problem: om.Collective) -> float:
    """Time recursive doubling of whole buffers; ranks beyond a power of two join before."""
    n = problem.n_ranks
    if problem.operation != "all-reduce" or n < 2:
        return math.inf
    rounds = n.bit_length() - 1 + 2 * (n & (n - 1) > 0)
    buffer_bytes = padded(problem, problem.size_bytes) / problem.lanes
    return rounds * round_s(problem, buffer_bytes) + (rounds - 1) * problem.delay_s


def hypercube_broadcast_s(problem: om.Collective) -> float:
    """Time pieces that are pipelined over the dimensions of a hypercube in turn.

    After Johnsson and Ho. There is a change of circuits before each round but the first.
    """
    n, lanes = problem.n_ranks, problem.lanes
    if problem.operation != "broadcast" or n & (n - 1) or n < 2:
        return math.inf
    dimensions = n.bit_length() - 1
    return min(
        (pieces + dimensions - 1)
        * (
            round_s(problem, padded(problem, problem.size_bytes / pieces) / lanes)
            + problem.delay_s
        )
        - problem.delay_s
        for pieces in range(1, 65)
    )


def bruck_s(problem: om.Collective) -> float:
    """Time an even all-to-all by Bruck: blocks go 1, 2, 4, ... places onward."""
    n, lanes = problem.n_ranks, problem.lanes
    if problem.operation != "all-to-all" or problem.demand_bytes is not None or problem.two_way:
        return math.inf
    block_bytes = padded(problem, problem.size_bytes / n)
    distances = np.arange(n)
    powers = [1 << k for k in range((n - 1).bit_length())]
    counts = [int((distances & power > 0).sum()) for power in powers]
    changes_s = (len(powers) - 1) * problem.delay_s
    return changes_s + sum(round_s(problem, count * block_bytes / lanes) for count in counts)


def circulant_s(problem: om.Collective) -> float:
    """Time an even all-to-all over shifts of several ports, in one or two sets of circuits.

    Port p of rank x leads to x + s_p. With one set the shifts are powers of about n^(1/k), with
    two sets the second has the next powers. Blocks take the fewest hops, one in each round.
    """
    n, lanes = problem.n_ranks, problem.lanes
    even = problem.operation == "all-to-all" and problem.demand_bytes is None
    if not even or problem.two_way or lanes > 4 or n < 3:
        return math.inf
    block_bytes = padded(problem, problem.size_bytes / n)
    best_s = math.inf
    for sets, more in product((1, 2), (0, 1)):
        base = max(2, round(n ** (1 / (lanes * sets))) + more)
        shifts = [base**k % n for k in range(lanes * sets)]
        if min(shifts) == 0 or len(set(shifts)) < len(shifts):
            continue
        routes = _fewest_hops(n, shifts)
        if routes is None:
            continue
        seconds = (sets - 1) * problem.delay_s
        for number in range(sets):
            hops = routes[:, number * lanes : (number + 1) * lanes]
            seconds += _time_hops(problem, hops, block_bytes)
        best_s = min(best_s, seconds)
    return best_s


def _fewest_hops(n: int, shifts: list[int]) -> NDArray[np.int64] | None:
    """Return ``hops[offset, shift]`` of shortest routes, ties by the load of shifts."""
    hops: dict[int, NDArray[np.int64]] = {0: np.zeros(len(shifts), dtype=np.int64)}
    loads = np.zeros(len(shifts), dtype=np.int64)
    layer = [0]
    while layer:
        ways: dict[int, list[tuple[int, int]]] = {}
        for offset in layer:
            for k, shift in enumerate(shifts):
                target = (offset + shift) % n
                if target not in hops:
                    ways.setdefault(target, []).append((offset, k))
        for target, choices in ways.items():
            options = [
                hops[offset] + np.eye(len(shifts), dtype=np.int64)[k] for offset, k in choices
            ]
            hops[target] = min(options, key=lambda each: int(((loads + each) ** 2).sum()))
            loads += hops[target]
        layer = list(ways)
    return np.array([hops[offset] for offset in range(n)]) if len(hops) == n else None


def _time_hops(problem: om.Collective, hops: NDArray[np.int64], block_bytes: float) -> float:
    """Time rounds in which each block does one hop, over the shift with least so far."""
    left = hops.copy()
    seconds = 0.0
    while left.any():
        loads = np.zeros(left.shape[1], dtype=np.int64)
        order = np.argsort((left > 0).sum(axis=1), kind="stable")  # who has no choice goes first
        for offset in order.tolist():
            options = np.flatnonzero(left[offset])
            if len(options):
                chosen = options[loads[options].argmin()]
                loads[chosen] += 1
                left[offset, chosen] -= 1
        seconds += round_s(problem, float(loads.max()) * block_bytes)
    return seconds


def greedy_matchings_s(problem: om.Collective) -> float:
    """Time an uneven all-to-all: greedy matchings, and what is left as Bruck does it."""
    if problem.demand_bytes is None or problem.two_way or problem.align_bytes:
        return math.inf
    left = problem.demand_bytes.copy()
    n, rate = len(left), problem.lanes * problem.rate_bytes_per_s
    seconds = 0.0
    best_s: float = _bruck_rest_s(problem, left)
    for k in range(3 * n // 2):
        ways = []
        for part in (1.0, 0.5, 0.25, 0.1):
            capped = np.minimum(left, part * left.max())
            rows, columns = linear_sum_assignment(capped, maximize=True)
            length_s = problem.alpha_s + (problem.hop_s or 0.0) + part * left.max() / rate
            ways.append(
                (capped[rows, columns].sum() / (problem.delay_s + length_s), length_s, part)
            )
        _, length_s, part = max(ways)
        capped = np.minimum(left, part * left.max())
        rows, columns = linear_sum_assignment(capped, maximize=True)
        left[rows, columns] -= capped[rows, columns]
        seconds += length_s + problem.delay_s * (k > 0)
        if not left.any():
            return float(min(best_s, seconds))
        if k % 8 == 7:
            best_s = min(best_s, seconds + problem.delay_s + _bruck_rest_s(problem, left))
    return best_s


def _bruck_rest_s(problem: om.Collective, left: NDArray[np.float64]) -> float:
    """Time what is left of an uneven all-to-all as Bruck does it."""
    n, rate = len(left), problem.lanes * problem.rate_bytes_per_s
    distance = (np.arange(n) - np.arange(n)[:, None]) % n
    at = np.repeat(np.arange(n), n).reshape(n, n)
    fixed_s = problem.alpha_s + (problem.hop_s or 0.0)
    seconds = -problem.delay_s
    for k in range((n - 1).bit_length()):
        moves = distance & (1 << k) > 0
        loads = np.bincount(at[moves], left[moves], n)
        seconds += problem.delay_s + fixed_s + float(loads.max()) / rate
        at[moves] = (at[moves] + (1 << k)) % n
    return seconds
