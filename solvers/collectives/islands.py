"""Collectives between islands: all rails together, while islands hand on what has come.

All islands do the same, as `schemes` says; sums are gathers that run backwards. All is cut into
*waves*, so that islands tell about one while rails carry the next. The scheme and the number of
waves are chosen by counting the time of each choice, the sizes of waves by linear programming.
"""

from __future__ import annotations

from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import uncounted
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.plans import Laid, assemble
from optmatch.solvers.collectives.schemes import Scheme, Shifts, list_schemes

WAVES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
RATIOS = (1.0, 0.85, 0.7, 0.55, 0.4, 0.25)
"""Sizes of waves, each to the one before."""
SIZED, LEAST = 12, 0.05
"""Plans whose waves get other sizes; the least part of the mean that a wave has then."""


class _Plan(NamedTuple):
    """A scheme in waves."""

    scheme: Scheme
    waves: NDArray[np.float64]
    """Sizes, as parts of 1."""
    turns: list[tuple[int, NDArray[np.int64]]]
    """Copies or sums, and ``turn[move, wave]``: the round of each."""
    n_rounds: int


def find(problem: Collective) -> Laid:
    """Return the fastest plan of all schemes and waves."""
    islands = problem.n_ranks // problem.island
    found: list[tuple[float, int, _Plan]] = []
    for scheme in list_schemes(problem.operation, islands, problem.island):
        for count in WAVES if scheme.shifts else (1,):
            weaves = (False, True)[: 1 + (len(scheme.shifts) > 1 == len(set(scheme.shifts)))]
            both = (False, True)[: 1 + (problem.operation == "all-reduce")]
            ways = [*product((False, True), (False,), both), *product((False,), weaves[1:], both)]
            for way in ways if count > 1 else [(False, False, False)]:
                plans = [
                    _arrange(problem.operation, scheme, count, ratio, way)
                    for ratio in RATIOS[: len(RATIOS) if count > 1 else 1]
                    if ratio ** (count - 1) >= 1e-3
                ]
                seconds, number = min((_time_s(problem, plan), k) for k, plan in enumerate(plans))
                found.append((seconds, len(found), plans[number]))
    sized = [_size(problem, plan) for _, _, plan in sorted(found)[:SIZED]]
    return _lay(problem, min(sized, key=lambda plan: _time_s(problem, plan)))


def _size(problem: Collective, plan: _Plan) -> _Plan:
    """Choose the sizes of waves with which the same rounds last least."""
    with uncounted():
        from scipy.optimize import linprog

    count = len(plan.waves)
    if count == 1:
        return plan
    block = problem.size_bytes / problem.n_ranks
    loads = np.zeros((2, plan.n_rounds, len(plan.scheme.loads[0]), count))
    for _, turns in plan.turns:
        for move, load, turn in zip(plan.scheme.moves, plan.scheme.loads, turns, strict=True):
            for wave, at in enumerate(turn.tolist()):
                loads[int(move.over), at, :, wave] += load
    seconds = _time_s(problem, plan)
    rows, limits = list[NDArray[np.float64]](), list[float]()
    rates = problem.island_rate_bytes_per_s, problem.rate_bytes_per_s
    for over, fixed_s in enumerate((problem.island_alpha_s, problem.alpha_s)):
        for turn in range(plan.n_rounds):
            some = np.unique(loads[over, turn] * (block / rates[over] / seconds), axis=0)
            some = some[some.any(axis=1)]
            lengths = np.zeros((len(some), plan.n_rounds))
            lengths[:, turn] = -1
            rows.append(np.hstack([some, lengths]))
            limits += [-fixed_s / seconds] * len(some)
    goal = np.repeat([0.0, 1.0], [count, plan.n_rounds])
    least = np.column_stack([np.repeat([LEAST / count, 0.0], [count, plan.n_rounds]), goal + 9])
    found = linprog(goal, np.vstack(rows), limits, [1 - goal], [1.0], bounds=least)
    if found.status:
        return plan
    sizes = found.x[:count]
    return min(plan, plan._replace(waves=sizes / sizes.sum()), key=lambda it: _time_s(problem, it))


def _arrange(
    operation: str, scheme: Scheme, count: int, ratio: float, way: tuple[bool, bool, bool]
) -> _Plan:
    """Give each move and wave its round.

    The way is late, woven, and both. If late, all waves of a phase but the last one are together;
    if woven, phases of different waves. With both the waves of an all-reduce are gathered in the
    order in which their sums are ready, and the first and the last are the smallest.
    """
    late, woven, both = way
    middle = (count - 1) / 2
    sizes = np.array([ratio ** (abs(k - middle) if both else k) for k in range(count)])
    turns = _place(scheme, list(range(count)), late, woven)
    parts = [(COPY, turns)]
    if operation in ("reduce-scatter", "all-reduce"):
        parts = [(REDUCE, turns.max() - turns)]
    if operation == "all-reduce":
        then = _place(scheme, list(range(count))[:: -1 if both else 1], late, woven)
        begins = parts[0][1].max(axis=0) + 1  # each wave when its sums are whole
        parts.append((COPY, then + (begins - then.min(axis=0)).max()))
    return _Plan(scheme, sizes / sizes.sum(), parts, 1 + int(parts[-1][1].max()))


def _place(scheme: Scheme, order: list[int], late: bool, woven: bool) -> NDArray[np.int64]:
    """Return ``turn[move, wave]``: rails do phase after phase, in each one wave after another.

    Or, if `woven`, a phase of one wave together with earlier phases of later ones.
    """
    phases = len(scheme.shifts)
    rails, links = np.zeros((2, phases + 1, len(order)), dtype=np.int64)
    last = -1
    for phase in range(phases):
        if woven:
            links[phase, order] = last + 1 + np.arange(len(order))
            last += 1 + scheme.waits[phase]
            rails[phase, order] = last + np.arange(len(order))
            continue
        together = late and phase < phases - 1
        for each in [order] if together else [[wave] for wave in order]:
            links[phase, each] = rails[phase - 1, each].max() + 1 if phase else max(last, 0)
            last = max(last + 1, (int(links[phase, each].max()) + 1) * scheme.waits[phase])
            rails[phase, each] = last
    if phases:
        links[phases] = rails[phases - 1] + 1
    alone = late or len(order) == 1  # else rails carry other waves in the meantime
    turns = [
        (rails if move.over or move.early else links)[move.phase]
        - move.early
        + (move.spare and (alone or not move.phase))
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
