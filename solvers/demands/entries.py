"""The entries that are left of a demand, and the matching of them that is worth most."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import kernel


class Left(NamedTuple):
    """The entries that are left of a demand, row by row, and room to work in."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    ticks: NDArray[np.int64]
    worth: NDArray[np.float64]  # of a tick
    value: NDArray[np.float64]  # of a slot
    lengths: NDArray[np.int64]  # (choices)


class PortVectors(NamedTuple):
    """Vectors of all ports, so that kernels allocate nothing."""

    row_price: NDArray[np.float64]
    column_price: NDArray[np.float64]
    distance: NDArray[np.float64]  # of columns
    column_of: NDArray[np.int64]
    row_of: NDArray[np.int64]
    first: NDArray[np.int64]  # (n + 1): of the entries of a row
    before: NDArray[np.int64]  # the row by which a column is reached
    reached: NDArray[np.int64]  # columns in the order they were settled, then others
    seen: NDArray[np.int64]  # of columns: 0 not reached, 1 reached, 2 settled


@kernel
def assign_entries(space, left, count):
    """Write the matching of the greatest ``left.value`` to ``space.column_of``, -1 for none.

    Augmenting paths are shortest ones over the entries alone. A path from a new row ends at a free
    column, or at a row that is better off without one.
    """
    u, v, distance = space.row_price, space.column_price, space.distance
    column_of, row_of, first = space.column_of, space.row_of, space.first
    n = len(u)
    for k in range(n):
        v[k], column_of[k], row_of[k], space.seen[k] = 0.0, -1, -1, 0
    entry = 0
    for row in range(n):
        first[row] = entry
        while entry < count and left.row[entry] == row:
            entry += 1
    first[n] = count
    for start in range(n):
        u[start] = 0.0
        for entry in range(first[start], first[start + 1]):
            u[start] = max(u[start], left.value[entry] - v[left.column[entry]])
        row, far, settled, reached = start, 0.0, 0, 0
        least, last, end = u[start], start, -1  # cost of leaving this row without a column
        while True:
            for entry in range(first[row], first[row + 1]):
                column = left.column[entry]
                d = far + u[row] + v[column] - left.value[entry]
                if space.seen[column] == 0:
                    space.seen[column] = 1
                    space.reached[reached] = column
                    reached += 1
                    distance[column], space.before[column] = d, row
                elif space.seen[column] == 1 and d < distance[column]:
                    distance[column], space.before[column] = d, row
            place, nearest = -1, least
            for k in range(settled, reached):
                d = distance[space.reached[k]]
                if d < nearest or (d == nearest and place < 0):
                    place, nearest = k, d
            if place < 0:
                break
            column = space.reached[place]
            space.reached[place] = space.reached[settled]
            space.reached[settled] = column
            space.seen[column] = 2  # final, whatever rounding does to the path back
            settled += 1
            far = nearest
            if row_of[column] < 0:
                least, end = far, column
                break
            row = row_of[column]
            if far + u[row] < least:
                least, last = far + u[row], row
        u[start] -= least
        for k in range(settled):
            column = space.reached[k]
            if row_of[column] >= 0:
                u[row_of[column]] -= least - distance[column]
            v[column] += least - distance[column]
        for k in range(reached):
            space.seen[space.reached[k]] = 0
        if end < 0:  # the last row gives its column to the one before it
            end = column_of[last]
            column_of[last] = -1
        while end >= 0:
            row = space.before[end]
            row_of[end] = row
            end, column_of[row] = column_of[row], end
