"""1-factorisations: all pairs split into matchings, and exchanges that keep them so.

Vertices are the ports; of ports with an input and an output first the inputs, then the outputs;
with an odd number of bidirectional ports one more, the bench, whose partner is idle.
``factors[slot, vertex]`` is the partner of a vertex.

A *factor* pairs all vertices: one row of `factors`, int64 of shape (vertices,), in which
``partner[partner[vertex]] == vertex``. The *edges* of a factor are its pairs; a 1-factorisation
has each pair in exactly one of its factors. For 4 bidirectional ports there are three factors:
``[1, 0, 3, 2]``, ``[2, 3, 0, 1]`` and ``[3, 2, 1, 0]``.

The edges of two factors together make *cycles*, along which both alternate. If both swap their
edges on one cycle, they are factors again, and together have the same pairs. With 8 ports, let one
factor have the edges 0-1, 2-3, 4-5, 6-7, and another one 0-2, 1-3, 4-6, 5-7. The cycle through 0
is 0-1-3-2-0. After a swap, the one has 0-2, 1-3, 4-5, 6-7, the other 0-1, 2-3, 4-6, 5-7.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.solvers.kernels.arrays import copy_into
from optmatch.solvers.kernels.decorators import inner_kernel, kernel


def tournament(n_ports: int, bidirectional: bool) -> NDArray[np.int64]:
    """Make a schedule of matchings in which each port meets every other port once.

    It is the round-robin tournament of the circle method, ``factors[slot, vertex]``. It needs an
    even number of ports, so there are two cases with an odd number:

    - bidirectional ports get one port more, the bench; a port that meets it is idle;
    - of other ports each is connected to the one `shift` places onward, for each shift from 1 on.

    A matching is written down as partners of *vertices*. A bidirectional port is one vertex.
    Another port is two, since it sends to one port and receives from another: vertex p is the
    input of port p, and vertex n + p its output.

    Example with 3 one-way ports. In slot 0 the port 0 sends to 1, 1 to 2 and 2 to 0: the partners
    are ``[4, 5, 3, 2, 0, 1]``.
    """
    # ``rounds[slot, port]`` is the port to which a port is connected. Circle method: in round k
    # ports meet whose numbers add up to k modulo n - 1, and the one that would meet itself meets
    # the last port. For 4 ports the rounds are 0-3 1-2, 0-1 2-3 and 0-2 1-3.
    if bidirectional or n_ports % 2 == 0:
        last = n_ports + n_ports % 2 - 1
        other_ports = np.arange(last, dtype=np.int64)
        partners = (other_ports[:, None] - other_ports) % max(last, 1)
        slots, alone = np.nonzero(partners == other_ports)
        partners[slots, alone] = last
        rounds = np.column_stack([partners, alone])
    else:
        shift = np.arange(1, n_ports)[:, None]
        rounds = (np.arange(n_ports)[None, :] + shift) % n_ports
    if bidirectional:
        return rounds

    # One-way ports: the partner of an input is an output, number n and more. The partner of an
    # output is the input that sends to it, by the inverse of the permutation, its argsort.
    back = np.argsort(rounds, axis=1, kind="stable")
    return np.concatenate([rounds + n_ports, back], axis=1)


def relabel(factors: NDArray[np.int64], names: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give vertex v the name ``names[v]``, a permutation, in ``factors[slot, vertex]``."""
    renamed = np.empty_like(factors)
    renamed[:, names] = names[factors]
    return renamed


def matchings_of(
    factors: NDArray[np.int64], n_ports: int, bidirectional: bool
) -> NDArray[np.int32]:
    """Turn one factor, or a row of them, into matchings of the ports, -1 where idle."""
    partner = factors[..., :n_ports]
    if bidirectional:
        return np.where(partner < n_ports, partner, IDLE).astype(np.int32)
    return (partner - n_ports).astype(np.int32)


@inner_kernel
def _next_vertex(factors, vertex, taken, before):
    """Find the next vertex along the edges that `taken` leaves, and the factor of its edge.

    ``factors[k, vertex]`` are three factors, and ``taken[vertex]`` is the partner in another one,
    made of their edges. The walk came to `vertex` from `before`, -1 at its start. Returns the next
    vertex and the number k of the factor that has the edge; -1 twice if there is none, as two
    factors may have an edge in common where jobs share a fabric.
    """
    for k in range(3):
        neighbour = factors[k, vertex]
        if neighbour != taken[vertex] and neighbour != before:
            return neighbour, k
    return -1, -1


