"""Tables of records: CSV whose first line names the columns, or JSON with a list of objects."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from optmatch.io.contents import decode
from optmatch.io.fields import check_format, check_keys, check_object, shorten
from optmatch.io.text import parse_json, pointer
from optmatch.model import FormatError, number

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

    The first line that is not empty names the columns: each once, all of those that are `needed`,
    and none that is not `known` (None: any). Lines with too many entries are refused, and, unless
    they `may_be_short`, with too few.
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
