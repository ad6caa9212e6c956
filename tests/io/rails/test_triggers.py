"""Trigger files: read back as written, refused by place where they are wrong, and their schema."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import optmatch as om
from optmatch.io.exports import export, exported
from optmatch.io.rails.triggers import read_triggers
from optmatch.io.schemas import make_schema
from optmatch.io.text import digest
from optmatch.problems.rails.execution.derivation import derive_triggers
from tests.helpers.command import call, put
from tests.helpers.rails import MODEL, small_job


@cache
def solved() -> om.Solution:
    """Solve a small job."""
    return om.solve(small_job(delay_s=1e-4, model=MODEL), method="provisioned", seed=0)


@cache
def text() -> str:
    """Return its trigger file."""
    return str(exported(solved(), "triggers"))


def test_a_file_is_read_back(tmp_path: Path) -> None:
    plan, file = tmp_path / "plan.json", tmp_path / "triggers.json"
    om.save(solved(), plan)
    call("export", plan, "--to", "triggers", "-o", file)
    job: Any = solved().problem
    found = read_triggers(file, job)
    assert found == derive_triggers(job, solved().answer)
    assert file.read_text() == text()
    Draft202012Validator(make_schema("triggers")).validate(json.loads(text()))


@pytest.mark.parametrize(
    ("place", "value", "complaint", "by_schema"),
    [
        (["format"], "optmatch/triggers/9", "/format: format = ", True),
        (["problem_sha256"], "0" * 64, "/problem_sha256: problem_sha256 = ", False),
        (["rails", 0, "rail"], -1, "/rails/0/rail: rail = -1: must be >= 0", True),
        (["rails", 0, "needs", 0, 0], 77, "/rails/0/needs: lacks", False),
        (["rails", 1, "after"], [], "/rails/1/after: lacks", False),
        (["rails", 1, "after"], [[1]], "after has 1 columns, not 6", True),
        (["rails", 1, "wanted"], [[0, 0, 1, 99]], "/rails/1/wanted/0: wanted[0]: trigger", False),
        (["rails", 0, "fallback"], [0], "fallback has 1 entries, there are 4 ports", False),
        (["place", 3], "first", "/place/3: 'first': a number is expected", True),
        (["place", 3], 2**30, "not that of the other ranks", False),
        (["timeout_s"], 0, "/timeout_s: timeout_s = 0: must be > 0", True),
        (["pauses"], [[0, 0, 1, 1]], "shares has 0 entries, there are 1 pauses", False),
        (["colour"], "red", "/colour: unknown key 'colour'", True),
    ],
)
def test_what_is_wrong_is_refused(
    tmp_path: Path, place: list[Any], value: Any, complaint: str, by_schema: bool
) -> None:
    tree = json.loads(text())
    inner = tree
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    file = put(tmp_path, "wrong.json", json.dumps(tree))
    job: Any = solved().problem
    with pytest.raises(om.InputError) as caught:
        read_triggers(file, job)
    assert str(file) in str(caught.value) and complaint in str(caught.value)
    assert Draft202012Validator(make_schema("triggers")).is_valid(tree) != by_schema


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Write a trigger file whose arrays are taken as large; return it and that of its arrays."""
    for name in ("MOST_BYTES", "_SMALL"):
        monkeypatch.setattr(f"optmatch.io.files.{name}", 0)
    file, arrays = map(Path, export(solved(), "triggers", tmp_path / "triggers.json"))
    return file, arrays


def test_large_arrays_lie_beside_the_file(beside: tuple[Path, Path]) -> None:
    (file, arrays), job = beside, solved().problem
    assert isinstance(job, om.RailJob)
    tree = json.loads(file.read_text())
    Draft202012Validator(make_schema("triggers")).validate(tree)
    assert tree["place"] == {"npz": "place"}
    assert tree["rails"][1]["needs"] == {"npz": "rails.1.needs"}
    assert read_triggers(file, job) == derive_triggers(job, solved().answer)
    export(solved(), "triggers", file, force=True)
    assert sorted(file.parent.iterdir()) == sorted([file, arrays])
    arrays.write_bytes(arrays.read_bytes() + b"0")
    with pytest.raises(om.FormatError, match=f"json: /arrays/sha256: .*{arrays.name} has another"):
        read_triggers(file, job)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("place", None, "/place: npz = 'place': the file of arrays has no such array"),
        ("place", np.array(["first"]), "/place: npz = 'place': its entries are no numbers"),
        ("place", np.array([-1]), r"/place/0: place\[0\] = -1: must be >= 0"),
        ("lasts_s", np.array([np.nan]), r"/lasts_s/0: lasts_s\[0\] = nan: not a finite number"),
        ("lasts_s", np.zeros(3), "lasts_s has 3 entries, there are"),
        (
            "rails.0.needs",
            np.array([[0.5] * 6]),
            r"/rails/0/needs/0/0: .* = 0\.5: not a whole number of 32 bits",
        ),
        ("rails.1.needs", np.zeros((1, 5)), "needs has 5 columns, not 6"),
        ("rails.0.needs", np.zeros((0, 6)), r"/rails/0/needs: lacks \[0,"),
        ("place", np.zeros(10**5), r"/arrays/file: \d{6} entries: at most 50000 \(OPTM"),
    ],
)
def test_wrong_arrays_are_refused(
    beside: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: Any,
    complaint: str,
) -> None:
    (file, arrays), job = beside, solved().problem
    with np.load(arrays) as loaded:
        changed = {**loaded, name: value}
    np.savez(arrays, **{key: given for key, given in changed.items() if given is not None})
    tree = json.loads(file.read_text())
    tree["arrays"]["sha256"] = digest(arrays.read_bytes())
    file.write_text(json.dumps(tree))
    monkeypatch.setenv("OPTMATCH_MAX_ENTRIES", "50000")
    with pytest.raises(om.InputError, match=f"^{file}: .*{complaint}"):
        read_triggers(file, job)  # type: ignore[arg-type]


def test_a_schedule_without_rails_has_no_triggers() -> None:
    other = om.solve(om.Routing(om.IdealSwitch(2), np.array([1, 0], np.int32)), seed=0)
    with pytest.raises(om.InputError, match="for rail-job"):
        exported(other, "triggers")
