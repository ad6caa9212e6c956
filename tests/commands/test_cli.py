"""The command line: exit codes in real processes, the rest in this one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import optmatch as om
from optmatch.cli import main
from tests.helpers.command import (
    BROKEN,
    DEAD,
    IDEAL,
    INSTANCES,
    ROUTED,
    call,
    process,
    put,
    python,
    refused,
    snapshot,
)

BAD_INPUT = [  # the kind of the file, and the words of the message: place, rule and value
    ("fabric-type", "/fabric/type: type = 'octagon-mesh': unknown; known are hex-mesh"),
    ("truncated", ":4:54: Expecting ',' delimiter: not JSON"),
]


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_no_solver(option: str) -> None:
    code = (
        "import sys\n"
        "from optmatch.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as stop:\n"
        "    heavy = {'numba', 'scipy', 'ortools', 'matplotlib', 'networkx'} & set(sys.modules)\n"
        "    print(stop.code, heavy, file=sys.stderr)\n"
    )
    assert python("-c", code, option).stderr == "0 set()\n"


def test_functions_stay_functions() -> None:
    """Importing the modules of that name does not put them in their place."""
    code = (
        "import optmatch.entrances, optmatch.verify, optmatch as om;"
        "print(callable(om.solve), callable(om.verify))"
    )
    assert python("-c", code).stdout == "True True\n"


def test_help_lists_commands_and_exit_codes() -> None:
    text = call("--help").output
    for word in ("generate", "solve", "verify", "plot", "methods", "info", "130  interrupted"):
        assert word in text
    assert "[default: hex-mesh]" in call("generate", "all-to-all", "--help").output


def test_method_names_complete() -> None:
    completion = ShellComplete(main, {}, "optmatch", "_OPTMATCH_COMPLETE")
    found = completion.get_completions(["solve", "--method"], "ne")
    assert [item.value for item in found] == ["negotiated"]


@pytest.mark.parametrize(("name", "message"), BAD_INPUT, ids=[name for name, _ in BAD_INPUT])
@pytest.mark.parametrize("command", ["solve", "verify", "plot"])
def test_bad_input_is_told_in_one_line(
    command: str, name: str, message: str, tmp_path: Path
) -> None:
    """Exit code 2; file, place, rule and value; nothing is written."""
    path = shutil.copy(BROKEN / f"{name}.json", tmp_path / "in.json")
    before = snapshot(tmp_path)
    output = [] if command == "verify" else ["-o", str(tmp_path / "out.html")]
    done = call(command, path, *output, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith(f"optmatch: {path}:") and done.stderr.count("\n") == 1
    assert message in done.stderr
    assert snapshot(tmp_path) == before


def test_a_directory_and_an_absent_file_are_bad_input(tmp_path: Path) -> None:
    done = process("verify", tmp_path, tmp_path / "no.json")
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first == f"optmatch: {tmp_path}: cannot be read: Is a directory"
    assert second == f"optmatch: {tmp_path}/no.json: cannot be read: No such file or directory"


@pytest.mark.parametrize("args", [[], ["generate"]])
def test_a_group_alone_prints_its_help(args: list[str]) -> None:
    done = call(*args)
    assert done.stderr == ""
    assert done.stdout.rstrip("\n") == call(*args, "--help").stdout.rstrip("\n")


@pytest.mark.parametrize("args", [["solve"], ["solve", "--time-limit", "-1", "x"], ["dance"]])
def test_wrong_usage_ends_with_2(args: list[str]) -> None:
    done = call(*args, code=2)
    assert "Usage:" in done.stderr and done.stdout == ""


def test_verify_tells_good_from_bad(tmp_path: Path) -> None:
    """Exit code 5 in a real process; with many files the highest wins."""
    tree = json.loads(IDEAL.read_text())
    tree["schedule"]["matchings"][1] = [1, 2, 0]
    bad = put(tmp_path, "bad.json", json.dumps(tree))
    done = process("verify", IDEAL, bad, ROUTED)
    assert (done.returncode, done.stderr) == (5, "")
    assert f"{IDEAL}: ok\n" in done.stdout and f"{ROUTED}: ok\n" in done.stdout
    assert f"{bad}: FAILED\n" in done.stdout
    report = json.loads(call("verify", bad, "--json", code=5).stdout)
    assert report["format"] == "optmatch/report/1" and report["ok"] is False
    assert {"rule", "where", "got", "expected"} == set(report["violations"][0])


def test_plot_draws(tmp_path: Path) -> None:
    out = tmp_path / "x.svg"
    done = call("plot", ROUTED, "-o", out)
    assert out.stat().st_size > 1000 and done.stderr == f"optmatch: {out}: written\n"
    call("plot", ROUTED, "-o", out, code=2)
    call("plot", ROUTED, "-o", out, "--force")


def test_plot_refuses_what_cannot_be_drawn(tmp_path: Path) -> None:
    """A kind of file it does not know, a slot that is not there, no schedule at all."""
    call("plot", ROUTED, "-o", tmp_path / "x.gif", code=2)
    refused(
        f"{ROUTED}: slot = 2: slots are 0 .. 0",
        "plot",
        ROUTED,
        "-o",
        tmp_path / "x.svg",
        "--slot",
        "2",
    )
    refused("the status is infeasible, without a schedule", "plot", DEAD, "-o", tmp_path / "x.svg")
    assert snapshot(tmp_path) == {}


def test_methods_and_info_in_both_forms() -> None:
    assert "all-to-all:\n  constructive  " in call("methods").stdout
    found = json.loads(call("methods", "--json").stdout)
    assert found["format"] == "optmatch/methods/1"
    assert {"name", "exact", "deterministic", "summary", "kind", "params"} == set(
        found["methods"][0]
    )
    assert "numba cache" in call("info").stdout
    info = json.loads(call("info", "--json").stdout)
    assert info["optmatch"] == om.__version__ and info["cpu_count"] == os.cpu_count()


def test_colour_only_where_it_is_wanted() -> None:
    assert "\x1b[" in call("verify", IDEAL, color=True).stdout
    assert "\x1b[" not in call("verify", IDEAL).stdout
    assert "\x1b[" not in call("verify", IDEAL, color=True, env={"NO_COLOR": "1"}).stdout


def test_nobody_reading_on_is_no_error_message() -> None:
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


def test_a_misspelt_command_or_method_is_answered_with_the_nearest() -> None:
    asked = call("sovle", IDEAL, code=2)
    assert "Did you mean 'solve'?" in asked.stderr
    asked = call(
        "solve", "instances/routing/hex-9x9-32-random-1.json", "--method", "negotiatd", code=2
    )
    assert "perhaps 'negotiated'" in asked.stderr


def test_what_is_no_file_at_all_on_stdin_names_the_option_that_writes_one() -> None:
    asked = call("verify", "-", input="solved: 31 slots\n", code=2)
    assert "`solve FILE -o -`" in asked.stderr


# `optmatch info` says of traffic and traces what was used, and what was passed over.


def test_columns_of_traffic(tmp_path: Path) -> None:
    path = put(tmp_path, "traffic.csv", "src,dst,packets,bytes\na,b,1,500\nb,a,2,700\n")
    output = call("info", path).output
    assert "column src, dst, bytes: used" in output
    assert "column packets: passed over" in output


def test_names_in_a_trace_that_nobody_knows(tmp_path: Path) -> None:
    node = {"Id": 1, "NodeType": 4, "runtime": 5, "data_deps": [], "tensor_size": 3, "newer": 1}
    path = put(tmp_path, "t.0.json", json.dumps({"workload_graph": [node]}))
    output = call("info", path).output
    assert "tensor_size: passed over" in output
    assert "newer: unknown" in output


# Streams that are closed or broken: commands work and save, and say so in one line at most.


needs_shell = pytest.mark.skipif(sys.platform == "win32", reason="the shell closes the streams")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Write a problem that is solved without compiled code."""
    path = tmp_path / "small.json"
    om.save(om.AllToAll(om.IdealSwitch(4)), path)
    return path


