"""Dijkstra's algorithm from both ends of a way at once: what all searches of this kind share.

Each end has the nodes that it has reached, with the cost of the cheapest way known between them,
and a heap of those from which ways still have to be continued. Costs at the heads of both heaps
together are a lower bound of all ways that are not known yet: the search is over once the best
known way costs no more. Which steps lead on from a node is up to the caller. In all kernels `end`
is a `SearchEnd`, which they change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel
from optmatch.solvers.kernels.heap import pop, push

NOT_REACHED = 1 << 62
"""The cost of a node that an end has not reached: more than that of any way."""

N_WAITING, N_REACHED = range(2)
"""Places of `SearchEnd.counts`."""


class SearchEnd(NamedTuple):
    """The nodes that one end of a search has reached; none between searches."""

    cost: NDArray[np.int64]
    """(nodes,): the cost of the cheapest way known to the end, or `NOT_REACHED`."""
    previous: NDArray[np.int32]
    """(nodes,): the next node towards the end, -1 at the end itself."""
    reached: NDArray[np.int32]
    """(nodes,): the nodes with a cost, in the order of their discovery."""
    keys: NDArray[np.int64]
    """(places,): the costs of the nodes in the heap, the least one in front."""
    nodes: NDArray[np.int32]
    """(places,): these nodes."""
    counts: NDArray[np.int64]
    """(2,): how many entries the heap has (`N_WAITING`), and how many nodes have been reached
    (`N_REACHED`)."""


class Meeting(NamedTuple):
    """The best way known that joins both ends, seen from the end that is expanded."""

    cost: int
    """The cost of the whole way; at first more than any way may cost."""
    near: int
    """The last node on it that this end has reached, -1 for no way."""
    far: int
    """The node after it, which the other end has reached."""


def new_search_end(nodes: int, places: int) -> SearchEnd:
    """Allocate an end for a graph of `nodes` nodes, with a heap of `places` places."""
    return SearchEnd(
        cost=np.full(nodes, NOT_REACHED, dtype=np.int64),
        previous=np.zeros(nodes, dtype=np.int32),
        reached=np.zeros(nodes, dtype=np.int32),
        keys=np.zeros(places, dtype=np.int64),
        nodes=np.zeros(places, dtype=np.int32),
        counts=np.zeros(2, dtype=np.int64),
    )


@inner_kernel
def begin_at(end, node):
    """Let a search begin at a node, where nothing is reached yet."""
    end.counts[:] = 0
    reach(end, node, -1, 0)


@inner_kernel
def reach(end, node, previous, cost):
    """Keep a way to a node that costs less than the one known so far, and put it into the heap.

    `previous` is the node before it on the way, -1 at the end of the search itself.
    """
    if end.cost[node] == NOT_REACHED:
        end.reached[end.counts[N_REACHED]] = node
        end.counts[N_REACHED] += 1
    end.cost[node] = cost
    end.previous[node] = previous
    end.counts[N_WAITING] = push(end.keys, end.nodes, end.counts[N_WAITING], cost, node)


@inner_kernel
def take_nearest(end):
    """Take the node of the least cost from the heap, to continue its way.

    -1 if a cheaper way to the node, which has been continued before, was found later.
    """
    node = np.int64(end.nodes[0])
    cost = end.keys[0]
    end.counts[N_WAITING] = pop(end.keys, end.nodes, end.counts[N_WAITING])
    if cost > end.cost[node]:
        return np.int64(-1)
    return node


@inner_kernel
def forget(cost, reached, n_reached):
    """Let no node be reached, after a search: reset ``cost[node]`` of the first ones in a list."""
    for place in range(n_reached):
        cost[reached[place]] = NOT_REACHED


@inner_kernel
def turned(meeting):
    """Return a `Meeting` as it is seen from the other end."""
    return Meeting(meeting.cost, meeting.far, meeting.near)


@inner_kernel
def count_chain(previous, node):
    """Count the nodes from an end to `node`, both included; 0 for the node -1.

    ``previous[node]`` is the next node towards the end, -1 at the end itself.
    """
    count = 0
    while node >= 0:
        count += 1
        node = previous[node]
    return count


@inner_kernel
def write_chain(previous, node, path, place, step):
    """Write a node and all between it and the end, the end last, to successive places of `path`.

    The node goes to `place`, the next one to ``place + step``, where `step` is 1 or -1.
    """
    while node >= 0:
        path[place] = node
        place += step
        node = previous[node]
