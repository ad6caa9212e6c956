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
MOST_STEPS, MOST_BLOCKS, PEERS_PER_CHANNEL, MOST_UNITS = 256, 216, 32, 71
"""Limits of the interpreter of MSCCL."""
MOST_BYTES = 1 << 40

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
        problem, self.plan = solution.problem, plan_of(solution)
        assert isinstance(problem, Collective)
        if len(self.plan.parts) or len(self.plan.places):
            told = "a plan that sends parts, or keeps what comes, cannot be written"
            raise InputError(f"{runtime}: {told}")
        n, sizes = problem.n_ranks, self.plan.chunk_bytes
        self.problem, self.count = problem, len(sizes)
        self.exchange, self.uneven = problem.operation == "all-to-all", False
        self.units = np.ones(len(sizes), dtype=np.int64)
        if self.exchange and problem.demand_bytes is not None:
            whole = np.rint(sizes)
            if (whole != sizes).any():
                raise InputError(f"{runtime}: blocks of whole bytes can be written, no other")
            self.units = whole.astype(np.int64) // np.gcd.reduce(whole.astype(np.int64))
            self.uneven = True
        self.scratch = [0] * n
        self._there: dict[tuple[int, int], Slot] = {}

    def place(self, rank: int, chunk: int) -> Slot:
        """Return where a rank has a chunk."""
        if not self.exchange:
            return ("o" if self.problem.operation in ("all-gather", "broadcast") else "i"), chunk
        if (rank, chunk) not in self._there:
            n, blocks = self.problem.n_ranks, self.units.reshape(self.problem.n_ranks, -1)
            source, target = divmod(chunk, n)
            slot = "s", self.scratch[rank]
            if rank == source:
                slot = "i", int(blocks[source, :target].sum())
            elif rank == target:
                slot = "o", int(blocks[:source, target].sum())
            else:
                self.scratch[rank] += int(self.units[chunk])
            self._there[rank, chunk] = slot
        return self._there[rank, chunk]

    def own(self, rank: int) -> tuple[Slot, Slot, int] | None:
        """Return from where to where a rank has to copy its own block, and its units."""
        n = self.problem.n_ranks
        units = int(self.units[rank * n + rank]) if self.exchange else 0
        if not units:
            return None
        before = int(self.units.reshape(n, n)[:rank, rank].sum())
        return self.place(rank, rank * n + rank), ("o", before), units

    def sizes(self, rank: int) -> tuple[int, int]:
        """Return the units of input and output."""
        n, operation = self.problem.n_ranks, self.problem.operation
        if self.exchange:
            blocks = self.units.reshape(n, n)
            return int(blocks[rank].sum()), int(blocks[:, rank].sum())
        less = {"all-gather": (n, 1), "reduce-scatter": (1, n)}.get(operation, (1, 1))
        return self.count // less[0], self.count // less[1]

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
        own = layout.own(rank)
        if own is not None:
            gpu.add(("copy", -1), "cpy", own[0], own[2], [])
            for row in gpu.steps[-1]:
                row |= {"dstbuf": "o", "dstoff": row["dstoff"] - own[0][1] + own[1][1]}
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
            "coll": "custom" if layout.uneven else NAMES[problem.operation],
            "inplace": str(int(not layout.exchange)),
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
