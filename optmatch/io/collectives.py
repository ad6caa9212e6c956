"""Plans of collectives as programs of MSCCL and MSCCL++, and as Chakra traces.

`Layout` says where ranks have chunks, in the buffers of either runtime.

MSCCL knows neither rounds nor circuits. Each GPU has a thread block for each rank that it sends to
or hears of, whose steps run in order; a step of another block that it must wait for is named.

In MSCCL++ a rank does its rounds one after another: it puts data into buffers of others, signals
them, waits for the signals of those that put data into its own, and adds these up or copies them.
A buffer that may still be read is not written from outside: what comes goes to scratch first. A
thread block has few operations and peers, so a rank has several, of which each waits for the one
before.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from optmatch.io.rails.chakra import RECEIVE, SEND, Node, trace_bytes
from optmatch.model import InputError, Solution
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import KEEP, OWN, REDUCE, REPLACE, SUM, plan_of

IntArray = NDArray[np.int64]


class Slot(NamedTuple):
    """A place of a chunk in a buffer."""

    buffer: str
    """``"i"`` input, ``"o"`` output, ``"s"`` scratch."""
    first_unit: int
    n_units: int


class Send(NamedTuple):
    """A chunk that one rank sends to another in a round."""

    source: int
    """A rank, as is the target."""
    target: int
    read: Slot
    """Where the source has it."""
    written: Slot
    """Where the target puts it."""
    is_added: bool
    """Whether it is added to what is there, and does not take its place."""
    sum: Slot | None
    """Where the target adds it up as well; None if it does not."""


class Layout:
    """Where ranks have chunks, in buffers of equal units.

    Buffers of an uneven all-to-all have its blocks one after another, and no gaps. The unit of its
    blocks is their greatest common divisor; of other collectives a chunk is a unit. Runtimes know
    no parts of chunks: a plan that sends parts has each of them as a chunk here, of several units.

    Parameters
    ----------
    runtime
        The name of the runtime, for messages.
    solution
        A solution of a collective.

    Raises
    ------
    InputError
        For plans that no runtime can hold: of blocks that are cut in different parts, or of blocks
        of half a byte.
    """

    def __init__(self, runtime: str, solution: Solution) -> None:
        """Size the chunks of a plan in units, and begin with empty scratch buffers.

        A send of a part becomes one of a chunk of its own; parts of no unit are not sent.
        """
        self.plan = plan_of(solution)
        problem = solution.problem
        assert isinstance(problem, Collective)
        # A plan that states no places sends from sums into sums.
        self.problem = problem
        places = self.plan.places
        if not len(places):
            places = np.full((len(self.plan.sends), 2), SUM, dtype=np.int32)
        self.rows = np.hstack([self.plan.sends, places])
        """Rows of sends: round, source, target, chunk, kind, from and into which place."""
        self.is_all_to_all = problem.operation == "all-to-all"
        is_uneven = self.is_all_to_all and problem.demand_bytes is not None
        self.collective = _UNEVEN if is_uneven else problem.operation
        """The operation, by the keys of the names that a runtime has for it."""

        chunk_bytes = self.plan.chunk_bytes
        self.units = np.ones(len(chunk_bytes), dtype=np.int64)
        """``units[chunk]``: its size. In an all-to-all chunk ``source * n_ranks + target``, or
        with parts ``(source * n_ranks + target) * n_parts + part``."""
        if len(self.plan.parts):
            parts, part_of_send = np.unique(self.plan.parts, axis=0, return_inverse=True)
            part_units = _units_of_parts(runtime, parts, chunk_bytes)
            self.units = np.tile(part_units, len(chunk_bytes))
            self.rows[:, 3] = self.rows[:, 3] * len(parts) + part_of_send.reshape(-1)
            self.rows = self.rows[self.units[self.rows[:, 3]] > 0]
        elif is_uneven:
            # Chunks of 4, 6 and 8 bytes are 2, 3 and 4 units.
            whole_bytes = np.rint(chunk_bytes).astype(np.int64)
            if (whole_bytes != chunk_bytes).any():
                raise InputError(f"{runtime}: blocks of whole bytes can be written, no other")
            self.units = whole_bytes // np.gcd.reduce(whole_bytes)
        self.first_unit = np.cumsum(self.units) - self.units
        """``first_unit[chunk]``: how many units all chunks before it have."""
        self.scratch = [0] * problem.n_ranks
        """``scratch[rank]``: how many units of its scratch buffer are in use."""
        self._slots: dict[tuple[int, int, int], Slot] = {}

    def find_slot(self, rank: int, chunk: int, place: int = SUM) -> Slot:
        """Return where a rank has a chunk, or what it keeps of it at a place beside the sum."""
        if (rank, chunk, place) not in self._slots:
            self._slots[rank, chunk, place] = self._new_slot(rank, chunk, place)
        return self._slots[rank, chunk, place]

    def _new_slot(self, rank: int, chunk: int, place: int) -> Slot:
        """Choose where a rank has a chunk: in its input, output or scratch."""
        n_ranks = self.problem.n_ranks
        n_units = int(self.units[chunk])
        if place != SUM:
            return self.reserve_scratch(rank, n_units)
        first_unit = int(self.first_unit[chunk])
        if not self.is_all_to_all:
            is_in_output = self.problem.operation in ("all-gather", "broadcast")
            return Slot("o" if is_in_output else "i", first_unit, n_units)
        # Blocks lie in the input by destination, and in the output by source.
        blocks = self._block_units()
        n_parts = len(self.units) // n_ranks**2
        source, destination = divmod(chunk // n_parts, n_ranks)
        if rank == source:
            return Slot("i", first_unit - int(blocks[:source].sum()), n_units)
        if rank == destination:
            first_unit -= int(blocks.reshape(-1)[: source * n_ranks + destination].sum())
            first_unit += int(blocks[:source, destination].sum())
            return Slot("o", first_unit, n_units)
        return self.reserve_scratch(rank, n_units)

    def _block_units(self) -> IntArray:
        """Return ``blocks[source, target]``: the units of each block of an all-to-all."""
        n_ranks = self.problem.n_ranks
        return np.asarray(self.units.reshape(n_ranks, n_ranks, -1).sum(axis=2))

    def reserve_scratch(self, rank: int, n_units: int) -> Slot:
        """Return a new place in the scratch buffer of a rank."""
        first_unit = self.scratch[rank]
        self.scratch[rank] += n_units
        return Slot("s", first_unit, n_units)

    def first_copies(self, rank: int) -> list[tuple[Slot, Slot]]:
        """List what a rank copies within its buffers before the first round: from where to where.

        In an all-to-all this is its own block, from its input to its output, if it has one. Of
        chunks that it sends on as they were at first, it keeps a copy beside the sum.
        """
        if self.is_all_to_all:
            blocks = self._block_units()
            n_units = int(blocks[rank, rank])
            if not n_units:
                return []
            source = Slot("i", int(blocks[rank, :rank].sum()), n_units)
            return [(source, Slot("o", int(blocks[:rank, rank].sum()), n_units))]
        is_own = (self.rows[:, 1] == rank) & (self.rows[:, 5] == OWN)
        return [
            (self.find_slot(rank, chunk), self.find_slot(rank, chunk, OWN))
            for chunk in np.unique(self.rows[is_own, 3]).tolist()
        ]

    def buffer_units(self, rank: int) -> tuple[int, int]:
        """Return the sizes of the input and of the output of a rank."""
        # Outside all-to-alls ranks have all chunks, but before an all-gather and after a
        # reduce-scatter only a part of them.
        n_units = int(self.units.sum())
        if self.is_all_to_all:
            blocks = self._block_units()
            return int(blocks[rank].sum()), int(blocks[:, rank].sum())
        if self.problem.operation == "all-gather":
            return n_units // self.problem.n_ranks, n_units
        if self.problem.operation == "reduce-scatter":
            return n_units, n_units // self.problem.n_ranks
        return n_units, n_units

    def rounds(self) -> Iterator[list[Send]]:
        """Yield the sends of each round that has some."""
        for rows in np.split(self.rows, np.flatnonzero(np.diff(self.rows[:, 0])) + 1):
            # What replaces a sum is added to what has come before it in the same round.
            sends = []
            replaced: set[tuple[int, Slot]] = set()
            for _, source, target, chunk, kind, from_place, to_place in rows.tolist():
                written = self.find_slot(target, chunk, to_place)
                sends.append(
                    Send(
                        source,
                        target,
                        read=self.find_slot(source, chunk, from_place),
                        written=written,
                        is_added=kind == REDUCE or (target, written) in replaced,
                        sum=self.find_slot(target, chunk) if kind == KEEP else None,
                    )
                )
                if kind == REPLACE:
                    replaced.add((target, written))
            yield sends


def _units_of_parts(
    runtime: str, parts: NDArray[np.float64], chunk_bytes: NDArray[np.float64]
) -> IntArray:
    """Return the units of the parts in which all chunks are cut: `_UNITS_OF_CUT` in all.

    `parts` has rows of first byte and bytes, by first byte. Each cut is moved to the nearest unit;
    a part of almost nothing then has 0 units, and its neighbour carries it.
    """
    most_bytes = chunk_bytes.max()
    ends = np.cumsum(parts[:, 1]) / most_bytes
    gaps = np.append(parts[:, 0] / most_bytes, 1.0) - np.append(0.0, ends)
    # The block that a rank keeps to itself has no bytes.
    if not np.isin(chunk_bytes, [0.0, most_bytes]).all() or np.abs(gaps).max() > 1e-9:
        raise InputError(
            f"{runtime}: a plan that cuts blocks in different parts cannot be written, as some of"
            " uneven all-to-alls; plans of other methods can (`--method`)"
        )
    units: IntArray = np.diff(np.rint(ends * _UNITS_OF_CUT).astype(np.int64), prepend=0)
    return units


_PEERS_PER_CHANNEL = 32
"""The most ranks that a GPU sends to, or hears of, over one channel."""
_MOST_UNITS = 71
"""The most units that one step moves."""
_UNITS_OF_CUT = 64
"""The units of a chunk that is sent in parts. Programs of 36 plans of islands then take up to 4 %
longer than the plans, with 32 up to 9 %, with 128 up to 4 % and in twice as many steps."""
_HINT = "; a plan with fewer peers and sends may fit, as that of `solve --method ring`"
"""The end of the message where a plan is too large for a runtime."""
MOST_BYTES = 1 << 40
"""The largest message for which a program is meant."""


class _Dialect(NamedTuple):
    """What a runtime takes."""

    names: Mapping[str, str]
    """Its names of collectives, by our names of operations, and of an uneven all-to-all."""
    most_steps: int
    """Steps of a thread block."""
    most_blocks: int
    """Thread blocks of a GPU."""
    most_nodes: int | None = None
    """Elements of XML that the reader of one rank keeps: all GPUs, its own blocks and steps."""
    has_outofplace: bool = False
    """Whether it wants to be told that a program may have two buffers."""


_UNEVEN = "uneven all-to-all"
_NAMES = {
    "all-reduce": "allreduce",
    "all-gather": "allgather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "alltoall",
    "broadcast": "broadcast",
    _UNEVEN: "custom",
}
_NAMES_OF_NCCL = {**_NAMES, "reduce-scatter": "reducescatter", _UNEVEN: "alltoallv"}

_DIALECTS = {
    "msccl": _Dialect(_NAMES, most_steps=256, most_blocks=216),
    "msccl-executor-nccl": _Dialect(
        _NAMES_OF_NCCL,
        most_steps=64,
        most_blocks=1024,
        most_nodes=4095,
        has_outofplace=True,
    ),
    "rccl": _Dialect(
        _NAMES_OF_NCCL,
        most_steps=64,
        most_blocks=64,
        most_nodes=4095,
        has_outofplace=True,
    ),
}
"""The runtimes: microsoft/msccl, and its successors for GPUs of NVIDIA and of AMD."""


class _StepNumber(NamedTuple):
    """Which step of which thread block of a GPU."""

    block: int
    step: int


_NO_STEP = _StepNumber(-1, -1)
"""What a step waits for that waits for none."""


class _Channel(NamedTuple):
    """What a thread block does, and with which rank."""

    role: str
    """``"send"``, ``"recv"`` or ``"copy"``."""
    peer: int
    """-1 of copies."""


@dataclass
class _Gpu:
    """The program of a rank while it is written."""

    block_of_channel: dict[_Channel, int] = field(default_factory=dict)
    steps: list[list[dict[str, Any]]] = field(default_factory=list)
    """``steps[block]``: attributes of each step."""
    last_writer: dict[Slot, _StepNumber] = field(default_factory=dict)
    """The step that wrote a place last."""
    readers: dict[Slot, list[_StepNumber]] = field(default_factory=lambda: defaultdict(list))
    """The steps that read a place since then."""

    def add_step(
        self,
        channel: _Channel,
        kind: str,
        source: Slot,
        target: Slot,
        waits_for: Sequence[_StepNumber],
    ) -> _StepNumber:
        """Append one operation to a program of MSCCL, as one or several steps of its file.

        `channel` tells the thread block, `kind` what the step does ("s" sends, "r" receives, "rrc"
        receives and adds, "re" adds, "cpy" copies), and `source` and `target` the places, of equal
        size. The result is the last step, for which others may wait.

        A thread block is a list of steps that run in order; each channel to a peer has one. A step
        of the file waits for at most one step of another block, and moves a limited number of
        units. Further waits become steps before it that do nothing (``nop``), and further units
        steps after.
        """
        block = self.block_of_channel.setdefault(channel, len(self.steps))
        if block == len(self.steps):
            self.steps.append([])
        # Steps of the same block are done before anyway. A step that others wait for is marked.
        other_steps = sorted({step for step in waits_for if step.block != block})
        for other in other_steps:
            self.steps[other.block][other.step]["hasdep"] = 1
        *earlier_steps, last_wait = other_steps or [_NO_STEP]
        for other in earlier_steps:
            self._append(block, "nop", source._replace(n_units=1), target, other)
        # Only the first part has to wait.
        for first_unit in range(0, source.n_units, _MOST_UNITS):
            n_units = min(source.n_units - first_unit, _MOST_UNITS)
            source_part = Slot(source.buffer, source.first_unit + first_unit, n_units)
            target_part = Slot(target.buffer, target.first_unit + first_unit, n_units)
            self._append(block, kind, source_part, target_part, last_wait)
            last_wait = _NO_STEP
        return _StepNumber(block, len(self.steps[block]) - 1)

    def write(self, channel: _Channel, kind: str, source: Slot, target: Slot) -> None:
        """Append an operation that writes a slot, as `add_step` does.

        It waits for the reads of the slot and for the write before it.
        """
        waits_for = self.readers.pop(target, [])
        if target in self.last_writer:
            waits_for.append(self.last_writer[target])
        self.last_writer[target] = self.add_step(channel, kind, source, target, waits_for)

    def _append(
        self, block: int, kind: str, source: Slot, target: Slot, waits_for: _StepNumber
    ) -> None:
        """Append one step of MSCCL to a thread block, as large as its source."""
        # Attributes of the XML; hasdep is set when another step waits for this one.
        self.steps[block].append(
            {
                "s": len(self.steps[block]),
                "type": kind,
                "srcbuf": source.buffer,
                "srcoff": source.first_unit,
                "dstbuf": target.buffer,
                "dstoff": target.first_unit,
                "cnt": source.n_units,
                "depid": waits_for.block,
                "deps": waits_for.step,
                "hasdep": 0,
            }
        )


def write_msccl(solution: Solution, dialect: str = "msccl") -> str:
    """Write a plan of a collective operation as a program of MSCCL, an XML file.

    `dialect` names the runtime that reads it. The program has a list of steps for each GPU: send a
    chunk, receive it, or receive and add it. A step may have to wait for others. For example, a
    chunk that GPU 1 forwards is sent after the step that received it; and a place is overwritten
    after all steps that read it.
    """
    if dialect not in _DIALECTS:
        raise InputError(f"dialect {dialect!r}: one of {', '.join(_DIALECTS)}", where="dialect")
    # `layout` says where chunks lie in buffers. A slot is such a place. Each GPU remembers for
    # each slot the step that wrote it last (`last_writer`) and the steps that have read it since
    # (`readers`).
    layout = Layout("MSCCL", solution)
    gpus = [_Gpu() for _ in range(layout.problem.n_ranks)]
    for rank, gpu in enumerate(gpus):
        for source, target in layout.first_copies(rank):
            step = gpu.add_step(_Channel("copy", -1), "cpy", source, target, [])
            gpu.readers[source].append(step)
            gpu.last_writer[target] = step
    for sends in layout.rounds():
        # All reads of a round come before its writes: what is sent is what was there before.
        reads = []
        # A read waits for the step that wrote its slot.
        for send in sends:
            gpu = gpus[send.source]
            waits_for = [gpu.last_writer[send.read]] if send.read in gpu.last_writer else []
            channel = _Channel("send", send.target)
            step = gpu.add_step(channel, "s", send.read, send.read, waits_for)
            reads.append((gpu, send.read, step))
        for gpu, slot, step in reads:
            gpu.readers[slot].append(step)

        # "rrc" receives and adds, "r" receives, and "re" adds what has come to a sum as well.
        for send in sends:
            gpu = gpus[send.target]
            channel = _Channel("recv", send.source)
            gpu.write(channel, "rrc" if send.is_added else "r", send.written, send.written)
            if send.sum is not None:
                gpu.write(channel, "re", send.written, send.sum)

    # The runtime may not hold the program.
    limits = _DIALECTS[dialect]
    for rank, gpu in enumerate(gpus):
        n_blocks = len(gpu.steps)
        longest = max(map(len, gpu.steps), default=0)
        if longest > limits.most_steps or n_blocks > limits.most_blocks:
            raise InputError(
                f"MSCCL ({dialect}): rank {rank} needs {n_blocks} thread blocks of {longest}"
                f" steps, {limits.most_blocks} of {limits.most_steps} are possible{_HINT}"
            )
        # Elements: the root, one for each rank, and the blocks and steps of this rank.
        n_nodes = 1 + len(gpus) + n_blocks + sum(map(len, gpu.steps))
        if limits.most_nodes is not None and n_nodes > limits.most_nodes:
            raise InputError(
                f"MSCCL ({dialect}): rank {rank} needs {n_nodes} elements of XML,"
                f" {limits.most_nodes} are possible{_HINT}"
            )
    return _format_program(layout, gpus, limits)


def _format_program(layout: Layout, gpus: Sequence[_Gpu], dialect: _Dialect) -> str:
    """Write the programs of all ranks as XML: a `gpu` for each rank, its thread blocks and steps.

    ``gpus[rank]`` is the thread blocks of a rank, each for one channel (what it does, with which
    peer), with their steps. `layout` has the sizes of the buffers in units, equal parts of the
    data of which chunks are made, and `dialect` the names that the runtime wants.
    """
    problem = layout.problem
    n_ranks = problem.n_ranks
    buffer_units = [layout.buffer_units(rank) for rank in range(n_ranks)]
    is_in_place = not layout.is_all_to_all
    attributes = {
        "name": f"optmatch-{problem.operation}",
        "proto": "Simple",
        "nchannels": -(-(n_ranks - 1) // _PEERS_PER_CHANNEL),
        "nchunksperloop": max(max(units) for units in buffer_units),
        "ngpus": n_ranks,
        "coll": dialect.names[layout.collective],
        "inplace": int(is_in_place),
    }
    if dialect.has_outofplace:
        attributes["outofplace"] = int(not is_in_place)
    attributes |= {"minBytes": 0, "maxBytes": MOST_BYTES}
    program = ElementTree.Element("algo", _as_texts(attributes))

    # A thread block sends to one peer, or receives from one, or copies inside its rank.
    for rank, gpu in enumerate(gpus):
        n_input, n_output = buffer_units[rank]
        chunks = {"i_chunks": n_input, "o_chunks": n_output, "s_chunks": layout.scratch[rank]}
        gpu_node = ElementTree.SubElement(program, "gpu", _as_texts({"id": rank} | chunks))
        for channel, block in gpu.block_of_channel.items():
            ends = {
                "id": block,
                "send": channel.peer if channel.role == "send" else -1,
                "recv": channel.peer if channel.role == "recv" else -1,
                "chan": _channel_number(rank, channel, n_ranks),
            }
            block_node = ElementTree.SubElement(gpu_node, "tb", _as_texts(ends))
            for step in gpu.steps[block]:
                ElementTree.SubElement(block_node, "step", _as_texts(step))
    ElementTree.indent(program)
    return ElementTree.tostring(program, encoding="unicode") + "\n"


def _channel_number(rank: int, channel: _Channel, n_ranks: int) -> int:
    """Return the channel of a thread block, which is the same at both of its ends."""
    if channel.role == "copy":
        return 0
    distance = channel.peer - rank
    if channel.role == "recv":
        distance = -distance
    return (distance % n_ranks - 1) // _PEERS_PER_CHANNEL


def _as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of attributes as texts."""
    return {name: str(value) for name, value in values.items()}


