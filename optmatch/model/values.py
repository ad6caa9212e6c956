"""Frozen values: data classes that compare, hash and pickle by content, arrays included."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model.errors import InputError

_SHOWN = 16
"""Representations show arrays and tuples of up to so many entries."""


class Value:
    """Mixin for frozen data classes whose fields may be arrays.

    A generated ``__eq__`` fails on arrays, and unpickled arrays are writeable again; so equality
    and hash go over the content, and pickling goes through the constructor, which checks and
    freezes anew. The representation shows the shape of large arrays, and no fields that have their
    default.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        # ``dataclass`` generates a representation unless the class itself has one
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        shown = [
            f"{field.name}={_brief(value)}"
            for field in fields(self)  # type: ignore[arg-type]
            if field.repr and not _is_default(field, value := getattr(self, field.name))
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _state(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def _set(self, **values: Any) -> None:
        """Put checked values in place of those that the constructor was given."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _freeze(self, ndim: int, dtype: type[np.generic], *names: str) -> None:
        """Put read-only arrays in place of fields, see `frozen`."""
        self._set(**{name: frozen(name, getattr(self, name), ndim, dtype) for name in names})

    def _key(self) -> tuple[Any, ...]:
        return (type(self), *(_hashable(value) for value in self._state().values()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Value) or type(other) is not type(self):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._state()), ()


class FrozenMap(Mapping[str, Any]):
    """A read-only mapping of plain JSON values that hashes and pickles by content."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        self._items = MappingProxyType(dict(items or {}))

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(dict(self._items))

    def __hash__(self) -> int:
        return hash(json.dumps(dict(self._items), sort_keys=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenMap, (dict(self._items),)


def _is_default(field: Field[Any], value: Any) -> bool:
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return value is default or (type(value) is type(default) and bool(value == default))


def _brief(value: Any) -> str:
    """Show a field in short: of many numbers the type and the shape."""
    if isinstance(value, np.ndarray):
        if value.size > _SHOWN:
            return f"<{value.dtype} {' x '.join(map(str, value.shape))}>"
        return repr(value.tolist())
    if isinstance(value, (tuple, list, Mapping)) and len(value) > _SHOWN:
        return f"<{len(value)} entries>"
    return repr(value)


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    return value


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
        The NumPy type of the result. ``[1.5]`` is not rounded to an integer type but refused.

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
    try:
        given = np.asarray(value)
        if given.dtype.kind not in "biufO":  # NumPy reads texts and dates as numbers
            raise TypeError
        if given.dtype.kind == "O":
            given = given.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # found by the comparison below
            array = given.astype(dtype, order="C")
    except (TypeError, ValueError, OverflowError) as exc:
        raise InputError(f"{name} is not an array of numbers") from exc
    if array.size == 0 and array.ndim == 1 and ndim > 1:
        array = array.reshape((0,) * ndim)
        given = given.reshape((0,) * ndim)
    if array.ndim != ndim:
        raise InputError(f"{name} has {array.ndim} dimensions, not {ndim}")
    wrong = (given != array) | ~np.isfinite(given)
    exact, rounded = given, np.zeros_like(wrong)
    kinds = given.dtype.kind, array.dtype.kind
    if "f" in kinds and not (given is value and kinds[0] == "f"):
        large = np.abs(array) >= 2**53  # NumPy rounds and compares such whole numbers as floats
        if large.any():
            exact = np.asarray(value, dtype=object)
            rounded[large] = [
                isinstance(a, (int, np.integer)) and int(a) != int(b)
                for a, b in zip(exact[large], array[large], strict=True)
            ]
    for place in map(tuple, np.argwhere(wrong | rounded)[:1].tolist()):
        rule = f"not a whole number of {8 * array.itemsize} bits"
        if rounded[place]:
            rule = "above 2**53, and no float is equal to it"
        elif kinds[1] == "f":
            rule = "not a finite number"
        raise InputError(f"{name}[{', '.join(map(str, place))}] = {exact[place]}: {rule}")
    array += np.zeros(1, dtype=dtype)  # -0.0 becomes 0.0: one content, one digest
    array.flags.writeable = False
    return array


def _exact_float(name: str, value: int) -> float:
    """Return a large whole number as a float, if there is one of this value."""
    try:
        exact = float(value)
    except OverflowError:
        exact = np.inf
    if exact != value:
        shown = str(value) if abs(value) < 10**30 else "a number of more than 30 digits"
        raise InputError(f"{name} = {shown}: above 2**53, and no float is equal to it", where=name)
    return exact


def integer(name: str, value: Any, *, at_least: int | None) -> int:
    """Check that `value` is a whole number not below `at_least`, if that is given.

    Examples
    --------
    >>> integer("rows", 9, at_least=1)
    9
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InputError(f"{name} = {value!r}: not a whole number", where=name)
    if at_least is not None and value < at_least:
        raise InputError(f"{name} = {value}: must be >= {at_least}", where=name)
    return int(value)


def number(name: str, value: Any, *, at_least: float = 0.0) -> float:
    """Check that `value` is a finite number not below `at_least`.

    Examples
    --------
    >>> number("delay_s", 0.015)
    0.015
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InputError(f"{name} = {value!r}: not a number", where=name)
    if isinstance(value, int) and abs(value) > 2**53:
        value = _exact_float(name, value)
    if not np.isfinite(value):
        raise InputError(f"{name} = {value}: not finite", where=name)
    if value < at_least:
        raise InputError(f"{name} = {value:g}: must be >= {at_least:g}", where=name)
    return float(value) + 0.0  # -0.0 becomes 0.0: one content, one digest
