"""The context of all rules of a rail plan: the plan, its transfers, and how rules refuse them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.training.step import COMPUTE, OPERATIONS, Step
from optmatch.verify.report import Findings

MOST_TOLD = 5
"""The most places of one rule that are named; further ones are counted."""
_SLACK = 1e-12


class Context(NamedTuple):
    """A plan in its replay."""

    job: RailJob
    step: Step
    plan: RailPlan
    findings: Findings

    @property
    def slack_s(self) -> float:
        """By how much two sums of the same times may differ, in seconds."""
        return _SLACK * max(self.plan.step_s, 1e-6)

    @property
    def group_size(self) -> NDArray[np.int64]:
        """``group_size[group]``: how many ranks it has; 1 of group -1."""
        return np.array([*(len(group.ranks) for group in self.step.groups), 1])

    def refuse(
        self,
        rule: str,
        operations: NDArray[np.int64],
        wrong: NDArray[np.bool_],
        got: ArrayLike,
        expected: ArrayLike,
    ) -> None:
        """Refuse the operations marked as wrong, and name the first few; arrays by row."""
        if not wrong.any():
            return
        marked, first = np.unique(operations[wrong], return_index=True)
        given, wanted = (np.broadcast_to(each, wrong.shape)[wrong] for each in (got, expected))
        for operation, row in zip(marked[:MOST_TOLD].tolist(), first.tolist(), strict=False):
            where = self.step.describe(operation)
            self.findings.refuse(rule, where, float(given[row]), float(wanted[row]))
        if len(marked) > MOST_TOLD:
            more = len(marked) - MOST_TOLD
            self.findings.refuse(rule, f"{more} more operations", "the same", "none")


Transfers = list[tuple[int, int, float]]
"""The sends of one round: sender and receiver, by their places, and the part of the size."""


def list_transfers(algorithm: str, kind: str, n: int) -> list[Transfers]:
    """List sender, receiver and bytes of each transfer; none for collectives around rings."""
    if n < 3:  # two ranks exchange all they have in every algorithm
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
    """List the operations, among some, that are done in rounds, with members and transfers."""
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