def run(streams: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command by the shell, which closes or redirects streams."""
    script = f'exec "$0" -m optmatch "$@" {streams}'
    return subprocess.run(
        ["/bin/sh", "-c", script, sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
    )


@needs_shell
@pytest.mark.slow
@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", "<&- 2>&-"])
def test_without_stderr_answers_are_saved_and_printed(
    streams: str, small: Path, tmp_path: Path
) -> None:
    target = tmp_path / "saved.json"
    done = run(streams, "solve", small, "--seed", "0", "-o", target)
    assert (done.returncode, done.stderr) == (0, "")
    assert "small.json: " in done.stdout
    assert target.read_text().startswith("{")  # and nothing that was meant for stderr


@needs_shell
def test_a_wrong_call_without_stderr_has_its_code() -> None:
    assert run("<&- 2>&-", "nothing").returncode == 2


@needs_shell
@pytest.mark.slow
@pytest.mark.parametrize("streams", [">&-", ">/dev/full"])
def test_without_stdout_answers_are_saved_and_one_line_says_why(
    streams: str, small: Path, tmp_path: Path
) -> None:
    target = tmp_path / "saved.json"
    done = run(streams, "solve", small, "--seed", "0", "-q", "-o", target)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("optmatch: ") and "<stdout>: " in line
    assert target.read_text().startswith("{")


@needs_shell
def test_a_daemon_without_any_stream_saves(small: Path, tmp_path: Path) -> None:
    target = tmp_path / "saved.json"
    run("<&- >&- 2>&-", "solve", small, "--seed", "0", "-o", target)
    assert target.read_text().startswith("{")


# No module is loaded while the time of a solve counts: the limit would end before the search.


COUNTING = """
import json, sys
from optmatch.model.limits import current_stopwatch, running_clock
counted, seen = [], set(sys.modules)
def hook(event, words):
    if event == "import" and words[0] not in seen:
        seen.add(words[0])
        if running_clock() is not None and current_stopwatch().running_block() is None:
            counted.append(words[0])
sys.addaudithook(hook)
from optmatch.cli import main
try:
    main(sys.argv[1:], prog_name="optmatch")
except SystemExit:
    print(json.dumps(counted))
"""


@pytest.mark.slow
def test_no_import_counts_in_a_solve() -> None:
    """Sixty modules did, among them all kinds of problems; `fcntl` takes no time."""
    problem = str(INSTANCES / "routing" / "hex-9x9-32-random-1.json")
    words = ["solve", problem, "--seed", "0", "--time-limit", "20", "-q"]
    done = python("-c", COUNTING, *words)
    counted = json.loads(done.stdout.splitlines()[-1])
    assert [module for module in counted if module != "fcntl"] == [], done.stderr
