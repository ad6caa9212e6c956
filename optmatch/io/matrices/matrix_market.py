"""Matrix Market files: real, integer and pattern matrices, as coordinates or in full."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import FormatError

_LAYOUTS = ("coordinate", "array")
_FIELDS = ("real", "integer", "double", "pattern")
_SYMMETRIES = ("general", "symmetric")


def parse_matrix_market(text: str, path: str) -> NDArray[np.float64]:
    r"""Parse a matrix; entries that occur twice add up, as the format wants it.

    Parameters
    ----------
    text
        The file.
    path
        How messages call it; they add the line.

    Raises
    ------
    FormatError
        If the header or an entry breaks the format, or is of a kind that no demand has: complex,
        Hermitian, skew-symmetric.

    Examples
    --------
    >>> header = "%%MatrixMarket matrix coordinate integer general"
    >>> parse_matrix_market(header + "\n2 2 2\n1 2 5\n2 1 3\n", "demand.mtx").tolist()
    [[0.0, 5.0], [3.0, 0.0]]
    """
    lines = text.splitlines()
    layout, field, symmetry = _header(lines[0] if lines else "", path)
    rows = [
        (number, line.split())
        for number, line in enumerate(lines[1:], start=2)
        if line.strip() and not line.startswith("%")
    ]
    if not rows:
        raise FormatError("the line with the size is missing", path=path)
    number, words = rows.pop(0)
    size = [_index(word, f"{path}:{number}") for word in words]
    if len(size) != (3 if layout == "coordinate" else 2):
        raise FormatError(f"{len(size)} numbers, where the size is", path=f"{path}:{number}")
    matrix = np.zeros(size[:2])
    if symmetry == "symmetric" and size[0] != size[1]:
        raise FormatError("symmetric, but not square", path=f"{path}:{number}")
    if layout == "array":
        places = _columns(size[0], size[1], below=symmetry == "symmetric")
    else:
        places = None
    expected = len(places) if places is not None else size[2]
    if len(rows) != expected:
        raise FormatError(f"{len(rows)} entries, but the size says {expected}", path=path)
    for k, (number, words) in enumerate(rows):
        place = f"{path}:{number}"
        if places is None:
            i, j, value = _entry(words, field, size, place)
        else:
            (i, j), value = places[k], _value(words, place)
        matrix[i, j] += value
        if symmetry == "symmetric" and i != j:
            matrix[j, i] += value
    return matrix


def _header(line: str, path: str) -> tuple[str, str, str]:
    words = line.lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise FormatError("the first line is no Matrix Market header", path=f"{path}:1")
    for word, known in zip(words[2:], (_LAYOUTS, _FIELDS, _SYMMETRIES), strict=True):
        if word not in known:
            raise FormatError(f"{word}: one of {', '.join(known)}", path=f"{path}:1")
    if words[2:4] == ["array", "pattern"]:
        raise FormatError("an array has no pattern", path=f"{path}:1")
    return words[2], words[3], words[4]


def _columns(rows: int, columns: int, *, below: bool) -> list[tuple[int, int]]:
    """List the places in the order of the file: down the columns, from the diagonal if `below`."""
    return [(i, j) for j in range(columns) for i in range(j if below else 0, rows)]


def _entry(words: list[str], field: str, size: list[int], place: str) -> tuple[int, int, float]:
    if len(words) != (2 if field == "pattern" else 3):
        raise FormatError(f"{' '.join(words)}: an entry is row, column, value", path=place)
    i, j = _index(words[0], place), _index(words[1], place)
    for name, index, most in (("row", i, size[0]), ("column", j, size[1])):
        if not 1 <= index <= most:
            raise FormatError(f"{name} {index}: 1 .. {most}", path=place)
    return i - 1, j - 1, 1.0 if field == "pattern" else _value(words[2:], place)


def _value(words: list[str], place: str) -> float:
    try:
        (word,) = words
        value = float(word)
    except ValueError as exc:
        raise FormatError(f"{' '.join(words)}: one number is expected", path=place) from exc
    if abs(value) > 2**53 and word.lstrip("+-").isdigit():
        raise FormatError(f"{word}: whole numbers above 2**53 are not exact here", path=place)
    return value


def _index(word: str, place: str) -> int:
    if not word.isdigit():
        raise FormatError(f"{word}: a whole number is expected", path=place)
    return int(word)
