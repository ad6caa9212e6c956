"""Whole numbers for times: a quantum of demands and delays, and matrices whose lines agree.

A *tick* is the unit of time in which everything is a whole number; a tick that the user gives is a
*quantum*. *Amounts* are bytes, which take ``amount / rate`` seconds of a circuit. A scaling is
*exact* if no amount had to be rounded. A *line* is a row or a column; lines *agree* if all have
the same sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil, floor, gcd, lcm
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError

_EXACT_TICKS = 2**49
"""Line sums below this survive the way to float64 seconds and back, with the rounding of a product
and of a quotient."""

_LARGEST_WHOLE = 2**53  # whole floats below this are exact

_ROUNDED_TICKS = 2**40
"""Ticks in the largest line sum where no exact quantum exists: a rounding of 1e-12."""

_TOTAL_TICKS = 2**62
"""All ticks of a demand together stay below this, so that sums of them fit in int64."""

_NOISE = 1e-9
"""A count this near to a whole number, relatively, is that number."""

_SMALLEST = 1e-280  # far from the least number of float64
_LARGEST = 1e305  # far from the largest number of float64

_DECIMAL_DIGITS = 23  # powers of ten up to 1e22 are exact in float64

_BLOCK_ROWS = 8192
"""Values that NumPy takes at once: their temporaries stay in the cache of the processor. With all
values of 2,048 x 2,048 ports at once, scaling takes four times as long."""

_LISTED_SHARE = 4
"""Positive entries are listed if they are less than one in so many places."""


class Scaled(NamedTuple):
    """A demand in ticks.

    ``demand[source, destination] * tick_s`` is the demand in seconds, exactly or rounded up. A
    number within a relative 1e-9 of a whole number of ticks counts as that number.
    """

    tick_s: float
    """The length of a tick in seconds."""
    demand: NDArray[np.int64]
    """(n, n): by source and destination; or (places,) of placed amounts."""
    delay: int
    """The reconfiguration delay in ticks."""
    min_slot: int
    """The shortest slot in ticks."""
    exact: bool
    """Whether no number was rounded."""
    places: NDArray[np.int64] | None = None
    """``source * n + destination`` of the entries above 0, ascending; None where many are."""


class PlacedAmounts(NamedTuple):
    """Amounts at places of a square matrix, row by row; an amount may be 0."""

    n_ports: int
    amounts: NDArray[np.float64]
    """Shape (places,), >= 0."""
    sources: NDArray[np.int64] | None
    """Shape (places,), ascending; None if the places are those of the whole matrix."""
    destinations: NDArray[np.int64] | None
    """Shape (places,); None like `sources`."""
    largest_sum: float
    """The largest sum of amounts of a row or a column."""

    @classmethod
    def of_matrix(cls, matrix: NDArray[np.float64]) -> PlacedAmounts:
        """List the positive entries of a matrix, or all places, zeros too, if many are positive.

        Many are one in `_LISTED_SHARE` places.
        """
        n_ports = len(matrix)
        amounts = matrix.reshape(-1)
        with np.errstate(over="ignore"):  # infinite sums are refused by `scale_amounts`
            largest_sum = _largest_line(matrix)
        if np.count_nonzero(matrix) * _LISTED_SHARE >= matrix.size:
            return cls(n_ports, amounts, None, None, largest_sum)
        places = np.flatnonzero(matrix)
        sources = places // max(1, n_ports)
        destinations = places - sources * n_ports
        return cls(n_ports, amounts[places], sources, destinations, largest_sum)

    def largest_line(self, values: NDArray[np.int64] | NDArray[np.float64]) -> int | float:
        """Return the largest sum of a row or a column of values, one for each place."""
        if self.sources is None or self.destinations is None:
            return _largest_line(values.reshape(self.n_ports, self.n_ports))
        sums_of_rows = np.bincount(self.sources, values, minlength=self.n_ports)
        sums_of_columns = np.bincount(self.destinations, values, minlength=self.n_ports)
        return float(max(sums_of_rows.max(initial=0), sums_of_columns.max(initial=0)))


class Times(NamedTuple):
    """The times of a demand as exact numbers, decimal numbers taken at their word."""

    rate: Fraction
    """Bytes per second of a circuit."""
    delay: Fraction
    """The reconfiguration delay in seconds."""
    min_slot: Fraction
    """The shortest slot in seconds."""


def scale(
    demand_bytes: NDArray[np.float64],
    rate_bytes_per_s: float,
    delay_s: float,
    min_slot_s: float,
    quantum_s: float | None,
) -> Scaled:
    """Count a demand, the delay and the shortest slot in ticks, the common unit of time.

    A demand in bytes becomes the time that a circuit takes for it. A tick is chosen such that all
    times are whole numbers of it, where there is such a tick.

    Parameters
    ----------
    demand_bytes
        ``demand_bytes[source, destination]`` >= 0, shape (n, n).
    rate_bytes_per_s
        The rate of a circuit.
    delay_s, min_slot_s
        The reconfiguration delay and the shortest slot in seconds.
    quantum_s
        The tick in seconds; None to choose one, as `scale_amounts` does.

    Returns
    -------
    Scaled
        The length of a tick in seconds; the matrix, the delay and the shortest slot in ticks; and
        whether no number was rounded.
    """
    placed = PlacedAmounts.of_matrix(demand_bytes)
    scaled = scale_amounts(
        placed, rate_bytes_per_s, delay_s, min_slot_s=min_slot_s, quantum_s=quantum_s
    )
    if placed.sources is None or placed.destinations is None:
        return scaled._replace(demand=scaled.demand.reshape(demand_bytes.shape))
    demand = np.zeros(demand_bytes.shape, dtype=np.int64)
    demand[placed.sources, placed.destinations] = scaled.demand
    places = placed.sources * placed.n_ports + placed.destinations
    return scaled._replace(demand=demand, places=places[scaled.demand > 0])


def scale_amounts(
    placed: PlacedAmounts,
    rate_bytes_per_s: float,
    delay_s: float,
    *,
    min_slot_s: float = 0.0,
    quantum_s: float | None = None,
) -> Scaled:
    """Turn amounts in bytes, the delay and the shortest slot into whole numbers of ticks.

    A *tick* is the unit of time in which methods compute. An amount in bytes becomes the number of
    ticks that a circuit takes for it. The tick is

    - `quantum_s`, if it is given;
    - else the longest time of which all amounts, the delay and the shortest slot are multiples;
    - else, if there is none that is long enough, 1e-12 of the longest of these times. It divides
      the delay.

    Amounts that are no multiple of the tick are rounded up. Decimal numbers are taken at their
    word: 0.1 is one tenth, not the nearest binary fraction. For example, 100, 250 and 300 bytes at
    1000 bytes per second take 0.1, 0.25 and 0.3 s; with a tick of 0.05 s these are 2, 5 and 6
    ticks.

    Parameters
    ----------
    placed
        The amounts in bytes.
    rate_bytes_per_s
        The rate of a circuit.
    delay_s, min_slot_s
        The reconfiguration delay and the shortest slot in seconds.
    quantum_s
        The tick in seconds; None to choose one.

    Returns
    -------
    Scaled
        The amount of each place, the delay and the shortest slot in ticks, the latter rounded up.

    Raises
    ------
    InputError
        If floats cannot tell how many ticks a line or all entries together take, or if the quantum
        does not divide the delay.
    """
    times = Times(_fraction(rate_bytes_per_s), _fraction(delay_s), _fraction(min_slot_s))
    # Numbers so small or so large that float64 cannot add or divide them are refused: all amounts
    # take `_SMALLEST` to `_LARGEST` seconds, and slots for all ports no more.
    with np.errstate(over="ignore"):
        seconds = float(placed.amounts.sum() / rate_bytes_per_s)
    if placed.amounts.any() and not _SMALLEST < seconds < _LARGEST:
        raise InputError(
            f"demand_bytes adds up to {seconds:g} s: {_SMALLEST:g} to {_LARGEST:g} s are allowed",
            where="demand_bytes",
        )
    if placed.n_ports * max(times.delay, times.min_slot) > _LARGEST:
        name = "delay_s"
        longer = times.delay
        if times.delay < times.min_slot:
            name = "min_slot_s"
            longer = times.min_slot
        rule = f"{placed.n_ports} slots take more than {_LARGEST:g} s"
        raise InputError(f"{name} = {float(longer):g}: {rule}", where=name)

    # A slot may carry the whole busiest line: the seconds of a circuit for it have to be a float
    # that tells how many ticks they are. A count of given quanta that is almost whole is whole.
    line_s = Fraction(placed.largest_sum) / times.rate
    if quantum_s is not None:
        tick = _fraction(quantum_s)
        scaled = _round_up_to_quantum(placed, times, tick, _NOISE)
        _check_line("quantum_s", tick, line_s, times.rate)
        return scaled
    if times.delay > 0:
        _check_line("delay_s", times.delay, line_s, times.rate)
    scaled_exactly = _scale_exactly(placed, times)
    if scaled_exactly is not None:
        return scaled_exactly

    # No tick divides everything: a tick of 1e-12 of the longest time, which divides the delay. Of
    # 1e12 ticks `_NOISE` would be a thousand, so that none is left to it.
    tick = max(line_s, times.delay, times.min_slot) / _ROUNDED_TICKS
    if times.delay:
        tick = times.delay / ceil(times.delay / tick)
    return _round_up_to_quantum(placed, times, tick, 0.0)


def _check_line(name: str, unit_s: Fraction, line_s: Fraction, rate: Fraction) -> None:
    """Refuse a line of more delays or quanta than a float64 of its seconds can tell apart.

    No tick is longer than the delay.
    """
    if line_s < _LARGEST_WHOLE * unit_s:
        return
    times_unit = "far too many"
    if line_s < 10**300 * unit_s:  # more than that is no float
        times_unit = f"{float(line_s / unit_s):.3g}"
    raise InputError(
        f"the busiest port of demand_bytes takes {float(line_s):g} s at rate_bytes_per_s ="
        f" {float(rate):g}, which is {times_unit} times {name} ="
        f" {float(unit_s):g} s: less than {_LARGEST_WHOLE:.3g} times is allowed (is the rate"
        " missing, or a time in another unit?)",
        where=name,
    )


def _scale_exactly(placed: PlacedAmounts, times: Times) -> Scaled | None:
    """Count in the largest tick that divides everything.

    None if there is no such tick, or if a line takes so many ticks that float64 seconds would lose
    some.
    """
    # The amounts as whole numbers of bytes or of a fraction of them, then in seconds.
    integers_and_unit = _as_integers(placed.amounts)
    if integers_and_unit is None:
        return None
    integers, unit = integers_and_unit
    unit_s = unit / times.rate
    tick = _largest_common_divisor(unit_s, times.delay, times.min_slot)
    tick = tick or Fraction(1)  # nothing takes any time

    # Durations are written as float64 seconds: a line with a delay for each port has to survive.
    ticks_per_unit = int(unit_s / tick)
    delay_ticks = int(times.delay / tick)
    min_slot_ticks = int(times.min_slot / tick)
    line_ticks = ticks_per_unit * placed.largest_line(integers)
    if line_ticks + placed.n_ports * delay_ticks + min_slot_ticks >= _EXACT_TICKS:
        return None
    ticks = integers if ticks_per_unit == 1 else integers * ticks_per_unit
    return Scaled(float(tick), ticks, delay_ticks, min_slot_ticks, True)


def _round_up_to_quantum(
    placed: PlacedAmounts, times: Times, tick: Fraction, noise: float
) -> Scaled:
    """Turn amounts in bytes and times into numbers of a given tick, rounded up.

    A *tick* is the unit of time in which durations are whole numbers. An amount becomes the ticks
    that a circuit takes for it: 250 bytes at 1000 bytes per second take 3 ticks of 0.1 s.

    Parameters
    ----------
    placed
        The amounts in bytes.
    times
        The rate, the delay and the shortest slot; the delay is a whole number of ticks, up to a
        relative 1e-9.
    tick
        The length of a tick in seconds.
    noise
        Part of an amount that rounding may have added: an amount that exceeds a whole number of
        ticks by no more than this part counts as that number.

    Returns
    -------
    Scaled
        Its ticks are by place. It is exact if each amount is a whole number of ticks.

    Raises
    ------
    InputError
        If the tick does not divide the delay, or all together are too many ticks for int64.
    """
    delay_ticks = round(times.delay / tick)
    if abs(delay_ticks * tick - times.delay) > times.delay / 10**9:
        raise InputError(
            f"quantum_s = {float(tick):g}: does not divide the delay of {float(times.delay):g} s",
            where="quantum_s",
        )

    # Each of n**2 entries is rounded up by less than a tick.
    bytes_per_tick = times.rate * tick
    shortest = _count_up(times.min_slot / tick, noise)
    total = Fraction(float(placed.amounts.sum())) / bytes_per_tick + placed.n_ports**2
    if total + placed.n_ports * (delay_ticks + shortest) >= _TOTAL_TICKS:
        raise InputError(
            f"demand_bytes in ticks of {float(tick):g} s overflows: a larger quantum_s is needed",
            where="demand_bytes",
        )
    unit = float(min(max(bytes_per_tick, Fraction(_SMALLEST)), Fraction(_LARGEST)))
    # Amounts are rounded up to whole ticks; `is_near` says whether all quotients are whole but for
    # noise.
    ticks = np.empty(placed.amounts.shape, dtype=np.int64)
    is_near = True
    for block in _blocks(len(placed.amounts)):
        in_units = placed.amounts[block] / unit
        # What is more than nothing takes a tick, even where the division says 0.
        np.maximum(in_units, _SMALLEST, out=in_units, where=placed.amounts[block] > 0)
        # What is relatively as near as `noise` to a whole number is that number.
        counts = np.ceil(in_units)
        if noise > 0:
            nearest = np.rint(in_units)
            is_whole = np.abs(in_units - nearest) <= nearest * noise
            counts[is_whole] = nearest[is_whole]
        ticks[block] = counts
        if is_near:
            tolerance = np.maximum(in_units, 1.0) * 2.0**-50  # more is too much for floats
            is_near = not (np.abs(in_units - counts) > tolerance).any()
    exact = is_near and all(
        (_fraction(value) / bytes_per_tick).denominator == 1
        for value in np.unique(placed.amounts).tolist()
    )
    return Scaled(float(tick), ticks, delay_ticks, shortest, exact)


def _blocks(n_values: int) -> Iterator[slice]:
    """Divide a vector into blocks that stay in the cache of the processor."""
    for start in range(0, n_values, _BLOCK_ROWS):
        yield slice(start, start + _BLOCK_ROWS)


def _count_up(amount: Fraction | float, noise: float = _NOISE) -> int:
    """Round up to a whole number, which an amount is already that noise alone keeps from it.

    3.0000000000001 is 3, and 3.1 is 4.
    """
    nearest = round(amount)
    distance = abs(Fraction(amount) - nearest)
    return nearest if distance <= nearest * Fraction(noise) else ceil(amount)


def _as_integers(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], Fraction] | None:
    """Find the largest unit in which all values are whole numbers, and return the values in it.

    Short decimal numbers are taken at their word: 0.1 is one tenth. As an example, 0.5 and 1.25
    have two decimal digits. They are 50 and 125 times 1/100, whose common factor is 25, hence 2
    and 5 times 1/4. Other numbers are whole multiples of a power of two, as all floats are. None
    if the values are neither decimal numbers of few digits nor near enough to each other to be
    whole numbers of 53 bits; zeros alone have a unit of 0.
    """
    largest = float(values.max(initial=0.0))
    if largest == 0.0:
        return np.zeros(values.shape, dtype=np.int64), Fraction(0)

    # A decimal unit comes first: numbers that people write are short decimals, whose binary
    # fractions have many bits.
    digits = _decimal_digits(values, largest)
    if digits is not None:
        integers = np.empty(values.shape, dtype=np.int64)
        for block in _blocks(len(values)):
            integers[block] = np.rint(values[block] * 10.0**digits)
        return _without_common_factor(integers, Fraction(1, 10**digits))

    # A binary unit: all bits from that of the largest value to the lowest of any must fit.
    exponent_of_largest = int(np.frexp(largest)[1])
    lowest = exponent_of_largest
    for block in _blocks(len(values)):
        positive = values[block][values[block] > 0]
        lowest = min(lowest, _lowest_bit(positive))
        if exponent_of_largest - lowest > 53:
            return None
    integers = np.ldexp(values, -lowest).astype(np.int64)
    return _without_common_factor(integers, Fraction(2) ** lowest)


def _decimal_digits(values: NDArray[np.float64], largest: float) -> int | None:
    """Return after how few decimal digits, below `_DECIMAL_DIGITS`, all values are whole.

    None if no number of digits will do, or if the largest value would be too large for a whole
    number in a float.
    """
    for digits in range(_DECIMAL_DIGITS):
        power = 10.0**digits
        if not np.rint(largest * power) < _LARGEST_WHOLE:
            return None
        # Most fail at the first values.
        if _is_whole(values[:16], power) and all(
            _is_whole(values[block], power) for block in _blocks(len(values))
        ):
            return digits
    return None


def _is_whole(values: NDArray[np.float64], power: float) -> bool:
    """Tell whether all are whole numbers over a power of ten."""
    return bool((np.rint(values * power) / power == values).all())


def _lowest_bit(values: NDArray[np.float64]) -> int:
    """Return the greatest e such that all values are whole multiples of 2**e.

    For example, it is -2 for 0.5 and 1.25, since 1.25 = 2**0 + 2**-2. Without values it is very
    large.
    """
    if not len(values):
        return 1 << 20  # beyond all exponents of floats
    mantissas, exponents = np.frexp(values)

    # A float is a whole number of 53 bits times a power of two.
    integers = (mantissas * 2.0**53).astype(np.int64)

    # The lowest bit of an integer alone; its exponent as a float is its number, from 1 on.
    lowest_bits = integers & -integers
    trailing_zeros = np.frexp(lowest_bits.astype(np.float64))[1] - 1
    return int((exponents - 53 + trailing_zeros).min())


def _without_common_factor(
    integers: NDArray[np.int64], unit: Fraction
) -> tuple[NDArray[np.int64], Fraction]:
    """Divide integers, not all 0, by their greatest common divisor; multiply the unit by it."""
    common = 0
    for block in _blocks(len(integers)):
        # The first values tell in general that there is no common factor.
        for part in (integers[block][:64], integers[block]):
            common = int(np.gcd.reduce(part, initial=common))
            if common == 1:
                return integers, unit
    return integers // common, unit * common


def _largest_line(matrix: NDArray[np.int64] | NDArray[np.float64]) -> int | float:
    """Return the largest sum of a row or a column."""
    sums = matrix.sum(axis=1).tolist() + matrix.sum(axis=0).tolist()
    return max(sums, default=0)


def _largest_common_divisor(*numbers: Fraction) -> Fraction:
    """Find the largest number of which all fractions >= 0 are whole multiples, 0 if all are 0.

    For example, 1/4 of 1/2 and 3/4.
    """
    # Over a common denominator it is that of the numerators.
    denominator = lcm(*(number.denominator for number in numbers))
    return Fraction(gcd(*(int(number * denominator) for number in numbers)), denominator)


def place_deadline(deadline_s: float, tick_s: float, exact: bool) -> float:
    """Return a deadline in ticks, which may lie between two of them: 4.3 s is 43 times 0.1 s.

    A number within a relative 1e-9 of a whole number is that number, as a Python integer. It is
    the nearest one if demands are `exact`. Demands that were rounded up may end some ticks late,
    as do 3 * 0.1 s in ticks of 1e-12 of it, so that the last one is their deadline. No schedule
    lasts as long as the latest deadline that is told apart, 2**63 ticks.
    """
    ticks = min(deadline_s / tick_s, 2.0**63)
    whole = round(ticks) if exact else floor(min(ticks * (1 + _NOISE), 2.0**63))
    return whole if abs(ticks - whole) <= whole * _NOISE else ticks


def _fraction(value: float) -> Fraction:
    """Return a number as its printed decimal digits say: 0.1 is one tenth."""
    return Fraction(repr(value))


_AGREEING = 1e-9
"""Sums that differ by less than this share differ by rounding."""

_MOST_DIGITS = 12  # noise of decimal numbers that were added up in floats
_SUM_NOISE = 1e-12  # noise of a line after adding up


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
    """Round a demand such that all its rows and columns have exactly the same sum.

    A schedule that keeps all ports busy needs equal sums. The demand may have been given with
    equal sums, but each entry has been rounded up to whole *ticks*, the unit of time, and the sums
    differ a little since. For example, rows of 1/2, 1/2, 0 and of 1/3, 1/3, 1/3 s agree; in ticks
    of 0.1 s they become 5, 5, 0 and 4, 4, 4, with sums of 10 and 12. The entries as they were
    given are therefore rounded again, some up and some down. Zeros stay zero.

    Nothing changes in these cases, in the order in which they are checked:

    1. the sums in ticks are equal already;
    2. all entries are whole numbers of bytes: nobody has rounded them;
    3. a tick was given, and all entries are whole ticks;
    4. the sums as given differ by more than rounding does: they are meant to differ;
    5. no rounding with equal sums is found.

    Otherwise the new tick is the first of these that applies:

    1. without a given tick and without a delay: a power of ten, such as 0.01 s, of which all
       entries are whole multiples;
    2. the given tick;
    3. with a delay: about 1e-12 of the sum of a row, such that the delay is a whole number of
       ticks;
    4. about 1e-12 of the sum of a row.

    Parameters
    ----------
    scaled
        ``demand``, the matrix in whole ticks, rounded up; and ``exact``, whether no number was
        rounded.
    demand_bytes
        The matrix as it was given, ``demand_bytes[source, destination]``, shape (n, n).
    rate_bytes_per_s
        The rate of a circuit, in bytes per second.
    delay_s, min_slot_s
        The delay and the shortest slot in seconds.
    quantum_s
        The tick that was given, in seconds, None if none was. It also says how much of a
        difference is rounding: the sum of a row or column may differ from the mean of all sums by
        half a tick, or, without a tick, by `_AGREEING` (1e-9) of the mean.
    symmetric
        Whether both directions of a pair count as one, the larger.

    Returns
    -------
    Scaled
        The matrix with equal sums, perhaps in other ticks; or `scaled` itself.
    """
    # Both directions of a pair share a circuit: the larger one counts.
    ticks = np.maximum(scaled.demand, scaled.demand.T) if symmetric else scaled.demand
    is_whole = (demand_bytes % 1 == 0).all()
    if _agree(ticks) or is_whole or (scaled.exact and quantum_s is not None):
        return scaled

    # Lines that differ by more than rounding are meant to differ.
    seconds = demand_bytes / rate_bytes_per_s
    amounts = np.maximum(seconds, seconds.T) if symmetric else seconds
    sums = np.concatenate([amounts.sum(axis=1), amounts.sum(axis=0)])
    mean = float(sums.mean())
    if np.abs(sums - mean).max() > (_AGREEING * mean if quantum_s is None else quantum_s / 2):
        return scaled

    # `tick` becomes the new unit in seconds, and `rounded` the entries in it: short decimals if
    # that is what entries were, or else entries rounded to a fine tick.
    decimals = None
    rounded: NDArray[np.int64] | None
    if quantum_s is None and not delay_s:
        decimals = _decimals(amounts, mean)
    if decimals is not None:
        tick, rounded = decimals
    else:
        # About 1e-12 of a row is 1 / `_ROUNDED_TICKS`, 2**-40. A delay of 1.5 such ticks becomes 2
        # ticks of three quarters.
        tick = quantum_s or mean / _ROUNDED_TICKS
        if delay_s and quantum_s is None:
            tick = delay_s / ceil(delay_s / tick)
        # Lines have about one sum, which becomes a whole number of ticks. Of a symmetric matrix a
        # half with half of the sum is rounded, and its mirror image added.
        parts = 2 if symmetric else 1
        total = round(mean / tick / parts)
        rounded = _round_lines(amounts * (total / mean), total) if total else None
        rounded = rounded + rounded.T if symmetric and rounded is not None else rounded
    if rounded is None:
        return scaled

    # The ticks of a plan are added up in 64-bit integers. A shortest slot that would lead beyond
    # their range is cut down to what n slots of a demand may have.
    most = min(_LARGEST_WHOLE, _TOTAL_TICKS // 2 // len(rounded)) - 1
    shortest = min(_count_up(min_slot_s / tick), most)
    return Scaled(tick, rounded, round(delay_s / tick), shortest, False)


def _agree(ticks: NDArray[Any]) -> bool:
    """Tell whether all lines have the same sum."""
    sums = np.concatenate([ticks.sum(axis=1), ticks.sum(axis=0)])
    return bool((sums == sums[:1]).all())


def _decimals(
    seconds: NDArray[np.float64], mean: float
) -> tuple[float, NDArray[np.int64] | None] | None:
    """Return the entries as multiples of a power of ten in seconds, and this unit.

    None if there is no such unit, or if the lines do not agree in it.
    """
    for digits in range(_MOST_DIGITS + 1):
        ticks = np.rint(seconds * 10.0**digits)
        if np.abs(ticks / 10.0**digits - seconds).max() > _SUM_NOISE * mean or ticks.max() > 2**53:
            continue
        return (10.0**-digits, ticks.astype(np.int64)) if _agree(ticks) else None
    return None


def _round_lines(amounts: NDArray[np.float64], total: int) -> NDArray[np.int64] | None:
    """Round entries in ticks so that each line has the sum `total`, which it has but for noise.

    ``amounts[row, column]`` are ticks. Row by row, what is missing goes to the columns that wait
    longest for theirs; what is then left of columns is small, and passed on along the largest
    entries. Zeros stay; None if no rounding was found.
    """
    # The ticks that each column has got too little so far decide which entries of a row are
    # rounded up. Whole entries stay.
    ticks = np.floor(amounts)
    owed = np.zeros(len(amounts))
    for row, amount in zip(ticks, amounts, strict=True):
        owed += amount - row
        missing = int(np.clip(total - row.sum(), 0, len(row)))

        # The columns to which most is owed come first; whole entries come last, and are left out
        # below.
        raised = np.argsort(np.where(amount > row, -owed, np.inf), kind="stable")[:missing]
        raised = raised[amount[raised] > row[raised]]
        row[raised] += 1
        owed[raised] -= 1
    return _settle_lines(ticks.astype(np.int64), total)


def _settle_lines(ticks: NDArray[np.int64], total: int) -> NDArray[np.int64] | None:
    """Change `ticks` in place and slightly, such that all rows and columns have the sum `total`.

    Only few, large entries are changed. Think of rows and columns as the nodes of a graph, and of
    entries > 0 as its edges. A spanning tree of the largest entries is found (Prim's algorithm).
    From the leaves on, the entry that joins a node to the tree is changed by what the node's sum
    misses. The node on its other side then misses as much less.

    As an example, ``[[5, 1], [0, 5]]`` is to have sums of 6. Row 1 misses 1, and so does column 0.
    The tree has the three entries > 0. Settled one after the other they become ``[[6, 0], [0,
    6]]``. None is returned for a connected part whose rows and columns need different totals, or
    if an entry would be negative.
    """
    # Lines are rows (0 .. n - 1) and columns (n .. 2 n - 1). `weight[line]` is the largest entry
    # that joins a line to the tree so far, -1 if none does.
    n = len(ticks)
    missing = total - np.concatenate([ticks.sum(axis=1), ticks.sum(axis=0)])
    nearest = np.zeros(2 * n, dtype=np.int64)  # the best line of the tree to join
    weight = np.full(2 * n, -1, dtype=np.int64)
    outside = np.ones(2 * n, dtype=bool)
    joined: list[int] = []

    # Each line joins by the largest entry that it has in common with the tree. One without any is
    # the first of another connected part.
    for _ in range(2 * n):
        line = int(np.where(outside, weight, -2).argmax())
        if weight[line] <= 0:
            nearest[line] = -1  # the first line of a connected part
        outside[line] = False
        joined.append(line)

        # The entries of this line, and the lines on the other side that they lead to.
        crossing = ticks[line] if line < n else ticks[:, line - n]
        crossing_lines = np.arange(n, 2 * n) if line < n else np.arange(n)
        is_better = outside[crossing_lines] & (crossing > np.maximum(weight[crossing_lines], 0))
        better = crossing_lines[is_better]
        weight[better] = crossing[better % n]
        nearest[better] = line

    # The last lines that joined are leaves; the first one of a part takes what is then missing.
    for line in reversed(joined):
        other = int(nearest[line])
        if other >= 0:
            # The entry where both lines cross: one of them is a row, the other one a column.
            place = (line, other - n) if line < n else (other, line - n)
            ticks[place] += missing[line]
            missing[other] -= missing[line]
        elif missing[line]:
            return None
    return None if (ticks < 0).any() else ticks
