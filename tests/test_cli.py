"""The command line: exit codes in real processes, the rest in this one."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

import optmatch as om
from optmatch.cli import main
from optmatch.commands.generate import draw_matching
from optmatch.commands.interrupt import at_events
from optmatch.commands.progress import Progress
from optmatch.model import Bound, Event, NewBest, Tick, ignore

DATA = Path(__file__).parent / "data"
INSTANCES = DATA.parent.parent / "instances"
GOOD, BROKEN = DATA / "good", DATA / "broken"
PROBLEM = GOOD / "dead-pair.problem.json"
IDEAL = GOOD / "ideal.schedule.json"
ROUTED = GOOD / "routed.schedule.json"
DEAD = GOOD / "dead-pair.schedule.json"

BAD_INPUT = [  # what the file is, and what the message must name: place, rule and value
    ("fabric-type", "/fabric/type: type = 'octagon-mesh': unknown; known are hex-mesh"),
    ("negative-size", "/fabric/rows: rows = -4: must be >= 1"),
    ("port-out-of-range", "/fabric/ports/2: ports[2] = 36: perimeter terminals are 0 .. 35"),
    ("duplicate-port", "/fabric/ports/3: ports[3] = 5: this terminal is already ports[1]"),
    ("unknown-key", "/slots_s: unknown key 'slots_s': known are format, kind, fabric, slot_s"),
    ("version", "/format: format = 'optmatch/problem/2': this version reads optmatch/problem/1"),
    ("truncated", ":4:54: Expecting ',' delimiter: not JSON"),
    ("nan", "/slot_s: NaN: a number is finite"),
    ("digest", "/problem_sha256: problem_sha256 = '4dd4dae0"),
]


def call(*args: str | Path, **extra: Any) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, [str(arg) for arg in args], **extra)


def process(*args: str | Path, **extra: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "optmatch", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **extra)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder with their content."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def ideal_solution(**changes: Any) -> om.Solution:
    """Return a solution of an all-to-all problem on an ideal switch, or what else is asked for."""
    solution = om.load(IDEAL)
    assert isinstance(solution, om.Solution)
    return replace(solution, **changes)


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

        monkeypatch.setattr(sys.modules["optmatch.solve"], "solve", solve)
        return calls

    return give


# --- starting


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_no_solver(option: str) -> None:
    """They must answer at once."""
    code = (
        "import sys\n"
        "from optmatch.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as stop:\n"
        "    heavy = {'numba', 'scipy', 'ortools', 'matplotlib', 'networkx'} & set(sys.modules)\n"
        "    print(stop.code, heavy, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, option], capture_output=True, text=True)
    assert done.stderr == "0 set()\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no rusage of children there")
def test_help_is_fast() -> None:
    """At most three times the work of importing NumPy, whatever the machine does meanwhile."""
    import resource

    def spent(*arguments: str) -> float:
        """Return seconds of the processor; NumPy's threads idle away some of their own."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, *arguments]
        quiet = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        subprocess.run(command, capture_output=True, check=True, env=quiet)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    times = [(spent("-m", "optmatch", "--help"), spent("-c", "import numpy")) for _ in range(5)]
    ours, numpys = (min(column) for column in zip(*times, strict=True))
    assert ours < 3 * numpys


