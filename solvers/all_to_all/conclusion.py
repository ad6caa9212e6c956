"""Makes a solution of a plan of slots: leftovers, toggles, bounds, and what is proved.

The objective of an all-to-all is the number of cells on all routes of all slots. The *counted*
bound takes the shortest route of each pair; a plan exceeds it by its excess.

The *excess* of a slot is how many cells its routes pass beyond the shortest routes of its pairs,
counted in 1/`UNIT` of a cell; `FAILED` or more says that some pair has no route. Such pairs are
*leftovers*. *Link prices* prove that more slots are needed, a *shortage*, if the cheapest paths of
all pairs cost more than all links in all slots.
"""

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
from optmatch.problems import AllToAll, Routing
from optmatch.solvers.all_to_all.factors import matchings_of, tournament
from optmatch.solvers.all_to_all.packing import bound_slots, fill_up, keep_routable, pack_slots
from optmatch.solvers.all_to_all.planner import FAILED, RoutedSlot, SlotPlanner
from optmatch.solvers.all_to_all.slot_order import Sequence, lower_toggles
from optmatch.solvers.frame import near_enough
from optmatch.solvers.routing.causes import refuse_dead_pairs
from optmatch.solvers.routing.negotiation import ProvedBound
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
    proved: ProvedBound | None = None,
    *,
    polish: bool,
) -> Solution:
    """Turn the plan of a search into a solution: place leftovers, order slots, count cells.

    ``planner.plan`` is changed. `limit` is why the search ended, None if it ended by itself.
    `proved` is the result of `prove_bound`, None if it was not called before. Without `polish` no
    bound is proved, and slots and routes are not changed for few toggles.
    """
    # The bound on the cells of schedules in the fewest slots, with its proof. Without excess the
    # plan meets the counted bound; else a higher one is sought.
    problem = planner.problem
    excess = planner.excess
    place_leftovers(planner)
    if proved is not None:
        bound, proof = proved
    elif polish and excess:
        bound, proof = prove_bound(planner, excess)
    else:
        bound = problem.lower_bound()
        proof = None

    # The slots are put in an order of few toggles: ``sequence.order`` lists their numbers in it.
    sequence = Sequence(np.stack([planner.states(slot) for slot in planner.plan]))
    toggles = {"toggles_unordered": sequence.count()}
    if polish:
        toggles["toggles_ordered"] = lower_toggles(planner, sequence)
    toggles["toggles"] = sequence.count()
    matchings = np.stack([planner.matching(planner.plan[slot].partner) for slot in sequence.order])
    n_cells = sum(int(slot.lengths.sum()) for slot in planner.plan)

    # `bound` is about the fewest slots. It is infinite if it is proved that more are needed. A
    # plan of more slots has the bound that is counted, and the statistics tell whether fewer slots
    # are refuted.
    n_slots = len(planner.plan)
    fewest = problem.min_slots
    needs_more_slots = bound == np.inf
    slots_bound = max(fewest, planner.slots_bound) if needs_more_slots else fewest
    stats: dict[str, object] = {"slots": n_slots, "slots_lower_bound": slots_bound}
    if n_slots > fewest:
        bound = problem.lower_bound()
        stats[FEWEST_SLOTS] = REFUTED_BY_PRICES if needs_more_slots else OPEN
        if not needs_more_slots:
            proof = None
    stats["worst_route_cells"] = max(int(slot.lengths.max()) for slot in planner.plan)
    stats |= toggles

    is_optimal = n_slots == fewest and n_cells == bound
    return Solution(
        problem=problem,
        schedule=all_slots(problem, matchings, sequence.states[sequence.order]),
        status=Status.OPTIMAL if is_optimal else Status.FEASIBLE,
        limit=None if is_optimal else (limit or Limit.EXHAUSTED),
        objective=float(n_cells),
        lower_bound=bound,
        method=name,
        certificate=proof,
        stats=stats,
    )


