"""Circulant exchanges: all-to-alls in which each rank sends to the rank some places onward.

Shifts and routes are chosen together. In configuration c rank r sends to rank r + g_c, modulo n. A
block for the rank o places onward takes j_c(o) hops in configuration c, with
o = j_1 g_1 + ... + j_K g_K. All ranks do the same, so each circuit of a configuration carries as
much, and a rank sends as many blocks as there are hops to all offsets: least for shortest paths.
`list_shifts` looks for the shifts whose paths are shortest, by local search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, InputError
from optmatch.problems import Collective
from optmatch.problems.collectives.bounds import add_up_hops, fewest_rounds, ranks_at_hops
from optmatch.solvers.collectives.rounds import (
    PORTS_OF_A_SEND,
    QUICK_SENDS,
    IntArray,
    is_affordable,
    ranks_to_store,
    seconds_of,
)
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

FAR = 1 << 30
"""The distance of an offset that no path reaches."""
COUNTS_TRIED = 8
"""Numbers of configurations that are tried, those with the least bounds."""
SHIFT_SETS_TRIED = 8
"""Sets of shifts for each of them whose rounds are counted."""
MOST_TIMES = (FAR, 2, 1)
"""How often a path may take a shift, one after another: paths of more hops need fewer rounds where
each takes a shift once. Without a limit of 1 the least time is up to 4 % longer."""
STEPS_PER_S = 100_000_000
"""Steps of the paths to all offsets, for which each of them compares all pairs of shifts."""
RANDOM_SETS = 8
"""Random sets of shifts with which local searches begin, at most. With half and twice of it
all-to-alls of 24 to 100 ranks are equal within 0.4 % on average; with 2 some take 2 % longer."""
MOST_EXCHANGES = 1_000
"""The most exchanges of shifts that one local search tries. With half of it all-to-alls of 24 to
100 ranks over several ports take 0.7 % longer, those over one port as long as with all of it."""
EXCHANGE_EFFORT = 1_500_000
"""Sums of an offset and a shift that one local search looks at, about 8 ms."""
RANDOM_EFFORT = 6_000_000
"""The same for all searches that begin with random sets."""


def split_rounds(n: int, n_configurations: int) -> tuple[int, ...]:
    """Return for how many rounds each set of circuits is held, so that every rank can reach all.

    In a configuration of r rounds a block takes 0 to r hops, so that the product of all r + 1 has
    to be n or more. Example: 12 ranks and two configurations have (3, 2), since (3 + 1) * (2 + 1)
    = 12. Each configuration has at least one round, the largest number comes first; there are
    fewer than `n_configurations` if fewer are enough, and none for one rank.
    """
    k = min(n_configurations, (n - 1).bit_length())
    if not k:
        return ()
    # The fewest rounds of k configurations, shared out as evenly as they can be.
    rounds, n_longer = divmod(fewest_rounds(n, k), k)
    return (rounds + 1,) * n_longer + (rounds,) * (k - n_longer)


def list_knodel_shifts(n: int) -> list[int]:
    """List the shifts 0, 1, 3, 7, ... of the rounds of a Knoedel graph, before they come again."""
    return [2**k - 1 for k in range(n.bit_length() - 1)]


class Circulant(NamedTuple):
    """An all-to-all on shifts."""

    shifts: IntArray
    """``shifts[configuration]``: how many places onward each rank sends."""
    exponents: IntArray | NDArray[np.int8]
    """``exponents[offset, configuration]``: hops of a block for the rank `offset` places
    onward."""

    @property
    def hops(self) -> int:
        """The hops of all blocks of one rank: a rank sends as many blocks, those of others too."""
        return int(self.exponents.sum())

    @property
    def rounds(self) -> IntArray:
        """By configuration: the most hops that a block takes in it."""
        most: IntArray = self.exponents.max(axis=0)
        return most

    def time_s(self, problem: Collective) -> float:
        """Return how many seconds the all-to-all takes."""
        circuit_bytes = self.hops * problem.block_bytes / problem.lanes
        n_changes = len(self.shifts) - 1
        return seconds_of(problem, int(self.rounds.sum()), circuit_bytes, n_changes=n_changes)


@inner_kernel
def count_terms(shifts, two_way, work):
    """Count the fewest terms of all offsets as sums of shifts; `FAR` if one is no such sum.

    Breadth-first search from offset 0, modulo the number n of offsets. With 8 offsets and the
    shifts 1 and 3 the offsets 1 = 1, 2 = 1 + 1, 3 = 3, 4 = 1 + 3, ..., 7 = 1 + 3 + 3 have 1 + 2 +
    1 + 2 + 3 + 2 + 3 = 14 terms. Two-way shifts can be subtracted, too. `work`, shape (2, n), is
    scratch.
    """
    distance = work[0]
    queue = work[1]
    distance[:] = FAR
    distance[0] = 0
    queue[0] = 0
    n_reached = 1
    place = 0
    n_terms = 0

    # Each offset that is reached leads to those that are one shift away.
    while place < n_reached:
        offset = queue[place]
        place += 1
        n_terms += distance[offset]
        for shift in shifts:
            for step in (shift, -shift):
                following = (offset + step) % len(distance)
                if distance[following] == FAR and (step > 0 or two_way):
                    distance[following] = distance[offset] + 1
                    queue[n_reached] = following
                    n_reached += 1
    return n_terms if n_reached == len(distance) else FAR


@kernel
def exchange_shifts(shifts, two_way, draws, work):
    """Exchange shifts for others as long as offsets become sums of no more terms.

    Local search: a row (k, s) of `draws` is an exchange to try, by which ``shifts[k]`` becomes s +
    1. It is taken back if all offsets together need more terms. Changes `shifts`, and returns the
    terms that they need in the end; `work` is scratch of `count_terms`.
    """
    least = count_terms(shifts, two_way, work)
    for number in range(len(draws)):
        place = draws[number, 0]
        before = shifts[place]
        shifts[place] = draws[number, 1] + 1
        n_terms = count_terms(shifts, two_way, work)
        if n_terms <= least:
            least = n_terms
        else:
            shifts[place] = before
    return least


def list_power_shifts(n: int, k: int, *, two_way: bool) -> list[IntArray]:
    """List sets of k shifts, or of all, that are powers of a base and reach all ranks in few hops.

    The best base is near the k-th root of the largest shift; twice that root if shifts can be
    subtracted, too. The bases next to it are tried as well: each set has the powers of a base up
    to the largest shift, and then the smallest numbers that are not in it yet.

    Example: three one-way shifts of 64 ranks are 1, 3, 9; 1, 4, 16; or 1, 5, 25.
    """
    largest = n // 2 if two_way else n - 1
    best_base = max(2, round((2 if two_way else 1) * largest ** (1 / k)))
    shift_sets = list[IntArray]()
    for base in range(max(2, best_base - 1), best_base + 2):
        shifts = np.unique([base**power for power in range(k) if base**power <= largest])
        other_shifts = np.setdiff1d(np.arange(1, largest + 1), shifts)[: k - len(shifts)]
        shift_sets.append(np.sort(np.concatenate([shifts, other_shifts])))
    return shift_sets


def list_shifts(n: int, k: int, clock: Clock, *, two_way: bool = False) -> list[IntArray]:
    """List sets of k shifts that reach all ranks in few hops; the set of fewest hops first.

    Over circuits of shift s all ranks send s places onward (modulo n), and back as well if they
    are two-way. The sum of the hops over all offsets is to be small. Each set is the end of a
    local search, which exchanges one shift for another as long as that does no harm. It begins
    with powers of a base, such as 1, 4 and 16, or, where the effort is small, with random shifts.
    No search begins after the end of `clock`.
    """
    rng = np.random.default_rng(0)
    largest = n // 2 if two_way else n - 1
    n_exchanges = max(1, min(MOST_EXCHANGES, EXCHANGE_EFFORT // (n * k)))
    n_random_sets = min(RANDOM_SETS, RANDOM_EFFORT // (n * k * n_exchanges))
    starts = list_power_shifts(n, k, two_way=two_way)
    starts += [np.append(1, rng.integers(1, largest + 1, k - 1)) for _ in range(n_random_sets)]

    # Exchanges are drawn: rows of a place in the set, and a number from 0 for the shift that is
    # one more.
    work = np.empty((2, n), dtype=np.int64)
    hops_of_shifts: dict[tuple[int, ...], int] = {}
    for shifts in starts:
        if clock.exceeded(0) is not None:
            break
        draws = rng.integers([len(shifts), largest], size=(n_exchanges, 2))
        hops = exchange_shifts(shifts, two_way, draws, work)
        hops_of_shifts[tuple(sorted(shifts.tolist()))] = hops
    return [np.array(shifts) for shifts in sorted(hops_of_shifts, key=hops_of_shifts.__getitem__)]


@kernel
def count_shifts(shifts, most_times, exponents, distance, loads):
    """Write every offset from 1 to n - 1 as a sum of the fewest shifts, modulo n.

    ``shifts[k]`` is how many places onward circuits lead, and is taken `most_times` at most in one
    sum. Writes ``exponents[offset, k]``, how often shift k is taken for an offset,
    ``distance[offset]``, the number of terms (`FAR` for offsets that are no sum), and
    ``loads[k]``, how often all offsets together take shift k. Returns the most terms of an offset,
    `FAR` if some offset is found to be no sum.

    With shifts 1 and 3 for 8 ranks, 2 is 1 + 1, 4 is 1 + 3, and 5 is 1 + 1 + 3. If several sums
    are shortest, one with shifts that are taken less often is chosen. Breadth-first search from
    offset 0: first all sums of one term, then those of two, and so on.
    """
    n, n_shifts = exponents.shape
    distance[:] = FAR
    exponents[:, :] = 0
    loads[:] = 0
    distance[0] = 0
    n_known = 1
    hops = 0
    while n_known < n:
        hops += 1
        n_before = n_known
        for offset in range(n):
            # Offsets that are no sum of fewer shifts are looked for as sums of `hops` of them: the
            # sum of an offset that has one term less (`offset_before`), and one shift more. The
            # load of a sum is how often the busiest shift in it would be taken by all offsets
            # until now; the last shift of the sum with the least load is `best`.
            if distance[offset] < FAR:
                continue
            best = -1
            best_load = 0
            for k in range(n_shifts):
                offset_before = (offset - shifts[k]) % n
                is_sum = distance[offset_before] == hops - 1
                if not is_sum or exponents[offset_before, k] >= most_times:
                    continue
                load = loads[k] + 1
                for term in range(n_shifts):
                    if exponents[offset_before, term] > 0:
                        load = max(load, loads[term] + exponents[offset_before, term])
                if best < 0 or load < best_load:
                    best = k
                    best_load = load
            # Each shift is taken as often as by the offset before, the last one once more.
            if best >= 0:
                offset_before = (offset - shifts[best]) % n
                for term in range(n_shifts):
                    exponents[offset, term] = exponents[offset_before, term]
                exponents[offset, best] += 1
                for term in range(n_shifts):
                    loads[term] += exponents[offset, term]
                distance[offset] = hops
                n_known += 1
        if n_known == n_before:
            return FAR
    return hops


def route(n: int, shifts: IntArray, most_times: int = FAR) -> Circulant:
    """Return short paths to all offsets, which take each shift `most_times` at most.

    Of shortest paths those are chosen by which all shifts are taken about equally often.

    Example: 8 ranks and the shifts 1, 2 and 4. The path to offset 5 takes shift 1 once and shift 4
    once; its exponents are 1, 0 and 1.

    ``shifts[configuration]`` tells how many places onward each rank sends in a configuration.
    Raises `InputError` if some offset is out of reach.
    """
    exponents = np.empty((n, len(shifts)), dtype=np.int64)
    distance = np.empty(n, dtype=np.int64)
    loads = np.empty(len(shifts), dtype=np.int64)
    if count_shifts(shifts, most_times, exponents, distance, loads) >= FAR:
        raise InputError("shifts do not reach every rank")
    return Circulant(shifts, exponents)


def choose(problem: Collective, clock: Clock) -> tuple[Circulant, bool]:
    """Return the fastest all-to-all whose ranks all send equally many places onward.

    The second result tells whether all was tried: it is false if something was left out for want
    of time or memory.

    A *configuration* is a set of circuits that all lead the same number of places onward, its
    *shift*. A block, what one rank sends to one other, makes some hops in some configurations;
    their shifts add up to the places that it has to go. More configurations need fewer hops, but a
    delay for each change: among 12 ranks the shifts 1, 2, 4 and 8 take one hop for each binary 1
    of an offset, and the shifts 1 and 4 up to three hops of 1 and two of 4.
    """
    n = problem.n_ranks

    # First plans whose hops are known at once: shifts of mixed radices, such as 1, 4 and 16, with
    # as many hops as a digit says; then a configuration for each value of a digit, and one hop for
    # each digit that is not 0. With a single digit blocks go straight to their places. The first
    # plan, with digits of radix 2, has few hops, and is taken however long it takes to be written
    # down.
    digit_counts = range((n - 1).bit_length(), 0, -1)
    quick = [route_digits(n, split_rounds(n, k)) for k in digit_counts]
    quick += [route_digit_values(n, split_rounds(n, k)) for k in digit_counts]
    best = quick[0]
    best_s = best.time_s(problem)
    is_whole = True
    for circulant in quick[1:]:
        seconds = circulant.time_s(problem)
        if seconds < best_s and _is_affordable(problem, circulant, clock):
            best = circulant
            best_s = seconds
        elif seconds < best_s:
            is_whole = False

    def bound_s(k: int, n_hops: float) -> float:
        """Bound the time of k configurations, by the fewest rounds and the hops of blocks."""
        circuit_bytes = n_hops * problem.block_bytes / problem.lanes
        return seconds_of(problem, fewest_rounds(n, k), circuit_bytes, n_changes=k - 1)

    # Then other shifts. The paths over k shifts take k k n steps, so that there is time for the
    # numbers of configurations up to `most`. Nothing is left out by that if these are all, or if
    # more could not be faster even with one hop for each block, which is n - 1 hops.
    most = min(n - 1.0, math.sqrt(STEPS_PER_S * max(0.0, clock.remaining_s) / n))
    is_whole &= most == n - 1 or bound_s(int(most) + 1, n - 1) >= best_s

    # The numbers of configurations by ascending bounds, as long as one may be faster than the best
    # plan. A path may take each shift any number of times, or twice, or once (`MOST_TIMES`).
    bounds_s = {k: bound_s(k, add_up_hops(ranks_at_hops(n, k))) for k in range(1, int(most) + 1)}
    for k in sorted(bounds_s, key=lambda k: bounds_s[k])[:COUNTS_TRIED]:
        if bounds_s[k] >= best_s:
            break
        for shifts, most_times in product(list_shifts(n, k, clock)[:SHIFT_SETS_TRIED], MOST_TIMES):
            try:
                circulant = route(n, shifts, most_times)
            except InputError:  # fewer sums do not reach all ranks
                continue
            seconds = circulant.time_s(problem)
            if seconds < best_s and _is_affordable(problem, circulant, clock):
                best = circulant
                best_s = seconds
            elif seconds < best_s:
                is_whole = False
            # The time that is left is for writing the best one down.
            if clock.exceeded(0) is not None or not _is_affordable(problem, best, clock):
                return best, False
    return best, is_whole


def route_digits(n: int, held: tuple[int, ...]) -> Circulant:
    """Return the paths on shifts of mixed radices: the digits of each offset.

    Example: 12 ranks and ``held=(3, 2)``. The shifts are 1 and 4, and offset 7 = 3 + 1 * 4 takes
    the first one three times and the second one once.
    """
    radices = np.array([1 + rounds for rounds in held], dtype=np.int64)
    shifts = np.cumprod(radices) // radices
    return Circulant(shifts, np.arange(n)[:, None] // shifts % radices)


def route_digit_values(n: int, held: tuple[int, ...]) -> Circulant:
    """Return the paths on a shift for each value of each digit of mixed radices.

    A block takes one hop for each digit of its offset that is not 0. Example: 12 ranks and
    ``held=(3, 2)``. The shifts are 1, 2, 3 and 4, 8, and offset 7 takes the shifts 3 and 4.
    """
    places, digits = route_digits(n, held)
    values = [np.arange(1, rounds + 1) for rounds in held]
    shifts = np.concatenate([values[k] * places[k] for k in range(len(held))])
    exponents = np.hstack([digits[:, k, None] == values[k] for k in range(len(held))])
    n_used = np.count_nonzero(shifts < n)  # the last digit may have values that no offset has
    return Circulant(shifts[:n_used], exponents[:, :n_used].view(np.int8))


def _is_affordable(problem: Collective, circulant: Circulant, clock: Clock) -> bool:
    """Tell whether there is time and memory to write down an all-to-all and its circuits."""
    # A large plan lists the sends of the blocks of rank 0 alone, but the ports of all ranks.
    n_sends = problem.n_ranks * circulant.hops
    if ranks_to_store(n_sends):
        n_ports = problem.n_ranks * problem.lanes * len(circulant.shifts)
        n_sends = circulant.hops + n_ports // PORTS_OF_A_SEND
    return n_sends <= QUICK_SENDS or is_affordable(n_sends, clock)


def list_moves(circulant: Circulant) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Yield which blocks move on in each round of an all-to-all over circuits of equal distance.

    Each round gives its configuration, the offsets of the blocks that move, and how many places
    these have come before. With 4 ranks and the shifts 1 and 2: configuration 0 moves the offsets
    1 and 3 from place 0, and configuration 1 the offsets 2 and 3 from the places 0 and 1.
    """
    n = len(circulant.exponents)
    distance = np.zeros(n, dtype=np.int64)
    for config, shift in enumerate(circulant.shifts.tolist()):
        # A configuration has as many rounds as the block that takes its shift most often.
        for hop in range(int(circulant.exponents[:, config].max(initial=0))):
            offsets = np.flatnonzero(circulant.exponents[:, config] > hop)
            yield config, offsets, distance[offsets]
            distance[offsets] += shift
