"""Stuffing: how much it adds, and where."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from optmatch.solvers.demands.birkhoff import stuff

pytestmark = pytest.mark.kernels

Matrix = NDArray[np.int64]


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    """Draw a matrix of small numbers, sparse or dense."""
    n = draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    density = draw(st.sampled_from((0.1, 0.3, 0.6, 1.0)))
    entries = rng.integers(1, draw(st.sampled_from((2, 5, 100))), (n, n))
    found: Matrix = entries * (rng.random((n, n)) < density)
    return found


@settings(max_examples=80, deadline=None)
@given(matrix=matrices())
def test_stuffing_fills_all_lines(matrix: Matrix) -> None:
    stuffed = stuff(matrix)
    most = max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max())
    assert (stuffed >= matrix).all()
    assert (stuffed.sum(axis=0) == most).all()
    assert (stuffed.sum(axis=1) == most).all()


def test_stuffing_starts_with_the_largest() -> None:
    matrix = np.array([[5, 4, 0], [0, 4, 9], [0, 0, 4]])
    assert stuff(matrix).tolist() == [[9, 4, 0], [0, 4, 9], [4, 5, 4]]


def test_nothing_to_stuff() -> None:
    assert not stuff(np.zeros((3, 3))).any()
    assert stuff(np.zeros((0, 0))).shape == (0, 0)
    assert stuff([[1, 2], [2, 1]]).tolist() == [[1, 2], [2, 1]]