# Limits of the executor of MSCCL++ 0.9.
MOST_OPERATIONS = 64
"""Operations of a thread block."""
_MOST_PEERS = 16
"""Peers of a thread block, and remote buffers that it writes."""
MOST_AT_ONCE = 8
"""Channels of one operation."""
_MOST_SEMAPHORES = 16
"""Semaphores of a rank, each of which lets a thread block wait for another one."""
_RESERVED_OPERATIONS = 4
"""Operations of a thread block that wait for the block before, and release the next one."""


class Operation(NamedTuple):
    """An operation of a rank, before its channels and remote buffers have numbers."""

    name: str
    """MSCCL++'s name: ``put``, ``signal``, ``wait``, ``flush``, ``copy``, ``re`` or ``nop``."""
    peers: tuple[int, ...] = ()
    """The ranks at the other ends of its channels, in their order."""
    sources: tuple[Slot, ...] = ()
    """Places of its own rank that it reads."""
    target: Slot | None = None
    """The place of its own rank that it writes."""
    remote_slots: tuple[Slot, ...] = ()
    """The place that it writes or flushes at each of `peers`; none where it does neither."""


_NOTHING = Operation("nop")
"""Lets all threads of a block wait for each other."""


def write_mscclpp(solution: Solution) -> str:
    """Write the sends of a plan as an execution plan of MSCCL++.

    Each rank gets a program of thread blocks, which put data into buffers of other ranks and wait
    for signals. Returned is the JSON text.
    """
    layout = Layout("MSCCL++", solution)
    n_ranks = layout.problem.n_ranks
    rounds = list(layout.rounds())
    programs = [_begin_program(layout, rank, rounds) for rank in range(n_ranks)]
    filled = _filled_at_first(layout)  # (rank, slot) that hold data; `_add_round` adds to them
    for sends in rounds:
        _add_round(layout, programs, sends, filled)
    buffer_units = [layout.buffer_units(rank) for rank in range(n_ranks)]
    if not np.all(buffer_units):
        raise InputError("MSCCL++: each rank has to send and to receive something")

    # Buffers are sized in units, which MSCCL++ calls chunks.
    gpus = []
    for rank, (n_input, n_output) in enumerate(buffer_units):
        buffers = {
            "id": rank,
            "input_chunks": n_input,
            "output_chunks": n_output,
            "scratch_chunks": layout.scratch[rank],
        }
        gpus.append(buffers | _format_rank(_cut_into_blocks(rank, programs[rank])))
    tree = {
        "name": f"optmatch-{layout.problem.operation}",
        "collective": _NAMES_OF_NCCL[layout.collective],
        "protocol": "Simple",
        "inplace": not layout.is_all_to_all,
        "reuse_resources": False,
        "gpus": gpus,
    }
    return json.dumps(tree, indent=1) + "\n"


