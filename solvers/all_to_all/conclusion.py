"""Makes a solution of a plan of slots: leftovers, toggles, bounds, and what is proved."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    IDLE,
    Limit,
    Limits,
    Schedule,
    Solution,
    SolverError,
    Status,
    Tick,
    ignore,
    uncounted,
)
from optmatch.problems import AllToAll, Routing, RoutingProof
from optmatch.solvers.all_to_all import factors as combinatorics
from optmatch.solvers.all_to_all.packing import fill_up, keep_routable, pack_slots
from optmatch.solvers.all_to_all.planner import FAILED, RoutedSlot, SlotPlanner
from optmatch.solvers.all_to_all.slot_bound import bound_slots
from optmatch.solvers.all_to_all.toggles import Sequence, lower_toggles
from optmatch.solvers.routing.causes import refuse_dead_pairs
from optmatch.solvers.routing.negotiation import near_enough
from optmatch.solvers.routing.pathfinder import UNIT

FEWEST_SLOTS = "fewest_slots"
"""The statistic that says, of more slots than by counting, what is known about as many as that."""
OPEN = "neither routed nor refuted"
REFUTED_BY_PRICES = "refuted by link prices"
REFUTED_BY_SEARCH = "refuted by exhaustive search"


def conclude(
    planner: SlotPlanner,
    limit: Limit | None,
    name: str,
    proved: tuple[float, RoutingProof | None] | None = None,
    *,
    polish: bool,
) -> Solution:
    """Turn the plan into a schedule: spill what did not fit, order the slots, count.

    A bound that `prove_bound` returned is not proved again; without `polish`, nothing is proved.
    """
    excess = planner.excess
    place_leftovers(planner)
    states = np.stack([planner.states(slot) for slot in planner.plan])
    slots = len(planner.plan)
    fewest = planner.problem.min_slots
    bound, proof = proved or (planner.problem.lower_bound(), None)
    if polish and proved is None and excess:
        bound, proof = prove_bound(planner, excess)
    sequence = Sequence(states)
    toggles = {"toggles_unordered": sequence.count()}
    if polish:
        toggles["toggles_ordered"] = lower_toggles(planner, sequence)
    toggles["toggles"] = sequence.count()
    matchings = np.stack([planner.matching(planner.plan[slot].partner) for slot in sequence.order])
    cells = sum(int(slot.lengths.sum()) for slot in planner.plan)
    refuted = bound == np.inf  # schedules in more slots may exist
    if slots > fewest:
        bound, proof = planner.problem.lower_bound(), proof if refuted else None
    why = REFUTED_BY_PRICES if refuted else OPEN
    optimal = slots == fewest and cells == bound
    return Solution(
        problem=planner.problem,
        schedule=all_slots(planner.problem, matchings, states[sequence.order]),
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        limit=None if optimal else (limit or Limit.EXHAUSTED),
        objective=float(cells),
        lower_bound=bound,
        method=name,
        certificate=proof,
        stats={
            "slots": slots,
            "slots_lower_bound": max(fewest, planner.slots_bound) if refuted else fewest,
            **({FEWEST_SLOTS: why} if slots > fewest else {}),
            "worst_route_cells": max(int(slot.lengths.max()) for slot in planner.plan),
            **toggles,
        },
    )


def prove_bound(planner: SlotPlanner, excess: int) -> tuple[float, RoutingProof | None]:
    """Bound the total in the fewest slots as far as prices do; infinite if they do not suffice.

    `excess` is that of the best plan: no bound is sought above its total, and none at all if the
    counted one is near enough for the limits.
    """
    with uncounted():
        from optmatch.solvers.all_to_all.joint_bound import bound_jointly  # loads OR-tools

    problem = planner.problem
    counted = problem.lower_bound()
    if excess >= FAILED and planner.clock.remaining_s > 0:
        slot_bound = bound_slots(problem, planner.router, planner.clock)
        if slot_bound is not None:
            planner.slots_bound = slot_bound.slots
            return np.inf, slot_bound.proof
    near = near_enough(counted + excess / UNIT, counted, planner.clock.limits.gap)
    if not excess or near or planner.clock.remaining_s <= 0:
        return counted, None
    planner.on_event(Tick("bound", 0))
    wanted = counted + excess / UNIT if excess < FAILED else np.inf
    return bound_jointly(problem, planner.router, wanted, planner.clock)


def answer_at_once(problem: AllToAll, name: str) -> Solution | None:
    """Answer at once if no routes are needed: dead pairs, a single port, no cells."""
    fabric = problem.fabric
    refused = refuse_dead_pairs(problem, fabric.dead_pairs(), name)
    if refused is not None:
        return refused
    if fabric.graph is not None and fabric.n_ports > 1:
        return None
    found = combinatorics.tournament(fabric.n_ports, fabric.bidirectional)[: problem.min_slots]
    matchings = combinatorics.matchings(found, fabric.n_ports, fabric.bidirectional)
    return without_routes(problem, matchings, name)


def without_routes(problem: AllToAll, matchings: NDArray[np.int32], name: str) -> Solution:
    """Make the solution of matchings that need no cells; of no matchings, if there are cells."""
    fabric = problem.fabric
    states = None if fabric.graph is None else np.zeros((0, fabric.n_cells), dtype=np.int8)
    return Solution(
        problem=problem,
        schedule=all_slots(problem, matchings, states),
        status=Status.OPTIMAL,
        objective=0.0,
        lower_bound=0.0,
        method=name,
        stats={"slots": len(matchings), "slots_lower_bound": problem.min_slots},
    )


def all_slots(
    problem: AllToAll, matchings: NDArray[np.int32], states: NDArray[np.int8] | None
) -> Schedule:
    """Make the schedule of an all-to-all from its matchings and cell states."""
    return Schedule(
        matchings=matchings.reshape(-1, problem.fabric.n_ports),
        durations_s=np.full(len(matchings), problem.slot_s),
        delay_s=0.0 if isinstance(problem.delay_s, str) else problem.delay_s,
        cell_states=states,
    )


def place_leftovers(planner: SlotPlanner) -> None:
    """Take circuits without a route out of slots, and put them into gaps and further slots.

    Each step is a search past the circuits that are there, without rip-up, so that the time after
    a limit stays short.
    """
    if all(slot.excess < FAILED for slot in planner.plan):
        return
    plan = []
    leftovers = []
    for slot in planner.plan:
        if slot.excess >= FAILED:
            slot, left_out = keep_routable(planner, slot)
            leftovers.append(left_out)
        plan.append(slot)
    left = np.concatenate(leftovers)

    # Circuits that were taken out leave gaps, which others may fill.
    for k, slot in enumerate(plan):
        if not len(left):
            break
        plan[k], left = fill_up(planner, slot, left)

    # Without a limit: the leftovers have to get a slot even after the time is up.
    clock = planner.clock
    planner.clock = Limits().start()
    further = pack_slots(planner, left, insists=False) if len(left) else []
    if further is None:
        further = [_alone(planner, source, destination) for source, destination in left.tolist()]
    planner.clock = clock
    planner.plan = plan + further


def _alone(planner: SlotPlanner, i: int, j: int) -> RoutedSlot:
    """Route a pair that is not dead, though its cheapest walks pass a link twice."""
    with uncounted():
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
