"""Transfers over a rail: for each node of a folded step the ends that it uses, and its time.

Words of this module:

Class
    Ranks that do the same at the same time (`optmatch.solvers.rails.fold`); the first of them
    stands for the others.
Node
    One operation of a class, or one communication of several classes.
End
    One side of the ports of a class: where they transmit, or where they receive. End 2c + s is
    side s of class c; side 0 transmits, side 1 receives.
Lane
    The port of one number at all GPUs; a node runs on one lane or on several. Lanes of odd number
    turn rings the other way round, so two lanes hold a ring in both directions, and two more
    another ring.
Peer
    On each lane a node has a peer at each of its ends: the rank to whom or from whom the first
    rank of the class sends or receives. Two nodes with the same peer at an end need the same
    circuit there.
Spot
    The place of an operation in the program of a class, and its round: from these the peers of
    all ranks of the class are looked up.
Round
    A communication that takes several rounds is a chain of nodes, one for each: what was one node
    in the folded step is the first of them.

Where ports are bidirectional, ports 2p and 2p + 1 make up lane p: one towards the ranks that
come next in a ring or pipeline, one towards those before. Such a lane holds both directions of a
ring, or both neighbours of a pipeline, and its ends are these two ports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import ranks_of_rails
from optmatch.problems.rails.training.step import SEND, Step
from optmatch.problems.rails.training.times import durations_s, pick_ranks
from optmatch.solvers.rails.collectives import (
    CommunicationRounds,
    Lanes,
    choose_rounds,
    tell_apart,
)
from optmatch.solvers.rails.fold import Folded, Places, fold, list_places
from optmatch.solvers.rails.paths import Ints, longest_paths

Spot = tuple[int, int]
"""A spot tells a peer: the place of an operation in the program of a class, and its round."""


class Endpoint(NamedTuple):
    """An end, and the peer that it faces on each lane."""

    end: int
    """``2 * class + side``; side 0 transmits, side 1 receives."""
    peers: tuple[int, ...]
    """By lane the rank that the first rank of the class faces."""
    spot: Spot
    """An operation and a round that have these peers: several nodes may share one spot."""


class Transfer(NamedTuple):
    """One communication over the rails, or one round of it."""

    node: int
    """The node of the first round."""
    endpoints: tuple[Endpoint, ...]
    """The ends that it uses: two for each class of a collective, one at each end of a message."""
    bytes_sent: float
    """Bytes that a member sends, over all its lanes."""
    latency_s: float
    """Latency in seconds, of all messages of the round."""
    kind: int
    """The kind of its operations, as in `Step.kind`; from `SEND` on it is a message."""
    ahead: bool
    """Whether a message goes towards ranks that come later in its group."""


class Uses(NamedTuple):
    """The lanes of ends that each node uses: columns of a table, each of shape (rows,)."""

    node: Ints
    """``node[row]``: who uses the end."""
    end: Ints
    """``end[row]``: ``2 * class + side``."""
    lane: Ints
    """``lane[row]``, from 0."""
    peer: Ints
    """``peer[row]``: the rank that the first rank of the class has to face."""
    place: Ints
    """With `turn` the spot: the place of an operation in the program of the class."""
    turn: Ints
    """The round of the operation, from 0."""


class Transfers(NamedTuple):
    """A folded step and its communication over rails."""

    job: RailJob
    """The job whose step it is."""
    folded: Folded
    """Its classes and nodes."""
    by_node: dict[int, Transfer]
    """By node that is a communication over rails; rounds after the first are nodes beyond those of
    the folded step."""
    duration_s: NDArray[np.float64]
    """``duration_s[node]`` in seconds, of nodes that are no communication over rails."""
    order: tuple[NDArray[np.int64], ...]
    """``order[class]``: the nodes on a rail in program order."""
    first: Ints
    """``first[node]``: the node of the first round."""
    last: Ints
    """``last[node]`` of the folded step: the node of its last round."""
    pairs: Ints
    """Pairs of nodes, shape (pairs, 2): the second one waits for the first."""
    place: Ints
    """``place[node]`` in an order in which each node comes after all that it waits for."""
    lanes: Lanes
    """How many lanes there are, and whether their ports are bidirectional."""
    places: Places
    """The places of ranks in their groups."""
    rounds_of: dict[int, CommunicationRounds]
    """How each communication is done, by its first node."""

    def uses(self) -> Uses:
        """List the lanes of ends that each node uses: a row for each node, end and lane."""
        rows = [
            (node, point.end, lane, peer, *point.spot)
            for node, transfer in self.by_node.items()
            for point in transfer.endpoints
            for lane, peer in enumerate(point.peers)
        ]
        return Uses(*np.array(rows, np.int64).reshape(-1, len(Uses._fields)).T)

    def rank(self, start: Sequence[float] | NDArray[np.float64]) -> Ints:
        """Order the nodes by times of a start.

        Parameters
        ----------
        start
            ``start[node]`` in seconds, by node of the folded step; rounds after the first go with
            the first one.

        Returns
        -------
        int array, shape (nodes,)
            By node its place; equal times keep the order of `place`.
        """
        found = np.empty(len(self.first), np.int64)
        by = self.place, self.place[self.first], np.asarray(start)[self.first]
        found[np.lexsort(by)] = np.arange(len(found))
        return found

    def rails(self) -> list[int]:
        """Return the rail that each node rides.

        Returns
        -------
        list of int
            By node a rail, or -1 if it rides none; of rails with the same classes, the first one.
        """
        known: dict[bytes, int] = {}
        first = {
            rail: known.setdefault(classes, rail)
            for rail, classes in _classes_of_rails(self.folded).items()
        }
        found = [-1] * len(self.duration_s)
        for node, transfer in self.by_node.items():
            found[node] = first[int(self.folded.step.rail[self.folded.part[transfer.node]])]
        return found

    def lasting(self, lanes: Mapping[int, int]) -> NDArray[np.float64]:
        """Return how long each node lasts with the lanes that it has.

        Parameters
        ----------
        lanes
            By communication its lanes, as bits: bit k for lane k.

        Returns
        -------
        float array, shape (nodes,)
            In seconds.
        """
        durations, rate = self.duration_s.copy(), self.job.network.port_bytes_per_s
        for node, used in lanes.items():
            each = self.by_node[node]
            ring = each.kind < SEND  # which uses both ports of a lane
            ports = 2 if self.lanes.duplex and ring else 1
            sent_s = each.bytes_sent / (used.bit_count() * (ports * rate))
            durations[node] = sent_s + each.latency_s
        return durations


def fold_transfers(job: RailJob) -> Transfers:
    """Fold the step of a job, and list the nodes that ride its rails.

    To fold is to write down once what several ranks do alike: they are one class, and its first
    rank stands for the others. A node is one operation of a class, or one communication of several
    classes. Ranks are of one class if they also need the same changes of circuits (`tell_apart`).

    Parameters
    ----------
    job
        The job.

    Returns
    -------
    Transfers
        The nodes of the folded step: durations in seconds, who waits for whom, and for those on
        rails the bytes, the ends (side of a class that transmits or receives) and the peers there
        (the ranks to or from which the first rank of the class sends or receives).

    Raises
    ------
    InputError
        On bidirectional ports, if a GPU has an odd number of them; and if ranks wait for each
        other.
    """
    job.lower_bound()
    duplex = job.fabric is not None and job.fabric.bidirectional
    if duplex and job.network.ports_per_gpu % 2:
        raise InputError(
            f"ports_per_gpu = {job.network.ports_per_gpu}: on a fabric of bidirectional ports a"
            " ring needs two at each GPU",
            where="ports_per_gpu",
        )

    # On bidirectional ports two ports are one lane.
    lanes = Lanes(job.network.ports_per_gpu // (1 + duplex), duplex, fixed=False)
    places = list_places(job.step())
    apart = tell_apart(job, lanes, places)
    if duplex:  # two that exchange messages do the same, but each faces the other at another port
        sides = _list_message_sides(job.step())
        apart = [a + b for a, b in zip(apart or [b""] * len(sides), sides, strict=True)]
    folded = fold(job, apart)

    # A change of an all-stop switch delays all of its rail: ranks of one class need like rails.
    if job.network.switching == "all-stop":
        folded = _fold_by_rail(job, folded, apart)
    return _list_transfers(job, folded, lanes, places)


def _fold_by_rail(job: RailJob, folded: Folded, apart: Sequence[bytes]) -> Folded:
    """Split classes until ranks of one share their rails with the same others.

    Such ranks are dark together: where a switch stops, all ports on it stop.

    Parameters
    ----------
    job
        The job.
    folded
        Its step, folded without regard to rails.
    apart
        By rank, in what else the ranks of a class agree; empty if in nothing.

    Returns
    -------
    Folded
        The step with classes as few as can be.
    """
    while True:
        patterns = [b""] * len(folded.class_of)
        on_rail = ranks_of_rails(job.step())
        for rail, classes in _classes_of_rails(folded).items():
            for rank in on_rail[rail].tolist():
                patterns[rank] += classes

        # Done when class and rails together tell no more ranks apart than classes alone.
        if len({*zip(folded.class_of.tolist(), patterns, strict=True)}) == len(folded.first):
            return folded
        folded = fold(
            job, [a + b for a, b in zip(apart or [b""] * len(patterns), patterns, strict=True)]
        )


def _classes_of_rails(folded: Folded) -> dict[int, bytes]:
    """Describe by rail the classes of its ranks, each as often as it is there."""
    return {
        rail: np.sort(folded.class_of[ranks]).tobytes()
        for rail, ranks in ranks_of_rails(folded.step).items()
    }


def _list_message_sides(step: Step) -> list[bytes]:
    """Describe for each rank whether its partners of messages come next in their pipelines.

    Parameters
    ----------
    step
        The step.

    Returns
    -------
    list of bytes
        By rank a byte for each message in program order: 1 if the partner comes next, else 0.
    """
    found = []
    for rank, start in enumerate(step.rank_start[:-1].tolist()):
        own = np.arange(start, int(step.rank_start[rank + 1]))
        messages = own[(step.kind[own] >= SEND) & (step.rail[own] >= 0)]
        pairs = zip(step.group[messages].tolist(), step.peer[messages].tolist(), strict=True)
        found.append(bytes(_is_next(step.groups[one].ranks, rank, to) for one, to in pairs))
    return found


def hold_circuits(transfers: Transfers) -> Transfers:
    """Choose anew how all is done if no circuit ever changes: all-to-alls go around a ring.

    Parameters
    ----------
    transfers
        The communications of the folded step.
    """
    lanes = transfers.lanes._replace(fixed=True)
    return _list_transfers(transfers.job, transfers.folded, lanes, transfers.places)


def _list_transfers(job: RailJob, folded: Folded, lanes: Lanes, places: Places) -> Transfers:
    """Choose for each communication over a rail in which rounds it is done, and list its ends.

    A class is ranks that do the same; the first of them stands for the others. A node is one
    operation of a class, or one communication of several classes. A lane is the port of one number
    at all GPUs. A collective may take several rounds, in each of which members send to others.

    Parameters
    ----------
    job
        The job: its network, and the algorithm of each dimension.
    folded
        The classes and nodes of its step.
    lanes
        How many lanes each GPU has, whether their ports are bidirectional, and whether circuits
        are never changed.
    places
        The place of each rank among the members of each of its groups.

    Returns
    -------
    Transfers
        The nodes of the step and of all further rounds, with durations in seconds, who waits for
        whom, and for those on rails bytes, ends (side of a class that transmits or receives) and
        peers (the ranks at the other ends).
    """
    step = folded.step
    few, own = pick_ranks(step, folded.first)
    lasts = durations_s(few, job.network, job.collectives)
    given = lasts[np.searchsorted(own, folded.part)]

    # Micro-batches repeat their operations: each kind, group and size is decided once.
    rounds_of: dict[int, CommunicationRounds] = {}
    known: dict[
        tuple[int, int, float], CommunicationRounds
    ] = {}  # micro-batches repeat their sends
    for node in dict.fromkeys(node for nodes in folded.order for node in nodes.tolist()):
        op = folded.part[node]
        kind, number, size_bytes = int(step.kind[op]), int(step.group[op]), step.size_bytes[op]
        if (kind, number, size_bytes) not in known:
            chosen = choose_rounds(job, kind, step.groups[number], float(size_bytes), lanes)
            known[kind, number, size_bytes] = chosen
        rounds_of[node] = known[kind, number, size_bytes]

    # At first each communication is one node; further rounds are added to this table.
    own = np.arange(len(given))
    pairs = np.stack([folded.before, folded.after], axis=1)
    found = Transfers(job, folded, {}, given, (), own, own, pairs, own, lanes, places, rounds_of)
    return _add_transfers(found)


def _add_transfers(transfers: Transfers) -> Transfers:
    """Add the communications over rails, their rounds, and the ends that they use.

    A class is ranks that do the same; the first of them stands for the others. A node is one
    operation of a class, or one communication of several classes. End ``2 * class + side`` is
    where the ports of a class transmit (side 0) or receive (side 1). At each of its ends a node
    has a peer on each lane (the port of one number at all GPUs): the rank to or from which the
    first rank of the class sends or receives. A spot is a pair from which these peers are looked
    up: the place of an operation in the program of the class, and its round.

    Parameters
    ----------
    transfers
        A table with the nodes of the folded step and `rounds_of` (by communication its peers,
        bytes and latency by round), without communications.

    Returns
    -------
    Transfers
        The same with these fields: `by_node`, the communication of each node on a rail, with its
        ends, bytes and latency; `duration_s`, with 0 for further rounds; `order`, by class its
        nodes on rails in program order; `first` and `last`, the first node of the communication
        that a node is a round of, and by node of the folded step its last round; `pairs`, who
        waits for whom; and `place`, an order in which each comes after what it waits for. There
        is a node for each further round, behind those of the folded step. A collective that is
        node 4 of 10 nodes and takes three rounds becomes the chain 4, 10, 11.
    """
    folded, step = transfers.folded, transfers.folded.step
    last, n = transfers.last.copy(), len(transfers.duration_s)

    # ``nodes_of[node]``: the nodes of all rounds. Nodes that waited for the first one wait for
    # the last round.
    nodes_of: dict[int, list[int]] = {}
    for node, each in transfers.rounds_of.items():
        nodes_of[node] = [node, *range(n, n + len(each.bytes_sent) - 1)]
        n += len(each.bytes_sent) - 1
        last[node] = nodes_of[node][-1]

    # Ends of each class: every operation on a rail adds its sides to the nodes of its rounds.
    endpoints: dict[int, list[Endpoint]] = {
        node: [] for nodes in nodes_of.values() for node in nodes
    }
    order, spots = [], dict[tuple[int, tuple[int, ...]], Spot]()
    for cls, nodes in enumerate(folded.order):
        known: dict[tuple[int, int, int, int], list[tuple[int, ...]]] = {}
        start = int(step.rank_start[folded.first[cls]])
        span = np.arange(start, int(step.rank_start[folded.first[cls] + 1]))
        on_rail = span[step.rail[span] >= 0].tolist()
        for op, first in zip(on_rail, nodes.tolist(), strict=True):
            for side in list_sides(transfers, op):
                group, other = int(step.group[op]), int(step.peer[op])

                # Operations that are done alike, in one group or with one partner, have the same
                # peers.
                key = id(transfers.rounds_of[first]), group, other, side
                if key not in known:
                    shape = len(nodes_of[first]), transfers.lanes.number
                    faced = face(transfers, np.array([op]), side)[..., 0]
                    known[key] = [tuple(row) for row in np.broadcast_to(faced, shape).tolist()]
                for turn, (node, peers) in enumerate(
                    zip(nodes_of[first], known[key], strict=True)
                ):
                    # Equal peers at an end share a spot, so that their circuits are looked up
                    # once.
                    spot = spots.setdefault((2 * cls + side, peers), (op - start, turn))
                    endpoints[node].append(Endpoint(2 * cls + side, peers, spot))
        chained = [node for first in nodes.tolist() for node in nodes_of[first]]
        order.append(np.array(chained, dtype=np.int64))

    # Bytes and latency of each round.
    made = {}
    for first, each in transfers.rounds_of.items():
        op = int(folded.part[first])
        more = each.latency_s, int(step.kind[op]), _is_ahead(step, op)
        for node, sent in zip(nodes_of[first], each.bytes_sent, strict=True):
            made[node] = Transfer(first, tuple(endpoints[node]), sent, *more)

    # Rounds follow each other, and what comes after a node comes after its last round.
    lasts = np.concatenate([transfers.duration_s, np.zeros(n - len(transfers.duration_s))])
    first_of = np.arange(n)
    first_of[list(made)] = [transfer.node for transfer in made.values()]
    chains = [pair for nodes in nodes_of.values() for pair in pairwise(nodes)]
    pairs = np.stack([last[folded.before], folded.after], axis=1)
    pairs = np.concatenate([pairs, np.array(chains, np.int64).reshape(-1, 2)])
    waits = longest_paths(np.zeros(n), pairs)
    assert waits is not None  # else the bound of the job has named the ranks that wait
    return transfers._replace(
        by_node=made,
        duration_s=lasts,
        order=tuple(order),
        first=first_of,
        last=last,
        pairs=pairs,
        place=waits.order,
    )


def face(
    transfers: Transfers,
    operations: NDArray[np.int64],
    side: int,
    lane: int | slice = slice(None),
    turn: int | slice = slice(None),
) -> NDArray[np.int64]:
    """Look up whom the operations of one node face at one side.

    Parameters
    ----------
    transfers
        The communications of the folded step; `rounds_of` is used.
    operations
        Operations of one node, of any ranks; shape (operations,).
    side
        0 to transmit, 1 to receive; a message has its partner at either.
    lane, turn
        A lane and a round; all of them unless one is given.

    Returns
    -------
    int array
        Ranks; shape (operations,) for a message, else (rounds, lanes, operations) without the
        axes for which a number is given.
    """
    step = transfers.folded.step
    if not len(operations) or step.kind[operations[0]] >= SEND:
        return step.peer[operations].astype(np.int64)
    rounds = transfers.rounds_of[int(transfers.folded.node_of(operations[:1])[0])]
    place = transfers.places.place(step, operations)
    found: NDArray[np.int64] = transfers.places.member[
        step.group[operations], rounds.facing[turn, side, lane][..., place]
    ]
    return found


def list_sides(transfers: Transfers, op: int) -> tuple[int, ...]:
    """List at which sides an operation has peers: 0 to transmit, 1 to receive.

    On bidirectional ports, 0 is the one towards those that come next, 1 that towards those before.

    Parameters
    ----------
    transfers
        The communications of the folded step.
    op
        An operation on a rail.

    Returns
    -------
    tuple of int
        (0, 1) for a collective, one side for a message.
    """
    step = transfers.folded.step
    if step.kind[op] < SEND:
        return 0, 1
    if not transfers.lanes.duplex:
        return (0,) if step.kind[op] == SEND else (1,)
    members = step.groups[step.group[op]].ranks
    return (0,) if _is_next(members, int(step.rank[op]), int(step.peer[op])) else (1,)


def _is_next(members: tuple[int, ...], rank: int, other: int) -> bool:
    """Tell whether a rank is followed by another in their pipeline, which may be closed.

    Parameters
    ----------
    members
        The ranks of the pipeline in its order. If there are two, the second follows the first.
    rank, other
        Two of them.
    """
    here = members.index(rank)
    return here == 0 if len(members) == 2 else members[(here + 1) % len(members)] == other


def _is_ahead(step: Step, op: int) -> bool:
    """Tell whether a message goes towards ranks that come later in its group.

    Parameters
    ----------
    step
        The step.
    op
        An operation; other kinds than messages go to nobody.
    """
    kind, members = int(step.kind[op]), step.groups[step.group[op]].ranks
    if kind < SEND:
        return False
    return _is_next(members, int(step.rank[op]), int(step.peer[op])) == (kind == SEND)
