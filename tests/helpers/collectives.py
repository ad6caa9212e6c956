"""Collectives done on real numbers, and the best possible ones, by means too simple to err."""

from itertools import permutations

import numpy as np
from numpy.typing import NDArray

import optmatch as om


def compute(problem: om.Collective, plan: om.CollectivePlan, seed: int = 0) -> bool:
    """Send random whole numbers as a plan says; tell whether all ranks have what they want.

    A chunk is one number, or one for each byte between two places where a part begins or ends.
    Data that no rank has are 0, so that copies of nothing would be seen.
    """
    n, chunks = problem.n_ranks, len(plan.chunk_bytes)
    samples = _sample(plan)
    rng = np.random.default_rng(seed)
    own = rng.integers(1, 1 << 30, (n, len(samples)))
    of = np.array([chunk for chunk, _ in samples])
    pieces = max(1, chunks // n)
    owner = {
        "all-gather": of // pieces,
        "all-to-all": of // n,
        "broadcast": np.full(len(of), problem.root),
    }.get(problem.operation)
    if owner is not None:
        own[np.arange(n)[:, None] != owner] = 0
    has = {0: own.copy(), 1: own.copy()}
    places = plan.places if len(plan.places) else np.zeros((len(plan.sends), 2), dtype=int)
    for turn in range(plan.n_rounds):
        before = {place: array.copy() for place, array in has.items()}
        replaced: set[tuple[int, int, int]] = set()
        for row in np.flatnonzero(plan.sends[:, 0] == turn).tolist():
            _, source, target, chunk, kind = plan.sends[row].tolist()
            low, size = plan.parts[row] if len(plan.parts) else (-1.0, np.inf)
            origin, into = places[row].tolist()
            for k in (
                k for k, (c, at) in enumerate(samples) if c == chunk and low <= at < low + size
            ):
                came = before[origin][source, k]
                there = has.setdefault(into, np.zeros_like(own))
                # Kind 3 forgets what was there when the first send of the round comes.
                is_first = kind == 3 and (target, k, into) not in replaced
                replaced.add((target, k, into))
                is_added = kind == 1 or (kind == 3 and not is_first)
                there[target, k] = came + (there[target, k] if is_added else 0)
                if kind == 2:
                    has[0][target, k] += came
    wanted = np.broadcast_to(own.sum(axis=0), own.shape)
    right: NDArray[np.bool_] = has[0] == wanted
    if problem.operation == "reduce-scatter":
        right = right | (np.arange(n)[:, None] != of // pieces)
    if problem.operation == "all-to-all":
        right = right | (np.arange(n)[:, None] != of % n)
        right = right | (problem.demand.reshape(-1)[of] == 0)
    return bool(right.all())


def _sample(plan: om.CollectivePlan) -> list[tuple[int, float]]:
    """List bytes, one of all that are sent alike."""
    if not len(plan.parts):
        return [(chunk, 0.0) for chunk in range(len(plan.chunk_bytes))]
    found = []
    for chunk, size in enumerate(plan.chunk_bytes.tolist()):
        own = plan.parts[plan.sends[:, 3] == chunk]
        ends = np.unique(np.concatenate([[0.0, size], own[:, 0], own.sum(axis=1)]))
        long = np.diff(ends) > 1e-9 * size
        found += [(chunk, at) for at in ((ends[:-1] + ends[1:]) / 2)[long].tolist()]
    return found


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
