"""All-to-alls over chords: circuits that stay, each port to another member of the group.

Words of this module:

Chord
    The circuits of one port of all members: port p of each leads to the member a fixed number of
    places further on, on the circle of members. The chords together are a circulant graph.
Stride
    How many places further on a chord leads.
Part
    The data of one member for one other; a part whose distance is no stride takes several hops.
Route
    How often a part takes each port; the order of its hops does not matter. With strides 1 and 3
    the part for the member 5 places further on may go as 1 + 1 + 3 in some order: hops (2, 1).

Which routes the parts take is a linear programme: as symmetry lets all members do the same, the
busiest port of one member decides the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, combinations_with_replacement
from math import comb, gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import uncounted
from optmatch.problems.rails.execution.plan import ChordRoutes
from optmatch.solvers.collectives.topologies import list_shift_sets

_MOST_SETS = 60
"""All sets of strides are looked at if there are no more; else the geometric ones of
`list_shift_sets` and greedy ones."""
_MOST_PROGRAMMES = 6
"""Sets of strides, of fewest hops in all, for which the linear programme is solved."""
_MOST_ROUTES = 4_000
"""Routes of as many hops that are listed at once; with more, longer ways are not tried."""


class _RouteList(NamedTuple):
    """Routes of a circulant graph; an entry for each."""

    distance: NDArray[np.int64]
    """How many places further on the route leads; shape (routes,)."""
    hops: NDArray[np.int64]
    """``hops[route, port]``: how often the route takes the port."""


@lru_cache(maxsize=256)
def choose_chords(n_members: int, n_ports: int) -> ChordRoutes | None:
    """Choose circuits for an all-to-all that never change, so that the busiest port carries least.

    In an all-to-all each member of a group has a block of data for each other member. Port p of
    each member leads to the member a fixed number of places further on, the *stride* of the port.
    Blocks for which no stride leads directly take several hops. Several sets of strides are tried.
    For each of them a linear programme says how blocks are split over the ways there are.

    Parameters
    ----------
    n_members
        The members of the group, at least 3.
    n_ports
        The ports of a member that are used, each for one stride.

    Returns
    -------
    ChordRoutes or None
        With these fields:

        * `n_members`, and ``strides[port]``;
        * ``distance[route]``: the route is for receivers so many places further on;
        * ``hops[route, port]``: how often it takes each port;
        * ``share[route]``: the part of the data for this distance that takes it.

        None if a member has more ports than there are other members.
    """
    if n_ports > n_members - 1:
        return None

    # Strides with a divisor in common with the number of members do not lead everywhere. Sets with
    # few hops in all come first, since a linear programme for each set would take too long.
    candidates = [
        (_count_fewest_hops(n_members, strides), strides)
        for strides in _list_stride_sets(n_members, n_ports)
        if gcd(n_members, *strides) == 1
    ]
    best: ChordRoutes | None = None
    for _, strides in sorted(candidates)[:_MOST_PROGRAMMES]:
        routes = route_over_chords(n_members, strides)
        if best is None or routes.busiest_port_parts < best.busiest_port_parts - 1e-9:
            best = routes
    return best


def _list_stride_sets(n: int, n_ports: int) -> Iterator[tuple[int, ...]]:
    """List sets of strides that are worth trying: all if they are few, else some.

    A *stride* is how many places further on in a group the circuits of one port of all members
    lead; a set has one for each port. If there are more than `_MOST_SETS` sets, these are listed:
    geometric ones, which are like 1, 4, 16; and one that is chosen greedily, each further stride
    so that data need the fewest hops.

    Parameters
    ----------
    n
        The members of the group.
    n_ports
        How many strides a set has, at most n - 1.

    Yields
    ------
    tuple of int
        Strides from 1 to n - 1, ascending.
    """
    if comb(n - 1, n_ports) <= _MOST_SETS:
        yield from combinations(range(1, n), n_ports)
        return
    for shifts in list_shift_sets(n, n_ports, two_way=False):
        if len(shifts) == n_ports:
            yield shifts

    # Greedy: from stride 1 on, each further stride is that which saves most hops.
    greedy: tuple[int, ...] = (1,)
    while len(greedy) < n_ports:
        sets = [tuple(sorted((*greedy, stride))) for stride in range(2, n) if stride not in greedy]
        greedy = min(sets, key=lambda strides: _count_fewest_hops(n, strides))
    yield greedy


def _count_fewest_hops(n: int, strides: tuple[int, ...]) -> int:
    """Count the hops of all parts of one member, each on a way of fewest hops (breadth first).

    A part is the data of one member for one other. A hop leads as many places further on in the
    group as the stride of some port says. Among 5 members with strides 1 and 2, the distances 1
    and 2 take one hop, and 3 and 4 take two: 6.

    Parameters
    ----------
    n
        The members of the group.
    strides
        A stride for each port.

    Returns
    -------
    int
        The sum over all distances; at least n * n if some distance is not reached.
    """
    # By distance its hops; n * n stands for a distance that is not reached yet.
    hops_to = np.full(n, n * n)
    hops_to[0] = 0
    reached = np.zeros(1, np.int64)
    n_hops = 0
    while len(reached):
        # Distances that one hop more reaches for the first time.
        n_hops += 1
        following = np.unique((reached[:, None] + np.array(strides)) % n)
        reached = following[hops_to[following] == n * n]
        hops_to[reached] = n_hops
    return int(hops_to.sum())


@lru_cache(maxsize=256)
def route_over_chords(n_members: int, strides: tuple[int, ...]) -> ChordRoutes:
    """Route an all-to-all over circuits of fixed strides, so that the busiest port carries least.

    In an all-to-all each member has a block of data for each other member. The circuits of port p
    of all members lead ``strides[p]`` places further on in the group. A *route* is how often a
    block takes each port: with strides 1 and 3, a block for the member 5 places further on may go
    as 1 + 1 + 3, which is two hops on port 0 and one on port 1. A block may be split over several
    routes. The best split is the answer of a linear programme.

    All members do the same, so that the busiest port of one member decides the time. Tried are the
    routes with fewest hops to each distance, and those with one hop more.

    Parameters
    ----------
    n_members
        The members of the group.
    strides
        A stride for each port; together they must lead everywhere.

    Returns
    -------
    ChordRoutes
        With these fields, by route only those that are used:

        * `n_members` and `strides` as given;
        * ``distance[route]``: how many places further on the receiver stands;
        * ``hops[route, port]``: how often the route takes the port;
        * ``share[route]``: the part of the block that goes this way; the shares of a distance sum
          to 1.
    """
    with uncounted():
        from scipy.optimize import linprog
        from scipy.sparse import coo_array, hstack

    routes = _list_routes(n_members, strides)
    n_routes = len(routes.distance)

    # Variables: the share of each route, and last the load of the busiest port, which is to be
    # least. The shares of each distance sum to 1 (one row for each distance from 1 on), and no
    # port carries more than the busiest one (one row for each port).
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
    """List the ways from a member to each other one: those with fewest hops, and one hop more.

    Each port of a member has a circuit to the member a fixed number of places further on, its
    *stride*. A *route* is how often each port is taken, in any order: with strides 1 and 3, the
    member 5 places further on is reached by the route (2, 1), for 1 + 1 + 3.

    Parameters
    ----------
    n
        The members of the group.
    strides
        A stride for each port; together they must lead everywhere.

    Returns
    -------
    _RouteList
        Routes in the order of their numbers of hops:

        * ``distance[route]``: how many places further on it leads;
        * ``hops[route, port]``: how often it takes the port.

        For the farthest members those of one hop more are left out if they are too many
        (`_MOST_ROUTES`).
    """
    fewest = np.zeros(n, np.int64)
    distances = [np.empty(0, np.int64)]
    tables = [np.empty((0, len(strides)), np.int64)]
    n_hops = 0
    is_last = False
    while not is_last:
        n_hops += 1

        # `fewest` is by distance the fewest hops, 0 for a distance without a way so far. Once each
        # distance has one, one hop more is tried and no further one.
        is_last = bool((fewest[1:] > 0).all())
        if is_last and comb(n_hops + len(strides) - 1, n_hops) > _MOST_ROUTES:
            break

        # All multisets of so many hops, as ports, and how often each port is in them: of two ports
        # and three hops these are 000, 001, 011 and 111, with the counts (3, 0), (2, 1), (1, 2)
        # and (0, 3). A route is kept if no way to its distance is shorter by two.
        ports = np.array([*combinations_with_replacement(range(len(strides)), n_hops)])
        hops = (ports[:, :, None] == np.arange(len(strides))).sum(axis=1)
        distance = hops @ np.array(strides) % n
        fewest[np.unique(distance[fewest[distance] == 0])] = n_hops
        is_short = (distance > 0) & (n_hops <= fewest[distance] + 1)
        distances.append(distance[is_short])
        tables.append(hops[is_short])
    return _RouteList(np.concatenate(distances), np.concatenate(tables))
