"""One step of training: what the ranks of each pipeline stage do, from the sizes of the model."""

from __future__ import annotations

from collections.abc import Sequence

from optmatch.problems.rails.layout import count_members
from optmatch.problems.rails.network import Spanning
from optmatch.problems.rails.parallelism import Parallelism
from optmatch.problems.rails.pipeline import list_passes
from optmatch.problems.rails.program import Operation, place_programs
from optmatch.problems.rails.spanning import span_rails
from optmatch.problems.rails.step import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    COMPUTE,
    RECV,
    REDUCE_SCATTER,
    SEND,
    Group,
    Step,
)
from optmatch.problems.rails.workload import TransformerModel, Workload


def build_step(
    split: Parallelism, workload: Workload, groups: Sequence[Group], spanning: Spanning
) -> Step:
    """Derive the operations of one step from model and degrees.

    Notes
    -----
    All ranks of a pipeline stage have the same program, which is written once. What is sent: at
    the end of each layer all activations by all-reduce (tensor parallel, twice a layer, put
    together in one operation), keys and values (context parallel), tokens to experts and back;
    between stages the activations, of which each tensor-parallel rank sends its part; gradients
    layer by layer as soon as they are there, those of the layer that a stage computes last after
    the message to the stage before. The backward pass takes twice the time of the forward pass.
    """
    assert workload.model is not None  # checked when the job was made
    programs = [
        _Program(split, workload, workload.model, stage).operations for stage in range(split.pp)
    ]
    return place_programs(split, groups, span_rails(programs, groups, spanning))


class _Sizes:
    """Bytes and seconds of one micro-batch, at one rank."""

    def __init__(self, split: Parallelism, workload: Workload, model: TransformerModel) -> None:
        sequences = workload.batch / split.dp / workload.count_micro_batches(split.dp)
        tokens = sequences * model.sequence / split.cp
        flops_per_s = workload.peak_flops_per_s * workload.efficiency * split.tp
        matrices = model.ffn_matrices * model.hidden * model.ffn
        attention = 4 * model.hidden**2
        self.words = model.hidden * model.vocabulary / split.tp
        self.dense = (attention + (matrices if model.experts == 1 else 0)) / split.tp
        self.sparse = matrices * model.experts / split.ep / split.tp if model.experts > 1 else 0.0
        scores = 4 * model.sequence * model.hidden
        self.attention_s = tokens * (2 * attention + scores) / flops_per_s
        self.ffn_s = tokens * 2 * matrices * model.active_experts / flops_per_s
        if model.experts > 1:
            self.ffn_s *= workload.skew
        self.head_s = tokens * 2 * self.words * split.tp / flops_per_s
        self.activation = tokens * model.hidden * workload.width_bytes
        self.message = self.activation / split.tp
        self.dispatch = self.message * model.active_experts * workload.skew


