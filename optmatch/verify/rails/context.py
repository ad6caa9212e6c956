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
"""Relative to the step: double precision has 1e-16, and a time is a sum of thousands."""


class Context(NamedTuple):
    """A plan in its replay: the job, its step, the plan, and the findings so far.

    With pooled rails the job is the one in which each GPU has shares of all ports of its server.
    """

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
        """``group_size[group]``: the number of its ranks; 1 for group -1, which is none."""
        return count_members(self.step)

    def refuse(
        self,
        rule: str,
        operations: NDArray[np.int64],
        wrong: NDArray[np.bool_],
        got: ArrayLike,
        expected: ArrayLike,
    ) -> None:
        """Refuse operations that break a rule; `MOST_TOLD` are named, further ones counted."""
        if not wrong.any():
            return
        # Each operation is named once, with the numbers of its first wrong row.
        named, first_row = np.unique(operations[wrong], return_index=True)
        got_wrong = np.broadcast_to(got, wrong.shape)[wrong]
        expected_wrong = np.broadcast_to(expected, wrong.shape)[wrong]
        for operation, row in zip(named.tolist()[:MOST_TOLD], first_row, strict=False):
            where = self.step.describe(operation)
            self.findings.refuse(rule, where, float(got_wrong[row]), float(expected_wrong[row]))
        if len(named) > MOST_TOLD:
            n_further = len(named) - MOST_TOLD
            self.findings.refuse(rule, f"{n_further} more operations", "the same", "none")


def count_members(step: Step) -> NDArray[np.int64]:
    """Return the number of ranks of each group; the last entry, 1, is that of group -1."""
    return np.array([*(len(group.ranks) for group in step.groups), 1])


class MemberSend(NamedTuple):
    """One send in a round of a collective.

    Members are named by their places in the group, from 0: `sender` sends to `receiver`.
    """

    sender: int
    """By its place in the group."""
    receiver: int
    share: float
    """The part of the size of the operation that is sent."""


Transfers = list[MemberSend]
"""The sends of one round; each member sends to one other at most, and all shares are equal."""


def list_transfers(algorithm: str, kind: str, n: int) -> list[Transfers]:
    """List who sends to whom in each round of a collective, by places in the group.

    With recursive doubling, an all-gather of four members has two rounds: 0 with 1 and 2 with 3;
    then 0 with 2 and 1 with 3. No rounds for a ring.
    """
    if n < 3:
        return []
    bits = range((n - 1).bit_length())
    if algorithm == "halving":
        # Shares are of the size of the operation, which is the shard of a rank in an all-gather,
        # else the whole buffer. In round `bit` of a doubling, a member sends all that it has,
        # 2**bit shards, to the member whose place differs in this bit; a halving is the reverse.
        shard = 1.0 if kind == "all-gather" else 1.0 / n
        doubling = [
            [MemberSend(rank, rank ^ 1 << bit, shard * 2**bit) for rank in range(n)]
            for bit in bits
        ]
        halving = doubling[::-1]
        rounds = {
            "reduce-scatter": halving,
            "all-gather": doubling,
            "all-reduce": halving + doubling,
        }
        return rounds.get(kind, [])

    # A child sends all it has summed to its parent, one level of the tree in each round: of 8
    # members first 1, 3, 5 and 7 send to 0, 2, 4 and 6, then 2 and 6 to 0 and 4, then 4 to 0.
    if algorithm == "tree":
        up = [
            [MemberSend(child, child - 2**bit, 1.0) for child in range(2**bit, n, 2 ** (bit + 1))]
            for bit in bits
        ]
        down = [
            [MemberSend(sent.receiver, sent.sender, sent.share) for sent in level]
            for level in up[::-1]
        ]
        return {"all-reduce": up + down, "broadcast": down}.get(kind, [])
    return []


class InRounds(NamedTuple):
    """Operations that are done in the same rounds.

    They are of one kind, in groups of `n_members` each; ``rounds[round]`` lists the sends between
    places of such a group.
    """

    operations: NDArray[np.int64]
    n_members: int
    rounds: list[Transfers]


def list_in_rounds(job: RailJob, operations: NDArray[np.int64]) -> Iterator[InRounds]:
    """List the operations of collectives in rounds, those with the same rounds together."""
    step = job.step()
    for dimension, algorithm in job.collectives.items():
        # The number of members of the group, 0 if its collectives use no such algorithm.
        n_joined = [
            len(group.ranks) if group.rail >= 0 and group.dimension == dimension else 0
            for group in step.groups
        ]
        n_members = np.array([*n_joined, 0])[step.group[operations]]
        for n in np.unique(n_members[n_members > 2]).tolist():
            kinds = np.where(n_members == n, step.kind[operations], COMPUTE)
            for kind in np.unique(kinds[kinds != COMPUTE]).tolist():
                rounds = list_transfers(algorithm, OPERATIONS[kind], n)
                if rounds:
                    yield InRounds(operations[kinds == kind], n, rounds)
