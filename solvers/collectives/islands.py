"""Collectives between islands: all rails together, while islands hand on what has come.

All islands do the same: on the rail p an island sends to the one ``shift[p]`` islands onward, and
the data of one island stand for those of all. A gather reaches islands in *phases*: each block
comes from an island that had it before, over the rail with the least load, and is then told to the
other members. Sums are gathers that run backwards. Blocks of an all-to-all go over rails straight
to their island, or by several hops, and change places inside islands where they have to.

All is cut into *waves*, so that islands tell about one while rails carry the next. The shifts, and
how many waves of which sizes, are chosen by counting the time of each choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice, pairwise, product
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.plans import Laid, assemble

WAVES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
RATIOS = (1.0, 0.85, 0.7, 0.55, 0.4, 0.25)
"""Sizes of waves, each to the one before."""
SAMPLES, COUNTED = 300, 6
"""Sets of shifts whose phases are counted, and those of them whose loads are."""

Row = tuple[int, int, int, int, int]
"""From which island and place to which, in islands from the data's own; and the block."""
Shifts = tuple[int, ...]
"""``shifts[place]``: how many islands onward a rail leads."""


class _Move(NamedTuple):
    """Sends of a phase that are done together."""

    over: bool
    """Whether over rails; if not, inside islands, after the phase before."""
    phase: int
    spare: bool
    """Whether the next phase can do without it, so that it may be a round later."""
    rows: list[Row]


class _Scheme(NamedTuple):
    """What happens to the data of one island."""

    shifts: list[Shifts]
    """By phase."""
    moves: list[_Move]
    loads: list[NDArray[np.int64]]
    """Blocks that each place sends, and those that it receives, by move."""
    waits: list[bool]
    """Whether a phase has to wait for moves in islands before it."""


class _Plan(NamedTuple):
    """A scheme in waves."""

    scheme: _Scheme
    waves: NDArray[np.float64]
    """Sizes, as parts of 1."""
    turns: list[tuple[int, NDArray[np.int64]]]
    """Copies or sums, and ``turn[move, wave]``: the round of each."""
    n_rounds: int


def find(problem: Collective) -> Laid:
    """Return the fastest plan of all schemes and waves."""
    best: tuple[float, _Plan] | None = None
    for scheme in _list_schemes(problem):
        for count, ratio in product(WAVES if scheme.shifts else (1,), RATIOS):
            if ratio ** (count - 1) < 1e-3 or (count == 1 and ratio < 1):
                continue
            ways = [(late, False) for late in (False, count > 1)[: min(count, 2)]]
            if problem.operation == "all-reduce" and count > 1:
                ways += [(late, True) for late, _ in ways]
            for late, both in ways:
                plan = _arrange(problem.operation, scheme, count, ratio, late, both)
                seconds = _time_s(problem, plan)
                if best is None or seconds < best[0]:
                    best = seconds, plan
    assert best is not None
    return _lay(problem, best[1])


