"""The frame of all methods for demands: plans come in, the best becomes the solution.

A *plan* is a list of matchings with durations in ticks, as if the fabric held every matching and
had one plane. A *candidate* is what a plan becomes: a schedule for each plane, routed, with the
time at which all demand is served. A problem is *plain* if nothing but the slots and delays of a
plan decides that time. The *former* plan is that of an earlier solution, repaired for this demand;
the *known* answer is an earlier solution of this very problem, taken as it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    IDLE,
    RTOL,
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
from optmatch.solvers.demands.configuration import bound_of
from optmatch.solvers.demands.first_fit import complete
from optmatch.solvers.demands.plans import Plan, is_mutual, only_demanded, serve, tidy, trim
from optmatch.solvers.demands.tasks import Build, CoverTask
from optmatch.solvers.feedforward import holds_every_matching
from optmatch.solvers.frame import ROUNDING, conclude, take_best
from optmatch.solvers.kernels.decorators import kernel
from optmatch.solvers.params import DemandParams

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
    best = min(heads, key=lambda head: max(_ends(problem, head)))

    def shortened(n_parts: int) -> Plan:
        """Shorten all slots to so many parts of `_PARTS`, but not below the shortest slot."""
        ticks = np.maximum(best.ticks * n_parts // _PARTS, problem.min_slot_ticks)
        return Plan(best.matchings, ticks)

    def circuits_end_last(n_parts: int) -> bool:
        """Tell whether circuits end no earlier than packets with slots of so many parts."""
        circuits_end, packets_end = _ends(problem, shortened(n_parts))
        return circuits_end >= packets_end

    # Longer slots end later and leave packets less: search the factor at which both end together.
    n_parts = bisect_left(range(_PARTS), True, key=circuits_end_last)
    choices = best, shortened(n_parts), shortened(max(n_parts - 1, 0))
    return min(choices, key=lambda choice: max(_ends(problem, choice)))


def _ends(problem: Demand, plan: Plan) -> tuple[float, float]:
    """Return when circuits and packets are done, if all planes could end together."""
    left = np.maximum(problem.directed_ticks - serve(plan), 0)

    # Packets end with the port that sends or receives most of what circuits leave.
    busiest = int(max(left.sum(axis=0).max(), left.sum(axis=1).max()))
    return plan.cost(problem.delay_ticks) / problem.planes, busiest / problem.packet_share


def spread(plan: Plan, problem: Demand) -> list[Plan]:
    """Divide the slots of a plan among several switches, such that all end at about the same time.

    A slot is a matching that is held for some ticks, with a delay before it. A plane is one of
    several equal switches side by side. At first each slot, the longest first, goes to the plane
    that would be free first. Then slots or parts of them move from the plane that ends last to the
    one that ends first, as long as that helps.
    """
    if problem.planes == 1:
        return [plan]

    # The longest slot first. For each plane: the ticks of each of its slots, by slot number.
    ticks_by_slot: list[dict[int, int]] = [{} for _ in range(problem.planes)]  # for each plane
    ends = np.zeros(problem.planes, dtype=np.int64)
    for slot in np.argsort(-plan.ticks, kind="stable").tolist():
        plane = int(ends.argmin())
        ticks_by_slot[plane][slot] = int(plan.ticks[slot])
        ends[plane] += plan.ticks[slot] + problem.delay_ticks

    # A few long slots leave gaps, which parts of slots fill. Each step halves a gap, so that few
    # of them matter.
    for _ in range(64 * problem.planes):
        if not _equalise(ticks_by_slot, ends, problem.delay_ticks, problem.min_slot_ticks):
            break
    plans = []
    for ticks_of_slot in ticks_by_slot:
        slots = np.array(list(ticks_of_slot), dtype=np.int64)
        ticks = np.array(list(ticks_of_slot.values()), dtype=np.int64)
        plans.append(Plan(plan.matchings[slots], ticks))
    return plans


def _equalise(
    ticks_by_slot: list[dict[int, int]], ends: NDArray[np.int64], delay: int, shortest: int
) -> bool:
    """Let several switches end at more equal times, by one move of a slot or a part of it.

    Changes ``ticks_by_slot[plane][slot]`` and ``ends[plane]``, both in ticks; False if no move
    helps. A plane is one of several switches side by side, each with its own slots. A slot of the
    plane that ends last goes to the one that ends first. For example, planes that end at 100 and
    60 with delays of 10 both end at 85 if 15 ticks of a slot move: one plane loses 15 ticks, the
    other one gets 15 and a delay.
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

    # A slot that moves as a whole takes its delay along; a part needs a delay of its own where the
    # first plane does not hold this matching already.
    if most_moved == source[chosen]:
        del source[chosen]
        ends[last_plane] -= delay
    else:
        source[chosen] -= most_moved
    if chosen not in target:
        target[chosen] = 0
        ends[first_plane] += delay
    target[chosen] += most_moved
    ends[last_plane] -= most_moved
    ends[first_plane] += most_moved
    return True


