"""Collectives in rounds: who meets whom in each of them, and how much they send."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.rail_step import ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE_SCATTER

Algorithm = Literal["ring", "halving", "tree"]
"""How a collective is done: around a ring, or in rounds in which ranks meet in pairs."""
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


class Round(NamedTuple):
    """One round of a collective."""

    distance: int
    """How many places apart those are who meet."""
    share: float
    """What each who sends sends, as a part of the size of the operation."""


def list_rounds(algorithm: Algorithm, kind: int, members: int) -> tuple[Round, ...]:
    """List the rounds of a collective; none if it goes around a ring.

    Recursive halving scatters sums: in each round a member sends the half of what it has left
    that belongs to the other side, farthest partners first. Doubling, the same backwards, gathers
    shards; an all-reduce is one after the other. A binomial tree sums up whole buffers from the
    leaves to the first member, and brings them back; a broadcast is the way back. Kinds that an
    algorithm does not know go around a ring.

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
    >>> from optmatch.problems.rail_step import ALL_GATHER, ALL_REDUCE
    >>> [tuple(each) for each in list_rounds("halving", ALL_REDUCE, 4)]
    [(2, 0.5), (1, 0.25), (1, 0.25), (2, 0.5)]
    >>> [tuple(each) for each in list_rounds("halving", ALL_GATHER, 8)]
    [(1, 1.0), (2, 2.0), (4, 4.0)]
    >>> [tuple(each) for each in list_rounds("tree", ALL_REDUCE, 3)]
    [(1, 1.0), (2, 1.0), (2, 1.0), (1, 1.0)]
    """
    distances = [1 << r for r in range((members - 1).bit_length())]
    if algorithm == "halving":
        whole = 1.0 if kind == ALL_GATHER else 1.0 / members
        gather = tuple(Round(distance, distance * whole) for distance in distances)
    else:
        gather = tuple(Round(distance, 1.0) for distance in distances)
    rounds = {
        ("halving", ALL_REDUCE): (*gather[::-1], *gather),
        ("halving", REDUCE_SCATTER): gather[::-1],
        ("halving", ALL_GATHER): gather,
        ("tree", ALL_REDUCE): (*gather, *gather[::-1]),
        ("tree", BROADCAST): gather[::-1],
    }
    return rounds.get((algorithm, kind), ())


def meet(algorithm: Algorithm, members: int, distance: int) -> NDArray[np.int64]:
    """Tell whom each place of a group meets in a round, -1 for nobody.

    Examples
    --------
    >>> meet("halving", 4, 2).tolist(), meet("tree", 5, 1).tolist(), meet("tree", 5, 4).tolist()
    ([2, 3, 0, 1], [1, 0, 3, 2, -1], [4, -1, -1, -1, 0])
    """
    places = np.arange(members)
    if algorithm == "halving":
        return places ^ distance
    inside = places % (2 * distance)
    other = np.where(inside == 0, places + distance, places - distance)
    found: NDArray[np.int64] = np.where((inside % distance == 0) & (other < members), other, -1)
    return found


def count_changes(rounds: tuple[Round, ...]) -> int:
    """Count how often circuits change between the rounds of a collective.

    Examples
    --------
    >>> from optmatch.problems.rail_step import ALL_REDUCE
    >>> count_changes(list_rounds("halving", ALL_REDUCE, 8))
    4
    """
    return sum(one.distance != two.distance for one, two in pairwise(rounds))
