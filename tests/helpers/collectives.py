"""Collectives done on real numbers, and what is possible at all, by means too simple to err."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from numpy.typing import NDArray

import optmatch as om


def compute(problem: om.Collective, plan: om.CollectivePlan, seed: int = 0) -> bool:
    """Send random whole numbers as a plan says; tell whether all ranks have what they want.

    A chunk is one number. What nobody has is 0, so that copies of nothing would be seen.
    """
    n, chunks = problem.n_ranks, len(plan.chunk_bytes)
    rng = np.random.default_rng(seed)
    own = rng.integers(1, 1 << 30, (n, chunks))
    pieces = max(1, chunks // n)
    owner = {
        "all-gather": np.arange(chunks) // pieces,
        "all-to-all": np.arange(chunks) // n,
        "broadcast": np.full(chunks, problem.root),
    }.get(problem.operation)
    if owner is not None:
        own[np.arange(n)[:, None] != owner] = 0
    has = own.copy()
    for turn in range(plan.n_rounds):
        before = has.copy()
        for _, source, target, chunk, kind in plan.sends[plan.sends[:, 0] == turn].tolist():
            has[target, chunk] = before[source, chunk] + (has[target, chunk] if kind else 0)
    wanted = np.broadcast_to(own.sum(axis=0), has.shape)
    right: NDArray[np.bool_] = has == wanted
    if problem.operation == "reduce-scatter":
        right = right | (np.arange(n)[:, None] != np.arange(chunks) // pieces)
    if problem.operation == "all-to-all":
        right = right | (np.arange(n)[:, None] != np.arange(chunks) % n)
        right = right | (problem.demand.reshape(-1) == 0)
    return bool(right.all())


def fewest_rounds(n_ranks: int, epochs: int) -> int:
    """Find the fewest rounds of an all-gather over so many permutations, by trying all.

    In a round a rank tells the next one of its circuit all that it knows, so that no plan takes
    fewer.
    """
    everyone = (1 << n_ranks) - 1
    ways = list(permutations(range(n_ranks)))
    layer = {(tuple(1 << rank for rank in range(n_ranks)), 0, -1)}
    rounds = 0
    while not any(all(k == everyone for k in known) for known, _, _ in layer):
        rounds += 1
        following = set()
        for known, used, held in layer:
            for number, way in enumerate(ways):
                count = used + (number != held)
                if count <= epochs:
                    told = list(known)
                    for rank, other in enumerate(way):
                        told[other] |= known[rank]
                    following.add((tuple(told), count, number))
        layer = following
    return rounds
