"""Matrices in the format of Matrix Market."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from optmatch.io.contents import check_content, decode
from optmatch.io.fields import shorten
from optmatch.io.matrices.columns import BYTES
from optmatch.io.matrices.numbers import is_whole, read_number
from optmatch.io.matrices.tables import stated_unit
from optmatch.io.matrices.traffic import Edges, sparse_matrix
from optmatch.model import FormatError

_HEADER = "%%MatrixMarket matrix coordinate|array real|integer|pattern general|symmetric"
_FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")

T = TypeVar("T")


class _Banner(NamedTuple):
    """The first line of a file: how its entries are written."""

    layout: str
    """``"coordinate"`` or ``"array"``."""
    field: str
    symmetric: bool


class Line(NamedTuple):
    """A line that is no comment."""

    place: str
    words: list[str]


def read_market(content: bytes, path: str) -> Any:
    """Read a matrix in the format Matrix Market: sparse of coordinates, else full.

    Entries that occur twice add up, as the format wants it.
    """
    numbered = enumerate(decode(content, path).split("\n"), start=1)
    lines = [(f"{path}:{number}", line) for number, line in numbered if line.strip()]
    banner = _read_banner(lines[0][1] if lines else "", f"{path}:1")
    body = [Line(place, line.split()) for place, line in lines[1:] if line.lstrip()[:1] != "%"]
    if not body:
        raise FormatError("the line with the size is missing", path=f"{path}:{len(lines) + 1}")

    unit = stated_unit(content, path)
    if unit is not BYTES:
        raise FormatError(f"the entries are in {unit.text}: bytes are expected", path=path)
    rows, columns, *count = _read_sizes(body[0], 3 if banner.layout == "coordinate" else 2)
    if banner.symmetric and rows != columns:
        raise FormatError(f"{rows} x {columns}: symmetric, but not square", path=body[0].place)
    if banner.layout == "array":
        check_content("entries", rows * columns, path)
        return _read_array(body[1:], (rows, columns), banner.symmetric, path)
    check_content("entries", count[0], path)
    return _read_coordinates(_counted(body[1:], count[0], path), (rows, columns), banner, path)


def _read_banner(line: str, place: str) -> _Banner:
    """Read the first line, and refuse kinds of matrices that are no demand.

    It is such as ``%%MatrixMarket matrix coordinate real general``.
    """
    words = line.lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise FormatError(f"not Matrix Market: {_HEADER} is expected", path=place)
    layout, field, symmetry = words[2:]
    if field not in _FIELDS or symmetry not in ("general", "symmetric"):
        raise FormatError(
            f"{field} {symmetry}: a demand is real, general or symmetric", path=place
        )
    if layout not in ("coordinate", "array") or (layout, field) == ("array", "pattern"):
        raise FormatError(f"{layout} {field}: {_HEADER} is expected", path=place)
    return _Banner(layout, field, symmetry == "symmetric")


def _read_coordinates(
    lines: Sequence[Line], shape: tuple[int, int], banner: _Banner, path: str
) -> Any:
    """Read entries by row and column, both from 1; of a symmetric matrix one half.

    Entries of a pattern have no value, and are 1.
    """
    # A symmetric matrix states one half: an entry beside the diagonal counts at two places.
    is_pattern = banner.field == "pattern"
    places: list[tuple[int, int]] = []
    values: list[float] = []
    for place, words in lines:
        if len(words) != (2 if is_pattern else 3):
            raise FormatError(f"{shorten(' '.join(words))}: no entry", path=place)
        row = _read_index(words[0], shape[0], place)
        column = _read_index(words[1], shape[1], place)
        value = 1.0 if is_pattern else read_number(words[2], place)

        # A symmetric matrix lists one of both halves.
        places.append((row, column))
        values.append(value)
        if banner.symmetric and row != column:
            places.append((column, row))
            values.append(value)

    # Entries of one place add up.
    pairs = np.array(places, dtype=np.int64).reshape(-1, 2)
    return sparse_matrix(Edges(pairs[:, 0], pairs[:, 1], np.array(values)), shape, path)


def _read_array(
    lines: Sequence[Line], shape: tuple[int, int], symmetric: bool, path: str
) -> NDArray[np.float64]:
    """Read a full matrix column by column; a symmetric one has columns from the diagonal on.

    There may be any number of values on a line.
    """
    rows, columns = shape
    needed = rows * (rows + 1) // 2 if symmetric else rows * columns
    entries = [(line.place, word) for line in lines for word in line.words]
    values = np.array(
        [read_number(word, place) for place, word in _counted(entries, needed, path)]
    )
    if not symmetric:
        return values.reshape(rows, columns, order="F")
    matrix = np.zeros((rows, rows))
    # The lower half by columns is, transposed, the upper half by rows.
    row_of, column_of = np.triu_indices(rows)
    matrix[row_of, column_of] = values
    matrix[column_of, row_of] = values
    return matrix


def _counted(entries: Sequence[T], count: int, path: str) -> Sequence[T]:
    """Return entries, each with its place in front, if they are as many as were announced."""
    if len(entries) != count:
        place = entries[count][0] if len(entries) > count else path  # type: ignore[index]
        raise FormatError(f"{len(entries)} entries, but {count} are announced", path=place)
    return entries


def _read_sizes(line: Line, count: int) -> list[int]:
    """Read the line of sizes: rows, columns, and of coordinates the number of entries."""
    place, words = line
    if len(words) != count or not all(word.isascii() and word.isdecimal() for word in words):
        message = f"{shorten(' '.join(words))}: {count} whole numbers are expected"
        raise FormatError(message, path=place)
    if max(map(len, words)) > 18:
        raise FormatError(f"{shorten(max(words, key=len))}: a size far too large", path=place)
    return [int(word) for word in words]


def _read_index(word: str, largest: int, place: str) -> int:
    """Read the number of a row or column, counted from 1 in the file and from 0 here."""
    if not (is_whole(word) and 1 <= int(word) <= largest):
        raise FormatError(f"{shorten(word)}: rows or columns are 1 .. {largest}", path=place)
    return int(word) - 1
