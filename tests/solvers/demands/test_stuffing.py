"""Stuffing and edge colouring against slow twins."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.solvers.demands import colouring
from optmatch.solvers.demands.colouring import colour, colour_edges
from optmatch.solvers.demands.stuffing import Stuffing, stuff

pytestmark = pytest.mark.kernels

Matrix = NDArray[np.int64]


@st.composite
def matrices(draw: st.DrawFn, *, square: bool = False) -> Matrix:
    """Draw a matrix of small numbers, sparse or dense."""
    rows = draw(st.integers(1, 9))
    columns = rows if square else draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    density = draw(st.sampled_from((0.1, 0.3, 0.6, 1.0)))
    entries = rng.integers(1, draw(st.sampled_from((2, 5, 100))), (rows, columns))
    found: Matrix = entries * (rng.random((rows, columns)) < density)
    return found


def most_on_entries(matrix: Matrix) -> int:
    """Compute by maximum flow how much can be added to entries that are not zero."""
    rows, columns = matrix.sum(axis=1), matrix.sum(axis=0)
    most = max(rows.max(), columns.max())
    flow = nx.DiGraph()
    flow.add_nodes_from(["source", "sink"])
    for row, column in np.argwhere(matrix):
        flow.add_edge("source", ("row", row), capacity=int(most - rows[row]))
        flow.add_edge(("row", row), ("column", column))
        flow.add_edge(("column", column), "sink", capacity=int(most - columns[column]))
    return int(nx.maximum_flow_value(flow, "source", "sink"))


@pytest.mark.parametrize("how", ["quick", "least"])
@settings(max_examples=80, deadline=None)
@given(matrix=matrices(square=True))
def test_stuffing_fills_all_lines(how: Stuffing, matrix: Matrix) -> None:
    """To the sum of the largest; no entry falls."""
    stuffed = stuff(matrix, how)
    most = max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max())
    assert (stuffed >= matrix).all()
    assert (stuffed.sum(axis=0) == most).all()
    assert (stuffed.sum(axis=1) == most).all()


@settings(max_examples=80, deadline=None)
@given(matrix=matrices(square=True))
def test_least_stuffing_puts_least_on_zeros(matrix: Matrix) -> None:
    """As much as a maximum flow finds goes on entries that are there."""
    added = stuff(matrix, "least") - matrix
    assert added[matrix > 0].sum() == most_on_entries(matrix)
    assert np.count_nonzero(added[matrix == 0]) < 2 * len(matrix)


def test_quick_stuffing_starts_with_the_largest() -> None:
    """The order is part of the rule: the 5 takes what the 4 beside it could have."""
    matrix = np.array([[5, 4, 0], [0, 4, 9], [0, 0, 4]])
    assert stuff(matrix).tolist() == [[9, 4, 0], [0, 4, 9], [4, 5, 4]]


def test_nothing_to_stuff() -> None:
    """Zeros stay zeros, balanced matrices as they are."""
    assert not stuff(np.zeros((3, 3))).any()
    assert stuff(np.zeros((0, 0))).shape == (0, 0)
    assert stuff([[1, 2], [2, 1]], "least").tolist() == [[1, 2], [2, 1]]
    how: Any = "more"
    with pytest.raises(InputError, match="how = 'more': one of quick, least"):
        stuff([[1]], how)


@settings(max_examples=80, deadline=None)
@given(n=st.integers(1, 9), degree=st.integers(0, 40), seed=st.integers(0, 2**32))
def test_a_regular_graph_takes_its_degree_in_colours(n: int, degree: int, seed: int) -> None:
    """Each colour is a permutation, and every edge has one."""
    rng = np.random.default_rng(seed)
    matrix = np.zeros((n, n), dtype=np.int64)
    for _ in range(degree):
        matrix[np.arange(n), rng.permutation(n)] += 1
    edges = np.repeat(np.nonzero(matrix)[1], matrix[matrix > 0])
    found = colour_edges(edges, n)
    assert found.shape == (degree, n)
    assert (np.sort(found, axis=1) == np.arange(n)).all()
    terms = colour(matrix)
    assert np.array_equal(terms.total(), matrix)
    assert not terms.residual.any()


def test_uniform_demands_take_a_permutation_for_each_port() -> None:
    """Whatever the unit."""
    terms = colour(np.full((12, 12), 6000))
    assert terms.weights.tolist() == [6000] * 12
    assert (np.sort(terms.permutations.T, axis=1) == np.arange(12)).all()
    all_to_all = colour(np.full((7, 7), 5) - 5 * np.eye(7, dtype=int))
    assert len(all_to_all.weights) == 6


def test_what_cannot_be_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unequal lines, and more edges than there is room for."""
    with pytest.raises(InputError, match="row 1 sums to 3, row 0 to 1"):
        colour([[1, 0], [1, 2]])
    assert colour(np.zeros((2, 2))).permutations.shape == (0, 2)
    monkeypatch.setattr(colouring, "MOST_EDGES", 10)
    with pytest.raises(InputError, match="2 lines of 7 edges, more than 10 in all"):
        colour([[3, 4], [4, 3]])
