"""The totals of all routes together: the next total above a bound, the last below an objective."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from optmatch.problems.routing import loss_units
from optmatch.solvers.routing.pathfinder import UNIT
from optmatch.solvers.routing.totals import LossTotals


@given(st.sampled_from([None, True, False]), st.floats(0.01, 50), st.integers(3, 50))
@settings(max_examples=60, deadline=None)
def test_totals_of_cells_go_by_steps(even: bool | None, value: float, objective: int) -> None:
    """Totals of cells are those of a loss of 1 in either state."""
    totals = LossTotals(1.0, 1.0, even)
    step = 1 if even is None else 2
    possible = range(1 if even is False else 0, 100, step)
    assert totals.rise(value * UNIT) == min(t for t in possible if t >= value - 1e-9)
    below = max(t for t in possible if t < objective)
    assert totals.enough(float(objective)) == pytest.approx(below * UNIT)


@given(
    st.sampled_from([0.0, 0.3, 0.45678, 1.0]),
    st.sampled_from([0.0, 0.25, 0.5, 2.0]),
    st.sampled_from([None, True, False]),
    st.floats(0, 6),
)
@settings(max_examples=120, deadline=None)
def test_totals_of_losses_are_sums_of_both(
    bar: float, cross: float, even: bool | None, loss: float
) -> None:
    totals, per_db = LossTotals(bar, cross, even), loss_units(bar, cross).per_db
    counts = [(a, b) for a in range(60) for b in range(60)]
    if even is not None:
        counts = [(a, b) for a, b in counts if (a + b) % 2 == (0 if even else 1)]
    possible = np.unique([a * bar + b * cross for a, b in counts])
    if not (bar or cross):
        assert totals.rise(loss * per_db) == pytest.approx(max(0, loss - 1e-6 / per_db))
        assert totals.enough(loss) == -math.inf
        return
    risen = totals.rise(loss * per_db)
    if loss > 1e-3:
        assert risen == pytest.approx(possible[possible >= loss - 1e-9].min(), abs=1e-9)
        below = possible[possible < loss * (1 - 1e-12)]
        expected = below.max() * per_db if len(below) else -math.inf
        assert totals.enough(loss) == pytest.approx(expected, abs=1e-3 * per_db * 1e-3 + 1e-5)
