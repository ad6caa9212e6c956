"""`optmatch solve`: with the solving left out, and as it is."""

import json
import logging
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import optmatch as om
from optmatch.commands.shared.progress import listening
from optmatch.commands.solve import suggest_next_step
from optmatch.fabrics.meshes.mesh import spread
from optmatch.model import NewBest, uncounted
from tests.helpers.command import (
    BROKEN,
    IDEAL,
    INSTANCES,
    call,
    ideal_solution,
    process,
    refused,
    snapshot,
)


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    """Write a small problem file."""
    path = tmp_path / "switch.json"
    om.save(ideal_solution().problem, path)
    return path


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[om.Solution], list[dict[str, Any]]]:
    """Make `solve` return a given solution; the calls are recorded."""

    def give(solution: om.Solution) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def solve(problem: Any, method: str | None = None, **options: Any) -> om.Solution:
            calls.append({"problem": problem, "method": method, **options})
            options["on_event"](NewBest(3.0))
            return solution

        monkeypatch.setattr(sys.modules["optmatch.entrances"], "solve", solve)
        return calls

    return give


def without_time(found: Any) -> om.Solution:
    """Return a solution as if it had taken none, which no command does."""
    assert isinstance(found, om.Solution) and found.time_s > 0
    stats = {name: value for name, value in found.stats.items() if name != "compile_s"}
    return replace(found, time_s=0.0, stats=stats)


def test_solve_saves_and_reports(problem: Path, tmp_path: Path, answer: Any) -> None:
    """The options reach the method; the summary goes to stdout, the rest to stderr."""
    calls = answer(ideal_solution())
    out = tmp_path / "out.json"
    options = ("--method", "ilp", "--seed", "7", "--time-limit", "2.5")
    done = call("solve", problem, *options, "-o", out)
    (made,) = calls
    assert made["problem"] == ideal_solution().problem
    assert (made["method"], made["seed"], made["time_limit_s"]) == ("ilp", 7, 2.5)
    assert without_time(om.load(out)) == ideal_solution()
    assert done.stdout.startswith(
        f"{problem}: optimal\n  slots        2\n  objective    0 cells\n"
    )
    assert done.stderr == f"optmatch: {out}: written\n"


