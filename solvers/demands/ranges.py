"""Kernels that bound how long sets of slots can last together, without solving anything.

A solved programme says what each nonbasic variable costs, so all of them together can only grow
until the sum of the slots is used up; and what a line holds too long cannot exceed what the sum
leaves it. Several such inequalities, each over variables of its own (a *group*), bound any linear
function of the variables, and so the duration of every set of slots: by one largest ratio per
group. That is a hundred times less work than a programme, and nearly as sharp, so all sets that
could serve an entry can be listed, and not only sets but whole lines examined.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.demands.board import HELD, LINE, Board
from optmatch.solvers.demands.programmes import ROUNDING, WIDTH
from optmatch.solvers.kernel import bare_kernel, fast_kernel, inline_kernel

LONGEST_LIST = 1 << 13
"""Sets of slots for one entry; where there are more, nothing is concluded from them."""

UNKNOWN = -1

MOST_COVERS = 6
"""Choices of sets that make up a line; so few are tried one by one."""

_SLACK = 1e-5  # ticks; rounding of sums
_NEARLY_ALONE = 1.2  # times what a variable can be by itself, a group tells nothing of it
_ALONE, _FIRST, _SECOND = 0, 1, 2  # kinds of variables


class Ranges(NamedTuple):
    """Durations as linear functions of the nonbasic variables, each scaled by its largest.

    Columns of slopes are sorted by kinds of variables, so each is looked at as its kind only.
    """

    slope: NDArray[np.float64]  # (WIDTH slots, WIDTH)
    base: NDArray[np.float64]  # (WIDTH slots,) in the solution
    gain: NDArray[np.float64]  # (WIDTH slots,) how much longer each can last than in the solution
    candidates: NDArray[np.int64]  # (WIDTH,) slots of the sets that are being listed
    tops: NDArray[np.float64]  # (WIDTH + 1,) how long those from a place on can last at most
    whole_slope: NDArray[np.float64]  # (2 n, WIDTH) of all free slots of a line
    whole_base: NDArray[np.float64]  # (2 n,)
    kind: NDArray[np.float64]  # (3, WIDTH) 1.0 where a variable is of this kind
    sums_slope: NDArray[np.float64]  # (WIDTH + 1, WIDTH) of the set that is being built
    sums_base: NDArray[np.float64]  # (WIDTH + 1,)
    sums_gain: NDArray[np.float64]  # (WIDTH + 1,)
    largest: NDArray[np.float64]  # (WIDTH,) how large a variable can be
    column: NDArray[np.int64]  # (WIDTH,) of slopes, for each nonbasic variable
    ends: NDArray[np.int64]  # (3,) behind the columns of each kind
    sets: NDArray[np.int64]  # (entries, LONGEST_LIST) slots that could serve an entry
    listed: NDArray[np.int64]  # (entries, words) a bit for each set, whether it is among them
    counts: NDArray[np.int64]  # (entries,) how many; UNKNOWN where they are not listed
    stack: NDArray[np.int64]  # (n + 2, 3) of loops over sets
    covers: NDArray[np.int64]  # (MOST_COVERS, n) choices of sets that make up a line
    tried: NDArray[np.int64]  # (1,) sets so far


def make_ranges(board: Board) -> Ranges:
    """Make room for the ranges of a search."""
    n, entries = len(board.demand), int(board.open.sum())
    return Ranges(
        slope=np.zeros((WIDTH, WIDTH)),
        base=np.zeros(WIDTH),
        gain=np.zeros(WIDTH),
        candidates=np.zeros(WIDTH, dtype=np.int64),
        tops=np.zeros(WIDTH + 1),
        whole_slope=np.zeros((2 * n, WIDTH)),
        whole_base=np.zeros(2 * n),
        kind=np.zeros((3, WIDTH)),
        sums_slope=np.zeros((WIDTH + 1, WIDTH)),
        sums_base=np.zeros(WIDTH + 1),
        sums_gain=np.zeros(WIDTH + 1),
        largest=np.zeros(WIDTH),
        column=np.zeros(WIDTH, dtype=np.int64),
        ends=np.zeros(3, dtype=np.int64),
        sets=np.zeros((entries, LONGEST_LIST), dtype=np.int64),
        listed=np.zeros((entries, (1 << len(board.seat)) // 64 + 1), dtype=np.int64),
        counts=np.zeros(entries, dtype=np.int64),
        stack=np.zeros((max(n, WIDTH) + 2, 3), dtype=np.int64),
        covers=np.zeros((MOST_COVERS, n), dtype=np.int64),
        tried=np.zeros(1, dtype=np.int64),
    )


@bare_kernel
def count_slots(mask):
    """Count the slots of a set."""
    found = 0
    while mask:
        mask &= mask - 1
        found += 1
    return found


@bare_kernel
def add_up(values, mask):
    """Add up what the slots of a set have."""
    total = 0.0
    while mask:
        total += values[count_slots((mask & -mask) - 1)]
        mask &= mask - 1
    return total


@bare_kernel
def sort_slots(durations, longest):
    """Write the slots into `longest`, those that last longest first."""
    for slot in range(len(longest)):
        place = slot
        while place > 0 and durations[longest[place - 1]] < durations[slot]:
            longest[place] = longest[place - 1]
            place -= 1
        longest[place] = slot


@bare_kernel
def _largest_slot(b, slot, most):
    """Bound a slot by the entries that it serves, or could."""
    n, least = len(b.demand), most
    for i in range(n):
        j = b.seat[slot, i]
        if j >= 0:
            least = min(least, b.demand[i, j] + most - max(b.sums[i], b.sums[n + j]))
        elif b.full[i]:
            entry = 0.0
            for j in range(n):
                if b.open[i, j] and b.free[n + j] >> slot & 1:
                    entry = max(entry, b.demand[i, j])
            least = min(least, entry + most - b.sums[i])
    return least


@bare_kernel
def _largest(b, code, most):
    """Bound a variable by itself: by what the sum of the slots leaves its line."""
    n = len(b.demand)
    if code >= 0:
        return _largest_slot(b, code, most)
    if code <= HELD:
        i, j = (HELD - code) // n, (HELD - code) % n
        return most - max(b.sums[i], b.sums[n + j])
    return most - b.sums[LINE - code] if code <= LINE else most


@inline_kernel
def _most_added(table, level, row, kind, largest):
    """Bound what a row adds: what it subtracts cannot be more."""
    together = alone = 0.0
    for q in range(WIDTH):
        rate = max(table[level, row, q], 0.0) * largest[q]
        together = max(together, rate * kind[_FIRST, q])
        alone += rate * (1.0 - kind[_FIRST, q])
    return alone + together + max(table[level, row, WIDTH], 0.0) + ROUNDING


@inline_kernel
def _most_subtracted(table, level, row, kind, largest):
    """Return the most that one variable, bounded alone, could subtract in a row."""
    most = 0.0
    for q in range(WIDTH):
        most = max(most, -table[level, row, q] * largest[q] * kind[_ALONE, q])
    return most


@fast_kernel
def _group(p, r, level):
    """Bound all nonbasic variables: the first group by the sum of the slots, others by rows.

    The second group are those that one row bounds together not much less than each by itself.
    """
    table, kind, largest, rows = p.table, r.kind, r.largest, p.basis[level, 0]
    for row in range(1, rows):
        bound = _most_added(table, level, row, kind, largest)
        if _most_subtracted(table, level, row, kind, largest) > bound:
            for q in range(WIDTH):
                rate = -table[level, row, q]
                if kind[_ALONE, q] > 0.0 and rate * largest[q] > bound:
                    largest[q] = bound / rate
    best, many, least = -1, 1, 0.0
    for row in range(1, rows):
        bound = _most_added(table, level, row, kind, largest)
        if _most_subtracted(table, level, row, kind, largest) * _NEARLY_ALONE <= bound:
            continue
        found = 0
        for q in range(WIDTH):
            rate = -table[level, row, q] * _NEARLY_ALONE
            found += kind[_ALONE, q] > 0.0 and rate * largest[q] > bound
        if found > many or (found == many and best >= 0 and bound < least):
            best, many, least = row, found, bound
    if best < 0:
        return
    for q in range(WIDTH):
        rate = -table[level, best, q]
        if kind[_ALONE, q] > 0.0 and rate * largest[q] * _NEARLY_ALONE > least:
            kind[_ALONE, q], kind[_SECOND, q] = 0.0, 1.0
            largest[q] = least / rate


@inline_kernel
def _gain(slopes, ends, at):
    """Bound how much longer a set can last than in the solution."""
    alone = first = second = 0.0
    for q in range(ends[0]):
        alone += max(slopes[at, q], 0.0)
    for q in range(ends[0], ends[1]):
        first = max(first, slopes[at, q])
    for q in range(ends[1], ends[2]):
        second = max(second, slopes[at, q])
    return alone + first + second


@bare_kernel
def _sort_columns(r, slots):
    """Give each nonbasic variable a column of the slopes."""
    end = 0
    for kind in range(len(r.kind)):
        for q in range(slots):
            if r.kind[kind, q] > 0.0:
                r.column[q] = end
                end += 1
        r.ends[kind] = end


@fast_kernel
def scale(p, b, r, level, most):
    """Find out how large the nonbasic variables of a programme can be, and so the durations."""
    table, basis = p.table, p.basis
    slots = len(b.seat)
    spare = max(most - table[level, 0, WIDTH], 0.0) + ROUNDING
    r.kind[:] = 0.0
    for q in range(slots):
        code = basis[level, 1 + q]
        r.largest[q] = max(_largest(b, code, most), 0.0) + ROUNDING
        cost = table[level, 0, q]
        if cost * r.largest[q] * _NEARLY_ALONE > spare:
            r.kind[_FIRST, q], r.largest[q] = 1.0, spare / cost
        else:
            r.kind[_ALONE, q] = 1.0
    _group(p, r, level)
    _sort_columns(r, slots)
    for slot in range(slots):
        row = basis[level, 1 + WIDTH + slot]
        r.base[slot] = p.shortest[0]
        for q in range(WIDTH):
            r.slope[slot, q] = 0.0
        if row < 0:
            r.slope[slot, r.column[~row]] = r.largest[~row]
        else:
            r.base[slot] += table[level, row, WIDTH]
            for q in range(slots):
                r.slope[slot, r.column[q]] = table[level, row, q] * r.largest[q]
        r.gain[slot] = _gain(r.slope, r.ends, slot)
    sort_slots(r.base, b.longest)
    for line in range(len(b.free)):
        r.whole_base[line] = 0.0
        for q in range(WIDTH):
            r.whole_slope[line, q] = 0.0
        for slot in range(slots):
            if b.free[line] >> slot & 1:
                r.whole_base[line] += r.base[slot]
                for q in range(WIDTH):
                    r.whole_slope[line, q] += r.slope[slot, q]


@inline_kernel
def _gain_without(whole, line, slopes, ends, at):
    """Bound how much longer a line's free slots without a set can last than in the solution."""
    alone = first = second = 0.0
    for q in range(ends[0]):
        alone += max(whole[line, q] - slopes[at, q], 0.0)
    for q in range(ends[0], ends[1]):
        first = max(first, whole[line, q] - slopes[at, q])
    for q in range(ends[1], ends[2]):
        second = max(second, whole[line, q] - slopes[at, q])
    return alone + first + second


