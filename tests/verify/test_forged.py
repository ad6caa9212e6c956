"""Files that claim what is not so, or whose answer was changed, are not ok."""

import json
import os
import random

from tests.helpers.forging import (
    TRUTHS,
    answer,
    change_answer,
    forge,
    is_right,
    is_true,
    passes,
)
from tests.helpers.fuzzing import change_json

TIMES = int(os.environ.get("OPTMATCH_EXAMPLES", "1"))
"""So many times as many are drawn by `make soak`."""


def test_files_are_as_known() -> None:
    for name in TRUTHS:
        solution = passes(json.loads(answer(name)))
        assert solution is not None
        assert is_right(name, solution)


def test_forged_claims_are_not_ok() -> None:
    passed = 0
    for number in range(60 * TIMES):
        rng = random.Random(f"claim {number}")
        name = rng.choice(list(TRUTHS))
        solution = passes(forge(name, rng))
        passed += solution is not None
        assert solution is None or is_true(name, solution), (number, name)
    assert 0 < passed < 50 * TIMES


def test_changed_leaves_are_not_ok() -> None:
    passed = 0
    for number in range(200 * TIMES):
        rng = random.Random(f"leaf {number}")
        name = rng.choice(list(TRUTHS))
        solution = passes(change_json(json.loads(answer(name)), rng))
        passed += solution is not None
        assert solution is None or is_right(name, solution), (number, name)
    assert 0 < passed < 50 * TIMES


def test_answers_changed_in_one_respect_are_ok_where_they_are_right() -> None:
    passed = 0
    for number in range(500 * TIMES):
        rng = random.Random(f"answer {number}")
        name = rng.choice(list(TRUTHS))
        tree = json.loads(answer(name))
        change = change_answer(tree, rng)
        solution = passes(tree)
        passed += solution is not None
        if solution is not None and not change.is_rounding:
            assert is_right(name, solution), (number, name, change)
    assert 0 < passed < 150 * TIMES