def _begin_program(layout: Layout, rank: int, rounds: Sequence[Sequence[Send]]) -> list[Operation]:
    """Return the first operations of a rank: it copies its own block, and tells that it is ready.

    Its buffers may be written from outside once it runs: it signals those that will send to it,
    and waits for those that it will send to.
    """
    pairs = {(send.source, send.target) for sends in rounds for send in sends}
    senders = sorted(sender for sender, receiver in pairs if receiver == rank)
    receivers = sorted(receiver for sender, receiver in pairs if sender == rank)
    program = []
    for source, target in layout.first_copies(rank):
        program.append(Operation("copy", sources=(source,), target=target))
    program += _notify("signal", senders)
    program += _notify("wait", receivers)
    program.append(_NOTHING)
    return program


def _add_round(
    layout: Layout,
    programs: Sequence[list[Operation]],
    sends: Sequence[Send],
    filled: set[tuple[int, Slot]],
) -> None:
    """Add what all ranks do in one round of a plan to their programs.

    In a round each rank puts data into the buffers of others, waits for those that send to it, and
    then adds or copies what has arrived. Data that may not overwrite its place at once arrives in
    a scratch buffer first.

    `sends` are the chunks that ranks send in this round. ``programs[rank]`` has the operations of
    earlier rounds, and gets those of this one. `filled` has the places (rank, slot) that hold data
    already; those of this round are added to it. A slot is a place in a buffer, and its size is
    counted in units of `layout`.
    """
    # For each rank: what it puts elsewhere, what it does afterwards with data in scratch, and from
    # whom data comes. Places that are filled in this round count from the next one on.
    n_ranks = len(programs)
    puts: list[list[Send]] = [[] for _ in range(n_ranks)]
    local_operations: list[list[Operation]] = [[] for _ in range(n_ranks)]
    sources_of_rank: list[set[int]] = [set() for _ in range(n_ranks)]
    newly_filled = set()
    for send in sends:
        landing = send.written
        local = local_operations[send.target]
        if (send.target, send.written) in filled or send.is_added:
            # The data at this place may still be wanted: what comes goes to scratch first.
            landing = layout.reserve_scratch(send.target, send.written.n_units)
            if send.is_added:
                local.append(Operation("re", sources=(send.written, landing), target=send.written))
            else:
                local.append(Operation("copy", sources=(landing,), target=send.written))
        # The sender puts its chunk where it lands: at its place, or in scratch.
        newly_filled.add((send.target, send.written))
        sources_of_rank[send.target].add(send.source)
        puts[send.source].append(send._replace(written=landing))
        if send.sum is not None:
            local.append(Operation("re", sources=(send.sum, landing), target=send.sum))
    filled |= newly_filled

    # `_NOTHING` lets the threads of a block wait for each other: before what has come is used, and
    # after that before the next round.
    for rank, program in enumerate(programs):
        program += _put(puts[rank])
        program += _notify("wait", sorted(sources_of_rank[rank]))
        if puts[rank] or sources_of_rank[rank]:
            program += [_NOTHING, *local_operations[rank]]
        if local_operations[rank]:
            program.append(_NOTHING)