def order_slots(matchings: NDArray[np.int32]) -> NDArray[np.int64]:
    """Order matchings so that few circuits change in between: each next to its nearest.

    A nearest-neighbour tour: it begins with the matching that shares the fewest circuits with all
    others, and goes on to the one that shares the most with the last.
    """
    n_slots, n_ports = matchings.shape
    if n_slots < 3:
        return np.arange(n_slots)
    n_shared = np.zeros((n_slots, n_slots), dtype=np.int32)
    last_slot = np.empty(n_ports, dtype=np.int64)
    _count_shared_circuits(matchings, n_shared, last_slot, np.empty(n_slots, dtype=np.int64))
    order = np.empty(n_slots, dtype=np.int64)
    _tour_nearest_neighbours(n_shared, order, np.ones(n_slots, dtype=np.bool_))
    return order


@kernel
def _count_shared_circuits(matchings, n_shared, last_slot, slot_before):
    """Count the circuits that each two slots have in common.

    Adds to ``n_shared[slot, slot]``, which is 0 before and symmetric; ``last_slot[destination]``
    and ``slot_before[slot]`` are scratch. Slots with the same circuit of a source are chained, the
    last one first. The time is that for all circuits and for each pair of slots with a common one.
    Idle ports do not count: an idle port that stays idle keeps no circuit.
    """
    n_slots, n_ports = matchings.shape
    for source in range(n_ports):
        for destination in range(n_ports):
            last_slot[destination] = -1
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


@kernel
def _tour_nearest_neighbours(n_shared, order, is_unplaced):
    """Order slots: first the one least like all others, then always the one most like the last.

    ``n_shared[slot, slot]`` is how many circuits two slots have in common. Writes
    ``order[place]``, a slot; `is_unplaced`, which is True for all slots before, is used up. Slots
    that share most circuits stand next to each other.
    """
    # The first slot: the one that shares the fewest circuits with all others together.
    n_slots = len(order)
    first = 0
    fewest = -1
    for slot in range(n_slots):
        total = 0
        for other in range(n_slots):
            total += n_shared[slot, other]
        if fewest < 0 or total < fewest:
            first = slot
            fewest = total
    order[0] = first
    is_unplaced[first] = False

    # Then always the slot that shares the most circuits with the last one.
    for place in range(1, n_slots):
        nearest = -1
        most = -1
        for slot in range(n_slots):
            if is_unplaced[slot] and n_shared[order[place - 1], slot] > most:
                nearest = slot
                most = n_shared[order[place - 1], slot]
        order[place] = nearest
        is_unplaced[nearest] = False


