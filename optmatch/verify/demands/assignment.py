"""Heaviest matchings of small integer matrices, with potentials that prove how heavy they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Potentials:
    r"""Upper bounds on matchings of n x n matrices that change little from one to the next.

    Potentials :math:`u_i, v_j \ge 0` with :math:`u_i + v_j \ge w_{ij}` show that no matching
    weighs more than their sum. Those of the last matrix are tried first.

    Examples
    --------
    >>> potentials = Potentials(2)
    >>> weights = np.array([[3, 4], [2, 9]])
    >>> potentials.at_most(weights, 12), potentials.at_most(weights, 11)
    (True, False)
    """

    def __init__(self, n: int) -> None:
        self.columns = np.zeros(n, dtype=np.int64)

    def at_most(self, weights: NDArray[np.int64], limit: int) -> bool:
        """Tell whether no matching weighs more than `limit`; weights are >= 0."""
        rows = np.maximum((weights - self.columns).max(axis=1), 0)
        if int(rows.sum()) + int(self.columns.sum()) <= limit:
            return True
        heaviest, self.columns = heaviest_matching(weights)
        return heaviest <= limit


def heaviest_matching(weights: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
    """Find the weight of the heaviest matching, by shortest augmenting paths.

    Weights are integers >= 0, shape (n, n). Returns potentials of the columns that prove it, too.

    Examples
    --------
    >>> heaviest_matching(np.array([[3, 4], [2, 9]]))[0]
    12
    """
    n = len(weights)
    cost = -weights.astype(np.int64)
    u, v = np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1, dtype=np.int64)
    row_of = np.full(n + 1, -1)  # column n is where each search begins
    far = np.iinfo(np.int64).max // 2
    for row in range(n):
        row_of[n] = row
        column = n
        slack, came_from = np.full(n, far), np.full(n, n)
        done = np.zeros(n + 1, dtype=bool)
        while row_of[column] >= 0:
            done[column] = True
            at = row_of[column]
            reached = cost[at] - u[at] - v[:n]
            shorter = ~done[:n] & (reached < slack)
            slack[shorter], came_from[shorter] = reached[shorter], column
            nearest = int(np.where(done[:n], far, slack).argmin())
            step = slack[nearest]
            u[row_of[done]] += step
            v[done] -= step
            slack[~done[:n]] -= step
            column = nearest
        while column != n:
            before = int(came_from[column])
            row_of[column] = row_of[before]
            column = before
    # of the square matrix all columns are matched; raising all by as much makes them >= 0
    columns = -v[:n]
    shift = int(columns.min(initial=0))
    heaviest = int(weights[row_of[:n], np.arange(n)].sum())
    return heaviest, columns - shift
