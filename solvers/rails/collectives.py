"""How communication is done on a rail: peers and bytes of its members in each round.

A *place* is the position of a member in its group, from 0, and a *lane* the port of one number at
every GPU, or two of them where ports are bidirectional. A *round* is a part of a communication in
which circuits stay; peers change from round to round. A *ring* is a cycle through all members
here, of which each sends to the next one.
"""

from __future__ import annotations

from itertools import pairwise
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
    hop_s = job.network.latency_on_rails_s
    sent_bytes = float(ring_bytes(kind, size_bytes, n))
    if kind >= SEND:
        facing = np.array([[1, IDLE], [IDLE, 0]])
        facing = np.broadcast_to(facing[None, :, None], (1, 2, lanes.number, 2))
        return CommunicationRounds(facing, (sent_bytes,), hop_s)

    # Each exchange of an algorithm has the distance of the members of a pair, and the share of the
    # buffer that each of them sends. A ring, the default, has no exchanges.
    algorithm = job.collectives.get(group.dimension, "ring")
    exchanges = list_rounds(algorithm, kind, n)
    if exchanges:
        distances = np.array([[exchange.distance] * lanes.number for exchange in exchanges])
        sent_in_rounds = tuple(exchange.share * size_bytes for exchange in exchanges)
        facing = _keep_partners(face_at_distances(algorithm, n, distances))
        return CommunicationRounds(facing, sent_in_rounds, hop_s)

    # The latency of a ring is that of its messages, one after another. In an all-to-all of n
    # members a block for the member d places further on takes d hops, n / 2 in the mean, and so
    # often the bytes pass each port: among 4 members the hops are 1, 2 and 3, which is 2 in the
    # mean.
    latency_s = float(count_messages(kind, n)) * hop_s
    ring = face_at_distances("ring", n, np.ones((1, lanes.number), np.int64))
    if kind != ALL_TO_ALL or n <= 2:
        return CommunicationRounds(ring, (sent_bytes,), latency_s)
    around_bytes = sent_bytes * n / 2
    if not lanes.duplex and not lanes.fixed:
        # In each round of shifts every lane carries one block, straight to its member. Circuits
        # change before each round but the first.
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
    return CommunicationRounds(ring, (around_bytes,), latency_s)


def face_at_distances(algorithm: Algorithm, n: int, distances: Ints) -> Facing:
    """Let each of n members face its partners of an algorithm, ``distances[round, lane]`` away.

    Around a ring data are sent that many places onward. In exchanges of pairs both sides face the
    partner, `IDLE` where there is none. With 3 members on one lane and the distance 1 around a
    ring, ``facing[0, 0, 0]`` is 1, 2, 0 and ``facing[0, 1, 0]`` is 2, 0, 1.
    """
    facing = np.empty((len(distances), 2, distances.shape[1], n), dtype=np.int64)
    for (number, lane), distance in np.ndenumerate(distances):
        facing[number, 0, lane] = list_partners(algorithm, n, int(distance))
        back = -distance if algorithm == "ring" else distance
        facing[number, 1, lane] = list_partners(algorithm, n, int(back))
    return facing


def face_shifts(n: int, lanes: int) -> Facing:
    """Let every member send 1 to n - 1 places onward, another number on each lane and round.

    With 6 members and 2 lanes they are 1 and 2 places onward, then 3 and 4, then 5; a lane that is
    left over in the last round keeps its circuits. In a first round that has more lanes than there
    are other members, the further ones begin with 1 place again.
    """
    n_rounds = -(-(n - 1) // lanes)  # rounded up
    distance = 1 + np.arange(n_rounds * lanes).reshape(n_rounds, lanes)
    if n_rounds == 1:
        distance = 1 + (distance - 1) % (n - 1)
    distance[distance >= n] -= lanes
    return face_at_distances("ring", n, distance)


def _keep_partners(facing: Facing) -> Facing:
    """Let members without a partner in a round face that of a round near, and return `facing`.

    It is that of the next round in which a member has one, else that of the round before: its
    circuits need not change for nothing. The partners -, 5, -, 7, - become 5, 5, 7, 7, 7.
    """
    # Backwards first, then those that have no partner any more keep the last one.
    rounds = range(len(facing))
    for number, other in [*pairwise(reversed(rounds)), *pairwise(rounds)]:
        facing[other] = np.where(facing[other] == IDLE, facing[number], facing[other])
    return facing
