"""Methods of collectives: a function that finds a plan for each name, and the fastest of all.

Words that are used here:

- a *finder* is the function of one method; it takes a collective and a clock, and returns a
  `FoundPlan`: a plan, its statistics, a lower bound in seconds (0 if none is proved), and the
  limit that it met, if any;
- a *promise* is what is known of the plan of a method before it is made: the seconds that it takes
  at least, and the seconds of CPU to make it. A plan whose promise is no better than what is known
  need not be made. Known algorithms count rounds, changes of circuits and bytes for it; a search
  promises the lower bound of the problem;
- a *block* is the data of one rank in a gather, or what one rank sends to one other in an
  all-to-all; a *chunk* is what one send of a plan carries, and a *part* some bytes of a chunk;
- a *plane* is a switch of its own with ports of all ranks, and a *step* a round with its circuits
  and bytes, as a problem may state them by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

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
    TimeUp,
)
from optmatch.problems import Collective
from optmatch.problems.collectives.bounds import fewest_late_rounds
from optmatch.problems.collectives.fields import list_amounts
from optmatch.solvers.collectives import circulant
from optmatch.solvers.collectives.algorithms import (
    ALGORITHMS,
    MOST_ROUTED_RANKS,
    choose_line_pieces,
    fits,
    group_of_halves,
    list_algorithm_rounds,
)
from optmatch.solvers.collectives.broadcasts import list_broadcast_offers
from optmatch.solvers.collectives.conclusion import (
    NO_ORDER,
    NO_ROUTES,
    FoundPlan,
    hold,
    keep_to_budgets,
    run,
)
from optmatch.solvers.collectives.exchanges import lay_circulant_exchange, list_exchange_offers
from optmatch.solvers.collectives.forwarding import list_forwarding_offers
from optmatch.solvers.collectives.islands import find_island_plan
from optmatch.solvers.collectives.late_ranks import (
    find_late_plan,
    list_rounds_around,
    takes_several_late_ranks,
)
from optmatch.solvers.collectives.offers import NotHeld, Offer, take_best_offer, try_offers
from optmatch.solvers.collectives.overlap import Steps, read_steps, share
from optmatch.solvers.collectives.plans import Laid, assemble, lay, lay_shares
from optmatch.solvers.collectives.rounds import (
    PORTS_OF_A_SEND,
    SENDS_PER_S,
    Rounds,
    is_affordable,
    ranks_to_store,
    seconds_of,
)
from optmatch.solvers.collectives.skewed import find_skewed_plan
from optmatch.solvers.collectives.split import SplitSearch
from optmatch.solvers.collectives.spreading import (
    choose_radix_rounds,
    list_gather_offers,
    list_mixed_radix_offers,
)
from optmatch.solvers.collectives.stragglar import list_late_sends
from optmatch.solvers.collectives.sums import (
    choose_torus,
    choose_torus_within,
    join,
    list_torus_rounds,
    sum_up,
)
from optmatch.solvers.frame import is_defect, log_defect
from optmatch.solvers.method import Run

MOST_SPLIT_RANKS = 64
"""The most ranks between which blocks are split by linear programmes; more take minutes each."""

QUICK_S = 0.02
"""Plans that are made in less come first, lest slower ones leave no time for them."""

GRACE_S = 0.2
"""Without any plan that there is time for, the quickest is made if it takes so much longer."""

Find = Callable[[Collective, Clock, float], FoundPlan]
"""A finder: takes a problem that the method suits, the clock of its limits, and the seconds below
which a plan is of use; a search leaves out what cannot be faster, and may find no plan."""


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
    """Solve a problem by the method with a given name."""
    return run(
        problem, limits, on_event, name, partial(_find_plan, name, problem, on_event, start)
    )


def _find_plan(
    name: str,
    problem: Collective,
    on_event: OnEvent,
    start: Solution | None,
    clock: Clock,
) -> FoundPlan:
    """Find the plan of a method, which may take any time (`math.inf` seconds).

    `best` alone uses `on_event`, and tries the plan of a former solution, `start`.
    """
    # One rank, or no data: nothing is sent, and the plan of each method is that of a known one.
    if problem.steps is None and problem.n_ranks == 1:
        return _follow_algorithm("ring", problem, clock, math.inf)
    if problem.steps is None and not problem.size_bytes:
        return _follow_algorithm("direct", problem, clock, math.inf)
    if name == "best":
        return _find_best(problem, clock, on_event, start)
    plan = FINDERS[name].find(problem, clock, math.inf)
    return plan._replace(stats={"algorithm": name, **plan.stats})


def suits(problem: Collective, name: str) -> bool:
    """Tell whether a method takes a problem; what the method of each name does is in `FINDERS`."""
    # Islands have a method of their own, and so have steps that the problem states.
    if problem.island > 1 or name == "islands":
        return problem.island > 1 and name == "islands"
    if problem.steps is not None:
        return name == "overlap"
    if name in ALGORITHMS:
        return fits(problem, name)

    # What the other methods ask for: an operation (an all-reduce sums for all, an all-to-all has a
    # block for each pair of ranks), blocks of equal or of different sizes, and one-way or two-way
    # ports. Blocks may be cut anywhere unless chunks are aligned.
    n = problem.n_ranks
    flow = problem.flow
    is_all_reduce = flow.sums_for_all and n > 1
    is_one_way_all_to_all = flow.has_pairs and not problem.two_way and n > 1
    is_even = problem.demand_bytes is None
    may_be_cut = not is_even and not problem.align_bytes
    names_first_circuits = not isinstance(problem.start, str)
    exchanges_in_pairs = flow.has_pairs and problem.two_way and n % 2 == 0
    is_power_of_two = n & (n - 1) == 0
    conditions = {
        # Some switches change their circuits while others send.
        "overlap": problem.planes > 1,
        # Schedules of an all-reduce around one late rank, or several.
        "stragglar": flow.sums_for_all and bool(problem.late_s),
        "late-ranks": takes_several_late_ranks(problem),
        # Two-way circuits join all ranks in pairs, which takes an even number of ranks.
        "mixed-radix": bool(flow.adds) and n > 1 and not (problem.two_way and n % 2),
        # All-to-alls: equal blocks take the same shifts from every rank; of different ones parts
        # may take routes of their own, or large ones may go straight to their places.
        "circulant": is_one_way_all_to_all and is_even,
        "split": is_one_way_all_to_all and may_be_cut and n <= MOST_SPLIT_RANKS,
        "skewed": is_one_way_all_to_all and may_be_cut,
        # Graphs of circuits that stay, over several ports. With one port they are of use if the
        # problem names the circuits at the start, if blocks have different sizes, or if two-way
        # circuits of an all-to-all join an even number of ranks in pairs.
        "topologies": n > 2
        and not flow.from_root
        and (problem.lanes > 1 or names_first_circuits or not is_even or exchanges_in_pairs),
        # Broadcasts, whose pieces follow each other.
        "pipelined": n > 2 and flow.from_root,
        # Nothing is forwarded in a round unless hops have a time, nor over pairs alone.
        "forwarding": n > 2
        and problem.hop_s is not None
        and (problem.lanes > 1 or not problem.two_way),
        # Two-way circuits of one port join pairs, hence all sides of the torus have 2 ranks.
        "one-pass": is_all_reduce and (is_power_of_two or not problem.two_way),
        # Any all-reduce is a reduce-scatter and an all-gather, or a gather of whole buffers.
        "composed": is_all_reduce,
    }
    return conditions[name]


def single_rounds(problem: Collective) -> dict[str, Rounds]:
    """List the rounds of all known algorithms that fit, by name, as if each rank had one port.

    `overlap` shares the bytes of such rounds among several planes.
    """
    alone = problem
    if problem.lanes > 1:
        start = problem.start if isinstance(problem.start, str) else "free"
        fabric = IdealSwitch(problem.n_ranks)
        alone = replace(problem, ports=1, planes=1, fabric=fabric, start=start)
    return {name: list_algorithm_rounds(alone, name) for name in ALGORITHMS if fits(alone, name)}


def _follow_algorithm(name: str, problem: Collective, clock: Clock, below_s: float) -> FoundPlan:
    """Make the plan of a known algorithm; each round gets the circuits that it asks for."""
    return FoundPlan(lay(problem, list_algorithm_rounds(problem, name)), {"algorithm": name})


def _find_overlapped(problem: Collective, clock: Clock, below_s: float) -> FoundPlan:
    """Let some switches change their circuits while others send.

    The planes share the bytes of a step in such parts that all end at the same time; a plane that
    changes its circuits meanwhile takes fewer bytes, or none.
    """
    # Steps that the problem states are timed as they are, with a proved lower bound.
    if problem.steps is not None:
        shares, bound_s = share(read_steps(problem, None), clock)
        return FoundPlan(lay_shares(problem, None, shares), {}, lower_bound=bound_s)

    # Each algorithm promises the time of its rounds without any change of circuits, which no plan
    # of it beats. An offer with many sends is not taken when little time is left; these say 0, as
    # the search that shares out their bytes heeds the clock itself.
    offers: list[Offer[Laid]] = []
    for name, rounds in single_rounds(problem).items():
        steps = read_steps(problem, rounds)
        build = partial(_lay_overlapped, problem, rounds, steps, clock)
        offers.append(Offer(seconds=steps.at_least_s, n_sends=0, name=name, build=build))
    taken = take_best_offer(offers, clock)
    return FoundPlan(taken.laid, {"algorithm": taken.name}, limit=taken.limit)


def _lay_overlapped(problem: Collective, rounds: Rounds, steps: Steps, clock: Clock) -> Laid:
    """Share the bytes of all rounds of an algorithm among the planes."""
    shares, _ = share(steps, clock, prove=False)
    return lay_shares(problem, rounds, shares)


def _find_around_late_rank(problem: Collective, clock: Clock, below_s: float) -> FoundPlan:
    """Plan an all-reduce in which one rank comes late, and the others do not just wait.

    Example: 4 ranks, of which rank 1 is late. The buffer is cut into three chunks. While they
    wait, ranks 0, 2 and 3 add up their data, so that each has the sum of one chunk. When rank 1 is
    ready, it exchanges data with each of them in turn; after each meeting both have a whole sum.
    Whole sums are copied to all ranks meanwhile.
    """
    # The n - 1 other ranks have one chunk each. `after` are the rounds from when the late rank is
    # ready; those in which the others add up their data come before them.
    n = problem.n_ranks
    after = Rounds(list_late_sends(n).astype(np.int64), chunk_count=n - 1)
    rounds = list_rounds_around(problem, after, n_owners=n - 1)
    return FoundPlan(lay(problem, rounds), {"fewest_rounds_late": fewest_late_rounds(n)})


def _find_one_pass(problem: Collective, clock: Clock, below_s: float) -> FoundPlan:
    """Plan an all-reduce over the rings of a torus, each side in the better one of two ways.

    The ranks are the places of a *torus*, with a ring of ranks along each side. Along a side data
    can be summed up in one of two ways:

    - in parts: each rank adds up a part, and in the end the parts are gathered. This takes two
      times around the ring, with few bytes;
    - as a whole: each rank passes on all that comes, and adds it up by itself. This takes one time
      around the ring, with more bytes.
    """
    # Sides are chosen by a formula, and laying out the sends takes most of the time. If there is
    # no time for the fastest torus, the fastest one of few enough sends is taken, and the limit
    # says so.
    n = problem.n_ranks
    sides = choose_torus(problem)
    limit: Limit | None = None
    if not is_affordable(sides.count_sends(n), clock, reserve=TORUS_RESERVE):
        sides = choose_torus_within(problem, SENDS_PER_S * clock.remaining_s / TORUS_RESERVE)
        limit = Limit.TIME
    return FoundPlan(lay(problem, list_torus_rounds(n, sides)), {}, limit=limit)


def _find_composed(problem: Collective, clock: Clock, below_s: float) -> FoundPlan:
    """Make an all-reduce of other collectives, each planned by its own best method.

    Two ways are tried, and the fastest plan is taken:

    - an all-gather of whole buffers, which every rank adds up by itself. This is n times the
      bytes, but half of the rounds;
    - a reduce-scatter followed by an all-gather. Two plans can be joined only if they cut the
      buffer into as many chunks: for each number of chunks the fastest reduce-scatter is joined to
      the fastest all-gather, which begins with the circuits that are up by then.

    Neither is tried where its lower bounds show that it takes `below_s` seconds or longer. There
    may be no plan.
    """
    # The gather of whole buffers is left out where it would take longer than a problem may last.
    plans: list[Laid] = []
    whole_bytes = problem.n_ranks * problem.size_bytes
    if whole_bytes <= LONGEST_S * problem.rate_bytes_per_s:
        gather = replace(problem, operation="all-gather", size_bytes=whole_bytes)
        if gather.lower_bound() < below_s:
            gathers = _try_all(gather, clock, below_s=below_s).plans
            plans += [sum_up(_fastest(gathers))] if gathers else []

    # Ranks are late only for the first half. The circuits of the second half are free here, so
    # that its lower bound holds whichever circuits are up when it begins.
    scatter = replace(problem, operation="reduce-scatter")
    gather = replace(problem, operation="all-gather", start="free", late_s={})
    scatters: dict[str, FoundPlan] = {}
    if scatter.lower_bound() + gather.lower_bound() < below_s:
        scatters = _try_all(scatter, clock).plans

    # The gather begins with the circuits with which the scatter ends.
    for cut, first in sorted(_list_fastest_of_cuts(scatters).items()):
        gathers = _try_all(replace(gather, start=first.plan.circuits[-1]), clock).plans
        second = _list_fastest_of_cuts(gathers).get(cut)
        if second is not None:
            plans.append(join(problem, first.plan, second.plan))
    best = min(plans, key=lambda laid: laid.time_s, default=None)
    return FoundPlan(best, {})


def _list_fastest_of_cuts(plans: dict[str, FoundPlan]) -> dict[tuple[int, int], Laid]:
    """List the fastest plan of each *cut*: the number of chunks, and of the ranks that store them.

    Plans with the same cut can be joined one behind the other. Planes that change circuits by
    themselves (no ``held_s``) are left out: an all-reduce over them is planned as a whole.
    """
    fastest: dict[tuple[int, int], Laid] = {}
    for laid in (plan.laid for plan in plans.values()):
        if laid is not None and laid.held_s is not None:
            cut = len(laid.plan.chunk_bytes), laid.plan.stored_ranks
            fastest[cut] = min(laid, fastest.get(cut, laid), key=lambda either: either.time_s)
    return fastest


def _find_planned(
    find: Callable[[Collective, Clock], Laid | None],
    problem: Collective,
    clock: Clock,
    below_s: float,
) -> FoundPlan:
    """Find the plan of a search that has neither statistics nor a lower bound."""
    return FoundPlan(find(problem, clock), {}, limit=clock.exceeded(iterations=0))


def _find_circulant(problem: Collective, clock: Clock, below_s: float) -> FoundPlan:
    """Find the fastest all-to-all on shifts; its limit is the time if some had to be left out."""
    chosen, is_whole = circulant.choose(problem, clock)
    laid = lay_circulant_exchange(problem, chosen)
    # Without a limit of time only memory has left some out, and no longer search would find them.
    limit = clock.exceeded(iterations=0)
    if not is_whole and math.isfinite(clock.remaining_s):
        limit = limit or Limit.TIME
    return FoundPlan(laid, {}, limit=limit)


def _find_offered(
    list_offers: Callable[[Collective, Clock, float], Iterator[Offer[Laid]]],
    problem: Collective,
    clock: Clock,
    below_s: float,
) -> FoundPlan:
    """Find the fastest of the plans that `list_offers` yields, of less than `below_s` seconds.

    The seconds of offers count from when the first circuits are there, those of plans from the
    beginning of the problem: `first_delay_s` earlier.
    """
    first_s = problem.first_delay_s
    is_held: dict[bytes, bool] = {}
    offers = (
        offer._replace(
            seconds=first_s + offer.seconds,
            build=partial(_lay_if_held, problem, clock, is_held, offer.build),
        )
        for offer in list_offers(problem, clock, below_s - first_s)
    )
    taken = take_best_offer(offers, clock, below_s)

    # The reason where circuits of plans were looked at, and the fabric has routes for none.
    stats = {"topology": taken.name}
    if is_held and not any(is_held.values()):
        stats["reason"] = NO_ROUTES
    return FoundPlan(taken.laid, stats, limit=taken.limit)


def _lay_if_held(
    problem: Collective, clock: Clock, is_held: dict[bytes, bool], build: Callable[[], Laid]
) -> Laid:
    """Build a plan; raise `NotHeld` if the fabric, such as a mesh, has no routes for its circuits.

    ``is_held[circuits]`` tells by the bytes of circuits whether there are routes for them, and is
    added to: many offers have the same graph. Raises `TimeUp` if the time ends without routes.
    """
    laid = build()
    if problem.fabric.graph is None:
        return laid
    circuits = laid.plan.circuits.tobytes()
    if circuits not in is_held:
        is_held[circuits], _ = hold(problem, laid)
    if is_held[circuits]:
        return laid
    if clock.remaining_s <= 0.0:
        raise TimeUp("no circuits were found that the fabric holds")
    raise NotHeld


def _list_graph_offers(problem: Collective, clock: Clock, below_s: float) -> Iterator[Offer[Laid]]:
    """List plans of ranks with several ports, over graphs that stay or change a few times."""
    if problem.flow.has_pairs:
        return list_exchange_offers(problem, clock, below_s)
    return list_gather_offers(problem, clock, below_s)


def _find_between_islands(problem: Collective, clock: Clock, below_s: float) -> FoundPlan:
    """Plan a collective of ranks in islands, which copy inside while rails between them send."""
    laid, limit = find_island_plan(problem, clock)
    return FoundPlan(laid, {}, limit=clock.exceeded(iterations=0) or limit)


class PlanFinder(NamedTuple):
    """One method of a portfolio; `suits` tells which problems it takes."""

    summary: str
    """What it is, in a line."""
    find: Find
    """Finds a plan of a problem that it takes. Its statistics name an algorithm where the plan is
    that of another one; else that is the name of the method."""


FINDERS: dict[str, PlanFinder] = {
    "ring": PlanFinder(
        "chunks go round a ring, whose circuits stay", partial(_follow_algorithm, "ring")
    ),
    "halving-doubling": PlanFinder(
        "pairs at distances 1, 2, 4, ... exchange what they have",
        partial(_follow_algorithm, "halving-doubling"),
    ),
    "bruck": PlanFinder(
        "ranks send 1, 2, 4, ... places onward", partial(_follow_algorithm, "bruck")
    ),
    "pairwise": PlanFinder(
        "each block straight to its place, a matching after another",
        partial(_follow_algorithm, "pairwise"),
    ),
    "swing": PlanFinder(
        "pairs at distances 1, -1, 3, -5, ...", partial(_follow_algorithm, "swing")
    ),
    "knodel": PlanFinder(
        "pairs of a Knoedel graph exchange what they have, for any number of ranks",
        partial(_follow_algorithm, "knodel"),
    ),
    "direct": PlanFinder(
        "everything straight to its place, over different circuits of all lanes",
        partial(_follow_algorithm, "direct"),
    ),
    "near-sums": PlanFinder("", partial(_follow_algorithm, "near-sums")),
    "whole-buffers": PlanFinder("", partial(_follow_algorithm, "whole-buffers")),
    "overlap": PlanFinder("planes change circuits while others send", _find_overlapped),
    "stragglar": PlanFinder(
        "an all-reduce around a late rank: the others reduce while they wait",
        _find_around_late_rank,
    ),
    "late-ranks": PlanFinder(
        "an all-reduce with several late ranks, whose data spread while they send",
        partial(_find_planned, find_late_plan),
    ),
    "mixed-radix": PlanFinder(
        "rings whose steps grow: the fewest rounds of an all-gather or a sum",
        partial(_find_offered, lambda problem, clock, below_s: list_mixed_radix_offers(problem)),
    ),
    "circulant": PlanFinder(
        "an all-to-all on shifts, chosen together with the routes", _find_circulant
    ),
    "split": PlanFinder(
        "an uneven all-to-all whose blocks go by several ways",
        partial(_find_planned, lambda problem, clock: SplitSearch(problem, clock).run()),
    ),
    "pipelined": PlanFinder(
        "a broadcast in pieces, over trees and graphs of all ports, or a hypercube",
        partial(
            _find_offered, lambda problem, clock, below_s: list_broadcast_offers(problem, clock)
        ),
    ),
    "forwarding": PlanFinder(
        "data pass ranks on their way inside a round, where hops have a time",
        partial(_find_offered, list_forwarding_offers),
    ),
    "skewed": PlanFinder(
        "an uneven all-to-all: matchings for large blocks, circulants for the rest",
        partial(_find_planned, find_skewed_plan),
    ),
    "topologies": PlanFinder(
        "each port leads to another rank: circulants, de Bruijn, Kautz, random graphs",
        partial(_find_offered, _list_graph_offers),
    ),
    "islands": PlanFinder(
        "all rails of islands together, while members tell each other what has come",
        _find_between_islands,
    ),
    "one-pass": PlanFinder(
        "an all-reduce over a torus that passes data on, in one pass and not two", _find_one_pass
    ),
    "composed": PlanFinder(
        "the best reduce-scatter and all-gather, or an all-gather and sums", _find_composed
    ),
}
"""All methods but `best`, by name; one without a summary is tried by `best` alone."""


def _take_up(problem: Collective, start: Solution) -> FoundPlan | None:
    """Use the plan of a former solution again, if only sizes and times have changed since.

    Rounds, sends and circuits stay, and only their times are worked out anew. The result keeps the
    statistic "algorithm". It is None if the plan cannot be used: the former solution had none, or
    its problem had other ranks, lanes or late ranks, for example.
    """
    former: Any = start.problem
    plan: Any = start.answer
    # Whether hops have a time decides which sends are allowed, so that must not change. A plan
    # with shares of planes, parts of chunks or places of sums is not used again.
    is_usable = plan is not None and (former.hop_s is None) == (problem.hop_s is None)
    if not is_usable or len(plan.shares_bytes) or len(plan.parts) or len(plan.places):
        return None
    # With the former sizes, times and rates the problem has to be the former one.
    if replace(problem, **{name: getattr(former, name) for name in list_amounts()}) != former:
        return None
    circuits = plan.circuits.astype(np.int64)
    laid = assemble(problem, Rounds.of_plan(plan), circuits, plan.epoch_of_round.astype(np.int64))
    kept_stats = {name: start.stats[name] for name in ("algorithm",) if name in start.stats}
    return FoundPlan(laid, kept_stats)


class _Tries(NamedTuple):
    """The plans of a row of methods; all fields are filled while the methods are tried."""

    plans: dict[str, FoundPlan]
    """The plans, by the name of the method; none of a method that has no plan."""
    promises: dict[str, Promise]
    """By the name of a method, the least time of its plan, and the time to make it."""
    left_out: dict[str, str]
    """By the name of a method why it was not tried, or not to its end, for want of time."""
    failures: list[Exception]
    """The errors of methods that failed."""
    short_of_memory: list[str]
    """The methods that had offers of too many sends."""
    long_searches: list[str]
    """Those of `LONG_SEARCHES` that are tried, in their order; the first of k that are still to be
    tried gets a k-th of the time that is left."""

    def best_s(self, below_s: float) -> float:
        """Return the seconds of the fastest plan; `below_s` if none takes less."""
        return min([below_s, *(plan.time_s for plan in self.plans.values())])

    @property
    def check_s(self) -> float:
        """The seconds of CPU to check the fastest plan, about half of those to lay it out."""
        if not self.plans:
            return 0.0
        plan = _fastest(self.plans).plan
        n_sends = len(plan.sends) + plan.circuits.size / PORTS_OF_A_SEND
        return n_sends / SENDS_PER_S / 2


def _try_all(
    problem: Collective,
    clock: Clock,
    known_plans: dict[str, FoundPlan] | None = None,
    below_s: float = math.inf,
    *,
    within_budgets: bool = False,
) -> _Tries:
    """Find a plan by each method that suits a problem, while there is time.

    `known_plans` are plans, by name, that the others compete with; plans slower than `below_s`
    seconds are of no use, and with `within_budgets` plans have to keep to the link budgets of the
    fabric. A method is left out in two cases: if it promises nothing better than the best plan so
    far, or if there is not enough time for it. If there is not enough time for any method, the
    quickest one is tried if it is late by no more than `GRACE_S`. The error of a method that fails
    is raised if no other one has a plan.
    """
    # The methods that suit the problem, in the order in which they are tried, and those of them
    # that there is time for.
    bound_s = problem.lower_bound()
    promises = {name: promise(problem, name, bound_s) for name in FINDERS if suits(problem, name)}
    order = sorted(promises, key=lambda name: promises[name].order)
    affordable = [name for name in order if promises[name].effort_s <= clock.remaining_s]
    if not affordable:  # the quickest one of the first group, if it is not far too late
        group = promises[order[0]].group
        first_group = [name for name in order if promises[name].group == group]
        quickest = min(first_group, key=lambda name: promises[name].effort_s)
        if promises[quickest].effort_s <= clock.remaining_s + GRACE_S:
            affordable = [quickest]
    long_searches = [name for name in affordable if name in LONG_SEARCHES]
    tries = _Tries(
        plans=dict(known_plans or {}),
        promises=promises,
        left_out={},
        failures=[],
        short_of_memory=[],
        long_searches=long_searches,
    )

    # Offers state their work in sends: as many as are laid out in the seconds of the method.
    offers = [
        Offer(
            seconds=promises[name].seconds,
            n_sends=promises[name].effort_s * SENDS_PER_S,
            name=name,
            build=partial(_try_method, name, problem, clock, tries, below_s, within_budgets),
        )
        for name in affordable
    ]
    unbuilt: list[Offer[FoundPlan]] = []
    best_s = tries.best_s(below_s)
    for name, plan in try_offers(offers, clock, unbuilt, best_s, has_plan=bool(tries.plans)):
        tries.plans[name] = plan
    untried = [name for name in order if name not in affordable]
    for name in [*untried, *(offer.name for offer in unbuilt)]:
        tries.left_out[name] = f"takes about {promises[name].effort_s:.2g} s to plan"
    if tries.failures and not tries.plans:
        raise tries.failures[-1]
    return tries


def _try_method(
    name: str,
    problem: Collective,
    clock: Clock,
    tries: _Tries,
    below_s: float,
    within_budgets: bool,
) -> FoundPlan:
    """Find the plan of a method that is faster than those of `tries`, and than `below_s` seconds.

    There is no plan if the method fails by a defect, whose error is added to ``tries.failures``,
    so that the plans of other methods are kept; or if `within_budgets` asks for link budgets and
    no order of ranks keeps to them.
    """
    # A search that takes all the time it gets leaves as much to each of those that follow, and
    # beside that the time to check the best plan so far: the first of 3 has a third of the time.
    own_clock = clock
    if name in tries.long_searches and math.isfinite(clock.remaining_s):
        n_searches = len(tries.long_searches) - tries.long_searches.index(name)
        search_s = max(0.0, clock.remaining_s - tries.check_s) / n_searches
        limits = replace(clock.limits, time_s=search_s)
        own_clock = Clock(limits=limits, now=clock.now, started=clock.now(), outer=clock)
    try:
        plan = FINDERS[name].find(problem, own_clock, tries.best_s(below_s))
    except TimeUp:
        raise
    except Exception as error:
        if not is_defect(error, problem):
            raise
        log_defect(name, error)
        tries.failures.append(error)
        return FoundPlan(None, {})
    finally:
        clock.interrupted |= own_clock.interrupted
    if plan.limit is Limit.TIME:
        tries.left_out[name] = "had too little time to end"
    if plan.limit is Limit.MEMORY:
        tries.short_of_memory.append(name)
    return keep_to_budgets(problem, plan, clock) if within_budgets else plan


def _describe_left_out(tries: _Tries, best_s: float) -> list[str]:
    """Describe the methods for which the time was too short, and which may have faster plans.

    The least promise comes first: "topologies 0.0012 s, takes about 3 s to plan".
    """
    faster = [name for name in tries.left_out if _may_be_faster(tries.promises[name], best_s)]
    return [
        f"{name} {tries.promises[name].seconds:.6g} s, {tries.left_out[name]}"
        for name in sorted(faster, key=lambda name: tries.promises[name].seconds)
    ]


def _may_be_faster(promised: Promise, best_s: float) -> bool:
    """Tell whether a method may have a plan that takes less than `best_s` seconds."""
    return promised.seconds < best_s * (1 - 2 * RTOL)


def _fastest(plans: dict[str, FoundPlan]) -> Laid:
    """Return the fastest of some plans, of which there is one at least."""
    laid = min(plans.values(), key=lambda plan: plan.time_s).laid
    assert laid is not None
    return laid


def _find_best(
    problem: Collective, clock: Clock, on_event: OnEvent, start: Solution | None
) -> FoundPlan:
    """Find the fastest plan of all methods that suit a problem.

    The plan of a former solution, `start`, is a candidate, too, if it still holds; `on_event` is
    told of it. The statistics of the result name the other plans with their times, and the methods
    that were left out for want of time.
    """
    # A former plan that can be taken up is the first candidate.
    known_plans: dict[str, FoundPlan] = {}
    former = None if start is None else _take_up(problem, start)
    if former is not None and former.laid is not None:
        known_plans["former"] = former
        on_event(NewBest(former.laid.time_s))

    # All methods; without a plan the limit says what kept them from one.
    tries = _try_all(problem, clock, known_plans, within_budgets=True)
    plans = tries.plans
    if not plans and tries.left_out:
        return FoundPlan(None, {}, limit=Limit.TIME)
    if not plans and tries.short_of_memory:
        return FoundPlan(None, {}, limit=Limit.MEMORY)
    if not plans:
        return FoundPlan(None, {"reason": NO_ORDER}, limit=Limit.EXHAUSTED)

    # The fastest plan is the answer; the names and times of the others are told beside it.
    order = sorted(plans, key=lambda name: plans[name].time_s)  # names, the fastest plan first
    best = plans[order[0]]
    runners_up = [f"{name} {plans[name].time_s:.6g} s" for name in order[1:]]
    stats = {"algorithm": order[0], **best.stats, "runners_up": runners_up}
    left_out = _describe_left_out(tries, best.time_s)
    if left_out:
        stats["left_out"] = left_out
    # Only the search that shares given steps among planes proves a bound, others say 0 seconds.
    bound_s = max(plan.lower_bound for plan in plans.values())
    limit = None
    if clock.stopped:
        limit = Limit.INTERRUPTED
    elif left_out:
        limit = Limit.TIME
    elif any(_may_be_faster(tries.promises[name], best.time_s) for name in tries.short_of_memory):
        limit = Limit.MEMORY
    return FoundPlan(best.laid, stats, bound_s, limit)


TORUS_RESERVE = 4.0
"""A send of an all-reduce over a torus takes this many times as long as others, as the verifier
adds up what each of them keeps: between 4,096 ranks 1.5 million take 3.7 s."""
LIGHT_TORUS = 16
"""An all-reduce over a torus is tried if there is time for a plan with one chunk for so many
ranks. Between 1,024 ranks it takes 2 % longer for 1 GB than with a chunk for each rank, and has a
sixteenth of the sends; with 8 it would be 0.5 % and an eighth."""
BROADCAST_PIECES = 64
"""Into how many pieces broadcasts are cut at most, but for very large ones."""


LONG_SEARCHES = ("forwarding", "skewed", "topologies", "split")
"""Searches that may take all the time they get: over many graphs, in many sweeps, and by many
programmes."""
PLANS_OF_SEARCH = {"composed": 6.0, "overlap": 12.0, "split": 60.0}
"""About how many plans a search makes: `overlap` plans all known algorithms, `composed` searches
for two or three operations. The first programme of `split` takes as long as so many plans; its
`PATHS_OF_A_SEARCH` says how long paths take."""
ROUTED_PLANS = 40.0
"""The same for blocks that are routed over pairs, in several numbers of rounds and many sweeps."""


class Promise(NamedTuple):
    """The time and work of a plan, as far as they are known before it is made."""

    seconds: float
    """The plan takes no less, in seconds of the collective."""
    effort_s: float
    """About how many seconds of CPU it takes to make the plan and to check it."""
    is_formula: bool = True
    """Whether the plan takes just so long if nothing is late; otherwise `seconds` are only a lower
    bound."""
    begins_at_once: bool = False
    """Whether it is a search that begins with large circulants, whose plans store the blocks of
    one rank; over one port few formulas are faster."""

    @property
    def group(self) -> int:
        """Its group among the methods, of which 0 is tried first.

        Group 0 are formulas that cost nothing, group 1 other formulas and searches that begin at
        once, and group 2 other searches.
        """
        if self.is_formula and self.effort_s <= QUICK_S:
            return 0
        return 1 if self.is_formula or self.begins_at_once else 2

    @property
    def order(self) -> tuple[int, float, float]:
        """The key by which methods are tried, the least first: their group, then two numbers.

        Within the groups 0 and 1 the seconds of the plan decide, in group 2 those of the search.
        """
        if self.group < 2:
            return self.group, self.seconds, self.effort_s
        return self.group, self.effort_s, self.effort_s


class RoundCount(NamedTuple):
    """The rounds of a known algorithm; all ranks do the same.

    Example: an all-reduce of 8 ranks by halving and doubling has 3 rounds that scatter sums and 3
    that gather them, 4 changes of circuits, as the two rounds in the middle have the same, 14
    eighths of the buffer from each rank, and 112 sends.
    """

    n_rounds: int
    n_changes: int
    """Changes of circuits between rounds."""
    sent_bytes: float
    """What a rank sends over all its lanes in all rounds, on average of ranks at least."""
    n_sends: float
    """The sends of a plan; to lay them out takes most of the time of making it."""


def promise(problem: Collective, name: str, bound_s: float) -> Promise:
    """Return, before a plan is made, a time that it will not beat, and the work of making it.

    `name` is the method, and `bound_s` the lower bound of the problem, which no plan beats.
    """
    # Fewer than three ranks, steps that are given, and islands have plans of their own.
    n = problem.n_ranks
    if n < 3 or problem.steps is not None or problem.island > 1:
        return Promise(bound_s, 0.0, is_formula=False)

    # No torus is faster than the one that is chosen without a limit. If there is no time for its
    # sends, the method takes one of fewer chunks; the effort is that of few.
    if name == "one-pass":
        seconds = choose_torus(problem).seconds
        lightest = choose_torus(problem, most_chunks=max(1, n // LIGHT_TORUS))
        effort_s = lightest.count_sends(n) / SENDS_PER_S
        return Promise(max(bound_s, seconds * (1 - 1e-9)), effort_s)

    counted = _count_rounds(problem, name)
    if counted is None:
        begins_at_once = _stores_blocks(problem, name)
        effort_s = _search_s(problem, name)
        return Promise(bound_s, effort_s, is_formula=False, begins_at_once=begins_at_once)

    # Rounds of an uneven all-to-all may have no bytes at all, so that bytes alone count there.
    # Seconds are lowered by a billionth, since plans add them up in another order.
    is_even = problem.demand_bytes is None
    seconds = problem.sending_s(counted.sent_bytes)
    if is_even:
        circuit_bytes = counted.sent_bytes / problem.lanes
        seconds = seconds_of(problem, counted.n_rounds, circuit_bytes, n_changes=counted.n_changes)
    n_ports = (counted.n_changes + 1) * problem.lanes * n  # of all configurations
    effort_s = (counted.n_sends + n_ports / PORTS_OF_A_SEND) / SENDS_PER_S
    return Promise(max(bound_s, seconds * (1 - 1e-9)), effort_s, is_formula=is_even)


def _count_rounds(problem: Collective, name: str) -> RoundCount | None:
    """Count the rounds of the known algorithm `name`; None if they are not known beforehand.

    Four families of algorithms are counted, each by a function of its own: a line along which a
    buffer goes piece by piece, rounds of whole buffers, gathers with the sums that are made of
    them, and all-to-alls.
    """
    if problem.flow.from_root and name == "ring":
        return _count_line_rounds(problem)
    if name == "whole-buffers" or (problem.flow.from_root and name == "bruck"):
        return _count_whole_buffer_rounds(problem, name)
    held_rounds = _list_held_rounds(problem, name)
    if problem.flow.from_root or held_rounds is None:
        return None
    if problem.flow.adds:
        return _count_gather_rounds(problem, name, held_rounds)
    return _count_exchange_rounds(problem, name, held_rounds)


def _count_line_rounds(problem: Collective) -> RoundCount:
    """Count the rounds of a broadcast along a line of ranks, over which pieces follow each other.

    The last of k pieces leaves the root in round k - 1, and takes n - 1 hops: n - 2 + k rounds.
    """
    pieces = choose_line_pieces(problem)
    n_rounds = problem.n_ranks - 2 + pieces
    sent_bytes = n_rounds * problem.size_bytes / pieces
    # Two-way lanes are shared by both neighbours of a rank on the line. If their number is odd,
    # some neighbours have one circuit more; half of the lanes is the average. A rank is counted as
    # if it sent twice the bytes over all of them.
    if problem.two_way:
        sent_bytes *= 2
    return RoundCount(
        n_rounds, n_changes=0, sent_bytes=sent_bytes, n_sends=problem.n_ranks * pieces
    )


def _count_whole_buffer_rounds(problem: Collective, name: str) -> RoundCount:
    """Count the rounds in which ranks send the whole buffer: trees, and recursive doubling.

    There are ceil(log2 n) of them, each with circuits of its own, and one more in an all-reduce
    whose n is no power of two. Between 8 ranks that is 3 rounds and 3 buffers from each rank.
    """
    n = problem.n_ranks
    n_rounds = (n - 1).bit_length()
    # Three groups of ranks (see `group_of_halves`) send halves of the buffer in one round, and
    # whole ones in all others: half a buffer less. Each buffer is two chunks, with a send each.
    if group_of_halves(problem):
        sent_bytes = (n_rounds - 0.5) * problem.size_bytes
        return RoundCount(
            n_rounds, n_changes=n_rounds - 1, sent_bytes=sent_bytes, n_sends=2 * n_rounds * n
        )

    # If n is no power of two, in an all-reduce some ranks send their buffer to others before the
    # sum, and get the sum after it.
    if name == "whole-buffers" and n != 1 << n_rounds:
        n_rounds += 1
    return RoundCount(
        n_rounds,
        n_changes=n_rounds - 1,
        sent_bytes=n_rounds * problem.size_bytes,
        n_sends=n_rounds * n,
    )


def _list_held_rounds(problem: Collective, name: str) -> tuple[int, ...] | None:
    """List for how many rounds each configuration of a gather or all-to-all is held, in order.

    With 8 ranks of one port `ring` has (7,), `pairwise` and `direct` have seven times 1, and
    `bruck` has (1, 1, 1). The result is None for methods whose configurations are searched.
    """
    if name == "mixed-radix":
        return choose_radix_rounds(problem)
    n = problem.n_ranks
    logarithmic = (1,) * (n - 1).bit_length()
    held_of: dict[str, tuple[int, ...]] = {
        "ring": (n - 1,),
        "pairwise": (1,) * (n - 1),
        "direct": (1,)
        * math.ceil((n - 1) / problem.lanes),  # a block over each lane in each round
        "halving-doubling": logarithmic,
        "swing": logarithmic,
        "bruck": logarithmic,
        "near-sums": logarithmic,
    }
    return held_of.get(name)


def _count_gather_rounds(
    problem: Collective, name: str, held_rounds: tuple[int, ...]
) -> RoundCount:
    """Count the rounds of an all-gather, a reduce-scatter, or an all-reduce, which is both.

    Each rank sends n - 1 blocks in a gather, an n-th part of the buffer each, by whichever
    algorithm. `held_rounds` are the rounds of each configuration of one gather.
    """
    n = problem.n_ranks
    phases = problem.n_gathers
    n_sends = phases * n * (n - 1)
    # A plan that stores the blocks of one rank for those of all counts one send for each rank.
    if name == "mixed-radix" and ranks_to_store(n * n):
        n_sends = phases * n
    # All lanes count as used in all rounds of `direct`, also in the last one: between 8 ranks of 2
    # ports 4 rounds have room for 8 blocks, for 7 that are sent.
    n_blocks = n - 1
    if name == "direct":
        n_blocks = sum(held_rounds) * problem.lanes
    sent_bytes = phases * n_blocks * problem.size_bytes / n
    return RoundCount(
        n_rounds=phases * sum(held_rounds),
        n_changes=phases * (len(held_rounds) - 1),
        sent_bytes=sent_bytes,
        n_sends=n_sends,
    )


def _count_exchange_rounds(
    problem: Collective, name: str, held_rounds: tuple[int, ...]
) -> RoundCount:
    """Count the rounds of an all-to-all, in which a block is sent once for each hop on its way.

    All circuits together carry the bytes of each block as often as it has hops. Example: around a
    ring of 8 ranks a block for the rank 5 places onward takes 5 hops; by Bruck's algorithm, which
    sends it 1 place and then 4, it takes 2. `held_rounds` are the rounds of each configuration.
    """
    n = problem.n_ranks
    is_even = problem.demand_bytes is None

    # hops[source, destination]. Blocks of an even all-to-all have as many hops from every rank, so
    # rank 0 stands for all of them there.
    ranks = np.arange(n)
    source = ranks[:1] if is_even else ranks
    distance = (ranks - source[:, None]) % n
    hops = {
        "ring": distance,
        "bruck": np.bitwise_count(distance),
        "halving-doubling": np.bitwise_count(ranks ^ source[:, None]),
    }.get(name, distance > 0)
    n_hops = int(hops.sum(dtype=np.int64)) * n // len(source)

    # The bytes of one rank: an n-th part of all hops, each of a block, which is an n-th part of
    # what a rank sends. Blocks of `direct` count as if all lanes were used in all rounds.
    sent_bytes = n_hops * problem.size_bytes / n / n
    if not is_even:
        sent_bytes = float((problem.demand * hops).sum()) / n
    elif name == "direct":
        sent_bytes = sum(held_rounds) * problem.lanes * problem.size_bytes / n
    return RoundCount(
        n_rounds=sum(held_rounds),
        n_changes=len(held_rounds) - 1,
        sent_bytes=sent_bytes,
        n_sends=n_hops,
    )


def _stores_blocks(problem: Collective, name: str) -> bool:
    """Tell whether the first plans of a search list the sends of one rank for those of all.

    Three searches begin with circulants, on which all ranks do the same. Where the sends of all
    ranks are too many to be listed (`ranks_to_store`), such a plan lists those of the blocks of
    rank 0 alone, and is made in a moment. An all-to-all of 1,024 ranks on the shifts 1, 2, 4, ...,
    512 has 5 million sends, and lists 5,000.
    """
    n = problem.n_ranks
    n_sends = n * n  # a send for each block
    # On the shifts 1, 2, 4, ... a block takes one hop for each 1 in its offset, which is half of
    # the binary digits on average.
    if name == "circulant":
        return bool(ranks_to_store(n_sends * (n - 1).bit_length() // 2))
    if name not in ("topologies", "forwarding") or problem.flow.from_root:
        return False
    # Blocks that are forwarded, or go over pairs, take about log2(n) circuits, a send for each.
    if name == "forwarding" or problem.lanes == 1:
        n_sends = int(n_sends * math.log2(n))
    return problem.demand_bytes is None and bool(ranks_to_store(n_sends))


def _search_s(problem: Collective, name: str) -> float:
    """Estimate how many seconds of CPU a search takes until it has its first plan."""
    # What comes to ranks: the block of each rank to all n, in each gather; of a broadcast its
    # pieces; and one block to each rank if the plan lists those of one rank alone. A block of an
    # all-to-all takes about log2(n) hops.
    n = problem.n_ranks
    n_receipts = n * n * problem.n_gathers
    if problem.flow.from_root:
        n_receipts = n * BROADCAST_PIECES
    if _stores_blocks(problem, name):
        n_receipts = n
    n_hops = math.log2(n) if problem.flow.has_pairs else 1.0
    n_plans = PLANS_OF_SEARCH.get(name, 1.0)
    if name == "knodel" and n <= MOST_ROUTED_RANKS:
        n_plans = ROUTED_PLANS
    return n_receipts * n_hops * n_plans / SENDS_PER_S