@inline_kernel
def _put(slopes, at, slope, slot):
    """Write the slope of a set with one more slot behind it."""
    for q in range(slopes.shape[1]):
        slopes[at + 1, q] = slopes[at, q] + slope[slot, q]


@bare_kernel
def note_twins(seat, twins):
    """Write which slots before each nothing tells apart from it; last, which have any."""
    twins[len(seat)] = 0
    for slot in range(len(seat)):
        twins[slot] = 0
        for before in range(slot):
            i = 0
            while i < seat.shape[1] and seat[before, i] == seat[slot, i]:
                i += 1
            if i == seat.shape[1]:
                twins[slot] |= 1 << before
        if twins[slot]:
            twins[len(seat)] |= 1 << slot


@bare_kernel
def is_ordered(twins, mask, common):
    """Tell whether a set takes the first of slots that nothing tells apart."""
    others, left, slot = common & ~mask, mask & twins[len(twins) - 1], 0
    while left:
        if left & 1 and twins[slot] & others:
            return False
        left >>= 1
        slot += 1
    return True


@bare_kernel
def _line_up(b, r, mask, ordered):
    """Write the candidates, the longest first, or in order; return how many."""
    many = 0
    for place in range(len(b.longest)):
        slot = place if ordered else b.longest[place]
        if mask >> slot & 1:
            r.candidates[many] = slot
            many += 1
    r.tops[many] = 0.0
    for place in range(many - 1, -1, -1):
        slot = r.candidates[place]
        r.tops[place] = r.tops[place + 1] + r.base[slot] + r.gain[slot]
    return many


