"""Method `ilp` for failures: the least disturbance, proved by CP-SAT, or a proof of none.

Level by level: if only hit circuits have to move, the rest is one small model of what is left
free. Else circuits of hit jobs may move, and only if that does not help those of others, as few as
possible: on small switches every small set of them is a small model of its own, which is far
quicker than one in which all may move.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from optmatch.model import Clock, Limit, Limits, NewBest, OnEvent, Solution, ignore
from optmatch.problems import BlockProof, CutProof, Reroute
from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.frame import conclude, stoppable
from optmatch.solvers.reroutes.greedy import (
    case_of,
    make_solution,
    move_racks,
    refuse,
)
from optmatch.solvers.reroutes.impossible import (
    explain,
    explain_bound,
    find_cut,
    prove_handovers,
)
from optmatch.solvers.reroutes.model import RerouteModel
from optmatch.solvers.reroutes.repair import Reach, Recovery, repair, settle, split_rest
from optmatch.solvers.reroutes.routing_state import FoundRoutes, HitCircuits, RoutingState

_MOST_SETS = 200
"""So many sets of circuits that may move are each a model of their own, at most."""
_LARGEST_SET = 3
"""Larger sets are not tried one by one: all may move in one model."""


class RerouteSearch:
    """The best plan so far, and its proof.

    Parameters
    ----------
    problem
        The running state, and what has failed.
    clock
        Ends the search; an iteration is one model.
    on_event
        Receives new best plans.
    rng
        Draws the seed of CP-SAT.
    """

    def __init__(
        self, problem: Reroute, clock: Clock, on_event: OnEvent, rng: np.random.Generator
    ) -> None:
        """Put the running circuits on the flow graph; an iteration of the clock is one model.

        Nothing is known yet: no plan, and 0 as the least value of the first two levels, circuits
        of others that are disturbed and circuits that are changed.
        """
        # What is asked, and the running circuits on the flow graph.
        self.problem = problem
        self.clock = clock
        self.on_event = on_event
        self.case: HitCircuits = case_of(problem)
        self.routing = RoutingState(problem)
        self.seed = int(rng.integers(2**31))

        # What the search has come to: the best plan, why it ended, and how many models it solved.
        self.best: Recovery | None = None
        self.limit: Limit | None = None
        self.models = 0
        self.proved = False
        """Whether the best plan is the best of all, or there is none at all."""
        self.settled = (0, 0)
        """No plan has fewer circuits of others disturbed, or then fewer changed."""

    def note(self, plan: Recovery) -> None:
        """Keep a plan if its levels are less than those of the best one; tell the listener."""
        if self.best is None or plan.levels < self.best.levels:
            self.best = plan
            try:
                self.on_event(NewBest(plan.levels))
            except KeyboardInterrupt:
                self.limit = Limit.INTERRUPTED

    def try_moving(self, movable: Sequence[int], *, few: bool = False) -> bool:
        """Search exactly for a plan in which some circuits may move; tell whether that ended.

        Circuits that were not hit stay where they are, but for those in `movable`. With `few` it
        is found first how few of them must move; then routes are chosen among plans in which no
        more do. Else all of them count as moved, whether they do or not. A plan that is better
        than the best so far is kept. The result is False if a limit came before.
        """
        # The model works around the routes of all others: hit and movable circuits are taken off.
        # A known plan that moves as many circuits (level 1 counts those that change) bounds the
        # costs of the routes: they need not be proved to be better, only not to be worse.
        routing = self.routing
        case = self.case
        with routing.without((*case.hit, *movable)):
            model = RerouteModel(routing, case, movable)
        if few:
            outcome = self._run(model, model.movers_cost)
            if not outcome.optimal:
                return bool(outcome.infeasible)
            model.model.add(model.movers_cost <= round(outcome.lower_bound))
        elif self.best is not None and self.best.levels[1] == len(case.hit) + len(movable):
            _, _, sets, worst, length = self.best.levels
            known = (sets * model.loss_radix + worst) * model.length_radix + length
            model.model.add(model.routes_cost <= known)

        # Now the routes: cells to be set, the worst loss, and the length.
        outcome = self._run(model, model.routes_cost)
        if outcome.found:
            plan = model.read(outcome)
            routes = FoundRoutes(routing.sum_up(plan.paths), plan.paths)
            self.note(settle(routing, case, plan.handover, model.circuits, routes))
        return bool(outcome.optimal or outcome.infeasible)

    def _run(self, model: RerouteModel, objective: Any) -> Outcome:
        """Minimise an objective of a model in the remaining time; note a limit that was met."""
        self.models += 1
        remaining = self.clock.remaining_s
        clock = Limits(time_s=remaining if math.isfinite(remaining) else None).start()
        model.minimise(objective)
        outcome = model.solve(clock, ignore, seed=self.seed)
        self.limit = self.limit or outcome.limit
        return outcome

    def stopped(self) -> bool:
        """Tell whether a limit of time or of iterations, counted in models, was met."""
        self.limit = self.limit or self.clock.exceeded(self.models)
        return self.limit is not None

    def has(self, disturbed: int, moved: int) -> bool:
        """Tell whether the best plan moves no more than so many circuits that were not hit.

        Fewer disturbed ones outweigh any number of moved ones. False, too, without a plan.
        """
        if self.best is None:
            return False
        return self.best.levels[:2] <= (disturbed, len(self.case.hit) + moved)


def solve(
    problem: Reroute, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Get over a failure with the least disturbance, or prove that it cannot be done.

    Disturbance is compared by five levels in this order: circuits disturbed of jobs from which the
    failure took none, circuits changed, cells set, the worst loss, and the length of routes.

    The quick repair comes first. If it meets the bound of the problem, no model is needed.
    Iterations count models, each solved to its end; both limits stop the search with the best so
    far.

    Parameters
    ----------
    problem
        The running state, and what has failed.
    limits, rng, on_event
        As of every method: when it ends, what is drawn at random, and who hears of progress.

    Returns
    -------
    Solution
        OPTIMAL, or INFEASIBLE with a reason, unless a limit was reached.
    """
    bound = problem.lower_bound()
    if not isinstance(bound, tuple):
        reason = explain_bound(len(problem.lost), len(problem.live_spares))
        return refuse(problem, "ilp", reason)
    if not problem.units.through:
        return move_racks(problem, "ilp", bound)
    clock = limits.start()
    if clock.remaining_s <= 0.0:
        return conclude(problem, "ilp", None, bound, Limit.TIME)

    # The quick repair first: its plan bounds the models, or it has a proof that there is none.
    search = RerouteSearch(problem, clock, on_event, rng)
    reach = Reach(search.routing, problem.loss_units)
    cut = partial(find_cut, problem) if problem.units.n_chips else None
    repaired = repair(search.routing, search.case, reach, clock=clock, prove=cut)
    certificate: Any = None if isinstance(repaired, Recovery) else repaired
    if isinstance(repaired, Recovery):
        search.note(repaired)

    # Models decide what that leaves open.
    if certificate is not None or (search.best is not None and search.best.levels == bound):
        search.proved = True
    else:
        with stoppable() as stop:
            certificate = _settle_all(search)
        search.limit = stop.limit or search.limit
    return _conclude(search, bound, certificate)


