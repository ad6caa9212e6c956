"""A method to copy: circuits one by one, each by a shortest route over the links still free.

It is complete and tested but not offered to users. To make a method of your own:

1. Copy this file; the name of the copy is a noun. In another package it may lie anywhere.
2. Replace what is between the marks. Keep the frame: it is what `SolverContract` asks for.
3. Offer it: here by a row of ``METHODS`` in the ``__init__.py`` of its folder, elsewhere by the
   entry-point group ``optmatch.methods``, whose value is a `Method` such as ``METHOD`` below, or a
   tuple of them.
4. Test it: a subclass of `optmatch.testing.SolverContract`, as in
   `tests/solvers/test_contract.py`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import state_between, walk
from optmatch.model import (
    BAR,
    FREE,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Schedule,
    Solution,
    Status,
    Tick,
)
from optmatch.problems import Routing
from optmatch.solvers.method import Method, Run


def _load() -> Run:
    return route


METHOD = Method(
    "template",
    Routing,
    _load,
    "circuits one after another, each by a shortest route over free links",
)

_MOST_ORDERS = 100


class Setting(NamedTuple):
    """The cells of one matching, and what they cost."""

    objective: float
    cell_states: NDArray[np.int8]


def route(
    problem: Routing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Route one matching.

    Parameters
    ----------
    problem
        The matching and its fabric.
    limits
        One iteration is one order of the circuits.
    rng
        Draws the orders.
    on_event
        Hears a `Tick` for each order and a `NewBest` for each improvement.

    Returns
    -------
    Solution
        OPTIMAL only where the objective meets the problem's own bound.

    Examples
    --------
    >>> import numpy as np
    >>> from optmatch import HexMesh, Limits, Routing
    >>> problem = Routing(HexMesh(2, 2, ports=2), [1, 0])
    >>> solution = route(problem, Limits(), np.random.default_rng(0), print)
    Tick(phase='route', done=0, total=100)
    NewBest(objective=5.0)
    >>> solution.status
    <Status.OPTIMAL: 'optimal'>
    """
    clock = limits.start()
    bound = problem.lower_bound()
    if math.isinf(bound):
        return _infeasible(problem)
    best: Setting | None = None
    limit: Limit | None = None
    orders = 0
    try:
        while limit is None and (best is None or best.objective > bound):
            limit = clock.exceeded(orders)
            if limit is None and orders == _MOST_ORDERS:
                limit = Limit.EXHAUSTED
            if limit is not None:
                break
            on_event(Tick("route", orders, _MOST_ORDERS))
            # ---- your method: one step, which may find a better answer ----
            found = _route_in_order(problem, rng.permutation(problem.circuits))
            # ---------------------------------------------------------------
            orders += 1
            if found is not None and (best is None or found.objective < best.objective):
                best = found  # kept first: the listener may interrupt
                on_event(NewBest(best.objective))
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    return _solution(problem, best, bound, limit, {"orders": orders})


# ---- your method -------------------------------------------------------------------------------


def _route_in_order(problem: Routing, circuits: NDArray[np.int32]) -> Setting | None:
    """Give each circuit a shortest route that avoids the links of those before it."""
    fabric = problem.fabric
    states = np.full(fabric.n_cells, FREE, dtype=np.int8)
    if fabric.graph is None:
        return Setting(0.0, states)
    graph, closed, costs = fabric.graph, set[int](), [0.0]
    price = problem.bar_loss_db, problem.cross_loss_db
    for source, destination in circuits:
        start = int(fabric.source_terminals[source])
        left = int(fabric.destination_terminals[destination])
        walks = walk(graph, [start], frozenset(closed))
        passed: list[int] = [start]
        cost = 0.0
        while left >= 0:
            entered = int(walks.entered[0, left])
            if entered < 0 or left in passed:  # no way, or one that would use a link both ways
                return None
            state = state_between(entered, left)
            cost += price[state != BAR] if problem.objective == "loss-db" else 1
            states[left // 4] = state
            passed += [left, entered]
            left = int(graph.mate[entered])
        closed.update(passed)
        costs.append(cost)
    objective = max(costs) if problem.objective == "worst-cells" else math.fsum(costs)
    return Setting(objective, states)


# ---- the frame ---------------------------------------------------------------------------------


def _solution(
    problem: Routing,
    best: Setting | None,
    bound: float,
    limit: Limit | None,
    stats: dict[str, Any],
) -> Solution:
    if best is None:
        return Solution(
            problem=problem,
            status=Status.UNKNOWN,
            limit=limit,
            lower_bound=bound,
            method=METHOD.name,
            stats=stats,
        )
    proved = best.objective <= bound
    schedule = Schedule(
        matchings=problem.matching[None],
        durations_s=np.ones(1),
        cell_states=None if problem.fabric.graph is None else best.cell_states[None],
    )
    return Solution(
        problem=problem,
        schedule=schedule,
        status=Status.OPTIMAL if proved else Status.FEASIBLE,
        limit=None if proved else limit,
        objective=best.objective,
        lower_bound=bound,
        method=METHOD.name,
        stats=stats,
    )


def _infeasible(problem: Routing) -> Solution:
    source, destination = problem.dead_circuits()[0]
    ends = problem.fabric.describe_port(source), problem.fabric.describe_port(destination)
    return Solution(
        problem=problem,
        status=Status.INFEASIBLE,
        lower_bound=math.inf,
        method=METHOD.name,
        stats={"reason": f"no state of the cells connects {ends[0]} and {ends[1]}"},
    )
