"""All-to-alls on a chip whose cells have each a known loss, crosstalk and power.

The slots are planned as if all cells were alike, and each of them is then rerouted for the
objective: by negotiated congestion, in which circuits are ripped up and rerouted while links that
two of them want get dearer, and then by rerouting the worst circuit while that helps. To *pack* is
to fill slots by first fit, one after another, where the fewest slots are not enough.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    Clock,
    Event,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Solution,
    Status,
    Tick,
    TimeUp,
    ignore,
)
from optmatch.problems import AllToAll, Routing
from optmatch.solvers.all_to_all.factorise import solve as redraw
from optmatch.solvers.all_to_all.packing import PACKING
from optmatch.solvers.all_to_all.slot_order import order_slots
from optmatch.solvers.frame import limit_of, limits_left, near_enough, stoppable, unite
from optmatch.solvers.method import Run
from optmatch.solvers.routing.methods import route_by_negotiation
from optmatch.solvers.routing.worst import measure_states, save_power_among_ties

_STARTS = 8
"""Negotiations for each slot."""

_PLANNING = 0.5
"""The part of the time after which planning for few cells ends, if there is a plan by then."""

_SEARCH = 0.9
"""The part of the time in which plans are drawn anew; the rest is for the order of the slots."""


def plan_and_reroute(
    plan: Run,
    problem: AllToAll,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    **options: Any,
) -> Solution:
    """Plan the slots, route each of them for the objective, and put them in order.

    1. The method `plan` makes slots of few cells, whose short routes leave room for the worst
       circuit; `options` are handed to it. With a time limit it ends at its first plan in the
       fewest slots, and has all the time until then. Where cells are alike, that is all.
    2. Each slot is routed anew for the objective: the worst loss or crosstalk of any slot, or the
       sum of heater powers. For few cells slots keep theirs, with the power among ties, and the
       planning has half of the time.
    3. In the time that is left other slots are drawn and routed, ``stats["plans"]`` times in all,
       as long as one more is likely to fit; the best answer is kept. What is done first does not
       depend on the limit, so more time is not worse.

    OPTIMAL only with the fewest slots and an objective at the bound of the problem.
    """
    if problem.cells is None:
        return plan(problem, limits, rng, on_event, **options)

    # The slots are planned as if cells were alike. A delay that depends on the cells (`waiting`)
    # counts only when slots are put in order.
    clock = limits.start()
    waiting = problem.delay_s == "cells"
    delay_s: Any = 0.0 if waiting else problem.delay_s
    plain = replace(problem, objective="total-cells", cells=None, delay_s=delay_s)
    planning_s = 0.0
    if limits.time_s is None:
        planning_s = math.inf
    elif problem.objective == "total-cells":
        planning_s = _PLANNING * limits.time_s
    planned = _plan_slots(partial(plan, **options), plain, limits, rng, planning_s)

    # For few cells the plan is the answer, but for ties and for the order of its slots. Among
    # routes of equally many cells those of less power are taken, unless they also decide how long
    # cells take to settle.
    if problem.objective == "total-cells":
        tied = planned
        if not waiting:
            tied = save_power_among_ties(problem, planned)
        return order_slots(problem, tied, rng, clock, on_event)

    # Without a plan there is a bound alone, or the proof that there is none.
    if planned.schedule is None:
        infeasible = planned.status is Status.INFEASIBLE
        bound = planned.lower_bound if infeasible else problem.lower_bound()
        stats = dict(planned.stats)
        stats.pop("worst_route_cells", None)
        return replace(planned, problem=problem, lower_bound=bound, stats=stats)
    best = _reroute_slots(problem, planned, clock, rng, on_event, math.inf)

    # Random restarts: as long as a plan like the last one fits the time, new slots are drawn and
    # routed, also where the first ones follow a construction. ``best.limit`` is why the last step
    # ended: after Ctrl-C, or with a gap or the bound met, there is no further one.
    n_plans = 1
    begin_s = 0.0
    while best.limit in (Limit.EXHAUSTED, Limit.TIME) and limits.iterations is None:
        rest_s = _SEARCH * (limits.time_s or 0.0) - clock.elapsed_s
        if rest_s <= clock.elapsed_s - begin_s:  # what the last plan took
            break
        begin_s = clock.elapsed_s
        planned = _plan_slots(redraw, plain, Limits(time_s=rest_s), rng, begin_s)
        if planned.schedule is None:
            best = replace(best, limit=planned.limit)
        else:
            n_plans += 1
            planned = replace(planned, method=best.method)
            # Fewer slots are better whatever their objective: then no slot is too bad to go on.
            cutoff: Any = best.objective
            if planned.schedule.n_slots < best.schedule.n_slots:
                cutoff = math.inf
            newer = _reroute_slots(problem, planned, clock, rng, on_event, cutoff)
            best = unite(best, newer)
    if best.limit is Limit.EXHAUSTED and limits.time_s is not None:
        best = replace(best, limit=Limit.TIME)
    best = replace(best, stats={**best.stats, "plans": n_plans})
    return order_slots(problem, best, rng, clock, on_event)


def _plan_slots(
    plan: Run, problem: AllToAll, limits: Limits, rng: np.random.Generator, planning_s: float
) -> Solution:
    """Plan slots for few cells, for at most `planning_s` if there is a plan by then."""
    planning_end = PlanningEnd(limits.start(), planning_s)
    planned = plan(problem, limits, rng, planning_end)
    if planning_end.has_ended and planned.limit is not None:
        planned = replace(planned, limit=Limit.TIME)
    return planned


def _reroute_slots(
    problem: AllToAll,
    planned: Solution,
    clock: Clock,
    rng: np.random.Generator,
    on_event: OnEvent,
    cutoff: float,
) -> Solution:
    """Route each slot of a plan anew for the objective of the problem, the worst slot first.

    The matchings of `planned` stay; its objective and bound are cells, and say nothing here. A
    slot keeps its states unless new ones are as good or better. The end comes when the time is up,
    or where the worst slot decides and one stays at `cutoff` or above, the objective of a known
    answer: the others cannot make up for it.
    """
    # For less power, routes of as many cells come first: most of it is saved within moments.
    worst_decides = problem.objective != "power-mw"
    if not worst_decides:
        with stoppable():
            planned = save_power_among_ties(problem, planned)

    # ``states[slot, cell]``, and ``values[slot]``: the objective of each slot.
    schedule: Any = planned.schedule
    states = schedule.cell_states.copy()
    values = [
        measure_states(_slot_problem(problem, matching), row)
        for matching, row in zip(schedule.matchings, states, strict=True)
    ]
    # A gap that the plan has met is one of cells, and says nothing about the objective.
    limit: Limit | None = planned.limit if planned.limit is not Limit.GAP else None
    starts = Limits(iterations=_STARTS, time_s=clock.limits.time_s)
    try:
        for done, slot in enumerate(np.argsort(values)[::-1].tolist()):
            on_event(Tick("relieve", done, len(states)))
            if clock.remaining_s <= 0:
                break
            matching = schedule.matchings[slot]
            better: Any = route_by_negotiation(
                _slot_problem(problem, matching), limits_left(starts, clock), rng, ignore
            )
            if better.schedule is not None and better.objective <= values[slot]:
                states[slot] = better.schedule.cell_states[0]
                values[slot] = better.objective
            if worst_decides and values[slot] >= cutoff:
                break
    except (KeyboardInterrupt, TimeUp) as stop:
        limit = limit_of(stop)

    # Powers of slots add up; of losses and of crosstalk the worst slot counts. An answer is
    # optimal if it meets the bound but for rounding, in the fewest slots: more are never called
    # optimal.
    objective = max(values, default=0.0)
    if problem.objective == "power-mw":
        objective = float(sum(values))
    bound = problem.lower_bound()
    optimal = len(states) == problem.min_slots and objective <= bound * (1 + 1e-9)
    near = near_enough(objective, bound, clock.limits.gap)
    return Solution(
        problem=problem,
        schedule=replace(schedule, cell_states=states),
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        limit=None if optimal else (near or limit or Limit.EXHAUSTED),
        objective=objective,
        lower_bound=min(bound, objective),
        method=planned.method,
        stats={"slots": len(states), "slots_lower_bound": problem.min_slots},
    )


class PlanningEnd:
    """A listener that ends the planning of slots in time for their routes to be chosen anew."""

    def __init__(self, clock: Clock, planning_s: float) -> None:
        """Listen to a search, which has so many seconds of its `clock` for planning."""
        self._clock = clock
        self._planning_s = planning_s
        self._has_plan = False
        self.has_ended = False
        """Whether it has ended the planning: then nobody has pressed Ctrl-C."""

    def __call__(self, event: Event) -> None:
        """Interrupt the planning, a single time, once it has had its time and has a plan.

        Methods tell a `NewBest` of plans of the fewest slots alone, or of fewer than before. Where
        links are too few for the fewest, slots are packed, and each packing is an answer. Every
        method answers the `KeyboardInterrupt` with the best that it has.
        """
        is_packing = isinstance(event, Tick) and event.phase == PACKING
        self._has_plan = self._has_plan or is_packing or isinstance(event, NewBest)
        if self.has_ended or not self._has_plan:
            return
        if self._clock.elapsed_s >= self._planning_s:
            self.has_ended = True
            raise KeyboardInterrupt


def _slot_problem(problem: AllToAll, matching: NDArray[np.int32]) -> Routing:
    """Make the problem of one slot: its matching, with the objective and cells of the whole."""
    return Routing(problem.fabric, matching, objective=problem.objective, cells=problem.cells)
