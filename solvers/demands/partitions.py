"""Kernels of the exact search: every line divides the same slots among its entries.

The durations are not chosen but follow: each entry needs slots that last long enough together,
and a programme finds the least sum of durations for all that is decided. What a line's other
entries need bounds from above what one entry can have, since the sum of all slots is bounded. Two
rows settle most durations: then some slot fits nowhere in a third row, or no set of slots fits an
entry, and that is looked for first where it was found last.
"""

from __future__ import annotations

from optmatch.solvers.demands.board import ENTRY
from optmatch.solvers.demands.programmes import (
    ROUNDING,
    WIDTH,
    add,
    drop,
    duplicate,
    duration,
    express,
    least_total,
    settle,
)
from optmatch.solvers.kernel import kernel

_HELD, _CUT = -1, -2  # slacks of what an entry needs, and of what follows for a while
_LINE = -3  # minus the line: of what its open entries need
EXHAUSTED, FOUND, PAUSED, FULL = 0, 1, 2, 3
_DEAD, _GOES_ON, _COMPLETE = 0, 1, 2  # of a frame


@kernel
def _count(mask):
    found = 0
    while mask:
        mask &= mask - 1
        found += 1
    return found


@kernel
def _rest_needs(p, b, level, line, mask, size, most, at):
    """Write that a line's other entries have enough without `mask`; tell if that can be."""
    need = b.rest[line] - size
    if need <= 0:
        return True
    express(p, level, b.free[line] & ~mask, need, at)
    return least_total(p, level, at) <= most


@kernel
def _limit(p, b, source, target, i, j, mask, most):
    """Solve with what the other entries of both lines need if an entry has all of `mask`."""
    n, size = len(b.demand), b.demand[i, j]
    if not _rest_needs(p, b, source, i, mask, size, most, 1):
        return False
    if not _rest_needs(p, b, source, n + j, mask, size, most, 2):
        return False
    duplicate(p, source, target)
    drop(p, target, _LINE - i)
    drop(p, target, _LINE - n - j)
    if b.rest[i] > size:
        add(p, target, 1, _LINE - i)
    if b.rest[n + j] > size:
        add(p, target, 2, _LINE - n - j)
    return settle(p, target, most)


@kernel
def _serve(p, b, source, target, i, j, mask, most):
    """Solve with an entry that has exactly `mask`."""
    express(p, source, mask, b.demand[i, j], 0)
    if least_total(p, source, 0) > most:
        return False
    if not _limit(p, b, source, target, i, j, mask, most):
        return False
    express(p, target, mask, b.demand[i, j], 0)
    add(p, target, 0, _HELD)
    return settle(p, target, most)


@kernel
def _alike(b, one, other):
    i = 0
    while i < b.seat.shape[1] and b.seat[one, i] == b.seat[other, i]:
        i += 1
    return i == b.seat.shape[1]


@kernel
def _may_follow(b, mask, common, slot):
    """Of slots that nothing tells apart, the first are taken first."""
    for before in range(slot):
        if common >> before & 1 and not mask >> before & 1 and _alike(b, before, slot):
            return False
    return True


@kernel
def _note(b, at, i, j, mask):
    if at >= len(b.pool):
        b.state[2] = 1
        return
    b.pool[at, 0], b.pool[at, 1], b.pool[at, 2] = i, j, mask


