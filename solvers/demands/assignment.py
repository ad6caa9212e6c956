"""Assignments: the perfect matching of greatest value, found again and again for similar values.

All kernels for demands that ask for an assignment share the code and the workspace that are here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import kernel

CHOICES = 16
"""The number of problems that come in turn whose column prices are kept."""

RANKED = 1024
"""The number of remaining demands from which only a part is ranked."""


class AssignmentSpace(NamedTuple):
    """Room to work in, so that kernels allocate nothing."""

    value: NDArray[np.float64]  # (n, n)
    weight: NDArray[np.float64]  # (n, n): the weight of a tick of service on this circuit
    row_price: NDArray[np.float64]
    column_price: NDArray[np.float64]
    known_price: NDArray[np.float64]  # (choices, n): of columns, for each length in the last slot
    distance: NDArray[np.float64]
    column_of: NDArray[np.int64]
    row_of: NDArray[np.int64]
    before: NDArray[np.int64]
    open_columns: NDArray[np.int64]
    rows_seen: NDArray[np.int64]
    columns_seen: NDArray[np.int64]
    sizes: NDArray[np.int64]  # (ranked): remaining demands, of which lengths are chosen
    bounds: NDArray[np.float64]  # (ranked): the most that a slot of each length may serve


def new_workspace(n: int) -> AssignmentSpace:
    """Make room for demands of n ports."""
    squares, indices = np.zeros((2, n, n)), np.zeros((6, n), dtype=np.int64)
    lines = [np.zeros(shape) for shape in (n, n, (CHOICES, n), n)]
    ranked = np.zeros(RANKED, dtype=np.int64), np.zeros(RANKED)
    return AssignmentSpace._make([*squares, *lines, *indices, *ranked])


@kernel
def assign(space):
    """Write the perfect matching of greatest ``space.value`` to ``space.column_of``; return it.

    By shortest augmenting paths, with row + column price >= value throughout. Any column prices
    will do to start from; those of similar values make the paths few and short.
    """
    value, row_price, column_price = space.value, space.row_price, space.column_price
    column_of, row_of = space.column_of, space.row_of
    n = len(value)
    row_of[:] = -1
    for row in range(n):
        best = 0
        most = value[row, 0] - column_price[0]
        for column in range(1, n):
            left = value[row, column] - column_price[column]
            if left > most:
                best, most = column, left
        row_price[row] = most
        column_of[row] = -1
        if row_of[best] < 0:
            row_of[best] = row
            column_of[row] = best
    for start in range(n):
        if column_of[start] >= 0:
            continue
        for k in range(n):
            space.distance[k] = np.inf
            space.open_columns[k] = k
        n_open, seen = n, 0
        row, far, end = start, 0.0, -1
        while end < 0:
            nearest, place = np.inf, -1
            for k in range(n_open):
                column = space.open_columns[k]
                d = far + row_price[row] + column_price[column] - value[row, column]
                if d < space.distance[column]:
                    space.distance[column] = d
                    space.before[column] = row
                d = space.distance[column]
                if d < nearest or (d == nearest and row_of[column] < 0):
                    nearest, place = d, k
            far = nearest
            column = space.open_columns[place]
            n_open -= 1
            space.open_columns[place] = space.open_columns[n_open]
            if row_of[column] < 0:
                end = column
            else:
                row = row_of[column]
                space.rows_seen[seen] = row
                space.columns_seen[seen] = column
                seen += 1
        row_price[start] -= far
        for k in range(seen):
            left = far - space.distance[space.columns_seen[k]]
            row_price[space.rows_seen[k]] -= left
            column_price[space.columns_seen[k]] += left
        column = end
        while True:
            row = space.before[column]
            row_of[column] = row
            after = column_of[row]
            column_of[row] = column
            if row == start:
                break
            column = after
    total = 0.0
    for row in range(n):
        total += value[row, column_of[row]]
    return total


def assign_afresh(space: AssignmentSpace, value: NDArray[Any]) -> float:
    """Do as `assign`, from prices of zero: a function of these values alone."""
    space.value[:] = value
    space.column_price[:] = 0.0
    total: float = assign(space)
    return total
