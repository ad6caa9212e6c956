"""The command line in this process and in one of its own, and the files of its tests."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

import optmatch as om
from optmatch.cli import main

DATA = Path(__file__).resolve().parents[1] / "data"
ROOT = DATA.parent.parent
INSTANCES = ROOT / "instances"
GOOD, BROKEN = DATA / "good", DATA / "broken"
PROBLEM = GOOD / "dead-pair.problem.json"
IDEAL = GOOD / "ideal.schedule.json"
ROUTED = GOOD / "routed.schedule.json"
DEAD = GOOD / "dead-pair.schedule.json"


def put(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def call(*args: object, code: int | None = 0, **extra: Any) -> Result:
    """Run the command line in this process; it ends with this exit code, or None: any."""
    result = CliRunner().invoke(main, [str(arg) for arg in args], **extra)
    assert code in (None, result.exit_code), result.output
    return result


def refused(message: str, *args: object, **extra: Any) -> Result:
    """Run the command line in this process; it refuses its arguments with this message."""
    result = call(*args, code=2, **extra)
    assert message in result.stderr
    return result


def call_in(folder: Path, *args: object, **extra: Any) -> Result:
    """Run the command line in this process and in a folder."""
    with chdir(folder):
        return call(*args, **extra)


def python(
    *words: str | Path,
    code: int | None = 0,
    cwd: Path = ROOT,
    given: str | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own; it ends with this exit code, or None: any.

    What is `given` is read from stdin. Variables of the environment are added to those that are
    there.
    """
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, cwd=cwd,
        input=given, env=os.environ | environment,
    )  # fmt: skip
    assert code in (None, done.returncode), done.stdout + done.stderr
    return done


def process(*words: str | Path, **extra: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, with any exit code."""
    return python("-m", "optmatch", *words, code=None, **extra)


@contextmanager
def server(*words: str, **environment: str) -> Iterator[Callable[..., Any]]:
    """Start Python that does jobs, each a list in a line of JSON, and so is its result."""
    with subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=ROOT, env=os.environ | environment,
    ) as started:  # fmt: skip

        def ask(*job: Any) -> Any:
            """Give a job, and wait for its result."""
            assert started.stdin is not None and started.stdout is not None
            print(json.dumps(job), file=started.stdin, flush=True)
            return json.loads(started.stdout.readline())

        yield ask


# A shell starts a job in the background with SIGINT ignored, and its children inherit that. So a
# child that is to be interrupted sets its own handler; it also reports more often than usual.
LISTENING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from optmatch.cli import main
from optmatch.commands.shared import progress
progress.INTERVAL_S = 0.2
main(prog_name="optmatch")
"""


def start(*args: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Start the command line in a process that Ctrl-C reaches, with pipes to read from."""
    command = [sys.executable, "-c", LISTENING, *map(str, args)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
    )


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder with their content."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def ideal_solution(**changes: Any) -> om.Solution:
    """Return a solution of an all-to-all problem on an ideal switch, or of another problem."""
    solution = om.load(IDEAL)
    assert isinstance(solution, om.Solution)
    return replace(solution, **changes)
