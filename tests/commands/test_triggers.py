"""`optmatch simulate --triggers`: the replay of an order of events, in time."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import optmatch as om
from optmatch.io.exports import export
from tests.helpers.command import call, refused
from tests.helpers.rails import MODEL, small_job

KINDS: dict[str, dict[str, Any]] = {
    "one-port": {},
    "two-ports": {"ports_per_gpu": 2},
    "all-stop": {"switching": "all-stop"},
    "cells": {"fabric": om.Benes(4)},
    "rounds": {"dp": 4, "pp": 1, "collectives": {"dp": "halving"}},
}


def write_files(folder: Path, kind: str) -> tuple[Path, Path, om.Solution]:
    """Write a job, and the triggers of a plan of it; return both files and the plan."""
    job = small_job(delay_s=1e-3, model=MODEL, **KINDS[kind])
    solution = om.solve(job, method="provisioned", seed=0)
    om.save(job, folder / "job.json")
    export(solution, "triggers", folder / "triggers.json")
    return folder / "job.json", folder / "triggers.json", solution


def test_uneven_computations_make_steps_longer(tmp_path: Path) -> None:
    job, triggers, solution = write_files(tmp_path, "one-port")
    words = ["simulate", str(job), "--triggers", str(triggers), "--jitter", "0.1"]
    done = call(*words, "--runs", "20", "--seed", "7", "--json")
    (figures,) = [json.loads(done.stdout)["policies"]["plan"]]
    assert figures["planned_s"] == pytest.approx(solution.answer.step_s, rel=1e-9)
    assert figures["most_s"] > figures["planned_s"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--triggers", "nowhere.json"], "nowhere.json: cannot be read"),
        (["--triggers", "TRIGGERS", "--delay", "1"], "take the job as it is"),
        (["--triggers", "TRIGGERS", "--policy", "static"], "and a plan with its order"),
        (["--jitter", "-1"], "jitter = -1: must be >= 0"),
        (["--jitter", "0.1", "--runs", "0"], "runs = 0: must be >= 1"),
    ],
)
def test_bad_options_are_refused(words: list[str], complaint: str, tmp_path: Path) -> None:
    job, triggers, _ = write_files(tmp_path, "one-port")
    words = [str(triggers) if word == "TRIGGERS" else word for word in words]
    refused(complaint, "simulate", job, *words)


def test_a_policy_has_no_part_in_the_steps_of_a_plan(tmp_path: Path) -> None:
    solution = write_files(tmp_path, "one-port")[2]
    om.save(solution, tmp_path / "plan.json")
    words = ["--jitter", "0.1", "--policy", "static"]
    refused("and a plan with its order", "simulate", tmp_path / "plan.json", *words)


def test_triggers_that_do_not_serve_the_job_are_refused(tmp_path: Path) -> None:
    """Their order is consistent, but operations do not last as long as their bytes need."""
    job, triggers, _ = write_files(tmp_path, "one-port")
    tree = json.loads(triggers.read_text())
    tree["lasts_s"] = [2 * seconds for seconds in tree["lasts_s"]]
    triggers.write_text(json.dumps(tree))
    refused("no valid plan follows from its order", "simulate", job, "--triggers", triggers)


def test_a_job_without_rails_is_replayed_too(tmp_path: Path) -> None:
    job = small_job(dp=1, pp=1, model=MODEL)
    solution = om.solve(job, method="provisioned", seed=0)
    om.save(replace(solution, stats={}), tmp_path / "plan.json")
    export(solution, "triggers", tmp_path / "triggers.json")
    words = [str(tmp_path / "plan.json"), "--triggers", str(tmp_path / "triggers.json"), "--json"]
    done = call("simulate", *words)
    assert json.loads(done.stdout)["step_s"] == pytest.approx(job.lower_bound())
