"""The entries that are left of a demand, and the matching of them that is worth most."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel, kernel


class Left(NamedTuple):
    """The entries that are left of a demand, row by row, and room to work in."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    ticks: NDArray[np.int64]
    worth: NDArray[np.float64]  # of a tick
    value: NDArray[np.float64]  # of a slot
    lengths: NDArray[np.float64]  # (choices)
    total: NDArray[np.float64]  # of the best values of rows, for each choice
    most: NDArray[np.float64]  # of a row, for each choice


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


_BIDS = 20  # of a port, in the mean, before paths are searched


@inner_kernel
def _bid(space, left):
    """Let rows bid for columns, as in an auction whose prices rise to the second best offer."""
    u, v, first = space.row_price, space.column_price, space.first
    column_of, row_of, n = space.column_of, space.row_of, len(space.row_price)
    bids = _BIDS * n
    for start in range(n):
        row = start
        while row >= 0:
            best, most, second = -1, 0.0, 0.0
            for entry in range(first[row], first[row + 1]):
                column = left.column[entry]
                gain = left.value[entry] - v[column]
                less = gain if gain < most else most
                second = less if less > second else second
                best = column if gain > most else best
                most = gain if gain > most else most
            u[row] = most
            sent_away = -1 if best < 0 else row_of[best]
            bids -= 1
            if best < 0 or (sent_away >= 0 and (most == second or bids < 0)):
                break
            v[best], u[row] = v[best] + most - second, second
            row_of[best], column_of[row] = row, best
            if sent_away >= 0:
                column_of[sent_away] = -1
            row = sent_away


@kernel
def assign_entries(space, left, count):
    """Write the matching of the greatest ``left.value`` to ``space.column_of``, -1 for none.

    First rows bid for columns (Jonker and Volgenant 1987). Those that are left take augmenting
    paths, shortest ones over the entries alone: each ends at a free column, or at a row that is
    better off without one.
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
    _bid(space, left)
    for start in range(n):
        if column_of[start] >= 0 or u[start] == 0.0:
            continue
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
