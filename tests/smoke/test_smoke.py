"""Every kind: generated, solved by every method, verified, saved, loaded, drawn and tabulated.

This folder imports the package and pytest alone: copied anywhere, it tests what is installed.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

import pytest

import optmatch as om
from optmatch.kinds import all_kinds, all_methods, kind_of
from optmatch.model import Limits, Problem

COMMANDS = {
    "all-to-all": "all-to-all --rows 2 --cols 2 --ports 4",
    "all-to-all, feed-forward": "all-to-all --fabric benes --size 4",
    "collective": "collective all-reduce --ranks 4 --bytes 4e5 --alpha 1e-6",
    "collective, gathered": "collective all-gather --ranks 4 --bytes 4e5 --alpha 1e-6",
    "collective, forwarded": "collective all-gather --ranks 6 --bytes 6e3 --alpha 1e-6"
    " --hop 1e-7 --delay 1e-3",
    "collective, all to all": "collective all-to-all --ranks 4 --bytes 4e5 --alpha 1e-6",
    "collective, uneven": "collective all-to-all --matrix uneven.csv --alpha 1e-6 --delay 1e-6",
    "collective, islands": "collective all-gather --ranks 6 --bytes 6e5 --alpha 2e-6 --island 2",
    "collective, late": "collective all-reduce --ranks 4 --bytes 4e5 --alpha 1e-6"
    " --delay 1e-6 --two-way --late 3=0.01",
    "collective, several late": "collective all-reduce --ranks 6 --bytes 4e5 --alpha 1e-6"
    " --delay 1e-6 --late 4=1e-5,5=2e-5",
    "collective, two ports": "collective all-gather --ranks 6 --bytes 6e5 --alpha 1e-6"
    " --delay 1e-3 --ports-per-rank 2",
    "collective, pairs": "collective all-gather --ranks 6 --bytes 6e5 --alpha 1e-6"
    " --delay 1e-3 --two-way",
    "collective, pipelined": "collective broadcast --ranks 8 --bytes 8e6 --alpha 1e-6"
    " --delay 1e-6",
    "collective, planes": "collective all-reduce --ranks 4 --bytes 32e6 --alpha 2e-5 --delay 2e-4"
    " --planes 2 --steps 1:16e6,2:8e6,1:16e6",
    "demand": "demand --model uniform --size 4 --fabric ideal-switch --delay 100 --seed 1",
    "demand, planes": "demand --model uniform --size 4 --fabric ideal-switch --delay 9 --planes 2",
    "port-sharing": "port-sharing --resources 8 --jobs 3 --seed 3",
    "port-sharing, fair": "port-sharing --resources 8 --jobs 3 --objective max-min --seed 3",
    "port-sharing, early": "port-sharing --resources 4 --jobs 2 --objective min-jct --seed 3",
    "port-sharing, in order": "port-sharing --resources 6 --jobs 3 --objective lexicographic",
    "rail-job": "rail-job --gpus 16 --gpus-per-server 4 --dp 2 --tp 4 --pp 2 --layers 8"
    " --hidden 1024 --heads 8 --sequence 512 --vocabulary 32000 --ffn 4096 --batch 8",
    "rail-job, two GPUs": "rail-job --gpus 2 --gpus-per-server 1 --dp 2 --tp 1 --pp 1 --layers 12"
    " --hidden 64 --heads 4 --sequence 32 --vocabulary 100 --ffn 128 --batch 8",
    "reroute": "reroute --rows 3 --cols 3 --ports 6 --stuck-bar 2",
    "routing": "routing --rows 4 --cols 4 --ports 8 --random-matching --seed 3",
    "routing, feed-forward": "routing --fabric benes --size 4 --matching 2,3,0,1",
    "slice-allocation": "slice-allocation --shape 2x4x4",
}
LIMITS = Limits(time_s=1.0, iterations=50)
FOLDER = Path(mkdtemp(prefix="optmatch-smoke-"))
(FOLDER / "uneven.csv").write_text("0,7,1\n2,0,0\n7,0,0\n")
DRAWS = find_spec("matplotlib") is not None
TABULATES = find_spec("pandas") is not None


def command(*args: object) -> str:
    """Run the command line as a process, in a folder that has nothing else; return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "optmatch", *map(str, args)],
        capture_output=True, text=True, check=False, cwd=FOLDER,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


