"""A bound that counts changes: they take their delay, or else data go around a ring."""

from __future__ import annotations

from heapq import heappop, heappush
from math import comb

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.rails.bases import list_components
from optmatch.solvers.rails.paths import longest_paths
from optmatch.solvers.rails.seats import EXCHANGE, MESSAGE, Seats

Times = NDArray[np.float64]


def bound_step(seats: Seats) -> float:
    """Return a time that no plan is faster than; more than with all links for one port alone.

    All-to-alls last as `time_exchanges` says. A port that meets two others changes twice, as a
    step ends with the circuits it begins with. If each meets one alone, those who communicate,
    directly or through others, stand on one ring. A collective goes through all of its members and
    so holds the whole ring: one comes after the other, each after what it waits for, and before
    what waits for it.
    """
    network, least = seats.job.network, seats.job.lower_bound()
    if network.ports_per_gpu > 1:
        return least
    exchange, lasts = seats.how == EXCHANGE, seats.duration_s.copy()
    if exchange.any():
        lasts[exchange] = time_exchanges(seats, network.delay_s)
        timed = longest_paths(lasts, seats.pairs)
        assert timed is not None  # else `lower_bound` has named who waits
        least = max(least, float(timed.end_s.max()))
    if 2 * network.delay_s <= least:
        return least
    free = longest_paths(seats.duration_s, seats.pairs)
    left = longest_paths(seats.duration_s, seats.pairs[:, ::-1].copy())
    assert free is not None and left is not None
    lasts[exchange] = time_exchanges(seats, np.inf)
    nodes = np.flatnonzero((seats.how >= 0) & (seats.how != MESSAGE))
    component = list_components(seats)[seats.member[seats.begin[nodes]]]
    stays = 0.0
    for each in np.unique(component).tolist():
        own = nodes[component == each]
        stays = max(stays, _one_by_one(free.start_s[own], lasts[own], left.start_s[own]))
    return max(least, min(stays, 2 * network.delay_s))


def time_exchanges(seats: Seats, delay_s: float) -> Times:
    """Return the least times of all-to-alls: around a ring, or in stages with changes between.

    In s stages no more than (h + s - 1 over h) parts get to other places in h hops.
    """
    nodes = np.flatnonzero(seats.how == EXCHANGE)
    sizes = np.diff(seats.begin)[nodes]
    full_s = seats.bytes_sent[nodes] / seats.job.network.rail_bytes_per_s
    late_s, found = seats.latency_s[nodes], np.empty(len(nodes))
    for n in np.unique(sizes).tolist():
        own, wait_s = sizes == n, 0.0
        found[own] = full_s[own] * n / 2 + late_s[own]
        for stages in range(2, n):
            hops, left, many = 0, n - 1, 0
            while left:
                many += 1
                here = min(left, comb(many + stages - 1, many))
                hops, left = hops + many * here, left - here
            wait_s += delay_s
            part_s = (full_s[own] + late_s[own]) / (n - 1)
            found[own] = np.minimum(found[own], hops * part_s + wait_s)
    return found


def _one_by_one(head: Times, lasts: Times, tail: Times) -> float:
    """Return the least time in which one thing is done after another, if each may be interrupted.

    Each is ready after its head, and its tail comes after it: what has most to come goes first.
    """
    order = np.argsort(head, kind="stable").tolist()
    left, ready, now, most = lasts.tolist(), list[tuple[float, int]](), 0.0, 0.0
    for turn, one in enumerate(order):
        now = max(now, float(head[one]))  # what was begun before goes on from here
        heappush(ready, (-float(tail[one]), one))
        until = float(head[order[turn + 1]]) if turn + 1 < len(order) else np.inf
        while ready and now < until:
            after, k = ready[0]
            if left[k] > until - now:
                left[k] -= until - now
                break
            heappop(ready)
            now += left[k]
            most = max(most, now - after)
    return most
