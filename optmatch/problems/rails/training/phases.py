"""Phases of a rail: runs of operations of one dimension, for ranks that are switched together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Value, frozen
from optmatch.problems.rails.training.step import DIMENSIONS, Dimension, Step, dimensions


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

    Ranks of one rail are of one stage if groups other than pipelines join them (union-find).
    """
    parent: dict[tuple[int, int], tuple[int, int]] = {}

    def find_root(node: tuple[int, int]) -> tuple[int, int]:
        """Find the root of a node, halving the path."""
        while parent.setdefault(node, node) != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    # A node is a pair of rail and rank. All members of a group are joined to the first one; those
    # of pipelines only become nodes. The lower of two roots stays, so that the stages are in the
    # order of their first ranks.
    for group in step.groups:
        if group.rail < 0:
            continue
        nodes = [(group.rail, rank) for rank in group.ranks]
        for node in nodes:
            root = find_root(node)
            if group.dimension != "pp":
                first_root, second_root = sorted((find_root(nodes[0]), root))
                parent[second_root] = first_root

    ranks_of_root: dict[tuple[int, int], list[int]] = {}
    for node in sorted(parent):
        ranks_of_root.setdefault(find_root(node), []).append(node[1])
    return tuple((root[0], tuple(ranks)) for root, ranks in sorted(ranks_of_root.items()))


class _Runs(NamedTuple):
    """The runs of one dimension among the operations of a rank on a rail."""

    dimension: NDArray[np.int64]
    """``dimension[run]``: a place in `DIMENSIONS`."""
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    """``first[run]``, ``last[run]``: its first and its last operation."""
    # ``n_operations[run]``: how many operations it has.
    n_operations: NDArray[np.int64]


def phases(step: Step) -> tuple[Phase, ...]:
    """List the phases of all stages.

    A phase is a run of operations of one dimension. Ranks whose runs have the same dimensions in
    the same order have phases together.
    """
    dimension_of_operation = dimensions(step)
    rail_of_operation = step.rail
    result: list[Phase] = []
    n_stages_of_rail = Counter[int]()
    for rail, ranks in find_stages(step):
        runs_of_rank = {
            rank: _find_runs(step, rank, rail, rail_of_operation, dimension_of_operation)
            for rank in ranks
        }

        # Ranks that go through the same dimensions in the same order have phases together.
        ranks_of_order: dict[tuple[int, ...], list[int]] = {}
        for rank, runs in runs_of_rank.items():
            ranks_of_order.setdefault(tuple(runs.dimension.tolist()), []).append(rank)
        for alike_ranks in ranks_of_order.values():
            alike_runs = [runs_of_rank[rank] for rank in alike_ranks]
            result += _make_phases(rail, n_stages_of_rail[rail], tuple(alike_ranks), alike_runs)
            n_stages_of_rail[rail] += 1
    return tuple(result)


def _make_phases(
    rail: int, stage: int, ranks: tuple[int, ...], runs_of_rank: Sequence[_Runs]
) -> list[Phase]:
    """Make the phases of ranks that go through the same dimensions."""
    # Arrays of shape (phases, ranks).
    first = frozen("first", np.array([runs.first for runs in runs_of_rank]).T, 2, np.int64)
    last = frozen("last", np.array([runs.last for runs in runs_of_rank]).T, 2, np.int64)
    n_operations = np.array([runs.n_operations for runs in runs_of_rank]).max(axis=0)
    return [
        Phase(
            rail=rail,
            stage=stage,
            position=position,
            ranks=ranks,
            dimension=DIMENSIONS[dimension],
            first=first[position],
            last=last[position],
            n_operations=int(n_operations[position]),
        )
        for position, dimension in enumerate(runs_of_rank[0].dimension.tolist())
    ]


def _find_runs(
    step: Step,
    rank: int,
    rail: int,
    rail_of_operation: NDArray[np.int32],
    dimension: NDArray[np.int64],
) -> _Runs:
    """Find the runs of operations of one dimension, of one rank on one rail."""
    start, end = step.rank_start[rank : rank + 2]
    operations = start + np.flatnonzero(rail_of_operation[start:end] == rail)
    # A run begins where the dimension differs from that of the operation before on this rail.
    starts_of_runs = np.flatnonzero(np.diff(dimension[operations], prepend=-1))
    bounds = np.append(starts_of_runs, len(operations))
    return _Runs(
        dimension=dimension[operations[bounds[:-1]]],
        first=operations[bounds[:-1]],
        last=operations[bounds[1:] - 1],
        n_operations=np.diff(bounds),
    )
