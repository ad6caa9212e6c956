"""Demand matrices from the files of other tools: rows are sources."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.io.contents import check_content, read_arrays, read_bytes, unzip
from optmatch.io.fields import shorten
from optmatch.io.matrices.flows import (
    is_coflow_benchmark,
    read_coflow_benchmark,
    traffic_of_flows,
)
from optmatch.io.matrices.market import read_market
from optmatch.io.matrices.networks import (
    is_sndlib_json,
    read_repetita,
    read_sndlib_json,
    read_sndlib_xml,
)
from optmatch.io.matrices.numbers import EXACT as EXACT
from optmatch.io.matrices.tables import LAYOUTS, read_table
from optmatch.io.matrices.traffic import Traffic, check_matrix, check_sparse
from optmatch.io.rails.chakra.demand import read_chakra
from optmatch.io.rails.chakra.traces import is_trace, siblings
from optmatch.io.rails.groups import read_groups
from optmatch.io.recognition import describe_tree, describing
from optmatch.io.text import parse_json, pointer
from optmatch.model import FormatError, InputError, frozen, largest, naming
from optmatch.model.accounts import Level, accounting
from optmatch.model.files import file_path, path_name
from optmatch.problems.demands.matrices import (
    fill_matrix,
    from_graph as from_graph,
    is_sparse,
    sparse_entries,
)

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
        Naming file, place and value of the first thing that is no number; or both readings of a
        table that could be two things.

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
    if layout is not None and layout not in LAYOUTS:
        raise InputError(f"layout = {layout!r}: one of {', '.join(LAYOUTS)}", where="layout")
    is_stdin = path_name(path) == STDIN
    file = _STDIN_NAME if is_stdin else path_name(path)
    reader = None if is_stdin else _reader_of_suffix(path)
    content = unzip(_read_stdin() if is_stdin else read_bytes(path), file)
    if reader is None:
        reader = _reader_of_content(content)
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
    suffix = _suffix_of(path)
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
    r"""Read a demand matrix, full and without names; the ending says how.

    Parameters
    ----------
    path
        As `read_traffic` takes it; or ``.et``, ``.RANK.json``: the Chakra trace of one rank, those
        of the others beside it.
    name, layout, transposed
        As of `read_traffic`.
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
    matrix = read_traffic(path, name=name, layout=layout, transposed=transposed).demand_bytes
    if not is_sparse(matrix):
        return matrix  # type: ignore[no-any-return]
    check_content("entries", matrix.shape[0] * matrix.shape[1], file)
    return fill_matrix(sparse_entries(matrix), "matrix").copy()


def _read_stdin() -> bytes:
    """Read stdin to its end; a `FormatError` if it is too large."""
    content = sys.stdin.buffer.read(largest("bytes") + 1)
    check_content("bytes", len(content), _STDIN_NAME)
    return content


def _suffix_of(path: str | os.PathLike[str]) -> str:
    """Return the ending of a file in small letters, before that of gzip; empty without one."""
    endings = [suffix.lower() for suffix in file_path(path).suffixes]
    if endings[-1:] == [".gz"]:
        endings.pop()
    return endings[-1] if endings else ""


def _reader_of_suffix(path: str | os.PathLike[str]) -> Reader:
    """Return the reader of files with this ending, before that of gzip; others are refused."""
    suffix = _suffix_of(path)
    if suffix not in _READERS:
        known_suffixes = ", ".join([*_READERS, ".et"])
        raise FormatError(
            f"suffix {suffix!r}: matrices end in {known_suffixes}", path=path_name(path)
        )
    return _READERS[suffix]


def _reader_of_content(content: bytes) -> Reader:
    """Return the reader of content that begins as this one does, by default that of tables."""
    # Without the byte order mark of UTF-8, and without blanks.
    start = content[:64].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for beginning, reader in (
        (b"\x93numpy", _read_npy),
        (b"pk", _read_npy),
        (b"%%matrixmarket", read_market),
        (b"{", _read_json),
        (b"<", read_sndlib_xml),
        (b"demands", read_repetita),
    ):
        if start.startswith(beginning):
            return reader
    return _read_text


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
        return traffic_of_flows(read_coflow_benchmark(content, path), path)
    with describing(content):
        return read_table(content, path, layout)


def _read_npy(content: bytes, path: str) -> Any:
    """Read an array, arrays by name, or the sparse matrix that SciPy saves as several arrays."""
    arrays = read_arrays(content, path)
    if {"format", "shape", "data"} <= set(arrays):
        return _read_sparse_arrays(arrays, path)
    return arrays[""] if list(arrays) == [""] else arrays


def _read_sparse_arrays(arrays: Mapping[str, NDArray[Any]], path: str) -> Any:
    """Make the sparse matrix of the arrays that `scipy.sparse.save_npz` writes, by name.

    They are ``format`` (csr, csc, bsr, coo or dia), ``shape``, ``data``, and the indices of that
    format.
    """
    from scipy.sparse import bsr_array, coo_array, csc_array, csr_array, dia_array

    layout = arrays["format"].item()
    layout = layout.decode() if isinstance(layout, bytes) else str(layout)
    compressed = {"csr": csr_array, "csc": csc_array, "bsr": bsr_array}
    # Arrays that contradict each other make SciPy raise errors of several kinds.
    try:
        shape = tuple(int(side) for side in arrays["shape"])
        if arrays["data"].dtype.kind not in "iufb" or len(shape) != 2:
            raise ValueError(f"data of {arrays['data'].dtype}, shape {shape}")
        if layout in compressed:
            parts = (arrays["data"], arrays["indices"], arrays["indptr"])
            matrix = compressed[layout](parts, shape=shape)
            matrix.check_format(full_check=True)
        elif layout == "coo":
            matrix = coo_array((arrays["data"], (arrays["row"], arrays["col"])), shape=shape)
        elif layout == "dia":
            matrix = dia_array((arrays["data"], arrays["offsets"]), shape=shape)
        else:
            raise ValueError(f"format {layout!r}")
    except (ValueError, KeyError, TypeError, IndexError) as exc:
        raise FormatError(f"is no sparse matrix of SciPy: {exc}", path=path) from exc
    return matrix.tocsr()


def _read_json(content: bytes, path: str) -> Any:
    """Read matrices of instances of QOBLIB, by name, or the demands of a network of SNDlib."""
    tree = parse_json(content, path)
    is_square = isinstance(tree, list) and all(
        isinstance(row, list) and len(row) == len(tree) for row in tree
    )
    if is_square and tree:
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
    with accounting(path) as account:
        for entry in instances.values():
            account.take(_INSTANCE, entry)
    return {key: _unstack(entry, pointer("", key)) for key, entry in instances.items()}


def _unstack(entry: dict[str, Any], where: str) -> NDArray[np.float64]:
    """Return the matrix of an instance of QOBLIB: ``n``, and n * n numbers column by column."""
    stacked, n = entry[_QOBLIB], entry.get("n")
    if type(n) is not int or n < 1 or not isinstance(stacked, list) or len(stacked) != n * n:
        raise FormatError(f"n = {shorten(n)} does not fit its matrix", where=pointer(where, "n"))
    for k, value in enumerate(stacked):
        if type(value) not in (int, float):
            raise FormatError(
                f"{shorten(value)}: a number is expected", where=pointer(where, _QOBLIB, k)
            )
    return np.array(stacked).reshape(n, n, order="F")


Reader = Callable[[bytes, str], Any]
"""Returns a `Traffic`, a matrix, or several matrices by name."""

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
