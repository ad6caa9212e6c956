"""Routes of one matching on a chip of which each cell is known.

The worst circuit is to lose little, or to get little crosstalk; or heaters are to take little.
Routes come from negotiation at the losses of the cells, and on feed-forward fabrics from the exact
router, with loops turned for the same end. Each is then relieved (`relief`): the worst circuit and
those in its way are moved until that does not help. Method `ilp` goes on with a search of all
routes (`small`), which ends on small fabrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import CellDevice, Clock, Limit, Limits, OnEvent, Solution
from optmatch.problems import AllToAll, Routing
from optmatch.problems.routing import split_power
from optmatch.solvers.feedforward.router import MICRO_DB, exact_router, route_cheaply
from optmatch.solvers.frame import conclude, only_ticks, stoppable, take_best
from optmatch.solvers.method import Run
from optmatch.solvers.routing.negotiation import Negotiation, Routes, one_slot
from optmatch.solvers.routing.pathfinder import EFFORTS, UNIT
from optmatch.solvers.routing.relief import Relief
from optmatch.solvers.routing.router import CellRouter
from optmatch.solvers.routing.small import search_all

_TRIES = 2000
"""Moves of circuits for each negotiation; most end long before."""

STARTS = 160
"""Negotiations without a limit of iterations."""

_LEVELS = 5  # of prices: up to two cells for a link

_MICRO_MW = 1e-6  # powers are compared in whole numbers of this
_PICO = 1e-12  # leaks are compared in whole numbers of this

Insist = Callable[[Routing, Limits, np.random.Generator, OnEvent], Solution]
"""What finds any routes of a matching, or a proof that there are none."""


def route_worst(
    problem: Routing,
    clock: Clock,
    rng: np.random.Generator,
    on_event: OnEvent,
    name: str,
    insist: Insist,
) -> Solution:
    """Route a matching that is not answered at once; `insist` is asked where no try finds routes.

    An iteration is one start, `STARTS` of them without a limit.
    """
    bound, limits = problem.lower_bound(), clock.limits
    known: dict[str, Any] = {}
    most = STARTS if limits.iterations is None else limits.iterations
    starts = _starts(problem, rng, most)
    best, limit, _ = take_best(starts, bound, clock, on_event, "relieve", most)
    if best is None and limit is Limit.EXHAUSTED:
        left = replace(limits, time_s=limits.time_s and clock.remaining_s, gap=1.0)
        any_routes = replace(problem, objective="total-cells", cells=None)
        found = insist(any_routes, left, rng, only_ticks(on_event))
        if found.schedule is None:
            bound = found.lower_bound if found.limit is None else bound
            return replace(found, problem=problem, method=name, lower_bound=bound)
        states: Any = found.schedule.cell_states
        start = _read(problem, states[0])
        best = start and start[1]
    if name == "ilp" and best is not None and limit in (None, Limit.EXHAUSTED):
        floor, cells = best.objective, int(best.lengths.sum())
        outcome = search_all(problem, (floor, cells), clock, on_event)
        limit = outcome.limit
        if outcome.limit is None:
            bound = max(bound, outcome.objective)
            known["stats"] = {"bound_by": "search", "nodes": outcome.nodes}
        if outcome.states is not None:
            schedule = one_slot(problem, outcome.states[None])
            return conclude(
                problem, name, outcome.objective, bound, limit, schedule=schedule, **known
            )
    if best is None:
        return conclude(problem, name, None, bound, limit)
    schedule = one_slot(problem, best.states[None])
    return conclude(problem, name, best.objective, bound, limit, schedule=schedule, **known)


def _starts(
    problem: Routing, rng: np.random.Generator, most: int
) -> Iterator[tuple[float, Routes] | None]:
    """Yield relieved routes, those with fewer cells a little cheaper than others alike."""
    for states in _turn_loops(problem):
        yield _read(problem, states)
    negotiation = Negotiation(problem)
    relief = Relief(negotiation.router, _cells(problem), problem.objective)
    router, plain = negotiation.router, CellRouter(problem.fabric)
    links = len(router.workspace.use)
    for turn in range(most):
        # the same ends may be joined in very different ways, by few cells or by good ones
        prices = rng.integers(0, UNIT * (turn % _LEVELS) // 2 + 1, links)
        order = rng.permutation(negotiation.order) if turn % 2 else negotiation.order
        routes, lengths = router.empty_routes()
        effort, base = EFFORTS[turn % len(EFFORTS)], prices[router.wiring.link]
        known = order, negotiation.partner, routes, lengths
        by = plain if turn % 3 == 1 else router
        failed = by.settle(*known, base=base, effort=effort) < 0
        yield None if failed else _relieve(negotiation, relief, routes, lengths)


def _cells(problem: Routing) -> CellDevice:
    assert problem.cells is not None
    return problem.cells


def _relieve(
    negotiation: Negotiation,
    relief: Relief,
    routes: NDArray[np.int32],
    lengths: NDArray[np.int64],
) -> tuple[float, Routes]:
    relief.improve(negotiation.order, negotiation.partner, routes, lengths, _TRIES)
    router = negotiation.router
    better = Routes(negotiation.problem, router, negotiation.order, routes, lengths)
    return better.objective, better


def _read(problem: Routing, states: NDArray[np.int8]) -> tuple[float, Routes] | None:
    """Read routes out of states that hold the matching, and relieve them."""
    negotiation = Negotiation(problem)
    router = negotiation.router
    relief = Relief(router, _cells(problem), problem.objective)
    routes, lengths = router.follow(problem.matching, states)
    if not lengths[negotiation.order].all():
        return None  # too long a route for the arrays
    return _relieve(negotiation, relief, routes, lengths)


_OF_STATES = {"toggles", "worst_route_cells"}
"""Figures of former states."""


def choose_ties(problem: Routing | AllToAll, found: Solution) -> Solution:
    """Save power without a cell more, in every slot of an answer for few cells in all."""
    schedule, cells = found.schedule, problem.cells
    if schedule is None or schedule.cell_states is None or cells is None:
        return replace(found, problem=problem)
    states = schedule.cell_states.copy()
    for row, matching in zip(states, schedule.matchings, strict=True):
        negotiation = Negotiation(Routing(problem.fabric, matching))
        router, order = negotiation.router, negotiation.order
        routes, lengths = router.follow(matching, row)
        if len(order) and lengths[order].all():
            relief = Relief(router, cells, "total-cells")
            relief.improve(order, negotiation.partner, routes, lengths, _TRIES)
            row[:] = router.states(order, routes, lengths)
    stats = {name: found.stats[name] for name in found.stats.keys() - _OF_STATES}
    schedule = replace(schedule, cell_states=states)
    return replace(found, problem=problem, schedule=schedule, stats=stats)


def with_ties(method: Run) -> Run:
    """Return a method that lets power choose between routes of as many cells on a chip."""

    @wraps(method)
    def solve(problem: Routing, *known: Any, **given: Any) -> Solution:
        if problem.cells is None or problem.objective != "total-cells":
            return method(problem, *known, **given)
        found = method(replace(problem, cells=None), *known, **given)
        with stoppable():  # routes without a choice between ties are an answer, too
            return choose_ties(problem, found)
        return replace(found, problem=problem)

    return solve


def measure_states(problem: Routing, states: NDArray[np.int8]) -> float:
    """Return the objective of states that hold the matching."""
    negotiation = Negotiation(problem)
    router = negotiation.router
    routes, lengths = router.follow(problem.matching, states)
    return Relief(router, _cells(problem), problem.objective).measure(
        negotiation.order, routes, lengths
    )


def _turn_loops(problem: Routing) -> Iterator[NDArray[np.int8]]:
    """Yield states of the exact router of a feed-forward fabric that hold the matching."""
    if exact_router(problem.fabric) is None:
        return
    rows, worst = problem.matching[None], problem.objective == "worst-loss-db"
    for by_worst in (True,) if worst else (False, True):
        cost = cell_costs(problem.fabric, _cells(problem), problem.objective)
        routed = route_cheaply(problem.fabric, rows, cost, worst=by_worst)
        if routed.held[0]:
            yield routed.states[0]


def cell_costs(fabric: Fabric, cells: CellDevice, objective: str) -> NDArray[np.int64]:
    """``cost[cell, state, shared]``: what a cell costs a circuit of a feed-forward fabric."""
    if objective == "power-mw":
        extra_mw = split_power(fabric, cells)[1] / _MICRO_MW
        cost = np.stack([extra_mw, extra_mw / 2], axis=2)
    elif objective == "worst-loss-db":
        cost = np.repeat(cells.loss_db[:, :, None] / MICRO_DB, 2, axis=2)
    else:
        cost = np.stack([np.zeros_like(cells.leak), cells.leak / _PICO], axis=2)
    return np.minimum(np.rint(cost), 2.0**40 / (2 * fabric.n_cells)).astype(np.int64)
