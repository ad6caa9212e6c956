"""A pipeline step of one micro-batch, from windows that were measured instead of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from optmatch.model import InputError, Value, integer, number
from optmatch.problems.rails.step import (
    ALL_REDUCE,
    COMPUTE,
    RECV,
    SEND,
    Group,
    Step,
)


class _Operation(NamedTuple):
    """One of the operations that all ranks of a stage have; `after` counts from the first."""

    kind: int
    after: tuple[int, ...]
    size_bytes: float = 0.0
    duration_s: float = 0.0
    toward: int = -1
    tag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineWindows(Value):
    """What a trace or a curve tells of a pipeline with one micro-batch and data parallelism.

    Parameters
    ----------
    stages, replicas
        Degrees of pipeline and data parallelism.
    forward_s, backward_s
        How long a stage computes forward and backward, scale-up communication included.
    quiet_s
        From the last message of the forward and backward pass that reaches a stage to its first
        gradient that is exchanged: in the last stage counted from the activations, in the others
        from the gradient of the activations.
    slack_s
        How long the first exchange of gradients may be late before the stage stands still.
    last_s
        From the end of the exchanges to the message to the stage before.
    message_bytes, gradient_bytes
        Of a message between stages, and of one exchange of gradients.

    Examples
    --------
    >>> windows = PipelineWindows(stages=2, replicas=2, forward_s=1.0, backward_s=3.0,
    ...                           quiet_s=1.0, slack_s=0.1, last_s=0.2)
    >>> windows.step(bytes_per_s=1e9).n_ranks
    4
    """

    stages: int
    replicas: int
    forward_s: float
    backward_s: float
    quiet_s: float
    slack_s: float
    last_s: float
    message_bytes: float = 1.0
    gradient_bytes: float = 1.0

    def __post_init__(self) -> None:
        for name in ("stages", "replicas"):
            object.__setattr__(self, name, integer(name, getattr(self, name), at_least=2))
        for name in (
            *("forward_s", "backward_s", "quiet_s", "slack_s", "last_s"),
            *("message_bytes", "gradient_bytes"),
        ):
            object.__setattr__(self, name, number(name, getattr(self, name)))

    def step(self, bytes_per_s: float) -> Step:
        """Return the operations of all ranks: one rail, ranks of a stage together.

        Parameters
        ----------
        bytes_per_s
            The rate at which the windows were measured: an exchange of gradients takes part of
            the time up to the message to the stage before.

        Raises
        ------
        InputError
            If the windows do not fit into the backward pass.
        """
        share = (self.replicas - 1) / self.replicas
        exchange_s = 2 * share * self.gradient_bytes / bytes_per_s
        programs = [self._program(stage, exchange_s) for stage in range(self.stages)]
        grid = np.arange(self.stages * self.replicas).reshape(self.stages, -1)
        groups = [Group(f"dp.{k}", "dp", tuple(row), 0) for k, row in enumerate(grid.tolist())]
        groups += [Group(f"pp.{k}", "pp", tuple(row), 0) for k, row in enumerate(grid.T.tolist())]
        program = [op for stage in programs for op in stage * self.replicas]
        rank = np.repeat(
            grid.reshape(-1), [len(p) for p in programs for _ in range(self.replicas)]
        )
        kind = np.array([op.kind for op in program])
        toward = np.array([op.toward for op in program])
        place = rank % self.replicas
        group = np.where(toward >= 0, self.stages + place, rank // self.replicas)
        start = np.searchsorted(rank, rank)
        counts = [len(op.after) for op in program]
        after = np.array([before for op in program for before in op.after], np.int64)
        match = group * 4 * self.stages + np.array([op.tag for op in program])
        return Step(
            groups=tuple(groups),
            rank=rank.astype(np.int32),
            kind=kind.astype(np.int8),
            group=np.where(kind == COMPUTE, -1, group).astype(np.int32),
            size_bytes=np.array([op.size_bytes for op in program]),
            duration_s=np.array([op.duration_s for op in program]),
            peer=np.where(toward >= 0, toward * self.replicas + place, -1).astype(np.int32),
            match=np.where(kind == COMPUTE, -1, match).astype(np.int32),
            dep_start=np.cumsum([0, *counts]),
            dep=np.repeat(start, counts) + after,
        )

    def _program(self, stage: int, exchange_s: float) -> list[_Operation]:
        is_last = stage == self.stages - 1
        quiet_s = max(0.0, self.quiet_s - self.forward_s) if is_last else self.quiet_s
        gap_s, last_s = self.slack_s + exchange_s, self.last_s + exchange_s
        rest_s = self.backward_s - quiet_s - gap_s - last_s
        if rest_s < 0:
            raise InputError(
                f"backward_s = {self.backward_s:g}: the windows of stage {stage} need"
                f" {quiet_s + gap_s + last_s:g}",
                where="backward_s",
            )
        program: list[_Operation] = []

        def compute(duration_s: float, *after: int) -> int:
            program.append(_Operation(COMPUTE, after, duration_s=duration_s))
            return len(program) - 1

        def exchange(tag: int, *after: int) -> int:
            program.append(_Operation(ALL_REDUCE, after, self.gradient_bytes, tag=tag))
            return len(program) - 1

        def message(kind: int, toward: int, tag: int, *after: int) -> int:
            program.append(_Operation(kind, after, self.message_bytes, toward=toward, tag=tag))
            return len(program) - 1

        before = [message(RECV, stage - 1, 2 * stage)] if stage else []
        now = compute(self.forward_s, *before)
        if not is_last:
            message(SEND, stage + 1, 2 * stage + 2, now)
            now = message(RECV, stage + 1, 2 * stage + 3)
        now = compute(quiet_s, now)
        first = exchange(0, now)
        now = compute(gap_s, now)
        now = compute(rest_s, now, first)
        exchange(1, now)
        now = compute(last_s, now)
        if stage:
            message(SEND, stage - 1, 2 * stage + 1, now)
        exchange(2, now)
        return program
