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
        """List the lanes of ends that each node uses: a row for each node, end and lane.

        A node is a communication over a rail. An end is one side of the ports of a class (ranks
        that do the same), where they transmit or receive; a lane is the port of one number at all
        GPUs. Listed are all lanes that a node could use.

        Returns
        -------
        Uses
            Columns of shape (rows,): node, end (``2 * class + side``), lane, peer (the rank that
            the first rank of the class has to face), and the operation and round from which the
            peers of the other ranks are looked up.
        """
        rows = [
            (node, point.end, lane, peer, *point.spot)
            for node, transfer in self.by_node.items()
            for point in transfer.endpoints
            for lane, peer in enumerate(point.peers)
        ]
        return Uses(*np.array(rows, np.int64).reshape(-1, len(Uses._fields)).T)

    def rank(self, start: Sequence[float] | NDArray[np.float64]) -> Ints:
        """Order the nodes by times at which they start.

        A communication in several rounds is a chain of nodes, which keep together.

        Parameters
        ----------
        start
            ``start[node]`` in seconds, by node of the folded step; rounds after the first go with
            the first one.

        Returns
        -------
        int array, shape (nodes,)
            By node its place, from 0 on. Nodes that start at one time keep the order of `place`,
            in which each comes after all that it waits for.
        """
        place_of_node = np.empty(len(self.first), np.int64)
        start_s = np.asarray(start)[self.first]

        # Sorted by start, then by the place of the first round, then by round.
        order = np.lexsort([self.place, self.place[self.first], start_s])
        place_of_node[order] = np.arange(len(order))
        return place_of_node

    def rails(self) -> list[int]:
        """Return the rail that each node (operation or communication) rides.

        Returns
        -------
        list of int
            By node a rail, or -1 if it rides none; of rails with the same classes, the first one.
        """
        first_rail: dict[bytes, int] = {}
        representative = {
            rail: first_rail.setdefault(classes, rail)
            for rail, classes in _classes_of_rails(self.folded).items()
        }
        rail_of_node = [-1] * len(self.duration_s)
        for node, transfer in self.by_node.items():
            operation = self.folded.part[transfer.node]
            rail_of_node[node] = representative[int(self.folded.step.rail[operation])]
        return rail_of_node

    def lasting(self, lanes: Mapping[int, int]) -> NDArray[np.float64]:
        """Return how long each node lasts with the lanes that it has.

        A node is an operation, or one communication (or round of it). A lane is the port of one
        number at all GPUs; the bytes of a communication are shared by its lanes.

        Parameters
        ----------
        lanes
            By communication its lanes, as bits: bit k for lane k, at least one.

        Returns
        -------
        float array, shape (nodes,)
            In seconds, with all circuits there: for a communication its bytes over the rate of its
            lanes, plus latency.
        """
        durations = self.duration_s.copy()
        for node, used_lanes in lanes.items():
            transfer = self.by_node[node]
            lane_bytes_per_s = self.job.network.port_bytes_per_s

            # A ring uses both bidirectional ports of a lane, a message one of them.
            if self.lanes.duplex and transfer.kind < SEND:
                lane_bytes_per_s *= 2
            sent_s = transfer.bytes_sent / (used_lanes.bit_count() * lane_bytes_per_s)
            durations[node] = sent_s + transfer.latency_s
        return durations


