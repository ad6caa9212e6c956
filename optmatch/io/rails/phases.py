"""Lists of phases: operations of ranks, line by line, as CSV or JSON or in recordings of Opus."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.fields import Record, check_names, csv_records, list_records, shorten
from optmatch.io.matrices import EXACT
from optmatch.io.rails.chakra import (
    MISSING,
    Node,
    NodeBuilder,
    Nodes,
    TraceOptions,
    join,
    make_node,
    step_of,
)
from optmatch.io.text import (
    check_content,
    decode,
    describe_content,
    describing,
    parse_json,
    read_bytes,
)
from optmatch.model import FormatError, naming
from optmatch.model.files import file_path, path_name
from optmatch.problems.rails.training.step import DIMENSIONS, OPERATIONS, Step

_COLUMNS = ("rank", "group", "operation", "count", "size_bytes", "compute_s", "peer")
_MOST_REPEATS = 10**6
"""The most repeats of one line; a step has a few million operations in all."""


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
    ``groups[name]`` are the ranks of a group, in the order of its ring, and `options` say how
    ranks lie in servers.
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
    rows_of_rank: dict[int, list[Node]] = defaultdict(list)
    n_operations = 0
    with naming(file):
        for record in records:
            where = f"{noun} {record.number}"
            rows = _read_line(record, where)
            n_operations += len(rows)
            check_content("operations", n_operations, file)
            rank = int(_read_number(record.entries, "rank", None, where))
            rows_of_rank[rank] += rows

    # A rank that no line names is there if a group has it: it has nothing to do.
    ranks_of_groups = [rank for ranks in groups.values() for rank in ranks]
    n_ranks = 1 + max([*rows_of_rank, *ranks_of_groups], default=-1)
    check_content("ranks", n_ranks, file)
    traces = [_chain((), 0, noun, file)]
    for rank, rows in sorted(rows_of_rank.items()):
        traces.append(_chain(rows, rank, noun, file))
    return step_of(join(traces, n_ranks), groups, options or TraceOptions())


def _read_line(record: Record, where: str) -> list[Node]:
    """Read one line of a list of phases as nodes, and check the values that its operation needs.

    Messages call it ``line 3`` of CSV or ``entry 3`` of JSON (`where`).
    """
    row = record.entries
    operation = row.get("operation")
    if not isinstance(operation, str) or operation not in OPERATIONS:
        raise FormatError(
            f"operation = {shorten(operation)}: one of {', '.join(OPERATIONS)}", where=where
        )
    is_message = operation in ("send", "recv")
    communicates = operation != "compute"
    if communicates and not is_message and "group" not in row:
        raise FormatError(f"{operation} without a group", where=where)

    # A computation has no size and no group, and only messages have another rank.
    if not communicates:
        compute_s = _read_number(row, "compute_s", None, where, is_whole=False)
        return [Node(record.number, duration_us=compute_s * 1e6)]
    peer = MISSING
    if is_message:
        peer = int(_read_number(row, "peer", None, where))
    size_bytes = int(_read_number(row, "size_bytes", None, where))
    verb = operation.replace("-", "_").upper()
    group = str(row.get("group", ""))
    communication = make_node(record.number, verb, size_bytes, group, peer=peer)
    count = int(_read_number(row, "count", 1, where))
    compute_s = _read_number(row, "compute_s", 0.0, where, is_whole=False)
    return _repeat_after(compute_s, communication, count, where)


def _repeat_after(compute_s: float, communication: Node, count: int, where: str) -> list[Node]:
    """List the nodes of a line: a computation, if it takes time, and `count` communications."""
    if count > _MOST_REPEATS:
        raise FormatError(f"{count} operations: at most {_MOST_REPEATS}", where=where)
    rows = [communication] * count
    if compute_s:
        rows.insert(0, Node(communication.id, duration_us=compute_s * 1e6))
    return rows


def _read_number(
    row: Mapping[str, Any],
    name: str,
    default: float | None,
    where: str,
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
        raise FormatError(f"{name} = {shorten(value)}: {noun} >= 0 is expected", where=where)
    return number


def _chain(rows: Iterable[Node], rank: int, noun: str, path: str) -> Nodes:
    """Return the nodes of a rank, each of which waits for the one before.

    `path` is the file, and `noun` the word for a line, in messages.
    """
    builder = NodeBuilder()
    for place, row in enumerate(rows):
        previous = [place - 1] if place > 0 else []
        builder.append(row._replace(parents=previous))
    return builder.build(rank, path, noun, None)


_RECORD = re.compile(
    r"(?P<dimension>[A-Z]+) start_backend: \d{1,18} start_idx: (?P<start>\d{1,18})"
    r" end_backend: \d{1,18} end_idx: \d{1,18} len: (?P<length>\d{1,18})"
    r"(?:, start_time: (?P<start_ms>\d{1,18}\.?\d*), end_time: (?P<end_ms>\d{1,18}\.?\d*))?"
)
_NAME = re.compile(r"_(?P<server>\d+)_rank(?P<place>\d+)\.txt")
"""The end of a name: which server, and which GPU of it."""


class PhaseRecord(NamedTuple):
    """A phase that one rank has seen on its rail; times in seconds, None where not recorded."""

    dimension: str
    """The kind of parallelism, as ``"PP"``."""
    n_operations: int
    start_index: int
    """The number of its first operation."""
    start_s: float | None = None
    end_s: float | None = None
    line: int = 0
    """The line of the entry in its file, from 1 up."""


def read_recording(path: str | os.PathLike[str]) -> tuple[PhaseRecord, ...]:
    """Read the phases that a run of Opus has recorded at one rank, in the order of the file.

    A phase is a run of operations of one kind of parallelism. Lines are such as ``PP
    start_backend: 1 start_idx: 5 end_backend: 1 end_idx: 9 len: 5``, with ``, start_time: 12.5,
    end_time: 14.0`` in milliseconds at the end if they are known; a first line ``Node: ...`` is
    skipped.
    """
    file = path_name(path)
    content = read_bytes(path)
    records = []
    for number, line in enumerate(decode(content, file).splitlines(), start=1):
        if not line.strip() or line.startswith("Node:"):
            continue

        # Every other line is a phase.
        match = _RECORD.fullmatch(line.strip())
        if match is None:
            raise FormatError(
                f"{shorten(line)}: no phase{describe_content(content)}", path=f"{file}:{number}"
            )
        records.append(
            PhaseRecord(
                dimension=match["dimension"],
                n_operations=int(match["length"]),
                start_index=int(match["start"]),
                start_s=_as_seconds(match["start_ms"]),
                end_s=_as_seconds(match["end_ms"]),
                line=number,
            )
        )
    return tuple(records)


def _as_seconds(milliseconds: str | None) -> float | None:
    """Return a time in seconds; None if it was not recorded."""
    return None if milliseconds is None else float(milliseconds) / 1e3


def read_recorded_step(
    prefix: str | os.PathLike[str],
    groups: Mapping[str, Sequence[int]],
    options: TraceOptions | None = None,
    *,
    message_bytes: int = 1,
    collective_bytes: int = 1,
) -> Step:
    """Read the recordings of all ranks as one training step of the job.

    There is a file ``prefix_SERVER_rankGPU.txt`` of each. A recording covers several steps, all
    alike; the result is one of them, which begins with the same message at all ranks. Phases of a
    pipeline are taken as messages, which the first rank of the pair sends, all others as
    all-gathers, and recorded time between two phases as computation.

    Parameters
    ----------
    groups
        The ranks of each group, by name. A phase ``PP`` belongs to the group that has the rank and
        whose name begins with ``pp``, and so on.
    message_bytes, collective_bytes
        The size in bytes of each message, and of each all-gather (the shard of a rank).
    """
    # There has to be a recording of each rank, from 0 on.
    options = options or TraceOptions()
    files = _find_files(prefix, options)
    if sorted(files) != list(range(len(files))):
        missing_rank = min(set(range(max(files) + 1)) - set(files))
        raise FormatError(f"there is no recording of rank {missing_rank}", path=path_name(prefix))
    records_of_rank = {rank: read_recording(path) for rank, path in sorted(files.items())}

    # The same training step is found at all ranks. A step is found in each recording by itself; if
    # these begin with the messages (phases "PP") 8, 12 and 8, all are then moved to begin with
    # message 12, which all recordings have. Ranks without messages keep their step.
    first_phase_of_rank: dict[int, int] = {}
    n_phases_of_rank: dict[int, int] = {}
    for rank, records in records_of_rank.items():
        with naming(files[rank]):
            step = phases_of_step(records)
        first_phase_of_rank[rank] = records.index(step[0])
        n_phases_of_rank[rank] = len(step)

    # ``phase_of_message[rank][number]`` is the phase that begins with message `number` of the
    # recording; phases before the step that was found are left out.
    phase_of_message = {
        rank: {
            record.start_index: phase
            for phase, record in enumerate(records)
            if phase >= first_phase_of_rank[rank] and _is_message(record)
        }
        for rank, records in records_of_rank.items()
    }
    # All steps are moved to the latest of the first messages.
    first_messages = [min(phases) for phases in phase_of_message.values() if phases]
    common_message = max(first_messages, default=0)
    for rank, phases in phase_of_message.items():
        if not phases:
            continue
        first_phase = phases.get(common_message)
        n_recorded = len(records_of_rank[rank])
        if first_phase is None or first_phase + n_phases_of_rank[rank] > n_recorded:
            raise FormatError(
                f"no whole step begins with message {common_message}", path=files[rank]
            )
        first_phase_of_rank[rank] = first_phase

    # Each phase of the step becomes a line: an operation with its repeats, after a computation.
    traces = []
    dimensions = dict(options.dimensions)
    for rank, first_phase in first_phase_of_rank.items():
        file = files[rank]
        records = records_of_rank[rank]
        # ``window_before_s[phase]`` is the time without communication before a phase; 0 before the
        # first phase of a recording, and where no times were recorded.
        window_before_s = np.nan_to_num([0.0, *windows_s(records)]).clip(min=0.0)
        rows = []
        for phase in range(first_phase, first_phase + n_phases_of_rank[rank]):
            record = records[phase]

            # The only group of the rank whose name begins with the dimension of the phase.
            beginning = record.dimension.lower()
            names = [
                name
                for name, ranks in groups.items()
                if name.lower().startswith(beginning) and rank in ranks
            ]
            if len(names) != 1:
                raise FormatError(
                    f"rank {rank} is in {len(names)} groups whose names begin with {beginning},"
                    " not in one",
                    path=f"{file}:{record.line}",
                )
            group = names[0]

            # The name of a phase tells the dimension of its group, unless the caller does.
            dimension = record.dimension.lower()
            if dimension in DIMENSIONS:
                dimensions.setdefault(group, dimension)
            row = make_node(record.line, "ALL_GATHER", collective_bytes, group)

            # A phase of a pipeline does not say with which rank it is: there may be one other.
            if _is_message(record):
                peers = [member for member in groups[group] if member != rank]
                if len(peers) != 1:
                    raise FormatError(
                        f"group {group}: a pipeline of {len(peers) + 1} ranks; records fit two",
                        path=f"{file}:{record.line}",
                    )
                verb = "SEND" if groups[group][0] == rank else "RECV"
                row = make_node(record.line, verb, message_bytes, group, peer=peers[0])
            with naming(file):
                rows += _repeat_after(
                    float(window_before_s[phase]), row, record.n_operations, f"line {record.line}"
                )
        traces.append(_chain(rows, rank, "line", file))
    return step_of(join(traces, len(traces)), groups, replace(options, dimensions=dimensions))


def _find_files(prefix: str | os.PathLike[str], options: TraceOptions) -> dict[int, str]:
    """Find the files ``prefix_SERVER_rankGPU.txt``, by rank; server and GPU tell the rank.

    `prefix` is a path without the end of the name. `options` say how many GPUs a server has, and
    which ranks they are.
    """
    folder = Path(prefix).parent
    name_start = Path(prefix).name
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    files: dict[int, str] = {}
    for path in paths:
        if not path.name.startswith(name_start):
            continue
        match = _NAME.fullmatch(path.name[len(name_start) :])
        if match is None:
            continue

        # Server and GPU of the name give the rank.
        gpu = int(match["place"])
        if gpu >= options.gpus_per_server:
            raise FormatError(
                f"GPU {gpu} of a server that has {options.gpus_per_server}", path=path_name(path)
            )
        files[options.rank(int(match["server"]), gpu)] = path_name(path)
    if not files:
        raise FormatError("no file name_SERVER_rankGPU.txt is there", path=path_name(prefix))
    return files


def _is_message(record: PhaseRecord) -> bool:
    """Tell whether a phase is a message of a pipeline: its dimension is ``"PP"``, in capitals."""
    return record.dimension == "PP"


def phases_of_step(records: Sequence[PhaseRecord]) -> tuple[PhaseRecord, ...]:
    """Find the shortest period that repeats in a recording, and return its first phases.

    The ends of a recording may differ; what repeats takes up more than half of it, and at least
    two periods. Phases are equal if they have one dimension and as many operations. In a recording
    of the phases a b c b c b c b, the result is b c.
    """
    shapes = [(record.dimension, record.n_operations) for record in records]
    number_of_shape = {shape: number for number, shape in enumerate(shapes)}
    numbers = np.array([number_of_shape[shape] for shape in shapes])
    n_phases = len(shapes)
    for period in range(1, n_phases // 2 + 1):
        # Runs of phases that are equal to the phase one period later end at those that are not.
        # ``runs[k]`` is the number of phases between ``ends[k]`` and ``ends[k + 1]``.
        differing = np.flatnonzero(numbers[:-period] != numbers[period:])
        ends = np.concatenate([[-1], differing, [n_phases - period]])
        runs = np.diff(ends) - 1
        longest = runs.argmax()
        if runs[longest] >= period and runs[longest] + period > n_phases // 2:
            first = ends[longest] + 1
            return tuple(records[first : first + period])
    raise FormatError(f"{n_phases} phases, in which no step repeats")


def windows_s(records: Sequence[PhaseRecord]) -> NDArray[np.float64]:
    """Return the seconds between each phase and the next one; nan where not recorded."""
    starts_s = np.array([record.start_s for record in records[1:]], dtype=np.float64)
    ends_s = np.array([record.end_s for record in records[:-1]], dtype=np.float64)
    return starts_s - ends_s  # None becomes nan
