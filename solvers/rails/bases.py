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
    """Find which GPUs communicate with each other, directly or through others.

    A *seat* is a GPU of the one rail that stands for all rails that are alike. Seats that
    communicate form a component, which is named by its least seat. If seats 0 and 2 communicate, 2
    and 3, and 1 with nobody, the components of seats 0 to 3 are 0, 1, 0, 0 (connected components).

    Parameters
    ----------
    seats
        The folded step: communication k has the seats ``member[begin[k]:begin[k + 1]]``.

    Returns
    -------
    int array, shape (seats,)
        By seat its component.
    """
    n_members = np.diff(seats.begin)
    node_of_member = np.repeat(np.arange(len(n_members)), n_members)
    return _join(len(seats.rail), seats.member, node_of_member)


def _join(n: int, member: Ints, owner: Ints) -> Ints:
    """Join seats that have an owner in common, directly or through others (connected components).

    With owners 0: seats 0 and 2, and 1: seats 2 and 3, the answer for four seats is 0, 1, 0, 0.

    Parameters
    ----------
    n
        The number of seats.
    member, owner
        Pairs: ``member[k]`` is a seat of ``owner[k]``, which is any number from 0 on, as of a
        communication or a group; shape (pairs,) each.

    Returns
    -------
    int array, shape (n,)
        By seat the least seat that it is joined with.
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
    """List the kinds of groups: for each kind, in which group each GPU is, and at which place.

    A *seat* is a GPU of the one rail that stands for all that do the same. Groups whose names
    agree up to the last dot are one kind, a *family*, as dp.0 and dp.1. A pipeline counts as a
    group; its members stand in the order of its messages.

    Parameters
    ----------
    seats
        The folded step.

    Returns
    -------
    list of int array, shape (2, seats)
        A table for each family, the one that sends most bytes first. Row 0 has by seat the number
        of its group in the family, row 1 its place in that group; -1 for seats in none. With the
        groups dp.0 of seats 0 and 1, and dp.1 of seats 2 and 3, the rows are 0 0 1 1 and 0 1 0 1.
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
            members = folded.class_of[[*step.groups[group].ranks]]
            table[0, members] = number
            table[1, members] = np.arange(len(members))
        families.append(table)
    return families


def list_orders(seats: Seats, families: Sequence[Ints]) -> Iterator[Ints]:
    """List orders of all GPUs of a rail that are likely to make good rings of circuits.

    A ring leads from each GPU to the next one in an order. First come orders in which members of
    groups stand together, then orders in which they are far apart. If the rail has few GPUs all
    other orders follow, else two orders that are drawn at random. A GPU of the rail is called a
    *seat*.

    Parameters
    ----------
    seats
        The folded step.
    families
        The kinds of groups, as all of data parallelism: ``families[k][0, seat]`` is the group of a
        seat and ``families[k][1, seat]`` its place there, -1 if it is in none.

    Yields
    ------
    int array, shape (seats,)
        Orders, each with all seats once; none is repeated.
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
    """List orders of all GPUs of a rail in which members of groups stand side by side.

    Two kinds of groups, as those of data and of tensor parallelism, make a grid: groups of one
    kind are its rows, those of the other its columns. Listed are the rows one after another, and
    the columns one after another. Each is also listed as a snake, in which every second row is
    turned around. All of these are also listed backwards.

    With the rows 0 1 2 and 3 4 5, the orders are 0 1 2 3 4 5 and the snake 0 1 2 5 4 3; by columns
    0 3 1 4 2 5 and the snake 0 3 4 1 2 5; and all four backwards.

    Parameters
    ----------
    families
        The kinds of groups: ``families[k][0, seat]`` is the group of a seat (a GPU of the rail),
        and ``families[k][1, seat]`` its place there, -1 if it is in none. The first three are
        combined by two.
    n_seats
        How many seats there are.

    Yields
    ------
    int array, shape (seats,)
        Orders, each with all seats once; some may be the same.
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
    """List orders of all GPUs of a rail in which the members of each group are evenly far apart.

    A collective around a ring takes the latency of its longest way from one member to the next.
    Members that stand side by side have one very long way, from the last of them back to the
    first: among 64 GPUs a group of 8 has a way of 57 hops. If every eighth GPU is a member, all
    ways are 8 hops.

    In a grid whose rows 0 1 2, 3 4 5 and 6 7 8 are groups of one kind, and whose columns are
    groups of another kind, the order is 0 5 7 1 3 8 2 4 6. Members of a row are three to four
    places apart, and so are those of a column, as 0, 3 and 6 at the places 0, 4 and 8.

    Parameters
    ----------
    families
        The kinds of groups: ``families[k][0, seat]`` is the group of a seat (a GPU of the rail),
        and ``families[k][1, seat]`` its place there, -1 if it is in none. The first three are
        combined by two.
    n_seats
        How many seats there are.

    Yields
    ------
    int array, shape (seats,)
        Orders, each with all seats once. An order is made of blocks, as many as a group of the
        first kind has members, with one member of each group in each block. Groups begin in
        different blocks, so that groups of the second kind are spread over the blocks as well.
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
    """List orders of all seats without regard to groups: all of few seats, else random ones.

    Parameters
    ----------
    n_seats
        How many seats (GPUs of a rail) there are.

    Yields
    ------
    int array, shape (seats,)
        All orders that begin with seat 0 if they are no more than `_MOST_RINGS`, as where a ring
        begins makes no difference; else `_N_RANDOM` random orders, always the same ones.
    """
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
    """List orders of all GPUs of a rail in which groups stand one after another, turned or not.

    A ring of circuits leads from each GPU to the next one in an order; members of a group that
    stand side by side are one hop apart. Neighbouring groups meet at their ends, and it depends on
    the job which ends should meet. Hence there are four orders for each dimension (kind of
    parallelism). With groups 0 1 2 and 3 4 5 these are:

    * no group is turned around: 0 1 2 3 4 5;
    * the second, fourth and so on: 0 1 2 5 4 3;
    * the first, third and so on: 2 1 0 3 4 5;
    * all: 2 1 0 5 4 3.

    Parameters
    ----------
    seats
        The folded step: its seats, and the job with its groups.

    Yields
    ------
    int array, shape (seats,)
        Orders, each with all seats once: first that of their numbers, then four for each
        dimension with groups on rails. Some may be the same.
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
    """Rank groups by the places of their members in another kind of groups, then by number.

    Each GPU (seat) of a rail is in one group of each kind. The least place that one of its members
    has in the other kind counts for a group: if the members of group 0 have the places 2 and 3
    there, and those of group 1 the places 0 and 1, group 1 has rank 0, and group 0 has rank 1.

    Parameters
    ----------
    group
        By seat its group, -1 for none; shape (seats,).
    place
        By seat its place in its group of the other kind, -1 for none; shape (seats,).

    Returns
    -------
    int array, shape (seats,)
        By seat the rank of its group, from 0 on. Seats in no group have the number of groups, and
        come last.
    """
    n = int(group.max(initial=-1)) + 1

    # The last entry is that of seats in no group, which have number -1.
    least = np.full(n + 1, len(group))
    np.minimum.at(least, group, place)

    # The lexsort lists the groups in their order, and the argsort inverts it: by group its rank.
    rank = np.argsort(np.lexsort([np.arange(n), least[:n]]))
    return np.append(rank, n)[group]


