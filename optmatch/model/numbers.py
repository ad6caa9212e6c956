"""Numbers and arrays that are given from outside: checked, never bent, and of a bounded size.

A table bounds what files, commands and constructors describe in a few bytes and build in full. A
row of the table is raised by a variable of the environment: ``OPTMATCH_MAX_CELLS=5000000``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model.errors import InputError

Array = TypeVar("Array", bound=NDArray[Any])


def frozen(name: str, value: ArrayLike, ndim: int, dtype: type[np.generic]) -> NDArray[Any]:
    """Copy numbers into a read-only array, refusing what `dtype` cannot hold exactly.

    Parameters
    ----------
    name
        How messages call the array.
    value
        Numbers, nested sequences or an array.
    ndim
        The number of dimensions it must have.
    dtype
        The NumPy type of the result.

    Returns
    -------
    NDArray
        A new array in the order of C, read-only for ever; -0.0 has become 0.0.

    Raises
    ------
    InputError
        If `value` is no array of finite numbers, has other dimensions, or would change by the
        cast.

    Examples
    --------
    >>> frozen("matching", [1, 0], 1, np.int32)
    array([1, 0], dtype=int32)
    >>> frozen("matching", [0.5], 1, np.int32)
    Traceback (most recent call last):
        ...
    optmatch.model.errors.InputError: matching[0] = 0.5: not a whole number of 32 bits
    """
    source, array = _cast(name, value, dtype)
    # An empty list is one-dimensional, but stands for an empty array of any number of dimensions.
    if array.size == 0 and array.ndim == 1 and ndim > 1:
        array = array.reshape((0,) * ndim)
        source = source.reshape((0,) * ndim)
    if array.ndim != ndim:
        raise InputError(f"{name} has {array.ndim} dimensions, not {ndim}")

    # Most arrays are float64 already: then only infinite numbers and NaN are wrong, and the least
    # or the greatest number shows them.
    is_same_type = source is value and source.dtype == array.dtype == np.float64
    has_numbers = is_same_type and array.size > 0
    if not (has_numbers and np.isfinite(array.min()) and np.isfinite(array.max())):
        _refuse_changed_entries(name, value, source, array)

    array += np.zeros(1, dtype=dtype)  # -0.0 becomes 0.0: one content, one digest
    # A view of bytes stays read-only: NumPy does not let its owner make it writeable again.
    return np.ndarray(array.shape, array.dtype, array.tobytes())


def read_only(array: Array) -> Array:
    """Return an array that others share, itself, after which nobody can write to it."""
    array.flags.writeable = False
    return array


def _cast(
    name: str, value: ArrayLike, dtype: type[np.generic]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return numbers as the array that NumPy reads, and as a new one of `dtype`.

    The first is the same object if it was an array. Entries that `dtype` cannot hold change, which
    the caller has to find.
    """
    source = plain_array(name, value)
    try:
        if source.dtype.kind not in "biufO":  # NumPy reads texts and dates as numbers
            raise TypeError
        if source.dtype.kind == "O":
            if any(isinstance(entry, (str, bytes)) for entry in source.flat):
                raise TypeError
            source = source.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # the entries are compared afterwards
            return source, source.astype(dtype, order="C")
    except (TypeError, ValueError, OverflowError) as exc:
        rule = ""
        if isinstance(value, Mapping):
            rule = ": write a list with an entry for each index from 0 on, not a mapping"
        raise InputError(f"{name} is not an array of numbers{rule}") from exc


def _refuse_changed_entries(
    name: str, value: ArrayLike, source: NDArray[Any], array: NDArray[Any]
) -> None:
    """Refuse an array with an entry that is not finite, or that a cast has changed.

    `value` is what was given, `source` the array of it with the type that NumPy chose, and `array`
    the one of the wanted type. An entry is wrong if 2.5 became 2, for example.
    """
    is_wrong = (source != array) | ~np.isfinite(source)
    is_rounded = np.zeros_like(is_wrong)
    exact = source

    # From 2**53 on a whole number may be rounded when it becomes a float: 2**53 + 1 becomes 2**53.
    # NumPy would round it again to compare the two, and find them equal. Such entries are
    # therefore compared as numbers of Python.
    is_float_array = source is value and source.dtype.kind == "f"
    if "f" in (source.dtype.kind, array.dtype.kind) and not is_float_array:
        is_large = np.abs(array) >= 2**53
        if is_large.any():
            exact = np.asarray(value, dtype=object)
            is_rounded[is_large] = [
                isinstance(number_given, (int, np.integer))
                and int(number_given) != int(number_kept)
                for number_given, number_kept in zip(exact[is_large], array[is_large], strict=True)
            ]

    # The first wrong entry, if there is one, with the rule that it breaks.
    for place in map(tuple, np.argwhere(is_wrong | is_rounded)[:1].tolist()):
        rule = f"not a whole number of {8 * array.itemsize} bits"
        if is_rounded[place]:
            rule = "above 2**53, and no float is equal to it"
        elif array.dtype.kind == "f":
            rule = "not a finite number"
        raise InputError(f"{name}[{', '.join(map(str, place))}] = {exact[place]}: {rule}")


