"""Kernels of the exact search: every line divides the same slots among its entries.

No duration is chosen. Each entry is given a set of slots that must last long enough together, and
a linear program finds the least sum of durations for all that is decided. What the other entries
of a line need bounds from above what one entry can have, since the sum of all slots is bounded.

Line after line is decided. All sets of slots that could serve its entries are listed, and if an
entry has none, the search goes back. Two lines settle most durations; after that, hardly any set
lasts long enough by chance.
"""

from __future__ import annotations

import numpy as np

from optmatch.solvers.demands.exact.dual_simplex import add, duplicate, express, settle
from optmatch.solvers.demands.exact.slot_sets import list_sets, note_twins
from optmatch.solvers.demands.exact.state import LONGEST_LIST, UNKNOWN, entry_at
from optmatch.solvers.kernel import inner_kernel, kernel

EXHAUSTED, FOUND, PAUSED, FULL = 0, 1, 2, 3
_DEAD, _GOES_ON, _COMPLETE = 0, 1, 2  # of a frame
_SETS = 200_000  # in one portion, some 50 ms


@inner_kernel
def _serve(p, s, source, target, i, j, mask, most):
    """Solve with exactly these slots for an entry; tell whether durations are left."""
    n, size = len(s.demand), s.demand[i, j]
    duplicate(p, source, target)
    express(p, source, mask, size)
    add(p, target)
    for line in (i, n + j):
        if s.rest[line] > size:
            express(p, source, s.free[line] & ~mask, s.rest[line] - size)
            add(p, target)
    return settle(p, target, most)


@inner_kernel
def _decide(s, choice, sign):
    """Take a choice (1), or take it back (-1)."""
    i, j, mask = s.pool[choice, 0], s.pool[choice, 1], s.pool[choice, 2]
    s.open[i, j] = sign < 0
    for line in (i, len(s.demand) + j):
        s.free[line] ^= mask
        s.rest[line] -= sign * s.demand[i, j]
        s.left[line] -= sign
    for slot in range(len(s.seat)):
        if mask >> slot & 1:
            s.seat[slot, i] = j if sign > 0 else -1


@inner_kernel
def _examine(p, s, level, line, most):
    """List what could serve a line's entries; tell how many sets on average, 0 if too few.

    The average is that of logarithms, plus one. The last entry gets what is left, so it does not
    count.
    """
    total, many = 0.0, 0
    for cross in range(len(s.demand)):
        i, j = entry_at(len(s.demand), line, cross)
        if not s.open[i, j]:
            continue
        entry = s.number[i, j]
        if s.counts[entry] == UNKNOWN:
            s.counts[entry] = list_sets(p, s, level, i, j, most)
        if s.counts[entry] == 0:
            return 0.0
        total += np.log(s.counts[entry])
        many += 1
    return 1.0 + total / max(many - 1, 1)


@inner_kernel
def _next_line(p, s, level, most):
    """Choose the line that has the fewest choices; -1 if one has none."""
    best, fewest = -1, np.inf
    for line in range(len(s.left)):
        if s.left[line] == 0:
            continue
        average = _examine(p, s, level, line, most)
        if average == 0.0:
            return -1
        if average < fewest:
            best, fewest = line, average
    return best


@inner_kernel
def _list_choices(s, level, line):
    """List the choices for one entry of a line: that with the fewest, the largest of such."""
    best, fewest, largest = -1, LONGEST_LIST + 1, 0.0
    for cross in range(len(s.demand)):
        i, j = entry_at(len(s.demand), line, cross)
        if s.open[i, j]:
            found = s.counts[s.number[i, j]]
            if found < fewest or (found == fewest and s.demand[i, j] > largest):
                best, fewest, largest = cross, found, s.demand[i, j]
    if best < 0 or s.next[level] + fewest > len(s.pool):
        s.progress[3] = 1
        return
    i, j = entry_at(len(s.demand), line, best)
    for x in range(fewest):
        end = s.end[level]
        s.pool[end, 0], s.pool[end, 1], s.pool[end, 2] = i, j, s.sets[s.number[i, j], x]
        s.end[level] += 1


@inner_kernel
def _expand(p, s, level, most):
    """Find out what to decide next in a frame, and the choices."""
    s.next[level] = s.end[level] = s.end[level - 1] if level else 0
    if not s.open.any():
        return _COMPLETE
    note_twins(s.seat, s.twins)
    s.counts[:] = UNKNOWN
    line = s.line[level - 1] if level else s.progress[0]
    if s.left[line] == 0:
        line = _next_line(p, s, level, most)
        if line < 0:
            return _DEAD
    s.line[level] = line
    if _examine(p, s, level, line, most) == 0.0:
        return _DEAD
    _list_choices(s, level, line)
    return _GOES_ON


@kernel
def search(p, s, most, programs):
    """Go on with the search for a portion.

    Parameters
    ----------
    p, s
        Where the search is; see `begin`. At first and after FOUND, too.
    most
        Ticks that all slots may last together; may become smaller from call to call.
    programs
        About so many linear programs, then PAUSED; earlier where there are many sets to try.

    Returns
    -------
    int
        FOUND with a decision of all entries in ``s.seat``, EXHAUSTED if there is none any more,
        PAUSED, or FULL if there was not enough room.
    """
    level = s.progress[1]
    arrived = s.progress[2] == 0
    s.progress[2] = 1
    p.solved[0] = s.tried[0] = 0
    while p.solved[0] < programs and s.tried[0] < _SETS:
        if arrived:
            arrived = False
            if _expand(p, s, level, most) == _COMPLETE:
                s.progress[1] = level
                return FOUND
            if s.progress[3]:
                return FULL
        if s.next[level] == s.end[level]:
            if level == 0:
                return EXHAUSTED
            level -= 1
            _decide(s, s.next[level] - 1, -1)
            continue
        choice = s.next[level]
        s.next[level] += 1
        i, j, mask = s.pool[choice, 0], s.pool[choice, 1], s.pool[choice, 2]
        if _serve(p, s, level, level + 1, i, j, mask, most):
            _decide(s, choice, 1)
            level += 1
            arrived = True
    s.progress[1], s.progress[2] = level, 0 if arrived else 1
    return PAUSED
