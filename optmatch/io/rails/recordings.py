"""Recordings of Opus: the phases that ranks have seen on their rails, and the repeated step."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.contents import decode, read_bytes
from optmatch.io.fields import shorten
from optmatch.io.rails.chakra.options import TraceOptions
from optmatch.io.rails.chakra.step import step_of
from optmatch.io.rails.phases import Line, trace_of
from optmatch.io.recognition import describe_content
from optmatch.model import FormatError, naming
from optmatch.model.files import path_name
from optmatch.problems.rails.training.step import DIMENSIONS, Step

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
    n_operations: int
    start_index: int
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
            rule = f"{shorten(line)}: no phase{describe_content(content)}"
            raise FormatError(rule, path=f"{file}:{number}")
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
        rule = f"there is no recording of rank {missing_rank}"
        raise FormatError(rule, path=path_name(prefix))
    records_of_rank = {rank: read_recording(path) for rank, path in sorted(files.items())}

    # Each phase of the step becomes a line: an operation with its repeats, after a computation.
    traces = []
    dimensions = dict(options.dimensions)
    for rank, period in _align_periods(records_of_rank, files).items():
        file = files[rank]
        records = records_of_rank[rank]
        # ``window_before_s[phase]`` is the time without communication before a phase; 0 before the
        # first phase of a recording, and where no times were recorded.
        window_before_s = np.nan_to_num([0.0, *windows_s(records)]).clip(min=0.0)
        lines = []
        for phase in range(period.first_phase, period.first_phase + period.n_phases):
            record = records[phase]
            group = _find_group(record, rank, groups, file)

            # The name of a phase tells the dimension of its group, unless the caller does.
            dimension = record.dimension.lower()
            if dimension in DIMENSIONS:
                dimensions.setdefault(group, dimension)
            line = Line(
                place=record.line,
                rank=rank,
                group=group,
                operation="all-gather",
                repeats=record.n_operations,
                size_bytes=collective_bytes,
                compute_s=float(window_before_s[phase]),
            )

            # A phase of a pipeline does not say with which rank it is: there may be one other.
            if _is_message(record):
                peers = [member for member in groups[group] if member != rank]
                if len(peers) != 1:
                    rule = f"group {group}: a pipeline of {len(peers) + 1} ranks; records fit two"
                    raise FormatError(rule, path=f"{file}:{record.line}")
                verb = "send" if groups[group][0] == rank else "recv"
                line = line._replace(operation=verb, size_bytes=message_bytes, peer=peers[0])
            lines.append(line)
        traces.append(trace_of(rank, lines, "line", file))
    return step_of(traces, groups, replace(options, dimensions=dimensions))


def _find_files(prefix: str | os.PathLike[str], options: TraceOptions) -> dict[int, str]:
    """Find the files ``prefix_SERVER_rankGPU.txt``, by rank; server and GPU tell the rank."""
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
            rule = f"GPU {gpu} of a server that has {options.gpus_per_server}"
            raise FormatError(rule, path=path_name(path))
        files[options.rank(int(match["server"]), gpu)] = path_name(path)
    if not files:
        raise FormatError("no file name_SERVER_rankGPU.txt is there", path=path_name(prefix))
    return files


class _Period(NamedTuple):
    """One step in the recording of a rank."""

    first_phase: int
    n_phases: int


def _align_periods(
    records_of_rank: Mapping[int, Sequence[PhaseRecord]], files: Mapping[int, str]
) -> dict[int, _Period]:
    """Find the same training step at all ranks: by rank, its first phase and how many it has.

    A step is found in each recording by itself. If these begin with the messages (phases "PP") 8,
    12 and 8, all are then moved to begin with message 12, which all recordings have. Ranks without
    messages keep their step.
    """
    periods: dict[int, _Period] = {}
    for rank, records in records_of_rank.items():
        with naming(files[rank]):
            step = phases_of_step(records)
        periods[rank] = _Period(records.index(step[0]), len(step))

    # ``phase_of_message[rank][number]`` is the phase that begins with message `number` of the
    # recording; phases before the step that was found are left out.
    phase_of_message = {
        rank: {
            record.start_index: phase
            for phase, record in enumerate(records)
            if phase >= periods[rank].first_phase and _is_message(record)
        }
        for rank, records in records_of_rank.items()
    }
    # All steps are moved to the latest of the first messages.
    first_messages = [min(phases) for phases in phase_of_message.values() if phases]
    common_message = max(first_messages, default=0)
    for rank, phases in phase_of_message.items():
        if not phases:
            continue
        n_phases = periods[rank].n_phases
        first_phase = phases.get(common_message)
        if first_phase is None or first_phase + n_phases > len(records_of_rank[rank]):
            rule = f"no whole step begins with message {common_message}"
            raise FormatError(rule, path=files[rank])
        periods[rank] = _Period(first_phase, n_phases)
    return periods


def _is_message(record: PhaseRecord) -> bool:
    """Tell whether a phase is a message of a pipeline: its dimension is ``"PP"``, in capitals."""
    return record.dimension == "PP"


def _find_group(
    record: PhaseRecord, rank: int, groups: Mapping[str, Sequence[int]], file: str
) -> str:
    """Return the only group of the rank whose name begins with the dimension of the phase."""
    beginning = record.dimension.lower()
    names = [
        name
        for name, ranks in groups.items()
        if name.lower().startswith(beginning) and rank in ranks
    ]
    if len(names) != 1:
        rule = (
            f"rank {rank} is in {len(names)} groups whose names begin with {beginning}, not in one"
        )
        raise FormatError(rule, path=f"{file}:{record.line}")
    return names[0]


def phases_of_step(records: Sequence[PhaseRecord]) -> tuple[PhaseRecord, ...]:
    """Find the phases that repeat: the first whole period, the shortest of most of a recording.

    The ends of a recording may differ; what repeats takes up more than half of it, and at least
    two periods. Phases are equal if they have one dimension and as many operations.
    """
    shapes = [(record.dimension, record.n_operations) for record in records]
    n_phases = len(shapes)
    for period in range(1, n_phases // 2 + 1):
        # The longest run of phases that are equal to the phase one period later.
        run = 0
        longest_run = 0
        longest_end = 0
        for phase in range(n_phases - period):
            run = run + 1 if shapes[phase] == shapes[phase + period] else 0
            if run > longest_run:
                longest_run = run
                longest_end = phase + 1
        if longest_run >= period and longest_run + period > n_phases // 2:
            first = longest_end - longest_run
            return tuple(records[first : first + period])
    raise FormatError(f"{n_phases} phases, in which no step repeats")


def windows_s(records: Sequence[PhaseRecord]) -> NDArray[np.float64]:
    """Return the seconds between each phase and the next one; nan where not recorded."""
    windows = []
    for phase, next_phase in pairwise(records):
        if phase.end_s is None or next_phase.start_s is None:
            windows.append(float("nan"))
        else:
            windows.append(next_phase.start_s - phase.end_s)
    return np.array(windows, dtype=np.float64)
