"""Methods `ilp`, `negotiated` and `constructive` for one matching.

Method `ilp` is branch and price. Its search is in `branch_and_price`, which loads OR-tools and is
imported where it runs.

Method `negotiated` is negotiated congestion with restarts: circuits are ripped up and rerouted
while links that two of them want get dearer. It cannot prove that there are no routes. Where it
finds none, it hands the matching over to `ilp`, which finds routes or a proof.

Method `constructive` is the exact router of a feed-forward fabric. The plain algorithm takes
microseconds. Where that may help, the loops of a Benes network are then turned: to pass fewer
cells, to lose less, to get past faults. Where faults leave no way by these rules, a general method
takes over.

Every method takes the problem, the `limits` on its time and iterations, random numbers `rng`, and
a listener `on_event`, which hears of better answers, bounds and progress. A `start` is a former
solution, whose routes are kept where they fit. The time runs from the call on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import Clock, Limit, Limits, OnEvent, Solution, Status, ignore, uncounted
from optmatch.model.device import ON_CHIP
from optmatch.problems import Routing
from optmatch.solvers.feedforward.router import (
    MICRO_DB,
    RoutedMatchings,
    cost_states,
    count_cells,
    route_cheaply,
)
from optmatch.solvers.frame import conclude, limits_left, only_better, stoppable, take_best, unite
from optmatch.solvers.params import RoutingParams
from optmatch.solvers.routing.causes import name_causes
from optmatch.solvers.routing.negotiation import (
    WARM_STARTS,
    Negotiation,
    answer_at_once,
    conclude_routes,
    one_slot,
    total_of,
)
from optmatch.solvers.routing.worst import route_worst

_NAME = "constructive"
_FEW_CELLS = 200  # up to so many cells `ilp` is the general method, above it `negotiated`


def route_exactly(
    problem: Routing,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
) -> Solution:
    """Route one matching as well as possible, or prove that it cannot be done.

    An iteration is one case of the proof. The solution has a `RoutingProof` as certificate where
    the bound of the problem itself is not enough. An infeasible matching comes with a reason: a
    dead pair, or a cut; on a fabric with faults it names those that cause it.
    """
    clock = limits.start()
    refuted = partial(lacks_routes, problem, limits, clock, rng)
    decided = answer_at_once(problem, "ilp", refuted, clock)
    if decided is not None:
        return decided
    if problem.objective in ON_CHIP:
        return route_worst(problem, clock, rng, on_event, "ilp", route_exactly)
    with uncounted():
        from optmatch.solvers.routing.branch_and_price import search

    return name_causes(search(problem, limits, rng, on_event, start), refuted, clock)


def hand_over(
    problem: Routing, limits: Limits, rng: np.random.Generator, on_event: OnEvent, name: str
) -> Solution:
    """Find any routes of a matching for another method, or prove that there are none.

    Without a time limit the status is never UNKNOWN. The first routes found are the answer; no
    more is proved about them.
    """
    solution = route_exactly(problem, replace(limits, gap=1.0), rng, on_event)
    limit = Limit.EXHAUSTED if solution.limit is Limit.GAP else solution.limit
    return replace(solution, method=name, limit=limit)


def lacks_routes(
    problem: Routing, limits: Limits, clock: Clock, rng: np.random.Generator, fabric: Fabric
) -> bool | None:
    """Tell whether the matching of a problem has no routes on another fabric, for `find_causes`.

    True if that is proved, False if routes are found, None if it stays open. Of `problem` only the
    matching counts, since any routes will do. Negotiation comes first; branch and price decides
    what it leaves open, in the time that is left of the limits by `clock`.
    """
    any_routes = replace(problem, fabric=fabric, objective="total-cells", cells=None)
    if any_routes.dead_circuits():
        return True

    # Routes are mostly found at once; only where they are not is there something to prove.
    for attempt in Negotiation(any_routes).attempts(rng, WARM_STARTS):
        if attempt is not None:
            return False
    with uncounted():
        from optmatch.solvers.routing.branch_and_price import search

    # With a gap of 1 the search ends at the first routes: how long they are does not matter.
    last_limits = replace(limits_left(limits, clock), gap=1.0)
    status = search(any_routes, last_limits, rng, ignore).status
    if status is Status.UNKNOWN:
        return None
    return status is Status.INFEASIBLE


def route_by_negotiation(
    problem: Routing,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
    params: RoutingParams | None = None,
) -> Solution:
    """Route one matching by negotiated congestion with restarts.

    An iteration is one negotiation; there are `restarts` of them unless limited. With a limit of
    iterations there is nothing but negotiations; otherwise a proof is sought after `patience` of
    them without any routes, and with a time limit after all, in the time that is left. Without
    limits it takes a tenth of a second for 32 ports, half a second for 64. `restarts` and
    `patience` are fields of `params`.
    """
    # Answers that need no search: no circuits, or two ports that nothing connects.
    clock = limits.start()
    refuted = partial(lacks_routes, problem, limits, clock, rng)
    decided = answer_at_once(problem, "negotiated", refuted, clock)
    if decided is not None:
        return decided
    if problem.objective in ON_CHIP:
        return route_worst(problem, clock, rng, on_event, "negotiated", route_exactly)

    # A limit of iterations takes the place of the parameters.
    bound = problem.lower_bound()
    params = params or RoutingParams()
    n_turns = params.restarts
    patience: int | None = params.patience
    unlimited = limits.iterations is None
    if limits.iterations is not None:
        n_turns = limits.iterations
        patience = None

    # Without any routes (`best` is None) the exact method takes over. With routes it is asked for
    # a proof of them, or for better ones, if there is a limit of time that leaves some.
    # `EXHAUSTED` says that negotiations have come to their end without a limit.
    attempts = Negotiation(problem).attempts(rng, n_turns, start, patience)
    best, limit, _ = take_best(attempts, bound, clock, on_event, "negotiate", n_turns)
    remaining_limits = limits_left(limits, clock)
    if best is None and unlimited and limit is Limit.EXHAUSTED:
        return hand_over(problem, remaining_limits, rng, on_event, "negotiated")
    solution = conclude_routes(problem, best, bound, limit, "negotiated")
    if unlimited and limits.time_s is not None and limit is Limit.EXHAUSTED:
        with stoppable() as stop:
            proved = route_exactly(problem, remaining_limits, rng, only_better(on_event), solution)
            return unite(solution, replace(proved, method="negotiated"))
        return replace(solution, limit=stop.limit)
    return solution


def route_forward(
    problem: Routing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Route one matching of a feed-forward fabric that has an exact router, perhaps with faults.

    The first iteration routes by the rule of the exact router, the second turns loops for a lower
    cost. Where faults leave no routes by the rule, another method answers under the name of this
    one: branch and price on up to 200 cells, or if the rule has tried all routes there are; else
    negotiation. The worst loss, the worst crosstalk and the heater power of a chip are left to
    `route_worst`: rip-up and reroute from these routes and from others.
    """
    clock = limits.start()
    refuted = partial(lacks_routes, problem, limits, clock, rng)
    decided = answer_at_once(problem, _NAME, refuted, clock)
    if decided is not None:
        return decided
    if problem.objective in ON_CHIP:
        return route_worst(problem, clock, rng, on_event, _NAME, route_exactly)

    # By the rule, as a batch of one matching: ``held[0]`` is False if faults leave no routes by
    # it, and ``exact[0]`` tells whether it has tried all routes of the fabric. On a large fabric
    # negotiation finds routes much sooner than branch and price, but can only fail where there are
    # none: then `hand_over` asks for a proof at once.
    worst = problem.objective == "worst-cells"
    routed = route_cheaply(problem.fabric, problem.matching[None], worst=worst)
    if not routed.held[0]:
        if problem.fabric.n_cells <= _FEW_CELLS:
            general = route_exactly
        elif routed.exact[0]:
            return hand_over(problem, limits, rng, on_event, _NAME)
        else:
            general = route_by_negotiation
        return replace(general(problem, limits, rng, on_event), method=_NAME)

    # These routes, and those with the loops turned for the least cost: two attempts, of which the
    # best counts.
    bound = problem.lower_bound()
    attempts = _turn_loops(problem, routed, worst)
    best, limit, _ = take_best(attempts, bound, clock, on_event, "route", 2)
    if best is None:
        return conclude(problem, _NAME, None, bound, limit)
    passed, _ = count_cells(problem.fabric, problem.matching[None], best)
    return conclude(
        problem,
        _NAME,
        _measure(problem, best),
        bound,
        limit,
        schedule=one_slot(problem, best),
        stats={"worst_route_cells": int(passed.max(initial=0))},
    )


def _turn_loops(
    problem: Routing, first: RoutedMatchings, worst: bool
) -> Iterator[tuple[float, NDArray[np.int8]]]:
    """Yield objective and ``states[0, cell]`` of routes by the rule: `first`, then the cheapest.

    The second routes have the least cost of cells that the rule can choose, all circuits together
    or, with `worst`, of the circuit that pays most.
    """
    yield _measure(problem, first.states), first.states

    # The cost of a cell for the router: losses in micro-dB, or the same for each.
    cell_cost = cost_states(problem.fabric, 1, 1)
    if problem.objective == "loss-db":
        losses = problem.bar_loss_db, problem.cross_loss_db
        cell_cost = cost_states(problem.fabric, *(loss / MICRO_DB for loss in losses))
    routed = route_cheaply(problem.fabric, problem.matching[None], cell_cost, worst=worst)
    if routed.held[0]:
        yield _measure(problem, routed.states), routed.states


def _measure(problem: Routing, states: NDArray[np.int8]) -> float:
    """Return the objective of ``states[0, cell]``, which hold the matching."""
    passed, crossed = count_cells(problem.fabric, problem.matching[None], states)
    return total_of(problem, passed, int(crossed.sum()))
