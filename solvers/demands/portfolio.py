"""Methods `portfolio` and `best`: several covers; then parts of the best rebuilt.

`portfolio` takes the plans of the fitting rules and keeps the best.
`best` goes on from there: some slots are taken out, their service is covered anew by a rule drawn
at random, and the result is kept if it is not longer (a large neighbourhood search).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np

from optmatch.model import Limit, Limits, OnEvent, Solution, counted_time, uncounted
from optmatch.problems import Demand
from optmatch.solvers.demands import few_ports
from optmatch.solvers.demands.birkhoff import decompose, stuff
from optmatch.solvers.demands.covering import (
    ECLIPSE,
    Rating,
    complete,
    cover_by_busiest,
    cover_heaviest_first,
)
from optmatch.solvers.demands.covers import cover_by
from optmatch.solvers.demands.plans import Plan, join, serve, tidy, trim
from optmatch.solvers.demands.quick_cover import yield_plans
from optmatch.solvers.demands.scheduling import CoverTask, solve_demand
from optmatch.solvers.params import DemandParams

_RULES = (Rating(1.0, 3.0, 8), Rating(0.5, 10.0), Rating(1.0, 10.0), Rating(0.5, 3.0), ECLIPSE)
_FIRST_RULES = 3  # the number of fitting rules that run where time is short
_STUCK = 400  # rebuilds that bring nothing, until the search goes on from the plan of a rule
_PART = 80  # rules that take less of the time than this part run where time is short, too
_MANY = 6000  # circuits: from so many on, rules that compare lengths take seconds
_SMALL = 5  # ports: where slots take a delay, rebuilds of covers find as much as decompositions
_HUGE = 128  # ports: beyond, rules that cannot look at the clock are left out
_MOST = 256  # ports: beyond, a single slot of the best rating may take seconds
_FEW_PORTS = 3  # with packets or several planes: so few that the exact model is quick
_DENSE = 4e6  # circuits times ports: from so many on, without a limit some rules are left out
_QUICK = 3e7  # the same: beyond, there are fewer rebuilds without a limit
_WORK = 0.1  # work of the exact model, about in seconds; rebuilds follow


def solve_best(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
    params: DemandParams | None = None,
) -> Solution:
    """Solve a demand by the portfolio and rebuilds of the best plan; the default.

    An iteration is one rule or one rebuild; without limits there are `rebuilds` of them, fewer
    beyond 256 ports. That takes a few seconds for 64 dense ports, 15 for 128, and at most a
    minute for 256 to 1,024. Of at most three ports all slots are listed instead. The objective
    ``"matchings"`` takes decompositions instead of covers (two seconds for 32 dense ports, five
    for 64), ``"weighted-completion-s"`` orders (less than a second for 16 ports).
    """
    params = params or DemandParams()
    if problem.objective == "weighted-completion-s":
        with uncounted():
            from optmatch.solvers.demands.groups import solve_groups

        return solve_groups(problem, limits, rng, on_event, start, params.orders)
    if problem.objective == "matchings":
        with uncounted():
            from optmatch.solvers.demands.decomposer import solve_matchings

        return solve_matchings(problem, limits, rng, on_event, start, params.decompositions)
    build = partial(rebuild, rebuilds=params.rebuilds)
    if few_ports.suits(problem):
        return few_ports.solve_few(problem, limits, rng, on_event, build)
    fabric, exact = problem.fabric, None
    several = problem.packet_share > 0 or problem.planes > 1
    if several and fabric.graph is None and fabric.n_ports <= _FEW_PORTS:
        exact = _try_exact(problem, limits, rng, on_event)
        if exact.limit is None or exact.limit is Limit.INTERRUPTED:
            return exact
    solution = solve_demand(problem, limits, rng, on_event, "best", build, start)
    if exact is not None and (exact.objective or np.inf) < (solution.objective or np.inf):
        solution = exact
    if limits.time_s is not None and solution.limit is Limit.EXHAUSTED:
        return replace(solution, limit=Limit.TIME)  # the time left was too short for a rebuild
    return solution


def _try_exact(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Give the best plan of the first rules to the exact model, for a while."""
    with uncounted():
        from optmatch.solvers.demands.plane_model import finish_small  # loads OR-tools

    most = np.inf if limits.iterations is None else limits.iterations
    clock = limits.start()
    first = replace(limits, iterations=int(min(most, _FIRST_RULES)))
    found = solve_demand(problem, first, rng, on_event, "best", rebuild)
    if found.limit is Limit.INTERRUPTED:
        return found
    return finish_small(problem, found, clock, rng, on_event, work=_WORK)


def _trimmed(work: CoverTask, plan: Plan) -> Plan:
    return trim(tidy(plan), work.demand, work.shortest)


