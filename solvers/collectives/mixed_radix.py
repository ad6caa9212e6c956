"""All-gather of the fewest rounds for few configurations: rings whose step grows by mixed radices.

In configuration c each rank sends to the one g_c places onward, g_c = (1 + r_1) ... (1 + r_(c-1)),
for r_c rounds in which it sends on the g_c blocks that it got last. So it then has those of
g_c (1 + r_c) ranks in a row. With the fewest rounds for K configurations, the product of all
1 + r_c is n at least, and no schedule can do with less; in the last configuration only blocks
that are still missing are sent.
"""

from __future__ import annotations

import numpy as np

from optmatch.problems import Collective
from optmatch.problems.collectives.bounds import fewest_rounds
from optmatch.problems.collectives.plan import COPY
from optmatch.solvers.collectives.rounds import Rounds, as_rounds, of_gathers


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
            # Of the block that began j places back; those that would have come round are left out.
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
