"""Rail jobs: layout, groups, programs, sizes, and refused jobs."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import optmatch as om
from optmatch.io import dumps, loads
from optmatch.problems.rails.training.step import COMPUTE, RECV, SEND, ring_bytes
from tests.helpers.command import call, put
from tests.helpers.rails import MODEL, make_job, message_step, random_jobs, small_job

BROKEN: list[tuple[dict[str, Any], str, str]] = [
    ({"gpus_per_server": 3}, "network.gpus_per_server", "no multiple of 3 GPUs per server"),
    ({"ep": 4}, "ep", "ep = 4: does not divide dp x cp = 2 x 1"),
    ({"ep": 2}, "parallelism.ep", "ep = 2: does not divide the 1 experts"),
    ({"model": None}, "model", "neither model nor recorded"),
    ({"batch": 7}, "workload.batch", "no multiple of dp = 2"),
    ({"micro_batch": 3}, "workload.micro_batch", "does not divide the 4 sequences"),
    ({"micro_batch": 0}, "micro_batch", "must be >= 1"),
    ({"virtual_stages": 2}, "virtual_stages", "with schedule 1f1b"),
    (
        {"schedule": "interleaved"},
        "virtual_stages",
        "= 1 with schedule interleaved",
    ),
    (
        {"schedule": "interleaved", "virtual_stages": 2},
        "workload.micro_batch",
        "1 micro-batches: interleaved needs a multiple of pp = 2",
    ),
    (
        {"schedule": "dualpipe", "micro_batch": 2},
        "workload.micro_batch",
        "2 micro-batches: dualpipe needs an even number, at least 4 = 2 pp",
    ),
    (
        {"schedule": "dualpipe", "micro_batch": 1, "pp": 1},
        "parallelism.pp",
        "pp = 1: dualpipe needs an even number of stages",
    ),
    (
        {"model": replace(MODEL, layers=3)},
        "workload.model",
        "3 layers do not split into 2 equal parts",
    ),
    (
        {"model": replace(MODEL, layers=1)},
        "workload.model",
        "1 layers, fewer than the 2 parts of the pipeline",
    ),
    (
        {"stage_layers": (1, 1, 10)},
        "stage_layers",
        "3 parts, the pipeline has 2",
    ),
    (
        {"stage_layers": (1, 10)},
        "parallelism.stage_layers",
        "11 layers in all, the model has 12",
    ),
    ({"shard": 3, "zero_stage": 3}, "shard", "shard = 3: does not divide dp x cp = 2 x 1"),
    ({"shard": 2}, "shard", "shard = 2 with zero_stage = 0: nothing is sharded"),
    ({"skew": 0.5}, "skew", "skew = 0.5: must be >= 1"),
    ({"skew": (1.0, 1.0)}, "skew", "skew: 2 loads, the model has 1 experts"),
    ({"skew": (0.0,)}, "skew[0]", "must be > 0"),
    ({"skew": (float("inf"),)}, "skew[0]", "finite"),
    ({"spanning": "trees"}, "spanning", "one of hierarchical, rings"),
    ({"schedule": "2f2b"}, "schedule", "one of gpipe, 1f1b, interleaved"),
    ({"switching": "all"}, "switching", "one of all-stop, per-circuit"),
    ({"order": ("dp", "tp", "pp")}, "order", "order = dp, tp, pp: each of dp, tp, pp, cp once"),
    ({"order": "tp-cp-ep-ep-dp-pp"}, "order", "tp, cp, ep, ep, dp, pp: each of .* at most once"),
    ({"placement": "tp-xp-dp-pp"}, "placement[1]", "= 'xp': one of dp, tp, pp, cp, ep"),
    ({"zero_stage": 4}, "zero_stage", "from 0 to 3"),
    ({"efficiency": 1.5}, "efficiency", "at most 1"),
    ({"port_bytes_per_s": 0}, "port_bytes_per_s", "must be > 0"),
    ({"port_bytes_per_s": 1e308}, "port_bytes_per_s", r"at most 1e\+100"),
    ({"ports_per_gpu": 32}, "ports_per_gpu", "from 1 to 31"),
    (
        {"radix": 3},
        "network.radix",
        r"rail 0 has 4 GPUs.*rank 5 \(of group dp\.2\) is the first",
    ),
    (
        {"fabric": om.Benes(3)},
        "network.fabric",
        r"fabric = 3 working ports: rail 0 has 4 GPUs with 1 ports each, 4 in all; rank 5",
    ),
    (
        {"fabric": om.Faulty(om.IdealSwitch(4), dead_ports=[1])},
        "network.fabric",
        "fabric = 3 working ports: rail 0 has 4 GPUs with 1 ports each, 4 in all",
    ),
    (
        {"gpus_per_server": 1, "ports_per_gpu": 2, "radix": 15},
        "network.radix",
        r"rail 0 has 8 GPUs with 2 ports each, 16 in all; rank 7 \(of group dp\.3\) is the first",
    ),
]


@pytest.mark.parametrize(("change", "where", "message"), BROKEN)
def test_a_broken_job_is_refused(change: dict[str, Any], where: str, message: str) -> None:
    with pytest.raises(om.InputError, match=message) as caught:
        small_job(**{"dp": 2, "tp": 2, "pp": 2, **change})
    assert caught.value.where == where


def test_a_group_with_other_rails_in_another_server_is_refused() -> None:
    message = r"group dp\.0 has members in server 0 on rails 0; server 1 on rails 1: the same"
    with pytest.raises(om.InputError, match=message) as c:
        small_job(dp=2, tp=3, pp=1, gpus_per_server=2)
    assert c.value.where == "parallelism.placement"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 65}, "hidden = 65: no multiple of 4 heads"),
        ({"kv_heads": 3}, "kv_heads = 3: does not divide 4 heads"),
        ({"active_experts": 2}, "at most 1 experts"),
        ({"layers": 0}, "layers = 0: must be >= 1"),
    ],
)
def test_a_broken_model_is_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        replace(MODEL, **change)


def test_a_recorded_step_needs_its_ranks() -> None:
    with pytest.raises(om.InputError, match="a recorded step has groups of its own"):
        make_job(gpus_per_server=1, dp=2, recorded=message_step())
    with pytest.raises(om.InputError, match="both are given: a model or a recorded step"):
        make_job(gpus_per_server=1, model=MODEL, recorded=message_step())
    with pytest.raises(om.InputError, match=r"rail 0 has 2 GPUs.*rank 1 \(of group pp\.0\)"):
        make_job(gpus_per_server=1, radix=1, recorded=message_step())


def test_ranks_count_as_published() -> None:
    model = replace(MODEL, layers=8, heads=32)
    job = make_job(gpus_per_server=32, dp=16, tp=32, pp=8, model=model, batch=16)
    groups = {group.name: group for group in job.groups()}
    assert groups["dp.0"].ranks == tuple(range(16))
    assert groups["tp.0"].ranks == tuple(range(0, 512, 16))
    assert groups["tp.0"].rail == -1
    assert groups["pp.0"].ranks == tuple(range(0, 4096, 512))
    assert {group.rail for group in job.groups() if group.dimension != "tp"} == set(range(32))


relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@settings(relaxed, max_examples=15)
@given(random_jobs())
def test_files_bring_jobs_back(job: om.RailJob) -> None:
    again = loads(dumps(job))
    assert again == job
    assert isinstance(again, om.RailJob)
    assert again.step() == job.step()
    recorded = make_job(gpus_per_server=job.network.gpus_per_server, recorded=job.step())
    assert loads(dumps(recorded)) == recorded


@relaxed
@given(random_jobs())
def test_a_step_computes_the_model_once(job: om.RailJob) -> None:
    step, model = job.step(), job.workload.model
    assert model is not None
    tokens = job.workload.batch * model.sequence
    matrices = 4 * model.hidden**2
    matrices += model.ffn_matrices * model.hidden * model.ffn * model.active_experts
    layer = 2 * matrices + 4 * model.sequence * model.hidden
    flops = 3 * tokens * (model.layers * layer + 2 * model.hidden * model.vocabulary)
    spent = (
        step.duration_s[step.kind == COMPUTE].sum()
        * job.workload.peak_flops_per_s
        * job.workload.efficiency
    )
    assert spent == pytest.approx(flops)
    split = job.parallelism
    boundaries = split.n_parts - 1 - (split.schedule == "zb-v") if split.pp > 1 else 0
    lines = split.dp * split.tp * split.cp
    expected = 2 * boundaries * job.workload.count_micro_batches(split.dp) * lines
    expected += 2 * job.n_gpus * (split.schedule == "dualpipe")
    assert ((step.kind == SEND).sum(), (step.kind == RECV).sum()) == (expected, expected)


def test_gradients_are_exchanged_once() -> None:
    totals = []
    for zero in (0, 1, 2):
        job = small_job(dp=2, tp=2, pp=2, zero_stage=zero)
        step = job.step()
        sizes = np.array([*(len(group.ranks) for group in step.groups), 1])[step.group]
        own = (step.rail >= 0) & (step.kind < SEND)
        totals.append(ring_bytes(step.kind, step.size_bytes, sizes)[own].sum())
    assert job.workload.model is not None
    h = job.workload.model.hidden
    words = 2 * h * job.workload.model.vocabulary
    weights = job.workload.model.layers * (4 * h**2 + 3 * h * job.workload.model.ffn) + words
    # two members: each sends half, there and back, of two bytes for each weight
    assert totals == pytest.approx([2 * 2 * weights] * 3)


SIZES = "--layers 4 --hidden 64 --heads 4 --sequence 32 --vocabulary 100 --ffn 128"
DEGREES = "--gpus-per-server 2 --dp 2 --tp 2 --pp 2 --batch 8"


def test_generate_writes_a_job() -> None:
    line = f"generate rail-job --gpus 8 {DEGREES} {SIZES} --order tp,dp,pp,cp --delay 0.1"
    done = call(*f"{line} --radix 8 --fabric benes --size 4".split())
    job = loads(done.stdout)
    assert isinstance(job, om.RailJob)
    assert (job.parallelism.order, job.network.delay_s, job.fabric) == (
        ("tp", "dp", "pp", "cp"),
        0.1,
        om.Benes(4),
    )


def test_generate_refuses_degrees_that_do_not_multiply(tmp_path: Any) -> None:
    target = tmp_path / "job.json"
    done = call(*f"generate rail-job --gpus 9 {DEGREES} {SIZES} -o {target}".split(), code=2)
    assert not target.exists()
    assert "dp 2 x tp 2 x pp 2 x cp 1 = 8 ranks, but --gpus = 9" in done.stderr


def test_a_file_with_a_broken_step_names_the_operation(tmp_path: Any) -> None:
    """A collective of a rank that is not in its group."""
    job = make_job(gpus_per_server=1, recorded=message_step())
    tree = json.loads(dumps(job))
    tree["workload"]["recorded"]["groups"][0]["ranks"] = [0, 2]
    path = put(tmp_path, "job.json", json.dumps(tree))
    with pytest.raises(om.InputError, match=r"of rank 1 in group pp\.0: rank 1 is not in") as c:
        om.load(path)
    assert (c.value.where, str(path) in str(c.value)) == ("/workload/recorded/group/2", True)


def test_a_rail_larger_than_its_switch_says_how_to_split_the_job() -> None:
    model = om.TransformerModel(layers=8, hidden=64, heads=8, sequence=8, vocabulary=10, ffn=64)
    split = om.Parallelism(dp=64, tp=8, pp=8)
    work = om.Workload(model=model, batch=64)
    with pytest.raises(om.InputError, match=r"2 jobs of 2048 GPUs \(dp = 32\) fit"):
        om.RailJob(
            parallelism=split, network=om.RailNetwork(gpus_per_server=8, radix=320), workload=work
        )


def test_a_plan_on_a_fabric_with_more_ports_than_gpus_is_read_again(tmp_path: Any) -> None:
    """Its timelines have a column for each port of the fabric; others are refused."""
    job = small_job(2, 1, 2, fabric=om.Crossbar(6))
    solution = om.solve(job, "provisioned", seed=0)
    path = tmp_path / "solution.json"
    om.save(solution, path)
    again = om.load(path)
    assert isinstance(again, om.Solution)
    assert again.answer == solution.answer and om.verify(job, again).ok

    other = replace(job, network=replace(job.network, fabric=om.Crossbar(7)))
    with pytest.raises(om.InputError, match="rows of 6 entries, rail 0 has 7 ports"):
        solution.answer.check_fits(other)


@relaxed
@given(random_jobs())
def test_a_rate_that_floats_take_for_0_is_refused(job: om.RailJob) -> None:
    slow = replace(job.workload, peak_flops_per_s=5e-324)
    with pytest.raises(om.InputError, match="lasts inf s"):
        replace(job, workload=slow).lower_bound()
