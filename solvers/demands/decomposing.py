"""Method `best` for the fewest matchings: decompositions drawn at random, parts of them redrawn.

A step of a greedy decomposition takes a permutation whose least entry is large and which makes
many entries zero; how much either counts is drawn anew for each run. The sum of a few terms of a
decomposition is a smaller problem of the same kind: if it splits into fewer, so does the whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from optmatch.model import Limit, Limits, OnEvent, Solution
from optmatch.problems import CountProof, Demand, OddSetProof
from optmatch.solvers.demands.decomposer import Decomposer
from optmatch.solvers.demands.odd_sets import bound_demand
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.realised_terms import RealisedDecomposer
from optmatch.solvers.feedforward import holds_every_matching
from optmatch.solvers.frame import conclude, take_best

STEPS = 200
"""Runs without a limit of time or iterations."""

_RUNS = 12  # whole decompositions before parts are redrawn


def solve_matchings(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Decompose a demand into few weighted permutations.

    Parameters
    ----------
    problem
        Its objective is ``"matchings"``. On cells all terms can be realised.
    limits
        An iteration is one decomposition, of the whole or of a part.
    rng, on_event
        As for every method.
    """
    return take_fewest(problem, limits, rng, on_event, "best", STEPS, _draw)


def take_fewest(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    name: str,
    most: int,
    draw: Callable[[Decomposer], Iterator[Plan]],
) -> Solution:
    """Take decompositions until a limit is reached or one meets the bound.

    Parameters
    ----------
    problem, limits, rng, on_event, name
        As of a method, and its name.
    most
        How many to take without a limit of time or iterations.
    draw
        Yields decompositions; it may use those that the decomposer draws.
    """
    bound, proof = bound_demand(problem)
    unlimited = limits.iterations is None and limits.time_s is None
    searches: list[Decomposer] = []

    def plans() -> Iterator[tuple[float, Plan]]:
        searches.append(decomposer(problem, rng))
        for plan in itertools.islice(draw(searches[0]), most if unlimited else None):
            yield float(len(plan.ticks)), plan

    clock = limits.start()
    best, limit, done = take_best(plans(), bound, clock, on_event, "decompositions")
    stats: dict[str, object] = {"decompositions": done}
    search = searches[0] if searches else None
    return conclude_count(problem, best, bound, limit, name, stats, proof, search)


def _draw(search: Decomposer) -> Iterator[Plan]:
    """Yield whole decompositions, then the best of them with parts redrawn."""
    best: Plan | None = None
    for turn in itertools.count():
        found = search.draw() if best is None or turn < _RUNS else search.redraw(best)
        if best is None or len(found.ticks) <= len(best.ticks):
            best = found  # another one as good: the search goes on from there
        yield found


def decomposer(problem: Demand, rng: np.random.Generator) -> Decomposer:
    """Choose what draws decompositions: of any permutations, or of what the fabric can hold."""
    if holds_every_matching(problem.fabric):
        return Decomposer(problem.ticks, rng, problem.fabric)
    return RealisedDecomposer(problem, rng)


def conclude_count(
    problem: Demand,
    best: Plan | None,
    bound: float,
    limit: Limit | None,
    name: str,
    stats: dict[str, object],
    proof: CountProof | OddSetProof | None,
    search: Decomposer | None,
) -> Solution:
    """Say how many matchings were found and how many are proved to be needed."""
    if best is None or search is None:
        return conclude(problem, name, None, bound, limit, certificate=proof, stats=stats)
    count = len(best.ticks)
    return conclude(
        problem,
        name,
        float(count),
        bound,
        limit,
        schedule=problem.schedule(best.matchings, best.ticks, search.states(best)),
        certificate=proof,
        stats=stats | {"slots": count},
    )