def _put(puts: Sequence[Send]) -> Iterator[Operation]:
    """Put data into buffers of other ranks, tell them, and wait until all is done.

    Each of the `puts` is written where it lands. One operation puts to `MOST_AT_ONCE` places at
    most; then each peer is signalled, and flushed, once.
    """
    if not puts:
        return
    for first in range(0, len(puts), MOST_AT_ONCE):
        part = puts[first : first + MOST_AT_ONCE]
        yield Operation(
            name="put",
            peers=tuple(put.target for put in part),
            sources=tuple(put.read for put in part),
            remote_slots=tuple(put.written for put in part),
        )
    slot_of_peer = {put.target: put.written for put in puts}
    peers = sorted(slot_of_peer)
    yield _NOTHING
    yield from _notify("signal", peers)
    # The executor of MSCCL++ 0.9 counts the channels of a flush by its outputs: without any it
    # would not wait, and data could change before they are sent.
    for operation in _notify("flush", peers):
        slots = tuple(slot_of_peer[peer] for peer in operation.peers)
        yield operation._replace(remote_slots=slots)


def _filled_at_first(layout: Layout) -> set[tuple[int, Slot]]:
    """List the places of ranks that have data before the collective begins."""
    n_ranks = layout.problem.n_ranks
    chunks = np.arange(len(layout.units))
    by_rank = chunks // max(1, len(chunks) // n_ranks)
    owners = {
        "all-gather": by_rank,
        "all-to-all": by_rank,
        "broadcast": np.full(len(chunks), layout.problem.root),
    }
    owner_of_chunk = owners.get(layout.problem.operation)
    filled = set()
    for rank in range(n_ranks):
        # Before a reduction each rank has a share of every chunk.
        own_chunks = chunks if owner_of_chunk is None else chunks[owner_of_chunk == rank]
        filled |= {(rank, layout.find_slot(rank, chunk)) for chunk in own_chunks.tolist()}
    return filled


