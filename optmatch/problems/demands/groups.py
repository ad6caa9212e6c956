"""Groups of entries that count when the last of them is served: coflows, with weights, deadlines.

A line serves one entry at a time, each in another slot. So before a set of groups is complete, the
busiest line for it has had its time, and another one, perhaps, most slots, each after a delay.
Every two lines are so a machine that serves groups one by one: a concurrent open shop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError

EXACT = 12
"""Of so many groups the best order of the relaxation is found; of more that of so many."""

Grouped = Any
"""A `Demand` whose groups count: its module imports this one."""


def check_groups(problem: Grouped) -> None:
    """Check that groups are given where they are asked for, and cover the demand."""
    groups = problem.groups
    if problem.objective != "weighted-completion-s":
        if groups is not None or problem.weights or problem.deadlines_s:
            raise InputError(
                "groups, weights and deadlines_s are for objective weighted-completion-s",
                where="objective",
            )
        return
    if groups is None or groups.shape != problem.demand_bytes.shape:
        raise InputError("groups: a group for each entry of demand_bytes", where="groups")
    if (
        problem.planes > 1
        or problem.packet_bytes_per_s > 0
        or problem.switching != "all-stop"
        or problem.fabric.bidirectional
    ):
        raise InputError(
            "objective weighted-completion-s is for all-stop circuits from inputs to outputs, on"
            " one plane, without packet network",
            where="objective",
        )
    for i, j in np.argwhere((problem.demand_bytes > 0) & (groups < 0))[:1]:
        raise InputError(
            f"groups[{i}, {j}] = -1: the entry of demand_bytes has no group",
            where=f"groups[{i}, {j}]",
        )
    count = int(groups.max(initial=-1)) + 1
    if count > groups.size:
        raise InputError(f"groups: number {count - 1} of {groups.size} entries", where="groups")
    for name in ("weights", "deadlines_s"):
        if len(getattr(problem, name)) not in (0, count):
            raise InputError(
                f"{name} has {len(getattr(problem, name))} entries, there are {count} groups",
                where=name,
            )


def weigh_groups(problem: Grouped) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weight and deadline in seconds of each group."""
    count = int(problem.groups.max(initial=-1)) + 1
    return (
        np.array(problem.weights or (1.0,) * count),
        np.array(problem.deadlines_s or (0.0,) * count),
    )


def load_lines(problem: Grouped) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ``served[group, line]`` and ``delayed[group, line]``, in ticks, for what groups ask.

    Lines are sources, then destinations.
    """
    n, groups = problem.fabric.n_ports, len(weigh_groups(problem)[0])
    served, delayed = np.zeros((2, groups, 2 * n), dtype=np.int64)
    rows, columns = np.nonzero(problem.ticks)
    for lines in (rows, n + columns):
        place = problem.groups[rows, columns], lines
        np.add.at(served, place, problem.ticks[rows, columns])
        np.add.at(delayed, place, problem.delay_ticks)
    return served, delayed


def bound_groups(problem: Grouped) -> float:
    """Bound the weighted completion by what `order_groups` earns."""
    weights, deadlines_s = weigh_groups(problem)
    served, delayed = load_lines(problem)
    earned = order_groups(served, delayed, weights, deadlines_s / problem.tick_s)[1]
    return earned * float(problem.tick_s)


def order_groups(
    served: NDArray[np.int64],
    delayed: NDArray[np.int64],
    weights: NDArray[np.float64],
    due: NDArray[np.float64],
) -> tuple[list[int], float]:
    """Order groups for the concurrent open shop, and return what no order of them undercuts.

    While there are more than `EXACT` groups, the last one is that which weighs least for its time
    on the busiest machine; the others pay for that machine by their weights [1]_. What they earn
    so is a bound. It does without the payment where the last group, alone and late, costs more.
    The others are put in the best order for what is left of their weights, by sets of groups.

    References
    ----------
    .. [1] Mastrolilli, Queyranne, Schulz, Svensson and Uhan (2010), Minimizing the sum of weighted
       completion times in a concurrent open shop, doi 10.1016/j.orl.2010.04.011.
    """
    left, earned = weights.astype(np.float64), 0.0
    waiting, last = np.arange(len(weights)), list[int]()
    while len(waiting) > EXACT:
        busiest = served[waiting].sum(axis=0).argmax(), delayed[waiting].sum(axis=0).argmax()
        times = served[waiting, busiest[0]] + delayed[waiting, busiest[1]]
        unpaid = np.full(len(waiting), np.inf)
        prices = np.divide(left[waiting], times, out=unpaid, where=times > 0)
        place = int(prices.argmin())
        group, price = waiting[place], prices[place] if times.any() else 0.0
        paid = price * ((times.sum() ** 2 + (times**2).sum()) / 2 - times @ due[waiting])
        alone = left[group] * max(0.0, served[group].max() + delayed[group].max() - due[group])
        if paid >= alone:
            left[waiting] = np.maximum(left[waiting] - price * times, 0.0)
        earned += float(max(paid, alone))
        last.append(int(group))
        waiting = np.delete(waiting, place)
    first, cost = _order_exactly(served[waiting], delayed[waiting], left[waiting], due[waiting])
    return [*waiting[first].tolist(), *last[::-1]], earned + cost


def _order_exactly(
    served: NDArray[np.int64],
    delayed: NDArray[np.int64],
    weights: NDArray[np.float64],
    due: NDArray[np.float64],
) -> tuple[list[int], float]:
    """Find the best order of few groups, and its cost, from that of each set of them.

    Bits of a number are a set.
    """
    count = len(weights)
    busy, late = np.zeros((2, 1 << count))
    for table, most in ((served, busy), (delayed, late)):
        for line in table.T:
            sums = np.zeros(1)
            for part in line:
                sums = np.concatenate([sums, sums + part])
            np.maximum(most, sums, out=most)
    sets = np.arange(1 << count)
    cost = weights[:, None] * np.maximum(busy + late - due[:, None], 0.0)  # of a last group
    least, lasts = np.full(len(sets), np.inf), np.zeros(len(sets), dtype=np.int64)
    least[0] = 0.0
    for _ in range(count):  # as often, sets of one more group have their final values
        for group in range(count):
            (whole,) = np.nonzero(sets >> group & 1)
            found = least[whole ^ (1 << group)] + cost[group, whole]
            better = found < least[whole]
            least[whole[better]], lasts[whole[better]] = found[better], group
    order, left = list[int](), len(sets) - 1
    while left:
        order.append(int(lasts[left]))
        left ^= 1 << order[-1]
    return order[::-1], float(least[-1])
