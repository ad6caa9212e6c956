"""Plans of collectives for other tools: programs of MSCCL, rounds as JSON, Chakra traces.

MSCCL knows neither rounds nor circuits. Each GPU has a thread block for each rank that it sends to
or hears of, whose steps run in order; a step of another block that it must wait for is named.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
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
}
MOST_STEPS, MOST_BLOCKS, PEERS_PER_CHANNEL = 256, 216, 32
"""Limits of the interpreter of MSCCL."""
MOST_BYTES = 1 << 40

Slot = tuple[str, int]
"""A place of a chunk: buffer (i input, o output, s scratch) and number."""
Step = tuple[int, int]
"""Thread block and number of a step."""


@dataclass
class _Gpu:
    """A step of the program of a rank."""

    blocks: dict[tuple[str, int], int] = field(default_factory=dict)
    """The number of the block that sends to, or receives from, a peer."""
    steps: list[list[dict[str, Any]]] = field(default_factory=list)
    places: dict[int, Slot] = field(default_factory=dict)
    scratch: int = 0
    writer: dict[Slot, Step] = field(default_factory=dict)
    readers: dict[Slot, list[Step]] = field(default_factory=lambda: defaultdict(list))

    def add(self, does: str, peer: int, kind: str, slot: Slot, waits: list[Step]) -> Step:
        """Append a step that waits for others."""
        block = self.blocks.setdefault((does, peer), len(self.steps))
        if block == len(self.steps):
            self.steps.append([])
        steps = self.steps[block]
        others = sorted({each for each in waits if each[0] != block})
        for k, (other, number) in enumerate(others or [(-1, -1)]):
            last = k >= len(others) - 1
            steps.append(
                {
                    "s": len(steps),
                    "type": kind if last else "nop",
                    **{"srcbuf": slot[0], "srcoff": slot[1], "dstbuf": slot[0], "dstoff": slot[1]},
                    **{"cnt": 1, "depid": other, "deps": number, "hasdep": 0},
                }
            )
            if other >= 0:
                self.steps[other][number]["hasdep"] = 1
        return block, len(steps) - 1


def write_msccl(solution: Solution) -> str:
    """Write the sends of a plan as a program of MSCCL.

    Takes the solution of an all-reduce, all-gather, reduce-scatter or even all-to-all; what MSCCL
    cannot hold raises `InputError`.
    """
    problem, plan = solution.problem, plan_of(solution)
    assert isinstance(problem, Collective)
    if problem.operation not in NAMES or problem.demand_bytes is not None:
        raise InputError(f"MSCCL: {', '.join(NAMES)} of equal chunks can be written, no other")
    if len(plan.parts) or len(plan.places):
        raise InputError("MSCCL: a plan that sends parts, or keeps what comes, cannot be written")
    n, count = problem.n_ranks, len(plan.chunk_bytes)
    gpus = [_Gpu() for _ in range(n)]
    for rows in np.split(plan.sends, np.flatnonzero(np.diff(plan.sends[:, 0])) + 1):
        read = []
        for _, source, target, chunk, _ in rows.tolist():
            gpu = gpus[source]
            slot = _place(problem.operation, n, gpu, source, chunk)
            waits = [gpu.writer[slot]] if slot in gpu.writer else []
            read.append((source, slot, gpu.add("send", target, "s", slot, waits)))
        for source, slot, step in read:
            gpus[source].readers[slot].append(step)
        for _, source, target, chunk, kind in rows.tolist():
            gpu = gpus[target]
            slot = _place(problem.operation, n, gpu, target, chunk)
            waits = gpu.readers.pop(slot, []) + ([gpu.writer[slot]] if slot in gpu.writer else [])
            gpu.writer[slot] = gpu.add(
                "recv", source, "rrc" if kind == REDUCE else "r", slot, waits
            )
    if problem.operation == "all-to-all":
        for rank, gpu in enumerate(gpus):
            gpu.add("copy", -1, "cpy", ("i", rank), [])
            gpu.steps[-1][0]["dstbuf"] = "o"
    return _print(problem, count, gpus)


def _place(operation: str, n: int, gpu: _Gpu, rank: int, chunk: int) -> Slot:
    """Return where a rank has a chunk."""
    if operation != "all-to-all":
        return ("o" if operation == "all-gather" else "i"), chunk
    source, target = divmod(chunk, n)
    if rank in (source, target):
        return ("i", target) if rank == source else ("o", source)
    if chunk not in gpu.places:
        gpu.places[chunk] = "s", gpu.scratch
        gpu.scratch += 1
    return gpu.places[chunk]


def _print(problem: Collective, count: int, gpus: list[_Gpu]) -> str:
    n, operation = problem.n_ranks, problem.operation
    per_loop = n if operation == "all-to-all" else count
    top = ElementTree.Element(
        "algo",
        {
            "name": f"optmatch-{operation}",
            "proto": "Simple",
            "nchannels": str(-(-(n - 1) // PEERS_PER_CHANNEL)),
            "nchunksperloop": str(per_loop),
            "ngpus": str(n),
            "coll": NAMES[operation],
            "inplace": str(int(operation != "all-to-all")),
            "minBytes": "0",
            "maxBytes": str(MOST_BYTES),
        },
    )
    for rank, gpu in enumerate(gpus):
        chunks = {
            "i_chunks": per_loop // n if operation == "all-gather" else per_loop,
            "o_chunks": per_loop // n if operation == "reduce-scatter" else per_loop,
            "s_chunks": gpu.scratch,
        }
        node = ElementTree.SubElement(top, "gpu", {"id": str(rank)} | _texts(chunks))
        longest = max(map(len, gpu.steps))
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
