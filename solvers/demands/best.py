"""The method `best` for demands, the default: which search suits which demand.

A *plan* is a list of slots, matchings that are held for some time each; a *build* yields plans
for a demand, as good as it can. A problem is *plain* if the slots and delays of a plan alone
decide when it ends: no packets, one plane, and all circuits wait for each change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from optmatch.model import Limit, Limits, OnEvent, Solution, uncounted
from optmatch.problems import Demand
from optmatch.solvers.demands import pairings
from optmatch.solvers.demands.portfolio import yield_plans
from optmatch.solvers.demands.scheduling import is_plain, solve_demand
from optmatch.solvers.demands.tasks import Build
from optmatch.solvers.params import DemandParams

_FIRST_RULES = 3  # rules that run before the exact model is asked
_FEW_PORTS = 3  # so few that exact models are done in a moment, without any limit
_WORK = 0.1  # work of the exact model, about in seconds; rebuilds follow

_MOST_PROVED_PORTS = 10
"""CP-SAT may prove something about demands of so many ports within seconds."""

_SHARE_OF_MODELS = 0.3
"""The part of the time that CP-SAT has where it may prove the best plan: no less than all of the
time of `ilp` in a quarter of it, so that this is no better."""

_S_PER_CIRCUIT = 1 / 8000
"""The seconds that a model takes to be written and presolved for each entry of each slot."""


def solve_best(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
    params: DemandParams | None = None,
) -> Solution:
    """Find a short schedule for a demand by the method that suits it; the default method.

    For the earliest completion, plans come from the loop of all rules and moves (`yield_plans`);
    ports that an ideal switch joins in pairs have a search of their own (`rebuild_pairings`).
    Plain problems of few ports go on to the models of `ilp` for a part of the time. Where packets
    or several planes serve very few ports, a model of these is asked first, and the better one of
    its answer and that of the search is returned. `start` is a solution to begin with, perhaps of
    another demand.
    """
    params = params or DemandParams()
    if problem.objective == "weighted-completion-s":
        with uncounted():
            from optmatch.solvers.demands.groups import solve_groups

        return solve_groups(problem, limits, rng, on_event, start, params.orders)
    if problem.objective == "matchings":
        with uncounted():
            from optmatch.solvers.demands.decomposer import take_fewest

        is_limited = limits.time_s is not None or limits.iterations is not None
        most = None if is_limited else params.decompositions
        return take_fewest(problem, limits, rng, on_event, name="best", most=most, start=start)

    build: Build = yield_plans
    if pairings.suits(problem):
        build = pairings.rebuild_pairings
    search = partial(solve_demand, name="best", build=build, start=start, n_moves=params.rebuilds)
    if _may_be_proved(problem, limits):
        return _search_and_prove(problem, limits, rng, on_event, search)

    # With packets or several planes and very few ports, the exact model may be done in a moment.
    exact: Solution | None = None
    fabric = problem.fabric
    has_several_parts = problem.packet_share > 0 or problem.planes > 1
    is_ideal = fabric.graph is None and not fabric.bidirectional
    if has_several_parts and is_ideal and fabric.n_ports <= _FEW_PORTS:
        with uncounted():
            from optmatch.solvers.demands.plane_model import finish_small  # loads OR-tools

        # It begins with the best plan of the first rules, `_FIRST_RULES` of them or fewer by the
        # limit, and has the work `_WORK`. If it then has a proof (no limit ended it), or Ctrl-C
        # has come, its answer is the result. Otherwise that competes with the search below.
        clock = limits.start()
        few = limits.at_most(_FIRST_RULES)
        exact = solve_demand(problem, few, rng, on_event, "best", yield_plans)
        if exact.limit is not Limit.INTERRUPTED:
            exact = finish_small(problem, exact, clock, rng, on_event, work=_WORK)
        if exact.limit is None or exact.limit is Limit.INTERRUPTED:
            return exact
    solution = search(problem, limits, rng, on_event)
    if exact is not None and (exact.objective or np.inf) < (solution.objective or np.inf):
        solution = exact
    if limits.time_s is not None and solution.limit is Limit.EXHAUSTED:
        # EXHAUSTED means that all tries were made. With a limit of time their number has no end:
        # the search stopped since the rest of the time was too short for one more try.
        return replace(solution, limit=Limit.TIME)
    return solution


def _may_be_proved(problem: Demand, limits: Limits) -> bool:
    """Tell whether exact models of `ilp` are worth a part of the time for a demand.

    There is a model for each number of slots. The first one has as many slots as the busiest port
    has partners, and each slot may have the circuit of any entry.
    """
    fabric = problem.fabric
    is_ideal = fabric.graph is None and not fabric.bidirectional
    has_few_ports = is_ideal and fabric.n_ports <= _MOST_PROVED_PORTS
    if limits.iterations is not None or not has_few_ports or not is_plain(problem):
        return False
    if limits.time_s is None:
        return fabric.n_ports <= _FEW_PORTS

    # A model has a circuit for each slot and each entry (a pair of ports with a demand). There
    # are at least `degree` slots, the most entries of any source or destination.
    is_entry = problem.ticks > 0
    degree = max(is_entry.sum(axis=0).max(), is_entry.sum(axis=1).max())
    return bool(degree * is_entry.sum() * _S_PER_CIRCUIT <= _SHARE_OF_MODELS * limits.time_s / 4)


def _search_and_prove(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    search: Callable[..., Solution],
) -> Solution:
    """Search for a short plan; then let CP-SAT find a shorter one, or prove that there is none.

    `search` is `solve_demand` with the plans of this method. A time limit is shared:
    `_SHARE_OF_MODELS` of it is for CP-SAT, and what the search leaves. Without one the proof
    counts only if it comes with a certificate, which others can check; ``"bound_by"`` in the
    statistics says that it has none.
    """
    with uncounted():
        from optmatch.solvers.demands.makespan import prove_by_slot_counts  # loads OR-tools

    clock = limits.start()
    search_limits = limits
    if limits.time_s is not None:
        search_limits = replace(limits, time_s=(1 - _SHARE_OF_MODELS) * limits.time_s)
    solution = search(problem, search_limits, rng, on_event)

    # An answer that is proved, interrupted or without a schedule leaves CP-SAT nothing to do.
    if solution.limit not in (Limit.TIME, Limit.EXHAUSTED) or solution.objective is None:
        return solution
    proved = prove_by_slot_counts(problem, solution, clock, rng, on_event)
    if limits.time_s is None and "bound_by" in proved.stats:
        return solution

    # Models that get too large end with `Limit.MEMORY`. The limit of this method is the time all
    # the same: with more of it the search would have gone on.
    return replace(proved, limit=Limit.TIME) if proved.limit is Limit.MEMORY else proved
