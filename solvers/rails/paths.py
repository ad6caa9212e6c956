"""Times by longest paths: each node starts as early as the nodes before it allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inlined_kernel, inner_kernel, kernel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_BESIDE = 1
_CHANGE = 2
_ON_RAIL = 3
"""Starts in their order at one moment, after all ends: of something that rides no rail, of a
change of circuits, and of a communication. One that could start when circuits change waits."""


class Timed(NamedTuple):
    """Starts and ends of nodes; shape (nodes,) each."""

    start_s: Floats
    """``start_s[node]`` in seconds from the start of the step."""
    end_s: Floats
    """``end_s[node]`` in seconds from the start of the step."""


class _Successors(NamedTuple):
    """Who waits for each node, as a linked list of pairs by node; written by `_link_pairs`.

    In pair k, ``pairs[k, 1]`` waits for ``pairs[k, 0]``, which is the node in front.
    """

    first_pair: Ints
    """``first_pair[node]``: the first of the pairs that the node is in front of, -1 if none."""
    next_pair: Ints
    """``next_pair[pair]``: the next pair with the same node in front, -1 behind the last one."""
    n_waiting_for: Ints
    """``n_waiting_for[node]``: for how many nodes it still waits."""


class _Scratch(NamedTuple):
    """What a simulation with stops works in; the first contents do not matter."""

    heap: Ints
    """The queue of events: nodes that start or end next."""
    key_s: Floats
    """``key_s[node]``: when the event of the node is, in seconds."""
    priority: Ints
    """``priority[node]``: of events at one moment the least comes first; less than the number of
    nodes if the node ends."""
    n_stops_seen: Ints
    """``n_stops_seen[node]``: how many stops of its rail the end of the node counts with."""
    n_stops: Ints
    """``n_stops[rail]``: how often the rail has stopped. Here and below the last entry is that of
    nodes beside all rails, which never stop."""
    since_s: Floats
    """``since_s[rail]``: when its last stop begins, in seconds; -1 before the first one."""
    until_s: Floats
    """``until_s[rail]``: when its last stop ends, in seconds."""


def longest_paths(
    duration_s: Sequence[float] | Floats,
    pairs: Ints,
    rail_of: Ints | None = None,
    first_change: int = 0,
) -> Timed | None:
    """Start everything as early as its predecessors allow; None if nodes wait in a circle.

    Parameters
    ----------
    duration_s
        ``duration_s[node]``: how long each lasts, in seconds.
    pairs
        ``pairs[k]``: two nodes of which the first has to end before the second starts; shape
        (pairs, 2).
    rail_of
        ``rail_of[node]``: the rail of a communication or a change of circuits, -1 of a node beside
        all rails. None if no change stops a rail.
    first_change
        Nodes from here on are changes of circuits, all of one duration. A change stops its rail:
        no communication starts there meanwhile, and those under way end later by its duration.
        Changes of a rail that begin at one moment stop it once.
    """
    lasts_s = np.asarray(duration_s, np.float64)
    n_nodes = len(lasts_s)
    timed = Timed(np.zeros(n_nodes), np.zeros(n_nodes))
    successors = _Successors(
        first_pair=np.full(n_nodes, -1),
        next_pair=np.empty(len(pairs), np.int64),
        n_waiting_for=np.zeros(n_nodes, np.int64),
    )
    queue = np.empty(n_nodes, np.int64)
    if rail_of is None:
        n_ended = _follow_pairs(lasts_s, pairs, successors, queue, timed)
        return timed if n_ended == n_nodes else None

    # Stops depend on what is under way when they come: events are simulated in order of time.
    # Arrays by rail have an entry for each rail and, last, one for nodes beside rails, which is
    # number -1: with rails 0 to 3 these are 3 + 2 entries.
    n_rails = 2 + int(rail_of.max(initial=-1))
    scratch = _Scratch(
        heap=queue,
        key_s=np.zeros(n_nodes),
        priority=np.empty(n_nodes, np.int64),
        n_stops_seen=np.zeros(n_nodes, np.int64),
        n_stops=np.zeros(n_rails, np.int64),
        since_s=np.full(n_rails, -1.0),
        until_s=np.zeros(n_rails),
    )
    n_ended = _simulate(lasts_s, pairs, rail_of, first_change, successors, scratch, timed)
    return timed if n_ended == n_nodes else None


def find_heads(duration_s: Floats, pairs: Ints) -> Floats:
    """Find the head of each node, the longest path to its start, in seconds; shape (nodes,).

    ``duration_s[node]`` is in seconds, and in ``pairs[k]`` the first node has to end before the
    second starts. Nodes may not wait for each other in a circle (AssertionError): jobs in which
    they do were refused before, by `RailJob.lower_bound`.
    """
    timed = longest_paths(duration_s, pairs)
    assert timed is not None
    return timed.start_s


def find_tails(duration_s: Floats, pairs: Ints) -> Floats:
    """Find the tail of each node, the longest path from its end to the end of all, in seconds.

    It is the head in the step run backwards. ``duration_s[node]`` is in seconds; of ``pairs[k]``
    the second node waits for the first.
    """
    return find_heads(duration_s, pairs[:, ::-1].copy())


@inner_kernel
def _link_pairs(pairs, successors: _Successors):
    """Write the linked lists of `successors`, each in the order of its pairs, and the counts.

    With the pairs (0, 2), (1, 2), (0, 3) the list of node 0 is the pairs 0 and 2, and node 2 waits
    for two nodes. Lists are made from the last pair on, each pair in front of those before. At
    first ``first_pair`` is -1 and ``n_waiting_for`` is 0 everywhere.
    """
    for pair in range(len(pairs) - 1, -1, -1):
        former = pairs[pair, 0]
        successors.next_pair[pair] = successors.first_pair[former]
        successors.first_pair[former] = pair
        successors.n_waiting_for[pairs[pair, 1]] += 1


@kernel
def _follow_pairs(lasts_s, pairs, successors: _Successors, queue, timed: Timed):
    """Write starts and ends of nodes in a topological order (Kahn 1962); return how many end.

    Fewer than all end if nodes wait for each other in a circle. A node starts at the latest end of
    those before it; ``timed.start_s`` is 0 s at first. ``lasts_s[node]`` is in seconds, in
    ``pairs[k]`` the second node waits for the first, and `queue` is scratch, shape (nodes,). The
    cost is linear in nodes and pairs.
    """
    # ``queue[:n_queued]`` are the nodes whose start is known, at first those that wait for none.
    _link_pairs(pairs, successors)
    n_queued = 0
    for node in range(len(lasts_s)):
        if successors.n_waiting_for[node] == 0:
            queue[n_queued] = node
            n_queued += 1

    # Any of them may be next: the last one is taken.
    n_ended = 0
    while n_queued:
        n_queued -= 1
        node = queue[n_queued]
        end_s = timed.start_s[node] + lasts_s[node]
        timed.end_s[node] = end_s
        n_ended += 1

        # The nodes that wait for it, one pair after the other.
        pair = successors.first_pair[node]
        while pair >= 0:
            later = pairs[pair, 1]
            timed.start_s[later] = max(timed.start_s[later], end_s)
            successors.n_waiting_for[later] -= 1
            if successors.n_waiting_for[later] == 0:
                queue[n_queued] = later
                n_queued += 1
            pair = successors.next_pair[pair]
    return n_ended


@kernel
def _simulate(
    lasts_s,
    pairs,
    rail_of,
    first_change,
    successors: _Successors,
    scratch: _Scratch,
    timed: Timed,
):
    """Write starts and ends of nodes into `timed`, and return how many end: not all in a circle.

    ``lasts_s[node]`` is in seconds, and in ``pairs[k]`` the second node waits for the first. Nodes
    from `first_change` on are changes of circuits, all of one duration. While one lasts, its rail
    ``rail_of[node]`` stops: no communication starts there, and those under way end later by that
    duration. Changes that may begin at one moment are one, and one that comes during another
    follows it. The rail of computations is -1. With a communication from 0 to 5 s and changes of 2
    s that may begin at 1 s, 1 s and 2 s, the first two last from 1 to 3 s and the third from 3 to
    5 s: the communication ends at 9 s.
    """
    heap = scratch.heap
    key_s = scratch.key_s
    priority = scratch.priority
    n_nodes = len(lasts_s)
    _link_pairs(pairs, successors)

    # Nodes that wait for nothing start at 0 s. At one moment ends come first: the priority of a
    # node that is to end is its number. Then come starts, in the order of their kinds, which count
    # from 1 on, and of the numbers of the nodes: with 10 nodes, a change (2) of node 7 has 27.
    size = 0
    for node in range(n_nodes):
        kind = _BESIDE
        if node >= first_change:
            kind = _CHANGE
        elif rail_of[node] >= 0:
            kind = _ON_RAIL
        priority[node] = kind * n_nodes + node
        if successors.n_waiting_for[node] == 0:
            size = push_node(heap, key_s, priority, size, node)

    # Events by time: each takes a node from the queue, and most put one back.
    n_ended = 0
    while size:
        size = pop_node(heap, key_s, priority, size)
        node = heap[size]
        rail = rail_of[node]  # -1 beside all rails: the last entry of arrays by rail
        is_start = priority[node] >= n_nodes
        if is_start:
            # A change is joined to one that has begun at this moment, or is still to begin
            # (``since_s`` is no earlier than now); else it begins once the one under way has
            # ended. A communication waits for the end of a change of its rail.
            if node >= first_change:
                if scratch.since_s[rail] < key_s[node]:
                    scratch.since_s[rail] = max(key_s[node], scratch.until_s[rail])
                    scratch.until_s[rail] = scratch.since_s[rail] + lasts_s[node]
                    scratch.n_stops[rail] += 1
                timed.start_s[node] = scratch.since_s[rail]
            else:
                timed.start_s[node] = max(key_s[node], scratch.until_s[rail])

            # It is queued again by its end.
            scratch.n_stops_seen[node] = scratch.n_stops[rail]
            key_s[node] = timed.start_s[node] + lasts_s[node]
            priority[node] = node
            size = push_node(heap, key_s, priority, size, node)
            continue

        # Stops of the rail that began in the meantime delay the end of a communication.
        n_more = scratch.n_stops[rail] - scratch.n_stops_seen[node]
        if n_more and node < first_change:
            for _ in range(n_more):  # one by one: equal times have to stay equal to the last digit
                key_s[node] += lasts_s[first_change]
            scratch.n_stops_seen[node] += n_more
            size = push_node(heap, key_s, priority, size, node)
            continue

        # The node has ended: nodes that wait for nothing else any more can start now.
        timed.end_s[node] = key_s[node]
        n_ended += 1
        pair = successors.first_pair[node]
        while pair >= 0:
            later = pairs[pair, 1]
            successors.n_waiting_for[later] -= 1
            if successors.n_waiting_for[later] == 0:
                key_s[later] = key_s[node]
                size = push_node(heap, key_s, priority, size, later)
            pair = successors.next_pair[pair]
    return n_ended


# The queue: a binary heap by key, then by priority


@inlined_kernel
def _goes_before(key_s, priority, node, other):
    """Compare two nodes by ``key_s[node]``, then by ``priority[node]``; the least goes first."""
    if key_s[node] == key_s[other]:
        return priority[node] < priority[other]
    return key_s[node] < key_s[other]


@inlined_kernel
def push_node(heap, key_s, priority, size, node):
    """Add a node to the binary heap ``heap[:size]`` of nodes, and return its new size.

    The node with the least ``key_s[node]``, a time in seconds, goes first, and of equal keys the
    one with the least ``priority[node]``. Changes `heap` in place, which has room for one more.
    """
    # The node comes last, and rises above all parents that it goes before. The parent of place k
    # is place (k - 1) // 2.
    place = size
    heap[place] = node
    while place > 0:
        parent = (place - 1) // 2
        if not _goes_before(key_s, priority, heap[place], heap[parent]):
            break
        heap[place], heap[parent] = heap[parent], heap[place]
        place = parent
    return size + 1


@inlined_kernel
def pop_node(heap, key_s, priority, size):
    """Take the first node from the binary heap ``heap[:size]``, and return the new size.

    The node stands behind the heap then, at ``heap[new size]``. Changes `heap` in place; nodes go
    by ``key_s[node]`` and, if keys are equal, by ``priority[node]``, the least first. Nodes 7, 4,
    9 with the keys 1, 5 and 3 s become 9, 4 and, behind the heap, 7; the result is 2.
    """
    # The first node changes places with the last one, which then sinks below all children that go
    # before it. The children of place k are the places 2 k + 1 and 2 k + 2.
    size -= 1
    heap[0], heap[size] = heap[size], heap[0]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            return size

        # Of two children the one that goes first is compared.
        if child + 1 < size and _goes_before(key_s, priority, heap[child + 1], heap[child]):
            child += 1
        if not _goes_before(key_s, priority, heap[child], heap[place]):
            return size
        heap[place], heap[child] = heap[child], heap[place]
        place = child
