"""Frozen data classes as JSON objects, by their fields: a new one needs no code here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np

from optmatch.fabrics import FABRICS, Fabric
from optmatch.io.text import place_in, plain, pointer
from optmatch.model import FormatError, InputError
from optmatch.model.declarations import (
    Array,
    Choice,
    Form,
    Instance,
    Listed,
    Mapped,
    Plain,
    Range,
    Word,
    forms_of,
    shorten as shorten,
)

T = TypeVar("T")


def to_object(
    value: Any, *, keep_ndim: int | None = None, **nested: Callable[[Any], Any]
) -> dict[str, Any]:
    """Turn a data class into a dict of its fields, in their order, for JSON.

    A field with ``brief`` in its metadata is left out where it has its default: fields that came
    later than the format change no digest of what was written before. Data classes in fields, in
    sequences and in mappings are written the same way; a fabric has its type in front. Arrays of
    `keep_ndim` dimensions or more stay arrays, and `nested` has writers of single fields.
    """
    entries = {
        field.name: getattr(value, field.name)
        for field in fields(value)
        if "brief" not in field.metadata or np.any(getattr(value, field.name) != field.default)
    }
    return {
        name: nested[name](entry) if name in nested else _write(entry, keep_ndim)
        for name, entry in entries.items()
    }


def _write(entry: Any, keep_ndim: int | None) -> Any:
    """Turn the value of a field into plain values for JSON; large arrays may stay arrays."""
    if isinstance(entry, Fabric):
        if FABRICS.get(entry.type) is not type(entry):
            raise InputError(f"{type(entry).__name__} has no file format", where="/fabric")
        return {"type": entry.type, **to_object(entry, keep_ndim=keep_ndim)}
    if is_dataclass(entry):
        return to_object(entry, keep_ndim=keep_ndim)

    # What is no record is plain, or a collection of records.
    if isinstance(entry, np.ndarray) and keep_ndim is not None and entry.ndim >= keep_ndim:
        return entry
    if isinstance(entry, Mapping):
        return {str(key): _write(part, keep_ndim) for key, part in entry.items()}
    if isinstance(entry, tuple | list):
        return [_write(part, keep_ndim) for part in entry]
    return plain(entry)


def from_object(
    cls: Callable[..., T],
    tree: Any,
    where: str,
    *,
    tags: Collection[str] = (),
    **nested: Callable[[Any, str], Any],
) -> T:
    """Build a data class from a JSON object at a pointer; its constructor checks the values.

    Fields that have a default may be absent, and a field that a class once had may be there if it
    is null. Data classes, fabrics, and tuples or mappings of them are built the same way. `tags`
    are keys that are no fields, and were read before; `nested` has readers of single fields, which
    get the value and its pointer. Errors name the place in the file.
    """
    check_object(tree, where)
    tree = _without_removed_fields(tree, getattr(cls, "removed_fields", ()), where)
    field_of_name: dict[str, Field[Any]] = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    check_keys(
        tree,
        where,
        allowed=(*tags, *field_of_name),
        required=[name for name, field in field_of_name.items() if _is_required(field)],
    )

    # Each value is read by the form of its field, and the constructor checks it.
    values = {}
    for name in field_of_name:
        if name in tree:
            read = nested.get(name) or _reader(forms_of(cls)[name])
            values[name] = read(tree[name], pointer(where, name))
    try:
        return cls(**values)
    except InputError as exc:
        if not exc.where.startswith("/"):
            exc.where = place_in(exc.where, exc.message, frozenset(field_of_name), where) or "/"
        raise


def _without_removed_fields(
    tree: Mapping[str, Any], removed: Collection[str], where: str
) -> Mapping[str, Any]:
    """Leave out fields that a class once had; refuse one that says something."""
    for name in removed:
        if tree.get(name) is not None:
            raise FormatError(
                f"key {name!r}: this field is gone, and only null may be here",
                where=pointer(where, name),
            )
    return {name: entry for name, entry in tree.items() if name not in removed}


def check_object(tree: Any, where: str) -> None:
    """Refuse a tree that is no JSON object."""
    if not isinstance(tree, dict):
        raise FormatError(f"{shorten(tree)}: an object is expected here", where=where or "/")


def check_keys(
    tree: Mapping[str, Any], where: str, *, allowed: Collection[str], required: Collection[str]
) -> None:
    """Refuse unknown keys, which may be misspelt ones, and the absence of required ones."""
    for key in tree:
        if key not in allowed:
            raise FormatError(
                f"unknown key {key!r}: known are {', '.join(allowed)}", where=pointer(where, key)
            )
    for key in required:
        if key not in tree:
            raise FormatError(f"key {key!r} is missing", where=where or "/")


def choose(tree: Mapping[str, Any], key: str, class_of_tag: Mapping[str, T], where: str) -> T:
    """Look up the class that a tag names, such as ``"kind": "demand"``."""
    if key not in tree:
        raise FormatError(f"key {key!r} is missing", where=where or "/")
    name = tree[key]
    if not isinstance(name, str) or name not in class_of_tag:
        raise FormatError(
            f"{key} = {shorten(name)}: unknown; known are {', '.join(class_of_tag)}",
            where=pointer(where, key),
        )
    return class_of_tag[name]


def check_format(tree: Any, where: str, *formats: str) -> str:
    """Return the format tag of an object, which has to be one of the given formats."""
    check_object(tree, where)
    return choose(tree, "format", {name: name for name in formats}, where)


def _check_numbers(tree: Any, where: str) -> None:
    """Refuse strings, booleans and null inside an array, which NumPy would turn into numbers."""
    if isinstance(tree, np.ndarray):
        return
    if isinstance(tree, list):
        if all(type(entry) in (int, float) for entry in tree):  # the common case, at full speed
            return
        for index, entry in enumerate(tree):
            _check_numbers(entry, pointer(where, index))
    elif type(tree) not in (int, float):
        raise FormatError(f"{shorten(tree)}: a number is expected here", where=where)


def _is_required(field: Field[Any]) -> bool:
    """Tell whether a field has no default, so that a file has to state it."""
    return field.default is MISSING and field.default_factory is MISSING


@cache
def _reader(form: Form) -> Callable[[Any, str], Any]:
    """Find the function that reads values of a form, the type of a field.

    It takes the JSON value and its pointer. Plain values are returned as they are, since the
    constructor checks them.
    """
    match form:
        case Choice(parts):
            return _choice(parts)
        case Array():
            return _array
        case Instance(cls) if issubclass(cls, Fabric):
            classes = {name: entry for name, entry in FABRICS.items() if issubclass(entry, cls)}
            return partial(_fabric, classes)
        case Instance(cls) if issubclass(cls, Enum):
            return partial(_member, cls)
        case Instance(cls) if is_dataclass(cls):
            return partial(from_object, cls)
        case Listed(part) if not isinstance(part, Plain | Word):
            return partial(_sequence, _reader(part))
        case Mapped(part):
            return partial(_members, _reader(part))
        case Plain(span=Range(infinite=True)):
            return lambda tree, where: float(tree) if tree in ("inf", "-inf") else tree
    return lambda tree, where: tree


def _choice(parts: tuple[Form, ...]) -> Callable[[Any, str], Any]:
    """Make a reader of values that may have one of several forms, by what a value looks like.

    A list is read as an array or a sequence, an object as a class or a mapping; plain values are
    left to the constructor.
    """
    rows = [part for part in parts if isinstance(part, Array | Listed)]
    records = [part for part in parts if isinstance(part, Instance | Mapped)]
    plain = next((_reader(part) for part in parts if isinstance(part, Plain)), None)

    def read(tree: Any, where: str) -> Any:
        """Read a value by the form that it looks like."""
        fitting = records if isinstance(tree, dict) else rows
        if (rows and isinstance(tree, list | np.ndarray)) or (records and tree is not None):
            return _reader((fitting or records)[0])(tree, where)
        return tree if plain is None else plain(tree, where)

    return read


def _array(tree: Any, where: str) -> Any:
    """Read an array: a list of numbers, or what stood in the file beside this one."""
    if not isinstance(tree, np.ndarray | list):
        raise FormatError(f"{shorten(tree)}: a list of numbers is expected here", where=where)
    _check_numbers(tree, where)
    return tree


def _fabric(class_of_type: Mapping[str, Callable[..., Any]], tree: Any, where: str) -> Any:
    """Read a fabric: its type says which."""
    check_object(tree, where)
    fabric_class = choose(tree, "type", class_of_type, where)
    return from_object(fabric_class, tree, where, tags=("type",))


def _member(kind: type[Enum], tree: Any, where: str) -> Any:
    """Read a member of an enumeration by its value."""
    names = [member.value for member in kind]
    if tree not in names:
        raise FormatError(f"{shorten(tree)}: one of {', '.join(names)}", where=where)
    return kind(tree)


def _sequence(read: Callable[[Any, str], Any], tree: Any, where: str) -> Any:
    """Read a list whose entries are all read alike."""
    if not isinstance(tree, list):
        raise FormatError(f"{shorten(tree)}: a list is expected here", where=where)
    return tuple(read(part, pointer(where, index)) for index, part in enumerate(tree))


def _members(read: Callable[[Any, str], Any], tree: Any, where: str) -> Any:
    """Read an object whose values are all read alike."""
    check_object(tree, where)
    return {key: read(part, pointer(where, key)) for key, part in tree.items()}