def _notify(name: str, peers: Sequence[int]) -> Iterator[Operation]:
    """Yield signals, waits or flushes for some ranks, a few in each operation."""
    for first in range(0, len(peers), MOST_AT_ONCE):
        yield Operation(name, peers=tuple(peers[first : first + MOST_AT_ONCE]))


def _peers_of(operations: Iterable[Operation]) -> list[int]:
    """List the ranks at the other ends of operations, ascending."""
    return sorted({peer for operation in operations for peer in operation.peers})


def _remote_buffers_of(operations: Iterable[Operation]) -> list[tuple[int, str]]:
    """List rank and buffer of the places of others that operations write, ascending."""
    return sorted(
        {
            (peer, slot.buffer)
            for operation in operations
            for peer, slot in zip(operation.peers, operation.remote_slots, strict=False)
        }
    )


def _cut_into_blocks(rank: int, program: Iterable[Operation]) -> list[list[Operation]]:
    """Cut the operations of a rank into thread blocks, each as full as it may be."""
    blocks: list[list[Operation]] = [[]]
    peers: set[int] = set()
    buffers: set[tuple[int, str]] = set()
    for operation in program:
        # What the last block reaches with this operation, or a new block without the others.
        peers.update(_peers_of([operation]))
        buffers.update(_remote_buffers_of([operation]))
        is_full = len(blocks[-1]) >= MOST_OPERATIONS - _RESERVED_OPERATIONS
        if is_full or max(len(peers), len(buffers)) > _MOST_PEERS:
            blocks.append([])
            peers = set(_peers_of([operation]))
            buffers = set(_remote_buffers_of([operation]))
        blocks[-1].append(operation)
    most_blocks = _MOST_SEMAPHORES + 1
    if len(blocks) > most_blocks:
        rule = f"rank {rank} needs {len(blocks)} thread blocks, {most_blocks} are possible"
        raise InputError(f"MSCCL++: {rule}{_HINT}")
    return blocks


