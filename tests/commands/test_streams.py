"""Streams that are closed or broken: commands work and save, and say so in one line at most."""

import subprocess
import sys
from pathlib import Path

import pytest

PROBLEM = Path(__file__).resolve().parents[2] / "instances" / "demand" / "uniform-8.json"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the shell closes the streams")


def run(streams: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command by the shell, which closes or redirects streams."""
    script = f'exec "$0" -m optmatch "$@" {streams}'
    return subprocess.run(
        ["/bin/sh", "-c", script, sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", "<&- 2>&-"])
def test_without_stderr_answers_are_saved_and_printed(streams: str, tmp_path: Path) -> None:
    target = tmp_path / "saved.json"
    done = run(streams, "solve", PROBLEM, "--seed", "0", "-o", target)
    assert (done.returncode, done.stderr) == (0, "")
    assert "uniform-8.json: " in done.stdout
    assert target.read_text().startswith("{")  # and nothing that was meant for stderr


def test_a_wrong_call_without_stderr_has_its_code() -> None:
    assert run("<&- 2>&-", "nothing").returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize("streams", [">&-", ">/dev/full"])
def test_without_stdout_answers_are_saved_and_one_line_says_why(
    streams: str, tmp_path: Path
) -> None:
    target = tmp_path / "saved.json"
    done = run(streams, "solve", PROBLEM, "--seed", "0", "-q", "-o", target)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("optmatch: ") and "<stdout>: " in line
    assert target.read_text().startswith("{")


def test_a_daemon_without_any_stream_saves(tmp_path: Path) -> None:
    target = tmp_path / "saved.json"
    run("<&- >&- 2>&-", "solve", PROBLEM, "--seed", "0", "-o", target)
    assert target.read_text().startswith("{")
