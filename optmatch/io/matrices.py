"""Demand matrices and lists of flows from the files of other tools: rows are sources.

Files are tables of text (CSV, TSV, blanks), Matrix Market, arrays of NumPy and SciPy, instances of
QOBLIB, and networks of SNDlib (XML and JSON) and REPETITA.

A table is read only if it can mean one thing. Each layout of `LAYOUTS` says by `_possible_layouts`
whether it fits; where two fit, the table is refused and both are named. A header such as
``size_gbytes`` or ``traffic (Mbit/s)`` is taken apart into words. A unit that is named is used or
refused; nothing is taken for bytes because its unit is not understood.
"""

from __future__ import annotations

import csv
import io
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.io.fields import shorten
from optmatch.io.rails.chakra import is_trace, read_chakra, read_groups, siblings
from optmatch.io.text import (
    check_content,
    decode,
    describe_tree,
    describing,
    parse_json,
    pointer,
    read_arrays,
    read_bytes,
    refused_at,
    unzip,
)
from optmatch.model import FormatError, InputError, frozen, largest, naming
from optmatch.model.accounts import Level, accounting, assume, take
from optmatch.model.files import file_path, path_name, suffix_of
from optmatch.problems.demands.matrices import (
    add_places,
    fill_matrix,
    from_graph as from_graph,
    is_sparse,
    names_of_ports,
    sparse_entries,
)

# fmt: off
SOURCE_WORDS = frozenset({
    "source", "src", "from", "sender", "origin", "tail", "start", "u", "i", "row",
})
DESTINATION_WORDS = frozenset({
    "destination", "dest", "dst", "to", "receiver", "target", "tgt", "head", "end", "v", "j",
    "col", "column",
})
_AMOUNT_WORDS = frozenset({
    "size", "demand", "weight", "value", "volume", "traffic", "amount", "count", "w", "data",
    "load", "total", "sum", "transferred", "sent",
})
TIME_WORDS = frozenset({"time", "timestamp", "t", "arrival", "start", "at"})
UNUSED_BESIDE_BYTES = frozenset({"packets", "packet", "pkts", "pkt", "flows", "connections"})
"""Counts that say nothing more where a column of bytes stands beside them."""
# fmt: on

_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "usec", "µs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}
_PREFIXES = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SIZE = re.compile(
    r"(?P<prefix>kilo|mega|giga|tera|peta|[kmgtp]?)(?P<binary>i|bi)?"
    r"(?P<unit>bits?|bytes?|octets?|b)"
    r"(?P<rate>/s|/sec|/second|ps|persec|persecond)?",
    re.IGNORECASE,
)


class Unit(NamedTuple):
    """The unit of a column of traffic."""

    text: str
    """As the file writes it."""
    bytes_each: float
    """The bytes of one; of a rate 1, since its numbers are kept."""
    is_rate: bool


BYTES = Unit("bytes", 1.0, False)
"""The unit of numbers whose file states none; a stated one is another object."""

STATED_UNIT = "unit"
"""What the unit that a file states is called in its account."""


def _words_of(header: str) -> list[str]:
    """Take a header apart: ``"size_gbytes"`` becomes size, gbytes; case is kept."""
    spaced = re.sub(r"\s*/\s*", "/", header.strip())
    return [word for word in re.split(r"[\s_\-()\[\]{}:,.]+", spaced) if word]


def size_unit(word: str, place: str) -> Unit | None:
    """Return the unit that a word is: bytes, bits, or one of them a second; None if it is none.

    ``gb`` and ``b`` could be bits or bytes, and are refused with both readings. In a rate that is
    written ``mbps``, b has one usual meaning, bits.
    """
    match = _SIZE.fullmatch(word)
    if match is None:
        return None

    # One letter: b is bits and B is bytes, where capitals are used at all.
    prefix = match["prefix"][:1]
    has_capitals = prefix.isupper() or match["binary"] is not None
    if match["unit"] == "b" and not has_capitals and match["rate"] != "ps":
        raise FormatError(
            f"{shorten(word)} could be bits or bytes: write {prefix}bits or {prefix}bytes",
            path=place,
        )
    if match["rate"] is not None:
        return Unit(word, 1.0, True)
    factor = float((1024 if match["binary"] else 1000) ** _PREFIXES[prefix.lower()])
    if match["unit"] == "b" or match["unit"].lower().startswith("bit"):
        factor /= 8
    return Unit(word, factor, False)


def traffic_unit(header: str, place: str) -> Unit | None:
    """Return the unit of a column whose header says that it has traffic; None if it does not.

    A header without a unit, such as ``demand``, means bytes.
    """
    unit = BYTES
    words = _words_of(header)
    for word in words:
        named = size_unit(word, place)
        if named is None and word.lower() not in _AMOUNT_WORDS:
            return None
        if named is not None and unit is not BYTES:
            raise FormatError(f"{shorten(header)} names two units", path=place)
        unit = named or unit
    return unit if words else None


def unit_in_words(text: str, place: str) -> Unit | None:
    """Return the unit that a text names among other words, as the corner of a table does.

    A unit of something else than traffic is refused.
    """
    unit = None
    for word in _words_of(text):
        if len(word) > 1 or word == "B":
            unit = size_unit(word, place) or unit
        if word.lower() in _NO_TRAFFIC:
            raise FormatError(f"{shorten(text)} names {word}, which is no traffic", path=place)
    return unit


# fmt: off
_NO_TRAFFIC = frozenset({
    "km", "miles", "distance", "length", "latency", "delay", "rtt", "ms", "us", "usd", "cost",
    "price", "hops", "packets", "pkts", "flows", "capacity", "probability", "loss", "db",
})
# fmt: on


def seconds_each(header: str, known_words: frozenset[str]) -> float | None:
    """Return the seconds of one unit of a column of times; None if its words are others.

    ``time`` and ``time_s`` are in seconds, ``arrival_ms`` in milliseconds.
    """
    words = [word.lower() for word in _words_of(header)]
    units = [word for word in words if word in _SECONDS]
    other_words = set(words).difference(units)
    if not other_words or not other_words <= known_words or len(units) > 1:
        return None
    if not units:
        return 1.0
    return _SECONDS[units[0]]


def account_for_unit(unit: Unit) -> None:
    """Put the unit that a file states on its account; numbers of a rate are read as bytes."""
    if unit is BYTES:
        return
    take(Level(STATED_UNIT, (unit.text,)), (unit.text,))
    if unit.is_rate:
        assume(
            f"the demands are rates in {unit.text}; their numbers are read as bytes, so that only"
            " their proportions are right"
        )


EXACT = 2**53
"""Whole numbers beyond this are refused: float64 would round them."""

_NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([ed][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE
)


def is_number(text: str) -> bool:
    """Tell whether a text is a number, as other programs write them."""
    return _NUMBER.fullmatch(text) is not None


def is_whole(text: str) -> bool:
    """Tell whether a text is a whole number >= 0 without a sign, as labels and indices are."""
    return text.isascii() and text.isdecimal() and len(text) < 19


def read_number(text: str, path: str) -> float:
    """Return the number that a text is, as ``3``, ``-0.5e3``, or Fortran's ``1d6``.

    A whole number that float64 would round is refused.
    """
    if text == "":
        raise FormatError(
            "'': a number is expected here; an empty field could be 0 or a value that is missing",
            path=path,
        )
    if not is_number(text):
        raise FormatError(f"{shorten(text)}: a number is expected here", path=path)

    digits = text.lstrip("+-").lstrip("0")
    if digits.isdecimal() and (len(digits) > 16 or int(digits) > EXACT):
        shown_text = shorten(text).strip("'")
        raise FormatError(f"{shown_text}: whole numbers above 2**53 are not exact here", path=path)

    # Fortran writes the exponent of a double after a d.
    return float(text.lower().replace("d", "e"))


class Traffic(NamedTuple):
    """The demand of a file, and what its ports are called.

    Examples
    --------
    >>> import numpy as np, optmatch as om
    >>> traffic = Traffic(np.array([[0.0, 3.0], [2.0, 0.0]]), ("Berlin", "Paris"))
    >>> om.Demand.from_matrix(traffic.demand_bytes, names=traffic.names, delay_s=0.5).lower_bound()
    3.5
    """

    demand_bytes: Any
    """``demand_bytes[source, destination]``: an array of float64, or a sparse array of SciPy where
    the file lists entries. Shape (sources, destinations), not necessarily square."""
    names: tuple[str, ...] | None = None
    """The names of the ports; None if the file has none, or they only count from 0."""


def number_ports(
    sources: Sequence[str], destinations: Sequence[str], path: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]:
    """Return the numbers of ports of two lists of labels, and the label of each port.

    Labels that are all whole numbers are the numbers of ports, counted from 0. Otherwise ports
    come in the order in which their labels occur first: of the pairs b-a and a-c, b is port 0.
    """
    pairs = zip(sources, destinations, strict=True)
    labels = dict.fromkeys(label for pair in pairs for label in pair)
    if all(is_whole(label) for label in labels):
        n_ports = 1 + max((int(label) for label in labels), default=-1)
        check_content("ports", n_ports, path)
        port_of = {label: int(label) for label in labels}
        if n_ports > 1 and set(port_of.values()) == set(range(1, n_ports)):
            assume(
                f"ports 1 to {n_ports - 1} are numbers that count from 0, so that there is a"
                " port 0 without traffic"
            )
        names = tuple(map(str, range(n_ports)))
    else:
        check_content("ports", len(labels), path)
        port_of = {label: port for port, label in enumerate(labels)}
        names = tuple(labels)

    # Both lists by numbers of ports.
    source_ports = np.array([port_of[label] for label in sources], dtype=np.int64)
    destination_ports = np.array([port_of[label] for label in destinations], dtype=np.int64)
    return source_ports, destination_ports, names


def sparse_matrix(
    sources: ArrayLike,
    destinations: ArrayLike,
    demand_bytes: ArrayLike,
    shape: tuple[int, int],
    path: str,
) -> Any:
    """Add up a list of demands as a sparse array of SciPy, without room for the zeros.

    The lists have an entry for each demand. Whole numbers that add up to more than float64 holds
    exactly are refused.
    """
    from scipy.sparse import csr_array  # an import of 0.1 s, which full matrices do without

    with refused_at(path=path):
        entries = add_places(
            shape,
            np.asarray(sources, dtype=np.int64),
            np.asarray(destinations, dtype=np.int64),
            np.asarray(demand_bytes, dtype=np.float64),
            "matrix",
        )
    return csr_array((entries.amounts, (entries.sources, entries.destinations)), shape=shape)


def check_matrix(matrix: Any) -> NDArray[np.float64]:
    """Return an array as a finite matrix of float64; it may lose no digits."""
    with refused_at():
        return frozen("matrix", matrix, 2, np.float64).copy()


def check_sparse(matrix: Any) -> Any:
    """Return a sparse array with finite entries of float64, which may lose no digits."""
    entries = matrix.tocoo()
    wrong = ~np.isfinite(entries.data)
    for k in np.flatnonzero(wrong)[:1]:
        row, column = int(entries.coords[0][k]), int(entries.coords[1][k])
        raise FormatError(f"matrix[{row}, {column}] = {entries.data[k]}: a number is finite")
    with refused_at():
        frozen("entries", entries.data, 1, np.float64)
    return matrix.astype(np.float64).tocsr()


LAYOUTS = {
    "numbers": "a matrix of numbers alone",
    "header": "a matrix whose first line has the names of its columns",
    "index": "a matrix whose first column has the names of its rows",
    "labelled": "a matrix with names in its first line and its first column",
    "edges": "a list of edges: source, destination, bytes",
}
"""What a table can be, for messages and for `--layout`."""

_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?", re.ASCII)
_WITH_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)


class Row(NamedTuple):
    """A line of a table that holds fields."""

    place: str
    """The file and the number of the line, for messages."""
    fields: list[str]


class _EdgeColumns(NamedTuple):
    """Which column of a list of edges has what."""

    source: int
    destination: int
    amount: int
    unit: Unit


def read_table(content: bytes, path: str, layout: str | None = None) -> Traffic:
    """Read a matrix or a list of edges from a table of UTF-8 text; ``#`` begins a comment.

    Fields stand between semicolons, tabs, commas or blanks: the first of these that occurs. Beside
    semicolons and tabs, numbers may have decimal commas. `layout` is a key of `LAYOUTS`, for a
    table that could be two things; None to find out. The matrix of edges is sparse.
    """
    rows = split_rows(content, path)
    if not rows or rows[0].fields == [""]:
        raise FormatError("no numbers in it", path=path)

    # A list of flows with times is no matrix.
    words = {field.lower() for field in rows[0].fields}
    has_time = any(seconds_each(field, TIME_WORDS) is not None for field in rows[0].fields)
    if has_time and words & SOURCE_WORDS and words & DESTINATION_WORDS:
        raise FormatError(
            "a list of flows with their times: `optmatch simulate` replays it, and"
            " optmatch.io.read_flows reads it",
            path=path,
        )

    if layout is None:
        layout = _only_layout(rows, path)
    stated = stated_unit(content, path)
    if layout == "edges":
        return _read_edges(rows, path, stated)
    traffic = _read_matrix(rows, layout, path)

    # What stands in the corner above the names of rows may name the unit of the numbers.
    unit = stated
    if layout == "labelled" and len(rows[0].fields) == len(rows[1].fields):
        unit = unit_in_words(rows[0].fields[0], rows[0].place) or stated
    account_for_unit(unit)
    return Traffic(traffic.demand_bytes * unit.bytes_each, traffic.names)


_STATED_UNIT = re.compile(r"^\s*[#%]+.*?\bunits?\b\s*(?:[:=]|is\b|are\b)?\s*(\S+)", re.I | re.M)


def stated_unit(content: bytes, path: str) -> Unit:
    """Return the unit that a comment states, as ``# unit: Mbit/s``; bytes if none does."""
    match = _STATED_UNIT.search(content.decode(errors="replace"))
    if match is None:
        return BYTES
    unit = size_unit(match[1].strip(".,;"), path)
    if unit is None:
        raise FormatError(f"unit {shorten(match[1])}: bytes, bits or their multiples", path=path)
    return unit


