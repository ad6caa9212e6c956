"""Lower bounds of demands: of each line, of all ports together, and of groups of entries.

A line serves one entry at a time, each in another slot. So before a set of groups is complete, the
busiest line for it has had its time, and another one, perhaps, most slots, each after a delay.
Every two lines are so a machine that serves groups one by one: a concurrent open shop.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError

Displayed = Any
"""A `Demand`: its module imports this one."""


def bound_lines(problem: Displayed) -> NDArray[np.float64]:
    r"""Bound the objective by each line alone: rows by source, then columns by destination.

    A port that meets :math:`k` partners on :math:`s` planes spends :math:`\max(k, s)` delays, so
    the sum :math:`S` of its line takes at least :math:`(S + \max(k, s)\,\delta) / s`, in whole
    ticks. With a packet network of the relative rate :math:`r`, only the :math:`k` largest entries
    need circuits: then both :math:`(S + k \delta) / (s + r)` and what is left over :math:`r` are
    bounds, and the best :math:`k` counts. In the unit of the objective; float64, shape (2 ports,).
    """
    with_packets = problem.packet_share > 0
    ticks = problem.directed_ticks if with_packets else problem.ticks
    if with_packets and problem.objective != "matchings":
        bounds = [
            _with_packets(line[line > 0], problem) for part in (ticks, ticks.T) for line in part
        ]
        return np.asarray(np.array(bounds) * problem.tick_s, dtype=np.float64)
    held, partners = _of_lines(ticks, problem)
    if problem.objective == "matchings":
        return partners.astype(np.float64)
    meetings = np.where(partners > 0, np.maximum(partners, problem.planes), 0)
    needed = -(-(held + meetings * problem.delay_ticks) // problem.planes)  # rounded up
    return np.asarray(needed * problem.tick_s, dtype=np.float64)


def _of_lines(
    ticks: NDArray[np.int64], problem: Displayed
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how long each row, then each column, is held at least, and its partners."""
    held = ticks
    if problem.min_slot_ticks > 1:
        held = np.where(ticks > 0, np.maximum(ticks, problem.min_slot_ticks), 0)
    sums = [held.sum(axis=axis) for axis in (1, 0)]
    return np.concatenate(sums), np.concatenate(
        [np.count_nonzero(ticks, axis=axis) for axis in (1, 0)]
    )


def bound_together(problem: Displayed) -> float:
    r"""Bound the objective by all ports together: by how long circuits and how many slots last.

    Of all slots the durations add up to at least the sum of the busiest line, and there are as
    many as the partners of the line with most: where all circuits stop, each after a delay. Of
    :math:`n` bidirectional ports that want something at most :math:`k = \lfloor n / 2 \rfloor`
    pairs have circuits side by side. So :math:`m` pairs of :math:`T` ticks in all take at least
    :math:`\lceil T / k \rceil` ticks and :math:`\lceil m / k \rceil` slots; per circuit, where a
    pair holds its ports for a delay too, :math:`\lceil (T + m \delta) / k \rceil`. On :math:`s`
    planes it is a share of :math:`1 / s`. 0 beside packets.
    """
    ticks, delay = problem.ticks, problem.delay_ticks
    if problem.packet_share > 0 or not ticks.any():
        return 0.0
    sums, partners = _of_lines(ticks, problem)
    busy, slots, by_circuit = int(sums.max()), int(partners.max()), 0
    if problem.fabric.bidirectional:
        held = np.where(ticks > 0, np.maximum(ticks, problem.min_slot_ticks), 0)
        pairs = held[np.triu(held) > 0]
        side_by_side = int(np.count_nonzero(ticks.any(axis=0))) // 2
        busy = max(busy, -(-int(pairs.sum()) // side_by_side))
        slots = max(slots, -(-len(pairs) // side_by_side))
        by_circuit = -(-int(pairs.sum() + len(pairs) * delay) // side_by_side)
    if problem.objective == "matchings":
        return float(slots)
    needed = busy + slots * delay if problem.switching == "all-stop" else by_circuit
    return float(-(-needed // problem.planes) * problem.tick_s)


def _with_packets(entries: NDArray[np.int64], problem: Displayed) -> float:
    """Bound one line in ticks, over all numbers of partners that get circuits."""
    share, planes, delay = problem.packet_share, problem.planes, problem.delay_ticks
    total = int(entries.sum())
    left = total - np.concatenate([[0], np.cumsum(np.sort(entries)[::-1])])
    best = inf
    for partners, rest in enumerate(left.tolist()):
        by_circuits = min(
            (total + max(partners, used) * delay) / (used + share)
            for used in {min(partners, planes), planes if partners else 0}
        )
        best = min(best, max(by_circuits, rest / share))
    return best


EXACT = 12
"""The most groups whose best order in the relaxation is found; more groups are not all ordered."""

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
    """Order groups for the concurrent open shop, and return a bound for all orders.

    While there are more than `EXACT` groups, the last one is that which weighs least for its time
    on the busiest machine; the others pay for that machine by their weights [1]_. These payments
    are a bound. The bound does without the payment where the last group, alone and late, costs
    more. The other groups are put in the best order for the rest of their weights, by sets.

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
