"""Exchanges of pairs among three slots at a time, until all routes are short."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Limit, NewBest, Tick
from optmatch.solvers.all_to_all.factors import exchange
from optmatch.solvers.all_to_all.planner import FAILED, Slot, SlotPlanner
from optmatch.solvers.routing.pathfinder import UNIT, Effort

MOVES_PER_SLOT = 96
"""Exchanges to try without an iteration limit, for each slot."""

QUICK = Effort(rounds=24)
"""Most negotiations end within ten rounds, or never."""


def exchange_pairs(planner: SlotPlanner, tolerated: int = 0) -> Limit | None:
    """Exchange pairs among three slots at a time, until no slot has excess cells, or a limit."""
    slots, vertices = len(planner.plan), len(planner.plan[0].partner)
    if slots < 3:
        return Limit.EXHAUSTED if planner.excess else None
    wanted = planner.clock.limits.iterations
    most = MOVES_PER_SLOT * slots if wanted is None else wanted
    base = planner.problem.lower_bound()
    place = np.empty(vertices, dtype=np.int64)
    path = np.empty(vertices + 2, dtype=np.int64)
    three = np.arange(3)
    best = planner.excess
    move = 0
    while excessive := [k for k, slot in enumerate(planner.plan) if slot.excess > tolerated]:
        limit = planner.clock.exceeded(move)
        if limit is not None:
            return limit
        if move >= most:
            return Limit.EXHAUSTED
        move += 1
        if move % 64 == 0:
            planner.on_event(Tick("exchange", move, most))
        chosen = _three_slots(planner, excessive)
        old = np.stack([planner.plan[slot].partner for slot in chosen])
        new = np.empty_like(old)
        start = int(planner.rng.integers(vertices))
        if not exchange(old, three, start, planner.rng, new, place, path):
            continue
        if not _replace(planner, chosen, new):
            continue
        now = planner.excess
        if now < best:
            best = now
            if best < FAILED:
                planner.on_event(NewBest(base + best / UNIT))
    return None


def _three_slots(planner: SlotPlanner, excessive: list[int]) -> list[int]:
    """Pick a slot with excess cells and two others, in random order."""
    first = excessive[planner.rng.integers(len(excessive))]
    others = planner.rng.choice(len(planner.plan) - 1, size=2, replace=False)
    chosen = [first, *(int(k) + (k >= first) for k in others)]
    planner.rng.shuffle(chosen)
    return chosen


def _replace(planner: SlotPlanner, chosen: list[int], new: NDArray[np.int64]) -> bool:
    """Route three new factors, keeping circuits that stay; take them if no worse."""
    allowed = sum(planner.plan[slot].excess for slot in chosen)
    found: list[Slot] = []
    for slot, partner in zip(chosen, new, strict=True):
        old = planner.plan[slot]
        lengths = np.where(
            partner[: planner.n_ports] == old.partner[: planner.n_ports], old.lengths, 0
        )
        found.append(planner.settle(partner, old.routes.copy(), lengths, QUICK))
        allowed -= found[-1].excess
        if allowed < 0:
            return False
    plan = list(planner.plan)
    for slot, taken in zip(chosen, found, strict=True):
        plan[slot] = taken
    planner.plan = plan
    return True
