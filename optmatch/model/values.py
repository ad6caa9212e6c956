"""Frozen values: data classes that compare, hash and pickle by content, arrays included."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from optmatch.model.declarations import check_fields
from optmatch.model.numbers import frozen

_SHOWN = 16
"""Representations show arrays and tuples of up to so many entries."""


class Value:
    """Mixin for frozen data classes whose fields may be arrays.

    A generated ``__eq__`` fails on arrays, and unpickled arrays are writeable again; so equality
    and hash go over the content, and pickling goes through the constructor, which checks and
    freezes anew. The representation shows the shape of large arrays, and no fields that have their
    default. Fields are checked by their declarations, unless a class has a constructor of its own.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        # ``dataclass`` generates a representation unless the class itself has one
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """Return the call that makes the object, without fields that have their default."""
        arguments = []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.repr and not _is_default(field, value):
                arguments.append(f"{field.name}={_brief(value)}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    def __post_init__(self) -> None:
        check_fields(self)

    def _state(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def _set(self, **values: Any) -> None:
        """Replace the values that the constructor was given by checked ones."""
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
    """Tell whether a value is the default of a field, and of the same type."""
    default = field.default
    if field.default_factory is not MISSING:
        default = field.default_factory()
    if isinstance(value, np.ndarray) and isinstance(default, np.ndarray):
        return bool(np.array_equal(value, default))
    return value is default or (type(value) is type(default) and bool(value == default))


def _brief(value: Any) -> str:
    """Show a field in short: of many numbers the type and the shape.

    Collections of more than `_SHOWN` entries are not written out.
    """
    if isinstance(value, np.ndarray):
        if value.size > _SHOWN:
            return f"<{value.dtype} {' x '.join(map(str, value.shape))}>"
        return repr(value.tolist())
    if isinstance(value, (tuple, list, Mapping)) and len(value) > _SHOWN:
        return f"<{len(value)} entries>"
    return repr(value)


def _hashable(value: Any) -> Any:
    """Return what stands for a value in comparisons: of an array its shape, type and bytes."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    return value
