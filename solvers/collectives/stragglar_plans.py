"""What ranks with two active chunks do, in closed form: runs of rounds in which they waste.

Let m be n, or n + 1 if n is odd, and q = ceil(log2 m). Each chunk may spread to 2^(q - 1) ranks
before it is the oldest, but only m / 2 are wanted: D = 2^(q - 1) - m / 2 too many. A rank that
holds class a and does not give it makes 2^(q - 2 - a) fewer. So the chunks in excess of one for
each rank lie on a few *doubles*, which give the oldest and waste the other. They waste in runs:
a run of length k + 1 begins in class q - 2 - k and wastes 1 + 2 + ... + 2^k in all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.collectives.stragglar_pairs import EXCHANGE, IDLE, LOSE, REST, SWAP


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

    If `odd`, one rank is absent. Who faces it misses a chunk, and that should be another one in
    each round: doubles too, in a run of length 3. Two that waste 1 each have none; so in the last
    round one of them faces the absent rank, and all others get their chunk.
    """
    starts = [a - b for a, b in zip(runs, (*runs[1:], 0), strict=True)]
    n_rounds, n_doubles = n_chunks + q - 1, sum(runs)
    moves = np.full((n_rounds, n_doubles), IDLE, dtype=np.int8)
    # The ramp: when chunk j is in class q - 2 - k, as many hold it as waste this class later on.
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
    if odd and runs == (2, 0, 0):  # its chunk in place of the one not wasted is the last
        moves[-3:, 0] = 0, q - 2, REST
    return moves