def _lines(content: bytes, path: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each line that is not blank."""
    text = io.StringIO(decode(content, path), newline=None)
    for number, line in enumerate(text, start=1):
        if line.strip():
            yield f"{path}:{number}", line


def split_words(content: bytes, path: str) -> list[Row]:
    """Split a text into lines of words between blanks, without empty lines."""
    return [Row(place, line.split()) for place, line in _lines(content, path)]


def split_rows(content: bytes, path: str) -> list[Row]:
    """Split a text into lines of fields, without comments and empty lines.

    Fields are separated by the first of semicolon, tab and comma that occurs at all, else by
    blanks. With semicolons or tabs, numbers may have decimal commas.
    """
    lines = []
    for place, line in _lines(content, path):
        without_comment = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if without_comment:
            lines.append((place, without_comment))
    separator = next((mark for mark in ";\t," if any(mark in line for _, line in lines)), None)

    rows = []
    for place, line in lines:
        if separator is None:
            fields = line.split()
        else:
            fields = next(csv.reader([line], delimiter=separator, skipinitialspace=True))
        rows.append(Row(place, [field.strip() for field in fields]))
    if separator not in (";", "\t"):
        return rows

    # Numbers that have decimal commas get points, ``1,5`` as ``1.5``. They are refused if all of
    # them could as well have commas before thousands, as 1,234.
    with_comma = [
        (row.place, field)
        for row in rows
        for field in row.fields
        if _DECIMAL_COMMA.fullmatch(field)
    ]
    if with_comma and all(_THOUSANDS.fullmatch(field) for _, field in with_comma):
        place, field = with_comma[0]
        decimal = field.replace(",", ".")
        thousands = field.replace(",", "")
        raise FormatError(
            f"{field!r} could be {decimal} with a decimal comma or {thousands} with a comma before"
            " thousands: write one of them",
            path=place,
        )
    # One file has one decimal mark.
    with_point = [
        (row.place, field) for row in rows for field in row.fields if _WITH_POINT.fullmatch(field)
    ]
    if with_comma and with_point:
        raise FormatError(
            f"{with_comma[0][1]!r} has a comma and {with_point[0][1]!r} a point: write one decimal"
            " mark in the whole file, and nothing before thousands",
            path=with_point[0][0],
        )

    # Not all commas can stand before thousands, hence all of them are decimal commas.
    return [
        Row(
            row.place,
            [
                field.replace(",", ".") if _DECIMAL_COMMA.fullmatch(field) else field
                for field in row.fields
            ],
        )
        for row in rows
    ]


def _only_layout(rows: Sequence[Row], path: str) -> str:
    """Return the only key of `LAYOUTS` that fits, or the nearest one if none does.

    A table that two layouts fit is refused, and the message names both.
    """
    layouts = _possible_layouts(rows)
    if len(layouts) > 1:
        readings = " or ".join(LAYOUTS[layout] for layout in layouts)
        choices = " or ".join(layouts)
        raise FormatError(f"this could be {readings}: say layout {choices}", path=path)
    if layouts:
        return layouts[0]

    # Nothing fits: reading by what looks like names finds the field that is wrong.
    header = len(rows) > 1 and not any(map(is_number, rows[0].fields))
    body = rows[1:] if header else rows
    index = not any(is_number(row.fields[0]) for row in body)
    if header:
        return "labelled" if index else "header"
    return "index" if index else "numbers"


def _possible_layouts(rows: Sequence[Row]) -> list[str]:
    """List the keys of `LAYOUTS` by which a table can be read, from what its fields look like.

    The keys are "numbers" (a matrix without names), "header" (names in the first line), "index"
    (names in the first column), "labelled" (both) and "edges" (a line for each source and
    destination). A table with the header of a list of edges, and one with an empty corner above
    names, can be read in one way alone.
    """
    # A first line that names the columns of edges, or an empty corner above names, decides.
    body = [row.fields for row in rows[1:]]
    if _header_of_edges(rows[0], body) is not None:
        return ["edges"]
    corner_is_empty = rows[0].fields[0] == ""
    if corner_is_empty and _is_labelled(rows):
        return ["labelled"]

    # Otherwise all layouts count that the fields allow. A matrix has lines of equal length, and
    # its names are no numbers; but numbers may be labels of a square matrix, as pandas writes
    # them: above it if all are different (`to_csv(index=False)`), or beside it if they count its
    # rows.
    layouts = []
    if len({len(row.fields) for row in rows}) == 1:
        first = rows[0].fields
        labels = [row.fields[0] for row in rows]
        numeric = np.array([[is_number(field) for field in row.fields] for row in rows])
        n_rows, n_columns = numeric.shape
        is_header = not numeric[0].any()
        if n_rows - 1 == n_columns >= 2 and all(map(is_whole, first)):
            is_header = len(set(first)) == n_columns

        # Which layouts have numbers where they need them.
        is_index = not numeric[:, 0].any() or (n_rows == n_columns - 1 >= 2 and _counts(labels))
        if numeric.all():
            layouts.append("numbers")
        if n_rows > 1 and numeric[1:].all() and is_header:
            layouts.append("header")
        if n_columns > 1 and numeric[:, 1:].all() and is_index:
            layouts.append("index")
    if _is_labelled(rows):
        layouts.append("labelled")
    if _could_be_edges(rows):
        layouts.append("edges")
    return layouts


def _is_labelled(rows: Sequence[Row]) -> bool:
    """Tell whether both the first line and the first column can have names.

    `rows` are all lines of the table. The first line may have a field in the corner, or none.
    """
    body = [row.fields for row in rows[1:]]
    if not body or not all(len(fields) > 1 and all(map(is_number, fields[1:])) for fields in body):
        return False
    corner, columns = _split_header(rows[0].fields, len(body[0]))
    labels = [fields[0] for fields in body]
    # An empty corner, or equal names above and beside, leave no doubt. Otherwise names are no
    # numbers, but for those beside a square matrix that count its rows.
    if corner == "" or labels == columns:
        return not is_number(corner) and len(columns) == len(body[0]) - 1
    if is_number(corner) or any(map(is_number, columns)):
        return False
    is_square = len(body) == len(columns) >= 2
    return not any(map(is_number, labels)) or (is_square and _counts(labels))


def _split_header(fields: list[str], width: int) -> tuple[str, list[str]]:
    """Return the corner of a header, above the names of rows, and the names of columns.

    The fields "from", "a" and "b" above lines of 3 fields are the corner "from" and the columns
    "a" and "b". The corner is empty if other lines have one field more than the header: R's
    `write.table` writes none.
    """
    if len(fields) == width - 1:
        return "", fields
    return fields[0], fields[1:]


def _counts(labels: Sequence[str]) -> bool:
    """Tell whether labels count from 0 or from 1."""
    n = len(labels)
    return list(labels) in ([str(k) for k in range(n)], [str(k + 1) for k in range(n)])


def _header_of_edges(header: Row, body: Sequence[list[str]]) -> _EdgeColumns | None:
    """Find the columns of a list of edges by their names; None without a source and a destination.

    `header` is the first line of the table, and `body` has the fields of all others. A column
    before them without a name may count the edges, as pandas writes it. Counts of packets beside a
    column of bytes are passed over.
    """
    words = [field.lower() for field in header.fields]
    sources = [column for column, word in enumerate(words) if word in SOURCE_WORDS]
    destinations = [column for column, word in enumerate(words) if word in DESTINATION_WORDS]
    if len(sources) != 1 or len(destinations) != 1 or len(words) < 3:
        return None

    others = [column for column in range(len(words)) if column not in (*sources, *destinations)]
    if len(others) > 1 and words[0] == "" and _counts([row[0] for row in body]):
        others = others[1:]

    # A matrix of numbers may have ports of these names, if no column is called traffic.
    is_square = len(body) == len(words) and all(is_number(field) for row in body for field in row)
    has_traffic = any(traffic_unit(header.fields[column], header.place) for column in others)
    if is_square and not has_traffic:
        return None

    # A column that counts something beside a column of bytes is passed over; any other column is
    # refused.
    units = {column: traffic_unit(header.fields[column], header.place) for column in others}
    of_traffic = {column: unit for column, unit in units.items() if unit is not None}
    if len(of_traffic) > 1:
        names = ", ".join(shorten(header.fields[column]) for column in of_traffic)
        raise FormatError(f"several columns of traffic, {names}: keep one", path=header.place)
    for column in others:
        name = header.fields[column]
        is_count = name.lower().removeprefix("n_").strip() in UNUSED_BESIDE_BYTES
        if column not in of_traffic and not (of_traffic and is_count):
            raise FormatError(
                f"column {shorten(name)} is no traffic: source, destination and an amount in"
                " bytes, bits or their multiples are expected",
                path=header.place,
            )

    # One column of traffic is left, as others were refused. The account of the file tells that
    # counts beside it are passed over.
    ((amount, unit),) = of_traffic.items()
    passed_over = [header.fields[column] for column in others if column != amount]
    used = tuple(name for name in header.fields if name not in passed_over)
    reasons = dict.fromkeys(passed_over, "the bytes stand beside it")
    take(Level("column", used, reasons), header.fields)
    return _EdgeColumns(sources[0], destinations[0], amount, unit)


def _could_be_edges(rows: Sequence[Row]) -> bool:
    """Tell whether three columns without known names can be a list of edges.

    Ports that are words can. Where they are numbers, it could be a matrix as well: then half of
    the ports up to the largest have to occur, as in ``0 1 2.5`` and ``1 2 4``, and three lines
    need positive amounts, no port that sends to itself, and no pair twice.
    """
    # A first line that does not end with a number is a header.
    body = [row.fields for row in rows]
    if not is_number(body[0][-1]):
        body = body[1:]
    if len(body) < 2 or not all(len(fields) == 3 and is_number(fields[2]) for fields in body):
        return False
    # The rules for ports: words are enough; numbers are whole, 0 to max, which are max + 1.
    ports = [port for fields in body for port in fields[:2]]
    if not any(map(is_number, ports)):
        return True
    if not all(map(is_whole, ports)):
        return False
    numbers = {int(port) for port in ports}
    if max(numbers) >= 2 * len(numbers):
        return False
    if len(body) != 3:
        return True
    # Three lines could be a matrix of three ports.
    pairs = [tuple(fields[:2]) for fields in body]
    no_loops = all(source != destination for source, destination in pairs)
    all_positive = all(read_number(fields[2], "") > 0 for fields in body)
    return no_loops and all_positive and len(set(pairs)) == len(pairs)


def _read_edges(rows: Sequence[Row], path: str, stated: Unit) -> Traffic:
    """Read a list of edges: by the names of its columns, or as source, destination, bytes.

    `rows` are the lines of the table, perhaps with a header in front. Edges of one pair add up.
    `stated` is the unit that a comment names, else bytes; it counts where no header names a unit.
    """
    # A first line that is no edge names the columns; without known names they are in this order.
    columns = _header_of_edges(rows[0], [row.fields for row in rows[1:]])
    width = 3
    body = rows
    if columns is not None:
        width = len(rows[0].fields)
        body = rows[1:]
    elif not is_number(rows[0].fields[-1]):
        # Without known names of columns the last one has the amounts.
        name = rows[0].fields[-1]
        named_unit = traffic_unit(name, rows[0].place) or unit_in_words(name, rows[0].place)
        if named_unit is None:
            assume(f"column {shorten(name)} is read as bytes")
        columns = _EdgeColumns(0, 1, 2, named_unit or BYTES)
        body = rows[1:]

    # Without a header the columns are source, destination and amount.
    source, destination, amount, unit = columns or _EdgeColumns(0, 1, 2, stated)
    if unit is BYTES:  # no header names a unit: one that names bytes makes another object
        unit = stated
    account_for_unit(unit)
    for row in rows:
        if len(row.fields) != width:
            raise FormatError(
                f"{len(row.fields)} fields: an edge has {width}, source, destination and bytes"
                " among them",
                path=row.place,
            )
    if not body:
        raise FormatError("no edges below the names of its columns", path=path)
    amounts = [unit.bytes_each * read_number(row.fields[amount], row.place) for row in body]
    source_ports, destination_ports, names = number_ports(
        [row.fields[source] for row in body], [row.fields[destination] for row in body], path
    )
    shape = (len(names), len(names))
    matrix = sparse_matrix(source_ports, destination_ports, amounts, shape, path)
    return Traffic(matrix, names_of_ports(names))


def _read_matrix(rows: Sequence[Row], layout: str, path: str) -> Traffic:
    """Read a matrix and the names of its rows and columns, in one layout of `LAYOUTS`.

    The first line has names with the layouts "header" and "labelled", the first column with
    "index" and "labelled". Names that are there twice, or in another order beside than above, are
    refused. The result has the names of the rows, or of the columns where rows have none.
    """
    has_index = layout in ("index", "labelled")
    body = rows[1:] if layout in ("header", "labelled") else rows

    matrix: list[list[float]] = []
    for row in body:
        entries = row.fields[1:] if has_index else row.fields
        if matrix and len(entries) != len(matrix[0]):
            raise FormatError(
                f"{len(entries)} numbers, but {len(matrix[0])} in the lines before", path=row.place
            )
        matrix.append([read_number(field, row.place) for field in entries])
    if not matrix or not matrix[0]:
        raise FormatError("no numbers in it", path=path)

    # The names of columns stand in the first line, beside a corner or not.
    columns: list[str] = []
    if layout == "header":
        columns = rows[0].fields
    elif layout == "labelled":
        columns = _split_header(rows[0].fields, len(body[0].fields))[1]
    if columns and len(columns) != len(matrix[0]):
        raise FormatError(
            f"{len(columns)} names of columns, but {len(matrix[0])} columns of numbers",
            path=rows[0].place,
        )
    row_labels = [row.fields[0] for row in body] if has_index else []
    for labels in (row_labels, columns):
        for label, count in Counter(labels).most_common(1):
            if count > 1:
                raise FormatError(f"{shorten(label)} names {count} rows or columns", path=path)

    # Labels of rows that only count are none, as those that pandas writes beside named columns.
    if columns and _counts(row_labels) and set(row_labels) != set(columns):
        row_labels = []

    if len(row_labels) == len(columns):
        for row_label, column_label in zip(row_labels, columns, strict=True):
            if row_label != column_label:
                raise FormatError(
                    f"row {shorten(row_label)} stands where column {shorten(column_label)}"
                    " does: the same names in the same order are needed for both",
                    path=path,
                )
    return Traffic(np.array(matrix), names_of_ports(row_labels or columns))


_MEGABYTE = 1e6
_COFLOW_WORDS = frozenset(["coflow", "group", "job"])
_WEIGHT_WORDS = frozenset(["weight", "priority"])
_DEADLINE_WORDS = frozenset(["deadline", "due"])
_NEEDED_COLUMNS = ("time", "source", "destination", "bytes")


class _Column(NamedTuple):
    """A column of a table of flows."""

    number: int
    factor: float
    """Seconds or bytes of one unit of its numbers; 1 of a column without a unit."""


class FlowList(NamedTuple):
    """Flows in the order of their arrival; all arrays have the shape (flows,).

    Examples
    --------
    >>> first = FlowList(np.array([0.5]), *np.array([[0], [1], [30], [0]]), 2, None)
    >>> first.n_ports, first.size_bytes.tolist()
    (2, [30])
    """

    time_s: NDArray[np.float64]
    """When they arrive, ascending, in seconds."""
    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    size_bytes: NDArray[np.float64]
    coflow: NDArray[np.int64]
    """The number of the coflow that a flow belongs to; without coflows the number of the flow."""
    n_ports: int
    names: tuple[str, ...] | None
    """The names of the ports; None if they only count from 0."""
    weight: NDArray[np.float64] | None = None
    """How much the wait of each flow counts, > 0; None: all the same."""
    deadline_s: NDArray[np.float64] | None = None
    """When each flow should be complete, as of the same clock as `time_s`; infinite where a flow
    has no deadline. None if no flow has one."""


def read_flows(path: str | os.PathLike[str]) -> FlowList:
    r"""Read flows with their arrival times.

    Parameters
    ----------
    path
        CSV whose first line names its columns, in any order: time (in seconds), source,
        destination, bytes, and perhaps coflow, weight and deadline (in seconds, of the same clock;
        an empty field is none); or a trace of coflow-benchmark [1]_, whose bytes from a reducer
        come in equal parts from all mappers. Either may be packed by gzip.

    Returns
    -------
    FlowList
        In the order of arrival; flows of the same time in the order of the file.

    Raises
    ------
    FormatError
        Naming file, line and value of the first thing that does not fit.

    References
    ----------
    .. [1] Chowdhury, Zhong and Stoica (2014). Efficient coflow scheduling with Varys. *SIGCOMM*.
       https://doi.org/10.1145/2619239.2626315

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "flows.csv"
    ...     _ = file.write_text("time,source,destination,bytes\n0.5,a,b,30\n0,b,a,12\n")
    ...     flows = read_flows(file)
    >>> flows.time_s.tolist(), flows.source.tolist(), flows.names
    ([0.0, 0.5], [1, 0], ('a', 'b'))
    """
    name = path_name(path)
    content = unzip(read_bytes(path), name)
    if is_coflow_benchmark(content):
        return read_coflow_benchmark(content, name)
    rows = split_rows(content, name)
    if not rows:
        raise FormatError("no flows in it", path=name)
    if stated_unit(content, name) is not BYTES:
        raise FormatError("a unit in a comment: name it in the header of its column", path=name)

    # Columns are ``source``, ``destination``, ``bytes`` and ``time``, and perhaps ``coflow``,
    # ``weight`` and ``deadline``. Flows with one label in ``coflow`` belong together; without
    # the column each flow is a coflow of its own.
    column_of = _find_columns(rows[0])
    flow_rows = rows[1:]
    for row in flow_rows:
        if len(row.fields) != len(rows[0].fields):
            raise FormatError(
                f"{len(row.fields)} fields, but {len(rows[0].fields)} columns", path=row.place
            )
    texts = {
        role: [row.fields[column.number] for row in flow_rows]
        for role, column in column_of.items()
    }

    # Times in seconds and sizes in bytes; an empty deadline is none, which is infinite.
    numbers = {}
    for role in ("time", "bytes", "weight", "deadline"):
        if role in column_of:
            numbers[role] = np.full(len(flow_rows), np.inf)
            for flow, text in enumerate(texts[role]):
                if text or role != "deadline":
                    amount = _amount(text, flow_rows[flow].place)
                    numbers[role][flow] = column_of[role].factor * amount
    weight = numbers.get("weight")
    if weight is not None:
        for flow in np.flatnonzero(weight == 0)[:1]:
            raise FormatError("weight 0: > 0 is expected", path=flow_rows[flow].place)

    # Ports are numbered by their names. Flows with the same label are one coflow; coflows are
    # numbered as they come.
    source, destination, names = number_ports(texts["source"], texts["destination"], name)
    coflows = np.arange(len(flow_rows))
    if "coflow" in column_of:
        number_of = {label: k for k, label in enumerate(dict.fromkeys(texts["coflow"]))}
        coflows = np.array([number_of[label] for label in texts["coflow"]], dtype=np.int64)
    return _in_order(
        FlowList(
            time_s=numbers["time"],
            source=source,
            destination=destination,
            size_bytes=numbers["bytes"],
            coflow=coflows,
            n_ports=len(names),
            names=names_of_ports(names),
            weight=weight,
            deadline_s=numbers.get("deadline"),
        )
    )


def _find_columns(header: Row) -> dict[str, _Column]:
    """Find which column of a table of flows is which, by the words of its first line.

    The keys are ``"time"``, ``"source"``, ``"destination"``, ``"bytes"``, and perhaps
    ``"coflow"``, ``"weight"`` and ``"deadline"``. A column has its number and the factor to
    seconds or bytes: in ``time_ms,src,dst,kB`` the time is ``(0, 0.001)``. Counts of packets are
    passed over, rates refused.
    """
    words = [field.lower() for field in header.fields]
    found: dict[str, list[_Column]] = {}

    # Other tools call the bytes of an edge its weight: beside a column of bytes it is a weight.
    units = [traffic_unit(field, header.place) for field in header.fields]
    has_bytes = any(
        unit is not None and word not in _WEIGHT_WORDS
        for word, unit in zip(words, units, strict=True)
    )

    # A word may name a weight or bytes: it is a weight if another column has the bytes.
    for index, (word, unit) in enumerate(zip(words, units, strict=True)):
        time_s = seconds_each(word, TIME_WORDS)
        deadline_s = seconds_each(word, _DEADLINE_WORDS)
        if word in SOURCE_WORDS:
            found.setdefault("source", []).append(_Column(index, 1.0))
        elif word in DESTINATION_WORDS:
            found.setdefault("destination", []).append(_Column(index, 1.0))
        elif time_s is not None:
            found.setdefault("time", []).append(_Column(index, time_s))
        elif word in _WEIGHT_WORDS and has_bytes:
            found.setdefault("weight", []).append(_Column(index, 1.0))
        elif unit is not None and not unit.is_rate:
            found.setdefault("bytes", []).append(_Column(index, unit.bytes_each))
        elif word in _COFLOW_WORDS:
            found.setdefault("coflow", []).append(_Column(index, 1.0))
        elif word in _WEIGHT_WORDS:
            found.setdefault("weight", []).append(_Column(index, 1.0))
        elif deadline_s is not None:
            found.setdefault("deadline", []).append(_Column(index, deadline_s))
        elif word not in UNUSED_BESIDE_BYTES:
            raise FormatError(
                f"column {shorten(header.fields[index])} is unknown", path=header.place
            )

    # Each column is there once.
    for column in [*_NEEDED_COLUMNS, *found]:
        count = len(found.get(column, ()))
        if count != 1:
            raise FormatError(
                f"{count} columns of {column}: time, source, destination, bytes are"
                " expected, and perhaps coflow, weight and deadline",
                path=header.place,
            )
    return {column: matching[0] for column, matching in found.items()}


def _amount(text: str, place: str) -> float:
    """Read a number that is finite and not negative."""
    value = read_number(text, place)
    if not 0 <= value < float("inf"):
        raise FormatError(f"{shorten(text)}: must be finite and >= 0", path=place)
    return value


def _in_order(flows: FlowList) -> FlowList:
    """Sort flows by arrival; those of the same time keep their order."""
    order = np.argsort(flows.time_s, kind="stable")
    columns: dict[str, Any] = {
        name: column[order]
        for name, column in flows._asdict().items()
        if isinstance(column, np.ndarray)
    }
    return flows._replace(**columns)


def is_coflow_benchmark(content: bytes) -> bool:
    """Tell whether the first 100 000 bytes of a text are a trace of coflow-benchmark.

    Its first line has two counts, and its second one ends with a reducer, ``rack:megabytes``.
    """
    first, _, later_lines = content[:100_000].decode(errors="replace").partition("\n")
    counts = first.split()
    second = later_lines.partition("\n")[0].split()
    has_reducers = bool(second) and ":" in second[-1]
    return len(counts) == 2 and all(map(is_whole, counts)) and has_reducers


def read_coflow_benchmark(content: bytes, path: str) -> FlowList:
    """Read a trace in the format of coflow-benchmark: groups of transfers between racks.

    The first line has the numbers of racks and of coflows. The line ``7 500 2 0 3 1 5:10.0`` is
    coflow 7, which arrives after 500 ms: 2 mappers, racks 0 and 3, send 10 megabytes in all to 1
    reducer, rack 5. Racks, which are ports, count from 0. Each mapper and reducer have a flow.
    """
    header, *rows = split_words(content, path)
    n_ports, n_coflows = map(int, header.fields)
    check_content("ports", n_ports, path)
    if len(rows) != n_coflows:
        raise FormatError(f"{len(rows)} coflows, but {n_coflows} are announced", path=header.place)
    # A row for each flow, that is for each mapper and reducer of a coflow: when it arrives, the
    # number of its coflow, source and destination rack, and bytes.
    flows: list[tuple[float, int, int, int, float]] = []
    for coflow, row in enumerate(rows):
        arrival_s = _amount(row.fields[1], row.place) / 1e3 if len(row.fields) > 1 else 0.0
        for mapper, reducer, size_bytes in _coflow_flows(row.fields, n_ports, row.place):
            flows.append((arrival_s, coflow, mapper, reducer, size_bytes))
    columns = np.array(flows, dtype=np.float64).reshape(-1, 5).T
    return _in_order(
        FlowList(
            time_s=columns[0],
            source=columns[2].astype(np.int64),
            destination=columns[3].astype(np.int64),
            size_bytes=columns[4],
            coflow=columns[1].astype(np.int64),
            n_ports=n_ports,
            names=names_of_ports(tuple(map(str, range(n_ports)))),
        )
    )


def _coflow_flows(words: list[str], n_ports: int, place: str) -> Iterator[tuple[int, int, float]]:
    """Yield mapper, reducer and bytes of the flows of one coflow, a line as words.

    Each mapper sends its part to each reducer: the bytes of the reducer by the number of mappers.
    The words ``7 500 2 0 3 1 5:10.0`` are a number, milliseconds, 2 mappers (racks 0 and 3) and 1
    reducer (rack 5, 10 megabytes), hence two flows of 5 megabytes. `n_ports` is the number of
    racks.
    """
    n_mappers = int(words[2]) if len(words) > 2 and is_whole(words[2]) else len(words)
    mappers = words[3 : 3 + n_mappers]
    reducers = words[4 + n_mappers :]
    count = words[3 + n_mappers] if len(words) > 3 + n_mappers else ""
    if len(mappers) != n_mappers or count != str(len(reducers)):
        raise FormatError(
            "a number, ms, the number of mappers and their racks, the number of reducers and"
            " rack:megabytes of each are expected",
            path=place,
        )
    if not mappers and reducers:
        raise FormatError("a coflow without mappers, whose reducers receive bytes", path=place)

    # What a reducer receives comes in equal parts from all mappers.
    for reducer in reducers:
        rack, _, megabytes = reducer.partition(":")
        for port in (*mappers, rack):
            if not is_whole(port) or int(port) >= n_ports:
                raise FormatError(f"{shorten(port)}: racks are 0 .. {n_ports - 1}", path=place)
        size_bytes = _amount(megabytes, place) * _MEGABYTE / n_mappers
        for mapper in mappers:
            yield int(mapper), int(rack), size_bytes


_NOT_TRAFFIC = "about links and routes, not about the traffic"
_NOT_READ = "they are not read, as if they were not there"
_XML_TAGS = Level(
    "tag of a network",
    (
        *("network", "networkStructure", "nodes", "node", "meta", "unit"),
        *("demands", "demand", "source", "target", "routingUnit", "demandValue"),
    ),
    {
        **dict.fromkeys(("granularity", "time", "origin"), "says when it was measured"),
        **dict.fromkeys(("coordinates", "x", "y"), "places of nodes are no traffic"),
        **dict.fromkeys(("links", "link", "*Module*", "*apacity", "*ost"), _NOT_TRAFFIC),
        **dict.fromkeys(("admissiblePaths", "admissiblePath", "linkId"), _NOT_TRAFFIC),
        "maxPathLength": _NOT_TRAFFIC,
    },
    _NOT_READ,
)
_JSON_KEYS = Level(
    "key of a demand",
    ("source", "target", "demand_value", "routing_unit"),
    {
        **dict.fromkeys(("id", "name"), "a label"),
        **dict.fromkeys(("max_path_length", "admissible_paths"), _NOT_TRAFFIC),
    },
    _NOT_READ,
)
_SNDLIB_RATES = {"BITPERSEC": "bit/s", "KBITPERSEC": "kbit/s", "MBITPERSEC": "Mbit/s"}
_SNDLIB_RATES |= {"GBITPERSEC": "Gbit/s", "TBITPERSEC": "Tbit/s"}


def read_sndlib_xml(content: bytes, path: str) -> Traffic:
    """Read the demands between the nodes of a network of SNDlib [1]_, in the unit of the file.

    `content` is the XML, and `path` names the file in errors. All nodes are ports, in the order of
    the file, whether they have a demand or not. Demands of one pair add up. The result has a
    sparse matrix in bytes, or in the unit of a rate, and the names of its ports.

    References
    ----------
    .. [1] Orlowski, Wessäly, Pióro and Tomaszewski (2010). SNDlib 1.0 -- Survivable network design
       library. *Networks* 55(3). https://doi.org/10.1002/net.20371
    """
    if b"<!DOCTYPE" in content:
        raise FormatError("a document type in it: SNDlib has none", path=path)
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as exc:
        raise FormatError(f"not XML: {exc}", path=path) from exc
    for element in root.iter():
        element.tag = str(element.tag).rpartition("}")[2]  # without the name space
    take(_XML_TAGS, dict.fromkeys(element.tag for element in root.iter()), path=path)

    # Nodes by their ids, the unit of all demands, and the demands.
    nodes = [node.get("id", "") for node in root.iter("node")]
    if root.tag != "network" or not nodes:
        raise FormatError("no network of SNDlib: nodes are missing", path=path)

    # Demands are in one unit, and each has its ends, its amount and its routing unit.
    unit = "".join(element.text or "" for element in root.iter("unit"))
    demands = []
    for number, demand in enumerate(root.iter("demand")):
        place = f"{path}: demand {demand.get('id', number)}"
        tags = ("source", "target", "demandValue", "routingUnit")
        demands.append((place, *((demand.findtext(tag) or "").strip() for tag in tags)))
    return _traffic_of_nodes(nodes, unit, demands, path)


def is_sndlib_json(tree: Any) -> bool:
    """Tell whether a JSON file is a network of SNDlib, as sikorski-as/sndlib writes it."""
    return isinstance(tree, dict) and isinstance(tree.get("nodes"), list) and "demands" in tree


def read_sndlib_json(tree: dict[str, Any], path: str) -> Traffic:
    """Read the demands of a network of SNDlib in JSON, as `read_sndlib_xml` does.

    The file has ``nodes``, each with an ``id``, and ``demands``, each with ``source``, ``target``
    and ``demand_value``.
    """
    nodes = []
    for k, node in enumerate(tree["nodes"]):
        if not isinstance(node, dict) or not isinstance(node.get("id"), str):
            raise FormatError("a node has an id", path=path, where=pointer("", "nodes", k))
        nodes.append(node["id"])

    # The unit of all demands, and then the demands.
    meta = tree.get("meta")
    unit = tree.get("unit", meta.get("unit", "") if isinstance(meta, dict) else "")
    demands = []
    listed = tree["demands"]
    for k, demand in enumerate(listed if isinstance(listed, list) else [None]):
        where = pointer("", "demands", k)
        if not isinstance(demand, dict):
            raise FormatError("a demand is an object", path=path, where=where)
        take(_JSON_KEYS, demand, where, path)

        # The amount is a number in the unit of the network.
        amount = demand.get("demand_value")
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise FormatError(
                f"demand_value = {shorten(amount)}: a number is expected", path=path, where=where
            )
        source = str(demand.get("source"))
        target = str(demand.get("target"))
        routing_unit = str(demand.get("routing_unit", ""))
        demands.append((f"{path}:{where}", source, target, repr(amount), routing_unit))
    return _traffic_of_nodes(nodes, str(unit), demands, path)


def _traffic_of_nodes(
    nodes: list[str], unit: str, demands: Sequence[tuple[str, ...]], path: str
) -> Traffic:
    """Make a sparse matrix of demands between nodes, which are ports, in the unit of the file.

    A demand is five texts: its place in messages, its source, its target, its amount, and its
    routing unit, of which only 1 is read. Without a unit amounts are bytes.
    Demands of one pair add up.
    """
    bytes_each = 1.0
    if unit.strip():
        size = size_unit(_SNDLIB_RATES.get(unit.strip().upper(), unit.strip()), path)
        if size is None:
            rule = f"unit {shorten(unit.strip())}: bytes, bits or a rate of them"
            raise FormatError(rule, path=path)
        account_for_unit(size)
        bytes_each = size.bytes_each
    if len(set(nodes)) != len(nodes):
        raise FormatError("two nodes have the same id", path=path)
    port_of = {node: port for port, node in enumerate(nodes)}

    # Nodes are ports, in their order. Only demands of which a unit takes the capacity 1 are read.
    sources, targets, amounts = [], [], []
    for place, source, target, amount, routing_unit in demands:
        if routing_unit.strip() and read_number(routing_unit.strip(), place) != 1.0:
            raise FormatError(
                f"routing unit {shorten(routing_unit.strip())}: only demands of the routing unit 1"
                " are read",
                path=place,
            )
        amounts.append(bytes_each * read_number(amount, place))
        for node in (source, target):
            if node not in port_of:
                raise FormatError(f"{shorten(node)}: no node of this network", path=place)
        sources.append(port_of[source])
        targets.append(port_of[target])
    matrix = sparse_matrix(sources, targets, amounts, (len(nodes), len(nodes)), path)
    return Traffic(matrix, tuple(nodes))


_REPETITA_COLUMNS = ["label", "src", "dest", "bw"]


def read_repetita(content: bytes, path: str) -> Traffic:
    """Read a ``.demands`` file of REPETITA [1]_: numbers of nodes, from 0, and a bandwidth.

    `content` is the file ``path``. Nodes have the labels of the ``.graph`` file beside it, if
    there is one: ``Abilene.graph`` of ``Abilene.0000.demands``. A line such as ``edge_0 0 5 1000``
    is a demand with a bandwidth of 1000 from node 0 to node 5.

    References
    ----------
    .. [1] Gay, Schaus and Vissicchio (2017). REPETITA: Repeatable experiments for performance
       evaluation of traffic-engineering algorithms. https://arxiv.org/abs/1710.08665
    """
    rows = split_words(content, path)
    if not rows or rows[0].fields[0].upper() != "DEMANDS":
        raise FormatError("DEMANDS and their number are expected", path=f"{path}:1")

    # Each line: a label, source, target, bandwidth.
    nodes = _repetita_labels(path)
    sources, targets, amounts = [], [], []
    for place, words in rows[1:]:
        if words[0].lower() == "label":
            if [word.lower() for word in words] != _REPETITA_COLUMNS:
                raise FormatError(
                    f"columns {shorten(' '.join(words))}: {' '.join(_REPETITA_COLUMNS)} are"
                    " expected",
                    path=place,
                )
            continue
        if len(words) != 4 or not (is_whole(words[1]) and is_whole(words[2])):
            raise FormatError(
                f"{shorten(' '.join(words))}: a label, two numbers of nodes and a bandwidth are"
                " expected",
                path=place,
            )
        if nodes is not None and max(int(words[1]), int(words[2])) >= len(nodes):
            raise FormatError(f"the graph beside it has nodes 0 .. {len(nodes) - 1}", path=place)
        sources.append(words[1])
        targets.append(words[2])
        amounts.append(read_number(words[3], place))

    header = rows[0].fields
    if len(header) > 1 and (not is_whole(header[1]) or int(header[1]) != len(amounts)):
        raise FormatError(
            f"{len(amounts)} demands, but {shorten(header[1])} are announced", path=rows[0].place
        )
    source_ports, target_ports, numbers = number_ports(sources, targets, path)
    n_ports = len(nodes or numbers)
    matrix = sparse_matrix(source_ports, target_ports, amounts, (n_ports, n_ports), path)
    return Traffic(matrix, nodes)


def _repetita_labels(path: str) -> tuple[str, ...] | None:
    """Return the labels of nodes, by number, in the graph beside a file; None without a graph."""
    stem = file_path(path).name.partition(".")[0]
    graph = file_path(path).with_name(f"{stem}.graph")
    if not graph.is_file():
        return None
    name = str(graph)

    # The first line is ``NODES 11``; a line of column names may follow, then a line for each node
    # that begins with its label.
    rows = split_words(read_bytes(graph), name)
    words = rows[0].fields if rows else []
    if len(words) != 2 or words[0].upper() != "NODES" or not is_whole(words[1]):
        raise FormatError("NODES and their number are expected", path=f"{name}:1")
    first_words = [row.fields[0] for row in rows[1:]]
    if first_words and first_words[0].lower() == "label":
        first_words = first_words[1:]
    labels = tuple(first_words[: int(words[1])])
    if len(labels) < int(words[1]) or len(set(labels)) < len(labels):
        raise FormatError(f"{words[1]} nodes of different labels are expected", path=name)
    return labels


_HEADER = "%%MatrixMarket matrix coordinate|array real|integer|pattern general|symmetric"
_FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")


def read_market(content: bytes, path: str) -> Any:
    """Read a matrix in the format Matrix Market: sparse of coordinates, else full.

    The first line names the layout, the type of the entries and the symmetry; lines that begin
    with ``%`` are comments, and the first other line has the sizes. `content` is the file, and
    `path` its name in errors.
    """
    rows = split_words(content, path)

    # The first line is such as ``%%MatrixMarket matrix coordinate real general``. Kinds of
    # matrices that are no demand are refused.
    place = f"{path}:1"
    words = [word.lower() for row in rows[:1] for word in row.fields]
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise FormatError(f"not Matrix Market: {_HEADER} is expected", path=place)
    layout, field, symmetry = words[2:]
    if field not in _FIELDS or symmetry not in ("general", "symmetric"):
        raise FormatError(
            f"{field} {symmetry}: a demand is real, general or symmetric", path=place
        )
    if layout not in ("coordinate", "array") or (layout, field) == ("array", "pattern"):
        raise FormatError(f"{layout} {field}: {_HEADER} is expected", path=place)

    # The line of sizes has rows, columns, and of coordinates the number of entries.
    body = [row for row in rows[1:] if not row.fields[0].startswith("%")]
    if not body:
        raise FormatError("the line with the size is missing", path=f"{path}:{len(rows) + 1}")
    unit = stated_unit(content, path)
    if unit is not BYTES:
        raise FormatError(f"the entries are in {unit.text}: bytes are expected", path=path)
    place, sizes = body[0]
    n_sizes = 3 if layout == "coordinate" else 2
    if len(sizes) != n_sizes or not all(word.isascii() and word.isdecimal() for word in sizes):
        raise FormatError(
            f"{shorten(' '.join(sizes))}: {n_sizes} whole numbers are expected", path=place
        )
    if max(map(len, sizes)) > 18:
        raise FormatError(f"{shorten(max(sizes, key=len))}: a size far too large", path=place)

    # Only a square matrix can be symmetric. Of it one half is stated, without its upper part.
    n_rows, n_columns = int(sizes[0]), int(sizes[1])
    is_symmetric = symmetry == "symmetric"
    if is_symmetric and n_rows != n_columns:
        raise FormatError(f"{n_rows} x {n_columns}: symmetric, but not square", path=place)
    check_content("entries", int(sizes[2]) if layout == "coordinate" else n_rows * n_columns, path)
    if layout == "coordinate":
        check_content("ports", max(n_rows, n_columns), path)
        _check_count([place for place, _words in body[1:]], int(sizes[2]), path)
        is_pattern = field == "pattern"
        return _read_coordinates(body[1:], (n_rows, n_columns), is_pattern, is_symmetric, path)

    # An array has its values column by column, any number of them on a line.
    places = [place for place, words in body[1:] for _word in words]
    n_values = n_rows * (n_rows + 1) // 2 if is_symmetric else n_rows * n_columns
    _check_count(places, n_values, path)
    values_as_text = [word for _place, words in body[1:] for word in words]
    values = np.array(list(map(read_number, values_as_text, places)))
    if not is_symmetric:
        return values.reshape(n_rows, n_columns, order="F")
    matrix = np.zeros((n_rows, n_rows))
    # The lower half by columns is, transposed, the upper half by rows.
    row_of, column_of = np.triu_indices(n_rows)
    matrix[row_of, column_of] = values
    matrix[column_of, row_of] = values
    return matrix


def _read_coordinates(
    lines: Sequence[Row],
    shape: tuple[int, int],
    is_pattern: bool,
    is_symmetric: bool,
    path: str,
) -> Any:
    """Read entries by row and column, both from 1; of a symmetric matrix one half.

    A line has the words row, column and value; entries of a pattern have no value, and are 1.
    Entries that occur twice add up, as the format wants it. The result is a sparse
    matrix of this `shape`.
    """
    n_words = 2 if is_pattern else 3
    indices: list[int] = []
    values: list[float] = []
    for place, words in lines:
        if len(words) != n_words:
            raise FormatError(f"{shorten(' '.join(words))}: no entry", path=place)
        for word, largest_index in zip(words, shape, strict=False):
            if not (is_whole(word) and 1 <= int(word) <= largest_index):
                raise FormatError(
                    f"{shorten(word)}: rows or columns are 1 .. {largest_index}", path=place
                )
            indices.append(int(word) - 1)
        values.append(1.0 if is_pattern else read_number(words[2], place))

    # An entry beside the diagonal of a symmetric matrix counts at two places.
    places = np.array(indices, dtype=np.int64).reshape(-1, 2)
    amounts = np.array(values)
    if is_symmetric:
        is_off_diagonal = places[:, 0] != places[:, 1]
        places = np.concatenate([places, places[is_off_diagonal, ::-1]])
        amounts = np.concatenate([amounts, amounts[is_off_diagonal]])
    return sparse_matrix(places[:, 0], places[:, 1], amounts, shape, path)


def _check_count(places: Sequence[str], count: int, path: str) -> None:
    """Refuse entries of Matrix Market, by their places, if not as many are announced."""
    if len(places) != count:
        place = places[count] if len(places) > count else path
        raise FormatError(f"{len(places)} entries, but {count} are announced", path=place)


STDIN = "-"
_STDIN_NAME = "<stdin>"
_QOBLIB = "scaled_doubly_stochastic_matrix"


_INSTANCE = Level(
    "key of an instance",
    (_QOBLIB, "n"),
    {
        "id": "the key of the instance tells it",
        "scale": "all lines of a matrix have this sum",
        **dict.fromkeys(("weights", "permutations"), "a known answer is no part of the problem"),
    },
    "they are not read, as if they were not there",
)


def read_traffic(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    layout: str | None = None,
    transposed: bool = False,
) -> Traffic:
    r"""Read the demand of a file and the names of its ports; the ending says how.

    Parameters
    ----------
    path
        - ``.csv``, ``.tsv`` or ``.txt``: numbers between commas, semicolons, tabs or blanks, with
          ``#`` before comments; beside semicolons and tabs also with decimal commas. A first line
          and a first column may have names. Or a list of edges, whose first line names its columns
          (``source, destination, bytes``, or words like these, in any order), or that has words as
          ports. Or a trace of coflow-benchmark, whose coflows are added up.
        - ``.npy``, ``.npz``: also what `scipy.sparse.save_npz` writes.
        - ``.mtx``: Matrix Market.
        - ``.json``: a list of rows; instances of QOBLIB, whose columns are stacked; networks of
          SNDlib.
        - ``.xml``: networks of SNDlib.
        - ``.demands``: REPETITA.

        All may be packed by gzip (``.csv.gz``). ``"-"`` is stdin: its first bytes tell the format.
    name
        Which array of an ``.npz`` or instance of a ``.json``; needed where there are several.
    layout
        For a table that could be two things: ``"numbers"``, ``"header"``, ``"index"``,
        ``"labelled"`` or ``"edges"``.
    transposed
        Whether rows are destinations in the file.

    Returns
    -------
    Traffic
        ``demand_bytes[source, destination]`` of float64: a full array, or a sparse array of SciPy
        if the file lists entries; not necessarily square. And the names of the ports.

    Raises
    ------
    FormatError
        Naming file, place and value of the first thing that is no number; both readings of a table
        that could be two things; or the shape of a table with names that is not square.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "demand.csv"
    ...     _ = file.write_text("src,dst,bytes\nBerlin,Paris,30\nParis,Berlin,12.5\n")
    ...     traffic = read_traffic(file)
    >>> traffic.demand_bytes.toarray().tolist(), traffic.names
    ([[0.0, 30.0], [12.5, 0.0]], ('Berlin', 'Paris'))
    """
    traffic = _read_file(path, name, layout, transposed=transposed)

    # Without a row and a column of its name, the data of a port would go to another one.
    n_rows, n_columns = traffic.demand_bytes.shape
    if traffic.names is not None and n_rows != n_columns:
        raise FormatError(
            f"{n_rows} rows and {n_columns} columns with names: each port needs a row and a column"
            " of its name, with zeros where it sends or receives nothing; a list of source,"
            " destination, bytes needs no zeros",
            path=path_name(path),
        )
    return traffic


def _read_file(
    path: str | os.PathLike[str], name: str | None, layout: str | None, *, transposed: bool
) -> Traffic:
    """Read the matrix of a file, which may have any shape, and the names of its ports.

    `name` chooses one of several matrices of a file, and `layout` says how a table of text is laid
    out, None for what it looks like. `transposed` exchanges rows and columns.
    """
    if layout is not None and layout not in LAYOUTS:
        raise InputError(f"layout = {layout!r}: one of {', '.join(LAYOUTS)}", where="layout")

    # The reader of a file is that of its ending, of stdin that of its first bytes.
    is_stdin = path_name(path) == STDIN
    file = _STDIN_NAME if is_stdin else path_name(path)
    if is_stdin:
        packed = sys.stdin.buffer.read(largest("bytes") + 1)
        check_content("bytes", len(packed), _STDIN_NAME)
        content = unzip(packed, file)

        # Its first bytes, without the byte order mark of UTF-8 and blanks; else it is a table.
        start = content[:64].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
        reader: Reader = _read_text
        for beginning, reader_of_format in _READER_OF_BEGINNING.items():
            if start.startswith(beginning):
                reader = reader_of_format
    else:
        suffix = suffix_of(path)
        if suffix not in _READERS:
            known_suffixes = ", ".join([*_READERS, ".et"])
            raise FormatError(
                f"suffix {suffix!r}: matrices end in {known_suffixes}", path=path_name(path)
            )
        reader = _READERS[suffix]
        content = unzip(read_bytes(path), file)

    # Whatever was read becomes one matrix of float64, and errors name the file.
    with naming(file), accounting(file):
        if layout is not None and reader is not _read_text:
            raise FormatError(f"layout = {layout!r}: for tables of text")
        result = reader(content, file) if layout is None else _read_text(content, file, layout)
        if name is not None and not isinstance(result, Mapping):
            raise FormatError(f"name = {name!r}: files of this kind hold one matrix")
        if isinstance(result, Mapping):
            result = _choose(result, name)

        # One matrix, checked, and turned if it is to be.
        traffic = result if isinstance(result, Traffic) else Traffic(result)
        matrix: Any = traffic.demand_bytes
        matrix = check_sparse(matrix) if is_sparse(matrix) else check_matrix(matrix)
    if transposed and is_sparse(matrix):
        matrix = matrix.T.tocsr()
    elif transposed:
        matrix = np.ascontiguousarray(matrix.T)
    return Traffic(matrix, traffic.names)


def holds_traffic(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file holds traffic: by its ending, of JSON by its structure."""
    suffix = suffix_of(path)
    if suffix != ".json":
        return suffix in _READERS
    tree = parse_json(unzip(read_bytes(path), path_name(path)), path_name(path))
    if isinstance(tree, dict):
        has_instance = any(isinstance(one, dict) and _QOBLIB in one for one in tree.values())
        return has_instance or is_sndlib_json(tree)
    return isinstance(tree, list)


def read_matrix(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    layout: str | None = None,
    transposed: bool = False,
    groups: str | os.PathLike[str] | None = None,
    skipped: list[str] | None = None,
) -> NDArray[np.float64]:
    r"""Read a demand matrix as a full array without port names; the ending of the file says how.

    Parameters
    ----------
    path
        As `read_traffic` takes it; or ``.et``, ``.RANK.json``: the Chakra trace of one rank, those
        of the others beside it.
    name, layout, transposed
        As of `read_traffic`: which of several matrices, what a table is that could be two things,
        and whether rows are destinations in the file. A trace has neither names nor layouts.
    groups
        The file of communicator groups that belongs to a trace.
    skipped
        A list, to read a trace whose files are cut: what lies behind the cut is left out, as are
        messages and collectives of which a part is missing, and the list gets a message for each.
        None: such a trace is an error.

    Returns
    -------
    NDArray
        ``matrix[source, destination]``, float64, not necessarily square: the numbers of the file,
        which `Demand.from_matrix` takes as bytes; of a trace the bytes that ranks send.

    Raises
    ------
    FormatError
        As of `read_traffic`; or if the matrix has more entries than `optmatch.model.SIZES` allows.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "demand.csv"
    ...     _ = file.write_text("from,rack 1,rack 2\nrack 1,0,30\nrack 2,12.5,0\n")
    ...     read_matrix(file).tolist()
    [[0.0, 30.0], [12.5, 0.0]]
    """
    file = path_name(path)
    if file != STDIN and is_trace(path):
        members = None if groups is None else read_groups(groups)
        matrix = check_matrix(read_chakra(siblings(path), groups=members, skipped=skipped))
        return np.ascontiguousarray(matrix.T) if transposed else matrix
    if groups is not None or skipped is not None:
        raise FormatError("groups and cut files: of a trace, name.RANK.et", path=file)
    matrix = _read_file(path, name, layout, transposed=transposed).demand_bytes
    if not is_sparse(matrix):
        return matrix  # type: ignore[no-any-return]
    check_content("entries", matrix.shape[0] * matrix.shape[1], file)
    return fill_matrix(sparse_entries(matrix), "matrix").copy()


def _choose(matrices: Mapping[str, Any], name: str | None) -> Any:
    """Return the matrix of a name, or the only one of a file if the name is None."""
    if name is None and len(matrices) == 1:
        return next(iter(matrices.values()))
    known_keys = ", ".join(sorted(matrices, key=lambda key: (len(key), key)))
    if name is None:
        raise FormatError(f"holds several matrices, choose one by name: {known_keys}")
    if name not in matrices:
        raise FormatError(f"name = {name!r}: unknown; known are {known_keys}")
    return matrices[name]


def _read_text(content: bytes, path: str, layout: str | None = None) -> Traffic:
    """Read a table of text, or a trace of coflow-benchmark, whose coflows are added up."""
    if is_coflow_benchmark(content) and layout is None:
        flows = read_coflow_benchmark(content, path)
        shape = (flows.n_ports, flows.n_ports)
        matrix = sparse_matrix(flows.source, flows.destination, flows.size_bytes, shape, path)
        return Traffic(matrix, flows.names)
    with describing(content):
        return read_table(content, path, layout)


def _read_npy(content: bytes, path: str) -> Any:
    """Read an array, arrays by name, or the sparse matrix that SciPy saves as several arrays.

    The result is an array of a ``.npy`` file, a dict of those of a ``.npz`` file, or a matrix in
    compressed rows.
    """
    arrays = read_arrays(content, path)
    if {"format", "shape", "data"} <= set(arrays):
        # `scipy.sparse.save_npz` writes ``format`` (csr, csc, bsr, coo or dia), ``shape``,
        # ``data``, and the indices of that format, of which compressed ones are checked here.
        from scipy.sparse import csr_array, load_npz

        # Arrays that contradict each other make SciPy raise errors of several kinds.
        try:
            shape = tuple(int(side) for side in arrays["shape"])
            if arrays["data"].dtype.kind not in "iufb" or len(shape) != 2:
                raise ValueError(f"data of {arrays['data'].dtype}, shape {shape}")
            matrix = load_npz(io.BytesIO(content))
            if hasattr(matrix, "check_format"):
                matrix.check_format(full_check=True)
            return csr_array(matrix)
        except (ValueError, KeyError, TypeError, IndexError, NotImplementedError) as exc:
            raise FormatError(f"is no sparse matrix of SciPy: {exc}", path=path) from exc
    return arrays[""] if list(arrays) == [""] else arrays


def _read_json(content: bytes, path: str) -> Any:
    """Read matrices of instances of QOBLIB, by name, or the demands of a network of SNDlib.

    A square list of lists is a matrix itself. An instance is an object with `n` and, under the key
    `_QOBLIB`, the n * n entries of its matrix.
    """
    tree = parse_json(content, path)
    is_square = isinstance(tree, list) and all(
        isinstance(row, list) and len(row) == len(tree) for row in tree
    )
    if is_square and tree:
        for number, row in enumerate(tree):
            _check_numbers(row, number)
        return frozen("matrix", tree, 2, np.float64)
    if is_sndlib_json(tree):
        return read_sndlib_json(tree, path)

    # Else an object of instances, each with its own entry.
    entries = tree.items() if isinstance(tree, dict) else ()
    instances = {
        key: entry for key, entry in entries if isinstance(entry, dict) and _QOBLIB in entry
    }
    if not instances:
        rule = (
            "a list of rows of numbers, [[0, 5], [3, 0]], an instance of QOBLIB (key"
            f" {_QOBLIB!r}) or a network of SNDlib (nodes and demands) is expected"
        )
        raise FormatError(f"{rule}{describe_tree(tree)}", path=path)
    for entry in instances.values():
        take(_INSTANCE, entry, path=path)

    # An instance is ``n``, and n * n numbers column by column.
    matrices = {}
    for key, entry in instances.items():
        stacked = entry[_QOBLIB]
        n = entry.get("n")
        if type(n) is not int or n < 1 or not isinstance(stacked, list) or len(stacked) != n * n:
            raise FormatError(
                f"n = {shorten(n)} does not fit its matrix", where=pointer("", key, "n")
            )
        _check_numbers(stacked, key, _QOBLIB)
        matrices[key] = np.array(stacked).reshape(n, n, order="F")
    return matrices


def _check_numbers(values: Sequence[Any], *above: str | int) -> None:
    """Refuse a list with an entry that is no number of JSON, such as true; `above` leads to it."""
    for k, value in enumerate(values):
        if type(value) not in (int, float):
            raise FormatError(
                f"{shorten(value)}: a number is expected", where=pointer("", *above, k)
            )


Reader = Callable[[bytes, str], Any]
"""Returns a `Traffic`, a matrix, or several matrices by name."""

_READER_OF_BEGINNING: dict[bytes, Reader] = {
    b"\x93numpy": _read_npy,
    b"pk": _read_npy,
    b"%%matrixmarket": read_market,
    b"{": _read_json,
    b"<": read_sndlib_xml,
    b"demands": read_repetita,
}
_READERS: dict[str, Reader] = {
    ".csv": _read_text,
    ".tsv": _read_text,
    ".txt": _read_text,
    ".npy": _read_npy,
    ".npz": _read_npy,
    ".mtx": read_market,
    ".json": _read_json,
    ".xml": read_sndlib_xml,
    ".demands": read_repetita,
}
