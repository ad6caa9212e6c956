"""Lists of phases: the operations of each rank in a step, line by line, as CSV or JSON."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from optmatch.io.contents import check_content, read_bytes
from optmatch.io.fields import shorten
from optmatch.io.matrices.reader import EXACT
from optmatch.io.rails.chakra.messages import COLLECTIVE, COLLECTIVES, COMPUTE, RECEIVE, SEND
from optmatch.io.rails.chakra.options import TraceOptions
from optmatch.io.rails.chakra.step import step_of
from optmatch.io.rails.chakra.traces import MISSING, NodeRow, Trace
from optmatch.io.recognition import describing
from optmatch.io.records import check_names, csv_records, list_records
from optmatch.io.text import parse_json
from optmatch.model import FormatError, naming
from optmatch.model.files import file_path, path_name
from optmatch.problems.rails.training.step import OPERATIONS, Step

_COLUMNS = ("rank", "group", "operation", "count", "size_bytes", "compute_s", "peer")
_MOST_REPEATS = 10**6
"""The most repeats of one line; a step has a few million operations in all."""
_NODE_TYPES = {"compute": COMPUTE, "send": SEND, "recv": RECEIVE}
"""Types of nodes of Chakra by operation; other operations are collectives."""


def read_phase_list(
    path: str | os.PathLike[str],
    groups: Mapping[str, Sequence[int]],
    options: TraceOptions | None = None,
) -> Step:
    """Read one training step from a list of what each rank does, one thing after the other.

    The file is ``.csv`` with a line of names, or ``.json`` with a list of objects. A line says:

    - `rank`: who does it;
    - `operation`: one of `OPERATIONS`, such as "compute", "all-reduce", "send" or "recv";
    - `group`: the name of the group of a collective;
    - `size_bytes`: the size of a communication;
    - `count`: how often the rank communicates so in a row, 1 if it is left out;
    - `compute_s`: the seconds that it computes before, 0 if it is left out; of "compute" the
      seconds of the computation itself;
    - `peer`: the other rank of a message ("send" or "recv").

    A rank does its lines in their order, and each operation waits for the one before it.
    """
    # The suffix of the file tells its format.
    file = path_name(path)
    suffix = file_path(path).suffix.lower()
    content = read_bytes(path)
    with describing(content), naming(file):
        if suffix == ".csv":
            noun = "line"
            records = csv_records(content, file, _COLUMNS, may_be_short=True)
        elif suffix == ".json":
            noun = "entry"
            records = list_records(parse_json(content, file), "")
            for record in records:
                check_names("key", list(record.entries), _COLUMNS, record.place)
        else:
            raise FormatError(f"suffix {suffix!r}: phases are in .csv or .json")
    lines = [_read_line(entries, _Place(file, noun, number)) for _, number, entries in records]

    # A rank that no line names is there if a group has it: it has nothing to do.
    ranks_of_groups = [rank for ranks in groups.values() for rank in ranks]
    last_rank = max([*(line.rank for line in lines), *ranks_of_groups], default=-1)
    check_content("ranks", last_rank + 1, file)
    check_content("operations", sum(min(line.repeats, _MOST_REPEATS) for line in lines), file)
    lines_of_rank: list[list[Line]] = [[] for _ in range(last_rank + 1)]
    for line in lines:
        lines_of_rank[line.rank].append(line)
    idle = trace_of(MISSING, (), noun, file)
    traces = [
        trace_of(rank, lines_of_one, noun, file) if lines_of_one else idle
        for rank, lines_of_one in enumerate(lines_of_rank)
    ]
    return step_of(traces, groups, options or TraceOptions())


class Line(NamedTuple):
    """One line: an operation of a rank, perhaps several times."""

    place: int
    """The number of the line in its file."""
    rank: int
    group: str
    operation: str
    """A name of `OPERATIONS`."""
    repeats: int = 0
    """How often the rank communicates; 0 for a computation."""
    size_bytes: int = 0
    compute_s: float = 0.0
    """The computation before it."""
    peer: int = MISSING
    """The other rank of a message."""


class _Place(NamedTuple):
    """Where a line stands, for messages: ``line 3`` of CSV, ``entry 3`` of JSON."""

    path: str
    noun: str
    number: int

    def fail(self, message: str) -> FormatError:
        """Return an error about the line."""
        return FormatError(message, where=f"{self.noun} {self.number}", path=self.path)


def _read_line(row: Mapping[str, Any], place: _Place) -> Line:
    """Read one line of a list of phases, and check the values that its operation needs."""
    operation = row.get("operation")
    if not isinstance(operation, str) or operation not in OPERATIONS:
        rule = f"operation = {shorten(operation)}: one of {', '.join(OPERATIONS)}"
        raise place.fail(rule)
    is_message = operation in ("send", "recv")
    communicates = operation != "compute"
    if communicates and not is_message and "group" not in row:
        raise place.fail(f"{operation} without a group")

    # A computation has no size and no group, and only messages have another rank.
    line = Line(
        place=place.number,
        rank=int(_read_number(row, "rank", None, place)),
        group=str(row.get("group", "")),
        operation=operation,
    )
    if not communicates:
        compute_s = _read_number(row, "compute_s", None, place, is_whole=False)
        return line._replace(compute_s=compute_s)
    if is_message:
        line = line._replace(peer=int(_read_number(row, "peer", None, place)))
    return line._replace(
        repeats=int(_read_number(row, "count", 1, place)),
        size_bytes=int(_read_number(row, "size_bytes", None, place)),
        compute_s=_read_number(row, "compute_s", 0.0, place, is_whole=False),
    )


def _read_number(
    row: Mapping[str, Any],
    name: str,
    default: float | None,
    place: _Place,
    *,
    is_whole: bool = True,
) -> float:
    """Return a number >= 0 that a float holds exactly; a text of CSV is converted.

    A line without it has the default; without a default it is refused.
    """
    value: Any = row.get(name, default)
    try:
        number = -1.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not 0 <= number < EXACT or (is_whole and number % 1):
        noun = "a whole number" if is_whole else "a number"
        raise place.fail(f"{name} = {shorten(value)}: {noun} >= 0 is expected")
    return number


def trace_of(rank: int, lines: Sequence[Line], noun: str, path: str) -> Trace:
    """Make the execution trace of one rank from lines that say what it does in order.

    It is a chain: each node waits for the one before it. A line with 0.1 s of computation and an
    all-reduce that is repeated 3 times becomes 4 nodes. The rank is `MISSING` if it does nothing;
    `noun` is the word for a line in messages.
    """
    # One row for each node. A name of a group that is new gets the next number.
    rows: list[NodeRow] = []
    number_of_group: dict[str, int] = defaultdict(lambda: len(number_of_group))
    for line in lines:
        if line.repeats > _MOST_REPEATS:
            rule = f"{line.repeats} operations: at most {_MOST_REPEATS}"
            raise FormatError(rule, where=f"{noun} {line.place}", path=path)
        if line.compute_s or line.operation == "compute":
            rows.append(NodeRow(line.place, COMPUTE, duration_us=line.compute_s * 1e6))
        kind = _NODE_TYPES.get(line.operation, COLLECTIVE)
        collective = MISSING
        if kind == COLLECTIVE:
            collective = COLLECTIVES.index(line.operation.replace("-", "_").upper())
        communication = NodeRow(
            node_id=line.place,
            kind=kind,
            collective=collective,
            size_bytes=line.size_bytes,
            source=line.peer if kind == RECEIVE else MISSING,
            destination=line.peer if kind == SEND else MISSING,
            group=number_of_group[line.group] if line.group else MISSING,
        )
        rows += [communication] * line.repeats

    # Node k waits for node k - 1, and node 0 for none: the parents of node k are
    # ``parents[first_parent[k]:first_parent[k + 1]]``, with 0, 1, 2, ... in `parents` and
    # 0, 0, 1, 2, ... in `first_parent`.
    return Trace.of_rows(
        rows,
        path=path,
        rank=rank,
        parents=np.arange(len(rows) - 1),
        first_parent=np.maximum(np.arange(len(rows) + 1) - 1, 0),
        group_names=tuple(number_of_group),
        noun=noun,
    )
