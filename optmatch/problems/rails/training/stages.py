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
    """Derive all computations and communications of one training step from a model's sizes.

    In a step each micro-batch goes forward and backward through all layers of the model; backward
    takes twice the time. The layers are divided among the stages of a pipeline. All ranks (GPUs)
    of a stage do the same, which is written once as a program and then copied for each rank.

    The ranks communicate for each kind of parallelism:

    - tensor parallel: all activations at the end of each layer, by all-reduce (two of a layer are
      joined into one operation);
    - context parallel: keys and values;
    - expert parallel: tokens to their experts and back;
    - pipeline: activations between stages, of which each tensor-parallel rank sends its part;
    - data parallel: gradients, layer by layer as soon as they are there. Those of the layer that a
      stage computes last go after the message to the stage before.

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

    # One program for each stage. Its communications are then cut into those inside servers and
    # those over rails, and the programs are copied to the ranks.
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
    """List what one pass receives from another pipeline stage, and what it sends to another one.

    The layers of the model are cut into parts 0, 1, 2, ... in the order in which data pass them
    forward; a stage holds one or more of them. A pass takes one micro-batch through one part:

    - kind "F", forward: receives from the part before, and sends to the part after;
    - kinds "B" and "I", backward: receive from the part after, and send to the part before;
    - kind "W", gradients of weights alone: exchanges nothing.

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
        """Write down all that a GPU of one pipeline stage does in a training step.

        The result is the list `operations`: computations, collectives and messages, each with the
        numbers of the operations that it waits for. It is written in this order:

        1. the passes: each takes one micro-batch through one part of the model. Its `kind` is "F"
           (forward), "B" (backward), "I" (backward, for gradients of inputs alone) or "W" (for
           gradients of weights alone). The last pass of a part exchanges gradients of weights;
        2. with the schedule "dualpipe", the exchange with the stage that has the same parts;
        3. the optimiser;
        4. with ZeRO stage 1 or 2, the gathering of new weights: each rank has updated only its own
           shard of them.

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
        # The settings: sizes in bytes and seconds, the layers of each part of the model, and the
        # number of micro-batches.
        self.split = split
        self.workload = workload
        self.stage = stage
        self.sizes = Sizes(split, workload, model)
        self.layers_of = split.stage_layers or (model.layers // split.n_parts,) * split.n_parts
        self.micro_batches = workload.count_micro_batches(split.dp)

        # The program so far, and what its next operations have to wait for. Operations are named
        # by their numbers in `operations`; an empty tuple or list says that there is none.
        self.operations: list[Operation] = []
        self.last_computation: tuple[int, ...] = ()
        self.last: tuple[int, ...] = ()  # operations that the next computation waits for
        self.waiting: list[int] = []  # gathered weights that it waits for, too
        self.gathered: list[tuple[int, ...]] = []  # by layer the operation before it, for FSDP
        self.arrived: tuple[int, ...] = ()  # messages for the next computation
        self.last_communication: tuple[int, ...] = ()  # kept only if there is one stream
        self.exchanged: tuple[int, ...] = ()  # the last exchange of gradients
        self.pending = 0  # layers whose gradients wait for a bucket

        # A stage receives the messages of each sender in the order in which they are sent.
        self.received: dict[int, int] = {}  # the operation that receives a message, by its tag
        self.incoming: dict[int, deque[_Message]] = defaultdict(deque)
        for message in incoming:
            self.incoming[message.source].append(message)

        # All passes are written, one after the other; with overlap a forward pass and the backward
        # pass after it are written together. ``left[part]`` counts the passes that still make
        # gradients of weights of the part: the last of them exchanges these gradients.
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

        # The optimiser runs once the gradients of all copies of the weights are summed.
        if split.schedule == "dualpipe":
            self._join_copies()
        updated = self._update()

        # Each rank has updated its shard alone: weights are gathered before the next step, layer
        # by layer, and at both ends of the model those of the vocabulary.
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
        """Write the operations of one pass, or of two passes that go on side by side.

        A pass takes one micro-batch through the layers of one part of the model. Each pass is a
        generator that writes some of its operations and then yields. Two passes are written in
        turns, the backward one first: while one of them communicates, the other one computes.
        Neither waits for communication of the other. With overlap, what the passes give to other
        stages is sent here, after both are written.

        Parameters
        ----------
        passes
            One pass; or two with overlap, a forward and a backward one in this order.
        turns
            ``turns[k]`` writes the operations of ``passes[k]``. It yields True wherever the other
            pass may be continued, and ends with the pass.
        """
        # Without overlap there is one pass, which is written to its end and sends by itself.
        if not self.split.overlap:
            for _ in turns[0]:
                pass
            return

        # An entry of the queue is a pass that is not yet through: its number, the operation that
        # its next one waits for (`last`), and messages that it waits for (`arrived`). These two
        # are put back before the pass goes on. The backward pass, which is the last, begins.
        waiting = deque((k, (), ()) for k in reversed(range(len(passes))))
        ends: dict[int, tuple[int, ...]] = {}
        while waiting:
            k, self.last, self.arrived = waiting.popleft()
            if next(turns[k], False):
                waiting.append((k, self.last, self.arrived))
            else:
                ends[k] = self.last

        # All passes are through, and ``ends[k]`` is the last operation of pass k.
        for k, one_pass in enumerate(passes):
            self._send(one_pass, ends[k])

    def _forward(self, one_pass: Pass) -> Iterator[bool]:
        """Write the operations of one micro-batch's way forward through one part of the model.

        They are appended to the program of the stage in this order:

        1. receive the activations from the part before;
        2. for each layer: gather its weights (if they are sharded), exchange keys and values (with
           context parallelism), compute;
        3. in the last part of the model: compute the output over the vocabulary;
        4. send the activations to the part after. With overlap the caller does this.

        It is a generator, so that a backward pass can be written in turns with it.

        Parameters
        ----------
        one_pass
            The pass, which takes one micro-batch through one part of the model at this stage.

        Yields
        ------
        bool
            True, once or twice in each layer, where the caller may continue another pass.
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
        """Write the operations of one micro-batch's way back through one part of the model.

        They are appended to the program of the stage in this order:

        1. receive the gradients from the part after;
        2. in the last part of the model: compute back through the output over the vocabulary;
        3. for each layer: gather its weights (if they are sharded), compute back through it,
           exchange the gradients of keys and values (with context parallelism), and in some passes
           exchange the gradients of its weights;
        4. send the gradients of inputs to the part before: before the last exchange of step 3, or
           after it in a job with one stream for all communication. With overlap the caller sends.

        A pass of kind "W" only computes and exchanges gradients of weights: the pass "I" before it
        has done the rest. The function is a generator, so that a forward pass can be written in
        turns with it.

        Parameters
        ----------
        one_pass
            The pass: of kind "B" for gradients of inputs and weights, which are half of the work
            each; "I" for those of inputs alone; "W" for those of weights alone.
        is_last
            Whether no later pass of this part in the step makes gradients of weights. They are
            exchanged after this one; from ZeRO stage 2 on, after each one.

        Yields
        ------
        bool
            True in each layer, once or twice, where the caller may continue a forward pass; a pass
            of kind "W" yields nothing.
        """
        # `where` is the number of the part in the whole model, and `effort` the work in forward
        # passes. `syncs` says whether this pass exchanges gradients of weights, by `kind`: where
        # each rank keeps a shard of the optimiser's state (ZeRO), it needs only that shard's sum.
        where = self._where(one_pass.part)
        effort = _EFFORT[one_pass.kind]
        syncs = one_pass.kind != "I" and (is_last or self.split.zero_stage >= 2)
        overlap = self.split.overlap
        kind = REDUCE_SCATTER if self.split.zero_stage else ALL_REDUCE

        # The output over the vocabulary, which only the last part of the model has, comes first.
        self._receive(one_pass)
        if where == self.split.n_parts - 1:
            self._compute(effort * self.sizes.head_s)
            if syncs:
                self._exchange(kind, "dp", self.sizes.words, self.last)

        # Each layer is computed back; with overlap in pieces, between which the forward pass goes
        # on.
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
        # With overlap gradients of weights are computed after `last`, by the last computation.
        if where == 0 and self.split.n_parts > 1 and syncs:
            self._exchange(
                kind,
                "dp",
                self.sizes.words,
                self.last_computation if self.split.overlap else self.last,
            )

    def _join_copies(self) -> None:
        """Sum gradients with the other stage that holds the same two parts of the model.

        With DualPipe each part of the model is at two stages, which see different micro-batches.
        With 4 stages, stage 1 and stage 2 both hold the parts 1 and 2. Stage s sums the gradients
        of part s: stage 1 first sends the gradients of part 2 and receives those of part 1; then
        it sends the new weights of part 1 and receives those of part 2. These four messages are
        appended to the program, and its next computation waits for the last one.
        """
        # `tag` is the first number after the tags of messages of passes, which have 2 for each
        # part and micro-batch.
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
        """Write the operations of one layer: computation, and what tensor and expert ranks send.

        They are appended to the program of the stage. Without experts the layer is one piece: the
        tensor-parallel sums after attention and after the feed-forward network are joined into
        one. With experts it has two halves: attention and an all-to-all that brings tokens to
        their experts; then the experts and an all-to-all that brings tokens back.

        Parameters
        ----------
        effort
            The work as a multiple of that of a forward pass: 1 forward, 2 backward.

        Yields
        ------
        bool
            True at the end of the layer or of each half, where the caller may continue another
            pass.
        """
        sizes = self.sizes
        # Without experts nothing stands between the two sums of a layer: they are one operation.
        if self.split.ep == 1:
            self._share(2 * sizes.activation)
            self._compute(effort * (sizes.attention_s + sizes.ffn_s))
            self._sum(2 * sizes.activation)
            yield True
            return

        # With experts: attention and the way to the experts, then the experts and the way back.
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
        """Write the way back through one layer in pieces, between which a forward pass goes on.

        The operations are appended to the program of the stage. With experts the layer has two
        halves, first the experts and then attention; without, it is one. In each half gradients of
        inputs are computed first, as what is sent needs them; those of weights come last, and
        nothing that is sent waits for them.

        Parameters
        ----------
        effort
            The work as a multiple of that of a forward pass: 1 is for gradients of inputs, and
            what is more for those of weights.

        Yields
        ------
        bool
            True before the first half and between both, where the caller may continue the forward
            pass.
        """
        # `halves` are the seconds of each half in a forward pass. With experts the layer begins
        # with the gradients of tokens on their way to the experts.
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
        """Add the gradients of a layer to those that wait, and exchange all of them if enough.

        Gradients of several layers are exchanged at once, as one *bucket*: when they have at least
        `bucket_bytes`, or with the last layer of a pass. `pending` counts the layers that wait; it
        is 0 after an exchange.

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
        """Write the computation of the optimiser, which waits for all gradients.

        It lasts as long as the memory needs to move `optimizer_bytes` for each weight that this
        rank updates. There are three kinds of weights:

        - dense: those of layers that all replicas hold;
        - sparse: those of experts, which only replicas with the same experts hold;
        - words: those of the vocabulary, at the first and the last part of the model.

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

        # The numbers of weights that this rank updates. Both ends of the model have weights of the
        # vocabulary; where the optimiser's state is sharded, each rank updates its shard alone.
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
        """Gather weights, or sum their gradients, among the ranks that hold the same weights.

        The operations are appended to the program: one collective, or two with hybrid sharding.
        There the ranks that hold the same weights form several groups, and each group divides all
        these weights among its members. Gradients are summed in each group first (`family`), and
        then among the groups (family "copies").

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
