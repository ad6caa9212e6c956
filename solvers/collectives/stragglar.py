"""All-reduce around one late rank: schedules of the fewest rounds for two-way circuits.

Ranks 0 ... n - 2 have reduced n - 1 chunks among themselves while they waited; rank g holds chunk
g. The late rank n - 1 meets each of them once, and both then hold that chunk reduced over all.
From there it spreads by copies. A round is a matching: one partner for each rank.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from optmatch.model import SolverError, integer
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.stragglar_pairs import ROOM, lay
from optmatch.solvers.collectives.stragglar_plans import choose_runs, plan_runs
from optmatch.solvers.collectives.stragglar_search import DoublesSearch

ORDERS = 200
"""Orders of equals that are tried with each plan, for odd numbers of ranks."""
SEEDS = 20
"""Seeds of searches for plans."""
DOUBLES = {
    2: (25, 57, 121),
    3: (23, 36, 55, 119),
    4: (17, 19, 21, 34, 35, 37, 38, 39, 40, 41, 43, 45, 51, 53, 115, 117),
    5: (33, 49),
}
"""Numbers of doubles with which a search soon finds a plan, and for how many ranks."""
SEED_OF = {34: 9, 36: 11, 38: 4, 39: 2, 119: 3}
"""The seeds of these searches, by number of ranks, where not 0."""
STORED = {
    3: "  010101",
    5: " 030 101 121212 020202132313 010103231323",
    9: (
        " 060 141650070 020202451540161610 012101262621373730 131313042404272723 "
        "014103353535471743 034305452545263626 154515464646276727837 024206132317565656474 "
        "147416357536267625075707"
    ),
    11: (
        " 070 030141760 242421750181690 303262780871191910 232323040404161612 "
        "043402272720383831595951 414352535063606893985 036305164613273727592953 "
        "124217034301454545787878 015107474747686868294929a59 249425365638182816797979a56 "
        "137318269626075708489848596957 028209458546367639176719898984"
    ),
}
"""Optimal schedules that the exact model found, where plans take a round more: by round, source,
destination and chunk of each copy, without the exchanges."""

Sends = NDArray[np.int32]
"""Rows of round, source, destination, chunk, kind, by round; a send reads what its source held
when the round began."""


def schedule(n: int, seed: int = 0) -> Sends:
    """Return the sends of an all-reduce around the late rank n - 1.

    There are the fewest rounds, n + ceil(log2 n) - 2, for every even n; for odd n as many as
    `fewest_late_rounds` says, or one more. There are n (n - 1) sends: nobody gets what it has.

    Time and memory O(n^2), as much as there are sends. For odd n one rank of n + 1 is absent: who
    would face it misses a chunk, always another one, and gets it in a round at the end.
    """
    n = integer("n", n, at_least=2)
    if n in STORED:
        return _read(n)
    odd = n % 2
    n_ranks, q = n + odd - 1, (n + odd - 1).bit_length()
    fewest = n + q - 2 + odd
    rng = np.random.default_rng(seed)
    best: Sends | None = None
    room = np.empty((ROOM + q + 3, max(n, q + 3)), dtype=np.int64)
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


def _read(n: int) -> Sends:
    """Return a schedule that is stored."""
    late = n - 1
    rows: list[tuple[int, ...]] = []
    for t in range(late):
        rows += [(t, t, late, t, REDUCE), (t, late, t, t, REDUCE)]
    for t, word in enumerate(STORED[n].split(" ")):
        ends = [int(digit, 36) for digit in word]
        rows += [(t, *ends[k : k + 3], COPY) for k in range(0, len(ends), 3)]
    return np.array(sorted(rows, key=lambda row: row[0]), dtype=np.int32)


def _plans(n: int, q: int) -> Iterator[NDArray[np.int8]]:
    """Yield plans for ranks with two active chunks, the best first."""
    odd = n % 2
    surplus = (1 << q >> 1) - (n + odd) // 2
    if surplus == 0:
        yield np.empty((n + q - 2, 0), dtype=np.int8)
        return
    closed = False
    for shortest in (1, 0) if odd and surplus > 1 else (0,):
        runs = choose_runs(q, surplus, shortest)
        if runs is not None:
            closed = True
            yield plan_runs(q, runs, n - 1, odd=bool(odd))
    least = max(2, surplus.bit_count())
    others = [(least + more, seed) for seed in range(SEEDS) for more in range(3)]
    searches = [(doubles, SEED_OF.get(n, 0)) for doubles, ranks in DOUBLES.items() if n in ranks]
    for n_doubles, seed in searches if closed else searches + others:
        moves = DoublesSearch(q, surplus, n - 1, n_doubles, odd * (n_doubles - 1), seed).plan()
        if moves is not None:
            yield moves


def _repair(sends: Sends, lacks: NDArray[np.bool_]) -> Sends:
    """Add rounds in which ranks get what they missed, from one that misses something else."""
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
