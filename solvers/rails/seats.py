"""A step folded rail by rail: one rail of equals, on which every GPU stands for itself.

A *seat* is a class of ranks: the GPU of one number on each of some rails that are alike. A node
that rides a rail is one communication there, and its members are seats.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import ranks_of_rails
from optmatch.problems.rails.training.step import (
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    RECV,
    SEND,
    ring_bytes,
)
from optmatch.problems.rails.training.times import durations_s, pick_ranks
from optmatch.solvers.rails.fold import Folded, fold, list_places
from optmatch.solvers.rails.paths import Ints

RING, MESSAGE, EXCHANGE = range(3)
"""How a node goes: around its members, from one to another, from each to each other."""


class Seats(NamedTuple):
    """The nodes of a step that is folded rail by rail."""

    job: RailJob
    folded: Folded
    duration_s: NDArray[np.float64]
    """Times by node, with all links up."""
    bytes_sent: NDArray[np.float64]
    """By node, the bytes that each member sends over a ring of the members; 0 beside rails."""
    latency_s: NDArray[np.float64]
    """Latency by node, of its messages over one hop."""
    how: NDArray[np.int8]
    """By node: `RING`, `MESSAGE` or `EXCHANGE`; -1 for a node that rides no rail."""
    begin: Ints
    """Node k has the members ``member[begin[k]:begin[k + 1]]``, in the order of its group."""
    member: Ints
    row: Ints
    """By member the row of its operation in `Folded.own`."""
    after: Ints
    """``after[first[k]:first[k + 1]]`` waits for node k."""
    first: Ints
    pairs: Ints
    """Pairs of nodes: the second one waits for the first."""
    rail: Ints
    """By seat: the first rail that it is on, -1 if none."""
    number: Ints
    """By seat: its GPU, counted on its rail."""
    rail_of: Ints
    """By rank: its rail, -1 if none."""

    @property
    def riding(self) -> Ints:
        """The nodes that ride a rail."""
        return np.flatnonzero(self.how >= 0)


def seat_ranks(job: RailJob) -> Seats:
    """Fold a job rail by rail, and list who communicates over its rail."""
    step = job.step()
    apart = [b""] * step.n_ranks
    number, rail_of = np.full(step.n_ranks, -1), np.full(step.n_ranks, -1)
    for rail, ranks in ranks_of_rails(step).items():
        number[ranks], rail_of[ranks] = np.arange(len(ranks)), rail
    for group in step.groups:
        if group.rail >= 0:
            told = number[[*group.ranks]].astype(np.int32).tobytes()
            for rank in group.ranks:
                apart[rank] += told
    apart = [number[rank].tobytes() + told for rank, told in enumerate(apart)]
    folded = fold(job, apart)
    few, own = pick_ranks(step, folded.first)
    lasts = durations_s(few, job.network, job.collectives)[np.searchsorted(own, folded.part)]
    kind = step.kind[folded.part].astype(np.int64)
    sizes = np.array([*(len(group.ranks) for group in step.groups), 1])[step.group[folded.part]]
    rides = step.rail[folded.part] >= 0
    sent = ring_bytes(kind, step.size_bytes[folded.part], sizes)
    messages = np.where(kind == ALL_REDUCE, 2 * (sizes - 1), sizes - 1)
    messages = np.where((kind >= SEND) | (kind == BROADCAST), 1, messages)
    how = np.where(kind >= SEND, MESSAGE, RING)
    how = np.where((kind == ALL_TO_ALL) & (sizes > 2), EXCHANGE, how)

    rows = np.flatnonzero(step.rail[folded.own] >= 0)
    ops, nodes = folded.own[rows], folded.nodes[rows]
    place = np.where(
        step.kind[ops] >= SEND,
        step.kind[ops] == RECV,
        list_places(step).place(step, ops),
    )
    order = np.lexsort([place, nodes])
    seat_of = folded.class_of[step.rank[ops]]
    n = len(folded.part)
    counts = np.bincount(nodes, minlength=n)
    waits = np.argsort(folded.before, kind="stable")
    found = np.array(folded.first, np.int64)
    return Seats(
        job,
        folded,
        lasts,
        np.where(rides, sent, 0.0),
        messages * job.network.latency_on_rails_s,
        np.where(rides, how, -1).astype(np.int8),
        np.append(0, np.cumsum(counts)),
        seat_of[order],
        rows[order],
        folded.after[waits],
        np.searchsorted(folded.before[waits], np.arange(n + 1)),
        np.stack([folded.before, folded.after], axis=1),
        rail_of[found],
        number[found],
        rail_of,
    )
