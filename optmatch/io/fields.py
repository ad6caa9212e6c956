"""Records in files: data classes as JSON objects, by their fields, and tables as CSV or JSON.

A new data class needs no code here.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from optmatch.fabrics import FABRICS, Fabric
from optmatch.io.text import decode, parse_json, plain, pointer
from optmatch.model import FormatError, InputError, number
from optmatch.model.declarations import (
    shorten as shorten,
)
from optmatch.problems.records import (
    check_keys as check_keys,
    check_object as check_object,
    choose as choose,
    from_object as from_object,
)


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
    return plain(entry, partial(_write, keep_ndim=keep_ndim))


def check_format(tree: Any, where: str, *formats: str) -> str:
    """Return the format tag of an object, which has to be one of the given formats."""
    check_object(tree, where)
    return choose(tree, "format", {name: name for name in formats}, where)


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
"""A number as spreadsheets write it."""


_COMMENT = re.compile(rb"^[ \t]*#.*", re.MULTILINE)


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


def read_records(
    content: bytes, path: str, form: str, key: str, known: Collection[str] | None = None
) -> list[Record]:
    """Read ``{"format": form, key: [...]}``, a list of objects, or else a table of CSV.

    With a list of `known` names of columns others are refused, and CSV needs the first of them.
    Without it lines of CSV that begin with ``#`` are comments.
    """
    if content.lstrip()[:1] != b"{":
        if known is None:
            return csv_records(_COMMENT.sub(b"", content), path)
        return csv_records(content, path, known, needed=list(known)[:1])
    tree = parse_json(content, path)
    check_format(tree, "", form)
    check_keys(tree, "", allowed=("format", key), required=())
    records = list_records(tree.get(key), pointer("", key))
    for record in records:
        check_names("key", list(record.entries), known, record.place)
    return records


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
