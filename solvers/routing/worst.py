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
from optmatch.solvers.routing.negotiation import Negotiation, Routes, limits_left, one_slot
from optmatch.solvers.routing.pathfinder import EFFORTS, UNIT
from optmatch.solvers.routing.relief import Relief
from optmatch.solvers.routing.router import CellRouter
from optmatch.solvers.routing.small import search_all

_MAX_MOVES = 2000
"""Moves of circuits that `Relief` tries for each negotiation; most end long before."""

STARTS = 160
"""Negotiations without a limit of iterations."""

_PRICE_LEVELS = 5
"""Random prices of links are at most 0, 1/2, 1, 3/2 or 2 cells, in turn."""

_MICRO_MW = 1e-6  # powers are compared in whole numbers of this
_PICO = 1e-12  # leaks are compared in whole numbers of this

Insist = Callable[[Routing, Limits, np.random.Generator, OnEvent], Solution]
"""An exact method: finds any routes of a matching, or a proof that there are none."""


def route_worst(
    problem: Routing,
    clock: Clock,
    rng: np.random.Generator,
    on_event: OnEvent,
    name: str,
    insist: Insist,
) -> Solution:
    """Route a matching on a chip so that its worst circuit, or its heater power, is least.

    Many starts each find routes and improve them, and the best count; an iteration is one start.
    If no start finds routes, `insist`, an exact method, is asked for any routes at all. Under
    method "ilp" a search of all routes follows, which is meant for small fabrics.
    """
    bound = problem.lower_bound()
    limits = clock.limits
    n_starts = STARTS if limits.iterations is None else limits.iterations
    starts = _starts(problem, rng, n_starts)
    best, limit, _ = take_best(starts, bound, clock, on_event, "relieve", n_starts)

    # No start found routes: an exact method finds some, or proves that there are none. The gap of
    # 1 lets it stop at its first routes, since their number of cells is not what counts.
    if best is None and limit is Limit.EXHAUSTED:
        last_limits = replace(limits_left(limits, clock), gap=1.0)
        any_routes = replace(problem, objective="total-cells", cells=None)
        solution = insist(any_routes, last_limits, rng, only_ticks(on_event))
        if solution.schedule is None:
            if solution.limit is None:
                bound = solution.lower_bound
            return replace(solution, problem=problem, method=name, lower_bound=bound)
        states: Any = solution.schedule.cell_states
        start = _read_and_relieve(problem, states[0])
        if start is not None:  # else its routes are too long to be improved
            best = start[1]

    # The search of all routes begins with the best ones, and ends on small fabrics.
    stats: dict[str, Any] = {}
    if name == "ilp" and best is not None and limit in (None, Limit.EXHAUSTED):
        n_cells = int(best.lengths.sum())
        outcome = search_all(problem, (best.objective, n_cells), clock, on_event)
        limit = outcome.limit
        if outcome.limit is None:
            bound = max(bound, outcome.objective)
            stats = {"bound_by": "search", "nodes": outcome.nodes}
        if outcome.states is not None:
            schedule = one_slot(problem, outcome.states[None])
            return conclude(
                problem, name, outcome.objective, bound, limit, schedule=schedule, stats=stats
            )

    # Without a search, or if that has found nothing better, the routes of the starts count.
    if best is None:
        return conclude(problem, name, None, bound, limit)
    schedule = one_slot(problem, best.states[None])
    return conclude(problem, name, best.objective, bound, limit, schedule=schedule, stats=stats)


def _starts(
    problem: Routing, rng: np.random.Generator, n_starts: int
) -> Iterator[tuple[float, Routes] | None]:
    """Yield routes improved by `Relief` with their objective; None for a start that failed.

    On feed-forward fabrics, the routes of their exact router come first. All others come from
    negotiated congestion: each turn changes the prices of links, the order of the circuits, the
    costs of cells and the effort, as different routes are needed to begin with.
    """
    for states in _turn_loops(problem):
        yield _read_and_relieve(problem, states)
    negotiation = Negotiation(problem)
    relief = Relief(negotiation.router, _cells(problem), problem.objective)
    router_by_cells = CellRouter(problem.fabric)
    router_by_losses = negotiation.router
    n_links = len(router_by_losses.workspace.use)
    for turn in range(n_starts):
        # The same ends may be joined in very different ways, by few cells or by good ones.
        # Random prices of links, from none to two cells, lead to others in each turn.
        largest_price = UNIT * (turn % _PRICE_LEVELS) // 2
        price_of_link = rng.integers(0, largest_price + 1, n_links)

        # The usual order has the longest routes first; another order leads to other routes.
        order = negotiation.order
        if turn % 2:
            order = rng.permutation(order)

        # In some turns all cells cost the same, in the others what they add to the losses, or to
        # the heater power.
        router = router_by_cells if turn % 3 == 1 else router_by_losses
        routes, lengths = router_by_losses.empty_routes()
        status = router.settle(
            order,
            negotiation.partner,
            routes,
            lengths,
            base=price_of_link[router_by_losses.wiring.link],
            effort=EFFORTS[turn % len(EFFORTS)],
        )
        if status < 0:
            yield None
        else:
            yield _relieve(negotiation, relief, routes, lengths)


def _cells(problem: Routing) -> CellDevice:
    """Return the cells of a problem on a chip, which is known to have them."""
    assert problem.cells is not None
    return problem.cells