@fast_kernel
def list_sets(b, r, i, j, ordered):
    """List sets of slots that could serve an entry; return how many.

    More than there is room for count as one more. `ordered`: only sets that take the first of
    slots that nothing tells apart.
    """
    n, size = len(b.demand), b.demand[i, j]
    row, column, entry = b.free[i], b.free[n + j], b.number[i, j]
    common = row & column
    bases, slopes, whole, ends, sets = r.sums_base, r.sums_slope, r.whole_slope, r.ends, r.sets
    gains = r.sums_gain
    row_spare = r.whole_base[i] - b.rest[i] + size + _SLACK
    column_spare = r.whole_base[n + j] - b.rest[n + j] + size + _SLACK
    must = -1
    if b.full[i] and b.left[i] == 1:
        must = row
    if b.full[n + j] and b.left[n + j] == 1:
        if must >= 0 and column != must:
            return 0
        must = column
    if must >= 0 and must & ~common:
        return 0
    r.listed[entry] = 0
    many = _line_up(b, r, common if must < 0 else must, ordered)
    row_gain, column_gain = add_up(r.gain, row), add_up(r.gain, column)
    largest = min(count_slots(row) - b.left[i], count_slots(column) - b.left[n + j]) + 1
    bases[0] = gains[0] = 0.0
    slopes[0] = 0.0
    found, depth, place, mask = 0, 0, 0, 0
    while True:
        tops = bases[depth] + gains[depth] + r.tops[place]
        if place == many or depth >= largest or tops < size - _SLACK:
            if depth == 0:
                return found
            depth -= 1
            place = r.stack[depth, 0]
            mask ^= 1 << r.candidates[place]
            place += 1
            if must >= 0:
                return found
            continue
        slot = r.candidates[place]
        place += 1
        if ordered and b.twins[slot] & common & ~mask:
            continue
        r.tried[0] += 1
        at = depth + 1
        bases[at], gains[at] = bases[depth] + r.base[slot], gains[depth] + r.gain[slot]
        over_row, over_column = bases[at] - row_spare, bases[at] - column_spare
        if over_row > row_gain - gains[at] or over_column > column_gain - gains[at]:
            continue
        _put(slopes, depth, r.slope, slot)
        if over_row > 0.0 and _gain_without(whole, i, slopes, ends, at) < over_row:
            continue
        if over_column > 0.0 and _gain_without(whole, n + j, slopes, ends, at) < over_column:
            continue
        mask |= 1 << slot
        missing = size - _SLACK - bases[at]
        enough = missing <= 0.0 or (missing <= gains[at] and _gain(slopes, ends, at) >= missing)
        if enough and (must < 0 or mask == must):
            if found == LONGEST_LIST:
                return found + 1
            sets[entry, found] = mask
            r.listed[entry, mask >> 6] |= 1 << (mask & 63)
            found += 1
        r.stack[depth, 0] = place - 1
        depth += 1


