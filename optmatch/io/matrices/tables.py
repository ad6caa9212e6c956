"""Tables of text (CSV, TSV, blanks): matrices with or without names, and lists of edges.

A table is read only if it can mean one thing. Each layout of `LAYOUTS` says by `_possible_layouts`
whether it fits; where two fit, the table is refused and both are named.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optmatch.io.contents import decode
from optmatch.io.fields import shorten
from optmatch.io.matrices.columns import (
    BYTES,
    DESTINATION_WORDS,
    SOURCE_WORDS,
    TIME_WORDS,
    UNUSED_BESIDE_BYTES,
    Unit,
    seconds_each,
    size_unit,
    traffic_unit,
    unit_in_words,
    warn_of_rate,
)
from optmatch.io.matrices.numbers import is_number, is_whole, read_number
from optmatch.io.matrices.traffic import Traffic, check_order, traffic_of_labels
from optmatch.model import FormatError
from optmatch.model.accounts import Level, accounting
from optmatch.problems.demands.matrices import names_of_ports

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
    _refuse_times(rows[0], path)
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
    warn_of_rate(unit)
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


def split_rows(content: bytes, path: str) -> list[Row]:
    """Split a text into lines of fields, without comments and empty lines.

    Fields are separated by the first of semicolon, tab and comma that occurs at all, else by
    blanks. With semicolons or tabs, numbers may have decimal commas.
    """
    lines = []
    for number, line in enumerate(decode(content, path).splitlines(), start=1):
        without_comment = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if without_comment.strip():
            lines.append((f"{path}:{number}", without_comment))
    separator = next((mark for mark in ";\t," if any(mark in line for _, line in lines)), None)

    rows = []
    for place, line in lines:
        if separator is None:
            fields = line.split()
        else:
            fields = next(csv.reader([line], delimiter=separator, skipinitialspace=True))
        rows.append(Row(place, [field.strip() for field in fields]))
    return _with_decimal_points(rows) if separator in (";", "\t") else rows


def _with_decimal_points(rows: Sequence[Row]) -> list[Row]:
    """Write numbers that have decimal commas with points, ``1,5`` as ``1.5``.

    They are refused if all of them could as well have commas before thousands, as 1,234.
    """
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


def _refuse_times(header: Row, path: str) -> None:
    """Refuse a list of flows with times, which is no matrix."""
    words = {field.lower() for field in header.fields}
    has_time = any(seconds_each(field, TIME_WORDS) is not None for field in header.fields)
    if has_time and words & SOURCE_WORDS and words & DESTINATION_WORDS:
        raise FormatError(
            "a list of flows with their times: `optmatch simulate` replays it, and"
            " optmatch.io.read_flows reads it",
            path=path,
        )


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
    """List the keys of `LAYOUTS` by which a table can be read, from what its fields look like."""
    # A first line that names the columns of edges, or an empty corner above names, decides.
    body = [row.fields for row in rows[1:]]
    if _header_of_edges(rows[0], body) is not None:
        return ["edges"]
    corner_is_empty = rows[0].fields[0] == ""
    if corner_is_empty and _is_labelled(rows):
        return ["labelled"]

    # Otherwise all layouts count that the fields allow. A matrix has lines of equal length.
    layouts = []
    is_rectangle = len({len(row.fields) for row in rows}) == 1
    if is_rectangle and all(is_number(field) for row in rows for field in row.fields):
        layouts.append("numbers")
    if is_rectangle and _has_header(rows):
        layouts.append("header")
    if is_rectangle and _has_index(rows):
        layouts.append("index")
    if _is_labelled(rows):
        layouts.append("labelled")
    if _could_be_edges(rows):
        layouts.append("edges")
    return layouts


def _has_header(rows: Sequence[Row]) -> bool:
    """Tell whether the first line can have names of columns, above lines of numbers alone."""
    first = rows[0].fields
    body = [row.fields for row in rows[1:]]
    if not body or not all(is_number(field) for fields in body for field in fields):
        return False
    if not any(map(is_number, first)):
        return True
    # Numbers as labels, above a square matrix: `DataFrame.to_csv(index=False)`.
    is_square = len(body) == len(first) >= 2
    return is_square and all(map(is_whole, first)) and len(set(first)) == len(first)


def _has_index(rows: Sequence[Row]) -> bool:
    """Tell whether the first column can have names of rows, beside numbers alone."""
    labels = [row.fields[0] for row in rows]
    if not all(len(row.fields) > 1 and all(map(is_number, row.fields[1:])) for row in rows):
        return False
    if not any(map(is_number, labels)):
        return True
    # Numbers that count the rows of a square matrix: `DataFrame.to_csv(header=False)`.
    is_square = len(rows) == len(rows[0].fields) - 1 >= 2
    return is_square and _counts(labels)


def _is_labelled(rows: Sequence[Row]) -> bool:
    """Tell whether both the first line and the first column can have names.

    The first line may have a field in the corner, or none.
    """
    body = [row.fields for row in rows[1:]]
    if not body or not all(len(fields) > 1 and all(map(is_number, fields[1:])) for fields in body):
        return False
    corner, columns = _split_header(rows[0].fields, len(body[0]))
    labels = [fields[0] for fields in body]
    if corner == "" or labels == columns:
        return not is_number(corner) and len(columns) == len(body[0]) - 1
    if is_number(corner) or any(map(is_number, columns)):
        return False
    is_square = len(body) == len(columns) >= 2
    return not any(map(is_number, labels)) or (is_square and _counts(labels))


def _split_header(fields: list[str], width: int) -> tuple[str, list[str]]:
    """Split a header into its corner above the names of rows, and the names of columns.

    The corner is empty if other lines have one field more: R's `write.table` writes none.
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

    A column before them without a name may count the edges, as pandas writes it. Counts of packets
    beside a column of bytes are passed over.
    """
    words = [field.lower() for field in header.fields]
    sources = [column for column, word in enumerate(words) if word in SOURCE_WORDS]
    destinations = [column for column, word in enumerate(words) if word in DESTINATION_WORDS]
    if len(sources) != 1 or len(destinations) != 1 or len(words) < 3:
        return None

    others = [column for column in range(len(words)) if column not in (*sources, *destinations)]
    if others[0] == 0 and words[0] == "" and _counts([row[0] for row in body]):
        others = others[1:]

    # A matrix of numbers may have ports of these names, if no column is called traffic.
    is_square = len(body) == len(words) and all(is_number(field) for row in body for field in row)
    has_traffic = any(traffic_unit(header.fields[column], header.place) for column in others)
    if is_square and not has_traffic:
        return None
    amount, unit = _find_traffic(header, others)
    return _EdgeColumns(sources[0], destinations[0], amount, unit)


def _find_traffic(header: Row, columns: Sequence[int]) -> tuple[int, Unit]:
    """Find the one column of traffic among some columns of a header, and its unit.

    `columns` are those behind source and destination. A column that counts something beside a
    column of bytes is passed over; any other column is refused.
    """
    units = {column: traffic_unit(header.fields[column], header.place) for column in columns}
    of_traffic = {column: unit for column, unit in units.items() if unit is not None}
    if len(of_traffic) > 1:
        names = ", ".join(shorten(header.fields[column]) for column in of_traffic)
        raise FormatError(f"several columns of traffic, {names}: keep one", path=header.place)
    for column in columns:
        name = header.fields[column]
        is_count = name.lower().removeprefix("n_").strip() in UNUSED_BESIDE_BYTES
        if column not in of_traffic and not (of_traffic and is_count):
            raise FormatError(
                f"column {shorten(name)} is no traffic: source, destination and an amount in"
                " bytes, bits or their multiples are expected",
                path=header.place,
            )

    # The counts beside the bytes are passed over, and told to be.
    ((amount, unit),) = of_traffic.items()
    passed_over = [header.fields[column] for column in columns if column != amount]
    used = tuple(name for name in header.fields if name not in passed_over)
    reasons = dict.fromkeys(passed_over, "the bytes stand beside it")
    with accounting() as account:
        account.take(Level("column", used, reasons), header.fields)
    return amount, unit


def _unit_of_unknown(header: Row) -> Unit:
    """Return the unit of the last of three columns without known names; bytes by default."""
    name = header.fields[-1]
    unit = traffic_unit(name, header.place) or unit_in_words(name, header.place)
    if unit is None:
        with accounting() as account:
            account.assume(f"column {shorten(name)} is read as bytes")
    return unit or BYTES


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
    # Words are ports of a list of edges. Ports that are numbers are whole ones.
    ports = [port for fields in body for port in fields[:2]]
    if not any(map(is_number, ports)):
        return True
    if not all(map(is_whole, ports)):
        return False
    # Half of the ports occur at least: 0 to max are max + 1 numbers.
    numbers = {int(port) for port in ports}
    if max(numbers) >= 2 * len(numbers):
        return False
    if len(body) != 3:
        return True
    # Three rows of three numbers: no port sends to itself, all amounts are positive, no pair
    # twice.
    pairs = [tuple(fields[:2]) for fields in body]
    no_loops = all(source != destination for source, destination in pairs)
    all_positive = all(read_number(fields[2], "") > 0 for fields in body)
    return no_loops and all_positive and len(set(pairs)) == len(pairs)


def _read_edges(rows: Sequence[Row], path: str, stated: Unit) -> Traffic:
    """Read a list of edges: by the names of its columns, or as source, destination, bytes.

    Edges of one pair add up. `stated` is the unit of a comment, bytes without one.
    """
    # A first line that is no edge names the columns; without known names they are in this order.
    columns = _header_of_edges(rows[0], [row.fields for row in rows[1:]])
    width = 3
    if columns is not None:
        width = len(rows[0].fields)
        rows = rows[1:]
    elif not is_number(rows[0].fields[-1]):
        columns = _EdgeColumns(0, 1, 2, _unit_of_unknown(rows[0]))
        width = len(rows[0].fields)
        rows = rows[1:]

    # Without a header the columns are source, destination and amount.
    source, destination, amount, unit = columns or _EdgeColumns(0, 1, 2, stated)
    if unit is BYTES:
        unit = stated
    warn_of_rate(unit)
    for row in rows:
        if len(row.fields) != width:
            raise FormatError(
                f"{len(row.fields)} fields: an edge has {width}, source, destination and bytes"
                " among them",
                path=row.place,
            )
    return traffic_of_labels(
        [row.fields[source] for row in rows],
        [row.fields[destination] for row in rows],
        [unit.bytes_each * read_number(row.fields[amount], row.place) for row in rows],
        path,
    )


def _read_matrix(rows: Sequence[Row], layout: str, path: str) -> Traffic:
    """Read a matrix and the names of its rows and columns, in one layout of `LAYOUTS`."""
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
    labels = [row.fields[0] for row in body] if has_index else []
    return Traffic(np.array(matrix), _common_names(labels, columns, len(matrix), path))


def _common_names(
    row_labels: Sequence[str], column_labels: Sequence[str], n_rows: int, path: str
) -> tuple[str, ...] | None:
    """Return the names of the ports that rows and columns are; None if ports have no names.

    Names that are there twice, or in another order beside than above, are refused.
    """
    for labels in (row_labels, column_labels):
        for label, count in Counter(labels).most_common(1):
            if count > 1:
                raise FormatError(f"{shorten(label)} names {count} rows or columns", path=path)

    # Labels of rows that only count are none, as those that pandas writes beside named columns.
    rows_only_count = _counts(row_labels) and set(row_labels) != set(column_labels)
    if len(column_labels) == n_rows and (not row_labels or rows_only_count):
        return names_of_ports(column_labels)
    if len(row_labels) == len(column_labels):
        check_order(row_labels, column_labels, path)
    is_square = len(column_labels) in (0, n_rows)
    return names_of_ports(row_labels) if row_labels and is_square else None
