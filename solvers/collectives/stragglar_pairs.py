"""Kernel that lays a plan of doubles on ranks: who faces whom in each round, and what is sent.

Before round t the active chunks are t - 1 (class 0) to t - q (class q - 1, the oldest). Each rank
that holds the oldest gives it to one that does not, and takes a younger one for it. What the few
ranks with two active chunks do (*doubles*) is planned beforehand: by
`optmatch.solvers.collectives.stragglar_plans`, or by the search beside it. All others hold one,
and only their order matters.
"""

from __future__ import annotations

from optmatch.solvers.kernels.decorators import inner_kernel, kernel

IDLE, EXCHANGE, SWAP, REST = -1, -2, -3, -4
"""Moves of a double: nothing; it meets the late rank; it swaps with one of class q - 2; it faces
the rank that is not there although it holds the oldest, so nobody misses that."""
SEND = 32
"""Plus a class: gives this one. A class alone: takes this one, and gives the oldest."""
LOSE = 64
"""It gives class q - 2 to the rank that is not there, and misses the oldest."""
NONE = -1000
"""No chunk: older than all, so an empty rank acts as one that holds the oldest."""

ROOM = 11
"""Rows that `lay` works in beside those of buckets."""


@inner_kernel
def pick(bucket, size, taken, key):
    """Return the rank of least key of those that are not taken; the first of equals, or -1."""
    best = -1
    for k in range(size):
        rank = bucket[k]
        if not taken[rank] and (best < 0 or key[rank] < key[best]):
            best = rank
    return best


@inner_kernel
def note(sends, count, row):
    """Write a send; return the count of sends."""
    for k in range(5):
        sends[count, k] = row[k]
    return count + 1


