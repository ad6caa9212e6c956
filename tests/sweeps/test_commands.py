"""The commands of sweeps: specs, stores, reports, tables."""

import csv
import io
import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import optmatch as om
from optmatch.commands.shared.progress import Progress
from optmatch.commands.sweep import generated
from optmatch.model import InputError, Tick
from optmatch.sweeps.reports import make_report
from optmatch.sweeps.store import Row, Store
from optmatch.sweeps.sweep import read_spec
from tests.helpers.answers import problem_named
from tests.helpers.command import call, put

SPEC = """
problems = ["*.json"]
seeds = 2

[methods]
routing = ["default", "ilp"]
demand = ["solstice"]

[limits]
time_s = 20.0

[[generate]]
command = "demand --model all-to-all --bytes {n} --size 3 --fabric ideal-switch --delay {delay}"
name = "all-to-all-{n}"
n = [1, 2]
delay = [0.5]
"""

SMALL = """
[[generate]]
command = "all-to-all --fabric ideal-switch --size 3"
"""
ONES = [1] * 1001


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a spec and the store that it gave."""
    found = tmp_path_factory.mktemp("sweep")
    (found / "spec.toml").write_text(SPEC)
    om.save(problem_named("routing"), found / "mesh.json")
    done = call("sweep", found / "spec.toml", "-j", 1, "-q")
    assert "8 of 8 tasks" in done.stdout
    return found


def rows_of(folder: Path) -> list[Row]:
    """Return the rows of the store."""
    with Store(folder / "spec.sqlite", read_only=True) as store:
        return list(store.rows())


def test_a_spec_is_problems_by_methods_by_seeds(folder: Path) -> None:
    tasks = read_spec(folder / "spec.toml", generated)
    found = {(task.name, task.method, task.seed) for task in tasks}
    assert len(found) == len(tasks) == 8
    assert {name for name, _, _ in found} == {"mesh", "all-to-all-1", "all-to-all-2"}
    assert {method for name, method, _ in found if name == "mesh"} == {"negotiated", "ilp"}
    assert {task.limits for task in tasks} == {om.Limits(time_s=20.0)}
    assert {row.key for row in rows_of(folder)} == {task.key() for task in tasks}


@pytest.mark.parametrize("name", ["d[6].json", "run[a-b]/d.json", "a?b.json", "*.json", "[.json"])
def test_a_file_may_have_the_marks_of_a_pattern_in_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    for path in (tmp_path / name, tmp_path / "another.json"):
        om.save(om.Demand.from_matrix([[0, 1], [1, 0]], delay_s=0.1, rate_bytes_per_s=1), path)
    spec = put(tmp_path, "spec.toml", f'problems = ["{name}"]\nseeds = 1\n')
    assert [task.name for task in read_spec(spec, generated)] == [name.removesuffix(".json")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("problem = []", "problem: no such name; perhaps 'problems'"),
        ("problems = 3", "problems = 3: a list is expected"),
        ('problems = ["none-*.json"]', r"problems\[0\]: 'none-\*.json': no such file"),
        ("seeds = 3", "no tasks"),
        ("seeds = true", "seeds = True: a whole number or a list is expected"),
        ("seeds = [0, 1.5]", r"seeds\[1\] = 1.5: not a whole number"),
        ("[limits]\ntime = 3", "limits/time: unknown key 'time': known are"),
        ("[limits]\ntime_s = -3", "time_s = -3"),
        ("[[generate]]\nsize = [1]", r"generate\[0\]: a table with a command"),
        ('[[generate]]\ncommand = "demand"\nsize = [1]', r"generate\[0\].size: a list, for"),
        ('[[generate]]\ncommand = "demand {size}"', "{size} has no list"),
        ('[[generate]]\ncommand = "demand"', "'demand': --delay"),
        ('[[generate]]\ncommand = "{n:>9999999}{n}"\nn = [1]', "has no list"),
        ('[[generate]]\ncommand = "{a.b}"', "{a.b} has no list"),
        (f'[[generate]]\ncommand = "{{a}}{{b}}"\na = {ONES}\nb = {ONES}', "1002001 tasks: at"),
        (
            '[[generate]]\ncommand = "device --fabric benes --size 4 -o a.csv"',
            "'device .*makes no problem",
        ),
        ("seeds = 9223372036854775808\n" + SMALL, "seeds: far too many tasks: at most"),
        ("= 3", "not TOML"),
        ("a = " + "[" * 5000, "not TOML"),
        ("a = " + "9" * 5000, "not TOML"),
        ('problems = [""]', r"problems\[0\]: ''"),
        ('problems = ["."]', r"problems\[0\]: '\.'"),
        (f'problems = ["{"x" * 300}"]', r"problems\[0\]: 'xxx.*: a pattern"),
        ('problems = ["/*"]', r"problems\[0\]: '/\*'"),
        ("seeds = 1000000001\n" + SMALL, "seeds: 1000000001 tasks: at most"),
        (SMALL + '[methods]\nall-to-all = "ilp"', "methods/all-to-all: 'ilp': a list"),
    ],
)
def test_a_wrong_spec_names_the_place(tmp_path: Path, text: str, why: str) -> None:
    path = put(tmp_path, "spec.toml", text)
    with pytest.raises(InputError, match=why) as caught:
        read_spec(path, generated)
    assert str(path) in str(caught.value)
    assert path.read_text() == text


def test_commands_of_a_sweep_write_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that names a file gives the same problem as without it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.toml").write_text(SMALL)
    words = "demand --model all-to-all --bytes 3 --size 600 --fabric ideal-switch --delay 1"
    for command in ("all-to-all --fabric ideal-switch --size 3", words):
        for file in ("spec.toml", "../other.toml"):
            assert generated(f"{command} -o {file} --force") == generated(command)
    assert [path.name for path in tmp_path.iterdir()] == ["spec.toml"]
    assert (tmp_path / "spec.toml").read_text() == SMALL


def test_a_second_run_runs_nothing(folder: Path) -> None:
    before = (folder / "spec.sqlite").read_bytes()
    done = call("sweep", folder / "spec.toml", "-q", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({row["key"] for row in found}) == len(found) == 8
    assert (folder / "spec.sqlite").read_bytes() == before


def test_the_report_is_of_the_rows(folder: Path) -> None:
    done = call("report", folder / "spec.sqlite", "-o", folder / "page.html")
    counted = sorted(Counter(row.status for row in rows_of(folder)).items())
    told = ", ".join(f"{count} {status}" for status, count in counted)
    assert f"8 tasks of 3 problems: {told}\n" in done.stdout
    page = (folder / "page.html").read_text()
    assert page.count("<svg") == 5 and "http" not in page.replace("http://www.w3.org", "")
    content = json.loads(call("report", folder / "spec.sqlite", "--json").stdout)
    (row,) = content["kinds"]["demand"]["methods"]
    assert (row["method"], row["tasks"], row["best"], row["rank"]) == ("solstice", 4, 4, 1.0)
    call("report", folder / "spec.sqlite", "-o", folder / "rows.csv")
    table = list(csv.DictReader(io.StringIO((folder / "rows.csv").read_text())))
    kept = {row.key: row.objective for row in rows_of(folder)}
    assert {row["key"]: float(row["objective"]) for row in table} == kept
    call("report", folder / "spec.sqlite", "-o", "x.txt", code=2)
    call("report", folder / "none.sqlite", code=1)


def test_rows_as_parquet(folder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    call("report", folder / "spec.sqlite", "-o", folder / "a.parquet")
    found = parquet.read_table(folder / "a.parquet").to_pylist()
    kept = {row.key: row.objective for row in rows_of(folder)}
    assert {row["key"]: row["objective"] for row in found} == kept


def test_all_answers_of_a_store_are_verified(folder: Path, tmp_path: Path) -> None:
    done = call("verify", folder / "spec.sqlite", "--all")
    assert "ok: 8 ok" in done.stdout, done.output
    copy = put(tmp_path, "spec.sqlite", (folder / "spec.sqlite").read_bytes())
    with closing(sqlite3.connect(copy)) as db, db:
        db.execute("UPDATE results SET objective = 1 WHERE rowid = 3")
    done = call("verify", copy, "--all", "--json", code=5)
    content = json.loads(done.stdout)
    assert (content["ok"], content["damaged"]) == (7, 1)
    assert content["wrong"][0]["key"] in {row.key for row in rows_of(folder)}
    assert content["without_proof"] == []
    told = call("verify", copy, "--all", code=5).stdout.splitlines()
    assert told[1].split(": ")[0].strip() == content["wrong"][0]["key"][:12]
    call("verify", copy, "--all", "--discard", code=5)
    call("verify", copy, "--all")
    call("verify", copy, "--discard", code=2)


def test_unproved_answers_of_a_store_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words and as JSON: which task it is, by which method, and what is unproved."""
    store = folder / "spec.sqlite"
    unproved = next(iter(rows_of(folder)))

    def check(row: Row, problem: Any) -> tuple[str, str]:
        if row.key == unproved.key:
            return "unproved", "a bound without a certificate"
        return "ok", ""

    monkeypatch.setattr("optmatch.sweeps.sweep._check_row", check)
    told = call("verify", store, "--all", code=6).stdout
    name = f"{unproved.key[:12]} {unproved.name}, {unproved.method}"
    assert f"  {name}: a bound without a certificate\n" in told
    content = json.loads(call("verify", store, "--all", "--json", code=6).stdout)
    assert content["unproved"] == 1 and not content["wrong"]
    assert [row["key"] for row in content["without_proof"]] == [unproved.key]


