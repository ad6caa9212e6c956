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
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    Bound,
    Clock,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Solution,
    TimeUp,
    uncounted,
)
from optmatch.problems import Demand
from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.demands.decomposer import Decomposer, conclude_count, decomposer, lasts
from optmatch.solvers.demands.line_pairs import count_terms, guess_weights
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.scheduling import former_plan
from optmatch.solvers.exact_models import Asked, ExactModel, draw_seed, refute_in_turn
from optmatch.solvers.feedforward import holds_every_matching
from optmatch.solvers.frame import limit_of

_WARM_STARTS = 60
_WHOLE_STARTS = 6  # decompositions of the whole, before parts of the best one are redrawn
_ENDLESS = 10**9  # decompositions, where only the clock ends the search
_GUESS_WORK = 2.0  # for each guess of weights, in seconds that CP-SAT counts by its steps


def solve(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
) -> Solution:
    """Solve a demand exactly, for the objective that it states: the method ``"ilp"``.

    Parameters
    ----------
    problem
        The demand: ``"matchings"`` asks for the fewest matchings (`solve_count`), anything else
        for the earliest completion (`makespan.solve_makespan`).
    limits
        The limits of time, gap and iterations, which are conflicts of CP-SAT.
    rng
        The random numbers of first plans, and of seeds.
    on_event
        Called with better objectives and bounds.
    start
        A former solution, perhaps of another demand; None if there is none.

    Returns
    -------
    Solution
        The best schedule and the best bound.
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
    """Write a demand as the sum of as few weighted permutations (terms) as possible.

    Three steps follow each other: a lower bound on the number of terms by counting; sums that are
    drawn at random; and questions to CP-SAT whether fewer terms will do, from the bound on. Each
    later step is left out if the best sum meets the bound. On a fabric that does not hold every
    matching CP-SAT is left out, too: which permutations could be terms is not known there.
    """
    # The bound by counting comes first; where it is met, no search is needed.
    clock = limits.start()
    proof, counted = count_terms(problem.ticks)
    count = _Count(bound=max(float(counted), problem.lower_bound()))

    # An interrupt keeps what `count` has so far.
    try:
        search = decomposer(problem, rng)
        count.search = search
        count.best = search.take_up(former_plan(problem, start))
        _draw_decompositions(problem, count, clock, on_event)
        if count.bound > problem.lower_bound():
            on_event(Bound(count.bound))
        _refute_counts(problem, count, clock, rng, on_event)
    except (KeyboardInterrupt, TimeUp) as stop:
        count.limit = limit_of(stop)
    stats: dict[str, object] = {"bound_by": "cp-sat"} if count.is_bound_searched else {}
    return conclude_count(
        problem,
        count.best,
        count.bound,
        count.limit,
        name="ilp",
        stats=stats,
        proof=proof,
        search=count.search,
    )


@dataclass(slots=True)
class _Count:
    """The search for the fewest matchings so far, kept up to date, since Ctrl-C may end it."""

    # No plan has fewer matchings.
    bound: float
    best: Plan | None = None
    is_bound_searched: bool = False
    """Whether the bound is CP-SAT's word, and not that of counting."""
    limit: Limit | None = None
    search: Decomposer | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether the best plan may have more matchings than are needed."""
        return self.best is None or len(self.best.ticks) > self.bound


def _draw_decompositions(problem: Demand, count: _Count, clock: Clock, on_event: OnEvent) -> None:
    """Draw decompositions at random, and parts of the best one anew, to begin with.

    It ends after a number of draws, when time is up, or when the best plan meets the bound.
    """
    search = count.search
    assert search is not None

    # How many draws: with a model to follow, few.
    n_starts = _WARM_STARTS
    if not holds_every_matching(problem.fabric) and clock.limits.time_s is not None:
        n_starts = _ENDLESS  # nothing else follows
    if clock.limits.iterations is not None:
        n_starts = min(n_starts, 1 + clock.limits.iterations)
    for turn in range(n_starts):
        if turn > 0 and clock.remaining_s <= 0:
            return
        if count.best is None or turn < _WHOLE_STARTS:
            plan = search.draw()
        else:
            plan = search.redraw(count.best)

        # Searches take no care of the shortest slot: decompositions with a shorter one are no
        # answers.
        is_better = count.best is None or len(plan.ticks) < len(count.best.ticks)
        if is_better and lasts(problem, plan):
            count.best = plan  # kept first: the listener may interrupt
            on_event(NewBest(float(len(plan.ticks))))
        if not count.is_open:
            return


def _refute_counts(
    problem: Demand, count: _Count, clock: Clock, rng: np.random.Generator, on_event: OnEvent
) -> None:
    """Prove how few matchings a demand needs: ask CP-SAT for k of them, then k + 1, and so on.

    A term is a permutation with its weight in ticks; a decomposition is a sum of terms that is the
    demand. The first k that has a decomposition is the least. For example, with a lower bound of 4
    and a known plan of 7 matchings, CP-SAT is asked for 4, 5 and 6. If it finds one of 5, that is
    the best plan; if it refutes all three, the plan of 7 is proved.
    """
    # The model takes every permutation for possible. Where the switch cannot hold all of them,
    # what it finds or refutes tells nothing, and the search ends here.
    if count.is_open and not holds_every_matching(problem.fabric):
        count.limit = clock.exceeded(0) or Limit.EXHAUSTED
    if not count.is_open or count.limit is not None:
        return

    def ask(n_terms: int) -> Asked[Plan] | Limit:
        """Look for a decomposition into so many terms; return model and outcome, or a limit."""
        return _look_for_terms(problem, n_terms, clock, draw_seed(rng), on_event)

    def note_refuted(n_terms: int) -> None:
        """Raise the bound above a number of terms that CP-SAT has refuted."""
        count.bound = float(n_terms + 1)
        count.is_bound_searched = True
        on_event(Bound(count.bound))

    # The numbers of terms worth asking for: from the bound to one less than the best plan has. No
    # more than `most_terms` of the shortest slot fit into the sum of a row. If the bound is
    # infinite the range is empty.
    line_ticks = int(problem.ticks[0].sum())
    most_terms = line_ticks // max(problem.min_slot_ticks, 1)
    best_terms = math.inf if count.best is None else len(count.best.ticks)
    first = int(min(count.bound, most_terms + 1))
    n_terms_to_try = range(first, int(min(best_terms, most_terms + 1)))

    # The verdict has an `answer`, the decomposition that was found; or else a `count`, the number
    # of terms at which a limit ended the search; or neither, if all numbers are refuted.
    verdict = refute_in_turn(n_terms_to_try, ask, clock, note_refuted)
    if verdict.answer is not None:
        count.best = verdict.answer
        on_event(NewBest(float(len(count.best.ticks))))
        return
    count.limit = verdict.limit

    # If all numbers are refuted and a plan is known, the bound has risen to its number of terms.
    # If none is known (still open), no decomposition keeps to the shortest slot.
    if verdict.count is None and count.is_open:
        count.bound = math.inf
        count.is_bound_searched = True


def _look_for_terms(
    problem: Demand, n_terms: int, clock: Clock, seed: int, on_event: OnEvent
) -> Asked[Plan] | Limit:
    """Look for a decomposition into so many terms, with weights that are guessed, then without.

    A term is a permutation with its weight; the demand is to be the sum of all terms. With most
    weights given as constants CP-SAT is quick, but if it finds nothing, other weights may do. Only
    weights that every decomposition has to have (`is_forced`; none at all are such ones, too)
    allow the answer that there is none.
    """
    demand = problem.ticks
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

    A *term* is a permutation with its weight in ticks.

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

        A term is a permutation with its weight in ticks; the demand is to be the sum of k of them.
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
        matchings = np.empty((len(self.uses), self.n), dtype=np.int32)
        for slot, uses in enumerate(self.uses):
            for (source, destination), use in uses.items():
                if outcome.holds(use):
                    matchings[slot, source] = destination
        ticks = [outcome.value(weight) for weight in self.weights]
        return Plan(matchings, np.array(ticks, dtype=np.int64))
