"""Kernels that list the sets of slots that could serve an entry.

A set must last long enough for its entry, and leave enough for the others of its row and column.
One pivot of the dual simplex method bounds the sum of all slots then, without solving a program.
"""

from __future__ import annotations

from optmatch.solvers.demands.exact.dual_simplex import express, least_total
from optmatch.solvers.kernel import inner_kernel, kernel


@inner_kernel
def _count_slots(mask):
    """Count the slots of a set."""
    found = 0
    while mask:
        mask &= mask - 1
        found += 1
    return found


@kernel
def note_twins(seat, twins):
    """Write which slots before each serve the same so far."""
    for slot in range(len(seat)):
        twins[slot] = 0
        for before in range(slot):
            i = 0
            while i < seat.shape[1] and seat[before, i] == seat[slot, i]:
                i += 1
            if i == seat.shape[1]:
                twins[slot] |= 1 << before


@inner_kernel
def _is_ordered(twins, mask, common):
    """Tell whether a set takes the first of slots that serve the same so far."""
    others, slot = common & ~mask, 0
    while mask >> slot:
        if mask >> slot & 1 and twins[slot] & others:
            return False
        slot += 1
    return True


@inner_kernel
def _may_serve(p, s, level, i, j, mask, most):
    """Tell whether durations may be left if an entry has exactly these slots."""
    size = s.demand[i, j]
    express(p, level, mask, size)
    if least_total(p, level) > most:
        return False
    for line in (i, len(s.demand) + j):
        express(p, level, s.free[line] & ~mask, s.rest[line] - size)
        if least_total(p, level) > most:
            return False
    return True


@kernel
def list_sets(p, s, level, i, j, most):
    """List sets of slots that could serve an entry; return how many.

    Only those that take the first of slots that serve the same so far. More than there is room
    for count as one more.
    """
    n, entry = len(s.demand), s.number[i, j]
    row, column, last = s.free[i], s.free[n + j], False
    common = row & column
    for line in (i, n + j):  # the last entry of a full line takes all its slots
        if s.full[line] and s.left[line] == 1:
            last = True
            if s.free[line] != common:
                return 0
    largest = min(_count_slots(row) - s.left[i], _count_slots(column) - s.left[n + j]) + 1
    found, mask = 0, common
    while mask:
        s.tried[0] += 1
        possible = _count_slots(mask) <= largest and _is_ordered(s.twins, mask, common)
        if possible and _may_serve(p, s, level, i, j, mask, most):
            if found == s.sets.shape[1]:
                return found + 1
            s.sets[entry, found] = mask
            found += 1
        if last:
            break
        mask = (mask - 1) & common
    return found
