"""Lists of phases: the operations of each rank in a step, line by line, as CSV or JSON."""

from __future__ import annotations

import csv
import io
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optmatch.io.contents import check_content, decode, read_bytes
from optmatch.io.fields import shorten
from optmatch.io.matrices.reader import EXACT
from optmatch.io.rails.chakra.messages import COLLECTIVE, COLLECTIVES, COMPUTE, RECEIVE, SEND
from optmatch.io.rails.chakra.options import TraceOptions
from optmatch.io.rails.chakra.step import step_of
from optmatch.io.rails.chakra.traces import MISSING, Trace
from optmatch.io.text import parse_json
from optmatch.model import FormatError
from optmatch.model.files import path_name
from optmatch.problems.rails.training.step import OPERATIONS, Step

_COLUMNS = ("rank", "group", "operation", "count", "size_bytes", "compute_s", "peer")
MOST_REPEATS = 10**6
"""The most repeats of one line; a step has a few million operations in all."""
_TYPES = {"compute": COMPUTE, "send": SEND, "recv": RECEIVE}


def read_phase_list(
    path: str | os.PathLike[str],
    groups: Mapping[str, Sequence[int]],
    options: TraceOptions | None = None,
) -> Step:
    """Read a list of phases as one step of a job.

    Each operation waits for the one before it at its rank. The file is ``.csv`` with a line of
    names, or ``.json`` with a list of objects: `rank`; `operation`, a name of `OPERATIONS`; but
    for ``"compute"`` its `group`, `size_bytes`, and `count`, how often (1 unless told);
    `compute_s`, seconds of computation before (0 unless told); of ``"send"`` and ``"recv"`` the
    `peer`. A rank does its lines in their order.
    """
    file = path_name(path)
    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", ".json"):
        raise FormatError(f"suffix {suffix!r}: phases are in .csv or .json", path=file)
    content = read_bytes(path)
    rows = _csv_rows(content, file) if suffix == ".csv" else _json_rows(content, file)
    noun = "line" if suffix == ".csv" else "entry"
    lines = [_line(row, place, noun, file) for place, row in rows]
    last = max(
        [*(line.rank for line in lines), *(r for g in groups.values() for r in g)], default=-1
    )
    check_content("ranks", last + 1, file)
    check_content("operations", sum(min(line.repeats, MOST_REPEATS) for line in lines), file)
    of_rank: list[list[Line]] = [[] for _ in range(last + 1)]
    for line in lines:
        of_rank[line.rank].append(line)
    idle = trace_of(MISSING, (), noun, file)
    traces = [trace_of(k, lines, noun, file) if lines else idle for k, lines in enumerate(of_rank)]
    return step_of(traces, groups, options or TraceOptions())


@dataclass(frozen=True, slots=True)
class Line:
    """One line: an operation of a rank, perhaps several times."""

    place: int
    rank: int
    group: str
    operation: str
    repeats: int
    size_bytes: int
    compute_s: float
    peer: int


def _csv_rows(content: bytes, path: str) -> list[tuple[int, dict[str, Any]]]:
    text = io.StringIO(decode(content, path))
    reader = csv.DictReader(text, restkey="", skipinitialspace=True)
    try:
        rows = [
            (reader.line_num, {name: cell for name, cell in row.items() if cell not in ("", None)})
            for row in reader
        ]
    except csv.Error as exc:
        raise FormatError(f"{exc}: not CSV", path=path) from exc
    _check_names(reader.fieldnames or ("",), "column", "line 1", path)
    return rows


def _json_rows(content: bytes, path: str) -> list[tuple[int, dict[str, Any]]]:
    tree = parse_json(content, path)
    if not isinstance(tree, list):
        raise FormatError("a list of phases is expected", where="/", path=path)
    for place, row in enumerate(tree):
        if not isinstance(row, dict):
            told = f"{shorten(row)}: an object is expected"
            raise FormatError(told, where=f"/{place}", path=path)
        _check_names(row, "key", f"/{place}", path)
    return list(enumerate(tree))


def _check_names(names: Iterable[str], noun: str, where: str, path: str) -> None:
    for name in names:
        if name not in _COLUMNS:
            told = f"{noun} {name!r}: known are {', '.join(_COLUMNS)}"
            raise FormatError(told, where=where, path=path)


def _line(row: dict[str, Any], place: int, noun: str, path: str) -> Line:
    where = f"{noun} {place}"

    def number(name: str, default: float | None, *, whole: bool = True) -> Any:
        value: Any = row.get(name, default)
        try:
            found = -1.0 if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            found = -1.0
        if not 0 <= found < EXACT or (whole and found % 1):
            kind = "a whole number" if whole else "a number"
            told = f"{name} = {shorten(value)}: {kind} >= 0 is expected"
            raise FormatError(told, where=where, path=path)
        return int(found) if whole else found

    operation = row.get("operation")
    if not isinstance(operation, str) or operation not in OPERATIONS:
        told = f"operation = {shorten(operation)}: one of {', '.join(OPERATIONS)}"
        raise FormatError(told, where=where, path=path)
    communicates = operation != "compute"
    message = operation in ("send", "recv")
    if communicates and not message and "group" not in row:
        raise FormatError(f"{operation} without a group", where=where, path=path)
    return Line(
        place=place,
        rank=number("rank", None),
        group=str(row.get("group", "")),
        operation=operation,
        repeats=number("count", 1) if communicates else 0,
        size_bytes=number("size_bytes", None) if communicates else 0,
        compute_s=number("compute_s", 0.0 if communicates else None, whole=False),
        peer=number("peer", None) if message else MISSING,
    )


def trace_of(rank: int, lines: Sequence[Line], noun: str, path: str) -> Trace:
    """Write the lines of a rank as the nodes of a trace, one after the other."""
    rows: list[tuple[int, ...]] = []
    lasts_us: list[float] = []
    names: dict[str, int] = defaultdict(lambda: len(names))
    for line in lines:
        if line.repeats > MOST_REPEATS:
            told = f"{line.repeats} operations: at most {MOST_REPEATS}"
            raise FormatError(told, where=f"{noun} {line.place}", path=path)
        if line.compute_s or line.operation == "compute":
            rows.append((line.place, COMPUTE, *[MISSING] * 5))
            lasts_us.append(line.compute_s * 1e6)
        kind = _TYPES.get(line.operation, COLLECTIVE)
        code = line.operation.replace("-", "_").upper()
        collective = COLLECTIVES.index(code) if kind == COLLECTIVE else MISSING
        group = names[line.group] if line.group else MISSING
        source = line.peer if kind == RECEIVE else MISSING
        destination = line.peer if kind == SEND else MISSING
        row = (line.place, kind, collective, line.size_bytes, source, destination, group)
        rows += [row] * line.repeats
        lasts_us += [0.0] * line.repeats
    n = len(rows)
    place, kinds, collectives, sizes, sources, destinations, groups = (
        np.array(rows, dtype=np.int64).reshape(-1, 7).T
    )
    missing = np.full(n, MISSING, dtype=np.int64)
    return Trace(
        path=path,
        rank=rank,
        node_id=place.astype(np.uint64),
        kind=kinds,
        duration_us=np.array(lasts_us),
        parents=np.arange(n - 1),
        first_parent=np.maximum(np.arange(n + 1) - 1, 0),
        collective=collectives,
        size_bytes=sizes,
        source=sources,
        destination=destinations,
        tag=missing,
        group=groups,
        operations=missing,
        root=missing,
        group_names=tuple(names),
        noun=noun,
    )