def _relieve(
    negotiation: Negotiation,
    relief: Relief,
    routes: NDArray[np.int32],
    lengths: NDArray[np.int64],
) -> tuple[float, Routes]:
    """Relieve routes in place; return their objective, and the routes with the states of cells.

    The arrays are those of `RoutedCircuits`; all circuits have routes.
    """
    order = negotiation.order
    relief.improve(order, negotiation.partner, routes, lengths, _MAX_MOVES)
    relieved = Routes(negotiation.problem, negotiation.router, order, routes, lengths)
    return relieved.objective, relieved


def _read_and_relieve(problem: Routing, states: NDArray[np.int8]) -> tuple[float, Routes] | None:
    """Read routes out of ``states[cell]`` that hold the matching, and relieve them.

    Returns the objective and the routes; None if a route is too long for the arrays.
    """
    negotiation = Negotiation(problem)
    router = negotiation.router
    relief = Relief(router, _cells(problem), problem.objective)
    routes, lengths = router.follow(problem.matching, states)
    if not lengths[negotiation.order].all():
        return None
    return _relieve(negotiation, relief, routes, lengths)


_STATS_OF_STATES = {"toggles", "worst_route_cells"}
"""Statistics that are wrong once the states of cells have changed."""


def save_power_among_ties(problem: Routing | AllToAll, solution: Solution) -> Solution:
    """Choose routes that need less heater power among those with as many cells, slot by slot.

    The matchings, the number of cells in each slot and the bound are those of `solution`;
    statistics of the former states are left out.
    """
    schedule = solution.schedule
    cells = problem.cells
    if schedule is None or schedule.cell_states is None or cells is None:
        return replace(solution, problem=problem)

    states = schedule.cell_states.copy()
    for slot, matching in enumerate(schedule.matchings):
        negotiation = Negotiation(Routing(problem.fabric, matching))
        router = negotiation.router
        order = negotiation.order
        routes, lengths = router.follow(matching, states[slot])
        # A circuit of length 0 has a route that is too long for the arrays: its slot stays.
        has_all_routes = bool(lengths[order].all())
        if len(order) and has_all_routes:
            relief = Relief(router, cells, "total-cells")
            relief.improve(order, negotiation.partner, routes, lengths, _MAX_MOVES)
            states[slot] = router.states(order, routes, lengths)

    stats = {name: solution.stats[name] for name in solution.stats.keys() - _STATS_OF_STATES}
    schedule = replace(schedule, cell_states=states)
    return replace(solution, problem=problem, schedule=schedule, stats=stats)


def with_ties(method: Run) -> Run:
    """Return a method that breaks ties between routes of as many cells by heater power.

    It does so on a chip, if the objective is the cells on all routes; otherwise it is `method`.
    """

    @wraps(method)
    def solve(problem: Routing, *known: Any, **given: Any) -> Solution:
        """Solve without a chip; then choose among routes of as many cells by power."""
        if problem.cells is None or problem.objective != "total-cells":
            return method(problem, *known, **given)
        solution = method(replace(problem, cells=None), *known, **given)
        with stoppable():  # if this is interrupted, the routes before it are an answer, too
            return save_power_among_ties(problem, solution)
        return replace(solution, problem=problem)

    return solve


def measure_states(problem: Routing, states: NDArray[np.int8]) -> float:
    """Return the objective of ``states[cell]`` that hold the matching, see `Relief.measure`."""
    negotiation = Negotiation(problem)
    router = negotiation.router
    routes, lengths = router.follow(problem.matching, states)
    return Relief(router, _cells(problem), problem.objective).measure(
        negotiation.order, routes, lengths
    )


def _turn_loops(problem: Routing) -> Iterator[NDArray[np.int8]]:
    """Yield ``states[cell]`` that hold the matching, by the exact router of feed-forward fabrics.

    In a Benes network the cells along a loop may all be flipped together: the loop is turned.
    Loops are turned for the lowest sum of costs, and for the lowest worst circuit; where the worst
    loss is the objective, only for the latter. Nothing comes of other fabrics, or if the exact
    router finds no routes.
    """
    if exact_router(problem.fabric) is None:
        return
    matchings = problem.matching[None]
    cost = cell_costs(problem.fabric, _cells(problem), problem.objective)
    is_worst_loss = problem.objective == "worst-loss-db"
    for by_worst in (True,) if is_worst_loss else (False, True):
        routed = route_cheaply(problem.fabric, matchings, cost, worst=by_worst)
        if routed.held[0]:
            yield routed.states[0]


def cell_costs(fabric: Fabric, cells: CellDevice, objective: str) -> NDArray[np.int64]:
    """Return ``cost[cell, state, shared]``, with `shared` 1 where two circuits pass the cell.

    Power: in micro-mW, half for each of two. Loss: in micro-dB. Crosstalk: the leaked share in
    1e-12, and nothing for a circuit that is alone.
    """
    if objective == "power-mw":
        extra_mw = split_power(fabric, cells)[1] / _MICRO_MW
        cost = np.stack([extra_mw, extra_mw / 2], axis=2)
    elif objective == "worst-loss-db":
        cost = np.repeat(cells.loss_db[:, :, None] / MICRO_DB, 2, axis=2)
    else:
        cost = np.stack([np.zeros_like(cells.leak), cells.leak / _PICO], axis=2)
    return np.minimum(np.rint(cost), 2.0**40 / (2 * fabric.n_cells)).astype(np.int64)
