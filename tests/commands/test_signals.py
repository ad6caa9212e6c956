"""Ctrl-C and SIGTERM at random moments: nothing is lost, and no command ends in a traceback."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import optmatch as om
from optmatch.sweeps.store import Store
from tests.helpers.command import DATA, INSTANCES, python, server, start
from tests.helpers.modes import some
from tests.helpers.signals import MARK, Ended

TIMES = int(os.environ.get("OPTMATCH_EXAMPLES", "1"))
MOMENTS = 2 if TIMES == 1 else 40
NAMES = ["solve", "compare", "simulate", "faults"]
NAMES += ["jitter", "sweep", "export"] if TIMES > 1 else []
Interrupted = Callable[[list[str], int, int], Ended]
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
BUSY_S = 0.5  # beside the half second that a search is given to report
RAIL_JOB = str(INSTANCES / "rails" / "h200-dp2-windows.json")
PLAN = str(DATA / "answers" / "rail-job.schedule.json")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="forks with files in memory"),
]


@pytest.fixture(scope="module")
def interrupted() -> Iterator[Interrupted]:
    """Start one process for all commands: each has a signal and its moment; at 0 none is sent."""
    with server("-m", "tests.helpers.signals") as ask:
        yield lambda words, sent, at: Ended(*ask(words, sent, at))


def commands(folder: Path) -> dict[str, list[str]]:
    """Return one of each command that works for a while; it writes to the folder."""
    demand, mesh = folder / "demand.json", folder / "mesh.json"
    spec, answers = folder / "spec.toml", folder / "answers"
    answers.mkdir()
    amounts = np.array([[0.0, 3.0, 1.0], [2.0, 0.0, 4.0], [5.0, 1.0, 0.0]])
    om.save(om.Demand(om.IdealSwitch(3), amounts, delay_s=1.0), demand)
    om.save(om.AllToAll(om.HexMesh(2, 2, ports=4)), mesh)
    spec.write_text('problems = ["demand.json"]\nmethods = ["best", "solstice"]\nseeds = 5\n')
    given = {
        "solve": f"solve {mesh} {demand} -v --seed 0 -o {answers}",
        "compare": f"compare {demand} --methods solstice,eclipse,best --json",
        "simulate": f"simulate {RAIL_JOB} {DATA / 'answers' / 'demand.schedule.json'} --json",
        "faults": f"faults {DATA / 'good' / 'routed.schedule.json'} --samples 30 --seed 0 --json",
        "jitter": f"simulate {PLAN} --jitter 0.1 --runs 30 --json",
        "sweep": f"sweep {spec} -j 2 --json -o {answers}/rows.sqlite",
        "export": f"export {PLAN} --to perfetto -o {answers}/trace.json",
    }
    forced = ("solve", "export")
    return {
        name: [*words.split(), *["--force"] * (name in forced)] for name, words in given.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_at_any_moment(name: str, tmp_path: Path, interrupted: Interrupted) -> None:
    words = commands(tmp_path)[name]
    answers = tmp_path / "answers"
    whole = interrupted(words, 0, 0)
    assert whole.code == 0, whole.stderr
    rng = random.Random(name)
    for number in range(MOMENTS):
        for file in answers.glob("*"):
            file.unlink()
        sent, at = list(CODES)[number % 2], rng.randrange(1, whole.moments)
        ended = interrupted(words, sent, at)
        while MARK not in ended.stderr:  # progress goes by the clock, so the end may come earlier
            at -= 100
            ended = interrupted(words, sent, at)
        assert ended.code == CODES[sent], (at, ended)
        check_words(ended)
        assert not list(answers.glob(".*"))  # no parts
        if name == "solve":
            check_answers(ended, answers)
        elif name == "sweep":
            check_rows(ended, answers / "rows.sqlite")


def check_words(ended: Ended) -> None:
    """Look at the printed lines, and at the time since the signal."""
    assert "Traceback" not in ended.stderr and "Exception ignored" not in ended.stderr
    assert "interrupted" in ended.stderr.partition(MARK)[2]
    assert ended.cpu_s <= BUSY_S and (TIMES == 1 or ended.wall_s <= 1.0)
    for line in ended.stdout.splitlines() if "{" in ended.stdout else ():
        json.loads(line)  # whole, or not there


def check_answers(ended: Ended, folder: Path) -> None:
    """Each problem of which something was found before the signal has an answer that holds."""
    said = ended.stderr.partition(MARK)[0]
    for name in ("mesh", "demand"):
        file = folder / f"{name}.schedule.json"
        if f"{name}.json: " in said and ", best " in said.partition(f"{name}.json: ")[2]:
            assert file.is_file(), ended.stderr
        if file.exists():
            found = om.load(file)
            assert isinstance(found, om.Solution) and om.verify(found.problem, found).valid


def check_rows(ended: Ended, store: Path) -> None:
    """Each row that was told of is in the store, and no task failed because of the signal."""
    told = {json.loads(line)["key"] for line in ended.stdout.splitlines()}
    with Store(store) as kept:
        rows = {row.key: row.status for row in kept.rows()}
    assert told <= rows.keys() and "failed" not in rows.values()


INTERRUPTING = """
import os, signal, sys
left = -1
sent = []
def hook(event, words):
    global left
    if event == "import":
        left = {number} if words[0] == "{first}" else left - 1
        if not left:
            sent.append(1)
            if len(sent) == 1:
                os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.addaudithook(hook)
