"""Frozen data classes, and what their fields may hold: type hints check values, describe files.

A field such as ``delay_s: Amount`` says that it is a number >= 0. The constructor checks it by
`check_fields`, files are read by it, and the JSON Schemas are made from it.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import types
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache, partial
from itertools import chain
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model.errors import InputError
from optmatch.model.numbers import frozen, integer, is_array, number, plain_array

_Entry = TypeVar("_Entry", bound=np.generic)
_Tuple = TypeVar("_Tuple", bound=tuple[Any, ...])
if TYPE_CHECKING:
    _Given = TypeVar("_Given")
    _Kept = TypeVar("_Kept")

    class Made(Generic[_Given, _Kept]):
        """A field whose constructor takes more than it keeps."""

        def __get__(self, instance: object, owner: Any = None) -> _Kept: ...
        def __set__(self, instance: object, value: _Given) -> None: ...

    def given(**options: Any) -> Any:
        """Declare such a field; it is one with a default to type checkers, else it is plain."""

    Given: TypeAlias = Made[ArrayLike, NDArray[_Entry]]
    GivenOrNone: TypeAlias = Made[ArrayLike | None, NDArray[_Entry] | None]
    GivenOrText: TypeAlias = Made[ArrayLike, NDArray[_Entry] | str]  # a text is an ArrayLike
else:  # an array, of whatever makes one
    Given, GivenOrNone, given = NDArray[_Entry], NDArray[_Entry] | None, field
    GivenOrText = str | NDArray[_Entry]


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that a field may hold, or each entry of an array: from `least` to `most`.

    Parameters
    ----------
    least, most
        Both included.
    above
        Whether `least` is excluded.
    infinite
        Whether a number may be infinite.
    """

    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    infinite: bool = False

    def is_broken_by(self, value: Any) -> Any:
        """Tell whether a number, or each entry of an array, is out of range."""
        is_bound = self.above & (value == self.least)
        return is_bound | (value < self.least) | (value > self.most)

    def refuse(self, name: str, value: Any) -> None:
        """Refuse a value out of range; else do nothing.

        Parameters
        ----------
        name
            The name of the value in messages.
        value
            A number.

        Raises
        ------
        InputError
            Naming the value and the bound that it breaks.
        """
        if not self.is_broken_by(value):
            return

        # The message names both bounds where there are two, else the one that is broken.
        text = str(value) if isinstance(value, int) else f"{value:g}"
        if math.isfinite(self.least) and math.isfinite(self.most) and not self.above:
            rule = f"from {self.least:g} to {self.most:g}"
        elif value > self.most:
            rule = f"at most {self.most:g}"
        elif self.above:
            rule = f"must be > {self.least:g}"
        else:
            rule = f"must be >= {self.least:g}"
        raise InputError(f"{name} = {text}: {rule}", where=name)


@dataclass(frozen=True, slots=True)
class Axes:
    """How many axes an array has, and how many columns, if that is fixed."""

    count: int
    columns: int | None = None


Count = Annotated[int, Range(1)]
"""A whole number >= 1."""
Index = Annotated[int, Range(0)]
"""A whole number >= 0."""
BY_NAME = "by name"
"""Says that a name may stand for a number: the constructor puts the number in its place."""
if TYPE_CHECKING:
    Label = Any
else:
    Label = Annotated[int, Range(0), BY_NAME]
"""The number of a port or a cell, of which a caller may give the name."""
Amount = Annotated[float, Range(0)]
"""A number >= 0."""
Positive = Annotated[float, Range(0, above=True)]
"""A number > 0."""
Rate = Annotated[float, Range(0, 1e100, above=True)]
"""A number > 0; sums of rates, and what they carry in `LONGEST_S`, are finite floats."""
LONGEST_S = 1e12
"""A longer time is refused, since sums of it would be infinite."""


