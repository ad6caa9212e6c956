"""Groups of a demand: when each is complete, and what no schedule undercuts, counted anew."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, RTOL
from optmatch.problems import Demand


def end_groups(
    problem: Demand, matchings: NDArray[np.int32], ticks: NDArray[np.int64]
) -> list[float]:
    """Return when each group is complete, in ticks; infinite if something of it is left."""
    assert problem.groups is not None
    ends = [0.0] * (int(problem.groups.max(initial=-1)) + 1)
    left = problem.directed_ticks.copy()
    clock = 0
    for matching, length in zip(matchings.tolist(), ticks.tolist(), strict=True):
        clock += problem.delay_ticks
        for source, destination in enumerate(matching):
            if destination != IDLE and left[source, destination] > 0:
                needed = int(left[source, destination])
                left[source, destination] -= min(needed, length)
                if needed <= length:
                    group = int(problem.groups[source, destination])
                    ends[group] = max(ends[group], clock + needed)
        clock += length
    for source, destination in np.argwhere(left > 0):
        ends[int(problem.groups[source, destination])] = math.inf
    return ends


def weigh_ends(problem: Demand, ends: list[float]) -> float:
    """Add up what all groups cost, given their ends in ticks."""
    weights = problem.weights or (1.0,) * len(ends)
    due_s = problem.deadlines_s or (0.0,) * len(ends)
    return math.fsum(
        weight * max(0.0, end * problem.tick_s - due)
        for weight, end, due in zip(weights, ends, due_s, strict=True)
        if weight > 0
    )


def count_late(problem: Demand, ends: list[float]) -> int:
    """Count the groups that are complete after their deadlines, given their ends in ticks."""
    earliest_s = [end * problem.tick_s * (1 - RTOL) for end in ends]
    return sum(end > due for end, due in zip(earliest_s, problem.deadlines_s, strict=True))


def bound_weighted(problem: Demand) -> float:
    """Bound the cost by each group alone, and by prices of lines."""
    assert problem.groups is not None
    groups = range(int(problem.groups.max(initial=-1)) + 1)
    jobs: list[dict[int, int]] = [{} for _ in range(2 * problem.fabric.n_ports)]
    for source, destination in np.argwhere(problem.directed_ticks > 0).tolist():
        group = int(problem.groups[source, destination])
        busy = int(problem.directed_ticks[source, destination]) + problem.delay_ticks
        for line in (jobs[source], jobs[problem.fabric.n_ports + destination]):
            line[group] = line.get(group, 0) + busy
    weights = problem.weights or (1.0,) * len(groups)
    alone = [float(max(line.get(group, 0) for line in jobs)) for group in groups]
    due = math.fsum(w * d for w, d in zip(weights, problem.deadlines_s, strict=False))  # or none
    return max(weigh_ends(problem, alone), _earn(jobs, list(weights)) * problem.tick_s - due)


def _earn(jobs: list[dict[int, int]], budgets: list[float]) -> float:
    """Raise the price of the busiest line until a group cannot pay more, which then leaves it.

    Among groups that a line serves one by one, the sum of time times end is at least half of the
    square of all their time and the squares of their times; so what is paid is a bound.
    """
    earned, lines = 0.0, [dict(line) for line in jobs]
    while any(lines):
        busiest = max(lines, key=lambda line: sum(line.values()))
        price, leaver = min((budgets[group] / time, group) for group, time in busiest.items())
        total = sum(busiest.values())
        earned += price * (total**2 + sum(time**2 for time in busiest.values())) / 2
        for group, time in busiest.items():
            budgets[group] = max(0.0, budgets[group] - price * time)
        for line in lines:
            line.pop(leaver, None)
    return earned
