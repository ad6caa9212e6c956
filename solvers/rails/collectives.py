"""How communication is done on a rail: peers and bytes of its members in each round.

Words of this module:

Place
    The position of a rank in its group.
Lane
    The ports of one number at all GPUs; a communication uses one lane or several.
Round
    A part of a communication in which circuits stay; peers change from round to round.
Ring
    A cycle through all members; each sends to the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optmatch.model import IDLE
from optmatch.problems import RailJob
from optmatch.problems.collectives.steps import Algorithm, list_partners
from optmatch.problems.rails.training.step import (
    ALL_TO_ALL,
    SEND,
    Group,
    count_messages,
    ring_bytes,
)
from optmatch.problems.rails.training.times import list_rounds
from optmatch.solvers.rails.paths import Ints

Facing = Ints
"""``facing[round, side, lane, place]``: the place in its group of the member that the member at
`place` faces, where it transmits (side 0) and where it receives (side 1). Around a ring of 3
members on one lane this is ``[[[[1, 2, 0]], [[2, 0, 1]]]]``. `IDLE` for an end that is not
used."""


class Lanes(NamedTuple):
    """The lanes of a rail."""

    number: int
    """How many there are."""
    duplex: bool
    """Whether each is two bidirectional ports."""
    fixed: bool
    """Whether circuits are never changed."""


class CommunicationRounds(NamedTuple):
    """How a communication is done."""

    facing: Facing
    """Peers by round, see `Facing`; the members of a message are its sender and its receiver."""
    bytes_sent: tuple[float, ...]
    """Bytes that a member sends in each round, over all its lanes; a ring or message is one."""
    latency_s: float
    """The latency of each round, in seconds."""


def choose_rounds(
    job: RailJob, kind: int, group: Group, size_bytes: float, lanes: Lanes
) -> CommunicationRounds:
    """Choose the peers and the bytes of a communication, round by round.

    `kind` is an index of `OPERATIONS`, as in `Step.kind`: collectives are less than `SEND`, and
    messages from `SEND` on. `size_bytes` is the shard of a rank in an all-gather, else the whole
    buffer. An algorithm that the job names has a round for each exchange in pairs; other
    collectives go around rings, in one round.

    An all-to-all of n members is done in the faster one of two ways. Around a ring, members
    forward the data of others, so that n / 2 times the bytes pass each port. With shifts, each
    member has a circuit to the one d places further on, for d from 1 to n - 1, another d on each
    lane and in each round: data go directly, but circuits have to change between rounds, and ports
    have to be of one direction.
    """
    # `total` is the bytes that each member sends if data go around a ring; of an all-to-all, those
    # of all its blocks for others. A message, a kind from `SEND` on, has no peers to choose.
    n = len(group.ranks)
    total = float(ring_bytes(kind, size_bytes, n))
    if kind >= SEND:
        return CommunicationRounds(
            face_receiver(lanes.number), (total,), job.network.latency_on_rails_s
        )

    # Algorithms that the job names, as recursive doubling, exchange data in pairs, round by round.
    # Each exchange has the distance of the members of a pair, and its share of the buffer. A ring,
    # the default, has none.
    exchanges = list_rounds(job.collectives.get(group.dimension, "ring"), kind, n)
    if exchanges:
        distances = tuple(exchange.distance for exchange in exchanges)
        facing = face_pairs(job.collectives[group.dimension], n, lanes.number, distances)
        return CommunicationRounds(
            facing,
            tuple(exchange.share * size_bytes for exchange in exchanges),
            job.network.latency_on_rails_s,
        )

    # The latency of a ring is that of its messages, one after another.
    latency_s = float(count_messages(kind, n)) * job.network.latency_on_rails_s
    around = face_ring(n, lanes.number)
    if kind != ALL_TO_ALL or n <= 2:
        return CommunicationRounds(around, (total,), latency_s)

    # All-to-all by shifts: in each round a block for one other member goes over each lane, and
    # circuits change before each round but the first. Around a ring a block for the member d
    # places further on takes d hops, n / 2 in the mean: so often the bytes pass each port. The
    # latency of all n - 1 messages is split evenly among the rounds.
    if not lanes.duplex and not lanes.fixed:
        shifts = face_shifts(n, lanes.number)
        part_s = total / (n - 1) / job.network.port_bytes_per_s
        split_s = len(shifts) * part_s + (len(shifts) - 1) * job.network.delay_s
        around_s = total * n / 2 / job.network.rail_bytes_per_s
        if split_s < around_s or split_s == around_s == 0.0:
            sent = total / (n - 1) * lanes.number
            return CommunicationRounds(shifts, (sent,) * len(shifts), latency_s / len(shifts))
    return CommunicationRounds(around, (total * n / 2,), latency_s)


def face_receiver(lanes: int) -> Facing:
    """Let the sender of a message (place 0) face its receiver (place 1) on all lanes."""
    facing = np.array([[1, IDLE], [IDLE, 0]])
    return np.broadcast_to(facing[None, :, None], (1, 2, lanes, 2))


def face_ring(n: int, lanes: int) -> Facing:
    """Put a group into a ring on all lanes, in one round: the next and the previous place of each.

    With 3 members and one lane, ``facing[0, 0, 0]`` is 1, 2, 0 and ``facing[0, 1, 0]`` is 2, 0, 1.
    """
    facing = np.empty((1, 2, lanes, n), dtype=np.int64)
    facing[0, 0] = list_partners("ring", n, 1)
    facing[0, 1] = list_partners("ring", n, -1)
    return facing


def face_shifts(n: int, lanes: int) -> Facing:
    """Let every member send 1 to n - 1 places onward, another number on each lane and round.

    With 6 members and 2 lanes these are 1 and 2, then 3 and 4, then 5; a lane that is left over in
    the last round stays as it is.
    """
    n_rounds = -(-(n - 1) // lanes)  # rounded up
    facing = np.empty((n_rounds, 2, lanes, n), dtype=np.int64)
    for round_number in range(n_rounds):
        for lane in range(lanes):
            # Shifts are numbered from 0 on. If all have been done the lane keeps its circuits; in
            # the first round it begins with shift 1 again.
            number = round_number * lanes + lane
            if round_number and number >= n - 1:
                facing[round_number, :, lane] = facing[round_number - 1, :, lane]
                continue
            shift = 1 + number % (n - 1)
            facing[round_number, 0, lane] = list_partners("ring", n, shift)
            facing[round_number, 1, lane] = list_partners("ring", n, -shift)
    return facing


def face_pairs(algorithm: Algorithm, n: int, lanes: int, distances: Sequence[int]) -> Facing:
    """Pair the n members of a group round by round, as an algorithm does.

    ``distances[round]`` is how many places apart the members of a pair are. The result
    ``facing[round, side, lane, place]`` is the place of the partner, the same on both sides (it
    transmits to its partner and receives from it) and on all lanes; it cannot be written to. A
    member without a partner in a round faces that of the next round in which it has one, else that
    of the round before: its circuits need not change for nothing.
    """
    # ``pairs[round, place]``: the place of the partner, `IDLE` without one.
    pairs = np.stack([list_partners(algorithm, n, distance) for distance in distances])

    # A member without a partner (`IDLE`) gets that of the next round that has one, which goes
    # backwards; then those that have no partner any more keep the last one, which goes forwards.
    # The partners -, 5, -, 7, - become 5, 5, 7, 7, 7.
    for turn in range(len(pairs) - 1, 0, -1):
        pairs[turn - 1] = np.where(pairs[turn - 1] == IDLE, pairs[turn], pairs[turn - 1])
    for turn in range(1, len(pairs)):
        pairs[turn] = np.where(pairs[turn] == IDLE, pairs[turn - 1], pairs[turn])
    return np.broadcast_to(pairs[:, None, None], (len(pairs), 2, lanes, n))
