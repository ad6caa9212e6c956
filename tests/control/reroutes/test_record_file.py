"""Controllers kept in files: acknowledged changes are there, broken files are refused."""

import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.io.text import canonical, digest
from optmatch.model.databases import UnusableStoreError
from optmatch.solvers.reroutes.states import hold_matching
from tests.control.reroutes.test_rerouter import mesh_state, rack_state
from tests.helpers.command import python
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


def test_an_empty_file_needs_a_state(tmp_path: Path) -> None:
    path = tmp_path / "controller.json"
    path.touch()
    with pytest.raises(om.InputError, match="is empty: no state to begin with"):
        om.Rerouter.open(path)
    om.Rerouter.open(path, mesh_state()).close()
    om.Rerouter.open(path).close()


def test_a_second_controller_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "controller.json"
    with pytest.raises(om.InputError, match="is not there: no state to begin with"):
        om.Rerouter.open(path)
    first = om.Rerouter.open(path, mesh_state())
    code = f"import optmatch as om; om.Rerouter.open({str(path)!r})"
    assert "is in use by another process" in python("-c", code, code=1).stderr
    with pytest.raises(om.InputError, match="is in use by another process"):
        om.Rerouter.open(path)
    first.close()
    om.Rerouter.open(path).close()


def overwrite(content: bytes, rng: np.random.Generator) -> bytes:
    """Change a few bytes in a row."""
    at = int(rng.integers(len(content)))
    more = rng.integers(0, 256, int(rng.integers(1, 40))).astype(np.uint8).tobytes()
    return (content[:at] + more + content[at + len(more) :])[: len(content)]


def cut(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut off the end."""
    return content[: int(rng.integers(1, len(content)))]


def forget_page(content: bytes, rng: np.random.Generator) -> bytes:
    """Write zeros in the place of a page."""
    at = int(rng.integers(len(content) // 4096)) * 4096
    return content[:at] + bytes(4096) + content[at + 4096 :]


@pytest.mark.parametrize("damage", [overwrite, cut, forget_page])
def test_a_broken_file_is_never_read_as_another(
    damage: Callable[..., bytes], tmp_path: Path
) -> None:
    path, known = begun(tmp_path, rack_state(), 12)
    content, rng = path.read_bytes(), np.random.default_rng(0)
    n_refused = 0
    for _ in range(examples(60, plain=6)):
        path.write_bytes(damage(content, rng))
        try:
            found = reopened(path)
        except om.InputError as exc:
            assert str(exc).startswith(str(path))
            n_refused += 1
            continue
        assert found == known
    assert n_refused > 0


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM records WHERE number = (SELECT max(number) - 1 FROM records)",
        "DELETE FROM records WHERE number = 0",
        "DELETE FROM records WHERE number > 0",
        "UPDATE records SET sha256 = 'a' WHERE number = 0",
        "UPDATE records SET content = 7 WHERE number = 0",
        "UPDATE records SET content = NULL",
    ],
)
def test_rows_that_were_changed_are_refused(change: str, tmp_path: Path) -> None:
    path, _ = begun(tmp_path, rack_state(), 6)
    alter(path, change)
    for read in (om.Rerouter.open, om.Rerouter.load):
        with pytest.raises(om.FormatError) as caught:
            read(path)
        assert caught.value.path == str(path)


def test_other_files_are_refused_and_not_changed(tmp_path: Path) -> None:
    text, store, empty = (tmp_path / name for name in ("a.json", "b.sqlite", "c"))
    text.write_text("{}" * 999)
    alter(store, "CREATE TABLE things (x)")
    empty.touch()
    for path in (text, store):
        before = path.read_bytes()
        controller = om.Rerouter(small_state())
        for call in (om.Rerouter.open, om.Rerouter.load, controller.save):
            with pytest.raises(UnusableStoreError, match="no controller of optmatch"):
                call(path)
        assert path.read_bytes() == before
    with pytest.raises(UnusableStoreError, match="no controller of optmatch"):
        om.Rerouter.load(empty)
    with pytest.raises(om.FormatError, match="there is no such file"):
        om.Rerouter.load(tmp_path / "d")


def small_state() -> om.Reroute:
    return hold_matching(om.HexMesh(2, 2, ports=4), [1, 0, -1, -1], seed=0)


def alter(path: Path, statement: str, *values: Any) -> None:
    """Run a statement of SQL on a file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(statement, values)


def saved_with(path: Path, fields: dict[str, Any]) -> None:
    """Save a small controller, and put other fields with a right digest into its last row."""
    om.Rerouter(small_state()).save(path)
    with closing(sqlite3.connect(path)) as db:
        (content,) = db.execute("SELECT content FROM records WHERE number = 1").fetchone()
    tree = json.loads(content)
    state_fields = {key: value for key, value in fields.items() if key in tree["state"]}
    other_fields = {key: value for key, value in fields.items() if key not in tree["state"]}
    content = canonical(tree | {"state": tree["state"] | state_fields} | other_fields)
    change = "UPDATE records SET content = ?, sha256 = ? WHERE number = 1"
    alter(path, change, content, digest(content))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("homes", [[99999, 0]], r"homes\[0\] = 99999: units are 0 .. 3"),
        ("homes", [[2, 0], [3, 0]], r"homes\[1\] = 0: is homes\[0\] already"),
        ("refused", [{"failed_ports": [99999]}], "port = 99999: ports are 0 .. 3"),
        ("refused", [{"failed": [1]}], "unknown key 'failed'"),
        ("more", 1, "unknown key 'more'"),
    ],
)
def test_what_a_file_says_is_checked(key: str, value: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "controller"
    saved_with(path, {key: value})
    with pytest.raises(om.InputError, match=message):
        om.Rerouter.load(path)


@pytest.mark.parametrize(
    "fields",
    [
        {"circuits": [[10**18, 1]]},
        {"circuits": [[2**31, 1]]},
        {"circuits": [[0]]},
        {"circuits": [3]},
        {"circuits": 3},
        {"circuits": None},
        {"circuits": [["a", 1]]},
        {"cell_states": [10**18]},
        {"cell_states": [[0, 0]]},
        {"cell_states": None},
        {"spares": 7},
        {"spares": [[]]},
        {"spares": [10**18]},
        {"homes": [[1]]},
        {"homes": [[1, 10**18]]},
        {"homes": [1]},
        {"refused": [1]},
        {"refused": {"failed_ports": 1}},
        {"refused": [{"failed_ports": 3}]},
        {"refused": [{"failed_ports": [10**18]}]},
        {"cut_off": 3},
        {"cut_off": [[1]]},
        {"cut_off": [1]},
        {"answered": [{}]},
        {"routes": [[0, [1]]]},
        {"routes": [[0]]},
        {"failed_ports": [True]},
        {"state": 7},
        {"state": {}},
    ],
    ids=json.dumps,
)
def test_a_wrong_record_with_a_right_digest_is_refused(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "controller"
    saved_with(path, fields)
    with pytest.raises(om.InputError) as caught:
        om.Rerouter.open(path)
    assert caught.value.path == str(path)


@compiled_only
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_nothing_is_lost_by_a_kill(tmp_path: Path) -> None:
    done = python("-m", "tests.helpers.killed", str(examples(2, plain=1)))
    assert done.stdout == "nothing is lost\n", done.stderr