def plain_array(name: str, value: Any) -> NDArray[Any]:
    """Return an array of whatever type its entries have: the one door for arrays from outside.

    A frozen copy of one type is `frozen`, which goes through this door too. What an array says
    beside its numbers is used, or the array is refused: masked entries, units, labels in another
    order. It may be nested sequences, an array or a table of another library, or a sparse matrix
    of SciPy, which becomes full.

    Examples
    --------
    >>> plain_array("used", [True, False])
    array([ True, False])
    >>> plain_array("used", [[1], [1, 2]])
    Traceback (most recent call last):
        ...
    optmatch.model.errors.InputError: used[1] has 2 numbers, the first row 1
    >>> plain_array("loss_db", np.ma.masked_array([1.0, 99.0], mask=[False, True]))
    Traceback (most recent call last):
        ...
    optmatch.model.errors.InputError: loss_db[1] is masked: every entry has to be known
    """
    if type(value) is np.ndarray:
        return value
    value = _without_unit(name, value)
    _refuse_mask(name, value)
    if isinstance(value, list | tuple):
        _check_parts(name, value)

    # A sparse matrix becomes full; entries of one place add up, in 64 bits.
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        listed = value.tocoo()
        check_size("entries", math.prod(listed.shape), name)
        wide = {"b": np.int64, "i": np.int64, "u": np.uint64, "f": np.float64}
        full = np.zeros(listed.shape, dtype=wide.get(listed.data.dtype.kind, listed.data.dtype))
        np.add.at(full, tuple(listed.coords), listed.data)
        if full.dtype.kind in "iu" and np.abs(listed.data.astype(np.float64)).sum() >= 2.0**63:
            raise InputError(f"{name}: its entries add up to 2**63 or more", where=name)
        return full

    # Anything else is what NumPy makes of it, if all rows are as long.
    _check_order(name, value)
    try:
        return np.asarray(value)
    except ValueError as exc:
        rows = value if isinstance(value, list | tuple) else []
        lengths = [len(row) if hasattr(row, "__len__") else 0 for row in rows]
        for row, length in enumerate(lengths):
            if length != lengths[0]:
                message = f"{name}[{row}] has {length} numbers, the first row {lengths[0]}"
                raise InputError(message, where=name) from exc
        raise InputError(f"{name}: rows of different lengths, so no array", where=name) from exc


def is_array(value: Any) -> bool:
    """Tell whether a value is an array of NumPy, or an array or table of another library."""
    return isinstance(value, np.ndarray) or (hasattr(value, "__array__") and np.ndim(value) > 0)


def _without_unit(name: str, value: Any) -> Any:
    """Return the numbers of a quantity without dimension; refuse one that has a unit.

    Quantities are those of pint, astropy, unyt and quantities, and arrays whose attributes name
    a unit, as those of xarray do.
    """
    unit = getattr(value, "units", None)
    if unit is None:
        unit = getattr(value, "unit", None)
    is_quantity = unit is not None and (hasattr(value, "magnitude") or hasattr(value, "value"))
    attributes = getattr(value, "attrs", None)
    if not is_quantity and isinstance(attributes, dict):
        unit = attributes.get("units", attributes.get("unit"))
        is_quantity = unit is not None

    # A quantity without dimension is a plain number.
    if not is_quantity:
        return value
    if str(unit).strip() not in ("", "1", "dimensionless"):
        raise InputError(
            f"{name} has the unit {str(unit)!r:.40}: give plain numbers, in the unit that the"
            " documentation of this argument states",
            where=name,
        )
    return getattr(value, "magnitude", getattr(value, "value", value))


def _refuse_mask(name: str, value: Any) -> None:
    """Refuse a masked array of which an entry is masked, naming the first one."""
    if not isinstance(value, np.ma.MaskedArray):
        return
    masked = np.argwhere(np.ma.getmaskarray(value))
    for place in masked[:1].tolist():
        entry = f"[{', '.join(map(str, place))}]" if place else ""
        raise InputError(f"{name}{entry} is masked: every entry has to be known", where=name)


