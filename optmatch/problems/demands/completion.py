"""When the demand is complete, and how long each pair has had a circuit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Schedule
from optmatch.problems.demands.problem import Demand


def held_ticks(problem: Demand, schedule: Schedule) -> NDArray[np.int64]:
    """Add up how long each pair has a circuit that can send, in ticks.

    With per-circuit switching, a circuit that was in the matching before sends during the delay.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> problem = Demand(IdealSwitch(2), [[0, 3], [2, 0]], delay_s=1.0)
    >>> held_ticks(problem, problem.schedule([[1, 0]], [3])).tolist()
    [[0, 3], [3, 0]]
    """
    n_ports = problem.fabric.n_ports
    held = np.zeros((n_ports, n_ports), dtype=np.int64)
    durations = np.rint(schedule.durations_s / problem.tick_s).astype(np.int64)
    before = np.full(n_ports, IDLE, dtype=np.int32)
    for matching, duration in zip(schedule.matchings, durations.tolist(), strict=True):
        (sources,) = np.nonzero(matching != IDLE)
        held[sources, matching[sources]] += duration
        if problem.switching == "per-circuit":
            stayed = sources[matching[sources] == before[sources]]
            held[stayed, matching[stayed]] += problem.delay_ticks
        before = matching
    return held


def completion_s(problem: Demand, schedules: Sequence[Schedule]) -> float:
    """Find when the demand is complete: the last slot has ended, and the packet network too.

    Parameters
    ----------
    problem
        The question.
    schedules
        One for each plane.

    Returns
    -------
    float
        In seconds; infinite if something is left and no packet network takes it.
    """
    held = sum(
        (held_ticks(problem, schedule) for schedule in schedules),
        start=np.zeros_like(problem.directed_ticks),
    )
    left = np.maximum(problem.directed_ticks - held, 0)
    most = max(int(left.sum(axis=0).max()), int(left.sum(axis=1).max()))
    ends = [
        int(np.rint(schedule.durations_s / problem.tick_s).sum())
        + problem.delay_ticks * schedule.n_slots
        for schedule in schedules
    ]
    if most and not problem.packet_share:
        return float("inf")
    return max(0.0, *ends, most / problem.packet_share if most else 0.0) * problem.tick_s
