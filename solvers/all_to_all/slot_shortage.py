"""All-to-all of a fabric with faults: solved on the live ports; and which faults cost slots.

The *fewest slots* are those by counting, such as 31 for 32 bidirectional ports. There is a
*shortage* where more are proved to be needed: for prices of links, the cheapest paths of all pairs
cost more than all links in all slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric, Faulty, SelectedPorts
from optmatch.model import (
    IDLE,
    Clock,
    Limits,
    OnEvent,
    Solution,
    Status,
    ignore,
    uncounted,
)
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all.conclusion import FEWEST_SLOTS, without_routes
from optmatch.solvers.all_to_all.factors import relabel, tournament
from optmatch.solvers.all_to_all.planner import FAILED, Decision, SlotPlanner, exchange_pairs
from optmatch.solvers.frame import stoppable
from optmatch.solvers.routing.causes import add_causes, find_causes, refuse_dead_pairs
from optmatch.solvers.routing.router import CellRouter

Solve = Callable[..., Solution]


def live_part(fabric: Fabric) -> SelectedPorts:
    """Return the live ports of a fabric as one of their own."""
    return SelectedPorts(fabric, tuple(fabric.live_ports.tolist()))


Decide = Callable[[AllToAll, Clock, np.random.Generator], Decision]
"""Searches for a schedule in the fewest slots."""

_FEW_LITERALS = 5_000  # a mesh of some 40 cells with 6 ports: a second at most
"""Larger models are not built by `decide_small`."""
_FEW_CONFLICTS = 20_000
"""Conflicts after which `decide_small` gives up."""


def decide_small(
    problem: AllToAll, clock: Clock, rng: np.random.Generator, slots: int | None = None
) -> Decision:
    """Decide by CP-SAT whether there is a schedule in the fewest slots, where a second is enough.

    That stays open if the model has more than `_FEW_LITERALS` literals, or the search ends before
    it knows. `slots` is another number of slots than the fewest.
    """
    with uncounted():
        from optmatch.solvers.all_to_all.joint_model import (
            decide_fewest,  # CP-SAT is slow to import
        )

    few = replace(clock.limits, iterations=_FEW_CONFLICTS)
    return decide_fewest(problem, replace(clock, limits=few), rng, _FEW_LITERALS, slots)


class ShortageTest:
    """The test whether a fabric with fewer faults still needs more than the fewest slots.

    On the fabric of a solution it is proved that the fewest slots are not enough. To find the
    faults that are to blame, faults are mended and the test is asked again (`find_causes`).

    Attributes
    ----------
    problem : AllToAll
        The problem of the solution, on the fabric with all faults.
    clock, rng, decide
        The time for the tests, the random numbers of searches, and the exact test.
    refuting_prices : list of int64 array, shape (terminals,)
        Prices of links that proved a shortage on one of the fabrics so far. They are kept by
        terminal, as each fabric numbers its links anew.
    """

    def __init__(
        self, solution: Solution, clock: Clock, rng: np.random.Generator, decide: Decide
    ) -> None:
        """Take up the prices that proved the shortage on the fabric of `solution`, if any."""
        self.problem: Any = solution.problem
        self.clock = clock
        self.rng = rng
        self.decide = decide
        self.refuting_prices: list[NDArray[np.int64]] = []
        if solution.certificate is not None:
            # The proof of a shortage has a single case, and so a single row of prices.
            link_of_terminal = CellRouter(self.problem.fabric).wiring.link
            self.refuting_prices.append(solution.certificate.prices[0][link_of_terminal])

    def __call__(self, fabric: Fabric) -> bool | None:
        """Tell whether a fabric needs more than the fewest slots; None if that stays open.

        `fabric` is that of the problem with some of its faults mended; its dead ports are left
        out. Tests go from quick to exact, until one of them answers: prices that proved it on
        other fabrics, a schedule by search, new prices by a linear programme, and `decide`.
        """
        with uncounted():
            from optmatch.solvers.routing.columns import bound_jointly, refute_again  # OR-tools

        live = live_part(fabric) if len(fabric.dead_ports) else fabric
        problem = replace(self.problem, fabric=live)
        router = CellRouter(live)

        # The quick tests come first: prices that proved it elsewhere, and any schedule.
        if any(refute_again(problem, router, prices) for prices in self.refuting_prices):
            return True
        if _route_fewest(problem, router, self.clock, self.rng):
            return False

        # An infinite bound is the proof by new prices that the fewest slots are not enough.
        bound, proof = bound_jointly(problem, router, np.inf, self.clock)
        if bound == np.inf and proof is not None:
            self.refuting_prices.append(proof.prices[0][router.wiring.link])
            return True

        # The exact test.
        decision = self.decide(problem, self.clock, self.rng)
        if decision.slots is not None:
            return False
        return True if decision.refuted else None


def _route_fewest(
    problem: AllToAll, router: CellRouter, clock: Clock, rng: np.random.Generator
) -> bool:
    """Return whether a heuristic search finds some schedule in the fewest slots.

    The pairs are those of a round-robin tournament whose players are drawn by `rng`. Slots are
    routed one by one; where some fail, pairs are exchanged between slots until all circuits have
    routes. False proves nothing.
    """
    planner = SlotPlanner(problem, router, clock, rng, ignore)
    factors = tournament(problem.fabric.n_ports, problem.fabric.bidirectional)
    names = planner.draw_names(factors.shape[1])
    limit = planner.route_all(relabel(factors, names))
    if limit is None:
        planner.reroute_failed()
        exchange_pairs(planner, tolerated=FAILED - 1)
    is_routed = [slot.excess < FAILED for slot in planner.plan]
    return len(is_routed) == len(factors) and all(is_routed)


def with_faults(solve: Solve, decide: Decide = decide_small) -> Solve:
    """Decorate a method for all-to-alls: it takes dead ports, and names faults that cost slots.

    Where a method proves that the fewest slots are not enough, the statistics of its solution get
    ``causes`` and ``causes_minimal``. `decide` is the exact test of last resort.
    """
    return wraps(solve)(partial(_solve_and_blame, solve, decide))


def _solve_and_blame(
    solve: Solve,
    decide: Decide,
    problem: AllToAll,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
    **options: Any,
) -> Solution:
    """Solve an all-to-all, and if the fewest slots are refuted, name the faults that cause it.

    `solve` is a method, which gets `start` and `options`, and `decide` the exact test whether a
    fabric with fewer faults needs more than the fewest slots.
    """
    clock = limits.start()
    if len(problem.fabric.dead_ports):
        solution = _solve_on_live_ports(solve, problem, limits, rng, on_event, start, **options)
    else:
        solution = solve(problem, limits, rng, on_event, start, **options)
    refuted = str(solution.stats.get(FEWEST_SLOTS, "")).startswith("refuted")
    if not refuted or not isinstance(problem.fabric, Faulty):
        return solution

    # A fault is a cause if with it the fewest slots do not suffice. An interrupt keeps the
    # solution, and names what is known.
    with stoppable():
        needs_more_slots = ShortageTest(solution, clock, rng, decide)
        causes, is_minimal = find_causes(problem.fabric, needs_more_slots, clock)
        solution = add_causes(solution, FEWEST_SLOTS, causes, is_minimal)
    return solution


def _solve_on_live_ports(
    solve: Solve,
    problem: AllToAll,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None,
    **options: Any,
) -> Solution:
    """Solve the problem of the live ports, numbered anew from 0; give all ports back afterwards.

    With 4 ports of which port 1 is dead, the live ports 0, 2 and 3 have the numbers 0, 1 and 2 in
    the schedule of `solve`. Its matching ``[1, 0, -1]`` becomes ``[2, -1, 0, -1]``, in which the
    dead port is idle. `start` is a former solution with the numbers of all ports, None for none.
    """
    fabric = problem.fabric
    live = fabric.live_ports
    if not len(live):
        nothing = np.empty((0, fabric.n_ports), dtype=np.int32)
        return without_routes(problem, nothing, solve.__module__.rpartition(".")[2])

    # A former solution gets the new numbers, unless it is one of another number of ports. Tables
    # from old to new numbers have one entry more, which the index IDLE = -1 picks: idle stays
    # idle.
    if start is not None and start.schedule is not None:
        live_port_of_port = np.full(fabric.n_ports + 1, IDLE, dtype=np.int32)
        live_port_of_port[live] = np.arange(len(live))
        former = start.schedule
        narrowed = None
        if former.matchings.shape[1] == fabric.n_ports:
            narrowed = replace(former, matchings=live_port_of_port[former.matchings[:, live]])
        start = replace(start, schedule=narrowed)

    # A proof that the live ports have no solution names a pair by their numbers, so the pair is
    # looked up again by those of the whole fabric.
    part = replace(problem, fabric=live_part(fabric))
    solution = solve(part, limits, rng, on_event, start, **options)
    if solution.status is Status.INFEASIBLE:
        refused = refuse_dead_pairs(problem, fabric.dead_pairs(), solution.method)
        if refused is not None:
            return refused

    # The schedule gets the numbers of the whole fabric.
    schedule = solution.schedule
    if schedule is not None:
        port_of_live_port = np.append(live, IDLE)
        matchings = np.full((schedule.n_slots, fabric.n_ports), IDLE, dtype=np.int32)
        matchings[:, live] = port_of_live_port[schedule.matchings]
        schedule = replace(schedule, matchings=matchings)
    return replace(solution, problem=problem, schedule=schedule)
