"""Constraints that follow from which slots may serve which entries, for as long as they do.

Each is added only where the durations miss it, and dropped when something more is decided.
"""

from __future__ import annotations

from optmatch.solvers.demands.board import CUT, entry_at
from optmatch.solvers.demands.programmes import ROUNDING, add, drop, duration, express, settle
from optmatch.solvers.demands.ranges import add_up, sort_slots
from optmatch.solvers.kernel import bare_kernel

_MISSED = 10 * ROUNDING


@bare_kernel
def _follow(p, level, mask, need):
    """Add what follows for some slots."""
    express(p, level, mask, need, 0)
    add(p, level, 0, CUT)
    return 1


@bare_kernel
def _follow_by_size(p, b, level, line, whole):
    """Add what m slots leave to do, which serve at most the m largest entries of a line."""
    n, free, added = len(b.demand), b.free[line], 0
    others, lasts, top, place = free, whole, 0.0, 0
    for cross in b.ranked[line]:
        i, j = entry_at(n, line, cross)
        if not b.open[i, j]:
            continue
        while place < len(b.longest) and not free >> b.longest[place] & 1:
            place += 1
        if place == len(b.longest):
            break
        slot = b.longest[place]
        place += 1
        others ^= 1 << slot
        lasts -= b.ticks[slot]
        top += b.demand[i, j]
        if others and lasts < b.rest[line] - top - _MISSED:
            added += _follow(p, level, others, b.rest[line] - top)
    return added


@bare_kernel
def _largest_served(b, line, slot):
    """Return the largest entry of a line that a slot may serve."""
    n = len(b.demand)
    for cross in b.ranked[line]:
        i, j = entry_at(n, line, cross)
        if b.open[i, j] and b.free[n + j if line < n else i] >> slot & 1:
            return b.demand[i, j]
    return 0.0


@bare_kernel
def tighten(p, b, level, most):
    """Add what follows from sets of slots and entries; tell whether durations are left.

    An entry needs the slots that may serve it. m slots serve at most m entries of a line, so the
    others last as long as the rest of the line but its m largest; and one slot at most the
    largest entry that it may serve.
    """
    n, k = len(b.demand), len(b.seat)
    for _ in range(3):
        drop(p, level, CUT)
        for slot in range(k):
            b.ticks[slot] = duration(p, level, slot)
        sort_slots(b.ticks, b.longest)
        added = 0
        for i in range(n):
            for j in range(n):
                both = b.free[i] & b.free[n + j]
                if b.open[i, j] and add_up(b.ticks, both) < b.demand[i, j] - _MISSED:
                    added += _follow(p, level, both, b.demand[i, j])
        for line in range(2 * n):
            free = b.free[line]
            if b.left[line] == 0:
                continue
            whole = add_up(b.ticks, free)
            for slot in range(k):
                if free >> slot & 1:
                    largest = _largest_served(b, line, slot)
                    if largest == 0.0 and b.full[line]:
                        return False
                    need = b.rest[line] - largest
                    if whole - b.ticks[slot] < need - _MISSED:
                        added += _follow(p, level, free & ~(1 << slot), need)
            added += _follow_by_size(p, b, level, line, whole)
        if added == 0:
            return True
        if not settle(p, level, most):
            return False
    return True
