"""Graphs of small diameter and given degree, by local search (the order/degree problem).

A random regular graph has nearly the least diameter that its degree allows; a few hundred
exchanges of the ends of two circuits often take one round more off it. With 64 ranks and four
two-way ports the diameter falls from 5 or 6 to 4, which is the least that counting allows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel, kernel

IntArray = NDArray[np.int64]

EFFORT = 5_000_000
"""Unions of sets of 64 ranks in one search, about 30 ms. With half of it the graph of 64 ranks
and four ports still has diameter 4; with forty times of it those of 256 ranks get no better."""
MOST_EXCHANGES = 10_000
"""The most exchanges that one search tries."""
NOT_CONNECTED = 1 << 20
"""In place of a diameter: some rank never hears of another one."""
_BITS = 64


class Farness(NamedTuple):
    """How far the ranks of a graph are from each other; less is better, the first field first."""

    diameter: int
    """The most hops from any rank to any other one; `NOT_CONNECTED` if there is no way."""
    n_farthest: int
    """How many ordered pairs of ranks are exactly so far apart; if there is no way from some ranks
    to others, how many pairs that are."""


class ReachedSets(NamedTuple):
    """Scratch of `measure_farness`: sets of ranks as bits, shape (ranks, words)."""

    now: NDArray[np.uint64]
    """Bit ``other % 64`` of ``now[rank, other // 64]``: the other is within so many hops."""
    next: NDArray[np.uint64]
    """The same sets after one hop more, while they are made."""


@inner_kernel
def measure_farness(peer, sets):
    """Return the diameter of a graph in hops, and how many ordered pairs are so far apart.

    ``peer[lane, rank]`` is the rank to which a port leads; `sets` is scratch. All ranks are
    searched from at the same time, by breadth-first search. After h steps each rank has a set of
    the ranks that it reaches in h hops or fewer, as bits. Steps go on until no pair of ranks is
    missing in these sets; their number is the diameter. The pairs that were still missing one step
    earlier are exactly so far apart. On a ring of 4 ranks with circuits both ways the diameter is
    2, with 4 pairs.
    """
    # In 0 hops each rank reaches itself. Rank r is bit r modulo the size of a word.
    n_lanes, n = peer.shape
    n_words = sets.now.shape[1]
    sets.now[:, :] = 0
    for rank in range(n):
        sets.now[rank, rank // _BITS] |= np.uint64(1) << np.uint64(rank % _BITS)

    n_missing = n * (n - 1)  # ordered pairs of ranks whose first one has not reached the second
    diameter = 0
    while True:
        # A rank reaches in one hop more what its peers have reached until now.
        n_missing_before = n_missing
        n_missing = n * n
        for rank in range(n):
            for word in range(n_words):
                reached = sets.now[rank, word]
                for lane in range(n_lanes):
                    reached |= sets.now[peer[lane, rank], word]
                sets.next[rank, word] = reached
                # Each step of this loop takes the lowest bit away: one pair that is not missing.
                while reached:
                    reached &= reached - np.uint64(1)
                    n_missing -= 1
        diameter += 1
        if n_missing == 0:
            return Farness(diameter, n_missing_before)
        # A step that reaches no further pair is followed by none that does.
        if n_missing == n_missing_before:
            return Farness(NOT_CONNECTED, n_missing)
        for rank in range(n):
            for word in range(n_words):
                sets.now[rank, word] = sets.next[rank, word]


@inner_kernel
def exchange_ends(peer, lane, pair, two_way, is_crossed):
    """Let two circuits of a lane exchange their ends; return whether the graph has changed.

    Changes ``peer[lane, rank]``, the rank to which a port leads; `pair` are the ranks a and c at
    which the circuits begin. One-way circuits a -> b and c -> d become a -> d and c -> b. Two-way
    circuits a = b and c = d (`two_way`) become a = d and c = b, or, with `is_crossed`, a = c and b
    = d. Nothing changes if the two circuits share an end or are the same.
    """
    a, c = pair
    b = peer[lane, a]
    d = peer[lane, c]
    if a in (c, d) or b == c:
        return False
    if not two_way:
        peer[lane, a] = d
        peer[lane, c] = b
        return True

    # Two-way circuits are entered at both of their ends.
    partner_of_a = d
    partner_of_b = c
    if is_crossed:
        partner_of_a = c
        partner_of_b = d
    peer[lane, a] = partner_of_a
    peer[lane, partner_of_a] = a
    peer[lane, b] = partner_of_b
    peer[lane, partner_of_b] = b
    return True


@inner_kernel
def take_back_exchange(peer, lane, pair, ends, two_way):
    """Let two ranks of a lane have their former circuits again, which led to `ends`.

    Changes ``peer[lane, rank]``, the rank to which a port leads.
    """
    for k in range(2):
        peer[lane, pair[k]] = ends[k]
        if two_way:
            peer[lane, ends[k]] = pair[k]


@inner_kernel
def set_ways_back(peer, lane, pair):
    """Let the ends of two circuits of a lane lead back, over the lane half of all lanes further.

    ``peer[lane, rank]`` is the rank to which a port leads; changed, so that lane k + lanes / 2 is
    the inverse of the permutation of lane k.
    """
    lane_back = lane + peer.shape[0] // 2
    for k in range(2):
        peer[lane_back, peer[lane, pair[k]]] = pair[k]


@kernel
def shorten_ways(peer, two_way, draws, sets):
    """Shorten the ways in a graph: exchange ends of circuits as long as ranks get no farther.

    Changes ``peer[lane, rank]``, the rank to which a port leads; each lane is a permutation
    without fixed ranks, of two-way circuits a perfect matching or, for an odd number of ranks, a
    cycle. Rows of `draws` are lane, two ranks, and whether ends are crossed. This is a local
    search: an exchange is taken back if the diameter grows, or more pairs of ranks are so far
    apart as it says; it is kept if they are equally many, so that the search can cross plateaus.
    `sets` (`ReachedSets`) is scratch. Returns the `Farness` in the end.
    """
    # Two-way circuits join an even number of ranks in pairs; an odd one takes a cycle over two
    # lanes, one onward and one back.
    best = measure_farness(peer, sets)
    has_cycles = two_way and peer.shape[1] % 2 == 1
    has_pairs = two_way and not has_cycles
    for number in range(len(draws)):
        lane = draws[number, 0]
        pair = (draws[number, 1], draws[number, 2])
        ends = (peer[lane, pair[0]], peer[lane, pair[1]])
        if not exchange_ends(peer, lane, pair, has_pairs, draws[number, 3] == 1):
            continue
        # Over cycles only lanes that lead onward are drawn; the lanes back follow them.
        if has_cycles:
            set_ways_back(peer, lane, pair)
        farness = measure_farness(peer, sets)
        if farness.diameter < best.diameter or (
            farness.diameter == best.diameter and farness.n_farthest <= best.n_farthest
        ):
            best = farness
        else:
            take_back_exchange(peer, lane, pair, ends, has_pairs)
            if has_cycles:
                set_ways_back(peer, lane, pair)
    return best


@lru_cache(maxsize=256)
def _find_graph(n: int, degree: int, two_way: bool, seed: int) -> bytes:
    """Search for circuits over which all ranks reach each other in few hops.

    Returns the bytes of ``peer[lane, rank]``, int64, with `degree` lanes, since results are kept
    for further calls and bytes cannot be changed. The search begins with random circuits. Then it
    exchanges the ends of two of them, again and again, and takes an exchange back if ranks get
    farther from each other by it (a local search).

    The circuits of a lane lead from each rank to one other, and to each rank from one. Two-way
    circuits of a lane join ranks in pairs. If n is odd that is not possible: lane k then leads
    onward along a cycle through all ranks, and lane k + degree / 2 back.
    """
    # The random graph, lane by lane: cycles or pairs along a random order of all ranks.
    rng = np.random.default_rng(seed)
    peer = np.empty((degree, n), dtype=np.int64)
    has_cycles = two_way and n % 2 == 1
    n_drawn_lanes = degree
    if has_cycles:
        n_drawn_lanes = degree // 2  # the others lead back
    for lane in range(n_drawn_lanes):
        order = rng.permutation(n)
        if has_cycles:
            peer[lane, order] = np.roll(order, -1)  # one cycle through all ranks
            peer[lane + n_drawn_lanes, order] = np.roll(order, 1)
        elif two_way:
            left, right = order.reshape(2, -1)
            peer[lane, left] = right
            peer[lane, right] = left
        else:
            peer[lane, order] = np.roll(order, -1)  # one cycle through all ranks

    # There are as many exchanges as the effort allows. Each is followed by a search from all
    # ranks, which takes about as many steps as the diameter; a step unites sets of `n_words` words
    # for each rank and lane. With d circuits a rank reaches about d^h others in h hops, over
    # two-way circuits (d - 1)^h, which gives the diameter. Exchanges are drawn beforehand: lane,
    # two ranks, and whether ends are crossed.
    n_words = -(-n // _BITS)
    about_diameter = 1 + int(np.log(n) / np.log(max(2, degree - two_way)))
    effort_of_exchange = n * n_words * degree * about_diameter
    n_exchanges = min(MOST_EXCHANGES, EFFORT // effort_of_exchange)
    limits = (n_drawn_lanes, n, n, 2)
    draws = np.column_stack([rng.integers(limit, size=n_exchanges) for limit in limits])
    empty = np.zeros((n, n_words), dtype=np.uint64)
    shorten_ways(peer, two_way, draws, ReachedSets(empty, empty.copy()))
    return peer.tobytes()


def find_regular_graph(n: int, degree: int, *, two_way: bool, seed: int) -> IntArray:
    """Return a graph of small diameter in which each rank has `degree` circuits.

    The result ``peer[lane, rank]`` is the rank to which each port leads.
    """
    kept = _find_graph(n, degree, two_way, seed)
    return np.frombuffer(kept, dtype=np.int64).reshape(degree, n).copy()
