"""All-gather of the fewest rounds for few configurations: rings whose step grows by mixed radices.

In configuration c each rank sends to the one g_c places onward, g_c = (1 + r_1) ... (1 + r_(c-1)),
for r_c rounds in which it sends on the g_c blocks that it got last. So it then has those of
g_c (1 + r_c) ranks in a row. With the fewest rounds for K configurations, the product of all
1 + r_c is n at least, and no schedule can do with less; in the last configuration only blocks
that are still missing are sent.
"""

from __future__ import annotations

import numpy as np

from optmatch.model.values import integer
from optmatch.solvers.collectives.stragglar import COPY, REDUCE, Sends


def reach_product(n: int, n_configurations: int) -> tuple[int, tuple[int, ...]]:
    """Return the fewest rounds in which every rank can reach all, and how they are split.

    The least sum of r_1 ... r_K with (1 + r_1) ... (1 + r_K) >= n: a rank that sends to one other
    at a time reaches no more in configurations held for so many rounds.

    Parameters
    ----------
    n
        Number of ranks.
    n_configurations
        K, the most configurations.

    Returns
    -------
    tuple of int and tuple
        The sum, and r_1 ... r_K, of which those that are not needed are left out.

    Examples
    --------
    >>> reach_product(64, 2), reach_product(64, 6), reach_product(5, 2)
    ((14, (7, 7)), (6, (1, 1, 1, 1, 1, 1)), (3, (2, 1)))
    """
    n, k = integer("n", n, at_least=1), integer("n_configurations", n_configurations, at_least=1)
    # For a given sum the product is largest where factors differ by one at most.
    total = 0
    while True:
        low, more = divmod(total, k)
        if (low + 2) ** more * (low + 1) ** (k - more) >= n:
            split = (low + 1,) * more + (low,) * (k - more)
            return total, tuple(r for r in split if r)
        total += 1


def all_gather(n: int, n_configurations: int) -> Sends:
    """Return the sends of an all-gather of the fewest rounds.

    Parameters
    ----------
    n
        Number of ranks; rank r has block r.
    n_configurations
        The most configurations of one-way circuits, one port for each rank.

    Returns
    -------
    Sends
        n (n - 1) rows in ``reach_product(n, n_configurations)`` rounds: nobody gets what it has.
        Circuits of a round are the same shift of all ranks.

    Examples
    --------
    >>> sends = all_gather(5, 2)
    >>> [np.unique((row[:, 2] - row[:, 1]) % 5).tolist() for row in np.split(sends, [5, 10])]
    [[1], [1], [3]]
    """
    _, held = reach_product(n, n_configurations)
    parts = [np.empty((5, 0), dtype=np.int64)]
    turn, step = 0, 1
    for rounds in held:
        for k in range(rounds):
            # Of the block that began j places back; those that would have come round are left out.
            back = np.arange(k * step, min((k + 1) * step, n - step))
            source, j = (x.ravel() for x in np.meshgrid(np.arange(n), back, indexing="ij"))
            row = (np.full_like(j, turn), source, (source + step) % n, (source - j) % n)
            parts.append(np.stack((*row, np.full_like(j, COPY))))
            turn += 1
        step *= 1 + rounds
    return np.concatenate(parts, axis=1).T.astype(np.int32)


def reduce_scatter(n: int, n_configurations: int) -> Sends:
    """Return the sends of a reduce-scatter: an all-gather that runs backwards.

    Parameters
    ----------
    n, n_configurations
        As for `all_gather`; rank r ends with chunk r.

    Examples
    --------
    >>> reduce_scatter(3, 1).tolist()[0]
    [0, 1, 0, 2, 1]
    """
    return _backwards(all_gather(n, n_configurations))


def all_reduce(n: int, n_configurations: int) -> Sends:
    """Return the sends of a reduce-scatter and an all-gather.

    Parameters
    ----------
    n, n_configurations
        As for `all_gather`, of each of the two.

    Returns
    -------
    Sends
        Twice as many rounds as `all_gather`. The all-gather goes the other way round, so that the
        last circuits of the reduce-scatter serve it too: 2 K - 1 configurations.

    Examples
    --------
    >>> sends = all_reduce(4, 2)
    >>> [int((row[2] - row[1]) % 4) for row in sends[[0, 8, 12, 20]]]
    [2, 3, 3, 2]
    """
    gather = all_gather(n, n_configurations)
    after = gather.copy()
    after[:, 1:4] = -after[:, 1:4] % n
    after[:, 0] += 1 + gather[:, 0].max(initial=-1)
    return np.concatenate([_backwards(gather), after])


def _backwards(gather: Sends) -> Sends:
    turn, source, destination, chunk, _ = gather.T
    rows = (turn.max(initial=0) - turn, destination, source, chunk, np.full_like(turn, REDUCE))
    order = np.argsort(rows[0], kind="stable")
    return np.stack(rows, axis=1)[order]
