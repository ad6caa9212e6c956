"""Transfers over a rail: for each node of a folded step the ends that it uses, and its time.

`fold_transfers` lists the communications of a folded step (`optmatch.solvers.rails.seats`): for
each kind, number of members and size it is decided once how data go (around a ring, in pairs, or
by shifts), and each round becomes a node. Plans then choose lanes and orders for these nodes, and
`Transfers.lasting` says how long they last.

A *seat* is a GPU of the folded step, a *node* a computation of a seat or a communication of
several seats, its members, and a *lane* the port of one number at every GPU. Words of this module:

End
    One side of the ports of a seat: where they transmit, or where they receive. End 2s + k is side
    k of seat s; side 0 transmits, side 1 receives.
Peer
    On each lane a node has a peer at each of its ends: the seat to which or from which the seat
    sends or receives. Two nodes with the same peer at an end need the same circuit there. A peer
    in another replica is written as the seat plus the number of seats for each replica between.
Round
    A communication that takes several rounds is a chain of nodes, one for each: what was one node
    in the folded step is the first of them.

Where ports are bidirectional, ports 2p and 2p + 1 make up lane p: one towards the ranks that
come next in a ring or pipeline, one towards those before. Such a lane holds both directions of a
ring, or both neighbours of a pipeline, and its ends are these two ports. A message to a rank
before is then one over the circuit from its receiver to its sender.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, InputError
from optmatch.problems import RailJob
from optmatch.problems.rails.training.step import SEND, find_dimensions
from optmatch.solvers.rails.collectives import (
    CommunicationRounds,
    Facing,
    Lanes,
    choose_rounds,
)
from optmatch.solvers.rails.decoder import MESSAGE
from optmatch.solvers.rails.fold import find_places
from optmatch.solvers.rails.paths import Floats, Ints, find_heads
from optmatch.solvers.rails.seats import Seats, seat_ranks


class Uses(NamedTuple):
    """The lanes of ends that each node uses: columns of a table, each of shape (rows,)."""

    node: Ints
    """``node[row]``: who uses the end."""
    end: Ints
    """``end[row]``: ``2 * seat + side``."""
    lane: Ints
    """``lane[row]``, from 0."""
    peer: Ints
    """``peer[row]``: the seat that the end has to face."""
    rails: Ints
    """``rails[row]``: the rails that the node rides, as a place in `Seats.rails`. A rank has ports
    on each of its rails."""
    operation: Ints
    """``operation[row]``: the row in `Folded.own` of the part of the seat in the node. Rows of a
    seat stand together, in the order of its program."""

    def select(self, rows: Ints) -> Uses:
        """Return the table of these rows, in their order."""
        return Uses(*(column[rows] for column in self))


class Transfers(NamedTuple):
    """A folded step and its communication over rails.

    Nodes are those of the folded step, and behind them the rounds after the first.
    """

    seats: Seats
    """The folded step."""
    lanes: Lanes
    """How many lanes there are, and whether their ports are bidirectional."""
    rides: NDArray[np.bool_]
    """``rides[node]``: whether it is a communication over rails."""
    is_message: NDArray[np.bool_]
    """``is_message[node]``; else it is a round of a collective, or rides no rail."""
    is_ahead: NDArray[np.bool_]
    """``is_ahead[node]``: whether a message goes to the rank that comes next in its group."""
    bytes_sent: Floats
    """``bytes_sent[node]``: bytes that a member sends, over all its lanes; 0 beside rails."""
    beside_s: Floats
    """``beside_s[node]`` in seconds: the latency of a round, of all its messages, or the time of a
    node that is no communication over rails."""
    first: Ints
    """``first[node]``: the node of the first round. If node 4 takes three rounds, which are the
    nodes 4, 10 and 11, it is 4 for all of them."""
    last: Ints
    """``last[node]`` by node of the folded step: the node of its last round, 11 for node 4."""
    pairs: Ints
    """Pairs of nodes, shape (pairs, 2): the second one waits for the first."""
    depth: Floats
    """``depth[node]``: how many nodes there are on the longest chain that it waits for."""
    uses: Uses
    """All uses of ends and lanes, a row for each."""

    @property
    def all_lanes(self) -> Ints:
        """``lanes[node]`` as bits, if each communication takes all lanes; 0 beside rails."""
        return np.where(self.rides, (1 << self.lanes.number) - 1, 0)

    def rank(self, start_s: Floats) -> Ints:
        """Rank nodes by start, ``start_s[node]`` of the folded step: ``rank[node]``, from 0.

        Further rounds are ranked, too, by the start of their first one. Ties, and rounds of one
        communication, are in the order of who waits for whom; then the fewest bytes come first,
        and then what stands first in a program, so that seats that do the same have the same
        order. Nodes that start at 2 s, 0 s and 1 s have the ranks 2, 0 and 1.
        """
        # ``position[node]`` of the folded step is its place in the program of its rank, from 0:
        # ``folded.part[node]`` is one of its operations, and those of a rank stand together.
        rank = np.empty(len(self.first), np.int64)
        first = self.first
        folded = self.seats.folded
        position = folded.part - folded.step.rank_start[folded.step.rank[folded.part]]

        # `lexsort` sorts by the last key, and by the key before it where that is equal: the keys
        # are to be read from below. As `first` is one of them, the rounds of a communication stand
        # together.
        keys = [
            self.depth,
            first,
            position[first],
            self.bytes_sent[first],
            self.depth[first],
            start_s[first],
        ]
        order = np.lexsort(keys)
        rank[order] = np.arange(len(order))
        return rank

    def lasting(self, lanes: Ints) -> Floats:
        """List how long each node lasts, in seconds, if communications take some lanes.

        ``lanes[node]`` has bit k for lane k, and is 0 beside rails. Lanes share the bytes evenly:
        8 GB over two lanes of 50 GB/s, 0b11, last 80 ms, and the latency besides.
        """
        lane_bytes_per_s = np.full(len(lanes), self.seats.job.network.port_bytes_per_s)

        # Where ports are bidirectional, a lane is two of them. A collective uses both, a message
        # one. A node beside rails, on no lane, sends no bytes: it lasts `beside_s`.
        if self.lanes.duplex:
            lane_bytes_per_s[~self.is_message] *= 2
        n_lanes = np.maximum(np.bitwise_count(lanes), 1)
        lasts_s: Floats = self.bytes_sent / (n_lanes * lane_bytes_per_s) + self.beside_s
        return lasts_s


def fold_transfers(job: RailJob) -> Transfers:
    """Fold the step of a job for plans in which no GPU forwards data, and list communications.

    Raises `InputError` for an odd number of bidirectional ports.
    """
    # The bound is only asked for as it refuses steps in which ranks wait for each other in a
    # circle (`InputError`).
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
    return list_transfers(seat_ranks(job), lanes)


def list_transfers(seats: Seats, lanes: Lanes) -> Transfers:
    """Choose the rounds of all communications, and list them as nodes with their ends.

    A communication of several rounds, such as recursive halving, becomes a chain of nodes. Choices
    depend on kind, members and size alone, and are made once for each of them. Nodes that wait for
    a communication wait for its last round.
    """
    step = seats.folded.step
    nodes = seats.nodes
    n_folded = len(nodes.how)

    # Communications are sorted into sets that agree in kind, dimension, members (of the group, and
    # in one replica) and bytes: equal columns of `description`. ``alike[number]`` are the nodes of
    # a set, and ``example[number]`` is the position of one of them in `riding`.
    riding = seats.riding
    operation = seats.folded.part[riding]
    group = step.group[operation]
    description = np.array(
        [
            np.where(nodes.how[riding] == MESSAGE, SEND, step.kind[operation]),
            find_dimensions(step.groups)[group],
            np.array([len(group.ranks) for group in step.groups], np.int64)[group],
            seats.n_members[riding],
            step.size_bytes[operation],
        ]
    )
    _, example, number = np.unique(description, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(number.reshape(-1), kind="stable")
    counts = np.bincount(number.reshape(-1), minlength=len(example))
    alike = np.split(riding[order], np.cumsum(counts))[:-1]

    # How each set is done, and its nodes as ``node_of_round[communication, round]``: rounds after
    # the first are nodes beyond all others. If the nodes 4 and 6 of 10 take three rounds each, the
    # rows are 4, 10, 11 and 6, 12, 13.
    chosen: list[tuple[Ints, CommunicationRounds]] = []
    n_nodes = n_folded
    for communications, k in zip(alike, example.tolist(), strict=True):
        rounds = choose_rounds(
            seats.job,
            int(step.kind[operation[k]]),
            step.groups[group[k]],
            float(step.size_bytes[operation[k]]),
            lanes,
        )
        shape = (len(communications), len(rounds.bytes_sent) - 1)
        further = np.arange(n_nodes, n_nodes + shape[0] * shape[1]).reshape(shape)
        chosen.append((np.concatenate([communications[:, None], further], axis=1), rounds))
        n_nodes += further.size

    # A message that goes back over bidirectional ports is one over the circuit the other way.
    # Rounds after the first are those of collectives: False here.
    is_ahead = np.zeros(n_nodes, np.bool_)
    is_ahead[:n_folded] = _find_messages_ahead(seats)
    is_message = np.zeros(n_nodes, np.bool_)
    is_message[:n_folded] = nodes.how == MESSAGE
    is_turned = is_message & ~is_ahead & lanes.duplex

    # By node the first round of its communication, and by node of the folded step the last one;
    # other nodes are their own. Each round waits for the one before.
    first = np.arange(n_nodes)
    last = np.arange(n_folded)
    rides = np.zeros(n_nodes, np.bool_)
    bytes_sent = np.zeros(n_nodes)
    beside_s = np.zeros(n_nodes)
    beside_s[:n_folded] = nodes.duration_s
    tables = [Uses(*np.empty((len(Uses._fields), 0), np.int64))]
    in_turn = [np.empty((0, 2), np.int64)]
    for node_of_round, rounds in chosen:
        # All rows of a set are done alike, and their nodes get the same numbers.
        first[node_of_round] = node_of_round[:, :1]
        last[node_of_round[:, 0]] = node_of_round[:, -1]
        rides[node_of_round] = True
        bytes_sent[node_of_round] = rounds.bytes_sent
        beside_s[node_of_round] = rounds.latency_s
        tables.append(_list_uses(seats, node_of_round, rounds.facing, is_turned))

        # The rounds 4, 10, 11 are the pairs (4, 10) and (10, 11).
        neighbours = np.stack([node_of_round[:, :-1], node_of_round[:, 1:]], axis=2)
        in_turn.append(neighbours.reshape(-1, 2))

    # In the folded step node ``after[k]`` waits for ``before[k]``; here it waits for the last
    # round of that. The depth of a node, how many nodes are on the longest chain before it, is its
    # head in seconds if each node lasts 1 s.
    before, after = seats.folded.pairs.T
    waits = np.stack([last[before], after], axis=1)
    pairs = np.concatenate([waits, *in_turn])
    return Transfers(
        seats=seats,
        lanes=lanes,
        rides=rides,
        is_message=is_message,
        is_ahead=is_ahead,
        bytes_sent=bytes_sent,
        beside_s=beside_s,
        first=first,
        last=last,
        pairs=pairs,
        depth=find_heads(np.ones(n_nodes), pairs),
        uses=Uses(*(np.concatenate(columns) for columns in zip(*tables, strict=True))),
    )


def _find_messages_ahead(seats: Seats) -> NDArray[np.bool_]:
    """Find ``is_ahead[node]``: whether it is a message to the rank that comes next in its group.

    The members of a group are a closed chain, in which the first one comes after the last one: in
    the group 3, 5, 9 the messages 3 -> 5 and 9 -> 3 are ahead, and 5 -> 3 is not. In a group of
    two, only the message from the first to the second one is.
    """
    # The operations that send on a rail, and how many places after the sender the receiver comes
    # in their group. From the last member to the first one it is a negative number.
    folded = seats.folded
    step = folded.step
    rows = np.flatnonzero((step.kind[folded.own] == SEND) & (step.rail[folded.own] >= 0))
    operations = folded.own[rows]
    group = step.group[operations].astype(np.int64)
    n_members = np.array([len(each.ranks) for each in step.groups], np.int64)[group]
    distance = find_places(step, group, step.peer[operations])
    distance -= find_places(step, group, step.rank[operations])
    is_ahead = np.zeros(len(seats.nodes.how), np.bool_)
    closes_chain = (distance == 1 - n_members) & (n_members > 2)
    is_ahead[folded.nodes[rows]] = (distance == 1) | closes_chain
    return is_ahead


def _list_uses(
    seats: Seats, node_of_round: Ints, facing: Facing, is_turned: NDArray[np.bool_]
) -> Uses:
    """List the uses of communications that are done alike, ``node_of_round[row, round]``.

    All rows have as many members: the one at a place faces, where it transmits (side 0) and where
    it receives (side 1), the member at the place ``facing[round, side, lane, place]``. Sender and
    receiver of a message with ``is_turned[node]`` change places: it goes over the circuit from its
    receiver to its sender.
    """
    # ``member[row, place]`` is the seat of a member; of a group that joins all replicas there are
    # only the members in one of them. The members of node k stand in one array from
    # ``first_member[k]`` on.
    communications = node_of_round[:, 0]
    n_members = int(seats.n_members[communications[0]])
    entry = seats.nodes.first_member[communications][:, None] + np.arange(n_members)
    turned = is_turned[communications]
    entry[turned] = entry[turned, ::-1]
    member = seats.nodes.member[entry]

    # Which place each place faces, for each round, side and lane. With 4 members in each of two
    # replicas, place 3 faces place 4 of the group, which is place 0 one replica further on. The
    # rows of the result go through the communications, and for each of them through all of this.
    round_number, side, lane, place = np.nonzero(facing[..., :n_members] != IDLE)
    replica, faced = np.divmod(facing[round_number, side, lane, place], n_members)
    return Uses(
        node=node_of_round[:, round_number].ravel(),
        end=(2 * member[:, place] + side).ravel(),
        lane=np.tile(lane, len(communications)),
        peer=(member[:, faced] + seats.n_seats * replica).ravel(),
        rails=np.repeat(seats.set_of_node[communications], len(place)),
        operation=seats.row[entry][:, place].ravel(),
    )
