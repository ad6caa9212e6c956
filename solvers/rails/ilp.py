"""Method `ilp` for rail jobs: the best plan, by CP-SAT, from the best that needs no search."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optmatch.model import (
    Clock,
    Event,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Solution,
    Tick,
    TimeUp,
    uncounted,
)
from optmatch.model.solution import RTOL
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.solvers.rails.descent import descend
from optmatch.solvers.rails.light import route_plan
from optmatch.solvers.rails.methods import conclude, plan_lit, plan_well
from optmatch.solvers.rails.policies import NO_SPLIT
from optmatch.solvers.rails.relays import Relays, list_relays
from optmatch.solvers.rails.transfers import Transfers, fold_transfers

MOST_PAIRS = 20_000
"""Pairs of communications that share an end; with more, a model is too large to be of use."""


def solve(
    problem: RailJob, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Find a plan of least step time.

    It chooses the order of the communications at every end, the lanes of each, whether data go
    straight or are forwarded, and whom each end faces when the step begins. The plan is never
    worse than those of the other methods. It is OPTIMAL where it equals the bound of all links, or
    where CP-SAT has proved it (``stats["bound_by"]``), which it can for one port per GPU where all
    ways of forwarding are searched. Where they are not, ``stats["alike_bound_s"]`` is a bound of
    the plans that were: ranks of a class do the same, and data go straight or on one of the ways
    of `list_relays`.

    Not searched: jobs on switches that stop as a whole, and those with more than `MOST_PAIRS`
    pairs of communications that share an end.

    Parameters
    ----------
    limits
        Iterations are conflicts of CP-SAT in each of its two searches, without forwarding and with
        it, and between them choices that `descend` tries; the three share the time. 0 for what
        `prefetch` finds.
    """
    clock = limits.start()
    found = _Found(None, problem.lower_bound(), {})
    limit: Limit | None = clock.exceeded(0)
    try:
        if limit is not Limit.TIME:
            transfers = fold_transfers(problem)
            known, found.best = plan_lit(transfers)
            if found.best is not None:
                on_event(NewBest(found.best.step_s))
            if known is None:
                found.stats["reason"] = NO_SPLIT
            elif limit is None:
                limit = _improve(found, transfers, known, clock, rng, on_event)
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    except TimeUp:
        limit = Limit.TIME
    return conclude(problem, found.best, found.bound, limit, "ilp", found.stats)


@dataclass
class _Found:
    """The best so far, and what is known about it."""

    best: RailPlan | None
    bound: float
    stats: dict[str, object]

    @property
    def is_optimal(self) -> bool:
        """Whether the plan is as good as the bound."""
        return self.best is not None and self.best.step_s <= self.bound * (1 + RTOL)

    def take(self, plan: RailPlan | None, job: RailJob, on_event: OnEvent) -> RailPlan | None:
        """Keep a plan if it is better and its light finds its way; return it, or None."""
        if plan is None or (self.best is not None and plan.step_s >= self.best.step_s):
            return None
        lit = route_plan(job, plan)
        if lit is not None:
            self.best = lit
            on_event(NewBest(lit.step_s))
        return lit


def _improve(
    found: _Found,
    transfers: Transfers,
    known: RailPlan,
    clock: Clock,
    rng: np.random.Generator,
    on_event: OnEvent,
) -> Limit | None:
    """Search for better plans, and for bounds; return why the last search stopped."""
    if transfers.job.network.switching != "per-circuit":
        return None
    relays, limit = list_relays(transfers), None
    straight = relays._replace(routes={}, around=())
    for searched in (straight, relays) if relays.routes else (relays,):
        if found.is_optimal or limit is Limit.INTERRUPTED:
            break
        if searched is relays:
            starts = [known, plan_well(transfers, around=False)] if len(known.relays) else [known]
            for start in filter(None, starts):
                plan = descend(relays, start, _half(clock))
                known = found.take(plan, transfers.job, on_event) or known
        if not _searchable(searched):
            continue
        within = clock if searched is relays else _half(clock)
        plan, proved, limit = _search(searched, known, within, rng, on_event)
        known = found.take(plan, transfers.job, on_event) or known
        if searched is relays and found.best is not None and transfers.n_lanes == 1:
            _claim(found, relays, min(proved, found.best.step_s))
    return limit


def _claim(found: _Found, relays: Relays, proved: float) -> None:
    """Note what a search of one port per GPU has proved, and of which plans."""
    if proved <= found.bound * (1 + RTOL):
        return
    if relays.complete and _is_pipeline(relays.transfers):
        found.bound, found.stats["bound_by"] = proved, "cp-sat"
    else:
        found.stats["alike_bound_s"] = proved


def _half(clock: Clock) -> Clock:
    """Leave half of the time, if there is a limit."""
    if not np.isfinite(clock.remaining_s):
        return clock
    return replace(clock.limits, time_s=clock.remaining_s / 2).start()


def _searchable(relays: Relays) -> bool:
    with uncounted():
        from optmatch.solvers.rails.model import list_users

    if relays.transfers.in_rounds:
        return False
    users = list_users(relays).values()
    return sum(len(row) * (len(row) - 1) // 2 for row in users) <= MOST_PAIRS


def _search(
    relays: Relays, known: RailPlan, clock: Clock, rng: np.random.Generator, on_event: OnEvent
) -> tuple[RailPlan | None, float, Limit | None]:
    """Return a better plan, if there is one, what is proved, and why the search stopped."""
    with uncounted():
        from optmatch.solvers.cpsat import minimise
        from optmatch.solvers.rails.model import RailModel

    def tell(event: Event) -> None:  # its objectives are ticks, and not yet plans
        if isinstance(event, Tick):
            on_event(event)

    model = RailModel(relays, known)
    outcome = minimise(model.model, clock, tell, seed=int(rng.integers(1 << 30)))
    found = model.read(outcome) if outcome.found else None
    return found, model.lower_bound_s(outcome), outcome.limit


def _is_pipeline(transfers: Transfers) -> bool:
    """Tell whether bounds of the folded job hold for all plans of the job.

    One rank of each class has to do, with all that it communicates with in other classes: then its
    timetable, copied to all others, is a plan of the job, so the best plan treats the ranks of a
    class alike. With ways around this is so only where they stay among these ranks, as they do
    where `Relays.complete` holds.
    """
    step, class_of = transfers.job.step(), transfers.folded.class_of
    if transfers.has_all_to_alls:
        return False
    around: dict[int, set[int]] = {}
    for group in step.groups:
        if len({int(class_of[rank]) for rank in group.ranks}) > 1:
            for rank in group.ranks:
                around.setdefault(rank, set()).update(group.ranks)
    for first in transfers.folded.first:
        reached, stack = {first}, [first]
        while stack:
            fresh = around.get(stack.pop(), set()) - reached
            reached |= fresh
            stack += fresh
        if len({int(class_of[rank]) for rank in reached}) < len(reached):
            return False
    return True
