"""Frozen data classes as JSON objects, by their fields: a new one needs no code here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, fields
from functools import lru_cache
from typing import Any, TypeVar, get_origin, get_type_hints

import numpy as np

from optmatch.io.text import place_in, plain, pointer
from optmatch.model import FormatError, InputError

T = TypeVar("T")


def to_object(value: Any, **nested: Callable[[Any], Any]) -> dict[str, Any]:
    """Write the fields of a data class, all of them, in their order.

    Parameters
    ----------
    value
        The data class.
    nested
        For fields that are data classes themselves: what writes them.
    """
    entries = {field.name: getattr(value, field.name) for field in fields(value)}
    return {name: nested.get(name, plain)(entry) for name, entry in entries.items()}


def from_object(
    cls: Callable[..., T],
    tree: Any,
    where: str,
    *,
    tags: Collection[str] = (),
    **nested: Callable[[Any, str], Any],
) -> T:
    """Build a data class from a JSON object.

    Parameters
    ----------
    cls
        The data class; its constructor checks the values.
    tree
        The object; fields that have a default may be absent.
    where
        Its JSON pointer.
    tags
        Keys that are no fields and were read before.
    nested
        For fields that are data classes themselves: what reads them.

    Raises
    ------
    FormatError
        If `tree` is no object, a key is unknown or absent, or an array holds what is no number.
    InputError
        If the constructor refuses a value.
    """
    check_object(tree, where)
    known: dict[str, Field[Any]] = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    check_keys(
        tree, where, known=(*tags, *known), needed=[n for n, f in known.items() if _needed(f)]
    )
    values = {}
    for name in known:
        if name in tree:
            place = pointer(where, name)
            if name in nested:
                values[name] = nested[name](tree[name], place)
                continue
            if name in _arrays(cls) and tree[name] is not None:
                check_numbers(tree[name], place)
            values[name] = tree[name]
    try:
        return cls(**values)
    except InputError as exc:
        if not exc.where.startswith("/"):
            exc.where = place_in(exc.where, exc.message, frozenset(known), where) or "/"
        raise


def check_object(tree: Any, where: str) -> None:
    """Refuse what is no JSON object."""
    if not isinstance(tree, dict):
        raise FormatError(f"{shorten(tree)}: an object is expected here", where=where or "/")


def check_keys(
    tree: Mapping[str, Any], where: str, *, known: Collection[str], needed: Collection[str]
) -> None:
    """Refuse unknown keys, which may be misspelt ones, and absent ones."""
    for key in tree:
        if key not in known:
            raise FormatError(
                f"unknown key {key!r}: known are {', '.join(known)}", where=pointer(where, key)
            )
    for key in needed:
        if key not in tree:
            raise FormatError(f"key {key!r} is missing", where=where or "/")


def choose(tree: Mapping[str, Any], key: str, known: Mapping[str, T], where: str) -> T:
    """Look up the class that a tag names.

    Raises
    ------
    FormatError
        If the tag is absent or unknown.
    """
    if key not in tree:
        raise FormatError(f"key {key!r} is missing", where=where or "/")
    name = tree[key]
    if not isinstance(name, str) or name not in known:
        raise FormatError(
            f"{key} = {shorten(name)}: unknown; known are {', '.join(known)}",
            where=pointer(where, key),
        )
    return known[name]


def check_numbers(tree: Any, where: str) -> None:
    """Refuse strings, booleans and null inside an array, which NumPy would turn into numbers."""
    if isinstance(tree, np.ndarray):
        return
    if isinstance(tree, list):
        if all(type(entry) in (int, float) for entry in tree):  # the common case, at full speed
            return
        for index, entry in enumerate(tree):
            check_numbers(entry, pointer(where, index))
    elif type(tree) not in (int, float):
        raise FormatError(f"{shorten(tree)}: a number is expected here", where=where)


def shorten(value: Any, most: int = 60) -> str:
    """Return a value for a message, cut to a length that fits a line."""
    text = repr(value)
    return text if len(text) <= most else text[:most] + "..."


def _needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


@lru_cache
def _arrays(cls: Callable[..., Any]) -> frozenset[str]:
    """Name the fields that are arrays, or arrays or None."""
    hints = get_type_hints(cls)
    kinds = {name: getattr(hint, "__args__", ()) for name, hint in hints.items()}
    return frozenset(
        name
        for name, hint in hints.items()
        if get_origin(hint) is np.ndarray
        or (any(get_origin(part) is np.ndarray for part in kinds[name]))
    )
