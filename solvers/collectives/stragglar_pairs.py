"""Kernels that lay a plan of doubles on ranks: partners and sends of each round.

Before round t the active chunks are t - 1 (class 0) to t - q (class q - 1, the oldest). Each rank
with the oldest chunk gives it to one without, and takes a younger one for it. The moves of the few
ranks with two active chunks (*doubles*) are planned beforehand: by
`optmatch.solvers.collectives.stragglar`, or by the search beside it. All other ranks hold one
chunk, and only their order matters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel, kernel

IDLE, EXCHANGE, SWAP, REST = -1, -2, -3, -4
"""Moves of a double: nothing; it meets the late rank; it swaps with one of class q - 2; it faces
the rank that is not there although it holds the oldest, so nobody misses that."""
SEND = 32
"""Plus a class: gives this one. A class alone: takes this one, and gives the oldest."""
LOSE = 64
"""A move: the rank gives class q - 2 to the rank that is not there, and misses the oldest."""
NONE = -1000
"""No chunk: older than all, so an empty rank acts as one that holds the oldest."""


class Ranks(NamedTuple):
    """The chunks of each rank, and its moves in the present round."""

    hold: NDArray[np.int64]  # (2, ranks): its active chunks
    owed: NDArray[np.int64]  # the chunk that a rank did not get when it swapped
    met: NDArray[np.int64]  # whether a rank has met the late rank
    missed: NDArray[np.int64]  # the number of chunks that a rank has missed
    owner: NDArray[np.int64]  # by chunk: which rank had it first
    key: NDArray[np.int64]  # keys by which ranks are chosen
    gives: NDArray[np.int64]
    mate: NDArray[np.int64]
    taken: NDArray[np.int64]
    bucket: NDArray[np.int64]  # (q + 3, ranks): by class, the ranks that give it
    size: NDArray[np.int64]  # of the buckets


def new_ranks(q: int, n_ranks: int) -> Ranks:
    """Allocate the workspace of `lay`, for so many active chunks."""
    rows = [np.empty(n_ranks, dtype=np.int64) for _ in range(8)]
    bucket = np.empty((q + 3, n_ranks), dtype=np.int64)
    hold, size = np.empty((2, n_ranks), dtype=np.int64), np.empty(q + 3, dtype=np.int64)
    return Ranks._make([hold, *rows, bucket, size])


@inner_kernel
def _pick(ranks, c, key):
    """Return the rank of class c of least key that is not taken; the first of equals, or -1."""
    best = -1
    for k in range(ranks.size[c]):
        rank = ranks.bucket[c, k]
        if not ranks.taken[rank] and (best < 0 or key[rank] < key[best]):
            best = rank
    return best


@inner_kernel
def _join(ranks, one, other):
    """Let a rank face another, by the entry of the first alone."""
    ranks.taken[one] = ranks.taken[other] = True
    ranks.mate[one] = other


@inner_kernel
def _note(sends, count, row):
    """Write a send; return the count of sends."""
    for k in range(5):
        sends[count, k] = row[k]
    return count + 1


@inner_kernel
def _sort_ranks(q, t, moves, order, absent, ranks):
    """Sort ranks by the class that they give; return the double that meets the late rank, or -1.

    Doubles that take a chunk, and ranks that are owed one, stand in no class.
    """
    hold, late = ranks.hold, -1
    ranks.size[:] = 0
    for k in range(len(order)):
        r = order[k]
        ranks.mate[r], ranks.taken[r], ranks.gives[r] = -1, False, hold[0, r]
        c = min(t - 1 - hold[0, r], q - 1)
        if r < len(moves):
            move = moves[r]
            c = -1
            ranks.gives[r] = t - q
            if move == EXCHANGE:
                late = r
            elif move == SWAP:
                ranks.gives[r] = max(hold[0, r], hold[1, r])
            elif move == LOSE:
                ranks.gives[r] = t - 1 - (q - 2)
            elif move >= SEND:
                c = move - SEND
                ranks.gives[r] = t - 1 - c
        if c >= 0 and ranks.owed[r] == NONE and r != absent:
            ranks.bucket[c, ranks.size[c]] = r
            ranks.size[c] += 1
    return late


@inner_kernel
def _meet_late(t, late, lacks, sends, count, ranks):
    """Let a rank meet the late one; return the count of sends."""
    n_chunks = lacks.shape[0]
    chunk = min(t, n_chunks - 1)
    ranks.taken[late] = True
    if t < n_chunks:
        ranks.met[late] = 1
        ranks.owner[t] = late
        count = _note(sends, count, (t, late, n_chunks, late, 1))
        count = _note(sends, count, (t, n_chunks, late, late, 1))
    elif lacks[chunk, late]:
        count = _note(sends, count, (t, n_chunks, late, ranks.owner[chunk], 0))
    lacks[chunk, late] = False
    return count


@inner_kernel
def _repay(q, absent, lacks, ranks):
    """Give ranks that swapped in the last round the chunks owed to them; False if that fails."""
    n_ranks, owed, met, key = len(ranks.owed), ranks.owed, ranks.met, ranks.key
    for y in range(n_ranks):
        if owed[y] == NONE:
            continue
        for r in range(n_ranks):
            key[r] = 1 - met[r]
            if r != absent and owed[y] >= 0 and lacks[min(owed[y], lacks.shape[0] - 1), r]:
                key[r] = 2
        z = _pick(ranks, q - 1, key)
        if z < 0 or key[z] == 2:
            return False
        _join(ranks, y, z)
        ranks.gives[y], ranks.gives[z] = ranks.hold[1, y], owed[y]
    return True


@inner_kernel
def _swap(q, moves, ranks):
    """Let doubles swap with ranks of class q - 2; False if that fails."""
    for d in range(len(moves)):
        if moves[d] == SWAP:
            for r in range(len(ranks.key)):
                ranks.key[r] = 2 if r < len(moves) else 1 - ranks.met[r]
            y = _pick(ranks, q - 2, ranks.key)
            if y < len(moves):
                return False
            _join(ranks, d, y)
    return True


@inner_kernel
def _face_absent(q, t, moves, ranks):
    """Choose the rank that faces the absent one; False if that fails."""
    n_doubles, loser = len(moves), -1
    for d in range(n_doubles):
        if moves[d] == LOSE or moves[d] == REST:
            loser = d
    if loser < 0:
        for r in range(len(ranks.key)):
            ranks.key[r] = 4 * ranks.missed[r] - ranks.met[r] + (2 if r < n_doubles else 0)
        loser = _pick(ranks, q - 2, ranks.key)
    if loser < 0:
        return False
    ranks.taken[loser] = True
    if t >= q and (loser >= n_doubles or moves[loser] == LOSE):
        ranks.missed[loser] += 1
    return True


@inner_kernel
def _take_planned_classes(q, t, moves, n_chunks, ranks):
    """Pair doubles that take a chunk with ranks that give it; False if there are too few.

    `q` is the number of active chunks, `t` the round, ``moves[double]`` the moves in this round;
    `ranks` has the ranks by class, and gets the pairs.
    """
    ranks.key[:] = 0
    for double in range(len(moves)):
        if 0 <= moves[double] < SEND:
            # Chunks after the last one are copies of it, so an older class may do as well.
            taken_class = moves[double]
            giver = _pick(ranks, taken_class, ranks.key)
            while giver < 0 and t - 2 - taken_class >= n_chunks - 1 and taken_class < q - 2:
                taken_class += 1
                giver = _pick(ranks, taken_class, ranks.key)
            if giver < 0:
                return False
            _join(ranks, double, giver)
    return True


@inner_kernel
def _pair_rest(q, ranks):
    """Pair the ranks that give the oldest chunk with all others; False if that fails.

    Ranks that still have to meet the late rank come back soonest: they take the oldest classes.
    `q` is the number of active chunks; `ranks` has the ranks by class, and gets the pairs.
    """
    bucket = ranks.bucket
    size = ranks.size

    # Three groups of ranks with the oldest chunk, in the buckets behind those of the classes.
    not_met = q
    met_and_missed = q + 1
    met_all = q + 2
    size[q:] = 0
    for index in range(size[q - 1]):
        rank = bucket[q - 1, index]
        if not ranks.taken[rank]:
            group = met_all
            if not ranks.met[rank]:
                group = not_met
            elif ranks.missed[rank]:
                group = met_and_missed
            bucket[group, size[group]] = rank
            size[group] += 1

    for given_class in range(q - 2, -1, -1):
        # Who faces the absent rank gives class q - 2, and should have missed no chunk before;
        # ranks that take class q - 3 now are there in the next round.
        second = met_and_missed
        third = met_all
        if given_class == q - 3:
            second = met_all
            third = met_and_missed
        for index in range(size[given_class]):
            giver = bucket[given_class, index]
            if ranks.taken[giver]:
                continue
            group = third
            if size[not_met] > 0:
                group = not_met
            elif size[second] > 0:
                group = second
            if size[group] == 0:
                return False
            size[group] -= 1
            ranks.mate[bucket[group, size[group]]] = giver
    return True


@inner_kernel
def _exchange_chunks(q, t, moves, lacks, sends, count, ranks):
    """Send the chunks that the pairs of a round give each other, and update what ranks hold.

    Parameters
    ----------
    q : int
        The number of active chunks.
    t : int
        The number of the round; its oldest chunk is t - q.
    moves : int8 array, shape (doubles,)
        The moves of doubles in this round.
    lacks : bool array, shape (chunks, ranks)
        Which rank does not have which chunk reduced over all; written.
    sends : int32 array, shape (sends, 5)
        Rows of round, source, destination, chunk, kind; written from row `count` on.
    count : int
        The number of sends until now.
    ranks : Ranks
        Reads `mate`, `gives` and `owner`; writes `hold` and `owed`.

    Returns
    -------
    int
        The number of sends after the round.
    """
    last_chunk = lacks.shape[0] - 1
    oldest = t - q
    for rank in range(len(ranks.mate)):
        mate = ranks.mate[rank]
        if mate < 0:
            continue

        # A send is written only if it helps. Chunks after the last one are copies of the last.
        for source, target in ((rank, mate), (mate, rank)):
            chunk = min(ranks.gives[source], last_chunk)
            if chunk >= 0 and lacks[chunk, target] and not lacks[chunk, source]:
                lacks[chunk, target] = False
                count = _note(sends, count, (t, source, target, ranks.owner[chunk], 0))

        # A rank that swapped in the last round gets the chunk that it was owed, which is not
        # active any more; both ranks then hold the chunk that it gave.
        if ranks.owed[rank] != NONE:
            ranks.hold[0, rank] = ranks.gives[rank]
            ranks.hold[0, mate] = ranks.gives[rank]
            ranks.hold[1, rank] = NONE
            ranks.owed[rank] = NONE
            continue

        # Any other rank holds the chunk that it got in place of its oldest one. In a swap the
        # mate gets a younger chunk instead of the oldest, which it is owed from now on.
        slot = 1
        if ranks.hold[0, rank] <= oldest:
            slot = 0
        ranks.hold[slot, rank] = ranks.gives[mate]
        if rank < len(moves) and moves[rank] == SWAP:
            ranks.hold[1, mate] = ranks.gives[rank]
            ranks.owed[mate] = oldest
    return count


@kernel
def lay(q, moves, orders, sends, lacks, ranks):
    """Write all rounds; return how many sends, or -1 if the plan fails.

    Parameters
    ----------
    q
        How many chunks are active.
    moves
        ``moves[round, double]``, int8; doubles are the ranks 0, 1, ...
    orders
        ``orders[k, place] = rank``: the order of equals in rounds k, k + len(orders), ... If there
        is one rank more than chunks, the last is absent: who faces it misses the oldest chunk.
    sends
        Rows of round, source, destination, chunk, kind; written.
    lacks
        ``lacks[chunk, rank]``, of the ranks that are there; all true, and written.
    ranks
        To work in.
    """
    n_chunks, n_ranks = lacks.shape[0], orders.shape[1]
    absent = n_ranks - 1 if n_ranks > n_chunks else -1
    ranks.hold[:] = NONE
    ranks.owed[:] = NONE
    ranks.met[:] = 0
    ranks.missed[:] = 0
    count = 0
    for t in range(len(moves)):
        late = _sort_ranks(q, t, moves[t], orders[t % len(orders)], absent, ranks)
        if late < 0:  # while there are new chunks: a rank that holds the oldest alone
            late = _pick(ranks, q - 1, ranks.met)
        if late < 0 or (ranks.met[late] and t < n_chunks):
            return -1
        count = _meet_late(t, late, lacks, sends, count, ranks)
        if not (_repay(q, absent, lacks, ranks) and _swap(q, moves[t], ranks)):
            return -1
        if absent >= 0 and t >= q - 1 and not _face_absent(q, t, moves[t], ranks):
            return -1
        if not (_take_planned_classes(q, t, moves[t], n_chunks, ranks) and _pair_rest(q, ranks)):
            return -1
        count = _exchange_chunks(q, t, moves[t], lacks, sends, count, ranks)
        ranks.hold[0 if ranks.hold[0, late] <= t - q else 1, late] = t
    return count
