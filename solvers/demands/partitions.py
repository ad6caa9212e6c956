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

from optmatch.solvers.demands.board import HELD, LINE, entry_at
from optmatch.solvers.demands.cuts import tighten
from optmatch.solvers.demands.programmes import (
    add,
    drop,
    duplicate,
    express,
    least_total,
    settle,
)
from optmatch.solvers.demands.ranges import (
    LONGEST_LIST,
    MOST_COVERS,
    UNKNOWN,
    count_slots,
    is_ordered,
    list_covers,
    list_sets,
    note_twins,
    scale,
)
from optmatch.solvers.kernel import bare_kernel

EXHAUSTED, FOUND, PAUSED, FULL = 0, 1, 2, 3
_DEAD, _GOES_ON, _COMPLETE = 0, 1, 2  # of a frame
_SETS = 1_000_000  # in one portion, some 50 ms
_STEPS = 5_000  # of the search for sets that make up a line
_FEW_LINES = 3  # are compared where two are finished


@bare_kernel
def _may_serve(p, b, level, i, j, mask, most):
    """Tell whether durations may be left if an entry has exactly `mask`."""
    n, size = len(b.demand), b.demand[i, j]
    express(p, level, mask, size, 0)
    if least_total(p, level, 0) > most:
        return False
    for line in (i, n + j):
        if b.rest[line] > size:
            express(p, level, b.free[line] & ~mask, b.rest[line] - size, 0)
            if least_total(p, level, 0) > most:
                return False
    return True


@bare_kernel
def _decided_line(b, way):
    """Return the line that a way decides as a whole, -1 if it decides one entry."""
    if b.pool[way, 3] == 1:
        return -1
    same_row = b.pool[way, 0] == b.pool[way + 1, 0]
    return b.pool[way, 0] if same_row else len(b.demand) + b.pool[way, 1]


@bare_kernel
def _serve(p, b, source, target, way, most):
    """Solve with the entries of a way that have exactly their sets."""
    n, end, decided = len(b.demand), way + b.pool[way, 3], _decided_line(b, way)
    for x in range(way, end):
        if not _may_serve(p, b, source, b.pool[x, 0], b.pool[x, 1], b.pool[x, 2], most):
            return False
    duplicate(p, source, target)
    for x in range(way, end):
        i, j, mask = b.pool[x, 0], b.pool[x, 1], b.pool[x, 2]
        size = b.demand[i, j]
        express(p, source, mask, size, 0)
        add(p, target, 0, HELD - i * n - j)
        for line in (i, n + j):
            drop(p, target, LINE - line)
            if line != decided and b.rest[line] > size:
                express(p, source, b.free[line] & ~mask, b.rest[line] - size, 0)
                add(p, target, 0, LINE - line)
    return settle(p, target, most)


@bare_kernel
def _decide(b, way, sign):
    """Take a way (1), or take it back (-1)."""
    n = len(b.demand)
    for x in range(way, way + b.pool[way, 3]):
        i, j, mask = b.pool[x, 0], b.pool[x, 1], b.pool[x, 2]
        b.open[i, j] = sign < 0
        for line in (i, n + j):
            b.free[line] ^= mask
            b.rest[line] -= sign * b.demand[i, j]
            b.left[line] -= sign
        for slot in range(len(b.seat)):
            if mask >> slot & 1:
                b.seat[slot, i] = j if sign > 0 else -1


@bare_kernel
def _sort_in(order, counts, many, entry):
    """Put an entry among so many in order: those with the fewest sets come first."""
    place = many
    while place > 0 and counts[order[place - 1]] > counts[entry]:
        order[place] = order[place - 1]
        place -= 1
    order[place] = entry


@bare_kernel
def _sort_entries(b, r, line, without):
    """Sort the open entries of a line, but for one; return how many."""
    many = 0
    for cross in range(len(b.demand)):
        i, j = entry_at(len(b.demand), line, cross)
        if b.open[i, j] and cross != without:
            _sort_in(b.order, r.counts, many, b.number[i, j])
            many += 1
    return many


@bare_kernel
def _may_cover(b, r, line, many, free):
    """Tell whether sets of the sorted entries may make up free slots of a line."""
    return many == 0 or list_covers(b, r, many, free, b.full[line], 0, _STEPS) > 0


@bare_kernel
def _look(b, r, line):
    """List what could serve a line's entries; tell how many sets on average, 0 if too few.

    The average is that of logarithms, plus one. The last entry gets what is left, so it does not
    count.
    """
    ordered = line == b.share[0]
    many, total, overflown = 0, 0.0, False
    for cross in range(len(b.demand)):
        i, j = entry_at(len(b.demand), line, cross)
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
    if known and not _may_cover(b, r, line, many, b.free[line]):
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
def _tightest(b, looked):
    """Return the place of a line whose slots have the least choice, -1 if all were looked at."""
    found, least = -1, len(b.seat) + 1
    for place in range(len(b.suspects)):
        line = b.suspects[place]
        if b.left[line] == 0 or looked >> line & 1:
            continue
        spare = count_slots(b.free[line]) - b.left[line]
        if spare < least:
            found, least = place, spare
    return found


@bare_kernel
def _next_line(b, r):
    """Choose a line that has few ways; -1 if one has none.

    Which line is second matters most, so there all are compared. Later a few are, those with the
    fewest slots for their entries and, of these, those that failed or were chosen last.
    """
    finished = 0
    for line in range(len(b.left)):
        finished += b.left[line] == 0
    best, fewest, found, looked = -1, np.inf, 0, 0
    for _ in range(len(b.left) if finished < 2 else _FEW_LINES):
        place = _tightest(b, looked)
        if place < 0:
            break
        line = b.suspects[place]
        looked |= 1 << line
        ways = _look(b, r, line)
        if ways == 0.0:
            _put_first(b, place)
            return -1
        if ways < fewest:
            best, fewest, found = line, ways, place
    if finished >= 2:
        _put_first(b, found)
    return best


