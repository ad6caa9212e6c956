"""From a plan to what ends first: slots on planes, and circuits that stay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.problems import Demand
from optmatch.solvers.demands.plans import Plan


def spread(plan: Plan, problem: Demand) -> list[Plan]:
    """Give each slot to a plane, and split slots until all planes end about the same time.

    Together the plans serve the same.
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


def order_slots(matchings: NDArray[np.int32]) -> NDArray[np.int64]:
    """Order matchings so that few circuits change in between: each next to its nearest."""
    slots = len(matchings)
    if slots < 3:
        return np.arange(slots)
    stays = np.zeros((slots, slots), dtype=np.int64)
    for k in range(slots):
        stays[k] = ((matchings == matchings[k]) & (matchings != IDLE)).sum(axis=1)
    np.fill_diagonal(stays, 0)
    order = [int(stays.sum(axis=1).argmin())]
    free = np.ones(slots, dtype=bool)
    free[order[0]] = False
    while len(order) < slots:
        order.append(int(np.where(free, stays[order[-1]], -1).argmax()))
        free[order[-1]] = False
    return np.array(order)


def keep_circuits(plan: Plan, problem: Demand) -> Plan:
    """Order the slots, and shorten each by what its circuits carry during delays."""
    order = order_slots(plan.matchings)
    matchings, ticks = plan.matchings[order], plan.ticks[order].copy()
    if not len(ticks):
        return plan
    demand, ports = problem.ticks, np.arange(problem.fabric.n_ports)
    served = np.zeros_like(demand)
    for slot, matching in enumerate(matchings):
        used = matching != IDLE
        gained = np.full(len(ports), ticks[slot])
        if slot:
            gained += np.where(matching == matchings[slot - 1], problem.delay_ticks, 0)
        served[ports[used], matching[used]] += gained[used]
    for slot in np.argsort(ticks, kind="stable"):
        used = ports[matchings[slot] != IDLE]
        far = matchings[slot][used]
        slack = int((served[used, far] - demand[used, far]).min(initial=ticks[slot]))
        slack = max(0, min(slack, int(ticks[slot]) - problem.min_slot_ticks))
        ticks[slot] -= slack
        served[used, far] -= slack
    return Plan(matchings, ticks)
