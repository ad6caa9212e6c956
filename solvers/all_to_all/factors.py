"""1-factorisations: all pairs split into matchings, and exchanges that keep them so.

Vertices are the ports; of ports with an input and an output first the inputs, then the outputs;
with an odd number of bidirectional ports one more, the bench, whose partner is idle.
``factors[slot, vertex]`` is the partner of a vertex.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.solvers.kernels.decorators import inner_kernel, kernel


def tournament(n_ports: int, bidirectional: bool) -> NDArray[np.int64]:
    """Make the round-robin tournament (circle method; cyclic shifts where only they fit).

    Returns ``factors[slot, vertex]``, int64: n - 1 slots, or n for an odd number of bidirectional
    ports.
    """
    if bidirectional or n_ports % 2 == 0:
        rounds = _circle(n_ports + n_ports % 2)
    else:
        shift = np.arange(1, n_ports)[:, None]
        rounds = (np.arange(n_ports)[None, :] + shift) % n_ports
    if bidirectional:
        return rounds
    back = np.argsort(rounds, axis=1, kind="stable")
    return np.concatenate([rounds + n_ports, back], axis=1)


def _circle(n: int) -> NDArray[np.int64]:
    """Let ports meet whose numbers add up to the round; a port left alone meets the last."""
    m = n - 1
    vertex = np.arange(m, dtype=np.int64)
    rounds = np.full((m, n), IDLE, dtype=np.int64)
    for k in range(m):
        partner = (k - vertex) % m
        alone = int(np.flatnonzero(partner == vertex)[0])
        partner[alone] = m
        rounds[k, :m] = partner
        rounds[k, m] = alone
    return rounds


def relabel(factors: NDArray[np.int64], names: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give vertex v the name ``names[v]``."""
    renamed = np.empty_like(factors)
    renamed[:, names] = names[factors]
    return renamed


def matchings(factors: NDArray[np.int64], n_ports: int, bidirectional: bool) -> NDArray[np.int32]:
    """Turn one factor, or a row of them, into matchings of the ports."""
    partner = factors[..., :n_ports]
    if bidirectional:
        return np.where(partner < n_ports, partner, IDLE).astype(np.int32)
    return (partner - n_ports).astype(np.int32)


@inner_kernel
def _other(factors, vertex, taken, before):
    """Find the next vertex along the edges that `taken` leaves, and the factor of its edge.

    -1 if there is none: factors of jobs that share a fabric may have an edge in common.
    """
    for k in range(3):
        neighbour = factors[k, vertex]
        if neighbour != taken[vertex] and neighbour != before:
            return neighbour, k
    return -1, -1


@inner_kernel
def _toss(coins):
    """Return the random number after this one; its low bits are poor ones.

    A generator of NumPy would take longer to compile than all the rest.
    """
    return (coins * 1103515245 + 12345) & 0x7FFFFFFF


@kernel
def exchange(factors, start, coins, new, place, path):
    """Split the edges of three factors into three other ones.

    The first one changes along a random alternating cycle near the vertex `start`; what is left of
    the three is split in two, as much as possible like before. Chance decides by `coins`, a random
    number below 2**31. Returns False if the walk or the split failed; `new` is then of no use.
    `new` is the result, shape (3, vertices); `place` and `path` are room to work in, of shapes
    (vertices,) and (vertices + 2,).
    """
    n = factors.shape[1]
    first = factors[0]
    place[:] = -1
    length = 0
    vertex = start
    while place[vertex] < 0:
        mate = first[vertex]
        place[vertex] = length
        place[mate] = length + 1
        path[length] = vertex
        path[length + 1] = mate
        length += 2
        coins = _toss(coins)
        side = 1 + (coins >> 16 & 1)
        vertex = factors[side, mate]
        if place[vertex] >= 0 and place[vertex] % 2:  # would not alternate
            vertex = factors[3 - side, mate]
            if place[vertex] >= 0 and place[vertex] % 2:
                return False
    for v in range(n):
        new[0, v] = first[v]
        new[1, v] = -1
    for step in range(place[vertex] + 1, length, 2):
        u = path[step]
        v = path[step + 1] if step + 1 < length else vertex
        new[0, u] = v
        new[0, v] = u
    for v in range(n):
        if new[1, v] >= 0:
            continue
        # once around the cycle at v: is it even, and which colouring is more like before?
        agree = 0
        count = 0
        at = v
        before = -1
        while True:
            following, k = _other(factors, at, new[0], before)
            if following < 0:
                return False
            if k > 0:
                agree += 1 if (k == 1) == (count % 2 == 0) else -1
            before = at
            at = following
            count += 1
            if at == v:
                break
        if count % 2:
            return False
        coins = _toss(coins)
        colour = 1 if agree > 0 or (agree == 0 and coins >> 16 & 1) else 2
        before = -1
        while True:
            following, k = _other(factors, at, new[0], before)
            new[colour, at] = following
            new[colour, following] = at
            before = at
            at = following
            colour = 3 - colour
            if at == v:
                break
    return True


@kernel
def find_swap(factors, beyond, first, penalty, coins, cycle, seen):
    """Find a cycle that the factor `first` and another one make, and that both should swap.

    ``beyond[slot, vertex]`` is what the circuit there costs beyond its shortest route, half at
    each end. A circuit that is new is expected to cost `penalty` at each end. Of the cycles that
    chance lets by, one in sixteen, the one is taken that is expected to save the most. Writes the
    other factor and a vertex of the cycle to `cycle`, -1 for none.
    """
    slots, n = factors.shape
    most = -(1 << 60)
    cycle[0] = -1
    for other in range(slots):
        if other == first:
            continue
        seen[:] = 0
        for start in range(n):
            if seen[start]:
                continue
            v = start
            saved = count = 0
            while True:
                seen[v] = 1
                saved += beyond[first, v] + beyond[other, v] - 2 * penalty
                v = factors[other if count % 2 else first, v]
                count += 1
                if v == start:
                    break
            if 2 < count < n and saved > most:
                coins = _toss(coins)
                if coins >> 16 & 15 == 0:
                    most = saved
                    cycle[0] = other
                    cycle[1] = start


@kernel
def swap(factors, start, new):
    """Let two factors swap their edges on the cycle through a vertex."""
    for v in range(factors.shape[1]):
        for side in range(2):
            new[side, v] = factors[side, v]
    v = start
    while True:
        for side in range(2):
            new[side, v] = factors[1 - side, v]
            new[1 - side, v] = factors[side, v]
            v = factors[side, v]
        if v == start:
            break
