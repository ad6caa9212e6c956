"""A method to copy: circuits one by one, each by a shortest route over the links still free.

The template is complete and tested but not offered to users. To make a method of your own:

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
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import state_between, walk
from optmatch.model import BAR, FREE, Limits, OnEvent, Schedule, Solution
from optmatch.problems import Routing
from optmatch.solvers.frame import conclude, take_best
from optmatch.solvers.method import Method, Run


def _load() -> Run:
    """Return the function that runs the method; imports that take long belong in here."""
    return route


METHOD = Method("template", Routing, _load, "circuits one after another, each by a shortest route")

_MOST_ORDERS = 100


class Setting(NamedTuple):
    """A setting: a state for each cell, which together carry one matching, and what it costs."""

    objective: float  # in the unit of the problem's objective: cells or dB
    cell_states: NDArray[np.int8]  # (cells,): 0 bar, 1 cross, -1 where no light passes


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
        Hears the `Bound`, a `Tick` for each order and a `NewBest` for each improvement.

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
    Bound(lower_bound=5.0)
    Tick(phase='route', done=0, total=100)
    NewBest(objective=5.0)
    >>> solution.status
    <Status.OPTIMAL: 'optimal'>
    """
    clock = limits.start()
    bound = problem.lower_bound()
    if math.isinf(bound):
        ends = map(problem.fabric.describe_port, problem.dead_circuits()[0])
        reason = f"no state of the cells connects {' and '.join(ends)}"
        return conclude(problem, METHOD.name, None, bound, stats={"reason": reason})

    def settings() -> Iterator[tuple[float, Setting] | None]:
        """Yield the objective and the setting of each random order; None where one fails."""
        for _ in range(_MOST_ORDERS):
            # ---- your method: one step, which may find a better answer ----
            found = _route_in_order(problem, rng.permutation(problem.circuits))
            # ---------------------------------------------------------------
            yield None if found is None else (found.objective, found)

    best, limit, orders = take_best(settings(), bound, clock, on_event, "route", _MOST_ORDERS)
    stats = {"orders": orders}
    if best is None:
        return conclude(problem, METHOD.name, None, bound, limit, stats=stats)
    schedule = Schedule(
        matchings=problem.matching[None],
        durations_s=np.ones(1),
        cell_states=None if problem.fabric.graph is None else best.cell_states[None],
    )
    return conclude(
        problem, METHOD.name, best.objective, bound, limit, schedule=schedule, stats=stats
    )


# ---- your method -------------------------------------------------------------------------------


def _route_in_order(problem: Routing, circuits: NDArray[np.int32]) -> Setting | None:
    """Give each circuit, one after the other, a shortest route past the links of those before it.

    Light enters a cell by one of its four terminals, ``4 * cell + k``, and leaves by another; a
    link joins two terminals of different cells. Each link carries one circuit.

    Parameters
    ----------
    problem
        The matching and its fabric; its objective and losses say what a route costs.
    circuits
        ``circuits[k] = source, destination``: ports, in the order of routing, int, shape
        (circuits, 2).

    Returns
    -------
    Setting or None
        The states of all cells, 0 bar, 1 cross, -1 where no light passes, and the objective that
        they have: in dB for "loss-db", else a number of cells, the sum over circuits or, for
        "worst-cells", the largest. None if some circuit is left without a route.
    """
    fabric = problem.fabric
    states = np.full(fabric.n_cells, FREE, dtype=np.int8)
    if fabric.graph is None:
        return Setting(0.0, states)
    graph = fabric.graph
    closed = set[int]()
    costs = [0.0]
    price = problem.bar_loss_db, problem.cross_loss_db
    for source, destination in circuits:
        start = int(fabric.source_terminals[source])
        left = int(fabric.destination_terminals[destination])

        # ``walks.entered[0, terminal]`` is where a shortest way from the source enters the cell
        # that it leaves at this terminal, -1 if there is none. The route is read backwards, from
        # the destination to the terminal that is joined to nothing: there the source is.
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
