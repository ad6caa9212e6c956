"""Stuffing: raise entries of a matrix until all lines have the sum of its largest line."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.solvers.demands.terms import whole_square
from optmatch.solvers.kernels.decorators import kernel


@kernel
def _raise_in_order(places, matrix, rows, columns):
    """Raise entries one by one by what both of their lines lack."""
    n = len(matrix)
    for place in places:
        row = place // n
        column = place - row * n
        add = min(rows[row], columns[column])
        matrix[row, column] += add
        rows[row] -= add
        columns[column] -= add


def stuff(ticks: ArrayLike) -> NDArray[np.int64]:
    r"""Raise entries until the sum of each line is that of the largest.

    The result is a sum of weighted permutations, and adds the least possible amount in total.
    Entries that are not zero come first, the largest first, each as far as its lines allow; then
    zeros.

    Whole numbers >= 0 become int64, nowhere less than they were.

    QuickStuff of Solstice (Liu et al. 2015, doi 10.1145/2716281.2836126), in time
    :math:`O(n^2 \log n)`.
    """
    matrix = whole_square(ticks)
    if not matrix.any():
        return matrix
    rows, columns = matrix.sum(axis=1), matrix.sum(axis=0)
    most = max(rows.max(), columns.max())
    by_size = np.argsort(-matrix, axis=None, kind="stable")
    _raise_in_order(by_size, matrix, most - rows, most - columns)
    return matrix