Form: TypeAlias = "Plain | Word | Array | Listed | Mapped | Choice | Instance"
"""The values that a field may hold.

Each form tells whether it *takes* a value: whether it is of its type, in or out of range. And a
form *checks* a value: it returns the value in its one plain form, or raises an `InputError` that
names it.
"""


@dataclass(frozen=True, slots=True)
class Plain:
    """A whole number, a number, a text, or true or false."""

    type: type
    span: Range = Range()
    has_names: bool = False

    @property
    def wanted(self) -> str:
        """The noun for messages."""
        names = {str: "a text", bool: "true or false", int: "a whole number"}
        return names.get(self.type, "a number")

    def takes(self, value: Any) -> bool:
        """Tell whether a value is of this type; a whole number is a number too."""
        if self.type in (str, bool):
            return isinstance(value, self.type)
        kinds = (int, np.integer) if self.type is int else (int, float, np.integer, np.floating)
        return isinstance(value, kinds) and not isinstance(value, bool | np.timedelta64)

    def takes_all(self, values: Sequence[Any]) -> bool:
        """Tell quickly whether all values are texts, booleans or whole numbers, and in range.

        A list of millions of names or numbers is then accepted as it is. False is no refusal: each
        value is then checked alone.
        """
        if self.type is float or not set(map(type, values)) <= {self.type}:
            return False
        if self.type is not int or not values:
            return True

        # The extremes are in range, and fit into 64 bits.
        extremes = min(values), max(values)
        return extremes[1] <= 2**63 and not any(map(self.span.is_broken_by, extremes))

    def check(self, name: str, value: Any) -> Any:
        """Return a value of this type as a plain Python value, without types of NumPy."""
        if self.type is int:
            value = integer(name, value, at_least=None)
        elif self.type is float and not (self.span.infinite and self.takes(value)):
            value = number(name, value, at_least=-math.inf)
        elif not self.takes(value):
            raise InputError(f"{name} = {shorten(value)}: {self.wanted} is expected", where=name)
        elif self.type is float and isinstance(value, int):
            number(name, value, at_least=-math.inf)  # refuses one that is no float
        if self.type in (int, float):
            self.span.refuse(name, value)
        return value


@dataclass(frozen=True, slots=True)
class Word:
    """One of several words."""

    options: tuple[str, ...]

    @property
    def wanted(self) -> str:
        """The noun for messages."""
        return " or ".join(self.options)

    def takes(self, value: Any) -> bool:
        """Tell whether a value is one of the words."""
        return isinstance(value, str) and value in self.options

    def check(self, name: str, value: Any) -> Any:
        """Return a word if it is one of those that are allowed."""
        if not self.takes(value):
            raise InputError(
                f"{name} = {shorten(value)}: one of {', '.join(self.options)}", where=name
            )
        return value


@dataclass(frozen=True, slots=True)
class Array:
    """An array of numbers."""

    dtype: type[np.generic]
    axes: Axes
    span: Range = Range()
    has_names: bool = False

    def takes(self, value: Any) -> bool:
        """Tell whether a value may become an array."""
        return not isinstance(value, str | bytes | Mapping | None)

    def check(self, name: str, value: Any) -> Any:
        """Return a read-only array of this type, these axes and this range.

        One that is frozen already is not copied.
        """
        array = value
        if not self._is_frozen(value):
            array = frozen(name, value, self.axes.count, self.dtype)

        # An array without entries has its columns all the same.
        n_columns = self.axes.columns
        if n_columns and not array.size and array.shape != (0, n_columns):
            array = frozen(name, np.empty((0, n_columns)), 2, self.dtype)
        if n_columns and array.shape[1] != n_columns:
            raise InputError(f"{name} has {array.shape[1]} columns, not {n_columns}", where=name)

        # If the smallest and the largest entry are in range, all are; else the first is named.
        is_broken_by = self.span.is_broken_by
        if array.size and (is_broken_by(array.min()) or is_broken_by(array.max())):
            for place in np.argwhere(is_broken_by(array))[:1].tolist():
                self.span.refuse(f"{name}[{', '.join(map(str, place))}]", array[tuple(place)])
        return array

    def _is_frozen(self, value: Any) -> bool:
        """Tell whether a value is what `check` would return, so that it need not be copied.

        It is if it has the wanted type and axes, is contiguous, has finite numbers alone, and is a
        view of bytes, which nothing changes.
        """
        return (
            type(value) is np.ndarray  # a masked array would hide entries from comparisons
            and value.dtype == self.dtype
            and value.ndim == self.axes.count
            and isinstance(value.base, bytes)
            and value.flags.c_contiguous
            and (not value.size or bool(np.isfinite(value.min()) and np.isfinite(value.max())))
        )


