"""Controllers kept in files: acknowledged changes are there, broken files are refused."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.io.text import canonical, digest
from optmatch.model import InfeasibleError
from optmatch.solvers.reroutes.states import hold_matching
from tests.control.reroutes.test_rerouter import mesh_state, rack_state
from tests.helpers.killed import act, describe
from tests.helpers.modes import compiled_only, examples


def begun(folder: Path, state: om.Reroute, steps: int, **more: Any) -> tuple[Path, str]:
    """Run a controller for some steps; return its file and its last record."""
    path = folder / "controller.json"
    controller = om.Rerouter.open(path, state, **more)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        act(controller, rng)
    controller.close()
    return path, describe(controller)


def reopened(path: Path) -> str:
    """Return the record of a controller when it is opened again."""
    controller = om.Rerouter.open(path)
    controller.close()
    return describe(controller)


def journal_of(path: Path) -> Path:
    """Return the journal of a snapshot."""
    (journal,) = path.parent.glob(f"{path.name}.*.journal")
    return journal


@pytest.mark.parametrize("durable", ["always", "interval"])
@pytest.mark.parametrize("compact_lines", [1, 7, 1000])
def test_a_restart_knows_each_change(tmp_path: Path, durable: Any, compact_lines: int) -> None:
    more: dict[str, Any] = {"durable": durable, "compact_lines": compact_lines}
    path, known = begun(tmp_path, rack_state(), 30, **more)
    assert reopened(path) == known
    assert len(journal_of(path).read_bytes().splitlines()) < compact_lines


def test_cells_and_refusals_come_back(tmp_path: Path) -> None:
    path = tmp_path / "controller.json"
    controller = om.Rerouter.open(path, mesh_state())
    controller.apply(controller.fail(port=4))
    controller.apply(controller.fail(cell=40))
    with pytest.raises(InfeasibleError):
        controller.fail(port=[0, 1, 2, 3])
    controller.close()
    again = om.Rerouter.open(path)
    for name in ("state", "stand_ins", "refused", "history"):
        assert getattr(again, name) == getattr(controller, name)
    again.close()


def test_a_second_controller_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "controller.json"
    with pytest.raises(om.InputError, match="is not there: a state to begin with"):
        om.Rerouter.open(path)
    first = om.Rerouter.open(path, mesh_state())
    code = f"import optmatch as om; om.Rerouter.open({str(path)!r})"
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "is in use by process" in second.stderr
    with pytest.raises(om.InputError, match="is in use by process"):
        om.Rerouter.open(path)
    first.close()
    om.Rerouter.open(path).close()


def flip(content: bytes, rng: np.random.Generator) -> bytes:
    """Change one byte."""
    at = int(rng.integers(len(content)))
    other = (content[at] + int(rng.integers(1, 256))) % 256
    return content[:at] + bytes([other]) + content[at + 1 :]


def cut(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut off the end, or take something out of the midst."""
    first, last = sorted(rng.integers(0, len(content) + 1, 2).tolist())
    return content[:first] if rng.random() < 0.5 else content[:first] + content[last:]


def double(content: bytes, rng: np.random.Generator) -> bytes:
    """Let a line stand there twice."""
    lines = content.splitlines(keepends=True)
    at = int(rng.integers(len(lines)))
    return b"".join([*lines[: at + 1], *lines[at:]])


@pytest.mark.parametrize("damage", [flip, cut, double])
def test_a_broken_journal_is_never_read_as_another(
    damage: Callable[..., bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, _ = begun(tmp_path, rack_state(), 12)
    journal, rng = journal_of(path), np.random.default_rng(0)
    content = journal.read_bytes()
    lines = content.splitlines(keepends=True)
    prefixes = [b"".join(lines[:k]) for k in range(len(lines) + 1)]
    known = []
    for prefix in prefixes:
        journal.write_bytes(prefix)
        known.append(reopened(path))
    assert len(set(known)) > len(known) // 2
    for _ in range(examples(60, plain=6)):
        broken = damage(content, rng)
        journal.write_bytes(broken)
        caplog.clear()
        try:
            found = reopened(path)
        except om.FormatError as exc:
            assert exc.path.startswith(f"{journal}:")
            continue
        kept = journal.read_bytes()
        assert kept in prefixes and broken.startswith(kept)
        assert found == known[prefixes.index(kept)]
        warned = any("incomplete line" in record.message for record in caplog.records)
        assert warned == (broken != kept)


def test_a_complete_last_line_that_is_wrong_is_refused(tmp_path: Path) -> None:
    path, _ = begun(tmp_path, rack_state(), 6)
    journal = journal_of(path)
    content = journal.read_bytes()
    for broken in (content[:-2] + b" \n", content[:-1] + b"x"):
        journal.write_bytes(broken)
        with pytest.raises(om.FormatError, match=rf"{journal}:{content.count(10)}: "):
            om.Rerouter.open(path)
    journal.unlink()
    with pytest.raises(om.FormatError, match="journal of this snapshot is missing"):
        om.Rerouter.open(path)


def small_state() -> om.Reroute:
    return hold_matching(om.HexMesh(2, 2, ports=4), [1, 0, -1, -1], seed=0)


def saved_with(folder: Path, fields: dict[str, Any]) -> Path:
    """Save a small controller, put other fields into the file, and mend its digest."""
    path = folder / "controller.json"
    om.Rerouter(small_state()).save(path)
    tree = json.loads(path.read_bytes()) | fields
    del tree["sha256"]
    path.write_text(json.dumps({**tree, "sha256": digest(canonical(tree))}))
    return path


def test_a_removed_option_that_is_null_is_read(tmp_path: Path) -> None:
    path = saved_with(tmp_path, {"prepare": None})
    assert om.Rerouter.load(path).state == small_state()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("homes", [[99999, 0]], "homes: unit 99999: units are 0 .. 3"),
        ("homes", [[2, 0], [3, 0]], "homes: unit 0 stands there twice"),
        ("refused", [{"failed_ports": [99999]}], "port = 99999: ports are 0 .. 3"),
        ("refused", [{"failed": [1]}], "unknown key 'failed'"),
        ("more", 1, "unknown key 'more'"),
        ("prepare", True, "/prepare: True: is gone"),
    ],
)
def test_what_a_file_says_is_checked(key: str, value: Any, message: str, tmp_path: Path) -> None:
    path = saved_with(tmp_path, {key: value})
    with pytest.raises(om.FormatError if key == "more" else om.InputError, match=message):
        om.Rerouter.load(path)
    om.Rerouter(small_state()).save(path)
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "homes": [[3, 0]]}))
    with pytest.raises(om.FormatError, match="/sha256: does not fit the content"):
        om.Rerouter.load(path)


def test_a_save_costs_what_changed(tmp_path: Path) -> None:
    controller, path = om.Rerouter(rack_state()), tmp_path / "a.json"
    controller.save(path)
    size = path.stat().st_size
    for _ in range(16):
        controller.apply(controller.fail(chip=0))
        controller.apply(controller.fail(chip=20))
        controller.repair(chip=[0, 20])
    assert len(controller.history) == 32
    controller.save(path)
    assert path.stat().st_size < 3 * size
    assert describe(om.Rerouter.load(path)) == describe(controller)


@compiled_only
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_nothing_is_lost_by_a_kill(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.killed", str(examples(3, plain=1))],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout == "nothing is lost\n", done.stderr
