"""Collectives in rounds: who exchanges with whom in each of them, and how much they send."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.rails.step import ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE_SCATTER, Step

Algorithm = Literal["ring", "halving", "tree"]
"""How a collective is done: around a ring, or in rounds of pairs."""
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


class Round(NamedTuple):
    """One round of a collective."""

    distance: int
    """How many places apart the two of a pair are."""
    share: float
    """What a member sends, as a part of the size of the operation."""
    sender: Literal["both", "earlier", "later"] = "both"
    """Which of the two sends, by their places."""


def list_rounds(algorithm: Algorithm, kind: int, members: int) -> tuple[Round, ...]:
    """List the rounds of a collective; none if it goes around a ring.

    Recursive halving scatters sums: in each round a member sends the half of what it has left
    that belongs to the other side, farthest partners first. Doubling, the same backwards, gathers
    shards; an all-reduce is one after the other. A binomial tree sums up whole buffers from the
    leaves to the first member, and brings them back; a broadcast is the way back. Kinds that an
    algorithm does not know go around a ring, and so does what two members exchange.

    Parameters
    ----------
    algorithm
        Which one.
    kind
        The kind of the operation.
    members
        How many ranks take part; for halving a power of two.

    Examples
    --------
    >>> from optmatch.problems.rails.step import ALL_GATHER, ALL_REDUCE
    >>> [tuple(each) for each in list_rounds("halving", ALL_REDUCE, 4)]
    [(2, 0.5, 'both'), (1, 0.25, 'both'), (1, 0.25, 'both'), (2, 0.5, 'both')]
    >>> [tuple(each) for each in list_rounds("tree", ALL_REDUCE, 3)]
    [(1, 1.0, 'later'), (2, 1.0, 'later'), (2, 1.0, 'earlier'), (1, 1.0, 'earlier')]
    """
    distances = [1 << r for r in range((members - 1).bit_length())]
    shard = 1.0 if kind == ALL_GATHER else 1.0 / members
    gather = tuple(Round(distance, distance * shard) for distance in distances)
    collect, spread = (
        tuple(Round(distance, 1.0, sender) for distance in distances)
        for sender in ("later", "earlier")
    )
    rounds = {
        ("halving", ALL_REDUCE): (*gather[::-1], *gather),
        ("halving", REDUCE_SCATTER): gather[::-1],
        ("halving", ALL_GATHER): gather,
        ("tree", ALL_REDUCE): (*collect, *spread[::-1]),
        ("tree", BROADCAST): spread[::-1],
    }
    return rounds.get((algorithm, kind), ()) if members > 2 else ()


def find_rounds(
    step: Step, collectives: Mapping[str, Algorithm]
) -> Iterator[tuple[NDArray[np.int64], tuple[Round, ...]]]:
    """List the operations on rails that are done in rounds, those of the same rounds together.

    Parameters
    ----------
    step
        The step.
    collectives
        The algorithm of each dimension; a ring where there is none.
    """
    kinds: dict[tuple[Algorithm, int], int] = {}
    of_group = [-1] * (len(step.groups) + 1)  # the last one for what is in no group
    for number, group in enumerate(step.groups):
        algorithm = collectives.get(group.dimension, "ring")
        if group.rail >= 0 and algorithm != "ring":
            of_group[number] = kinds.setdefault((algorithm, len(group.ranks)), len(kinds))
    if not kinds:
        return
    which = np.array(of_group)[step.group]
    for (algorithm, members), number in kinds.items():
        own = np.flatnonzero(which == number)
        for kind in np.unique(step.kind[own]).tolist():
            rounds = list_rounds(algorithm, kind, members)
            if rounds:
                yield own[step.kind[own] == kind], rounds


def list_partners(algorithm: Algorithm, members: int, distance: int) -> NDArray[np.int64]:
    """Return the partner of each place of a group in a round, -1 if it has none.

    Examples
    --------
    >>> list_partners("halving", 4, 2).tolist(), list_partners("tree", 5, 4).tolist()
    ([2, 3, 0, 1], [4, -1, -1, -1, 0])
    """
    places = np.arange(members)
    if algorithm == "halving":
        return places ^ distance
    inside = places % (2 * distance)
    other = np.where(inside == 0, places + distance, places - distance)
    found: NDArray[np.int64] = np.where((inside % distance == 0) & (other < members), other, -1)
    return found


def list_sends(algorithm: Algorithm, members: int, of: Round) -> NDArray[np.int64]:
    """List who sends to whom in a round, as rows of places.

    Examples
    --------
    >>> list_sends("tree", 3, Round(1, 1.0, "later")).tolist()
    [[1, 0]]
    """
    other = list_partners(algorithm, members, of.distance)
    places = np.arange(members)
    sends = (other >= 0) & np.select(
        [of.sender == "later", of.sender == "earlier"], [places > other, places < other], True
    )
    return np.column_stack([places, other])[sends]
