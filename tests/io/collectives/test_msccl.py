"""Programs of MSCCL: read back, they give every rank its data."""

from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import optmatch as om
from optmatch.io.exports import exported
from tests.helpers.collectives import compute
from tests.helpers.msccl import run_program

CASES = [
    ("all-reduce", "ring", 5),
    ("all-reduce", "halving-doubling", 8),
    ("all-reduce", "stragglar", 6),
    ("all-gather", "mixed-radix", 7),
    ("reduce-scatter", "bruck", 6),
    ("all-to-all", "bruck", 6),
    ("all-to-all", "pairwise", 5),
]


def write(operation: Any, method: str, n: int) -> tuple[om.Solution, str]:
    """Return a solution and its program."""
    late: Any = {n - 1: 1e-3} if method == "stragglar" else {}
    problem = om.Collective(operation, n, 1e6, alpha_s=1e-6, delay_s=1e-6, late_s=late)
    solution = om.solve(problem, method, seed=0)
    return solution, str(exported(solution, "msccl"))


@pytest.mark.parametrize(("operation", "method", "n"), CASES)
def test_a_program_does_what_the_plan_does(operation: str, method: str, n: int) -> None:
    solution, text = write(operation, method, n)
    sends, chunks = run_program(text)
    plan = solution.answer
    assert chunks == len(plan.chunk_bytes)
    assert sorted(map(tuple, sends[:, 1:])) == sorted(map(tuple, plan.sends[:, 1:]))
    rounds = int(sends[-1, 0]) + 1
    assert rounds <= plan.n_rounds
    again = om.CollectivePlan(
        sends=sends, chunk_bytes=plan.chunk_bytes, epoch_of_round=np.arange(rounds, dtype=np.int32)
    )
    problem = solution.problem
    assert isinstance(problem, om.Collective) and compute(problem, again)


def test_the_interpreter_would_take_it() -> None:
    top = ElementTree.fromstring(write("all-reduce", "halving-doubling", 8)[1])
    assert (top.attrib["coll"], top.attrib["nchunksperloop"]) == ("allreduce", "8")
    for gpu in top.iter("gpu"):
        blocks = {block.attrib["id"]: list(block) for block in gpu}
        for block in gpu:
            assert "-1" in (block.attrib["send"], block.attrib["recv"])
            assert [step.attrib["s"] for step in block] == [str(k) for k in range(len(block))]
            for step in block:
                if step.attrib["depid"] != "-1":
                    waited = blocks[step.attrib["depid"]][int(step.attrib["deps"])]
                    assert waited.attrib["hasdep"] == "1"


def test_what_msccl_cannot_say_is_refused() -> None:
    """Too many steps, half a byte, steps from outside, more blocks than there can be."""
    for problem, match in (
        (om.Collective("broadcast", 3, 1.0), "1024 steps, 216 of 256"),
        (
            om.Collective("all-to-all", 2, 0, demand_bytes=np.array([[0, 1.5], [2, 0]])),
            "whole bytes",
        ),
        (om.Collective("all-reduce", 2, 1.0, steps=[[0, 1.0]]), "no sends"),
    ):
        with pytest.raises(om.InputError, match=match):
            exported(om.solve(problem, seed=0), "msccl")
    wide = om.solve(om.Collective("all-to-all", 40, 1e6), "pairwise", seed=0)
    with pytest.raises(om.InputError, match=r"rccl\): .* 79 thread blocks of 1 .* 64 of 64"):
        exported(wide, "msccl", dialect="rccl")
    with pytest.raises(om.InputError, match="dialect 'nccl': one of msccl, "):
        exported(wide, "msccl", dialect="nccl")


@pytest.mark.parametrize(
    ("old", "new"),
    [('type="rrc"', 'type="rrs"'), ('recv="4"', 'recv="3"'), ('srcoff="1"', 'srcoff="2"')],
)
def test_a_changed_program_does_not_run(old: str, new: str) -> None:
    text = write("all-reduce", "ring", 5)[1]
    assert old in text
    with pytest.raises(AssertionError):
        run_program(text.replace(old, new, 1))
