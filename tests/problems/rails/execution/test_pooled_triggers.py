"""Triggers of plans whose data change rail inside servers: each rail waits for whole servers."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.io.exports import exported
from optmatch.io.rails.triggers import read_triggers
from optmatch.problems.rails.execution.derivation import derive_triggers
from optmatch.problems.rails.execution.orders import check_triggers, link_triggers, retime
from optmatch.simulation.rails.replay import simulate_jitter
from optmatch.solvers.rails.pooling import plan_pooled
from tests.helpers.modes import examples
from tests.helpers.pooled_rails import Oracle
from tests.helpers.rails import small_job
from tests.solvers.rails.test_chords import draw_job, expert_job


def pooled_plan(job: om.RailJob, most: int = 60) -> Any:
    """Return a plan that pools rails, None if none is found."""
    plans = list(plan_pooled(job, np.inf, np.random.default_rng(0), most))
    return plans[-1].spelled_out(job.step()) if plans else None


def job_with_changes() -> tuple[om.RailJob, Any]:
    """Return a drawn job whose pooled plan changes circuits between communications."""
    for number in range(100):
        job = draw_job(random.Random(f"chords {number}"))
        plan = pooled_plan(job) if job.network.change_rail_s is not None else None
        if plan is not None and any(rail.n_reconfigurations for rail in plan.rails):
            try:
                derive_triggers(job, plan)
            except om.InputError:
                continue
            return job, plan
    raise AssertionError("no drawn plan changes circuits")


def test_the_order_of_a_pooled_plan_is_a_plan() -> None:
    n_pooled = n_changing = 0
    for number in range(examples(40, plain=12)):
        job = draw_job(random.Random(f"chords {number}"))
        plan = pooled_plan(job) if job.network.change_rail_s is not None else None
        if plan is None:
            continue
        try:
            triggers = derive_triggers(job, plan)
        except om.InputError as exc:
            assert "changes circuits on its way, and its data change rail" in str(exc)
            continue
        n_pooled += 1
        n_changing += any(len(rail.place) for rail in triggers.rails)
        again = retime(job, check_triggers(job, triggers), triggers)
        assert again.pooled and om.verify(job, again).valid, number
        assert not Oracle(job, again).check(), number
        assert again.step_s <= plan.step_s * (1 + 1e-9), number
    assert n_pooled > 3 and n_changing > 0


def test_a_change_waits_for_all_gpus_of_its_server() -> None:
    job, plan = job_with_changes()
    n_rails = job.network.gpus_per_server
    for rail in derive_triggers(job, plan).rails:
        for after in rail.split(rail.after):
            servers = after[:, 0] // n_rails
            counts = {server: len(set(after[servers == server, 0])) for server in set(servers)}
            assert set(counts.values()) <= {n_rails}


def test_the_file_of_a_pooled_plan_is_read_back(tmp_path: Path) -> None:
    job = expert_job(pp=2, gpus_per_server=4, change_rail_s=1e-6, delay_s=1.0)
    solution = om.solve(job, seed=0, limits=om.Limits(iterations=200))
    assert solution.answer.pooled
    text = str(exported(solution, "triggers"))
    assert json.loads(text)["pooled"] is True
    file = tmp_path / "triggers.json"
    file.write_text(text)
    assert read_triggers(file, job) == derive_triggers(job, solution.answer)


def test_steps_of_a_pooled_plan_last_longer_under_jitter() -> None:
    job, plan = job_with_changes()
    calm = simulate_jitter(job, plan, 0.0, runs=1)
    assert calm[0] == pytest.approx(plan.step_s, rel=1e-9)
    assert simulate_jitter(job, plan, 0.3, runs=20).mean() > calm[0] * (1 - 1e-9)


def test_plans_that_cannot_pool_are_refused() -> None:
    job = expert_job(pp=2, gpus_per_server=4, change_rail_s=1e-6, delay_s=1.0)
    triggers = derive_triggers(job, pooled_plan(job, 200))
    alone = replace(job, network=replace(job.network, change_rail_s=None))
    with pytest.raises(om.InputError, match="pooled: data change rail in jobs of a model with"):
        link_triggers(alone, triggers)
    pause = np.array([[0, 0, 1, 1]], np.int32)
    paused = replace(triggers, pauses=pause, shares=np.array([0.5]))
    with pytest.raises(om.InputError, match="pauses: a communication over several rails"):
        link_triggers(job, paused)
    own = derive_triggers(small_job(), om.solve(small_job(), "provisioned", seed=0).answer)
    with pytest.raises(om.InputError, match="pooled: data change rail"):
        link_triggers(small_job(), replace(own, pooled=True))