def close_rings(order: Ints, component: Ints) -> Ints:
    """Close rings of circuits: GPUs of one cycle, in an order, lead each to the next one.

    A GPU of the rail is called a *seat*. With the order 2, 0, 1, 3 and the cycles 0, 0, 0, 3 of
    seats 0 to 3, circuits lead 2 -> 0 -> 1 -> 2, and seat 3 is alone.

    Parameters
    ----------
    order
        All seats, each once; shape (seats,).
    component
        By seat the number of its cycle, from 0 to ``seats - 1``; shape (seats,).

    Returns
    -------
    int array, shape (seats,)
        By seat the seat to which it leads, -1 if it is alone. In the example: 1, 2, 0, -1.
    """
    base = np.empty(len(order), np.int64)
    _close(order, component, base, np.empty_like(base), np.empty_like(base))
    return base


@kernel
def _close(order, component, base, first, last):
    """Write to which GPU each GPU leads on a ring of circuits.

    A GPU of the rail is called a *seat*. Each seat leads to the next one of its cycle, in a given
    order, and the last one of a cycle leads back to the first. With the order 2, 0, 1, 3 and the
    cycles 0, 0, 0, 3 of seats 0 to 3, these are 2 -> 0 -> 1 -> 2, and seat 3 is alone.

    Parameters
    ----------
    order, component : int array, shape (seats,)
        All seats, each once; and by seat the number of its cycle, from 0 to ``seats - 1``.
    base : int array, shape (seats,)
        Written: by seat the seat to which it leads, -1 if it is alone.
    first, last : int array, shape (seats,)
        Scratch: by number of a cycle its first seat, and the last one by now.
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
    """List ways to divide the GPUs of a rail among cycles of circuits.

    A *seat* is a GPU of the rail; a *family* is the groups of one kind, as all of data
    parallelism. A *cut* says by seat on which cycle it is. For each set of families there is a
    cut: seats that are in a group together, directly or through others, are on one cycle.

    Parameters
    ----------
    component
        By seat the least seat with which it communicates, directly or through others; shape
        (seats,).
    families
        The kinds of groups: ``families[k][0, seat]`` is the group of a seat and
        ``families[k][1, seat]`` its place there, -1 if it is in none.

    Returns
    -------
    list of int array, shape (seats,)
        Different cuts, with by seat the number of its cycle. First come those of one family, then
        of two, and so on; the last one is `component`, in which all seats that communicate are on
        one cycle.
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
    """Join GPUs that are in a group together, directly or through others, into cycles.

    A *seat* is a GPU of the rail. If seats 0 and 1 are in one group and 1 and 2 in another, 0, 1
    and 2 are joined. A seat that would be alone joins others with which it communicates.

    Parameters
    ----------
    component
        By seat the least seat with which it communicates, directly or through others; shape
        (seats,).
    families
        The kinds of groups that count, at least one: ``families[k][0, seat]`` is the group of a
        seat and ``families[k][1, seat]`` its place there, -1 if it is in none.

    Returns
    -------
    int array, shape (seats,)
        By seat the number of its cycle: the least of the seats that it is joined with in groups.
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
