"""Rivals over graphs of low diameter whose circuits never change: de Bruijn, Kautz, and trees."""

import math

import numpy as np
from numpy.typing import NDArray

import optmatch as om
from tests.rivals.collectives.costs import padded, phases, round_s


def de_bruijn_s(problem: om.Collective) -> float:
    """Time gathers over the generalised de Bruijn graph: x leads to d x, ..., d x + d - 1."""
    n, degree = problem.n_ranks, problem.lanes
    if problem.two_way or degree < 2 or not phases(problem) or n < 3:
        return math.inf
    follows = (degree * np.arange(n)[:, None] + np.arange(degree)) % n
    return phases(problem) * _gather_s(problem, follows)


def kautz_s(problem: om.Collective) -> float:
    """Time gathers over the generalised Kautz graph: x leads to -d x - 1, ..., -d x - d."""
    n, degree = problem.n_ranks, problem.lanes
    if problem.two_way or degree < 2 or not phases(problem) or n < 3:
        return math.inf
    follows = (-degree * np.arange(n)[:, None] - 1 - np.arange(degree)) % n
    return phases(problem) * _gather_s(problem, follows)


def _gather_s(problem: om.Collective, follows: NDArray[np.int64]) -> float:
    """Let each rank take from its sources what it lacks, the rarest first; return the seconds.

    ``follows[rank, port]`` is where the circuits lead. A rank takes about as much from each.
    """
    n = len(follows)
    has = np.eye(n, dtype=bool)
    sources = [np.unique(np.argwhere(follows == rank)[:, 0]) for rank in range(n)]
    sources = [some[some != rank] for rank, some in enumerate(sources)]
    block_bytes = padded(problem, problem.size_bytes / n)
    seconds = 0.0
    for _ in range(n):
        if has.all():
            return seconds
        before = has.copy()
        rarity = before.sum(axis=0)
        most = 0
        for rank in range(n):
            loads = dict.fromkeys(sources[rank].tolist(), 0)
            lacking = np.flatnonzero(~before[rank])
            for block in lacking[np.argsort(rarity[lacking], kind="stable")].tolist():
                owners = [source for source in loads if before[source, block]]
                if owners:
                    source = min(owners, key=lambda each: loads[each])
                    loads[source] += 1
                    has[rank, block] = True
            most = max(most, *loads.values()) if loads else most
        if not most:
            return math.inf
        seconds += round_s(problem, most * block_bytes)
    return math.inf


def tree_s(problem: om.Collective) -> float:
    """Time a broadcast whose pieces are pipelined along a tree, with a child for each port."""
    n, lanes = problem.n_ranks, problem.lanes
    children = lanes - 1 if problem.two_way else lanes
    if problem.operation != "broadcast" or children < 2 or n < 3:
        return math.inf
    depth = 0
    first_of_level = 0
    while first_of_level < n - 1:
        first_of_level = first_of_level * children + children
        depth += 1
    return min(
        (depth + pieces - 1) * round_s(problem, padded(problem, problem.size_bytes / pieces))
        for pieces in range(1, 65)
    )
