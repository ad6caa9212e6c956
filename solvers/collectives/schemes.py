"""What happens to the data of one island, whose places stand for those of all: gathers, exchanges.

On the rail p an island sends to the one ``shifts[p]`` islands onward. A gather reaches islands in
*phases*: each block comes from an island that had it before, over the rail with the least load,
and is then told to the other members. Blocks of an all-to-all go over rails straight to their
island, or by several hops, and change places inside islands where they have to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import combinations, islice
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SAMPLES, COUNTED = 300, 6
"""Sets of shifts whose phases are counted, and those of them whose loads are."""

Row = tuple[int, int, int, int, int]
"""From which island and place to which, in islands from the data's own; and the block."""
Shifts = tuple[int, ...]
"""``shifts[place]``: how many islands onward a rail leads."""


class Move(NamedTuple):
    """Sends of a phase that are done together."""

    over: bool
    """Whether over rails; if not, inside islands, after the phase before."""
    phase: int
    spare: bool
    """Whether the next phase can do without it, so that it may be a round later."""
    rows: list[Row]
    early: bool = False
    """Whether inside islands and before rails of this phase, whatever comes in phases before."""


class Scheme(NamedTuple):
    """What happens to the data of one island."""

    shifts: list[Shifts]
    """By phase."""
    moves: list[Move]
    loads: list[NDArray[np.int64]]
    """Blocks that each place sends, and those that it receives, by move."""
    waits: list[bool]
    """Whether a phase has to wait for moves in islands before it."""


