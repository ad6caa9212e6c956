"""The fewest sends of an all-reduce over circuits that stay, if its rounds are limited.

Gossip among n ranks takes 2 (n - 1) messages (Tijdeman 1971; Harary and Schwenk 1974), so a byte
of an all-reduce is sent at least so often. With few rounds it has to be sent more often, since it
cannot wait until data of many ranks are added up. This is counted here, for one byte of the buffer
and R rounds over circuits that never change.

**Hops.** For two ranks u and v the data of u come to v over a walk of circuits, in rounds one
after another. If v is L circuits away from u or more, the walk makes for each j from 1 to L a
*hop j*: its first send to a rank at distance j from u. If this is the send from w to w' in round
t, then

- t is j or more, as j sends have been made;
- L - j <= distance from w' to v <= R - t, as v is to be reached in the R - t rounds after it.

Therefore hop j is made in the *window* of the R - L + 1 rounds from j to R - L + j.

**What one send can do.** A send from w to w' can be hop j for the ranks u at distance j - 1 from w
alone: ``onward ** (j - 1)`` at most. Here `onward` is the number of circuits to a rank, less one
if they are two-way, as u is not behind w'. And for one of these u it can be hop j for those v
alone whose distance from w' is in the limits above. At distance s there are ``onward ** s`` of
them at most. Over two-way circuits there are also those whose shortest way leads back over w, at
most ``onward ** (s - 1)``. These are nearer to w than to w', and L - j + 1 or more away from w:
they count from the distance L - j + 2 on.

**The count.** From each u, n - M ranks or more are at a distance of L or more, if counting allows
M ranks within L - 1 circuits (Moore bound). If one send is hop j for at most V of them, then u
needs (n - M) / V sends, rounded up, and all u together need n times as many. As a send serves
``onward ** (j - 1)`` ranks u at most, there are so many sends in the window. All of this also
holds backwards in time, from v: then hop j is the last send from a rank at distance j to v, and
the window is the same as that of hop L - j + 1.

Windows without a common round add up. The largest sum is found by dynamic programming (weighted
interval scheduling).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

MOST_LENGTHS = 3
"""Distances L that are looked at: the largest one that some ranks must have, and those below it.
Measured for 320 all-reduces of 8 to 256 ranks with 2 to 8 ports: with 6 distances no bound grows;
with 2 none is lower, with 1 some are by 8 %."""


def reach(rounds: int, lanes: int, two_way: bool) -> int:
    """Count the ranks that one can know after so many rounds with equal circuits, itself too.

    These are all ranks within so many circuits of it at most (Moore bound): with three two-way
    circuits 1 + 3 + 3 * 2 ranks are within two.
    """
    onward = lanes - 1 if two_way else lanes
    return 1 + lanes * _add_powers(onward, 0, rounds - 1)


@lru_cache(maxsize=65536)
def least_sum_sends(n_ranks: int, rounds: int, lanes: int, two_way: bool) -> float:
    """Bound how often a byte of an all-reduce is sent in so many rounds over circuits that stay.

    Each byte of the sum needs data of all ranks, and each rank needs the byte. With many rounds 2
    (n - 1) sends are enough: all data are added up on the way to one rank, and the sum goes back.
    With few rounds data cannot wait for others, so the byte is sent more often. A rank has as many
    circuits as `lanes`, each of which leads both ways if they are `two_way`.
    """
    # `onward` circuits lead on from a rank: all but the one over which data came, if circuits are
    # two-way. Some rank must be `longest` circuits away from each rank: with two one-way circuits
    # of each rank at most 1 + 2 + 4 = 7 ranks are within two circuits, so of 8 one is three away.
    gossip_sends = 2.0 * (n_ranks - 1)
    onward = lanes - 1 if two_way else lanes
    if onward < 1:  # a single two-way circuit leads no farther than to one other rank
        return gossip_sends
    if onward == 1:
        # Circuits make rings. Fewer than `distance` of them lead to `n_near` ranks; the others are
        # far, and one send brings data of one rank to `n_reached` of these at most. Hops 1, 1 + w,
        # 1 + 2 w, ... with windows of w rounds have no round in common.
        distance = np.arange(1, min(rounds, -(-(n_ranks - 1) // lanes)) + 1)
        window = rounds - distance + 1
        n_near = np.minimum(n_ranks, 1 + (distance - 1) * lanes)
        n_reached = window + two_way * np.maximum(0, window - 2)
        sends_in_window = n_ranks * np.ceil((n_ranks - n_near) / n_reached)
        return max(gossip_sends, float((sends_in_window * (rounds // window)).max()))

    longest = 1
    while longest < rounds and reach(longest, lanes, two_way) < n_ranks:
        longest += 1
    # For each distance L (`length`) and hop j: at least `n_far` ranks are L or more circuits away
    # from a rank u, and one send can be hop j of the data of u for `n_reached` of them at most.
    # The data of u therefore need n_far / n_reached sends, rounded up (`-(-a // b)`), and those of
    # all n ranks n times as many. A send can be hop j for onward ** (j - 1) ranks u at most.
    # A window is its first round and the fewest sends in it, listed by its last round.
    windows_by_end: dict[int, list[tuple[int, float]]] = {}
    for length in range(longest, max(longest - MOST_LENGTHS, 0), -1):
        n_far = n_ranks - reach(length - 1, lanes, two_way)
        for hop in range(1, length + 1):
            n_reached = _count_reached(length - hop, rounds - hop, onward, two_way)
            n_sends = n_ranks * -(-n_far // n_reached) / onward ** (hop - 1)
            windows_by_end.setdefault(rounds - length + hop, []).append((hop, n_sends))
            # The same backwards in time: hop j is counted from the end of the way then, so it is
            # made in the window of hop L - j + 1.
            mirrored = (length - hop + 1, n_sends)
            windows_by_end.setdefault(rounds - hop + 1, []).append(mirrored)

    # Weighted interval scheduling: `most_by[t]` is the largest sum of windows without a common
    # round that end by round t.
    most_by = [0.0] * (rounds + 1)
    for round_ in range(1, rounds + 1):
        most_by[round_] = most_by[round_ - 1]
        for first, n_sends in windows_by_end.get(round_, ()):
            most_by[round_] = max(most_by[round_], most_by[first - 1] + n_sends)
    return max(gossip_sends, most_by[rounds])


def _count_reached(nearest: int, farthest: int, onward: int, two_way: bool) -> int:
    """Count how many ranks one send of the data of one rank can lead to, at most.

    Those ranks count that are `nearest` to `farthest` circuits away from the receiver.
    """
    # Ranks behind the sender are a circuit nearer to it than to the receiver. In powers of
    # `onward` they are those from `nearest` + 1 to `farthest` - 1.
    n_reached = _add_powers(onward, nearest, farthest)
    if two_way:
        n_reached += _add_powers(onward, nearest + 1, farthest - 1)
    return n_reached


def _add_powers(base: int, first: int, last: int) -> int:
    """Add up the powers of a base from one exponent to another; 0 if `last` is below `first`."""
    if base == 1:
        return max(0, last - first + 1)
    return max(0, int(base ** (last + 1) - base**first) // (base - 1))