def _rules(work: CoverTask) -> list[Callable[[], Plan]]:
    """List fitting rules: exact decompositions where delays are short, else covers."""
    demand, shortest = work.demand, work.shortest
    lines = np.concatenate([demand.sum(axis=0), demand.sum(axis=1)])
    meetings = np.concatenate([(demand > 0).sum(axis=0), (demand > 0).sum(axis=1)])
    short = work.delay * int(meetings.max()) * 20 < int(lines.max())
    rated = [partial(cover_by, work, rating) for rating in _RULES]
    exact = [partial(_exactly, work)] if work.delay == 0 or len(demand) > _SMALL else []
    colours = [
        partial(cover_heaviest_first, demand, shortest),
        partial(cover_by_busiest, demand, shortest),
    ]
    if len(demand) > _HUGE:
        return [colours[0], *exact, *rated]
    first = exact if work.delay == 0 or (short and (lines == lines[0]).all()) else []
    covers = [*colours, *rated] if np.count_nonzero(demand) > _MANY else [*rated, *colours]
    return [*first, *covers, *([] if first else exact)]


def _exactly(work: CoverTask) -> Plan:
    """Decompose the stuffed demand: the sum of durations is then the least that there is."""
    left = work.clock.remaining_s
    deadline = None if left == np.inf else counted_time() + left / 2
    terms = decompose(stuff(work.demand), "bottleneck", deadline=deadline)
    plan = Plan(terms.permutations, np.maximum(terms.weights, work.shortest))
    return trim(complete(plan, work.demand, work.shortest), work.demand, work.shortest)


def _cover_many(work: CoverTask) -> Iterator[Plan]:
    """Yield plans of many ports, each one found and finished within the time that is left."""
    began_s = counted_time()
    first = cover_heaviest_first(work.demand, work.shortest)
    yield first
    deadline = counted_time() + work.clock.remaining_s - (counted_time() - began_s)
    endless = work.clock.limits.time_s is not None
    yield from yield_plans(first, work.demand, work.delay, deadline, None, endless=endless)


def yield_all(work: CoverTask) -> Iterator[Plan]:
    """Yield the plans of method `portfolio`, one of each rule."""
    if len(work.demand) > _MOST:
        yield from _cover_many(work)
        return
    for rule in _rules(work):
        yield _trimmed(work, rule())


def rebuild(work: CoverTask, rebuilds: int = DemandParams().rebuilds) -> Iterator[Plan]:
    """Yield the plans of `best`: those of the rules, then rebuilds of parts of the best one."""
    limits, size = work.clock.limits, len(work.demand) * np.count_nonzero(work.demand)
    unlimited = limits.time_s is None and limits.iterations is None
    if len(work.demand) > _MOST:
        most = 2 + int(rebuilds * min(1.0, _QUICK / size))
        yield from islice(_cover_many(work), most if unlimited else None)
        return
    best, firsts = work.former, list[Plan]()
    took_s = 0.0
    quick = len(work.demand) >= 16 and np.isfinite(work.clock.remaining_s)
    half_s = (limits.time_s or np.inf) / 2
    for k, rule in enumerate(_rules(work)):
        if unlimited and size > _DENSE and k > _FIRST_RULES:
            break
        if quick and k >= _FIRST_RULES and _PART * took_s > work.clock.remaining_s:
            break  # else the steps are those without a limit, of which more are never worse
        if best is not None and len(work.demand) > _HUGE and work.clock.elapsed_s > half_s:
            break
        began_s = work.clock.elapsed_s
        plan = _trimmed(work, rule())
        if best is None or plan.cost(work.delay) < best.cost(work.delay):
            best = plan
        took_s = (work.clock.elapsed_s - began_s) / 4  # a rebuild covers only a part
        firsts.append(plan)
        yield plan
    moves = idle = 0
    while best is not None and len(best.ticks) > 1 and work.clock.remaining_s > took_s:
        if unlimited and moves >= rebuilds:
            break
        moves += 1
        began_s = work.clock.elapsed_s
        plan = _trimmed(work, _replace_some(work, best))
        took_s = work.clock.elapsed_s - began_s
        idle = 0 if plan.cost(work.delay) < best.cost(work.delay) else idle + 1
        if plan.cost(work.delay) <= best.cost(work.delay):
            best = plan
        yield plan
        if idle > _STUCK and firsts:
            best, idle = firsts[int(work.rng.integers(len(firsts)))], 0


def _replace_some(work: CoverTask, plan: Plan) -> Plan:
    """Take out some slots, the least useful ones first, and cover their service anew."""
    rng, slots, ports = work.rng, len(plan.ticks), np.arange(len(work.demand))
    used = np.where(plan.matchings >= 0, work.demand[ports, plan.matchings], 0)
    use = np.minimum(used, plan.ticks[:, None]).sum(axis=1) / (plan.ticks + work.delay)
    chance = use / use.max() + rng.random(slots) * rng.choice([0.3, 1.0, 5.0])
    few = rng.random() < 0.5 or np.count_nonzero(work.demand) > _MANY
    most = min(slots, 10) if few else slots  # few are quick, many lead further
    kept = np.argsort(chance, kind="stable")[int(rng.integers(2, max(3, most) + 1)) :]
    base = plan.take(kept)
    rest = np.maximum(work.demand - serve(base), 0)
    rating = Rating(
        float(rng.choice([0.5, 1.0])),
        float(rng.choice([3.0, 10.0])),
        int(rng.choice([6, 12, 20])),
    )
    return join(base, cover_by(work, rating, rest))
