"""All-to-all on shifts of all ranks: shifts and routes chosen together, for few configurations.

In configuration c rank r sends to r + g_c, modulo n. A block for the rank o places onward takes
j_c(o) hops in it, with o = j_1 g_1 + ... + j_K g_K. All ranks do the same, so each circuit of a
configuration carries as much, and a rank sends as many blocks as there are hops to all offsets:
least for shortest paths. `list_shifts` looks for the shifts whose paths are shortest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.problems import Collective
from optmatch.problems.collectives.bounds import distances, fewest_rounds
from optmatch.problems.collectives.plan import COPY
from optmatch.solvers.collectives.mixed_radix import split_rounds
from optmatch.solvers.collectives.rounds import Rounds, as_rounds
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

RESTARTS = 40
"""Climbs for one number of configurations; fewer where each is long."""
TRIED = 8
"""Numbers of configurations that are tried, and shifts for each whose rounds are counted."""
FAR = 1 << 30


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
        for _ in range(2 * (n // cycles)):  # once round to begin at the least, once for all
            to = at + shift
            to -= n if to >= n else 0
            if least[at] + 1 < least[to]:
                least[to] = least[at] + 1
            at = to


@kernel
def climb(shifts, n, work):
    """Replace one shift after another by the best there is; return the hops in the end.

    It writes `shifts` and works in an array of shape (2, n).
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


def list_shifts(n: int, k: int, seed: int = 0) -> list[NDArray[np.int64]]:
    """List sets of k shifts with short paths to all offsets, the one of fewest hops first.

    They are the ends of hill climbs from several beginnings, of which the first is a mixed
    radix. One climb takes some rounds of O(k n^2).
    """
    rng = np.random.default_rng(seed)
    work = np.empty((2, n), dtype=np.int64)
    found: dict[tuple[int, ...], int] = {}
    for restart in range(max(2, min(RESTARTS, 10**9 // (k * n * n)))):
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


def choose(problem: Collective) -> Circulant:
    """Return the fastest all-to-all on shifts that is found, for any number of configurations.

    Those numbers are tried first of which the bound by rounds, hops and delays is least.
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
        for shifts in list_shifts(n, k)[:TRIED]:
            found = trim(route(n, shifts), block_s, each_s)
            best = min(best, found, key=lambda each: each.time_s(block_s, each_s, delay_s))
    return best


def list_rounds(circulant: Circulant) -> Rounds:
    """List the rounds of an all-to-all: in each configuration as many as the most hops in it.

    A block of fewer hops makes them in the first of these.
    """
    n = len(circulant.exponents)
    place = np.zeros(n, dtype=np.int64)  # by offset: how far blocks have come
    parts = []
    for c, shift in enumerate(circulant.shifts.tolist()):
        for k in range(int(circulant.rounds[c])):
            offset = np.flatnonzero(circulant.exponents[:, c] > k)
            start, o = (x.ravel() for x in np.meshgrid(np.arange(n), offset, indexing="ij"))
            at = (start + place[o]) % n
            parts.append((at, (at + shift) % n, start * n + (start + o) % n))
            place[offset] += shift
    return as_rounds(parts, COPY, n * n)
