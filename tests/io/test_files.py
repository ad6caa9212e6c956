"""Files are whole or not at all: arrays beside them, replaced by force only, failing writes."""

import json
import os
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import optmatch as om
from optmatch.io import loads
from optmatch.model.files import replace_file
from optmatch.problems import RoutingProof
from tests.helpers.command import DATA, ideal_solution


def large_solution() -> om.Solution:
    """Return a solution whose cell states take more than a megabyte of JSON."""
    mesh = om.HexMesh(9, 9, ports=4)
    rng = np.random.default_rng(1)
    slots = 2200
    return om.Solution(
        problem=om.AllToAll(mesh),
        schedule=om.Schedule(
            matchings=np.full((slots, 4), -1),
            durations_s=np.ones(slots),
            cell_states=rng.integers(-1, 2, (slots, mesh.n_cells), dtype=np.int8),
        ),
        status=om.Status.FEASIBLE,
        limit=om.Limit.TIME,
        objective=1e6,
        method="hand",
        certificate=(
            None,
            RoutingProof.of_prices(np.zeros(mesh.graph.links.count, dtype=np.int64)),
        ),
    )


def test_large_arrays_lie_beside_the_file(tmp_path: Path) -> None:
    om.save(large_solution(), tmp_path / "big.schedule.json")
    text, arrays = sorted(tmp_path.iterdir(), key=lambda path: path.suffix)
    assert text.stat().st_size < 10_000
    assert re.fullmatch(r"big\.schedule\.[0-9a-f]{8}\.npz", arrays.name)
    tree = json.loads(text.read_text())
    assert tree["schedule"]["cell_states"] == {"npz": "schedule.cell_states"}
    assert tree["certificate"][1]["circuit"] == [-1]
    assert om.load(text) == large_solution()


def test_arrays_that_changed_are_refused(tmp_path: Path) -> None:
    om.save(large_solution(), tmp_path / "big.json")
    (arrays,) = tmp_path.glob("*.npz")
    text = (tmp_path / "big.json").read_bytes()
    with pytest.raises(om.FormatError, match="lies beside a file, not beside a stream"):
        loads(text)
    content = bytearray(arrays.read_bytes())
    content[len(content) // 2] ^= 1
    arrays.write_bytes(content)
    with pytest.raises(om.FormatError, match=f"/arrays/sha256: .*{arrays.name} has") as caught:
        om.load(tmp_path / "big.json")
    assert caught.value.path == str(tmp_path / "big.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no archive", "is no file of arrays"),
        ({"other": np.zeros(3)}, "has no such array"),
        ({"schedule.cell_states": np.array([["a"]])}, "its entries are no numbers"),
        ({"schedule.cell_states": np.array([None])}, "type object in it"),
        (
            {"digest": np.zeros(3), "schedule.cell_states": np.zeros(3)},
            r"sha256 = array\(\[0., 0., 0.\]\), but the problem in this",
        ),
    ],
    ids=["garbage", "absent", "strings", "objects", "digest"],
)
def test_arrays_of_the_right_digest_are_still_checked(
    tmp_path: Path, content: Any, message: str
) -> None:
    import hashlib
    import io

    tree = json.loads((DATA / "broken" / "arrays-absent.json").read_text())
    if isinstance(content, dict):
        if "digest" in content:
            tree["problem_sha256"] = {"npz": "digest"}
        buffer = io.BytesIO()
        np.savez(buffer, **content)
        content = buffer.getvalue()
    (tmp_path / "a.npz").write_bytes(content)
    tree["arrays"] = {"file": "a.npz", "sha256": hashlib.sha256(content).hexdigest()}
    (tmp_path / "a.json").write_text(json.dumps(tree))
    with pytest.raises(om.InputError, match=message):
        om.load(tmp_path / "a.json")


def test_replacing_takes_the_old_arrays_away(tmp_path: Path) -> None:
    om.save(large_solution(), tmp_path / "a.json")
    (tmp_path / "a.other.npz").write_bytes(b"mine")
    om.save(ideal_solution(), tmp_path / "a.json", force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.other.npz"]
    assert om.load(tmp_path / "a.json") == ideal_solution()


def test_targets_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    with pytest.raises(om.InputError, match="is a folder"):
        om.save(ideal_solution(), tmp_path, force=True)
    with pytest.raises(om.InputError, match=r"the folder .*/no is not there"):
        om.save(ideal_solution(), tmp_path / "no" / "a.json")


@pytest.mark.parametrize("broken_call", ["fsync", "replace text", "replace arrays"])
def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken_call: str
) -> None:
    path = tmp_path / "a.json"
    om.save(large_solution(), path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    real_replace = Path.replace

    def fail(*_: Any) -> NoReturn:
        raise OSError(28, "No space left on device")

    def fail_for(self: Path, target: Path) -> Path:
        if target.suffix == (".json" if broken_call == "replace text" else ".npz"):
            fail()
        return real_replace(self, target)

    if broken_call == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail_for)
    schedule = large_solution().schedule
    assert schedule is not None
    other = replace(large_solution(), schedule=replace(schedule, durations_s=np.full(2200, 2.0)))
    with pytest.raises(OSError, match=rf"No space left on device: '{tmp_path}.*(json|npz)'"):
        om.save(other, path, force=True)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert om.load(path) == large_solution()


def test_two_that_write_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for least in ("MOST_BYTES", "_SMALL"):
        monkeypatch.setattr(f"optmatch.io.files.{least}", 1)
    path, old = tmp_path / "a.json", ideal_solution()
    om.save(old, path)
    assert len(list(tmp_path.glob("*.npz"))) == 1
    went_on, sleep = threading.Event(), time.sleep

    def wait(seconds: float) -> None:
        went_on.set()
        sleep(seconds)

    def save() -> None:
        om.save(old, path, force=True)
        went_on.set()

    other = threading.Thread(target=save)

    def write(target: Path, content: bytes) -> None:
        replace_file(target, content)
        if target == path and not other.ident:
            other.start()
            went_on.wait()

    monkeypatch.setattr("optmatch.io.files.replace_file", write)
    monkeypatch.setattr("optmatch.model.files.time.sleep", wait)
    om.save(om.load(DATA / "answers" / "demand.schedule.json"), path, force=True)
    other.join()
    assert om.load(path) == old
    assert len(list(tmp_path.iterdir())) == 2


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "file.json")
    om.save(ideal_solution(), tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert om.load(tmp_path / "file.json") == ideal_solution()
