"""Demand matrices from the files and objects of other tools: rows are sources."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from optmatch.io.contents import check_content, decode, read_arrays, read_bytes
from optmatch.io.fields import shorten
from optmatch.io.rails.chakra.demand import read_chakra
from optmatch.io.rails.chakra.traces import is_trace, siblings
from optmatch.io.rails.groups import read_groups
from optmatch.io.text import parse, pointer
from optmatch.model import FormatError, naming
from optmatch.problems.demands.traffic import from_graph as from_graph

EXACT = 2**53
"""Whole numbers beyond this are refused: float64 would round them."""

_NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([ed][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE
)


def is_number(text: str) -> bool:
    """Tell whether a text is a number, as other programs write them."""
    return _NUMBER.fullmatch(text) is not None


def read_number(text: str, path: str) -> float:
    """Return the number; raise `FormatError` if it is no number, or not exact as an integer."""
    if not is_number(text):
        raise FormatError(f"{shorten(text)}: a number is expected here", path=path)
    digits = text.lstrip("+-").lstrip("0")
    if digits.isdecimal() and (len(digits) > 16 or int(digits) > EXACT):
        shown = shorten(text).strip("'")
        raise FormatError(f"{shown}: whole numbers above 2**53 are not exact here", path=path)
    return float(text.lower().replace("d", "e"))


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


Matrix = NDArray[np.float64]

_QOBLIB = "scaled_doubly_stochastic_matrix"


def read_matrix(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    transposed: bool = False,
    groups: str | os.PathLike[str] | None = None,
    skipped: list[str] | None = None,
) -> Matrix:
    r"""Read a demand matrix; the ending says how.

    Parameters
    ----------
    path
        ``.csv``, ``.tsv`` or ``.txt``: numbers between commas, semicolons, tabs or blanks, with
        ``#`` before comments and, if need be, a line and a column of names; ``.npy``, ``.npz``;
        ``.mtx``: Matrix Market; ``.json``: instances of QOBLIB, whose columns are stacked;
        ``.et``, or ``.RANK.json``: the Chakra trace of one rank, those of the others beside it.
    name
        Which array of an ``.npz`` or instance of a ``.json``; needed where there are several.
    transposed
        Whether rows are destinations in the file.
    groups
        The file of communicator groups that belongs to a trace.
    skipped
        A list: what a cut trace does not tell is left out, and added to it, see `read_chakra`.

    Returns
    -------
    NDArray
        ``matrix[source, destination]``, float64, not necessarily square; for `Demand.from_matrix`.

    Raises
    ------
    FormatError
        Naming file, place and value of the first thing that is no number.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "demand.csv"
    ...     _ = file.write_text("from,rack 1,rack 2\nrack 1,0,30\nrack 2,12.5,0\n")
    ...     read_matrix(file).tolist()
    [[0.0, 30.0], [12.5, 0.0]]
    """
    file = os.fspath(path)
    suffix = Path(file).suffix.lower()
    if is_trace(path):
        members = None if groups is None else read_groups(groups)
        matrix = check_matrix(read_chakra(siblings(path), groups=members, skipped=skipped))
        return np.ascontiguousarray(matrix.T) if transposed else matrix
    if groups is not None or skipped is not None:
        raise FormatError("groups and cut files: of a trace, name.RANK.et", path=file)
    if suffix not in _READERS:
        raise FormatError(
            f"suffix {suffix!r}: matrices end in {', '.join([*_READERS, '.et'])}", path=file
        )
    content = read_bytes(path)
    with naming(file):
        found = _READERS[suffix](content, file)
        matrix = _choose(found, name) if isinstance(found, Mapping) else found
        if name is not None and not isinstance(found, Mapping):
            raise FormatError(f"name = {name!r}: files of this kind hold one matrix")
        matrix = check_matrix(matrix)
    return np.ascontiguousarray(matrix.T) if transposed else matrix


def check_matrix(matrix: Any) -> Matrix:
    """Refuse an array that is no matrix of finite numbers, or loses digits in float64."""
    given = np.asarray(matrix)
    if given.ndim != 2 or given.dtype.kind not in "iufb":
        kind = "x".join(map(str, given.shape))
        raise FormatError(
            f"an array of {given.dtype}, shape {kind}: a matrix of numbers is needed"
        )
    for i, j in np.argwhere(~np.isfinite(given))[:1]:
        raise FormatError(f"matrix[{i}, {j}] = {given[i, j]}: a number is finite")
    if given.dtype.kind in "iu" and given.size and int(given.max()) > EXACT:
        raise FormatError(f"{int(given.max())}: whole numbers above 2**53 are not exact here")
    return np.ascontiguousarray(given, dtype=np.float64)


def _choose(found: Mapping[str, Any], name: str | None) -> Any:
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    known = ", ".join(sorted(found, key=lambda key: (len(key), key)))
    if name is None:
        raise FormatError(f"holds several matrices, choose one by name: {known}")
    if name not in found:
        raise FormatError(f"name = {name!r}: unknown; known are {known}")
    return found[name]


def _read_text(content: bytes, path: str) -> Matrix:
    """Parse lines of numbers; a first line or column without any number has names."""
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(decode(content, path).splitlines(), start=1):
        line = line.partition("#")[0].rstrip()
        if line.strip():
            split = re.split(r"[,;\t]", line) if re.search(r"[,;\t]", line) else line.split()
            rows.append((number, [field.strip() for field in split]))
    if rows and len(rows) > 1 and not any(map(is_number, rows[0][1][1:] or rows[0][1])):
        (_, heads), *rows = rows
    else:
        heads = []
    named = bool(rows) and not any(is_number(fields[0]) for _, fields in rows)
    matrix: list[list[float]] = []
    for number, fields in rows:
        entries = fields[1:] if named else fields
        place = f"{path}:{number}"
        if matrix and len(entries) != len(matrix[0]):
            raise FormatError(
                f"{len(entries)} numbers, but {len(matrix[0])} in the lines before", path=place
            )
        matrix.append([read_number(field, place) for field in entries])
    if not matrix or not matrix[0]:
        raise FormatError("no numbers in it", path=path)
    above, beside = heads[-len(matrix[0]) :], [fields[0] for _, fields in rows] if named else []
    for labels in (above, beside):
        for label, count in Counter(labels).most_common(1):
            if count > 1:
                raise FormatError(f"{shorten(label)} names {count} rows or columns", path=path)
    if len(above) == len(beside):  # names are lost, and their order counts
        for over, left in zip(above, beside, strict=True):
            if over != left:
                text = f"row {shorten(left)} stands where column {shorten(over)} does"
                raise FormatError(f"{text}: one order for both is needed", path=path)
    return np.array(matrix)


def _read_npy(content: bytes, path: str) -> Any:
    found = read_arrays(content, path)
    return found[""] if list(found) == [""] else found


def _read_qoblib(content: bytes, path: str) -> dict[str, Any]:
    tree = parse(content, path)
    entries = tree.items() if isinstance(tree, dict) else ()
    found = {key: entry for key, entry in entries if isinstance(entry, dict) and _QOBLIB in entry}
    if not found:
        raise FormatError(f"no instance with the key {_QOBLIB!r}", path=path)
    return {key: _unstack(entry, pointer("", key)) for key, entry in found.items()}


def _unstack(entry: dict[str, Any], where: str) -> Matrix:
    stacked, n = entry[_QOBLIB], entry.get("n")
    if type(n) is not int or n < 1 or not isinstance(stacked, list) or len(stacked) != n * n:
        raise FormatError(f"n = {shorten(n)} does not fit its matrix", where=pointer(where, "n"))
    for k, value in enumerate(stacked):
        if type(value) not in (int, float):
            raise FormatError(
                f"{shorten(value)}: a number is expected", where=pointer(where, _QOBLIB, k)
            )
    return np.array(stacked).reshape(n, n, order="F")


_READERS: dict[str, Callable[[bytes, str], Any]] = {
    ".csv": _read_text,
    ".tsv": _read_text,
    ".txt": _read_text,
    ".npy": _read_npy,
    ".npz": _read_npy,
    ".mtx": read_market,
    ".json": _read_qoblib,
}
