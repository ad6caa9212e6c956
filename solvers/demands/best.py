"""The method `best` for demands, the default: which search suits which demand.

A *plan* is a list of slots, matchings that are held for some time each. A problem is *plain* if
the slots and delays of a plan alone decide when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from optmatch.model import Limit, Limits, OnEvent, Solution, uncounted
from optmatch.problems import Demand
from optmatch.solvers.demands import few_ports, pairings
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.portfolio import SHARE_OF_SCHEDULE, begin_part, rebuild
from optmatch.solvers.demands.quick_rules import Size
from optmatch.solvers.demands.scheduling import Build, CoverTask, is_plain, solve_demand
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
    """Find a short schedule for a demand by the method that suits it; the default method.

    A schedule is a list of slots, matchings that are held for some time each, with a delay before
    each. The search that is made depends on the objective:

    - ``"weighted-completion-s"``: a search over the orders in which groups are served. Without
      limits it takes less than a second for 16 ports with demands between all of them.
    - ``"matchings"``: a search over sums of permutations that are the demand exactly. It takes two
      seconds for 32 such ports, and five for 64.
    - ``"completion-s"``: quick rules make a schedule each, and then parts of the best one are
      taken out and made anew, again and again (rebuilds). That takes a few seconds for 64 such
      ports, 15 for 128, and at most a minute for 256 to 1,024.

    Parameters
    ----------
    problem
        The demand, of any objective and on any fabric.
    limits
        The limits of time, gap and iterations. An iteration is one rule or one rebuild.
    rng
        The random numbers.
    on_event
        Called with ticks, better objectives and better bounds.
    start
        A former solution, perhaps of another demand, from which the search begins; None if there
        is none.
    params
        How long to search if there are no limits: its fields `rebuilds` (fewer are made beyond 256
        ports), `decompositions` and `orders` are numbers of tries. None for the defaults.

    Returns
    -------
    Solution
        The best schedule that was found, the best bound, and the limit that ended the search
        (``Limit.EXHAUSTED`` if all tries were made); None as the limit if the schedule is proved.
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

    A plan is a list of slots, matchings that are held for some ticks each. A problem is *plain* if
    the slots and delays of a plan alone decide when it ends: one plane that stops as a whole, no
    packet network, and a switch that holds every matching.

    First a generator of plans is chosen (`build`). The usual one is `rebuild`: quick rules make
    some plans, and then parts of the best one are made anew. There are two exceptions:

    - ports that an ideal switch joins in pairs have a search of their own (`rebuild_pairings`);
    - a problem that is not plain, with a limit of time, has `rebuild` for a quarter of the time,
      and then the generator that was chosen so far (`_search_twice`).

    Then the first of these cases that applies says how plans become an answer:

    1. at most three ports, plain: an integer programme over all permutations (`few_ports`);
    2. at most ten ports, plain, with a limit of time: the search, and then exact models of CP-SAT
       for the rest of the time (`_search_and_prove`);
    3. at most three ports with packets or several planes: an exact model has a moment; if it
       proves nothing, the search follows, and the better of both answers counts;
    4. else the search alone (`solve_demand`).

    Parameters
    ----------
    problem
        The demand, with objective ``"completion-s"``.
    limits
        The limits of time, gap and iterations; each of them may be None.
    rng
        The random numbers.
    on_event
        Called with ticks, better objectives and better bounds.
    start
        A former solution, perhaps of another demand; None if there is none.
    rebuilds
        The most changes of a schedule if there are no limits.

    Returns
    -------
    Solution
        The best schedule and the best bound. Its limit is None if the schedule is proved.
    """
    # `build` is a function that takes the demand in ticks, and yields plans.
    build: Build = partial(rebuild, rebuilds=rebuilds)
    if pairings.suits(problem):
        build = pairings.rebuild_pairings
    if limits.time_s is not None and not is_plain(problem):
        build = partial(_search_twice, search_again=build)
    if few_ports.suits(problem):
        return few_ports.solve_few(problem, limits, rng, on_event, build)
    if _may_be_proved(problem, limits):
        return _search_and_prove(problem, limits, rng, on_event, build, start)

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
    solution = solve_demand(problem, limits, rng, on_event, "best", build, start=start)
    if exact is not None and (exact.objective or np.inf) < (solution.objective or np.inf):
        solution = exact
    if limits.time_s is not None and solution.limit is Limit.EXHAUSTED:
        # EXHAUSTED means that all tries were made. With a limit of time their number has no end:
        # the search stopped since the rest of the time was too short for one more try.
        return replace(solution, limit=Limit.TIME)
    return solution


def _search_twice(work: CoverTask, search_again: Build) -> Iterator[Plan]:
    """Make the plans of `rebuild` in a quarter of the time, then those of another search.

    Where several planes share a demand, or circuits go on while others change, many different
    plans are of more use than short ones, since none of the searches knows what becomes of them.
    The first part is what `ilp` does in as much time if it has no exact model. Without it, `ilp`
    was 1 % better for four planes of 10 ports, and 3 % for 12 bidirectional ports.

    Parameters
    ----------
    work
        The demand in ticks, delay, shortest slot and random numbers; its clock has a limit of
        time.
    search_again
        The search for the rest of the time.

    Yields
    ------
    Plan
        Plans that serve the demand, good and bad ones.
    """
    limit_s = work.clock.limits.time_s
    assert limit_s is not None
    yield from rebuild(work._replace(clock=begin_part(work.clock, SHARE_OF_SCHEDULE * limit_s)))
    rest = begin_part(work.clock, work.clock.remaining_s)
    yield from search_again(work._replace(clock=rest))


def _try_exact(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Give the best plan of the first rules to the exact model (CP-SAT), for a short while.

    Parameters
    ----------
    problem
        A demand of few ports on an ideal switch, with packets or several planes.
    limits
        The limits of time, gap and iterations; the rules and the model share them.
    rng
        The random numbers of rules, and of the seed of CP-SAT.
    on_event
        Called with better objectives and bounds.

    Returns
    -------
    Solution
        Its limit is None if the exact model has proved the best plan.
    """
    with uncounted():
        from optmatch.solvers.demands.plane_model import finish_small  # loads OR-tools

    # The rules are the first iterations: `_FIRST_RULES` of them, or fewer by the limit.
    most = np.inf if limits.iterations is None else limits.iterations
    clock = limits.start()
    first = replace(limits, iterations=int(min(most, _FIRST_RULES)))
    solution = solve_demand(problem, first, rng, on_event, "best", rebuild)
    if solution.limit is Limit.INTERRUPTED:
        return solution
    return finish_small(problem, solution, clock, rng, on_event, work=_WORK)


