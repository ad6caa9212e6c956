"""Methods `birkhoff-*` for demands: stuffed, decomposed, and without what the stuffing added."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import get_args

import numpy as np

from optmatch.model import InputError, Limit, Limits, NewBest, OnEvent, Solution
from optmatch.problems import Demand
from optmatch.solvers.birkhoff import Rule, decompose
from optmatch.solvers.decomposing import conclude_count
from optmatch.solvers.greedy import cover_heaviest_first
from optmatch.solvers.plans import Plan, trim
from optmatch.solvers.scheduling import Work, solve_demand
from optmatch.solvers.stuffing import Stuffing, stuff


def solve_first(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve a demand by rule ``"first"``; arguments as for every method."""
    return _solve(problem, limits, rng, on_event, "first")


def solve_bottleneck(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve a demand by rule ``"bottleneck"``; arguments as for every method."""
    return _solve(problem, limits, rng, on_event, "bottleneck")


def solve_weight(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve a demand by rule ``"weight"``; arguments as for every method."""
    return _solve(problem, limits, rng, on_event, "weight")


def solve_plus(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve a demand by rule ``"plus"``; arguments as for every method."""
    return _solve(problem, limits, rng, on_event, "plus")


def _solve(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent, rule: Rule
) -> Solution:
    name = f"birkhoff-{rule}"
    started = time.perf_counter()
    deadline = None if limits.time_s is None else started + limits.time_s
    if problem.objective == "matchings":
        return _count(problem, limits, on_event, rule, name, deadline)

    def build(work: Work) -> Iterator[Plan]:
        demand = work.demand
        for how in get_args(Stuffing):
            terms = decompose(stuff(demand, how), rule, deadline=deadline)
            plan = Plan(terms.permutations, terms.weights)
            rest = np.minimum(terms.residual, demand)
            if rest.any():  # out of time: what is left is covered at once
                last = cover_heaviest_first(rest, work.shortest)
                plan = Plan(
                    np.concatenate([plan.matchings, last.matchings]),
                    np.concatenate([plan.ticks, last.ticks]),
                )
            yield trim(plan, demand, work.shortest)

    return solve_demand(problem, limits, rng, on_event, name, build)


def _count(
    problem: Demand,
    limits: Limits,
    on_event: OnEvent,
    rule: Rule,
    name: str,
    deadline: float | None,
) -> Solution:
    """Decompose the demand as it is; an iteration is one matching."""
    if problem.fabric.graph is not None or problem.fabric.bidirectional:
        raise InputError(
            f"method {name!r}: the fewest matchings are found for an ideal switch only",
            where="method",
        )
    terms = decompose(problem.ticks, rule, max_terms=limits.iterations, deadline=deadline)
    plan, limit = None, None
    if not terms.residual.any():
        plan = Plan(terms.permutations, terms.weights)
        on_event(NewBest(float(len(plan.ticks))))
    elif limits.iterations is not None and len(terms.weights) >= limits.iterations:
        limit = Limit.ITERATIONS
    elif deadline is not None and time.perf_counter() >= deadline:
        limit = Limit.TIME
    else:
        limit = Limit.INTERRUPTED
    return conclude_count(problem, plan, problem.lower_bound(), limit, name, {})
