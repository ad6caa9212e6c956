"""What rides a rail: for each node of a folded step the ends that it uses, and its time.

An *end* is one side of the ports of a class of ranks: where they transmit, or where they receive.
A *lane* is the port of one number at all GPUs; a node runs on one lane or on several. On each of
them its *label* at an end says to whom, or from whom: two nodes with the same label at an end
need the same circuit there. Lanes of odd number turn rings the other way round, so two lanes hold
a ring in both directions, and two more another ring.

A communication that takes several rounds is a chain of nodes, one for each: what was one node in
the folded step is the first of them.

Where ports are bidirectional, ports 2p and 2p + 1 make up lane p: one towards the ranks that
come next in a ring or pipeline, one towards those before. Such a lane holds both directions of a
ring, or both neighbours of a pipeline, and its ends are these two ports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.problems import RailJob
from optmatch.problems.rails.step import ALL_TO_ALL, SEND
from optmatch.problems.rails.times import durations_s
from optmatch.solvers.rails.collectives import (
    Lanes,
    Seats,
    Way,
    choose_way,
    list_seats,
    tell_apart,
)
from optmatch.solvers.rails.fold import Folded, fold, partners

Spot = tuple[int, int]
"""Whom to face: the place of an operation in the program of a class, and the round of it."""


class Use(NamedTuple):
    """An end, and whom it faces there on each lane."""

    end: int
    label: tuple[int, ...]
    spot: Spot


class Talk(NamedTuple):
    """One communication over the rails, or one round of it."""

    node: int
    """That of its first round."""
    turn: int
    """Which round it is."""
    rounds: int
    """How many there are; 0 of what needs no change of circuits."""
    uses: tuple[Use, ...]
    bytes_sent: float
    """What a member sends, over all its lanes."""
    latency_s: float
    kind: int
    ahead: bool
    """Of a message: whether it goes towards ranks that come later in its group."""

    def seconds(self, lanes: int, lane_bytes_per_s: float) -> float:
        """Return how long it lasts on so many lanes."""
        return self.bytes_sent / (lanes * lane_bytes_per_s) + self.latency_s


class Talks(NamedTuple):
    """A folded step and its communication over rails."""

    job: RailJob
    folded: Folded
    talks: dict[int, Talk]
    """By node; rounds after the first are nodes beyond those of the folded step."""
    duration_s: tuple[float, ...]
    """``duration_s[node]`` of what is no communication over rails."""
    order: tuple[NDArray[np.int64], ...]
    """``order[class]``: the nodes on a rail in program order."""
    last: NDArray[np.int64]
    """``last[node]`` of the folded step: the node of its last round."""
    lanes: Lanes
    partners: tuple[NDArray[np.int64], NDArray[np.int64]]
    """To whom each operation sends, and from whom it receives."""
    seats: Seats
    ways: dict[int, Way]
    """How each communication is done, by its first node."""
    bridges: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...] = ()
    """Circuits for forwarding that nothing else needs: to whom each rank sends, and of whom it
    receives; spots count them from -1 down."""

    @property
    def n_lanes(self) -> int:
        """How many lanes there are."""
        return self.lanes.number

    @property
    def duplex(self) -> bool:
        """Whether lanes are pairs of bidirectional ports."""
        return self.lanes.duplex

    @property
    def in_rounds(self) -> bool:
        """Whether something changes circuits while it is under way."""
        return any(talk.rounds for talk in self.talks.values())

    @property
    def has_scatters(self) -> bool:
        """Whether there is an all-to-all that could take several matchings."""
        ways = [self.ways[talk.node] for talk in self.talks.values() if talk.kind == ALL_TO_ALL]
        return any(way.facing.shape[-1] > 2 for way in ways)

    def pairs(self) -> list[tuple[int, int]]:
        """List what comes before what, as pairs of nodes."""
        folded = self.folded
        found = zip(self.last[folded.before].tolist(), folded.after.tolist(), strict=True)
        return [*found, *self._chains()]

    def _chains(self) -> list[tuple[int, int]]:
        n = len(self.last)
        return [
            (node - 1 if talk.turn > 1 else talk.node, node)
            for node, talk in self.talks.items()
            if node >= n
        ]

    def key(self, node: int, *by: Sequence[float]) -> tuple[float, ...]:
        """Return what to sort nodes by: columns of their communication, then their round."""
        talk = self.talks[node]
        return (*(column[talk.node] for column in by), talk.turn)

    def rails(self) -> list[int]:
        """Return the rail that each node rides, -1 if none; of classes, that of one rank."""
        rail = self.job.step().rail
        found = [-1] * len(self.duration_s)
        for cls, nodes in enumerate(self.order):
            begin = int(self.job.step().rank_start[self.folded.first[cls]])
            for node in nodes.tolist():
                place = next(u.spot[0] for u in self.talks[node].uses if u.end // 2 == cls)
                found[node] = int(rail[begin + place])
        return found

    def lasting(self, lanes: Mapping[int, int]) -> list[float]:
        """Return how long each node lasts, with the lanes of what communicates as bits."""
        durations = list(self.duration_s)
        for node, used in lanes.items():
            durations[node] = self.seconds(node, used.bit_count())
        return durations

    def seconds(self, node: int, lanes: int) -> float:
        """Return how long a communication lasts on so many lanes."""
        talk = self.talks[node]
        both = 2 if self.duplex and talk.kind < SEND else 1  # a ring uses both ports of a lane
        return talk.seconds(lanes, both * self.job.network.port_bytes_per_s)


def list_talks(job: RailJob, *, fixed: bool = False) -> Talks:
    """Fold the step of a job, and list what rides its rails.

    Parameters
    ----------
    job
        The job.
    fixed
        Whether all-to-alls have to do with a ring, as circuits are never changed.

    Raises
    ------
    InputError
        If the ports of the fabric are bidirectional and a GPU has an odd number of them.
    """
    duplex = job.fabric is not None and job.fabric.bidirectional
    if duplex and job.network.ports_per_gpu % 2:
        raise InputError(
            f"ports_per_gpu = {job.network.ports_per_gpu}: on a fabric of bidirectional ports a"
            " ring needs two at each GPU",
            where="ports_per_gpu",
        )
    lanes = Lanes(job.network.ports_per_gpu // (1 + duplex), duplex, fixed)
    step, seats = job.step(), list_seats(job.step())
    folded = fold(job, tell_apart(job, lanes, seats))
    given = durations_s(step, job.network, job.collectives)[folded.part].tolist()
    ways: dict[int, Way] = {}
    for nodes in folded.order:
        for node in nodes.tolist():
            if node not in ways:
                op = folded.part[node]
                group, size_bytes = step.groups[step.group[op]], float(step.size_bytes[op])
                ways[node] = choose_way(job, int(step.kind[op]), group, size_bytes, lanes)
    found = Talks(
        job,
        folded,
        {},
        tuple(given),
        (),
        np.arange(len(given)),
        lanes,
        partners(step),
        seats,
        ways,
    )
    return _add_talks(found)


def _add_talks(talks: Talks) -> Talks:
    """List communications and their rounds, and the ends that they use."""
    job, folded, step = talks.job, talks.folded, talks.job.step()
    last, n = talks.last.copy(), len(talks.duration_s)
    nodes_of: dict[int, list[int]] = {}
    for node, way in talks.ways.items():
        nodes_of[node] = [node, *range(n, n + way.n_rounds - 1)]
        n += way.n_rounds - 1
        last[node] = nodes_of[node][-1]
    uses: dict[int, list[Use]] = {node: [] for nodes in nodes_of.values() for node in nodes}
    order = []
    for cls, nodes in enumerate(folded.order):
        start = int(step.rank_start[folded.first[cls]])
        span = np.arange(start, int(step.rank_start[folded.first[cls] + 1]))
        on_rail = span[step.rail[span] >= 0].tolist()
        for op, first in zip(on_rail, nodes.tolist(), strict=True):
            for side in _sides(talks, op):
                labels = _labels(talks, op, side)
                for turn, (node, label) in enumerate(zip(nodes_of[first], labels, strict=True)):
                    uses[node].append(Use(2 * cls + side, tuple(label), (op - start, turn)))
        chained = [node for first in nodes.tolist() for node in nodes_of[first]]
        order.append(np.array(chained, dtype=np.int64))
    made = {}
    for first, way in talks.ways.items():
        op = int(folded.part[first])
        kind, rounds = int(step.kind[op]), way.n_rounds if way.n_rounds > 1 else 0
        for turn, node in enumerate(nodes_of[first]):
            sent = way.bytes_sent[turn], way.latency_s, kind, _is_ahead(job, op)
            made[node] = Talk(first, turn, rounds, tuple(uses[node]), *sent)
    lasts = (*talks.duration_s, *[0.0] * (n - len(talks.duration_s)))
    return talks._replace(talks=made, duration_s=lasts, order=tuple(order), last=last)


def _labels(talks: Talks, op: int, side: int) -> list[list[int]]:
    """List whom an operation faces at one side, by round and lane."""
    step, (to, of) = talks.job.step(), talks.partners
    if step.kind[op] >= SEND:
        return [[int(max(to[op], of[op]))] * talks.n_lanes]
    facing = talks.ways[int(talks.folded.node_of[op])].facing
    (place,) = talks.seats.place(step, np.array([op]))
    labels: list[list[int]] = talks.seats.member[
        step.group[op], facing[:, side, :, place]
    ].tolist()
    return labels


def face(
    talks: Talks,
    operations: NDArray[np.int64],
    side: int,
    lane: int,
    turn: int,
) -> NDArray[np.int64]:
    """Return whom operations face at one side of a lane.

    Parameters
    ----------
    talks
        The folded job.
    operations
        One at each of several ranks, all of one node.
    side, lane
        Where they face.
    turn
        The round.
    """
    to, of = talks.partners
    step = talks.job.step()
    if not len(operations) or step.kind[operations[0]] >= SEND:
        return np.maximum(to[operations], of[operations])
    way = talks.ways[int(talks.folded.node_of[operations[0]])]
    place = talks.seats.place(step, operations)
    found: NDArray[np.int64] = talks.seats.member[
        step.group[operations], way.facing[turn, side, lane, place]
    ]
    return found


def _sides(talks: Talks, op: int) -> tuple[int, ...]:
    """List the sides that an operation uses: 0 to transmit, 1 to receive.

    Of bidirectional ports, 0 is the one towards those that come next, 1 that towards the last.
    """
    step, (to, of) = talks.job.step(), talks.partners
    if step.kind[op] < SEND:
        return 0, 1
    if not talks.duplex:
        return (0,) if to[op] >= 0 else (1,)
    members = step.groups[step.group[op]].ranks
    other = int(max(to[op], of[op]))
    return (0,) if _is_next(members, int(step.rank[op]), other) else (1,)


def _is_next(members: tuple[int, ...], rank: int, other: int) -> bool:
    """Tell whether a rank comes after another in their pipeline, which may be closed."""
    here = members.index(rank)
    return here == 0 if len(members) == 2 else members[(here + 1) % len(members)] == other


def _is_ahead(job: RailJob, op: int) -> bool:
    """Tell whether a message goes towards ranks that come later in its group."""
    step, kind = job.step(), int(job.step().kind[op])
    members = step.groups[step.group[op]].ranks
    if kind < SEND:
        return False
    return _is_next(members, int(step.rank[op]), int(step.peer[op])) == (kind == SEND)
