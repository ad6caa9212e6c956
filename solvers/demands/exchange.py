"""Exchange of circuits between two slots, until no two slots together can be made shorter.

The circuits of two matchings form paths and cycles. Each of them can be turned over, its circuits
changing slots, without the others. What it needs of the longer slot is then what it needed of the
other, so both together are shortest if each path or cycle puts its greater need into the longer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import counted_time
from optmatch.solvers.demands.plans import Plan, serve
from optmatch.solvers.kernel import inner_kernel, kernel

_BATCH = 1_000_000  # ports times pairs of slots between two looks at the clock: some 10 ms


@kernel
def _drop(demand, served, matchings, ticks, order):
    """Take circuits out of slots in which nobody needs them."""
    for place in range(len(order)):
        slot = order[place]
        for i in range(len(demand)):
            j = matchings[slot, i]
            if j >= 0 and served[i, j] - ticks[slot] >= demand[i, j]:
                served[i, j] -= ticks[slot]
                matchings[slot, i] = -1


@inner_kernel
def _exchange(demand, served, a, b, held, work, shortest):
    """Turn parts of two slots over; ``held`` has their durations and gets the new ones."""
    n = len(demand)
    sender, mark = work[:2], work[2]
    parts = work[3:5]  # the needs of each part in the first and the second slot
    for j in range(n):
        sender[0, j] = -1
        sender[1, j] = -1
    for i in range(n):
        mark[i] = -1
        if a[i] >= 0:
            sender[0, a[i]] = i
        if b[i] >= 0:
            sender[1, b[i]] = i
    both = 0
    count = 0
    for first in range(n):
        if mark[first] >= 0 or (a[first] < 0 and b[first] < 0):
            continue
        if a[first] == b[first]:
            mark[first] = n
            both = max(both, demand[first, a[first]] - served[first, a[first]] + held[0] + held[1])
            continue
        parts[0, count] = 0
        parts[1, count] = 0
        for direction in range(2):
            i, side = first, direction
            while True:
                mark[i] = count
                j = a[i] if side == 0 else b[i]
                if j < 0:
                    break
                need = demand[i, j] - served[i, j] + held[side]
                parts[side, count] = max(parts[side, count], need)
                i = sender[1 - side, j]
                if i < 0:
                    break
                need = demand[i, j] - served[i, j] + held[1 - side]
                parts[1 - side, count] = max(parts[1 - side, count], need)
                if i == first:
                    break
        count += 1
    longer, shorter = np.int64(0), np.int64(0)
    for c in range(count):
        longer = max(longer, max(parts[0, c], parts[1, c]))
        shorter = max(shorter, min(parts[0, c], parts[1, c]))
    shorter = max(shorter, both - longer)
    longer = max(longer, shortest)
    if shorter > 0:
        shorter = max(shorter, shortest)
    if longer + shorter > held[0] + held[1] or count == 0:
        return False
    first_is_longer = held[0] >= held[1]
    for i in range(n):
        c = mark[i]
        if c < 0 or c == n or parts[0, c] == parts[1, c]:
            continue
        if (parts[0, c] > parts[1, c]) != first_is_longer:
            a[i], b[i] = b[i], a[i]
    held[0] = longer if first_is_longer else shorter
    held[1] = shorter if first_is_longer else longer
    return True


@inner_kernel
def _account(served, matching, amount):
    for i in range(len(matching)):
        if matching[i] >= 0:
            served[i, matching[i]] += amount


@kernel
def _exchange_from(demand, served, matchings, ticks, shortest, moved, first, most, work, pair):
    """Exchange between each slot from `first` on and all later ones; stop after `most` pairs.

    Of two slots one has to be `moved`: shortened in the last round, 1, or in this one, 2 or 3.
    `work` and `pair` are room to work in, shapes (6, ports) and (2, ports). Returns the slot to go
    on with.
    """
    held, a, b = work[5], pair[0], pair[1]
    pairs = 0
    s = first
    while s < len(ticks) and pairs < most:
        pairs += len(ticks) - s
        for t in range(s + 1, len(ticks)):
            if moved[s] == 0 and moved[t] == 0:
                continue
            held[0], held[1] = ticks[s], ticks[t]
            for i in range(len(demand)):
                a[i], b[i] = matchings[s, i], matchings[t, i]
            if _exchange(demand, served, a, b, held, work, shortest):
                _account(served, matchings[s], -ticks[s])
                _account(served, matchings[t], -ticks[t])
                if held[0] + held[1] < ticks[s] + ticks[t]:
                    moved[s] |= 2
                    moved[t] |= 2
                for i in range(len(demand)):
                    matchings[s, i], matchings[t, i] = a[i], b[i]
                ticks[s], ticks[t] = held[0], held[1]
                _account(served, a, held[0])
                _account(served, b, held[1])
        s += 1
    return s


def exchange(
    plan: Plan,
    demand: NDArray[np.int64],
    shortest: int = 1,
    rounds: int = 20,
    deadline: float = np.inf,
) -> Plan:
    """Exchange circuits between all pairs of slots until nothing gets shorter.

    Parameters
    ----------
    rounds
        At most so many passes over all pairs.
    deadline
        Stop soon after `counted_time` has reached this.
    """
    matchings, ticks = plan.matchings.copy(), plan.ticks.copy()
    served = serve(plan)
    _drop(demand, served, matchings, ticks, np.argsort(ticks, kind="stable"))
    most = max(1, _BATCH // len(demand))
    moved = np.ones(len(ticks), dtype=np.int8)
    work = np.empty((6, max(2, len(demand))), dtype=np.int64)
    pair = np.empty((2, len(demand)), dtype=matchings.dtype)
    for _ in range(rounds):
        slot = 0
        while slot < len(ticks) and counted_time() < deadline:
            slot = _exchange_from(
                demand, served, matchings, ticks, shortest, moved, slot, most, work, pair
            )
        moved >>= 1
        if slot < len(ticks) or not moved.any():
            break
    return Plan(matchings, ticks).take(ticks > 0)
