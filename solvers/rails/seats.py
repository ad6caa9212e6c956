"""A step folded rail by rail: one rail of equals, on which every GPU stands for itself.

A *seat* is a class of ranks: the GPU of one number on each of some rails that are alike and, of a
large job, in all replicas (`optmatch.solvers.rails.replicas`). A *node* is a computation of a
seat, or a communication whose *members* are seats; it *rides* a rail, or needs none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import ranks_of_rails
from optmatch.problems.rails.training.step import (
    ALL_TO_ALL,
    RECV,
    SCALE_UP,
    SEND,
    count_messages,
    ring_bytes,
)
from optmatch.problems.rails.training.times import durations_s, pick_ranks
from optmatch.solvers.rails.decoder import EXCHANGE, MESSAGE, NO_RAIL, RING, StepNodes
from optmatch.solvers.rails.fold import Folded, find_places, fold
from optmatch.solvers.rails.paths import Ints
from optmatch.solvers.rails.replicas import find_replicas, keep_whole


class AlikeRails(NamedTuple):
    """Rails whose GPUs of one number do the same; GPUs are counted on their rail."""

    rails: tuple[int, ...]
    """The rails, ascending."""
    seat: Ints
    """``seat[gpu]``: the seat that a GPU is one of."""
    replica: Ints
    """``replica[gpu]``: the replica that it is in. Each seat is there once in each replica."""


class Seats(NamedTuple):
    """The nodes of a step that is folded rail by rail: ranks that do the same are one seat."""

    job: RailJob
    """The job whose step it is."""
    folded: Folded
    """Its step, folded so that each class of ranks is a seat."""
    nodes: StepNodes
    """Its nodes."""
    row: Ints
    """``row[place]``: the row in `Folded.own` of the operation of ``nodes.member[place]``."""
    n_replicas: int
    """How many replicas there are: 1 if the job is not split."""
    rails: tuple[AlikeRails, ...]
    """All rails, in sets of rails that are alike; no two sets share a seat, unless a rank has
    ports on several rails."""
    set_of_node: Ints
    """``set_of_node[node]``: the place in `rails` of the rails that it rides, -1 if none."""
    rail_of: Ints
    """By rank: its rail, -1 if none; the last one if it has ports on several."""
    replica_of: Ints
    """By rank: its replica."""

    @property
    def n_seats(self) -> int:
        """How many seats there are."""
        return len(self.folded.first)

    @property
    def riding(self) -> Ints:
        """The nodes that ride a rail."""
        return np.flatnonzero(self.nodes.how != NO_RAIL)

    @property
    def n_members(self) -> Ints:
        """By node, how many members it has: 0 if it rides no rail."""
        return np.diff(self.nodes.first_member)


def seat_ranks(job: RailJob) -> Seats:
    """Fold a step into seats (`_seat_ranks`); the job keeps the answer for its network."""
    return job.once(("seats", job.network), lambda: _seat_ranks(job))


def _seat_ranks(job: RailJob) -> Seats:
    """Fold a step so that ranks with one number on rails that are alike are one seat.

    Every communication of a set of alike rails is then one node, whose members are seats; the
    search times nodes and seats, and its answer is copied to all rails of the set. With 8 rails of
    16 GPUs that do the same, one ring all-reduce on each rail, which is 128 operations of as many
    ranks, becomes one node with 16 members. Durations are worked out for the first rank of each
    seat alone.

    In large jobs the ranks of replicas are folded, too; if replicas turn out to do different
    things, the job is folded as a whole.
    """
    step = job.step()

    # By rank its rail and its number there, in the order of the ranks on the rail. All ranks are
    # on one rail if no later rail has written over an earlier one.
    number_of_rank = np.full(step.n_ranks, -1)
    rail_of_rank = np.full(step.n_ranks, -1)
    ranks_on_rail = ranks_of_rails(step)
    for rail, ranks in ranks_on_rail.items():
        number_of_rank[ranks] = np.arange(len(ranks))
        rail_of_rank[ranks] = rail
    is_on_one_rail = all(
        (rail_of_rank[ranks] == rail).all() for rail, ranks in ranks_on_rail.items()
    )

    # Ranks become one seat if they have the same number on rails that are alike. They are told
    # apart by labels (`_describe_ranks`): bytes of this number, and of the numbers of the members
    # of their groups. A rank of another replica is labelled with the number of the rank at its
    # place in replica 0, ``replicas.first[rank]``: all replicas are folded into that one. If some
    # rank has ports on several rails, each rank has a number of its own, and no two are one seat.
    replicas = find_replicas(job)
    if not is_on_one_rail:
        number_of_rank = np.arange(step.n_ranks)
    folded = _fold_by_rail(job, _describe_ranks(job, number_of_rank[replicas.first]))
    is_alike = folded.class_of == folded.class_of[replicas.first]
    if not is_alike.all() or replicas.number[[*folded.first]].any():
        # Replicas do not do the same after all: a rank is of another class than the one at its
        # place in replica 0, or the first rank of a class is in another replica.
        replicas = keep_whole(job)
        folded = _fold_by_rail(job, _describe_ranks(job, number_of_rank))

    # Rails are alike if they have the same seats in the same order; two rails with the same ranks
    # are not, as each has circuits of its own.
    rails_of_seats: dict[bytes, list[int]] = {}
    for rail, ranks in ranks_on_rail.items():
        description = folded.class_of[ranks].tobytes()
        if not is_on_one_rail:
            description = b"%d" % rail
        rails_of_seats.setdefault(description, []).append(rail)
    alike = []
    set_of_rail = {SCALE_UP: -1}
    for number, rails in enumerate(rails_of_seats.values()):
        ranks = ranks_on_rail[rails[0]]
        alike.append(AlikeRails(tuple(rails), folded.class_of[ranks], replicas.number[ranks]))
        set_of_rail |= dict.fromkeys(rails, number)

    # By node its kind, its number of members and its duration, read from one of its operations,
    # ``folded.part[node]``. Durations are worked out only for the first rank of each seat, whose
    # operations in the whole step are `own_operations`, ascending.
    first_operation = folded.part
    few_ranks, own_operations = pick_ranks(step, folded.first)
    duration_s = durations_s(few_ranks, job.network, job.collectives)
    kind = step.kind[first_operation].astype(np.int64)
    # A computation has group -1, which reads the last entry.
    group_sizes = np.array([*(len(group.ranks) for group in step.groups), 1])
    n_members = group_sizes[step.group[first_operation]]
    rides = step.rail[first_operation] >= 0

    # Bytes around a ring, and how a node goes: an all-to-all of two members is a ring.
    bytes_sent = ring_bytes(kind, step.size_bytes[first_operation], n_members)
    how = np.where(kind >= SEND, MESSAGE, RING)
    how = np.where((kind == ALL_TO_ALL) & (n_members > 2), EXCHANGE, how)

    # Members of each node: each operation of a node is that of one member. A member has a place:
    # its position in the group, and in a message 0 for the sender and 1 for the receiver.
    # Operations on rails, sorted by node and then by place, are the members of all nodes one after
    # another.
    rows = np.flatnonzero(step.rail[folded.own] >= 0)
    operations = folded.own[rows]
    node_of_row = folded.nodes[rows]
    place = np.where(
        step.kind[operations] >= SEND,
        step.kind[operations] == RECV,
        find_places(step, step.group[operations].astype(np.int64), step.rank[operations]),
    )
    order = np.lexsort([place, node_of_row])
    seat_of_row = folded.class_of[step.rank[operations]]
    n_nodes = len(first_operation)
    n_members_here = np.bincount(node_of_row, minlength=n_nodes)

    # Node ``before[pair]`` is waited for by ``after[pair]``. Sorted by the former, all that wait
    # for a node stand together.
    before, after = folded.pairs.T
    by_predecessor = np.argsort(before, kind="stable")
    nodes = StepNodes(
        duration_s=duration_s[np.searchsorted(own_operations, first_operation)],
        bytes_sent=np.where(rides, bytes_sent, 0.0),
        latency_s=count_messages(kind, n_members) * job.network.latency_on_rails_s,
        crosses=replicas.crosses[step.group[first_operation]],
        how=np.where(rides, how, NO_RAIL).astype(np.int8),
        first_member=np.append(0, np.cumsum(n_members_here)),
        member=seat_of_row[order],
        first_successor=np.searchsorted(before[by_predecessor], np.arange(n_nodes + 1)),
        successor=after[by_predecessor],
        n_predecessors=np.bincount(after, minlength=n_nodes),
    )
    return Seats(
        job=job,
        folded=folded,
        nodes=nodes,
        row=rows[order],
        n_replicas=replicas.n_all,
        rails=tuple(alike),
        set_of_node=np.array([set_of_rail[rail] for rail in step.rail[first_operation].tolist()]),
        rail_of=rail_of_rank,
        replica_of=replicas.number,
    )


def _fold_by_rail(job: RailJob, labels: list[bytes]) -> Folded:
    """Fold a step, and split seats until all ranks of a seat are on rails with the same seats.

    Ranks with different ``labels[rank]`` never become one seat. If a rail has the seats 0 and 1,
    and another one the seats 0 and 2, the ranks of seat 0 on the one rail become another seat than
    those on the other.
    """
    ranks_on_rail = ranks_of_rails(job.step())
    while True:
        folded = fold(job, labels)

        # Rails with the same seats in the same order are of one class. Classes are numbered as
        # they appear; a rank has the class of its rail, -1 on no rail.
        class_of_seats: dict[bytes, int] = {}
        rail_class_of_rank = np.full(len(folded.class_of), -1)
        for ranks in ranks_on_rail.values():
            seats = folded.class_of[ranks].tobytes()
            rail_class_of_rank[ranks] = class_of_seats.setdefault(seats, len(class_of_seats))

        # If all ranks of each seat are on rails of one class, there are as many different pairs of
        # a seat and a class as there are seats: this is the answer.
        pairs = {*zip(folded.class_of.tolist(), rail_class_of_rank.tolist(), strict=True)}
        if len(pairs) == len(folded.first):
            return folded

        # Otherwise the class becomes part of the label of a rank, which splits such seats. That
        # may make rails differ that were of one class: the step is folded and looked at once more.
        numbered = zip(labels, rail_class_of_rank.tolist(), strict=True)
        labels = [label + b"%d " % number for label, number in numbered]


def _describe_ranks(job: RailJob, number_of_rank: Ints) -> list[bytes]:
    """Describe each rank by its number on its rail, and those of the members of its groups.

    ``number_of_rank[rank]`` is this number, -1 for a rank on no rail. Ranks get equal bytes if all
    of these numbers agree; groups beside rails do not count.

    Example: two ranks that have number 3 on their rails, each in a group of the numbers 2 and 3,
    get equal bytes.
    """
    step = job.step()
    descriptions = [number_of_rank[rank].tobytes() for rank in range(step.n_ranks)]
    for group in step.groups:
        if group.rail >= 0:
            members = number_of_rank[[*group.ranks]].astype(np.int32).tobytes()
            for rank in group.ranks:
                descriptions[rank] += members
    return descriptions
