"""Step lists of known algorithms: pairs that exchange in each round, and how much they send."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

Algorithm = Literal["ring", "halving", "tree"]
"""How a collective is done: around a ring; by recursive halving and doubling; or along a binomial
tree."""
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


class Round(NamedTuple):
    """One round of a collective."""

    distance: int
    """The distance of the two places of a pair."""
    share: float
    """The part of the size of an operation that a member sends."""
    sender: Literal["both", "earlier", "later"] = "both"
    """Which of the two sends, by their places."""


def list_rounds(algorithm: Algorithm, operation: str, members: int) -> tuple[Round, ...]:
    """List the rounds in which a known algorithm does a collective operation.

    There are none if the algorithm does not do the operation. For example, an all-reduce of 8
    members has these rounds::

        ring       distance 1                   share 1/8                        14 rounds
        halving    distances 4, 2, 1, 1, 2, 4   shares 1/2, 1/4, 1/8, 1/8, 1/4, 1/2
        tree       distances 1, 2, 4, 4, 2, 1   share 1    later, later, later, earlier, ...
    """
    # A shard is the part of a member. The size of an all-gather is that of a shard, that of other
    # operations all shards together.
    distances = [1 << r for r in range((members - 1).bit_length())]  # below `members`
    shard = 1.0 if operation == "all-gather" else 1.0 / members

    # `gather` are the rounds of an all-gather by doubling: a member has 1 shard at first, then 2,
    # then 4, and sends all that it has, as many shards as the partners are apart. Backwards they
    # are a reduce-scatter by halving. `around` are the rounds once around a ring; `collect` those
    # of a tree from the leaves to the root, and `spread`, backwards, from the root to the leaves.
    gather = tuple(Round(distance, distance * shard) for distance in distances)
    around = (Round(1, shard),) * (members - 1)
    collect, spread = (
        tuple(Round(distance, 1.0, sender) for distance in distances)
        for sender in ("later", "earlier")
    )
    rounds = {
        ("ring", "all-reduce"): 2 * around,
        ("ring", "reduce-scatter"): around,
        ("ring", "all-gather"): around,
        ("halving", "all-reduce"): (*gather[::-1], *gather),
        ("halving", "reduce-scatter"): gather[::-1],
        ("halving", "all-gather"): gather,
        ("tree", "all-reduce"): (*collect, *spread[::-1]),
        ("tree", "broadcast"): spread[::-1],
    }
    return rounds.get((algorithm, operation), ())


def list_partners(algorithm: Algorithm, members: int, distance: int) -> NDArray[np.int64]:
    """Return ``partner[place]`` of a group of so many members in a round, -1 for none.

    On a ring the partner is the place to which it sends, `distance` places onward, or back if that
    is negative. Otherwise the distance is a power of two, and two places are partners of each
    other: in halving all places whose numbers differ by it, place XOR distance; in a tree the
    multiples of twice the distance, each with the place that is a distance behind. In a tree of 6
    with distance 2 these are 0 and 2; 4 has none, as there is no place 6.
    """
    places = np.arange(members)
    if algorithm == "ring":
        return (places + distance) % members
    if algorithm == "halving":
        return places ^ distance

    # Places of a tree count anew from each multiple of twice the distance.
    inside = places % (2 * distance)
    other = np.where(inside == 0, places + distance, places - distance)
    partner: NDArray[np.int64] = np.where((inside % distance == 0) & (other < members), other, -1)
    return partner


def list_sends(algorithm: Algorithm, members: int, of: Round) -> NDArray[np.int64]:
    """List the sends of a round, as pairs of sender and receiver."""
    # A place sends if it has a partner, and if its side of the pair is one that sends.
    other = list_partners(algorithm, members, of.distance)
    places = np.arange(members)
    sends = (other >= 0) & np.select(
        [of.sender == "later", of.sender == "earlier"], [places > other, places < other], True
    )
    return np.column_stack([places, other])[sends]