def _may_be_proved(problem: Demand, limits: Limits) -> bool:
    """Tell whether exact models of `ilp` are worth a part of the time for a demand.

    There is a model for each number of slots. The first one has as many slots as the busiest port
    has partners, and each slot may have the circuit of any entry.

    Parameters
    ----------
    problem
        The demand.
    limits
        The limits; without one of time, and with one of iterations, there is no model.

    Returns
    -------
    bool
        True for few ports of one plain switch, if the first model is written in a quarter of the
        time that models have.
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
    size = Size.of(problem.ticks)
    return size.degree * size.n_entries * _S_PER_CIRCUIT <= _SHARE_OF_MODELS * limits.time_s / 4


def _search_and_prove(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    build: Build,
    start: Solution | None,
) -> Solution:
    """Search for a short plan; then let CP-SAT find a shorter one, or prove that there is none.

    Parameters
    ----------
    problem
        A demand for which `_may_be_proved` is true.
    limits
        The limits. CP-SAT has `_SHARE_OF_MODELS` of the time.
    rng
        The random numbers of the search, and of the seed of CP-SAT.
    on_event
        Called with better objectives and bounds.
    build
        Yields the plans of the search, one after the other.
    start
        A former solution, perhaps of another demand; None if there is none.

    Returns
    -------
    Solution
        The best schedule. Its limit is None if it is proved.
    """
    with uncounted():
        from optmatch.solvers.demands.makespan import prove_by_slot_counts  # loads OR-tools

    # An answer that is proved, interrupted or without a schedule leaves CP-SAT nothing to do.
    assert limits.time_s is not None
    clock = limits.start()
    search_s = (1 - _SHARE_OF_MODELS) * limits.time_s
    of_search = replace(limits, time_s=search_s)
    solution = solve_demand(problem, of_search, rng, on_event, "best", build, start=start)
    if solution.limit not in (Limit.TIME, Limit.EXHAUSTED) or solution.objective is None:
        return solution
    of_models = replace(limits, time_s=max(0.0, limits.time_s - clock.elapsed_s))
    return prove_by_slot_counts(problem, solution, of_models, rng, on_event)
