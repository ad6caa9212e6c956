"""Times from the job: rooflines, buckets, the optimiser, one stream; one factor is fitted."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.io import load
from optmatch.problems.rails.accelerators import ACCELERATORS, describe_accelerator
from optmatch.problems.rails.calibration import calibrate
from optmatch.problems.rails.training.step import ALL_REDUCE, COMPUTE, SEND, dimensions
from tests.helpers.command import call
from tests.helpers.rails import MODEL, change_job, make_job, message_step, small_job


def compute_s(job: om.RailJob, rank: int = 0) -> list[float]:
    """List how long the computations of a rank last."""
    step = job.step()
    at = (step.rank == rank) & (step.kind == COMPUTE)
    found: list[float] = step.duration_s[at].tolist()
    return found


def gradients(job: om.RailJob) -> list[float]:
    """List the sizes of the all-reduces of gradients of rank 0."""
    step = job.step()
    at = (step.rank == 0) & (step.kind == ALL_REDUCE) & (dimensions(step) == 0)
    found: list[float] = step.size_bytes[at].tolist()
    return found


def test_a_layer_takes_as_long_as_its_operations_or_its_bytes() -> None:
    job = make_job(dp=1, gpus_per_server=1, batch=2, model=MODEL, peak_flops_per_s=1e9)
    plain = compute_s(job)
    fast = compute_s(change_job(job, memory_bytes_per_s=1e30))
    np.testing.assert_allclose(fast[:-1], plain, rtol=1e-9)
    slow = compute_s(change_job(job, memory_bytes_per_s=1e3))
    inner = 2 * 32 * 64
    matrices = 4 * 64**2 + 2 * 64 * 128
    bytes_moved = 2 * (matrices + inner * (6 + 8 + 2 + 128 / 64))
    assert slow[0] == pytest.approx(bytes_moved / 1e3)


def test_causal_attention_does_half_of_the_scores() -> None:
    job = make_job(dp=1, gpus_per_server=1, batch=1, model=MODEL, peak_flops_per_s=1e9)
    half = change_job(job, model=replace(MODEL, attended=16))
    less = compute_s(job)[0] - compute_s(half)[0]
    assert less == pytest.approx(32 * 4 * 16 * 64 / (1e9 * 0.5))


@pytest.mark.parametrize(("zero", "shards"), [(0, 1), (1, 2), (3, 2)])
def test_the_optimiser_moves_the_weights_of_a_rank(zero: int, shards: int) -> None:
    job = make_job(
        dp=2, gpus_per_server=1, batch=2, model=MODEL, zero_stage=zero, memory_bytes_per_s=1e9
    )  # fmt: skip
    weights = 4 * (4 * 64**2 + 2 * 64 * 128) + 64 * 100
    assert compute_s(job)[-1] == pytest.approx(weights * 30 / shards / 1e9)
    step = job.step()
    found = step.duration_s[: step.rank_start[1]]
    update = int(np.flatnonzero(found)[-1])
    before = step.dep[step.dep_start[update] : step.dep_start[update + 1]]
    assert (dimensions(step)[before] == 0).any()
    assert (step.kind[update + 1 : step.rank_start[1]] == COMPUTE).sum() == 0


def test_gradients_are_exchanged_in_buckets() -> None:
    layer = 2 * (4 * 64**2 + 2 * 64 * 128)
    words = 2 * 64 * 100
    job = make_job(dp=2, gpus_per_server=1, batch=2, model=MODEL)
    assert gradients(job) == [words, layer, layer, layer, layer]
    assert gradients(change_job(job, bucket_bytes=layer + 1)) == [words, 2 * layer, 2 * layer]
    assert gradients(change_job(job, bucket_bytes=3 * layer)) == [words, 3 * layer, layer]
    assert gradients(change_job(job, bucket_bytes=1e9)) == [words, 4 * layer]


def test_one_stream_communicates_one_thing_at_a_time() -> None:
    job = small_job(2, 2, 2, one_stream=True, sequence_parallel=True, port_bytes_per_s=1e7)
    step = job.step()
    found = om.solve(job, "on-demand", seed=0).answer
    at = np.flatnonzero((step.rank == 1) & (step.kind != COMPUTE) & (step.kind <= SEND))
    starts, ends = found.start_s[at], found.end_s[at]
    assert (starts[1:] >= ends[:-1] - 1e-12).all()
    assert job.lower_bound() > change_job(job, one_stream=False).lower_bound()


@pytest.mark.parametrize("factor", [0.1, 0.5, 0.9])
def test_calibration_fits_one_factor(factor: float) -> None:
    """A job finds its own efficiency again, and nothing else changes."""
    job = small_job(2, 2, 2, efficiency=factor, port_bytes_per_s=1e7, memory_bytes_per_s=1e8)
    found = calibrate(change_job(job, efficiency=1.0), job.lower_bound())
    assert found.workload.efficiency == pytest.approx(factor)
    assert replace(found.workload, efficiency=factor) == job.workload


@pytest.mark.parametrize(
    ("job", "step_s", "message"),
    [
        (small_job(), 1e-9, "with all of the peak a step takes"),
        (small_job(), -1.0, "step_s"),
        (make_job(gpus_per_server=1, recorded=message_step()), 1.0, "times of its own"),
    ],
)
def test_what_cannot_be_fitted_is_told(job: om.RailJob, step_s: float, message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        calibrate(job, step_s)


def test_accelerators_have_sources() -> None:
    for name, each in ACCELERATORS.items():
        assert each.source
        figures: dict[str, Any] = dict(describe_accelerator(name))
        assert om.Workload(model=MODEL, **figures).efficiency == each.efficiency
    with pytest.raises(om.InputError, match="'V100': one of A100, H100"):
        describe_accelerator("V100")


def test_options_of_the_command_line(tmp_path: Any) -> None:
    """An accelerator tells what is not given, and the measured step fits the efficiency."""
    target = tmp_path / "job.json"
    sizes = "--layers 4 --hidden 64 --heads 4 --sequence 32 --vocabulary 100 --ffn 128"
    line = f"generate rail-job --gpus 2 --gpus-per-server 1 --dp 2 --batch 2 {sizes}"
    line += " --accelerator H100 --peak-flops 1e9 --measured-step 0.1"
    call(*line.split(), "-o", target)
    job = load(target)
    assert isinstance(job, om.RailJob)
    assert (job.workload.peak_flops_per_s, job.workload.memory_bytes_per_s) == (1e9, 3.35e12)
    assert job.lower_bound() == pytest.approx(0.1)


def test_copies_are_summed_beside_other_collectives_in_a_stream_of_their_own() -> None:
    """Of FSDP2 an all-reduce of copies holds up no gathering of weights; of FSDP1 it does."""
    options = {"zero_stage": 3, "shard": 4, "gpus_per_server": 1, "port_bytes_per_s": 1e6}
    shared = small_job(8, 1, 1, **options)
    apart = small_job(8, 1, 1, fsdp="fsdp2", **options)
    assert {g.stream for g in shared.groups()} == {""}
    named = {g.name.partition(".")[0]: g.stream for g in apart.groups()}
    assert named == {"dp": "", "copies": "copies"}

    # The other operations of the step are the same; only the order in streams differs.
    assert np.array_equal(shared.step().dep, apart.step().dep)
    assert apart.lower_bound() < shared.lower_bound()
    assert om.verify(apart, om.solve(apart, seed=0)).valid
