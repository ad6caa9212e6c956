"""Bases: the circuits that a rail holds unless something else is worth a change.

Words of this module:

Seat
    A GPU of the one rail that stands for all rails that are alike
    (`optmatch.solvers.rails.seats`).
Component
    Seats that communicate with each other, directly or through others; named by its least seat.
Family
    Groups of one kind, as all groups of data parallelism: an array of shape (2, seats) with, by
    seat, the number of its group and its place there, -1 if it is in none.
Order
    A permutation of all seats.
Cut
    A number for each seat: seats of one number form one cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, permutations
from math import factorial

import numpy as np

from optmatch.solvers.kernels.decorators import kernel
from optmatch.solvers.rails.paths import Ints
from optmatch.solvers.rails.seats import Seats

_MOST_RINGS = 24
"""All orders of so few rings are listed: those of up to five seats. Six seats have 120 rings,
which would take most of the work of a short search."""
_N_RANDOM = 2
"""How many orders are drawn at random, with a fixed seed. They are for groups that fit into no
grid; more of them would take trials from the search, which changes orders at random as well."""


def list_components(seats: Seats) -> Ints:
    """List by seat the least seat that it communicates with, directly or through others."""
    n_members = np.diff(seats.begin)
    node_of_member = np.repeat(np.arange(len(n_members)), n_members)
    return _join(len(seats.rail), seats.member, node_of_member)


def _join(n: int, member: Ints, owner: Ints) -> Ints:
    """Find by each of `n` members the least one that it is joined to, by connected components.

    ``owner[k]`` owns ``member[k]``, and members of one owner are joined: with the owners of 0, 1
    and of 1, 2 all three get 0. Labels are propagated with pointer jumping.
    """
    least = np.arange(n)
    former = np.arange(0)
    while not np.array_equal(least, former):
        former = least

        # Each owner takes the least number of its members, and each member that of its owners.
        lowest = np.full(int(owner.max(initial=-1)) + 1, n)
        np.minimum.at(lowest, owner, least[member])
        least = least.copy()
        np.minimum.at(least, member, lowest[owner])

        # Numbers are followed one step further (pointer jumping): few rounds even on long chains.
        least = least[least]
    return least


def list_families(seats: Seats) -> list[Ints]:
    """List the groups on rails by their names up to the last dot, those with most traffic first.

    A family is a table ``[2, seats]``: the number of the group of each seat, and its place in it;
    -1 if it is in none.
    """
    step = seats.job.step()
    folded = seats.folded

    # Bytes and groups of each name; a dictionary keeps groups in the order of the step.
    traffic: dict[str, float] = {}
    groups: dict[str, dict[int, None]] = {}
    riding = seats.riding
    group_of_node = step.group[folded.part[riding]].tolist()
    for group, sent_bytes in zip(group_of_node, seats.bytes_sent[riding].tolist(), strict=True):
        name = step.groups[group].name.rpartition(".")[0] or step.groups[group].dimension
        traffic[name] = traffic.get(name, 0.0) + sent_bytes
        groups.setdefault(name, {})[group] = None

    # A table for each name. Where a seat is in two groups of a name, the later one stays.
    families = []
    for name in sorted(traffic, key=lambda name: (-traffic[name], name)):
        table = np.full((2, len(seats.rail)), -1)
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

    These are grids of two families, rows of groups, spread groups, and all or a few random orders.
    """
    seen = set()
    n_seats = len(seats.rail)
    for order in chain(
        _list_grids(families, n_seats),
        _list_rows(seats),
        _list_spread(families, n_seats),
        _list_others(n_seats),
    ):
        if order.tobytes() not in seen:
            seen.add(order.tobytes())
            yield order


def _list_grids(families: Sequence[Ints], n_seats: int) -> Iterator[Ints]:
    """List orders in which groups of one family stand one after another.

    Each family is a table of `list_families`, and each order lists all seats. They are sorted by
    their places in a second family, also with every second group turned around (boustrophedon),
    and each backwards.
    """
    seat = np.arange(n_seats)
    for chosen in permutations(families[:3], min(2, len(families))):
        for snake in (False, True):
            # Groups of the outer family stand one after another, in the order of their places in
            # the inner one; members stand as in their group, in every second group turned around
            # if it is a snake. The last key of a lexsort counts first. With one family alone each
            # seat is an inner group of its own.
            outer = chosen[0]
            inner = np.stack([seat, seat])
            if len(chosen) > 1:
                inner = chosen[1]
            within = np.where(outer[1] >= 0, outer[1], seat)
            if snake:
                within = np.where(outer[0] % 2 == 1, -within, within)
            order = np.lexsort([seat, inner[0], within, _rank_groups(outer[0], inner[1])])
            yield order
            yield order[::-1].copy()