def fold_transfers(job: RailJob) -> Transfers:
    """Write a step down once for all ranks that do the same, and list who communicates.

    Ranks that do the same are one class, and the first of them stands for the others. A node is
    one operation of a class, or one communication of several classes. Ranks are of one class only
    if they also need the same changes of circuits.

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
    # The bound is only asked for as it refuses steps in which ranks wait for each other.
    job.lower_bound()
    duplex = job.fabric is not None and job.fabric.bidirectional
    if duplex and job.network.ports_per_gpu % 2:
        raise InputError(
            f"ports_per_gpu = {job.network.ports_per_gpu}: on a fabric of bidirectional ports a"
            " ring needs two at each GPU",
            where="ports_per_gpu",
        )

    # On bidirectional ports two ports are one lane. Labels say for each rank which of its peers
    # are the same; ranks of one class have to agree in them.
    lanes = Lanes(job.network.ports_per_gpu // (1 + duplex), duplex, fixed=False)
    places = list_places(job.step())
    labels = tell_apart(job, lanes, places)

    # Two ranks that exchange messages do the same, but each faces the other at another port.
    if duplex:
        labels = _join_labels(labels, _list_message_sides(job.step()))
    folded = fold(job, labels)

    # A change of an all-stop switch delays all of its rail: ranks of one class need like rails.
    if job.network.switching == "all-stop":
        folded = _fold_by_rail(job, folded, labels)
    return _list_transfers(job, folded, lanes, places)


def _join_labels(labels: Sequence[bytes], more_labels: Sequence[bytes]) -> list[bytes]:
    """Join two labels of each rank; a label is something in which ranks of a class agree.

    Parameters
    ----------
    labels
        By rank; empty if no rank has one.
    more_labels
        By rank, a second label.

    Returns
    -------
    list of bytes
        By rank one label after the other.
    """
    if not labels:
        return [*more_labels]
    return [one + two for one, two in zip(labels, more_labels, strict=True)]


def _fold_by_rail(job: RailJob, folded: Folded, labels: Sequence[bytes]) -> Folded:
    """Split classes of ranks further where a switch stops as a whole to change circuits.

    Ranks that do the same at the same time are a class and are planned as one. Such a switch stops
    all ranks on its rail. Ranks of one class can only be planned as one if they are stopped by the
    same others: the ranks on their rails have to be of the same classes, too.

    Parameters
    ----------
    job
        The job.
    folded
        Its step, folded without regard to rails.
    labels
        By rank, in what else the ranks of a class agree; empty if in nothing.

    Returns
    -------
    Folded
        The step with classes as few as can be.
    """
    ranks_on_rail = ranks_of_rails(job.step())
    while True:
        # By rank the classes of all ranks on its rails.
        neighbours = [b""] * len(folded.class_of)
        for rail, classes in _classes_of_rails(folded).items():
            for rank in ranks_on_rail[rail].tolist():
                neighbours[rank] += classes

        # Done when class and rails together tell no more ranks apart than classes alone.
        n_kinds = len({*zip(folded.class_of.tolist(), neighbours, strict=True)})
        if n_kinds == len(folded.first):
            return folded
        folded = fold(job, _join_labels(labels, neighbours))


def _classes_of_rails(folded: Folded) -> dict[int, bytes]:
    """Describe by rail the classes of its ranks (ranks that do the same), each as often as there.

    Rails with equal descriptions have as many ranks of each class.

    Parameters
    ----------
    folded
        The folded step: the class of each rank, and the ranks on each rail.

    Returns
    -------
    dict of int to bytes
        By rail its classes in ascending order, as the bytes of an array.
    """
    return {
        rail: np.sort(folded.class_of[ranks]).tobytes()
        for rail, ranks in ranks_of_rails(folded.step).items()
    }


def _list_message_sides(step: Step) -> list[bytes]:
    """Describe for each rank whether its partners of messages come next in their pipelines.

    Parameters
    ----------
    step
        The step: the operations of all ranks, one rank after another.

    Returns
    -------
    list of bytes
        By rank a byte for each message in program order: 1 if the partner comes next, else 0.
    """
    is_message = (step.kind >= SEND) & (step.rail >= 0)
    sides = []
    for rank, start in enumerate(step.rank_start[:-1].tolist()):
        end = int(step.rank_start[rank + 1])
        messages = start + np.flatnonzero(is_message[start:end])
        groups = step.group[messages].tolist()
        partners = step.peer[messages].tolist()
        sides.append(
            bytes(
                _is_next(step.groups[group].ranks, rank, partner)
                for group, partner in zip(groups, partners, strict=True)
            )
        )
    return sides


def hold_circuits(transfers: Transfers) -> Transfers:
    """Choose anew how all is done if no circuit ever changes: all-to-alls go around a ring.

    Otherwise an all-to-all may be done in rounds, with other partners in each, for which circuits
    change.

    Parameters
    ----------
    transfers
        The communications of the folded step; it stays as it is.

    Returns
    -------
    Transfers
        The same step with other peers, bytes and rounds.
    """
    lanes = transfers.lanes._replace(fixed=True)
    return _list_transfers(transfers.job, transfers.folded, lanes, transfers.places)


def _list_transfers(job: RailJob, folded: Folded, lanes: Lanes, places: Places) -> Transfers:
    """Decide for each communication over a rail how it is done, and list which ports it uses.

    One rank stands for all ranks that do the same (a class). A node is a computation of a class,
    or one communication of several classes. A communication is done in one round or several; in
    each round its members send to certain others, and circuits may change before the next one. A
    lane is the port of one number at all GPUs.

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
    first_ranks, operations = pick_ranks(step, folded.first)
    operation_s = durations_s(first_ranks, job.network, job.collectives)
    duration_s = operation_s[np.searchsorted(operations, folded.part)]

    # Micro-batches repeat their operations: each kind, group and size is decided once. The nodes
    # on rails are taken class after class; one of several classes is met again and counts once.
    rounds_of: dict[int, CommunicationRounds] = {}
    chosen_rounds: dict[tuple[int, int, float], CommunicationRounds] = {}
    for node in dict.fromkeys(node for nodes in folded.order for node in nodes.tolist()):
        operation = folded.part[node]
        kind = int(step.kind[operation])
        group = int(step.group[operation])
        size_bytes = float(step.size_bytes[operation])
        key = (kind, group, size_bytes)
        if key not in chosen_rounds:
            chosen_rounds[key] = choose_rounds(job, kind, step.groups[group], size_bytes, lanes)
        rounds_of[node] = chosen_rounds[key]

    # At first each communication is one node; further rounds are added to this table.
    nodes = np.arange(len(duration_s))
    transfers = Transfers(
        job=job,
        folded=folded,
        by_node={},
        duration_s=duration_s,
        order=(),
        first=nodes,
        last=nodes,
        pairs=np.stack([folded.before, folded.after], axis=1),
        place=nodes,
        lanes=lanes,
        places=places,
        rounds_of=rounds_of,
    )
    return _add_transfers(transfers)


