"""A pipeline step of one micro-batch, from windows that were measured instead of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from optmatch.model import Amount, InputError, Range, Value, check_fields
from optmatch.problems.rails.layout import make_groups
from optmatch.problems.rails.parallelism import Parallelism
from optmatch.problems.rails.program import Operation, place_programs
from optmatch.problems.rails.step import ALL_REDUCE, COMPUTE, RECV, SEND, Step


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
        From the beginning of the backward pass to the first exchange of gradients.
    slack_s
        How long the first exchange may be late before the stage stands still.
    message_bytes, gradient_bytes
        Of a message between stages, and of one exchange of gradients.

    Examples
    --------
    >>> windows = PipelineWindows(stages=2, replicas=2, forward_s=1.0, backward_s=3.0,
    ...                           quiet_s=0.2, slack_s=0.1)
    >>> windows.step(bytes_per_s=1e9).n_ranks
    4
    """

    stages: Annotated[int, Range(2)]
    replicas: Annotated[int, Range(2)]
    forward_s: Amount
    backward_s: Amount
    quiet_s: Amount
    slack_s: Amount
    message_bytes: Amount = 1.0
    gradient_bytes: Amount = 1.0

    def __post_init__(self) -> None:
        check_fields(self)

    def step(self, bytes_per_s: float) -> Step:
        """Return the operations of all ranks: one rail, ranks of a stage together.

        Parameters
        ----------
        bytes_per_s
            The rate at which the windows were measured: the first exchange takes part of the
            backward pass.

        Raises
        ------
        InputError
            If the windows do not fit into the backward pass.
        """
        share = (self.replicas - 1) / self.replicas
        exchange_s = 2 * share * self.gradient_bytes / bytes_per_s
        programs = [self._program(stage, exchange_s) for stage in range(self.stages)]
        split = Parallelism(dp=self.replicas, pp=self.stages)
        return place_programs(split, make_groups(split, gpus_per_server=1), programs)

    def _program(self, stage: int, exchange_s: float) -> list[Operation]:
        """List what each rank of a stage does; gradients are exchanged twice."""
        gap_s = self.slack_s + exchange_s
        rest_s = self.backward_s - self.quiet_s - gap_s
        if rest_s < 0:
            raise InputError(
                f"backward_s = {self.backward_s:g}: the windows need {self.quiet_s + gap_s:g}",
                where="backward_s",
            )
        program: list[Operation] = []

        def put(operation: Operation) -> int:
            program.append(operation)
            return len(program) - 1

        def compute(duration_s: float, *after: int) -> int:
            return put(Operation(COMPUTE, after, duration_s=duration_s))

        def exchange(after: int) -> int:
            return put(Operation(ALL_REDUCE, (after,), "dp", self.gradient_bytes))

        def message(kind: int, toward: int, tag: int, *after: int) -> int:
            size = self.message_bytes
            return put(Operation(kind, after, "pp", size, toward=toward, tag=tag))

        before = [message(RECV, stage - 1, 2 * stage)] if stage else []
        now = compute(self.forward_s, *before)
        if stage < self.stages - 1:
            message(SEND, stage + 1, 2 * stage + 2, now)
            now = message(RECV, stage + 1, 2 * stage + 3)
        now = compute(self.quiet_s, now)
        first = exchange(now)
        now = compute(gap_s, now)
        last = exchange(compute(rest_s, now, first))
        if stage:
            message(SEND, stage - 1, 2 * stage + 1, last)
        return program
