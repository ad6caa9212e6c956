"""Method `best` for the fewest matchings: decompositions drawn at random, parts of them redrawn.

A step of a greedy decomposition takes a permutation whose least entry is large and which makes
many entries zero; how much either counts is drawn anew for each run. The sum of a few terms of a
decomposition is a smaller problem of the same kind: if it splits into fewer, so does the whole.
"""

from __future__ import annotations

import numpy as np

from optmatch.model import Limit, Limits, NewBest, OnEvent, Solution, Status, Tick
from optmatch.problems import CountProof, Demand, OddSetProof
from optmatch.solvers.demands.decomposer import Decomposer
from optmatch.solvers.demands.odd_sets import bound_by_odd_set
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.realised_terms import RealisedDecomposer
from optmatch.solvers.feedforward import holds_every_matching

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
    clock = limits.start()
    best: Plan | None = None
    limit: Limit | None = None
    bound, proof = bound_count(problem)
    done = 0
    search: Decomposer | None = None
    try:
        search = decomposer(problem, rng)
        while best is None or len(best.ticks) > bound:
            limit = clock.exceeded(done)
            if limit is None and limits.iterations is None and limits.time_s is None:
                limit = Limit.EXHAUSTED if done >= STEPS else None
            if limit is not None:
                break
            on_event(Tick("decompositions", done))
            found = search.draw() if best is None or done < _RUNS else search.redraw(best)
            if best is None or len(found.ticks) < len(best.ticks):
                best = found
                on_event(NewBest(float(len(best.ticks))))
            elif len(found.ticks) == len(best.ticks):
                best = found  # another one as good: the search goes on from there
            done += 1
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    stats: dict[str, object] = {"decompositions": done}
    return conclude_count(problem, best, bound, limit, "best", stats, proof, search)


def decomposer(problem: Demand, rng: np.random.Generator) -> Decomposer:
    """Choose what draws decompositions: of any permutations, or of what the fabric can hold."""
    if holds_every_matching(problem.fabric):
        return Decomposer(problem.ticks, rng, problem.fabric)
    return RealisedDecomposer(problem, rng)


def bound_count(problem: Demand) -> tuple[float, OddSetProof | None]:
    """Bound the number of matchings by partners of one port, or of an odd set of ports."""
    bound = problem.lower_bound()
    found = bound_by_odd_set(problem)
    return (bound, None) if found is None or found[1] <= bound else (found[1], found[0])


def conclude_count(
    problem: Demand,
    best: Plan | None,
    bound: float,
    limit: Limit | None,
    name: str,
    stats: dict[str, object],
    certificate: CountProof | OddSetProof | None,
    search: Decomposer | None,
) -> Solution:
    """Say how many matchings were found and how many are proved to be needed."""
    if best is None:
        return Solution(
            problem=problem,
            status=Status.UNKNOWN,
            limit=limit or Limit.EXHAUSTED,
            lower_bound=bound,
            method=name,
            certificate=certificate,
            stats=stats,
        )
    proved = len(best.ticks) <= bound
    states = None if search is None else search.states(best)
    return Solution(
        problem=problem,
        schedule=problem.schedule(best.matchings, best.ticks, states),
        status=Status.OPTIMAL if proved else Status.FEASIBLE,
        limit=None if proved else (limit or Limit.EXHAUSTED),
        objective=float(len(best.ticks)),
        lower_bound=bound,
        method=name,
        certificate=certificate,
        stats=stats | {"slots": len(best.ticks)},
    )
