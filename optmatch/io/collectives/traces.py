"""Plans of collectives as Chakra traces, a file for each rank."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from optmatch.io.rails.chakra import RECEIVE, SEND, Node, trace_bytes
from optmatch.model import Solution
from optmatch.problems.collectives.plan import plan_of


@dataclass
class _RankTrace:
    """The nodes of a rank, while they are made round by round."""

    nodes: list[Node] = field(default_factory=list)
    round_: int = -1
    """The last round in which the rank took part."""
    nodes_of_round: list[int] = field(default_factory=list)
    """The nodes of that round."""
    nodes_before: list[int] = field(default_factory=list)
    """The nodes of the round before it, for which all nodes of that round wait."""

    def append(self, round_: int, kind: int, attributes: dict[str, bool | int | str]) -> None:
        """Add a node of a round, which waits for all nodes of the last round before it."""
        if round_ != self.round_:
            self.round_ = round_
            self.nodes_before = self.nodes_of_round
            self.nodes_of_round = []
        number = len(self.nodes)
        self.nodes.append(Node(number, kind, f"round {round_}", self.nodes_before, 0, attributes))
        self.nodes_of_round = [*self.nodes_of_round, number]


def write_traces(solution: Solution) -> dict[str, bytes]:
    """Write the sends of a plan as Chakra traces, a file for each rank."""
    plan = plan_of(solution)
    n_ranks = plan.circuits.shape[2]
    traces = [_RankTrace() for _ in range(n_ranks)]
    pairs, pair_of_send = np.unique(plan.sends[:, :3], axis=0, return_inverse=True)
    bytes_of_pair = np.bincount(pair_of_send.reshape(-1), weights=plan.sent_bytes)
    for (round_, source, target), size_bytes in zip(
        pairs.tolist(), bytes_of_pair.tolist(), strict=True
    ):
        attributes: dict[str, bool | int | str] = {
            "is_cpu_op": False,
            "comm_size": math.ceil(size_bytes),
            "comm_tag": round_,
            "comm_src": source,
            "comm_dst": target,
        }
        traces[source].append(round_, SEND, attributes)
        traces[target].append(round_, RECEIVE, attributes)
    return {f".{rank}.et": trace_bytes(trace.nodes) for rank, trace in enumerate(traces)}