def test_functions_stay_functions() -> None:
    """Importing the modules of that name does not put them in their place."""
    code = (
        "import optmatch.solve, optmatch.verify, optmatch as om;"
        "print(callable(om.solve), callable(om.verify))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True True\n", done.stderr


def test_help_lists_commands_and_exit_codes() -> None:
    """Both are what scripts rely on."""
    text = call("--help").output
    for word in ("generate", "solve", "verify", "plot", "methods", "info", "130  interrupted"):
        assert word in text
    assert "[default: hex-mesh]" in call("generate", "all-to-all", "--help").output


def test_method_names_complete() -> None:
    """In the shell, from the registry alone."""
    completion = ShellComplete(main, {}, "optmatch", "_OPTMATCH_COMPLETE")
    found = completion.get_completions(["solve", "--method"], "ne")
    assert [item.value for item in found] == ["negotiated"]


# --- generate


def test_generate_writes_a_file_and_never_over_another(tmp_path: Path) -> None:
    """Unless told so."""
    path = tmp_path / "mesh.json"
    command = ("generate", "all-to-all", "--rows", "4", "--cols", "4", "--ports", "8", "-o", path)
    done = call(*command)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"optmatch: {path}: written\n")
    assert om.load(path) == om.AllToAll(om.HexMesh(4, 4, ports=8))
    again = call(*command)
    assert again.exit_code == 2
    assert again.stderr == f"optmatch: {path}: is there already; only force replaces it\n"
    assert call(*command, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("options", "fabric"),
    [
        ("--rows 3 --cols 2 --ports 0,4,9", om.HexMesh(3, 2, ports=[0, 4, 9])),
        ("--rows 3 --cols 2 --ports 0,", om.HexMesh(3, 2, ports=[0])),
        ("--rows 3 --cols 2 --tx 0,5 --rx 7,2", om.HexMesh(3, 2, tx=[0, 5], rx=[7, 2])),
        ("--fabric smartlight --ports 12", om.SmartLightMesh(ports=12)),
        ("--fabric square-mesh --rows 2 --cols 2", om.SquareMesh(2, 2)),
        ("--fabric triangular-mesh --rows 2 --cols 2", om.TriangularMesh(2, 2)),
        ("--fabric ideal-switch --size 5", om.IdealSwitch(5)),
    ],
)
def test_generate_knows_every_fabric(options: str, fabric: om.Fabric) -> None:
    """Without -o the problem goes to stdout."""
    from optmatch.io import loads

    done = call("generate", "all-to-all", *options.split(), "--slot", "0.5", "--delay", "0.01")
    assert done.exit_code == 0, done.output
    assert loads(done.stdout) == om.AllToAll(fabric, slot_s=0.5, delay_s=0.01)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("all-to-all --fabric smartlight --rows 2", "--rows: no option of smartlight"),
        ("all-to-all --rows 2", "--cols: needed for hex-mesh"),
        ("all-to-all --fabric octagon", "'octagon' is not one of 'hex-mesh'"),
        ("all-to-all --rows -2 --cols 2", "rows = -2: must be >= 1"),
        ("all-to-all --rows 2 --cols 2 --ports 0,20", "ports[1] = 20: perimeter terminals are"),
        ("all-to-all --rows 2 --cols 2 --ports 3,3", "ports[1] = 3: this terminal is already"),
        ("all-to-all --rows 2 --cols 2 --ports a,b", "'a,b': whole numbers, separated by commas"),
        ("all-to-all --rows 2 --cols 2 --delay nan", "delay_s = nan: not finite"),
        ("routing --fabric ideal-switch --size 2", "either --matching or --random-matching"),
        ("routing --fabric ideal-switch --size 2 --matching 1", "matching has 1 entries"),
        ("routing --fabric ideal-switch --size 2 --matching 1,1", "share destination 1"),
        ("routing --rows 2 --cols 2 --ports 2 --matching 0,1", "cannot meet itself"),
    ],
)
def test_generate_refuses(command: str, message: str, tmp_path: Path) -> None:
    """By exit code 2, with the rule, and without a file."""
    done = call("generate", *command.split(), "-o", tmp_path / "a.json")
    assert done.exit_code == 2
    assert message in done.stderr
    assert snapshot(tmp_path) == {}


def test_random_matchings_repeat_and_use_every_port() -> None:
    """The same seed gives the same; an involution on bidirectional ports, one idle if odd."""
    mesh, switch = om.HexMesh(4, 4, ports=7), om.IdealSwitch(6)
    drawn = draw_matching(mesh, 3)
    assert drawn == draw_matching(mesh, 3) != draw_matching(mesh, 4)
    assert drawn.count(-1) == 1
    assert all(drawn[drawn[i]] == i != drawn[i] for i in range(7) if drawn[i] >= 0)
    for seed in range(20):
        drawn = draw_matching(switch, seed)
        assert sorted(drawn) == list(range(6)) and all(i != j for i, j in enumerate(drawn))
    assert draw_matching(om.IdealSwitch(1), 0) == [0]