def _format_rank(blocks: Sequence[Sequence[Operation]]) -> dict[str, Any]:
    """Return the entries of a rank in the plan: its thread blocks, channels and remote buffers.

    Thread blocks number their own peers and remote buffers, and refer to those of the rank.
    """
    operations = [operation for block in blocks for operation in block]
    peers = _peers_of(operations)
    buffers = _remote_buffers_of(operations)
    threadblocks = []
    for number, block in enumerate(blocks):
        channels = {
            "channel_type": "port",
            "channel_ids": [peers.index(peer) for peer in _peers_of(block)],
        }
        references = {
            "access_channel_type": "port",
            "remote_buffer_ids": [buffers.index(buffer) for buffer in _remote_buffers_of(block)],
        }
        threadblocks.append(
            {
                "id": number,
                "ops": _format_operations(block, number, len(blocks)),
                "channels": [channels],
                "remote_buffer_refs": [references],
            }
        )
    # The semaphores between neighbouring blocks are taken at first.
    return {
        "threadblocks": threadblocks,
        "channels": [{"channel_type": "port", "connected_to": peers}],
        "remote_buffers": [
            {"rank": rank, "type": buffer, "access_channel_types": ["port"]}
            for rank, buffer in buffers
        ],
        "semaphores": [{"init_value": 0}] * (len(blocks) - 1),
    }


