"""Rounds as JSON: they are read back as the plan, and its replay says so."""

import json
from typing import Any

import pytest

import optmatch as om
from optmatch.io.exports import exported


@pytest.mark.parametrize(
    ("operation", "method"),
    [("all-reduce", "ring"), ("all-to-all", "bruck"), ("all-reduce", "one-pass")],
)
def test_rounds_come_back_and_are_replayed(operation: Any, method: str) -> None:
    problem = om.Collective(operation, 5, 1e6, alpha_s=1e-6, delay_s=1e-5)
    solution = om.solve(problem, method, seed=0)
    tree = json.loads(str(exported(solution, "rounds")))
    kinds = {"copy": 0, "reduce": 1, "keep": 2}
    sends = [
        [turn, *row[:3], kinds[row[3]]]
        for turn, each in enumerate(tree["rounds"])
        for row in each["sends"]
    ]
    epochs = [each["epoch"] for each in tree["rounds"]]
    circuits = {each["epoch"]: each["circuits"] for each in tree["rounds"]}
    fields: dict[str, Any] = {
        "sends": sends,
        "chunk_bytes": tree["chunk_bytes"],
        "circuits": list(circuits.values()),
        "epoch_of_round": epochs,
    }
    for name in ("parts", "places"):
        fields[name] = [row for each in tree["rounds"] for row in each.get(name, [])]
    plan = om.CollectivePlan(time_s=solution.answer.time_s, among="all", **fields)
    assert plan == solution.answer
    assert om.verify(problem, plan).ok


def test_what_has_no_rounds_is_refused() -> None:
    problem = om.Collective("all-reduce", 2, 1.0, steps=[[0, 1.0]])
    with pytest.raises(om.InputError, match="there are no sends"):
        exported(om.solve(problem, seed=0), "rounds")
