"""Kernels of the exact search: every line divides the same slots among its entries.

The durations are not chosen but follow: each entry needs slots that last long enough together,
and a programme finds the least sum of durations for all that is decided. What a line's other
entries need bounds from above what one entry can have, since the sum of all slots is bounded.

Line after line is decided. All sets of slots that could serve its entries are listed, and if no
choice of them makes up the line, nothing is left to decide. Two lines settle most durations; after
that, hardly any line can be made up by chance.
"""

from __future__ import annotations

import numpy as np

from optmatch.solvers.demands.board import CUT, HELD, LINE
from optmatch.solvers.demands.programmes import (
    ROUNDING,
    add,
    drop,
    duplicate,
    duration,
    express,
    least_total,
    settle,
)
from optmatch.solvers.demands.ranges import (
    LONGEST_LIST,
    UNKNOWN,
    add_up,
    count_slots,
    covers,
    list_sets,
    may_follow,
    scale,
    sort_slots,
)
from optmatch.solvers.kernel import bare_kernel

EXHAUSTED, FOUND, PAUSED, FULL = 0, 1, 2, 3
_DEAD, _GOES_ON, _COMPLETE = 0, 1, 2  # of a frame
_MISSED = 10 * ROUNDING
_SETS = 1_000_000  # in one portion, some 50 ms
_STEPS = 5_000  # of the search for sets that make up a line
_SELDOM = 8  # times a line is chosen, once among all
_NEARLY = 0.3  # logarithms of sets; nearly as few


@bare_kernel
def _rest_needs(p, b, level, line, mask, size, most, at):
    """Write that a line's other entries have enough without `mask`; tell if that can be."""
    need = b.rest[line] - size
    if need <= 0:
        return True
    express(p, level, b.free[line] & ~mask, need, at)
    return least_total(p, level, at) <= most


@bare_kernel
def _serve(p, b, source, target, i, j, mask, most):
    """Solve with an entry that has exactly `mask`."""
    n, size = len(b.demand), b.demand[i, j]
    express(p, source, mask, size, 0)
    if least_total(p, source, 0) > most:
        return False
    if not _rest_needs(p, b, source, i, mask, size, most, 1):
        return False
    if not _rest_needs(p, b, source, n + j, mask, size, most, 2):
        return False
    duplicate(p, source, target)
    drop(p, target, LINE - i)
    drop(p, target, LINE - n - j)
    add(p, target, 0, HELD - i * n - j)
    if b.rest[i] > size:
        add(p, target, 1, LINE - i)
    if b.rest[n + j] > size:
        add(p, target, 2, LINE - n - j)
    return settle(p, target, most)


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
        i, j = _entry(n, line, cross)
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
        i, j = _entry(n, line, cross)
        if b.open[i, j] and b.free[n + j if line < n else i] >> slot & 1:
            return b.demand[i, j]
    return 0.0


@bare_kernel
def _tighten(p, b, level, most):
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


@bare_kernel
def _decide(b, way, sign):
    """Take a way (1), or take it back (-1)."""
    n = len(b.demand)
    i, j, mask = b.pool[way]
    b.open[i, j] = sign < 0
    for line in (i, n + j):
        b.free[line] ^= mask
        b.rest[line] -= sign * b.demand[i, j]
        b.left[line] -= sign
    for slot in range(len(b.seat)):
        if mask >> slot & 1:
            b.seat[slot, i] = j if sign > 0 else -1


@bare_kernel
def _entry(n, line, cross):
    """Row and column of an entry of a line."""
    return (line, cross) if line < n else (cross, line - n)


@bare_kernel
def _sort_in(order, counts, many, entry):
    """Put an entry among so many in order: those with the fewest sets come first."""
    place = many
    while place > 0 and counts[order[place - 1]] > counts[entry]:
        order[place] = order[place - 1]
        place -= 1
    order[place] = entry


@bare_kernel
def _cover(b, r, line, many, free):
    """Tell whether sets of many entries may make up free slots of a line."""
    return many == 0 or covers(r, b.order, many, free, b.full[line], _STEPS)


@bare_kernel
def _look(b, r, line):
    """List what could serve a line's entries; tell how many sets on average, 0 if too few.

    The average is that of logarithms, plus one. The last entry gets what is left, so it does not
    count.
    """
    ordered = line == b.share[0]
    many, total, overflown = 0, 0.0, False
    for cross in range(len(b.demand)):
        i, j = _entry(len(b.demand), line, cross)
        if not b.open[i, j]:
            continue
        entry = b.number[i, j]
        if r.counts[entry] == UNKNOWN:
            r.counts[entry] = list_sets(b, r, i, j, ordered)
        found = r.counts[entry]
        if found == 0:
            return 0.0
        overflown |= found > LONGEST_LIST
        total += np.log(found)
        _sort_in(b.order, r.counts, many, entry)
        many += 1
    # sets in order are some of all that there are, so others may make up the line
    known = not ordered and not overflown
    if known and not _cover(b, r, line, many, b.free[line]):
        return 0.0
    return 1.0 + total / max(many - 1, 1)


@bare_kernel
def _put_first(b, place):
    """Look at this line first from now on."""
    line = b.suspects[place]
    for x in range(place, 0, -1):
        b.suspects[x] = b.suspects[x - 1]
    b.suspects[0] = line


