"""Whole numbers for times: a quantum in which demands and delays are integers."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, gcd
from typing import NamedTuple

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

_SMALLEST, _LARGEST = 1e-280, 1e305  # what is far from the ends of float64


class Scaled(NamedTuple):
    """A demand in ticks.

    ``demand[source, destination] * tick_s`` is the demand in seconds, exactly or rounded up. What
    is a whole number of given ticks up to a relative 1e-9 is that number.
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
    if quantum_s is not None:
        return _on_quantum(demand_bytes, rate, delay, min_slot, _fraction(quantum_s), _NOISE)
    found = _integers(demand_bytes)
    if found is not None:
        integers, unit = found
        tick = _common(unit / rate, delay, min_slot) or Fraction(1)  # nothing takes any time
        factor = int(unit / rate / tick)
        times = len(integers) * int(delay / tick) + int(min_slot / tick)
        if factor * _largest_line(integers) + times < EXACT_TICKS:
            ticks = integers * factor
            return Scaled(float(tick), ticks, int(delay / tick), int(min_slot / tick), True)
    largest = Fraction(_largest_line(demand_bytes)) / rate
    tick = max(largest, delay, min_slot) / ROUNDED_TICKS
    if delay:
        tick = delay / ceil(delay / tick)
    return _on_quantum(demand_bytes, rate, delay, min_slot, tick, 0.0)


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
    nearest = round(amount)
    return nearest if abs(float(amount - nearest)) <= nearest * noise else ceil(amount)


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
    common = int(np.gcd.reduce(integers, axis=None))
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
