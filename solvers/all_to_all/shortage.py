"""Why an all-to-all of a broken fabric needs more slots than without faults: who is to blame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps

import numpy as np

from optmatch.fabrics import Fabric, Faulty
from optmatch.model import Clock, Limits, OnEvent, Solution, ignore
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all import factors as combinatorics
from optmatch.solvers.all_to_all.factory import FAILED, SHORT, Factory
from optmatch.solvers.all_to_all.live import LivePorts, Solve
from optmatch.solvers.all_to_all.together import refute_slots
from optmatch.solvers.routing.culprits import blame, find_culprits
from optmatch.solvers.routing.router import Router

Decide = Callable[[AllToAll, Clock, np.random.Generator], bool | None]
"""Tells whether the fewest slots do not do; None where that stays open."""


def fewest_refuted(problem: AllToAll, clock: Clock, rng: np.random.Generator) -> bool | None:
    """Look for a proof by link prices that the fewest slots do not do, then for a schedule.

    Parameters
    ----------
    problem
        On live ports, no two of which are a dead pair.
    clock
        When to stop.
    rng
        Source of randomness of the search.

    Returns
    -------
    bool or None
        None if neither was found.
    """
    router = Router(problem.fabric)
    if refute_slots(problem, router, clock):
        return True
    factory = Factory(problem, router, clock, rng, ignore)
    factors = combinatorics.tournament(problem.fabric.n_ports, problem.fabric.bidirectional)
    names = factory.random_names(factors.shape[1])
    if factory.route_all(combinatorics.relabel(factors, names)) is None:
        factory.exchange_pairs(tolerated=FAILED - 1)
    found = len(factory.plan) == len(factors)
    return False if found and all(slot.excess < FAILED for slot in factory.plan) else None


def names_faults(decide: Decide = fewest_refuted) -> Callable[[Solve], Solve]:
    """Let a method for all-to-all name the faults that cost it slots.

    Parameters
    ----------
    decide
        The test whether the fewest slots do not do, asked of fabrics with fewer faults.

    Returns
    -------
    Callable
        Decorates a method. Where it proves that the fewest slots do not do, its statistics get
        culprits, as `name_culprits` gives them to what cannot be done at all.
    """

    def decorate(solve: Solve) -> Solve:
        @wraps(solve)
        def solve_and_name(
            problem: AllToAll, limits: Limits, rng: np.random.Generator, on_event: OnEvent
        ) -> Solution:
            clock = limits.start()
            solution = solve(problem, limits, rng, on_event)
            refuted = str(solution.stats.get(SHORT, "")).startswith("refuted")
            if not refuted or not isinstance(problem.fabric, Faulty):
                return solution

            def still_short(fabric: Fabric) -> bool | None:
                live = LivePorts(fabric) if len(fabric.dead_ports) else fabric
                return decide(replace(problem, fabric=live), clock, rng)

            return blame(solution, SHORT, *find_culprits(problem.fabric, still_short, clock))

        return solve_and_name

    return decorate
