"""A program for each stage of a pipeline, and the step that it makes at all ranks.

All ranks of a stage do the same, so their operations are written once, as a program. A *family*
is a set of groups of one kind, such as all groups of tensor parallelism: a rank is in one group of
each family at most, and groups have names ``family.number``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optmatch.problems.rails.training.arrays import copy_ranges
from optmatch.problems.rails.training.layout import coordinates, list_stages
from optmatch.problems.rails.training.parallelism import DEGREES, Parallelism
from optmatch.problems.rails.training.step import Group, Step


class Operation(NamedTuple):
    """An operation that all ranks of a stage have.

    Its `kind` is an index of `optmatch.problems.rails.training.step.OPERATIONS`. Sizes are in
    bytes and mean what they mean in a `Step`; `duration_s` is that of a computation, in seconds,
    and 0 of communication.
    """

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
    """Copy the program of each stage to its ranks, with their groups, and match communications.

    ``programs[stage]`` is what every rank of that stage does. The operations of a step stand rank
    by rank, in the order of the program of the rank's stage. Operations of one group and tag are
    one communication, and get the same number in the column `match`; a message leads to the rank
    of the same pipeline at the other stage.
    """
    # `rows` are all programs one after the other. A rank has a copy of the ``n_rows[rank]`` rows
    # from ``first_row[rank]`` on, those of its stage. Columns are copied one after another, and
    # are no wider than they have to be: a step may have 40 million operations.
    stage_of = coordinates(split)[:, DEGREES.index("pp")]
    lengths = np.array([len(program) for program in programs])
    first_row = (np.cumsum(lengths) - lengths)[stage_of]
    n_rows = lengths[stage_of]
    rank = np.repeat(np.arange(split.n_ranks, dtype=np.int32), n_rows)
    rows = [operation for program in programs for operation in program]

    # ``group_of[family, rank]`` is the group of the family that the rank is in, -1 for none. The
    # last family, "", is that of computation, which has no group.
    families = [*dict.fromkeys(group.name.partition(".")[0] for group in groups), ""]
    group_of = np.full((len(families), split.n_ranks), -1, dtype=np.int32)
    for number, group_of_ranks in enumerate(groups):
        family = families.index(group_of_ranks.name.partition(".")[0])
        group_of[family, list(group_of_ranks.ranks)] = number
    family_of_row = np.array([families.index(operation.family) for operation in rows], np.int8)
    group = group_of[copy_ranges(family_of_row, first_row, n_rows), rank]

    # Communications of a program have tags: messages their own, others are counted within their
    # family.
    tags: list[int] = []
    for program in programs:
        n_of_family: Counter[str] = Counter()
        for operation in program:
            is_message = operation.toward >= 0
            tags.append(operation.tag if is_message else n_of_family[operation.family])
            n_of_family[operation.family] += 1

    # The parts of one communication have the same group and tag, which are packed into one integer
    # as a key: group * n_tags + tag. Keys that occur are numbered, ascending, from 0: with the
    # keys 2, 5 and 5 `occurs` is true at 2 and 5, and the numbers are 0, 1 and 1.
    n_tags = 1 + max(tags, default=0)
    occurs = np.zeros(len(groups) * n_tags, dtype=bool)
    communicates = group >= 0
    key = group[communicates].astype(np.int64) * n_tags
    key += copy_ranges(np.array(tags, np.int32), first_row, n_rows)[communicates]
    occurs[key] = True
    match = np.full(len(rank), -1, dtype=np.int32)
    match[communicates] = (np.cumsum(occurs, dtype=np.int32) - 1)[key]
    del key, communicates, occurs  # they are large, and memory is needed below

    # The peer of a message is the rank of the same pipeline at the other stage.
    toward_of_row = np.array([operation.toward for operation in rows], np.int32)
    toward = copy_ranges(toward_of_row, first_row, n_rows)
    peer = list_stages(split).astype(np.int32)[rank, toward]
    peer[toward < 0] = -1
    del toward

    # Dependencies, one operation after the other: those of operation k of the step are
    # ``dep[dep_start[k]:dep_start[k + 1]]``. They are copied from `after`, which has those of all
    # programs. In programs operations count from 0, in the step from the first operation of the
    # rank.
    n_dependencies = np.array([len(operation.after) for operation in rows], np.int32)
    after = np.array([before for operation in rows for before in operation.after], np.int32)
    first_dependency = np.append(0, np.cumsum(n_dependencies))
    n_of_rank = first_dependency[first_row + n_rows] - first_dependency[first_row]
    dep_start = np.zeros(1 + len(rank), np.int32)
    np.cumsum(copy_ranges(n_dependencies, first_row, n_rows), out=dep_start[1:])
    first_operation = (np.cumsum(n_rows) - n_rows).astype(np.int32)
    dep = np.repeat(first_operation, n_of_rank)
    dep += copy_ranges(after, first_dependency[first_row], n_of_rank)

    kind_of_row = np.array([operation.kind for operation in rows], np.int8)
    size_of_row = np.array([operation.size_bytes for operation in rows], np.float64)
    duration_of_row = np.array([operation.duration_s for operation in rows], np.float64)
    return Step.of_columns(
        tuple(groups),
        rank=rank,
        kind=copy_ranges(kind_of_row, first_row, n_rows),
        group=group,
        size_bytes=copy_ranges(size_of_row, first_row, n_rows),
        duration_s=copy_ranges(duration_of_row, first_row, n_rows),
        peer=peer,
        match=match,
        dep_start=dep_start,
        dep=dep,
    )