def _format_operations(
    block: Sequence[Operation], number: int, n_blocks: int
) -> list[dict[str, Any]]:
    """Return the operations of a thread block for JSON, between those of its semaphores.

    All blocks but the first one wait for the semaphore of the block before them, and all but the
    last one release their own. A `nop` keeps the operations of a block from passing these.
    """
    peers = _peers_of(block)
    buffers = _remote_buffers_of(block)
    operations = [_format_operation(operation, peers, buffers) for operation in block]
    nothing: dict[str, Any] = {"name": "nop"}
    if number > 0:
        acquire = {"name": "sem_acquire", "semaphore_ids": [number - 1]}
        operations = [acquire, nothing, *operations]
    if number < n_blocks - 1:
        release = {"name": "sem_release", "semaphore_ids": [number]}
        operations = [*operations, nothing, release]
    return operations


def _format_operation(
    operation: Operation, peers: Sequence[int], buffers: Sequence[tuple[int, str]]
) -> dict[str, Any]:
    """Return an operation for JSON, with the numbers that its thread block gives to peers.

    `peers` and `buffers` are those of the thread block: their places there are the ids of channels
    and buffers. A buffer of another rank is named by (rank, buffer).
    """
    entry: dict[str, Any] = {"name": operation.name}
    if operation.sources:
        entry["src_buff"] = list(map(_local_end, operation.sources))
    if operation.target is not None:
        entry["dst_buff"] = [_local_end(operation.target)]

    # Ranks at the other end, and where data land there, have numbers of the thread block.
    if operation.name == "re":
        entry["reduce_op"] = "sum"
    if operation.peers:
        entry["channel_type"] = "port"
        entry["channel_ids"] = [peers.index(peer) for peer in operation.peers]
    if operation.remote_slots:
        entry["dst_buff"] = [
            {
                "buffer_id": buffers.index((peer, slot.buffer)),
                "index": slot.first_unit,
                "size": slot.n_units,
            }
            for peer, slot in zip(operation.peers, operation.remote_slots, strict=True)
        ]
    return entry


