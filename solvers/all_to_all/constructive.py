"""Method `constructive` for all-to-alls: the exact router of a feed-forward fabric, slot by slot.

First the plain algorithm. Then the loops of a Benes network are turned (all cells of a loop are
flipped together, and its circuits stay), to pass fewer cells, to get past faults,
and to change few cells from slot to slot. Where faults leave no way by these rules, the method
`negotiated` takes over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    FREE,
    IDLE,
    Clock,
    Limit,
    Limits,
    OnEvent,
    Solution,
    Tick,
)
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all import factorise
from optmatch.solvers.all_to_all.conclusion import all_slots
from optmatch.solvers.all_to_all.slot_order import Sequence
from optmatch.solvers.feedforward.router import (
    cost_states,
    count_cells,
    follow,
    route_cheaply,
)
from optmatch.solvers.frame import conclude, take_best
from optmatch.solvers.routing.causes import refuse_dead_pairs

_NAME = "constructive"
_RENAMINGS = 8  # relabellings of the ports until all slots get past the faults
_VISITS = 400_000  # blocks to look at for all slots of an all-to-all: half a second or so
_MOST_ORDERED = 4 * 10**8  # slots cubed times cells; a sweep over the order takes about a second


class RoundSlots(NamedTuple):
    """A plan: the matchings of all slots, and the cell states that carry them."""

    matchings: NDArray[np.int32]
    """(slots, ports) ``[slot, source] = destination``, -1 if idle."""
    states: NDArray[np.int8]
    """(slots, cells): 0 bar, 1 cross, -1 where no light passes."""
    objective: float
    """The number of cells on all routes of all slots."""


def solve(
    problem: AllToAll, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve an all-to-all of a feed-forward fabric: every port meets all others in turn.

    The first iteration routes all slots, the second puts them in order and turns loops, for few
    cells first and for few toggles then. The slots are the fewest. The solution is OPTIMAL where
    all routes are the shortest ones, and INFEASIBLE if nothing connects some pair.
    """
    # A fabric that cannot connect some pair at all has no schedule.
    clock = limits.start()
    refused = refuse_dead_pairs(problem, problem.fabric.dead_pairs(), _NAME)
    if refused is not None:
        return refused
    bound = problem.lower_bound()

    # No answer meets a bound of -1: both are made. Of equally many cells the second one is taken.
    plans = _yield_plans(problem, clock, rng, on_event)
    best, limit, _ = take_best(plans, -1.0, clock, on_event, "route", 2, ties=True)

    # Without any plan, though there was time: faults are in the way.
    if best is None and limit is Limit.EXHAUSTED:
        return replace(factorise.solve(problem, limits, rng, on_event), method=_NAME)
    if best is None:
        return conclude(problem, _NAME, None, bound, limit)
    passed, _ = count_cells(problem.fabric, best.matchings, best.states)
    return conclude(
        problem,
        _NAME,
        best.objective,
        bound,
        limit,
        schedule=all_slots(problem, best.matchings, best.states),
        stats={
            "slots": len(best.matchings),
            "slots_lower_bound": problem.min_slots,
            "worst_route_cells": int(passed.max(initial=0)),
            "toggles": _count_toggles(best.states),
        },
    )


def _yield_plans(
    problem: AllToAll, clock: Clock, rng: np.random.Generator, on_event: OnEvent
) -> Iterator[tuple[float, RoundSlots]]:
    """Yield two plans, each with the cells on all its routes; the second has no more toggles.

    The second plan puts the slots in an order with few toggles, and turns loops to pass fewer
    cells, or to leave more cells in the state of the slots before. Nothing is yielded where faults
    leave no way by the rules of the exact router.
    """
    fabric = problem.fabric
    plan = _first_plan(problem, rng)
    if plan is None:
        return
    yield plan.objective, plan
    matchings = plan.matchings
    states = plan.states
    if len(states) > 2 and len(states) ** 3 * fabric.n_cells <= _MOST_ORDERED:
        sequence = Sequence(states)
        sequence.improve(rng)
        matchings = matchings[sequence.order]
        states = states[sequence.order]

    # `follow` turns the loops of one slot after another, and yields its cell states. It keeps
    # ``driven[cell]``, the state in which a cell was last used. A cell costs 1 in either state,
    # which outweighs all toggles: toggles decide only among routes of as many cells.
    driven = np.full(fabric.n_cells, FREE, dtype=np.int8)
    rows = list[NDArray[np.int8]]()
    cell_cost = cost_states(fabric, 1, 1)
    for row in follow(fabric, matchings, driven, cell_cost, _VISITS // max(1, len(states))):
        if clock.remaining_s <= 0:
            return
        rows.append(row)
        on_event(Tick("turn loops", len(rows), len(states)))

    # As each slot only looks back, there may be more toggles in all: then the states stay.
    turned = np.array(rows, dtype=np.int8).reshape(states.shape)
    if _count_toggles(turned) < _count_toggles(states):
        states = turned
    cells = float(count_cells(fabric, matchings, states)[0].sum())
    yield cells, RoundSlots(matchings, states, cells)


def _first_plan(problem: AllToAll, rng: np.random.Generator) -> RoundSlots | None:
    """Plan and route rounds in which all live ports meet: by shifts, or by exchanges of ports.

    The plan of fewer toggles counts. Ports are renamed if faults are in the way; None if
    `_RENAMINGS` orders of the ports all met faults.
    """
    fabric = problem.fabric
    live = fabric.live_ports

    # Two families of rounds, ``rounds[slot, port]``, change few cells from one slot to the next.
    # By shifts port p leads in slot k, from 0, to port (p + k + 1) mod n. By exchanges, if n is a
    # power of two, all ports lead in a slot to the port whose number differs in the same bits,
    # which follow a Gray code: one changes from slot to slot. With 4 ports, port 0 meets 1, 2, 3
    # by shifts, and 1, 3, 2 by exchanges.
    n = len(live)
    ports = np.arange(n)
    bits = ports[1:, None]
    families = [(ports + bits) % max(n, 1)]
    if n & (n - 1) == 0:
        families.append(ports ^ bits ^ bits >> 1)
    for _ in range(_RENAMINGS):
        # The ports are put in for their numbers. ``routed.held[slot]`` is False where a slot needs
        # a state that a fault forbids.
        routed_families = list[RoundSlots]()
        for rounds in families:
            matchings = np.full((len(rounds), fabric.n_ports), IDLE, dtype=np.int32)
            matchings[:, live] = live[rounds]
            routed = route_cheaply(fabric, matchings)
            if routed.held.all():
                cells = float(count_cells(fabric, matchings, routed.states)[0].sum())
                routed_families.append(RoundSlots(matchings, routed.states, cells))
        if routed_families:
            return min(routed_families, key=lambda plan: _count_toggles(plan.states))
        live = rng.permutation(live)
    return None


def _count_toggles(states: NDArray[np.int8]) -> int:
    """Count the changes of cells between driven states of ``states[slot, cell]``, in order."""
    return Sequence(states).count() if len(states) else 0