def _check_parts(name: str, values: Sequence[Any]) -> None:
    """Check the rows of nested sequences, of which NumPy would drop masks and units."""
    for kind in set(map(type, values)) - _PLAIN_TYPES:
        for k, part in enumerate(values):
            if type(part) is kind:
                if isinstance(part, list | tuple):
                    _check_parts(f"{name}[{k}]", part)
                else:
                    _refuse_mask(f"{name}[{k}]", part)
                    _without_unit(f"{name}[{k}]", part)


_PLAIN_TYPES = {int, float, bool, str, np.float64, np.int64, np.ndarray}


def _check_order(name: str, value: Any) -> None:
    """Refuse labels whose order contradicts the places of the entries.

    Row k and column k of a table with the same labels for both have to be the same thing. Labels
    of a series that are whole numbers from 0 have to stand at their own places. Labels of other
    sets pass, as they say nothing about places: rows a, b with columns c, d, or a series x, y.
    """
    # A data frame, an array of xarray, or a series; whatever else comes has no labels.
    if hasattr(value, "columns") and hasattr(value, "index"):
        axes = [list(value.index), list(value.columns)]
    elif hasattr(value, "dims") and hasattr(value, "coords"):
        axes = [value.coords[axis].values.tolist() for axis in value.dims if axis in value.coords]
    elif hasattr(value, "index") and hasattr(value, "to_numpy"):
        axes = [list(value.index)]
    else:
        return
    if len(axes) == 1:
        axes.append(list(range(len(axes[0]))))
    if len(axes) == 2 and axes[0] != axes[1] and set(axes[0]) == set(axes[1]):
        place = next(k for k, pair in enumerate(zip(*axes, strict=False)) if pair[0] != pair[1])
        raise InputError(
            f"{name}: its labels are in another order than its places: {axes[0][place]!r} stands"
            f" where {axes[1][place]!r} is expected",
            where=name,
        )


