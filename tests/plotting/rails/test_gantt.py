"""Charts of steps on rails: a bar for each operation and each reconfiguration that is seen."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import optmatch as om
from optmatch.plotting import plot_rails, rail_gantt_data, save_picture
from optmatch.plotting.rails import KINDS, MOST_RANKS
from optmatch.problems import RailJob, TransformerModel
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.simulation.rails.replay import simulate_rails
from tests.helpers.plans import rails
from tests.helpers.rails import change_job, make_job

MODEL = TransformerModel(layers=4, hidden=1024, heads=8, sequence=128, vocabulary=1000, ffn=4096)
JOB = make_job(gpus_per_server=2, dp=2, tp=2, pp=2, model=MODEL, batch=8, delay_s=0.5)


def plan() -> tuple[RailJob, RailPlan]:
    """Return a job of four GPUs and its plan."""
    solution = rails()
    assert isinstance(solution.problem, RailJob)
    assert isinstance(solution.answer, RailPlan)
    return solution.problem, solution.answer


def test_bars_of_a_plan() -> None:
    """Each rank computes, reduces twice, and is switched twice; what lasts no time has no bar."""
    job, found = plan()
    data = rail_gantt_data(job, found)
    assert data.ranks.tolist() == [0, 1, 2, 3]
    for row in range(4):
        ours = data.row == row
        bars = sorted(zip(data.start_s[ours], data.end_s[ours], data.kind[ours], strict=True))
        assert [(KINDS[kind], start, end) for start, end, kind in bars] == [
            ("computation", 0.0, 1.0),
            ("dp", 1.0, 2.0),
            ("reconfiguration", 2.0, 2.5),
            ("cp", 2.5, 4.5),
            ("reconfiguration", 4.5, 5.0),
        ]
    without = rail_gantt_data(job, replace(found, end_s=found.start_s))
    assert {KINDS[kind] for kind in without.kind} == {"reconfiguration"}


def test_bars_of_a_simulation() -> None:
    run = simulate_rails(JOB, "on-demand")
    data = rail_gantt_data(JOB, run, ranks=[5, 0])
    switched = data.kind == KINDS.index("reconfiguration")
    counts = run.switches_per_rank(JOB)
    assert [int((data.row[switched] == k).sum()) for k in (0, 1)] == counts[[5, 0]].tolist()
    np.testing.assert_allclose((data.end_s - data.start_s)[switched], 0.5)
    assert data.step_s == run.step_s
    never = rail_gantt_data(JOB, simulate_rails(JOB, "all-links"))
    assert not (never.kind == KINDS.index("reconfiguration")).any()


def test_large_jobs_show_their_first_ranks() -> None:
    job = change_job(JOB, dp=32, batch=32)
    data = rail_gantt_data(job, simulate_rails(job, "provisioned"))
    assert len(data.ranks) == MOST_RANKS
    positions = {group.rail for group in job.groups() if set(group.ranks) & set(data.ranks)}
    assert positions <= {-1, 0}


def test_the_drawing(tmp_path: Path) -> None:
    job, found = plan()
    ax = plot_rails(job, found)
    assert {c.get_label() for c in ax.collections} == {
        "computation", "dp", "cp", "reconfiguration"
    }  # fmt: skip
    assert [len(c.get_paths()) for c in ax.collections] == [4, 4, 4, 8]
    assert plot_rails(job, found, ax=ax) is ax
    path = save_picture(rails(), tmp_path / "step.svg")
    assert "</svg>" in path.read_text()


def test_what_does_not_fit() -> None:
    job, found = plan()
    with pytest.raises(om.InputError, match="12 operations in time, but the job has"):
        rail_gantt_data(JOB, found)
    with pytest.raises(om.InputError, match=r"rank 4: ranks are 0 .. 3"):
        rail_gantt_data(job, found, ranks=[4])
    with pytest.raises(om.InputError, match="rail-job is not one schedule: it has no slots"):
        save_picture(rails(), "step.png", slot=0)
