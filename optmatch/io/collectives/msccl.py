"""Plans of collectives as programs of MSCCL, in the dialect of each runtime that reads them.

MSCCL knows neither rounds nor circuits. Each GPU has a thread block for each rank that it sends to
or hears of, whose steps run in order; a step of another block that it must wait for is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from xml.etree import ElementTree

from optmatch.io.collectives.layouts import Layout, LocalCopy, Slot
from optmatch.model import InputError, Solution
from optmatch.problems.collectives.plan import REDUCE

_PEERS_PER_CHANNEL = 32
"""The most ranks that a GPU sends to, or hears of, over one channel."""
_MOST_UNITS = 71
"""The most units that one step moves."""
MOST_BYTES = 1 << 40
"""The largest message for which a program is meant."""


class _Dialect(NamedTuple):
    """What a runtime takes."""

    names: Mapping[str, str]
    """Its names of collectives, by our names of operations."""
    name_of_uneven: str
    """Its name of an all-to-all of blocks of different sizes."""
    most_steps: int
    """Steps of a thread block."""
    most_blocks: int
    """Thread blocks of a GPU."""
    most_nodes: int | None = None
    """Elements of XML that the reader of one rank keeps: all GPUs, its own blocks and steps."""
    has_outofplace: bool = False
    """Whether it wants to be told that a program may have two buffers."""


_NAMES = {
    "all-reduce": "allreduce",
    "all-gather": "allgather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "alltoall",
    "broadcast": "broadcast",
}
_NAMES_OF_NCCL = {**_NAMES, "reduce-scatter": "reducescatter"}

_DIALECTS = {
    "msccl": _Dialect(_NAMES, "custom", most_steps=256, most_blocks=216),
    "msccl-executor-nccl": _Dialect(
        _NAMES_OF_NCCL,
        "alltoallv",
        most_steps=64,
        most_blocks=1024,
        most_nodes=4095,
        has_outofplace=True,
    ),
    "rccl": _Dialect(
        _NAMES_OF_NCCL,
        "alltoallv",
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
        copy: LocalCopy,
        waits_for: Sequence[_StepNumber],
    ) -> _StepNumber:
        """Append one operation to a program of MSCCL, as one or several steps of its file.

        `channel` tells the thread block, `kind` what the step does ("s" sends, "r" receives, "rrc"
        receives and adds, "cpy" copies), and `copy` the places and the number of units. The result
        is the last step, for which others may wait.

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
            nothing = LocalCopy(copy.source, copy.target, 1)
            self._append(block, "nop", nothing, other)
        # Only the first part has to wait.
        for first_unit in range(0, copy.n_units, _MOST_UNITS):
            part = LocalCopy(
                Slot(copy.source.buffer, copy.source.first_unit + first_unit),
                Slot(copy.target.buffer, copy.target.first_unit + first_unit),
                min(copy.n_units - first_unit, _MOST_UNITS),
            )
            self._append(block, kind, part, last_wait)
            last_wait = _NO_STEP
        return _StepNumber(block, len(self.steps[block]) - 1)

    def _append(self, block: int, kind: str, copy: LocalCopy, waits_for: _StepNumber) -> None:
        """Append one step of MSCCL to a thread block."""
        # Attributes of the XML; hasdep is set when another step waits for this one.
        self.steps[block].append(
            {
                "s": len(self.steps[block]),
                "type": kind,
                "srcbuf": copy.source.buffer,
                "srcoff": copy.source.first_unit,
                "dstbuf": copy.target.buffer,
                "dstoff": copy.target.first_unit,
                "cnt": copy.n_units,
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
    for sends in layout.rounds():
        # All reads of a round come before its writes: what is sent is what was there before.
        reads = []
        # A read waits for the step that wrote its slot.
        for send in sends:
            gpu = gpus[send.source]
            slot = layout.find_slot(send.source, send.chunk)
            copy = LocalCopy(slot, slot, int(layout.units[send.chunk]))
            waits_for = [gpu.last_writer[slot]] if slot in gpu.last_writer else []
            step = gpu.add_step(_Channel("send", send.target), "s", copy, waits_for)
            reads.append((gpu, slot, step))
        for gpu, slot, step in reads:
            gpu.readers[slot].append(step)

        # A write waits for the reads of its slot and for the write before it. "rrc" receives and
        # adds, "r" receives.
        for send in sends:
            gpu = gpus[send.target]
            slot = layout.find_slot(send.target, send.chunk)
            copy = LocalCopy(slot, slot, int(layout.units[send.chunk]))
            waits_for = gpu.readers.pop(slot, [])
            if slot in gpu.last_writer:
                waits_for.append(gpu.last_writer[slot])
            kind = "rrc" if send.kind == REDUCE else "r"
            channel = _Channel("recv", send.source)
            gpu.last_writer[slot] = gpu.add_step(channel, kind, copy, waits_for)

    # The block that a rank keeps does not wait for anything.
    for rank, gpu in enumerate(gpus):
        own_block = layout.own_block(rank)
        if own_block is not None:
            gpu.add_step(_Channel("copy", -1), "cpy", own_block, [])

    # The runtime may not hold the program.
    limits = _DIALECTS[dialect]
    for rank, gpu in enumerate(gpus):
        n_blocks = len(gpu.steps)
        longest = max(map(len, gpu.steps), default=0)
        if longest > limits.most_steps or n_blocks > limits.most_blocks:
            raise InputError(
                f"MSCCL ({dialect}): rank {rank} needs {n_blocks} thread blocks of {longest}"
                f" steps, {limits.most_blocks} of {limits.most_steps} are possible"
            )
        # Elements: the root, one for each rank, and the blocks and steps of this rank.
        n_nodes = 1 + len(gpus) + n_blocks + sum(map(len, gpu.steps))
        if limits.most_nodes is not None and n_nodes > limits.most_nodes:
            raise InputError(
                f"MSCCL ({dialect}): rank {rank} needs {n_nodes} elements of XML,"
                f" {limits.most_nodes} are possible"
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
        "coll": dialect.names[problem.operation],
        "inplace": int(is_in_place),
    }
    if layout.is_uneven:
        attributes["coll"] = dialect.name_of_uneven
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
    if channel.role == "send":
        distance = (channel.peer - rank) % n_ranks
    else:
        distance = (rank - channel.peer) % n_ranks
    return (distance - 1) // _PEERS_PER_CHANNEL


def _as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of attributes as texts."""
    return {name: str(value) for name, value in values.items()}
