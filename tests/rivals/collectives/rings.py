"""Rivals over rings and paths whose circuits never change, and over tori."""

import math

import optmatch as om
from tests.rivals.collectives.costs import padded, phases, ring_pairs, round_s


def ring_s(problem: om.Collective) -> float:
    """Time the usual one-way ring, of which all ports of a rank are one side."""
    n, lanes, size = problem.n_ranks, problem.lanes, problem.size_bytes
    if problem.two_way or problem.operation == "all-to-all":
        return math.inf
    if problem.operation == "broadcast":
        return min(
            (n - 2 + pieces) * round_s(problem, padded(problem, size / pieces) / lanes)
            for pieces in range(1, 65)
        )
    return phases(problem) * (n - 1) * round_s(problem, padded(problem, size / n) / lanes)


def duplex_ring_s(problem: om.Collective) -> float:
    """Time rings that are used both ways: each direction of each ring has its part of the data."""
    n, size, directions = problem.n_ranks, problem.size_bytes, 2 * ring_pairs(problem)
    if not directions or n < 3 or problem.operation == "all-to-all":
        return math.inf
    if problem.operation == "broadcast":
        return min(
            (n - 2 + pieces) * round_s(problem, padded(problem, size / pieces / directions))
            for pieces in range(1, 65)
        )
    chunk_bytes = padded(problem, size / n / directions)
    return phases(problem) * (n - 1) * round_s(problem, chunk_bytes)


def duplex_path_s(problem: om.Collective) -> float:
    """Time a path of ranks whose originals travel both ways, or whose pieces are pipelined."""
    n, size = problem.n_ranks, problem.size_bytes
    if not problem.two_way or problem.lanes < 2 or n < 3:
        return math.inf
    bundles = problem.lanes // 2
    if problem.operation == "all-reduce":
        return (n - 1) * round_s(problem, padded(problem, size) / bundles)
    if problem.operation == "broadcast" and problem.root == 0:
        return min(
            (n - 2 + pieces) * round_s(problem, padded(problem, size / pieces) / bundles)
            for pieces in range(1, 65)
        )
    return math.inf


def windowed_ring_s(problem: om.Collective) -> float:
    """Time the best windowed ring: g roots a chunk take n + n/g - 2 rounds of g/n of a buffer."""
    n, size = problem.n_ranks, problem.size_bytes
    if problem.two_way or problem.operation != "all-reduce" or n < 2:
        return math.inf
    return min(
        (n + n // roots - 2) * round_s(problem, padded(problem, size * roots / n) / problem.lanes)
        for roots in range(1, n + 1)
        if n % roots == 0
    )


def torus_s(problem: om.Collective) -> float:
    """Time an all-reduce over a torus: half of the buffer takes rows first, half columns first.

    One half of the ports leads along rows, the other along columns. Originals are passed on.
    """
    n, half = problem.n_ranks, problem.lanes // 2
    if problem.operation != "all-reduce" or problem.two_way or not half:
        return math.inf
    rows = next(side for side in range(math.isqrt(n), 0, -1) if n % side == 0)
    if rows == 1:
        return math.inf
    rounds = 2 * (n // rows - 1)  # both halves wait for the longer side
    return rounds * round_s(problem, padded(problem, problem.size_bytes / 2) / half)
