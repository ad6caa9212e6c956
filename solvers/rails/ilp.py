"""Method `ilp` for rail jobs: the best plan, by CP-SAT, from the best that needs no search."""

from __future__ import annotations

import numpy as np

from optmatch.model import Clock, Event, Limit, Limits, NewBest, OnEvent, Solution, Tick
from optmatch.model.solution import RTOL
from optmatch.problems import RailJob
from optmatch.problems.rail_plan import RailPlan
from optmatch.solvers.rails.light import route_plan
from optmatch.solvers.rails.methods import NO_SPLIT, conclude, plan_well
from optmatch.solvers.rails.talks import Talks, list_talks

MOST_PAIRS = 20_000
"""Pairs of communications that share an end; with more, a model is too large to be of use."""


def solve(
    problem: RailJob, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Find a plan of least step time.

    It chooses the order of the communications at every end, the lanes of each, and whom each end
    faces when the step begins.

    Parameters
    ----------
    problem
        The job.
    limits
        Iterations are conflicts of CP-SAT; 0 for what `prefetch` finds.
    rng, on_event
        As for every method.

    Returns
    -------
    Solution
        Never worse than the other methods. OPTIMAL where it meets the bound of all links, or
        where CP-SAT has proved it (``stats["bound_by"]``), which it can for one port per GPU.

    Notes
    -----
    Not searched: jobs on switches that stop as a whole, and those with more than `MOST_PAIRS`
    pairs of communications that share an end.
    """
    clock = limits.start()
    bound = problem.lower_bound()
    best: RailPlan | None = None
    stats: dict[str, object] = {}
    limit: Limit | None = clock.exceeded(0)
    try:
        if limit is not Limit.TIME:
            talks = list_talks(problem)
            known = plan_well(talks)
            best = None if known is None else route_plan(problem, known)
            if best is not None:
                on_event(NewBest(best.step_s))
            if known is None:
                stats["reason"] = NO_SPLIT
            elif limit is None and not _meets(best, bound) and _searchable(talks):
                found, proved, limit = _search(talks, known, clock, rng, on_event)
                routed = None if found is None else route_plan(problem, found)
                if routed is not None and (best is None or routed.step_s < best.step_s):
                    best = routed
                    on_event(NewBest(best.step_s))
                if best is not None and proved > bound * (1 + RTOL) and _is_pipeline(talks):
                    bound, stats["bound_by"] = min(proved, best.step_s), "cp-sat"
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    return conclude(problem, best, bound, limit, "ilp", stats)


def _meets(plan: RailPlan | None, bound: float) -> bool:
    return plan is not None and plan.step_s <= bound * (1 + RTOL)


def _searchable(talks: Talks) -> bool:
    users: dict[int, int] = {}
    for talk in talks.talks.values():
        for use in talk.uses:
            users[use.end] = users.get(use.end, 0) + 1
    pairs = sum(number * (number - 1) // 2 for number in users.values())
    whole = all(talk.rounds == 0 for talk in talks.talks.values())
    return talks.job.switching == "per-circuit" and whole and pairs <= MOST_PAIRS


def _search(
    talks: Talks, known: RailPlan, clock: Clock, rng: np.random.Generator, on_event: OnEvent
) -> tuple[RailPlan | None, float, Limit | None]:
    """Return a better plan, if there is one, what is proved, and why the search stopped."""
    from optmatch.solvers.cpsat import minimise
    from optmatch.solvers.rails.model import RailModel

    def tell(event: Event) -> None:  # its objectives are ticks, and not yet plans
        if isinstance(event, Tick):
            on_event(event)

    model = RailModel(talks, known)
    outcome = minimise(model.model, clock, tell, seed=int(rng.integers(1 << 30)))
    found = model.read(outcome) if outcome.found else None
    return found, model.lower_bound_s(outcome), outcome.limit


def _is_pipeline(talks: Talks) -> bool:
    """Tell whether bounds of the folded job hold for all plans of the job.

    One port leaves no choice of lanes. And one rank of each class has to do, with all that it
    talks to in other classes: then its timetable, copied to all others, is a plan of the job, so
    the best plan treats the ranks of a class alike.
    """
    step, class_of = talks.job.step(), talks.folded.class_of
    if talks.n_lanes > 1 or talks.has_scatters:
        return False
    around: dict[int, set[int]] = {}
    for group in step.groups:
        if len({int(class_of[rank]) for rank in group.ranks}) > 1:
            for rank in group.ranks:
                around.setdefault(rank, set()).update(group.ranks)
    for first in talks.folded.first:
        reached, stack = {first}, [first]
        while stack:
            fresh = around.get(stack.pop(), set()) - reached
            reached |= fresh
            stack += fresh
        if len({int(class_of[rank]) for rank in reached}) < len(reached):
            return False
    return True
