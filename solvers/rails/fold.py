"""A step folded: ranks that do the same at the same time stand for each other.

Two ranks are of one class if their programs agree in all numbers, and all their partners, place
by place, are of the same classes. By induction over time they then do everything at the same
moments, as long as a plan treats the ranks of a class alike. Nothing is lost by that: take any
plan, pick one pipeline, and let all others do what it does; its collectives do not last longer,
since a ring goes at the speed of its slowest member.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import RailJob
from optmatch.problems.rail_step import COMPUTE, DIMENSIONS, RECV, SEND, Step
from optmatch.problems.rail_time import events

Key = tuple[bytes | int, ...]


class Folded(NamedTuple):
    """What the classes of ranks do, each thing once."""

    class_of: NDArray[np.int64]
    """``class_of[rank]``."""
    node_of: NDArray[np.int64]
    """``node_of[operation]``: the node it belongs to."""
    part: NDArray[np.int64]
    """``part[node]``: one operation of it."""
    before: NDArray[np.int64]
    """``before[k]`` has to end before ``after[k]`` starts: pairs of nodes, each once."""
    after: NDArray[np.int64]
    order: tuple[NDArray[np.int64], ...]
    """``order[class]``: the nodes on a rail in program order."""
    first: tuple[int, ...]
    """``first[class]``: its first rank, which stands for the others."""


def fold(job: RailJob, apart: Sequence[bytes] = ()) -> Folded:
    """Find the classes of ranks, and what they do.

    Parameters
    ----------
    job
        The job.
    apart
        For each rank something in which the ranks of a class have to agree; empty if there is
        nothing but their programs.

    Notes
    -----
    Classes are refined until they are stable, as in the minimisation of automata; each round
    takes time O(operations log operations). Partners are compared by sums of 64-bit hashes; if two
    different ones ever agreed, the plan would be wrong and its replay would say so.
    """
    step = job.step()
    to, of = partners(step)
    class_of = _classes(step, to, of, apart)
    _, first = np.unique(class_of, return_index=True)
    given = events(job)
    own = np.concatenate(
        [np.arange(step.rank_start[rank], step.rank_start[rank + 1]) for rank in first.tolist()]
    ).astype(np.int64)
    code = _match_codes(step, class_of)
    code = np.where(step.kind == COMPUTE, _hash(_places(step, class_of)), code)
    kept, chosen = np.unique(code[own], return_index=True)
    part = own[chosen]
    node_of = np.searchsorted(kept, code).astype(np.int64)
    of_event = node_of[given.part]
    pairs = np.unique(of_event[given.before] * len(kept) + of_event[given.after])
    rail = step.rail
    orders = []
    for rank in first.tolist():
        span = np.arange(step.rank_start[rank], step.rank_start[rank + 1])
        orders.append(node_of[span[rail[span] >= 0]])
    return Folded(
        class_of,
        node_of,
        part,
        pairs // max(1, len(kept)),
        pairs % max(1, len(kept)),
        tuple(orders),
        tuple(first.tolist()),
    )


def partners(step: Step) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tell to whom each operation sends, and from whom it receives.

    Returns
    -------
    tuple
        Ranks by operation, -1 where there is none: of a collective the next and the last member of
        its group, as on a ring; of a message the other end.
    """
    wide = step.n_ranks
    members = [np.asarray(group.ranks) for group in step.groups]
    to, of = np.full(step.n_operations, -1), np.full(step.n_operations, -1)
    together = (step.kind != COMPUTE) & (step.kind < SEND)
    if members:
        keys = np.concatenate([g * wide + ranks for g, ranks in enumerate(members)])
        following = np.concatenate([np.roll(ranks, -1) for ranks in members])
        previous = np.concatenate([np.roll(ranks, 1) for ranks in members])
        order = np.argsort(keys)
        wanted = step.group[together].astype(np.int64) * wide + step.rank[together]
        found = order[np.searchsorted(keys[order], wanted)]
        to[together], of[together] = following[found], previous[found]
    to = np.where(step.kind == SEND, step.peer, to)
    return to, np.where(step.kind == RECV, step.peer, of)


def _classes(
    step: Step, to: NDArray[np.int64], of: NDArray[np.int64], apart: Sequence[bytes]
) -> NDArray[np.int64]:
    """Refine the classes of ranks until partners of a class are of one class."""
    dimension = np.array([*(DIMENSIONS.index(g.dimension) for g in step.groups), -1])[step.group]
    offset = np.repeat(np.arange(step.n_operations), np.diff(step.dep_start)) - step.dep
    columns = [step.kind, dimension, step.rail >= 0, step.size_bytes, step.duration_s]
    dep_ends = step.dep_start
    keys: list[Key] = []
    spans = list(pairwise(step.rank_start.tolist()))
    for rank, (start, end) in enumerate(spans):
        span = slice(start, end)
        shape = np.concatenate([to[span], of[span]])
        parts = [column[span].tobytes() for column in columns]
        parts.append(np.diff(dep_ends[start : end + 1]).tobytes())
        parts.append(offset[dep_ends[start] : dep_ends[end]].tobytes())
        keys.append((*parts, _shape(shape).tobytes(), *apart[rank : rank + 1]))
    class_of = _number(keys)
    while True:
        codes = _match_codes(step, class_of)
        keys = [
            (int(class_of[rank]), codes[start:end].tobytes())
            for rank, (start, end) in enumerate(spans)
        ]
        refined = _number(keys)
        if refined.max(initial=0) == class_of.max(initial=0):
            return class_of
        class_of = refined


def _number(keys: list[Key]) -> NDArray[np.int64]:
    """Give keys numbers in the order in which they first occur."""
    known: dict[Key, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def _shape(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Replace values by numbers in the order in which they first occur: who is whom again."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    found: NDArray[np.int64] = rank[inverse.reshape(-1)]
    return found


def _places(step: Step, class_of: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Give each operation a number that says its class and its place in the program."""
    local = np.arange(step.n_operations) - step.rank_start[step.rank]
    longest = int(np.diff(step.rank_start).max(initial=0)) + 1
    return (class_of[step.rank] * longest + local + 1).astype(np.uint64)


def _match_codes(step: Step, class_of: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Give the parts of a communication the same number if the same classes take part in it."""
    hashed = _hash(_places(step, class_of))
    talks = np.flatnonzero(step.match >= 0)
    matches, number = np.unique(step.match[talks], return_inverse=True)
    total = np.zeros(len(matches), dtype=np.uint64)
    np.add.at(total, number.reshape(-1), hashed[talks])
    codes = np.zeros(step.n_operations, dtype=np.uint64)
    codes[talks] = _hash(total[number.reshape(-1)])
    return codes


def _hash(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter numbers over 64 bits (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = values + np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return mixed ^ (mixed >> np.uint64(31))
