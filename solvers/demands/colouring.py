"""Edge colouring of regular bipartite multigraphs: k permutations from a matrix with line sums k.

An even degree is halved by going round Euler tours; from an odd one, a perfect matching is taken
first. An edge is a column number; row r has those at ``r * degree .. (r + 1) * degree - 1``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import InputError
from optmatch.solvers.demands.terms import Terms, equal_sums
from optmatch.solvers.kernel import kernel

MOST_EDGES = 2**28
"""`colour` refuses more: its result alone would take a gigabyte."""

_MODULUS = 2**31 - 1  # of a minimal standard generator: its products fit int64
_FACTOR = 48271


@kernel
def _halve(edges, degree, pending, other, first, second):
    """Split edges of even degree into two halves of half the degree.

    Edges 2t and 2t + 1 share a row, and `other` pairs the edges of a column. Going from pair to
    pair closes tours, along which edges go to the halves in turn: each gets one of every pair.
    """
    pending[:] = -1
    for edge in range(len(edges)):
        column = edges[edge]
        before = pending[column]
        if before < 0:
            pending[column] = edge
        else:
            other[edge] = before
            other[before] = edge
            pending[column] = -1
    for pair in range(len(edges) // 2):
        edge = 2 * pair
        while other[edge] >= 0:
            back = edge ^ 1
            first[edge >> 1] = edges[edge]
            second[edge >> 1] = edges[back]
            other[edge] = -1  # done
            after = other[back]
            other[back] = -1
            edge = after


@kernel
def _extract(edges, degree, seed, exit_of, row_of, chosen, rest):
    """Take a perfect matching out of edges of odd degree, by random walks.

    From a row without a column, walk to a random column and on to its row until a column is free.
    The last exits from each row are the walk without its loops, along which columns are exchanged.
    In a regular graph, all walks together take O(n log n) steps on average (Goel, Kapralov and
    Khanna 2013, doi 10.1137/100812513).
    """
    n = len(row_of)
    row_of[:] = -1
    for start in range(n):
        row = start
        while True:
            seed = seed * _FACTOR % _MODULUS
            edge = row * degree + seed % degree
            exit_of[row] = edge
            following = row_of[edges[edge]]
            if following < 0:
                break
            row = following
        row = start
        while row >= 0:
            edge = exit_of[row]
            following = row_of[edges[edge]]
            row_of[edges[edge]] = row
            chosen[row] = edge
            row = following
    size = 0
    for row in range(n):
        for edge in range(row * degree, (row + 1) * degree):
            if edge != chosen[row]:
                rest[size] = edges[edge]
                size += 1
    for row in range(n):
        chosen[row] = edges[chosen[row]]
    return seed


def colour_edges(edges: NDArray[np.integer[Any]], n: int) -> NDArray[np.int32]:
    r"""Colour the edges of a regular bipartite multigraph with as few colours as its degree.

    Parameters
    ----------
    edges
        The columns of each row's edges, one row after the other; every row and every column has
        the same number of edges.
    n
        The number of rows, > 0.

    Returns
    -------
    ndarray
        ``permutations[colour, row] = column``, int32, shape (degree, n).

    Notes
    -----
    Time :math:`O(n d \log d)` for degree d, on average; the result is a function of the input.

    Examples
    --------
    >>> colour_edges(np.array([0, 1, 0, 1]), 2).tolist()
    [[0, 1], [1, 0]]
    """
    degree = len(edges) // n
    permutations = np.empty((degree, n), dtype=np.int32)
    pending = np.empty(n, dtype=np.int32)
    other = np.full(len(edges), -1, dtype=np.int32)
    exit_of = np.empty(n, dtype=np.int64)
    row_of = np.empty(n, dtype=np.int64)
    chosen = np.empty(n, dtype=np.int64)
    done = 0
    seed = 1
    halves = [np.ascontiguousarray(edges, dtype=np.int32)] if degree else []
    while halves:
        edges = halves.pop()
        degree = len(edges) // n
        if degree == 1:
            permutations[done] = edges
            done += 1
        elif degree % 2:
            rest = np.empty(len(edges) - n, dtype=np.int32)
            seed = _extract(edges, degree, seed, exit_of, row_of, chosen, rest)
            permutations[done] = chosen
            done += 1
            halves.append(rest)
        else:
            first, second = np.empty((2, len(edges) // 2), dtype=np.int32)
            _halve(edges, degree, pending, other, first, second)
            halves += [second, first]
    return permutations


def colour(ticks: ArrayLike) -> Terms:
    r"""Write a matrix with equal line sums as that many permutations, all of the same weight.

    The weight is the greatest common divisor of the entries, so a uniform matrix takes n
    permutations. For entries in small units this is far more than `decompose` needs.

    Parameters
    ----------
    ticks
        Whole numbers >= 0, shape (n, n), all line sums the same.

    Returns
    -------
    Terms
        Complete; equal permutations are not put together.

    Raises
    ------
    InputError
        If line sums differ, or there were more than `MOST_EDGES` edges.

    Notes
    -----
    Time :math:`O(n k \log k)` for k permutations, on average.

    Examples
    --------
    >>> terms = colour([[0, 2, 2], [2, 0, 2], [2, 2, 0]])
    >>> terms.permutations.tolist(), terms.weights.tolist()
    ([[1, 2, 0], [2, 0, 1]], [2, 2])
    """
    matrix = equal_sums("ticks", ticks)
    n = len(matrix)
    rest = np.zeros_like(matrix)
    if not matrix.any():
        return Terms(np.empty((0, n), dtype=np.int32), np.empty(0, dtype=np.int64), rest)
    unit = int(np.gcd.reduce(matrix, axis=None))
    degree = int(matrix[0].sum()) // unit
    if degree * n > MOST_EDGES:
        raise InputError(
            f"ticks: {n} lines of {degree} edges, more than {MOST_EDGES} in all; decompose it",
            where="ticks",
        )
    rows, columns = np.nonzero(matrix)
    edges = np.repeat(columns.astype(np.int32), matrix[rows, columns] // unit)
    permutations = colour_edges(edges, n)
    return Terms(permutations, np.full(degree, unit, dtype=np.int64), rest)
