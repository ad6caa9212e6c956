"""A bound that counts changes: they take their delay, or else data go around a ring.

A *seat* is a GPU of a rail, which stands for those of all rails and replicas that do the same. A
*node* is a computation of a seat, or one communication of several seats, its *members*. In an
all-to-all each of n members sends n - 1 *blocks*, over circuits whose *stride* is how many places
further on in the group they lead.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import comb

import numpy as np

from optmatch.solvers.rails.bases import list_components
from optmatch.solvers.rails.decoder import EXCHANGE, MESSAGE
from optmatch.solvers.rails.paths import Floats, find_heads, find_tails
from optmatch.solvers.rails.seats import Seats


def bound_step(seats: Seats) -> float:
    """Return a lower bound of the time of a step in seconds, of plans that may forward and change.

    All-to-alls last at least as long as the ports of a GPU take for them: the longest path with
    these times is the first bound. With one port for each GPU there is a second one. If a circuit
    changes, it has to change back before the step ends, and the step lasts two delays; else it
    lasts as `_bound_if_none_changes` says. The result is max(first bound, min(2 delays, bound
    without changes)).

    Example: the first bound is 10 s, and the step lasts 12 s if nothing changes. With delays of 7
    s the result is 12 s, with delays of 4 s it is 10 s.
    """
    network = seats.job.network
    least_s = seats.job.lower_bound()

    # The longest path of the step, with all-to-alls as long as the ports take for them.
    is_exchange = seats.nodes.how == EXCHANGE
    if is_exchange.any():
        over_ports_s = seats.nodes.duration_s.copy()
        over_ports_s[is_exchange] = time_exchanges(seats, network.delay_s)
        ends_s = find_heads(over_ports_s, seats.folded.pairs) + over_ports_s
        least_s = max(least_s, float(ends_s.max()))

    # With several ports a GPU may hold the circuits of two rings at once, and there is no second
    # bound. Nor is it needed if two delays are no longer than the first one.
    two_changes_s = 2 * network.delay_s
    if network.ports_per_gpu > 1 or two_changes_s <= least_s:
        return least_s
    return max(least_s, min(_bound_if_none_changes(seats), two_changes_s))


def _bound_if_none_changes(seats: Seats) -> float:
    """Return a lower bound of the time of a step in seconds, if no circuit changes.

    Each GPU has one port, so that all seats that communicate with each other are on one ring, and
    each ring is a machine that does one collective at a time (one-machine bound of Jackson and
    Carlier). The greatest bound of all rings counts.
    """
    # The head of a collective is the least time from the start of the step to it, and its tail the
    # least time from its end to the end of the step.
    nodes = seats.nodes
    head_s = find_heads(nodes.duration_s, seats.folded.pairs)
    tail_s = find_tails(nodes.duration_s, seats.folded.pairs)

    # ``ring[k]`` is the ring of node ``collectives[k]``: a node on a rail (``how`` is -1 beside
    # rails) that is no message. All seats of a ring have the same number in ``component[seat]``,
    # that of the least of them, and the first member stands for all. A node that takes no time
    # needs no circuits, and joins nobody.
    takes_time = nodes.duration_s > 0
    collectives = np.flatnonzero((nodes.how >= 0) & (nodes.how != MESSAGE) & takes_time)
    component = list_components(seats, takes_time)
    ring = component[nodes.member[nodes.first_member[collectives]]]

    # On a ring of 64 GPUs the ways from each of 8 members to the next one are 64 hops together,
    # once round: the longest way is 64 / 8 = 8 hops at least (rounded up), and each message has
    # the latency of so many hops. The duration has one of them already. An all-to-all may change
    # no circuit either: changes with an infinite delay are never worth it.
    ring_size = np.bincount(component)[ring]
    least_hops = -(-ring_size // seats.n_members[collectives])
    on_ring_s = nodes.duration_s.copy()
    on_ring_s[nodes.how == EXCHANGE] = time_exchanges(seats, np.inf)
    on_ring_s[collectives] += (least_hops - 1) * nodes.latency_s[collectives]
    longest_s = 0.0
    for seat in np.unique(ring).tolist():
        jobs = collectives[ring == seat]
        machine_s = bound_machine(head_s[jobs], on_ring_s[jobs], tail_s[jobs])
        longest_s = max(longest_s, machine_s)
    return longest_s


def time_exchanges(seats: Seats, delay_s: float) -> Floats:
    """List a lower bound of the time of each all-to-all, in seconds, in the order of their nodes.

    The bound is the least of these times, over all numbers s of strides, by which circuits lead
    onward:

    - at most s blocks go over one hop, as many as there are strides; at most s (s + 1) / 2 over
      two, the pairs of strides; and so on;
    - the p ports of a GPU hold p strides at a time, and change side by side, so that s strides
      take (s - p) / p delays: 1.5 of them for 5 strides and 2 ports.

    `delay_s` is the delay of a change; infinite if no circuit may change.
    """
    network = seats.job.network
    n_ports = network.ports_per_gpu
    nodes = np.flatnonzero(seats.nodes.how == EXCHANGE)
    n_members = seats.n_members[nodes]
    send_s = seats.nodes.bytes_sent[nodes] / network.rail_bytes_per_s
    latency_s = seats.nodes.latency_s[nodes]
    least_s = np.empty(len(nodes))
    for n in np.unique(n_members).tolist():
        rows = n_members == n
        block_s = (send_s[rows] + latency_s[rows]) / (n - 1)  # of one block over one hop

        # Around a ring, which is one stride, blocks take 1 to n - 1 hops, n / 2 in the mean: so
        # often each byte is sent. Latencies of further hops are not counted.
        fastest_s = send_s[rows] * n / 2 + latency_s[rows]

        # With more strides blocks take fewer hops, but more strides than ports need changes. Fewer
        # strides than ports need not be tried, as they need no fewer changes; with n - 1 strides
        # each block goes over one hop, so more are of no use.
        for n_strides in range(max(n_ports, 2), max(n_ports, n - 1) + 1):
            changes_s = 0.0
            if n_strides > n_ports:
                changes_s = (n_strides - n_ports) / n_ports * delay_s
            strides_s = _count_least_hops(n, n_strides) * block_s + changes_s
            fastest_s = np.minimum(fastest_s, strides_s)
        least_s[rows] = fastest_s
    return least_s


def _count_least_hops(n_members: int, n_strides: int) -> int:
    """Return a lower bound of the hops that the n - 1 blocks of a member take, all together.

    Over s strides at most C(h + s - 1, h) distances are h hops away: the number of multisets of h
    strides. With 6 members and 2 strides two blocks take 1 hop and three take 2: 8 hops.
    """
    # Blocks are dealt out by their hops, few hops first, until all n - 1 blocks have theirs.
    n_hops = 0
    hops_of_part = 0
    n_left = n_members - 1
    while n_left:
        hops_of_part += 1
        n_parts = min(n_left, comb(hops_of_part + n_strides - 1, hops_of_part))
        n_hops += hops_of_part * n_parts
        n_left -= n_parts
    return n_hops


def bound_machine(head_s: Floats, duration_s: Floats, tail_s: Floats) -> float:
    """Return a lower bound of one machine with heads and tails, in seconds.

    It is the end of all, tails included, in the preemptive schedule in which the ready job with
    the longest tail goes first; no order of the jobs ends sooner (Jackson; Carlier 1982).
    ``head_s[job]`` is the earliest start of a job, ``tail_s[job]`` the least time from its end to
    the end of all. Job 0 with head 0 s, duration 3 s and tail 0 s is interrupted at 1 s by job 1
    with head 1 s, duration 1 s and tail 5 s, which ends at 2 s: the result is 2 + 5 = 7 s.
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