def keep_circuits(plan: Plan, problem: Demand) -> Plan:
    """Make a plan shorter where circuits that stay up carry data during the delays, too.

    A plan is a list of slots, matchings that are held for some ticks each, with a delay before
    each. On this kind of switch, a circuit that two slots in a row share stays up during the delay
    between them. For example, with a delay of 3 and two slots of 10 ticks that share a circuit,
    this circuit is served for 23 ticks. If it needs only 20, it has 3 ticks to spare; a slot whose
    circuits all have as much to spare is made 3 ticks shorter.

    The slots are put in an order in which neighbours share many circuits, and then shortened.
    """
    n_slots = len(plan.ticks)
    if not n_slots:
        return plan

    # The order: to compare all pairs of slots takes long if there are many, and is of little use
    # where delays are most of the time.
    busiest_ticks = max(problem.ticks.sum(axis=0).max(), problem.ticks.sum(axis=1).max())
    order = np.arange(n_slots)
    if n_slots <= _MOST_ORDERED_SLOTS and n_slots * problem.delay_ticks <= 2 * busiest_ticks:
        order = order_slots(plan.matchings)
    matchings = plan.matchings[order]
    ticks = plan.ticks[order].copy()

    # ``served[source, destination]``: ticks of slots, and of delays in which a circuit stays up.
    demand = problem.ticks
    served = np.zeros_like(demand)
    _serve_with_kept_circuits(matchings, ticks, problem.delay_ticks, served)
    shortest_first = np.argsort(ticks, kind="stable")
    _shorten_by_spare_service(
        demand, served, matchings, ticks, shortest_first, problem.min_slot_ticks
    )
    return Plan(matchings, ticks)


@kernel
def _serve_with_kept_circuits(matchings, ticks, delay, served):
    """Add up the service of each circuit: slots, and the delays before slots that keep it.

    Adds to ``served[source, destination]``, in ticks like `delay`; slots stand in the order in
    which they are held.
    """
    for slot in range(len(ticks)):
        for source in range(matchings.shape[1]):
            destination = matchings[slot, source]
            if destination < 0:
                continue
            served[source, destination] += ticks[slot]
            if slot > 0 and matchings[slot - 1, source] == destination:
                served[source, destination] += delay


@kernel
def _shorten_by_spare_service(demand, served, matchings, ticks, order, shortest):
    """Make slots shorter as far as the demand allows, one slot after the other.

    Changes ``ticks[slot]``, never below `shortest`, and ``served[source, destination]``; `order`
    lists the slots to shorten. A circuit has ticks to spare if it carries data for longer than its
    demand needs. A slot is shortened by what the circuit with the least to spare has. For example,
    with 3 and 5 ticks to spare it becomes 3 ticks shorter, and they have 0 and 2 left for other
    slots. No slot is left out, even if it is of no use: the next one may go on with its circuits
    during the delay.
    """
    n = len(demand)
    for slot in order:
        # `slack`: by how many ticks the slot can be shortened, at first all that it has.
        slack = ticks[slot]
        for source in range(n):
            destination = matchings[slot, source]
            if destination >= 0:
                spare = served[source, destination] - demand[source, destination]
                slack = min(slack, spare)
        slack = max(0, min(slack, ticks[slot] - shortest))
        ticks[slot] -= slack
        for source in range(n):
            destination = matchings[slot, source]
            if destination >= 0:
                served[source, destination] -= slack