@bare_kernel
def list_covers(b, r, many, free, full, room, most_steps):
    """List choices of sets, one for each of many entries, that make up slots; return how many.

    Not all free slots need be used if a line is not full. More than there is room for count as
    one more, and so does what takes too many steps.
    """
    sets, counts, stack = r.sets, r.counts, r.stack
    depth, steps, found = 0, 0, 0
    stack[0, 0], stack[0, 1] = 0, free
    while True:
        entry, at, left, chosen = b.order[depth], stack[depth, 0], stack[depth, 1], 0
        if full and depth == many - 1:
            if at == 0 and r.listed[entry, left >> 6] >> (left & 63) & 1:
                chosen = left
        else:
            size, begin = counts[entry], at
            while at < size and sets[entry, at] & ~left:
                at += 1
            steps += at - begin
            if at < size:
                chosen = sets[entry, at]
        steps += 1
        if steps >= most_steps:
            return room + 1
        if chosen == 0:
            if depth == 0:
                return found
            depth -= 1
            continue
        stack[depth, 0], stack[depth, 2] = at + 1, chosen
        if not is_ordered(b.twins, chosen, left):
            continue
        if depth < many - 1:
            depth += 1
            stack[depth, 0], stack[depth, 1] = 0, left & ~chosen
        elif found == room:
            return found + 1
        else:
            for x in range(many):
                r.covers[found, x] = stack[x, 2]
            found += 1
