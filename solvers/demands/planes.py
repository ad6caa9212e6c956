"""Slots on several planes: longest first to the plane that is free first, then halves to equalise.

After the steps Schedule and Equalize of SPECTRA (Liang et al. 2026, arXiv:2603.07373).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Demand
from optmatch.solvers.demands.plans import Plan


def spread(plan: Plan, problem: Demand) -> list[Plan]:
    """Give each slot to a plane, and split slots until all planes end about the same time.

    Parameters
    ----------
    plan
        Slots that serve the demand on one plane.
    problem
        It states planes, delay and the shortest slot.

    Returns
    -------
    list of Plan
        One for each plane; together they serve the same.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> problem = Demand(IdealSwitch(2), [[9, 0], [0, 9]], delay_s=1.0, planes=2)
    >>> plan = Plan(np.array([[0, 1]], dtype=np.int32), np.array([9]))
    >>> [share.ticks.tolist() for share in spread(plan, problem)]
    [[5], [4]]
    """
    planes, delay = problem.planes, problem.delay_ticks
    if planes == 1:
        return [plan]
    slots: list[dict[int, int]] = [{} for _ in range(planes)]  # slot: ticks, for each plane
    ends = np.zeros(planes, dtype=np.int64)
    for slot in np.argsort(-plan.ticks, kind="stable").tolist():
        plane = int(ends.argmin())
        slots[plane][slot] = int(plan.ticks[slot])
        ends[plane] += plan.ticks[slot] + delay
    for _ in range(64 * planes):  # each step halves a gap, so there are few that matter
        if not _equalise(slots, ends, delay, problem.min_slot_ticks):
            break
    shares = []
    for held in slots:
        order = np.array(list(held), dtype=np.int64)
        ticks = np.array([held[slot] for slot in held], dtype=np.int64)
        shares.append(Plan(plan.matchings[order], ticks))
    return shares


def _equalise(
    slots: list[dict[int, int]], ends: NDArray[np.int64], delay: int, shortest: int
) -> bool:
    """Move part of a slot from the plane that ends last to the one that ends first."""
    last, first = int(ends.argmax()), int(ends.argmin())
    gap = int(ends[last] - ends[first])
    best, moved, chosen = 0, 0, -1
    for slot, ticks in slots[last].items():
        extra = 0 if slot in slots[first] else delay  # the same matching needs no second delay
        part = (gap - extra) // 2
        if part >= shortest and ticks - part >= shortest and part > best:
            best, moved, chosen = part, part, slot
        elif ticks <= part + delay and ticks + extra < gap and ticks > best:
            best, moved, chosen = ticks, ticks, slot
    if chosen < 0:
        return False
    if moved == slots[last][chosen]:
        del slots[last][chosen]
        ends[last] -= delay
    else:
        slots[last][chosen] -= moved
    if chosen not in slots[first]:
        slots[first][chosen] = 0
        ends[first] += delay
    slots[first][chosen] += moved
    ends[last] -= moved
    ends[first] += moved
    return True
