"""Whole numbers for times: a quantum of demands and delays, and matrices whose lines agree."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, gcd
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError

EXACT_TICKS = 2**49
"""Line sums below this survive the way to float64 seconds and back, with the rounding of a product
and of a quotient."""

_WHOLE = 2**53  # whole floats below this are exact

ROUNDED_TICKS = 2**40
"""Ticks in the largest line sum where no exact quantum exists: a rounding of 1e-12."""

TOTAL_TICKS = 2**62
"""All ticks of a demand together stay below this, so that sums of them fit in int64."""

_NOISE = 1e-9
"""A count this near to a whole number, relatively, is that number."""

_SMALLEST, _LARGEST = 1e-280, 1e305  # numbers far from the ends of float64


class Scaled(NamedTuple):
    """A demand in ticks.

    ``demand[source, destination] * tick_s`` is the demand in seconds, exactly or rounded up. A
    number within a relative 1e-9 of a whole number of ticks counts as that number.
    """

    tick_s: float
    demand: NDArray[np.int64]
    delay: int
    min_slot: int
    exact: bool


def scale(
    demand_bytes: NDArray[np.float64],
    rate_bytes_per_s: float,
    delay_s: float,
    min_slot_s: float,
    quantum_s: float | None,
) -> Scaled:
    """Count a demand, the delay and the shortest slot in ticks.

    With `quantum_s` that is the tick; None takes the largest in which everything is an integer, if
    there is one. The delay must be whole ticks. Demands are rounded up where a quantum is given
    that does not divide them, or none exists.

    Decimal numbers are taken at their word: 0.1 is one tenth, not the nearest binary fraction.
    """
    rate, delay, min_slot = map(_fraction, (rate_bytes_per_s, delay_s, min_slot_s))
    with np.errstate(over="ignore"):
        seconds = float(demand_bytes.sum() / rate_bytes_per_s)
    if demand_bytes.any() and not _SMALLEST < seconds < _LARGEST:
        raise InputError(
            f"demand_bytes adds up to {seconds:g} s: {_SMALLEST:g} to {_LARGEST:g} s are allowed",
            where="demand_bytes",
        )
    if len(demand_bytes) * max(delay, min_slot) > _LARGEST:
        name, least = ("delay_s", delay) if delay >= min_slot else ("min_slot_s", min_slot)
        rule = f"{len(demand_bytes)} slots take more than {_LARGEST:g} s"
        raise InputError(f"{name} = {float(least):g}: {rule}", where=name)
    line_s = Fraction(_largest_line(demand_bytes)) / rate
    if quantum_s is not None:
        tick = _fraction(quantum_s)
        scaled = _on_quantum(demand_bytes, rate, delay, min_slot, tick, _NOISE)
        _check_line("quantum_s", tick, line_s, rate)
        return scaled
    if delay > 0:
        _check_line("delay_s", delay, line_s, rate)
    found = _integers(demand_bytes)
    if found is not None:
        integers, unit = found
        tick = _common(unit / rate, delay, min_slot) or Fraction(1)  # nothing takes any time
        factor = int(unit / rate / tick)
        times = len(integers) * int(delay / tick) + int(min_slot / tick)
        if factor * _largest_line(integers) + times < EXACT_TICKS:
            ticks = integers * factor
            return Scaled(float(tick), ticks, int(delay / tick), int(min_slot / tick), True)
    tick = max(line_s, delay, min_slot) / ROUNDED_TICKS
    if delay:
        tick = delay / ceil(delay / tick)
    return _on_quantum(demand_bytes, rate, delay, min_slot, tick, 0.0)


def _check_line(name: str, unit_s: Fraction, line_s: Fraction, rate: Fraction) -> None:
    """Refuse a line that is so many times the delay or the quantum that floats cannot tell.

    A slot may carry a whole line, and its duration is written in seconds, as a float64: it has to
    tell how many ticks that are. No tick is longer than the delay.

    Parameters
    ----------
    name
        The field that `unit_s` is from.
    unit_s
        The delay or the quantum, in seconds.
    line_s
        The largest sum of a row or a column, in seconds of a circuit.
    rate
        Bytes per second of a circuit.
    """
    if line_s < _WHOLE * unit_s:
        return
    raise InputError(
        f"the busiest port of demand_bytes takes {float(line_s):g} s at rate_bytes_per_s ="
        f" {float(rate):g}, which is {float(line_s / unit_s):.3g} times {name} ="
        f" {float(unit_s):g} s: less than {_WHOLE:.3g} times is allowed (is the rate missing, or a"
        " time in another unit?)",
        where=name,
    )


def _on_quantum(
    demand_bytes: NDArray[np.float64],
    rate: Fraction,
    delay: Fraction,
    min_slot: Fraction,
    tick: Fraction,
    noise: float,
) -> Scaled:
    delay_ticks = round(delay / tick)
    if abs(delay_ticks * tick - delay) > delay / 10**9:
        raise InputError(
            f"quantum_s = {float(tick):g}: does not divide the delay of {float(delay):g} s",
            where="quantum_s",
        )
    bytes_per_tick, shortest = rate * tick, count_up(min_slot / tick, noise)
    total = Fraction(float(demand_bytes.sum())) / bytes_per_tick + demand_bytes.size
    if total + len(demand_bytes) * (delay_ticks + shortest) >= TOTAL_TICKS:
        raise InputError(
            f"demand_bytes in ticks of {float(tick):g} s overflows: a larger quantum_s is needed",
            where="demand_bytes",
        )
    unit = float(min(max(bytes_per_tick, Fraction(_SMALLEST)), Fraction(_LARGEST)))
    amounts = np.maximum(demand_bytes / unit, np.where(demand_bytes > 0, _SMALLEST, 0.0))
    ticks = count_all_up(amounts, noise)
    off = np.abs(amounts - ticks) > np.maximum(amounts, 1.0) * 2.0**-50  # too much for floats
    exact = not off.any() and all(
        (_fraction(value) / bytes_per_tick).denominator == 1
        for value in np.unique(demand_bytes).tolist()
    )
    return Scaled(float(tick), ticks, delay_ticks, shortest, exact)


def count_up(amount: Fraction | float, noise: float = _NOISE) -> int:
    """Round up to a whole number, which an amount is already that noise alone keeps from it."""
    exactly, nearest = Fraction(amount), round(amount)
    near = abs(exactly - nearest) <= nearest * Fraction(noise)
    return nearest if near else ceil(amount)


def count_all_up(amounts: NDArray[np.float64], noise: float = _NOISE) -> NDArray[np.int64]:
    """Round up as `count_up` does."""
    nearest = np.rint(amounts)
    whole = np.abs(amounts - nearest) <= nearest * noise
    return np.where(whole, nearest, np.ceil(amounts)).astype(np.int64)


def _integers(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], Fraction] | None:
    """Write values as integers without common factor times a decimal or binary unit."""
    largest = float(values.max(initial=0.0))
    if largest == 0.0:
        return np.zeros(values.shape, dtype=np.int64), Fraction(0)
    positive = values[values > 0]
    for digits in range(23):  # up to here powers of ten are exact in float64
        power = 10.0**digits
        if not np.rint(largest * power) < _WHOLE:
            break
        if all(_is_whole(some, power) for some in (positive[:16], positive)):  # most fail at once
            return _reduced(np.rint(values * power).astype(np.int64), Fraction(1, 10**digits))
    mantissas, exponents = np.frexp(positive)
    whole = (mantissas * 2.0**53).astype(np.int64)
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    lowest = int((exponents - 53 + trailing).min())
    if np.frexp(largest)[1] - lowest > 53:
        return None
    return _reduced(np.ldexp(values, -lowest).astype(np.int64), Fraction(2) ** lowest)


def _is_whole(values: NDArray[np.float64], power: float) -> bool:
    """Tell whether all are whole numbers over a power of ten."""
    return bool((np.rint(values * power) / power == values).all())


def _reduced(integers: NDArray[np.int64], unit: Fraction) -> tuple[NDArray[np.int64], Fraction]:
    common = 0
    for row in integers:  # one row tells in general that there is no common factor
        common = int(np.gcd.reduce(row, initial=common))
        if common == 1:
            return integers, unit
    return integers // common, unit * common


def _largest_line(matrix: NDArray[np.int64] | NDArray[np.float64]) -> int | float:
    sums = matrix.sum(axis=1).tolist() + matrix.sum(axis=0).tolist()
    return max(sums, default=0)


def _common(*numbers: Fraction) -> Fraction:
    """Find the largest number of which all are whole multiples."""
    common = Fraction(0)
    for number in numbers:
        denominator = common.denominator * number.denominator
        numerator = gcd(
            common.numerator * number.denominator, number.numerator * common.denominator
        )
        common = Fraction(numerator, denominator)
    return common


def _fraction(value: float) -> Fraction:
    return Fraction(repr(value))


AGREEING = 1e-9
"""Sums that differ by less than this share differ by rounding."""

_DIGITS = 12  # noise of decimal numbers that were added up in floats
_ADDED = 1e-12  # noise of a line after adding up


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
    shortest = min(count_up(min_slot_s / tick), TOTAL_TICKS // len(rounded))
    return Scaled(tick, rounded, round(delay_s / tick), shortest, False)


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
        if np.abs(ticks / 10.0**digits - seconds).max() > _ADDED * mean or ticks.max() > 2**53:
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
            nearest[line] = -1  # the first line of a connected part
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