@inner_kernel
def _next_coins(coins):
    """Return the random number after this one; its low bits are poor ones.

    A generator of NumPy would take longer to compile than all the rest.
    """
    return (coins * 1103515245 + 12345) & 0x7FFFFFFF


@inner_kernel
def _walk_alternating_cycle(factors, start, coins, place, path):
    """Walk from `start` along the edges of three factors until a cycle closes that alternates.

    ``factors[k, vertex]`` are the partners in them. ``path[:length]`` receives the vertices of the
    walk, and ``place[vertex]`` their places in it, -1 for others. The walk takes an edge of the
    first factor, then one of the second or third by chance, and so on, until it comes to a vertex
    where it was before. That closes a cycle, which alternates if this vertex is at an even place
    of the walk, from which an edge of the first factor leads on. `coins` is a random number below
    2**31. Returns the vertex where the cycle closes, -1 if the walk cannot go on; the number of
    vertices in `path`; and the next random number.
    """
    place[:] = -1
    length = 0
    vertex = start
    while place[vertex] < 0:
        mate = factors[0, vertex]
        place[vertex] = length
        place[mate] = length + 1
        path[length] = vertex
        path[length + 1] = mate
        length += 2

        # A vertex at an odd place would close a cycle that does not alternate: then the edge of
        # the other factor is taken, if that one is better.
        coins = _next_coins(coins)
        side = 1 + (coins >> 16 & 1)
        vertex = factors[side, mate]
        if place[vertex] >= 0 and place[vertex] % 2:
            vertex = factors[3 - side, mate]
            if place[vertex] >= 0 and place[vertex] % 2:
                return -1, length, coins
    return vertex, length, coins


@inner_kernel
def _weigh_cycle(factors, start, taken):
    """Go round a cycle of the edges that a new first factor leaves, and compare its colourings.

    ``factors[k, vertex]`` are the three old factors, and ``taken[vertex]`` is the partner in the
    new first one. Without its edges each vertex has two edges left, and these make cycles. A
    colouring gives the edges of a cycle to the new second and third factor alternately.

    Returns ``is_even, more_alike``. The first is whether the cycle through `start` has an even
    number of edges, without which it has no colouring. The second compares two colourings: in the
    one the first edge goes to the second factor, in the other to the third. It is how many more
    edges of the one stay in the factor that they were in. If the walk comes to no edge, both are
    False and 0.
    """
    more_alike = 0
    count = 0
    vertex = start
    before = -1
    while True:
        following, k = _next_vertex(factors, vertex, taken, before)
        if following < 0:
            return False, 0

        # An edge of the old second factor stays if it comes at an even place, one of the third at
        # an odd place; edges of the old first factor move in any case.
        if k > 0:
            more_alike += 1 if (k == 1) == (count % 2 == 0) else -1
        before = vertex
        vertex = following
        count += 1
        if vertex == start:
            return count % 2 == 0, more_alike


@inner_kernel
def _colour_cycle(factors, start, colour, new):
    """Give the edges of a cycle to the new second and third factor alternately.

    The edges are those of the three old ``factors[k, vertex]`` that the new first factor, ``new[0,
    vertex]``, leaves, along the cycle through the vertex `start`. The first one goes to
    ``new[colour]``, `colour` being 1 or 2, the next one to the other row, and so on; both rows
    receive the partners of the vertices.
    """
    vertex = start
    before = -1
    while True:
        following, _ = _next_vertex(factors, vertex, new[0], before)
        new[colour, vertex] = following
        new[colour, following] = vertex
        before = vertex
        vertex = following
        colour = 3 - colour
        if vertex == start:
            return


