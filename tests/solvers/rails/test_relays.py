"""Data that are forwarded: ways around, plans that take them, and every wrong hop refused."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import optmatch as om
from optmatch.io.exports import exported
from optmatch.io.files import solution_to_tree
from optmatch.model import Solution
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.simulation.rails.replay import read_plan
from optmatch.solvers.rails import forwarding, methods
from optmatch.solvers.rails.methods import choose_straight, draft_straight
from optmatch.solvers.rails.transfers import fold_transfers
from tests.helpers.exhaustive.rails import Hops, least_step_s, straight_hops
from tests.helpers.modes import SOAK, examples
from tests.helpers.rails import (
    chain_step,
    change_job,
    make_job,
    measured,
    served_jobs,
    small_job,
)

JOBS = {
    "rings": small_job(2, 1, 3, delay_s=0.1),
    "two rails": small_job(2, 2, 2, delay_s=0.1),
    "two ports": small_job(2, 1, 3, delay_s=0.1, ports_per_gpu=2),
    "messages": small_job(1, 1, 4, delay_s=0.1, micro_batch=1),
}
"""In which it pays to send around."""


@cache
def solved(name: str) -> tuple[Solution, RailPlan]:
    """Solve a job of the list."""
    solution = om.solve(JOBS[name], "prefetch", seed=0)
    assert isinstance(solution.answer, RailPlan)
    assert len(solution.answer.relays)
    return solution, solution.answer


names = st.sampled_from(sorted(JOBS))
SOME = examples(15, plain=15)
few_ranks = served_jobs().filter(lambda job: job.n_gpus <= 12)  # more only take longer


@pytest.mark.parametrize("name", JOBS)
def test_the_unchanged_plan_passes(name: str) -> None:
    solution, plan = solved(name)
    assert om.verify(JOBS[name], solution).ok
    straight = choose_straight(draft_straight(fold_transfers(JOBS[name])))
    assert straight is not None
    assert plan.step_s < straight.step_s


@pytest.mark.parametrize(
    ("relays", "message"),
    [
        ([[0, 1]], "relays has 2 columns, not 3"),
        ([[-1, 0, 1]], r"relays\[0\]: operation -1 of a step"),
        ([[10**6, 0, 1]], r"relays\[0\]: operation 1000000 of a step"),
        ([[3, 0, 1], [2, 0, 1]], r"relays\[1\]: operation 2 after operation 3"),
    ],
)
def test_relays_that_cannot_be(relays: Any, message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        replace(solved("messages")[1], relays=relays)


@settings(max_examples=SOME, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(few_ranks, st.sampled_from([1e-3, 0.1, 10.0]))
def test_going_around_is_never_worse(job: om.RailJob, delay_s: float) -> None:
    job = change_job(job, delay_s=delay_s)
    straight = choose_straight(draft_straight(fold_transfers(job)))
    found = om.solve(job, "prefetch", seed=0)
    assert straight is not None
    assert found.objective is not None
    assert found.objective <= straight.step_s


def tiny_job() -> om.RailJob:
    """Return a job of two stages of two replicas that all orders can be tried of."""
    model = om.TransformerModel(layers=2, hidden=16, heads=2, sequence=8, vocabulary=10, ffn=32)
    return small_job(2, 1, 2, model=model, batch=2, port_bytes_per_s=1e9, delay_s=1e-4)


def chain_job(delay_s: float, *pattern: tuple[str, int]) -> om.RailJob:
    """Return a job of two stages of two replicas, one phase after the other."""
    return make_job(gpus_per_server=1, recorded=chain_step(list(pattern)), delay_s=delay_s)


@pytest.mark.parametrize(
    "job",
    [
        *(chain_job(d, ("pp", 1), ("dp", 1), ("pp", 1), ("dp", 1)) for d in (0.0, 1e-6, 1e-2)),
        *([tiny_job()] if SOAK else []),
    ],
)
def test_the_best_of_all_orders_and_ways(job: om.RailJob) -> None:
    """Tried one by one: rings straight, or through the other stage, one way or the other.

    Nobody is folded there, so no plan that treats replicas differently is better either.
    """

    def ways(operations: Sequence[int]) -> list[Hops]:
        straight = straight_hops(job, operations)
        if len(straight) == 1:
            return [straight]
        (a, b), others = straight[0], [rank for rank in range(4) if rank not in straight[0]]
        crossed = [((a, c), (c, b), (b, d), (d, a)) for c, d in (others, others[::-1])]
        return [straight, *crossed]

    found = om.solve(job, "prefetch", seed=0)
    assert found.objective == pytest.approx(least_step_s(job, ways), rel=1e-9)
    straight = least_step_s(job, lambda operations: [straight_hops(job, operations)])
    assert found.objective <= straight * (1 + 1e-9)
    assert (found.objective < straight * (1 - 1e-9)) == (job.network.delay_s > 1e-6)


@pytest.mark.parametrize("case", ["h200-dp2", "h200-dp4"])
def test_a_delay_of_a_second_is_hidden_in_the_published_cases(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_MOST_TRIALS", 8_000)
    job = change_job(measured(case), delay_s=1.0)
    found = om.solve(job, "prefetch", seed=0)
    latencies = job.step().n_operations * job.network.latency_s
    assert found.objective - job.lower_bound() < latencies < 1e-3
    for policy in ("on-demand", "provisioned"):
        slow = om.solve(job, policy, seed=0).objective
        assert slow > 1.2 * found.objective


@pytest.mark.parametrize("held", [True, False])
def test_circuits_that_a_fabric_does_not_hold(held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no light finds its way for the ring that forwards, the best straight plan stays."""
    job = small_job(2, 1, 2, delay_s=1.0, fabric=om.HexMesh(3, 3, tx=4, rx=4))
    if not held:
        route = methods.route_plan
        monkeypatch.setattr(
            methods, "route_plan", lambda job, plan: None if len(plan.relays) else route(job, plan)
        )
    found = om.solve(job, "prefetch", seed=0).answer
    assert isinstance(found, RailPlan)
    assert bool(len(found.relays)) == held
    assert om.verify(job, found).ok


def test_files_with_and_without_relays(tmp_path: Path) -> None:
    solution, plan = solved("rings")
    om.save(solution, tmp_path / "plan.json")
    assert om.load(tmp_path / "plan.json") == solution
    straight = replace(solution, answer=replace(plan, relays=plan.relays[:0]))
    tree = solution_to_tree(straight)["answer"]
    assert list(tree) == ["rails", "start_s", "end_s", "ports", "step_s"]


def test_what_other_tools_are_told() -> None:
    solution, plan = solved("rings")
    events = json.loads(str(exported(solution, "perfetto")))["traceEvents"]
    rows = list(csv.DictReader(io.StringIO(str(exported(solution, "timeline")))))
    told = [row["via"] for row in rows if row["what"] == "operation"]
    for operation, rank, _ in plan.relays.tolist():
        assert str(rank) in told[operation].split()
    assert sum(map(bool, told)) == len(np.unique(plan.relays[:, 0]))
    assert sum("via" in event.get("args", {}) for event in events) == sum(map(bool, told))
    assert read_plan(JOBS["rings"], plan).step_s == plan.step_s
