"""Plans of large jobs, whose replicas are planned as one: valid, and as good as those of all."""

from typing import Any

import pytest

import optmatch as om
from optmatch.solvers.rails import replicas
from optmatch.solvers.rails.replicas import find_replicas
from optmatch.solvers.rails.seats import seat_ranks
from tests.helpers.rails import small_job

EXPERTS = om.TransformerModel(
    layers=4, hidden=64, heads=4, sequence=32, vocabulary=100, ffn=128, experts=4
)
JOBS: dict[str, tuple[int, dict[str, Any]]] = {
    "rings": (4, {"dp": 4, "tp": 1, "batch": 16}),
    "rails": (8, {"dp": 8, "batch": 16}),
    "ports": (4, {"dp": 4, "tp": 1, "batch": 16, "ports_per_gpu": 2}),
    "experts": (2, {"dp": 8, "tp": 1, "batch": 16, "ep": 4, "model": EXPERTS}),
    "chords": (
        2,
        {"dp": 8, "tp": 1, "batch": 16, "ep": 4, "model": EXPERTS, "ports_per_gpu": 3},
    ),
    "pooled": (
        2,
        {
            "dp": 8,
            "tp": 1,
            "batch": 16,
            "ep": 4,
            "model": EXPERTS,
            "gpus_per_server": 2,
            "change_rail_s": 1e-6,
        },
    ),
    "contexts": (4, {"dp": 4, "tp": 1, "cp": 2, "batch": 16}),
    "alone": (4, {"dp": 4, "tp": 1, "pp": 1, "batch": 16}),
    "shards": (4, {"dp": 4, "tp": 1, "batch": 16, "zero_stage": 3}),
}


@pytest.mark.parametrize("name", JOBS)
def test_plans_of_replicas_are_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is planned with all replicas as one, and by the search of all for comparison."""
    n_replicas, options = JOBS[name]
    steps = []
    for few_nodes in (0, 10**9):
        monkeypatch.setattr(replicas, "_FEW_NODES", few_nodes)
        job = small_job(**options, delay_s=1e-4)
        assert find_replicas(job).n_all == (1 if few_nodes else n_replicas)
        solution = om.solve(job, seed=0, limits=om.Limits(iterations=600))
        assert solution.objective is not None
        steps.append(solution.objective)
    assert steps[0] <= 1.1 * steps[1], steps


def test_seats_are_those_of_one_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collectives of data parallelism alone have members in all replicas."""
    monkeypatch.setattr(replicas, "_FEW_NODES", 0)
    job = small_job(dp=8, tp=1, batch=16, ep=4, model=EXPERTS)
    seats = seat_ranks(job)
    (alike,) = seats.rails
    assert (seats.n_seats, seats.n_replicas) == (8, 2)
    assert len({*zip(alike.seat.tolist(), alike.replica.tolist(), strict=True)}) == 16
    step = job.step()
    for node in seats.riding.tolist():
        group = step.groups[step.group[seats.folded.part[node]]]
        assert seats.nodes.crosses[node] == (group.name.startswith(("dp", "edp")))
        if group.dimension != "pp":
            n_replicas = 1 + seats.nodes.crosses[node]
            assert seats.n_members[node] * n_replicas == len(group.ranks)


def test_ranks_of_one_server_are_no_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are on different rails, on which circuits of one cannot be copied to the other."""
    monkeypatch.setattr(replicas, "_FEW_NODES", 0)
    job = small_job(dp=2, tp=1, pp=2, placement=("dp", "tp", "pp", "cp"), gpus_per_server=2)
    assert find_replicas(job).n_all == 1
