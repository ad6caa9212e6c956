"""A bound that counts changes: they take their delay, or else data go around a ring.

The words are those of `optmatch.solvers.rails.seats`: a seat is a GPU of the one rail that stands
for all rails that are alike, and nodes that ride it are communications of seats.
"""

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
    """Return a lower bound on the step time, from what the circuits of a few ports allow.

    The plain bound of a job takes all circuits to be up at all times. Two arguments raise it:

    1. A port has one circuit at a time. An all-to-all therefore needs several hops, or changes of
       circuits, to reach all members.
    2. With one port for each GPU, one of two things is true. Either some circuit changes. It
       changes back before the step ends, which takes two delays. Or no circuit changes. All GPUs
       that communicate, directly or through others, are on one ring then, and each collective
       (such as an all-reduce) goes around all of it. Collectives of a ring go one after another,
       like the jobs of one machine.

    Parameters
    ----------
    seats
        The step, written down once for all rails that are alike. Its nodes are computations and
        communications. By node: `duration_s` with all circuits up, in seconds; `latency_s` in
        seconds; `how` it goes (`EXCHANGE`: all-to-all, `MESSAGE`, or around a ring; -1 if it is
        beside the rails). Rows of `pairs` are (waited for, waiting). The GPUs that communicate in
        node k are ``member[begin[k]:begin[k + 1]]``.

    Returns
    -------
    float
        Seconds; no plan of the job is faster.
    """
    network = seats.job.network
    least_s = seats.job.lower_bound()

    # The longest path of the step, with all-to-alls as long as the ports take for them.
    is_exchange = seats.how == EXCHANGE
    lasts_s = seats.duration_s.copy()
    if is_exchange.any():
        lasts_s[is_exchange] = time_exchanges(seats, network.delay_s)
        timed = longest_paths(lasts_s, seats.pairs)
        assert timed is not None  # else `lower_bound` has named who waits
        least_s = max(least_s, float(timed.end_s.max()))

    # With several ports a GPU may hold the circuits to two others at once: the second argument
    # does not hold.
    if network.ports_per_gpu > 1:
        return least_s

    # A step in which a circuit changes lasts two delays at least; if that is no more than the
    # bound by times, it decides nothing.
    two_changes_s = 2 * network.delay_s
    if two_changes_s <= least_s:
        return least_s

    # No circuit changes: each ring is a machine that does one collective at a time. The head of a
    # collective is the least time from the start of the step to it. Its tail is the least time
    # from its end to the end of the step, which is a longest path with all pairs reversed.
    from_start = longest_paths(seats.duration_s, seats.pairs)
    to_end = longest_paths(seats.duration_s, seats.pairs[:, ::-1].copy())
    assert from_start is not None
    assert to_end is not None
    lasts_s[is_exchange] = time_exchanges(seats, np.inf)
    # ``ring[row]`` is the ring of a collective: GPUs that communicate, directly or through others,
    # have the same number in `component`, and the first member stands for all.
    collectives = np.flatnonzero((seats.how >= 0) & (seats.how != MESSAGE))
    component = list_components(seats)
    ring = component[seats.member[seats.begin[collectives]]]

    # On a ring of 64 GPUs the ways from each of 8 members to the next one are 64 hops together:
    # one of them is 8 hops at least, and each message waits for the latency of so many.
    n_members = np.diff(seats.begin)[collectives]
    least_hops = -(-np.bincount(component)[ring] // n_members)
    lasts_s[collectives] += (least_hops - 1) * seats.latency_s[collectives]
    staying_s = 0.0
    for number in np.unique(ring).tolist():
        jobs = collectives[ring == number]
        machine_s = bound_machine(from_start.start_s[jobs], lasts_s[jobs], to_end.start_s[jobs])
        staying_s = max(staying_s, machine_s)
    return max(least_s, min(staying_s, two_changes_s))


def time_exchanges(seats: Seats, delay_s: float) -> Times:
    """Return how long all-to-alls last at least, over the few ports of each GPU.

    In an all-to-all of n members each has a part of data for each other one. There are two ways,
    and the faster one counts:

    * Around a ring: parts go 1, 2, ... or n - 1 hops, and a circuit carries n / 2 times the bytes
      that a member sends.
    * Over circuits that lead m different numbers of places further on in the group (strides).
      After exactly h hops no more than C(h + m - 1, h) parts can have arrived, which is the number
      of multisets of h strides. With 2 strides, 2 parts make one hop, 3 make two, and so on.

    Each of the p ports of a GPU has one stride at first, and is dark for the delay before each
    further one. Ports are dark in turn, so that m strides cost (m - p) / p delays. All m from p on
    are tried (from 2 on, with one port).

    Parameters
    ----------
    seats
        The folded step with its nodes; those with ``how[node] == EXCHANGE`` are all-to-alls. By
        node, `bytes_sent` is what a member sends, and `latency_s` the latency of all its messages
        in seconds. Node k has ``begin[k + 1] - begin[k]`` members.
    delay_s
        The time that a change of circuits takes, in seconds; infinite if they may not change.

    Returns
    -------
    float array, shape (all-to-alls,)
        Seconds, in the order of the nodes.
    """
    network = seats.job.network
    n_ports = network.ports_per_gpu
    nodes = np.flatnonzero(seats.how == EXCHANGE)
    n_members = np.diff(seats.begin)[nodes]
    send_s = seats.bytes_sent[nodes] / network.rail_bytes_per_s
    latency_s = seats.latency_s[nodes]
    least_s = np.empty(len(nodes))
    for n in np.unique(n_members).tolist():
        rows = n_members == n
        part_s = (send_s[rows] + latency_s[rows]) / (n - 1)  # of one part over one hop

        # Around a ring, which is one stride, the bytes pass n / 2 times.
        fastest_s = send_s[rows] * n / 2 + latency_s[rows]

        # With more strides parts take fewer hops, but more strides than ports need changes.
        for n_strides in range(max(n_ports, 2), max(n_ports, n - 1) + 1):
            changes_s = 0.0
            if n_strides > n_ports:
                changes_s = (n_strides - n_ports) / n_ports * delay_s
            strides_s = _count_least_hops(n, n_strides) * part_s + changes_s
            fastest_s = np.minimum(fastest_s, strides_s)
        least_s[rows] = fastest_s
    return least_s


def _count_least_hops(n_members: int, n_strides: int) -> int:
    """Count the fewest hops that the parts of one member of an all-to-all can take together.

    In an all-to-all each member has a part of data for each other one. A circuit leads a fixed
    number of places further on in the group, its stride, and a part may take several hops. With m
    strides, h hops lead to no more than C(h + m - 1, h) places, the number of multisets of h
    strides. As many parts as can be take one hop, then as many as can be take two, and so on. With
    5 members and 2 strides, two parts take one hop and two take two hops: 6 in all.

    Parameters
    ----------
    n_members
        The members of the all-to-all.
    n_strides
        How many different strides there are, at least 1.

    Returns
    -------
    int
        The sum of the hops over all parts: no more than with any strides.
    """
    # Parts are dealt out by their hops, few hops first, until all n - 1 parts have theirs.
    n_hops = 0
    hops_of_part = 0
    n_left = n_members - 1
    while n_left:
        hops_of_part += 1
        n_parts = min(n_left, comb(hops_of_part + n_strides - 1, hops_of_part))
        n_hops += hops_of_part * n_parts
        n_left -= n_parts
    return n_hops


def bound_machine(head_s: Times, duration_s: Times, tail_s: Times) -> float:
    """Return a lower bound on the end of jobs that one machine does one at a time.

    A job is ready at a time (its head) and lasts some time. After its end at least its tail passes
    until the step ends. For the bound, jobs may be interrupted: of those that are ready the one
    with the longest tail always runs, and one with a longer tail that becomes ready interrupts it
    (Jackson 1955, Carlier 1982). No schedule is faster, with or without interruptions.

    Parameters
    ----------
    head_s, duration_s, tail_s
        By job, when it is ready, how long it lasts, and the least time from its end to the end of
        the step, in seconds; shape (jobs,).

    Returns
    -------
    float
        When the last job and its tail have ended, in seconds; 0 without jobs.
    """
    # Jobs join a heap of ready jobs, earliest head first. The heap has (-tail, job), so that its
    # first entry has the longest tail.
    by_head = np.argsort(head_s, kind="stable").tolist()
    left_s = duration_s.tolist()  # by job, how long it still takes
    ready = list[tuple[float, int]]()  # a heap: the longest tail first
    now_s = 0.0
    end_s = 0.0
    for place, job in enumerate(by_head):
        now_s = max(now_s, float(head_s[job]))
        heappush(ready, (-float(tail_s[job]), job))
        next_head_s = np.inf
        if place + 1 < len(by_head):
            next_head_s = float(head_s[by_head[place + 1]])

        # Go on until the next job is ready; what is not done by then stays in the heap.
        while ready and now_s < next_head_s:
            # The job with the longest tail; a new one with a longer tail interrupts it.
            minus_tail_s, first = ready[0]
            if left_s[first] > next_head_s - now_s:
                left_s[first] -= next_head_s - now_s
                break
            heappop(ready)
            now_s += left_s[first]
            end_s = max(end_s, now_s - minus_tail_s)
    return end_s
