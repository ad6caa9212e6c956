"""Largest matchings, stuffing and edge colouring against slow twins."""

from __future__ import annotations

import time
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.solvers.demands import colouring
from optmatch.solvers.demands.bipartite import match
from optmatch.solvers.demands.colouring import colour, colour_edges
from optmatch.solvers.demands.stuffing import Stuffing, stuff

pytestmark = pytest.mark.kernels

Matrix = NDArray[np.int64]


def compressed(graph: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return start and columns of the entries of a matrix that are not zero."""
    rows, columns = np.nonzero(graph)
    start = np.searchsorted(rows, np.arange(len(graph) + 1))
    return start.astype(np.int64), columns.astype(np.int64)


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


def largest(graph: Matrix) -> int:
    """Count the edges of a largest matching by maximum flow."""
    flow = nx.DiGraph()
    flow.add_nodes_from(["source", "sink"])
    for row, column in np.argwhere(graph):
        flow.add_edge("source", ("row", row), capacity=1)
        flow.add_edge(("row", row), ("column", column), capacity=1)
        flow.add_edge(("column", column), "sink", capacity=1)
    return int(nx.maximum_flow_value(flow, "source", "sink"))


@settings(max_examples=80, deadline=None)
@given(graph=matrices())
def test_a_matching_is_largest(graph: Matrix) -> None:
    """Of edges of the graph, no column twice."""
    column_of = match(*compressed(graph), graph.shape[1])
    held = np.flatnonzero(column_of >= 0)
    assert graph[held, column_of[held]].all()
    assert len(set(column_of[held].tolist())) == len(held) == largest(graph)


@settings(max_examples=40, deadline=None)
@given(graph=matrices(), seed=st.integers(0, 2**32))
def test_a_matching_goes_on_from_one_that_is_there(graph: Matrix, seed: int) -> None:
    """It becomes largest, its rows keep a column, and what was given stays as it is."""
    rng = np.random.default_rng(seed)
    first = match(*compressed(graph), graph.shape[1])
    first[rng.random(len(first)) < 0.5] = -1
    copy = first.copy()
    column_of = match(*compressed(graph), graph.shape[1], first)
    assert (column_of >= 0).sum() == largest(graph)
    assert (column_of[first >= 0] >= 0).all()
    assert np.array_equal(first, copy)


def ladder(levels: int) -> tuple[list[list[int]], int]:
    """Join two rows a level to both columns of the next, and lay a chain of the same length out.

    Searches by depth that do not remember dead ends try 2**levels ways down.
    """
    rows: list[list[int]] = []
    for level in range(levels):
        below = [2 * level + 2, 2 * level + 3] if level < levels - 1 else []
        rows += [[2 * level, *below], [2 * level + 1, *below]]
    chain = 2 * levels
    rows += [[chain + k, chain + k + 1] for k in range(levels)]
    return [*rows, [0, 1], [chain]], chain + levels + 1


def test_layers_without_exit_are_walked_once() -> None:
    """89 rows, 231 edges: a moment, though there are 2**29 ways down."""
    rows, n_columns = ladder(29)
    start = np.cumsum([0, *map(len, rows)])
    columns = np.concatenate([np.array(row) for row in rows])
    assert (len(rows), len(columns)) == (89, 231)
    match(start, columns, n_columns)  # compiled
    began = time.perf_counter()
    column_of = match(start, columns, n_columns)
    assert time.perf_counter() - began < 1.0
    assert (column_of >= 0).sum() == 88


def test_an_edge_may_be_there_twice() -> None:
    """As in a sparse matrix with duplicates."""
    assert match([0, 3, 5], [0, 0, 0, 0, 0], 1).tolist() == [0, -1]


@pytest.mark.parametrize(
    ("start", "columns", "message"),
    [
        ([0, 1], [2], r"columns\[0\] = 2: columns are 0 .. 1"),
        ([0, 2], [0], "start has to rise"),
        ([0, 2, 1, 2], [0, 1], "start has to rise"),
        ([], [], "start has to rise"),
    ],
)
def test_what_is_no_graph(start: list[int], columns: list[int], message: str) -> None:
    """It is refused before a kernel sees it."""
    with pytest.raises(InputError, match=message):
        match(np.array(start, dtype=int), np.array(columns, dtype=int), 2)


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
