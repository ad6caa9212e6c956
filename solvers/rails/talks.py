"""What rides a rail: for each node of a folded step the ends that it uses, and its time.

An *end* is one side of the ports of a class of ranks: where they transmit, or where they receive.
A *lane* is the port of one number at all GPUs; a node runs on one lane or on several. On each of
them its *label* at an end says to whom, or from whom: two nodes with the same label at an end
need the same circuit there. Lanes of odd number turn rings the other way round, so two lanes hold
a ring in both directions.

Where ports are bidirectional, ports 2p and 2p + 1 make up lane p: one towards the ranks that
come next in a ring or pipeline, one towards those before. Such a lane holds both directions of a
ring, or both neighbours of a pipeline, and its ends are these two ports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.problems import RailJob
from optmatch.problems.rail_step import ALL_REDUCE, ALL_TO_ALL, BROADCAST, SEND, Step, ring_bytes
from optmatch.problems.rail_time import durations_s
from optmatch.solvers.rails.fold import Folded, fold, partners

Spot = tuple[int, int]
"""Whom to face: the place of an operation in the program of a class, and the round of it."""


class Use(NamedTuple):
    """An end, and whom it faces there on each lane: when it begins, and when it ends."""

    end: int
    label: tuple[int, ...]
    leaves: tuple[int, ...]
    place: int
    """Where in the program of the class the operation stands that faces them."""


class Talk(NamedTuple):
    """One communication over the rails."""

    node: int
    uses: tuple[Use, ...]
    bytes_sent: float
    """What a member sends, over all its lanes."""
    latency_s: float
    kind: int
    dimension: str
    ahead: bool
    """Of a message: whether it goes towards ranks that come later in its group."""
    rounds: int
    """How many matchings an all-to-all takes, one after another on all lanes; 0 of all else."""

    def last_round(self, lane: int, lanes: int, members: int) -> int:
        """Return the last round in which a lane is turned."""
        return max(0, (members - 2 - lane) // lanes) if self.rounds else 0

    def seconds(self, lanes: int, lane_bytes_per_s: float) -> float:
        """Return how long it lasts on so many lanes."""
        return self.bytes_sent / (lanes * lane_bytes_per_s) + self.latency_s


class Talks(NamedTuple):
    """A folded step and its communication over rails."""

    job: RailJob
    folded: Folded
    talks: dict[int, Talk]
    """By node."""
    duration_s: tuple[float, ...]
    """``duration_s[node]`` of what is no communication over rails."""
    n_lanes: int
    duplex: bool
    partners: tuple[NDArray[np.int64], NDArray[np.int64]]
    """To whom each operation sends, and from whom it receives."""
    circles: Circles | None
    """Groups as tables, where an all-to-all takes several matchings."""

    def pairs(self) -> list[tuple[int, int]]:
        """List what comes before what, as pairs of nodes."""
        folded = self.folded
        return list(zip(folded.before.tolist(), folded.after.tolist(), strict=True))

    def members(self, node: int) -> int:
        """Return how many ranks take part in a collective."""
        step = self.job.step()
        return len(step.groups[step.group[self.folded.part[node]]].ranks)

    def rails(self) -> list[int]:
        """Return the rail that each node rides, -1 if none; of classes, that of one rank."""
        rail = self.job.step().rail
        found = [-1] * len(self.duration_s)
        for cls, nodes in enumerate(self.folded.order):
            begin = int(self.job.step().rank_start[self.folded.first[cls]])
            for node in nodes.tolist():
                place = next(u.place for u in self.talks[node].uses if u.end // 2 == cls)
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
        if talk.rounds:
            each = talk.bytes_sent / self.job.port_bytes_per_s
            waits = (talk.rounds - 1) * self.job.delay_s
            return talk.rounds * each + waits + talk.latency_s
        both = 2 if self.duplex and talk.kind < SEND else 1  # a ring uses both ports of a lane
        return talk.seconds(lanes, both * self.job.port_bytes_per_s)


class Circles(NamedTuple):
    """Groups as tables: who comes how many places after whom."""

    member: NDArray[np.int64]
    """``member[group, place]``, padded with -1."""
    size: NDArray[np.int64]
    place: NDArray[np.int64]
    """``place[operation]``: the place of its rank in its group."""

    def after(self, step: Step, operations: NDArray[np.int64], by: int) -> NDArray[np.int64]:
        """Return who comes so many places after the ranks of operations, around the circle."""
        group = step.group[operations]
        found: NDArray[np.int64] = self.member[
            group, (self.place[operations] + by) % self.size[group]
        ]
        return found


def list_circles(step: Step) -> Circles:
    """Put the groups of a step into tables."""
    size = np.array([*(len(group.ranks) for group in step.groups), 1])
    member = np.full((len(size), int(size.max())), -1)
    places: dict[tuple[int, int], int] = {}
    for number, group in enumerate(step.groups):
        member[number, : len(group.ranks)] = group.ranks
        places |= {(number, rank): k for k, rank in enumerate(group.ranks)}
    pairs = zip(step.group.tolist(), step.rank.tolist(), strict=True)
    return Circles(member, size, np.array([places.get(pair, 0) for pair in pairs]))


def list_talks(job: RailJob, *, fixed: bool = False) -> Talks:
    """Fold the step of a job, and list what rides its rails.

    An all-to-all of n ranks is n - 1 matchings, in which everyone sends so many places onward:
    the fewest in which every pair meets. Or it goes around a ring, through the ranks between:
    n / 2 times as much data, but nothing is switched. The faster one is taken.

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
    step, folded = job.step(), fold(job)
    duplex = job.fabric is not None and job.fabric.bidirectional
    if duplex and job.ports_per_gpu % 2:
        raise InputError(
            f"ports_per_gpu = {job.ports_per_gpu}: on a fabric of bidirectional ports a ring needs"
            " two at each GPU",
            where="ports_per_gpu",
        )
    to, of = partners(step)
    rail, lanes = step.rail, job.ports_per_gpu // (1 + duplex)
    uses: dict[int, list[Use]] = {}
    for number, nodes in enumerate(folded.order):
        start = int(step.rank_start[folded.first[number]])
        span = range(start, int(step.rank_start[folded.first[number] + 1]))
        on_rail = [op for op in span if rail[op] >= 0]
        for op, node in zip(on_rail, nodes.tolist(), strict=True):
            ends = (int(to[op]), int(of[op]))
            facing = _facing_duplex(job, op, ends) if duplex else _facing(ends, step.kind[op])
            for side, turned in facing:
                label = tuple(turned[lane % 2] for lane in range(lanes))
                use = Use(2 * number + side, label, label, op - start)
                uses.setdefault(node, []).append(use)
    talks = {node: _talk(job, int(folded.part[node]), node, tuple(uses[node])) for node in uses}
    given = tuple(durations_s(job, step)[folded.part].tolist())
    found = Talks(job, folded, talks, given, lanes, duplex, (to, of), None)
    if any(_is_scattered(job, int(folded.part[node])) for node in talks):
        return _choose_ways(found, fixed=fixed or duplex)
    return found


