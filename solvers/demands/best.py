"""The method `best` for demands, the default: which search suits which demand.

A *plan* is a list of slots, matchings that are held for some time each. A problem is *plain* if
the slots and delays of a plan alone decide when it ends.
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
_FEW_PORTS = 3  # with packets or several planes: so few that the exact model is quick
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
    """Find a short schedule for a demand by the method that suits it; the default method."""
    params = params or DemandParams()
    if problem.objective == "weighted-completion-s":
        with uncounted():
            from optmatch.solvers.demands.groups import solve_groups

        return solve_groups(problem, limits, rng, on_event, start, params.orders)
    if problem.objective == "matchings":
        with uncounted():
            from optmatch.solvers.demands.decomposer import solve_matchings

        return solve_matchings(problem, limits, rng, on_event, start, params.decompositions)

    return _solve_completion(problem, limits, rng, on_event, start, params.rebuilds)


def _solve_completion(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None,
    rebuilds: int,
) -> Solution:
    """Find a schedule that serves a demand early, by the search that suits the switch.

    Plans come from the loop of all rules and moves (`yield_plans`); ports that an ideal switch
    joins in pairs have a search of their own (`rebuild_pairings`). Plain problems of few ports go
    on to the models of `ilp` for a part of the time.
    """
    build: Build = yield_plans
    if pairings.suits(problem):
        build = pairings.rebuild_pairings
    search = partial(solve_demand, name="best", build=build, start=start, n_moves=rebuilds)
    if _may_be_proved(problem, limits):
        return _search_and_prove(problem, limits, rng, on_event, search)

    # Where packets or several planes have a part in it and ports are few, the exact model may be
    # done in a moment. If it is not, its answer competes with that of the search.
    exact: Solution | None = None
    fabric = problem.fabric
    has_several_parts = problem.packet_share > 0 or problem.planes > 1
    is_ideal = fabric.graph is None and not fabric.bidirectional
    if has_several_parts and is_ideal and fabric.n_ports <= _FEW_PORTS:
        exact = _try_exact(problem, limits, rng, on_event)
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


def _try_exact(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Give the best plan of the first rules to the exact model (CP-SAT), for a short while."""
    with uncounted():
        from optmatch.solvers.demands.plane_model import finish_small  # loads OR-tools

    # The rules are the first iterations: `_FIRST_RULES` of them, or fewer by the limit.
    most = np.inf if limits.iterations is None else limits.iterations
    clock = limits.start()
    first = replace(limits, iterations=int(min(most, _FIRST_RULES)))
    solution = solve_demand(problem, first, rng, on_event, "best", yield_plans)
    if solution.limit is Limit.INTERRUPTED:
        return solution
    return finish_small(problem, solution, clock, rng, on_event, work=_WORK)


def _may_be_proved(problem: Demand, limits: Limits) -> bool:
    """Tell whether exact models of `ilp` are worth a part of the time for a demand.

    There is a model for each number of slots. The first one has as many slots as the busiest port
    has partners, and each slot may have the circuit of any entry.
    """
    fabric = problem.fabric
    is_ideal = fabric.graph is None and not fabric.bidirectional
    if limits.time_s is None or limits.iterations is not None:
        return False
    has_few_ports = is_ideal and fabric.n_ports <= _MOST_PROVED_PORTS
    if not has_few_ports or not is_plain(problem):
        return False

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

    The time limit, which has to be there, is shared: `_SHARE_OF_MODELS` of it is for CP-SAT, and
    what the search leaves.
    """
    with uncounted():
        from optmatch.solvers.demands.makespan import prove_by_slot_counts  # loads OR-tools

    # An answer that is proved, interrupted or without a schedule leaves CP-SAT nothing to do.
    assert limits.time_s is not None
    clock = limits.start()
    search_s = (1 - _SHARE_OF_MODELS) * limits.time_s
    of_search = replace(limits, time_s=search_s)
    solution = search(problem, of_search, rng, on_event)
    if solution.limit not in (Limit.TIME, Limit.EXHAUSTED) or solution.objective is None:
        return solution
    of_models = replace(limits, time_s=max(0.0, limits.time_s - clock.elapsed_s))
    return prove_by_slot_counts(problem, solution, of_models, rng, on_event)
