"""A short run of `make fuzz`, with the same inputs each time."""

import random
from pathlib import Path

import pytest

from tests.helpers.formats import seeds
from tests.helpers.fuzzing import mutate_files, try_input
from tests.helpers.modes import examples

SEEDS = seeds()
INPUTS = examples(80, plain=80)
"""Of each format."""


@pytest.mark.parametrize("kind", SEEDS)
def test_the_inputs_to_start_from_are_right(kind: str, tmp_path: Path) -> None:
    for seed in SEEDS[kind]:
        assert try_input(seed, seed.files, tmp_path, random.Random(0))[::3] == (False, "")


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("kind", SEEDS)
def test_changed_inputs_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    refused = 0
    for number in range(INPUTS):
        rng = random.Random(f"{kind} {number}")
        seed = rng.choice(SEEDS[kind])
        outcome = try_input(seed, mutate_files(seed.files, rng), tmp_path, rng)
        assert not outcome.flaw, (number, outcome.flaw)
        refused += outcome.refused
    assert 0 < refused < INPUTS