@bare_kernel
def _note_way(b, level, i, j, mask, entries):
    """Write an entry of a way that decides so many."""
    end = b.end[level]
    b.pool[end, 0], b.pool[end, 1], b.pool[end, 2], b.pool[end, 3] = i, j, mask, entries
    b.end[level] += 1


@bare_kernel
def _list_whole_ways(b, r, level, line):
    """List the ways to decide all that is open of a line if they are few; tell if so."""
    many = _sort_entries(b, r, line, without=-1)
    found = list_covers(b, r, many, b.free[line], b.full[line], MOST_COVERS, _STEPS)
    if found > MOST_COVERS:
        return False
    for x in range(found):
        for y in range(many):
            i, j = b.place[b.order[y], 0], b.place[b.order[y], 1]
            _note_way(b, level, i, j, r.covers[x, y], many)
    return True


@bare_kernel
def _list_ways(b, r, level, line):
    """List the ways to decide a line if they are few, or else those for one of its entries.

    That is the one with the fewest ways, the largest of such.
    """
    n = len(b.demand)
    best, fewest, largest, known = -1, LONGEST_LIST + 1, 0.0, line != b.share[0]
    for cross in range(n):
        i, j = entry_at(n, line, cross)
        if not b.open[i, j]:
            continue
        size = r.counts[b.number[i, j]]
        if size > LONGEST_LIST:
            known = False
            continue
        found, common = 0, b.free[i] & b.free[n + j]
        for x in range(size):
            found += is_ordered(b.twins, r.sets[b.number[i, j], x], common)
        if found < fewest or (found == fewest and b.demand[i, j] > largest):
            best, fewest, largest = cross, found, b.demand[i, j]
    if best < 0 or b.next[level] + max(fewest, MOST_COVERS * n) > len(b.pool):
        b.state[2] = 1
        return
    if known and _list_whole_ways(b, r, level, line):
        return
    many = _sort_entries(b, r, line, without=best)
    i, j = entry_at(n, line, best)
    entry, common = b.number[i, j], b.free[i] & b.free[n + j]
    for x in range(r.counts[entry]):
        mask = r.sets[entry, x]
        others = b.free[line] & ~mask
        if not is_ordered(b.twins, mask, common):
            continue
        if known and not _may_cover(b, r, line, many, others):
            continue
        _note_way(b, level, i, j, mask, 1)


@bare_kernel
def _expand(p, b, r, level, most):
    """Find out what to decide next in a frame, and the ways to."""
    b.next[level] = b.end[level] = b.end[level - 1] if level else 0
    if not b.open.any():
        return _COMPLETE
    if not tighten(p, b, level, most):
        return _DEAD
    scale(p, b, r, level, most)
    note_twins(b.seat, b.twins)
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
        way = b.next[frame] - 1
        i, j, mask = b.pool[way, 0], b.pool[way, 1], b.pool[way, 2]
        dealt += (b.number[i, j] + 1) * count_slots(mask)
    return dealt % b.share[3] == b.share[2]


@bare_kernel
def _is_left_out(b, level):
    """Tell whether a way of a frame is not in the sample."""
    if level <= b.share[1] or level > b.share[1] + b.sample[0]:
        return False
    drawn = b.sample[2]
    drawn ^= drawn << 13 & 0xFFFFFFFF  # xorshift, Marsaglia 2003
    drawn ^= drawn >> 17
    drawn ^= drawn << 5 & 0xFFFFFFFF
    b.sample[2] = drawn
    return drawn % b.sample[1] != 0


@bare_kernel
def _weigh(b, level, programmes):
    """Add what programmes of a frame stand for: one way of so many was taken to come there."""
    drawn = min(max(level - 1 - b.share[1], 0), b.sample[0])
    b.work[0] += programmes * float(b.sample[1]) ** drawn


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
        FOUND with a decision of all entries in ``b.seat``, EXHAUSTED if there is none any more (in
        the sample, if ``b.sample`` asks for one: that proves nothing), PAUSED, or FULL if there
        was not enough room.
    """
    level = b.state[0]
    arrived = b.state[1] == 0
    b.state[1] = 1
    p.solved[0] = r.tried[0] = 0
    while p.solved[0] < programmes and r.tried[0] < _SETS:
        solved = p.solved[0]
        if arrived:
            arrived = False
            found = _expand(p, b, r, level, most)
            _weigh(b, level, p.solved[0] - solved)
            if found == _COMPLETE:
                b.state[0] = level
                return FOUND
            if b.state[2]:
                return FULL
        if b.next[level] == b.end[level]:
            if level == 0:
                return EXHAUSTED
            level -= 1
            last = b.next[level] - 1
            _decide(b, last + 1 - b.pool[last, 3], -1)
            continue
        way = b.next[level]
        b.next[level] += b.pool[way, 3]
        if _is_left_out(b, level):
            continue
        solved = p.solved[0]
        serves = _serve(p, b, level, level + 1, way, most)
        _weigh(b, level + 1, p.solved[0] - solved)
        if serves:
            if level == b.share[1] and not _is_mine(b, level):
                continue
            _decide(b, way, 1)
            level += 1
            arrived = True
    b.state[0] = level
    b.state[1] = 0 if arrived else 1
    return PAUSED
