"""Circulant exchanges: rounds in which each rank sends to the rank some places onward.

The fewest rounds for few configurations are those of steps that grow by mixed radices. In
configuration c each rank sends to the rank g_c = (1 + r_1) ... (1 + r_(c-1)) places onward, in r_c
rounds; in each it sends on the g_c blocks that it got last. After these rounds each rank has the
blocks of g_c (1 + r_c) ranks in a row. With the fewest rounds for K configurations, the product of
all 1 + r_c is n at least, and no schedule can do with less. In the last configuration only blocks
that are still missing are sent.

In an all-to-all, shifts and routes are chosen together. In configuration c rank r sends to rank
r + g_c, modulo n. A block for the rank o places onward takes j_c(o) hops in configuration c, with
o = j_1 g_1 + ... + j_K g_K. All ranks do the same, so each circuit of a configuration carries as
much, and a rank sends as many blocks as there are hops to all offsets: least for shortest paths.
`list_shifts` looks for the shifts whose paths are shortest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, InputError
from optmatch.problems import Collective
from optmatch.problems.collectives.bounds import distances, fewest_rounds
from optmatch.problems.collectives.plan import COPY
from optmatch.solvers.collectives.rounds import MOST_SENDS, Rounds, as_rounds, of_gathers
from optmatch.solvers.kernels.decorators import inner_kernel, kernel


def split_rounds(n: int, n_configurations: int) -> tuple[int, ...]:
    """Return for how many rounds each configuration is held, so that every rank can reach all.

    The least sum of r_1 ... r_K with (1 + r_1) ... (1 + r_K) >= n, of as many configurations as
    are of use. For a given sum the product is largest where they differ by one at most.
    """
    k = min(n_configurations, (n - 1).bit_length())
    if not k:
        return ()
    each, more = divmod(fewest_rounds(n, k), k)
    return (each + 1,) * more + (each,) * (k - more)


def all_gather(n: int, held: tuple[int, ...], sign: int = 1) -> Rounds:
    """Return the rounds of an all-gather; circuits of each are the same shift of all ranks.

    Rank r has block r; `held` is as of `split_rounds`, and `sign` says which way blocks go round,
    1 or -1.
    """
    parts, step = [], 1
    for rounds in held:
        for k in range(rounds):
            # This hop moves the block that began j places back; blocks that are home again are
            # left out.
            back = np.arange(k * step, min((k + 1) * step, n - step))
            source, j = (x.ravel() for x in np.meshgrid(np.arange(n), back, indexing="ij"))
            parts.append((source, (source + sign * step) % n, (source - sign * j) % n))
        step *= 1 + rounds
    return as_rounds(parts, COPY, n)


def make(problem: Collective) -> Rounds:
    """Make an all-gather, a reduce-scatter or an all-reduce with as many circuits as pay."""
    n, each_s = problem.n_ranks, problem.alpha_s + (problem.hop_s or 0.0)
    splits = [split_rounds(n, k) for k in range(1, (n - 1).bit_length() + 1)]
    held = min(splits, key=lambda held: (len(held) - 1) * problem.delay_s + each_s * sum(held))
    return of_gathers(problem.operation, lambda sign: all_gather(n, held, sign))


RESTARTS = 40
"""Climbs for one number of configurations; fewer where each is long."""
TRIED = 8
"""Numbers of configurations that are tried, and shifts for each whose rounds are counted."""
FAR = 1 << 30
_STEPS = 40_000_000  # of all climbs for one number of configurations, in one round of each


class Circulant(NamedTuple):
    """An all-to-all on shifts."""

    shifts: NDArray[np.int64]
    """By configuration."""
    exponents: NDArray[np.int64]
    """``exponents[offset, configuration]``: hops of a block for the rank so many places onward."""

    @property
    def hops(self) -> int:
        """Hops of the blocks of one rank, and blocks that it sends."""
        return int(self.exponents.sum())

    @property
    def rounds(self) -> NDArray[np.int64]:
        """By configuration: the most hops that a block takes in it."""
        most: NDArray[np.int64] = self.exponents.max(axis=0)
        return most

    def time_s(self, block_s: float, each_s: float, delay_s: float) -> float:
        """Return how long it takes: seconds of a block, a round and a change of circuits."""
        rounds = int(self.rounds.sum())
        return (len(self.shifts) - 1) * delay_s + rounds * each_s + self.hops * block_s


@inner_kernel
def relax(distance, shift, least):
    """Write the distances with one more shift, used any number of times."""
    n = len(distance)
    for to in range(n):
        least[to] = distance[to]
    cycles = np.gcd(shift, n)
    for start in range(cycles):
        at = start
        for _ in range(2 * (n // cycles)):  # one round finds the least, one covers all
            to = at + shift
            to -= n if to >= n else 0
            if least[at] + 1 < least[to]:
                least[to] = least[at] + 1
            at = to


@kernel
def climb(shifts, n, work):
    """Replace one shift after another by the best there is; return the hops in the end.

    The kernel writes `shifts` and works in an array of shape (2, n).
    """
    count = len(shifts)
    best = FAR * n
    stale, k = 0, 0
    while stale < count:
        work[0, :] = FAR
        work[0, 0] = 0
        for c in range(count):
            if c != k:
                relax(work[0], shifts[c], work[0])
        found, hops = shifts[k], best
        for shift in range(1, n):
            relax(work[0], shift, work[1])
            total = 0
            for to in range(n):
                total += work[1, to]
            if total < hops:
                found, hops = shift, total
        stale = 0 if hops < best else stale + 1
        shifts[k], best = found, hops
        k = (k + 1) % count
    return best


@kernel
def fill(distance, shift, most, least, taken):
    """Write the distances with one more shift, used `most` times at most, and how often it is."""
    n = len(distance)
    for to in range(n):
        least[to], taken[to] = distance[to], 0
        at = to
        for j in range(1, most + 1):
            at -= shift
            at += n if at < 0 else 0
            if distance[at] + j < least[to]:
                least[to], taken[to] = distance[at] + j, j


def list_shifts(
    n: int, k: int, seed: int = 0, clock: Clock | None = None
) -> list[NDArray[np.int64]]:
    """List sets of k shifts with short paths to all offsets, the set of fewest hops first.

    The sets are the ends of hill climbs from several beginnings, of which the first is a mixed
    radix; a clock that has run out ends them. One climb takes some rounds of O(k n^2).
    """
    rng = np.random.default_rng(seed)
    work = np.empty((2, n), dtype=np.int64)
    found: dict[tuple[int, ...], int] = {}
    for restart in range(max(2, min(RESTARTS, _STEPS // (k * n * n)))):
        if clock is not None and clock.exceeded(0) is not None:
            break
        shifts = rng.integers(1, max(2, n), size=k)
        if restart == 0:
            radices = np.cumprod([1, *(1 + r for r in split_rounds(n, k))])[:-1]
            shifts[: len(radices)] = radices
        else:
            shifts[0] = 1
        hops = climb(shifts, n, work)
        found.setdefault(tuple(sorted(shifts.tolist())), int(hops))
    return [np.array(shifts) for shifts in sorted(found, key=found.__getitem__)]


def route(n: int, shifts: NDArray[np.int64], most: NDArray[np.int64] | None = None) -> Circulant:
    """Return shortest paths to all offsets, with ``most[configuration]`` hops at most in each."""
    taken = np.zeros((len(shifts), n), dtype=np.int64)
    distance = np.full(n, FAR)
    distance[0] = 0
    for c, shift in enumerate(shifts.tolist()):
        least = np.empty_like(distance)
        fill(distance, shift, n - 1 if most is None else int(most[c]), least, taken[c])
        distance = least
    if distance.max() >= FAR:
        raise InputError("shifts do not reach every rank")
    exponents = np.zeros((n, len(shifts)), dtype=np.int64)
    at = np.arange(n)
    for c in range(len(shifts) - 1, -1, -1):
        exponents[:, c] = taken[c, at]
        at = (at - exponents[:, c] * shifts[c]) % n
    return Circulant(shifts, exponents)


def trim(circulant: Circulant, block_s: float, each_s: float) -> Circulant:
    """Take longer paths as long as fewer rounds save more than the hops cost."""
    n = len(circulant.exponents)
    while True:
        best, time_s = None, circulant.time_s(block_s, each_s, 0.0)
        for c in np.flatnonzero(circulant.rounds):
            most = circulant.rounds
            most[c] -= 1
            try:
                other = route(n, circulant.shifts, most)
            except InputError:
                continue
            if other.time_s(block_s, each_s, 0.0) < time_s:
                best, time_s = other, other.time_s(block_s, each_s, 0.0)
        if best is None:
            return circulant
        circulant = best


def choose(problem: Collective, clock: Clock | None = None) -> Circulant:
    """Return the fastest all-to-all on shifts that is found, for any number of configurations.

    The numbers of configurations with the least bound by rounds, hops and delays are tried first;
    what takes more sends than `MOST_SENDS` is left out. The best is returned when a clock has run
    out.
    """
    n, delay_s = problem.n_ranks, problem.delay_s
    each_s = problem.alpha_s + (problem.hop_s or 0.0)
    block_s = problem.size_bytes / n / (problem.rate_bytes_per_s * problem.lanes)
    counts = np.arange(1, n)
    bounds = [
        (k - 1) * delay_s + fewest_rounds(n, k) * each_s + float(hops.sum()) * block_s
        for k, hops in zip(counts.tolist(), distances(n), strict=False)
    ]
    best = Circulant(counts, np.eye(n, dtype=np.int64)[:, 1:])  # each block straight to its place
    for k in counts[np.argsort(bounds, kind="stable")][:TRIED].tolist():
        if bounds[k - 1] >= best.time_s(block_s, each_s, delay_s):
            break
        for shifts in list_shifts(n, k, clock=clock)[:TRIED]:
            found = trim(route(n, shifts), block_s, each_s)
            if n * found.hops <= MOST_SENDS:
                best = min(best, found, key=lambda each: each.time_s(block_s, each_s, delay_s))
            if clock is not None and clock.exceeded(0) is not None:
                return best
    return best


def list_rounds(circulant: Circulant) -> Rounds:
    """List the rounds of an all-to-all: in each configuration as many as the most hops in it.

    A block of fewer hops makes them in the first of these.
    """
    n = len(circulant.exponents)
    place = np.zeros(n, dtype=np.int64)  # by offset: how far blocks have come
    parts = []
    for c, (shift, rounds) in enumerate(zip(circulant.shifts, circulant.rounds, strict=True)):
        for k in range(rounds):
            offset = np.flatnonzero(circulant.exponents[:, c] > k)
            start, o = (x.ravel() for x in np.meshgrid(np.arange(n), offset, indexing="ij"))
            at = (start + place[o]) % n
            parts.append((at, (at + shift) % n, start * n + (start + o) % n))
            place[offset] += shift
    return as_rounds(parts, COPY, n * n)