def _local_end(slot: Slot) -> dict[str, Any]:
    """Return a place of the own rank, as the plan has it."""
    return {"type": slot.buffer, "index": slot.first_unit, "size": slot.n_units}


def write_traces(solution: Solution) -> dict[str, bytes]:
    """Write the sends of a plan as Chakra traces, a file for each rank."""
    # All that a rank sends to another one in a round is one message, whose tag is the round.
    plan = plan_of(solution)
    n_ranks = plan.circuits.shape[2]
    messages, message_of_send = np.unique(plan.sends[:, :3], axis=0, return_inverse=True)
    bytes_of_message = np.bincount(message_of_send.reshape(-1), weights=plan.sent_bytes)

    # The nodes of a rank in a round wait for all nodes of the last round before in which it took
    # part.
    traces: list[list[Node]] = [[] for _ in range(n_ranks)]
    last_nodes: list[list[int]] = [[] for _ in range(n_ranks)]
    rows = zip(messages.tolist(), bytes_of_message.tolist(), strict=True)
    for round_, rows_of_round in groupby(rows, key=lambda row: row[0][0]):
        lengths_before = list(map(len, traces))
        for (_, source, target), size_bytes in rows_of_round:
            attributes: dict[str, bool | int | str] = {
                "is_cpu_op": False,
                "comm_size": math.ceil(size_bytes),
                "comm_tag": round_,
                "comm_src": source,
                "comm_dst": target,
            }
            for rank, kind in ((source, SEND), (target, RECEIVE)):
                number = len(traces[rank])
                name = f"round {round_}"
                traces[rank].append(Node(number, kind, name, last_nodes[rank], 0, attributes))
        for rank, nodes in enumerate(traces):
            if len(nodes) > lengths_before[rank]:
                last_nodes[rank] = list(range(lengths_before[rank], len(nodes)))
    return {f".{rank}.et": trace_bytes(nodes) for rank, nodes in enumerate(traces)}
