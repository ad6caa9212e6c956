"""Bases: the circuits that a rail holds unless something else is worth a change.

A *seat* is one GPU of the rail that stands for all rails that are alike. Words of this module:

Component
    Seats that communicate with each other, directly or through others; named by its least seat.
Family
    Groups of one kind, as all groups of data parallelism: an array of shape (2, seats) with, by
    seat, the number of its group and its place there, -1 if it is in none.
Order
    A permutation of all seats: ``order[place]`` is the seat that stands at a place.
Cut
    A number for each seat: seats of one number form one cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, permutations
from math import factorial

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.rails.training.arrays import join_members
from optmatch.solvers.rails.paths import Ints
from optmatch.solvers.rails.seats import Seats

_MOST_RINGS = 24
"""All orders of so few rings are listed: those of up to five seats. Six seats have 120 rings,
which would take most of the work of a short search."""
_N_RANDOM = 2
"""How many orders are drawn at random, with a fixed seed. They are for groups that fit into no
grid; more of them would take trials from the search, which changes orders at random as well."""


def list_components(seats: Seats, joins: NDArray[np.bool_] | None = None) -> Ints:
    """List ``component[seat]``: the least seat that a seat communicates with, or itself.

    Seats may communicate directly or through others. Only nodes with ``joins[node]`` count; all do
    if it is None.

    Example: of five seats, 1 and 3 communicate, and 3 and 4. The result is 0, 1, 2, 1, 1.
    """
    node_of_member = np.repeat(np.arange(len(seats.nodes.how)), seats.n_members)
    member = seats.nodes.member
    if joins is not None:
        member = member[joins[node_of_member]]
        node_of_member = node_of_member[joins[node_of_member]]
    return join_members(seats.n_seats, member, node_of_member)


def list_families(seats: Seats) -> list[Ints]:
    """List the groups on rails by their names up to the last dot, those with most traffic first.

    A family is a table ``[2, seats]``: the number of the group of each seat, and its place in it;
    -1 if it is in none.

    Example: the groups dp.0 of the seats 0 and 2 and dp.1 of the seats 1 and 3 have the table 0 1
    0 1 (groups) and 0 0 1 1 (places).
    """
    step = seats.job.step()
    folded = seats.folded

    # Bytes and groups of each name, groups in the order of their first nodes.
    traffic: dict[str, float] = {}
    groups: dict[str, list[int]] = {}
    riding = seats.riding
    group_of_node = step.group[folded.part[riding]]
    bytes_of_group = np.bincount(group_of_node, seats.nodes.bytes_sent[riding])
    listed, first_node = np.unique(group_of_node, return_index=True)
    for group in listed[np.argsort(first_node)].tolist():
        name = step.groups[group].name.rpartition(".")[0] or step.groups[group].dimension
        traffic[name] = traffic.get(name, 0.0) + float(bytes_of_group[group])
        groups.setdefault(name, []).append(group)

    # A table for each name. Where a seat is in two groups of a name, the later one stays.
    families = []
    for name in sorted(traffic, key=lambda name: (-traffic[name], name)):
        table = np.full((2, seats.n_seats), -1)
        for number, group in enumerate(groups[name]):
            # A group that goes around all replicas has the same seats in each.
            members = folded.class_of[[*step.groups[group].ranks]]
            _, first = np.unique(members, return_index=True)
            members = members[np.sort(first)]
            table[0, members] = number
            table[1, members] = np.arange(len(members))
        families.append(table)
    return families


def list_orders(seats: Seats, families: Sequence[Ints]) -> Iterator[Ints]:
    """List orders of all seats, each once.

    Which orders are good depends on who communicates. `families` are those of `list_families`;
    say, the rows 0 1 2 and 3 4 5 of six seats, and the columns 0 3, 1 4 and 2 5:

    - members of one group stand together, as 0 1 2 3 4 5 for the rows (`_list_grids`);
    - seats by number, as the job lists them;
    - members of one group stand far apart: 0 5 1 3 2 4 (`_list_spread`);
    - orders without a rule: all of few seats, else two random ones (`_list_others`).
    """
    seen = set()
    n_seats = seats.n_seats
    for order in chain(
        _list_grids(families, n_seats),
        [np.arange(n_seats)],
        _list_spread(families, n_seats),
        _list_others(n_seats),
    ):
        if order.tobytes() not in seen:
            seen.add(order.tobytes())
            yield order


def _list_grids(families: Sequence[Ints], n_seats: int) -> Iterator[Ints]:
    """List orders in which groups of one family stand one after another.

    In each result ``order[place]`` is a seat. Groups are sorted by their places in a second
    family, also with every second group turned around (boustrophedon), and each backwards. The
    groups 0 1 and 2 3 give 0 1 2 3 and 3 2 1 0, then 0 1 3 2 and 2 3 1 0. Each pair of the first
    three of `families`, which have the most traffic, is taken both ways.
    """
    seat = np.arange(n_seats)
    for chosen in permutations(families[:3], min(2, len(families))):
        for snake in (False, True):
            # Row 0 of a family has by seat the number of its group, row 1 its place in it. With
            # one family alone each seat counts as an inner group of its own.
            outer = chosen[0]
            inner = np.stack([seat, seat])
            if len(chosen) > 1:
                inner = chosen[1]

            # Seats are sorted by outer group, these by their places in the inner family; then by
            # place in the outer group, backwards in every second group of a snake; and then by
            # inner group and number. The last key of `lexsort` counts first.
            within = np.where(outer[1] >= 0, outer[1], seat)
            if snake:
                within = np.where(outer[0] % 2 == 1, -within, within)
            order = np.lexsort([seat, inner[0], within, _rank_groups(outer[0], inner[1])])
            yield order
            yield order[::-1].copy()


def _list_spread(families: Sequence[Ints], n_seats: int) -> Iterator[Ints]:
    """List orders of blocks, each with one member of every group of one family.

    In each result ``order[place]`` is a seat. Each group begins in another block, so that the
    groups of a second family are spread over the blocks as well. With the groups 0 1 2, 3 4 5 and
    6 7 8, and 0 3 6, 1 4 7 and 2 5 8 as the second family, the blocks are 0 5 7, 1 3 8 and 2 4 6.
    """
    seat = np.arange(n_seats)
    for first, second in permutations(families[:3], 2):
        # A family with one group, or with groups of one member, has nothing to spread.
        n_groups = int(first[0].max()) + 1
        n_blocks = int(first[1].max()) + 1
        if n_groups == 1 or n_blocks == 1:
            continue

        # A member at place p of a group that begins in block b goes into block b + p, in a circle.
        # Groups begin in the order of their places in the second family, one block apart or, if
        # they are few, further: 2 groups of 6 members begin in the blocks 0 and 3.
        begin = _rank_groups(first[0], second[1]) * max(1, n_blocks // n_groups)
        block = (begin + np.maximum(first[1], 0)) % n_blocks
        yield np.lexsort([seat, begin, block])


def _list_others(n_seats: int) -> Iterator[Ints]:
    """List all orders of few seats up to rotation, else a few random ones; none of one seat."""
    if n_seats < 2:
        return

    # The rings of five seats are the 24 orders of the other four behind seat 0. The first test
    # keeps the factorial small.
    if n_seats <= _MOST_RINGS and factorial(n_seats - 1) <= _MOST_RINGS:
        for order in permutations(range(1, n_seats)):
            yield np.array([0, *order])
        return
    rng = np.random.default_rng(0)
    for _ in range(_N_RANDOM):
        yield rng.permutation(n_seats)


def _rank_groups(group: Ints, place: Ints) -> Ints:
    """Rank by seat its group, by the least place that its members have in another family.

    ``group[seat]`` is the number of a group of one family, -1 in none, and ``place[seat]`` the
    place in a group of the other one. All members of a group get its rank, from 0; seats in no
    group come last. With the groups 0, 0, 1, 1 and the places 2, 3, 1, 0 the least places are 2
    and 0, and the ranks 1, 1, 0, 0.
    """
    n = int(group.max(initial=-1)) + 1

    # By group the least place of its members; the last entry is that of seats in no group, which
    # have number -1.
    least = np.full(n + 1, len(group))
    np.minimum.at(least, group, place)

    # Groups are ranked by it; of equal ones the lower group is first. The lexsort lists the groups
    # in this order, and the argsort inverts it: by group its rank.
    rank = np.argsort(np.lexsort([np.arange(n), least[:n]]))
    return np.append(rank, n)[group]


def close_ring(order: Ints, cycle: Ints) -> Ints:
    """Make the ring of an order and a cut: ``circuit[seat]``, -1 if it is alone on its cycle.

    ``order[place]`` is a seat, ``cycle[seat]`` the number of its cycle. With the order 0, 2, 1, 3,
    4 and seats 0, 1 and 2 on one cycle, circuits lead from 0 to 2, from 2 to 1, and from 1 back to
    0. Replicas are copies of all n seats on other GPUs. A cycle with a number below n stays in
    each of them; one with a number from n on joins them all: its last seat leads to the first one,
    s, of the next replica, and this circuit is written s + n: 1 leads to 0 + 5 = 5 then.
    """
    # Seats by cycle, and on a cycle as they stand in the order: each leads to the one after it.
    by_cycle = order[np.argsort(cycle[order], kind="stable")]
    circuit = np.empty(len(order), np.int64)
    circuit[by_cycle] = np.roll(by_cycle, -1)

    # The last one of a cycle leads back to the first, or to that of the next replica. One that is
    # alone leads nowhere, or to itself there.
    first = np.flatnonzero(np.diff(cycle[by_cycle], prepend=-1))
    last = np.append(first[1:], len(order)) - 1
    first_seat = by_cycle[first]
    back = np.where(first == last, -1, first_seat)
    crosses = cycle[first_seat] >= len(order)
    circuit[by_cycle[last]] = np.where(crosses, first_seat + len(order), back)
    return circuit


def list_cuts(component: Ints, families: Sequence[Ints]) -> list[Ints]:
    """List different cuts: each joins the seats that share groups of some families.

    In a cut ``cut[seat]`` is the least seat that a seat is joined to. One family is taken at a
    time, then two, and so on. The last cut is `component`, by seat the least one that it
    communicates with, directly or through others. With rows and columns of a grid the cuts are
    rows, columns, and all: for groups 0 1 and 2 3 and groups 0 2 and 1 3 these are 0 0 2 2, then
    0 1 0 1, and 0 0 0 0.
    """
    cuts: dict[bytes, Ints] = {}
    for n_chosen in range(1, len(families) + 1):
        # A dictionary keeps each cut once, in the order in which cuts are found.
        for chosen in combinations(families, n_chosen):
            cut = _join_groups(component, chosen)
            cuts.setdefault(cut.tobytes(), cut)
    cuts.pop(component.tobytes(), None)
    return [*cuts.values(), component]


def _join_groups(component: Ints, families: Sequence[Ints]) -> Ints:
    """Join the seats that share groups of some families, directly or through others.

    ``family[0, seat]`` is the number of a group, -1 in none, and ``component[seat]`` the least
    seat that it communicates with. The result is ``least[seat]``, the least seat that it is joined
    to: 0 0 2 2 for the groups 0 1 and 2 3. Seats in no such group join the first seat of their
    component that is in one.
    """
    n = len(component)

    # ``join_members`` joins the members of each group, which has a number of its own among those
    # of all families: ``family * n + group``, as a family has at most n groups.
    family, member = np.nonzero(np.array([group for group, _ in families]) >= 0)
    group = np.array([group for group, _ in families])[family, member]
    least = join_members(n, member, family * n + group)

    # Seats that nobody shares a group with join the first seat of their component that is not
    # alone; they stay alone if there is none.
    alone = np.bincount(least, minlength=n)[least] == 1
    for seat in np.flatnonzero(alone):
        joined_seats = np.flatnonzero((component == component[seat]) & ~alone)
        if len(joined_seats):
            least[seat] = least[joined_seats[0]]
    return least
