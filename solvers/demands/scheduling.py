"""The frame of all methods for demands: plans come in, the best becomes the solution.

Methods plan as if the fabric held every matching (had routes for all its circuits at once) and
were one *plane*, that is, one of several equal switches side by side. A *plan* is a list of
matchings, each with the ticks for which it is held; a *build* yields plans for a task, a demand
with its delay and its deadline. A *realiser* replaces matchings by those that have routes. A
*candidate* is what a plan becomes: a schedule for each plane, routed, with the time at which all
demand is served. A problem is *plain* if nothing but the slots
and delays of a plan decides that time. The *former* plan is that of an earlier solution, adapted
to this demand; the *known* answer is an earlier solution of this very problem, taken as it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.fabrics.fabric import find_staying
from optmatch.model import (
    IDLE,
    Bound,
    Clock,
    InputError,
    Limits,
    OnEvent,
    Schedule,
    Solution,
    uncounted,
)
from optmatch.problems import ConfigurationProof, Demand, PlaneSchedules, completion_s
from optmatch.solvers.demands import small_meshes
from optmatch.solvers.demands.configuration import bound_by_prices, bound_of
from optmatch.solvers.demands.first_fit import complete
from optmatch.solvers.demands.plans import (
    Plan,
    finish_plan,
    is_mutual,
    lengthen,
    only_demanded,
    serve,
    shorten_slots,
    tidy,
    trim,
)
from optmatch.solvers.demands.tasks import Build, CoverTask
from optmatch.solvers.feedforward import holds_every_matching
from optmatch.solvers.frame import PROOF_RTOL, conclude, take_best, tick_rtol
from optmatch.solvers.kernels.decorators import kernel
from optmatch.solvers.params import DemandParams

if TYPE_CHECKING:
    from optmatch.solvers.demands.realisable import Realiser

_MOST_ORDERED_SLOTS = 2048
"""Plans of more slots keep their order: each two slots are compared to find a better one."""
_PARTS = 256  # slots are shortened by so many parts of each


def leave_to_packets(problem: Demand, plan: Plan) -> Plan:
    """Divide a demand between circuits and a packet network, so that both are done early.

    Both run at the same time, and the whole ends with the slower one. At first circuits carry
    everything, by the slots of a plan. Then slots are left out, those first that serve the least
    for their time, and packets carry what they served. In the end all slots that stay are
    shortened by one factor, if that makes the later end earlier.
    """
    # ``demand[source, destination]``: ticks of a circuit, also of pairs that only packets carry.
    demand = problem.directed_ticks
    ports = np.arange(problem.fabric.n_ports)

    # The rate of a slot is the demand that it serves, divided by its ticks and the delay.
    rates = []
    for matching, ticks in zip(plan.matchings, plan.ticks.tolist(), strict=True):
        served = np.minimum(demand[ports, matching], ticks)[matching != IDLE].sum()
        rates.append(served / (ticks + problem.delay_ticks))

    # Keep the slots of highest rate, as many as let the later end come first.
    order = np.argsort(-np.array(rates), kind="stable")
    heads = [plan.take(order[:count]) for count in range(len(order) + 1)]
    best = min(heads, key=lambda head: max(_find_ends(problem, head)))

    # Longer slots end later and leave packets less: search the factor at which both end together.
    n_parts = bisect_left(range(_PARTS), True, key=partial(_circuits_end_last, problem, best))
    choices = [_shorten_to_parts(problem, best, parts) for parts in (n_parts, n_parts - 1)]
    return min(choices, key=lambda choice: max(_find_ends(problem, choice)))


def _shorten_to_parts(problem: Demand, plan: Plan, n_parts: int) -> Plan:
    """Shorten all slots to `n_parts` of `_PARTS` parts, but not below the shortest slot."""
    ticks = np.maximum(plan.ticks * n_parts // _PARTS, problem.min_slot_ticks)
    return Plan(plan.matchings, ticks)


def _circuits_end_last(problem: Demand, plan: Plan, n_parts: int) -> bool:
    """Tell whether circuits end no earlier than packets if all slots are shortened to parts."""
    circuits_end, packets_end = _find_ends(problem, _shorten_to_parts(problem, plan, n_parts))
    return circuits_end >= packets_end


def _find_ends(problem: Demand, plan: Plan) -> tuple[float, float]:
    """Return when circuits and packets are done, in ticks, if all planes could end together.

    In a tick packets carry ``problem.packet_share`` of what a circuit carries, for each port.
    """
    unserved = np.maximum(problem.directed_ticks - serve(plan), 0)

    # Packets end with the port that sends or receives most of what circuits leave.
    busiest = int(max(unserved.sum(axis=0).max(), unserved.sum(axis=1).max()))
    return plan.cost(problem.delay_ticks) / problem.planes, busiest / problem.packet_share


def divide_among_planes(plan: Plan, problem: Demand) -> list[Plan]:
    """Divide the slots of a plan among planes, such that all planes end at about the same time.

    Slots may be cut. List scheduling: the longest slot first, each to the plane that is free
    first. Then slots or parts of them move from the plane that ends last to the one that ends
    first, as long as that helps.
    """
    if problem.planes == 1:
        return [plan]

    # The longest slot first. ``ticks_by_slot[plane][slot]`` and ``ends[plane]`` are in ticks.
    ticks_by_slot: list[dict[int, int]] = [{} for _ in range(problem.planes)]  # for each plane
    ends = np.zeros(problem.planes, dtype=np.int64)
    for slot in np.argsort(-plan.ticks, kind="stable").tolist():
        plane = int(ends.argmin())
        ticks_by_slot[plane][slot] = int(plan.ticks[slot])
        ends[plane] += plan.ticks[slot] + problem.delay_ticks

    # A few long slots leave gaps, which parts of slots fill. Each step halves a gap, so that few
    # of them matter: 64 for each plane are more than enough.
    for _ in range(64 * problem.planes):
        if not _equalise_ends(ticks_by_slot, ends, problem.delay_ticks, problem.min_slot_ticks):
            break
    plans = []
    for ticks_of_slot in ticks_by_slot:
        slots = np.array(list(ticks_of_slot), dtype=np.int64)
        ticks = np.array(list(ticks_of_slot.values()), dtype=np.int64)
        plans.append(Plan(plan.matchings[slots], ticks))
    return plans


def _equalise_ends(
    ticks_by_slot: list[dict[int, int]], ends: NDArray[np.int64], delay: int, shortest: int
) -> bool:
    """Let planes end at more equal times, by one move of a slot or a part of it.

    Changes ``ticks_by_slot[plane][slot]`` and ``ends[plane]``, both in ticks; False if no move
    helps. For example, planes that end at 100 and 60 with delays of 10 both end at 85 if 15 ticks
    of a slot move: one plane loses 15 ticks, the other one gets 15 and a delay.
    """
    last_plane = int(ends.argmax())
    first_plane = int(ends.argmin())
    gap = int(ends[last_plane] - ends[first_plane])
    source = ticks_by_slot[last_plane]
    target = ticks_by_slot[first_plane]

    # `part` ticks of a slot would make both planes end together. The slot that can give the most
    # is chosen. A whole slot may move instead if it fits the gap and is at most a delay longer
    # than the part: its own delay then goes from the last plane, too.
    most_moved = 0
    chosen: int | None = None
    for slot, ticks in source.items():
        # The same matching needs no second delay on the plane that holds it already.
        extra = 0 if slot in target else delay
        part = (gap - extra) // 2
        if part >= shortest and ticks - part >= shortest and part > most_moved:
            most_moved = part
            chosen = slot
        elif ticks <= part + delay and ticks + extra < gap and ticks > most_moved:
            most_moved = ticks
            chosen = slot
    if chosen is None:
        return False

    # The last plane saves a delay if the slot moves as a whole; the first one needs one unless it
    # holds this matching already.
    if most_moved == source[chosen]:
        del source[chosen]
        ends[last_plane] -= delay
    else:
        source[chosen] -= most_moved
    if chosen not in target:
        ends[first_plane] += delay
    target[chosen] = target.get(chosen, 0) + most_moved
    ends[last_plane] -= most_moved
    ends[first_plane] += most_moved
    return True


def order_slots(matchings: NDArray[np.int32]) -> NDArray[np.int64]:
    """Order matchings so that few circuits change in between: return the numbers of the slots.

    A nearest-neighbour tour: it begins with the matching that shares the fewest circuits with all
    others, and goes on to the one that shares the most with the last.
    """
    n_slots, n_ports = matchings.shape
    if n_slots < 3:
        return np.arange(n_slots)
    n_shared = np.zeros((n_slots, n_slots), dtype=np.int32)
    last_slot = np.empty(n_ports, dtype=np.int64)
    _count_shared_circuits(matchings, n_shared, last_slot, np.empty(n_slots, dtype=np.int64))

    # Matchings that have their place count as sharing -1 circuits, so that none comes twice.
    is_placed = np.zeros(n_slots, dtype=np.bool_)
    order = [int(n_shared.sum(axis=1).argmin())]
    for _ in range(n_slots - 1):
        is_placed[order[-1]] = True
        order.append(int(np.where(is_placed, -1, n_shared[order[-1]]).argmax()))
    return np.array(order)


@kernel
def _count_shared_circuits(matchings, n_shared, last_slot, slot_before):
    """Count the circuits that each two slots have in common.

    Adds to ``n_shared[slot, other_slot]``, which is 0 before and symmetric. The time grows with
    the number of circuits, and with the number of pairs of equal circuits. Slots with the same
    circuit of a source are chained, the last one first, in scratch: ``last_slot[destination]`` and
    ``slot_before[slot]``, -1 at the end. ``matchings[slot, source]`` is -1 for an idle port, which
    keeps no circuit if it stays idle.
    """
    n_slots, n_ports = matchings.shape
    for source in range(n_ports):
        last_slot[:] = -1
        for slot in range(n_slots):
            destination = matchings[slot, source]
            if destination < 0:
                continue

            # All earlier slots with this circuit share it with the slot.
            earlier = last_slot[destination]
            slot_before[slot] = earlier
            last_slot[destination] = slot
            while earlier >= 0:
                n_shared[slot, earlier] += 1
                n_shared[earlier, slot] += 1
                earlier = slot_before[earlier]


def put_in_order(plan: Plan, problem: Demand) -> Plan:
    """Put slots in an order in which neighbours share many circuits (`order_slots`).

    To compare all pairs of slots takes long if there are many, and is of little use where delays
    are most of the time: such plans keep their order.
    """
    n_slots = len(plan.ticks)
    busiest_ticks = max(problem.ticks.sum(axis=0).max(), problem.ticks.sum(axis=1).max())
    if n_slots > _MOST_ORDERED_SLOTS or n_slots * problem.delay_ticks > 2 * busiest_ticks:
        return plan
    return plan.take(order_slots(plan.matchings))


def use_delays(plan: Plan, states: NDArray[np.int8] | None, problem: Demand) -> Plan:
    """Make a plan shorter where circuits that stay up carry data during the delays, too.

    With per-circuit switching, a circuit that two slots in a row share stays up during the delay
    between them, if its route stays: ``states[slot, cell]``, None without cells. For example, with
    a delay of 3 and two slots of 10 ticks that share a circuit, this circuit is served for 23
    ticks. If all circuits of a slot have 3 ticks more than they need, it is made 3 ticks shorter.
    """
    # ``served[source, destination]``: ticks of slots, and of delays in which a circuit stays up.
    matchings = plan.matchings
    ticks = plan.ticks.copy()
    served = serve(plan)
    slot, source = np.nonzero(find_staying(problem.fabric, matchings, states))
    np.add.at(served, (source, matchings[slot, source]), problem.delay_ticks)

    # No slot is dropped, even if it is of no use: the next one may go on with its circuits during
    # the delay.
    shortest_first = np.argsort(ticks, kind="stable")
    shortest = problem.min_slot_ticks
    shorten_slots(problem.ticks, served, matchings, ticks, shortest_first, shortest, False)
    return Plan(matchings, ticks)


def adapt_plan(problem: Demand, former: Plan) -> Plan:
    """Make a plan of another demand serve this one: slots last longer, and some are added.

    An entry that is served too little has its longest slot lengthened; entries without any slot
    get new ones. Then slots are shortened to what this demand needs.
    """
    plan = tidy(former)
    if problem.packet_share > 0:
        return plan

    # Entries without a slot that has their circuit are left to `complete`, which asks for no
    # delay.
    plan = lengthen(plan, problem.ticks)
    shortest = problem.min_slot_ticks
    completed = complete(plan, CoverTask.of(problem.ticks, 0, shortest))
    return trim(completed, problem.ticks, shortest)


def former_plan(problem: Demand, start: Solution | None) -> Plan | None:
    """Return all slots of a former solution as one plan; what it serves may be another demand.

    Durations in seconds become ticks of this problem, rounded up but for errors of rounding. None
    without a former schedule, or if its switch has another number of ports.
    """
    if start is None or start.objective is None:
        return None

    # A solution of several planes has its schedules in the answer.
    schedules = [start.schedule] if start.schedule is not None else start.answer.schedules
    matchings = np.concatenate([schedule.matchings for schedule in schedules])
    if matchings.shape[1] != problem.fabric.n_ports:
        return None

    # A millionth of a tick too much, or what floats cannot tell, are rounding errors of seconds:
    # 3.0000001 ticks are 3, and 3.1 are 4.
    durations_s = np.concatenate([schedule.durations_s for schedule in schedules])
    in_ticks = durations_s / problem.tick_s
    nearest = np.rint(in_ticks)
    is_whole = np.abs(in_ticks - nearest) <= np.maximum(1e-6, nearest * 2.0**-50)
    ticks = np.where(is_whole, nearest, np.ceil(in_ticks))
    return Plan(matchings, ticks.astype(np.int64))


def solve_demand(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    name: str,
    build: Build,
    *,
    start: Solution | None = None,
    n_moves: int = DemandParams().rebuilds,
) -> Solution:
    """Run a method on a demand, and return the schedule that ends first.

    A method makes one plan after the other. It plans as if there were one switch that holds every
    matching. Here each plan becomes a real schedule: circuits get routes, slots are split where
    their circuits do not fit side by side, and they are divided among the switches (planes),
    ordered and shortened.

    `build` makes the plans of the method called `name`, and `n_moves` bounds its moves where
    neither time nor iterations are limited. `start` is a solution to begin with.
    """
    if problem.objective != "completion-s":
        raise InputError(
            f"method {name!r} covers a demand; objective {problem.objective!r} needs a"
            " decomposition: best, ilp or one of birkhoff-*",
            where="method",
        )
    clock = limits.start()

    # A former solution, perhaps of another demand, is a plan to begin with.
    former = former_plan(problem, start)
    if former is not None:
        former = adapt_plan(problem, former)
    search = _CandidateSearch(problem, clock)
    is_limited = limits.time_s is not None or limits.iterations is not None

    # If it is one of this very problem, it is an answer as it is. Nobody asks for its ticks.
    known: tuple[float, Candidate] | None = None
    if start is not None and start.problem == problem and start.objective is not None:
        schedules = (start.schedule,) if start.answer is None else start.answer.schedules
        known = start.objective, Candidate(schedules, start.objective, 0)

    # The end of packets is no whole number of ticks.
    rtol = PROOF_RTOL
    if problem.packet_share == 0:
        rtol = tick_rtol(search.bound_s, problem.tick_s)
    best, limit, n_plans = take_best(
        search.candidates(build, former, None if is_limited else n_moves, rng),
        search.bound_s,
        clock,
        on_event,
        "plans",
        rtol=rtol,
        start=known,
    )
    stats: dict[str, object] = {"plans": n_plans}

    # No plan was made in time: the bound is all that there is.
    if best is None:
        return conclude(problem, name, None, search.bound_s, limit, stats=stats)
    has_one_plane = problem.planes == 1
    return conclude(
        problem,
        name,
        best.objective,
        search.bound_s,
        limit,
        rtol=rtol,
        certificate=search.proof,
        schedule=best.schedules[0] if has_one_plane else None,
        answer=None if has_one_plane else PlaneSchedules(schedules=best.schedules),
        stats=stats | {"slots": sum(schedule.n_slots for schedule in best.schedules)},
    )


class Candidate(NamedTuple):
    """Schedules of all planes, and when they have carried everything."""

    schedules: tuple[Schedule, ...]
    """That of each plane."""
    objective: float
    """The completion time of all planes and packets, in seconds."""
    ticks: int
    """The sum of all slots and delays, as if one plane held them one after the other."""


class _CandidateSearch:
    """The schedules that a method makes for a demand, and what is proved meanwhile.

    Attributes
    ----------
    bound_s : float
        The highest lower bound of the completion time that is known.
    proof : ConfigurationProof or None
        The certificate of this bound; None where it is that of the problem itself.
    """

    def __init__(self, problem: Demand, clock: Clock) -> None:
        """Begin with the bound of the problem, before any plan is made."""
        self.problem = problem
        self.clock = clock
        self.bound_s: float = problem.lower_bound()
        self.proof: ConfigurationProof | None = None

    def candidates(
        self, build: Build, former: Plan | None, n_moves: int | None, rng: np.random.Generator
    ) -> Iterator[tuple[float, Candidate] | Bound | None]:
        """Yield the objective and the candidate of each plan, or None if it cannot be better.

        A `Bound` may follow the first candidate, on a small mesh that allows less than its ports
        do. `build` makes the plans, `former` comes before these, and `n_moves` bounds the moves,
        None where a limit does. The entries are listed when the first plan is asked for: a limit
        that ends meanwhile still allows that plan.
        """
        task = CoverTask.of(
            self.problem.ticks, self.problem.delay_ticks, self.problem.min_slot_ticks
        )._replace(
            deadline=self.clock.deadline_s,
            is_plain=is_plain(self.problem),
            former=former,
            n_moves=n_moves,
            rng=rng,
        )
        realise = _choose_realiser(self.problem)

        # Without any demand there is the empty plan alone. A former plan comes before the others.
        plans = build(task)
        if not task.demand.any():
            plans = iter([Plan.of([], [], self.problem.fabric.n_ports)])
        elif former is not None:
            plans = chain([former], plans)
        least_ticks: float = np.inf
        for plan in plans:
            # Where slots and delays alone decide, a longer plan needs no schedule.
            if task.is_plain and plan.cost(task.delay) >= least_ticks:
                yield None
                continue
            is_first = least_ticks == np.inf
            if task.is_plain:
                plan = finish_plan(plan, task.demand, task.shortest)
            candidate = realise(only_demanded(plan, task.demand, task.shortest))
            least_ticks = min(least_ticks, candidate.ticks)
            yield candidate.objective, candidate
            if is_first and small_meshes.suits(self.problem):
                yield from self._bound_mesh()

    def _bound_mesh(self) -> Iterator[tuple[float, Candidate] | Bound]:
        """Raise the bound on a small mesh by prices of entries; yield it, and the plan for them.

        Prices are dual variables of the linear programme over all matchings that the mesh holds.
        """
        matchings = small_meshes.list_matchings(self.problem.fabric).matchings
        prices = bound_by_prices(self.problem, self.clock, matchings)
        if prices is not None and bound_of(prices, self.problem) > self.bound_s:
            self.bound_s = bound_of(prices, self.problem)
            self.proof = prices
        yield Bound(self.bound_s)
        plan, states = small_meshes.plan_on_mesh(self.problem, self.clock)
        if len(plan.ticks):
            candidate = schedule_plan(self.problem, plan, states)
            yield candidate.objective, candidate


def is_plain(problem: Demand) -> bool:
    """Tell whether only the slots and delays of a plan decide when it ends.

    That is so if every matching has routes, on one plane that stops as a whole, without packets.
    """
    return (
        holds_every_matching(problem.fabric)
        and problem.planes == 1
        and problem.packet_share == 0
        and problem.switching == "all-stop"
    )


def _choose_realiser(problem: Demand) -> Callable[[Plan], Candidate]:
    """Return the function that turns plans into real schedules on the fabric of a problem.

    On a fabric that does not hold every matching, routes are kept for later plans.
    """
    fabric = problem.fabric
    if holds_every_matching(fabric):
        return partial(schedule_plan, problem)
    with uncounted():
        from optmatch.solvers.demands.realisable import Realiser  # other fabrics need no router

    return partial(_route_and_schedule, problem, Realiser(problem))


def _route_and_schedule(problem: Demand, realiser: Realiser, plan: Plan) -> Candidate:
    """Route a plan; pairings on a switch that holds all of them stay as they are."""
    if problem.fabric.graph is None and is_mutual(plan):
        return schedule_plan(problem, plan)
    return schedule_plan(problem, realiser.realise(plan), realiser.states)


def route_slots(fabric: Fabric, plan: Plan) -> NDArray[np.int8] | None:
    """Find ``states[slot, cell]`` on a fabric that holds every matching; None without cells."""
    if fabric.graph is None:
        return None
    with uncounted():
        from optmatch.solvers.feedforward.router import route_cheaply  # loads its kernels

    states: NDArray[np.int8] = route_cheaply(fabric, plan.matchings).states
    return states


def schedule_plan(
    problem: Demand,
    plan: Plan,
    states: Callable[[Plan], NDArray[np.int8] | None] | None = None,
) -> Candidate:
    """Make the schedules of a plan, one for each plane.

    `states` finds the states of cells in the slots of a plan; None for a fabric that holds every
    matching (`route_slots`).

    Slots of the same matching become one, and what a packet network should carry is taken out.
    The rest is divided among the planes. With per-circuit switching circuits that stay keep their
    routes as far as others find theirs beside them; and on one plane without packets, slots are
    put in order first, and shortened in the end (`use_delays`).
    """
    plan = tidy(plan)
    if problem.packet_share > 0:
        plan = leave_to_packets(problem, plan)
    circuits_go_on = problem.switching == "per-circuit"
    is_alone = problem.planes == 1 and problem.packet_share == 0
    schedules = []

    for plan_of_plane in divide_among_planes(plan, problem):
        if circuits_go_on and is_alone:
            plan_of_plane = put_in_order(plan_of_plane, problem)
        if states is None:
            cell_states = route_slots(problem.fabric, plan_of_plane)
        else:
            cell_states = states(plan_of_plane)
        if circuits_go_on and problem.delay_ticks and cell_states is not None:
            with uncounted():
                from optmatch.solvers.routing.router import CellRouter  # loads kernels of routing

            router = CellRouter(problem.fabric)
            cell_states = router.keep_routes(plan_of_plane.matchings, cell_states)
        if circuits_go_on and is_alone:
            plan_of_plane = use_delays(plan_of_plane, cell_states, problem)
        schedules.append(
            problem.schedule(plan_of_plane.matchings, plan_of_plane.ticks, cell_states)
        )
    ticks = plan.cost(problem.delay_ticks)
    return Candidate(tuple(schedules), completion_s(problem, schedules), ticks)
