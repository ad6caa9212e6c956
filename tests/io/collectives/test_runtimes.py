"""Programs for other runtimes move real data: MSCCL and MSCCL++ by replays, in any order.

Neither runs on a GPU here: what reads them there is C++ and CUDA. The replay of MSCCL++ keeps the
rules of its reader, and lets the proxies put data at any time between a put and a flush.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.io.collectives import Layout
from optmatch.io.exports import exported
from optmatch.problems.collectives.plan import KEEP, OWN, REDUCE, REPLACE, SUM, plan_of
from optmatch.solvers.collectives.methods import suits
from tests.helpers.msccl_readers import RUNTIMES, check_program, without_dialect
from tests.helpers.mscclpp import Machine, read
from tests.helpers.runtimes import make, run_msccl, same, scratch_of, units_of

METHODS = {
    "all-reduce": (
        *("ring", "direct", "bruck", "halving-doubling", "stragglar"),
        *("one-pass", "composed", "late-ranks", "topologies"),
    ),
    "reduce-scatter": ("ring", "bruck", "direct"),
    "all-gather": ("ring", "bruck", "mixed-radix"),
    "all-to-all": ("pairwise", "bruck", "direct"),
    "uneven": ("pairwise", "bruck"),
    "broadcast": ("ring", "bruck"),
}


def solve(operation: Any, method: str, n: int) -> om.Solution | None:
    """Return a plan; None if the method does not take such a problem."""
    late: Any = {n - 1: 1e-3} if method == "stragglar" else {}
    if method == "late-ranks":
        late = dict.fromkeys(range(1, n), 1e-3)
    told: dict[str, Any] = {"alpha_s": 1e-6, "delay_s": 1e-6, "late_s": late}
    told["ports"] = 2 if method == "topologies" else 1
    if operation == "uneven":
        demand = np.random.default_rng(n).integers(0, 90, (n, n)) * 8
        np.fill_diagonal(demand, 0)
        demand[np.arange(n), (np.arange(n) + 1) % n] = 720  # nobody has nothing to do
        problem = om.Collective("all-to-all", n, 0, demand_bytes=demand, **told)
    else:
        problem = om.Collective(
            operation, n, 1e3, root=n - 1 if operation == "broadcast" else 0, **told
        )
    if not suits(problem, method):
        return None
    return om.solve(problem, method, seed=0)


def units_in(solution: om.Solution) -> tuple[int, Any]:
    """Return the units of all chunks, and those of each block of an all-to-all."""
    problem: Any = solution.problem
    n_chunks = len(plan_of(solution).chunk_bytes)
    per_chunk = 1
    if len(plan_of(solution).parts):
        per_chunk = int(Layout("", solution).units.sum()) // n_chunks
    return n_chunks * per_chunk, units_of(problem) * per_chunk


def check_msccl(solution: om.Solution, times: int) -> None:
    """Do the program in several orders, and compare the results with what is wanted.

    Each dialect is read by the rules of its runtime, and has the same programs of ranks.
    """
    problem: Any = solution.problem
    text = str(exported(solution, "msccl"))
    for dialect in RUNTIMES:
        in_dialect = str(exported(solution, "msccl", dialect=dialect))
        check_program(in_dialect, dialect)
        assert without_dialect(in_dialect) == without_dialect(text)
    for seed in range(times):
        first, last = make(problem, *units_in(solution), scratch_of(text))
        run_msccl(text, first, seed)
        assert all(same(*each) for each in zip(first, last, strict=True))


def check_mscclpp(solution: om.Solution, times: int) -> None:
    """Read the plan by the rules, and do it in several orders."""
    problem: Any = solution.problem
    tree = read(str(exported(solution, "mscclpp")))
    scratch = [gpu["scratch_chunks"] for gpu in tree["gpus"]]
    for seed in range(times):
        first, last = make(problem, *units_in(solution), scratch)
        Machine(tree, first, seed).run()
        assert all(same(*each) for each in zip(first, last, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("operation", METHODS)
def test_plans_keep_the_rules_and_give_the_results(operation: str) -> None:
    done = 0
    for n, method in product((2, 3, 4, 5, 6, 8), METHODS[operation]):
        solution = solve(operation, method, n)
        if solution is not None:
            check_msccl(solution, 2)
            check_mscclpp(solution, 2)
            done += 1
    assert done >= 8


@pytest.mark.parametrize(
    ("method", "n_ranks", "ports", "kinds", "places"),
    [
        ("composed", 5, 1, {KEEP}, {OWN}),
        ("one-pass", 6, 1, {KEEP, REDUCE}, {SUM, OWN + 1}),
        ("topologies", 16, 2, {REPLACE}, {SUM}),
    ],
)
def test_sums_that_are_kept_and_replaced_are_written(
    method: str, n_ranks: int, ports: int, kinds: set[int], places: set[int]
) -> None:
    """What a rank had itself, what passes it beside its sum, and a sum that takes its place."""
    ordinary: dict[str, Any] = {"alpha_s": 2e-6, "delay_s": 1e-2, "ports": ports}
    solution = om.solve(om.Collective("all-reduce", n_ranks, 1e3, **ordinary), method, seed=0)
    plan: Any = solution.answer
    assert kinds <= set(plan.sends[:, 4].tolist())
    assert places <= {SUM, *plan.places[:, 0].tolist()}
    check_msccl(solution, 3)
    check_mscclpp(solution, 3)


@pytest.mark.parametrize("operation", ["all-reduce", "reduce-scatter", "all-gather", "all-to-all"])
@pytest.mark.parametrize(("n_ranks", "island"), [(8, 4), (6, 2)])
def test_plans_of_islands_are_written_in_parts(operation: Any, n_ranks: int, island: int) -> None:
    """Each part of a chunk is a few whole units, near the cut of the plan."""
    ordinary: dict[str, Any] = {"alpha_s": 1e-6, "delay_s": 5e-6, "rate_bytes_per_s": 5e10}
    problem = om.Collective(operation, n_ranks, 1e8, island=island, **ordinary)
    solution = om.solve(problem, seed=0)
    plan: Any = solution.answer
    assert len(plan.parts)
    parts = np.unique(plan.parts, axis=0)
    units = Layout("", solution).units[: len(parts)]
    cuts = np.cumsum(units) / 64 - np.cumsum(parts[:, 1]) / plan.chunk_bytes.max()
    assert units.sum() == 64 and np.abs(cuts).max() <= 1 / 128
    check_msccl(solution, 2)
    check_mscclpp(solution, 2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (' outofplace="0"', ""),
        ('coll="reducescatter"', 'coll="reduce_scatter"'),
        ('proto="Simple"', 'proto="simple"'),
        ('s="0"', 's="64"'),
        ('cnt="1"', 'cnt="72"'),
        ('chan="0"', 'chan="-1"'),
        ("<gpu", "<GPU"),
        (' id="0"', '\n id="0"'),
        ('send="1" recv="-1"', 'send="-1" recv="-1"'),
        ('srcoff="0"', 'srcoff="99"'),
    ],
)
def test_programs_that_runtimes_refuse(old: str, new: str) -> None:
    """The rules of their readers find a changed program."""
    solution = om.solve(om.Collective("reduce-scatter", 3, 3e3), "ring", seed=0)
    text = str(exported(solution, "msccl", dialect="rccl"))
    check_program(text, "rccl")
    assert old in text
    with pytest.raises((AssertionError, KeyError, ValueError)):
        check_program(text.replace(old, new), "rccl")


def test_what_mscclpp_cannot_hold_is_refused() -> None:
    """A rank that gets nothing, whose sizes its reader would divide by; too many thread blocks."""
    for demand, n, match in (([[0, 8], [0, 0]], 2, "something"), (None, 72, "17 are possible")):
        problem = om.Collective(
            "all-reduce" if demand is None else "all-to-all", n, 1e3 if demand is None else 0,
            demand_bytes=demand,
        )  # fmt: skip
        with pytest.raises(om.InputError, match=match):
            exported(om.solve(problem, "ring", seed=0), "mscclpp")


def test_what_msccl_cannot_say_is_refused() -> None:
    """Too many steps, half a byte, steps from outside, more blocks than there can be."""
    for problem, match in (
        (om.Collective("broadcast", 3, 1.0), r"1024 steps, 216 of 256 .*--method ring"),
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
