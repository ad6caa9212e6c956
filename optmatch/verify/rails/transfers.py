"""What collectives in rounds send: who to whom in each round."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import RailJob
from optmatch.problems.rails.training.step import COMPUTE, OPERATIONS

Transfers = list[tuple[int, int, float]]
"""What goes in one round: sender and receiver, by their places, and the part of the size."""


def list_transfers(algorithm: str, kind: str, n: int) -> list[Transfers]:
    """List who has to send what to whom; nothing where a collective goes around a ring."""
    if n < 3:  # two exchange what they have, whatever it is called
        return []
    levels = range((n - 1).bit_length())
    if algorithm == "halving":
        whole = 1.0 if kind == "all-gather" else 1.0 / n
        double = [[(p, p ^ 1 << b, whole * 2**b) for p in range(n)] for b in levels]
        known = {
            "reduce-scatter": double[::-1],
            "all-gather": double,
            "all-reduce": double[::-1] + double,
        }
        return known.get(kind, [])
    if algorithm == "tree":
        up = [[(p, p - 2**b, 1.0) for p in range(2**b, n, 2 ** (b + 1))] for b in levels]
        down = [[(parent, child, 1.0) for child, parent, _ in level] for level in up[::-1]]
        return {"all-reduce": up + down, "broadcast": down}.get(kind, [])
    return []


def list_in_rounds(
    job: RailJob, operations: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], int, list[Transfers]]]:
    """List which of some operations are done in rounds, with members and transfers."""
    step = job.step()
    for dimension, algorithm in job.collectives.items():
        joined = [g.rail >= 0 and g.dimension == dimension for g in step.groups]
        counts = [len(g.ranks) * on for g, on in zip(step.groups, joined, strict=True)]
        sizes = np.array([*counts, 0])[step.group[operations]]
        for n in np.unique(sizes[sizes > 2]).tolist():
            kinds = np.where(sizes == n, step.kind[operations], COMPUTE)
            for kind in np.unique(kinds[kinds != COMPUTE]).tolist():
                transfers = list_transfers(algorithm, OPERATIONS[kind], n)
                if transfers:
                    yield operations[kinds == kind], n, transfers
