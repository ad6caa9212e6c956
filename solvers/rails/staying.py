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

    The plain bound of a job takes all circuits to be up at all times. This one adds two arguments:

    1. All-to-alls take several hops, or changes of circuits, to reach all members over a few
       ports.
    2. With one port for each GPU, either some circuit changes: it changes back before the step
       ends, and this takes two delays, whether the port or the whole switch stops for a change.
       Or no circuit changes: then all GPUs that communicate, directly or through others, are on
       one ring. A collective uses the whole ring, and the collectives of a ring go one after
       another, like the jobs of one machine. The hops from member to member sum up to the whole
       ring, so that the latency of a message is that of N / n hops at least, with N GPUs on the
       ring of which n are members.

    Parameters
    ----------
    seats
        The folded step: its nodes (computations, and communications of several seats, the GPUs of
        one rail) with durations in seconds, members, and who waits for whom.

    Returns
    -------
    float
        A lower bound of the step time, in seconds.
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

    # Else no circuit changes, or the step lasts two delays. Each ring is a machine that does one
    # collective at a time. The head of a collective is the longest path from the start of the step
    # to it, its tail that from its end to the end of the step.
    from_start = longest_paths(seats.duration_s, seats.pairs)
    to_end = longest_paths(seats.duration_s, seats.pairs[:, ::-1].copy())
    assert from_start is not None
    assert to_end is not None
    lasts_s[is_exchange] = time_exchanges(seats, np.inf)
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

    In an all-to-all of n members each has data for each other one, a part. A stride is how many
    places further on in the group a circuit leads; with circuits of several strides, or around a
    ring (one stride), a part takes several hops.

    How many hops: with m strides, no more than C(h + m - 1, h) parts can arrive after exactly h
    hops, since that is the number of multisets of h strides. With 2 strides, 2 parts make one hop,
    3 make two, and so on.

    How many strides: each of the p ports of a GPU has one at first, and is dark for the delay
    before each further one. Ports are dark in turn, and m strides cost (m - p) / p delays. The
    best m counts.

    Parameters
    ----------
    seats
        The folded step: its nodes, of which those that are all-to-alls count, with members, bytes
        and latency; and the network.
    delay_s
        The time that a change of circuits takes, in seconds; infinite where they stay.

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
    """Count the fewest hops that all parts of a member can take with so many strides.

    A part is the data of one member for one other; a stride is how many places further on in the
    group a circuit leads, which is one hop. With m strides, h hops lead to no more than
    C(h + m - 1, h) places, the multisets of h strides. As many parts as there can be take one hop,
    as many others as there can be take two, and so on. With 5 members and 2 strides, two parts
    take one hop and two take two: 6 hops.

    Parameters
    ----------
    n_members
        The members of the all-to-all.
    n_strides
        How many different strides there are, at least 1.

    Returns
    -------
    int
        The sum of the hops over all parts: a lower bound, whichever strides they are.
    """
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
    """Return a lower bound for one machine: the best schedule in which jobs may be interrupted.

    A machine does one job at a time. Each job is ready at a time (its head), lasts some time, and
    after its end at least its tail passes until the step ends. Among the jobs that are ready, the
    one with the longest tail goes first; one with a longer tail that becomes ready interrupts it
    (Jackson 1955, Carlier 1982). No schedule without interruptions is faster.

    Parameters
    ----------
    head_s, duration_s, tail_s
        By job, when it is ready, how long it lasts, and how much time passes at least from its end
        to the end of the step; seconds, shape (jobs,).

    Returns
    -------
    float
        When the last job and its tail have ended, in seconds: no schedule is faster.
    """
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