"""
"""A `sitecustomize` that interrupts the process so many imports after the first of a module."""

FORMS = ["optmatch", "-m optmatch", "cli.py"]


def interrupt_imports(
    form: str, folder: Path, first: str, number: int
) -> subprocess.CompletedProcess[str]:
    """Run the program in one of its forms; a SIGINT comes `number` imports after `first`."""
    program = {
        "optmatch": [str(Path(sys.executable).with_name("optmatch"))],
        "-m optmatch": ["-m", "optmatch"],
        "cli.py": ["cli.py"],
    }[form]
    (folder / "sitecustomize.py").write_text(INTERRUPTING.format(first=first, number=number))
    return python(*program, "methods", code=None, PYTHONPATH=str(folder))


@pytest.mark.parametrize("form", FORMS)
def test_ctrl_c_while_modules_are_imported(form: str, tmp_path: Path) -> None:
    """Code 130 in silence: it was a traceback, from wherever in NumPy the import was."""
    ended = set()
    for number in some((1, 5, 20, 60, 120, 200, 300, 400), 2):
        done = interrupt_imports(form, tmp_path, "lazy_loader", number)
        ended.add((done.returncode, done.stderr.strip()))
    assert (130, "") in ended
    assert ended <= {(130, ""), (130, "optmatch: interrupted"), (0, "")}


@pytest.mark.parametrize("form", FORMS)
def test_ctrl_c_before_it_is_handled(form: str, tmp_path: Path) -> None:
    """The module that handles it is itself imported: there it was a traceback."""
    done = interrupt_imports(form, tmp_path, "optmatch.startup", 0)
    assert (done.returncode, done.stderr) == (130, "")


def test_ctrl_c_while_a_user_imports_the_package_stays_an_exception(tmp_path: Path) -> None:
    """A notebook goes on after it, so it is no end of the process there."""
    (tmp_path / "sitecustomize.py").write_text(
        INTERRUPTING.format(first="optmatch.startup", number=0)
    )
    code = (
        "try:\n    import optmatch\nexcept KeyboardInterrupt:\n    print('caught')\n"
        "import optmatch; print(optmatch.__version__)"
    )
    done = python("-c", code, PYTHONPATH=str(tmp_path))
    assert done.stdout.startswith("caught"), done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes with names there")
@pytest.mark.parametrize("words", ["compare {} --methods best", "solve {}", "verify {}"])
def test_a_signal_while_a_pipe_has_no_writer(words: str, tmp_path: Path) -> None:
    """A command that keeps its results at the first signal has none yet: it ends."""
    os.mkfifo(pipe := tmp_path / "pipe")
    with start(*words.format(pipe).split()) as running:
        assert running.stderr is not None
        assert "waiting for a writer" in running.stderr.readline()
        running.send_signal(signal.SIGTERM)
        _, rest = running.communicate(timeout=20)
    assert running.returncode == 143
    assert rest.strip().startswith("optmatch: interrupted") and "Traceback" not in rest