def real_array(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return numbers of any shape as float64; NaN, for what is not known, is a number too."""
    return np.asarray(_cast(name, value, np.float64)[1])


_LARGEST_INTEGER = 10**38
"""Products of eight whole numbers below it are still floats, and Python writes each as text."""


def list_entries(name: str, values: Any, wanted: str) -> list[Any]:
    """Return the entries of any collection that is no text.

    For messages, `name` is that of the argument, and `wanted` what the entries are: ``"names of
    kinds"``.
    """
    try:
        if not isinstance(values, str | bytes):
            return list(values)
    except TypeError:  # an array without axes says only now that it has no entries
        pass
    raise InputError(f"{name} = {values!r:.60}: {wanted} are expected", where=name)


def integer(name: str, value: Any, *, at_least: int | None) -> int:
    """Check that `value` is a whole number not below `at_least`, if that is given.

    Parameters
    ----------
    name
        The name of the number in messages.
    value
        Whatever a caller has given; true and false are no numbers.
    at_least
        The least value; None for any.

    Raises
    ------
    InputError
        If it is no whole number, is too small, or has more than 38 digits.

    Examples
    --------
    >>> integer("rows", 9, at_least=1)
    9
    """
    if isinstance(value, bool | np.timedelta64) or not isinstance(value, (int, np.integer)):
        raise InputError(f"{name} = {value!r:.60}: not a whole number", where=name)
    if not -_LARGEST_INTEGER < value < _LARGEST_INTEGER:
        raise InputError(f"{name}: a whole number of more than 38 digits", where=name)
    if at_least is not None and value < at_least:
        raise InputError(f"{name} = {value}: must be >= {at_least}", where=name)
    return int(value)


def number(name: str, value: Any, *, at_least: float = 0.0) -> float:
    """Check that `value` is a finite number not below `at_least`.

    Parameters
    ----------
    name
        The name of the number in messages.
    value
        Whatever a caller has given; true and false are no numbers.
    at_least
        The least value.

    Raises
    ------
    InputError
        If it is no finite number, is too small, or a whole number that no float is equal to.

    Examples
    --------
    >>> number("delay_s", 0.015)
    0.015
    """
    is_duration = isinstance(value, np.timedelta64)  # NumPy counts it among its whole numbers
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if isinstance(value, bool) or is_duration or not is_number:
        raise InputError(f"{name} = {value!r:.60}: not a number", where=name)
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, int) and abs(value) > 2**53:
        # A large whole number becomes a float, if one of 53 bits equals it.
        try:
            exact = float(value)
        except OverflowError:
            exact = np.inf
        if exact != value:
            text = "a number of more than 30 digits"
            if abs(value) < 10**30:
                text = str(value)
            raise InputError(
                f"{name} = {text}: above 2**53, and no float is equal to it", where=name
            )
        value = exact

    # Every number is finite, and in range.
    if not np.isfinite(value):
        raise InputError(f"{name} = {value}: not finite", where=name)
    if value < at_least:
        raise InputError(f"{name} = {value:g}: must be >= {at_least:g}", where=name)
    return float(value) + 0.0  # -0.0 becomes 0.0: one content, one digest


SIZES: dict[str, int] = {
    "arrays": 10_000,
    "bytes": 256 * 2**20,
    "cells": 1_000_000,
    "depth": 100,
    "entries": 100_000_000,
    "fibres": 10_000_000,
    "operations": 50_000_000,
    "ports": 1_000_000,
    "ranks": 131_072,
    "repeats": 1_000_000,
    "tasks": 1_000_000,
}
"""The largest sizes by default: arrays of an archive, bytes of a file once it is unpacked, cells
of a fabric, nested levels of a text, entries of a matrix, pairs of ports or 8 bytes of an archive
of arrays, fibres of racks, operations of a step or sends of a collective, ports of a fabric, ranks
of a job, values that aliases of a text repeat, tasks of a sweep."""


def largest(kind: str) -> int:
    """Return the largest size of a kind of `SIZES`: that of the environment, or the default.

    Parameters
    ----------
    kind
        The things that are counted, such as ``ports``; the variable is then
        ``OPTMATCH_MAX_PORTS``.

    Examples
    --------
    >>> largest("depth")
    100
    """
    limit = os.environ.get(f"OPTMATCH_MAX_{kind.upper()}", "")
    if limit.isdecimal():
        return int(limit)
    return SIZES[kind]


def check_size(kind: str, count: int, where: str) -> None:
    """Refuse more than the largest size.

    Parameters
    ----------
    kind
        A row of `SIZES`.
    count, where
        How many there would be, and the field or file that says so.

    Raises
    ------
    InputError
        With the limit, and the variable that raises it.

    Examples
    --------
    >>> check_size("cells", 3_000_000, "rows")
    Traceback (most recent call last):
        ...
    optmatch.model.errors.InputError: rows: 3000000 cells: at most 1000000 (OPTMATCH_MAX_CELLS)
    """
    if count > largest(kind):
        amount = str(count)
        if count >= 10**18:
            amount = "far too many"
        raise InputError(
            f"{amount} {kind}: at most {largest(kind)} (OPTMATCH_MAX_{kind.upper()})", where=where
        )


_LONGEST_S = 1e100
"""Sums and nanoseconds of times up to here are finite floats."""


def check_seconds(name: str, end_s: float) -> None:
    """Refuse times of which sums, or nanoseconds, exceed what a float holds."""
    if not end_s <= _LONGEST_S:
        raise InputError(f"{name}: {end_s:g} s, at most {_LONGEST_S:g} s are expected", where=name)


def check_length(name: str, entries: Sized | None, expected: int, nouns: str) -> None:
    """Refuse a field that has not one entry for each thing; None, of a field left out, passes."""
    if entries is not None and len(entries) != expected:
        raise InputError(
            f"{name} has {len(entries)} entries, there are {expected} {nouns}", where=name
        )


def check_below(
    name: str, numbers: ArrayLike, count: int, what: str, *, at_least: int | None = None
) -> None:
    """Refuse numbers that are not below `count`, or, if it is given, below `at_least`.

    They are whole numbers of any shape, perhaps none; `what` is the kind of thing that they stand
    for, for messages. Where -1 stands for none, `at_least` is left out.
    """
    array = np.asarray(numbers)
    refuse_entries(
        name,
        array >= count,
        lambda *place: f": {what} {array[place]} given, less than {count} expected",
    )
    if at_least is not None:
        refuse_entries(
            name,
            array < at_least,
            lambda *place: f": {what} {array[place]} given, {at_least} or more expected",
        )


def refuse_entries(
    name: str,
    is_wrong: ArrayLike,
    explain: Callable[..., str],
    *,
    entries: Sequence[int] | NDArray[np.integer] | None = None,
) -> None:
    """Refuse the first entry of an array that is marked as wrong, such as ``place[3]``.

    `is_wrong` has the shape of the array, or of its first axes; with `entries` it marks these
    entries of it alone. ``explain(*place)`` returns what the message says behind the entry.
    """
    for place in np.argwhere(is_wrong)[:1].tolist():
        entry = place if entries is None else [entries[place[0]]]
        where = f"{name}[{', '.join(map(str, entry))}]"
        raise InputError(f"{where}{explain(*place)}", where=where)


def shorten_numbers(numbers: Sequence[int]) -> str:
    """Write the first ten numbers, as a part of a message; ``none`` if there are none."""
    text = ", ".join(map(str, numbers[:10]))
    return f"{text}, ..." if len(numbers) > 10 else text or "none"
