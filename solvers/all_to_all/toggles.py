"""Toggles: an order of the slots in which few cells change their state, and routes to suit it.

A cell without light keeps the state it had, so what counts is how often the sequence of its driven
states changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import FREE, Clock, Tick
from optmatch.solvers.all_to_all.planner import SlotPlanner
from optmatch.solvers.kernels.decorators import kernel
from optmatch.solvers.routing.pathfinder import UNIT

_WORK_PER_S = 10**9
"""Slots squared times cells, of which a pass over the order does so many in a second."""


@kernel
def neighbours(states, order, count, last, following):
    """Write for each place the state each cell was driven to before it, and will be from it on.

    ``last[place, cell]`` and ``following[place, cell]`` for place 0 .. count (a slot may go in at
    each), -1 for never. Returns the number of toggles.
    """
    cells = states.shape[1]
    toggles = 0
    for cell in range(cells):
        last[0, cell] = -1
        following[count, cell] = -1
    for place in range(count):
        slot = order[place]
        for cell in range(cells):
            state = states[slot, cell]
            before = last[place, cell]
            if state >= 0 and before >= 0 and state != before:
                toggles += 1
            last[place + 1, cell] = state if state >= 0 else before
    for place in range(count - 1, -1, -1):
        slot = order[place]
        for cell in range(cells):
            state = states[slot, cell]
            following[place, cell] = state if state >= 0 else following[place + 1, cell]
    return toggles


@kernel
def reinsert(states, order, victims, last, following):
    """Take slots out one by one and put each back where it costs the fewest toggles.

    Returns the number of toggles at the end.
    """
    slots, cells = states.shape
    for pick in range(len(victims)):
        slot = victims[pick]
        at = 0
        while order[at] != slot:
            at += 1
        for place in range(at, slots - 1):
            order[place] = order[place + 1]
        neighbours(states, order, slots - 1, last, following)
        best, best_place = 1 << 60, 0
        for place in range(slots):
            extra = 0
            for cell in range(cells):
                state = states[slot, cell]
                if state < 0:
                    continue
                before, after = last[place, cell], following[place, cell]
                if before >= 0 and before != state:
                    extra += 1
                if after >= 0 and after != state:
                    extra += 1
                if before >= 0 and after >= 0 and before != after:
                    extra -= 1
            if extra < best:
                best, best_place = extra, place
        for place in range(slots - 1, best_place, -1):
            order[place] = order[place - 1]
        order[best_place] = slot
    return neighbours(states, order, slots, last, following)


class Sequence:
    """Some slots and their cell states, and the best order found so far.

    Parameters
    ----------
    states
        ``states[slot, cell]``, int8: 0 bar, 1 cross, -1 free. Not copied: a caller that changes
        rows calls `count` again.
    """

    def __init__(self, states: NDArray[np.int8]) -> None:
        slots, cells = states.shape
        self.states = states
        self.order = np.arange(slots)
        self.last = np.empty((slots + 1, cells), dtype=np.int8)
        self.following = np.empty((slots + 1, cells), dtype=np.int8)

    def count(self) -> int:
        """Count the toggles of the present order."""
        return int(neighbours(self.states, self.order, len(self.order), self.last, self.following))

    def improve(self, rng: np.random.Generator, clock: Clock | None = None) -> int:
        """Search for an order with fewer toggles, by best insertion; return their number.

        Every step is exact; one pass of insertions, in an order drawn by `rng`, costs
        O(slots^2 * cells). No exchange is begun that would not end in the remaining time.
        """
        best = self.count()
        work = len(self.order) ** 2 * self.states.shape[1]
        while clock is None or clock.remaining_s > work / _WORK_PER_S:
            victims = rng.permutation(len(self.order))
            found = int(reinsert(self.states, self.order, victims, self.last, self.following))
            if found >= best:
                return found
            best = found
        return best

    def agreement(self, place: int, unit: int) -> NDArray[np.int64]:
        """``cost[cell, state]``: `unit` for each toggle that driving a cell there would add.

        `place` is that of the slot to be routed anew; `count` must be up to date.
        """
        before, after = self.last[place], self.following[place + 1]
        kept = ((before != after) & (before != FREE) & (after != FREE)).astype(np.int64)
        return np.stack(
            [
                ((before != FREE) & (before != state)).astype(np.int64)
                + ((after != FREE) & (after != state))
                - kept
                for state in (0, 1)
            ],
            axis=1,
        ) * np.int64(unit)


def lower_toggles(planner: SlotPlanner, sequence: Sequence) -> int:
    """Order the slots for few toggles, and let routes of the same length agree with that order.

    Routes keep their lengths. Returns the toggles after the slots were ordered, before routes
    changed.
    """
    planner.on_event(Tick("order", 0))
    clock = planner.clock
    ordered = sequence.improve(planner.rng, clock)
    for _ in range(3):
        before = sequence.count()
        _agree(planner, sequence)
        if sequence.improve(planner.rng, clock) >= before:
            break
    return ordered


def _agree(planner: SlotPlanner, sequence: Sequence) -> None:
    """Route the slots again, as short, but agreeing with the states before and after."""
    flat = planner.router.wiring.cell_cost
    unit = UNIT // (4 * planner.router.width)  # all toggles of a route weigh less than a cell
    cost = sequence.count()
    for place in range(len(sequence.order)):
        if planner.clock.remaining_s <= 0:
            return
        number = int(sequence.order[place])
        slot, old = planner.plan[number], sequence.states[number].copy()
        routes, lengths = slot.routes.copy(), slot.lengths.copy()
        order = planner.sources(slot.partner)
        planner.router.shorten(
            order,
            planner.destinations(slot.partner),
            routes,
            lengths,
            cell_cost=flat + sequence.agreement(place, unit),
        )
        sequence.states[number] = planner.router.states(order, routes, lengths)
        now = sequence.count()
        if now < cost:
            cost = now
            planner.plan[number] = slot._replace(routes=routes, lengths=lengths)
        else:
            sequence.states[number] = old
            sequence.count()
