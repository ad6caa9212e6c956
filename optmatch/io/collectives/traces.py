"""Collectives as Chakra traces: what each rank sends and hears, node by node."""

from __future__ import annotations

import math

import numpy as np

from optmatch.io.rails.chakra.messages import RECEIVE, SEND
from optmatch.io.rails.chakra.writer import Node, trace_bytes
from optmatch.model import Solution
from optmatch.problems.collectives.plan import plan_of


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
