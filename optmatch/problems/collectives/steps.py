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

    The n members of a group stand at places 0, 1, 2, ... In each round all members whose places
    are a certain distance apart are partners. A *shard* is the part of the data that belongs to
    one member. There are three algorithms:

    - ``"ring"``: a member sends one shard to the next place in each of n - 1 rounds. An
      all-reduce goes around twice: once to add up, once to hand the sums on;
    - ``"halving"``, for a power of two of members: to add up, a member sends half of the data to a
      far partner, then half of the rest to a nearer one, and so on. The same rounds backwards hand
      the sums on;
    - ``"tree"``: members send all data at once. To add up, the later place of each pair sends,
      until place 0 has the sum. The same rounds backwards hand it on; then the earlier place
      sends.

    For example, an all-reduce of 8 members has these rounds::

        ring       distance 1                   share 1/8                        14 rounds
        halving    distances 4, 2, 1, 1, 2, 4   shares 1/2, 1/4, 1/8, 1/8, 1/4, 1/2
        tree       distances 1, 2, 4, 4, 2, 1   share 1    later, later, later, earlier, ...

    Parameters
    ----------
    algorithm
        ``"ring"``, ``"halving"`` or ``"tree"``.
    operation
        The name of the collective, such as ``"all-reduce"``.
    members
        The number of members of the group, n.

    Returns
    -------
    tuple of Round
        Empty if the algorithm does not know the operation. Each round has

        - `distance`: how far apart the places of partners are;
        - `share`: how much a member sends, as a part of the size of the operation. The size of an
          all-gather is the data of one member, that of all others the buffer of n shards;
        - `sender`: which of two partners sends: ``"both"``, ``"earlier"`` or ``"later"``.
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

    Parameters
    ----------
    algorithm
        ``"ring"``, ``"halving"`` (pairs whose numbers differ in one bit) or ``"tree"`` (binomial).
    members
        The number of places of the group.
    distance
        How far apart partners are, in places; a power of two but on a ring.

    Returns
    -------
    int array, shape (members,)
        The place of each partner.
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
    """List the sends of a round, as pairs of sender and receiver.

    Parameters
    ----------
    algorithm
        The algorithm that the round belongs to; it says who is whose partner.
    members
        The number of members of the group. A member is named by its place in the group, 0 to
        members - 1.
    of
        The round: the distance of partners, and which of the two sends: both; the one of the
        lower place (``sender`` "earlier"); or the one of the higher place ("later").

    Returns
    -------
    int array, shape (sends, 2)
        The place that sends, and the place that receives; ascending by the first one.
    """
    # A place sends if it has a partner, and if its side of the pair is one that sends.
    other = list_partners(algorithm, members, of.distance)
    places = np.arange(members)
    sends = (other >= 0) & np.select(
        [of.sender == "later", of.sender == "earlier"], [places > other, places < other], True
    )
    return np.column_stack([places, other])[sends]
