"""Permutations of least cost, one after the other: prices of columns are kept in between."""

from __future__ import annotations

import numpy as np

from optmatch.solvers.kernel import kernel


@kernel
def _assign(cost, prices, column_of, row_of, distance, before, seen):
    """Find the permutation of least cost, by shortest augmenting paths.

    Any prices will do to start from; those of a similar problem make the paths short. No float
    decides whether this ends: every path takes each column once.
    """
    n = len(cost)
    row_of[:] = -1
    for row in range(n):
        best = 0
        for column in range(1, n):
            if cost[row, column] - prices[column] < cost[row, best] - prices[best]:
                best = column
        column_of[row] = -1
        if row_of[best] < 0:
            row_of[best] = row
            column_of[row] = best
    for start in range(n):
        if column_of[start] >= 0:
            continue
        for column in range(n):
            distance[column] = np.inf
            seen[column] = False
        row, far, used = start, 0.0, 0.0
        while True:
            nearest, chosen = np.inf, -1
            for column in range(n):
                if seen[column]:
                    continue
                d = far + (cost[row, column] - prices[column]) - used
                if d < distance[column]:
                    distance[column] = d
                    before[column] = row
                if chosen < 0 or distance[column] < nearest:
                    nearest, chosen = distance[column], column
            far = nearest
            seen[chosen] = True
            if row_of[chosen] < 0:
                break
            row = row_of[chosen]
            used = cost[row, chosen] - prices[chosen]
        for column in range(n):
            if seen[column]:
                prices[column] += distance[column] - far
        column = chosen
        while True:
            row = before[column]
            row_of[column] = row
            column, column_of[row] = column_of[row], column
            if row == start:
                break


@kernel
def peel_cheapest(left, line_sum, stop, barrier, prices, permutations, weights):
    """Peel permutations, each of least cost, until lines sum to `stop`.

    Without a barrier the cost of an entry is what is missing to the largest; with one, it is
    1 / (entry + barrier), which keeps away from entries that would end the step early. Zeros cost
    more than any permutation without. Returns how many terms there are, -1 if none without zeros
    was found.
    """
    n = len(left)
    column_of = np.empty(n, dtype=np.int64)
    row_of = np.empty(n, dtype=np.int64)
    before = np.empty(n, dtype=np.int64)
    distance = np.empty(n)
    seen = np.empty(n, dtype=np.bool_)
    cost = np.empty((n, n))
    largest = float(left.max())
    top = 1.0 / (1.0 + barrier) if barrier > 0.0 else largest
    for row in range(n):
        for column in range(n):
            value = left[row, column]
            if value == 0:
                cost[row, column] = 2.0 * n * top
            elif barrier > 0.0:
                cost[row, column] = 1.0 / (value + barrier)
            else:
                cost[row, column] = largest - value
    for term in range(len(weights)):
        if line_sum <= stop:
            return term
        _assign(cost, prices, column_of, row_of, distance, before, seen)
        weight = left[0, column_of[0]]
        for row in range(n):
            weight = min(weight, left[row, column_of[row]])
        if weight == 0:
            return -1
        line_sum -= weight
        weights[term] = weight
        for row in range(n):
            column = column_of[row]
            permutations[term, row] = column
            left[row, column] -= weight
            value = left[row, column]
            if value == 0:
                cost[row, column] = 2.0 * n * top
            elif barrier > 0.0:
                cost[row, column] = 1.0 / (value + barrier)
            else:
                cost[row, column] = largest - value
    return len(weights)