def test_time_counts_from_the_parsed_arguments(
    problem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading counts against the limit; imports and writing are told beside it."""
    now = [100.0]
    out = tmp_path / "out.json"
    call("solve", problem)  # all is imported

    def passing(seconds: float, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            now[0] += seconds
            return function(*args, **options)

        return run

    monkeypatch.setattr("optmatch.model.limits.time.perf_counter", lambda: now[0])
    for name, seconds in (("load", 5.0), ("save", 7.0)):
        monkeypatch.setattr(om.io, name, passing(seconds, getattr(om.io, name)))
    done = call("solve", problem, "--time-limit", "6", "-o", out, "--json")
    told = json.loads(done.stdout)
    assert (told["time_s"], told["status"]) == (5.0, "optimal")
    assert told["uncounted_s"]["writing"] == 7.0
    monkeypatch.setattr(om.io, "load", passing(5.0, om.io.load))
    call("solve", INSTANCES / "all-to-all" / "hex-4x4-8.json", "--time-limit", "6", code=4)
    done = call("solve", problem)
    assert ", 10 s\n" in done.stdout
    assert "\n  not counted  " in done.stdout


def test_a_problem_that_cannot_be_read_in_time(tmp_path: Path) -> None:
    """The ports of a mesh are chosen while it is read: no time for it is exit code 4."""
    path = tmp_path / "mesh.json"
    om.save(om.AllToAll(om.HexMesh(7, 5, ports=6)), path)
    spread.cache_clear()
    done = call("solve", path, "--time-limit", "0", "--json", code=4)
    assert json.loads(done.stdout)["exit_code"] == 4
    assert done.stderr == f"optmatch: {path}: no schedule at the limit: time\n"


def test_solve_says_that_nothing_was_saved(problem: Path, tmp_path: Path, answer: Any) -> None:
    answer(ideal_solution())
    before = snapshot(tmp_path)
    done = call("solve", problem)
    assert done.stderr == f"optmatch: {problem}: nothing was saved; -o FILE keeps the schedule\n"
    assert call("solve", problem, "-q").stderr == ""
    assert snapshot(tmp_path) == before


def test_solve_gives_one_json_object_per_input(problem: Path, tmp_path: Path, answer: Any) -> None:
    answer(ideal_solution(lower_bound=-math.inf, status=om.Status.FEASIBLE, limit=om.Limit.TIME))
    done = call("solve", problem, BROKEN / "nan.json", "--json", code=2)
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["format"] == "optmatch/result/1"
    assert first["file"] == str(problem)
    assert (first["status"], first["limit"]) == ("feasible", "time")
    assert (first["lower_bound"], first["objective"], first["slots"]) == ("-inf", 0.0, 2)
    assert first["gap"] == "inf" and first["saved"] is None
    assert second["format"] == "optmatch/error/1" and second["exit_code"] == 2
    assert "NaN" in second["error"]
    assert f"{problem}: the best so far at the limit: time" in done.stderr


def test_solve_reads_stdin_and_writes_stdout(problem: Path, answer: Any) -> None:
    from optmatch.io import loads

    answer(ideal_solution())
    done = call("solve", "-", "-o", "-", input=problem.read_bytes())
    assert without_time(loads(done.stdout)) == ideal_solution()
    checked = call("verify", "-", input=done.stdout)
    assert checked.stdout.splitlines()[0] == "<stdin>: ok"
    refused = call("verify", "-", input="{", code=2)
    assert refused.stderr.startswith("optmatch: <stdin>:1:2: ")


def test_several_answers_go_to_a_folder(problem: Path, tmp_path: Path, answer: Any) -> None:
    answer(ideal_solution())
    other = shutil.copy(problem, tmp_path / "other.json")
    folder = tmp_path / "out"
    refused("folder, and this is a file", "solve", problem, other, "-o", other)
    refused("the folder around it is not there", "solve", problem, other, "-o", folder / "deep")
    assert not folder.exists()
    call("solve", problem, other, "-o", folder)
    assert sorted(snapshot(folder)) == ["other.schedule.json", "switch.schedule.json"]
    call("solve", problem, problem, "-o", folder, "--force", code=2)
    (folder / "switch.json").write_bytes(problem.read_bytes())
    refused("of one name", "solve", problem, folder / "switch.json", "-o", folder, "--force")


def test_one_answer_goes_to_one_place(problem: Path, tmp_path: Path) -> None:
    """Stdout has room for one text, and a file for one answer."""
    other = shutil.copy(problem, tmp_path / "other.json")
    for args, message in (
        ((problem, problem), "the same FILE twice"),
        ((problem, other, "-o", "-"), "only one FILE can go to stdout"),
        ((problem, "-o", "-", "--json"), "--json and -o - both write to stdout"),
    ):
        refused(message, "solve", *args)


def test_verbose_shows_the_log_and_all_figures(problem: Path, answer: Any) -> None:
    log = logging.getLogger("optmatch")
    before = (log.level, list(log.handlers))
    answer(ideal_solution(stats={"order": [2, 0, 1]}))
    try:
        done = call("solve", problem, "-v")
        assert log.level == logging.DEBUG
        assert "order" in done.stdout and "[2, 0, 1]" in done.stdout
        assert "switch.json: 0 s, started, best 3 cells\n" in done.stderr
        assert "[2, 0, 1]" not in call("solve", problem).stdout
    finally:
        log.setLevel(before[0])
        log.handlers[:] = before[1]


def test_no_time_is_spent_on_an_answer_that_cannot_be_saved(
    problem: Path, tmp_path: Path, answer: Any
) -> None:
    """An existing file, or no folder, is told before the method starts."""
    calls = answer(ideal_solution())
    refused("is there already", "solve", problem, "-o", problem)
    refused("no is not there", "solve", problem, "-o", tmp_path / "no" / "out.json")
    assert calls == []


def outcome(status: om.Status, limit: om.Limit | None, **changes: Any) -> om.Solution:
    """Return an outcome without a schedule."""
    return ideal_solution(schedule=None, objective=None, status=status, limit=limit, **changes)


def test_an_infeasible_problem_exits_with_3(problem: Path, tmp_path: Path, answer: Any) -> None:
    answer(
        outcome(
            om.Status.INFEASIBLE, None, lower_bound=math.inf, stats={"reason": "port 0 is cut"}
        )
    )
    done = call("solve", problem, "-o", tmp_path / "out.json", code=3)
    assert "infeasible\n  reason       port 0 is cut\n" in done.stdout
    assert isinstance(om.load(tmp_path / "out.json"), om.Solution)


def test_a_limit_without_a_schedule_exits_with_4(
    problem: Path, tmp_path: Path, answer: Any
) -> None:
    answer(outcome(om.Status.UNKNOWN, om.Limit.TIME))
    done = call("solve", problem, "-o", tmp_path / "out.json", code=4)
    assert done.stderr == f"optmatch: {problem}: no schedule at the limit: time\n"
    assert not (tmp_path / "out.json").exists()


def test_an_interrupted_solve_keeps_its_best(problem: Path, tmp_path: Path, answer: Any) -> None:
    """Exit code 130, and the inputs that follow are left alone."""
    best = ideal_solution(
        status=om.Status.FEASIBLE, limit=om.Limit.INTERRUPTED, lower_bound=-math.inf
    )
    calls = answer(best)
    (tmp_path / "out").mkdir()
    other = shutil.copy(problem, tmp_path / "other.json")
    done = call("solve", problem, other, "-o", tmp_path / "out", code=130)
    assert len(calls) == 1
    assert without_time(om.load(tmp_path / "out" / "switch.schedule.json")) == best
    assert f"{problem}: interrupted" in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (om.VerificationError("method x: slot 3 is wrong"), 5, "method x: slot 3 is wrong"),
        (om.SolverUnavailable("pip install y"), 1, "pip install y"),
        (MemoryError(), 1, "out of memory"),
        (OSError(28, "No space left on device", "f"), 1, "f: No space left on device"),
        (OSError(28, "No space left on device"), 1, "optmatch: <stdout>: No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=["defect", "unavailable", "memory", "disk", "output", "interrupt"],
)
def test_errors_have_their_exit_codes(
    problem: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:

    def solve(*_: Any, **__: Any) -> om.Solution:
        raise error

    monkeypatch.setattr(sys.modules["optmatch.entrances"], "solve", solve)
    done = call("solve", problem, code=code)
    assert message in done.stderr.strip().splitlines()[-1]


def test_options_can_be_set_in_the_environment(problem: Path, answer: Any) -> None:
    calls = answer(ideal_solution())
    env = {"OPTMATCH_SOLVE_SEED": "11", "OPTMATCH_SOLVE_TIME_LIMIT": "3"}
    call("solve", problem, env=env)
    assert (calls[0]["seed"], calls[0]["time_limit_s"]) == (11, 3.0)


def test_the_other_format_is_bad_input(problem: Path) -> None:
    """A problem has nothing to verify, a schedule nothing to solve."""
    refused("a problem file; a schedule file is expected", "verify", problem)
    refused("a schedule file; a problem file is expected", "solve", IDEAL)


@pytest.mark.slow
def test_a_short_time_limit_ends_in_good_order(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    large = INSTANCES / "all-to-all" / "hex-17x17-64.json"
    done = process("solve", large, "--time-limit", "0.1", "-o", out)
    assert "at the limit: time" in done.stderr and "Traceback" not in done.stderr
    assert (done.returncode, out.exists()) in ((4, False), (0, True))


def test_a_closed_stdin_is_said() -> None:
    """It was an AttributeError of None."""
    words = f'"{sys.executable}" -m optmatch solve - <&-'
    done = subprocess.run(words, shell=True, capture_output=True, text=True, cwd=INSTANCES.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "optmatch: <stdin>: stdin is closed; a file was expected there\n"


@pytest.mark.parametrize(
    ("method", "time_limit_s", "took_s", "hint"),
    [
        (None, None, 0.01, "--time-limit 1 goes on"),
        (None, None, 3.0, "--time-limit 30 goes on"),
        ("best", None, 0.01, "--method ilp may prove it"),
        (None, 5.0, 0.01, "--method ilp may prove it"),
    ],
)
def test_why_a_search_stopped_and_what_goes_on(
    method: str | None, time_limit_s: float | None, took_s: float, hint: str
) -> None:
    """A search that had nothing left to try said "feasible" and no more."""
    demand = om.Demand.from_matrix([[0, 3, 1], [2, 0, 4], [5, 1, 0]], delay_s=1.0)
    exhausted = replace(
        om.solve(demand, "solstice", seed=0),
        status=om.Status.FEASIBLE,
        limit=om.Limit.EXHAUSTED,
        method="best",
        time_s=took_s,
    )
    text = suggest_next_step(exhausted, method, time_limit_s)
    assert text.startswith("the search is exhausted") and hint in text


def test_loading_that_takes_long_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with listening("mesh.json"), uncounted("importing"):
        time.sleep(1.0)
    assert capsys.readouterr().err == "loading modules, which does not count\n"
