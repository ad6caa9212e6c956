"""The line bound: no port can finish before it has met all its partners and sent it all."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from optmatch.problems.demands.problem import Demand


def bound_lines(problem: Demand) -> NDArray[np.float64]:
    r"""Bound the objective by each line alone.

    A port that meets :math:`k` partners on :math:`s` planes spends :math:`\max(k, s)` delays, so
    the sum :math:`S` of its line takes at least :math:`(S + \max(k, s)\,\delta) / s`, in whole
    ticks. With a packet network of the relative rate :math:`r`, only the :math:`k` largest entries
    need circuits: then both :math:`(S + k \delta) / (s + r)` and what is left over :math:`r` are
    bounds, and the best :math:`k` counts.

    Returns
    -------
    NDArray
        ``bounds[line]``, in the unit of the objective: rows by source, then columns by
        destination; float64, shape (2 ports,).
    """
    with_packets = problem.packet_share > 0
    ticks = problem.directed_ticks if with_packets else problem.ticks
    lines = np.concatenate([ticks, ticks.T])
    if problem.objective == "matchings":
        return np.asarray(np.count_nonzero(lines, axis=1), dtype=np.float64)
    if with_packets:
        bounds = [_with_packets(line[line > 0], problem) for line in lines]
        return np.array(bounds, dtype=np.float64) * problem.tick_s
    held = np.where(lines > 0, np.maximum(lines, problem.min_slot_ticks), 0).sum(axis=1)
    partners = np.count_nonzero(lines, axis=1)
    meetings = np.where(partners > 0, np.maximum(partners, problem.planes), 0)
    needed = -(-(held + meetings * problem.delay_ticks) // problem.planes)  # rounded up
    return np.asarray(needed * problem.tick_s, dtype=np.float64)


def _with_packets(entries: NDArray[np.int64], problem: Demand) -> float:
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