def _list_schemes(problem: Collective) -> Iterator[_Scheme]:
    """List schemes of all-to-alls, and of gathers, of which sums are made."""
    places = problem.island
    islands = problem.n_ranks // places
    distinct = sorted({places // k for k in range(1, places + 1)})
    if problem.operation != "all-to-all":
        for count in distinct if islands > 1 else [1]:
            yield _choose(islands, places, count)
        return
    for count in distinct:
        groups = [range(k, min(k + count, islands)) for k in range(1, islands, count)]
        yield _exchange(islands, places, [_spread(group, places) for group in groups])
    if places < islands - 1:
        shifts = _choose(islands, places, places).shifts
        yield _exchange(islands, places, shifts)


def _spread(shifts: range | tuple[int, ...], places: int) -> Shifts:
    return tuple(shifts[place % len(shifts)] for place in range(places))


def _choose(islands: int, places: int, count: int) -> _Scheme:
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


def _scheme(shifts: list[Shifts], moves: list[_Move], waits: list[bool]) -> _Scheme:
    used = [move for move in moves if move.rows]
    ends = [np.array(move.rows)[:, [1, 3]].T for move in used]
    places = 1 + max(each.max() for each in ends)
    loads = [np.concatenate([np.bincount(end, minlength=places) for end in each]) for each in ends]
    return _Scheme(shifts, used, loads, waits)


def _gather(islands: int, shifts: Shifts) -> _Scheme:
    """Let the blocks of an island reach all others."""
    places = len(shifts)
    phase_of, held = {0: 0}, {(0, place): place for place in range(places)}
    moves, waits = [], []
    new = [(0, block) for block in range(places)]
    for phase, reached in enumerate([*_phases(islands, shifts), []]):
        load, rows, wanted = [0] * places, list[Row](), set[tuple[int, int, int]]()
        ways = {
            to: [p for p in range(places) if (to - shifts[p]) % islands in phase_of]
            for to in reached
        }
        for to, block in product(sorted(reached, key=lambda to: len(ways[to])), range(places)):
            _, moved, place = min(
                (load[p], held[(to - shifts[p]) % islands, block] != p, p) for p in ways[to]
            )
            origin = (to - shifts[place]) % islands
            if moved and phase_of[origin] == phase:
                wanted.add((origin, place, block))
            load[place] += 1
            rows.append((origin, place, to, place, block))
        told = [(to, held[to, block], to, q, block) for to, block in new for q in range(places)]
        told = [row for row in told if row[1] != row[3]]
        first = [row for row in told if (row[0], row[3], row[4]) in wanted]
        rest = [row for row in told if (row[0], row[3], row[4]) not in wanted]
        waits.append(bool(first))
        moves += [_Move(False, phase, False, first), _Move(False, phase, bool(first), rest)]
        moves.append(_Move(True, phase, False, rows))
        new = [(to, block) for _, _, to, _, block in rows]
        held |= {(to, block): place for _, _, to, place, block in rows}
        phase_of |= dict.fromkeys(reached, phase + 1)
    return _scheme([shifts] * (len(waits) - 1), moves, waits[:-1])


def _exchange(islands: int, places: int, shifts: list[Shifts]) -> _Scheme:
    """Bring the blocks of an island to all others; a block is (place, island, place) as a number.

    With the same shifts in all phases blocks take several hops, else one.
    """
    rails: list[list[Row]] = [[] for _ in shifts]
    links: list[list[Row]] = [[] for _ in range(len(shifts) + 1)]
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
                links[phase].append((island, held, island, place, block))
            onward = (island + shifts[phase][place]) % islands
            rails[phase].append((island, place, onward, place, block))
            island, held, after = onward, place, phase + 1
        if held != q:
            (links[after] if hops else beside).append((island, held, island, q, block))
    moves = [_Move(False, 0, True, beside)]
    moves += [_Move(True, phase, False, rows) for phase, rows in enumerate(rails)]
    moves += [_Move(False, phase, False, rows) for phase, rows in enumerate(links)]
    return _scheme(shifts, moves, [bool(rows) for rows in links[:-1]])


def _arrange(
    operation: str, scheme: _Scheme, count: int, ratio: float, late: bool, both: bool
) -> _Plan:
    """Give each move and wave its round.

    With `late` all waves of a phase but the last one are together. With `both` the waves of an
    all-reduce are gathered in the order in which their sums are ready, and the first and the last
    are the smallest.
    """
    middle = (count - 1) / 2
    sizes = np.array([ratio ** (abs(k - middle) if both else k) for k in range(count)])
    turns = _place(scheme, list(range(count)), late)
    parts = [(COPY, turns)]
    if operation in ("reduce-scatter", "all-reduce"):
        parts = [(REDUCE, turns.max() - turns)]
    if operation == "all-reduce":
        then = _place(scheme, list(range(count))[:: -1 if both else 1], late)
        begins = parts[0][1].max(axis=0) + 1  # each wave when its sums are whole
        parts.append((COPY, then + (begins - then.min(axis=0)).max()))
    return _Plan(scheme, sizes / sizes.sum(), parts, 1 + int(parts[-1][1].max()))


def _place(scheme: _Scheme, order: list[int], late: bool) -> NDArray[np.int64]:
    """Return ``turn[move, wave]``: rails do phase after phase, in each one wave after another."""
    phases = len(scheme.shifts)
    rails, links = np.zeros((2, phases + 1, len(order)), dtype=np.int64)
    last = -1
    for phase in range(phases):
        together = late and phase < phases - 1
        for each in [order] if together else [[wave] for wave in order]:
            links[phase, each] = rails[phase - 1, each].max() + 1 if phase else max(last, 0)
            last = max(last + 1, (int(links[phase, each].max()) + 1) * scheme.waits[phase])
            rails[phase, each] = last
    if phases:
        links[phases] = rails[phases - 1] + 1
    alone = late or len(order) == 1  # else rails carry other waves in the meantime
    turns = [
        (rails if move.over else links)[move.phase] + (move.spare and (alone or not move.phase))
        for move in scheme.moves
    ]
    found: NDArray[np.int64] = np.array(turns) - np.min(turns)
    return found


def _time_s(problem: Collective, plan: _Plan) -> float:
    """Count the time."""
    rails, links = np.zeros((2, plan.n_rounds, len(plan.scheme.loads[0])))
    shifts: dict[int, Shifts] = {}
    for _, turns in plan.turns:
        for move, load, turn in zip(plan.scheme.moves, plan.scheme.loads, turns, strict=True):
            np.add.at(rails if move.over else links, turn, plan.waves[:, None] * load)
            if move.over:
                shifts |= dict.fromkeys(turn.tolist(), plan.scheme.shifts[move.phase])
    block = problem.size_bytes / problem.n_ranks
    rails, links = rails.max(axis=1), links.max(axis=1)
    over_s = (problem.alpha_s + rails * block / problem.rate_bytes_per_s) * (rails > 0)
    inside_s = problem.island_alpha_s + links * block / problem.island_rate_bytes_per_s
    order = [shifts[turn] for turn in sorted(shifts)]
    changes = sum(a != b for a, b in pairwise(order))
    return float(np.maximum(over_s, inside_s * (links > 0)).sum() + changes * problem.delay_s)


def _lay(problem: Collective, plan: _Plan) -> Laid:
    """Make a plan of ranks."""
    n, places = problem.n_ranks, problem.island
    islands, each = n // places, np.arange(n // places)[:, None]
    size = problem.size_bytes / n
    begins = np.cumsum(plan.waves) - plan.waves
    exchange = problem.operation == "all-to-all"
    sends, parts = [np.empty((0, 5), np.int64)], [np.empty((0, 2))]
    circuits = np.full((plan.n_rounds, n), -1)
    for kind, turns in plan.turns:
        onward = -1 if kind == REDUCE else 1  # sums go over the same circuits
        for move, of in zip(plan.scheme.moves, turns, strict=True):
            island, place, to, at, block = np.array(move.rows).T[:, None, :]
            source = (onward * island + each) % islands * places + place
            target = (onward * to + each) % islands * places + at
            chunk = each * places + block
            if exchange:
                own, goal = np.divmod(block, n)
                goal = (goal // places + each) % islands * places + goal % places
                chunk = (each * places + own) * n + goal
            if kind == REDUCE:
                source, target = target, source
            for wave, turn in enumerate(of.tolist()):
                whole = np.broadcast_arrays(turn, source, target, chunk, kind)
                sends.append(np.stack(whole, axis=-1).reshape(-1, 5))
                part = size * begins[wave], size * plan.waves[wave]
                parts.append(np.broadcast_to(part, (len(sends[-1]), 2)))
                if move.over:
                    shift = np.array(plan.scheme.shifts[move.phase])
                    there = (each + shift) % islands * places + np.arange(places)
                    circuits[turn] = np.where(shift % islands == 0, -1, there).reshape(-1)
    rows, part_ = np.concatenate(sends), np.concatenate(parts)
    order = np.argsort(rows[:, 0], kind="stable")
    used = np.flatnonzero((circuits >= 0).any(axis=1))
    if len(used):  # rounds inside islands keep the circuits that are there
        last = np.searchsorted(used, np.arange(plan.n_rounds), "right") - 1
        circuits = circuits[used[np.maximum(last, 0)]]
    elif not isinstance(problem.start, str):
        circuits = np.repeat(problem.start.astype(np.int64), plan.n_rounds, axis=0)
    change = np.append(True, (np.diff(circuits, axis=0) != 0).any(axis=1))
    return assemble(
        problem, rows[order], n * n if exchange else n, circuits[change][:, None],
        np.cumsum(change) - 1, parts=part_[order] if len(plan.waves) > 1 else None,
    )  # fmt: skip
