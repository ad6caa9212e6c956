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
    """Write the driven states of cells before and after each place, and count the toggles.

    A cell that a slot leaves free keeps its state. ``last[place, cell]`` is the last driven state
    before a place, and ``following[place, cell]`` the first one from it on; -1 for none. Places
    are 0 to `count`: a slot may be put in before each slot, and after the last one.
    """
    cells = states.shape[1]
    toggles = 0
    for cell in range(cells):
        last[0, cell] = -1
        following[count, cell] = -1

    # Forward: a cell keeps the state that it was last driven to, until another one toggles it.
    for place in range(count):
        slot = order[place]
        for cell in range(cells):
            state = states[slot, cell]
            before = last[place, cell]
            if state >= 0 and before >= 0 and state != before:
                toggles += 1
            last[place + 1, cell] = state if state >= 0 else before

    # Backward: the state that each cell is driven to next.
    for place in range(count - 1, -1, -1):
        slot = order[place]
        for cell in range(cells):
            state = states[slot, cell]
            following[place, cell] = state if state >= 0 else following[place + 1, cell]
    return toggles


@kernel
def reinsert(states, order, victims, last, following):
    """Take slots out one by one and put each back where it costs the fewest toggles.

    `victims` are the slots that are taken out; ``order[place]`` is changed. Best insertion into
    `order`, O(slots * cells) for each slot; `last` and `following` are those of `neighbours` at
    the end. Returns the number of toggles.
    """
    slots, cells = states.shape
    for pick in range(len(victims)):
        slot = victims[pick]

        # Take the slot out of the order.
        present_place = 0
        while order[present_place] != slot:
            present_place += 1
        for place in range(present_place, slots - 1):
            order[place] = order[place + 1]

        # At each place it adds a toggle to its cells if the state before or after differs; if
        # those two differ from each other, one toggle was there already.
        neighbours(states, order, slots - 1, last, following)
        best = 1 << 60
        best_place = 0
        for place in range(slots):
            extra = 0
            for cell in range(cells):
                state = states[slot, cell]
                if state < 0:
                    continue

                # A toggle before and one behind; the one that was between both is saved.
                before = last[place, cell]
                after = following[place, cell]
                if before >= 0 and before != state:
                    extra += 1
                if after >= 0 and after != state:
                    extra += 1
                if before >= 0 and after >= 0 and before != after:
                    extra -= 1
            if extra < best:
                best = extra
                best_place = place

        # Put it back at the best place; all slots behind it move on by one.
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
        """Begin with the order in which the slots are given; `states` is not copied."""
        slots, cells = states.shape
        self.states = states
        self.order = np.arange(slots)
        self.last = np.empty((slots + 1, cells), dtype=np.int8)
        self.following = np.empty((slots + 1, cells), dtype=np.int8)

    def count(self) -> int:
        """Count the toggles of the present order, and write ``last`` and ``following`` anew."""
        return int(neighbours(self.states, self.order, len(self.order), self.last, self.following))

    def improve(self, rng: np.random.Generator, clock: Clock | None = None) -> int:
        """Search for an order with fewer toggles, by best insertion; return their number.

        A pass of insertions, in an order drawn by `rng`, costs O(slots^2 * cells); none is begun
        that would not end in the remaining time.
        """
        best = self.count()
        work = len(self.order) ** 2 * self.states.shape[1]
        while clock is None or clock.remaining_s > work / _WORK_PER_S:
            victims = rng.permutation(len(self.order))
            n_saved = int(reinsert(self.states, self.order, victims, self.last, self.following))
            if n_saved >= best:
                return n_saved
            best = n_saved
        return best

    def agreement(self, place: int, unit: int) -> NDArray[np.int64]:
        """Return ``cost[cell, state]``: `unit` for each toggle more than if the cell stays dark.

        A slot at this place is about to be routed anew. A cell that it drives to a state toggles
        if the cell had another state before, and again if it has another state later. A cell that
        it leaves dark toggles once if the states before and later differ. `count` must have been
        called since the last change of states or order.
        """
        before = self.last[place]
        after = self.following[place + 1]
        if_dark = ((before != after) & (before != FREE) & (after != FREE)).astype(np.int64)
        added = np.empty((len(before), 2), dtype=np.int64)
        for state in (0, 1):
            toggles_before = (before != FREE) & (before != state)
            toggles_after = (after != FREE) & (after != state)
            if_driven = toggles_before.astype(np.int64) + toggles_after
            added[:, state] = if_driven - if_dark
        return added * unit


def lower_toggles(planner: SlotPlanner, sequence: Sequence) -> int:
    """Order the slots for few toggles, and choose among routes of the same length for that order.

    ``planner.plan`` receives the new routes. Returns the toggles after the slots were ordered,
    before routes changed.
    """
    planner.on_event(Tick("order", 0))
    clock = planner.clock
    ordered = sequence.improve(planner.rng, clock)

    # New routes may make another order better, and that other routes: three rounds at most.
    for _ in range(3):
        before = sequence.count()
        _reroute_for_fewer_toggles(planner, sequence)
        if sequence.improve(planner.rng, clock) >= before:
            break
    return ordered


def _reroute_for_fewer_toggles(planner: SlotPlanner, sequence: Sequence) -> None:
    """Reroute each slot in turn, in the order of the sequence, so that fewer cells toggle.

    Changes the routes in ``planner.plan`` and the rows of ``sequence.states``, both by slot.
    Routes stay as short as they are: among ways of the same number of cells those are taken whose
    cells are already in the state that they have in the slots before and after. A slot is only
    changed if the whole sequence then has fewer toggles.
    """
    # All toggles of a route together cost less than a cell.
    cell_cost = planner.router.wiring.cell_cost
    toggle_cost = UNIT // (4 * planner.router.width)
    n_toggles = sequence.count()
    for place in range(len(sequence.order)):
        if planner.clock.remaining_s <= 0:
            return

        # Shorten the routes of this slot at the price of the toggles that each state would add.
        index = int(sequence.order[place])
        slot = planner.plan[index]
        routes = slot.routes.copy()
        lengths = slot.lengths.copy()
        order = planner.sources(slot.partner)
        planner.router.shorten(
            order,
            planner.destinations(slot.partner),
            routes,
            lengths,
            cell_cost=cell_cost + sequence.agreement(place, toggle_cost),
        )

        # Keep them if that helps the sequence, or go back. Counting also brings the arrays up to
        # date that `agreement` reads for the next slot.
        former_states = sequence.states[index].copy()
        sequence.states[index] = planner.router.states(order, routes, lengths)
        new_n_toggles = sequence.count()
        if new_n_toggles < n_toggles:
            n_toggles = new_n_toggles
            planner.plan[index] = slot._replace(routes=routes, lengths=lengths)
        else:
            sequence.states[index] = former_states
            sequence.count()
