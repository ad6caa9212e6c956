"""The work of operations, and the order in which each rank has to do them.

A *stream* is a queue of a rank, as in CUDA: its operations are done one after the other. A
collective *in rounds* is no ring: in each round members send to others at various distances.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import RailJob
from optmatch.problems.rails.training.step import COMPUTE, OPERATIONS, RECV, SEND, Step
from optmatch.verify.rails.context import count_members, list_in_rounds

Column = NDArray[np.float64]


class Sending(NamedTuple):
    """What each member of a group sends in a collective around a ring."""

    share: Column
    """Bytes that are sent for each byte of the size."""
    n_messages: Column
    """Messages, one after the other."""


def _count_sends(kind: str, n_members: Column) -> Sending:
    """Return what members of groups of so many send in an operation of a kind, entry by entry."""
    one_send = np.ones_like(n_members)
    n_others = n_members - 1
    sendings = {
        "all-reduce": Sending(2 * n_others / n_members, 2 * n_others),
        "all-gather": Sending(n_others, n_others),
        "reduce-scatter": Sending(n_others / n_members, n_others),
        "all-to-all": Sending(n_others / n_members, n_others),
        "broadcast": Sending(one_send, one_send),
        "send": Sending(one_send, one_send),
        "recv": Sending(one_send, one_send),
    }
    return sendings[kind]


class Work(NamedTuple):
    """The work of operations; an entry for each. Each member sends `sent_bytes` bytes in all."""

    sent_bytes: Column
    latency_s: Column
    """Of all messages, one after the other."""
    fixed_s: Column
    """How long the operation lasts if it rides no rail."""
    full_s: Column
    """How long the operation lasts with all links up."""


def measure_work(job: RailJob, operations: NDArray[np.int64]) -> Work:
    """Return how many bytes operations send, and how long they last if all circuits are there."""
    step = job.step()
    network = job.network
    kinds = step.kind[operations]
    size_bytes = step.size_bytes[operations]
    n_members = count_members(step).astype(np.float64)[step.group[operations]]

    # Kind by kind around rings; what is done in rounds (such as recursive halving) then replaces
    # its entries. Computation sends nothing.
    sent_bytes = np.zeros(len(operations))
    n_messages = np.zeros(len(operations))
    for number, kind in enumerate(OPERATIONS):
        rows = kinds == number
        if number != COMPUTE and rows.any():
            sending = _count_sends(kind, n_members[rows])
            sent_bytes[rows] = sending.share * size_bytes[rows]
            n_messages[rows] = sending.n_messages

    # A member sends an equal share of the size in each send of a round.
    for group in list_in_rounds(job, operations):
        rows_in_rounds = np.searchsorted(operations, group.operations)
        share = sum(transfers[0].share for transfers in group.rounds)
        sent_bytes[rows_in_rounds] = share * size_bytes[rows_in_rounds]
        n_messages[rows_in_rounds] = len(group.rounds)

    # Seconds: messages come one after the other, and bytes go at the rate of all ports together.
    on_rail = step.rail[operations] >= 0
    message_s = np.where(on_rail, network.latency_on_rails_s, network.latency_s)
    latency_s = n_messages * message_s
    inside_s = sent_bytes / network.scale_up_bytes_per_s + latency_s
    fixed_s = np.where(kinds == COMPUTE, step.duration_s[operations], inside_s)
    rate = network.port_bytes_per_s * network.ports_per_gpu
    full_s = np.where(on_rail, sent_bytes / rate + latency_s, fixed_s)
    return Work(sent_bytes, latency_s, fixed_s, full_s)


class Precedence(NamedTuple):
    """Pairs of operations, by their places in a list: one ends before the other starts."""

    before: NDArray[np.int64]
    after: NDArray[np.int64]


def list_before(step: Step, operations: NDArray[np.int64]) -> Precedence:
    """Pair each operation with those that have to end before it starts.

    These are its dependencies, and the operation before it in the same stream: computation,
    collectives of a dimension in servers or on rails, and messages with each rank each way are
    streams.
    """
    rank = step.rank[operations]
    kind = step.kind[operations]
    stream, n_streams = _number_streams(step, operations)
    is_message = np.isin(kind, [SEND, RECV])
    before = []
    after = []

    # Messages: a stream for each rank, dimension, peer and direction. A stable sort by these four
    # keeps the order of the program within each stream, whose neighbours make pairs.
    messages = np.flatnonzero(is_message)
    keys = np.stack([rank, stream, step.peer[operations], kind])[:, messages]
    order = np.lexsort(keys)
    same_stream = (np.diff(keys[:, order], axis=1) == 0).all(axis=0)
    before.append(messages[order[:-1][same_stream]])
    after.append(messages[order[1:][same_stream]])

    # Everything else: the operations of a rank stand together, in program order.
    for number in range(n_streams):
        rows = np.flatnonzero((stream == number) & ~is_message)
        same_rank = rank[rows[:-1]] == rank[rows[1:]]
        before.append(rows[:-1][same_rank])
        after.append(rows[1:][same_rank])

    # Dependencies: those of operation k are ``dep[dep_start[k]:dep_start[k + 1]]``. `entry` lists
    # the places in `dep` of all of them. If two operations have the places 4 to 5 and 9 to 11, it
    # is [4, 5, 9, 10, 11], and `dependent` is [0, 0, 1, 1, 1].
    first = step.dep_start[operations]
    n_dependencies = step.dep_start[operations + 1] - first
    dependent = np.repeat(np.arange(len(operations)), n_dependencies)
    n_earlier_rows = np.cumsum(n_dependencies) - n_dependencies
    entry = np.repeat(first - n_earlier_rows, n_dependencies) + np.arange(len(dependent))
    before.append(np.searchsorted(operations, step.dep[entry]))
    after.append(dependent)
    return Precedence(np.concatenate(before), np.concatenate(after))


def _number_streams(step: Step, operations: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """List the stream of each operation, and count the streams of a rank."""
    names = sorted({(group.dimension, group.stream) for group in step.groups})
    numbers = [names.index((group.dimension, group.stream)) for group in step.groups]
    stream_of_group = np.array([*numbers, len(names)])
    on_rail = step.rail[operations] >= 0
    stream = 2 * stream_of_group[step.group[operations]] + on_rail
    return stream, 2 * len(names) + 2
