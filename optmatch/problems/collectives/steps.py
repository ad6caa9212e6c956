"""Step lists of known algorithms: pairs that exchange in each round, and how much they send."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

Algorithm = Literal["ring", "halving", "tree"]
"""How a collective is done: around a ring, or in rounds of pairs."""
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

    For example, an all-reduce of 8 members has these rounds::

        ring       distance 1                   share 1/8                        14 rounds
        halving    distances 4, 2, 1, 1, 2, 4   shares 1/2, 1/4, 1/8, 1/8, 1/4, 1/2
        tree       distances 1, 2, 4, 4, 2, 1   share 1    later, later, later, earlier, ...
    """
    # Distances 1, 2, 4, ... below the number of members. While sums are handed on by halving, a
    # member has 1 shard at first, then 2, then 4, and sends all that it has: as many shards as
    # the partners are apart.
    # `gather` are the rounds that hand on by halving, `around` those once around a ring, `collect`
    # and `spread` those of a tree, from the leaves and backwards from the root.
    distances = [1 << r for r in range((members - 1).bit_length())]
    shard = 1.0 if operation == "all-gather" else 1.0 / members
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
    """Return the partner of each place of a group in a round, -1 if it has none.

    On a ring it is the one to which it sends, a distance onward; backward if that is negative.

    `distance`: how far apart partners are, in places; a power of two but on a ring.
    """
    places = np.arange(members)
    if algorithm == "ring":
        return (places + distance) % members
    if algorithm == "halving":
        return places ^ distance

    # In a tree, the first place of each stretch of 2 distance places is the partner of the place
    # in its middle, if there is one; all others have none.
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