def _settle_all(search: RerouteSearch) -> Any:
    """Settle the first two levels of the objective, one after the other, as far as limits allow.

    Changes ``search.settled``, the least values of both levels that are proved, ``search.best``
    and ``search.proved``. First only hit circuits move; then others of their jobs; at last
    circuits of anybody. The result is a certificate that there is no plan, if that was found.
    """
    # First only hit circuits move.
    if search.stopped() or not search.try_moving(()):
        return None
    if search.has(0, 0):
        search.proved = True
        return None
    search.settled = (0, len(search.case.hit) + 1)
    if search.best is None:
        certificate = find_cut(search.problem)
        proofs = certificate or prove_handovers(search.problem, search.clock, search.seed)
        if proofs is not None:
            search.proved = True
            return proofs

    # Then circuits of hit jobs may move, too, which disturbs nobody else.
    job_circuits, other_circuits = split_rest(search.routing, search.case)
    if job_circuits and (search.stopped() or not search.try_moving(job_circuits, few=True)):
        return None
    if search.best is not None and search.best.levels[0] == 0:
        search.proved = True
        return None

    # At last circuits of others.
    search.settled = (1, len(search.case.hit) + 1)
    search.proved = _move_others(search, job_circuits, other_circuits)
    return None


def _move_others(
    search: RerouteSearch, job_circuits: Sequence[int], other_circuits: Sequence[int]
) -> bool:
    """Let circuits of others move, as few as possible; tell whether that was settled.

    `job_circuits` and `other_circuits` are those that may move, of jobs that are hit and of
    others. ``search.best`` receives plans, and ``search.settled`` what no plan can be below.
    """
    # One set of circuits after the other, while these are few and small. If circuits of hit jobs
    # could move as well, there would be many more sets: then one model has all of them.
    size = 0
    while (
        not job_circuits
        and size < _LARGEST_SET
        and comb(len(other_circuits), size + 1) <= _MOST_SETS
    ):
        size += 1
        for moving in _in_turn(search, other_circuits, size):
            if search.stopped() or not search.try_moving(moving):
                return False
        if search.has(size, size):
            return True
        search.settled = (size + 1, len(search.case.hit) + size + 1)
    if size == len(other_circuits) and not job_circuits:
        return True
    return not search.stopped() and search.try_moving((*job_circuits, *other_circuits), few=True)


def _in_turn(
    search: RerouteSearch, other_circuits: Sequence[int], size: int
) -> Iterator[tuple[int, ...]]:
    """Yield all sets of so many circuits, first the one that the best plan moves.

    The plan that is known then bounds the costs of its set, and later sets have to beat it.
    """
    moved_before: tuple[int, ...] = ()
    if search.best is not None:
        moved_before = tuple(sorted(set(search.best.changed) - set(search.case.hit)))
    if len(moved_before) == size:
        yield moved_before
    yield from (moving for moving in combinations(other_circuits, size) if moving != moved_before)


def _conclude(search: RerouteSearch, bound: tuple[int, ...], certificate: Any) -> Solution:
    """Make a solution of the best answer and the proved bound.

    `bound` has the levels of `Recovery` that every plan has at least, the first two at least
    ``search.settled``. If the search has proved that there is no plan, the solution says so by
    `certificate`; a proved plan has its own levels as the bound.
    """
    # Levels are compared in their order. The settled ones bound the first two.
    problem = search.problem
    best = search.best
    if best is None and search.proved:
        bound_by = None if isinstance(certificate, BlockProof | CutProof) else "cp-sat"
        return refuse(
            problem, "ilp", explain(problem, certificate), certificate, bound_by=bound_by
        )
    if best is None:
        return conclude(problem, "ilp", None, bound, search.limit)
    levels = max(tuple(bound), (*search.settled, 0, *bound[3:]))
    if search.proved:
        levels = best.levels
    return make_solution(
        problem,
        search.routing,
        best,
        levels,
        limit=search.limit or Limit.EXHAUSTED,
        method="ilp",
        bound_by=None if levels == bound else "cp-sat",
    )
