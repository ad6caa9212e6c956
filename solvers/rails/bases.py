"""Bases: the circuits that a rail holds unless something else is worth a change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

import numpy as np

from optmatch.solvers.kernels.decorators import kernel
from optmatch.solvers.rails.paths import Ints
from optmatch.solvers.rails.seats import Seats


def list_components(seats: Seats) -> Ints:
    """Return by seat the least seat that it communicates with, directly or through others."""
    many = np.diff(seats.begin)
    return _join(len(seats.rail), seats.member, np.repeat(np.arange(len(many)), many))


def _join(n: int, member: Ints, owner: Ints) -> Ints:
    """Return by seat the least seat with which it has an owner, directly or through others."""
    least, former = np.arange(n), np.arange(0)
    while not np.array_equal(least, former):
        former = least
        lowest = np.full(int(owner.max(initial=-1)) + 1, n)
        np.minimum.at(lowest, owner, least[member])
        least = least.copy()
        np.minimum.at(least, member, lowest[owner])
        least = least[least]
    return least


def list_families(seats: Seats) -> list[Ints]:
    """List the kinds of groups: by seat the group, and its place there; -1 of those in none.

    Components with most bytes first. A pipeline counts as a group, in the order of its messages.
    """
    step, folded = seats.job.step(), seats.folded
    traffic: dict[str, float] = {}
    groups: dict[str, dict[int, None]] = {}
    riding = seats.riding
    group_of = step.group[folded.part[riding]]
    for group, sent in zip(group_of.tolist(), seats.bytes_sent[riding].tolist(), strict=True):
        name = step.groups[group].name.rpartition(".")[0] or step.groups[group].dimension
        traffic[name] = traffic.get(name, 0.0) + sent
        groups.setdefault(name, {})[group] = None
    found = []
    for name in sorted(traffic, key=lambda each: (-traffic[each], each)):
        table = np.full((2, len(seats.rail)), -1)
        for number, group in enumerate(groups[name]):
            members = folded.class_of[[*step.groups[group].ranks]]
            table[0, members] = number
            table[1, members] = np.arange(len(members))
        found.append(table)
    return found


def list_orders(seats: Seats, families: Sequence[Ints]) -> Iterator[Ints]:
    """List orders of all seats in which members of groups stand together.

    Rows and columns of the grid of groups, each also there and back in turn, and all backwards;
    group after group of one family, and all as they are numbered.
    """
    own = np.arange(len(seats.rail))
    seen = set()
    for chosen in permutations(families[:3], min(2, len(families))):
        for snake in (False, True):
            outer = chosen[0]
            inner = chosen[1] if len(chosen) > 1 else np.stack([own, own])
            within = np.where(outer[1] >= 0, outer[1], own)
            if snake:
                within = np.where(outer[0] % 2 == 1, -within, within)
            order = np.lexsort([own, inner[0], within, _rank_groups(outer[0], inner[1])])
            for turned in (order, order[::-1].copy()):
                if turned.tobytes() not in seen:
                    seen.add(turned.tobytes())
                    yield turned
    yield from (order for order in _list_rows(seats) if order.tobytes() not in seen)


def _list_rows(seats: Seats) -> Iterator[Ints]:
    """List orders of all seats: as numbered, and by the groups of a dimension, as they come.

    Of the groups all, every second one, or the others between are turned around.
    """
    step, first = seats.job.step(), np.array(seats.folded.first)
    yield np.arange(len(first))
    for name in sorted({g.name.partition(".")[0] for g in step.groups if g.rail >= 0}):
        groups = [g.ranks for g in step.groups if g.name.partition(".")[0] == name]
        for turned in ((), (1,), (0,), (0, 1)):
            rows = [r[::-1] if k % 2 in turned else r for k, r in enumerate(groups)]
            place = np.full(step.n_ranks, -1)
            place[np.concatenate(rows)] = np.arange(sum(map(len, rows)))
            yield np.argsort(place[first], kind="stable")


def _rank_groups(group: Ints, place: Ints) -> Ints:
    """Order groups by the places of their members in another family, then by number."""
    n = int(group.max(initial=-1)) + 1
    least = np.full(n + 1, len(group))
    np.minimum.at(least, group, place)
    rank = np.argsort(np.lexsort([np.arange(n), least[:n]]))
    return np.append(rank, n)[group]


def close_rings(order: Ints, component: Ints) -> Ints:
    """Return to whom each seat leads if those of a component are a ring, in an order."""
    base = np.empty(len(order), np.int64)
    _close(order, component, base, np.empty_like(base), np.empty_like(base))
    return base


@kernel
def _close(order, component, base, first, last):
    base[:] = -1
    first[:] = -1
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
    """List ways to cut rings: by seat a number that members of groups of some families share.

    First come those of one family, then of two, and so on; the last one is that of all.
    """
    found: dict[bytes, Ints] = {}
    for many in range(1, len(families) + 1):
        for chosen in combinations(families, many):
            cut = _join_groups(component, chosen)
            found.setdefault(cut.tobytes(), cut)
    found.pop(component.tobytes(), None)
    return [*found.values(), component]


def _join_groups(component: Ints, families: Sequence[Ints]) -> Ints:
    """Return by seat the least seat in a group with it, directly or through others.

    One that would be alone, as no ring is, goes with others of its component.
    """
    n = len(component)
    family, member = np.nonzero(np.array([group for group, _ in families]) >= 0)
    group = np.array([group for group, _ in families])[family, member]
    least = _join(n, member, family * n + group)
    alone = np.bincount(least, minlength=n)[least] == 1
    for seat in np.flatnonzero(alone):
        others = np.flatnonzero((component == component[seat]) & ~alone)
        if len(others):
            least[seat] = least[others[0]]
    return least
