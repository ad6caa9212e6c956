"""All-to-all of a fabric with faults: solved on live ports; which faults cost slots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric, Faulty, SelectedPorts
from optmatch.model import (
    IDLE,
    Clock,
    Limits,
    OnEvent,
    Schedule,
    Solution,
    Status,
    ignore,
    uncounted,
)
from optmatch.problems import AllToAll, RoutingProof
from optmatch.solvers.all_to_all import factors as combinatorics
from optmatch.solvers.all_to_all.conclusion import FEWEST_SLOTS, without_routes
from optmatch.solvers.all_to_all.planner import FAILED, RoutedSlot, SlotPlanner, exchange_pairs
from optmatch.solvers.frame import stoppable
from optmatch.solvers.routing.causes import Refuted, add_causes, find_causes, refuse_dead_pairs
from optmatch.solvers.routing.router import CellRouter

Solve = Callable[..., Solution]


def live_part(fabric: Fabric) -> SelectedPorts:
    """Return the live ports of a fabric as one of their own."""
    return SelectedPorts(fabric, tuple(fabric.live_ports.tolist()))


def on_live_ports(solve: Solve) -> Solve:
    """Let a method for all-to-all solve on the live ports only."""

    @wraps(solve)
    def solve_all(
        problem: AllToAll,
        limits: Limits,
        rng: np.random.Generator,
        on_event: OnEvent,
        start: Solution | None = None,
        **given: Any,
    ) -> Solution:
        fabric = problem.fabric
        if not len(fabric.dead_ports):
            return solve(problem, limits, rng, on_event, start, **given)
        if not len(fabric.live_ports):
            nothing = np.empty((0, fabric.n_ports), dtype=np.int32)
            return without_routes(problem, nothing, solve.__module__.rpartition(".")[2])
        if start is not None and start.schedule is not None:
            start = replace(start, schedule=narrow(start.schedule, fabric))
        part = replace(problem, fabric=live_part(fabric))
        found = solve(part, limits, rng, on_event, start, **given)
        if found.status is Status.INFEASIBLE:
            refused = refuse_dead_pairs(problem, fabric.dead_pairs(), found.method)
            if refused is not None:
                return refused
        schedule = found.schedule and widen(found.schedule, fabric)
        return replace(found, problem=problem, schedule=schedule)

    return solve_all


def widen(schedule: Schedule, fabric: Fabric) -> Schedule:
    """Turn matchings of the live ports into matchings of all ports."""
    live = fabric.live_ports
    names = np.append(live, IDLE)  # the last entry is that of an idle port
    matchings = np.full((schedule.n_slots, fabric.n_ports), IDLE, dtype=np.int32)
    matchings[:, live] = names[schedule.matchings]
    return replace(schedule, matchings=matchings)


def narrow(schedule: Schedule, fabric: Fabric) -> Schedule | None:
    """Turn matchings of all ports into matchings of the live ports; the others are idle."""
    if schedule.matchings.shape[1] != fabric.n_ports:
        return None
    live = fabric.live_ports
    place = np.full(fabric.n_ports + 1, IDLE, dtype=np.int32)  # the last entry is an idle port's
    place[live] = np.arange(len(live))
    return replace(schedule, matchings=place[schedule.matchings[:, live]])


Decide = Callable[[AllToAll, Clock, np.random.Generator], "list[RoutedSlot] | bool"]
"""Finds a schedule in the fewest slots, refutes that there is one (True), or neither (False)."""

_FEW_LITERALS = 5_000  # a mesh of some 40 cells with 6 ports: a second at most
_FEW_CONFLICTS = 20_000


def decide_small(
    problem: AllToAll, clock: Clock, rng: np.random.Generator, slots: int | None = None
) -> list[RoutedSlot] | bool:
    """Do as `decide_fewest` does, where it takes about a second."""
    with uncounted():
        from optmatch.solvers.all_to_all.joint_model import (
            decide_fewest,  # CP-SAT is slow to import
        )

    few = replace(clock.limits, iterations=_FEW_CONFLICTS)
    return decide_fewest(problem, replace(clock, limits=few), rng, _FEW_LITERALS, slots)


def ask_shortage(
    solution: Solution, clock: Clock, rng: np.random.Generator, decide: Decide
) -> Refuted:
    """Make the test whether the fewest slots do not do on another fabric, for `find_causes`.

    `solution` is a schedule in more slots, with the proof that they are needed. `decide` has the
    last word: `decide_fewest`, or `decide_small`.
    """
    with uncounted():
        from optmatch.solvers.all_to_all.joint_bound import bound_jointly, refute_again  # OR-tools

    whole: Any = solution.problem
    known: list[NDArray[np.int64]] = []  # prices that refute

    def note(proof: RoutingProof, router: CellRouter) -> None:
        known.append(proof.prices[0][router.wiring.link])

    def remains(fabric: Fabric) -> bool | None:
        live = live_part(fabric) if len(fabric.dead_ports) else fabric
        problem, router = replace(whole, fabric=live), CellRouter(live)
        if any(refute_again(problem, router, prices) for prices in known):
            return True
        if _route_fewest(problem, router, clock, rng):
            return False
        bound, proof = bound_jointly(problem, router, np.inf, clock)
        if bound == np.inf and proof is not None:
            note(proof, router)
            return True
        decided = decide(problem, clock, rng)
        return False if isinstance(decided, list) else decided or None

    if solution.certificate is not None:
        note(solution.certificate, CellRouter(whole.fabric))
    return remains


def _route_fewest(
    problem: AllToAll, router: CellRouter, clock: Clock, rng: np.random.Generator
) -> bool:
    """Look for any schedule in the fewest slots."""
    planner = SlotPlanner(problem, router, clock, rng, ignore)
    factors = combinatorics.tournament(problem.fabric.n_ports, problem.fabric.bidirectional)
    names = planner.random_names(factors.shape[1])
    if planner.route_all(combinatorics.relabel(factors, names)) is None:
        planner.insist()
        exchange_pairs(planner, tolerated=FAILED - 1)
    routed = [slot.excess < FAILED for slot in planner.plan]
    return len(routed) == len(factors) and all(routed)


def names_faults(decide: Decide = decide_small) -> Callable[[Solve], Solve]:
    """Let a method for all-to-all name the faults that cost it slots.

    Where a method proves that the fewest slots do not do, its statistics get causes, as
    `name_causes` gives them to what cannot be done at all.
    """

    def decorate(solve: Solve) -> Solve:
        @wraps(solve)
        def solve_and_name(
            problem: AllToAll,
            limits: Limits,
            rng: np.random.Generator,
            on_event: OnEvent,
            start: Solution | None = None,
            **given: Any,
        ) -> Solution:
            clock = limits.start()
            solution = solve(problem, limits, rng, on_event, start, **given)
            refuted = str(solution.stats.get(FEWEST_SLOTS, "")).startswith("refuted")
            if not refuted or not isinstance(problem.fabric, Faulty):
                return solution
            with stoppable():
                remains = ask_shortage(solution, clock, rng, decide)
                found = find_causes(problem.fabric, remains, clock)
                solution = add_causes(solution, FEWEST_SLOTS, *found)
            return solution

        return solve_and_name

    return decorate
