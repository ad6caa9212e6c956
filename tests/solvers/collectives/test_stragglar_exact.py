"""The exact model of schedules around a late rank: what it finds, and what it refutes."""

from __future__ import annotations

import numpy as np
import pytest

from optmatch.model import Event, Limits
from optmatch.problems.collectives.bounds import fewest_late_rounds
from optmatch.solvers.collectives.stragglar_exact import fit_rounds, solve_exact
from tests.helpers.contributions import one_late, replay


def ignore(_: Event) -> None:
    """Let progress pass."""


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 8])
def test_as_many_rounds_as_the_bound_are_enough(n: int) -> None:
    """And one less is refuted, as the late rank has to meet all others."""
    rounds = fewest_late_rounds(n)
    sends, refuted = fit_rounds(n, rounds, Limits().start(), ignore)
    assert sends is not None and not refuted
    assert replay(one_late(n), sends, two_way=True).all()
    assert sends[-1, 0] + 1 == rounds
    if n > 2:
        assert fit_rounds(n, rounds - 1, Limits().start(), ignore) == (None, True)


def test_a_limit_ends_the_search() -> None:
    """Without an answer, and without a claim."""
    assert fit_rounds(12, 14, Limits(time_s=0.0).start(), ignore) == (None, False)


@pytest.mark.parametrize("n", range(2, 17))
def test_fewest_rounds_are_proved(n: int) -> None:
    """For all numbers to 16."""
    sends, bound = solve_exact(n, Limits().start(), ignore)
    assert sends[-1, 0] + 1 == bound == fewest_late_rounds(n)
    assert replay(one_late(n), sends, two_way=True).all()
    assert np.array_equal(sends, solve_exact(n, Limits().start(), ignore)[0])
