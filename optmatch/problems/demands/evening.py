"""Whole numbers for matrices whose lines agree in sum to rounding, so that they agree exactly."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.demands.ticks import ROUNDED_TICKS

AGREEING = 1e-9
"""Sums that differ by less than this share differ by rounding."""

_DIGITS = 12  # of decimal numbers that were added up in floats
_NOISE = 1e-12  # of a line: what adding leaves


class Evened(NamedTuple):
    """A matrix in ticks all lines of which have the same sum."""

    tick_s: float
    ticks: NDArray[np.int64]


def even_out(
    seconds: NDArray[np.float64],
    *,
    delay_s: float = 0.0,
    quantum_s: float | None = None,
    symmetric: bool = False,
) -> Evened | None:
    """Round a matrix to ticks, up or down, so that all lines have the same sum.

    Parameters
    ----------
    seconds
        ``seconds[source, destination]`` >= 0.
    delay_s
        A multiple of the tick, if there is no quantum.
    quantum_s
        The tick; lines may differ by less than half of it from their mean. None for decimal
        numbers as they were before they were added up, or a tick of 1e-12 of a line; lines then
        agree up to `AGREEING`.
    symmetric
        Whether the result is to be symmetric, as the matrix is.

    Returns
    -------
    Evened or None
        None if the sums differ by more than rounding. Zeros stay zero.

    Examples
    --------
    >>> evened = even_out(np.array([[0.1 + 0.2, 0.7], [0.7, 0.3]]))
    >>> evened.tick_s, evened.ticks.tolist()
    (0.1, [[3, 7], [7, 3]])
    """
    sums = np.concatenate([seconds.sum(axis=1), seconds.sum(axis=0)])
    mean = float(sums.mean())
    apart = float(np.abs(sums - mean).max())
    if quantum_s is not None:
        return None if apart > quantum_s / 2 else _round(seconds, mean, quantum_s, symmetric)
    if apart > AGREEING * mean:
        return None
    decimal = None if delay_s else _decimals(seconds, mean)
    if decimal is not None:
        return decimal
    tick = mean / ROUNDED_TICKS
    return _round(seconds, mean, delay_s / ceil(delay_s / tick) if delay_s else tick, symmetric)


def _decimals(seconds: NDArray[np.float64], mean: float) -> Evened | None:
    """Take numbers for short decimals, if then they are near and the lines agree."""
    for digits in range(_DIGITS + 1):
        ticks = np.rint(seconds * 10.0**digits)
        if np.abs(ticks / 10.0**digits - seconds).max() > _NOISE * mean or ticks.max() > 2**53:
            continue
        sums = np.concatenate([ticks.sum(axis=1), ticks.sum(axis=0)])
        return Evened(10.0**-digits, ticks.astype(np.int64)) if (sums == sums[0]).all() else None
    return None


def _round(
    seconds: NDArray[np.float64], mean: float, tick: float, symmetric: bool
) -> Evened | None:
    """Round to a tick, and half the matrix and its mirror image where it is symmetric."""
    parts = 2 if symmetric else 1
    total = round(mean / tick / parts)
    rounded = _round_lines(seconds * (total / mean), total) if total else None
    if rounded is None:
        return None
    return Evened(tick, rounded + rounded.T if symmetric else rounded)


def _round_lines(amounts: NDArray[np.float64], total: int) -> NDArray[np.int64] | None:
    """Round entries so that each line has the sum `total`, which it has already but for noise.

    Row by row, what is missing goes to the columns that wait longest for theirs; what is then
    left of columns is small, and passed on along the largest entries.
    """
    ticks = np.floor(amounts)
    owed = np.zeros(len(amounts))
    for row, amount in zip(ticks, amounts, strict=True):
        owed += amount - row
        missing = int(np.clip(total - row.sum(), 0, len(row)))
        raised = np.argsort(np.where(amount > row, -owed, np.inf), kind="stable")[:missing]
        raised = raised[amount[raised] > row[raised]]
        row[raised] += 1
        owed[raised] -= 1
    return _settle_lines(ticks.astype(np.int64), total)


def _settle_lines(ticks: NDArray[np.int64], total: int) -> NDArray[np.int64] | None:
    """Give each line its sum along a spanning tree of large entries, from the leaves on."""
    n = len(ticks)
    missing = total - np.concatenate([ticks.sum(axis=1), ticks.sum(axis=0)])
    nearest = np.zeros(2 * n, dtype=np.int64)  # the best line of the tree to join
    weight = np.full(2 * n, -1, dtype=np.int64)
    outside = np.ones(2 * n, dtype=bool)
    joined: list[int] = []
    for _ in range(2 * n):
        line = int(np.where(outside, weight, -2).argmax())
        if weight[line] <= 0:
            nearest[line] = -1  # the first line of what hangs together
        outside[line] = False
        joined.append(line)
        crossing = ticks[line] if line < n else ticks[:, line - n]
        others = np.arange(n, 2 * n) if line < n else np.arange(n)
        better = others[outside[others] & (crossing > np.maximum(weight[others], 0))]
        weight[better], nearest[better] = crossing[better % n], line
    for line in reversed(joined):
        other = int(nearest[line])
        if other >= 0:
            place = (line, other - n) if line < n else (other, line - n)
            ticks[place] += missing[line]
            missing[other] -= missing[line]
        elif missing[line]:
            return None
    return None if (ticks < 0).any() else ticks