def _add_transfers(transfers: Transfers) -> Transfers:
    """Make each round of a communication a node of its own, and list which ports it uses.

    One rank stands for all ranks that do the same (a class). A node is a computation of a class,
    or one communication of several classes. A communication in three rounds becomes a chain of
    three nodes: with 10 nodes, node 4 becomes 4, 10, 11, and what waited for node 4 waits for node
    11.

    An *end* is the transmitting side of the ports of a class (number ``2 * class``) or the
    receiving side (``2 * class + 1``). A *peer* is the rank that the first rank of the class sends
    to, or receives from, at an end; there is one for each port number.

    Parameters
    ----------
    transfers
        A table with the nodes of the folded step and `rounds_of` (by communication its peers,
        bytes and latency by round), without communications.

    Returns
    -------
    Transfers
        The same with these fields:

        * ``by_node[node]``: for a node on a rail its ends, peers, bytes and latency;
        * ``duration_s[node]``: as before, and 0 for further rounds;
        * ``order[class]``: its nodes on rails, in the order of its program;
        * ``first[node]``: the first round of its communication (4 for nodes 4, 10 and 11);
        * ``last[node]``: for a node of the table before its last round (11 for node 4);
        * `pairs`: rows (waited for, waiting);
        * ``place[node]``: its place in an order in which each comes after what it waits for.
    """
    folded = transfers.folded
    step = folded.step
    nodes_of, n_nodes = _number_rounds(transfers)
    endpoints = _list_endpoints(transfers, nodes_of)

    # Each communication is a transfer for each of its rounds.
    by_node = {}
    for first, rounds in transfers.rounds_of.items():
        operation = int(folded.part[first])
        for node, bytes_sent in zip(nodes_of[first], rounds.bytes_sent, strict=True):
            by_node[node] = Transfer(
                node=first,
                endpoints=tuple(endpoints[node]),
                bytes_sent=bytes_sent,
                latency_s=rounds.latency_s,
                kind=int(step.kind[operation]),
                ahead=_is_ahead(step, operation),
            )

    # By node the first round of its communication, and the last one; other nodes are their own.
    first_of = np.arange(n_nodes)
    first_of[list(by_node)] = [transfer.node for transfer in by_node.values()]
    last_of = transfers.last.copy()
    for first, nodes in nodes_of.items():
        last_of[first] = nodes[-1]

    # Rounds follow each other, and what waited for the first one waits for the last round. Longest
    # paths with durations of 0 s give an order in which each comes after what it waits for.
    in_turn = [pair for nodes in nodes_of.values() for pair in pairwise(nodes)]
    pairs = np.stack([last_of[folded.before], folded.after], axis=1)
    pairs = np.concatenate([pairs, np.array(in_turn, np.int64).reshape(-1, 2)])
    timed = longest_paths(np.zeros(n_nodes), pairs)
    assert timed is not None  # else the bound of the job has named the ranks that wait
    n_further = n_nodes - len(transfers.duration_s)
    return transfers._replace(
        by_node=by_node,
        duration_s=np.concatenate([transfers.duration_s, np.zeros(n_further)]),
        order=tuple(
            np.array([node for first in nodes.tolist() for node in nodes_of[first]], np.int64)
            for nodes in folded.order
        ),
        first=first_of,
        last=last_of,
        pairs=pairs,
        place=timed.order,
    )


