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
from optmatch.problems.rail_step import ALL_REDUCE, ALL_TO_ALL, BROADCAST, SEND, ring_bytes
from optmatch.problems.rail_time import durations_s
from optmatch.solvers.rail_fold import Folded, fold, partners


class Use(NamedTuple):
    """An end, and whom it faces there on lanes of even and of odd number."""

    end: int
    label: tuple[int, int]
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

    def pairs(self) -> list[tuple[int, int]]:
        """List what comes before what, as pairs of nodes."""
        folded = self.folded
        return list(zip(folded.before.tolist(), folded.after.tolist(), strict=True))

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
        both = 2 if self.duplex and talk.kind < SEND else 1  # a ring uses both ports of a lane
        return talk.seconds(lanes, both * self.job.port_bytes_per_s)


def list_talks(job: RailJob) -> Talks:
    """Fold the step of a job, and list what rides its rails.

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
    rail = step.rail
    uses: dict[int, list[Use]] = {}
    for number, nodes in enumerate(folded.order):
        start = int(step.rank_start[folded.first[number]])
        span = range(start, int(step.rank_start[folded.first[number] + 1]))
        on_rail = [op for op in span if rail[op] >= 0]
        for op, node in zip(on_rail, nodes.tolist(), strict=True):
            ends = (int(to[op]), int(of[op]))
            facing = _facing_duplex(job, op, ends) if duplex else _facing(ends, step.kind[op])
            for side, label in facing:
                uses.setdefault(node, []).append(Use(2 * number + side, label, op - start))
    talks = {node: _talk(job, int(folded.part[node]), node, tuple(uses[node])) for node in uses}
    given = tuple(durations_s(job, step)[folded.part].tolist())
    lanes = job.ports_per_gpu // (1 + duplex)
    return Talks(job, folded, talks, given, lanes, duplex, (to, of))


def face(
    talks: Talks,
    operations: NDArray[np.int64],
    side: int,
    lane: int,
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
    """
    to, of = talks.partners
    step = talks.job.step()
    if len(operations) and step.kind[operations[0]] >= SEND:
        return np.maximum(to[operations], of[operations])
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
    if kind == ALL_TO_ALL and members > 2:
        raise InputError(
            f"{step.describe(op)}: an all-to-all of {members} ranks", where="recorded"
        )
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
    )
