"""One step of training: operations of ranks of each pipeline stage, by model sizes.

A *pass* takes one micro-batch through one *part* of the model, forward or backward. A stage has
one part or several; *where* a pass is, is the number of its part in the whole model, from 0. A
*family* is a set of groups of one kind, as in `optmatch.problems.rails.training.layout`.
Operations are named by their numbers in the program of their stage, in tuples: the empty tuple is
none.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from optmatch.problems.rails.training.layout import count_members
from optmatch.problems.rails.training.network import Spanning
from optmatch.problems.rails.training.parallelism import Parallelism
from optmatch.problems.rails.training.pipeline import (
    Kind,
    Pass,
    find_part,
    find_stage,
    list_passes,
)
from optmatch.problems.rails.training.program import Operation, place_programs
from optmatch.problems.rails.training.sizes import Sizes
from optmatch.problems.rails.training.spanning import span_rails
from optmatch.problems.rails.training.step import (
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
from optmatch.problems.rails.training.workload import TransformerModel, Workload


def build_step(
    split: Parallelism, workload: Workload, groups: Sequence[Group], spanning: Spanning
) -> Step:
    """Derive the operations of one step from model and degrees.

    All ranks of a pipeline stage (the GPUs of one place in the pipeline) have the same program,
    which is written once; a pass takes one micro-batch through one part of the model. These data
    are sent: at the end of each layer all activations by all-reduce (tensor parallel, twice a
    layer, put together in one operation), keys and values (context parallel), tokens to experts
    and back; between stages the activations, of which each tensor-parallel rank sends its part;
    gradients layer by layer as soon as they are there, those of the layer that a stage computes
    last after the message to the stage before. The backward pass takes twice the time of the
    forward pass.

    Parameters
    ----------
    split
        Degrees, their layout, and the order of micro-batches.
    workload
        A model with its batch and rates.
    groups
        All communicator groups, as `make_groups` returns them.
    spanning
        How a group uses several rails: ``"hierarchical"``, first inside servers and then on rails,
        or ``"rings"``, both at once.

    Returns
    -------
    Step
        The operations of all ranks, with their sizes in bytes, durations in seconds and
        dependencies.
    """
    assert workload.model is not None  # checked when the job was made
    batches = workload.count_micro_batches(split.dp)
    passes = [
        list_passes(split.schedule, split.pp, stage, split.parts_per_rank, batches)
        for stage in range(split.pp)
    ]

    # By stage all messages that it will receive; of each sender in the order in which it sends.
    sent: dict[int, list[_Message]] = {stage: [] for stage in range(split.pp)}
    for stage, order in enumerate(passes):
        for one_pass in order:
            for message in _messages(split, stage, one_pass, batches):
                if message.source == stage:
                    sent[message.destination].append(message)

    programs = [
        _Program(split, workload, workload.model, stage, order, sent[stage]).operations
        for stage, order in enumerate(passes)
    ]
    return place_programs(split, groups, span_rails(programs, groups, spanning))


_EFFORT: dict[Kind, float] = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}
"""The work of a pass, in forward passes."""


class _Message(NamedTuple):
    """The bytes that a part of the model gives to the next one, or to the one before.

    They go from the stage `source` to the stage `destination`. The number `tag` is the same at
    both ends, and that of no other message between the same stages.
    """

    source: int
    """The stage that sends the message."""
    destination: int
    tag: int


def _messages(split: Parallelism, stage: int, one_pass: Pass, batches: int) -> list[_Message]:
    """List the messages that one pass exchanges with other stages: received first, then sent.

    The layers of the model are cut into parts, numbered from 0 in the order in which data pass
    them forward. A stage (the GPUs of one place in the pipeline) holds one part or two or more. A
    pass takes one micro-batch through one part: of kind "F" forward, "B" backward for all
    gradients, "I" backward for the gradients of inputs, "W" for those of weights. A forward pass
    receives from the part before its own and sends to the part after it; "B" and "I" do the
    reverse, and "W" exchanges nothing.

    Parameters
    ----------
    split
        Degrees of parallelism and pipeline schedule, which say which stage holds which part.
    stage
        The number of the stage that does the pass, from 0.
    one_pass
        The pass: its kind, its part counted at the stage, and its micro-batch.
    batches
        The number of micro-batches in a step.

    Returns
    -------
    list of _Message
        At most one message that is received, then at most one that is sent, each with the stages
        that send and receive it and a tag. There is none at either end of the model, and none
        between two parts at the same stage.

    Notes
    -----
    A tag has a number of its own for each boundary, micro-batch and direction: with 8
    micro-batches, micro-batch 3 crosses the boundary between the parts 1 and 2 forward with tag
    (1 * 8 + 3) * 2 = 22, and backward with tag 23. Both ends derive the same tag.
    """
    if one_pass.kind == "W":
        return []
    where = find_part(split.schedule, split.pp, stage, one_pass.part)
    is_forward = one_pass.kind == "F"

    # A part has two boundaries: boundary `low` is between the parts low and low + 1. The pass
    # comes in over the first one listed and leaves over the second; the model has none outside.
    boundaries = [where - 1, where]
    if not is_forward:
        boundaries.reverse()
    messages = []
    for low in boundaries:
        if not 0 <= low < split.n_parts - 1:
            continue
        low_stage = find_stage(split.schedule, split.pp, low, one_pass.part)
        high_stage = find_stage(split.schedule, split.pp, low + 1, one_pass.part)
        if low_stage == high_stage:
            continue
        tag = (low * batches + one_pass.batch) * 2
        if is_forward:
            messages.append(_Message(low_stage, high_stage, tag))
        else:
            messages.append(_Message(high_stage, low_stage, tag + 1))
    return messages


class _Program:
    """The operations of the ranks of one stage, written one after the other as the passes go.

    Parameters
    ----------
    split
        Degrees and schedule.
    workload
        Batch, rates and widths.
    model
        The sizes of the model.
    stage
        The stage.
    passes
        Its passes, in order.
    incoming
        All messages that it receives; those of each sender in the order in which it sends them.
    """

    def __init__(
        self,
        split: Parallelism,
        workload: Workload,
        model: TransformerModel,
        stage: int,
        passes: Sequence[Pass],
        incoming: Sequence[_Message],
    ) -> None:
        """Write the whole program of one stage: all passes, then what comes after the last one.

        A stage is the GPUs of one place in the pipeline; it holds one part of the model's layers
        or more. A pass takes one micro-batch through one part: of kind "F" forward, "B" backward,
        "I" backward for the gradients of inputs alone, "W" for those of weights alone. After the
        passes come the optimiser and, where each rank has updated its shard of the weights alone,
        the gathering of new weights.

        Parameters
        ----------
        split
            Degrees of parallelism, and the pipeline schedule.
        workload
            The batch, widths of numbers in bytes, and rates.
        model
            The sizes of the model.
        stage
            The number of the stage, from 0.
        passes
            The passes of the stage, in their order.
        incoming
            The messages from other stages that it receives (each with source, destination and
            tag); those of each sender in the order in which it sends them.
        """
        # Sizes, and the state of the program: which operations the next ones have to wait for.
        self.split = split
        self.workload = workload
        self.stage = stage
        self.sizes = Sizes(split, workload, model)
        self.layers_of = split.stage_layers or (model.layers // split.n_parts,) * split.n_parts
        self.micro_batches = workload.count_micro_batches(split.dp)

        # All fields that name operations have their numbers in `operations`, in tuples or lists.
        self.operations: list[Operation] = []
        self.last_computation: tuple[int, ...] = ()
        self.last: tuple[int, ...] = ()  # operations that the next computation waits for
        self.waiting: list[int] = []  # messages and weights that it waits for, too
        self.gathered: list[tuple[int, ...]] = []  # weights of the layers before, for FSDP
        self.arrived: tuple[int, ...] = ()  # messages for the next computation
        self.last_communication: tuple[int, ...] = ()  # kept only if there is one stream
        self.exchanged: tuple[int, ...] = ()  # the last exchange of gradients
        self.pending = 0  # layers whose gradients wait for a bucket

        # A stage receives the messages of each sender in the order in which they are sent.
        self.received: dict[int, int] = {}  # the operation that receives a message, by its tag
        self.incoming: dict[int, deque[_Message]] = defaultdict(deque)
        for message in incoming:
            self.incoming[message.source].append(message)

        # Gradients of a part are exchanged after its last micro-batch; `left` counts by part
        # those that are to come. Where passes overlap, a forward and a backward one go together.
        left = dict.fromkeys(range(split.parts_per_rank), self.micro_batches)
        todo = deque(passes)
        while todo:
            side_by_side = [todo.popleft()]
            if split.overlap and todo and (side_by_side[0].kind, todo[0].kind) == ("F", "B"):
                side_by_side.append(todo.popleft())
            turns = []
            for one_pass in side_by_side:
                if one_pass.kind in "BW":
                    left[one_pass.part] -= 1
                if one_pass.kind == "F":
                    turns.append(self._forward(one_pass))
                else:
                    is_last = left[one_pass.part] == 0
                    turns.append(self._backward(one_pass, is_last=is_last))
            self._run(side_by_side, turns)

        if split.schedule == "dualpipe":
            self._join_copies()
        updated = self._update()
        # Each rank has updated its shard alone: weights are gathered before the next step.
        if split.zero_stage in (1, 2):
            for part in range(split.parts_per_rank):
                for _ in range(self.layers_of[self._where(part)]):
                    self._sync(ALL_GATHER, updated)
                if self._where(part) in (0, split.n_parts - 1):
                    self._exchange(ALL_GATHER, "dp", self.sizes.words, updated)

    def _where(self, part: int) -> int:
        """Return the number in the whole model, from 0, of a part counted at this stage."""
        return find_part(self.split.schedule, self.split.pp, self.stage, part)

    def _run(self, passes: Sequence[Pass], turns: Sequence[Iterator[bool]]) -> None:
        """Do a pass, or two side by side: they take turns, the backward one first.

        A pass takes one micro-batch through the layers of one part of the model. With overlap a
        pass waits for no communication of another one, and sends once both are over, in the order
        of the passes.

        Parameters
        ----------
        passes
            One pass, or a forward and a backward one.
        turns
            ``turns[k]`` writes the operations of ``passes[k]`` and yields True wherever the other
            pass may go on.
        """
        if not self.split.overlap:
            for _ in turns[0]:
                pass
            return

        # Each pass has its own last operation and its own messages to wait for. The queue begins
        # with the last pass, the backward one; a pass that is through goes out of it.
        waiting = deque((k, (), ()) for k in reversed(range(len(passes))))
        ends: dict[int, tuple[int, ...]] = {}
        while waiting:
            k, self.last, self.arrived = waiting.popleft()
            if next(turns[k], False):
                waiting.append((k, self.last, self.arrived))
            else:
                ends[k] = self.last
        for k, one_pass in enumerate(passes):
            self._send(one_pass, ends[k])

    def _forward(self, one_pass: Pass) -> Iterator[bool]:
        """Write a forward pass; yield True wherever another pass may go on.

        The operations are appended to the program of the stage: what the pass receives; of each
        layer of its part the gathering of weights (if they are sharded), the exchange of keys and
        values, and the computation; the output over the vocabulary in the last part of the model;
        and what it sends. With overlap (DualPipe) a message is sent when both passes are over, by
        the caller.

        Parameters
        ----------
        one_pass
            The pass, which takes one micro-batch through one part of the model at this stage.

        Yields
        ------
        bool
            True, with the operations up to here written.
        """
        self._receive(one_pass)
        for _ in range(self.layers_of[self._where(one_pass.part)]):
            self._gather()
            self._context(ALL_GATHER)
            yield from self._layer(1.0)
        if self._where(one_pass.part) == self.split.n_parts - 1:
            self._compute(self.sizes.head_s)
        if not self.split.overlap:
            self._send(one_pass, self.last)

    def _backward(self, one_pass: Pass, *, is_last: bool) -> Iterator[bool]:
        """Write a backward pass; yield True wherever another pass may go on.

        A pass takes one micro-batch through the layers of one part of the model at this stage.
        Half of the work is for gradients of inputs, half for those of weights. The operations are
        appended to the program of the stage: what the pass receives, the layers, what it sends,
        and after its last micro-batch the exchange of gradients among the ranks that have the same
        weights, in buckets of whole layers.

        Parameters
        ----------
        one_pass
            The pass: of kind "B" for both, "I" for inputs or "W" for weights alone.
        is_last
            Whether it is the last one of its part with gradients of weights, after which they are
            exchanged. From ZeRO stage 2 on they are exchanged after each one.

        Yields
        ------
        bool
            True wherever the forward pass beside it may go on, with operations written so far.
        """
        where = self._where(one_pass.part)
        effort = _EFFORT[one_pass.kind]
        syncs = one_pass.kind != "I" and (is_last or self.split.zero_stage >= 2)
        overlap = self.split.overlap
        kind = REDUCE_SCATTER if self.split.zero_stage else ALL_REDUCE

        self._receive(one_pass)
        if where == self.split.n_parts - 1:
            self._compute(effort * self.sizes.head_s)
            if syncs:
                self._exchange(kind, "dp", self.sizes.words, self.last)
        for layer in range(self.layers_of[where]):
            if one_pass.kind == "W":
                self._compute(effort * (self.sizes.attention_s + self.sizes.ffn_s))
            else:
                self._gather()
                yield from self._turn_back(effort) if overlap else self._layer(effort)
                self._context(REDUCE_SCATTER)

            # The message to the stage before goes as soon as its data are there, and before the
            # gradients of this layer; with one stream it goes after all gradients.
            ends = layer == self.layers_of[where] - 1
            if ends and not self.workload.one_stream and not overlap:
                self._send(one_pass, self.last)
            if syncs:
                self._reduce(kind, ends=ends)
        if self.workload.one_stream and not overlap:
            self._send(one_pass, self.last)
        # The first part has the embedding, whose gradients are the last ones of a backward pass.
        if where == 0 and self.split.n_parts > 1 and syncs:
            self._exchange(
                kind,
                "dp",
                self.sizes.words,
                self.last_computation if self.split.overlap else self.last,
            )

    def _join_copies(self) -> None:
        """Sum gradients with the stage that has the same two parts: each sums one part.

        With DualPipe each part of the model is at two stages of pp, s and pp - 1 - s, which have
        seen different micro-batches. The operations are appended to the program. Stage s sums the
        gradients of part s. First each sends the gradients of the
        other's part, then the new weights of its own. The next operation of the program waits for
        the weights that are received.
        """
        # Tags of these messages come after those of passes: 2 for each part and micro-batch.
        last = self.split.pp - 1
        other = last - self.stage
        tag = 2 * self.split.n_parts * self.micro_batches

        # Two exchanges: gradients are of the part that the receiver sums, weights of the part
        # that the sender has summed. The second exchange waits for what the first one brings.
        after = (*self.last, len(self.operations) - 1)
        for width, is_of_sender in (
            (self.workload.gradient_width_bytes, False),
            (self.workload.width_bytes, True),
        ):
            for kind, source in ((SEND, self.stage), (RECV, other)):
                part = source if is_of_sender else last - source
                weights = self.layers_of[part] * (self.sizes.dense + self.sizes.sparse)
                weights += self.sizes.words * (part in (0, last))
                put = Operation(kind, after, "pp", weights * width, toward=other, tag=tag + source)
                got = self._put(put)
            after = got
            tag += self.split.pp
        self.arrived = after

    def _layer(self, effort: float) -> Iterator[bool]:
        """Compute one layer: tensor-parallel sums after attention and feed-forward, in one.

        With experts the layer has two halves: attention and the way of tokens to their experts,
        then the experts and the way back. Operations are appended to the program of the stage.

        Parameters
        ----------
        effort
            The work as a multiple of that of a forward pass: 1 forward, 2 backward.

        Yields
        ------
        bool
            True at the end of each half, where another pass may go on.
        """
        sizes = self.sizes
        # Without experts nothing stands between the two sums of a layer: they are one operation.
        if self.split.ep == 1:
            self._share(2 * sizes.activation)
            self._compute(effort * (sizes.attention_s + sizes.ffn_s))
            self._sum(2 * sizes.activation)
            yield True
            return

        self._share(sizes.activation)
        self._compute(effort * sizes.attention_s)
        self._sum(sizes.activation)
        self._communicate(ALL_TO_ALL, "ep", sizes.dispatch, sizes.leaving)
        yield True
        self._share(sizes.activation)
        self._compute(effort * sizes.ffn_s)
        self._communicate(ALL_TO_ALL, "ep", sizes.combine, sizes.leaving)
        self._sum(sizes.activation)
        yield True

    def _turn_back(self, effort: float) -> Iterator[bool]:
        """Go back through one layer, in turns with a forward pass: experts come first.

        With experts the layer has two halves, the experts and then attention; without, it is one.
        Each half ends with its gradients of weights, for which nothing that is sent waits.
        Operations are appended to the program of the stage.

        Parameters
        ----------
        effort
            The work as a multiple of that of a forward pass: 1 is for gradients of inputs, and
            what is more for those of weights.

        Yields
        ------
        bool
            True wherever the forward pass may go on.
        """
        sizes = self.sizes
        has_experts = self.split.ep > 1
        halves: tuple[float, ...] = (sizes.attention_s + sizes.ffn_s,)
        if has_experts:
            halves = (sizes.ffn_s, sizes.attention_s)
            self._communicate(ALL_TO_ALL, "ep", sizes.dispatch, sizes.leaving)
        yield True

        # The computation for gradients of inputs comes before what is sent, and that for
        # gradients of weights after it.
        for number, half_s in enumerate(halves):
            size = sizes.activation * (2 / len(halves))
            self._share(size)
            self._compute(half_s)
            done = self.last
            if has_experts and number == 0:
                self._communicate(ALL_TO_ALL, "ep", sizes.combine, sizes.leaving)
            self._sum(size)
            if effort > 1:
                self._put(Operation(COMPUTE, done, duration_s=(effort - 1) * half_s))
            if number < len(halves) - 1:
                yield True

    def _share(self, size: float) -> None:
        """Put activations together, if each tensor-parallel rank keeps a part in between.

        This is sequence parallelism; without it nothing is added to the program.

        Parameters
        ----------
        size
            The size of all activations, in bytes; each rank has a part of it.
        """
        if self.split.sequence_parallel:
            self._communicate(ALL_GATHER, "tp", size / self.split.tp)

    def _sum(self, size: float) -> None:
        """Sum activations over tensor-parallel ranks, each its part if it keeps no more.

        The sum is a reduce-scatter with sequence parallelism, in which each rank keeps a part of
        the activations, else an all-reduce.

        Parameters
        ----------
        size
            The size of all activations, in bytes.
        """
        kind = REDUCE_SCATTER if self.split.sequence_parallel else ALL_REDUCE
        self._communicate(kind, "tp", size)

    def _context(self, kind: int) -> None:
        """Exchange keys and values with the other parts of a sequence; backward, their gradients.

        Parameters
        ----------
        kind
            `ALL_GATHER` forward, whose size is the shard of a rank; `REDUCE_SCATTER` backward,
            whose size is the whole buffer, that of all context-parallel ranks.
        """
        size = self.sizes.keys_and_values
        if kind == REDUCE_SCATTER:
            size *= self.split.cp
        self._communicate(kind, "cp", size)

    def _gather(self) -> None:
        """Bring the weights of a layer together, no earlier than one layer ahead.

        This is for ZeRO stage 3 (FSDP), in which each rank keeps a shard of the weights; else
        nothing is added. The next computation waits for the weights.
        """
        # `gathered` has, by layer, the operation before it: to gather waits for that of the layer
        # before, so that weights of two layers at most are there.
        if self.split.zero_stage == 3:
            self.gathered.append(self.last)
            before = self.gathered[-2] if len(self.gathered) > 1 else ()
            self.waiting += self._sync(ALL_GATHER, after=before)

    def _reduce(self, kind: int, *, ends: bool) -> None:
        """Exchange gradients once a bucket is full, and those that are left at the end.

        A bucket is the gradients of some whole layers that are exchanged at once; `pending` counts
        the layers in it so far, and this layer comes to it.

        Parameters
        ----------
        kind
            `ALL_REDUCE` or `REDUCE_SCATTER`.
        ends
            Whether this layer is the last one of its pass, with which the bucket is exchanged.
        """
        self.pending += 1
        width = self.workload.gradient_width_bytes
        ready = self.pending * (self.sizes.dense + self.sizes.sparse) * width
        if ends or ready >= self.workload.bucket_bytes:
            self._sync(
                kind, self.last_computation if self.split.overlap else self.last, self.pending
            )
            self.pending = 0

    def _update(self) -> tuple[int, ...]:
        """Let the optimiser run once all gradients are there.

        It takes as long as memory needs for all weights that the rank updates: so many bytes of
        each weight (`optimizer_bytes`) at the rate of memory. Weights are those of the layers, the
        *dense* ones that all replicas hold and the *sparse* ones of experts, and of the vocabulary
        (`words`).

        Returns
        -------
        tuple of int
            The operation after which there are new weights; empty if the optimiser takes no time.
        """
        workload = self.workload
        split = self.split
        if workload.memory_bytes_per_s is None or not workload.optimizer_bytes:
            return ()
        parts = [self._where(part) for part in range(split.parts_per_rank)]
        layers = sum(self.layers_of[where] for where in parts)

        # Both ends of the model have weights of the vocabulary. Where weights are sharded, each
        # rank updates its shard alone.
        words = self.sizes.words * len({*parts} & {0, split.n_parts - 1})
        dense = layers * self.sizes.dense + words
        sparse = layers * self.sizes.sparse
        if split.zero_stage > 0:
            dense /= count_members(split, "dp")
            sparse /= count_members(split, "edp")
        moved_bytes = (dense + sparse) * workload.optimizer_bytes
        self._compute(moved_bytes / workload.memory_bytes_per_s, self.exchanged)
        return self.last

    def _sync(self, kind: int, after: tuple[int, ...], layers: int = 1) -> tuple[int, ...]:
        """Exchange the weights of some layers, or their gradients, among ranks that have them.

        There are two exchanges: of the *dense* weights, which all replicas hold, in the groups
        "dp", and of the *sparse* ones of experts, in the groups "edp" of ranks with the same
        experts.

        Parameters
        ----------
        kind
            `ALL_GATHER` for weights; `ALL_REDUCE` or `REDUCE_SCATTER` for gradients.
        after
            The numbers in the program of the operations that have to be over before.
        layers
            How many layers.

        Returns
        -------
        tuple of int
            The operations that end the exchange. Where there is nothing to exchange, `after`
            stands for them with gradients, and no operation with weights.
        """
        dense = self._exchange(kind, "dp", layers * self.sizes.dense, after)
        return dense + self._exchange(kind, "edp", layers * self.sizes.sparse, after)

    def _exchange(
        self, kind: int, family: str, words: float, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Gather weights, or reduce their gradients, in one family of groups.

        A family is all groups of one kind. With hybrid sharding weights are sharded over a part of
        the ranks that have the same ones; the copies of a shard then sum what each has reduced.

        Parameters
        ----------
        kind
            `ALL_GATHER` for weights; `ALL_REDUCE` or `REDUCE_SCATTER` for gradients.
        family
            "dp", or "edp" for weights of experts.
        words
            How many weights, which are `width_bytes` or `gradient_width_bytes` each.
        after
            The numbers in the program of the operations that have to be over before.

        Returns
        -------
        tuple of int
            The operation that ends the exchange. Without one: of gradients `after`, of weights
            the empty tuple.
        """
        if kind == ALL_GATHER:
            size = words * self.workload.width_bytes / count_members(self.split, family)
            return self._add(kind, family, size, after)

        # Copies of a shard reduce what is left of the buffer after the reduction inside a shard.
        size = words * self.workload.gradient_width_bytes
        done = self._add(kind, family, size, after) or after
        if family == "dp" and kind == REDUCE_SCATTER:
            part = size / count_members(self.split, family)
            done = self._add(ALL_REDUCE, "copies", part, done) or done

        # The optimiser waits for the last exchanges: earlier ones in the same streams are over by
        # then.
        self.exchanged = (*self.exchanged[-1:], *done)
        return done

    def _compute(self, duration_s: float, after: tuple[int, ...] = ()) -> None:
        """Compute for so many seconds, after all that has come before and `after`.

        Parameters
        ----------
        duration_s
            How long the computation lasts, in seconds.
        after
            The numbers of further operations of the program that have to be over before. The
            operation also waits for the last one, for messages that have been received, and for
            weights that are gathered.
        """
        # Each number once, in this order.
        after = (*dict.fromkeys((*self.last, *self.arrived, *self.waiting, *after)),)
        self.arrived = ()
        self.waiting = []
        self.last = self._put(Operation(COMPUTE, after, duration_s=duration_s))

    def _communicate(self, kind: int, family: str, size: float, leaving: float = 1.0) -> None:
        """Communicate the data that the next computation needs.

        The collective waits for the last operation and for messages that have been received.

        Parameters
        ----------
        kind
            The collective, an index of `OPERATIONS` such as `ALL_REDUCE`.
        family
            Which family of groups (all groups of one kind) communicates, as ``"tp"`` or ``"ep"``.
        size
            The size in bytes: of an all-gather the shard of a rank, else its whole buffer.
        leaving
            Which part of the size leaves the server, 0 to 1.
        """
        done = self._add(kind, family, size, (*self.last, *self.arrived), leaving)
        if done:
            self.last = done
            self.arrived = ()

    def _add(
        self,
        kind: int,
        family: str,
        size: float,
        after: tuple[int, ...],
        leaving: float = 1.0,
    ) -> tuple[int, ...]:
        """Add a collective, if there is something to communicate and somebody else in the group.

        Parameters
        ----------
        kind
            The collective, an index of `OPERATIONS` such as `ALL_REDUCE`.
        family
            Which family of groups (all groups of one kind) communicates, as ``"tp"`` or ``"ep"``.
        size
            The size in bytes: of an all-gather the shard of a rank, else its whole buffer.
        after
            The numbers in the program of the operations that have to be over before.
        leaving
            Which part of the size leaves the server, 0 to 1. It is less than 1 where data for
            several ranks of another server go there once.

        Returns
        -------
        tuple of int
            The number of the collective in the program, as the only entry; empty if none was
            added.
        """
        if size == 0 or count_members(self.split, family) == 1:
            return ()
        return self._put(Operation(kind, after, family, size, leaving=leaving))

    def _receive(self, one_pass: Pass) -> None:
        """Receive the data of a pass, after the data that its sender sends earlier.

        The next computation waits for them. Messages of the same sender that come before are
        received here, too, as they are taken in the order of their sending.

        Parameters
        ----------
        one_pass
            The pass, which takes one micro-batch through one part of the model at this stage.
        """
        for message in _messages(self.split, self.stage, one_pass, self.micro_batches):
            if message.destination != self.stage:
                continue

            # Messages up to this one are received now. It may have been received before, if it was
            # sent before one that was needed earlier.
            queue = self.incoming[message.source]
            while message.tag not in self.received:
                (self.received[queue[0].tag],) = self._message(RECV, queue[0], ())
                queue.popleft()
            self.arrived = (self.received[message.tag],)

    def _send(self, one_pass: Pass, after: tuple[int, ...]) -> None:
        """Send what a pass gives to another stage, if it gives anything.

        Parameters
        ----------
        one_pass
            The pass, which takes one micro-batch through one part of the model at this stage.
        after
            The numbers in the program of the operations that have to be over before.
        """
        for message in _messages(self.split, self.stage, one_pass, self.micro_batches):
            if message.source == self.stage:
                self._message(SEND, message, after)

    def _message(self, kind: int, message: _Message, after: tuple[int, ...]) -> tuple[int, ...]:
        """Add the end of a message that is at this stage to the program.

        Parameters
        ----------
        kind
            `SEND` if this stage sends it, `RECV` if it receives it.
        message
            The stages that send and receive it, and its tag.
        after
            The numbers in the program of the operations that have to be over before.

        Returns
        -------
        tuple of int
            The number of the operation in the program, as the only entry.
        """
        toward = message.destination if kind == SEND else message.source
        size = self.sizes.message
        return self._put(Operation(kind, after, "pp", size, toward=toward, tag=message.tag))

    def _put(self, operation: Operation) -> tuple[int, ...]:
        """Append an operation to the program of this stage, and return its number.

        The program is the list of operations of the ranks of a stage. In a job with one stream for
        all communication an operation also waits for the last one that communicates. Receiving
        does not, as a rank receives while it does anything else.

        Parameters
        ----------
        operation
            What a rank computes, its part in a collective, or one end of a message, with the
            numbers of the operations that it waits for.

        Returns
        -------
        tuple of int
            Its number in the program, as the only entry: what is to wait for the operation has
            such a tuple.
        """
        number = (len(self.operations),)
        if self.workload.one_stream and operation.kind not in (COMPUTE, RECV):
            after = dict.fromkeys((*operation.after, *self.last_communication))
            operation = operation._replace(after=(*after,))
            self.last_communication = number
        self.operations.append(operation)
        if operation.kind == COMPUTE:
            self.last_computation = number
        return number