def repair(problem: Demand, former: Plan) -> Plan:
    """Make a plan of another demand serve this one: slots last longer, and some are added.

    A plan is a list of slots, matchings that are held for some ticks each. A pair of ports that
    gets too little has its longest slot prolonged. Pairs without any slot get new ones. Then slots
    are shortened to what this demand needs.
    """
    plan = tidy(former)
    if problem.packet_share > 0:
        return plan

    # An entry that is served too little makes the longest slot that has its circuit last longer;
    # entries without such a slot are left to `complete`.
    demand = problem.ticks
    for source, destination in np.argwhere(demand > serve(plan)):
        has_circuit = plan.matchings[:, source] == destination
        missing = demand[source, destination] - plan.ticks[has_circuit].sum()
        if missing > 0 and has_circuit.any():
            longest = np.where(has_circuit, plan.ticks, 0).argmax()
            plan.ticks[longest] += missing
    shortest = problem.min_slot_ticks
    return trim(complete(plan, CoverTask.of(demand, 0, shortest)), demand, shortest)


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

    # A millionth of a tick too much, or what floats cannot tell, are rounding errors of seconds.
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

    A method makes one plan after the other, lists of slots (matchings that are held for some
    ticks). It plans as if there were one switch that holds every matching. Here each plan becomes
    a real schedule: circuits get routes, slots are split where their circuits do not fit side by
    side, and they are divided among the switches (planes), ordered and shortened.

    It ends when the method has no more plans, a limit is reached, or a schedule ends as early as
    the lower bound says.
    """
    if problem.objective != "completion-s":
        raise InputError(
            f"method {name!r} covers a demand; objective {problem.objective!r} needs a"
            " decomposition: best, ilp or one of birkhoff-*",
            where="method",
        )
    clock = limits.start()
    former = former_plan(problem, start)
    if former is not None:
        former = repair(problem, former)

    # The method sees the demand in ticks alone; what fabric and planes make of a plan is done
    # here. The entries are listed when the first plan is asked for: a limit that is over only
    # then does not end the search without any plan.
    is_limited = limits.time_s is not None or limits.iterations is not None

    def make_task() -> CoverTask:
        task = CoverTask.of(problem.ticks, problem.delay_ticks, problem.min_slot_ticks)
        return task._replace(
            deadline=clock.deadline_s,
            is_plain=is_plain(problem),
            former=former,
            n_moves=None if is_limited else n_moves,
            rng=rng,
        )

    search = _CandidateSearch(problem, clock, make_task, build)
    # The end of packets is no whole number of ticks.
    rtol = ROUNDING if problem.packet_share == 0 else RTOL
    best, limit, n_plans = take_best(
        search.yield_candidates(),
        search.bound_s,
        clock,
        on_event,
        "plans",
        rtol=rtol,
        start=_known_candidate(problem, start),
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


def _known_candidate(problem: Demand, start: Solution | None) -> tuple[float, Candidate] | None:
    """Return a former solution of this very problem as an answer, with its objective."""
    if start is None or start.problem != problem or start.objective is None:
        return None
    schedules = (start.schedule,) if start.answer is None else start.answer.schedules
    return start.objective, Candidate(schedules, start.objective, 0)


class _CandidateSearch:
    """The candidates of a method, and the bound that small meshes add to them.

    Attributes
    ----------
    bound_s
        No schedule is complete earlier, in seconds.
    proof
        The prices that prove the bound; None if it is that of the problem itself.
    """

    def __init__(
        self, problem: Demand, clock: Clock, make_task: Callable[[], CoverTask], build: Build
    ) -> None:
        """Begin with the bound of the problem."""
        self.bound_s: float = problem.lower_bound()
        self.proof: ConfigurationProof | None = None
        self._problem = problem
        self._clock = clock
        self._make_task = make_task
        self._build = build

    def yield_candidates(self) -> Iterator[tuple[float, Candidate] | Bound | None]:
        """Yield what `take_best` takes: an objective with its candidate, a bound, or None.

        A candidate is what a plan of slots becomes on the fabric: schedules of all planes, with
        the time at which all demand is served. None is a plan that cannot be better; it counts as
        an iteration. After the first plan, and only once, small meshes yield a bound, and the plan
        that goes with it.
        """
        task = self._make_task()
        slots_decide = is_plain(self._problem)
        finish = _choose_finish(self._problem)
        least_ticks: float = np.inf
        for plan in self._yield_plans(task):
            # Where slots and delays alone decide, a longer plan needs no schedule.
            if slots_decide and plan.cost(task.delay) >= least_ticks:
                yield None
                continue
            is_first = least_ticks == np.inf
            candidate = finish(only_demanded(plan, task.demand, task.shortest))
            least_ticks = min(least_ticks, candidate.ticks)
            yield candidate.objective, candidate
            if is_first and not slots_decide:
                yield from self._yield_mesh_bound()

    def _yield_plans(self, task: CoverTask) -> Iterator[Plan]:
        """Yield the plan of a former solution and those of the method, in ticks.

        Without any demand it is the empty plan alone.
        """
        if not task.demand.any():
            yield Plan.of([], [], self._problem.fabric.n_ports)
            return
        if task.former is not None:
            yield task.former
        yield from self._build(task)

    def _yield_mesh_bound(self) -> Iterator[tuple[float, Candidate] | Bound]:
        """Yield the bound of a small mesh, from prices of its entries, and the plan for them.

        Prices are dual variables of the linear programme over all matchings that the mesh can
        hold. On other fabrics nothing is yielded. ``self.bound_s`` and ``self.proof`` are set if
        the bound is higher than the one before.
        """
        with uncounted():
            from optmatch.solvers.demands import small_meshes

        problem = self._problem
        if not small_meshes.suits(problem):
            return
        prices = small_meshes.bound_on_mesh(problem, self._clock)
        if prices is not None and bound_of(prices, problem) > self.bound_s:
            self.bound_s = bound_of(prices, problem)
            self.proof = prices
        yield Bound(self.bound_s)
        plan, states = small_meshes.plan_on_mesh(problem, self._clock)
        if len(plan.ticks):
            candidate = schedule_plan(problem, plan, states)
            yield candidate.objective, candidate


class Candidate(NamedTuple):
    """Schedules of all planes, and when they have carried everything."""

    schedules: tuple[Schedule, ...]  # one for each plane
    objective: float  # the completion time of all planes and packets, in seconds
    ticks: int  # the sum of all slots and delays, as if one plane held them one after the other


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


def _choose_finish(problem: Demand) -> Callable[[Plan], Candidate]:
    """Return the function that turns plans into real schedules on the fabric of a problem.

    A plan is a list of matchings with durations, made as if the fabric could hold every matching.
    A candidate is what becomes of it: schedules, with states of the cells (2x2 switches) if there
    are any, and the time at which all is served.
    """
    fabric = problem.fabric
    if not holds_every_matching(fabric):
        with uncounted():
            from optmatch.solvers.demands.realisable import (
                Realiser,  # other fabrics need no router
            )

        # It keeps the routes of matchings that it has found, for later plans.
        realiser = Realiser(problem)

        def finish(plan: Plan) -> Candidate:
            """Route a plan; pairings on a switch that holds all of them stay as they are."""
            if fabric.graph is None and is_mutual(plan):
                return schedule_plan(problem, plan)
            return schedule_plan(problem, realiser.realise(plan), realiser.states)

        return finish
    if fabric.graph is None:
        return lambda plan: schedule_plan(problem, plan)
    with uncounted():
        from optmatch.solvers.feedforward.router import route_cheaply  # loads its kernels

    return lambda plan: schedule_plan(
        problem, plan, lambda share: route_cheaply(fabric, share.matchings).states
    )


def schedule_plan(
    problem: Demand,
    plan: Plan,
    states: Callable[[Plan], NDArray[np.int8] | None] | None = None,
) -> Candidate:
    """Make the schedules of a plan, one for each plane.

    `states` finds the states of cells in the slots of a plan. A plan is a list of matchings with
    durations in ticks, as if there were one plane; a plane is one of several switches side by
    side.

    Slots of the same matching become one, and what a packet network should carry is taken out.
    The rest is spread over the planes. Where circuits that stay keep carrying data, and there is
    one plane without packets, slots are ordered and shortened (`keep_circuits`).
    """
    plan = tidy(plan)
    if problem.packet_share > 0:
        plan = leave_to_packets(problem, plan)
    circuits_go_on = problem.switching == "per-circuit"
    is_alone = problem.planes == 1 and problem.packet_share == 0
    schedules = []

    # Each plane has a share of the slots. Where circuits that stay carry data during the delay,
    # its order of slots matters.
    for plan_of_plane in spread(plan, problem):
        if circuits_go_on and is_alone:
            plan_of_plane = keep_circuits(plan_of_plane, problem)
        cell_states = None if states is None else states(plan_of_plane)
        schedules.append(
            problem.schedule(plan_of_plane.matchings, plan_of_plane.ticks, cell_states)
        )
    ticks = plan.cost(problem.delay_ticks)
    return Candidate(tuple(schedules), completion_s(problem, schedules), ticks)
