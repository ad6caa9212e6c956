"""Phases of a rail: runs of operations of one dimension, for ranks that are switched together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Value, frozen
from optmatch.problems.collectives.steps import Algorithm, list_sends
from optmatch.problems.rails.training.step import (
    ALL_TO_ALL,
    DIMENSIONS,
    SEND,
    Dimension,
    Group,
    Step,
    dimensions,
    joined,
    ring_bytes,
)
from optmatch.problems.rails.training.times import list_rounds


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
    groups
        The groups that take part, indices of the step's groups, ascending.
    first, last
        ``first[k]``, ``last[k]``: the first and the last operation of ``ranks[k]`` in the phase.
    n_operations
        How many operations each rank has in the phase.
    circuits
        ``circuits[k] = sender, receiver``: ranks between which bytes go, with a ring over each
        group that has a collective; the other end may be in another stage; int32, (circuits, 2).
    circuit_bytes
        ``circuit_bytes[k]``: the bytes over the circuit in the whole phase.
    """

    rail: int
    stage: int
    position: int
    ranks: tuple[int, ...]
    dimension: Dimension
    groups: tuple[int, ...]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    n_operations: int
    circuits: NDArray[np.int32]
    circuit_bytes: NDArray[np.float64]

    def __post_init__(self) -> None:
        for name, ndim, dtype in (
            ("first", 1, np.int64),
            ("last", 1, np.int64),
            ("circuits", 2, np.int32),
            ("circuit_bytes", 1, np.float64),
        ):
            value = getattr(self, name)
            given = isinstance(value, np.ndarray) and (value.dtype, value.ndim) == (dtype, ndim)
            if not given or value.flags.writeable:  # there are thousands
                object.__setattr__(self, name, frozen(name, value, ndim, dtype))


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


def phases(step: Step, collectives: Mapping[str, Algorithm] | None = None) -> tuple[Phase, ...]:
    """Split the communication of each stage into phases.

    Phases are by rail, then stage, then order in time. Two ranks of a stage that go through
    different dimensions raise `InputError`.

    Time O(operations), but for the sorting of circuits.
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
        known: dict[bytes, dict[str, Any]] = {}  # micro-batches repeat the messages of phases
        for position, dim in enumerate(orders[0].tolist()):
            spans = [own[cuts[position] : cuts[position + 1]] for own, cuts in runs]
            inside = np.concatenate(spans)
            columns = (step.kind, step.group, step.size_bytes, step.peer, step.rank)
            key = b"".join(column[inside].tobytes() for column in columns)
            if key not in known:
                known[key] = _traffic(step, inside, collectives or {})
            result.append(
                Phase(
                    rail=on,
                    stage=counted[on],
                    position=position,
                    ranks=ranks,
                    dimension=DIMENSIONS[dim],
                    first=first[position],
                    last=last[position],
                    n_operations=max(map(len, spans)),
                    **known[key],
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


def _traffic(
    step: Step, operations: NDArray[np.int64], collectives: Mapping[str, Algorithm]
) -> dict[str, Any]:
    """Add up the bytes between ranks that a phase carries, by the names of its fields."""
    total: dict[tuple[int, int], float] = {}
    kind, group = step.kind[operations], step.group[operations]
    for number in np.unique(group):
        ours = operations[(group == number) & (kind < SEND)]
        if len(ours):
            first = ours[step.rank[ours] == step.rank[ours[0]]]  # all members do the same
            algorithm = collectives.get(step.groups[number].dimension, "ring")
            for each in np.unique(step.kind[first]).tolist():
                size = float(step.size_bytes[first[step.kind[first] == each]].sum())
                _add_collective(total, step.groups[number], each, size, algorithm)
    messages = operations[kind >= SEND]
    _, once = np.unique(step.match[messages], return_index=True)  # both ends may be in the stage
    for k in messages[once]:
        one, two = int(step.rank[k]), int(step.peer[k])
        pair = (one, two) if step.kind[k] == SEND else (two, one)
        _add(total, [pair], float(step.size_bytes[k]))
    ordered = sorted(total)
    return {
        "groups": tuple(np.unique(group).tolist()),
        "circuits": frozen("circuits", ordered, 2, np.int32),
        "circuit_bytes": frozen("circuit_bytes", [total[p] for p in ordered], 1, np.float64),
    }


def _add_collective(
    total: dict[tuple[int, int], float],
    group: Group,
    kind: int,
    size_bytes: float,
    algorithm: Algorithm,
) -> None:
    """Add the bytes that members of a group send in all collectives of a kind."""
    members, n = group.ranks, len(group.ranks)
    rounds = list_rounds(algorithm, kind, n) if group.rail >= 0 else ()
    for each in rounds:
        rows = list_sends(algorithm, n, each).tolist()
        _add(total, [(members[a], members[b]) for a, b in rows], each.share * size_bytes)
    if rounds:
        return
    sent = float(ring_bytes(kind, size_bytes, n))
    if kind == ALL_TO_ALL:
        _add(total, [(a, b) for a in members for b in members if a != b], sent / max(1, n - 1))
    else:
        _add(total, joined(group), sent)


def _add(
    total: dict[tuple[int, int], float], pairs: Iterable[tuple[int, int]], amount: float
) -> None:
    if amount > 0:
        for pair in pairs:
            total[pair] = total.get(pair, 0.0) + amount


def _names(order: NDArray[np.int64]) -> str:
    shown = " ".join(DIMENSIONS[dim] for dim in order[:8])
    return (shown or "nothing") + (" ..." if len(order) > 8 else "")
