"""How communication is done on a rail: peers and bytes of its members in each round.

Place and lane are words of the package. A *round* is a part of a communication in which circuits
stay; peers change from round to round. A *ring* is a cycle through all members here, of which each
sends to the next one.
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
    """How a communication is done, round by round."""

    facing: Facing
    """Peers by round, see `Facing`; the members of a message are its sender and its receiver."""
    bytes_sent: tuple[float, ...]
    """Bytes that a member sends in each round, over all its lanes; a ring or a message is one
    round."""
    latency_s: float
    """The latency of each round, in seconds."""


def choose_rounds(
    job: RailJob, kind: int, group: Group, size_bytes: float, lanes: Lanes
) -> CommunicationRounds:
    """Choose the peers and the bytes of a communication, round by round.

    `kind` is an index of `OPERATIONS`, as in `Step.kind`: collectives are less than `SEND`, and
    messages from `SEND` on. `size_bytes` is the shard of a rank in an all-gather, else the whole
    buffer or message. If the job names an algorithm of exchanges in pairs, as recursive doubling,
    each exchange is a round, in which each member faces the partner at one distance in the group.
    All-to-alls go by shifts or around a ring, whichever is faster; all other collectives go around
    a ring, each member facing the next one, in one round.
    """
    # The bytes that each member sends in all; a collective is taken to go around a ring. A message
    # has no peers to choose.
    n = len(group.ranks)
    sent_bytes = float(ring_bytes(kind, size_bytes, n))
    if kind >= SEND:
        return CommunicationRounds(
            face_receiver(lanes.number), (sent_bytes,), job.network.latency_on_rails_s
        )

    # Each exchange of an algorithm has the distance of the members of a pair, and the share of the
    # buffer that each of them sends. A ring, the default, has no exchanges.
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
    if kind == ALL_TO_ALL and n > 2:
        return _choose_all_to_all(job, n, sent_bytes, latency_s, lanes)
    return CommunicationRounds(face_ring(n, lanes.number), (sent_bytes,), latency_s)


def _choose_all_to_all(
    job: RailJob, n: int, sent_bytes: float, latency_s: float, lanes: Lanes
) -> CommunicationRounds:
    """Choose the faster one of two ways to do an all-to-all of n members: shifts, or one ring.

    `sent_bytes` is what a member sends to all others together, in n - 1 equal blocks, and
    `latency_s` the latency of these n - 1 messages.

    With shifts, each member has a circuit to the one d places further on, for d from 1 to n - 1,
    another d on each lane and in each round. Data go directly, but circuits change between rounds,
    and ports have to be of one direction. Around a ring circuits stay, but members forward the
    data of others: a block for the member d places further on takes d hops, n / 2 in the mean, and
    so often the bytes pass each port. Among 4 members the hops are 1, 2 and 3, which is 2 in the
    mean.
    """
    around_bytes = sent_bytes * n / 2
    if not lanes.duplex and not lanes.fixed:
        # In each round every lane carries one block. Circuits change before each round but the
        # first.
        shifts = face_shifts(n, lanes.number)
        block_bytes = sent_bytes / (n - 1)
        round_s = block_bytes / job.network.port_bytes_per_s
        split_s = len(shifts) * round_s + (len(shifts) - 1) * job.network.delay_s
        around_s = around_bytes / job.network.rail_bytes_per_s

        # If both take no time, as nothing is sent and changes have no delay, shifts are taken. The
        # latency is split evenly among the rounds.
        if split_s < around_s or split_s == around_s == 0.0:
            sent_in_round = block_bytes * lanes.number
            return CommunicationRounds(
                shifts, (sent_in_round,) * len(shifts), latency_s / len(shifts)
            )
    return CommunicationRounds(face_ring(n, lanes.number), (around_bytes,), latency_s)


def face_receiver(lanes: int) -> Facing:
    """Let the sender of a message (place 0) face its receiver (place 1) on all lanes."""
    facing = np.array([[1, IDLE], [IDLE, 0]])
    return np.broadcast_to(facing[None, :, None], (1, 2, lanes, 2))


def face_ring(n: int, lanes: int) -> Facing:
    """Put a group into a ring on all lanes, in one round: each faces its next and previous place.

    With 3 members and one lane, ``facing[0, 0, 0]`` is 1, 2, 0 and ``facing[0, 1, 0]`` is 2, 0, 1.
    """
    facing = np.empty((1, 2, lanes, n), dtype=np.int64)
    facing[0, 0] = list_partners("ring", n, 1)
    facing[0, 1] = list_partners("ring", n, -1)
    return facing


def face_shifts(n: int, lanes: int) -> Facing:
    """Let every member send 1 to n - 1 places onward, another number on each lane and round.

    The result is ``facing[round, side, lane, place]``, the place of the member that each faces.
    With 6 members and 2 lanes they are 1 and 2 places onward, then 3 and 4, then 5; a lane that is
    left over in the last round stays as it is.
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