@kernel
def _ways(p, b, level, i, j, must, at, wanted, most):
    """List sets of slots, each with all of `must`, that could serve an entry.

    Stops beyond `wanted`; returns how many there are from ``pool[at]`` on.
    """
    n, k = len(b.demand), len(b.seat)
    row, column = b.free[i], b.free[n + j]
    common = row & column
    scratch = len(b.next) + 1
    if must & ~common:
        return 0
    whole = -1
    if b.full[i] and b.left[i] == 1:
        whole = row
    elif b.full[n + j] and b.left[n + j] == 1:
        whole = column
    if whole >= 0:
        other = b.full[n + j] and b.left[n + j] == 1 and column != whole
        if whole & ~common or other:
            return 0
        if not _serve(p, b, level, scratch, i, j, whole, most):
            return 0
        _note(b, at, i, j, whole)
        return 1
    largest = min(_count(row) - b.left[i], _count(column) - b.left[n + j]) + 1
    if largest < 1:
        return 0
    found, depth, slot, mask = 0, 0, 0, must
    arrived = must != 0  # at a set that has not been looked at
    while True:
        if arrived:
            arrived = False
            here = scratch + depth
            below = level if _count(mask) == 1 else here - 1
            if _limit(p, b, below, here, i, j, mask, most):
                express(p, here, mask, b.demand[i, j], 0)
                enough = p.form[0, WIDTH] >= -ROUNDING
                if not enough and least_total(p, here, 0) <= most:
                    duplicate(p, here, here + 1)
                    add(p, here + 1, 0, _HELD)
                    enough = settle(p, here + 1, most)
                if enough:
                    _note(b, at + found, i, j, mask)
                    found += 1
                    if found > wanted:
                        return found
                if _count(mask) == largest:
                    slot = k
            else:
                slot = k  # more slots would last no shorter
        while slot < k:
            fits = common >> slot & 1 and not mask >> slot & 1
            if fits and _may_follow(b, mask, common, slot):
                break
            slot += 1
        if slot < k:
            b.chosen[depth] = slot
            depth += 1
            mask |= 1 << slot
            slot += 1
            arrived = True
            continue
        if depth == 0:
            return found
        depth -= 1
        slot = b.chosen[depth]
        mask &= ~(1 << slot)
        slot += 1


@kernel
def _answers(p, b, level, question, at, wanted, most):
    """List the ways to answer a question."""
    n = len(b.demand)
    kind, line, which = b.suspects[question]
    if kind == ENTRY:
        return _ways(p, b, level, line, which, 0, at, wanted, most)
    found = 0
    for cross in range(n):
        i, j = (line, cross) if line < n else (cross, line - n)
        if b.open[i, j] and found <= wanted:
            found += _ways(p, b, level, i, j, 1 << which, at + found, wanted - found, most)
    return found


@kernel
def _is_open(b, question):
    kind, line, which = b.suspects[question]
    if kind == ENTRY:
        return b.open[line, which]
    return (b.free[line] >> which & 1) == 1


@kernel
def _suspect(b, question):
    """Ask this question first from now on."""
    kind, line, which = b.suspects[question]
    for q in range(question, 0, -1):
        for x in range(3):
            b.suspects[q, x] = b.suspects[q - 1, x]
    b.suspects[0, 0], b.suspects[0, 1], b.suspects[0, 2] = kind, line, which


@kernel
def _lasts(b, mask):
    """Add up how long slots last."""
    ticks, slot = 0.0, 0
    while mask:
        if mask & 1:
            ticks += b.ticks[slot]
        mask >>= 1
        slot += 1
    return ticks


@kernel
def _longest(b, mask):
    best, slot = -1, 0
    while mask:
        if mask & 1 and (best < 0 or b.ticks[slot] > b.ticks[best]):
            best = slot
        mask >>= 1
        slot += 1
    return best


@kernel
def _follow(p, level, mask, lasts, need):
    """Add what follows for some slots if the solution misses it; tell whether it does."""
    if lasts >= need - 10 * ROUNDING:
        return 0
    express(p, level, mask, need, 0)
    add(p, level, 0, _CUT)
    return 1


