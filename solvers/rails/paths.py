"""Times by longest paths: each node starts as early as the nodes before it allow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inlined_kernel, kernel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Timed(NamedTuple):
    """Starts and ends of nodes; shape (nodes,) each."""

    start_s: Floats
    """``start_s[node]`` in seconds from the start of the step."""
    end_s: Floats
    """``end_s[node]`` in seconds from the start of the step."""


class _Queue(NamedTuple):
    """Who waits for whom, and the events that are to come: a node starts, or it ends.

    Pairs are linked lists by node: in pair k, ``pairs[k, 1]`` waits for ``pairs[k, 0]``, which is
    the node in front. Arrays by rail have a last entry, that of nodes beside all rails (-1).
    """

    first_pair: Ints
    """``first_pair[node]``: the first of the pairs that the node is in front of, -1 if none."""
    next_pair: Ints
    """``next_pair[pair]``: the next pair with the same node in front, -1 behind the last one."""
    n_waiting_for: Ints
    """``n_waiting_for[node]``: for how many nodes it still waits."""
    heap: Ints
    """The nodes of the events: a binary heap by ``Timed.end_s``, when the event is, or a stack."""
    priority: Ints
    """``priority[node]``: of events at one moment the least comes first; less than the number of
    nodes if the node ends. Changes start before communications: one that could start when circuits
    change waits."""
    n_stops_seen: Ints
    """``n_stops_seen[node]``: how many stops of its rail the end of the node counts with."""
    n_stops: Ints
    """``n_stops[rail]``: how often the rail has stopped."""
    since_s: Floats
    """``since_s[rail]``: when its last stop begins, in seconds; -inf before the first one."""


def longest_paths(
    duration_s: Floats, pairs: Ints, rail_of: Ints | None = None, n_changes: int = 0
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
    n_changes
        How many nodes, the last ones, are changes of circuits; those on rails are all of one
        duration. A change stops its rail: no communication starts there meanwhile, and those under
        way end later by its duration. Changes of a rail that begin at one moment stop it once.
    """
    n_nodes = len(duration_s)
    node = np.arange(n_nodes)
    first_change = n_nodes - n_changes
    if rail_of is None:
        rail_of = np.full(n_nodes, -1)

    # Nodes on rails are queued twice, by their start and by their end; others start when they are
    # ready. With 10 nodes, change 7 starts with the priority 17, and communication 4 with 24.
    start_kind = np.where(rail_of < 0, 0, np.where(node < first_change, 2, 1))
    n_rails = 2 + int(rail_of.max(initial=-1))
    queue = _Queue(
        first_pair=np.full(n_nodes, -1),
        next_pair=np.empty(len(pairs), np.int64),
        n_waiting_for=np.zeros(n_nodes, np.int64),
        heap=np.empty(n_nodes, np.int64),
        priority=start_kind * n_nodes + node,
        n_stops_seen=np.zeros(n_nodes, np.int64),
        n_stops=np.zeros(n_rails, np.int64),
        since_s=np.full(n_rails, -np.inf),
    )
    timed = Timed(np.zeros(n_nodes), np.zeros(n_nodes))
    delay_s = duration_s[first_change:].max(initial=0.0)
    n_ended = _simulate(duration_s, pairs, rail_of, first_change, delay_s, queue, timed)
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


@inlined_kernel
def _queue_start(lasts_s, queue: _Queue, timed: Timed, size, node):
    """Queue a node that waits for nothing more, and return the new size of the heap.

    It is ready at ``timed.start_s[node]``, in seconds. Its event is its start or, beside all
    rails, where it starts at once, its end. Where nothing is on rails, events may come in any
    order (Kahn 1962), and the heap is a stack.
    """
    timed.end_s[node] = timed.start_s[node]
    if queue.priority[node] < len(lasts_s):
        timed.end_s[node] += lasts_s[node]
    if len(queue.since_s) == 1:
        queue.heap[size] = node
        return size + 1
    return push_node(queue.heap, timed.end_s, queue.priority, size, node)


