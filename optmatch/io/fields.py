"""Records in files: data classes as JSON objects, by their fields, and tables as CSV or JSON.

A new data class needs no code here.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import numpy as np

from optmatch.fabrics import FABRICS, Fabric
from optmatch.io.text import decode, parse_json, place_in, plain, pointer
from optmatch.model import FormatError, InputError, number
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
    """Turn the value of a field into plain values for JSON; large arrays may stay arrays.

    Arrays with `keep_ndim` or more dimensions stay as they are; with None all become lists.
    """
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
    removed = getattr(cls, "removed_fields", ())
    for name in removed:
        if tree.get(name) is not None:
            raise FormatError(
                f"key {name!r}: this field is gone, and only null may be here",
                where=pointer(where, name),
            )
    field_of_name: dict[str, Field[Any]] = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    check_keys(
        {name: entry for name, entry in tree.items() if name not in removed},
        where,
        allowed=(*tags, *field_of_name),
        required=[
            name
            for name, field in field_of_name.items()
            if field.default is MISSING and field.default_factory is MISSING
        ],
    )

    # Each value is read by the form of its field, and the constructor checks it.
    values = {}
    for name in field_of_name:
        if name in nested and name in tree:
            values[name] = nested[name](tree[name], pointer(where, name))
        elif name in tree:
            values[name] = _read_value(forms_of(cls)[name], tree[name], pointer(where, name))
    try:
        return cls(**values)
    except InputError as exc:
        if not exc.where.startswith("/"):
            exc.where = place_in(exc.where, exc.message, frozenset(field_of_name), where) or "/"
        raise


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


def _read_value(form: Form, tree: Any, where: str) -> Any:
    """Read a JSON value by the form of its field, the type hint.

    `tree` is the value, perhaps with arrays of NumPy inside, and `where` its JSON pointer, for
    errors. Plain values are returned as they are, since the constructor of the record checks them.
    """
    match form:
        case Choice(parts):
            return _read_choice(parts, tree, where)
        case Array():
            if not isinstance(tree, np.ndarray | list):
                raise FormatError(
                    f"{shorten(tree)}: a list of numbers is expected here", where=where
                )
            _check_numbers(tree, where)
        case Instance(cls) if issubclass(cls, Fabric):
            check_object(tree, where)
            classes = {name: entry for name, entry in FABRICS.items() if issubclass(entry, cls)}
            return from_object(choose(tree, "type", classes, where), tree, where, tags=("type",))

        # Members of an enumeration stand by their values, records as objects.
        case Instance(cls) if issubclass(cls, Enum):
            names = [member.value for member in cls]
            if tree not in names:
                raise FormatError(f"{shorten(tree)}: one of {', '.join(names)}", where=where)
            return cls(tree)
        case Instance(cls) if is_dataclass(cls):
            return from_object(cls, tree, where)
        case Listed(part) if not isinstance(part, Plain | Word):
            if not isinstance(tree, list):
                raise FormatError(f"{shorten(tree)}: a list is expected here", where=where)
            return tuple(
                _read_value(part, entry, pointer(where, index)) for index, entry in enumerate(tree)
            )
        case Mapped(part):
            check_object(tree, where)
            return {
                key: _read_value(part, entry, pointer(where, key)) for key, entry in tree.items()
            }
        case Plain(span=Range(infinite=True)) if tree in ("inf", "-inf"):
            return float(tree)
    return tree


def _read_choice(parts: tuple[Form, ...], tree: Any, where: str) -> Any:
    """Read a value that may have one of several forms, by what it looks like.

    A list is read as an array or a sequence, an object as a class or a mapping; plain values are
    left to the constructor.
    """
    rows = [part for part in parts if isinstance(part, Array | Listed)]
    records = [part for part in parts if isinstance(part, Instance | Mapped)]
    plain_parts = [part for part in parts if isinstance(part, Plain)]
    fitting = records if isinstance(tree, dict) else rows
    if (rows and isinstance(tree, list | np.ndarray)) or (records and tree is not None):
        return _read_value((fitting or records)[0], tree, where)
    return _read_value(plain_parts[0], tree, where) if plain_parts else tree


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
"""A number as spreadsheets write it."""


class Record(NamedTuple):
    """A line of CSV or an object of JSON."""

    place: str
    """``line 3``, or a JSON pointer, for messages."""
    number: int
    """The number of the line, from 1 up, or the place in the list, from 0."""
    entries: dict[str, Any]
    """By column the text of an entry that is not empty; or the value of each key."""


def csv_records(
    content: bytes,
    path: str,
    known: Collection[str] | None = None,
    *,
    needed: Collection[str] = (),
    may_be_short: bool = False,
) -> list[Record]:
    """Read a table of CSV; empty entries are left out, and blanks around others.

    A record is the place of its line, the number of this line, and its entries by column. The
    first line that is not empty names the columns: each once, all of those that are `needed`, and
    none that is not `known` (None: any). Lines with too many entries are refused, and, unless they
    `may_be_short`, with too few.
    """
    reader = csv.reader(io.StringIO(decode(content, path)))
    names: list[str] = []
    records = []
    try:
        for row in reader:
            # An entry between quotes may go over several lines: the last one is the place.
            place = f"line {reader.line_num}"
            entries = [entry.strip() for entry in row]
            if not row:
                continue
            if not names:
                names = entries
                check_names("column", names, known, place)
                for name in sorted(set(needed).difference(names)):
                    raise FormatError(f"column {name!r} is missing", where=place)
                continue

            # A row: its entries by column, without the empty ones.
            if len(entries) > len(names) or (len(entries) < len(names) and not may_be_short):
                raise FormatError(f"{len(entries)} entries, {len(names)} names", where=place)
            filled = {name: entry for name, entry in zip(names, entries, strict=False) if entry}
            records.append(Record(place, reader.line_num, filled))
    except csv.Error as exc:
        raise FormatError(f"not CSV: {exc}", where=f"line {reader.line_num}") from None
    if not names:
        raise FormatError("a line with the names of the columns is expected")
    return records


def json_records(content: bytes, path: str, form: str, key: str) -> list[Record]:
    """Read ``{"format": form, key: [...]}``, a list of objects."""
    tree = parse_json(content, path)
    check_format(tree, "", form)
    check_keys(tree, "", allowed=("format", key), required=())
    return list_records(tree.get(key), pointer("", key))


def list_records(rows: Any, where: str) -> list[Record]:
    """Return the objects of a list, which stands at a JSON pointer; anything else is refused."""
    if not isinstance(rows, list):
        raise FormatError("a list of objects is expected", where=where or "/")
    for index, row in enumerate(rows):
        check_object(row, pointer(where, index))
    return [Record(pointer(where, index), index, row) for index, row in enumerate(rows)]


def check_names(
    noun: str, names: Sequence[str], known: Collection[str] | None, where: str
) -> None:
    """Refuse names of columns or keys, which `noun` says, that are unknown or there twice."""
    for name in names:
        if known is not None and name not in known:
            listed = ", ".join(known)
            raise FormatError(f"{noun} {shorten(name)}: known are {listed}", where=where)
        if names.count(name) > 1:
            raise FormatError(f"{noun} {shorten(name)} is there twice", where=where)


def read_entry(name: str, entry: Any, place: str) -> float:
    """Return the finite number that an entry of CSV or a value of JSON is."""
    value = entry
    if isinstance(entry, str) and _NUMBER.fullmatch(entry):
        value = float(entry)
    if type(value) not in (int, float):
        raise FormatError(f"{name} = {shorten(entry)}: a number is expected", where=place)
    return number(f"{place}, {name}", value, at_least=-math.inf)
