"""Times by longest paths: each node starts as early as the nodes before it allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import kernel

Ints = NDArray[np.int64]


class Timed(NamedTuple):
    """Starts and ends of nodes, and an order in which each comes after all that it waits for.

    Each array has shape (nodes,).
    """

    start_s: NDArray[np.float64]
    """``start_s[node]`` in seconds from the start of the step."""
    end_s: NDArray[np.float64]
    """``end_s[node]`` in seconds from the start of the step."""
    order: Ints
    """``order[node]``: its place."""


def longest_paths(duration_s: Sequence[float] | NDArray[np.float64], pairs: Ints) -> Timed | None:
    """Start everything as early as its predecessors allow (Kahn), in time O(nodes + pairs).

    ``duration_s[node]`` is how long each lasts. ``pairs[k]`` are two nodes of which the first has
    to end before the second starts. None if nodes wait for each other in a circle.
    """
    lasts_s = np.asarray(duration_s, np.float64)
    n_nodes = len(lasts_s)
    start_s = np.zeros(n_nodes)
    order = np.zeros(n_nodes, np.int64)
    scratch = np.empty((3, n_nodes), np.int64)
    n_done = _walk(lasts_s, pairs, start_s, order, scratch, np.empty(len(pairs), np.int64))
    if n_done < n_nodes:
        return None
    return Timed(start_s, start_s + lasts_s, order)


@kernel
def _walk(lasts_s, pairs, start_s, order, scratch, next_pair):
    """Write starts and places of nodes, and return how many start: fewer than all in a circle.

    ``lasts_s[node]`` are durations. ``order[node]`` becomes the place of a node in the order of
    starts. With durations of 2 s, 3 s and 1 s and the pairs (0, 2) and (1, 2), nodes 0 and 1 start
    at 0 s and node 2 at 3 s. `start_s` has to be 0; `scratch`, shape (3, nodes), has the first
    pair of each node, for how many it waits, and the queue; `next_pair` chains the pairs of one
    node.
    """
    first_pair, n_waiting_for, queue = scratch
    first_pair[:] = -1
    n_waiting_for[:] = 0

    # Pairs with the same first node are a linked list. It is made from the last pair on, so that
    # each list is in the order of its pairs.
    for pair in range(len(pairs) - 1, -1, -1):
        former = pairs[pair, 0]
        next_pair[pair] = first_pair[former]
        first_pair[former] = pair
        n_waiting_for[pairs[pair, 1]] += 1

    # The queue has the nodes that wait for nothing, in the order in which they came to that.
    n_queued = 0
    for node in range(len(lasts_s)):
        if n_waiting_for[node] == 0:
            queue[n_queued] = node
            n_queued += 1

    # Nodes start in the order of the queue; each frees those that wait for it last.
    n_started = 0
    while n_started < n_queued:
        node = queue[n_started]
        order[node] = n_started
        n_started += 1
        end_s = start_s[node] + lasts_s[node]

        # Each node that waits for this one starts no earlier than its end.
        pair = first_pair[node]
        while pair >= 0:
            later = pairs[pair, 1]
            start_s[later] = max(start_s[later], end_s)
            n_waiting_for[later] -= 1
            if n_waiting_for[later] == 0:
                queue[n_queued] = later
                n_queued += 1
            pair = next_pair[pair]
    return n_started