def _is_scattered(job: RailJob, op: int) -> bool:
    step = job.step()
    return step.kind[op] == ALL_TO_ALL and len(step.groups[step.group[op]].ranks) > 2


def _choose_ways(talks: Talks, *, fixed: bool) -> Talks:
    """Send every all-to-all around its ring, or in several matchings."""
    job, step, lanes = talks.job, talks.job.step(), talks.n_lanes
    circles = list_circles(step)
    chosen: dict[int, Talk] = {}
    for node, talk in talks.talks.items():
        op = int(talks.folded.part[node])
        if not _is_scattered(job, op):
            continue
        n = len(step.groups[step.group[op]].ranks)
        around = talk._replace(bytes_sent=talk.bytes_sent * n / 2)
        split = talk._replace(
            bytes_sent=talk.bytes_sent / (n - 1),
            rounds=-(-(n - 1) // lanes),
        )
        trial = talks._replace(talks={0: around, 1: split})
        if fixed or trial.seconds(0, lanes) <= trial.seconds(1, lanes):
            chosen[node] = around
        else:
            uses = tuple(_shifted(talks, circles, use, split, n) for use in talk.uses)
            chosen[node] = split._replace(uses=uses)
    return talks._replace(talks=talks.talks | chosen, circles=circles)


def _shifted(talks: Talks, circles: Circles, use: Use, talk: Talk, n: int) -> Use:
    """Face the ranks of the first round, and in the end those of the last."""
    first = talks.folded.first[use.end // 2]
    op = np.array([int(talks.job.step().rank_start[first]) + use.place])

    def whom(lane: int, turn: int) -> int:
        by = shift(lane, turn, talks.n_lanes, n)
        return int(circles.after(talks.job.step(), op, by if use.end % 2 == 0 else -by)[0])

    lanes = range(talks.n_lanes)
    return use._replace(
        label=tuple(whom(lane, 0) for lane in lanes),
        leaves=tuple(whom(lane, talk.last_round(lane, talks.n_lanes, n)) for lane in lanes),
    )


def shift(lane: int, turn: int, lanes: int, members: int) -> int:
    """Return by how many places everyone sends on a lane in a round of an all-to-all.

    Examples
    --------
    >>> [[shift(lane, turn, 2, 4) for lane in range(2)] for turn in range(2)]
    [[1, 2], [3, 1]]
    """
    return 1 + (lane + turn * lanes) % (members - 1)


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
        The round, of an all-to-all in several.
    """
    to, of = talks.partners
    step = talks.job.step()
    if len(operations) and step.kind[operations[0]] >= SEND:
        return np.maximum(to[operations], of[operations])
    talk = talks.talks[int(talks.folded.node_of[operations[0]])] if len(operations) else None
    if talk is not None and talk.rounds and talks.circles is not None:
        n = int(talks.circles.size[step.group[operations[0]]])
        by = shift(lane, turn, talks.n_lanes, n)
        return talks.circles.after(step, operations, by if side == 0 else -by)
    turned = side if talks.duplex else (side + lane) % 2
    return (to, of)[turned][operations]


def _facing(ends: tuple[int, int], kind: int) -> list[tuple[int, tuple[int, int]]]:
    """List sides (0 transmit, 1 receive) with labels: rings turn round on odd lanes."""
    to, of = ends
    if kind >= SEND:
        return [(0, (to, to))] if to >= 0 else [(1, (of, of))]
    return [(0, (to, of)), (1, (of, to))]


def _facing_duplex(
    job: RailJob, op: int, ends: tuple[int, int]
) -> list[tuple[int, tuple[int, int]]]:
    """List sides (0 towards the next, 1 towards the last) with labels."""
    step, (to, of) = job.step(), ends
    if step.kind[op] < SEND:
        return [(0, (to, to)), (1, (of, of))]
    members = step.groups[step.group[op]].ranks
    other = max(to, of)
    return [(0 if _is_next(members, int(step.rank[op]), other) else 1, (other, other))]


def _is_next(members: tuple[int, ...], rank: int, other: int) -> bool:
    """Tell whether a rank comes after another in their pipeline, which may be closed."""
    here = members.index(rank)
    return here == 0 if len(members) == 2 else members[(here + 1) % len(members)] == other


def _talk(job: RailJob, op: int, node: int, uses: tuple[Use, ...]) -> Talk:
    step = job.step()
    group, kind = step.groups[step.group[op]], int(step.kind[op])
    members = len(group.ranks)
    messages = 1 if kind >= SEND or kind == BROADCAST else members - 1
    ahead = False
    if kind >= SEND:
        ahead = _is_next(group.ranks, int(step.rank[op]), int(step.peer[op])) == (kind == SEND)
    return Talk(
        node,
        uses,
        float(ring_bytes(kind, step.size_bytes[op], members)),
        messages * (2 if kind == ALL_REDUCE else 1) * job.latency_s,
        kind,
        group.dimension,
        ahead,
        0,
    )
