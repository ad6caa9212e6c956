"""What all rivals of collectives use: the cost of a round, and which ports lead elsewhere."""

import math

import optmatch as om


def round_s(problem: om.Collective, busiest_bytes: float) -> float:
    """Return the seconds of a round whose busiest circuit carries so many bytes."""
    fixed_s = problem.alpha_s + (problem.hop_s or 0.0)
    return fixed_s + busiest_bytes / problem.rate_bytes_per_s


def padded(problem: om.Collective, chunk_bytes: float) -> float:
    """Return the bytes of a chunk with its padding."""
    if not problem.align_bytes:
        return chunk_bytes
    return math.ceil(chunk_bytes / problem.align_bytes - 1e-9) * problem.align_bytes


def phases(problem: om.Collective) -> int:
    """Return how often an operation gathers: twice for an all-reduce, once for its halves."""
    halves = ("all-gather", "reduce-scatter")
    return 2 if problem.operation == "all-reduce" else int(problem.operation in halves)


def ring_pairs(problem: om.Collective) -> int:
    """Return how many duplex rings the two-way ports of a rank make: two ports for each.

    The ports of a ring are on one plane, or on two planes if the ring is even.
    """
    if not problem.two_way:
        return 0
    if problem.n_ranks % 2 == 0:
        return problem.lanes // 2
    return problem.planes * (problem.ports // 2)