def _number_rounds(transfers: Transfers) -> tuple[dict[int, list[int]], int]:
    """Give the rounds of communications numbers as nodes.

    Parameters
    ----------
    transfers
        Its `rounds_of` says by communication how many rounds it takes.

    Returns
    -------
    nodes_of : dict of int to list of int
        By communication its rounds: the node itself, and further nodes behind those of the folded
        step. With 10 nodes of which node 4 takes three rounds, 4: [4, 10, 11].
    n_nodes : int
        How many nodes there are in all.
    """
    nodes_of: dict[int, list[int]] = {}
    n_nodes = len(transfers.duration_s)
    for node, rounds in transfers.rounds_of.items():
        n_further = len(rounds.bytes_sent) - 1
        nodes_of[node] = [node, *range(n_nodes, n_nodes + n_further)]
        n_nodes += n_further
    return nodes_of, n_nodes


def _list_endpoints(
    transfers: Transfers, nodes_of: dict[int, list[int]]
) -> dict[int, list[Endpoint]]:
    """List which ports each round of each communication uses, and which rank they have to face.

    One rank stands for all ranks that do the same (a class). An end is the transmitting side of
    the ports of a class (number ``2 * class``) or the receiving side (``2 * class + 1``). A peer
    is the rank that the first rank of the class faces there, one for each lane (port number).
    Other ranks of the class face other peers; these are looked up later from a *spot*: the place
    of an operation in the program of the class, and the number of a round.

    Parameters
    ----------
    transfers
        The folded step, its lanes, and the rounds of each communication.
    nodes_of
        By communication the nodes of its rounds.

    Returns
    -------
    dict of int to list of Endpoint
        By node of a round its ends: those of each class that takes part in it. Each has the number
        of the end, by lane the peer, and a spot.
    """
    folded = transfers.folded
    step = folded.step
    endpoints: dict[int, list[Endpoint]] = {
        node: [] for nodes in nodes_of.values() for node in nodes
    }
    spots: dict[tuple[int, tuple[int, ...]], Spot] = {}
    for number, nodes in enumerate(folded.order):
        # Operations of the first rank of the class on rails, each with its node. Those that are
        # done alike, in one group or with one partner, have the same peers.
        peers_by_round: dict[tuple[int, int, int, int], list[tuple[int, ...]]] = {}
        start = int(step.rank_start[folded.first[number]])
        end = int(step.rank_start[folded.first[number] + 1])
        on_rail = start + np.flatnonzero(step.rail[start:end] >= 0)
        for operation, first in zip(on_rail.tolist(), nodes.tolist(), strict=True):
            rounds = nodes_of[first]
            for side in list_sides(transfers, operation):
                group = int(step.group[operation])
                partner = int(step.peer[operation])
                key = (id(transfers.rounds_of[first]), group, partner, side)
                if key not in peers_by_round:
                    shape = (len(rounds), transfers.lanes.number)
                    peers = face(transfers, np.array([operation]), side)[..., 0]
                    table = np.broadcast_to(peers, shape).tolist()
                    peers_by_round[key] = [tuple(row) for row in table]

                # Equal peers at an end share a spot, so that their circuits are looked up once.
                point = 2 * number + side
                for round_number, (node, peers_of_round) in enumerate(
                    zip(rounds, peers_by_round[key], strict=True)
                ):
                    spot = spots.setdefault(
                        (point, peers_of_round), (operation - start, round_number)
                    )
                    endpoints[node].append(Endpoint(point, peers_of_round, spot))
    return endpoints


