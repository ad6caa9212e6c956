"""What all rules of a rail plan look at, and how they refuse operations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.training.step import Step
from optmatch.verify.report import Findings

MOST_TOLD = 5
"""So many places of one rule are named; the others are counted."""
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
