"""Methods `birkhoff-*` for demands: stuffed, decomposed, and without what the stuffing added."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import get_args

import numpy as np

from optmatch.model import InputError, Limit, Limits, NewBest, OnEvent, Solution, Tick
from optmatch.problems import Demand
from optmatch.solvers.demands.birkhoff import Rule, decompose
from optmatch.solvers.demands.decomposer import Decomposer
from optmatch.solvers.demands.decomposing import conclude_count
from optmatch.solvers.demands.greedy import cover_heaviest_first
from optmatch.solvers.demands.plans import Plan, trim
from optmatch.solvers.demands.scheduling import Work, solve_demand
from optmatch.solvers.demands.stuffing import Stuffing, stuff
from optmatch.solvers.feedforward import holds_every_matching

RUNS = 32
"""Decompositions for the fewest matchings without a limit of time or iterations."""


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
    if problem.objective == "matchings":
        return _count(problem, limits, rng, on_event, rule, name)
    deadline = None if limits.time_s is None else time.perf_counter() + limits.time_s

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
    rng: np.random.Generator,
    on_event: OnEvent,
    rule: Rule,
    name: str,
) -> Solution:
    """Decompose the demand as it is, again and again with other names of ports.

    Ties between permutations fall otherwise then, and the number of terms differs.
    """
    if not holds_every_matching(problem.fabric):
        raise InputError(
            f"method {name!r}: its permutations need not be realisable on this"
            f" {problem.fabric.type}; best and ilp take those that are",
            where="method",
        )
    clock = limits.start()
    bound, ports = problem.lower_bound(), np.arange(problem.fabric.n_ports)
    best: Plan | None = None
    rows, columns = ports, ports
    done = 0
    limit: Limit | None = None
    try:
        while best is None or len(best.ticks) > bound:
            limit = clock.exceeded(done)
            if limits.iterations is None and limits.time_s is None and done >= RUNS:
                limit = Limit.EXHAUSTED
            if limit is not None:
                break
            on_event(Tick("decompositions", done))
            terms = decompose(problem.ticks[rows][:, columns], rule)
            if terms.residual.any():
                limit = Limit.INTERRUPTED
                break
            done += 1
            if best is None or len(terms.weights) < len(best.ticks):
                matchings = np.empty_like(terms.permutations)
                matchings[:, rows] = columns[terms.permutations]
                best = Plan(matchings, terms.weights)
                on_event(NewBest(float(len(best.ticks))))
            rows, columns = rng.permutation(ports), rng.permutation(ports)
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    stats: dict[str, object] = {"decompositions": done}
    search = Decomposer(problem.ticks, rng, problem.fabric)
    return conclude_count(problem, best, bound, limit, name, stats, None, search)
