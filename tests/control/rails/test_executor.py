"""Plans that controllers execute: whatever is late or lost, nothing is sent into the dark."""

import json
import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.cli import main
from optmatch.control.rails import executor
from optmatch.control.rails.controller import Controller
from optmatch.control.rails.executor import Execution, execute
from optmatch.control.rails.ranks import Faults, Ranks
from optmatch.model import Event, Tick
from optmatch.problems.rails.execution.derivation import derive_triggers
from optmatch.problems.rails.execution.triggers import TriggerPlan
from tests.helpers.command import process
from tests.helpers.rails import MODEL, small_job

KINDS: dict[str, dict[str, Any]] = {
    "one-port": {},
    "two-ports": {"ports_per_gpu": 2},
    "all-stop": {"switching": "all-stop"},
    "cells": {"fabric": om.Benes(4)},
    "rounds": {"dp": 4, "pp": 1, "collectives": {"dp": "halving"}},
}
QUIET = Faults(jitter=0, loss=0, late=0, twice=0, latency_s=1e-9)
PARTS = st.floats(0, 0.4)


@cache
def planned(kind: str, method: str = "provisioned", tries: int = 5) -> tuple[Any, TriggerPlan]:
    """Return a small job and the triggers of a plan."""
    job = small_job(delay_s=1e-3, model=MODEL, **KINDS[kind])
    plan = om.solve(job, method=method, seed=0).answer
    return job, derive_triggers(job, plan, timeout_s=0.01, tries=tries)


def run(kind: str, method: str = "provisioned", tries: int = 5, **options: Any) -> Execution:
    """Execute them."""
    return execute(*planned(kind, method, tries), **options)


TIMES = int(os.environ.get("OPTMATCH_EXAMPLES", "1"))


