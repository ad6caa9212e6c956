"""Phases of a rail: runs of operations of one dimension, for ranks that are switched together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Value, frozen
from optmatch.problems.rails.training.arrays import join_members
from optmatch.problems.rails.training.step import DIMENSIONS, Dimension, Step, dimensions

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Phase(Value):
    """A run of operations of one dimension on one rail, at all ranks of one stage.

    The ranks of a stage are switched together, and go through the same dimensions.

    Parameters
    ----------
    rail
        The rail.
    stage
        The number of the stage on this rail, from 0 up.
    position
        The number of the phase at its stage, from 0 up.
    ranks
        The ranks of the stage, ascending.
    dimension
        What communicates.
    first, last
        ``first[k]``, ``last[k]``: the first and the last operation of ``ranks[k]`` in the phase.
    n_operations
        How many operations each rank has in the phase.
    """

    rail: int
    stage: int
    position: int
    ranks: tuple[int, ...]
    dimension: Dimension
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    n_operations: int


def find_stages(step: Step) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """List the stages as (rail, ranks), in the order of their first ranks.

    Ranks of one rail are of one stage if groups other than pipelines join them, directly or
    through others.
    """
    # A node is a pair of rail and rank, packed into one integer. ``number_of_group[k]`` is the
    # group of member k; groups of pipelines join nobody.
    on_rail = [group for group in step.groups if group.rail >= 0]
    sizes = np.array([len(group.ranks) for group in on_rail], np.int64)
    pairs = [group.rail * step.n_ranks + rank for group in on_rail for rank in group.ranks]
    nodes, member = np.unique(np.array(pairs, np.int64), return_inverse=True)
    joins = np.repeat(np.array([group.dimension != "pp" for group in on_rail], bool), sizes)
    number_of_group = np.repeat(np.arange(len(on_rail)), sizes)
    least = join_members(len(nodes), member.reshape(-1)[joins], number_of_group[joins])

    # The nodes of a stage have the same least node, and nodes ascend by rail and rank.
    stages = []
    for root in np.unique(least).tolist():
        rails, ranks = np.divmod(nodes[least == root], step.n_ranks)
        stages.append((int(rails[0]), tuple(ranks.tolist())))
    return tuple(stages)


def phases(step: Step) -> tuple[Phase, ...]:
    """List the phases of all stages.

    A phase is a run of operations of one dimension. Ranks whose runs have the same dimensions in
    the same order have phases together.
    """
    dimension = dimensions(step)  # by operation, a place in `DIMENSIONS`
    result: list[Phase] = []
    n_stages_of_rail = Counter[int]()
    for rail, ranks in find_stages(step):
        # By the dimensions of its runs, each rank with its operations on this rail and the bounds
        # of its runs: run k is ``operations[bounds[k]:bounds[k + 1]]``. A run begins where the
        # dimension differs from that of the operation before.
        runs_of_order: dict[tuple[int, ...], list[tuple[int, Ints, Ints]]] = {}
        for rank in ranks:
            start, end = step.rank_start[rank : rank + 2]
            operations = start + np.flatnonzero(step.rail[start:end] == rail)
            begins = np.flatnonzero(np.diff(dimension[operations], prepend=-1))
            bounds = np.append(begins, len(operations))
            order = tuple(dimension[operations[begins]].tolist())
            runs_of_order.setdefault(order, []).append((rank, operations, bounds))

        # The arrays `first`, `last` and `n_operations` have shape (phases, ranks).
        for order, runs in runs_of_order.items():
            first = np.array([operations[bounds[:-1]] for _, operations, bounds in runs]).T
            last = np.array([operations[bounds[1:] - 1] for _, operations, bounds in runs]).T
            n_operations = np.array([np.diff(bounds) for _, _, bounds in runs]).T
            first = frozen("first", first, 2, np.int64)
            last = frozen("last", last, 2, np.int64)
            result += [
                Phase(
                    rail=rail,
                    stage=n_stages_of_rail[rail],
                    position=position,
                    ranks=tuple(rank for rank, _, _ in runs),
                    dimension=DIMENSIONS[number],
                    first=first[position],
                    last=last[position],
                    n_operations=int(n_operations[position].max()),
                )
                for position, number in enumerate(order)
            ]
            n_stages_of_rail[rail] += 1
    return tuple(result)
