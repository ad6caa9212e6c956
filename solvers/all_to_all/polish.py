"""Few toggles: the slots in a good order, with routes that agree with the slots beside them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Tick
from optmatch.solvers.all_to_all.planner import SlotPlanner
from optmatch.solvers.all_to_all.toggles import Sequence
from optmatch.solvers.routing.pathfinder import UNIT


def lower_toggles(planner: SlotPlanner, sequence: Sequence) -> int:
    """Order the slots for few toggles, and let routes of the same length agree with that order.

    Parameters
    ----------
    planner
        Its routes change, but not their lengths.
    sequence
        The slots of the plan; its order and its states change.

    Returns
    -------
    int
        The toggles after the slots were ordered, before routes changed.
    """
    planner.on_event(Tick("order", 0))
    ordered = sequence.improve(planner.rng, kicks=_kicks(sequence.states))
    for _ in range(3):
        before = sequence.count()
        _agree(planner, sequence)
        if sequence.improve(planner.rng, kicks=0) >= before:
            break
    return ordered


def _kicks(states: NDArray[np.int8]) -> int:
    """As many disturbances as cost about half a second, whatever the size."""
    slots, cells = states.shape
    return int(min(200, 2e8 // (5 * slots * slots * cells)))


def _agree(planner: SlotPlanner, sequence: Sequence) -> None:
    """Route the slots again, as short, but agreeing with the states before and after."""
    flat = planner.router.wiring.cell_cost
    unit = UNIT // (4 * planner.router.width)  # all toggles of a route weigh less than a cell
    cost = sequence.count()
    for place in range(len(sequence.order)):
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
