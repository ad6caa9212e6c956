"""Step lists of collectives: the peer of every member of a group on each lane, by round."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.problems.collectives.steps import Algorithm, list_partners

Facing = NDArray[np.int64]
"""``facing[round, side, lane, place]``: the place in its group of whom a member faces, where it
transmits (0) and where it receives (1), on each lane, in each round."""


def hamiltonian_cycles(n: int) -> NDArray[np.int64]:
    """Split the complete graph on n points into cycles through all, which share no edge.

    Returns ``cycles[k, i]``, shape (max(1, (n - 1) // 2), n); the first is 0, 1, ..., n - 1.

    Walecki's zigzag [1]_ through an even number of points on a circle, turned step by step, and
    one point in the middle. Where n is even, one more point is put into the middle of each zigzag:
    the edges that it replaces are diameters, so no two of the new edges are the same.

    References
    ----------
    .. [1] Alspach (2008). The wonderful Walecki construction. *Bulletin of the ICA* 52, 7-20.
    """
    half = (n - 1) // 2
    if half < 2:
        return np.arange(n)[None]
    rim = 2 * half
    steps = np.arange(rim)
    zigzag = np.where(steps % 2, (steps + 1) // 2, -(steps // 2)) % rim
    cycles = np.full((half, n), rim)  # the point in the middle comes first
    turned = (zigzag + np.arange(half)[:, None]) % rim
    cycles[:, 1 : half + 1] = turned[:, :half]
    cycles[:, n - half :] = turned[:, half:]
    if n % 2 == 0:
        cycles[:, half + 1] = rim + 1
    names: NDArray[np.int64] = np.argsort(cycles[0])
    return np.take(names, cycles)


@lru_cache
def successors(n: int, ring: int) -> NDArray[np.int64]:
    """Return the place after each place on one of the rings of a group; ring numbers repeat."""
    orders = hamiltonian_cycles(n)
    around = orders[ring % len(orders)]
    onward = np.empty(n, dtype=np.int64)
    onward[around] = around[list_partners("ring", n, 1)]
    return onward


def face_rings(n: int, lanes: int, *, duplex: bool) -> Facing:
    """Put a group into rings: lanes 2r and 2r + 1 turn ring r forward and backward.

    A lane of bidirectional ports turns a ring of its own, both ways.
    """
    found = np.empty((1, 2, lanes, n), dtype=np.int64)
    for lane in range(lanes):
        onward = successors(n, lane if duplex else lane // 2)
        both = onward, np.argsort(onward)
        turned = 0 if duplex else lane % 2
        found[0, :, lane] = both[turned], both[1 - turned]
    return found


def face_shifts(n: int, lanes: int) -> Facing:
    """Let every member send a number of places onward, another number on each lane and round.

    In the last round lanes that are left over stay as they are.
    """
    rounds = -(-(n - 1) // lanes)
    found = np.empty((rounds, 2, lanes, n), dtype=np.int64)
    for turn in range(rounds):
        for lane in range(lanes):
            if turn and lane + turn * lanes >= n - 1:
                found[turn, :, lane] = found[turn - 1, :, lane]
                continue
            by = 1 + (lane + turn * lanes) % (n - 1)
            found[turn, :, lane] = [list_partners("ring", n, way) for way in (by, -by)]
    return found


def face_pairs(algorithm: Algorithm, n: int, lanes: int, distances: Sequence[int]) -> Facing:
    """Let members exchange in pairs on all lanes, round by round.

    A member without a partner in a round faces its next one already, or its last one still.
    """
    pairs = np.stack([list_partners(algorithm, n, distance) for distance in distances])
    for turn in range(len(pairs) - 1, 0, -1):
        pairs[turn - 1] = np.where(pairs[turn - 1] == IDLE, pairs[turn], pairs[turn - 1])
    for turn in range(1, len(pairs)):
        pairs[turn] = np.where(pairs[turn] == IDLE, pairs[turn - 1], pairs[turn])
    return np.broadcast_to(pairs[:, None, None], (len(pairs), 2, lanes, n))
