"""Pairs that have no route in their slots: further slots for them."""

from __future__ import annotations

import numpy as np

from optmatch.model import IDLE, Limits, SolverError, ignore
from optmatch.problems import Routing
from optmatch.solvers.all_to_all.planner import FAILED, Slot, SlotPlanner
from optmatch.solvers.routing.pathfinder import Effort


def place_leftovers(planner: SlotPlanner) -> None:
    """Take out of slots what could not be routed, and fill new slots with it."""
    plan, left = [], []
    for slot in planner.plan:
        if slot.excess < FAILED:
            plan.append(slot)
            continue
        destinations = planner.destinations(slot.partner)
        pairs = [(int(i), int(destinations[i])) for i in planner.sources(slot.partner)]
        packed, rest = _pack(planner, pairs)
        plan.append(packed)
        left += rest
    while left:
        packed, rest = _pack(planner, left)
        if len(rest) == len(left):
            packed, rest = _alone(planner, *left[0]), left[1:]
        plan.append(packed)
        left = rest
    planner.plan = plan


def _alone(planner: SlotPlanner, i: int, j: int) -> Slot:
    """Route a pair that is not dead, though its cheapest walks pass a link twice."""
    from optmatch.solvers.routing.branch_and_price import search

    matching = np.full(planner.n_ports, IDLE, dtype=np.int32)
    matching[i] = j
    if planner.bidirectional:
        matching[j] = i
    found = search(Routing(planner.problem.fabric, matching), Limits(), planner.rng, ignore)
    if found.schedule is None or found.schedule.cell_states is None:
        raise SolverError(f"ports {i, j} could not be connected even alone")
    routes, lengths = planner.router.follow(matching, found.schedule.cell_states[0])
    return planner.with_circuit(planner.empty_slot(), i, j, routes[i, : lengths[i]].tolist())


def _pack(
    planner: SlotPlanner, pairs: list[tuple[int, int]]
) -> tuple[Slot, list[tuple[int, int]]]:
    """Fill a slot with the pairs that find a route, one after the other; return the rest."""
    packed = planner.empty_slot()
    rest = []
    for i, j in pairs:
        far = j if planner.bidirectional else j + planner.n_ports
        wider = None
        if packed.partner[i] == packed.partner[far] == planner.idle_partner:
            tried = planner.with_circuit(packed, i, j, [])
            wider = planner.settle(tried.partner, tried.routes, tried.lengths, Effort())
        if wider is not None and wider.excess < FAILED:
            packed = wider
        else:
            rest.append((i, j))
    return packed, rest