# --- bad input


@pytest.mark.parametrize(("name", "message"), BAD_INPUT, ids=[name for name, _ in BAD_INPUT])
@pytest.mark.parametrize("command", ["solve", "verify", "plot"])
def test_bad_input_is_told_in_one_line(
    command: str, name: str, message: str, tmp_path: Path
) -> None:
    """Exit code 2; file, place, rule and value; nothing is written."""
    path = shutil.copy(BROKEN / f"{name}.json", tmp_path / "in.json")
    before = snapshot(tmp_path)
    output = [] if command == "verify" else ["-o", str(tmp_path / "out.html")]
    done = call(command, path, *output)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"optmatch: {path}:") and done.stderr.count("\n") == 1
    assert message in done.stderr
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["negative-size", "truncated", "digest", "nan"])
def test_bad_input_ends_a_process_with_2(name: str) -> None:
    """No traceback there either."""
    done = process("solve", BROKEN / f"{name}.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"optmatch: {BROKEN / name}.json:")
    assert done.stderr.count("\n") == 1


def test_a_directory_and_an_absent_file_are_bad_input(tmp_path: Path) -> None:
    """Named, with what the system says of them."""
    done = process("verify", tmp_path, tmp_path / "no.json")
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first == f"optmatch: {tmp_path}: cannot be read: Is a directory"
    assert second == f"optmatch: {tmp_path}/no.json: cannot be read: No such file or directory"


def test_the_other_format_is_bad_input(problem: Path) -> None:
    """A problem has nothing to verify, a schedule nothing to solve."""
    done = call("verify", problem)
    assert done.exit_code == 2 and "a problem file; a schedule file is expected" in done.stderr
    done = call("solve", IDEAL)
    assert done.exit_code == 2 and "a schedule file; a problem file is expected" in done.stderr


@pytest.mark.parametrize("args", [[], ["solve"], ["solve", "--time-limit", "-1", "x"], ["dance"]])
def test_wrong_usage_ends_a_process_with_2(args: list[str]) -> None:
    """As click has it."""
    done = process(*args)
    assert done.returncode == 2
    assert "Usage:" in done.stderr and done.stdout == ""


def test_an_unknown_method_is_bad_input(problem: Path) -> None:
    """With the names of those that fit."""
    done = process("solve", problem, "--method", "magic")
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"optmatch: {problem}: method = 'magic': unknown; for all-to-all:"
    )


# --- solve, with the solving left out


def test_solve_saves_and_reports(problem: Path, tmp_path: Path, answer: Any) -> None:
    """The options reach the method; the summary goes to stdout, the rest to stderr."""
    calls = answer(ideal_solution())
    out = tmp_path / "out.json"
    options = ("--method", "ilp", "--seed", "7", "--time-limit", "2.5")
    done = call("solve", problem, *options, "-o", out)
    assert done.exit_code == 0, done.output
    (made,) = calls
    assert made["problem"] == ideal_solution().problem
    assert (made["method"], made["seed"], made["time_limit_s"]) == ("ilp", 7, 2.5)
    assert om.load(out) == ideal_solution()
    assert done.stdout.startswith(
        f"{problem}: optimal\n  matchings    2\n  objective    0 cells\n"
    )
    assert done.stderr == f"optmatch: {out}: written\n"


def test_solve_says_that_nothing_was_saved(problem: Path, tmp_path: Path, answer: Any) -> None:
    """Unless it is to be quiet."""
    answer(ideal_solution())
    before = snapshot(tmp_path)
    done = call("solve", problem)
    assert done.stderr == f"optmatch: {problem}: nothing was saved; -o FILE keeps the schedule\n"
    assert call("solve", problem, "-q").stderr == ""
    assert snapshot(tmp_path) == before


