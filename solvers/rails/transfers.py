"""Transfers over a rail: for each node of a folded step the ends that it uses, and its time.

`fold_transfers` folds the step, so that ranks which do the same are one class, and lists its
communications: for each kind, group and size it is decided once how data go (around a ring, in
pairs, or by shifts), each round becomes a node, and its peers are looked up for the first rank of
each class alone (`face`). Plans then choose lanes and orders for these nodes, and
`Transfers.lasting` says how long they last.

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
    The port of one number at all GPUs; a node runs on one lane or on several.
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

from optmatch.model import InputError
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import ranks_of_rails
from optmatch.problems.rails.training.step import ALL_TO_ALL, SEND, Step
from optmatch.problems.rails.training.times import durations_s, pick_ranks
from optmatch.solvers.rails.collectives import (
    CommunicationRounds,
    Lanes,
    choose_rounds,
    tell_apart,
)
from optmatch.solvers.rails.fold import Folded, Places, fold, list_places
from optmatch.solvers.rails.paths import Floats, Ints, longest_paths

Spot = tuple[int, int]
"""A spot tells a peer: the place of an operation in the program of a class, and its round."""


class Endpoint(NamedTuple):
    """An end, and the peer that it faces on each lane."""

    end: int
    """``2 * class + side``; side 0 transmits, side 1 receives."""
    peers: tuple[int, ...]
    """By lane the rank that the first rank of the class faces."""
    spot: Spot
    """The operation and the round that have these peers."""


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
    """Whether a message goes onward, towards ranks that come later in its group; False for a
    message back, and for a collective."""


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
    """With `round_number` the spot: the place of an operation in the program of the class."""
    round_number: Ints
    """The round of the operation, from 0."""

    def select(self, rows: Ints) -> Uses:
        """Return the table of these rows, in their order; a row may come several times."""
        return Uses(*(column[rows] for column in self))


class Transfers(NamedTuple):
    """A folded step and its communication over rails."""

    job: RailJob
    """The job whose step it is."""
    folded: Folded
    """Its classes and nodes."""
    by_node: dict[int, Transfer]
    """By node that is a communication over rails; rounds after the first are nodes beyond those of
    the folded step."""
    duration_s: Floats
    """``duration_s[node]`` in seconds, of nodes that are no communication over rails."""
    order: tuple[Ints, ...]
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
    uses: Uses
    """All uses of ends and lanes, a row for each."""

    def rank(self, start: Sequence[float] | Floats) -> Ints:
        """Rank nodes by start, ``start[node]`` of the folded step: ``rank[node]``, from 0.

        Further rounds are ranked, too, by the start of their first one. Ties, and rounds of one
        communication, are in the order of who waits for whom. Nodes that start at 2 s, 0 s and 1 s
        have the ranks 2, 0 and 1.
        """
        place_of_node = np.empty(len(self.first), np.int64)
        start_s = np.asarray(start)[self.first]

        # Sorted by start, then by the place of the first round, then by round.
        order = np.lexsort([self.place, self.place[self.first], start_s])
        place_of_node[order] = np.arange(len(order))
        return place_of_node

    def rails(self) -> list[int]:
        """List by node the first rail that has the same classes as its own, -1 beside rails.

        If rails 0 to 7 all have ranks of the same classes, each communication gets rail 0.
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

    def lasting(self, lanes: Mapping[int, int]) -> Floats:
        """List how long each node lasts, in seconds, if communications take some lanes.

        ``lanes[node]`` has bit k for lane k; nodes that are not in it last ``self.duration_s``.
        Lanes share the bytes evenly: 8 GB over two lanes of 50 GB/s, 0b11, last 80 ms, and the
        latency besides.
        """
        durations = self.duration_s.copy()
        for node, used_lanes in lanes.items():
            transfer = self.by_node[node]
            lane_bytes_per_s = self.job.network.port_bytes_per_s

            # Where ports are bidirectional, a lane is two of them. A collective (a kind below
            # `SEND`) uses both, a message one.
            if self.lanes.duplex and transfer.kind < SEND:
                lane_bytes_per_s *= 2
            sent_s = transfer.bytes_sent / (used_lanes.bit_count() * lane_bytes_per_s)
            durations[node] = sent_s + transfer.latency_s
        return durations