class _Program:
    """The operations of the ranks of one stage."""

    def __init__(
        self, split: Parallelism, workload: Workload, model: TransformerModel, stage: int
    ) -> None:
        self.split, self.workload, self.stage = split, workload, stage
        self.sizes = _Sizes(split, workload, model)
        self.layers_of = split.stage_layers or (model.layers // split.n_parts,) * split.n_parts
        self.micro_batches = workload.count_micro_batches(split.dp)
        self.operations: list[Operation] = []
        self.last: tuple[int, ...] = ()  # what the next computation needs
        self.waiting: list[int] = []  # and what else it needs: messages, weights
        self.gathered: list[tuple[int, ...]] = []  # what the layers before needed, for FSDP
        parts = split.virtual_stages
        left = dict.fromkeys(range(parts), self.micro_batches)
        for forward, part, batch in list_passes(
            split.schedule, split.pp, stage, parts, self.micro_batches
        ):
            where = part * split.pp + stage
            if forward:
                self._forward(where, batch)
            else:
                left[part] -= 1
                self._backward(where, batch, is_last=left[part] == 0)
        if split.zero_stage in (1, 2):
            for _ in range(sum(self.layers_of[stage :: split.pp])):
                self._sync(ALL_GATHER, after=())
            self._sync_words(ALL_GATHER)

    def _forward(self, where: int, batch: int) -> None:
        self._message(RECV, where - 1, where, batch)
        for _ in range(self.layers_of[where]):
            self._gather()
            self._context(ALL_GATHER)
            self._layer(1.0)
        if where == self.split.n_parts - 1:
            self._compute(self.sizes.head_s)
        self._message(SEND, where, where + 1, batch)

    def _backward(self, where: int, batch: int, *, is_last: bool) -> None:
        syncs = is_last or self.split.zero_stage >= 2
        kind = REDUCE_SCATTER if self.split.zero_stage else ALL_REDUCE
        self._message(RECV, where + 1, where, batch)
        if where == self.split.n_parts - 1:
            self._compute(2 * self.sizes.head_s)
            if syncs:
                self._sync_words(kind)
        for layer in range(self.layers_of[where]):
            self._gather()
            self._layer(2.0)
            self._context(REDUCE_SCATTER)
            if layer == self.layers_of[where] - 1:
                self._message(SEND, where, where - 1, batch)
            if syncs:
                self._sync(kind, after=self.last)
        if where == 0 and self.split.n_parts > 1 and syncs:
            self._sync_words(kind)

    def _layer(self, effort: float) -> None:
        """Compute one layer: tensor-parallel sums after attention and feed-forward, in one."""
        sizes = self.sizes
        if self.split.ep == 1:
            self._compute(effort * (sizes.attention_s + sizes.ffn_s))
            self._sum(2 * sizes.activation)
            return
        self._compute(effort * sizes.attention_s)
        self._sum(sizes.activation)
        self._communicate(ALL_TO_ALL, "ep", sizes.dispatch)
        self._compute(effort * sizes.ffn_s)
        self._communicate(ALL_TO_ALL, "ep", sizes.dispatch)
        self._sum(sizes.activation)

    def _sum(self, size: float) -> None:
        """Sum activations over tensor-parallel ranks, which may keep a part each in between."""
        if not self.split.sequence_parallel:
            self._communicate(ALL_REDUCE, "tp", size)
            return
        self._communicate(REDUCE_SCATTER, "tp", size)
        self._communicate(ALL_GATHER, "tp", size / self.split.tp)

    def _context(self, kind: int) -> None:
        """Keys and values of the other parts of a sequence; backward, their gradients."""
        both = 2 * self.sizes.message
        self._communicate(kind, "cp", both if kind == ALL_GATHER else both * self.split.cp)

    def _gather(self) -> None:
        """Bring the weights of a layer together, no earlier than one layer ahead."""
        if self.split.zero_stage == 3:
            self.gathered.append(self.last)
            before = self.gathered[-2] if len(self.gathered) > 1 else ()
            self.waiting += self._sync(ALL_GATHER, after=before)

    def _sync(self, kind: int, after: tuple[int, ...]) -> tuple[int, ...]:
        """Exchange the weights of one layer, or their gradients, among ranks that have them."""
        dense = self._exchange(kind, "dp", self.sizes.dense, after)
        return dense + self._exchange(kind, "edp", self.sizes.sparse, after)

    def _sync_words(self, kind: int) -> None:
        if self.stage in (0, self.split.pp - 1):
            after = () if kind == ALL_GATHER else self.last
            self._exchange(kind, "dp", self.sizes.words, after)

    def _exchange(
        self, kind: int, family: str, words: float, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Gather so many weights, or reduce their gradients."""
        if kind == ALL_GATHER:
            size = words * self.workload.width_bytes / count_members(self.split, family)
            return self._add(kind, family, size, after)
        size = words * self.workload.gradient_width_bytes
        done = self._add(kind, family, size, after) or after
        if family == "dp" and kind == REDUCE_SCATTER:
            part = size / count_members(self.split, family)
            done = self._add(ALL_REDUCE, "copies", part, done) or done
        return done

    def _compute(self, duration_s: float) -> None:
        after = (*self.last, *self.waiting)
        self.waiting = []
        self.last = self._put(Operation(COMPUTE, after, duration_s=duration_s))

    def _communicate(self, kind: int, family: str, size: float) -> None:
        """Communicate what the next computation needs."""
        self.last = self._add(kind, family, size, self.last) or self.last

    def _add(self, kind: int, family: str, size: float, after: tuple[int, ...]) -> tuple[int, ...]:
        """Add a collective, if there is something to communicate."""
        if size == 0 or count_members(self.split, family) == 1:
            return ()
        return self._put(Operation(kind, after, family, size))

    def _message(self, kind: int, source: int, destination: int, batch: int) -> None:
        """Send to or receive from the part of the model before or after this one."""
        low, high = min(source, destination), max(source, destination)
        if low < 0 or high >= self.split.n_parts or self.split.pp == 1:
            return
        toward = (destination if kind == SEND else source) % self.split.pp
        tag = (low * self.micro_batches + batch) * 2 + (source > destination)
        after = self.last if kind == SEND else ()
        put = self._put(Operation(kind, after, "pp", self.sizes.message, toward=toward, tag=tag))
        if kind == RECV:
            self.waiting += put

    def _put(self, operation: Operation) -> tuple[int, ...]:
        """Append an operation; return its number, as what depends on it has it."""
        self.operations.append(operation)
        return (len(self.operations) - 1,)
