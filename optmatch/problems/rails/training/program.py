"""A program for each stage of a pipeline, and the step that it makes at all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optmatch.problems.rails.training.layout import coordinates, list_stages
from optmatch.problems.rails.training.parallelism import DEGREES, Parallelism
from optmatch.problems.rails.training.step import RECV, SEND, Group, Step


class Operation(NamedTuple):
    """An operation that all ranks of a stage have."""

    kind: int
    after: tuple[int, ...] = ()
    """The operations of the same program that it depends on, counted from 0."""
    family: str = ""
    """Which family of groups communicates; ``"pp"`` for messages."""
    size_bytes: float = 0.0
    duration_s: float = 0.0
    toward: int = -1
    """The other stage of a message."""
    tag: int = 0
    """The same at both ends of a message, and of no other message between these stages."""
    leaving: float = 1.0
    """The part of the size that needs rails, where data for several ranks of a server go once."""


def place_programs(
    split: Parallelism, groups: Sequence[Group], programs: Sequence[Sequence[Operation]]
) -> Step:
    """Make a step of which all ranks of a stage have the same program.

    ``programs[stage]`` has the collectives of a group in the same order at all its members; groups
    have names ``family.number``.
    """
    _check_messages(programs)
    stage_of = coordinates(split)[:, DEGREES.index("pp")]
    lengths = np.array([len(program) for program in programs])
    start = np.concatenate([[0], np.cumsum(lengths[stage_of])])
    rank = np.repeat(np.arange(split.n_ranks, dtype=np.int32), lengths[stage_of])
    shift = (np.cumsum(lengths) - lengths)[stage_of] - start[:-1]
    row = (np.arange(len(rank)) + shift[rank]).astype(np.int32)
    rows = [operation for program in programs for operation in program]

    families = [*dict.fromkeys(group.name.partition(".")[0] for group in groups), ""]
    group_of = np.full((len(families), split.n_ranks), -1, dtype=np.int32)
    for number, one in enumerate(groups):
        group_of[families.index(one.name.partition(".")[0]), list(one.ranks)] = number
    group = group_of[np.array([families.index(each.family) for each in rows], int)[row], rank]

    tags = np.array(_tags(programs), dtype=np.int64)
    wide = 1 + int(tags.max(initial=0))
    seen = np.zeros(len(groups) * wide, dtype=bool)
    communicates = np.flatnonzero(group >= 0)
    key = group[communicates].astype(np.int64) * wide + tags[row[communicates]]
    seen[key] = True
    match = np.full(len(rank), -1, dtype=np.int32)
    match[communicates] = (np.cumsum(seen, dtype=np.int32) - 1)[key]
    del key, communicates, seen

    toward = np.array([each.toward for each in rows], int)[row]
    table = list_stages(split)
    counts = np.array([len(each.after) for each in rows], int)
    after = np.array([before for each in rows for before in each.after], int)
    dep_start = np.concatenate([[0], np.cumsum(counts[row])])
    first = (np.cumsum(counts) - counts)[row] - dep_start[:-1]
    dep = after[np.repeat(first, counts[row]) + np.arange(dep_start[-1])]
    dep += np.repeat(start[rank], counts[row])
    return Step.of_columns(
        tuple(groups),
        rank=rank,
        kind=np.array([each.kind for each in rows], np.int8)[row],
        group=group,
        size_bytes=np.array([each.size_bytes for each in rows], np.float64)[row],
        duration_s=np.array([each.duration_s for each in rows], np.float64)[row],
        peer=np.where(toward >= 0, table[rank, toward], -1).astype(np.int32),
        match=match,
        dep_start=dep_start,
        dep=dep,
    )


def _check_messages(programs: Sequence[Sequence[Operation]]) -> None:
    """Check that each message is sent and received once: all that a step has to keep.

    The members of other groups are of one stage, and have the same program.
    """
    ends: dict[int, Counter[tuple[int, int, int, float]]] = {SEND: Counter(), RECV: Counter()}
    for stage, program in enumerate(programs):
        for each in program:
            if each.toward >= 0:
                way = (stage, each.toward) if each.kind == SEND else (each.toward, stage)
                ends[each.kind][*way, each.tag, each.size_bytes] += 1
    assert ends[SEND] == ends[RECV]
    assert max(ends[SEND].values(), default=1) == 1


def _tags(programs: Sequence[Sequence[Operation]]) -> list[int]:
    """Return the tag of each operation: of a collective its number in its family."""
    found = []
    for program in programs:
        seen: Counter[str] = Counter()
        for each in program:
            found.append(each.tag if each.toward >= 0 else seen[each.family])
            seen[each.family] += 1
    return found