def fold_transfers(job: RailJob) -> Transfers:
    """Fold the step of a job for plans in which no GPU forwards data, and list communications.

    Ranks of one class have equal programs and agree in which partners are the same; on switches
    that stop as a whole their rails agree as well. Raises `InputError` for an odd number of
    bidirectional ports.
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
    """Append ``more_labels[rank]`` to ``labels[rank]``, where there are any."""
    if not labels:
        return [*more_labels]
    return [label + extra_label for label, extra_label in zip(labels, more_labels, strict=True)]


def _fold_by_rail(job: RailJob, folded: Folded, labels: Sequence[bytes]) -> Folded:
    """Split classes until the ranks of one class are on rails with the same classes.

    ``labels[rank]`` are those with which `folded` was made. If classes 0 and 1 are on one rail,
    and another rail has ranks of class 0 alone, the ranks of class 0 on the one rail become
    another class than those on the other.
    """
    ranks_on_rail = ranks_of_rails(job.step())
    while True:
        # By rank, as bytes: the classes of all ranks on its rails.
        classes_on_rails = [b""] * len(folded.class_of)
        for rail, classes in _classes_of_rails(folded).items():
            for rank in ranks_on_rail[rail].tolist():
                classes_on_rails[rank] += classes

        # If no class has ranks whose rails differ, there are as many pairs of class and rails as
        # classes. Else the step is folded anew, with the rails as further labels.
        pairs = {*zip(folded.class_of.tolist(), classes_on_rails, strict=True)}
        if len(pairs) == len(folded.first):
            return folded
        folded = fold(job, _join_labels(labels, classes_on_rails))


def _classes_of_rails(folded: Folded) -> dict[int, bytes]:
    """Describe each rail by the classes of its ranks, sorted, as bytes; equal rails are equal."""
    return {
        rail: np.sort(folded.class_of[ranks]).tobytes()
        for rail, ranks in ranks_of_rails(folded.step).items()
    }


def _list_message_sides(step: Step) -> list[bytes]:
    """Describe by rank on which side of a pipeline the partners of its messages are.

    A rank has a byte for each of its messages in program order: 1 if the partner is the next rank
    of the pipeline, else 0. One in the middle that receives from the rank before and sends to the
    next one has the bytes 0, 1.
    """
    is_message = (step.kind >= SEND) & (step.rail >= 0)
    sides = []
    for begin, beyond in pairwise(step.rank_start.tolist()):
        messages = begin + np.flatnonzero(is_message[begin:beyond])
        sides.append(bytes(_is_partner_next(step, message) for message in messages.tolist()))
    return sides


def hold_circuits(transfers: Transfers) -> Transfers:
    """List the communications as they are done without changes: all-to-alls go around rings.

    The result is `transfers` itself if the step has no all-to-all.
    """
    if not (transfers.folded.step.kind == ALL_TO_ALL).any():
        return transfers
    lanes = transfers.lanes._replace(fixed=True)
    return _list_transfers(transfers.job, transfers.folded, lanes, transfers.places)


def _list_transfers(job: RailJob, folded: Folded, lanes: Lanes, places: Places) -> Transfers:
    """Choose the rounds of all communications, and list them as nodes with their ends.

    A communication of several rounds, such as recursive halving, becomes a chain of nodes. Choices
    depend on kind, group and size alone, and are made once for each of them. Nodes that wait for a
    communication wait for its last round.
    """
    # The duration of a node is that of its operation ``folded.part[node]``. Those of first ranks
    # are enough: `operations` are their numbers in the whole step, ascending.
    step = folded.step
    first_ranks, operations = pick_ranks(step, folded.first)
    operation_s = durations_s(first_ranks, job.network, job.collectives)
    duration_s = operation_s[np.searchsorted(operations, folded.part)]

    # Each communication on a rail is one node, which all of its classes have in their order; it is
    # taken once (`dict.fromkeys`). Many are repeated, one for each micro-batch: how it is done is
    # decided once for each kind, group and size. Further rounds are nodes beyond all others: with
    # 10 nodes of which node 4 takes three rounds, ``nodes_of[4]`` is [4, 10, 11].
    rounds_of: dict[int, CommunicationRounds] = {}
    chosen_rounds: dict[tuple[int, int, float], CommunicationRounds] = {}
    nodes_of: dict[int, list[int]] = {}
    n_nodes = len(duration_s)
    for node in dict.fromkeys(node for nodes in folded.order for node in nodes.tolist()):
        operation = folded.part[node]
        kind = int(step.kind[operation])
        group = int(step.group[operation])
        size_bytes = float(step.size_bytes[operation])

        # Communications that agree in these are done in one way.
        key = (kind, group, size_bytes)
        if key not in chosen_rounds:
            chosen_rounds[key] = choose_rounds(job, kind, step.groups[group], size_bytes, lanes)
        rounds_of[node] = chosen_rounds[key]

        # Its further rounds are numbered.
        n_further = len(rounds_of[node].bytes_sent) - 1
        nodes_of[node] = [node, *range(n_nodes, n_nodes + n_further)]
        n_nodes += n_further

    # By node the first round of its communication, and by node of the folded step the last one;
    # other nodes are their own.
    first_of = np.arange(n_nodes)
    last_of = np.arange(len(duration_s))
    for first, nodes in nodes_of.items():
        first_of[nodes] = first
        last_of[first] = nodes[-1]

    # Who waits for whom: in the folded step node ``folded.after[k]`` waits for
    # ``folded.before[k]``, now for the last round of that, and each round for the one before.
    # Longest paths with durations of 0 s are asked only for their order, in which each node comes
    # after all that it waits for.
    in_turn = [pair for nodes in nodes_of.values() for pair in pairwise(nodes)]
    pairs = np.stack([last_of[folded.before], folded.after], axis=1)
    pairs = np.concatenate([pairs, np.array(in_turn, np.int64).reshape(-1, 2)])
    timed = longest_paths(np.zeros(n_nodes), pairs)
    assert timed is not None  # else the bound of the job has named the ranks that wait
    transfers = Transfers(
        job=job,
        folded=folded,
        by_node={},
        duration_s=np.concatenate([duration_s, np.zeros(n_nodes - len(duration_s))]),
        order=tuple(
            np.array([node for first in nodes.tolist() for node in nodes_of[first]], np.int64)
            for nodes in folded.order
        ),
        first=first_of,
        last=last_of,
        pairs=pairs,
        place=timed.order,
        lanes=lanes,
        places=places,
        rounds_of=rounds_of,
        uses=Uses(*np.empty((len(Uses._fields), 0), np.int64)),
    )

    # The ends of all rounds, which are looked up in the table so far. Kind and direction of a
    # transfer are read from one operation of its node, ``folded.part[node]``.
    endpoints = _list_endpoints(transfers, nodes_of)
    for first, rounds in rounds_of.items():
        operation = int(folded.part[first])
        for node, bytes_sent in zip(nodes_of[first], rounds.bytes_sent, strict=True):
            transfers.by_node[node] = Transfer(
                node=first,
                endpoints=tuple(endpoints[node]),
                bytes_sent=bytes_sent,
                latency_s=rounds.latency_s,
                kind=int(step.kind[operation]),
                ahead=_is_ahead(step, operation),
            )
    rows = [
        (node, endpoint.end, lane, peer, *endpoint.spot)
        for node, transfer in transfers.by_node.items()
        for endpoint in transfer.endpoints
        for lane, peer in enumerate(endpoint.peers)
    ]
    uses = Uses(*np.array(rows, np.int64).reshape(-1, len(Uses._fields)).T)
    return transfers._replace(uses=uses)


def _list_endpoints(
    transfers: Transfers, nodes_of: dict[int, list[int]]
) -> dict[int, list[Endpoint]]:
    """List by node the ends that it uses, with the peers of the first rank of the class.

    ``nodes_of[node]`` are the nodes of all rounds of a communication, by its first one. The peers
    of all other ranks of the class are later looked up by the spot: for the operation at this
    place in their programs.
    """
    folded = transfers.folded
    step = folded.step
    endpoints: dict[int, list[Endpoint]] = {
        node: [] for nodes in nodes_of.values() for node in nodes
    }
    for number, nodes in enumerate(folded.order):
        # `on_rail` are the operations of the first rank of the class on rails, in program order;
        # ``nodes[k]`` is the node of ``on_rail[k]``, the first of its rounds. Peers are looked up
        # once for all operations with the same rounds, group, partner and side:
        # ``peers_by_round[key][round][lane]`` is a rank.
        peers_by_round: dict[tuple[int, int, int, int], list[tuple[int, ...]]] = {}
        first_rank = folded.first[number]
        begin = int(step.rank_start[first_rank])
        beyond = int(step.rank_start[first_rank + 1])
        on_rail = begin + np.flatnonzero(step.rail[begin:beyond] >= 0)
        for operation, first in zip(on_rail.tolist(), nodes.tolist(), strict=True):
            rounds = nodes_of[first]
            for side in list_sides(transfers, operation):
                group = int(step.group[operation])
                partner = int(step.peer[operation])
                key = (id(transfers.rounds_of[first]), group, partner, side)

                # Many communications have the same peers: these are looked up once. For a
                # collective `face` returns shape (rounds, lanes, 1), for a message (1,): its peer
                # is the same on all lanes.
                if key not in peers_by_round:
                    shape = (len(rounds), transfers.lanes.number)
                    peers = face(transfers, np.array([operation]), side)[..., 0]
                    table = np.broadcast_to(peers, shape).tolist()
                    peers_by_round[key] = [tuple(row) for row in table]

                end = 2 * number + side
                for round_number, node in enumerate(rounds):
                    spot = (operation - begin, round_number)
                    endpoints[node].append(Endpoint(end, peers_by_round[key][round_number], spot))
    return endpoints


def face(
    transfers: Transfers,
    operations: Ints,
    side: int,
    lane: int | slice = slice(None),
    round_number: int | slice = slice(None),
) -> Ints:
    """Look up the ranks that operations of one communication send to (side 0) or receive from.

    `lane` and `round_number` select from all lanes and rounds. The result has shape (rounds,
    lanes, operations), without the axes of a single lane or round, and (operations,) for messages.
    Around a ring of the ranks 4, 6 and 9, the operation of rank 6 sends to 9 and receives from 4.
    """
    step = transfers.folded.step
    if not len(operations) or step.kind[operations[0]] >= SEND:
        return step.peer[operations].astype(np.int64)

    # All operations are of one node, that of the first. Ranks are turned into places in their
    # group, places into those of partners, and these back into ranks. The axes of
    # ``rounds.facing`` are round, side, lane and place; the places of all operations are its last
    # axis here.
    rounds = transfers.rounds_of[int(transfers.folded.node_of(operations[:1])[0])]
    place = transfers.places.place(step, operations)
    place_of_peer = rounds.facing[round_number, side, lane][..., place]
    peers: Ints = transfers.places.member[step.group[operations], place_of_peer]
    return peers


def list_sides(transfers: Transfers, op: int) -> tuple[int, ...]:
    """List the sides on which an operation (its number in the step) has partners.

    A collective has both, sending (0) and receiving (1), a message one; on bidirectional ports 0
    is towards those that come next in a group, and 1 towards those before.
    """
    step = transfers.folded.step
    if step.kind[op] < SEND:
        return 0, 1
    is_side_0 = step.kind[op] == SEND
    if transfers.lanes.duplex:
        is_side_0 = _is_partner_next(step, op)
    if is_side_0:
        return (0,)
    return (1,)


def _is_partner_next(step: Step, op: int) -> bool:
    """Tell whether operation `op`, one end of a message, leads to the next rank of its group.

    The members of the group are a closed chain, in which the first one comes after the last one.
    Of two members, only the second one comes after the first.
    """
    members: tuple[int, ...] = step.groups[step.group[op]].ranks
    place = members.index(int(step.rank[op]))
    if len(members) == 2:
        return place == 0
    return members[(place + 1) % len(members)] == int(step.peer[op])


def _is_ahead(step: Step, op: int) -> bool:
    """Tell whether an operation is of a message towards ranks that come later in its group.

    The send of such a message has a partner that comes next, its receive one that comes before.
    """
    if step.kind[op] < SEND:
        return False
    is_sender = bool(step.kind[op] == SEND)
    return _is_partner_next(step, op) == is_sender
