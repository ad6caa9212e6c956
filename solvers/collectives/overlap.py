"""Planes that set up new circuits while others send: who takes part in which step, and how much.

After SWOT (Wu et al. 2025, arXiv:2510.19322), with the state of each plane by itself: its released
model compares neighbouring steps only, so that planes send over circuits that they do not have.
Which planes a step uses is searched for; for given ones the shares are a linear programme.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, uncounted
from optmatch.problems import Collective
from optmatch.solvers.collectives.plans import Shares, lay_circuits
from optmatch.solvers.collectives.rounds import Rounds, chunk_sizes

BEAM = 60
"""Partial schedules that are kept."""
SMALL = 24
"""Up to so many pairs of a step and a plane the search for a proof is run to its end."""


class Steps(NamedTuple):
    """What all planes together have to do, in seconds of one plane."""

    configuration: NDArray[np.int64]
    work_s: NDArray[np.float64]
    """How long one plane alone would send."""
    ready_s: NDArray[np.float64]
    planes: int
    alpha_s: float
    """That each plane spends in each step it takes part in."""
    delay_s: float
    held: NDArray[np.int64]
    """``held[plane]``: its first configuration; -1 none, -2 any that is wanted."""

    @property
    def at_least_s(self) -> float:
        """No shares end before."""
        dark = self.delay_s if (self.held == -1).all() else 0.0
        return float((self.alpha_s + self.work_s / self.planes).sum()) + dark


def given_steps(problem: Collective) -> Steps:
    """Read the steps that a problem is given from outside."""
    table = np.asarray(problem.steps).reshape(-1, 2)
    held = -2 if isinstance(problem.start, str) and problem.start == "free" else -1
    return Steps(
        table[:, 0].astype(np.int64),
        table[:, 1] / (problem.ports * problem.rate_bytes_per_s),
        np.zeros(len(table)),
        problem.planes,
        problem.alpha_s + (problem.hop_s or 0.0),
        problem.delay_s,
        np.full(problem.planes, held),
    )


def read_steps(problem: Collective, rounds: Rounds) -> Steps:
    """Read the rounds of an algorithm as steps, each in a configuration of its own."""
    n, count = problem.n_ranks, rounds.n_rounds
    turn, source, target, chunk = rounds.sends.T[:4]
    sizes = chunk_sizes(problem, rounds.chunk_count)
    loads = np.bincount(turn * n + source, weights=sizes[chunk], minlength=count * n)
    circuits = lay_circuits(problem, rounds)[:, 0]
    known, number = np.unique(circuits, axis=0, return_inverse=True)
    ready_s = np.zeros(count)
    np.maximum.at(ready_s, turn, np.maximum(problem.late[source], problem.late[target]))
    held = np.full(problem.planes, -1)
    if isinstance(problem.start, str):
        held[:] = -2 if problem.start == "free" else -1
    else:
        for plane, lanes in enumerate(problem.start.reshape(problem.planes, problem.ports, n)):
            same = (known[:, None] == lanes).all(axis=(1, 2))
            held[plane] = np.flatnonzero(same)[0] if same.any() else -1
    return Steps(
        number.reshape(-1),
        loads.reshape(count, n).max(axis=1, initial=0.0)
        / (problem.ports * problem.rate_bytes_per_s),
        ready_s,
        problem.planes,
        problem.alpha_s + (problem.hop_s or 0.0),
        problem.delay_s,
        held,
    )


def share(steps: Steps, clock: Clock, *, prove: bool = True) -> tuple[Shares, float]:
    """Find shares of all planes that end early; and a time that none beat, 0 if none is proved.

    Examples
    --------
    >>> from optmatch.model import Limits
    >>> steps = Steps(np.array([1, 2, 1]), np.full(3, 20.0), np.zeros(3), 2, 20.0, 10_000.0,
    ...               np.full(2, -1))
    >>> found, bound = share(steps, Limits().start())
    >>> found.time_s, bound
    (10120.0, 10120.0)
    """
    best = None
    for used in _beam(steps):
        found = _balance(steps, used)
        if best is None or found.time_s < best.time_s * (1 - 1e-12):
            best = found
    assert best is not None
    best = _improve(steps, best, clock)
    bound = 0.0
    if prove and best.share_s.size <= SMALL and clock.exceeded(1) is None:
        proved, better = _search(steps, best, clock)
        other = _balance(steps, better) if better is not None else best
        best = min(best, other, key=lambda each: each.time_s)
        # The search counts in floats; what agrees to six digits is the same time.
        bound = best.time_s if proved >= best.time_s * (1 - 1e-6) else proved
    return best, bound


def _beam(steps: Steps) -> list[NDArray[np.bool_]]:
    """Go forward step by step, and keep those sets of planes that end first."""
    k = steps.planes
    states: list[tuple[float, tuple[tuple[int, float], ...], tuple[tuple[int, ...], ...]]]
    states = [(0.0, tuple((int(c), 0.0) for c in steps.held), ())]
    for number in range(len(steps.work_s)):
        wanted, work = int(steps.configuration[number]), float(steps.work_s[number])
        after: dict[Any, tuple[float, Any, Any]] = {}
        for now, planes, used in states:
            now = max(now, float(steps.ready_s[number]))
            there = [
                max(now, free + (0.0 if held in (wanted, -2) else steps.delay_s))
                for held, free in planes
            ]
            order = sorted(range(k), key=lambda plane: there[plane])
            for chosen in _subsets(order, planes):
                level, active = 0.0, chosen
                for count in range(1, len(chosen) + 1):  # those that come too late stay out
                    active = chosen[:count]
                    level = (work + sum(there[p] + steps.alpha_s for p in active)) / count
                    if count == len(chosen) or level <= there[chosen[count]] + steps.alpha_s:
                        break
                state = tuple(
                    (wanted, level) if plane in active else planes[plane] for plane in range(k)
                )
                key = (len(active), tuple(sorted(held for held, _ in state)))
                entry = (level, state, (*used, active))
                rank = level + sum(free for _, free in state) / k
                if key not in after or rank < after[key][0]:
                    after[key] = (rank, entry, None)
        ranked = sorted(after.values(), key=lambda found: found[0])[:BEAM]
        states = [entry for _, entry, _ in ranked]
    found = []
    for _, _, used in sorted(states)[:8]:
        table = np.zeros((len(used), k), dtype=np.bool_)
        for number, planes_used in enumerate(used):
            table[number, list(planes_used)] = True
        found.append(table)
    found.append(np.ones((len(steps.work_s), k), dtype=np.bool_))
    return found


def _subsets(order: list[int], planes: Any) -> list[tuple[int, ...]]:
    """List sets of planes to use, those that are there first; of equal planes the first ones."""
    k = len(order)
    if k > 5:
        return [tuple(order[low:high]) for low in range(k) for high in range(low + 1, k + 1)]
    seen, found = set(), []
    for count in range(1, k + 1):
        for chosen in combinations(order, count):
            key = tuple(sorted(planes[plane] for plane in chosen))
            if key not in seen:
                seen.add(key)
                found.append(chosen)
    return found


def _improve(steps: Steps, best: Shares, clock: Clock) -> Shares:
    """Let single planes leave or join steps while that helps."""
    better = True
    while better and clock.exceeded(1) is None:
        better = False
        for number, plane in np.ndindex(best.share_s.shape):
            used = best.share_s > 0
            used[number, plane] ^= True
            if not used[number].any() or clock.exceeded(1) is not None:
                continue
            found = _balance(steps, used)
            if found.time_s < best.time_s * (1 - 1e-9):
                best, better = found, True
    return best


def _balance(steps: Steps, used: NDArray[np.bool_]) -> Shares:
    """Find the best shares of the planes that take part, by a linear programme."""
    with uncounted():
        from scipy.optimize import linprog

    count, k = used.shape
    if not count:
        return Shares(*(np.zeros((0, k)) for _ in range(3)))
    unit = float(steps.work_s.sum() + steps.alpha_s * count)
    at = np.full((count, k), -1)
    at[used] = np.arange(used.sum())  # start of each part, then its share, then ends of steps
    parts = int(used.sum())
    size = 2 * parts + count
    rows: list[dict[int, float]] = []
    limits: list[float] = []
    low = np.zeros(size)
    for number, plane in np.argwhere(used).tolist():
        begin, amount = at[number, plane], parts + at[number, plane]
        rows.append({begin: 1.0, amount: 1.0, 2 * parts + number: -1.0})
        limits.append(-steps.alpha_s / unit)
        if number:
            rows.append({2 * parts + number - 1: 1.0, begin: -1.0})
            limits.append(0.0)
        before = np.flatnonzero(used[:number, plane])
        low[begin] = steps.ready_s[number] / unit
        if not len(before):
            low[begin] = max(low[begin], _first_s(steps, number, plane) / unit)
        elif steps.configuration[before[-1]] != steps.configuration[number]:
            last = at[before[-1], plane]
            rows.append({last: 1.0, parts + last: 1.0, begin: -1.0})
            limits.append(-(steps.delay_s + steps.alpha_s) / unit)
    together = np.zeros((count, size))
    for number, plane in np.argwhere(used).tolist():
        together[number, parts + at[number, plane]] = 1.0
    table = np.zeros((len(rows), size))
    for row, entries in enumerate(rows):
        table[row, list(entries)] = list(entries.values())
    goal = np.zeros(size)
    goal[-1] = 1.0
    solved = linprog(
        goal,
        A_ub=table,
        b_ub=limits,
        A_eq=together,
        b_eq=steps.work_s / unit,
        bounds=np.column_stack([low, np.full(size, np.inf)]),
    )
    amounts = used.astype(
        np.float64
    )  # even shares, should the numbers be too far apart for the programme
    if solved.x is not None:
        amounts[used] = np.maximum(solved.x[parts : 2 * parts], 0.0)
    amounts[amounts < 1e-9 * amounts.max(axis=1, keepdims=True)] = 0.0
    amounts[amounts.sum(axis=1) == 0] = used[amounts.sum(axis=1) == 0]
    amounts *= (steps.work_s / amounts.sum(axis=1))[:, None]
    return _time(steps, amounts)


def _first_s(steps: Steps, number: int, plane: int) -> float:
    """Return when a plane that was not used before can take part in a step."""
    held = int(steps.held[plane])
    return 0.0 if held in (-2, int(steps.configuration[number])) else steps.delay_s


def _time(steps: Steps, amounts: NDArray[np.float64]) -> Shares:
    """Start all parts as early as steps and circuits allow."""
    count, k = amounts.shape
    starts, ends = np.zeros((count, k)), np.zeros((count, k))
    last = np.full(k, -1)
    now = 0.0
    for number in range(count):
        begin, now = max(now, float(steps.ready_s[number])), 0.0
        for plane in np.flatnonzero(amounts[number] > 0).tolist():
            start = begin
            if last[plane] < 0:
                start = max(start, _first_s(steps, number, plane))
            elif steps.configuration[last[plane]] != steps.configuration[number]:
                start = max(start, ends[last[plane], plane] + steps.delay_s)
            starts[number, plane] = start
            ends[number, plane] = start + steps.alpha_s + amounts[number, plane]
            last[plane] = number
            now = max(now, ends[number, plane])
        now = max(now, begin)
    return Shares(amounts, starts, ends)


def _search(steps: Steps, best: Shares, clock: Clock) -> tuple[float, NDArray[np.bool_] | None]:
    """Prove a bound by mixed-integer programming; return it, and who takes part in its answer."""
    with uncounted():
        from scipy.optimize import Bounds, LinearConstraint, milp

    count, k = best.share_s.shape
    unit = best.time_s or 1.0
    parts = count * k
    size = 3 * parts + count  # used, start, share of each part; ends of steps
    use = np.arange(parts).reshape(count, k)
    begin, amount, end = use + parts, use + 2 * parts, 3 * parts + np.arange(count)
    table: list[NDArray[np.float64]] = []
    least: list[float] = []

    def at_least(limit: float, **terms: Any) -> None:
        row = np.zeros(size)
        for column, factor in terms["terms"]:
            row[column] += factor
        table.append(row)
        least.append(limit)

    if (steps.work_s < 1e-3 * unit).any():
        return 0.0, None  # too small beside the rest for the tolerances of the search
    work, alpha, delay = steps.work_s / unit, steps.alpha_s / unit, steps.delay_s / unit
    low = np.zeros(size)
    for i in range(count):
        at_least(float(work[i]), terms=[(amount[i, j], 1.0) for j in range(k)])
        low[end[i]] = steps.ready_s[i] / unit
        for j in range(k):
            at_least(0.0, terms=[(use[i, j], float(work[i])), (amount[i, j], -1.0)])
            at_least(
                0.0,
                terms=[
                    (end[i], 1.0),
                    (begin[i, j], -1.0),
                    (amount[i, j], -1.0),
                    (use[i, j], -alpha),
                ],
            )
            low[begin[i, j]] = steps.ready_s[i] / unit
            if i:
                at_least(0.0, terms=[(begin[i, j], 1.0), (end[i - 1], -1.0)])
            if _first_s(steps, i, j):
                earlier = [(use[p, j], delay) for p in range(i)]
                at_least(0.0, terms=[(begin[i, j], 1.0), (use[i, j], -delay), *earlier])
            for p in range(i):
                if steps.configuration[p] != steps.configuration[i]:
                    # begin >= end of the part before + delay, if both are used and none between
                    between = [(use[q, j], 1.0 + delay) for q in range(p + 1, i)]
                    both = 1.0 + delay
                    at_least(
                        delay - 2 * both,
                        terms=[
                            (begin[i, j], 1.0),
                            (begin[p, j], -1.0),
                            (amount[p, j], -1.0),
                            (use[p, j], -alpha - both),
                            (use[i, j], -both),
                            *between,
                        ],
                    )
    whole = np.zeros(size)
    whole[:parts] = 1
    high = np.full(size, 1.0 + 1e-9)
    goal = np.zeros(size)
    goal[-1] = 1.0
    options: dict[str, Any] = {"mip_rel_gap": 0.0, "node_limit": 5_000}
    if np.isfinite(clock.remaining_s):
        options["time_limit"] = max(clock.remaining_s, 0.01)
    solved = milp(
        goal,
        constraints=LinearConstraint(np.array(table), lb=np.array(least)),
        integrality=whole,
        bounds=Bounds(low, high),
        options=options,
    )
    bound = (
        float(solved.mip_dual_bound or 0.0) * unit if solved.mip_dual_bound is not None else 0.0
    )
    if solved.status == 2:  # nothing is better than what was found before
        return best.time_s, None
    return max(bound, 0.0), None if solved.x is None else (solved.x[use] > 0.5)