@dataclass(frozen=True, slots=True)
class Listed:
    """A sequence of parts of one form, of any length or of a given one."""

    part: Form
    length: int | None = None

    @property
    def wanted(self) -> str:
        """The noun for messages."""
        return "a list"

    def takes(self, value: Any) -> bool:
        """Tell whether a value is a sequence, and not a text."""
        if is_array(value):
            return np.ndim(value) > 0
        return isinstance(value, Sequence) and not isinstance(value, str | bytes)

    def takes_all(self, values: Sequence[Any]) -> bool:
        """Tell quickly whether all values are tuples of plain values of one type, and in range.

        A list of millions of pairs is then accepted as it is. Where the answer is no, each is
        checked alone.
        """
        return (
            self.length is None
            and isinstance(self.part, Plain)
            and set(map(type, values)) <= {tuple}
            and self.part.takes_all([*chain.from_iterable(values)])
        )

    def check(self, name: str, value: Any) -> Any:
        """Return a list, or any sequence or array, as a tuple of checked entries.

        Messages call the entries ``name[0]`` and so on.
        """
        part = self.part
        takes = self.takes(value)
        if takes and is_array(value) and isinstance(part, Plain) and part.type in (int, float):
            dtype = np.int64 if part.type is int else np.float64
            value = frozen(name, value, 1, dtype).tolist()
        elif takes and is_array(value):
            value = plain_array(name, value).tolist()
        if not takes or self.length not in (None, len(value)):
            expected = "a list"
            if self.length is not None:
                expected = f"a list of {self.length}"
            raise InputError(f"{name} = {shorten(value)}: {expected} is expected", where=name)

        if isinstance(part, Plain | Listed) and part.takes_all(value):  # millions of names
            return tuple(value)
        return tuple(part.check(f"{name}[{k}]", entry) for k, entry in enumerate(value))


@dataclass(frozen=True, slots=True)
class Mapped:
    """A mapping of texts to parts of one form."""

    part: Form

    def takes(self, value: Any) -> bool:
        """Tell whether a value is a mapping."""
        return isinstance(value, Mapping)

    def check(self, name: str, value: Any) -> Any:
        """Return a read-only copy of the mapping; its keys are texts and its parts are checked."""
        if not self.takes(value) or not all(isinstance(key, str) for key in value):
            raise InputError(
                f"{name} = {shorten(value)}: a mapping is expected, as {{'key': value}}",
                where=name,
            )
        for key, entry in value.items():
            self.part.check(f"{name}[{key}]", entry)
        return FrozenMap(value)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several forms, or None."""

    parts: tuple[Form, ...]
    optional: bool

    def takes(self, value: Any) -> bool:
        """Tell whether one of the forms takes the value."""
        return (value is None and self.optional) or any(p.takes(value) for p in self.parts)

    def check(self, name: str, value: Any) -> Any:
        """Return the value in the plain form of the first form that takes it.

        None stays None where that is allowed. A value that no form takes is refused: with the
        words for all forms, joined by "or", if there are several and each is a plain type, a word,
        a list or a class; otherwise with the message of the last form.
        """
        if value is None and self.optional:
            return None
        form = next((part for part in self.parts if part.takes(value)), self.parts[-1])
        named = Plain | Word | Listed | Instance
        words = [part.wanted for part in self.parts if isinstance(part, named)]
        if len(words) == len(self.parts) > 1 and not form.takes(value):
            raise InputError(
                f"{name} = {shorten(value)}: {' or '.join(words)} is expected", where=name
            )
        return form.check(name, value)


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of a class."""

    cls: type

    @property
    def wanted(self) -> str:
        """The words for what is expected."""
        return f"a {self.cls.__name__}"

    def takes(self, value: Any) -> bool:
        """Tell whether a value is such an object."""
        return isinstance(value, self.cls)

    def check(self, name: str, value: Any) -> Any:
        """Return an object if it is one of the wanted class."""
        if not self.takes(value):
            raise InputError(f"{name} = {shorten(value)}: {self.wanted} is expected", where=name)
        return value


