"""Methods of collectives: a function that finds a plan for each name, and the fastest of all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from optmatch.fabrics import IdealSwitch
from optmatch.model import (
    LONGEST_S,
    RTOL,
    Clock,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Solution,
    ignore,
    uncounted,
)
from optmatch.problems import Collective
from optmatch.problems.collectives.bounds import fewest_late_rounds
from optmatch.solvers.collectives.algorithms import ALGORITHMS, fits, list_rounds
from optmatch.solvers.collectives.conclusion import FoundPlan, run
from optmatch.solvers.collectives.plans import Laid, assemble, lay, lay_shares
from optmatch.solvers.collectives.rounds import Rounds, one_after_another
from optmatch.solvers.frame import stoppable
from optmatch.solvers.method import Run

MOST_RANKS = 8
"""The most ranks of the joint model."""
MOST_SEARCHED, WORK = 5, 0.2
"""The most ranks for which `best` searches, and how long each of ten searches may be."""
MOST_SPLIT = 64
"""The most ranks between which blocks are split."""

Find = Callable[[Collective, Clock], FoundPlan]


def method(name: str) -> Run:
    """Return the method of a name."""
    return partial(_run, name)


def _run(
    name: str,
    problem: Collective,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
) -> Solution:
    best = partial(_best, on_event, start)
    find = partial(_joint, on_event, best) if name == "ilp" else FINDERS.get(name, best)
    nothing = problem.n_ranks == 1 or not problem.size_bytes
    if nothing and problem.steps is None:
        find = partial(_follow, "ring" if problem.n_ranks == 1 else "direct")
    return run(problem, limits, on_event, name, lambda clock: find(problem, clock))


def suits(problem: Collective, name: str) -> bool:
    """Tell whether a method takes a problem."""
    if problem.island > 1 or name == "islands":
        return problem.island > 1 and name == "islands"
    if name in ALGORITHMS:
        return fits(problem, name)
    if name == "overlap":
        return problem.steps is not None or problem.planes > 1
    if name == "ilp":
        few = problem.n_ranks <= MOST_RANKS and problem.lanes == 1 and not problem.late_s
        return problem.steps is not None or few
    if problem.steps is not None:
        return False
    if name == "stragglar":
        return problem.operation == "all-reduce" and bool(problem.late_s)
    if name == "mixed-radix":
        sums = ("all-gather", "reduce-scatter", "all-reduce")
        return problem.operation in sums and not problem.two_way and problem.n_ranks > 1
    if name == "circulant":
        even = problem.operation == "all-to-all" and problem.demand_bytes is None
        return even and not problem.two_way and problem.n_ranks > 1
    if name == "split":
        whole = problem.demand_bytes is None or problem.align_bytes or problem.two_way
        return not whole and 1 < problem.n_ranks <= MOST_SPLIT
    if name in ("one-pass", "composed"):
        pairs = problem.two_way and name == "one-pass"  # sides of two places
        odd = pairs and problem.n_ranks & (problem.n_ranks - 1) != 0
        return problem.operation == "all-reduce" and problem.n_ranks > 1 and not odd
    return name == "rewire"


def single_rounds(problem: Collective) -> dict[str, Rounds]:
    """List the algorithms that fit, with one partner for each rank in a round."""
    alone = problem
    if problem.lanes > 1:
        start = problem.start if isinstance(problem.start, str) else "free"
        fabric = IdealSwitch(problem.n_ranks)
        alone = replace(problem, ports=1, planes=1, fabric=fabric, start=start)
    return {name: list_rounds(alone, name) for name in ALGORITHMS if fits(alone, name)}


def _follow(name: str, problem: Collective, clock: Clock) -> FoundPlan:
    """Give each round of an algorithm its own circuits."""
    return FoundPlan(lay(problem, list_rounds(problem, name)), {"algorithm": name})


def _rewire(problem: Collective, clock: Clock) -> FoundPlan:
    """Change circuits only where it pays; of all algorithms the fastest."""
    with uncounted():
        from optmatch.solvers.collectives.rewire import choose, rewire

    rounds = single_rounds(problem)
    choices = {name: choose(problem, each) for name, each in rounds.items()}
    name = min(choices, key=lambda each: choices[each].time_s)
    others = {each: choice.time_s for each, choice in choices.items() if each != name}
    stats = {"algorithm": name, "runners_up": _ranked(others)}
    return FoundPlan(rewire(problem, rounds[name], choices[name]), stats)


def _overlap(problem: Collective, clock: Clock) -> FoundPlan:
    """Let planes change circuits while others send; take the fastest of all algorithms."""
    with uncounted():
        from optmatch.solvers.collectives.overlap import read_steps, share

    if problem.steps is not None:
        found, bound = share(read_steps(problem, None), clock)
        return FoundPlan(lay_shares(problem, None, found), {}, lower_bound=bound)
    best: tuple[str, Laid] | None = None
    times: dict[str, float] = {}
    for name, rounds in single_rounds(problem).items():
        steps = read_steps(problem, rounds)
        if best is not None and steps.at_least_s >= best[1].plan.time_s:
            continue
        found, _ = share(steps, clock, prove=False)
        laid = lay_shares(problem, rounds, found)
        times[name] = laid.plan.time_s
        if best is None or laid.plan.time_s < best[1].plan.time_s:
            best = name, laid
    assert best is not None
    del times[best[0]]
    return FoundPlan(best[1], {"algorithm": best[0], "runners_up": _ranked(times)})


def _stragglar(problem: Collective, clock: Clock) -> FoundPlan:
    """Let the other ranks scatter sums while they wait, then spread the data of the late rank."""
    with uncounted():
        from optmatch.solvers.collectives.stragglar import schedule

    n, two_way = problem.n_ranks, problem.two_way
    others = Collective("reduce-scatter", n - 1, problem.size_bytes, two_way=two_way)
    first = list_rounds(others, "direct" if two_way else "ring")
    then = Rounds(schedule(n).astype(np.int64), max(1, n - 1))
    rounds = one_after_another(first._replace(matchings=None, chunk_count=then.chunk_count), then)
    rank_of = np.argsort(problem.late, kind="stable")  # the last rank is the late one
    rounds.sends[:, 1:3] = rank_of[rounds.sends[:, 1:3]]
    stats = {"algorithm": "stragglar", "fewest_rounds_late": fewest_late_rounds(n)}
    return FoundPlan(lay(problem, rounds), stats)


def _mixed_radix(problem: Collective, clock: Clock) -> FoundPlan:
    """Gather, and scatter sums, in the fewest rounds that so many configurations allow."""
    with uncounted():
        from optmatch.solvers.collectives.circulant import make

    if problem.n_ranks == 2:  # where an all-reduce is one exchange
        return _follow("ring", problem, clock)
    return FoundPlan(lay(problem, make(problem)), {"algorithm": "mixed-radix"})


def _one_pass(problem: Collective, clock: Clock) -> FoundPlan:
    """Scatter sums over some sides of a torus, and pass data on over the other sides."""
    with uncounted():
        from optmatch.solvers.collectives.passing import choose, list_rounds

    sides = choose(problem)
    return FoundPlan(lay(problem, list_rounds(problem.n_ranks, sides)), {"algorithm": "one-pass"})


def _composed(problem: Collective, clock: Clock, below_s: float = math.inf) -> FoundPlan:
    """Let the best all-gather follow the best reduce-scatter; or gather buffers, and add up.

    A method that cannot be faster than `below_s` is not tried.
    """
    with uncounted():
        from optmatch.solvers.collectives.passing import join, last_circuits, sum_up

    found: list[Laid] = []
    whole = problem.n_ranks * problem.size_bytes
    if whole <= LONGEST_S * problem.rate_bytes_per_s:
        gather = replace(problem, operation="all-gather", size_bytes=whole)
        if gather.lower_bound() < below_s:
            found.append(sum_up(_fastest(_try_all(gather, clock))))
    scatter = replace(problem, operation="reduce-scatter")
    then = replace(problem, operation="all-gather", start="free", late_s={})
    scatters: dict[str, FoundPlan] = {}
    if scatter.lower_bound() + then.lower_bound() < below_s:
        scatters = _try_all(scatter, clock)
    for shared in (False, True):
        some = {name: each for name, each in scatters.items() if _is_shared(each) == shared}
        if some:
            first = _fastest(some)
            seconds = _try_all(replace(then, start=last_circuits(first, problem.planes)), clock)
            more = {name: each for name, each in seconds.items() if _is_shared(each) == shared}
            if more:
                found.append(join(problem, first.plan, _fastest(more).plan))
    best = min(found, key=lambda each: each.plan.time_s, default=None)
    return FoundPlan(best, {"algorithm": "composed"})


def _is_shared(found: FoundPlan) -> bool:
    """Tell whether planes change circuits by themselves."""
    return found.laid is not None and found.laid.held_s is None


def _split(problem: Collective, clock: Clock) -> FoundPlan:
    """Let blocks of an uneven all-to-all go by several ways, and choose circuits for that."""
    with uncounted():
        from optmatch.solvers.collectives.split import SplitSearch

    search = SplitSearch(problem, clock)
    return FoundPlan(search.run(), {"algorithm": "split"}, limit=clock.exceeded(0))


def _circulant(problem: Collective, clock: Clock) -> FoundPlan:
    """Choose shifts and routes of an all-to-all together."""
    with uncounted():
        from optmatch.solvers.collectives import circulant

    rounds = circulant.list_rounds(circulant.choose(problem, clock))
    limit = clock.exceeded(0)
    return FoundPlan(lay(problem, rounds), {"algorithm": "circulant"}, limit=limit)


def _islands(problem: Collective, clock: Clock) -> FoundPlan:
    """Let islands hand on what has come over rails, while rails carry more."""
    with uncounted():
        from optmatch.solvers.collectives.islands import find

    return FoundPlan(find(problem), {"algorithm": "islands"})


FINDERS: dict[str, Find] = {
    **{name: partial(_follow, name) for name in ALGORITHMS if name != "near-sums"},
    "rewire": _rewire,
    "overlap": _overlap,
    "stragglar": _stragglar,
    "mixed-radix": _mixed_radix,
    "circulant": _circulant,
    "split": _split,
    "islands": _islands,
    "one-pass": _one_pass,
    "composed": _composed,
}
"""The function that finds a plan, by the name of the method."""


def _take_up(problem: Collective, start: Solution) -> FoundPlan | None:
    """Send what a former plan sends, where nothing but sizes and times has changed."""
    former: Any = start.problem
    plan: Any = start.answer
    same = plan is not None and (former.hop_s is None) == (problem.hop_s is None)
    if not same or len(plan.shares_bytes) or len(plan.parts) or len(plan.places):
        return None
    times = ("size_bytes", "alpha_s", "hop_s", "rate_bytes_per_s", "delay_s")
    if replace(problem, **{name: getattr(former, name) for name in times}) != former:
        return None
    arrays = plan.circuits.astype(np.int64), plan.epoch_of_round.astype(np.int64)
    links = plan.links.astype(np.int64)
    laid = assemble(problem, plan.sends.astype(np.int64), len(plan.chunk_bytes), *arrays, links)
    kept = {name: start.stats[name] for name in ("algorithm",) if name in start.stats}
    return FoundPlan(laid, kept)


def _try_all(
    problem: Collective, clock: Clock, known: dict[str, FoundPlan] | None = None
) -> dict[str, FoundPlan]:
    """Try the methods that fit while there is time, at least one; yield those that find a plan."""
    found = dict(known or {})
    for name, find in FINDERS.items():
        if suits(problem, name) and (not found or clock.exceeded(0) is None):
            if name == "composed":
                find = partial(_composed, below_s=_fastest(found).plan.time_s)
            try:
                each = find(problem, clock)
            except KeyboardInterrupt:
                if not found:
                    raise
                clock.interrupted = True  # the methods that are left are not tried
                break
            if each.laid is not None:
                found[name] = each
    return found


def _fastest(found: dict[str, FoundPlan]) -> Laid:
    laid = [each.laid for each in found.values() if each.laid is not None]
    return min(laid, key=lambda each: each.plan.time_s)


def _best(
    on_event: OnEvent, start: Solution | None, problem: Collective, clock: Clock
) -> FoundPlan:
    """Try all methods that fit, and take the fastest."""
    known: dict[str, FoundPlan] = {}
    former = None if start is None else _take_up(problem, start)
    if former is not None and former.laid is not None:
        known["former"] = former
        on_event(NewBest(former.laid.plan.time_s))
    found = _try_all(problem, clock, known)
    times = {name: each.laid.plan.time_s for name, each in found.items() if each.laid is not None}
    if problem.n_ranks <= MOST_SEARCHED and problem.steps is None and suits(problem, "ilp"):
        from optmatch.solvers.collectives.joint import find

        laid = find(problem, clock, ignore, _fastest(found), WORK).laid
        if laid is not None and laid.plan.time_s < min(times.values()) * (1 - RTOL):
            found["joint"] = FoundPlan(laid._replace(plan=replace(laid.plan, among="all")), {})
            times["joint"] = laid.plan.time_s
    name = min(times, key=lambda each: times[each])
    del times[name]
    stats = {"algorithm": name, **found[name].stats, "runners_up": _ranked(times)}
    bound = max(each.lower_bound for each in found.values())
    limit = next((each.limit for each in found.values() if each.limit is not None), None)
    if clock.stopped:
        limit = Limit.INTERRUPTED
    return FoundPlan(found[name].laid, stats, bound if problem.steps is not None else 0.0, limit)


def _joint(on_event: OnEvent, best: Find, problem: Collective, clock: Clock) -> FoundPlan:
    """Search circuits, routes and rounds together for a plan that is faster than all others."""
    if problem.steps is not None:
        return _overlap(problem, clock)
    from optmatch.solvers.collectives.joint import find

    known = best(problem, clock)
    if known.laid is not None and len(known.laid.plan.parts):  # its family sends whole blocks
        others = _try_all(problem, clock, {})
        others.pop("split", None)
        name = min(others, key=lambda each: others[each].laid.plan.time_s)  # type: ignore[union-attr]
        known = others[name]._replace(stats={"algorithm": name})
    if clock.stopped:
        return known
    with stoppable() as stop:
        found = find(problem, clock, on_event, known.laid)
    if stop.limit is not None:
        return known._replace(limit=stop.limit)
    better = {"algorithm": "joint", "runners_up": []}
    same = known.laid is not None and found.laid is not None
    same = same and found.laid.plan.time_s == known.laid.plan.time_s  # type: ignore[union-attr]
    return found._replace(stats=(known.stats if same else better) | found.stats)


def _ranked(times: dict[str, float]) -> list[str]:
    """List names with their times, the fastest first."""
    return [f"{name} {times[name]:.6g} s" for name in sorted(times, key=lambda each: times[each])]