def test_solve_gives_one_json_object_per_input(problem: Path, tmp_path: Path, answer: Any) -> None:
    """Also for an input that is refused; the highest exit code wins."""
    answer(ideal_solution(lower_bound=-math.inf, status=om.Status.FEASIBLE, limit=om.Limit.TIME))
    done = call("solve", problem, BROKEN / "nan.json", "--json")
    first, second = map(json.loads, done.stdout.splitlines())
    assert done.exit_code == 2
    assert first["format"] == "optmatch/result/1"
    assert first["file"] == str(problem)
    assert (first["status"], first["limit"]) == ("feasible", "time")
    assert (first["lower_bound"], first["objective"], first["slots"]) == ("-inf", 0.0, 2)
    assert first["gap"] == "inf" and first["saved"] is None
    assert second["format"] == "optmatch/error/1" and second["exit_code"] == 2
    assert "NaN" in second["error"]
    assert f"{problem}: the best so far at the limit: time" in done.stderr


def test_solve_reads_stdin_and_writes_stdout(problem: Path, answer: Any) -> None:
    """So that commands can be chained."""
    from optmatch.io import loads

    answer(ideal_solution())
    done = call("solve", "-", "-o", "-", input=problem.read_bytes())
    assert done.exit_code == 0, done.stderr
    assert loads(done.stdout) == ideal_solution()
    checked = call("verify", "-", input=done.stdout)
    assert (checked.exit_code, checked.stdout.splitlines()[0]) == (0, "<stdin>: ok")
    refused = call("verify", "-", input="{")
    assert refused.exit_code == 2 and refused.stderr.startswith("optmatch: <stdin>:1:2: ")


def test_several_answers_go_to_a_folder(problem: Path, tmp_path: Path, answer: Any) -> None:
    """Each under the name of its problem; the folder is made, the one around it is not."""
    answer(ideal_solution())
    other = shutil.copy(problem, tmp_path / "other.json")
    folder = tmp_path / "out"
    refused = call("solve", problem, other, "-o", other)
    assert refused.exit_code == 2 and "several FILEs need a folder" in refused.stderr
    refused = call("solve", problem, other, "-o", folder / "deep")
    assert refused.exit_code == 2 and "the folder around it is not there" in refused.stderr
    assert not folder.exists()
    assert call("solve", problem, other, "-o", folder).exit_code == 0
    assert sorted(snapshot(folder)) == ["other.schedule.json", "switch.schedule.json"]
    assert call("solve", problem, problem, "-o", folder, "--force").exit_code == 2
    (folder / "switch.json").write_bytes(problem.read_bytes())
    clash = call("solve", problem, folder / "switch.json", "-o", folder, "--force")
    assert clash.exit_code == 2 and "of one name" in clash.stderr


def test_one_answer_goes_to_one_place(problem: Path, tmp_path: Path) -> None:
    """Stdout has room for one text, and a file for one answer."""
    other = shutil.copy(problem, tmp_path / "other.json")
    for args, message in (
        ((problem, problem), "the same FILE twice"),
        ((problem, other, "-o", "-"), "only one FILE can go to stdout"),
        ((problem, "-o", "-", "--json"), "--json and -o - both write to stdout"),
    ):
        done = call("solve", *args)
        assert done.exit_code == 2 and message in done.stderr


def test_verbose_shows_the_log_and_all_figures(problem: Path, answer: Any) -> None:
    """The log goes to stderr."""
    log = logging.getLogger("optmatch")
    before = (log.level, list(log.handlers))
    answer(ideal_solution(stats={"order": [2, 0, 1]}))
    try:
        done = call("solve", problem, "-v")
        assert log.level == logging.DEBUG
        assert "order" in done.stdout and "[2, 0, 1]" in done.stdout
        assert "switch.json: 0 s, started, best 3\n" in done.stderr
        assert "[2, 0, 1]" not in call("solve", problem).stdout
    finally:
        log.setLevel(before[0])
        log.handlers[:] = before[1]


