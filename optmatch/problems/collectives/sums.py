"""The bound of all-reduces between islands: a linear programme over the rounds of rails.

Take a byte, the first round t after which an island has it of all ranks, and the islands F that
then do. J is one of F. Of the sends of this byte over rails let M be those up to t, without those
of round t into others of F; and N the rest. All data of other islands leave them in M, and every
island but J hears in N. With I islands of g members, write m for the islands whose data have all
left by some round, n for those that first hear in N after it, and l for sends inside islands:

1. Of the m islands of a round r each member sends in M itself, or told another before that:
   ``l(before r) + M(to r) >= g m(to r)``. And a round in which so many islands come to an end has
   as many sends of M.
2. Who hears nothing in N before r learns all in r or later, over rails in r or later, or inside
   after r: ``l(after r) + N(from r) >= g n(from r)``. A round has as many sends of N as islands
   that hear first.
3. Gossip of k takes 2 (k - 1) messages: of islands over rails, and of ranks in all. Let e be the
   sends over rails beyond ``2 (I - 1)``.
4. ``m(to r) + n(after r) >= I - 1``, and about twice that for one r. Let f islands be in F, and u
   islands have data that first leave in t. All of F hear of each then, so for f > 1 and u > 1
   ``e >= (f - 1)(u - 1) + 1 - min(u, f)``; and e >= 1 for f > 2. So u <= e for f > 3, and then
   ``m(to t - 1) + n(from t) >= 2 (I - 1) - e``. For f < 4 it is
   ``m(to t) + n(after t) >= 2 (I - 1) - (f - 1)``; and ``m(to t - 1) + n(after t)`` is at least
   2 I - 5 - e for f = 2, and 2 I - 6 - e for f = 3.

The means over all bytes obey the same, so they are the variables. Before the first and after the
last round over rails links have time only if rounds are spent on them. The solver is not trusted:
what counts is the sum of its multipliers, less what they are off.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_PROGRAMMED = 24
"""Rounds over rails up to which there is a programme."""
_MOST = 10.0
"""A bound is at most so many times what rounds and bytes over rails take."""

Part = tuple[slice, NDArray[Any] | float]


@lru_cache(maxsize=4096)
def bound_sums_s(
    islands: int,
    members: int,
    size_bytes: float,
    costs: tuple[float, float, float, float],
    rounds: int,
) -> float:
    """Bound an all-reduce with so many rounds over rails, without delays.

    `costs` are alpha and rate of circuits, and of islands.
    """
    alpha_s, rate, island_alpha_s, link_rate = costs
    n, times, others = islands * members, 2 * rounds + 1, islands - 1
    least_s = alpha_s * rounds + 2 * others * size_bytes / (n * rate)
    over, inside = size_bytes / n / (rate * least_s), size_bytes / n / (link_rate * least_s)
    # Sends of M and N, m and n, and e, by round, and three kinds (f = 1 and > 3, 2, and 3); sends
    # inside, and lengths, by time: a pause, a round, a pause, a round, ...
    place = np.cumsum([0, *[rounds] * 5, 3 * rounds, times, times])
    first, then, left, heard, spare, kind, told, long = (slice(a, b) for a, b in pairwise(place))
    rows: list[NDArray[np.float64]] = []
    least: list[float] = []

    def ask(at_least: float, *parts: Part) -> None:
        row = np.zeros(place[-1])
        for where, factors in parts:
            row[where] += factors
        rows.append(row)
        least.append(at_least)

    turn, time = np.arange(rounds), np.arange(times)
    for r in range(rounds):
        to, since, at = 1.0 * (turn <= r), 1.0 * (turn >= r), 1.0 * (turn == r)
        ask(0.0, (told, time < 2 * r + 1), (first, to), (left, -members * to))
        ask(0.0, (told, time > 2 * r + 1), (then, since), (heard, -members * since))
        ask(0.0, (first, at), (left, -at))
        ask(0.0, (then, at), (heard, -at))
        kinds = np.kron([-others, 1 - others, 2 - others], at)
        ask(others, (left, to), (heard, since - at), (spare, at), (kind, kinds))
        kinds = np.kron([0, 3 - others, 4 - others], at)
        near = at + (turn == r - 1)
        ask(others, (left, to - at), (heard, since - at), (spare, near), (kind, kinds))
        length = (long, 1.0 * (time == 2 * r + 1))
        ask(alpha_s / least_s, length, (first, -over * at), (then, -over * at))
    ask(2 * others, (first, 1.0), (then, 1.0), (spare, -1.0))
    ask(0.0, (spare, 1.0), (kind, np.repeat([0.0, 0.0, -1.0], rounds)))
    for part in (left, heard):
        ask(others, (part, 1.0))
        ask(-others, (part, -1.0))
    ask(2 * (n - 1), (first, 1.0), (then, 1.0), (told, 1.0))
    ask(1.0, (kind, 1.0))
    most = np.full(place[-1], 1.0)
    most[first] = most[then] = _MOST / over
    most[left] = most[heard] = others
    most[spare], most[long], most[told] = 2 * rounds * _MOST / over, _MOST, _MOST / inside
    found = []
    for ends in product((False, True), repeat=2):
        fixed = np.where(time % 2, min(alpha_s, island_alpha_s), 0.0)
        fixed[[0, -1]] = island_alpha_s * np.array(ends)
        limits = most.copy()
        limits[told.start], limits[told.stop - 1] = np.array(ends) * _MOST / inside
        factors = np.zeros((times, place[-1]))
        factors[:, told], factors[:, long] = -inside * np.eye(times), np.eye(times)
        rows_, least_ = np.vstack([rows, factors]), np.append(least, fixed / least_s)
        found.append(_multiply(rows_, least_, 1.0 * (np.arange(place[-1]) >= long.start), limits))
    return min(_MOST, *found) * least_s


def _multiply(
    rows: NDArray[np.float64],
    least: NDArray[np.float64],
    goal: NDArray[np.float64],
    most: NDArray[np.float64],
) -> float:
    """Bound ``goal x`` where ``rows x >= least`` and ``0 <= x <= most``, by multipliers."""
    from scipy.optimize import linprog

    limits = np.column_stack([np.zeros(len(most)), np.where(most > 0, np.inf, 0.0)])
    solved = linprog(goal, -rows, -least, bounds=limits)
    if solved.status:
        return 0.0
    factors = np.maximum(-solved.ineqlin.marginals, 0.0)
    return float(factors @ least - np.maximum(factors @ rows - goal, 0.0) @ most)
