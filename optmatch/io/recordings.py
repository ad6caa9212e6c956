"""Recordings of Opus: the phases that one rank has seen on its rail, and what repeats."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.fields import shorten
from optmatch.model import FormatError

_RECORD = re.compile(
    r"(?P<dimension>[A-Z]+) start_backend: (\d+) start_idx: (\d+)"
    r" end_backend: (\d+) end_idx: (\d+) len: (?P<length>\d+)"
    r"(?:, start_time: (?P<start>[\d.]+), end_time: (?P<end>[\d.]+))?"
)


class PhaseRecord(NamedTuple):
    """A phase that one rank has seen on its rail; times in seconds, None where not recorded."""

    dimension: str
    n_operations: int
    start_backend: int
    start_index: int
    end_backend: int
    end_index: int
    start_s: float | None = None
    end_s: float | None = None


def read_recording(path: str | os.PathLike[str]) -> tuple[PhaseRecord, ...]:
    """Read the phases that a run of Opus has recorded at one rank.

    Parameters
    ----------
    path
        Lines such as ``PP start_backend: 1 start_idx: 5 end_backend: 1 end_idx: 9 len: 5``, with
        ``, start_time: 12.5, end_time: 14.0`` in milliseconds at the end if they are known; a
        first line ``Node: ...`` is skipped.

    Raises
    ------
    FormatError
        Naming file and line.
    """
    file = os.fspath(path)
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise FormatError(f"cannot be read: {exc}", path=file) from exc
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("Node:"):
            continue
        match = _RECORD.fullmatch(line.strip())
        if match is None:
            raise FormatError(f"{shorten(line)}: no phase", path=f"{file}:{number}")
        found.append(_record(match))
    return tuple(found)


def _record(match: re.Match[str]) -> PhaseRecord:
    start, end = (
        None if text is None else float(text) / 1e3 for text in match.group("start", "end")
    )
    return PhaseRecord(
        dimension=match["dimension"],
        n_operations=int(match["length"]),
        start_backend=int(match[2]),
        start_index=int(match[3]),
        end_backend=int(match[4]),
        end_index=int(match[5]),
        start_s=start,
        end_s=end,
    )


def phases_of_step(records: Sequence[PhaseRecord]) -> tuple[PhaseRecord, ...]:
    """Find the phases that repeat: the shortest period of most of the recording.

    Parameters
    ----------
    records
        Several steps of one rank. Beginning and end may differ; what repeats has to take up more
        than half, and at least two periods.

    Returns
    -------
    tuple
        One period, the first that is whole.

    Raises
    ------
    FormatError
        If nothing repeats.

    Examples
    --------
    >>> phases = [("PP", 1), ("DP", 4)]
    >>> records = [PhaseRecord(*phase, 0, 0, 0, 0) for phase in [("DP", 9), *phases * 3]]
    >>> [(record.dimension, record.n_operations) for record in phases_of_step(records)]
    [('PP', 1), ('DP', 4)]
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


def count_switches(step: Sequence[PhaseRecord]) -> int:
    """Count the reconfigurations in a step that repeats: where the dimension changes.

    Examples
    --------
    >>> count_switches([PhaseRecord(name, 1, 0, 0, 0, 0) for name in ("PP", "DP", "PP", "DP")])
    4
    """
    names = [record.dimension for record in step]
    return sum(one != two for one, two in pairwise([*names, *names[:1]]))


def windows_s(records: Sequence[PhaseRecord]) -> NDArray[np.float64]:
    """Return the time between each phase and the next one, in seconds; nan where not recorded."""
    return np.array(
        [
            float("nan") if one.end_s is None or two.start_s is None else two.start_s - one.end_s
            for one, two in pairwise(records)
        ]
    )