@bare_kernel
def _next_line(b, r):
    """Choose a line that has few ways; -1 if one has none.

    Lines that failed or were chosen last are looked at first. Which line is second matters most,
    so there all are compared. Later, one with about as few ways as the best has on average will
    do, and the others are seldom looked at.
    """
    best, fewest, found = -1, np.inf, 0
    finished = 0
    for line in range(len(b.left)):
        finished += b.left[line] == 0
    b.asked[finished] += 1
    all_lines = finished < 2 or b.asked[finished] % _SELDOM == 1
    for place in range(len(b.suspects)):
        line = b.suspects[place]
        if b.left[line] == 0:
            continue
        ways = _look(b, r, line)
        if ways == 0.0:
            _put_first(b, place)
            return -1
        if ways < fewest:
            best, fewest, found = line, ways, place
        if not all_lines and fewest <= b.usual[finished] + _NEARLY:
            break
    if all_lines:
        b.usual[finished] += 0.1 * (fewest - b.usual[finished])
    if finished >= 2:
        _put_first(b, found)
    return best


@bare_kernel
def _list_ways(b, r, level, line):
    """List the ways to decide the entry of a line that has the fewest, the largest of such."""
    n = len(b.demand)
    best, fewest, largest, known = -1, LONGEST_LIST + 1, 0.0, line != b.share[0]
    for cross in range(n):
        i, j = _entry(n, line, cross)
        if not b.open[i, j]:
            continue
        size = r.counts[b.number[i, j]]
        if size > LONGEST_LIST:
            known = False
            continue
        found, common = 0, b.free[i] & b.free[n + j]
        for x in range(size):
            found += _is_ordered(b.seat, r.sets[b.number[i, j], x], common)
        if found < fewest or (found == fewest and b.demand[i, j] > largest):
            best, fewest, largest = cross, found, b.demand[i, j]
    if best < 0 or b.next[level] + fewest > len(b.pool):
        b.state[2] = 1
        return
    many = 0
    for cross in range(n):
        i, j = _entry(n, line, cross)
        if b.open[i, j] and cross != best:
            _sort_in(b.order, r.counts, many, b.number[i, j])
            many += 1
    i, j = _entry(n, line, best)
    entry, common = b.number[i, j], b.free[i] & b.free[n + j]
    for x in range(r.counts[entry]):
        mask = r.sets[entry, x]
        others = b.free[line] & ~mask
        if not _is_ordered(b.seat, mask, common):
            continue
        if known and not _cover(b, r, line, many, others):
            continue
        way = b.end[level]
        b.pool[way, 0], b.pool[way, 1], b.pool[way, 2] = i, j, mask
        b.end[level] += 1


@bare_kernel
def _is_ordered(seat, mask, common):
    """Tell whether a set takes the first of slots that nothing tells apart."""
    for slot in range(len(seat)):
        if mask >> slot & 1 and not may_follow(seat, mask, common, slot):
            return False
    return True


@bare_kernel
def _expand(p, b, r, level, most):
    """Find out what to decide next in a frame, and the ways to."""
    b.next[level] = b.end[level] = b.end[level - 1] if level else 0
    if not b.open.any():
        return _COMPLETE
    if not _tighten(p, b, level, most):
        return _DEAD
    scale(p, b, r, level, most)
    r.counts[:] = UNKNOWN
    line = b.line[level - 1] if level else b.share[0]
    if b.left[line] == 0:
        line = _next_line(b, r)
        if line < 0:
            return _DEAD
    b.line[level] = line
    if _look(b, r, line) == 0.0:
        return _DEAD
    _list_ways(b, r, level, line)
    return _GOES_ON


@bare_kernel
def _is_mine(b, level):
    """Tell whether a way to divide the slots on the first line belongs to this part.

    Only how many slots each entry gets decides: parts whose limits have become different may take
    the entries in another order, and yet miss none.
    """
    dealt = 0
    for frame in range(level + 1):
        i, j, mask = b.pool[b.next[frame] - 1]
        dealt += (b.number[i, j] + 1) * count_slots(mask)
    return dealt % b.share[3] == b.share[2]


@bare_kernel
def search(p, b, r, most, programmes):
    """Go on with the search for a portion.

    Parameters
    ----------
    p, b, r
        Where the search is; see `lay` and `make_ranges`. At first and after FOUND, too.
    most
        Ticks that all slots may last together; may become smaller from call to call.
    programmes
        About so many, then PAUSED; earlier where there are many sets to try.

    Returns
    -------
    int
        FOUND with a decision of all entries in ``b.seat``, EXHAUSTED if there is none any more,
        PAUSED, or FULL if there was not enough room.
    """
    level = b.state[0]
    arrived = b.state[1] == 0
    b.state[1] = 1
    p.solved[0] = r.tried[0] = 0
    while p.solved[0] < programmes and r.tried[0] < _SETS:
        if arrived:
            arrived = False
            if _expand(p, b, r, level, most) == _COMPLETE:
                b.state[0] = level
                return FOUND
            if b.state[2]:
                return FULL
        if b.next[level] == b.end[level]:
            if level == 0:
                return EXHAUSTED
            level -= 1
            _decide(b, b.next[level] - 1, -1)
            continue
        way = b.next[level]
        b.next[level] += 1
        i, j, mask = b.pool[way]
        if _serve(p, b, level, level + 1, i, j, mask, most):
            if level == b.share[1] and not _is_mine(b, level):
                continue
            _decide(b, way, 1)
            level += 1
            arrived = True
    b.state[0] = level
    b.state[1] = 0 if arrived else 1
    return PAUSED
