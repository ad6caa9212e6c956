"""Lists of flows with arrival times: CSV, and the traces of coflow-benchmark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.contents import check_content, decode, read_bytes, unzip
from optmatch.io.fields import shorten
from optmatch.io.matrices.columns import (
    BYTES,
    DESTINATION_WORDS,
    SOURCE_WORDS,
    TIME_WORDS,
    UNUSED_BESIDE_BYTES,
    seconds_each,
    traffic_unit,
)
from optmatch.io.matrices.numbers import is_whole, read_number
from optmatch.io.matrices.tables import Row, split_rows, stated_unit
from optmatch.io.matrices.traffic import Edges, Traffic, number_ports, sparse_matrix
from optmatch.model import FormatError
from optmatch.model.files import path_name
from optmatch.problems.demands.matrices import names_of_ports

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
    return _read_flow_table(rows, name)


def _read_flow_table(rows: list[Row], path: str) -> FlowList:
    """Read a table of flows, whose first line names the columns, in the order of arrival.

    Columns are ``source``, ``destination``, ``bytes`` and ``time``, and perhaps ``coflow``,
    ``weight`` and ``deadline``. Flows with one label in ``coflow`` belong together, as those of a
    shuffle do; without the column each flow is a coflow of its own.
    """
    column_of = _find_columns(rows[0])
    for row in rows[1:]:
        if len(row.fields) != len(rows[0].fields):
            raise FormatError(
                f"{len(row.fields)} fields, but {len(rows[0].fields)} columns", path=row.place
            )

    def texts(column: str) -> list[str]:
        """Return the fields of a column, line by line."""
        return [row.fields[column_of[column].number] for row in rows[1:]]

    def numbers(column: str) -> list[float]:
        """Return the amounts of a column in seconds or bytes, line by line."""
        places = [row.place for row in rows[1:]]
        factor = column_of[column].factor
        fields = zip(texts(column), places, strict=True)
        return [factor * _amount(text, place) for text, place in fields]

    # Ports are numbered by their names.
    edges, names = number_ports(texts("source"), texts("destination"), numbers("bytes"), path)

    # Flows with the same label are one coflow; coflows are numbered as they come.
    coflows = np.arange(len(rows) - 1)
    if "coflow" in column_of:
        number_of = {label: k for k, label in enumerate(dict.fromkeys(texts("coflow")))}
        coflows = np.array([number_of[label] for label in texts("coflow")], dtype=np.int64)

    # Weights are above 0; the first that is not is named.
    weight = None
    if "weight" in column_of:
        weight = np.array(numbers("weight"))
        for flow in np.flatnonzero(weight == 0)[:1]:
            raise FormatError("weight 0: > 0 is expected", path=rows[1 + flow].place)
    deadline_s = None
    if "deadline" in column_of:
        deadlines = zip(texts("deadline"), (row.place for row in rows[1:]), strict=True)
        factor = column_of["deadline"].factor
        deadline_s = np.array([factor * _deadline(text, place) for text, place in deadlines])
    return _in_order(np.array(numbers("time")), edges, coflows, names, weight, deadline_s)


def _find_columns(header: Row) -> dict[str, _Column]:
    """Find which column of a table of flows is which, by the words of its first line.

    The keys are ``"time"``, ``"source"``, ``"destination"``, ``"bytes"``, and perhaps
    ``"coflow"``, ``"weight"`` and ``"deadline"``. Counts of packets are passed over, rates
    refused.
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


def _deadline(text: str, place: str) -> float:
    """Read a deadline; an empty field is none, which is infinite."""
    return _amount(text, place) if text else float("inf")


def _in_order(
    time_s: NDArray[np.float64],
    edges: Edges,
    coflows: NDArray[np.int64],
    names: tuple[str, ...],
    weight: NDArray[np.float64] | None = None,
    deadline_s: NDArray[np.float64] | None = None,
) -> FlowList:
    """Sort flows, given as columns, by arrival; those of the same time keep their order."""
    order = np.argsort(time_s, kind="stable")
    return FlowList(
        time_s=time_s[order],
        source=edges.sources[order],
        destination=edges.destinations[order],
        size_bytes=edges.demand_bytes[order],
        coflow=coflows[order],
        n_ports=len(names),
        names=names_of_ports(names),
        weight=None if weight is None else weight[order],
        deadline_s=None if deadline_s is None else deadline_s[order],
    )


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
    numbered = enumerate(decode(content, path).splitlines(), start=1)
    lines = [(f"{path}:{number}", line.split()) for number, line in numbered if line.strip()]
    n_ports, n_coflows = (int(word) for word in lines[0][1])
    check_content("ports", n_ports, path)
    if len(lines) - 1 != n_coflows:
        raise FormatError(
            f"{len(lines) - 1} coflows, but {n_coflows} are announced", path=lines[0][0]
        )
    # One entry for each flow, that is for each mapper and reducer of a coflow.
    arrivals_s: list[float] = []
    coflows: list[int] = []
    pairs: list[tuple[int, int]] = []
    sizes: list[float] = []
    for coflow, (place, words) in enumerate(lines[1:]):
        arrival_s = _amount(words[1], place) / 1e3 if len(words) > 1 else 0.0
        for mapper, reducer, size_bytes in _coflow_flows(words, n_ports, place):
            arrivals_s.append(arrival_s)
            coflows.append(coflow)
            pairs.append((mapper, reducer))
            sizes.append(size_bytes)
    # A row of `ends` is a source and a destination rack.
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    edges = Edges(ends[:, 0], ends[:, 1], np.array(sizes))
    names = tuple(map(str, range(n_ports)))
    number_of_coflow = np.array(coflows, dtype=np.int64)
    return _in_order(np.array(arrivals_s), edges, number_of_coflow, names)


def _coflow_flows(words: list[str], n_ports: int, place: str) -> Iterator[tuple[int, int, float]]:
    """Yield mapper, reducer and bytes of the flows of one coflow, a line as words.

    Each mapper sends its part to each reducer: the bytes of the reducer by the number of mappers.
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


def traffic_of_flows(flows: FlowList, path: str) -> Traffic:
    """Add up flows, whenever they arrive, as one demand."""
    edges = Edges(flows.source, flows.destination, flows.size_bytes)
    shape = (flows.n_ports, flows.n_ports)
    return Traffic(sparse_matrix(edges, shape, path), flows.names)
