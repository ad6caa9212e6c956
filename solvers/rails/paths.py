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
    """Start everything as early as its predecessors allow.

    Longest paths in topological order (Kahn), in time O(nodes + pairs).

    Parameters
    ----------
    duration_s
        ``duration_s[node]`` in seconds.
    pairs
        Pairs of nodes, shape (pairs, 2): the first has to end before the second starts.

    Returns
    -------
    Timed or None
        None if nodes wait for each other in a circle.
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
def _walk(lasts, pairs, start, order, work, following):
    """Write starts, and places in an order in which each node comes after what it waits for.

    A node is anything that lasts a time and waits for others. The longest path to each node is
    found in one pass over a topological order (Kahn).

    Parameters
    ----------
    lasts : float array, shape (nodes,)
        Durations in seconds.
    pairs : int array, shape (pairs, 2)
        The first node of a pair has to end before the second starts.
    start : float array, shape (nodes,)
        Starts in seconds; 0 at first.
    order : int array, shape (nodes,)
        Written: the place of each node.
    work : int array, shape (3, nodes)
        Scratch: by node the first pair that it begins, and how many nodes it waits for; and the
        nodes that wait for nothing any more, in order.
    following : int array, shape (pairs,)
        Scratch: the next pair with the same first node, -1 after the last one.

    Returns
    -------
    int
        How many nodes do not wait for themselves.
    """
    head, waits, queue = work
    head[:] = -1
    waits[:] = 0

    # Backwards, so that each list is in the order of its pairs.
    for k in range(len(pairs) - 1, -1, -1):  # nodes that wait for a node are a linked list
        one, two = pairs[k]
        following[k] = head[one]
        head[one] = k
        waits[two] += 1

    # The queue has the nodes that wait for nothing, in the order in which they came to that.
    done = 0
    for node in range(len(lasts)):
        if waits[node] == 0:
            queue[done] = node
            done += 1

    # Nodes start in the order of the queue; each frees those that wait for it last.
    at = 0
    while at < done:
        node = queue[at]
        order[node] = at
        end = start[node] + lasts[node]

        # Each node that waits for this one starts no earlier than its end.
        k = head[node]
        while k >= 0:
            later = pairs[k, 1]
            start[later] = max(start[later], end)
            waits[later] -= 1
            if waits[later] == 0:
                queue[done] = later
                done += 1
            k = following[k]
        at += 1
    return done