def face(
    transfers: Transfers,
    operations: NDArray[np.int64],
    side: int,
    lane: int | slice = slice(None),
    turn: int | slice = slice(None),
) -> NDArray[np.int64]:
    """Look up which ranks some operations need circuits to, or from.

    All operations are parts of one communication (a node). Where ports transmit (side 0), the
    answer is the rank that each sends to; where they receive (side 1), the rank that it receives
    from. A communication may take several rounds, with other ranks in each.

    Parameters
    ----------
    transfers
        The communications of the folded step; its `rounds_of` has by node the places in the group
        that members face, and `places` turns them into ranks.
    operations
        Operations of one node, of any ranks; shape (operations,).
    side
        0 to transmit, 1 to receive; a message has its partner at either.
    lane, turn
        The number of a lane (port of one number at all GPUs), and that of a round of the
        communication; all of them unless one is given.

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
    place_of_peer = rounds.facing[turn, side, lane][..., place]
    peers: NDArray[np.int64] = transfers.places.member[step.group[operations], place_of_peer]
    return peers


def list_sides(transfers: Transfers, op: int) -> tuple[int, ...]:
    """List at which sides an operation has peers: 0 to transmit, 1 to receive.

    On bidirectional ports, 0 is the one towards those that come next, 1 that towards those before.

    Parameters
    ----------
    transfers
        The communications of the folded step, in which ranks that do the same are one class.
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
    is_side_0 = step.kind[op] == SEND
    if transfers.lanes.duplex:
        members = step.groups[step.group[op]].ranks
        is_side_0 = _is_next(members, int(step.rank[op]), int(step.peer[op]))
    return (0,) if is_side_0 else (1,)


def _is_next(members: tuple[int, ...], rank: int, other: int) -> bool:
    """Tell whether a rank is followed by another in their pipeline, which may be closed.

    Parameters
    ----------
    members
        The ranks of the pipeline in its order; the first one follows the last one, too. If there
        are only two, the second follows the first and not the other way round.
    rank, other
        Two of them.

    Returns
    -------
    bool
        Whether `other` comes right after `rank`.
    """
    place = members.index(rank)
    if len(members) == 2:
        return place == 0
    return members[(place + 1) % len(members)] == other


def _is_ahead(step: Step, op: int) -> bool:
    """Tell whether a message goes towards ranks that come later in its group.

    A send to the next rank of a pipeline does, and so does the receive of it, whose partner is the
    one before.

    Parameters
    ----------
    step
        The step.
    op
        An operation, by its number in the step.

    Returns
    -------
    bool
        False for a message back, and for other kinds than messages, which go to nobody.
    """
    if step.kind[op] < SEND:
        return False
    members = step.groups[step.group[op]].ranks
    partner_is_next = _is_next(members, int(step.rank[op]), int(step.peer[op]))
    is_sender = bool(step.kind[op] == SEND)
    return partner_is_next == is_sender
