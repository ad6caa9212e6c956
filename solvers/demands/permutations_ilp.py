"""Method `ilp` for the fewest matchings: numbers of terms are refuted one by one, by CP-SAT.

Two lines bound the number in a way that can be checked (`CountProof`). Where that many terms are
enough, they are found by guessing weights: with most of them known, CP-SAT is done at once. With
exactly as many terms as a line has entries, these are all weights.

A *term* is a permutation with its weight in ticks. *Known* weights are those that are given to the
model as constants, because they are guessed or certain. A bound is *searched* if CP-SAT has found
that fewer terms do not exist, which nobody can check without searching again.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Bound, Clock, Limit, Limits, NewBest, OnEvent, Solution, uncounted
from optmatch.problems import Demand
from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.demands.decomposer import conclude_count, take_fewest
from optmatch.solvers.demands.line_pairs import guess_weights
from optmatch.solvers.demands.plans import Plan, read_plan
from optmatch.solvers.demands.scheduling import former_plan, route_slots
from optmatch.solvers.exact_models import Asked, ExactModel, draw_seed, refute_in_turn
from optmatch.solvers.feedforward import holds_every_matching
from optmatch.solvers.frame import conclude, stoppable

_WARM_STARTS = 60  # decompositions that are drawn before the first model
_GUESS_WORK = 2.0  # for each guess of weights, in seconds that CP-SAT counts by its steps


def solve(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
) -> Solution:
    """Solve a demand exactly, for the objective that it states: the method ``"ilp"``.

    Completion times are left to `solve_makespan`. For the fewest matchings, a sum of as few
    weighted permutations (terms) as possible, three steps follow each other: a lower bound on the
    number of terms by counting; sums that are drawn at random; and questions to CP-SAT whether
    fewer terms will do, from the bound on. Each later step is left out if the best sum meets the
    bound. On a fabric that does not hold every matching CP-SAT is left out, too: which
    permutations could be terms is not known there.
    """
    if problem.objective != "matchings":
        with uncounted():
            from optmatch.solvers.demands.makespan import solve_makespan

        return solve_makespan(problem, limits, rng, on_event, start)

    # How many sums are drawn at random. `_WARM_STARTS`, if a model follows or there is no limit of
    # time; without a model, as many as the time allows (None). A limit of iterations allows fewer.
    clock = limits.start()
    has_model = holds_every_matching(problem.fabric)
    most: int | None = _WARM_STARTS
    if not has_model and limits.time_s is not None:
        most = None
    elif limits.iterations is not None:
        most = min(_WARM_STARTS, 1 + limits.iterations)
    of_draws = replace(limits, iterations=None)
    solution = take_fewest(problem, of_draws, rng, on_event, name="ilp", most=most, start=start)
    if not has_model or solution.limit is not Limit.EXHAUSTED:
        return solution
    return _refute_counts(problem, solution, clock, rng, on_event)


def _refute_counts(
    problem: Demand,
    solution: Solution,
    clock: Clock,
    rng: np.random.Generator,
    on_event: OnEvent,
) -> Solution:
    """Prove how few matchings a demand needs: ask CP-SAT for k of them, then k + 1, and so on.

    `solution` has the best decomposition that random draws gave, and the lower bound by counting.
    The first k that has a decomposition is the least. For example, with a lower bound of 4 and a
    known plan of 7 matchings, CP-SAT is asked for 4, 5 and 6. If it finds one of 5, that is the
    best plan; if it refutes all three, the plan of 7 is proved.
    """
    best = former_plan(problem, solution)
    bound: Any = solution.lower_bound
    stats = dict(solution.stats)

    # The numbers of terms worth asking for: from the bound to one less than the best plan has. No
    # more than `most_terms` of the shortest slot fit into the sum of a row. An infinite bound, by
    # which no plan exists, makes the range empty.
    most_terms = int(problem.ticks[0].sum()) // max(problem.min_slot_ticks, 1)
    best_terms = math.inf if best is None else len(best.ticks)
    first = int(min(bound, most_terms + 1))
    n_terms_to_try = range(first, int(min(best_terms, most_terms + 1)))

    # A verdict is one of three: `answer` is the decomposition that was found; or `count` is the
    # number of terms at which a limit ended the search; or both are None, as all numbers are
    # refuted.
    refuted: list[int] = []
    with stoppable() as stop:
        ask = partial(_look_for_terms, problem, clock, rng, on_event)
        note_refuted = partial(_note_refuted, refuted, on_event)
        verdict = refute_in_turn(n_terms_to_try, ask, clock, note_refuted)
        stop.limit = verdict.limit
        if verdict.answer is not None:
            best = verdict.answer
            on_event(NewBest(float(len(best.ticks))))
        elif verdict.count is None and best is None:
            # No decomposition keeps to the shortest slot.
            bound = math.inf
            stats["bound_by"] = "cp-sat"
    if refuted:
        bound = max(bound, float(refuted[-1] + 1))
        stats["bound_by"] = "cp-sat"
    if best is None:
        return conclude(
            problem,
            "ilp",
            None,
            bound,
            stop.limit,
            certificate=solution.certificate,
            stats=stats,
        )
    states = route_slots(problem.fabric, best)
    return conclude_count(
        problem,
        best,
        states,
        name="ilp",
        bound=bound,
        limit=stop.limit,
        proof=solution.certificate,
        stats=stats,
    )


def _note_refuted(refuted: list[int], on_event: OnEvent, n_terms: int) -> None:
    """Add a number of terms to those that CP-SAT has refuted, and tell the bound above it."""
    refuted.append(n_terms)
    on_event(Bound(float(n_terms + 1)))


def _look_for_terms(
    problem: Demand, clock: Clock, rng: np.random.Generator, on_event: OnEvent, n_terms: int
) -> Asked[Plan] | Limit:
    """Look for a decomposition into so many terms, with weights that are guessed, then without.

    A limit is returned where it ends the guesses. With most weights given as constants CP-SAT is
    quick, but if it finds nothing, other weights may do. Only weights that every decomposition has
    to have (`is_forced`; none at all are such ones, too) allow the answer that there is none.
    """
    demand = problem.ticks
    seed = draw_seed(rng)
    for weights, is_forced in guess_weights(demand, n_terms):
        model = TermModel(demand, n_terms, problem.min_slot_ticks, weights)
        work = math.inf if is_forced else _GUESS_WORK
        outcome = model.solve(clock, on_event, seed=seed, work=work)
        if outcome.found or is_forced:
            return model, outcome

        # A guess that comes to nothing tells nothing about other weights.
        limit = clock.exceeded(0)
        if limit is not None:
            return limit
    raise AssertionError("the last weights of guess_weights are forced, and end the search")


class TermModel(ExactModel[Plan]):
    """The CP-SAT model of k permutations whose weighted sum is the demand; it minimises nothing.

    Attributes
    ----------
    weights
        The weight of each term in ticks: constants for known ones, then variables that do not
        rise, which leaves one of many equal orders.
    uses
        For each term, by source and destination, whether its permutation has this entry.
    """

    def __init__(self, demand: NDArray[np.int64], k: int, shortest: int, known: list[int]) -> None:
        """Add the variables of k terms, and let them add up to the demand.

        No term has fewer ticks than `shortest`; `known` are the weights of the first terms.
        """
        super().__init__()
        model = self.model
        self.n = len(demand)
        pairs = [(int(i), int(j)) for i, j in np.argwhere(demand)]

        # The weights: an order of those that are not known leaves one of many equal orders.
        unknown = [model.new_int_var(1, int(demand.max()), "") for _ in range(k - len(known))]
        for longer, shorter in pairwise(unknown):
            model.add(longer >= shorter)
        self.weights = [model.new_constant(weight) for weight in known] + unknown
        model.add(sum(self.weights) == int(demand[0].sum()))

        # Each term is a permutation: it has one entry of each line.
        self.uses = [{pair: model.new_bool_var("") for pair in pairs} for _ in range(k)]
        for weight in self.weights:
            model.add(weight >= shortest)
        for uses in self.uses:
            for line in range(self.n):
                model.add_exactly_one(use for (i, _), use in uses.items() if i == line)
                model.add_exactly_one(use for (_, j), use in uses.items() if j == line)

        # The weights of the permutations that have an entry add up to it.
        for pair in pairs:
            size = int(demand[pair])
            parts = [
                self.new_amount_if(uses[pair], weight, size)
                for weight, uses in zip(self.weights, self.uses, strict=True)
            ]
            model.add(sum(parts) == size)
            model.add_bool_or([uses[pair] for uses in self.uses])

    def read(self, outcome: Outcome) -> Plan:
        """Return the terms of a solution of CP-SAT as a plan."""
        return read_plan(outcome, self.uses, self.weights, self.n)
