"""The store: what is written stays, and what is broken is named."""

import functools
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.commands.shared.outcome import CHECK_FAILED
from optmatch.sweeps.store import Row, Store, StoreError
from optmatch.sweeps.sweep import run_task, sweep
from tests.helpers.command import call, put
from tests.helpers.files import largest_file

PROBLEM = om.Routing(om.IdealSwitch(4), np.array([1, 0, 3, 2], np.int32))
TASKS = [om.Task(PROBLEM, seed=seed, name="four") for seed in range(3)]
LEVELS = om.Task(om.load("instances/reroute/rack-64-chip.json"), "greedy")  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store with three rows."""
    found = tmp_path / "rows.sqlite"
    with Store(found) as store:
        for task in TASKS:
            store.add(run_task(task), PROBLEM)
    return found


def change(path: Path, statement: str) -> None:
    """Change a store behind its back."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


def test_rows_come_back_as_they_went(path: Path) -> None:
    rows = [run_task(task) for task in (*TASKS, LEVELS)]
    assert isinstance(rows[-1].objective, tuple)
    with Store(path) as store:
        store.add(rows[-1], LEVELS.problem)
    with Store(path, read_only=True) as store:
        found = list(store.rows(answers=True))
        for row, before in zip(found, rows, strict=True):
            names = ("key", "method", "seed", "status", "objective", "lower_bound", "gap", "proof")
            assert all(getattr(row, name) == getattr(before, name) for name in names)
            problem = store.problem(row.problem_sha256)
            assert om.verify(problem, row.solution(problem)).valid


@pytest.mark.parametrize("before", range(4))
def test_another_makes_the_store_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    left = [before]

    class Late(sqlite3.Connection):
        def execute(self, *words: Any) -> sqlite3.Cursor:
            if not self.in_transaction:
                left[0] -= 1
                if left[0] == -1:
                    Store(tmp_path / "a").close()
            return super().execute(*words)

    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Late))
    with Store(tmp_path / "a") as store:
        assert not list(store.rows())
    assert left[0] < 0


def test_a_row_that_is_done_is_never_replaced(path: Path) -> None:
    with Store(path) as store:
        (first, *_) = store.rows()
        store.add(Row(**{**first.figures(), "status": "failed"}), PROBLEM)
        assert store.row(first.key).status == "optimal"
        store.discard(first.key)
        store.add(Row(**{**first.figures(), "status": "failed"}), PROBLEM)
        assert not store.has(first.key)
        store.add(run_task(TASKS[0]), PROBLEM)
        assert store.has(first.key)


@pytest.mark.parametrize("part", ["objective = 1", "answer = x'00'", "seal = NULL", "seed = 'x'"])
def test_a_changed_row_is_damaged_and_the_rest_intact(path: Path, part: str) -> None:
    key = TASKS[1].key()
    change(path, f"UPDATE results SET {part} WHERE key = '{key}'")
    with Store(path, read_only=True) as store:
        status = {row.key: row.status for row in store.rows(answers=True)}
    assert status.pop(key) == "damaged"
    assert list(status.values()) == ["optimal", "optimal"]


def test_a_task_whose_answer_is_damaged_is_run_again(path: Path) -> None:
    key = TASKS[1].key()
    change(path, f"UPDATE results SET answer = x'00' WHERE key = '{key}'")
    found = {row.key: row.status for row in sweep(TASKS, store=path, n_workers=0)}
    assert found[key] == "optimal"
    with Store(path, read_only=True) as store:
        assert {row.status for row in store.rows(answers=True)} == {"optimal"}


def test_a_broken_page_costs_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.sqlite"
    with Store(path) as store:
        row = run_task(TASKS[0])
        for seed in range(60):
            task = om.Task(PROBLEM, seed=seed)
            given = {**row.figures(), "key": task.key(), "seed": seed}
            store.add(Row(**given, answer=row.answer), PROBLEM)
    with closing(sqlite3.connect(path)) as db:
        leaf = (
            "SELECT pageno FROM dbstat WHERE name='results' AND pagetype='leaf' LIMIT 1 OFFSET 2"
        )
        try:
            (page,) = db.execute(leaf).fetchone()
        except sqlite3.OperationalError:
            page = 8  # this SQLite does not tell where tables lie
    with path.open("r+b") as file:
        file.seek(4096 * (page - 1))
        file.write(b"\xff" * 4096)
    with Store(path, read_only=True) as store:
        found = [row.status for row in store.rows()]
    assert len(found) == 60
    assert 0 < found.count("damaged") < 20


def test_other_files_are_refused_and_not_changed(path: Path, tmp_path: Path) -> None:
    change(path, "PRAGMA user_version = 2")
    other = tmp_path / "other.sqlite"
    change(other, "CREATE TABLE things (x)")
    text = put(tmp_path, "text.sqlite", "no database at all, but long enough" * 9)
    for file, why in ((path, "version 2"), (other, "no store"), (text, "no store of a sweep")):
        before = file.read_bytes()
        for read_only in (True, False):
            with pytest.raises(StoreError, match=why):
                Store(file, read_only=read_only)
        assert file.read_bytes() == before
    with pytest.raises(StoreError, match="no such store"):
        Store(tmp_path / "none", read_only=True)
    with pytest.raises(StoreError, match="unable to open"):
        Store(tmp_path / "none" / "a.sqlite")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(StoreError, match="no regular file"):
        Store(pipe, read_only=True)


def test_a_store_that_is_only_read_refuses_rows(path: Path) -> None:
    with Store(path, read_only=True) as store, pytest.raises(StoreError, match="readonly"):
        store.add(run_task(om.Task(PROBLEM, seed=9)), PROBLEM)


def test_a_full_disk_ends_the_sweep_and_keeps_the_rows(path: Path) -> None:
    tasks = [om.Task(PROBLEM, seed=seed) for seed in range(40)]
    with ThreadPoolExecutor(1) as executor:
        with (
            largest_file(path.stat().st_size + 8_000),
            pytest.raises(StoreError, match=r"rows\.sqlite: (disk|database or disk)"),
        ):
            list(om.sweep(tasks, executor, store=path))
        with Store(path, read_only=True) as store:
            kept = [row.status for row in store.rows()]
        assert 3 <= len(kept) < 40 and set(kept) == {"optimal"}
        assert len(list(om.sweep(tasks, executor, store=path))) == 40


@pytest.mark.parametrize("cell", ["NULL", "x'ff00'", "7", "2.5"])
@pytest.mark.parametrize("place", ["results.key", "results.name", "problems.content"])
def test_cells_that_are_no_text_are_damage(place: str, cell: str, path: Path) -> None:
    if (place, cell) == ("problems.content", "NULL"):
        return  # SQLite itself refuses it
    table, column = place.split(".")
    change(path, f"UPDATE {table} SET {column} = {cell} WHERE rowid = 1")
    for words in (["report"], ["report", "--json"], ["verify", "--all"]):
        assert call(words[0], path, *words[1:], code=None).exit_code in (0, CHECK_FAILED), words
    call("verify", path, "--all", "--discard", code=None)
    with Store(path, read_only=True) as store:
        assert len(list(store.rows())) == (2 if table == "results" else 0)


def test_reading_leaves_no_files(path: Path) -> None:
    before = path.read_bytes()
    call("report", str(path))
    call("verify", str(path), "--all")
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before