def list_schemes(operation: str, islands: int, places: int) -> Iterator[Scheme]:
    """List schemes of all-to-alls, and of gathers, of which sums are made."""
    distinct = sorted({places // k for k in range(1, places + 1)})
    if operation != "all-to-all":
        for count in distinct if islands > 1 else [1]:
            yield _choose(islands, places, count)
        if places > islands > 2 and places % (islands - 1):  # some rails lead where others do
            yield _gather(islands, _spread(range(1, islands), places), islands - 1)
        return
    for count in distinct:
        groups = [range(k, min(k + count, islands)) for k in range(1, islands, count)]
        yield _exchange(islands, places, [_spread(group, places) for group in groups])
    if places < islands - 1:
        shifts = _choose(islands, places, places).shifts
        yield _exchange(islands, places, shifts)


def _spread(shifts: range | tuple[int, ...], places: int) -> Shifts:
    return tuple(shifts[place % len(shifts)] for place in range(places))


def _choose(islands: int, places: int, count: int) -> Scheme:
    """Choose so many different shifts with which a gather has few phases and small loads."""
    others = range(1, islands)
    if count >= islands - 1:
        return _gather(islands, _spread(others or (0,), places))
    if count == 1:
        return _gather(islands, _spread((1,), places))
    sets: Iterator[Shifts] = combinations(others, count)
    if comb(islands - 1, count) > SAMPLES:
        rng = np.random.default_rng(0)
        near = tuple(k // 2 * (-1) ** k % islands for k in range(2, count + 2))
        drawn = (rng.choice(others, count, replace=False).tolist() for _ in range(SAMPLES))
        sets = iter([near, *map(tuple, drawn)])
    ranked = sorted(sets, key=lambda each: len(_phases(islands, each)))
    tried = [_gather(islands, _spread(each, places)) for each in islice(ranked, COUNTED)]
    return min(tried, key=lambda each: (len(each.shifts), sum(load.max() for load in each.loads)))


def _phases(islands: int, shifts: Shifts) -> list[list[int]]:
    """List the islands that are reached in each phase; long where some are not."""
    found, seen = [[0]], {0}
    while len(seen) < islands:
        reached = {(at + shift) % islands for at in found[-1] for shift in shifts} - seen
        if not reached:
            return [[0]] * (2 * islands)
        found.append(sorted(reached))
        seen |= reached
    return found[1:]


def _count(shifts: list[Shifts], moves: list[Move], waits: list[bool]) -> Scheme:
    used = [move for move in moves if move.rows]
    ends = [np.array(move.rows)[:, [1, 3]].T for move in used]
    places = 1 + max(each.max() for each in ends)
    loads = [np.concatenate([np.bincount(end, minlength=places) for end in each]) for each in ends]
    return Scheme(shifts, used, loads, waits)


def _gather(islands: int, shifts: Shifts, most: int = sys.maxsize) -> Scheme:
    """Let the blocks of an island reach all others.

    A rail takes so many of a phase at most; what is left goes on from other islands in the next.
    """
    places = len(shifts)
    phase_of = {(0, block): 0 for block in range(places)}
    held = {(0, place): place for place in range(places)}
    moves, waits = [], []
    new, left = list(held), list[tuple[int, int]]()
    planned = _phases(islands, shifts)
    phase, loads = 0, [0] * places
    while True:
        rows, wanted = list[Row](), set[tuple[int, int, int]]()
        reached = planned[phase] if phase < len(planned) else []
        asked = left + [(to, (to + k) % places) for to in reached for k in range(places)]
        ways = {
            (to, block): [
                p
                for p in range(places)
                if phase_of.get(((to - shifts[p]) % islands, block), phase + 1) <= phase
            ]
            for to, block in asked
        }
        left = []
        for to, block in sorted(asked, key=lambda each: len(ways[each])):
            load, moved, place = min(
                (loads[p], held[(to - shifts[p]) % islands, block] != p, p)
                for p in ways[to, block]
            )
            if load >= most and phase < len(planned):
                left.append((to, block))
                continue
            origin = (to - shifts[place]) % islands
            if moved and phase_of[origin, block] == phase:
                wanted.add((origin, place, block))
            loads[place] += 1
            rows.append((origin, place, to, place, block))
        told = [(to, held[to, block], to, q, block) for to, block in new for q in range(places)]
        told = [row for row in told if row[1] != row[3]]
        first = [row for row in told if (row[0], row[3], row[4]) in wanted]
        rest = [row for row in told if (row[0], row[3], row[4]) not in wanted]
        waits.append(bool(first))
        moves += [Move(False, phase, False, first), Move(False, phase, bool(first), rest)]
        moves.append(Move(True, phase, False, rows))
        new = [(to, block) for _, _, to, _, block in rows]
        held |= {(to, block): place for _, _, to, place, block in rows}
        phase += 1
        phase_of |= dict.fromkeys(new, phase)
        loads = loads if most < sys.maxsize else [0] * places
        if not rows:
            return _count([shifts] * (len(waits) - 1), moves, waits[:-1])


def _exchange(islands: int, places: int, shifts: list[Shifts]) -> Scheme:
    """Bring the blocks of an island to all others; a block is (place, island, place) as a number.

    With the same shifts in all phases blocks take several hops, else one.
    """
    rails: list[list[Row]] = [[] for _ in shifts]
    links: list[list[Row]] = [[] for _ in range(len(shifts) + 1)]
    begins: list[list[Row]] = [[] for _ in shifts]
    ends: list[list[Row]] = [[] for _ in range(len(shifts) + 1)]
    beside: list[Row] = []
    load = [[0] * places for _ in shifts]
    several = len(shifts) > 1 and len(set(shifts)) == 1
    at = {to: {phase} for phase, each in enumerate(shifts) for to in each}
    if several:
        at = {to: {k} for k, reached in enumerate(_phases(islands, shifts[0])) for to in reached}
    for p, to, q in np.ndindex(places, islands, places):
        block = (p * islands + to) * places + q
        hops: list[tuple[int, int]] = []
        left, then = to, q
        while left:  # backwards, the last hop first
            phase = min(at[left])
            ways = [
                (load[phase][k], (k != then) + (k != p), k != then, k)
                for k, shift in enumerate(shifts[phase])
                if shift == left or (several and at.get((left - shift) % islands) == {phase - 1})
            ]
            then = min(ways)[-1]
            load[phase][then] += 1
            hops.append((phase, then))
            left = (left - shifts[phase][then]) % islands
        island, held, after = 0, p, 0
        for phase, place in reversed(hops):
            if held != place:
                (links if island else begins)[phase].append((island, held, island, place, block))
            onward = (island + shifts[phase][place]) % islands
            rails[phase].append((island, place, onward, place, block))
            island, held, after = onward, place, phase + 1
        if held != q:
            (ends[after] if hops else beside).append((island, held, island, q, block))
    moves = [Move(False, 0, True, beside)]
    moves += [Move(True, phase, False, rows) for phase, rows in enumerate(rails)]
    for told in (links, ends):
        moves += [Move(False, phase, False, rows) for phase, rows in enumerate(told)]
    moves += [Move(False, phase, False, rows, early=True) for phase, rows in enumerate(begins)]
    waits = [bool(links[k] or (begins[k] and not k)) for k in range(len(shifts))]
    return _count(shifts, moves, waits)
