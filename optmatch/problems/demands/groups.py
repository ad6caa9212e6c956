"""Groups of entries that count when the last of them is served: coflows, with weights, deadlines.

A line serves one entry at a time, and each after a delay. So a line is a machine, a group an order
of as many jobs as there are lines, and the relaxation is a concurrent open shop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError

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


def load_lines(problem: Grouped) -> NDArray[np.int64]:
    """``load[group, line]``: the ticks that a line is busy for a group, with its delays.

    Lines are sources, then destinations.
    """
    n = problem.fabric.n_ports
    loads = np.zeros((len(weigh_groups(problem)[0]), 2 * n), dtype=np.int64)
    rows, columns = np.nonzero(problem.ticks)
    busy = problem.ticks[rows, columns] + problem.delay_ticks
    for lines in (rows, n + columns):
        np.add.at(loads, (problem.groups[rows, columns], lines), busy)
    return loads


def bound_groups(problem: Grouped) -> float:
    """Bound the weighted completion by each group alone, and by what `order_groups` earns."""
    weights, deadlines_s = weigh_groups(problem)
    loads = load_lines(problem)
    alone_s = loads.max(axis=1, initial=0) * problem.tick_s
    earned_s = order_groups(loads, weights)[1] * float(problem.tick_s)
    late_s = np.maximum(alone_s - deadlines_s, 0)
    return max(float(weights @ late_s), earned_s - float(weights @ deadlines_s))


def order_groups(
    loads: NDArray[np.int64], weights: NDArray[np.float64]
) -> tuple[list[int], float]:
    """Order groups by the primal-dual rule, and return what the dual solution bounds.

    The last group is the one that weighs least for its time on the busiest line; the others pay
    for that line by their weights, and so on [1]_. In the concurrent open shop this order costs at
    most twice the best.

    References
    ----------
    .. [1] Mastrolilli, Queyranne, Schulz, Svensson and Uhan (2010), Minimizing the sum of weighted
       completion times in a concurrent open shop, doi 10.1016/j.orl.2010.04.011.

    Examples
    --------
    >>> order_groups(np.array([[4, 0], [1, 2]]), np.array([1.0, 1.0]))
    ([1, 0], 6.75)
    """
    left, paid = weights.astype(np.float64).copy(), 0.0
    waiting = np.ones(len(weights), dtype=np.bool_)
    order: list[int] = []
    while waiting.any():
        sums = loads[waiting].sum(axis=0)
        load = np.where(waiting, loads[:, sums.argmax()], 0).astype(np.float64)
        prices = np.divide(left, load, out=np.full(len(left), np.inf), where=load > 0)
        last = int(prices.argmin()) if load.any() else int(waiting.nonzero()[0][-1])
        if load.any():
            paid += float(prices[last] * (load.sum() ** 2 + (load**2).sum()) / 2)
            left = np.maximum(left - prices[last] * load, 0.0)
        waiting[last] = False
        order.append(last)
    return order[::-1], paid
