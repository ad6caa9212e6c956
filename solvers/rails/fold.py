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
from optmatch.problems.rails.fold import refine
from optmatch.problems.rails.step import COMPUTE, RECV, SEND, Step


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
    Classes are refined until they are stable, as in the minimisation of automata. Partners are
    compared by sums of 64-bit hashes; if two different ones ever agreed, the plan would be wrong
    and its replay would say so.
    """
    step = job.step()
    labels = _neighbours(step)
    labels = [a + b for a, b in zip(labels, apart, strict=True)] if apart else labels
    class_of, code = refine(step, apart=labels)
    _, first = np.unique(class_of, return_index=True)
    given = job.events()
    own = np.concatenate(
        [np.arange(step.rank_start[rank], step.rank_start[rank + 1]) for rank in first.tolist()]
    ).astype(np.int64)
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


def _neighbours(step: Step) -> list[bytes]:
    """Describe for each rank which of those it sends to and receives from are the same."""
    to, of = partners(step)
    return [
        number_first(np.concatenate([to[start:end], of[start:end]])).tobytes()
        for start, end in pairwise(step.rank_start.tolist())
    ]


def number_first(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Replace values by numbers in the order in which they first occur: who is whom again.

    Examples
    --------
    >>> number_first(np.array([7, 3, 7, 5])).tolist()
    [0, 1, 0, 2]
    """
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    found: NDArray[np.int64] = np.argsort(np.argsort(first))[inverse.reshape(-1)]
    return found