SEVERAL = """
import shlex, sys
from optmatch.cli import main
for line in sys.stdin:
    code = main(shlex.split(line), prog_name="optmatch", standalone_mode=False)
    if code and (code, line.split()[0]) != (6, "verify"):
        sys.exit(f"{code}: {line}")
"""
"""Some right answers are unproved, which `verify` says by its code."""


def commands(lines: Iterable[Iterable[object]]) -> str:
    """Run several of them in one process, since most of the time goes into its start."""
    text = "".join(shlex.join(map(str, words)) + "\n" for words in lines)
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL],
        input=text, capture_output=True, text=True, check=False, cwd=FOLDER,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def generate_all() -> dict[str, Path]:
    """Return the files of all cases."""
    files = {
        case: FOLDER / f"{case.replace(', ', '-').replace(' ', '-')}.json" for case in COMMANDS
    }
    commands(("generate", *COMMANDS[case].split(), "-o", file) for case, file in files.items())
    return files


def generate(case: str) -> Path:
    """Return the file of a case."""
    return generate_all()[case]


def read(case: str) -> Problem:
    """Return the problem of a case."""
    found = om.load(generate(case))
    assert isinstance(found, Problem)
    return found


def test_the_cases_are_of_every_kind_and_for_every_method() -> None:
    """A new kind or method without a case here would be shipped untried."""
    problems = [read(case) for case in COMMANDS]
    assert {problem.kind for problem in problems} == {k.problem.kind for k in all_kinds()}
    for method in all_methods():
        assert any(map(method.takes, problems)), (method.solves, method.name)


@pytest.mark.parametrize("case", COMMANDS)
def test_each_method_solves_what_it_takes(case: str, tmp_path: Path) -> None:
    """Each answer is accepted, and is the same after it was written and read."""
    problem = read(case)
    for method in kind_of(problem).methods:
        if not method.takes(problem):
            continue
        found = om.solve(problem, method=method.name, seed=0, limits=LIMITS)
        report = om.verify(problem, found)
        assert report.valid, (method.name, report.violations)
        file = tmp_path / f"{method.name}.schedule.json"
        om.save(found, file)
        again = om.load(file)
        assert isinstance(again, om.Solution)
        assert (again.objective, again.status) == (found.objective, found.status)
        assert om.verify(problem, again).valid
        if found.objective is not None and TABULATES:
            assert len(again.to_dataframe().columns)
    if DRAWS and "," not in case:
        from matplotlib import pyplot

        pyplot.switch_backend("agg")
        kind_of(problem).view().draw(found, None, None).savefig(tmp_path / "answer.png")
        pyplot.close("all")


def test_the_command_line_solves_verifies_and_draws_every_kind() -> None:
    files = [generate(case) for case in COMMANDS if "," not in case]
    limits = ("--seed", 0, "--time-limit", 0.2, "-q")
    lines: list[tuple[object, ...]] = [
        ("solve", file, *limits, "-o", answer_of(file)) for file in files
    ]
    lines.append(("verify", *map(answer_of, files)))
    if DRAWS:
        lines += [("plot", answer_of(file), "-o", file.with_suffix(".svg")) for file in files]
    demand = answer_of(generate("demand"))
    lines.append(("plot", demand, "-o", FOLDER / "page.html"))
    assert "makespan" in commands([*lines, ("simulate", demand, "--json")])


def answer_of(file: Path) -> Path:
    """Return the file of a problem's answer."""
    return file.with_name(f"{file.stem}.schedule.json")


def test_the_library_is_there() -> None:
    assert "demand/uniform-8" in command("instances", "list")
    path = command("instances", "path", "demand/uniform-8").strip()
    problem = om.load(path)
    assert isinstance(problem, Problem)
    assert om.solve(problem, seed=0, limits=LIMITS).objective is not None


@pytest.mark.parametrize("args", ["methods", "--help", "--version", "info --json"])
def test_other_commands_start(args: str) -> None:
    assert command(*args.split())