def row(method: str, problem: str, objective: Any, **rest: Any) -> Row:
    """Return a row of a report."""
    given: dict[str, Any] = {
        "name": "",
        "kind": "demand",
        "seed": 0,
        "options": "{}",
        "version": "1",
    }
    given |= {"key": f"{method}{problem}", "status": "feasible", "time_s": 1.0} | rest
    return Row(method=method, problem_sha256=problem, objective=objective, **given)


def test_ranks_gaps_and_profiles_by_hand() -> None:
    rows = [
        *(row("a", "p", 10.0), row("b", "p", 10.0, time_s=3.0)),
        *(row("a", "q", 8.0, gap=0.25), row("b", "q", 10.0, gap=0.4)),
        *(row("a", "r", None, status="failed"), row("b", "r", 5.0)),
        *(row("a", "s", (0, 4, 9), kind="reroute"), row("b", "s", (0, 3, 12), kind="reroute")),
    ]
    demand, reroute = make_report(rows).kinds
    a, b = demand.table
    assert (a["best"], b["best"], a["failed"], a["answers"]) == (2, 2, 1, 2)
    assert (a["rank"], b["rank"]) == (1.25, pytest.approx((1.5 + 2 + 1) / 3))
    assert (a["mean_gap"], b["worst_gap"], b["mean_over_best"]) == (0.25, 0.4, (1 + 1.25 + 1) / 3)
    first, second = demand.shares()
    assert [first[f] for f in ("1", "2")] == [2 / 3, 2 / 3]
    assert [second[f] for f in ("1", "1.25")] == [2 / 3, 1.0]
    assert [ratio <= 2 for ratio in demand.time["b"]] == [True, False, False]
    assert [(r["method"], r["best"], r["rank"]) for r in reroute.table] == [
        ("a", 0, 2.0),
        ("b", 1, 1.0),
    ]


def test_progress_tells_the_rate_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    progress = Progress("sweep", terminal=True, clock=lambda: now[0])
    progress(Tick("tasks", 100, 200))
    now[0] = 10.0
    progress(Tick("tasks", 120, 200))
    assert "tasks 120 of 200, 2/s, 40 s to go" in capsys.readouterr().err
