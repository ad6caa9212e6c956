"""All-to-all on shifts of all ranks: shifts and routes chosen together, for few configurations.

In configuration c rank r sends to r + g_c, modulo n. A block for the rank o places onward takes
j_c(o) hops in it, with o = j_1 g_1 + ... + j_K g_K. All ranks do the same, so each circuit of a
configuration carries as much, and a rank sends as many blocks as there are hops to all offsets:
least for shortest paths. `search_shifts` looks for the shifts whose paths are shortest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.model.values import integer
from optmatch.problems.collectives.bounds import distances
from optmatch.solvers.collectives.mixed_radix import reach_product
from optmatch.solvers.collectives.stragglar import COPY, Sends
from optmatch.solvers.kernel import inner_kernel, kernel

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

    def time_s(self, block_s: float, alpha_s: float, delay_s: float) -> float:
        """Return how long it takes.

        Parameters
        ----------
        block_s
            To send one block, of 1 / n of a rank's buffer.
        alpha_s
            Of each round.
        delay_s
            Of each configuration but the first.
        """
        rounds = int(self.rounds.sum())
        return (len(self.shifts) - 1) * delay_s + rounds * alpha_s + self.hops * block_s


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

    Parameters
    ----------
    shifts
        The shifts; written.
    n
        Number of ranks.
    work
        Shape (2, n).
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


def search_shifts(n: int, n_configurations: int, seed: int = 0) -> NDArray[np.int64]:
    """Return shifts with short paths to all offsets: hill climbing from several beginnings.

    Parameters
    ----------
    n
        Number of ranks.
    n_configurations
        How many shifts.
    seed
        Of the beginnings; the first are mixed radices.

    Notes
    -----
    One climb takes some rounds of O(K n^2).

    Examples
    --------
    >>> shifts = search_shifts(8, 3)
    >>> route(8, shifts).hops  # the bound
    11
    """
    return _climbs(n, n_configurations, seed)[0]


def _climbs(n: int, k: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the ends of climbs, the one of fewest hops first."""
    rng = np.random.default_rng(seed)
    _, split = reach_product(n, k)
    work = np.empty((2, n), dtype=np.int64)
    found: dict[tuple[int, ...], int] = {}
    for restart in range(max(2, min(RESTARTS, 10**9 // (k * n * n)))):
        shifts = rng.integers(1, max(2, n), size=k)
        if restart == 0:
            radices = np.cumprod([1, *(1 + r for r in split)])[:-1]
            shifts[: len(radices)] = radices
        else:
            shifts[0] = 1
        hops = climb(shifts, n, work)
        found.setdefault(tuple(sorted(shifts.tolist())), int(hops))
    return [np.array(shifts) for shifts in sorted(found, key=found.__getitem__)]


def route(n: int, shifts: NDArray[np.int64], most: NDArray[np.int64] | None = None) -> Circulant:
    """Return shortest paths to all offsets, with so many hops at most in each configuration.

    Parameters
    ----------
    n
        Number of ranks.
    shifts
        By configuration.
    most
        By configuration; None: any number.

    Raises
    ------
    InputError
        If an offset cannot be reached.
    """
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


def trim(circulant: Circulant, block_s: float, alpha_s: float) -> Circulant:
    """Take longer paths as long as fewer rounds save more than the hops cost.

    Parameters
    ----------
    circulant
        Shortest paths.
    block_s, alpha_s
        Of each block and round, as for `Circulant.time_s`.
    """
    n = len(circulant.exponents)
    while True:
        best, time_s = None, circulant.time_s(block_s, alpha_s, 0.0)
        for c in np.flatnonzero(circulant.rounds):
            most = circulant.rounds
            most[c] -= 1
            try:
                other = route(n, circulant.shifts, most)
            except InputError:
                continue
            if other.time_s(block_s, alpha_s, 0.0) < time_s:
                best, time_s = other, other.time_s(block_s, alpha_s, 0.0)
        if best is None:
            return circulant
        circulant = best


def choose(
    n: int, block_s: float, alpha_s: float, delay_s: float, seed: int = 0
) -> tuple[Circulant, float]:
    """Return the fastest all-to-all on shifts, for any number of configurations, and a bound.

    Parameters
    ----------
    n
        Number of ranks, 2 or more.
    block_s, alpha_s, delay_s
        Of each block, round and new configuration, as for `Circulant.time_s`.
    seed
        Of the search for shifts.

    Returns
    -------
    Circulant
        The one of least time that was found.
    float
        No all-to-all on one-way circuits, with one port, is faster: reach product, distances and
        delays, for the best number of configurations.

    Examples
    --------
    >>> found, bound_s = choose(8, 1.0, 0.0, 3.0)
    >>> found.time_s(1.0, 0.0, 3.0), bound_s
    (17.0, 17.0)
    """
    n = integer("n", n, at_least=2)
    counts = np.arange(1, n)
    bounds = [
        (k - 1) * delay_s + reach_product(n, k)[0] * alpha_s + float(hops.sum()) * block_s
        for k, hops in zip(counts.tolist(), distances(n), strict=False)
    ]
    best = Circulant(counts, np.eye(n, dtype=np.int64)[:, 1:])  # each block straight to its place
    for k in counts[np.argsort(bounds, kind="stable")][:TRIED].tolist():
        if bounds[k - 1] >= best.time_s(block_s, alpha_s, delay_s):
            break
        for shifts in _climbs(n, k, seed)[:TRIED]:
            found = trim(route(n, shifts), block_s, alpha_s)
            best = min(best, found, key=lambda each: each.time_s(block_s, alpha_s, delay_s))
    return best, min(bounds)


def list_sends(circulant: Circulant) -> Sends:
    """Return the sends of an all-to-all: chunk source * n + destination, hop by hop.

    Parameters
    ----------
    circulant
        Shifts and routes.

    Returns
    -------
    Sends
        In each configuration as many rounds as the most hops in it; a block of fewer hops makes
        them in the first of these.

    Examples
    --------
    >>> list_sends(route(3, np.array([1]))).tolist()[6:]
    [[1, 1, 2, 2, 0], [1, 2, 0, 3, 0], [1, 0, 1, 7, 0]]
    """
    n = len(circulant.exponents)
    rank = np.arange(n)
    place = np.zeros(n, dtype=np.int64)  # by offset: how far blocks have come
    parts = [np.empty((5, 0), dtype=np.int64)]
    turn = 0
    for c, shift in enumerate(circulant.shifts.tolist()):
        for k in range(int(circulant.rounds[c])):
            offset = np.flatnonzero(circulant.exponents[:, c] > k)
            start, o = (x.ravel() for x in np.meshgrid(rank, offset, indexing="ij"))
            at = (start + place[o]) % n
            chunk = start * n + (start + o) % n
            full = np.full_like(at, turn)
            parts.append(np.stack((full, at, (at + shift) % n, chunk, np.full_like(at, COPY))))
            place[offset] += shift
            turn += 1
    return np.concatenate(parts, axis=1).T.astype(np.int32)