def test_no_time_is_spent_on_an_answer_that_cannot_be_saved(
    problem: Path, tmp_path: Path, answer: Any
) -> None:
    """An existing file, or no folder, is told before the method starts."""
    calls = answer(ideal_solution())
    done = call("solve", problem, "-o", problem)
    assert done.exit_code == 2 and "is there already" in done.stderr
    done = call("solve", problem, "-o", tmp_path / "no" / "out.json")
    assert done.exit_code == 2 and "no is not there" in done.stderr
    assert calls == []


def outcome(status: om.Status, limit: om.Limit | None, **changes: Any) -> om.Solution:
    """Return an outcome without a schedule."""
    return ideal_solution(schedule=None, objective=None, status=status, limit=limit, **changes)


def test_an_infeasible_problem_exits_with_3(problem: Path, tmp_path: Path, answer: Any) -> None:
    """With the reason; the proof is kept."""
    answer(
        outcome(
            om.Status.INFEASIBLE, None, lower_bound=math.inf, stats={"reason": "port 0 is cut"}
        )
    )
    done = call("solve", problem, "-o", tmp_path / "out.json")
    assert done.exit_code == 3
    assert "infeasible\n  reason  port 0 is cut\n" in done.stdout
    assert isinstance(om.load(tmp_path / "out.json"), om.Solution)