@settings(max_examples=6 * TIMES, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(["on-demand", "provisioned", "prefetch"]),
    st.builds(Faults, jitter=PARTS, loss=PARTS, late=PARTS, twice=PARTS),
    st.integers(0, 2**32),
)
def test_nothing_is_sent_into_the_dark(kind: str, method: str, faults: Faults, seed: int) -> None:
    done = run(kind, method, tries=1, steps=2, faults=faults, seed=seed)
    assert done.dark_bytes == 0 < done.sent_bytes
    assert len(done.step_s) == 2 and (done.step_s > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_without_faults_a_step_takes_what_the_plan_says(kind: str) -> None:
    job, _ = planned(kind)
    plan = om.solve(job, method="provisioned", seed=0).answer
    done = run(kind, steps=2, faults=QUIET)
    assert done.step_s[0] == pytest.approx(float(plan.end_s.max()), rel=1e-4)
    assert done.step_s[1] <= plan.step_s * 1.0001
    assert done.lost == done.fallbacks == 0 == done.dark_bytes


def test_the_fall_back_state_serves_what_triggers_do_not() -> None:
    """A rail goes there when a rank is silent, and back to the plan with a later step."""
    faults = Faults(loss=0.5)
    done = run("one-port", tries=1, steps=6, faults=faults)
    assert done.fallbacks > 0 == done.dark_bytes
    assert done.sent_bytes > run("one-port", steps=6, faults=QUIET).sent_bytes  # all of the ring
    assert run("cells", tries=1, steps=3, faults=faults).fallbacks == 0  # there is none


def test_the_observer_sees_a_controller_that_does_not_wait(monkeypatch: Any) -> None:

    def hasty(job: Any, plan: Any, rail: Any, *given: Any) -> Controller:
        once = {row[-1]: row for row in rail.after.tolist()}
        return Controller(job, plan, replace(rail, after=list(once.values())), *given)

    monkeypatch.setattr(executor, "Controller", hasty)
    assert run("two-ports", steps=2).dark_bytes > 0


@pytest.mark.parametrize("kind", ["one-port", "all-stop"])
def test_the_observer_sees_ranks_that_do_not_wait(kind: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(Ranks, "_missing", lambda *_: [])
    assert run(kind, steps=2).dark_bytes > 0


def test_the_command_prints_what_happened(tmp_path: Path) -> None:
    """The same seed gives the same figures in a process of its own."""
    job, _ = planned("one-port")
    file = tmp_path / "plan.json"
    om.save(om.solve(job, method="provisioned", seed=0), file)
    command = ["simulate", str(file), "--execute", "3", "--loss", "0.1", "--seed", "7", "--json"]
    done = process(*command)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    plan = derive_triggers(job, om.solve(job, method="provisioned", seed=0).answer)
    faults = Faults(loss=0.1, late=0.1, twice=0.1)
    expected = execute(job, plan, steps=3, faults=faults, seed=7)
    assert found["lost"] == expected.lost > 0 and found["messages"] == expected.messages
    assert found["mean_s"] == pytest.approx(float(expected.step_s.mean()), rel=1e-12)
    assert found["dark_bytes"] == 0


def test_a_job_without_rails_runs_too() -> None:
    job = small_job(dp=1, pp=1, model=MODEL)
    triggers = derive_triggers(job, om.solve(job, method="provisioned", seed=0).answer)
    done = execute(job, triggers, steps=2, faults=QUIET)
    assert done.step_s == pytest.approx([job.lower_bound()] * 2)
    assert done.messages == 0


def test_data_into_the_dark_end_with_code_5(tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "plan.json"
    om.save(om.solve(planned("one-port")[0], method="provisioned", seed=0), file)
    monkeypatch.setattr(Ranks, "_missing", lambda *_: [])
    done = CliRunner().invoke(main, ["simulate", str(file), "--execute", "2"])
    assert done.exit_code == 5 and "DATA INTO THE DARK" in done.stdout


def test_an_interrupt_ends_it() -> None:
    seen: list[Event] = []

    def stop(event: Event) -> None:
        seen.append(event)
        if event == Tick("steps", 1, 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("one-port", steps=3, on_event=stop)
    assert seen == [Tick("steps", 0, 3), Tick("steps", 1, 3)]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--execute", "0"], "steps = 0: must be >= 1"),
        (["--execute", "2", "--loss", "1.5"], "loss = 1.5: from 0 to 0.9"),
        (["--execute", "2", "--delay", "1"], "take the job as it is"),
        (["--jitter", "-1"], "jitter = -1: must be >= 0"),
        (["--jitter", "0.1", "--runs", "0"], "runs = 0: must be >= 1"),
        (["--execute", "2"], "--execute needs a plan, or --triggers"),
        (["--execute", "2", "--triggers", "nowhere.json"], "nowhere.json: cannot be read"),
    ],
)
def test_bad_options_are_refused(words: list[str], complaint: str, tmp_path: Path) -> None:
    job, _ = planned("one-port")
    file = tmp_path / "job.json"
    solved = "needs" not in complaint
    om.save(om.solve(job, method="provisioned", seed=0) if solved else job, file)
    done = CliRunner().invoke(main, ["simulate", str(file), *words])
    assert done.exit_code == 2 and complaint in done.stderr


def test_a_plan_that_does_not_serve_the_job_is_refused() -> None:
    """Its order is consistent, but operations do not last as long as their bytes need."""
    job, triggers = planned("one-port")
    swapped = replace(triggers, lasts_s=triggers.lasts_s * 2)
    with pytest.raises(om.InputError, match="no valid plan follows from its order"):
        execute(job, swapped)


def test_64_gpus_for_a_thousand_steps() -> None:
    model = om.TransformerModel(
        layers=4, hidden=1024, heads=16, sequence=512, vocabulary=1000, ffn=4096
    )
    job = small_job(
        *(4, 8, 2), delay_s=1e-3, model=model, batch=16, micro_batch=2,
        peak_flops_per_s=1e12, port_bytes_per_s=50e9,
    )  # fmt: skip
    plan = derive_triggers(job, om.solve(job, method="provisioned", seed=0).answer)
    steps = 1000 if TIMES > 1 else 10
    done = execute(job, plan, steps=steps, faults=Faults(jitter=0.1, loss=0.01))
    assert job.n_gpus == 64 and len(done.step_s) == steps and (done.step_s > 0).all()
    assert done.dark_bytes == 0 < done.lost
