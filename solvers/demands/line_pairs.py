"""How many terms two lines need, and which numbers are likely weights of the terms.

A term has one entry of each line. So the terms join the entries of two lines, as edges join the
vertices of a graph, and each entry is the sum of the weights of its edges. A graph with v vertices
and c components has v - c edges or more, and in a component both lines have the same sum: the
fewest terms are the entries of both lines less the most groups of the same sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import CountProof
from optmatch.problems.demands.completion import Axis

_MOST_LINES = 40  # the longest ones, of which all pairs are looked at
_MOST_NUMBERS = 18  # all sets of so many are looked at
_MOST_ZEROS = 2000  # sets with sum zero
_OFTEN = 8  # times that a number occurs as an entry


def count_terms(demand: NDArray[np.int64]) -> tuple[CountProof | None, int]:
    """Bound the number of terms by one line, or by two."""
    n = len(demand)
    lines = [Counter(line[line > 0].tolist()) for line in (*demand, *demand.T)]
    sizes = [line.total() for line in lines]
    order = sorted(range(2 * n), key=lambda line: -sizes[line])[:_MOST_LINES]
    most = sizes[order[0]] if order else 0
    if most == 0:
        return None, 0
    names: list[tuple[Axis, int]] = [("source", k) for k in range(n)]
    names += [("destination", k) for k in range(n)]
    axis, port = names[order[0]]
    proof = CountProof(axis=axis, port=port)
    for first, second in combinations(order, 2):
        equal = lines[first] & lines[second]  # a group each: others stay groups without them
        total = sizes[first] + sizes[second]
        if total - equal.total() <= most:
            continue
        numbers = [*(lines[first] - equal).elements()]
        numbers += [-number for number in (lines[second] - equal).elements()]
        needed = total - equal.total() - _most_groups(numbers)
        if needed > most:
            (axis, port), (other, place) = names[first], names[second]
            proof = CountProof(axis=axis, port=port, against_axis=other, against_port=place)
            most = needed
    return proof, most


def _most_groups(numbers: list[int]) -> int:
    """Bound from above how many groups with sum zero the numbers make; no two are opposite."""
    positive = sum(number > 0 for number in numbers)
    bound = min(positive, len(numbers) - positive, len(numbers) // 3)
    if bound <= 1 or len(numbers) > _MOST_NUMBERS:
        return bound
    sums = np.zeros(1, dtype=np.int64)  # of sets, as bits
    for number in numbers:
        sums = np.concatenate([sums, sums + number])
    zeros = np.flatnonzero(sums == 0)
    if len(zeros) > _MOST_ZEROS:
        return bound
    longest = np.zeros(len(zeros), dtype=np.int64)  # chains of sets: what is added is a group
    for k in range(1, len(zeros)):
        longest[k] = 1 + longest[:k][zeros[:k] & ~zeros[k] == 0].max()
    return int(longest[-1])


def guess_weights(demand: NDArray[np.int64], most: int) -> Iterator[tuple[list[int], bool]]:
    """Yield sets of likely weights, the boldest first, and whether no others need be tried.

    With as many terms as a line has entries, these are the weights. A weight stands alone in about
    a third of the lines, and most sums occur once; the sum of two others of a set is left out.
    """
    for line in (*demand, *demand.T):
        if np.count_nonzero(line) == most:
            yield line[line > 0].tolist(), True
            return
    times = Counter(demand[demand > 0].tolist())
    tried: list[int] = []
    for least in range(2, _OFTEN):
        often = {number for number, count in times.items() if count >= least}
        alone = [
            number for number in often if not any(number - one in often - {one} for one in often)
        ]
        chosen = sorted(alone, key=lambda number: (-times[number], number))[:most]
        if chosen not in ([], tried):
            tried = chosen
            yield chosen, False
    yield [], True
