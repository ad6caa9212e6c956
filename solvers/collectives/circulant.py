"""Circulant exchanges: all-to-alls in which each rank sends to the rank some places onward.

Shifts and routes are chosen together. In configuration c rank r sends to rank r + g_c, modulo n. A
block for the rank o places onward takes j_c(o) hops in configuration c, with
o = j_1 g_1 + ... + j_K g_K. All ranks do the same, so each circuit of a configuration carries as
much, and a rank sends as many blocks as there are hops to all offsets: least for shortest paths.
`list_shifts` looks for the shifts whose paths are shortest, by hill climbing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, InputError
from optmatch.problems import Collective
from optmatch.problems.collectives.bounds import distances, fewest_rounds
from optmatch.solvers.collectives.rounds import (
    PORTS_OF_A_SEND,
    QUICK_SENDS,
    IntArray,
    is_affordable,
    ranks_to_store,
    seconds_of,
)
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

RESTARTS = 40
"""Climbs for one number of configurations; fewer where each is long. Measured with 64 and 96
ranks, 3 to 10 configurations and three seeds: half as many end with up to 0.8 % more hops, twice
as many with up to 0.7 % less."""
TRIED = 8
"""Numbers of configurations that are tried, and shifts for each whose rounds are counted."""
FAR = 1 << 30
"""The distance of an offset that no path reaches."""
STEPS_PER_S = 10_000_000
"""Steps of a climb in one sweep for which a second is needed, as it takes several sweeps."""
CLIMB_STEPS = 40_000_000
"""Steps of all climbs for one number of configurations, in one sweep of each: about a second."""


def split_rounds(n: int, n_configurations: int) -> tuple[int, ...]:
    """Return for how many rounds each set of circuits is held, so that every rank can reach all.

    In a configuration of r rounds a block takes 0 to r hops, so that the product of all r + 1 has
    to be n or more. Example: 12 ranks and two configurations have (3, 2), since (3 + 1) * (2 + 1)
    = 12. Each configuration has at least one round, the largest number comes first; there are
    fewer than `n_configurations` if so many are not needed, and none for one rank.
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
    """``exponents[offset, configuration]``: hops of a block for the rank so many places onward."""

    @property
    def hops(self) -> int:
        """Hops of the blocks of one rank, and blocks that it sends."""
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
def relax(distance, shift, least):
    """Update the fewest hops to all offsets for circuits that lead some places further.

    ``distance[offset]`` are the fewest hops without the new circuits, and ``least[offset]``
    receives those with them (both may be one array); offsets count modulo n. A path may take the
    new circuits, which lead `shift` places onward, any number of times.

    Example with n = 6 and shift 2: the hops lead along the cycles 0 2 4 0 and 1 3 5 1. If offset 0
    takes 0 hops, offset 2 takes 1 and offset 4 takes 2.
    """
    n = len(distance)
    for offset in range(n):
        least[offset] = distance[offset]
    # There are gcd(shift, n) cycles of equal length. Going along a cycle, each offset has at most
    # one hop more than the offset before. A cycle has no beginning, so it is gone round twice: the
    # offset with the fewest hops is met in the first turn, and then told to all others.
    cycles = np.gcd(shift, n)
    for start in range(cycles):
        offset = start
        for _ in range(2 * (n // cycles)):  # one round finds the least, one covers all
            following = offset + shift
            following -= n if following >= n else 0
            if least[offset] + 1 < least[following]:
                least[following] = least[offset] + 1
            offset = following


@kernel
def climb(shifts, n, work):
    """Replace one shift after another by the best one, until none can be replaced.

    Changes `shifts` in place, and returns the sum over all offsets of the fewest hops with them
    (hill climbing). ``work[row, offset]`` is scratch of two rows: the hops without one of the
    shifts, and those with another one in its place. Trying all shifts once takes O(k^2 n + k n^2)
    steps for k shifts.

    Example: n = 6 and the shifts 1 and 3. The offsets 1 and 3 take 1 hop, 2 and 4 take 2, and 5
    takes 3: 9 hops together.
    """
    # The shifts are looked at in turn, until none of them has been replaced in a whole turn. At
    # first every sum of hops is better than `best_hops`, so that shift 0 gets its sum at least.
    count = len(shifts)
    best_hops = FAR * n
    n_unchanged = 0  # how many shifts in a row stayed as they were
    k = 0
    while n_unchanged < count:
        # work[0]: the hops to all offsets by the other shifts alone.
        work[0, :] = FAR
        work[0, 0] = 0
        for other in range(count):
            if other != k:
                relax(work[0], shifts[other], work[0])
        # Each shift in place of shift k is tried; the sum of hops over all offsets decides.
        best_shift = shifts[k]
        hops = best_hops
        for shift in range(1, n):
            # work[1]: the hops to all offsets with this shift beside the others.
            relax(work[0], shift, work[1])
            total = 0
            for offset in range(n):
                total += work[1, offset]
            if total < hops:
                best_shift = shift
                hops = total
        n_unchanged = 0 if hops < best_hops else n_unchanged + 1
        shifts[k] = best_shift
        best_hops = hops
        k = (k + 1) % count
    return best_hops


@kernel
def fill(distance, shift, max_hops, least, taken):
    """Write the fewest hops to all offsets with one shift more, used `max_hops` times at most.

    ``distance[offset]`` are the fewest hops without the shift, `FAR` where there is no path.
    ``least[offset]`` receives those with it, and ``taken[offset]`` how many of them are hops of
    the shift. O(n max_hops) steps.

    Example: n = 4, and at first only offset 0 is reached. With the shift 1 and two hops at most
    the offsets 0, 1 and 2 take 0, 1 and 2 hops, and offset 3 stays out of reach.
    """
    n = len(distance)
    for offset in range(n):
        least[offset] = distance[offset]
        taken[offset] = 0
        offset_before = offset
        # The path to the offset ends with so many hops of the shift.
        for times in range(1, max_hops + 1):
            offset_before -= shift
            offset_before += n if offset_before < 0 else 0
            if distance[offset_before] + times < least[offset]:
                least[offset] = distance[offset_before] + times
                taken[offset] = times


def list_shifts(n: int, k: int, clock: Clock) -> list[IntArray]:
    """List sets of k shifts that reach all ranks in few hops; the set of fewest hops first.

    Over circuits of shift s all ranks send s places onward (modulo n). The sum of the hops over
    all offsets is to be small. Each set is the end of a hill climb, which replaces one shift after
    another by the best one. The first climb begins with 1 and products of small factors, such as
    1, 4 and 12, the others with random shifts. No climb begins after the end of `clock`.
    """
    rng = np.random.default_rng(0)
    # Each climb takes about k n^2 steps in a sweep, so few are made where that is much.
    work = np.empty((2, n), dtype=np.int64)
    hops_of_shifts: dict[tuple[int, ...], int] = {}
    for restart in range(max(2, min(RESTARTS, CLIMB_STEPS // (k * n * n)))):
        if clock.exceeded(0) is not None:
            break
        shifts = rng.integers(1, max(2, n), size=k)
        if restart == 0:
            # The mixed radix: 1, then products of 1 + the rounds of the configurations before.
            # Where these are fewer than k the remaining shifts stay random.
            radices = np.cumprod([1, *(1 + rounds for rounds in split_rounds(n, k))])[:-1]
            shifts[: len(radices)] = radices
        else:
            shifts[0] = 1  # all offsets can be reached from the beginning on
        hops = int(climb(shifts, n, work))
        hops_of_shifts.setdefault(tuple(sorted(shifts.tolist())), hops)
    order = sorted(hops_of_shifts, key=lambda shifts: hops_of_shifts[shifts])
    return [np.array(shifts) for shifts in order]


def route(n: int, shifts: IntArray, max_hops: IntArray | None = None) -> Circulant:
    """Return shortest paths to all offsets, with ``max_hops[configuration]`` hops at most in each.

    Example: 8 ranks and the shifts 1, 2 and 4. The path to offset 5 takes shift 1 once and shift 4
    once; its exponents are 1, 0 and 1.

    ``shifts[configuration]`` tells how many places onward each rank sends in a configuration.
    ``max_hops[configuration]`` is the most hops of a block in it; without limits if it is None.
    Raises `InputError` if some offset is out of reach.
    """
    # Dynamic programming over configurations: after each of them the fewest hops to all offsets.
    # taken[configuration, offset]: the hops in it, of the best path over it and those before.
    taken = np.zeros((len(shifts), n), dtype=np.int64)
    distance = np.full(n, FAR)
    distance[0] = 0
    for config, shift in enumerate(shifts.tolist()):
        least = np.empty_like(distance)
        limit = n - 1 if max_hops is None else int(max_hops[config])
        fill(distance, shift, limit, least, taken[config])
        distance = least
    if distance.max() >= FAR:
        raise InputError("shifts do not reach every rank")

    # The path to an offset ends with its hops in the last configuration, and so on backwards:
    # `offset` is where the paths to all offsets are before the hops that are known by then.
    exponents = np.zeros((n, len(shifts)), dtype=np.int64)
    offset = np.arange(n)
    for config in reversed(range(len(shifts))):
        exponents[:, config] = taken[config, offset]
        offset = (offset - exponents[:, config] * shifts[config]) % n
    return Circulant(shifts, exponents)


def trim(circulant: Circulant, problem: Collective) -> Circulant:
    """Give up rounds of an all-to-all by letting data take more hops, as long as that saves time.

    A configuration stays for as many rounds as the most hops that a block makes in it. If every
    block makes one hop less there, a round is saved; blocks then need other hops elsewhere.

    The round that saves most time is given up first, then the best one of those that are left, and
    so on, until no round saves any time (steepest descent). Changes of circuits stay.
    """
    n = len(circulant.exponents)
    while True:
        best: Circulant | None = None
        best_s = circulant.time_s(problem)
        for config in np.flatnonzero(circulant.rounds):
            # `max_hops`, a new array, is the most hops of a block by configuration: one less than
            # now in this one, as many as now in all others. If some blocks have no way then, this
            # is no choice.
            max_hops = circulant.rounds
            max_hops[config] -= 1
            try:
                shorter = route(n, circulant.shifts, max_hops)
            except InputError:
                continue
            seconds = shorter.time_s(problem)
            if seconds < best_s:
                best = shorter
                best_s = seconds
        if best is None:
            return circulant
        circulant = best


def choose(problem: Collective, clock: Clock) -> tuple[Circulant, bool]:
    """Return the fastest all-to-all whose ranks all send equally many places onward.

    The second result tells whether all was tried: it is false if something was left out for want
    of time or memory.

    A *configuration* is a set of circuits that all lead the same number of places onward, its
    *shift*. A block, what one rank sends to one other, makes some hops in some configurations;
    their shifts add up to the places that it has to go. More configurations need fewer hops, but a
    delay for each change.
    """
    n = problem.n_ranks

    # First plans whose hops are known at once. Shifts of mixed radices, such as 1, 4 and 16: the
    # most configurations come first, and are taken however long they take to be written down. Then
    # a configuration for each value of a digit, and one hop for each digit that is not 0; with one
    # digit blocks go straight to their places.
    digit_counts = range((n - 1).bit_length(), 0, -1)
    quick = [route_digits(n, split_rounds(n, k)) for k in digit_counts]
    quick += [route_digit_values(n, split_rounds(n, k)) for k in digit_counts]
    best = quick[0]
    best_s = best.time_s(problem)
    is_whole = True
    for circulant in quick[1:]:
        seconds = circulant.time_s(problem)
        if seconds < best_s and _is_affordable(circulant, clock):
            best = circulant
            best_s = seconds
        elif seconds < best_s:
            is_whole = False

    # bounds_s[k - 1]: a lower bound for k configurations, by the changes between them, the fewest
    # rounds, and the fewest hops of the blocks of a rank: `distances` yields those to each other
    # rank, for 1, 2, 3, ... configurations.
    counts = np.arange(1, n)
    bounds_s = [
        seconds_of(
            problem,
            fewest_rounds(n, k),
            float(hops.sum()) * problem.block_bytes / problem.lanes,
            n_changes=k - 1,
        )
        for k, hops in zip(counts.tolist(), distances(n), strict=False)
    ]
    # Then other shifts: the numbers of configurations by ascending bounds, as long as one may be
    # faster than the best time, and if there is time for the hill climbs that choose the shifts.
    for k in counts[np.argsort(bounds_s, kind="stable")][:TRIED].tolist():
        if bounds_s[k - 1] >= best_s:
            break
        if k * n * n / STEPS_PER_S > clock.remaining_s:
            is_whole = False
            continue
        for shifts in list_shifts(n, k, clock)[:TRIED]:
            circulant = trim(route(n, shifts), problem)
            seconds = circulant.time_s(problem)
            if seconds < best_s and _is_affordable(circulant, clock):
                best = circulant
                best_s = seconds
            elif seconds < best_s:
                is_whole = False
            if clock.exceeded(0) is not None:
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


def _is_affordable(circulant: Circulant, clock: Clock) -> bool:
    """Tell whether there is time and memory to write down an all-to-all and its circuits."""
    # A large plan lists the sends of the blocks of rank 0 alone, but the ports of all ranks.
    n = len(circulant.exponents)
    n_sends = n * circulant.hops
    if ranks_to_store(n_sends):
        n_sends = circulant.hops + n * len(circulant.shifts) // PORTS_OF_A_SEND
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
