"""A short run of `make fuzz`, with the same inputs each time."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.formats import seeds
from tests.helpers.fuzzing import mutate_files, try_input
from tests.helpers.modes import compiled_only, examples

SEEDS = seeds()
INPUTS = examples(80, plain=80)
"""Of each format."""


@pytest.mark.parametrize("kind", SEEDS)
def test_the_inputs_to_start_from_are_right(kind: str, tmp_path: Path) -> None:
    for seed in SEEDS[kind]:
        assert try_input(seed, seed.files, tmp_path)[::3] == (False, "")


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("kind", SEEDS)
def test_changed_inputs_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    refused = 0
    for number in range(INPUTS):
        rng = random.Random(f"{kind} {number}")
        seed = rng.choice(SEEDS[kind])
        outcome = try_input(seed, mutate_files(seed.files, rng), tmp_path)
        assert not outcome.flaw, (number, outcome.flaw)
        refused += outcome.refused
    assert 0 < refused < INPUTS


# Small files that state huge sizes are refused before anything is allocated; wrong calls, too.


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
