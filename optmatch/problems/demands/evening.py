"""Whole numbers for matrices whose lines agree in sum to rounding, so that they agree exactly."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.demands.ticks import ROUNDED_TICKS, Scaled, count_up

AGREEING = 1e-9
"""Sums that differ by less than this share differ by rounding."""

_DIGITS = 12  # of decimal numbers that were added up in floats
_NOISE = 1e-12  # of a line: what adding leaves


def even_out(
    scaled: Scaled,
    demand_bytes: NDArray[np.float64],
    rate_bytes_per_s: float = 1.0,
    *,
    delay_s: float = 0.0,
    min_slot_s: float = 0.0,
    quantum_s: float | None = None,
    symmetric: bool = False,
) -> Scaled:
    """Round a matrix again, up or down, where its lines agree in sum but not in ticks.

    `scaled` is the matrix in ticks, rounded up; the others say how it was given, as `Demand` does.
    With `quantum_s`, lines may differ by less than half of it from their mean. Without, lines
    agree up to `AGREEING`: entries become decimal numbers as they were before they were added up,
    or have a tick of 1e-12 of a line that divides the delay. `symmetric`: both directions of a
    pair count as one, the larger.

    Nothing changes if lines have the same sum, or differ by more than rounding. Zeros stay zero.
    """
    ticks = np.maximum(scaled.demand, scaled.demand.T) if symmetric else scaled.demand
    whole = (demand_bytes % 1 == 0).all()  # nobody rounds when adding whole numbers
    if _agree(ticks) or whole or (scaled.exact and quantum_s is not None):
        return scaled
    seconds = demand_bytes / rate_bytes_per_s
    amounts = np.maximum(seconds, seconds.T) if symmetric else seconds
    sums = np.concatenate([amounts.sum(axis=1), amounts.sum(axis=0)])
    mean = float(sums.mean())
    if np.abs(sums - mean).max() > (AGREEING * mean if quantum_s is None else quantum_s / 2):
        return scaled
    found = _decimals(amounts, mean) if quantum_s is None and not delay_s else None
    if found is None:
        tick = quantum_s or mean / ROUNDED_TICKS
        if delay_s and quantum_s is None:
            tick = delay_s / ceil(delay_s / tick)
        found = tick, _round(amounts, mean, tick, symmetric)
    tick, rounded = found
    if rounded is None:
        return scaled
    return Scaled(tick, rounded, round(delay_s / tick), count_up(min_slot_s / tick), False)


def _agree(ticks: NDArray[Any]) -> bool:
    """Tell whether all lines have the same sum."""
    sums = np.concatenate([ticks.sum(axis=1), ticks.sum(axis=0)])
    return bool((sums == sums[:1]).all())


def _decimals(
    seconds: NDArray[np.float64], mean: float
) -> tuple[float, NDArray[np.int64] | None] | None:
    """Take numbers for short decimals, if then they are near and the lines agree."""
    for digits in range(_DIGITS + 1):
        ticks = np.rint(seconds * 10.0**digits)
        if np.abs(ticks / 10.0**digits - seconds).max() > _NOISE * mean or ticks.max() > 2**53:
            continue
        return (10.0**-digits, ticks.astype(np.int64)) if _agree(ticks) else None
    return None


def _round(
    seconds: NDArray[np.float64], mean: float, tick: float, symmetric: bool
) -> NDArray[np.int64] | None:
    """Round to a tick, and half the matrix and its mirror image where it is symmetric."""
    parts = 2 if symmetric else 1
    total = round(mean / tick / parts)
    rounded = _round_lines(seconds * (total / mean), total) if total else None
    return rounded + rounded.T if symmetric and rounded is not None else rounded


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