@kernel
def _simulate(lasts_s, pairs, rail_of, first_change, delay_s, queue: _Queue, timed: Timed):
    """Simulate a step event by event: write starts and ends of nodes into `timed`.

    ``lasts_s[node]`` is in seconds, and in ``pairs[k]`` the second node waits for the first. Nodes
    from `first_change` on are changes of circuits. While one lasts, for `delay_s` seconds, its
    rail ``rail_of[node]`` stops: no communication starts there, and those under way end later by
    the delay. Changes that may begin at one moment are one, and one that comes during another
    follows it. The rail of computations is -1. Returns how many nodes end: fewer than there are if
    some wait for each other in a circle.

    Example: a communication from 0 to 5 s, and changes of 2 s that may begin at 1 s, 1 s and 2 s.
    The first two last from 1 to 3 s and the third from 3 to 5 s: the communication ends at 9 s. If
    nothing is on rails the cost is linear in nodes and pairs, else for n nodes O(n log n).
    """
    # Until a node starts, ``start_s[node]`` is when it is ready, and until it has ended
    # ``end_s[node]`` is when its next event is: its start, as long as its priority is `n_nodes` or
    # more, else its end. Of events at one moment ends come first.
    heap = queue.heap
    priority = queue.priority
    since_s = queue.since_s
    start_s = timed.start_s
    end_s = timed.end_s
    n_nodes = len(lasts_s)

    # Lists are made from the last pair on, each pair in front of those before: with the pairs
    # (0, 2), (1, 2), (0, 3) the list of node 0 is the pairs 0 and 2, and node 2 waits for two
    # nodes.
    for pair in range(len(pairs) - 1, -1, -1):
        former = pairs[pair, 0]
        queue.next_pair[pair] = queue.first_pair[former]
        queue.first_pair[former] = pair
        queue.n_waiting_for[pairs[pair, 1]] += 1

    # Nodes that wait for nothing are ready at 0 s.
    size = 0
    for node in range(n_nodes):
        if queue.n_waiting_for[node] == 0:
            size = _queue_start(lasts_s, queue, timed, size, node)

    # Events by time: each takes a node from the queue, and most put one back.
    n_ended = 0
    while size:
        if len(since_s) > 1:
            size = pop_node(heap, end_s, priority, size)
        else:
            size -= 1
        node = heap[size]
        rail = rail_of[node]  # -1 beside all rails: the last entry of arrays by rail
        if priority[node] >= n_nodes:
            # It starts, on a rail. A change is joined to one that has begun at this moment, or is
            # still to begin (``since_s`` is no earlier than now); else it begins once the one
            # under way has ended. A communication waits for the end of a change of its rail.
            stopped_until_s = since_s[rail] + delay_s
            start_s[node] = max(end_s[node], stopped_until_s)
            if node >= first_change:
                if since_s[rail] < end_s[node]:
                    since_s[rail] = start_s[node]
                    queue.n_stops[rail] += 1
                start_s[node] = since_s[rail]

            # It is queued again by its end.
            queue.n_stops_seen[node] = queue.n_stops[rail]
            end_s[node] = start_s[node] + lasts_s[node]
            priority[node] = node
            size = push_node(heap, end_s, priority, size, node)
            continue

        # Stops of the rail that began in the meantime delay the end of a communication.
        n_more = queue.n_stops[rail] - queue.n_stops_seen[node]
        if n_more and node < first_change:
            for _ in range(n_more):  # one by one: equal times have to stay equal to the last digit
                end_s[node] += delay_s
            queue.n_stops_seen[node] += n_more
            size = push_node(heap, end_s, priority, size, node)
            continue

        # The node has ended: nodes that wait for nothing else any more are ready now.
        n_ended += 1
        pair = queue.first_pair[node]
        while pair >= 0:
            later = pairs[pair, 1]
            start_s[later] = max(start_s[later], end_s[node])
            queue.n_waiting_for[later] -= 1
            if queue.n_waiting_for[later] == 0:
                size = _queue_start(lasts_s, queue, timed, size, later)
            pair = queue.next_pair[pair]
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
