"""Step times under jitter: plans stay valid, whatever computations take."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.plotting import jitter_data
from optmatch.problems.rails.execution.derivation import derive_triggers
from optmatch.problems.rails.execution.orders import link, retime
from optmatch.problems.rails.training.step import COMPUTE
from optmatch.simulation.rails.replay import draw_factors, simulate_jitter
from tests.helpers.command import call
from tests.helpers.rails import MODEL, small_job

METHODS = st.sampled_from(["on-demand", "provisioned", "prefetch"])
KINDS: list[dict[str, Any]] = [
    {},
    {"ports_per_gpu": 2},
    {"switching": "all-stop"},
    {"dp": 4, "pp": 1, "collectives": {"dp": "halving"}},
]


@settings(max_examples=5, deadline=None)
@given(st.sampled_from(KINDS), METHODS, st.integers(0, 2**32), st.sampled_from([0.1, 1.0]))
def test_an_order_is_valid_with_any_times(
    kind: dict[str, Any], method: str, seed: int, jitter: float
) -> None:
    job = small_job(delay_s=1e-3, model=MODEL, **kind)
    plan = om.solve(job, method=method, seed=0).answer
    triggers, step = derive_triggers(job, plan), job.step()
    computes = job.events().part[step.kind[job.events().part] == COMPUTE]
    factor = np.ones(step.n_operations)
    factor[computes] = draw_factors(np.random.default_rng(seed), jitter, len(computes))
    other = om.RailJob(
        network=job.network,
        workload=om.Workload(recorded=replace(step, duration_s=step.duration_s * factor)),
        collectives=job.collectives,
    )
    moved = replace(triggers, lasts_s=triggers.lasts_s * factor)
    again = retime(other, link(other, moved)[1], moved)
    assert om.verify(other, again).valid
    (step_s,) = simulate_jitter(job, plan, jitter, runs=1, seed=seed)
    assert again.step_s == pytest.approx(step_s)


def test_without_jitter_a_step_takes_what_was_planned() -> None:
    job = small_job(delay_s=1e-3, model=MODEL)
    plan = om.solve(job, method="provisioned", seed=0).answer
    assert simulate_jitter(job, plan, 0.0, runs=2) == pytest.approx([plan.step_s] * 2)
    assert simulate_jitter(job, None, 0.0, runs=1) == pytest.approx([job.lower_bound()])


def test_plans_of_one_job_meet_the_same_computations() -> None:
    job = small_job(delay_s=1e-3, model=MODEL)
    links = simulate_jitter(job, None, 0.2, runs=20)
    planned = simulate_jitter(
        job, om.solve(job, method="provisioned", seed=0).answer, 0.2, runs=20
    )
    assert (planned >= links * (1 - 1e-12)).all()
    assert links.mean() > job.lower_bound()


def test_the_command_draws_what_it_prints(tmp_path: Path) -> None:
    file, picture = tmp_path / "job.json", tmp_path / "jitter.svg"
    om.save(small_job(delay_s=1e-3, model=MODEL), file)
    words = ("simulate", str(file), "--jitter", "0.1", "--runs", "3")
    done = call(*words, "--json", "-o", str(picture))
    policies = json.loads(done.stdout)["policies"]
    rows = [{"policy": name, **figures} for name, figures in policies.items()]
    panel = jitter_data(rows)
    assert panel.labels == ["on-demand", "provisioned", "prefetch", "all-links"]
    assert panel.series["mean"] == [row["mean_s"] for row in policies.values()]
    assert "provisioned" in picture.read_text()
    for more in (["-o", str(picture)], ["--policy", "static"]):
        call(*words, *more, code=2)
    call("simulate", str(file), "-o", str(picture), code=2)


def test_factors_have_mean_one() -> None:
    drawn = draw_factors(np.random.default_rng(0), 0.1, 100_000)
    assert drawn.mean() == pytest.approx(1, abs=0.002)
    assert drawn.std() == pytest.approx(0.1, abs=0.002)
