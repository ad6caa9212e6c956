"""One step of training: operations of ranks of each pipeline stage, by model sizes.

A *pass* takes one micro-batch through one *part* of the model, forward or backward. A stage has
one part or several; the *part of the model* of a pass is its number in the whole model, from 0. A
*family* is a set of groups of one kind, as in `optmatch.problems.rails.training.layout`.
Operations are named by their numbers in the program of their stage, in tuples: the empty tuple is
none.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
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
    """Write the step of all ranks.

    `groups` are all groups of the job; `spanning` says how collectives over servers and rails are
    cut. Each stage of the pipeline has a program, whose communications are cut into those inside
    servers and those over rails, and which is copied to the ranks of the stage.
    """
    assert workload.model is not None  # checked when the job was made
    batches = workload.count_micro_batches(split.dp)
    passes = [
        list_passes(split.schedule, split.pp, stage, split.parts_per_rank, batches)
        for stage in range(split.pp)
    ]

    # The messages between two stages, in the order in which they are sent.
    sent = defaultdict[tuple[int, int], deque[_Message]](deque)
    for stage, order in enumerate(passes):
        for one_pass in order:
            message = _find_message(split, stage, one_pass, batches, leaves=True)
            if message is not None:
                sent[stage, message.toward].append(message)

    # One program for each stage. Its communications are then cut into those inside servers and
    # those over rails, and the programs are copied to the ranks.
    programs = [
        _Program(split, workload, workload.model, stage, order, sent).operations
        for stage, order in enumerate(passes)
    ]
    return place_programs(split, groups, span_rails(programs, groups, spanning))


_EFFORT: dict[Kind, float] = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}
"""The work of a pass, in forward passes."""


class _Message(NamedTuple):
    """The bytes that a part of the model gives to the next one, or to the one before."""

    toward: int
    """The stage at the other end."""
    tag: int
    """The same at both ends, and of no other message between the same stages."""


def _find_message(
    split: Parallelism, stage: int, one_pass: Pass, batches: int, *, leaves: bool
) -> _Message | None:
    """Find the message of a pass that leaves a stage, or else the one that comes in.

    `batches` is the number of micro-batches. Weights (W) need no message, nor do parts whose
    neighbour is at the same stage, nor both ends of the model.
    """
    if one_pass.kind == "W":
        return None

    # Forward a pass leaves to the next part and comes from the one before, backward the reverse.
    is_forward = one_pass.kind == "F"
    part_of_model = find_part(split.schedule, split.pp, stage, one_pass.part)
    neighbour = part_of_model + 1 if leaves == is_forward else part_of_model - 1
    if not 0 <= neighbour < split.n_parts:
        return None
    toward = find_stage(split.schedule, split.pp, neighbour, one_pass.part)
    if toward == stage:
        return None

    # Two tags for each pair of neighbours and micro-batch: forward, and one more for backward.
    tag = 2 * (min(part_of_model, neighbour) * batches + one_pass.batch)
    return _Message(toward, tag + (not is_forward))


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
    sent
        ``sent[source, destination]``: the messages between two stages, in the order in which they
        are sent; those that the stage receives are taken out.
    """

    def __init__(
        self,
        split: Parallelism,
        workload: Workload,
        model: TransformerModel,
        stage: int,
        passes: Sequence[Pass],
        sent: Mapping[tuple[int, int], deque[_Message]],
    ) -> None:
        """Write the program of a stage: all passes, then the update of weights."""
        # The settings: sizes in bytes and seconds, the number of micro-batches, the layers of each
        # part of the whole model, and the numbers of the parts of this stage in it.
        self.split = split
        self.workload = workload
        self.stage = stage
        self.sizes = Sizes(split, workload, model)
        self.layers_of = split.stage_layers or (model.layers // split.n_parts,) * split.n_parts
        self.micro_batches = workload.count_micro_batches(split.dp)
        self.parts = [
            find_part(split.schedule, split.pp, stage, part)
            for part in range(split.parts_per_rank)
        ]

        # The program so far, and what its next operations have to wait for. Operations are named
        # by their numbers in `operations`; an empty tuple or list says that there is none. `last`
        # may be communications, such as the sum of a layer; `last_computation` never is.
        self.operations: list[Operation] = []
        self.last_computation: tuple[int, ...] = ()
        self.last: tuple[int, ...] = ()  # operations that the next computation waits for
        self.waiting: list[int] = []  # gathers of weights that it waits for, too
        self.before_layer: tuple[int, ...] = ()  # `last` before the layer before, for FSDP
        self.arrived: tuple[int, ...] = ()  # messages for the next computation
        self.last_communication: tuple[int, ...] = ()  # kept only if there is one stream
        self.exchanged: tuple[int, ...] = ()  # the last exchange of gradients
        self.pending = 0  # layers whose gradients wait for a bucket

        # ``passes_left[part]`` counts the passes that still make gradients of weights of the part:
        # the last of them exchanges these gradients.
        self.passes_left = dict.fromkeys(range(split.parts_per_rank), self.micro_batches)

        self.sent = sent
        self.received: dict[int, int] = {}  # the operation that receives a message, by its tag

        # All passes are written, one after the other; with overlap a forward pass and the backward
        # pass after it are written together.
        todo = deque(passes)
        while todo:
            side_by_side = [todo.popleft()]
            if split.overlap and todo and (side_by_side[0].kind, todo[0].kind) == ("F", "B"):
                side_by_side.append(todo.popleft())
            self._write_passes(side_by_side)

        # The optimiser runs once the gradients of all copies of the weights are summed.
        if split.schedule == "dualpipe":
            self._join_copies()
        updated = self._update_weights()

        # Each rank has updated its shard alone: weights are gathered before the next step, layer
        # by layer (`_exchange_layers`: dense weights and those of experts), and at both ends of
        # the model those of the vocabulary (`_exchange_weights`: of one family of groups).
        if split.zero_stage in (1, 2):
            for part_of_model in self.parts:
                for _ in range(self.layers_of[part_of_model]):
                    self._exchange_layers(ALL_GATHER, updated)
                if part_of_model in (0, split.n_parts - 1):
                    self._exchange_weights(
                        ALL_GATHER, "dp", self.sizes.vocabulary_weights, updated
                    )

    def _write_passes(self, passes: Sequence[Pass]) -> None:
        """Write passes side by side, the backward pass first, or a single one.

        A pass is written by a generator, which goes on until it yields; then the next pass has its
        turn. The message of a pass is sent when all are through, but for that of a backward pass
        without overlap, which sends it by itself.
        """
        # An entry of the queue is a pass that is not yet through: its number, the operations that
        # its next one waits for (`last`), and messages that it waits for (`arrived`). These two
        # are put back before the pass goes on. The backward pass, which is the last, begins. With
        # overlap a pass does not wait for the passes before it.
        overlap = self.split.overlap
        turns = []
        for one_pass in passes:
            write = self._forward if one_pass.kind == "F" else self._backward
            turns.append(write(one_pass))
        last = () if overlap else self.last
        waiting = deque((k, last, self.arrived) for k in reversed(range(len(passes))))

        # `next` returns True where a pass yields, and False when it has ended: ``ends[k]`` is then
        # the last operation of pass k.
        ends: dict[int, tuple[int, ...]] = {}
        while waiting:
            k, self.last, self.arrived = waiting.popleft()
            if next(turns[k], False):
                waiting.append((k, self.last, self.arrived))
            else:
                ends[k] = self.last
        for k, one_pass in enumerate(passes):
            if overlap or one_pass.kind == "F":
                self._send(one_pass, ends[k])

    def _forward(self, one_pass: Pass) -> Iterator[bool]:
        """Write a forward pass layer by layer; it yields True where another pass may go on."""
        self._receive(one_pass)
        part_of_model = self.parts[one_pass.part]
        for _ in range(self.layers_of[part_of_model]):
            self._gather_weights()
            self._communicate(ALL_GATHER, "cp", self.sizes.keys_and_values)
            yield from self._write_layer(1.0)  # all of the computation of a forward pass
        if part_of_model == self.split.n_parts - 1:
            self._compute(self.sizes.head_s)

    def _backward(self, one_pass: Pass) -> Iterator[bool]:
        """Write a backward pass, or its half for inputs (I) or weights (W).

        Gradients of weights are exchanged in the last pass that makes gradients of this part of
        the model, or in all where they are sharded. With overlap it yields where a forward pass
        goes on (`_write_layer_back`), and leaves its message to `_write_passes`.
        """
        # `part_of_model` is the number of the part in the whole model, and `effort` the work of
        # this pass, if a forward pass is 1. ``self.last`` are the operations that the next one
        # waits for: `_compute` and others set it. `syncs` says whether this pass exchanges
        # gradients of weights, by `kind`: where each rank keeps a shard of the optimiser's state
        # (ZeRO), it needs only that shard's sum.
        part_of_model = self.parts[one_pass.part]
        effort = _EFFORT[one_pass.kind]
        overlap = self.split.overlap
        syncs = False
        if one_pass.kind != "I":
            self.passes_left[one_pass.part] -= 1
            syncs = self.passes_left[one_pass.part] == 0 or self.split.zero_stage >= 2
        kind = REDUCE_SCATTER if self.split.zero_stage else ALL_REDUCE

        # The output over the vocabulary, which only the last part of the model has, comes first.
        self._receive(one_pass)
        if part_of_model == self.split.n_parts - 1:
            self._compute(effort * self.sizes.head_s)
            if syncs:
                self._exchange_weights(kind, "dp", self.sizes.vocabulary_weights, self.last)

        # Each layer is computed back, between a gather of its weights, if they are sharded, and
        # the exchange of its gradients. With overlap a forward pass goes on in between.
        for layer in range(self.layers_of[part_of_model]):
            if one_pass.kind == "W":
                self._compute(effort * (self.sizes.attention_s + self.sizes.ffn_s))
            else:
                self._gather_weights()
                yield from self._write_layer_back(effort) if overlap else self._write_layer(effort)
                gradients_bytes = self.sizes.keys_and_values * self.split.cp
                self._communicate(REDUCE_SCATTER, "cp", gradients_bytes)

            # The message to the stage before goes as soon as its data are there, and before the
            # gradients of this layer; with one stream it goes after all gradients.
            is_last_layer = layer == self.layers_of[part_of_model] - 1
            if is_last_layer and not self.workload.one_stream and not overlap:
                self._send(one_pass, self.last)
            if syncs:
                self._exchange_full_bucket(kind, is_last_layer=is_last_layer)
        if self.workload.one_stream and not overlap:
            self._send(one_pass, self.last)

        # The first part has the embedding, whose gradients are the last ones of a backward pass.
        # With overlap the computation that makes them may come after `last`: they wait for that.
        if part_of_model == 0 and self.split.n_parts > 1 and syncs:
            self._exchange_weights(
                kind,
                "dp",
                self.sizes.vocabulary_weights,
                self.last_computation if self.split.overlap else self.last,
            )

    def _join_copies(self) -> None:
        """Exchange gradients and weights with the stage of copies (DualPipe).

        Stage s and stage pp - 1 - s have the same two parts of the model. Each sums the gradients
        of one of them and sends back its weights.
        """
        # `tag` is the first number after the tags of messages of passes, which have 2 for each
        # part and micro-batch.
        last = self.split.pp - 1
        other = last - self.stage
        tag = 2 * self.split.n_parts * self.micro_batches

        # Two exchanges: gradients are of the part that the receiver sums, weights of the part
        # that the sender has summed. Stage s sums the part of its own number: with pp = 4, stage 0
        # sums part 0 and stage 3 part 3. The first exchange waits for the last operation that was
        # written, the second one for what the first one brings.
        after = (*self.last, len(self.operations) - 1)
        for width, is_of_sender in (
            (self.workload.gradient_width_bytes, False),
            (self.workload.width_bytes, True),
        ):
            for kind, source in ((SEND, self.stage), (RECV, other)):
                part = source if is_of_sender else last - source
                weights = self.layers_of[part] * (self.sizes.dense + self.sizes.sparse)
                weights += self.sizes.vocabulary_weights * (part in (0, last))
                put = Operation(kind, after, "pp", weights * width, toward=other, tag=tag + source)
                last_exchange = self._append(put)
            after = last_exchange
            tag += self.split.pp
        self.arrived = after

    def _write_layer(self, effort: float) -> Iterator[bool]:
        """Write a layer, with `effort` times the computation of a forward pass.

        Operations are added to the program, and it yields after each of the one or two halves of
        the layer, so that the caller can put other work between them. With experts the halves end
        with their dispatch and their combine.
        """
        sizes = self.sizes
        # Without experts nothing stands between the two sums of a layer: they are one operation.
        if self.split.ep == 1:
            self._write_half(2 * sizes.activation, effort * (sizes.attention_s + sizes.ffn_s))
            yield True
            return

        # With experts: attention and the way to the experts, then the experts and the way back.
        self._write_half(sizes.activation, effort * sizes.attention_s)
        self._communicate(ALL_TO_ALL, "ep", sizes.dispatch, sizes.leaving)
        yield True
        self._write_half(sizes.activation, effort * sizes.ffn_s, combines=True)
        yield True

    def _write_layer_back(self, effort: float) -> Iterator[bool]:
        """Write a layer of a backward pass that overlaps with a forward one.

        The other pass goes on between halves of the layer; gradients of weights are computed
        beside what is sent. `effort` is 1 if they are left to a later pass, else 2.
        """
        # `halves` are the seconds of each half in a forward pass. With experts the layer begins
        # with the gradients of tokens on their way to the experts; without, nothing is sent there.
        sizes = self.sizes
        halves: tuple[float, ...] = (sizes.attention_s + sizes.ffn_s,)
        if self.split.ep > 1:
            halves = (sizes.ffn_s, sizes.attention_s)
        self._communicate(ALL_TO_ALL, "ep", sizes.dispatch, sizes.leaving)
        yield True

        # The computation for gradients of inputs comes before what is sent, and that for
        # gradients of weights after it. A layer has two sums of activations, one in each half.
        for number, half_s in enumerate(halves):
            if number > 0:
                yield True
            self._write_half(sizes.activation * (2 / len(halves)), half_s, combines=number == 0)
            if effort > 1:
                duration_s = (effort - 1) * half_s
                self._append(Operation(COMPUTE, self.last_computation, duration_s=duration_s))

    def _write_half(self, size: float, duration_s: float, *, combines: bool = False) -> None:
        """Write a half of a layer: a computation between what tensor-parallel ranks exchange.

        `size` is that of the input, and of the output that is summed, in bytes. Ranks that share
        activations gather the input, and scatter the sum. With `combines`, tokens come back from
        their experts before the sum.
        """
        kind = ALL_REDUCE
        if self.split.sequence_parallel:
            kind = REDUCE_SCATTER
            self._communicate(ALL_GATHER, "tp", size / self.split.tp)
        self._compute(duration_s)
        if combines:
            self._communicate(ALL_TO_ALL, "ep", self.sizes.combine, self.sizes.leaving)
        self._communicate(kind, "tp", size)

    def _gather_weights(self) -> None:
        """Gather the weights of a layer where each rank has a shard (ZeRO 3)."""
        # To gather for a layer waits for what came before the layer before it, so that weights of
        # two layers at most are there.
        if self.split.zero_stage == 3:
            self.waiting += self._exchange_layers(ALL_GATHER, self.before_layer)
            self.before_layer = self.last

    def _exchange_full_bucket(self, kind: int, *, is_last_layer: bool) -> None:
        """Exchange the gradients of layers once a bucket is full, or at the end of a pass.

        It is called after each layer; `is_last_layer` says that the pass has no further one.
        """
        self.pending += 1
        width = self.workload.gradient_width_bytes
        ready = self.pending * (self.sizes.dense + self.sizes.sparse) * width
        if is_last_layer or ready >= self.workload.bucket_bytes:
            self._exchange_layers(
                kind, self.last_computation if self.split.overlap else self.last, self.pending
            )
            self.pending = 0

    def _update_weights(self) -> tuple[int, ...]:
        """Update the weights of this rank at the rate of memory, and return this operation.

        The computation lasts for the bytes of the optimiser's state over the bandwidth of memory.
        None is written, and the tuple is empty, if no bandwidth is stated.
        """
        workload = self.workload
        split = self.split
        if workload.memory_bytes_per_s is None or not workload.optimizer_bytes:
            return ()
        layers = sum(self.layers_of[part_of_model] for part_of_model in self.parts)

        # The numbers of weights that this rank updates. Both ends of the model have weights of the
        # vocabulary; where the optimiser's state is sharded, each rank updates its shard alone.
        vocabulary = self.sizes.vocabulary_weights * len({*self.parts} & {0, split.n_parts - 1})
        dense = layers * self.sizes.dense + vocabulary
        sparse = layers * self.sizes.sparse
        if split.zero_stage > 0:
            dense /= count_members(split, "dp")
            sparse /= count_members(split, "edp")
        moved_bytes = (dense + sparse) * workload.optimizer_bytes
        self._compute(moved_bytes / workload.memory_bytes_per_s, self.exchanged)
        return self.last

    def _exchange_layers(
        self, kind: int, after: tuple[int, ...], layers: int = 1
    ) -> tuple[int, ...]:
        """Exchange the weights or gradients of layers among replicas, those of experts apart.

        `after` are the operations to wait for, and the result those that were written.
        """
        dense = self._exchange_weights(kind, "dp", layers * self.sizes.dense, after)
        return dense + self._exchange_weights(kind, "edp", layers * self.sizes.sparse, after)

    def _exchange_weights(
        self, kind: int, family: str, weights: float, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Gather so many `weights`, or reduce their gradients, in a family of groups.

        Copies of shards reduce what is left. Returns the last operations.
        """
        if kind == ALL_GATHER:
            size = weights * self.workload.width_bytes / count_members(self.split, family)
            return self._write_communication(kind, family, size, after)

        # Copies of a shard reduce what is left of the buffer after the reduction inside a shard.
        size = weights * self.workload.gradient_width_bytes
        written = self._write_communication(kind, family, size, after) or after
        if family == "dp" and kind == REDUCE_SCATTER:
            part = size / count_members(self.split, family)
            written = self._write_communication(ALL_REDUCE, "copies", part, written) or written

        # The optimiser waits for the last exchanges: earlier ones in the same streams are over by
        # then.
        self.exchanged = (*self.exchanged[-1:], *written)
        return written

    def _compute(self, duration_s: float, after: tuple[int, ...] = ()) -> None:
        """Write a computation, which waits for the last one, messages and gathered weights."""
        # Each number once, in this order.
        after = (*dict.fromkeys((*self.last, *self.arrived, *self.waiting, *after)),)
        self.arrived = ()
        self.waiting = []
        self.last = self._append(Operation(COMPUTE, after, duration_s=duration_s))

    def _communicate(self, kind: int, family: str, size: float, leaving: float = 1.0) -> None:
        """Write a communication that the next computation waits for.

        `size` is in bytes, and `leaving` the part of it that leaves servers.
        """
        written = self._write_communication(
            kind, family, size, (*self.last, *self.arrived), leaving
        )
        if written:
            self.last = written
            self.arrived = ()

    def _write_communication(
        self,
        kind: int,
        family: str,
        size: float,
        after: tuple[int, ...],
        leaving: float = 1.0,
    ) -> tuple[int, ...]:
        """Write a communication, if there is anything to send to anybody; return it."""
        if size == 0 or count_members(self.split, family) == 1:
            return ()
        return self._append(Operation(kind, after, family, size, leaving=leaving))

    def _receive(self, one_pass: Pass) -> None:
        """Receive the message of a pass, and those that were sent before it."""
        message = _find_message(self.split, self.stage, one_pass, self.micro_batches, leaves=False)
        if message is None:
            return

        # Messages up to this one are received now. It may have been received before, if it was
        # sent before one that was needed earlier.
        queue = self.sent[message.toward, self.stage]
        while message.tag not in self.received:
            tag = queue.popleft().tag
            receive = Operation(RECV, (), "pp", self.sizes.message, toward=message.toward, tag=tag)
            (self.received[tag],) = self._append(receive)
        self.arrived = (self.received[message.tag],)

    def _send(self, one_pass: Pass, after: tuple[int, ...]) -> None:
        """Send the message of a pass."""
        message = _find_message(self.split, self.stage, one_pass, self.micro_batches, leaves=True)
        if message is not None:
            size = self.sizes.message
            self._append(
                Operation(SEND, after, "pp", size, toward=message.toward, tag=message.tag)
            )

    def _append(self, operation: Operation) -> tuple[int, ...]:
        """Append an operation to the program, and return its number as a tuple of one.

        If the workload has one stream, all communication of a rank is one queue: what it sends
        then waits for its communication before, and so do its collectives, but receives do not.
        Keeps the number of a computation as `last_computation`.
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
