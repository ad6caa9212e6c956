"""All-to-alls over chords: circuits that stay, each port to another member of the group.

A *chord* is one port of every GPU whose circuits lead one *stride*, that is how many places
further on in the group. The chords of a group together are a circulant graph on its members. A
*block* is what one member sends to one other. A *part* (`ChordRoutes`) is a block: if its
distance, how many places further on it goes, is no stride, it takes several hops. The *route* of a
part is how often it takes each port, as the order of its hops does not matter: with strides 1 and
3 the part for the member 5 places further on may go as 1 + 1 + 3 in some order, hops (2, 1).

Which routes the parts take is a linear programme: as symmetry lets all members do the same, the
busiest port of one member decides the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations_with_replacement
from math import comb, gcd
from typing import NamedTuple

import numpy as np

from optmatch.model import uncounted
from optmatch.problems.rails.execution.plan import ChordRoutes
from optmatch.solvers.rails.exchanges import count_fewest_hops, list_stride_sets
from optmatch.solvers.rails.paths import Ints

_MOST_PROGRAMMES = 6
"""Sets of strides, of fewest hops in all, for which the linear programme is solved."""
_MOST_ROUTES = 4_000
"""Routes of as many hops that are listed at once; with more, longer ways are not tried."""


class _RouteList(NamedTuple):
    """Routes of a circulant graph; an entry for each."""

    distance: Ints
    """How many places further on the route leads; shape (routes,)."""
    hops: Ints
    """``hops[route, port]``: how often the route takes the port."""


@lru_cache(maxsize=256)
def choose_chords(n_members: int, n_ports: int) -> ChordRoutes | None:
    """Choose a stride for each port, so that the busiest port carries least in an all-to-all.

    Returns the strides with the routes of all parts. The few sets of strides with the fewest hops
    in all are compared, each by a linear programme. None if there are more ports than other
    members.
    """
    if n_ports > n_members - 1:
        return None

    # Strides with a divisor in common with the number of members do not lead everywhere. Sets with
    # few hops in all come first, since a linear programme for each set would take too long.
    candidates = [
        (count_fewest_hops(n_members, strides), strides)
        for strides in list_stride_sets(n_members, n_ports)
        if gcd(n_members, *strides) == 1
    ]
    best: ChordRoutes | None = None
    for _, strides in sorted(candidates)[:_MOST_PROGRAMMES]:
        routes = route_over_chords(n_members, strides)
        if best is None or routes.busiest_port_parts < best.busiest_port_parts - 1e-9:
            best = routes
    return best


@lru_cache(maxsize=256)
def route_over_chords(n_members: int, strides: tuple[int, ...]) -> ChordRoutes:
    """Share an all-to-all over routes so that the busiest port carries least.

    This is a linear programme over all routes of fewest hops, or one more. ``strides[port]`` is
    how many places further on a port leads. The result has the routes with a share above 0; the
    shares of the routes of one distance sum to 1. Among 3 members with the strides 1 and 2 each
    of the two parts goes straight, and a port carries one.
    """
    with uncounted():
        from scipy.optimize import linprog
        from scipy.sparse import coo_array, hstack

    routes = _list_routes(n_members, strides)
    n_routes = len(routes.distance)

    # Variables, one column each: the share of each route, and last the load of the busiest port,
    # which is to be least. Equations: the shares of each distance sum to 1 (one row for each
    # distance from 1 on). Inequalities: no port carries more than the busiest one, so that its
    # load minus that of the busiest one is 0 at most (one row for each port).
    parts_are_whole = coo_array(
        (np.ones(n_routes), (routes.distance - 1, np.arange(n_routes))),
        shape=(n_members - 1, n_routes + 1),
    )
    loads = coo_array(routes.hops.T.astype(np.float64))
    below_busiest = hstack([loads, coo_array(-np.ones((len(strides), 1)))])
    cost = np.append(np.zeros(n_routes), 1.0)
    optimum = linprog(
        cost,
        A_ub=below_busiest,
        b_ub=np.zeros(len(strides)),
        A_eq=parts_are_whole,
        b_eq=np.ones(n_members - 1),
    )

    # Shares that are rounding errors are left out, and the others of each distance sum to 1 again.
    share = np.maximum(optimum.x[:n_routes], 0.0)
    share[share < 1e-9] = 0.0
    total = np.bincount(routes.distance, share)
    share /= total[routes.distance]
    used = np.flatnonzero(share > 0)
    return ChordRoutes(
        n_members=n_members,
        strides=strides,
        distance=routes.distance[used].astype(np.int32),
        hops=routes.hops[used].astype(np.int32),
        share=share[used],
    )


def _list_routes(n: int, strides: tuple[int, ...]) -> _RouteList:
    """List the routes of fewest hops to each distance, and those with one more if they are few.

    The order of hops does not matter. A distance is one from 1 to n - 1 among n members, and all
    of them have to be reached by `strides`.
    """
    # ``fewest[distance]``: the fewest hops, 0 for a distance without a way so far.
    fewest = np.zeros(n, np.int64)
    distances = [np.empty(0, np.int64)]
    tables = [np.empty((0, len(strides)), np.int64)]
    n_hops = 0
    is_last = False
    while not is_last:
        n_hops += 1

        # Once each distance has a way, one hop more is tried and no further one.
        is_last = bool((fewest[1:] > 0).all())
        if is_last and comb(n_hops + len(strides) - 1, n_hops) > _MOST_ROUTES:
            break

        # All multisets of `n_hops` hops, as ports, and how often each port is in them: of two
        # ports and three hops these are 000, 001, 011 and 111, with the counts (3, 0), (2, 1), (1,
        # 2) and (0, 3). The distance of a route is the sum of its strides, around the circle.
        ports = np.array([*combinations_with_replacement(range(len(strides)), n_hops)])
        hops = (ports[:, :, None] == np.arange(len(strides))).sum(axis=1)
        distance = hops @ np.array(strides) % n

        # Distances without a way so far have this one. Longer ways are kept if they are one hop
        # longer than the shortest one; distance 0 is no route.
        fewest[np.unique(distance[fewest[distance] == 0])] = n_hops
        is_short = (distance > 0) & (n_hops <= fewest[distance] + 1)
        distances.append(distance[is_short])
        tables.append(hops[is_short])
    return _RouteList(np.concatenate(distances), np.concatenate(tables))


def route_exchange(strides: Sequence[int], n_members: int) -> ChordRoutes | None:
    """Route an all-to-all over chords; None if their strides do not lead to all members.

    That is so if all strides have a divisor in common with `n_members`, as 2 and 4 among 8
    members. Multiples of `n_members` lead back to the sender and do not count, nor does 0, the
    stride of a bundle that is no chord.
    """
    used = tuple(stride % n_members for stride in strides if stride % n_members)
    if not used or gcd(n_members, *used) > 1:
        return None
    return route_over_chords(n_members, used)
