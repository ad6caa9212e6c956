"""Plans of collectives for other tools: programs of MSCCL, rounds as JSON, Chakra traces.

MSCCL knows neither rounds nor circuits. Each GPU has a thread block for each rank that it sends to
or hears of, whose steps run in order; a step of another block that it must wait for is named.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

import numpy as np

from optmatch.io.rails.chakra.messages import RECEIVE, SEND
from optmatch.io.rails.chakra.writer import Node, trace_bytes
from optmatch.model import InputError, Solution
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import KINDS, REDUCE, plan_of

NAMES = {
    "all-reduce": "allreduce",
    "all-gather": "allgather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "alltoall",
    "broadcast": "broadcast",
}
# Limits of the interpreter of MSCCL.
MOST_STEPS = 256
"""Steps of a thread block."""
MOST_BLOCKS = 216
"""Thread blocks of a GPU."""
PEERS_PER_CHANNEL = 32
MOST_UNITS = 71
"""Units that one step moves."""
MOST_BYTES = 1 << 40
"""The largest message for which the program is meant."""

Slot = tuple[str, int]
"""A place of a chunk: buffer (i input, o output, s scratch) and number of its first unit."""
Step = tuple[int, int]
"""Thread block and number of a step."""


class Layout:
    """Where ranks have chunks, in buffers of equal units.

    Buffers of an uneven all-to-all have its blocks one after another, and no gaps. What a runtime
    cannot hold raises `InputError`.
    """

    def __init__(self, runtime: str, solution: Solution) -> None:
        self.plan = plan_of(solution)
        problem = solution.problem
        assert isinstance(problem, Collective)
        if len(self.plan.parts) or len(self.plan.places):
            message = "a plan that sends parts, or keeps what comes, cannot be written"
            raise InputError(f"{runtime}: {message}")
        self.problem = problem
        self.n_chunks = len(self.plan.chunk_bytes)
        self.is_all_to_all = problem.operation == "all-to-all"
        self.is_uneven = self.is_all_to_all and problem.demand_bytes is not None
        self.units = np.ones(self.n_chunks, dtype=np.int64)
        """``units[chunk]``: its size. The unit of uneven blocks is their greatest divisor."""
        if self.is_uneven:
            chunk_bytes = np.rint(self.plan.chunk_bytes).astype(np.int64)
            if (chunk_bytes != self.plan.chunk_bytes).any():
                raise InputError(f"{runtime}: blocks of whole bytes can be written, no other")
            self.units = chunk_bytes // np.gcd.reduce(chunk_bytes)
        self.scratch = [0] * problem.n_ranks
        """``scratch[rank]``: how many units of its scratch buffer are in use."""
        self._slots: dict[tuple[int, int], Slot] = {}

    def place(self, rank: int, chunk: int) -> Slot:
        """Return where a rank has a chunk.

        In an all-to-all a chunk is in the input of its source, in the output of its destination,
        and in the scratch buffer of ranks between, which grows for it.
        """
        if not self.is_all_to_all:
            is_output = self.problem.operation in ("all-gather", "broadcast")
            return ("o" if is_output else "i"), chunk
        if (rank, chunk) not in self._slots:
            self._slots[rank, chunk] = self._new_slot(rank, chunk)
        return self._slots[rank, chunk]

    def _new_slot(self, rank: int, chunk: int) -> Slot:
        n_ranks = self.problem.n_ranks
        blocks = self.units.reshape(n_ranks, n_ranks)
        source, destination = divmod(chunk, n_ranks)
        if rank == source:
            return "i", int(blocks[source, :destination].sum())
        if rank == destination:
            return "o", int(blocks[:source, destination].sum())
        first_unit = self.scratch[rank]
        self.scratch[rank] += int(self.units[chunk])
        return "s", first_unit

    def own_block(self, rank: int) -> tuple[Slot, Slot, int] | None:
        """Return from where to where a rank has to copy its own block, and its units."""
        if not self.is_all_to_all:
            return None
        n_ranks = self.problem.n_ranks
        chunk = rank * n_ranks + rank
        units = int(self.units[chunk])
        if not units:
            return None
        first_unit = int(self.units.reshape(n_ranks, n_ranks)[:rank, rank].sum())
        return self.place(rank, chunk), ("o", first_unit), units

    def sizes(self, rank: int) -> tuple[int, int]:
        """Return the units of input and output of a rank."""
        n_ranks = self.problem.n_ranks
        if self.is_all_to_all:
            blocks = self.units.reshape(n_ranks, n_ranks)
            return int(blocks[rank].sum()), int(blocks[:, rank].sum())
        if self.problem.operation == "all-gather":
            return self.n_chunks // n_ranks, self.n_chunks
        if self.problem.operation == "reduce-scatter":
            return self.n_chunks, self.n_chunks // n_ranks
        return self.n_chunks, self.n_chunks

    def rounds(self) -> Iterator[list[list[int]]]:
        """Yield the sends of each round that has some."""
        sends = self.plan.sends
        for rows in np.split(sends, np.flatnonzero(np.diff(sends[:, 0])) + 1):
            yield rows[:, 1:].tolist()


@dataclass
class _Gpu:
    """A step of the program of a rank."""

    blocks: dict[tuple[str, int], int] = field(default_factory=dict)
    """The number of the block that sends to, or receives from, a peer."""
    steps: list[list[dict[str, Any]]] = field(default_factory=list)
    writer: dict[Slot, Step] = field(default_factory=dict)
    readers: dict[Slot, list[Step]] = field(default_factory=lambda: defaultdict(list))

    def add(
        self, ends: tuple[str, int], kind: str, slot: Slot, units: int, waits: list[Step]
    ) -> Step:
        """Append steps, the first of which waits for others; return the last one."""
        block = self.blocks.setdefault(ends, len(self.steps))
        if block == len(self.steps):
            self.steps.append([])
        steps = self.steps[block]
        others = sorted({each for each in waits if each[0] != block})
        for step in [*others[:-1], None]:
            other, number = step or (others[-1] if others else (-1, -1))
            if other >= 0:
                self.steps[other][number]["hasdep"] = 1
            for k in range(0, 1 if step else units, MOST_UNITS):
                steps.append(
                    {
                        "s": len(steps),
                        "type": "nop" if step else kind,
                        **{"srcbuf": slot[0], "srcoff": slot[1] + k},
                        **{"dstbuf": slot[0], "dstoff": slot[1] + k},
                        **{"cnt": 1 if step else min(units - k, MOST_UNITS)},
                        **{"depid": other, "deps": number, "hasdep": 0},
                    }
                )
                other, number = -1, -1
        return block, len(steps) - 1


def write_msccl(solution: Solution) -> str:
    """Write the sends of a plan as a program of MSCCL.

    An all-to-all with given bytes is a *custom* collective of units, the greatest common divisor
    of its blocks. A broadcast is from the root of the problem, which MSCCL does not know. What
    MSCCL cannot hold raises `InputError`.
    """
    layout = Layout("MSCCL", solution)
    gpus = [_Gpu() for _ in range(layout.problem.n_ranks)]
    for rows in layout.rounds():
        read = []
        for source, target, chunk, _ in rows:
            gpu, slot = gpus[source], layout.place(source, chunk)
            waits, units = [gpu.writer[slot]] if slot in gpu.writer else [], layout.units[chunk]
            read.append((source, slot, gpu.add(("send", target), "s", slot, units, waits)))
        for source, slot, step in read:
            gpus[source].readers[slot].append(step)
        for source, target, chunk, kind in rows:
            gpu, slot = gpus[target], layout.place(target, chunk)
            waits = gpu.readers.pop(slot, []) + ([gpu.writer[slot]] if slot in gpu.writer else [])
            does = "rrc" if kind == REDUCE else "r"
            gpu.writer[slot] = gpu.add(
                ("recv", source), does, slot, int(layout.units[chunk]), waits
            )
    for rank, gpu in enumerate(gpus):
        own_block = layout.own_block(rank)
        if own_block is not None:
            source_slot, target_slot, units = own_block
            gpu.add(("copy", -1), "cpy", source_slot, units, [])
            for row in gpu.steps[-1]:
                offset = row["dstoff"] - source_slot[1]
                row |= {"dstbuf": "o", "dstoff": target_slot[1] + offset}
    return _print(layout, gpus)


def _print(layout: Layout, gpus: list[_Gpu]) -> str:
    problem, n = layout.problem, layout.problem.n_ranks
    sizes = [layout.sizes(rank) for rank in range(n)]
    top = ElementTree.Element(
        "algo",
        {
            "name": f"optmatch-{problem.operation}",
            "proto": "Simple",
            "nchannels": str(-(-(n - 1) // PEERS_PER_CHANNEL)),
            "nchunksperloop": str(max(map(max, sizes))),
            "ngpus": str(n),
            "coll": "custom" if layout.is_uneven else NAMES[problem.operation],
            "inplace": str(int(not layout.is_all_to_all)),
            "minBytes": "0",
            "maxBytes": str(MOST_BYTES),
        },
    )
    for rank, gpu in enumerate(gpus):
        names = ("i_chunks", "o_chunks", "s_chunks")
        chunks = dict(zip(names, (*sizes[rank], layout.scratch[rank]), strict=True))
        node = ElementTree.SubElement(top, "gpu", {"id": str(rank)} | _texts(chunks))
        longest = max(map(len, gpu.steps), default=0)
        if longest > MOST_STEPS or len(gpu.steps) > MOST_BLOCKS:
            raise InputError(
                f"MSCCL: rank {rank} needs {len(gpu.steps)} thread blocks of {longest} steps,"
                f" {MOST_BLOCKS} of {MOST_STEPS} are possible"
            )
        for (does, peer), block in gpu.blocks.items():
            onward = (peer - rank if does == "send" else rank - peer) % n if peer >= 0 else 1
            ends = {name: peer if does == name else -1 for name in ("send", "recv")}
            channel = (onward - 1) // PEERS_PER_CHANNEL  # the same at both ends
            told = _texts({"id": block} | ends | {"chan": channel})
            inner = ElementTree.SubElement(node, "tb", told)
            for step in gpu.steps[block]:
                ElementTree.SubElement(inner, "step", _texts(step))
    ElementTree.indent(top)
    return ElementTree.tostring(top, encoding="unicode") + "\n"


def _texts(values: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def write_rounds(solution: Solution) -> str:
    """Write the rounds of a plan, one on a line.

    It is ``{"chunk_bytes": [...], "rounds": [{"epoch", "circuits", "sends"}, ...]}``; a send is
    ``[source, destination, chunk, "copy" | "reduce" | "keep"]``, circuits are by lane and rank.
    Plans that have ``parts`` or ``places`` have them in each round, a row for each send.
    """
    plan = plan_of(solution)
    sends: list[list[Any]] = [[] for _ in range(plan.n_rounds)]
    for turn, source, target, chunk, kind in plan.sends.tolist():
        sends[turn].append([source, target, chunk, KINDS[kind]])
    beside = {name: getattr(plan, name) for name in ("parts", "places")}
    lines = [
        json.dumps(
            {"epoch": epoch, "circuits": plan.circuits[epoch].tolist(), "sends": rows}
            | {n: a[plan.sends[:, 0] == turn].tolist() for n, a in beside.items() if len(a)}
        )
        for turn, (epoch, rows) in enumerate(zip(plan.epoch_of_round.tolist(), sends, strict=True))
    ]
    sizes = json.dumps(plan.chunk_bytes.tolist())
    return f'{{"chunk_bytes": {sizes}, "rounds": [\n' + ",\n".join(lines) + "\n]}\n"


def write_traces(solution: Solution) -> dict[str, bytes]:
    """Write the sends of a plan as Chakra traces, a file for each rank.

    Data that go from one rank to another in a round are one node that sends and one that receives,
    with the round as tag. Both wait for all that their rank did in the last round in which it took
    part, so rounds keep their order. Chakra knows no circuits: `astra.files` writes these.
    """
    plan = plan_of(solution)
    n = plan.circuits.shape[2]
    nodes: list[list[Node]] = [[] for _ in range(n)]
    before: list[tuple[int, list[int], list[int]]] = [(-1, [], [])] * n
    pairs, which = np.unique(plan.sends[:, :3], axis=0, return_inverse=True)
    sizes = np.bincount(which.reshape(-1), weights=plan.sent_bytes)
    for (turn, source, target), size in zip(pairs.tolist(), sizes.tolist(), strict=True):
        ends: dict[str, bool | int | str] = {"comm_src": source, "comm_dst": target}
        told = {"is_cpu_op": False, "comm_size": math.ceil(size), "comm_tag": turn} | ends
        for rank, kind in ((source, SEND), (target, RECEIVE)):
            last, waits, now = before[rank]
            if last != turn:  # sends wait for those of the last round
                waits, now = now, []
            number = len(nodes[rank])
            nodes[rank].append(Node(number, kind, f"round {turn}", waits, 0, told))
            before[rank] = turn, waits, [*now, number]
    return {f".{rank}.et": trace_bytes(each) for rank, each in enumerate(nodes)}
