"""Groups of a demand: when each is complete, and what no schedule undercuts, counted anew."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, RTOL
from optmatch.problems import Demand

EXACT = 12
"""Of so many groups all orders are compared, set by set."""


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
    """Bound the cost by prices, and of the last `EXACT` groups by trying all orders.

    Groups are complete no sooner than all that one line has of them can be sent, after as many
    delays as another one has entries of them.
    """
    assert problem.groups is not None
    count, lines = int(problem.groups.max(initial=-1)) + 1, 2 * problem.fabric.n_ports
    sent, met = np.zeros((count, lines), dtype=np.int64), np.zeros((count, lines), dtype=np.int64)
    for source, destination in np.argwhere(problem.directed_ticks > 0).tolist():
        group = int(problem.groups[source, destination])
        for line in (source, problem.fabric.n_ports + destination):
            sent[group, line] += problem.directed_ticks[source, destination]
            met[group, line] += problem.delay_ticks
    due = [due_s / problem.tick_s for due_s in problem.deadlines_s] or [0.0] * count
    budgets, rest = list(problem.weights or (1.0,) * count), list(range(count))
    earned = 0.0
    while len(rest) > EXACT:
        sender = max(range(lines), key=lambda line: int(sent[rest, line].sum()))
        meeter = max(range(lines), key=lambda line: int(met[rest, line].sum()))
        times = {group: int(sent[group, sender] + met[group, meeter]) for group in rest}
        price, leaver = min(
            ((budgets[group] / time, group) for group, time in times.items() if time),
            default=(0.0, rest[0]),
        )
        # Of groups one by one, time times end adds up to half of the square of all their time and
        # the squares of their times, at least.
        squares = sum(times.values()) ** 2 + sum(time**2 for time in times.values())
        paid = price * (squares / 2 - math.fsum(times[group] * due[group] for group in rest))
        alone = int(sent[leaver].max() + met[leaver].max())
        alone_cost = budgets[leaver] * max(0.0, alone - due[leaver])
        if paid >= alone_cost:
            for group in rest:
                budgets[group] = max(0.0, budgets[group] - price * times[group])
        earned += max(paid, alone_cost)
        rest.remove(leaver)
    return (earned + _try_orders(sent[rest], met[rest], budgets, due, rest)) * problem.tick_s


def _try_orders(
    sent: NDArray[np.int64],
    met: NDArray[np.int64],
    budgets: list[float],
    due: list[float],
    groups: list[int],
) -> float:
    """Return the least cost of groups one after another, by sets of them and who is last."""
    costs, sent_of, met_of = [0.0], [np.zeros_like(sent.sum(0))], [np.zeros_like(met.sum(0))]
    for chosen in range(1, 1 << len(groups)):
        top = chosen.bit_length() - 1
        sent_of.append(sent_of[chosen - (1 << top)] + sent[top])
        met_of.append(met_of[chosen - (1 << top)] + met[top])
        end = int(sent_of[-1].max() + met_of[-1].max())
        costs.append(
            min(
                costs[chosen - (1 << k)] + budgets[group] * max(0.0, end - due[group])
                for k, group in enumerate(groups)
                if chosen >> k & 1
            )
        )
    return costs[-1]
