"""`optmatch watch` on a rehearsal."""

import json
from pathlib import Path

import pytest

import optmatch as om
from tests.helpers.command import call, refused
from tests.switches.test_watch import ring_state


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "running.json"
    om.save(ring_state(6, 4), path)
    return path


def test_differences_are_told_or_mended(problem: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    command = ["watch", state, "--switch", "dry:", "--for", "100ms"]
    refused("--begin PROBLEM says what runs", *command)
    done = call(*command, "--begin", problem)
    assert "differs: dry: 0 circuits are there" in done.output
    done = call(*command, "--apply", "--json")
    told = [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]
    assert [event["what"] for event in told] == ["mended"]
    assert done.output.count("add ") == 4


def test_a_problem_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    om.save(om.AllToAll(om.IdealSwitch(4)), path)
    refused(
        "a Reroute is expected", "watch", tmp_path / "state", "--switch", "dry:", "--begin", path
    )
