"""Small files that state huge sizes are refused before anything is allocated; wrong calls, too."""

import os
import subprocess
import sys

import pytest

from tests.helpers.modes import compiled_only

QUIET = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@compiled_only
@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("hostile", "1"), ("attacks", "0.05", "7"), ("wrong_calls", "150", "4")],
    ids=lambda words: words[0],
)
def test_a_short_run_finds_no_fault(words: tuple[str, ...]) -> None:
    """The helpers run for longer by `make nightly`."""
    command = [sys.executable, "-m", f"tests.helpers.{words[0]}", *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, env=QUIET)
    assert done.returncode == 0, done.stdout + done.stderr