@kernel
def lay(q, moves, orders, sends, lacks, room):
    """Write all rounds; return how many sends, or -1 if the plan fails.

    `q` chunks are active.

    Parameters
    ----------
    moves
        ``moves[round, double]``, int8; doubles are the ranks 0, 1, ...
    orders
        ``orders[k, place] = rank``: the order of equals in rounds k, k + len(orders), ... If there
        is one rank more than chunks, the last is absent: who faces it misses the oldest chunk.
    sends
        Rows of round, source, destination, chunk, kind; written.
    lacks
        ``lacks[chunk, rank]``, of the ranks that are there; all true, and written.
    room
        To work in: int64, `ROOM` + q + 3 rows, as wide as there are ranks, or q + 3.
    """
    n_rounds, n_doubles = moves.shape
    n_ranks, n_chunks = orders.shape[1], lacks.shape[0]
    absent = n_ranks - 1 if n_ranks > n_chunks else -1
    room[:3] = NONE
    room[3:] = 0
    hold = room[:2]
    owed = room[2]  # the chunk that a rank did not get when it swapped
    met = room[3]  # whether the late rank
    missed, owner, key, gives, mate, taken, size = (
        room[4],
        room[5],
        room[6],
        room[7],
        room[8],
        room[9],
        room[10],
    )
    bucket = room[ROOM:]
    count = 0
    for t in range(n_rounds):
        oldest = t - q
        size[:] = 0
        late = -1
        for k in range(n_ranks):
            r = orders[t % len(orders), k]
            mate[r], taken[r], gives[r] = -1, False, hold[0, r]
            c = min(t - 1 - hold[0, r], q - 1)
            if r < n_doubles:
                move = moves[t, r]
                c = -1
                gives[r] = oldest
                if move == EXCHANGE:
                    late = r
                elif move == SWAP:
                    gives[r] = max(hold[0, r], hold[1, r])
                elif move == LOSE:
                    gives[r] = t - 1 - (q - 2)
                elif move >= SEND:
                    c = move - SEND
                    gives[r] = t - 1 - c
            if c >= 0 and owed[r] == NONE and r != absent:
                bucket[c, size[c]] = r
                size[c] += 1
        # Who meets the late rank: as long as there are new ones, one that holds the oldest alone.
        if late < 0:
            late = pick(bucket[q - 1], size[q - 1], taken, met)
        if late < 0 or (met[late] and t < n_chunks):
            return -1
        taken[late] = True
        chunk = min(t, n_chunks - 1)
        if t < n_chunks:
            met[late] = 1
            owner[t] = late
            count = note(sends, count, (t, late, n_chunks, late, 1))
            count = note(sends, count, (t, n_chunks, late, late, 1))
        elif lacks[chunk, late]:
            count = note(sends, count, (t, n_chunks, late, owner[chunk], 0))
        lacks[chunk, late] = False
        # Who swapped in the last round gets the chunk that is owed, for the one it got.
        for y in range(n_ranks):
            if owed[y] == NONE:
                continue
            for r in range(n_ranks):
                key[r] = 1 - met[r]
                if r != absent and owed[y] >= 0 and lacks[min(owed[y], n_chunks - 1), r]:
                    key[r] = 2
            z = pick(bucket[q - 1], size[q - 1], taken, key)
            if z < 0 or key[z] == 2:
                return -1
            taken[y] = taken[z] = True
            mate[y] = z
            gives[y], gives[z] = hold[1, y], owed[y]
        for d in range(n_doubles):
            if moves[t, d] == SWAP:
                for r in range(n_ranks):
                    key[r] = 2 if r < n_doubles else 1 - met[r]
                y = pick(bucket[q - 2], size[q - 2], taken, key)
                if y < n_doubles:
                    return -1
                taken[d] = taken[y] = True
                mate[d] = y
        if absent >= 0 and t >= q - 1:
            loser = -1
            for d in range(n_doubles):
                if moves[t, d] == LOSE or moves[t, d] == REST:
                    loser = d
            if loser < 0:
                for r in range(n_ranks):
                    key[r] = 4 * missed[r] - met[r] + (2 if r < n_doubles else 0)
                loser = pick(bucket[q - 2], size[q - 2], taken, key)
            if loser < 0:
                return -1
            taken[loser] = True
            if oldest >= 0 and (loser >= n_doubles or moves[t, loser] == LOSE):
                missed[loser] += 1
        key[:] = 0
        for d in range(n_doubles):
            if 0 <= moves[t, d] < SEND:
                c = moves[t, d]
                y = pick(bucket[c], size[c], taken, key)
                while y < 0 and t - 2 - c >= n_chunks - 1 and c < q - 2:
                    c += 1  # it stands for the same chunk, the last
                    y = pick(bucket[c], size[c], taken, key)
                if y < 0:
                    return -1
                taken[d] = taken[y] = True
                mate[d] = y
        # The rest. Those who still have to meet the late rank come back soonest.
        size[q:] = 0
        for k in range(size[q - 1]):
            r = bucket[q - 1, k]
            if not taken[r]:
                c = q + (0 if not met[r] else 1 if missed[r] else 2)
                bucket[c, size[c]] = r
                size[c] += 1
        for c in range(q - 2, -1, -1):
            second = q + 2 if c == q - 3 else q + 1  # those who have not missed any get into q - 2
            for k in range(size[c]):
                y = bucket[c, k]
                if taken[y]:
                    continue
                group = q if size[q] > 0 else second if size[second] > 0 else 2 * q + 3 - second
                if size[group] == 0:
                    return -1
                size[group] -= 1
                mate[bucket[group, size[group]]] = y
        for u in range(n_ranks):
            v = mate[u]
            if v < 0:
                continue
            for a, b in ((u, v), (v, u)):
                chunk = min(gives[a], n_chunks - 1)
                if chunk >= 0 and lacks[chunk, b] and not lacks[chunk, a]:
                    lacks[chunk, b] = False
                    count = note(sends, count, (t, a, b, owner[chunk], 0))
            if owed[u] != NONE:
                hold[0, u], hold[0, v] = gives[u], gives[u]
                owed[u] = hold[1, u] = NONE
            else:
                slot = 0 if hold[0, u] <= oldest else 1
                hold[slot, u] = gives[v]
                if u < n_doubles and moves[t, u] == SWAP:
                    hold[1, v], owed[v] = gives[u], oldest
        hold[0 if hold[0, late] <= oldest else 1, late] = t
    return count
