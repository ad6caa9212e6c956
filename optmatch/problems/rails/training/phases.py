"""Phases of a rail: runs of operations of one dimension, for ranks that are switched together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Value, frozen
from optmatch.problems.rails.training.step import DIMENSIONS, Dimension, Step, dimensions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Phase(Value):
    """A run of operations of one dimension on one rail, at all ranks of one stage.

    Parameters
    ----------
    rail
        The rail.
    stage
        The stage on this rail: ranks that are switched together, numbered from 0 up.
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


def stages(step: Step) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Find ranks that are switched together: a group other than a pipeline joins them on a rail.

    Returns pairs of rail and ranks, ascending; a rank that only pipelines is a stage of its own.
    """
    head: dict[tuple[int, int], tuple[int, int]] = {}

    def find(node: tuple[int, int]) -> tuple[int, int]:
        while head.setdefault(node, node) != node:
            head[node] = node = head[head[node]]
        return node

    for group in step.groups:
        if group.rail < 0:
            continue
        nodes = [(group.rail, rank) for rank in group.ranks]
        for node in nodes:
            find(node)
            if group.dimension != "pp":
                one, two = sorted((find(nodes[0]), find(node)))
                head[two] = one
    found: dict[tuple[int, int], list[int]] = {}
    for node in sorted(head):
        found.setdefault(find(node), []).append(node[1])
    return tuple((rail, tuple(found[rail, rank])) for rail, rank in sorted(found))


def phases(step: Step) -> tuple[Phase, ...]:
    """Split the communication of each stage into phases.

    Phases are by rail, then stage, then order in time. Two ranks of a stage that go through
    different dimensions raise `InputError`.

    Time O(operations).
    """
    dimension = dimensions(step)
    rail = step.rail
    result: list[Phase] = []
    counted = Counter[int]()  # stages of a rail
    for on, ranks in stages(step):
        runs = [_runs(step, rank, on, rail, dimension) for rank in ranks]
        orders = [dimension[own[cuts[:-1]]] for own, cuts in runs]
        for rank, order in zip(ranks, orders, strict=True):
            if not np.array_equal(order, orders[0]):
                raise InputError(
                    f"rail {on}: rank {rank} goes through {_names(order)}, rank {ranks[0]} of the"
                    f" same stage through {_names(orders[0])}",
                    where="groups",
                )
        first = frozen("first", np.array([own[cuts[:-1]] for own, cuts in runs]).T, 2, np.int64)
        last = frozen("last", np.array([own[cuts[1:] - 1] for own, cuts in runs]).T, 2, np.int64)
        many = np.array([np.diff(cuts) for _, cuts in runs]).max(axis=0)
        for position, dim in enumerate(orders[0].tolist()):
            result.append(
                Phase(
                    rail=on,
                    stage=counted[on],
                    position=position,
                    ranks=ranks,
                    dimension=DIMENSIONS[dim],
                    first=first[position],
                    last=last[position],
                    n_operations=int(many[position]),
                )
            )
        counted[on] += 1
    return tuple(result)


def _runs(
    step: Step, rank: int, on: int, rail: NDArray[np.int32], dimension: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """List the operations of a rank on a rail, and where its dimension changes, with both ends."""
    start, end = step.rank_start[rank : rank + 2]
    own = start + np.flatnonzero(rail[start:end] == on)
    changes = np.flatnonzero(np.diff(dimension[own], prepend=-1))
    return own, np.append(changes, len(own))


def _names(order: NDArray[np.int64]) -> str:
    shown = " ".join(DIMENSIONS[dim] for dim in order[:8])
    return (shown or "nothing") + (" ..." if len(order) > 8 else "")
