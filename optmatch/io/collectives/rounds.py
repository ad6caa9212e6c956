"""Rounds of a collective as JSON: for each round its circuits and who sends what to whom."""

from __future__ import annotations

import json
from typing import Any

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