@kernel
def divide_three_factors(factors, start, coins, new, place, path):
    """Split the edges of three factors into three other ones; False if the walk or split failed.

    ``factors[k, vertex]`` are the partners in three factors, which stay as they are. Writes
    ``new[k, vertex]``, those in the three new ones, and uses ``place[vertex]`` and ``path[step]``
    (vertices + 2) as scratch. The first one changes along a random alternating cycle near the
    vertex `start`; what is left of the three is split in two, as much as possible like before. Two
    factors can only swap cycles that they have; this move reaches factors that no such swaps lead
    to. `coins` is a random number below 2**31.
    """
    vertex, length, coins = _walk_alternating_cycle(factors, start, coins, place, path)
    if vertex < 0:
        return False

    # On the cycle, the new first factor has the edges that the old one has not: those from each
    # odd place of the path to the next even one, the last of which leads back to `vertex`. In
    # `new[1]`, -1 tells that a vertex has not been on a cycle of the split yet.
    n = factors.shape[1]
    copy_into(new[0], factors[0])
    new[1, :] = -1
    for step in range(place[vertex] + 1, length, 2):
        u = path[step]
        v = path[step + 1] if step + 1 < length else vertex
        new[0, u] = v
        new[0, v] = u

    # Each vertex has two edges left, which make cycles. There are two ways to divide the edges of
    # a cycle: the one that leaves more of them in their factor is taken; chance decides ties.
    for v in range(n):
        if new[1, v] >= 0:
            continue
        is_even, more_alike = _weigh_cycle(factors, v, new[0])
        if not is_even:
            return False
        coins = _next_coins(coins)
        takes_second = more_alike > 0 or (more_alike == 0 and coins >> 16 & 1)
        _colour_cycle(factors, v, 1 if takes_second else 2, new)
    return True


@kernel
def find_swap(factors, vertex_excess, first, penalty, coins, seen):
    """Find a cycle that the factor `first` and another one make, and that both should swap.

    If both swap their edges on a cycle, each is a factor again, and all pairs still meet once. The
    edges 0-1, 2-3, 4-5 of one and 1-2, 3-0, 4-5 of another make the cycle 0, 1, 2, 3; after the
    swap the one has 1-2, 3-0, 4-5.
    The cycles of `first` with each other factor are compared by what they are expected to save. A
    cycle that saves more than the best so far takes its place by chance alone, once in sixteen
    times.

    `first` is the number of a slot, and ``factors[slot, vertex]`` the partner of a vertex.
    ``vertex_excess[slot, vertex]`` is the excess of the circuit at a vertex, half at each end, and
    `penalty` the expected one of a new circuit, both in 1/10,000 of a cell and half at each end.
    `coins` is a random number below 2**31. `seen`, shape (vertices,), is scratch. Returns the
    other slot and a vertex of the cycle; -1 twice if there is none.
    """
    slots, n = factors.shape
    most_saved = -(1 << 60)
    best_slot = -1
    best_vertex = -1
    for other in range(slots):
        if other == first:
            continue
        seen[:] = 0
        for start in range(n):
            if seen[start]:
                continue

            # Once round the cycle: by an edge of `first`, by one of `other`, and so on. Both slots
            # lose what their circuits on the cycle cost too much, and get new ones.
            v = start
            saved = 0
            count = 0
            while True:
                seen[v] = 1
                saved += vertex_excess[first, v] + vertex_excess[other, v] - 2 * penalty
                v = factors[other if count % 2 else first, v]
                count += 1
                if v == start:
                    break

            # A cycle of two vertices is an edge that both have; after a swap on one of all
            # vertices the slots would only have changed their numbers. Four bits of `coins` are 0
            # once in sixteen times.
            if 2 < count < n and saved > most_saved:
                coins = _next_coins(coins)
                if coins >> 16 & 15 == 0:
                    most_saved = saved
                    best_slot = other
                    best_vertex = start
    return best_slot, best_vertex


@kernel
def swap_cycle(factors, start, new):
    """Let two factors swap their edges on the cycle through the vertex `start`.

    ``factors[side, vertex]`` are the partners in both, side 0 and 1, and ``new[side, vertex]``
    receives those after the swap: on the cycle those of the other side, elsewhere the same.
    """
    for side in range(2):
        copy_into(new[side], factors[side])

    # Each turn takes two steps, one along an edge of either factor, as the cycle has an even
    # number of vertices. At each vertex, both factors get the partner that the other one has.
    v = start
    while True:
        for side in range(2):
            new[side, v] = factors[1 - side, v]
            new[1 - side, v] = factors[side, v]
            v = factors[side, v]
        if v == start:
            break
