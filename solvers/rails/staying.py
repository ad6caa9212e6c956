"""A bound that counts changes: they take their delay, or else collectives wait for each other."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.rails.bases import list_components
from optmatch.solvers.rails.paths import longest_paths
from optmatch.solvers.rails.seats import EXCHANGE, MESSAGE, Seats

Times = NDArray[np.float64]


def bound_step(seats: Seats) -> float:
    """Return a time that no plan is faster than; more than with all links for one port alone.

    A plan that changes circuits takes their delay. In one that changes none, those who
    communicate, directly or through others, stand on one ring, as a GPU has one circuit from it
    and one to it. A collective goes through all of its members and so holds the whole ring: one
    comes after the other, each after what it waits for, and before what waits for it.
    """
    network, least = seats.job.network, seats.job.lower_bound()
    if network.ports_per_gpu > 1 or network.delay_s <= least:
        return least
    free = longest_paths(seats.duration_s, seats.pairs)
    left = longest_paths(seats.duration_s, seats.pairs[:, ::-1].copy())
    assert free is not None and left is not None  # else `lower_bound` has named who waits
    around = seats.bytes_sent * np.diff(seats.begin) / 2 / network.rail_bytes_per_s
    exchange = seats.how == EXCHANGE
    lasts = np.where(exchange, around + seats.latency_s, seats.duration_s)
    nodes = np.flatnonzero((seats.how >= 0) & (seats.how != MESSAGE))
    component = list_components(seats)[seats.member[seats.begin[nodes]]]
    stays = 0.0
    for each in np.unique(component).tolist():
        own = nodes[component == each]
        stays = max(stays, _one_by_one(free.start_s[own], lasts[own], left.start_s[own]))
    return max(least, min(stays, network.delay_s))


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
