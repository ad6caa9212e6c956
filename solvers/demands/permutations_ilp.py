"""Method `ilp` for the fewest matchings: numbers of terms are refuted one by one, by CP-SAT.

Two lines bound the number in a way that can be checked (`CountProof`). Where that many terms are
enough, they are found by guessing weights: with most of them known, CP-SAT is done at once. With
exactly as many terms as a line has entries, these are all weights.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from optmatch.model import Bound, Limit, Limits, NewBest, OnEvent, Solution, TimeUp, uncounted
from optmatch.problems import Demand
from optmatch.solvers.cpsat import minimise
from optmatch.solvers.demands.decomposer import Decomposer, conclude_count, decomposer, lasts
from optmatch.solvers.demands.line_pairs import count_terms, guess_weights
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.scheduling import former_plan
from optmatch.solvers.feedforward import holds_every_matching
from optmatch.solvers.frame import limit_of

_WARM_STARTS = 60
_ENDLESS = 10**9  # decompositions, where only the clock ends the search
_GUESS_WORK = 2.0  # for each guess of weights, in seconds that CP-SAT counts by its steps


def solve(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
) -> Solution:
    """Solve a demand exactly, for the objective that it states.

    See `solve_count` and `exact.makespan.solve_makespan`.
    """
    if problem.objective == "matchings":
        return solve_count(problem, limits, rng, on_event, start)
    with uncounted():
        from optmatch.solvers.demands.makespan import solve_makespan

    return solve_makespan(problem, limits, rng, on_event, start)


def solve_count(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
) -> Solution:
    """Decompose a demand into the fewest weighted permutations.

    Weights are whole ticks, and iterations are conflicts of CP-SAT, for each number of terms. On a
    fabric that does not hold every matching CP-SAT is left out: which permutations could be terms
    is not known there. The solution is OPTIMAL with a `CountProof` where counting is enough; else
    the bound is CP-SAT's word (``stats["bound_by"]``).
    """
    clock = limits.start()
    demand, ideal = problem.ticks, holds_every_matching(problem.fabric)
    best: Plan | None = None
    proof, counted = count_terms(demand)
    bound = max(float(counted), problem.lower_bound())
    by_search = False
    limit: Limit | None = None
    search: Decomposer | None = None
    try:
        search = decomposer(problem, rng)
        best = search.take_up(former_plan(problem, start))
        starts = _WARM_STARTS if ideal or limits.time_s is None else _ENDLESS
        for turn in range(starts if limits.iterations is None else 1 + limits.iterations):
            if turn and (turn >= starts or clock.remaining_s <= 0):
                break
            found = search.draw() if best is None or turn < 6 else search.redraw(best)
            better = best is None or len(found.ticks) < len(best.ticks)
            if better and lasts(problem, found):
                best = found  # kept first: the listener may interrupt
                on_event(NewBest(float(len(best.ticks))))
            if best is not None and len(best.ticks) <= bound:
                break
        if bound > problem.lower_bound():
            on_event(Bound(bound))
        while best is None or bound < len(best.ticks):
            limit = clock.exceeded(0)
            if limit is None and not ideal:
                limit = Limit.EXHAUSTED
            if limit is not None:
                break
            if bound * problem.min_slot_ticks > demand[0].sum():
                bound, by_search = math.inf, True
                break
            seed = int(rng.integers(1 << 30))
            for weights, certain in guess_weights(demand, int(bound)):
                model, terms = _model(demand, int(bound), problem.min_slot_ticks, weights)
                work = math.inf if certain else _GUESS_WORK
                outcome = minimise(model, clock, on_event, seed=seed, work=work, tell=False)
                limit = None if certain else clock.exceeded(0)
                if outcome.found or limit is not None:
                    break
            if outcome.found:
                best, limit = _read(terms, outcome, len(demand)), None
                on_event(NewBest(float(len(best.ticks))))
                break
            limit = outcome.limit if limit is None else limit
            if limit is not None:
                break
            bound, by_search = bound + 1, True
            on_event(Bound(bound))
    except (KeyboardInterrupt, TimeUp) as stop:
        limit = limit_of(stop)
    stats: dict[str, object] = {"bound_by": "cp-sat"} if by_search else {}
    return conclude_count(problem, best, bound, limit, "ilp", stats, proof, search)


class _Terms:
    """The variables of a decomposition into k terms."""

    def __init__(
        self, model: cp_model.CpModel, demand: NDArray[np.int64], k: int, known: list[int]
    ) -> None:
        free = [model.new_int_var(1, int(demand.max()), "") for _ in range(k - len(known))]
        for longer, shorter in pairwise(free):
            model.add(longer >= shorter)
        self.weights = [model.new_constant(weight) for weight in known] + free
        model.add(sum(self.weights) == int(demand[0].sum()))
        self.uses = [
            {(int(i), int(j)): model.new_bool_var("") for i, j in np.argwhere(demand)}
            for _ in range(k)
        ]


def _model(
    demand: NDArray[np.int64], k: int, shortest: int, known: list[int]
) -> tuple[cp_model.CpModel, _Terms]:
    """Ask for k permutations, of so many ticks at least, whose weighted sum is the demand."""
    model = cp_model.CpModel()
    terms = _Terms(model, demand, k, known)
    for weight in terms.weights:
        model.add(weight >= shortest)
    n = len(demand)
    for uses in terms.uses:
        for line in range(n):
            model.add_exactly_one(use for (i, _), use in uses.items() if i == line)
            model.add_exactly_one(use for (_, j), use in uses.items() if j == line)
    for i, j in np.argwhere(demand):
        size, parts = int(demand[i, j]), []
        for weight, uses in zip(terms.weights, terms.uses, strict=True):
            part = model.new_int_var(0, size, "")
            model.add(part == weight).only_enforce_if(uses[int(i), int(j)])
            model.add(part == 0).only_enforce_if(~uses[int(i), int(j)])
            parts.append(part)
        model.add(sum(parts) == size)
        model.add_bool_or([uses[int(i), int(j)] for uses in terms.uses])
    return model, terms


def _read(terms: _Terms, outcome: object, n: int) -> Plan:
    matchings = np.empty((len(terms.uses), n), dtype=np.int32)
    for slot, uses in enumerate(terms.uses):
        for (i, j), use in uses.items():
            if outcome.holds(use):  # type: ignore[attr-defined]
                matchings[slot, i] = j
    ticks = [outcome.value(weight) for weight in terms.weights]  # type: ignore[attr-defined]
    return Plan(matchings, np.array(ticks, dtype=np.int64))
