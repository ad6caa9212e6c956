"""Jobs that share rails: which can, with which shares, and what they need."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems import NamedJob, RailSharing
from tests.helpers.rails import change_job, make_job, message_step, small_job

JOB = small_job(4, 2, 1, ports_per_gpu=2)


def share(*jobs: om.RailJob, **options: Any) -> RailSharing:
    """Return jobs that share rails of 16 ports."""
    named = tuple(NamedJob(f"job-{number}", job) for number, job in enumerate(jobs))
    return RailSharing(jobs=named, **{"radix": 16, **options})


@pytest.mark.parametrize(
    ("jobs", "options", "message"),
    [
        ((), {}, "jobs: there is none"),
        ((JOB, JOB), {"radix": 7}, "radix = 7 ports: rail 0 has 8 GPUs of 2 jobs"),
        (
            (JOB, JOB),
            {"radix": 3, "by": "servers"},
            "rail 0 needs 4 ports for the fewest",
        ),
        ((JOB, JOB), {"radix": 7, "by": "time"}, "job job-0 has 4 GPUs with 2 ports each on rail"),
        (
            (JOB, change_job(JOB, switching="all-stop")),
            {},
            r"job job-1: switching = 'all-stop'; .* take turns \(by = 'time'\)",
        ),
        ((change_job(JOB, fabric=om.IdealSwitch(8)),), {"by": "servers"}, "a fabric of its own"),
        ((JOB, change_job(JOB, delay_s=0.5)), {}, "delay_s = 0.5, job job-0 has 0.01"),
        ((JOB, change_job(JOB, latency_s=0.5)), {"by": "time"}, "another network than job job-0"),
    ],
)
def test_jobs_that_cannot_share_are_refused(jobs: Any, options: Any, message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        share(*jobs, **options)


def test_a_name_occurs_once() -> None:
    with pytest.raises(om.InputError, match=r"jobs\[1\]: job a is there twice"):
        RailSharing(jobs=(NamedJob("a", JOB), NamedJob("a", JOB)), radix=16)


def test_shares_are_those_that_a_job_can_run_with() -> None:
    named = NamedJob("a", JOB)
    assert share(JOB).list_shares(named) == ((1, 4), (2, 4))
    assert share(JOB, by="time").list_shares(named) == ((2, 4),)
    assert share(JOB, by="servers").list_shares(named) == ((2, 1), (2, 2), (2, 4))
    model = replace(JOB.workload.model, experts=4, layers=4)  # type: ignore[type-var]
    experts = change_job(JOB, ep=2, model=model)
    assert share(experts, by="servers").list_shares(NamedJob("a", experts)) == ((2, 2), (2, 4))
    recorded = make_job(gpus_per_server=1, recorded=message_step())
    assert share(recorded, by="servers").list_shares(NamedJob("a", recorded)) == ((1, 1),)


def test_a_radix_of_a_job_by_itself_does_not_matter() -> None:
    """The switches of the problem are those that count."""
    small = change_job(JOB, radix=8)
    assert share(small, JOB, by="time").lower_bound() == 2
    assert share(small, JOB).lower_bound() == 1


def test_steps_of_no_time_are_stretched_by_no_turns() -> None:
    """The stretch of no time over no time is 1; one job that needs time makes turns count."""
    job = make_job(gpus_per_server=1, recorded=message_step())
    step = job.workload.recorded
    assert step is not None
    zeros = np.zeros(step.n_operations)
    idle = change_job(
        job, recorded=replace(step, size_bytes=zeros, duration_s=zeros), latency_s=0.0
    )
    assert idle.lower_bound() == 0
    problem = share(idle, idle, by="time")
    assert problem.lower_bound() == 1
    solution = om.solve(problem, "static", seed=0)
    assert solution.status is om.Status.OPTIMAL and solution.objective == 1
    assert om.verify(problem, solution).valid
    busy = change_job(job, latency_s=0.0)
    assert share(idle, busy, by="time").lower_bound() == 2


def test_files_keep_it() -> None:
    problem = share(JOB, small_job(2, 2, 2), by="servers", handover_s=0.5)
    from optmatch.io import dumps, loads

    assert loads(dumps(problem)) == problem
