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
        """List which ports each communication could use, and to which ranks they have to lead.

        A node is a communication over a rail, or one round of it. Ranks that do the same are one
        class, and the first of them stands for the others. A lane is the port of one number at all
        GPUs. All lanes are listed, whether the communication will use them or not.

        Returns
        -------
        Uses
            Columns of shape (rows,):

            * `node`;
            * `end`: ``2 * class`` for the ports that transmit, ``2 * class + 1`` for those that
              receive;
            * `lane`;
            * `peer`: the rank to which the port of the first rank of the class has to lead;
            * `place` and `turn`: the place of an operation in the program of the class, and a
              round, from which the peers of the other ranks are looked up.
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

        A node is a computation, or one round of a communication. The rounds of a communication
        keep together.

        Parameters
        ----------
        start
            ``start[node]`` in seconds; only first rounds are looked at, and further ones go with
            them. Shape (nodes of the folded step,).

        Returns
        -------
        int array, shape (nodes,)
            By node, further rounds too, its place from 0 on. Nodes that start at the same time
            keep an order in which each comes after all that it waits for.
        """
        place_of_node = np.empty(len(self.first), np.int64)
        start_s = np.asarray(start)[self.first]

        # Sorted by start, then by the place of the first round, then by round.
        order = np.lexsort([self.place, self.place[self.first], start_s])
        place_of_node[order] = np.arange(len(order))
        return place_of_node

    def rails(self) -> list[int]:
        """Return the rail that each node (a computation or a communication) is on.

        Rails that have as many ranks of each class (ranks that do the same) are alike; the first
        of them stands for all.

        Returns
        -------
        list of int
            By node, further rounds of communications too, its rail; -1 if it is on none.
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
        """Return how long each node lasts over the ports that it uses.

        A node is a computation, or one round of a communication. A lane is the port of one number
        at all GPUs; a communication shares its bytes evenly among its lanes.

        Parameters
        ----------
        lanes
            By node that is a communication over a rail the lanes that it uses: bit k for lane k,
            at least one.

        Returns
        -------
        float array, shape (nodes,)
            In seconds, with all circuits up: for a communication its bytes over the rate of its
            lanes, plus its latency. Communications that are not in `lanes` keep the time of the
            table.
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
    """Write a step down once for all ranks that do the same, and list who communicates.

    Ranks that do the same are one class, and the first of them stands for the others. They also
    have to need the same changes of circuits. The step is a list of nodes: a node is one
    operation of a class, or one communication of several classes.

    Parameters
    ----------
    job
        The job.

    Returns
    -------
    Transfers
        The nodes of the step, with their durations in seconds (`duration_s`), and who waits for
        whom (`pairs`). For each communication over a rail, `by_node` has

        * the bytes that a member sends;
        * which ports it uses: the transmitting or receiving side of the ports of each class;
        * the ranks to which these have to lead.

    Raises
    ------
    InputError
        If a GPU has an odd number of bidirectional ports, as a ring needs two of them; and if
        ranks wait for each other.
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

    Ranks that do the same at the same time are a class and are planned as one. If one rank on a
    rail needs a change, such a switch stops all ranks of the rail. Two ranks of a class are
    therefore stopped at the same times only if the other ranks on their rails are of the same
    classes, too. Classes are split until this is true of all.

    Parameters
    ----------
    job
        The job.
    folded
        Its step with the classes of ranks, found without regard to rails.
    labels
        ``labels[rank]``: what else the ranks of a class have to agree in; empty if nothing.

    Returns
    -------
    Folded
        The step with the fewest classes of which this is true.
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
    """Describe for each rank towards which side of its pipeline each of its messages goes.

    Ranks with different descriptions use different ports of two for the same message.

    Parameters
    ----------
    step
        The step: the operations of all ranks, one rank after another.

    Returns
    -------
    list of bytes
        By rank a byte for each message over a rail, in program order: 1 if its partner comes next
        in the pipeline, else 0.
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

    One rank stands for all ranks that do the same, a class. The step is a list of nodes: a
    node is a computation of a class, or one communication of several classes. A communication goes
    in one round or several. In a round each member sends to one other over each of its ports;
    circuits may change before the next round.

    Parameters
    ----------
    job
        The job: its network, and the algorithm of each dimension (kind of parallelism).
    folded
        The classes of ranks, and the nodes of the step.
    lanes
        The ports: how many lanes there are (a lane is the port of one number at all GPUs), whether
        each is two bidirectional ports (`duplex`), and whether circuits never change (`fixed`).
    places
        The place of each rank in each of its groups.

    Returns
    -------
    Transfers
        The nodes of the step, and one more for each further round: their durations in seconds, who
        waits for whom, and for those on rails the bytes, the ports, and the ranks to which these
        have to lead.
    """
    step = folded.step
    first_ranks, operations = pick_ranks(step, folded.first)
    operation_s = durations_s(first_ranks, job.network, job.collectives)
    duration_s = operation_s[np.searchsorted(operations, folded.part)]

    # Each communication on a rail is one node, which all of its classes have in their order; it is
    # taken once (`dict.fromkeys`). Many are repeated, one for each micro-batch: how it is done is
    # decided once for each kind, group and size.
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

    The table has a node for each computation, and one for each communication. A communication may
    go in several rounds, with other circuits in each. With 10 nodes, of which node 4 goes in three
    rounds, the rounds become the nodes 4, 10 and 11. They follow each other, and what waited for
    node 4 waits for node 11.

    Parameters
    ----------
    transfers
        The table. Its `rounds_of` says by communication who sends to whom, how many bytes, and
        with what latency, round by round. Its `by_node` is empty so far.

    Returns
    -------
    Transfers
        The table with further nodes, and with these fields:

        * ``by_node[node]``: for each round of a communication its ports, the ranks to which they
          have to lead, its bytes, and its latency;
        * ``duration_s[node]``: as before; 0 for the further rounds;
        * ``order[class]``: the rounds in which ranks of this class take part, in their order. A
          class is ranks that do the same;
        * ``first[node]``: the first round of its communication (4 for nodes 4, 10 and 11);
        * ``last[node]``: for a node of the former table its last round (11 for node 4);
        * `pairs`: rows (waited for, waiting);
        * ``place[node]``: its place in an order in which each node comes after all that it waits
          for.
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

    # Who waits for whom: a node waits for the last round of what it waited for, and each round for
    # the one before. Longest paths with durations of 0 s are asked only for their order, in which
    # each node comes after all that it waits for.
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
    """List which ports each round of a communication uses, and to which ranks they have to lead.

    One rank, the first, stands for all ranks that do the same, a class. Two sides of its ports are
    told apart: those that transmit have the number ``2 * class``, those that receive ``2 * class +
    1``. Such a side is called an end. On each lane (the port of one number at all GPUs) there is
    one peer: the rank that the first rank of the class sends to, or receives from.

    The other ranks of the class have other peers. These can be looked up later, from the place of
    an operation in the program of the class and the number of a round. This pair is called a spot.

    Parameters
    ----------
    transfers
        The folded step, its lanes, and the rounds of each communication.
    nodes_of
        By communication the nodes of its rounds.

    Returns
    -------
    dict of int to list of Endpoint
        By node, which is one round, its ends: those of each class that takes part in it. Each has
        `end` (its number), `peers` (a rank for each lane), and `spot`. Ends of one number with
        equal peers have the same spot, that of the first of them.
    """
    folded = transfers.folded
    step = folded.step
    endpoints: dict[int, list[Endpoint]] = {
        node: [] for nodes in nodes_of.values() for node in nodes
    }
    spots: dict[tuple[int, tuple[int, ...]], Spot] = {}
    for number, nodes in enumerate(folded.order):
        # The operations of the first rank of the class on rails, each with its node. Peers are
        # looked up once for all operations with the same rounds, group, partner and side; by
        # round, ``peers_by_round[key]`` has a peer for each lane.
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
    """Look up which ranks some operations have to send to, or receive from.

    All operations belong to one communication: each is what one rank does in it. A communication
    may go in several rounds, with other partners in each. Over several lanes (the port of one
    number at all GPUs) a rank has a partner on each.

    Parameters
    ----------
    transfers
        The folded step. By communication, ``rounds_of[node].facing[round, side, lane, place]`` is
        the place in the group of the partner; `places` turns places into ranks.
    operations
        Operations of one communication, of any ranks, as numbers in the step; shape (operations,).
    side
        0: to which ranks they send; 1: from which ranks they receive. A message has one partner,
        for either.
    lane, turn
        One lane, and one round, from 0; all of them if left out.

    Returns
    -------
    int array
        Ranks. For a message the shape is (operations,). Else it is (rounds, lanes, operations),
        without the axis of what is given as a number.
    """
    step = transfers.folded.step
    if not len(operations) or step.kind[operations[0]] >= SEND:
        return step.peer[operations].astype(np.int64)
    # All operations are of one node, that of the first. Ranks are turned into places in their
    # group, places into those of partners, and these back into ranks.
    rounds = transfers.rounds_of[int(transfers.folded.node_of(operations[:1])[0])]
    place = transfers.places.place(step, operations)
    place_of_peer = rounds.facing[turn, side, lane][..., place]
    peers: NDArray[np.int64] = transfers.places.member[step.group[operations], place_of_peer]
    return peers


def list_sides(transfers: Transfers, op: int) -> tuple[int, ...]:
    """List on which sides of its ports an operation has partners.

    Side 0 are ports that transmit, side 1 those that receive. On bidirectional ports, side 0 are
    the ports towards the ranks that come next in a group, side 1 those towards the ranks before.

    Parameters
    ----------
    transfers
        The folded step; `lanes.duplex` says whether its ports are bidirectional.
    op
        An operation on a rail, by its number in the step.

    Returns
    -------
    tuple of int
        (0, 1) for a collective; for a message (0,) or (1,), the side of its partner.
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
