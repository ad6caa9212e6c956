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
from optmatch.io.rails.chakra.traces import MISSING
from optmatch.io.rails.phases import Line, trace_of
from optmatch.model import FormatError, naming
from optmatch.model.files import path_name
from optmatch.problems.rails.training.step import DIMENSIONS, Step

_RECORD = re.compile(
    r"([A-Z]+) start_backend: \d{1,18} start_idx: (\d{1,18})"
    r" end_backend: \d{1,18} end_idx: \d{1,18}"
    r" len: (\d{1,18})(?:, start_time: (\d{1,18}\.?\d*), end_time: (\d{1,18}\.?\d*))?"
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
    """Read the phases that a run of Opus has recorded at one rank.

    Lines are such as ``PP start_backend: 1 start_idx: 5 end_backend: 1 end_idx: 9 len: 5``, with
    ``, start_time: 12.5, end_time: 14.0`` in milliseconds at the end if they are known; a first
    line ``Node: ...`` is skipped.
    """
    file = path_name(path)
    text = decode(read_bytes(path), file)
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("Node:"):
            continue
        match = _RECORD.fullmatch(line.strip())
        if match is None:
            raise FormatError(f"{shorten(line)}: no phase", path=f"{file}:{number}")
        start_s, end_s = (None if ms is None else float(ms) / 1e3 for ms in match.group(4, 5))
        at, length = int(match[2]), int(match[3])
        found.append(PhaseRecord(match[1], length, at, start_s, end_s, number))
    return tuple(found)


def read_recorded_step(
    prefix: str | os.PathLike[str],
    groups: Mapping[str, Sequence[int]],
    options: TraceOptions | None = None,
    *,
    message_bytes: int = 1,
    collective_bytes: int = 1,
) -> Step:
    """Read the recordings of all ranks as one step of a job.

    Returns the first step that repeats, from the same message on at all ranks. In a pipeline the
    first rank of the pair sends. Where times were recorded, each phase comes after its window.

    Parameters
    ----------
    prefix
        ``folder/name`` of ``folder/name_SERVER_rankGPU.txt``, with one file for each GPU.
    groups
        The members of each group. A phase ``PP`` is one of the group whose name begins with ``pp``
        and that has the rank, and so on.
    message_bytes, collective_bytes
        Of a send in a pipeline, and of an operation in other dimensions, taken to be an
        all-gather: recordings tell neither kinds nor sizes. Without any phase no circuit is used.
    """
    told = options or TraceOptions()
    files = _files(prefix, told)
    if sorted(files) != list(range(len(files))):
        missing = min(set(range(max(files) + 1)) - set(files))
        raise FormatError(f"there is no recording of rank {missing}", path=path_name(prefix))
    records = {rank: read_recording(path) for rank, path in sorted(files.items())}
    traces, dimensions = [], dict(told.dimensions)
    for rank, (first_phase, n_phases) in _align(records, files).items():
        seen, end, lines = records[rank], first_phase + n_phases, []
        windows = [0.0, *windows_s(seen)][first_phase:end]
        for record, window in zip(seen[first_phase:end], windows, strict=True):
            group = _group_of(record, rank, groups, files[rank])
            if (dimension := record.dimension.lower()) in DIMENSIONS:
                dimensions.setdefault(group, dimension)
            others = [other for other in groups[group] if other != rank]
            pipeline = _is_message(record)
            if pipeline and len(others) != 1:
                message = f"group {group}: a pipeline of {len(others) + 1} ranks; records fit two"
                raise FormatError(message, path=f"{files[rank]}:{record.line}")
            first = groups[group][0] == rank
            lines.append(
                Line(
                    place=record.line,
                    rank=rank,
                    group=group,
                    operation="all-gather" if not pipeline else "send" if first else "recv",
                    repeats=record.n_operations,
                    size_bytes=message_bytes if pipeline else collective_bytes,
                    compute_s=max(0.0, float(np.nan_to_num(window))),
                    peer=others[0] if pipeline else MISSING,
                )
            )
        traces.append(trace_of(rank, lines, "line", files[rank]))
    return step_of(traces, groups, replace(told, dimensions=dimensions))


def _files(prefix: str | os.PathLike[str], options: TraceOptions) -> dict[int, str]:
    """Find the files that begin with a prefix, by rank."""
    folder, start = Path(prefix).parent, Path(prefix).name
    found: dict[int, str] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name[len(start) :]) if path.name.startswith(start) else None
        if match is None:
            continue
        place = int(match["place"])
        if place >= options.gpus_per_server:
            message = f"GPU {place} of a server that has {options.gpus_per_server}"
            raise FormatError(message, path=path_name(path))
        found[options.rank(int(match["server"]), place)] = path_name(path)
    if not found:
        raise FormatError("no file name_SERVER_rankGPU.txt is there", path=path_name(prefix))
    return found


def _align(
    records: Mapping[int, Sequence[PhaseRecord]], files: Mapping[int, str]
) -> dict[int, tuple[int, int]]:
    """Find one period in each recording, all from the same message on: first phase and length."""
    found: dict[int, tuple[int, int]] = {}
    for rank, seen in records.items():
        with naming(files[rank]):
            step = phases_of_step(seen)
        found[rank] = seen.index(step[0]), len(step)
    messages = {
        rank: {one.start_index: k for k, one in enumerate(seen) if k >= first and _is_message(one)}
        for (rank, seen), (first, _) in zip(records.items(), found.values(), strict=True)
    }
    begin = max((min(places) for places in messages.values() if places), default=0)
    for rank, places in messages.items():
        n_phases = found[rank][1]
        if places and places.get(begin, len(records[rank])) + n_phases > len(records[rank]):
            raise FormatError(f"no whole step begins with message {begin}", path=files[rank])
        if places:
            found[rank] = places[begin], n_phases
    return found


def _is_message(record: PhaseRecord) -> bool:
    return record.dimension == "PP"


def _group_of(
    record: PhaseRecord, rank: int, groups: Mapping[str, Sequence[int]], path: str
) -> str:
    """Return the name of the group of a phase."""
    start = record.dimension.lower()
    found = [name for name, of in groups.items() if name.lower().startswith(start) and rank in of]
    if len(found) != 1:
        message = (
            f"rank {rank} is in {len(found)} groups whose names begin with {start}, not in one"
        )
        raise FormatError(message, path=f"{path}:{record.line}")
    return found[0]


def phases_of_step(records: Sequence[PhaseRecord]) -> tuple[PhaseRecord, ...]:
    """Find the phases that repeat: the shortest period of most of the recording.

    The recording of one rank holds several steps. Its ends may differ; what repeats has to take up
    more than half, and at least two periods. Returns the first whole period.
    """
    shapes = [(record.dimension, record.n_operations) for record in records]
    n = len(shapes)
    for period in range(1, n // 2 + 1):
        same = [one == two for one, two in zip(shapes, shapes[period:], strict=False)]
        best = run = end = 0
        for k, equal in enumerate(same):
            run = run + 1 if equal else 0
            if run > best:
                best, end = run, k + 1
        if best >= period and best + period > n // 2:
            first = end - best
            return tuple(records[first : first + period])
    raise FormatError(f"{n} phases, in which no step repeats")


def windows_s(records: Sequence[PhaseRecord]) -> NDArray[np.float64]:
    """Return the time between each phase and the next one, in seconds; nan where not recorded."""
    return np.array(
        [
            float("nan") if one.end_s is None or two.start_s is None else two.start_s - one.end_s
            for one, two in pairwise(records)
        ]
    )
