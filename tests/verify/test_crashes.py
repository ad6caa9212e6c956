"""Whatever is changed in an answer, the verifier ends with a report."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.io import loads
from tests.helpers import forging
from tests.helpers.modes import examples
from tests.helpers.mutations import mutate
from tests.verify.rules.rails import EXCHANGE, MESSAGE, SHIFTS, every, line, timed


@pytest.mark.parametrize("name", forging.TRUTHS)
@settings(max_examples=examples(30, plain=30), deadline=None)
@given(rng=st.randoms(use_true_random=False))
def test_any_change_has_a_report(name: str, rng: random.Random) -> None:
    solution: Any = loads(forging.answer(name))
    report = om.verify(solution.problem, mutate(solution, rng))

    # What cannot be replayed is named, since its class refuses it.
    places = {part.where for part in report.violations if "to its end" in part.rule}
    assert "subject" not in places


def test_parts_may_lie_as_deep_as_they_like() -> None:
    solution: Any = loads(forging.answer("routing"))
    deep: tuple[Any, ...] = ()
    for _ in range(5000):
        deep = (deep,)
    assert "a tuple, where only" in om.verify(replace(solution, certificate=deep)).complaint


def test_times_that_overflow_are_refused() -> None:
    for problem, answer in (
        (MESSAGE, timed(*[[-1e308, 1e308]] * 3)),
        (EXCHANGE, every(1e308, 1e308, line(SHIFTS, [-1e308, 0, 1e308]))),
    ):
        assert not om.verify(problem, answer).valid


@pytest.mark.parametrize(("column", "value"), [(2, 0), (1, -1), (1, 10**6)])
def test_a_relay_with_wrong_ports_or_rank_is_refused(column: int, value: int) -> None:
    solution: Any = loads(forging.answer("forwarding"))
    relays = np.array(solution.answer.relays)
    relays[0, column] = value
    changed = replace(solution, answer=replace(solution.answer, relays=relays))
    report = om.verify(solution.problem, changed)
    assert {violation.rule for violation in report.violations} == {
        "who forwards has that rank and those ports"
    }
    assert len(report.skipped) == 2
