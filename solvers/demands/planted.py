"""Planted weights: a demand that is a sum of few permutations, decoded into them.

A sum of k permutations, each with a weight, has its weights as entries: in most lines a weight
stands alone, and where several permutations meet, the entry is the sum of their weights. Weights
are therefore the values that occur often, and each other entry is a sum of weights that its row
and its column still lack. This is solved like a crossword, entries with one solution first. The
entries with one weight are then the edges of a bipartite graph, whose edge colouring is its
permutations.

A *weight* is a value that is planted in a number of permutations, its *copies*: each line has it
that often at most. A line *lacks* a weight while fewer of its entries than the copies have it.
Lines are numbered from 0 to 2 n - 1: the n rows, then the n columns. An entry is *decoded* once
its weights are known; they sum up to its ticks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import TimeUp, counted_time
from optmatch.solvers.demands.edge_colouring import cover_fewest_slots
from optmatch.solvers.demands.entries import Entries, LineSums
from optmatch.solvers.demands.plans import Plan, join
from optmatch.solvers.demands.tasks import CoverTask

MOST_PERMUTATIONS = 64
"""Sums of more permutations are not looked for, since decoding takes time for each pair."""

_PAIR_S = 1.2e-5
"""The time to decode a demand, for each pair of permutations in both orders: 3 ms for 16 of
them, 12 ms for 32, at 33 to 384 ports (``benchmarks/demand_constants.py planted._PAIR_S 6e-6
2.4e-5 --kind planted``). Most entries that are no weight are sums of two."""

_LEAST_OVER_CHANCE = 3.0
"""A sum of two frequent values is one itself only if it occurs so many times as often as both meet
by chance. With 2 or 8 the same weights are found in 340 sums of 16 permutations of 24 to 384
ports, half of them of two weights alone (Solstice); with 1.5 three per cent fewer
(``benchmarks/demand_constants.py planted._LEAST_OVER_CHANCE 1.5 8 --kind planted``)."""

_MOST_LACKED = 12
"""An entry is left for later while its lines lack more weights than this, copies counted: all sets
of them are looked at."""

_MOST_PASSES = 12
"""Passes over the entries that are not decoded; the rest is left then. With 6 or 20 the same of 25
drawn sums of 8 to 60 permutations are decoded, with 3 one of them is not; where small weights make
many sums fit, hundreds of passes would take seconds (``benchmarks/demand_constants.py
planted._MOST_PASSES 3 20 --kind planted``)."""

_FINE_LINE = 1 << 30
"""Where a line has so many ticks, amounts were no whole numbers, and were rounded to ticks. Sums
may be a tick off for each weight then; few other sums come so near."""


class Weights(NamedTuple):
    """The values that are planted in a demand."""

    ticks: NDArray[np.int64]
    """(weights,): all different."""
    copies: NDArray[np.int64]
    """(weights,): in how many permutations each is planted, >= 1."""
    rounding: int = 0
    """By how many ticks an entry may differ from the sum of its weights, for each of them: 1 if
    amounts were rounded to ticks, 0 if sums of weights are exact."""


class Summands(NamedTuple):
    """Where weights stand: each summand is one edge of the graph of one weight."""

    entry: NDArray[np.int64]
    """(summands,): the number of its entry, of which it is a part."""
    weight: NDArray[np.int64]
    """(summands,): the number of its weight."""


def find_weights(entries: Entries, lines: LineSums) -> Weights | None:
    """Guess from the entries of a demand of which weighted permutations it is the sum.

    Suppose that a demand of 100 ports is the sum of three random permutations with 50, 50 and 7
    ticks. Most entries are then 50 or 7, where one permutation has a circuit alone; a few are 57
    or 100, where two meet. Values that occur often are therefore the weights, here 50 (with two
    copies, as it occurs twice as often) and 7. Values that are sums of two others, and no more
    frequent than chance explains, are left out.

    At the end the weights with their copies have to add up to the sum of a line, 107 here. Without
    such weights the result is None: no value is frequent, too many are, or none make up the sum.
    """
    n_ports = entries.n_ports
    if lines.most_entries > MOST_PERMUTATIONS:
        return None

    # `alone`: which part of the circuits of one permutation no other one has. As permutations are
    # drawn independently, it is about the part of all places that is empty. A weight thus occurs
    # about ``alone * n_ports`` times for each copy; half of that is enough to be looked at.
    alone = 1.0 - len(entries.ticks) / n_ports**2
    values, count = np.unique(entries.ticks, return_counts=True)
    is_frequent = count >= max(2.0, alone * n_ports / 2)
    values = values[is_frequent]
    count = count[is_frequent]
    if alone <= 0 or len(values) > MOST_PERMUTATIONS:
        return None

    # `chance`: how often each value would occur as the sum of two others. Two permutations share
    # one place in the mean, and weights with a and b copies meet a * b times, as far as no third
    # one is there. Pairs of values are counted in both orders, hence the half.
    meetings = np.outer(count, count) / (alone * n_ports**2)
    sums = values[:, None] + values[None, :]
    chance = np.array([meetings[sums == value].sum() / 2 for value in values])
    is_weight = count > _LEAST_OVER_CHANCE * chance
    values = values[is_weight]
    count = count[is_weight]
    if not len(values):
        return None
    copies = np.maximum(1, np.rint(count / (alone * n_ports))).astype(np.int64)

    # One weight that rarely stands alone may have been missed: it is what others lack of a line.
    line_sum = int(lines.ticks.max())
    rounding = int(line_sum >= _FINE_LINE)
    lacking = line_sum - int((copies * values).sum())
    if lacking > 0 and lacking in entries.ticks and lacking not in values:
        return Weights(np.append(values, lacking), np.append(copies, 1), rounding)

    # Or else the copies of one weight are some more or fewer than its count says. `change`: how
    # many copies more of each weight (or fewer, below 0) would alone mend the sum; 0 for all if
    # nothing is lacking. If 50 was counted three times in the example, -50 is lacking of 107, and
    # its change is -1. The first weight with a small change that mends it is taken.
    change = np.rint(lacking / values).astype(np.int64)
    is_small = np.abs(change) <= np.maximum(1, copies // 2)
    is_right = np.abs(lacking - change * values) <= rounding * (copies.sum() + change)
    suited = np.flatnonzero(is_small & is_right & (copies + change > 0))
    if not len(suited):
        return None
    copies[suited[0]] += change[suited[0]]
    return Weights(values, copies, rounding)


def _count_by_line(
    n_ports: int, entries: Entries, summands: Summands, n_weights: int
) -> NDArray[np.int64]:
    """Count how often each line has each weight: ``count[line, weight]``, shape (2 n, weights)."""
    count = np.zeros((2 * n_ports, n_weights), dtype=np.int64)
    np.add.at(count, (entries.row[summands.entry], summands.weight), 1)
    np.add.at(count, (n_ports + entries.column[summands.entry], summands.weight), 1)
    return count


def _match_alone(entries: Entries, weights: Weights) -> Summands:
    """Find the entries that are equal to a weight, in lines that have no more of them than copies.

    The copies of a weight are the number of permutations in which it is planted: no line has it
    more often. A line with more such entries has one among them that is a sum of other weights, so
    none of them is certain.
    """
    ascending = np.argsort(weights.ticks)

    # The first weight that is no less than the entry; beyond all weights it is the last one.
    place = np.searchsorted(weights.ticks[ascending], entries.ticks)
    weight_of_entry = ascending[np.minimum(place, len(ascending) - 1)]
    is_equal = weights.ticks[weight_of_entry] == entries.ticks
    equal = Summands(np.flatnonzero(is_equal), weight_of_entry[is_equal])

    n_weights = len(weights.ticks)
    in_line = _count_by_line(entries.n_ports, entries, equal, n_weights)
    rows = entries.row[equal.entry]
    columns = entries.n_ports + entries.column[equal.entry].astype(np.int64)

    # How often the weight occurs in the row or the column of the entry, whichever is more.
    n_in_line = np.maximum(in_line[rows, equal.weight], in_line[columns, equal.weight])
    is_certain = n_in_line <= weights.copies[equal.weight]
    return Summands(equal.entry[is_certain], equal.weight[is_certain])


def _sets_with_sum(
    ticks: int, weights: Weights, lacked: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """List all ways to write a number of ticks as a sum of weights that are still to be used.

    ``lacked[weight]`` says how often each may still be used. Each result lists numbers of weights.
    A weight is a number of ticks, which may be used a certain number of times. For example, with
    the weights 50 (twice) and 7 (once), 57 is written in one way, as 50 + 7, and 14 in none. If
    amounts were rounded, a sum may be wrong by a tick for each weight in it.
    """
    usable = np.repeat(np.arange(len(lacked)), lacked)
    usable = usable[weights.ticks[usable] <= ticks + weights.rounding]
    if len(usable) > _MOST_LACKED:
        return []

    # `usable` has each weight as often as it may be used. The sums and sizes of all subsets: bit k
    # of a subset's number says whether it has usable[k], so each weight doubles the arrays.
    sum_of_set = np.zeros(1, dtype=np.int64)
    size_of_set = np.zeros(1, dtype=np.int64)
    for number in usable:
        sum_of_set = np.concatenate([sum_of_set, sum_of_set + weights.ticks[number]])
        size_of_set = np.concatenate([size_of_set, size_of_set + 1])
    is_right = np.abs(sum_of_set - ticks) <= weights.rounding * size_of_set
    bits = np.arange(len(usable))
    distinct = {
        tuple(usable[(members >> bits & 1) == 1].tolist())
        for members in np.flatnonzero(is_right).tolist()
    }
    return [np.array(numbers) for numbers in sorted(distinct, key=lambda them: (len(them), them))]


def decode(entries: Entries, weights: Weights, deadline: float = np.inf) -> Summands:
    """Write each entry of a demand as a sum of known weights, like a puzzle of numbers.

    The demand is a sum of permutations, each with a weight. Its entries are single weights where
    one permutation has a circuit alone, and sums of weights elsewhere. Each permutation has one
    entry in each row and column (line). If two permutations have the weight 50, each line hence
    needs 50 twice; it lacks the weight while fewer of its entries have it.

    Entries that are equal to a weight come first. Then follow, again and again, those that can be
    written in one way only from the weights that both their row and their column lack. If there is
    none, one entry is written in the first of several ways, that of the fewest weights. Entries
    that have no way stay without summands; TimeUp is raised at the deadline.
    """
    alone = _match_alone(entries, weights)
    in_line = _count_by_line(entries.n_ports, entries, alone, len(weights.ticks))

    # ``lacked[line, weight]``: how often the line has to get the weight yet. Lines are the rows,
    # then the columns.
    lacked = np.maximum(weights.copies - in_line, 0)
    edges = [(alone.entry, alone.weight)]

    is_decoded = np.zeros(len(entries.ticks), dtype=bool)
    is_decoded[alone.entry] = True
    undecoded = np.flatnonzero(~is_decoded).tolist()
    most_ways = 1

    # At first only entries with one way are decoded; a pass in vain lets the next one choose.
    for _ in range(_MOST_PASSES):
        postponed: list[int] = []
        for entry in undecoded:
            if counted_time() >= deadline:
                raise TimeUp
            lines = [int(entries.row[entry]), entries.n_ports + int(entries.column[entry])]
            ways = _sets_with_sum(int(entries.ticks[entry]), weights, lacked[lines].min(axis=0))
            if 1 <= len(ways) <= most_ways:
                for line in lines:
                    np.subtract.at(lacked[line], ways[0], 1)
                edges.append((np.full(len(ways[0]), entry), ways[0]))
                # A choice among several ways may leave one way for others: these come first.
                most_ways = 1
            else:
                postponed.append(entry)

        # A pass that decoded nothing is followed by one that chooses; what has no way is left.
        if len(postponed) == len(undecoded):
            if most_ways > 1 or not undecoded:
                break
            # No entry has more ways than there are sets of weights.
            most_ways = 1 << _MOST_LACKED
        undecoded = postponed
    entry_of_edge, weight_of_edge = zip(*edges, strict=True)
    return Summands(np.concatenate(entry_of_edge), np.concatenate(weight_of_edge))


def yield_planted(task: CoverTask) -> Iterator[Plan]:
    """Find the few permutations of which a demand is the sum, and use them as a schedule.

    Suppose that a demand is the sum of two permutations, held for 50 and for 7 ticks. Its entries
    are then 50, 7, or 57 where both have the same circuit. The weights 50 and 7 are guessed from
    how often values occur; each entry is written as a sum of weights (57 = 50 + 7); and all
    circuits with the same weight are divided into matchings, which are the slots. Entries that
    could not be decoded follow in the fewest slots.
    """
    entries = task.entries
    weights = find_weights(entries, task.lines)
    if weights is None:
        return
    if counted_time() + _PAIR_S * int(weights.copies.sum()) ** 2 > task.deadline:
        return
    summands = decode(entries, weights, task.deadline)

    # Each summand needs a circuit for its weight. Where amounts were rounded to ticks, the weights
    # of an entry may be some ticks less than it: its last summand takes these, too.
    ticks_of_summand = weights.ticks[summands.weight]
    missing = entries.ticks.copy()
    np.subtract.at(missing, summands.entry, ticks_of_summand)
    last_summand = np.full(len(entries.ticks), -1)
    last_summand[summands.entry] = np.arange(len(summands.entry))
    is_decoded = last_summand >= 0
    ticks_of_summand[last_summand[is_decoded]] += np.maximum(missing[is_decoded], 0)

    # The circuits that need one weight are the edges of a graph between sources and destinations.
    # A colouring of these edges divides them into matchings, one for each copy of the weight.
    # Entries that no sum of weights explains are covered apart, at last.
    parts: list[Entries] = []
    for weight in range(len(weights.ticks)):
        members = np.flatnonzero(summands.weight == weight)
        members = members[np.argsort(summands.entry[members], kind="stable")]
        numbers = summands.entry[members]
        parts.append(
            Entries(
                n_ports=entries.n_ports,
                row=entries.row[numbers],
                column=entries.column[numbers],
                ticks=ticks_of_summand[members],
            )
        )
    undecoded = np.flatnonzero(~is_decoded)
    parts.append(
        Entries(
            n_ports=entries.n_ports,
            row=entries.row[undecoded],
            column=entries.column[undecoded],
            ticks=entries.ticks[undecoded],
        )
    )
    plan = Plan.of([], [], entries.n_ports)
    for part in parts:
        plan = join(
            plan, cover_fewest_slots(part, LineSums.of(part), task.shortest, task.deadline)
        )
    yield plan