def prove_bound(planner: SlotPlanner, excess: int) -> ProvedBound:
    """Prove a lower bound of the cells on all routes of a schedule in the fewest slots.

    `excess` is that of the best plan: a bound that meets this plan is enough. An infinite bound
    says that no schedule has so few slots; then ``planner.slots_bound`` may receive a larger
    number that is needed.
    """
    with uncounted():
        from optmatch.solvers.routing.columns import bound_jointly  # loads OR-tools

    problem = planner.problem
    clock = planner.clock
    counted_cells = problem.lower_bound()

    # Where circuits have no route, perhaps the fewest slots are not enough.
    if excess >= FAILED and clock.remaining_s > 0:
        slot_bound = bound_slots(problem, planner.router, clock)
        if slot_bound is not None:
            planner.slots_bound = slot_bound.slots
            return ProvedBound(np.inf, slot_bound.proof)

    # A plan that meets the counted bound, or comes as near as the gap allows, needs no other.
    plan_cells = counted_cells + excess / UNIT
    is_near = near_enough(plan_cells, counted_cells, clock.limits.gap) is not None
    if excess == 0 or is_near or clock.remaining_s <= 0:
        return ProvedBound(counted_cells, None)
    planner.on_event(Tick("bound", 0))
    if excess >= FAILED:
        plan_cells = np.inf  # not all circuits have routes: there is no plan to be met
    return bound_jointly(problem, planner.router, plan_cells, clock)


def answer_at_once(problem: AllToAll, name: str) -> Solution | None:
    """Answer an all-to-all that needs no routes; None if routes have to be found.

    It is INFEASIBLE if no state of the cells connects some pair, and OPTIMAL if there is a single
    port, or a fabric without cells. `name` is the method that the solution names.
    """
    fabric = problem.fabric
    refused = refuse_dead_pairs(problem, fabric.dead_pairs(), name)
    if refused is not None:
        return refused
    if fabric.graph is not None and fabric.n_ports > 1:
        return None
    factors = tournament(fabric.n_ports, fabric.bidirectional)[: problem.min_slots]
    matchings = matchings_of(factors, fabric.n_ports, fabric.bidirectional)
    return without_routes(problem, matchings, name)


def without_routes(problem: AllToAll, matchings: NDArray[np.int32], name: str) -> Solution:
    """Make the solution of an all-to-all whose matchings need no cells, at a cost of 0."""
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
    """Make the schedule of an all-to-all, all slots of the same duration.

    ``matchings[slot, source] = destination``; ``states[slot, cell]``, None without cells.
    """
    return Schedule(
        matchings=matchings.reshape(-1, problem.fabric.n_ports),
        durations_s=np.full(len(matchings), problem.slot_s),
        delay_s=0.0 if isinstance(problem.delay_s, str) else problem.delay_s,
        cell_states=states,
    )


def place_leftovers(planner: SlotPlanner) -> None:
    """Take leftovers out of slots, and put them into gaps and further slots.

    Each step is a search past the circuits that are there, without rip-up, so that the time after
    a limit stays short. Afterwards all circuits of ``planner.plan`` have routes. `SolverError` if
    a pair has none even alone.
    """
    if all(slot.excess < FAILED for slot in planner.plan):
        return

    # `plan` gets the slots without their leftovers, which are pairs of source and destination.
    plan = []
    leftovers = []
    for slot in planner.plan:
        if slot.excess >= FAILED:
            slot, left_out = keep_routable(planner, slot)
            leftovers.append(left_out)
        plan.append(slot)
    pairs_left = np.concatenate(leftovers)

    # Circuits that were taken out leave gaps, which others may fill.
    for index, slot in enumerate(plan):
        if not len(pairs_left):
            break
        plan[index], is_placed = fill_up(planner, slot, pairs_left)
        pairs_left = pairs_left[~is_placed]

    # Without a limit: the leftovers have to get a slot even after the time is up.
    clock = planner.clock
    planner.clock = Limits().start()
    further: list[RoutedSlot] | None = []
    if len(pairs_left):
        further = pack_slots(planner, pairs_left, patient=False)
    planner.clock = clock
    if further is not None:
        planner.plan = plan + further
        return

    # Some pairs have a route, but not one that a search for shortest paths finds: their cheapest
    # walk passes a link twice, once each way, which light cannot. Each gets a slot of its own, by
    # an exact search.
    with uncounted():
        from optmatch.solvers.routing.branch_and_price import search

    for source, destination in pairs_left.tolist():
        alone = np.full(planner.n_ports, IDLE, dtype=np.int32)
        alone[source] = destination
        if planner.bidirectional:
            alone[destination] = source
        problem = Routing(planner.problem.fabric, alone)
        schedule = search(problem, Limits(), planner.rng, ignore).schedule
        if schedule is None or schedule.cell_states is None:
            raise SolverError(f"ports {source, destination} could not be connected even alone")
        routes, lengths = planner.router.follow(alone, schedule.cell_states[0])
        route = routes[source, : lengths[source]].tolist()
        plan.append(planner.with_circuit(planner.empty_slot(), source, destination, route))
    planner.plan = plan
