"""How many terms two lines need, and which numbers are likely weights of the terms.

A term has one entry of each line. The terms hence join the entries of two lines, as edges join the
vertices of a graph, and each entry is the sum of the weights of its edges. A graph with v vertices
and c components has v - c edges or more, and in a component both lines have the same sum: the
fewest terms are the entries of both lines less the most groups of the same sum.

As an example, a row with entries 1, 4 and 5 and a column with entries 3, 3 and 4 have the sum 10.
The 4 of both may be a group, one term, and 1 and 5 with 3 and 3 another: two groups. Both lines
have six entries, so four terms are needed at least, one more than either line alone says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import counted_time
from optmatch.problems import CountProof
from optmatch.problems.demands.completion import Axis

_MOST_LINES = 40  # the longest ones, of which all pairs are looked at
_MOST_NUMBERS = 18  # all sets of so many are looked at
_MOST_ZEROS = 2000  # sets with sum zero
_OFTEN = 8  # times that a number occurs as an entry


def count_terms(
    demand: NDArray[np.int64], deadline: float = np.inf
) -> tuple[CountProof | None, int]:
    """Find a lower bound on the number of permutations whose weighted sum is a demand matrix.

    A term has one entry of each line (row or column). A line of k entries therefore needs k terms.
    Two lines together may need more: lines of 4 + 3 and of 5 + 2 ticks need 3 terms, since no
    number of one is in the other.

    Returned are a proof, which names the two lines, and the bound. The proof is None where a
    single line, or nothing, gives the bound. Pairs of lines that are not looked at by the
    deadline, a time of `counted_time`, are left out; two lines take some 10 ms at most.
    """
    n_ports = len(demand)
    # A multiset for each line: how often each number of ticks occurs.
    numbers_of_line = [Counter(line[line > 0].tolist()) for line in (*demand, *demand.T)]
    sizes = [numbers.total() for numbers in numbers_of_line]
    longest_lines = sorted(range(2 * n_ports), key=lambda line: -sizes[line])[:_MOST_LINES]
    best = sizes[longest_lines[0]] if longest_lines else 0
    if best == 0:
        return None, 0

    names: list[tuple[Axis, int]] = [("source", port) for port in range(n_ports)]
    names += [("destination", port) for port in range(n_ports)]
    proof = None

    # Each two lines, rows and columns alike, may need more terms together than either alone.
    for first, second in combinations(longest_lines, 2):
        if counted_time() >= deadline:
            break

        # Equal numbers count once: two entries less one group.
        first_numbers = numbers_of_line[first]
        second_numbers = numbers_of_line[second]
        equal = first_numbers & second_numbers
        n_entries = first_numbers.total() + second_numbers.total() - equal.total()
        if n_entries <= best:
            continue

        # Entries of the second line with a minus, so that a group is a set of sum zero: 4, 3, -5
        # and -2 are four entries and one group, hence 3 terms.
        differences = [*(first_numbers - equal).elements()]
        differences += [-number for number in (second_numbers - equal).elements()]
        n_terms = n_entries - _most_groups(differences)
        if n_terms > best:
            axis, port = names[first]
            against_axis, against_port = names[second]
            proof = CountProof(
                axis=axis, port=port, against_axis=against_axis, against_port=against_port
            )
            best = n_terms
    return proof, best


def _most_groups(numbers: list[int]) -> int:
    """Bound from above into how many groups, each with sum zero, some numbers can be split.

    The numbers are the entries of one line of a matrix, and with a minus those of another line. A
    group with sum zero is some entries of each line with the same sum. As an example, 7, -3, -4,
    9, -8 and -1 can be split into two groups: 7 - 3 - 4 and 9 - 8 - 1.
    """
    # A group has numbers of both signs, and three at least.
    n_positive = sum(number > 0 for number in numbers)
    bound = min(n_positive, len(numbers) - n_positive, len(numbers) // 3)
    if bound <= 1 or len(numbers) > _MOST_NUMBERS:
        return bound

    # The sums of all sets of numbers. Bit k of the index of a set is 1 if number k is in it: index
    # 5 is the set of the numbers 0 and 2.
    sum_of_set = np.zeros(1, dtype=np.int64)
    for number in numbers:
        sum_of_set = np.concatenate([sum_of_set, sum_of_set + number])
    zero_sets = np.flatnonzero(sum_of_set == 0)
    if len(zero_sets) > _MOST_ZEROS:
        return bound

    # The longest chain of sets with sum zero: what each adds to the one before is a group.
    chain_length = np.zeros(len(zero_sets), dtype=np.int64)
    for position in range(1, len(zero_sets)):
        # Sets ascend as numbers, so every subset of a set comes before it; the empty set is
        # first.
        earlier = zero_sets[:position]
        is_subset = earlier & ~zero_sets[position] == 0
        chain_length[position] = 1 + chain_length[:position][is_subset].max()
    return int(chain_length.max())


def guess_weights(demand: NDArray[np.int64], n_terms: int) -> Iterator[tuple[list[int], bool]]:
    """Guess which weights a decomposition of a demand into few terms may have.

    In a sum of weighted permutations each entry is a sum of weights. If a line (row or column) has
    as many entries as there are terms, its entries are the weights.

    With `n_terms` terms, each guess is a list of at most so many weights in ticks, and whether
    every decomposition has to have them. Numbers that occur often are guessed, unless they are the
    sum of two such numbers; the last guess is none at all.
    """
    # A line of as many entries as terms has one entry of each, which is its weight.
    for line in (*demand, *demand.T):
        if np.count_nonzero(line) == n_terms:
            yield line[line > 0].tolist(), True
            return

    # Numbers that occur at least twice, then at least three times, and so on.
    occurrences = Counter(demand[demand > 0].tolist())
    previous: list[int] = []
    for least in range(2, _OFTEN):
        frequent = {number for number, count in occurrences.items() if count >= least}
        candidates = [
            number
            for number in frequent
            if not any(number - part in frequent and number != 2 * part for part in frequent)
        ]

        # The most frequent numbers first.
        candidates.sort(key=lambda number: (-occurrences[number], number))
        weights = candidates[:n_terms]
        if weights and weights != previous:
            previous = weights
            yield weights, False
    yield [], True