@cache
def form_of(hint: Any) -> Form:
    """Return the object that checks the values of a field, made from the type hint of the field.

    For example, the form of ``int`` takes whole numbers, and that of
    ``Annotated[float, Range(...)]`` takes numbers in the range.

    Parameters
    ----------
    hint
        One of

        - ``int``, ``float``, ``bool``, ``str``, or a class;
        - ``Literal``, for one of several words;
        - an array, tuple, sequence or mapping of such hints;
        - a union of such hints, perhaps with None;
        - ``Annotated`` around any of these, with a `Range` of values or the `Axes` of an array. In
          front of a union, they hold for each of its parts.

    Returns
    -------
    Form
        Checks such values and brings them into one plain form. It is remembered: equal hints have
        the same form.

    Raises
    ------
    TypeError
        If the hint is of another kind.
    """
    # Take off the annotations, and collect their rules, the innermost first. The first range and
    # the first axes count; without them all values are allowed, on one axis.
    hint = _spell_out(hint)
    rules: list[Any] = []
    while get_origin(hint) is Annotated:
        hint, *rules_here = get_args(hint)
        hint = _spell_out(hint)
        rules = [*rules_here, *rules]
    span = next((rule for rule in rules if isinstance(rule, Range)), Range())
    axes = next((rule for rule in rules if isinstance(rule, Axes)), Axes(1))

    # Hints that are made of other hints: the form is made of their forms.
    origin = get_origin(hint)
    parts = get_args(hint)
    if origin in (Union, types.UnionType):
        options = tuple(
            form_of(Annotated[part, span, axes]) for part in parts if part is not types.NoneType
        )
        return Choice(options, types.NoneType in parts)
    if origin is Literal:
        return Word(parts)
    if origin is np.ndarray:
        return Array(get_args(parts[1])[0], axes, span, BY_NAME in rules)
    if origin in (tuple, Sequence):
        has_length = origin is tuple and Ellipsis not in parts
        return Listed(form_of(parts[0]), len(parts) if has_length else None)
    if origin is Mapping:
        return Mapped(form_of(parts[1]))

    # Single values: plain ones, or instances of a class.
    if hint in (int, float, bool, str):
        return Plain(hint, span, BY_NAME in rules)
    cls = origin or hint
    if hint is Any:
        cls = object
    if not isinstance(cls, type):
        raise TypeError(f"{hint!r}: no form of a field")
    return Instance(cls)


def _spell_out(hint: Any) -> Any:
    """Replace an alias, plain or with parameters, by its meaning.

    From Python 3.12 on, NumPy's `NDArray` is such an alias, and so is the result of a ``type``
    statement.
    """
    while (alias := get_origin(hint) or hint) and hasattr(alias, "__value__"):
        value = alias.__value__
        if alias is not hint:  # with parameters, which the value may name in another order
            argument_of = dict(zip(alias.__type_params__, get_args(hint), strict=True))
            value = value[tuple(argument_of[name] for name in value.__parameters__)]
        hint = value
    return hint