def _list_spread(families: Sequence[Ints], n_seats: int) -> Iterator[Ints]:
    """List orders of blocks in which each group of one family has one member in each.

    Each family is a table of `list_families`, and each order lists all seats. A block is the
    members of a second family that share a place. With groups 0 1 and 2 3, and blocks 0 2 and 1 3,
    the order is 0 2 1 3.
    """
    seat = np.arange(n_seats)
    for first, second in permutations(families[:3], 2):
        n_groups = int(first[0].max()) + 1
        n_blocks = int(first[1].max()) + 1
        if n_groups == 1 or n_blocks == 1:
            continue

        # A member at place p of a group that begins in block b goes into block b + p. Few groups
        # begin further apart, so that those of the second family are still everywhere.
        begin = _rank_groups(first[0], second[1]) * max(1, n_blocks // n_groups)
        block = (begin + np.maximum(first[1], 0)) % n_blocks
        yield np.lexsort([seat, begin, block])


def _list_others(n_seats: int) -> Iterator[Ints]:
    """List all orders of few seats up to rotation, else a few random ones."""
    if n_seats < 2:
        return
    if n_seats <= _MOST_RINGS and factorial(n_seats - 1) <= _MOST_RINGS:
        for order in permutations(range(1, n_seats)):
            yield np.array([0, *order])
        return
    rng = np.random.default_rng(0)
    for _ in range(_N_RANDOM):
        yield rng.permutation(n_seats)


def _list_rows(seats: Seats) -> Iterator[Ints]:
    """List orders by the numbers of seats, and by the groups of each dimension.

    Every second group, or all of them, may be turned around.
    """
    step = seats.job.step()
    first_rank = np.array(seats.folded.first)
    yield np.arange(len(first_rank))

    # The dimension of a group is its name up to the first dot, as dp of dp.0.
    dimension_of_group = [group.name.partition(".")[0] for group in step.groups]
    on_rails = {
        dimension
        for group, dimension in zip(step.groups, dimension_of_group, strict=True)
        if group.rail >= 0
    }
    for dimension in sorted(on_rails):
        groups = [
            group.ranks
            for group, name in zip(step.groups, dimension_of_group, strict=True)
            if name == dimension
        ]

        # Groups of even or odd number, of neither or of both are turned around.
        for turned in ((), (1,), (0,), (0, 1)):
            rows = [list(ranks) for ranks in groups]
            for number, row in enumerate(rows):
                if number % 2 in turned:
                    row.reverse()

            # Ranks in no group of the dimension have place -1 and come first.
            ranks_in_order = np.concatenate(rows)
            place = np.full(step.n_ranks, -1)
            place[ranks_in_order] = np.arange(len(ranks_in_order))
            yield np.argsort(place[first_rank], kind="stable")


def _rank_groups(group: Ints, place: Ints) -> Ints:
    """Rank by seat its group, by the least place that its members have in another family.

    Seats in no group come last.
    """
    n = int(group.max(initial=-1)) + 1

    # The last entry is that of seats in no group, which have number -1.
    least = np.full(n + 1, len(group))
    np.minimum.at(least, group, place)

    # ``least[group]`` is the least place of its members; of equal ones the lower group is first.
    # The lexsort lists the groups in this order, and the argsort inverts it: by group its rank.
    rank = np.argsort(np.lexsort([np.arange(n), least[:n]]))
    return np.append(rank, n)[group]


def close_rings(order: Ints, component: Ints) -> Ints:
    """Make the ring of an order and a cut.

    The result is by seat the next one of its component in the order, -1 if it is alone. With the
    order 2, 0, 3, 1 and the components 0, 0, 2, 2 it is 1, 0, 3, 2.
    """
    base = np.empty(len(order), np.int64)
    _close(order, component, base, np.empty_like(base), np.empty_like(base))
    return base


@kernel
def _close(order, component, base, first, last):
    """Write ``base[seat]``, the next seat of the same component in the order.

    `first` and `last` are scratch, the first and the last seat of each component so far.
    """
    base[:] = -1
    first[:] = -1

    # Each seat follows the one of its component that came last in the order; the last one leads
    # back to the first one.
    for seat in order:
        c = component[seat]
        if first[c] < 0:
            first[c] = seat
        else:
            base[last[c]] = seat
        last[c] = seat
    for c in range(len(first)):
        if first[c] >= 0 and first[c] != last[c]:
            base[last[c]] = first[c]


def list_cuts(component: Ints, families: Sequence[Ints]) -> list[Ints]:
    """List different cuts by the families that they join, all that communicate last.

    With rows and columns of a grid these are rows, columns, and all.
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

    Seats in no such group join the first seat of their component that is in one.
    """
    n = len(component)

    # Groups of all families are owners, each with a number of its own: ``family * n + group``, as
    # a family has at most n groups.
    family, member = np.nonzero(np.array([group for group, _ in families]) >= 0)
    group = np.array([group for group, _ in families])[family, member]
    least = _join(n, member, family * n + group)

    # Seats that nobody shares a group with join the first seat of their component that is not
    # alone; they stay alone if there is none.
    alone = np.bincount(least, minlength=n)[least] == 1
    for seat in np.flatnonzero(alone):
        joined_seats = np.flatnonzero((component == component[seat]) & ~alone)
        if len(joined_seats):
            least[seat] = least[joined_seats[0]]
    return least
