"""What does the same is checked once: ranks with equal programs, rails with equal loads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.rails.training.step import Step
from optmatch.verify.rails.context import Context


def list_operations(step: Step, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """List the operations of some ranks, in their order."""
    spans = [np.arange(step.rank_start[rank], step.rank_start[rank + 1]) for rank in ranks]
    return np.concatenate([np.empty(0, np.int64), *spans])


def list_distinct(step: Step, *columns: NDArray[np.float64]) -> NDArray[np.int64]:
    """List ranks such that each other rank has the same program and `columns` as one of them.

    Programs are the same if all entries are equal, but for the names of ranks and groups: of
    groups only dimension, size and whether they ride a rail count, of peers how far away they are.
    """
    shapes = [(g.dimension, len(g.ranks), g.rail >= 0) for g in step.groups]
    numbers = {shape: k for k, shape in enumerate(dict.fromkeys(shapes))}
    shape = np.array([*(numbers[each] for each in shapes), -1])
    known: dict[int, list[tuple[NDArray[np.generic], ...]]] = {}
    found = []
    for rank, (first, end) in enumerate(pairwise(step.rank_start.tolist())):
        peer, offsets = step.peer[first:end], step.dep_start[first : end + 1]
        rows = (
            *(column[first:end] for column in (*columns, step.size_bytes, step.duration_s)),
            step.kind[first:end],
            shape[step.group[first:end]],
            np.where(peer < 0, step.n_ranks, peer - rank),
            offsets - offsets[0],
            step.dep[offsets[0] : offsets[-1]] - first,
        )
        same = known.setdefault(hash(rows[0].tobytes()), [])
        if not any(all(map(np.array_equal, rows, others)) for others in same):
            same.append(rows)
            found.append(rank)
    return np.array(found, dtype=np.int64)


def list_load(
    context: Context,
    ranks: NDArray[np.int64],
    riding: NDArray[np.int64],
    known: dict[tuple[str, bytes], int],
) -> tuple[NDArray[np.generic], ...]:
    """Describe what rides a rail, without names: rails with equal descriptions differ in nothing.

    GPUs are those of the rail, from 0; a group is its dimension and its members, which `known`
    numbers; a communication is its first operation.
    """
    step, plan = context.step, context.plan
    place = np.full(step.n_ranks + 1, -1)  # the last of who is no rank
    place[ranks] = np.arange(len(ranks))
    groups = step.group[riding]
    group = np.full(len(step.groups), -1)
    for k in np.flatnonzero(np.bincount(groups)).tolist():
        one = step.groups[k]
        group[k] = known.setdefault((one.dimension, place[[*one.ranks]].tobytes()), len(known))
    first = np.empty(int(step.match.max(initial=-1)) + 1, np.int64)
    first[step.match[riding][::-1]] = np.arange(len(riding))[::-1]
    at = np.searchsorted(riding, plan.relays[:, 0])
    own = np.append(riding, -1)[at] == plan.relays[:, 0]
    columns = (step.kind, step.size_bytes, plan.start_s, plan.end_s, plan.ports)
    return (
        np.arange(len(ranks)),
        *(column[riding] for column in columns),
        *(place[column[riding]] for column in (step.rank, step.peer)),
        group[groups],
        first[step.match[riding]],
        at[own],
        place[plan.relays[own, 1]],
        plan.relays[own, 2],
    )
