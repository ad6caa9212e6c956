"""Lower bounds of demands: of each line alone, and of all ports together."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

Asked = Any
"""A `Demand`: its module imports this one."""


def bound_lines(problem: Asked) -> NDArray[np.float64]:
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
    ticks: NDArray[np.int64], problem: Asked
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how long each row, then each column, is held at least, and its partners."""
    held = ticks
    if problem.min_slot_ticks > 1:
        held = np.where(ticks > 0, np.maximum(ticks, problem.min_slot_ticks), 0)
    sums = [held.sum(axis=axis) for axis in (1, 0)]
    return np.concatenate(sums), np.concatenate(
        [np.count_nonzero(ticks, axis=axis) for axis in (1, 0)]
    )


def bound_together(problem: Asked) -> float:
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


def _with_packets(entries: NDArray[np.int64], problem: Asked) -> float:
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