def test_a_limit_without_a_schedule_exits_with_4(
    problem: Path, tmp_path: Path, answer: Any
) -> None:
    """And nothing is written."""
    answer(outcome(om.Status.UNKNOWN, om.Limit.TIME))
    done = call("solve", problem, "-o", tmp_path / "out.json")
    assert done.exit_code == 4
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
    done = call("solve", problem, other, "-o", tmp_path / "out")
    assert done.exit_code == 130
    assert len(calls) == 1
    assert om.load(tmp_path / "out" / "switch.schedule.json") == best
    assert f"{problem}: interrupted" in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (om.VerificationError("method x: slot 3 is wrong"), 5, "method x: slot 3 is wrong"),
        (om.SolverUnavailable("pip install y"), 1, "pip install y"),
        (MemoryError(), 1, "out of memory"),
        (OSError(28, "No space left on device", "f"), 1, "f: No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=["defect", "unavailable", "memory", "disk", "interrupt"],
)
def test_errors_have_their_exit_codes(
    problem: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    """Each in one line."""

    def solve(*_: Any, **__: Any) -> om.Solution:
        raise error

    monkeypatch.setattr(sys.modules["optmatch.solve"], "solve", solve)
    done = call("solve", problem)
    assert done.exit_code == code
    assert message in done.stderr.strip().splitlines()[-1]


# --- interrupts


def test_ctrl_c_waits_for_the_next_event() -> None:
    """A method is never stopped between two assignments; a second Ctrl-C does not wait."""
    heard: list[Event] = []
    done = []
    with pytest.raises(KeyboardInterrupt), at_events(heard.append) as listen:
        listen(Tick("search", 1))
        signal.raise_signal(signal.SIGINT)
        done.append("the step that was under way")
        listen(Tick("search", 2))
        done.append("the next step")
    assert done == ["the step that was under way"]
    assert heard == [Tick("search", 1), Tick("search", 2)]
    with pytest.raises(KeyboardInterrupt), at_events(heard.append):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that reports nothing is stopped all the same."""
    monkeypatch.setattr("optmatch.commands.interrupt.PATIENCE_S", 0.05)
    with pytest.raises(KeyboardInterrupt), at_events(ignore):
        signal.raise_signal(signal.SIGINT)
        for _ in range(200):
            time.sleep(0.05)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# --- progress


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_progress_on_a_file_is_a_line_every_five_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """However many events there are."""
    clock = Clock()
    progress = Progress("mesh", clock=clock)
    progress(NewBest(120.0))
    progress(Bound(100.0))
    for tenth in range(0, 121):
        clock.now = tenth / 10
        progress(Tick("slots", tenth, 120))
    progress.close()
    assert capsys.readouterr().err.splitlines() == [
        "mesh: 5 s, slots 50 of 120, best 120, at least 100",
        "mesh: 10 s, slots 100 of 120, best 120, at least 100",
    ]


def test_progress_on_a_terminal_is_one_line_that_goes_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Written over, ten times a second at most."""
    clock = Clock()
    progress = Progress("mesh", terminal=True, clock=clock)
    for hundredth in range(0, 26):
        clock.now = hundredth / 100
        progress(Tick("search", hundredth))
    progress.close()
    text = capsys.readouterr().err
    shown = [part for part in text.split("\r") if part.strip()]
    assert shown == ["mesh: 0 s, search 10", "mesh: 0 s, search 20"]
    assert text.endswith("\r") and "\n" not in text and "\x1b" not in text


def test_verbose_progress_has_a_line_for_every_improvement(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """At once."""
    progress = Progress("mesh", verbose=True, clock=Clock())
    progress(NewBest(5.0))
    progress(Tick("search", 1))
    assert capsys.readouterr().err == "mesh: 0 s, started, best 5\n"


# --- verify, plot, methods, info


def test_verify_tells_good_from_bad(tmp_path: Path) -> None:
    """Exit code 5 in a real process; with many files the highest wins."""
    tree = json.loads(IDEAL.read_text())
    tree["schedule"]["matchings"][1] = [1, 2, 0]
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(tree))
    done = process("verify", IDEAL, bad, ROUTED)
    assert (done.returncode, done.stderr) == (5, "")
    assert f"{IDEAL}: ok\n" in done.stdout and f"{ROUTED}: ok\n" in done.stdout
    assert f"{bad}: FAILED\n" in done.stdout
    reports = [json.loads(line) for line in process("verify", bad, "--json").stdout.splitlines()]
    assert len(reports) == 1
    assert reports[0]["format"] == "optmatch/report/1" and reports[0]["ok"] is False
    assert {"rule", "where", "got", "expected"} == set(reports[0]["violations"][0])


def test_verify_prints_figures(tmp_path: Path) -> None:
    """For people and for programs."""
    assert "  total cells             28\n" in call("verify", ROUTED).stdout
    report = json.loads(call("verify", ROUTED, "--json").stdout)
    assert report["ok"] is True and report["figures"]["total_cells"] == 28


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "html"])
def test_plot_draws(ending: str, tmp_path: Path) -> None:
    """Each kind of file, never over another."""
    out = tmp_path / f"x.{ending}"
    done = call("plot", ROUTED, "-o", out)
    assert done.exit_code == 0, done.output
    assert out.stat().st_size > 1000 and done.stderr == f"optmatch: {out}: written\n"
    assert call("plot", ROUTED, "-o", out).exit_code == 2
    assert call("plot", ROUTED, "-o", out, "--force").exit_code == 0


def test_plot_refuses_what_cannot_be_drawn(tmp_path: Path) -> None:
    """A kind of file it does not know, a slot that is not there, no schedule at all."""
    assert call("plot", ROUTED, "-o", tmp_path / "x.gif").exit_code == 2
    done = call("plot", ROUTED, "-o", tmp_path / "x.svg", "--slot", "1")
    assert done.exit_code == 2 and f"{ROUTED}: --slot 1: slots are 0 .. 0" in done.stderr
    done = call("plot", DEAD, "-o", tmp_path / "x.svg")
    assert done.exit_code == 2 and "status infeasible: there is no schedule" in done.stderr
    assert snapshot(tmp_path) == {}


def test_methods_and_info_in_both_forms() -> None:
    """Text for people, one tagged object for programs."""
    assert "circle: " in call("methods").stdout
    found = json.loads(call("methods", "--json").stdout)
    assert found["format"] == "optmatch/methods/1"
    assert {"name", "exact", "deterministic", "summary", "accepts"} == set(found["methods"][0])
    assert "numba cache" in call("info").stdout
    info = json.loads(call("info", "--json").stdout)
    assert info["optmatch"] == om.__version__ and info["cpu_count"] == os.cpu_count()


