"""Rounds of a collective as JSON, and its sends as Chakra traces, node by node."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from optmatch.io.rails.chakra.messages import RECEIVE, SEND
from optmatch.io.rails.chakra.writer import Node, trace_bytes
from optmatch.model import Solution
from optmatch.problems.collectives.plan import REDUCE, plan_of


def write_rounds(solution: Solution) -> str:
    """Write the rounds of a plan, one on a line.

    It is ``{"chunk_bytes": [...], "rounds": [{"epoch", "circuits", "sends"}, ...]}``; a send is
    ``[source, destination, chunk, "copy" | "reduce"]``, circuits are by lane and rank.
    """
    plan = plan_of(solution)
    sends: list[list[Any]] = [[] for _ in range(plan.n_rounds)]
    for turn, source, target, chunk, kind in plan.sends.tolist():
        sends[turn].append([source, target, chunk, "reduce" if kind == REDUCE else "copy"])
    lines = [
        json.dumps({"epoch": epoch, "circuits": plan.circuits[epoch].tolist(), "sends": rows})
        for epoch, rows in zip(plan.epoch_of_round.tolist(), sends, strict=True)
    ]
    sizes = json.dumps(plan.chunk_bytes.tolist())
    return f'{{"chunk_bytes": {sizes}, "rounds": [\n' + ",\n".join(lines) + "\n]}\n"


def write_traces(solution: Solution) -> dict[str, bytes]:
    """Write the sends of a plan as Chakra traces, a file for each rank.

    What goes from one rank to another in a round is one node that sends and one that hears, with
    the round as tag. Both wait for all that their rank did in the last round in which it took
    part, so rounds keep their order. Chakra knows no circuits: `astra.files` writes these.
    """
    plan = plan_of(solution)
    n = plan.circuits.shape[2]
    nodes: list[list[Node]] = [[] for _ in range(n)]
    before: list[tuple[int, list[int], list[int]]] = [(-1, [], [])] * n
    pairs, which = np.unique(plan.sends[:, :3], axis=0, return_inverse=True)
    sizes = np.bincount(which.reshape(-1), weights=plan.chunk_bytes[plan.sends[:, 3]])
    for (turn, source, target), size in zip(pairs.tolist(), sizes.tolist(), strict=True):
        ends: dict[str, bool | int | str] = {"comm_src": source, "comm_dst": target}
        told = {"is_cpu_op": False, "comm_size": math.ceil(size), "comm_tag": turn} | ends
        for rank, kind in ((source, SEND), (target, RECEIVE)):
            last, waits, now = before[rank]
            if last != turn:  # what was done in its last round is waited for
                waits, now = now, []
            number = len(nodes[rank])
            nodes[rank].append(Node(number, kind, f"round {turn}", waits, 0, told))
            before[rank] = turn, waits, [*now, number]
    return {f".{rank}.et": trace_bytes(each) for rank, each in enumerate(nodes)}