@kernel
def _tighten(p, b, level, most):
    """Add what follows from sets of slots and entries; tell whether durations are left.

    An entry needs the slots that may serve it. m slots serve at most m entries of a line, so the
    others last as long as the rest of the line but its m largest; and one slot at most the
    largest entry that it may serve.
    """
    n, k = len(b.demand), len(b.seat)
    for _ in range(3):
        drop(p, level, _CUT)
        for slot in range(k):
            b.ticks[slot] = duration(p, level, slot)
        added = 0
        for line in range(2 * n):
            free = b.free[line]
            if b.left[line] == 0:
                continue
            count = 0
            for cross in range(n):
                i, j = (line, cross) if line < n else (cross, line - n)
                if b.open[i, j]:
                    place = count
                    while place > 0 and b.sizes[place - 1] < b.demand[i, j]:
                        b.sizes[place] = b.sizes[place - 1]
                        place -= 1
                    b.sizes[place] = b.demand[i, j]
                    count += 1
                    if line < n:
                        both = free & b.free[n + j]
                        added += _follow(p, level, both, _lasts(b, both), b.demand[i, j])
            whole = _lasts(b, free)
            for slot in range(k):
                if free >> slot & 1:
                    largest = 0.0
                    for cross in range(n):
                        i, j = (line, cross) if line < n else (cross, line - n)
                        other = n + j if line < n else i
                        if b.open[i, j] and b.free[other] >> slot & 1:
                            largest = max(largest, b.demand[i, j])
                    if largest == 0.0 and b.full[line]:
                        return False
                    need = b.rest[line] - largest
                    others = free & ~(1 << slot)
                    added += _follow(p, level, others, whole - b.ticks[slot], need)
            top = b.sizes[0]
            others = free & ~(1 << _longest(b, free))
            for m in range(1, count - 1):
                if not others:
                    break
                others &= ~(1 << _longest(b, others))
                top += b.sizes[m]
                added += _follow(p, level, others, _lasts(b, others), b.rest[line] - top)
        if added == 0:
            return True
        if not settle(p, level, most):
            return False
    return True


@kernel
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


@kernel
def _expand(p, b, level, most):
    """Find out what to decide next in a frame, and the ways to."""
    n = len(b.demand)
    start = b.end[level - 1] if level else 0
    b.next[level] = start
    b.end[level] = start
    b.line[level] = -1
    if not b.open.any():
        return _COMPLETE
    if not _tighten(p, b, level, most):
        return _DEAD
    line = b.line[level - 1] if level else -1
    if line < 0 or b.left[line] == 0:
        line = -1
        for x in range(1, -1, -1):
            if b.left[b.first[x]] > 0:
                line = b.first[x]
    questions = len(b.suspects)
    if line >= 0:
        questions = 1 if level > 0 and line != b.first[0] else 0
    fewest = len(b.pool)
    for question in range(questions):
        if not _is_open(b, question):
            continue
        at = start if fewest == len(b.pool) else start + fewest
        found = _answers(p, b, level, question, at, 0 if line >= 0 else fewest - 1, most)
        if found == 0:
            _suspect(b, question)
            return _DEAD
        if line < 0 and found < fewest:
            for x in range(found):
                for y in range(3):
                    b.pool[start + x, y] = b.pool[at + x, y]
            fewest = found
            b.line[level] = b.suspects[question, 1]
            if found == 1:
                break
    if line >= 0:
        best = -1
        for cross in range(n):
            i, j = (line, cross) if line < n else (cross, line - n)
            if b.open[i, j] and (best < 0 or b.demand[i, j] > b.sizes[0]):
                best = cross
                b.sizes[0] = b.demand[i, j]
        i, j = (line, best) if line < n else (best, line - n)
        b.line[level] = line
        fewest = _ways(p, b, level, i, j, 0, start, len(b.pool), most)
    b.end[level] = start + fewest
    return _GOES_ON


@kernel
def _is_mine(b, level):
    """Tell whether a way to divide the slots on the first line belongs to this part.

    Only the way itself decides, so that parts whose limits have become different miss none.
    """
    dealt = 0
    for frame in range(level + 1):
        dealt += (frame + 1) * _count(b.pool[b.next[frame] - 1, 2])
    return dealt % b.share[2] == b.share[1]


@kernel
def search(p, b, most, programmes):
    """Go on with the search until so many programmes are solved.

    Parameters
    ----------
    p, b
        Where the search is; see `lay`. At first and after FOUND, too.
    most
        Ticks that all slots may last together; may become smaller from call to call.
    programmes
        About so many, then PAUSED.

    Returns
    -------
    int
        FOUND with a decision of all entries in ``b.seat``, EXHAUSTED if there is none any more,
        PAUSED, or FULL if there was not enough room.
    """
    level = b.state[0]
    arrived = b.state[1] == 0
    b.state[1] = 1
    p.solved[0] = 0
    while p.solved[0] < programmes:
        if arrived:
            arrived = False
            if _expand(p, b, level, most) == _COMPLETE:
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
            if level == b.share[0] and not _is_mine(b, level):
                continue
            _decide(b, way, 1)
            level += 1
            arrived = True
    b.state[0] = level
    b.state[1] = 0 if arrived else 1
    return PAUSED
