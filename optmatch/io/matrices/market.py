"""Matrix Market: coordinates, or all entries column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from optmatch.io.contents import check_content, decode
from optmatch.io.fields import shorten
from optmatch.io.matrices.entries import read_number
from optmatch.model import FormatError

_HEADER = "%%MatrixMarket matrix coordinate|array real|integer|pattern general|symmetric"

T = TypeVar("T")


def read_market(content: bytes, path: str) -> NDArray[np.float64]:
    """Read a matrix; entries that occur twice add up, as the format wants it.

    A line that is not what the first ones announce is a `FormatError` that names it.
    """
    numbered = enumerate(decode(content, path).split("\n"), start=1)
    lines = [(f"{path}:{k}", line) for k, line in numbered if line.strip()]
    header = lines[0][1].split() if lines else []
    words = [word.lower() for word in header]
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise FormatError(f"not Matrix Market: {_HEADER} is expected", path=f"{path}:1")
    layout, field, symmetry = words[2:]
    if field not in ("real", "double", "integer", "pattern") or symmetry not in (
        "general",
        "symmetric",
    ):
        raise FormatError(
            f"{field} {symmetry}: a demand is real, general or symmetric", path=f"{path}:1"
        )
    if layout not in ("coordinate", "array") or (layout, field) == ("array", "pattern"):
        raise FormatError(f"{layout} {field}: {_HEADER} is expected", path=f"{path}:1")
    body = [(place, line.split()) for place, line in lines[1:] if line.lstrip()[:1] != "%"]
    if not body:
        raise FormatError("the line with the size is missing", path=f"{path}:{len(lines) + 1}")
    rows, columns, *count = _sizes(*body[0], 3 if layout == "coordinate" else 2)
    if symmetry == "symmetric" and rows != columns:
        raise FormatError(f"{rows} x {columns}: symmetric, but not square", path=body[0][0])
    check_content("entries", max(rows * columns, *count, 0), path)
    if layout == "array":
        return _full(body[1:], rows, columns, symmetry == "symmetric", path)
    matrix = np.zeros((rows, columns))
    for place, words in _counted(body[1:], count[0], path):
        if len(words) != (2 if field == "pattern" else 3):
            raise FormatError(f"{shorten(' '.join(words))}: no entry", path=place)
        i, j = _index(words[0], rows, place), _index(words[1], columns, place)
        value = 1.0 if field == "pattern" else read_number(words[2], place)
        matrix[i, j] += value
        if symmetry == "symmetric" and i != j:
            matrix[j, i] += value
    return matrix


def _full(
    body: Sequence[tuple[str, list[str]]], rows: int, columns: int, symmetric: bool, path: str
) -> NDArray[np.float64]:
    """Read all entries column by column, of a symmetric matrix from the diagonal downwards."""
    needed = rows * (rows + 1) // 2 if symmetric else rows * columns
    entries = [(place, word) for place, words in body for word in words]
    values = np.array([read_number(w, place) for place, w in _counted(entries, needed, path)])
    if not symmetric:
        return values.reshape(rows, columns, order="F")
    matrix = np.zeros((rows, rows))
    upper = np.triu_indices(rows)
    matrix[upper[::-1]] = matrix[upper] = values
    return matrix


def _counted(found: Sequence[tuple[str, T]], count: int, path: str) -> Sequence[tuple[str, T]]:
    if len(found) != count:
        place = found[count][0] if len(found) > count else path
        raise FormatError(f"{len(found)} entries, but {count} are announced", path=place)
    return found


def _sizes(place: str, words: list[str], count: int) -> list[int]:
    if len(words) != count or not all(w.isascii() and w.isdecimal() for w in words):
        message = f"{shorten(' '.join(words))}: {count} whole numbers are expected"
        raise FormatError(message, path=place)
    if max(map(len, words)) > 18:
        raise FormatError(f"{shorten(max(words, key=len))}: a size far too large", path=place)
    return [int(word) for word in words]


def _index(word: str, most: int, place: str) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) < 19 and 1 <= int(word) <= most):
        raise FormatError(f"{shorten(word)}: rows or columns are 1 .. {most}", path=place)
    return int(word) - 1
