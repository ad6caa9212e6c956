"""Time limits of jobs of 512 and 1,024 GPUs, whose step alone takes half a second to derive."""

from collections.abc import Callable
from functools import partial

import pytest

import optmatch as om
from optmatch.problems.rails.presets import make_job
from tests.helpers.modes import nightly_only


def all_stop_job() -> om.RailJob:
    """Make a job of 512 GPUs on all-stop rails, of which rings that forward are twice as fast."""
    model = om.TransformerModel(
        layers=16, hidden=2048, heads=16, sequence=2048, vocabulary=32000, ffn=8192,
        experts=8, active_experts=2,
    )  # fmt: skip
    return om.RailJob(
        parallelism=om.Parallelism(dp=16, tp=8, pp=4, ep=2, zero_stage=1),
        network=om.RailNetwork(gpus_per_server=8, delay_s=0.005, switching="all-stop"),
        workload=om.Workload(model=model, batch=256, micro_batch=1),
    )


JOBS: dict[str, Callable[[], om.RailJob]] = {
    "512 GPUs": all_stop_job,
    "Mixtral": partial(make_job, "mixtral-8x22b", 1024),
    "DeepSeek": partial(make_job, "deepseek-v3", 1024),
}


@nightly_only
@pytest.mark.usefixtures("limits_in_cpu_time")
@pytest.mark.parametrize(
    ("name", "limit_s", "late_s"),
    [
        ("512 GPUs", 0.1, 0.5),
        ("512 GPUs", 1.0, 0.3),
        ("Mixtral", 1.0, 1.0),
        ("Mixtral", 4.0, 0.5),
        ("DeepSeek", 1.0, 3.0),
        ("DeepSeek", 4.0, 0.5),
    ],
)
def test_large_jobs_have_a_plan_in_time(name: str, limit_s: float, late_s: float) -> None:
    """Within the limit, or soon after it where a first plan takes longer."""
    solution = om.solve(JOBS[name](), seed=0, time_limit_s=limit_s)
    assert solution.status is om.Status.FEASIBLE
    assert solution.limit is om.Limit.TIME
    assert solution.time_s < limit_s + late_s


@nightly_only
@pytest.mark.usefixtures("limits_in_cpu_time")
def test_rings_that_forward_are_ready_within_a_second() -> None:
    """Straight plans of this job take 1.1 s and more, its first ring 0.55 s."""
    solution = om.solve(all_stop_job(), seed=0, time_limit_s=1.0)
    assert solution.objective is not None
    assert solution.objective < 0.6
