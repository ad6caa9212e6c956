"""Planes that set up new circuits while others send: the planes and shares of each step.

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
from optmatch.solvers.collectives.rounds import Rounds, ready_s

BEAM = 60
"""Partial schedules that are kept."""
EFFORT = 5_000_000
"""Sum of the squares of sizes of linear programmes that are solved: some seconds."""
MANY = 16
"""The most planes for which every number of first planes is tried; of more, some numbers are."""
SMALL = 24
"""Up to so many pairs of a step and a plane the search for a proof is run to its end."""


class Steps(NamedTuple):
    """The work of all planes together, in seconds of one plane."""

    configuration: NDArray[np.int64]
    work_s: NDArray[np.float64]
    """How long one plane alone would send."""
    ready_s: NDArray[np.float64]
    planes: int
    alpha_s: float
    """The latency that each plane spends in each step in which it takes part."""
    delay_s: float
    held: NDArray[np.int64]
    """``held[plane]``: its first configuration; -1 none, -2 any that is wanted."""

    @property
    def at_least_s(self) -> float:
        """No shares end before."""
        dark = self.delay_s if (self.held == -1).all() else 0.0
        return float((self.alpha_s + self.work_s / self.planes).sum()) + dark


def read_steps(problem: Collective, rounds: Rounds | None) -> Steps:
    """Read the rounds of an algorithm as steps, each in a configuration of its own.

    Without rounds the steps are those that the problem states.
    """
    n, planes = problem.n_ranks, problem.planes
    there = isinstance(problem.start, str) and problem.start == "free"
    held = np.full(planes, -2 if there else -1)
    if rounds is None:
        number, bytes_ = np.asarray(problem.steps).T
        begin_s = np.zeros(len(number))
    else:
        circuits = lay_circuits(problem, rounds)[:, 0]
        known, number = np.unique(circuits, axis=0, return_inverse=True)
        bytes_ = rounds.bytes_sent(problem).max(axis=1, initial=0.0)
        begin_s = ready_s(problem, rounds.sends, rounds.n_rounds)
        if not isinstance(problem.start, str):
            for plane, lanes in enumerate(problem.start.reshape(planes, problem.ports, n)):
                same = (known[:, None] == lanes).all(axis=(1, 2))
                held[plane] = np.flatnonzero(same)[0] if same.any() else -1
    return Steps(
        number.reshape(-1).astype(np.int64),
        bytes_ / (problem.ports * problem.rate_bytes_per_s),
        begin_s,
        planes,
        problem.alpha_s + (problem.hop_s or 0.0),
        problem.delay_s,
        held,
    )


def share(steps: Steps, clock: Clock, *, prove: bool = True) -> tuple[Shares, float]:
    """Find shares of all planes that end early; and a time that none beat, 0 if none is proved."""
    if not len(steps.work_s):
        nothing = np.empty((0, steps.planes))
        return Shares(nothing, nothing, nothing), 0.0
    candidates = _beam(steps)
    each = candidates[0].size ** 2
    best = _balance(steps, candidates[0])
    for used in candidates[1 : 1 + EFFORT // (each + 1)]:
        found = _balance(steps, used)
        if found.time_s < best.time_s * (1 - 1e-12):
            best = found
    best = _improve(steps, best, clock, EFFORT // (each + 1))
    bound = 0.0
    if prove and best.share_s.size <= SMALL and clock.exceeded(1) is None:
        proved, used = _search(steps, best, clock)
        best = min(best, _balance(steps, used), key=lambda each: each.time_s)
        # The search counts in floats; times that agree to six digits are the same.
        bound = best.time_s if proved >= best.time_s * (1 - 1e-6) else proved
    return best, bound


def _beam(steps: Steps) -> list[NDArray[np.bool_]]:
    """Go forward step by step, and keep the sets of planes that end first."""
    k = steps.planes
    begin: Any = (0.0, tuple((held, 0.0) for held in steps.held.tolist()), ())
    states = [begin]  # time, configuration and end of each plane, planes of each step so far
    for wanted, work, ready in zip(
        steps.configuration.tolist(), steps.work_s.tolist(), steps.ready_s.tolist(), strict=True
    ):
        after: dict[Any, tuple[float, Any]] = {}
        for now, planes, used in states:
            there = [
                max(now, ready, free + (0.0 if held in (wanted, -2) else steps.delay_s))
                + steps.alpha_s
                for held, free in planes
            ]
            for chosen in _subsets(sorted(range(k), key=there.__getitem__), planes):
                total = work
                for count in range(1, len(chosen) + 1):  # planes that come too late stay out
                    total += there[chosen[count - 1]]
                    level = total / count
                    if count == len(chosen) or level <= there[chosen[count]]:
                        break
                state = list(planes)
                for plane in chosen[:count]:
                    state[plane] = wanted, level
                key = count, tuple(sorted(held for held, _ in state))
                rank = level + sum(free for _, free in state) / k
                if key not in after or rank < after[key][0]:
                    after[key] = rank, (level, tuple(state), (*used, chosen[:count]))
        states = [state for _, state in sorted(after.values(), key=lambda each: each[0])[:BEAM]]
    found = [np.ones((len(steps.work_s), k), dtype=np.bool_)]
    for _, _, used in sorted(states)[:8]:
        found.append(np.array([np.isin(np.arange(k), planes) for planes in used]).reshape(-1, k))
    return found


def _subsets(order: list[int], planes: Any) -> list[tuple[int, ...]]:
    """List sets of planes to use, those that are there first; of equal planes the first ones."""
    k = len(order)
    if k > MANY:
        return [tuple(order[: 1 << high]) for high in range(k.bit_length() + 1)]
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


def _improve(steps: Steps, best: Shares, clock: Clock, tries: int) -> Shares:
    """Let single planes leave or join steps while that helps, with so many tries."""
    better = True
    while better and clock.exceeded(1) is None:
        better = False
        for number, plane in np.ndindex(best.share_s.shape):
            used = best.share_s > 0
            used[number, plane] ^= True
            if not used[number].any() or tries <= 0 or clock.exceeded(1) is not None:
                continue
            tries -= 1
            found = _balance(steps, used)
            if found.time_s < best.time_s * (1 - 1e-9):
                best, better = found, True
    return best


def _balance(steps: Steps, used: NDArray[np.bool_]) -> Shares:
    """Find the best shares of the planes that take part, by a linear programme."""
    amounts = used.astype(np.float64)  # even, should sizes be too far apart for the programme
    unit_s = float((steps.work_s + steps.alpha_s).sum())
    few = 0 < used.size**2 <= EFFORT
    solved = _programme(steps, used, unit_s) if few else None
    if solved is not None and solved.x is not None:
        parts = int(used.sum())
        amounts[used] = np.maximum(solved.x[2 * parts : 3 * parts], 0.0)
    amounts[amounts < 1e-9 * amounts.max(axis=1, keepdims=True)] = 0.0
    amounts[amounts.sum(axis=1) == 0] = used[amounts.sum(axis=1) == 0]
    amounts *= (steps.work_s / amounts.sum(axis=1))[:, None]
    return _time(steps, amounts)


def _search(steps: Steps, best: Shares, clock: Clock) -> tuple[float, NDArray[np.bool_]]:
    """Prove a bound by a mixed-integer programme; return it, and the planes of its answer."""
    unit_s, known = best.time_s or 1.0, best.share_s > 0
    if (steps.work_s < 1e-3 * unit_s).any():
        return 0.0, known  # too small beside the rest for the tolerances of the search
    everyone = np.ones_like(known)
    solved = _programme(steps, everyone, unit_s, remaining_s=clock.remaining_s)
    if solved.status == 2:  # nothing is better than what was found before
        return best.time_s, known
    bound = max(float(solved.mip_dual_bound or 0.0), 0.0) * unit_s
    return bound, known if solved.x is None else (solved.x[: known.size] > 0.5).reshape(
        known.shape
    )


def _programme(
    steps: Steps, used: NDArray[np.bool_], unit_s: float, remaining_s: float | None = None
) -> Any:
    """Minimise the end of the last step; columns are uses, starts and shares, then ends of steps.

    `used` says which planes take part in which steps; times are in units of `unit_s`. With
    `remaining_s` planes may also not take part, and nothing may last longer than `unit_s`.
    """
    with uncounted():
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

    chosen = remaining_s is not None
    parts, count = int(used.sum()), len(used)
    at = np.full(used.shape, -1)
    at[used] = np.arange(parts)
    of_step = np.nonzero(used)[0]
    work, alpha, delay = steps.work_s / unit_s, steps.alpha_s / unit_s, steps.delay_s / unit_s
    start, amount, end = parts, 2 * parts, 3 * parts
    rows: list[tuple[int, int, float]] = []
    least: list[float] = []

    def at_least(limit: float, *terms: tuple[int, float]) -> None:
        rows.extend((len(least), column, factor) for column, factor in terms)
        least.append(limit)

    low, high = np.zeros(end + count), np.full(end + count, 1.0 + 1e-9 if chosen else np.inf)
    low[end:] = steps.ready_s / unit_s
    low[:parts], high[:parts] = not chosen, 1.0
    for i, planes in enumerate(at):
        at_least(float(work[i]), *((amount + p, 1.0) for p in planes[planes >= 0].tolist()))
    both = 1.0 + delay
    for p, (i, j) in enumerate(np.argwhere(used).tolist()):
        low[start + p] = steps.ready_s[i] / unit_s
        at_least(0.0, (p, float(work[i])), (amount + p, -1.0))
        at_least(0.0, (end + i, 1.0), (start + p, -1.0), (amount + p, -1.0), (p, -alpha))
        if i:
            at_least(0.0, (start + p, 1.0), (end + i - 1, -1.0))
        earlier = [q for q in at[:i, j].tolist() if q >= 0]
        first = _first_s(steps, i, j) / unit_s
        at_least(0.0, (start + p, 1.0), (p, -first), *((q, first) for q in earlier))
        for k in range(0 if chosen else max(0, len(earlier) - 1), len(earlier)):
            q = earlier[k]
            if steps.configuration[of_step[q]] != steps.configuration[i]:
                # Step p starts a delay after the end of q, if a plane does both and none between.
                between = ((other, both) for other in earlier[k + 1 :])
                ended = (start + p, 1.0), (start + q, -1.0), (amount + q, -1.0), (q, -alpha - both)
                at_least(delay - 2 * both, *ended, (p, -both), *between)
    row, column, factor = zip(*rows, strict=True)
    table = csr_array((factor, (row, column)), shape=(len(least), len(low)))
    options: dict[str, Any] = {"mip_rel_gap": 0.0, "node_limit": 5_000} if chosen else {}
    if remaining_s is not None and np.isfinite(remaining_s):
        options["time_limit"] = max(remaining_s, 0.01)
    goal, whole = np.zeros(len(low)), np.zeros(len(low))
    goal[-1], whole[:parts] = 1.0, chosen
    return milp(
        goal,
        constraints=LinearConstraint(table, lb=np.array(least)),
        integrality=whole,
        bounds=Bounds(low, high),
        options=options,
    )


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
