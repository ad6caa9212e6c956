"""The work of operations, and the order in which each rank has to do them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import RailJob
from optmatch.problems.rails.training.step import COMPUTE, OPERATIONS, RECV, SEND, Step
from optmatch.verify.rails.context import list_in_rounds

Column = NDArray[np.float64]
_FACTORS: dict[str, tuple[Callable[[Column], Column], Callable[[Column], Column]]] = {
    # bytes that a member of a group of n sends per byte of size, and the number of messages
    "all-reduce": (lambda n: 2 * (n - 1) / n, lambda n: 2 * (n - 1)),
    "all-gather": (lambda n: n - 1, lambda n: n - 1),
    "reduce-scatter": (lambda n: (n - 1) / n, lambda n: n - 1),
    "all-to-all": (lambda n: (n - 1) / n, lambda n: n - 1),
    "broadcast": (lambda n: 1 + 0 * n, lambda n: 1 + 0 * n),
    "send": (lambda n: 1 + 0 * n, lambda n: 1 + 0 * n),
    "recv": (lambda n: 1 + 0 * n, lambda n: 1 + 0 * n),
}


class Work(NamedTuple):
    """The work of operations; an entry for each."""

    sent_bytes: Column
    latency_s: Column
    fixed_s: Column
    """How long the operation lasts if it rides no rail."""
    full_s: Column
    """How long the operation lasts with all links up."""


def measure_work(job: RailJob, operations: NDArray[np.int64]) -> Work:
    """Find from sizes and groups how much operations send, and how long they last."""
    step = job.step()
    members = np.array([*(len(group.ranks) for group in step.groups), 1], dtype=np.float64)
    n, kinds = members[step.group[operations]], step.kind[operations]
    size_bytes = step.size_bytes[operations]
    sent, messages = np.zeros(len(n)), np.zeros(len(n))
    for kind, (share, count) in _FACTORS.items():
        of = kinds == OPERATIONS.index(kind)
        sent[of] = share(n[of]) * size_bytes[of]
        messages[of] = count(n[of])
    for own, _, transfers in list_in_rounds(job, operations):
        rows = np.searchsorted(operations, own)
        sent[rows] = sum(each[0][2] for each in transfers) * size_bytes[rows]
        messages[rows] = len(transfers)
    latency = messages * job.network.latency_s
    inside = sent / job.network.scale_up_bytes_per_s + latency
    inside = np.where(kinds == COMPUTE, step.duration_s[operations], inside)
    all_ports = job.network.port_bytes_per_s * job.network.ports_per_gpu
    full = np.where(step.rail[operations] >= 0, sent / all_ports + latency, inside)
    return Work(sent, latency, inside, full)


def list_before(
    step: Step, operations: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pair operations with those that have to end before they start, by place in the list.

    The list has all operations of some ranks, ascending. Predecessors of an operation: its
    dependencies, and the one before it in its stream. A rank has a stream for what it computes,
    one for the collectives of each dimension inside its server, one for those on its rail, and one
    for what it sends to each other rank and for what it receives from there.
    """
    dimensions = sorted({group.dimension for group in step.groups})
    number = np.array([*(dimensions.index(g.dimension) for g in step.groups), len(dimensions)])
    rank, kind = step.rank[operations], step.kind[operations]
    which = 2 * number[step.group[operations]] + (step.rail[operations] >= 0)
    messages = np.flatnonzero(np.isin(kind, [SEND, RECV]))
    ends = np.stack([rank, which, step.peer[operations], kind])[:, messages]
    order = np.lexsort(ends)
    same = (np.diff(ends[:, order], axis=1) == 0).all(axis=0)
    before, after = [messages[order[:-1][same]]], [messages[order[1:][same]]]
    which[messages] = -1
    for each in range(2 * len(dimensions) + 2):  # operations of a rank stand together
        own = np.flatnonzero(which == each)
        same = rank[own[:-1]] == rank[own[1:]]
        before.append(own[:-1][same])
        after.append(own[1:][same])
    first = step.dep_start[operations]
    counts = step.dep_start[operations + 1] - first
    depends = np.repeat(np.arange(len(operations)), counts)
    skipped = np.cumsum(counts) - counts
    dep = step.dep[np.repeat(first - skipped, counts) + np.arange(len(depends))]
    before.append(np.searchsorted(operations, dep))
    return np.concatenate(before), np.concatenate([*after, depends])
