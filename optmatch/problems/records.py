"""Records from JSON objects and TOML tables: keys are the fields of a data class.

Each value is read by the declared form of its field, and the constructor checks it. Files of
`optmatch/problems/data` have a table for each record, with figures from papers, data sheets and
price lists beside their sources.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from optmatch.fabrics import FABRICS, Fabric
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
    shorten,
)
from optmatch.model.errors import place_in, pointer

T = TypeVar("T")

FOLDER = Path(__file__).parent / "data"


def read_tables(file_name: str) -> dict[str, Any]:
    """Return the tables of a file of `optmatch/problems/data`, such as ``presets.toml``."""
    text = (FOLDER / file_name).read_text("utf-8")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise InputError(str(exc), path=file_name) from exc


def build_records(cls: type[T], tables: Mapping[str, Any]) -> Mapping[str, T]:
    """Build a record of a data class from each table, in their order, by name.

    Examples
    --------
    >>> from optmatch.problems import RailNetwork
    >>> build_records(RailNetwork, {"small": {"gpus_per_server": 2}})["small"].gpus_per_server
    2
    """
    return MappingProxyType(
        {name: from_object(cls, table, pointer("", name)) for name, table in tables.items()}
    )


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


def _check_entries(tree: Any, where: str, has_names: bool) -> None:
    """Refuse booleans and null inside an array, and strings that cannot be names."""
    if isinstance(tree, np.ndarray):
        return
    if isinstance(tree, list):
        if all(type(entry) in (int, float) for entry in tree):  # the common case, at full speed
            return
        for index, entry in enumerate(tree):
            _check_entries(entry, pointer(where, index), has_names)
    elif type(tree) not in (int, float) and not (has_names and isinstance(tree, str)):
        raise FormatError(f"{shorten(tree)}: a number is expected here", where=where)


def _read_value(form: Form, tree: Any, where: str) -> Any:
    """Read a JSON value by the form of its field, the type hint.

    `tree` is the value, perhaps with arrays of NumPy inside, and `where` its JSON pointer, for
    errors. Plain values are returned as they are, since the constructor of the record checks them.
    """
    match form:
        case Choice(parts):
            return _read_choice(parts, tree, where)
        case Array(has_names=has_names):
            if not isinstance(tree, np.ndarray | list):
                raise FormatError(
                    f"{shorten(tree)}: a list of numbers is expected here", where=where
                )
            _check_entries(tree, where, has_names)
        case Instance(cls) if issubclass(cls, Fabric):
            check_object(tree, where)
            classes = {name: entry for name, entry in FABRICS.items() if issubclass(entry, cls)}
            return from_object(choose(tree, "type", classes, where), tree, where, tags=("type",))

        # Members of an enumeration stand by their values, records as objects.
        case Instance(cls) if issubclass(cls, Enum):
            names = [member.value for member in cls]
            if not isinstance(tree, str) or tree not in names:
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
        case Plain(span=Range(infinite=True)) if isinstance(tree, str) and tree in ("inf", "-inf"):
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
