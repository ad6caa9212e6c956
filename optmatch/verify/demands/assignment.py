"""How heavy a matching of a small integer matrix can be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def weigh_heaviest(weights: NDArray[np.int64]) -> int:
    """Find the weight of the heaviest matching, by shortest augmenting paths.

    Weights are integers >= 0, shape (n, n); O(n^3). Their sums are exact below 2^61.
    """
    n = len(weights)
    cost = -weights.astype(np.int64)
    u, v = np.zeros(n, dtype=np.int64), np.zeros(n + 1, dtype=np.int64)
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
    return int(weights[row_of[:n], np.arange(n)].sum())
