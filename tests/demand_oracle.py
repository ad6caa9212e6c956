"""Best schedules of tiny demands by Dijkstra over all that may remain: too simple to be wrong."""

from __future__ import annotations

import heapq
from itertools import permutations

import numpy as np
from numpy.typing import NDArray


def best_makespan(ticks: NDArray[np.int64], delay: int) -> int:
    """Find the earliest completion in ticks, all-stop on one plane, slots of whole ticks."""
    n = len(ticks)
    matchings = [np.eye(n, dtype=np.int64)[list(order)] for order in permutations(range(n))]
    start = tuple(ticks.ravel().tolist())
    waiting, done = [(0, start)], set()
    while waiting:
        cost, state = heapq.heappop(waiting)
        if state in done:
            continue
        done.add(state)
        left = np.array(state).reshape(n, n)
        if not left.any():
            return cost
        for matching in matchings:
            for duration in range(1, int((left * matching).max()) + 1):
                after = tuple(np.maximum(left - duration * matching, 0).ravel().tolist())
                if after not in done:
                    heapq.heappush(waiting, (cost + delay + duration, after))
    raise AssertionError("everything can be carried")


def fewest_matchings(ticks: NDArray[np.int64]) -> int:
    """Find the fewest permutations with whole weights that add up to a matrix of equal sums."""
    n = len(ticks)
    matchings = [np.eye(n, dtype=np.int64)[list(order)] for order in permutations(range(n))]
    states, count = {tuple(ticks.ravel().tolist())}, 0
    while not any(sum(state) == 0 for state in states):
        following = set()
        for state in states:
            left = np.array(state).reshape(n, n)
            for matching in matchings:
                for weight in range(1, int(left[matching == 1].min()) + 1):
                    following.add(tuple((left - weight * matching).ravel().tolist()))
        states, count = following, count + 1
    return count
