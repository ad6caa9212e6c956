"""Stuffing: raise entries of a matrix until all lines have the sum of its largest line."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import InputError
from optmatch.solvers.demands.terms import whole_square
from optmatch.solvers.kernel import kernel

Stuffing = Literal["quick", "least"]


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


@kernel
def _reroute(usable, added, rows, columns, from_row, from_column, queue):
    """Put as much as possible on usable entries: shortest augmenting paths from rows to columns.

    A column passes on to the rows whose additions to it could go elsewhere.
    """
    n = len(rows)
    while True:
        from_row[:] = -1
        from_column[:] = -1
        size = 0
        for row in range(n):
            if rows[row] > 0:
                from_column[row] = n  # a root
                queue[size] = row
                size += 1
        head = 0
        end = -1
        while head < size and end < 0:
            row = queue[head]
            head += 1
            for column in range(n):
                if from_row[column] >= 0 or not usable[row, column]:
                    continue
                from_row[column] = row
                if columns[column] > 0:
                    end = column
                    break
                for other in range(n):
                    if from_column[other] < 0 and added[other, column] > 0:
                        from_column[other] = column
                        queue[size] = other
                        size += 1
        if end < 0:
            return
        amount = columns[end]
        row = from_row[end]
        while from_column[row] < n:
            column = from_column[row]
            amount = min(amount, added[row, column])
            row = from_row[column]
        amount = min(amount, rows[row])
        rows[row] -= amount
        columns[end] -= amount
        column = end
        while True:
            row = from_row[column]
            added[row, column] += amount
            column = from_column[row]
            if column == n:
                break
            added[row, column] -= amount


def stuff(ticks: ArrayLike, how: Stuffing = "quick") -> NDArray[np.int64]:
    r"""Raise entries until the sum of each line is that of the largest.

    The result is a sum of weighted permutations. Both ways add the same amount in total, the
    least possible; they differ in where.

    Parameters
    ----------
    ticks
        Whole numbers >= 0, shape (n, n).
    how
        ``"quick"``: entries that are not zero first, the largest first, each as far as its lines
        allow; then zeros. ``"least"``: as little as possible on zeros, and on few of them.

    Returns
    -------
    ndarray
        int64, shape (n, n); nowhere less than `ticks`.

    Raises
    ------
    InputError
        If `ticks` is no such matrix, or line sums exceed 2**62.

    Notes
    -----
    ``"quick"`` is QuickStuff of Solstice (Liu et al. 2015, doi 10.1145/2716281.2836126), in time
    :math:`O(n^2 \log n)`; ``"least"`` is a maximum flow on top of it, mostly a few times as long.

    Examples
    --------
    >>> stuff([[3, 1], [0, 2]]).tolist()
    [[3, 1], [1, 3]]
    >>> stuff([[2, 1, 0], [0, 1, 1], [0, 0, 2]], "least").tolist()
    [[2, 1, 0], [0, 2, 1], [1, 0, 2]]
    """
    matrix = whole_square("ticks", ticks)
    if how not in get_args(Stuffing):
        raise InputError(f"how = {how!r}: one of {', '.join(get_args(Stuffing))}", where="how")
    if not matrix.any():
        return matrix
    n = len(matrix)
    rows, columns = matrix.sum(axis=1), matrix.sum(axis=0)
    most = max(rows.max(), columns.max())
    rows, columns = most - rows, most - columns
    by_size = np.argsort(-matrix, axis=None, kind="stable")
    filled = int(np.count_nonzero(matrix))
    if how == "quick":
        _raise_in_order(by_size, matrix, rows, columns)
        return matrix
    stuffed = matrix.copy()
    _raise_in_order(by_size[:filled], stuffed, rows, columns)
    added = stuffed - matrix
    room = np.empty((3, n), dtype=np.int64)
    _reroute(matrix > 0, added, rows, columns, room[0], room[1], room[2])
    stuffed = matrix + added
    # No entry that is not zero joins a row and a column which lack something now.
    order_rows, order_columns = (np.argsort(-lack, kind="stable") for lack in (rows, columns))
    places = (order_rows[:, None] * n + order_columns).ravel()
    _raise_in_order(places, stuffed, rows, columns)
    return stuffed