@cache
def forms_of(cls: Hashable) -> Mapping[str, Form]:
    """Return what each field of a data class may hold, in their order."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: form_of(hints[field.name]) for field in fields(cls)}  # type: ignore[arg-type]


@cache
def meanings_of(cls: type) -> Mapping[str, str]:
    """Return what the docstring of a data class says of each of its fields, as one line of text.

    Help of commands, JSON Schemas and tables of the documentation are made of these sentences. A
    field that the section "Parameters" leaves out is not in the result; without docstrings
    (``python -OO``) it is empty.

    Parameters
    ----------
    cls
        A data class whose docstring follows numpydoc.

    Returns
    -------
    Mapping
        The sentences by the name of a field; names that share an entry have the same.
    """
    _, _, section = (inspect.getdoc(cls) or "").partition("Parameters\n----------\n")
    section = re.split(r"\n\n\w[\w ]*\n-+\n", section)[0]

    # An entry is a line of names, and below it indented lines, empty ones among them.
    meanings: dict[str, str] = {}
    entry = re.compile(r"^(\S.*)\n((?:    .*\n?|\n(?=    ))+)", re.MULTILINE)
    for names, indented_lines in entry.findall(section):
        meaning = " ".join(indented_lines.split())
        meanings |= dict.fromkeys(re.split(r",\s*", names), meaning)
    return meanings


def check_fields(value: Any) -> None:
    """Check all fields of a frozen data class, as the first step of its constructor.

    Numbers become plain ones, sequences tuples, and arrays and mappings frozen copies.

    Raises
    ------
    InputError
        Naming the first field of another type, or out of range.
    """
    cls: Any = type(value)
    for name, form in forms_of(cls).items():
        object.__setattr__(value, name, form.check(name, getattr(value, name)))


def shorten(value: Any, most: int = 60) -> str:
    """Write a value for a message, and no more than its first letters."""
    text = repr(value)
    if len(text) <= most:
        return text
    return text[:most] + "..."


_SHOWN = 16
"""Representations show arrays and tuples of up to so many entries."""
_LONGEST_PART = 120
"""Representations leave out what a part of so many letters or more holds."""


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
        for part in fields(self):  # type: ignore[arg-type]
            value = getattr(self, part.name)
            if part.repr and not _is_default(part, value):
                arguments.append(f"{part.name}={brief(value)}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    def __post_init__(self) -> None:
        check_fields(self)

    def _state(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def _set(self, **values: Any) -> None:
        """Replace the values that the constructor was given by checked ones."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

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


def brief(value: Any) -> str:
    """Show a field in short: of many numbers the type and the shape.

    Collections of more than `_SHOWN` entries are not written out, and nothing that would take
    `_LONGEST_PART` letters: a netlist in a problem in a solution stays one line.
    """
    if isinstance(value, np.ndarray):
        if value.size > _SHOWN:
            return f"<{value.dtype} {' x '.join(map(str, value.shape))}>"
        return repr(value.tolist())
    text = repr(value)
    is_long = len(text) > _LONGEST_PART
    if isinstance(value, (tuple, list, Mapping)) and (is_long or len(value) > _SHOWN):
        return f"<{len(value)} entries>"
    return f"{type(value).__name__}(...)" if is_long and isinstance(value, Value) else text


def brief_tuple(cls: type[_Tuple]) -> type[_Tuple]:
    """Let a NamedTuple of arrays show itself in short: large arrays by type and shape.

    Parameters
    ----------
    cls
        The class, which is changed.

    Returns
    -------
    type
        The same class.

    Examples
    --------
    >>> from optmatch.fabrics import Links
    >>> Links(np.zeros((9, 8), np.int32), count=3)
    Links(of_terminal=<int32 9 x 8>, count=3)
    """

    def show(record: Any) -> str:
        parts = [f"{name}={brief(value)}" for name, value in record._asdict().items()]
        return f"{type(record).__name__}({', '.join(parts)})"

    cls.__repr__ = show  # type: ignore[method-assign]
    return cls


def _hashable(value: Any) -> Any:
    """Return what stands for a value in comparisons: of an array its shape, type and bytes."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    return value
