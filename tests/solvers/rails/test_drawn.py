"""Jobs drawn over all options: written, read, simulated, solved and verified."""

import random
from pathlib import Path

import pytest

import optmatch as om
from tests.helpers.drawn_rails import draw_rail_job, try_rail_job
from tests.helpers.fuzzing import METHODS
from tests.helpers.modes import examples
from tests.helpers.rails import MODEL, change_job, small_job


@pytest.mark.parametrize("part", range(4))
def test_jobs_of_any_options_are_planned_or_refused_by_name(part: int, tmp_path: Path) -> None:
    refused, count = 0, examples(12, plain=12)
    for number in range(count * part, count * (part + 1)):
        rng = random.Random(f"rails {number}")
        job = draw_rail_job(rng)
        refused += job is None
        if job is not None:
            assert not try_rail_job(job, rng.choice(METHODS), tmp_path), number
    assert 0 < refused < count


@pytest.mark.parametrize("method", METHODS)
def test_ranks_that_stop_together_are_folded_together(method: str, tmp_path: Path) -> None:
    job = draw_rail_job(random.Random("rails 2188"))
    assert job is not None and job.network.switching == "all-stop"
    assert not try_rail_job(job, method, tmp_path)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_experts_that_all_replicas_hold_are_weights_like_others(zero_stage: int) -> None:
    experts = om.TransformerModel(
        layers=12, hidden=64, heads=4, sequence=32, vocabulary=100, ffn=128, experts=4
    )
    plain = small_job(4, 1, 1, zero_stage=zero_stage)
    job = change_job(plain, model=experts)
    assert {group.name.partition(".")[0] for group in job.groups()} == {"dp"}
    sent, without = (each.step().size_bytes.sum() for each in (job, plain))
    assert sent > without


def test_stages_that_do_the_same_face_each_other_at_different_ports() -> None:
    fabric = om.HexMesh(5, 5, ports=8)
    options = {"schedule": "dualpipe", "micro_batch": 1, "batch": 8, "model": MODEL}
    job = small_job(2, 1, 2, fabric=fabric, ports_per_gpu=2, **options)
    for method in METHODS:
        assert om.verify(job, om.solve(job, method, seed=0)).valid


@pytest.mark.parametrize("method", ["on-demand", "provisioned"])
def test_ports_that_meet_by_chance_make_no_circuit(method: str) -> None:
    model = om.TransformerModel(
        layers=16, hidden=64, heads=4, sequence=32, vocabulary=100, ffn=128
    )
    job = small_job(
        2, 2, 4, schedule="zb-v", micro_batch=1, batch=8, zero_stage=2, delay_s=0.01, model=model
    )  # fmt: skip
    assert om.verify(job, om.solve(job, method, seed=0)).valid