def test_colour_only_where_it_is_wanted() -> None:
    """On a terminal, and not if NO_COLOR is set."""
    assert "\x1b[" in call("verify", IDEAL, color=True).stdout
    assert "\x1b[" not in call("verify", IDEAL).stdout
    assert "\x1b[" not in call("verify", IDEAL, color=True, env={"NO_COLOR": "1"}).stdout


def test_nobody_reading_on_is_no_error_message() -> None:
    """As in `optmatch info | head -1`."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "optmatch", "verify", IDEAL, ROUTED],
        stdout=write_end,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write_end)
    assert done.stderr == b""


def test_options_can_be_set_in_the_environment(problem: Path, answer: Any) -> None:
    """By the name of command and option."""
    calls = answer(ideal_solution())
    env = {"OPTMATCH_SOLVE_SEED": "11", "OPTMATCH_SOLVE_TIME_LIMIT_S": "3"}
    assert call("solve", problem, env=env).exit_code == 0
    assert (calls[0]["seed"], calls[0]["time_limit_s"]) == (11, 3.0)


# --- solve as it is


@pytest.mark.slow
def test_from_problem_to_picture(tmp_path: Path) -> None:
    """Generate, solve, verify, plot, each a process."""
    names = ("p.json", "s.json", "x.html")
    question, schedule, picture = (tmp_path / name for name in names)
    options = ("--rows", "4", "--cols", "4", "--ports", "8")
    assert process("generate", "all-to-all", *options, "-o", question).returncode == 0
    assert question.read_bytes() == (INSTANCES / "all-to-all" / "hex-4x4-8.json").read_bytes()
    solved = process("solve", question, "--seed", "1", "-o", schedule, "--json")
    assert solved.returncode == 0, solved.stderr
    result = json.loads(solved.stdout)
    assert result["slots"] == 7 and result["saved"] == str(schedule)
    checked = process("verify", schedule, "--json")
    assert checked.returncode == 0, checked.stdout
    assert json.loads(checked.stdout)["figures"]["total_cells"] == result["objective"]
    assert process("plot", schedule, "-o", picture).returncode == 0
    assert "<html" in picture.read_text()[:1000].lower()


@pytest.mark.slow
def test_a_dead_pair_exits_with_3() -> None:
    """It is named with its terminals."""
    done = process("solve", PROBLEM)
    assert done.returncode == 3, done.stderr
    assert "port 0 (t2, cell 17 b1)" in done.stdout and "port 1 (t4, cell 16 b1)" in done.stdout


@pytest.mark.slow
def test_a_short_time_limit_ends_in_good_order(tmp_path: Path) -> None:
    """No schedule, or a partial one that says so; never a traceback."""
    out = tmp_path / "out.json"
    large = INSTANCES / "all-to-all" / "hex-36x36-128.json"
    done = process("solve", large, "--time-limit", "0.1", "-o", out)
    assert "at the limit: time" in done.stderr and "Traceback" not in done.stderr
    assert (done.returncode, out.exists()) in ((4, False), (0, True))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process there")
def test_ctrl_c_saves_the_best_and_exits_with_130(tmp_path: Path) -> None:
    """Sent once a schedule has been found."""
    out = tmp_path / "out.json"
    large = str(INSTANCES / "all-to-all" / "hex-17x17-64.json")
    command = [sys.executable, "-m", "optmatch", "solve", large, "-v", "-o", str(out)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if ", best " in line:
                break
        running.send_signal(signal.SIGINT)
        _, rest = running.communicate(timeout=60)
    assert running.returncode == 130, rest
    assert f"optmatch: {large}: interrupted\n" in rest and "Traceback" not in rest
    found = om.load(out)
    assert isinstance(found, om.Solution) and found.limit is om.Limit.INTERRUPTED
    assert om.verify(found.problem, found).ok
