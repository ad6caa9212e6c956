"""All-reduce around one late rank: schedules of the fewest rounds for two-way circuits.

Ranks 0 ... n - 2 have reduced n - 1 chunks among themselves while they waited; rank g holds chunk
g. The late rank n - 1 meets each of them once, and both then hold that chunk reduced over all.
From these two ranks the chunk spreads by copies. A round is a matching: one partner for each rank.

Let m be n, or n + 1 if n is odd, and q = ceil(log2 m). Each chunk may spread to 2^(q - 1) ranks
before it is the oldest, but only m / 2 are wanted: D = 2^(q - 1) - m / 2 too many. A rank that
holds class a and does not give it makes 2^(q - 2 - a) fewer. So the chunks in excess of one for
each rank lie on a few *doubles*, which give the oldest and waste the other. The doubles waste in
runs: a run of length k + 1 begins in class q - 2 - k and wastes 1 + 2 + ... + 2^k in all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import SolverError, integer
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.stragglar_pairs import (
    EXCHANGE,
    IDLE,
    LOSE,
    REST,
    SWAP,
    lay,
    new_ranks,
)
from optmatch.solvers.collectives.stragglar_search import DoublesSearch


def choose_runs(q: int, surplus: int, shortest: int = 0) -> tuple[int, ...] | None:
    """Return how many doubles waste class q - 2, q - 3, q - 4 in a round, or None.

    `q` chunks are active, and of the `surplus` D each waste takes 1, 2, 4.

    Enough ranks must give the class with which a run begins, although one double on its way from
    its exchange, and its partner, hold it too: at most 2^(q - 3) - 1, 2^(q - 4) - 2, 2^(q - 5) -
    2. More in the first class than in the second let doubles meet the late rank. `shortest` is the
    least number of the last.
    """
    for third in range(shortest, max(1, (1 << q >> 5) - 1)):
        most = max(1, (1 << q >> 3) - 1 - third - (shortest > 0))
        second = max(third, -(-(surplus - 4 * third - most) // 2))
        first = surplus - 4 * third - 2 * second
        if (q > 4 or surplus == 1) and second <= max(0, (1 << q >> 4) - 2) and second < first:
            return first, second, third
    return None


def plan_runs(q: int, runs: tuple[int, ...], n_chunks: int, *, odd: bool) -> NDArray[np.int8]:
    """Return ``moves[round, double]`` of doubles that waste in runs.

    If `odd`, one rank is absent. The partner of the absent rank misses a chunk, and that should be
    another one in each round: doubles too, in a run of length 3. Two that waste 1 each have none;
    so in the last round one of them faces the absent rank, and all others get their chunk.
    """
    starts = [a - b for a, b in zip(runs, (*runs[1:], 0), strict=True)]
    n_rounds, n_doubles = n_chunks + q - 1, sum(runs)
    moves = np.full((n_rounds, n_doubles), IDLE, dtype=np.int8)
    # The ramp: as many ranks hold chunk j in class q - 2 - k as waste that class later.
    place: list[int] = []  # in a run: how far the wasted class is from q - 2
    for j in range(len(runs)):
        for k in range(len(runs) - 1 - j, -1, -1):
            for _ in range(starts[j + k]):
                moves[q - 2 - k, len(place)] = q - 3 - k - j
                place.append(j)
    met = np.zeros(n_doubles, dtype=np.bool_)
    lost = np.full(n_doubles, not (odd and runs[2] > 0))
    chain = np.zeros(n_doubles, dtype=np.int64)  # swaps to come after the exchange
    losing = -1
    for t in range(q - 1, n_rounds):
        top = [d for d in range(n_doubles) if not chain[d] and not place[d]]
        chains = np.count_nonzero(chain)
        loser, losing = losing, -1
        for d in range(n_doubles):
            if chain[d]:
                moves[t, d] = SWAP
                chain[d] -= 1
            elif d == loser:
                moves[t, d] = LOSE
                lost[d] = True
                place[d] -= 1
            elif place[d]:
                moves[t, d] = q - 2
                if place[d] == 2 and not lost[d] and losing < 0 and t >= q:
                    moves[t, d] = q - 3
                    losing = d
                place[d] -= 1
        top.sort(key=lambda d: (not met[d], bool(lost[d])))
        if t >= q and chains < runs[0] - runs[1] and not met[top[-1]]:
            d = top.pop()
            moves[t, d] = EXCHANGE
            met[d], chain[d] = True, q - 2
        for k, count in reversed(list(enumerate(starts))):
            for d in top[:count] if k else top:
                moves[t, d] = q - 3 - k
                place[d] = k
            del top[:count]
    if odd and runs == (2, 0, 0):  # the chunk in place of the one that is not wasted is the last
        moves[-3:, 0] = 0, q - 2, REST
    return moves


ORDERS = 200
"""Orders of equals that are tried with each plan, for odd numbers of ranks."""
SEEDS = 20
"""Seeds of searches for plans."""
STORED = Path(__file__).with_name("stragglar.json")
"""Written by ``python -m tests.helpers.late_ranks``, by number of ranks: ``copies``, the sends of
optimal schedules where plans take a round more, without the exchanges; and ``searches``, the
number of doubles and the seed of a search where the first ones find nothing."""

Sends = NDArray[np.int32]
"""Rows of round, source, destination, chunk, kind, by round; a send reads what its source held
when the round began."""


def schedule(n: int, seed: int = 0) -> Sends:
    """Return the sends of an all-reduce around the late rank n - 1.

    There are the fewest rounds, n + ceil(log2 n) - 2, for every even n; for odd n as many as
    `fewest_late_rounds` says, or one more. There are n (n - 1) sends: no rank gets what it has.

    Time and memory O(n^2), as much as there are sends. For odd n one rank of n + 1 is absent: who
    would face it misses a chunk, always another one, and gets it in a round at the end.
    """
    n = integer("n", n, at_least=2)
    copies = stored()["copies"].get(str(n))
    if copies is not None:
        return _with_exchanges(n, copies)
    odd = n % 2
    n_ranks, q = n + odd - 1, (n + odd - 1).bit_length()
    fewest = n + q - 2 + odd
    rng = np.random.default_rng(seed)
    best: Sends | None = None
    room = new_ranks(q, n_ranks)
    for moves in _plans(n, q):
        for _ in range(ORDERS if odd else 1):
            ranks = np.tile(np.arange(n_ranks), (len(moves) if odd else 8, 1))
            orders = rng.permuted(ranks, axis=1)
            lacks = np.ones((n - 1, n_ranks), dtype=np.bool_)
            sends = np.empty((n * (n - 1), 5), dtype=np.int32)
            count = lay(q, moves, orders, sends, lacks, room)
            if count < 0:
                continue
            sends = _repair(sends[:count], lacks[:, : n - 1])
            if best is None or sends[-1, 0] < best[-1, 0]:
                best = sends
            if best[-1, 0] + 1 <= fewest:
                return best
    if best is None:
        raise SolverError(f"no plan for {n} ranks")
    return best


@cache
def stored() -> Any:
    """Return the content of the file."""
    return json.loads(STORED.read_text("utf-8"))


def _with_exchanges(n: int, copies: list[list[int]]) -> Sends:
    """Return a stored schedule, with the exchange of rank t and the late one in round t."""
    late = n - 1
    rows = [(t, t, late, t, REDUCE) for t in range(late)]
    rows += [(t, late, t, t, REDUCE) for t in range(late)]
    rows += [(t, source, to, chunk, COPY) for t, source, to, chunk in copies]
    return np.array(sorted(rows, key=lambda row: row[0]), dtype=np.int32)


def _plans(n: int, q: int) -> Iterator[NDArray[np.int8]]:
    """Yield plans for ranks with two active chunks, the best first."""
    surplus = (1 << q >> 1) - (n + n % 2) // 2
    if surplus == 0:
        yield np.empty((n + q - 2, 0), dtype=np.int8)
        return
    closed = False
    for shortest in (1, 0) if n % 2 and surplus > 1 else (0,):
        runs = choose_runs(q, surplus, shortest)
        if runs is not None:
            closed = True
            yield plan_runs(q, runs, n - 1, odd=bool(n % 2))
    known = stored()["searches"].get(str(n))
    for n_doubles, seed in [known] if known else searches(n, 1 if closed else SEEDS):
        moves = new_search(n, n_doubles, seed).plan()
        if moves is not None:
            yield moves


def searches(n: int, seeds: int) -> list[tuple[int, int]]:
    """List numbers of doubles and seeds, in the order in which they are tried."""
    least = max(2, new_search(n, 0, 0).surplus.bit_count())
    return [(least + more, seed) for seed in range(seeds) for more in range(3)]


def new_search(n: int, n_doubles: int, seed: int) -> DoublesSearch:
    """Return a search for a plan for n ranks."""
    odd = n % 2
    q = (n + odd - 1).bit_length()
    surplus = (1 << q >> 1) - (n + odd) // 2
    return DoublesSearch(q, surplus, n - 1, n_doubles, odd * (n_doubles - 1), seed)


def _repair(sends: Sends, lacks: NDArray[np.bool_]) -> Sends:
    """Add rounds in which ranks get missed chunks from ranks that miss other ones."""
    owner = sends[sends[:, 4] == REDUCE][::2, 3]
    needs = [set(np.flatnonzero(lack).tolist()) for lack in lacks.T]
    rows = []
    t = int(sends[-1, 0])
    while any(needs):
        t += 1
        free = sorted(range(len(needs)), key=lambda r: -len(needs[r]))
        before = [frozenset(need) for need in needs]
        while free and needs[free[0]]:
            a = free.pop(0)
            gives = [k for k, b in enumerate(free) if before[a] - before[b]]
            mutual = (k for k in gives if before[free[k]] - before[a])
            b = free.pop(next(mutual, gives[0] if gives else 0))
            for to, by in ((a, b), (b, a)):
                for chunk in sorted(before[to] - before[by])[:1]:
                    needs[to].remove(chunk)
                    rows.append((t, by, to, owner[chunk], COPY))
    return np.concatenate([sends, np.array(rows, dtype=np.int32).reshape(-1, 5)])
