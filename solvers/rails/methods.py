"""Methods for rail jobs, each as a solution with its bound.

`solve_by` makes the plans of a method one after another (`_list_plans`), finds the states of the
cells of the switches for each of them (`route_plan`), keeps the fastest plan, and bounds the time
of the step from below (`_bound_changes`). A plan is *straight* if no GPU forwards data of others,
and *forwarded* if some do. It is *pooled* if data change rail inside a server. Most plans are made
for a *folded* step, in which GPUs that do the same are one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.fabrics.fabric import find_staying
from optmatch.model import (
    IDLE,
    InputError,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Solution,
    Status,
    TimeUp,
    ignore,
    running_clock,
    uncounted,
    unlimited,
)
from optmatch.problems import RailJob, Routing
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline
from optmatch.problems.rails.training.step import ALL_TO_ALL
from optmatch.problems.rails.training.times import durations_s, pick_ranks
from optmatch.solvers.frame import meets_bound
from optmatch.solvers.rails.forwarding import can_forward, plan_forwarded
from optmatch.solvers.rails.policies import (
    CHANGE_RULES,
    NO_SPLIT,
    find_earliest_starts,
    plan_by_time,
    plan_policy,
    plan_programs,
    plan_static,
    usual_lanes,
)
from optmatch.solvers.rails.pooling import may_pool, plan_pooled
from optmatch.solvers.rails.seats import seat_ranks
from optmatch.solvers.rails.staying import bound_step
from optmatch.solvers.rails.timetable import Draft
from optmatch.solvers.rails.transfers import Transfers, fold_transfers

Simple = Literal["prefetch", "provisioned", "on-demand", "static", "ilp"]
"""Methods for rail jobs; ``"ilp"`` is the former name of `prefetch`."""
_ROUNDS = 200
"""Rounds of the search for the states of cells of one matching."""
_MOST_GPUS_BEYOND_LIMIT = 1024
"""A job of up to this number of GPUs gets a first plan whatever its time limit, which takes up to
2.5 s: on 16,384 GPUs the step alone takes longer to derive."""
_FEW_GPUS = 128
"""A job of more GPUs begins with the first choices of the search."""
_MOST_USES_FIRST = 200_000
"""A first straight plan with no more uses of ports is made and written out in half a second; with
the 1.1 million of DeepSeek-V3 on 1,024 GPUs it takes 1.8 s and is slower than rings, which take
0.8 s."""
_DRAFTED_PER_S = 1e6
"""Nodes and uses of ports that are drafted in a second. With half of it jobs of 1,024 GPUs lose
straight plans that there is time for, with twice of it they end up to 0.6 s late."""
_FIRST_CHOICES = 16
"""How many choices of the search a job of many GPUs begins with. On 16,384 GPUs of DeepSeek-V3
more GPUs forward in the first one than a plan may list, and one of the others takes 63.0 s;
without them a straight plan of 85.4 s would be written out before, whose states take 316 MB. On
512 GPUs that are asked for a plan in 1 s the first one alone leaves 2.07 s where 16 find 1.49
s."""
_DIGITS = 1e-11
"""The least part of a step whose time is not lost in rounding."""
_ROUNDING = 1e-13
"""Two times that differ by this part of them are one, as sums of the same numbers may do."""


def solve_by(
    method: Simple,
    problem: RailJob,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
) -> Solution:
    """Plan the step of a job by a method, and bound its time from below.

    The answer is the fastest of the plans of `_list_plans` that the switches can hold; it is
    optimal if it is as fast as the bound. `start` is a former solution, whose order of operations
    `"prefetch"` tries first; `rng` draws the moves of its search. Each better plan is told to
    `on_event`. Raises `InputError` if a plan changes circuits and one of its communications is so
    short that its start and its end are the same number.
    """
    # `limit` is why the search ends: the time is up, unless it turns out to be something else.
    plan: RailPlan | None = None
    limit = Limit.TIME
    stats: dict[str, Any] = {}
    try:
        # A time limit of 0 s asks for no plan.
        if limits.time_s != 0:
            n_plans = 0

            # Each plan that is better so far becomes the answer, if the fabric can hold all of its
            # states.
            for routed in _list_routed_plans(method, problem, limits, rng, start):
                n_plans += 1
                if routed is not None and (plan is None or routed.step_s < plan.step_s):
                    plan = routed
                    on_event(NewBest(plan.step_s))

            # The reason why there is no answer. Only the static policy may make no plan at all,
            # for lack of ports.
            if n_plans == 0:
                stats["reason"] = NO_SPLIT
            elif plan is None:
                stats["reason"] = (
                    "the fabric does not hold all circuits of a state at once, or not beside the"
                    " routes of those that stay"
                )

            # All plans were made, unless something was left out for a limit.
            clock = running_clock() or limits.start()
            limit = clock.cut_by or Limit.EXHAUSTED
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    except TimeUp:
        limit = Limit.TIME

    # The bound takes time as well. If the time is up before, a plan is judged by the plain bound,
    # with all links up, which is mostly derived already; without a plan there is no bound.
    try:
        bound = _bound_changes(problem)
    except TimeUp:
        bound = -math.inf
        limit = Limit.TIME
        if plan is not None:
            with unlimited():
                bound = problem.lower_bound()

    # A plan is proved optimal if it is as fast as the bound, up to rounding. Then no limit is
    # reported. Changes of circuits are counted on each rail.
    proved = plan is not None and meets_bound(plan.step_s, bound)
    status = Status.UNKNOWN
    if plan is not None:
        status = Status.OPTIMAL if proved else Status.FEASIBLE
        stats["reconfigurations"] = sum(
            timeline.n_reconfigurations * len(timeline.rails) for timeline in plan.rails
        )
        if stats["reconfigurations"]:
            _check_digits(problem, plan)
        plan = plan.spelled_out(problem.step())
    return Solution(
        problem=problem,
        answer=plan,
        status=status,
        limit=None if proved else limit,
        objective=None if plan is None else plan.step_s,
        lower_bound=bound if plan is None else min(bound, plan.step_s),
        method=method,
        stats=stats,
    )


def _bound_changes(problem: RailJob) -> float:
    """Return a lower bound of the time of a step, in seconds: the greater one of two bounds.

    The plain bound is a longest path with all circuits up. The second one, `bound_step`, counts
    how long all-to-alls last over few ports, and, with one port a GPU, that a circuit which
    changes has to change back before the step ends. Raises `TimeUp` if the time is up.
    """
    # The second bound can be greater in two cases: with all-to-alls, or if two delays are longer
    # than the plain bound. It holds for jobs that `can_forward` accepts: ports have one direction,
    # and collectives go around rings. It holds on all-stop switches too, whose changes follow each
    # other, each with its delay.
    bound_s = problem.lower_bound()
    has_exchanges = bool((problem.step().kind == ALL_TO_ALL).any())
    delay_matters = has_exchanges or 2 * problem.network.delay_s > bound_s
    if not delay_matters or not can_forward(problem):
        return bound_s

    # `seat_ranks` folds rails that do the same into one, whose GPUs stand for those of all.
    changes_s = bound_step(seat_ranks(problem))

    # Plans may also pool rails, if data can change rail inside a server: each GPU then has a share
    # of all ports of its server. A bound of all plans is the lesser of the bounds of both sorts.
    if may_pool(problem):
        changes_s = min(changes_s, bound_step(seat_ranks(problem.with_pooled_rails())))
    return max(bound_s, changes_s)


def _list_routed_plans(
    method: Simple,
    problem: RailJob,
    limits: Limits,
    rng: np.random.Generator,
    start: Solution | None,
) -> Iterator[RailPlan | None]:
    """List the plans of `_list_plans`, with the states of the cells of a switch that has them.

    There is None in place of a plan if no states of cells realise one of its matchings. The first
    plan of a job that is not huge is made even if the time is up before.
    """
    plans = _list_plans(method, problem, limits, rng, start)

    # With cells a job counts as huge earlier: a plan may have thousands of matchings, and the
    # states of cells for each of them take long to find.
    most_gpus = _FEW_GPUS
    if problem.fabric is None:
        most_gpus = _MOST_GPUS_BEYOND_LIMIT
    if problem.n_gpus <= most_gpus:
        with unlimited():
            first = [route_plan(problem, plan) for plan in islice(plans, 1)]
        yield from first
    for plan in plans:
        yield route_plan(problem, plan)


def _list_plans(
    method: Simple,
    problem: RailJob,
    limits: Limits,
    rng: np.random.Generator,
    start: Solution | None,
) -> Iterator[RailPlan]:
    """Make the plans of one method, one after another; the caller keeps the best.

    The simple methods make one plan. `"prefetch"` makes one in the order of a former solution, the
    first straight one if it is quick, those of the first choices of the search if GPUs are many,
    the best straight one if it is faster or a fabric may not hold these, and by search faster ones
    in which GPUs forward data or data change rail inside a server. It ends once a plan is as fast
    as the lower bound. Each search tries ``limits.iterations`` plans. No plan has states of cells
    yet; plans may store the operations of ranks that do the same once.
    """
    if method != "prefetch" and method != "ilp":
        plan = plan_policy(problem, method)
        if plan is not None:
            yield plan
        return

    # The order of a former plan may still be the best, if it is one of as many operations; its
    # times are worked out anew. A node starts as one of its operations did, ``folded.part[node]``.
    transfers = fold_transfers(problem)
    if start is not None and start.answer is not None:
        times = start.answer.start_s
        if len(times) == problem.step().n_operations:
            former = plan_by_time(transfers, times[transfers.seats.folded.part], "free")
            if former is not None:
                yield former.build()

    # The first straight plan is quick where few ports are used, and is there if the time is short.
    known_s = np.inf
    drafts = draft_straight(transfers)
    n_uses = len(transfers.uses.node) * transfers.seats.n_replicas
    if n_uses <= _MOST_USES_FIRST:
        first = next(drafts)
        known_s = first.step_s
        yield first.build()

    # A job of many GPUs goes on with the first choices of the search, rings that never change:
    # with long delays nothing else comes near. In the largest jobs straight plans have so many
    # states, one for each change, that they are written out only if they are faster than such
    # rings, or if a fabric may hold them where it holds no rings.
    if problem.n_gpus > _FEW_GPUS:
        most = limits.at_most(_FIRST_CHOICES).iterations
        for plan in plan_forwarded(problem, known_s, rng, most=most):
            known_s = plan.step_s
            yield plan

    # Without any plan so far the first straight one is written out at once.
    if known_s == np.inf:
        first = next(drafts)
        known_s = first.step_s
        yield first.build()

    # Now the best straight plan, which a fabric holds even if it holds none of these.
    if problem.fabric is not None:
        known_s = np.inf
    n_drafted = len(transfers.first) + len(transfers.uses.node)
    best = choose_straight(drafts, n_drafted / _DRAFTED_PER_S)
    if best is not None and best.step_s < known_s:
        known_s = best.step_s
        yield best.build()

    # Further plans are searched for unless this one is as fast as the bound.
    least_s = problem.lower_bound()
    if not meets_bound(known_s, least_s):
        # The search leaves time to the one after it, if data may change rail in this job.
        is_last = not may_pool(problem)
        for plan in plan_forwarded(problem, known_s, rng, limits.iterations, is_last=is_last):
            known_s = min(known_s, plan.step_s)
            yield plan
    if not meets_bound(known_s, least_s):
        yield from plan_pooled(problem, known_s, rng, limits.iterations)


def choose_straight(drafts: Iterator[Draft], draft_s: float = 0.0) -> Draft | None:
    """Choose the fastest of the drafts of `draft_straight` that there is time for.

    A draft takes about `draft_s` seconds to make: none is begun without so much time. With a limit
    drafts end when half of the time that is left is used up. None if there is none, or no time for
    one.
    """
    # A search may follow, whose first choices are worth more than further rules: the rules take no
    # more than half of the time that there is, but for the first plan.
    clock = running_clock() or Limits().start()
    least_left_s = max(draft_s, clock.remaining_s / 2)

    # Plans that were made before a limit stay.
    best: Draft | None = None
    if clock.has_less_than(draft_s):
        return best
    try:
        for draft in drafts:
            if best is None or draft.step_s < best.step_s:
                best = draft
            if clock.has_less_than(least_left_s):
                break
    except TimeUp:
        return best
    return best


def draft_straight(transfers: Transfers) -> Iterator[Draft]:
    """Draft plans in which no GPU forwards data of others, by one rule after another.

    Circuits change when they are asked for, in the order of time or of programs, or never.
    """
    start_s = find_earliest_starts(transfers)
    by_time = plan_by_time(transfers, start_s, "free")
    assert by_time is not None
    yield by_time

    # Messages to two neighbours share all lanes, and change circuits for each other.
    if (usual_lanes(transfers) != transfers.all_lanes).any():
        shared = plan_by_time(transfers, start_s, "free", transfers.all_lanes)
        assert shared is not None
        yield shared
    for rule in CHANGE_RULES:
        yield plan_programs(transfers, rule)
    static = plan_static(transfers)
    if static is not None:
        yield static


def _check_digits(problem: RailJob, plan: RailPlan) -> None:
    """Raise `InputError` if a communication is so short that its end is lost in rounding.

    It names the first one that, with all circuits there, lasts less than 1e-11 of the step
    (`_DIGITS`). Of ranks that are like each other in the plan the first one is looked at.
    """
    step = problem.step()
    ranks = np.unique(plan.like) if len(plan.like) else np.arange(step.n_ranks)
    part, operations = pick_ranks(step, ranks.tolist())
    lasts_s = durations_s(part, problem.network, problem.collectives)
    sends = (part.rail >= 0) & (part.size_bytes > 0)
    for row in np.flatnonzero(sends & (lasts_s < _DIGITS * plan.step_s))[:1].tolist():
        raise InputError(
            f"{step.describe(int(operations[row]))}: lasts {lasts_s[row]:g} s without changes,"
            f" of a step of {plan.step_s:g} s, and times have no digits for that",
            where="network",
        )


def route_plan(job: RailJob, plan: RailPlan) -> RailPlan | None:
    """Return a plan with the states of cells for all its matchings, each found once.

    A plan for ideal switches, without cells, is returned as it is. On a per-circuit switch all
    other circuits go on while some change: a circuit that stays has to keep its route through the
    cells while data are on it. None if the fabric does not hold a matching, or if such a route has
    to change.
    """
    fabric = job.fabric
    if fabric is None or fabric.graph is None:
        return plan
    plan = plan.spelled_out(job.step())

    # Rails and states repeat their matchings: each is routed once.
    routed: dict[bytes, NDArray[np.int8] | None] = {}
    timelines = []
    for timeline in plan.rails:
        cell_states = []
        for matching in timeline.matchings:
            key = matching.tobytes()
            if key not in routed:
                routed[key] = _find_states(fabric, matching)
            states = routed[key]

            # A plan is of no use if the fabric cannot hold one of its states.
            if states is None:
                return None
            cell_states.append(states)

        # If a circuit that stays would be interrupted, states are looked for once more in which it
        # keeps its route; ``new_states[state, cell]``.
        new_states = np.array(cell_states)
        is_partial = job.network.switching == "per-circuit"
        if is_partial and _interrupts(job, plan, timeline, new_states):
            with uncounted():
                from optmatch.solvers.routing.router import CellRouter  # loads kernels of routing

            router = CellRouter(fabric)
            new_states = router.keep_routes(timeline.matchings, new_states, repeats=True)
            if _interrupts(job, plan, timeline, new_states):
                return None
        timelines.append(replace(timeline, cell_states=new_states))
    return replace(plan, rails=tuple(timelines))


def _interrupts(
    job: RailJob, plan: RailPlan, timeline: RailTimeline, states: NDArray[np.int8]
) -> bool:
    """Tell whether a communication may be on a circuit while cells of its route are set anew.

    A circuit with a new route is dark for the delay from the start of its state in `timeline`;
    ``states[state, cell]`` are those of its cells. All communications on these rails count, as if
    each were on each circuit.
    """
    # ``dark_from_s[k]``: the starts of states that keep a circuit, but not its route. Port p of
    # state s has ``goes_dark[s - 1, p]``.
    assert job.fabric is not None
    matchings = timeline.matchings
    keeps_ports = (matchings[1:] == matchings[:-1]) & (matchings[1:] != IDLE)
    goes_dark = keeps_ports & ~find_staying(job.fabric, matchings, states)[1:]
    dark_from_s = timeline.starts_s[1:][goes_dark.any(axis=1)]

    # If more communications have begun before a circuit is up again than had ended when it went
    # dark, one of them is on its way meanwhile. With communications from 0 to 4 s and from 6 to 9
    # s, a circuit that is dark from 4 to 6 s interrupts none: one has begun, and one has ended.
    # Rails that share a timeline do the same at the same times.
    is_on_rails = np.isin(job.step().rail, timeline.rails)
    begins_s = np.sort(plan.start_s[is_on_rails])
    ends_s = np.sort(plan.end_s[is_on_rails])
    dark_until_s = (dark_from_s + job.network.delay_s) * (1 - _ROUNDING)
    n_begun = np.searchsorted(begins_s, dark_until_s)
    n_ended = np.searchsorted(ends_s, dark_from_s * (1 + _ROUNDING), side="right")
    return bool((n_begun > n_ended).any())


def _find_states(fabric: Fabric, matching: NDArray[np.int32]) -> NDArray[np.int8] | None:
    """Find ``states[cell]`` in which all circuits of ``matching[port]`` have routes, else None."""
    with uncounted():
        # these modules load the kernels of routing
        from optmatch.solvers.feedforward import has_exact_router
        from optmatch.solvers.routing.methods import route_by_negotiation, route_forward

    problem = Routing(fabric, matching)
    route = route_forward if has_exact_router(problem) else route_by_negotiation
    solution = route(problem, Limits(iterations=_ROUNDS), np.random.default_rng(0), ignore)
    if solution.schedule is None or solution.schedule.cell_states is None:
        return None
    states: NDArray[np.int8] = solution.schedule.cell_states[0]
    return states
