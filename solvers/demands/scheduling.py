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
from itertools import chain
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
from optmatch.solvers.demands.covering import complete
from optmatch.solvers.demands.plans import Plan, is_mutual, only_demanded, serve, tidy, trim
from optmatch.solvers.feedforward import holds_every_matching
from optmatch.solvers.frame import ROUNDING, conclude, take_best

_PARTS = 256  # slots are shortened by so many parts of each


def leave_to_packets(problem: Demand, plan: Plan) -> Plan:
    """Cut a plan down to what circuits should carry where a packet network carries the rest.

    Circuits and packets run at the same time, so the whole ends with the slower one. Slots are
    ranked by the demand that they serve for their time, and the first ones are kept; then all of
    them are shortened by one factor.

    Parameters
    ----------
    problem
        The demand, with ``packet_share`` > 0.
    plan
        Slots that serve the whole demand, in ticks.

    Returns
    -------
    Plan
        Some slots of the plan, perhaps shorter: those for which the later end, of circuits or of
        packets, comes first.
    """
    demand, delay = problem.directed_ticks, problem.delay_ticks
    ports = np.arange(problem.fabric.n_ports)

    # The service of a slot of w ticks, divided by w and the delay; the best slots are kept.
    use = [
        np.minimum(demand[ports, m], w)[m >= 0].sum() / (w + delay)
        for m, w in zip(plan.matchings, plan.ticks.tolist(), strict=True)
    ]
    order = np.argsort(-np.array(use), kind="stable")
    kept = [plan.take(order[:count]) for count in range(len(order) + 1)]
    best = min(kept, key=lambda part: max(_ends(problem, part)))

    def shorter(k: int) -> Plan:
        """Shorten all slots to k parts of `_PARTS`, but not below the shortest slot."""
        ticks = np.maximum(best.ticks * k // _PARTS, problem.min_slot_ticks)
        return Plan(best.matchings, ticks)

    def is_long(k: int) -> bool:
        """Tell whether circuits end no earlier than packets with slots of k parts."""
        circuits, packets = _ends(problem, shorter(k))
        return circuits >= packets

    # Longer slots end later and leave packets less: search the factor at which both end together.
    k = bisect_left(range(_PARTS), True, key=is_long)
    near = best, shorter(k), shorter(max(k - 1, 0))
    return min(near, key=lambda part: max(_ends(problem, part)))


def _ends(problem: Demand, plan: Plan) -> tuple[float, float]:
    """Return when circuits and packets are done, if all planes could end together.

    Parameters
    ----------
    problem
        The demand, with ``packet_share`` > 0.
    plan
        Slots of all planes, in ticks; packets carry what they leave.

    Returns
    -------
    circuits, packets : float
        Ticks from the start, the latter of the port with most left to packets.
    """
    left = np.maximum(problem.directed_ticks - serve(plan), 0)
    busiest = int(max(left.sum(axis=0).max(), left.sum(axis=1).max()))
    return plan.cost(problem.delay_ticks) / problem.planes, busiest / problem.packet_share


def spread(plan: Plan, problem: Demand) -> list[Plan]:
    """Give each slot to a plane, and split slots until all planes end about the same time.

    List scheduling, the longest slot first to the plane that ends first; then parts of slots move
    from the last plane to the first one (`_equalise`).

    Parameters
    ----------
    plan
        Slots in ticks.
    problem
        The demand, with its planes and its delay.

    Returns
    -------
    list of Plan
        A plan for each plane; together they serve the same.
    """
    planes, delay = problem.planes, problem.delay_ticks
    if planes == 1:
        return [plan]

    # List scheduling by the longest processing time first.
    slots: list[dict[int, int]] = [{} for _ in range(planes)]  # slot: ticks, for each plane
    ends = np.zeros(planes, dtype=np.int64)
    for slot in np.argsort(-plan.ticks, kind="stable").tolist():
        plane = int(ends.argmin())
        slots[plane][slot] = int(plan.ticks[slot])
        ends[plane] += plan.ticks[slot] + delay

    # A few long slots leave gaps, which parts of slots fill.
    for _ in range(64 * planes):  # each step halves a gap, so there are few that matter
        if not _equalise(slots, ends, delay, problem.min_slot_ticks):
            break
    shares = []
    for held in slots:
        order = np.array(list(held), dtype=np.int64)
        ticks = np.array([held[slot] for slot in held], dtype=np.int64)
        shares.append(Plan(plan.matchings[order], ticks))
    return shares


def _equalise(
    slots: list[dict[int, int]], ends: NDArray[np.int64], delay: int, shortest: int
) -> bool:
    """Move a slot, or a part of one, from the plane that ends last to the one that ends first.

    Parameters
    ----------
    slots
        The ticks of each slot, by its number, for each plane; changes.
    ends
        When each plane ends, in ticks with delays, shape (planes,); changes.
    delay
        Ticks before each slot.
    shortest
        No slot, and no part of one, is shorter, in ticks.

    Returns
    -------
    bool
        False if no move brings both ends nearer; then nothing has changed.
    """
    last, first = int(ends.argmax()), int(ends.argmin())
    gap = int(ends[last] - ends[first])
    # Choose the longest of the parts that make both planes end together, and of whole slots that
    # fit the gap and are at most a delay longer: moving all of a slot saves its delay.
    best, moved, chosen = 0, 0, -1
    for slot, ticks in slots[last].items():
        extra = 0 if slot in slots[first] else delay  # the same matching needs no second delay
        part = (gap - extra) // 2
        if part >= shortest and ticks - part >= shortest and part > best:
            best, moved, chosen = part, part, slot
        elif ticks <= part + delay and ticks + extra < gap and ticks > best:
            best, moved, chosen = ticks, ticks, slot
    if chosen < 0:
        return False

    # A slot that moves as a whole takes its delay along; a part needs a delay of its own where the
    # first plane does not hold this matching already.
    if moved == slots[last][chosen]:
        del slots[last][chosen]
        ends[last] -= delay
    else:
        slots[last][chosen] -= moved
    if chosen not in slots[first]:
        slots[first][chosen] = 0
        ends[first] += delay
    slots[first][chosen] += moved
    ends[last] -= moved
    ends[first] += moved
    return True


def order_slots(matchings: NDArray[np.int32]) -> NDArray[np.int64]:
    """Order matchings so that few circuits change in between: each next to its nearest.

    A nearest-neighbour tour: it begins with the matching that shares the fewest circuits with all
    others, and goes on to the one that shares the most with the last.

    Parameters
    ----------
    matchings
        ``matchings[slot, source]``: the destination or IDLE, shape (slots, ports).

    Returns
    -------
    ndarray
        The numbers of the slots in the new order, shape (slots,).
    """
    slots = len(matchings)
    if slots < 3:
        return np.arange(slots)
    stays = np.zeros((slots, slots), dtype=np.int64)
    for k in range(slots):
        # Idle ports do not count: an idle port that stays idle keeps no circuit.
        stays[k] = ((matchings == matchings[k]) & (matchings != IDLE)).sum(axis=1)
    np.fill_diagonal(stays, 0)
    order = [int(stays.sum(axis=1).argmin())]
    free = np.ones(slots, dtype=bool)
    free[order[0]] = False
    while len(order) < slots:
        order.append(int(np.where(free, stays[order[-1]], -1).argmax()))
        free[order[-1]] = False
    return np.array(order)


def keep_circuits(plan: Plan, problem: Demand) -> Plan:
    """Order the slots, and shorten each by the service of its circuits during delays.

    With per-circuit switching, a circuit that two consecutive slots share carries data during the
    delay between them. Slots are then longer than the demand needs.

    Parameters
    ----------
    plan
        Slots that serve the whole demand.
    problem
        The demand, with one plane and no packets.

    Returns
    -------
    Plan
        The same matchings in the order of `order_slots`; no slot is shorter than
        ``problem.min_slot_ticks``.
    """
    order = order_slots(plan.matchings)
    matchings, ticks = plan.matchings[order], plan.ticks[order].copy()
    if not len(ticks):
        return plan
    demand, ports = problem.ticks, np.arange(problem.fabric.n_ports)
    # The service of each circuit in ticks, with the delays before slots that keep it.
    served = np.zeros_like(demand)
    for slot, matching in enumerate(matchings):
        used = matching != IDLE
        gained = np.full(len(ports), ticks[slot])
        if slot:
            gained += np.where(matching == matchings[slot - 1], problem.delay_ticks, 0)
        served[ports[used], matching[used]] += gained[used]
    # Shorten a slot, the shortest first, by the least spare service of its circuits.
    for slot in np.argsort(ticks, kind="stable"):
        used = ports[matchings[slot] != IDLE]
        far = matchings[slot][used]
        slack = int((served[used, far] - demand[used, far]).min(initial=ticks[slot]))
        slack = max(0, min(slack, int(ticks[slot]) - problem.min_slot_ticks))
        ticks[slot] -= slack
        served[used, far] -= slack
    return Plan(matchings, ticks)


def repair(problem: Demand, former: Plan) -> Plan:
    """Make a plan of another demand serve this one: slots last longer, and some are added.

    Parameters
    ----------
    problem
        The demand to serve, in its ticks.
    former
        Matchings and ticks of a plan for another demand of as many ports.

    Returns
    -------
    Plan
        Slots that serve the whole demand, trimmed of what it does not need. Beside packets it is
        the former plan, tidied, since packets carry what it leaves.
    """
    plan, demand, shortest = tidy(former), problem.ticks, problem.min_slot_ticks
    if problem.packet_share > 0:
        return plan  # packets take what it leaves

    # An entry that is served too little makes the longest slot that has its circuit last longer;
    # entries without such a slot are left to `complete`.
    for i, j in np.argwhere(demand > serve(plan)):
        own = plan.matchings[:, i] == j
        missing = demand[i, j] - plan.ticks[own].sum()
        if missing > 0 and own.any():
            plan.ticks[np.where(own, plan.ticks, 0).argmax()] += missing
    return trim(complete(plan, demand, shortest), demand, shortest)


def former_plan(problem: Demand, start: Solution | None) -> Plan | None:
    """Return all slots of a former solution as one plan; what it serves may be another demand.

    Parameters
    ----------
    problem
        The present demand, whose ticks are the unit of the plan.
    start
        The former solution, of one plane or of several; None if there is none.

    Returns
    -------
    Plan or None
        The slots of all planes one after the other, their durations rounded up to ticks. None if
        there is no schedule, or if it is of another number of ports.
    """
    if start is None or start.objective is None:
        return None
    schedules = [start.schedule] if start.schedule is not None else start.answer.schedules
    matchings = np.concatenate([each.matchings for each in schedules])
    if matchings.shape[1] != problem.fabric.n_ports:
        return None

    # Durations of a millionth of a tick too much are rounding errors of seconds.
    lasts = np.concatenate([each.durations_s for each in schedules]) / problem.tick_s
    return Plan(matchings, np.ceil(np.round(lasts, 6)).astype(np.int64))


class CoverTask(NamedTuple):
    """The demand that a method has to cover, and its limits."""

    problem: Demand
    demand: NDArray[np.int64]  # (n, n): by source and destination, in ticks
    delay: int  # ticks before each slot
    shortest: int  # ticks of the shortest slot
    rng: np.random.Generator
    clock: Clock
    former: Plan | None = None  # a plan that serves the demand already, from a former solution


Build = Callable[[CoverTask], Iterator[Plan]]
"""A method: it yields plans that serve the demand, as good as it can make them."""


def solve_demand(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    name: str,
    build: Build,
    *,
    start: Solution | None = None,
) -> Solution:
    """Take plans from a method until it is exhausted, a limit is reached or the bound is met.

    A method plans as if the fabric held every matching and had one plane. Here each plan becomes
    schedules: circuits get routes, slots are split where circuits do not fit side by side, spread
    over planes, ordered and shortened. The schedules that end first are the solution.

    Parameters
    ----------
    problem
        The demand; its objective has to be ``"completion-s"``.
    limits
        The limits of time, gap and iterations; an iteration is one plan of `build`.
    rng
        The random numbers of the method.
    on_event
        Called with events: each try, better objectives and better bounds.
    name
        The name of the method, for the solution and for errors.
    build
        The method: it gets the demand in ticks and yields plans.
    start
        A former solution. One of the same problem is the first answer. The slots of any that has
        as many ports are repaired for this demand, and make the first plan.

    Returns
    -------
    Solution
        One schedule, or `PlaneSchedules` where there are several planes. Its certificate is the
        proof of a small mesh, if that gives the best bound.

    Raises
    ------
    InputError
        If the problem has another objective.
    """
    if problem.objective != "completion-s":
        raise InputError(
            f"method {name!r} covers a demand; objective {problem.objective!r} needs a"
            " decomposition: best, ilp or one of birkhoff-*",
            where="method",
        )
    with uncounted():
        from optmatch.solvers.demands import small_meshes

    clock = limits.start()
    bound: float = problem.lower_bound()
    proof: ConfigurationProof | None = None
    former = former_plan(problem, start)
    former = None if former is None else repair(problem, former)
    work = CoverTask(
        problem, problem.ticks, problem.delay_ticks, problem.min_slot_ticks, rng, clock, former
    )
    # A former solution of this very problem is an answer as it is, without its plan.
    known: tuple[float, Candidate] | None = None
    if start is not None and start.problem == problem and start.objective is not None:
        schedules = (start.schedule,) if start.answer is None else start.answer.schedules
        known = start.objective, Candidate(schedules, start.objective, 0)

    def candidates() -> Iterator[tuple[float, Candidate] | Bound | None]:
        """Yield what `take_best` takes: an objective with its candidate, a bound, or None.

        None is a plan that cannot be better; it counts as an iteration. After the first plan, and
        only once, small meshes yield a bound from the prices of their entries (`bound` and `proof`
        of the enclosing function become those), and the plan that goes with it.
        """
        nonlocal bound, proof
        finish, plain, least = _finisher(problem), _plain(problem), np.inf
        nothing = Plan.of([], [], problem.fabric.n_ports)
        first = [] if former is None else [former]
        for plan in chain(first, build(work)) if work.demand.any() else [nothing]:
            # Where slots and delays alone decide, a longer plan needs no schedule.
            if plain and plan.cost(work.delay) >= least:
                yield None
                continue
            found = finish(only_demanded(plan, work.demand, work.shortest))
            begun, least = least < np.inf, min(least, found.ticks)
            yield found.objective, found
            # The bound of a small mesh comes once, after a first answer.
            if begun or plain or not small_meshes.suits(problem):
                continue
            prices = small_meshes.bound_on_mesh(problem, clock)
            if prices is not None and bound_of(prices, problem) > bound:
                bound, proof = bound_of(prices, problem), prices
            yield Bound(bound)
            plan, states = small_meshes.plan_on_mesh(problem, clock)
            if len(plan.ticks):
                found = candidate(problem, plan, states)
                yield found.objective, found

    rtol = ROUNDING if problem.packet_share == 0 else RTOL  # packets end between two ticks
    best, limit, done = take_best(
        candidates(), bound, clock, on_event, "plans", rtol=rtol, start=known
    )
    stats: dict[str, object] = {"plans": done}
    if best is None:
        return conclude(problem, name, None, bound, limit, stats=stats)
    alone = problem.planes == 1
    return conclude(
        problem,
        name,
        best.objective,
        bound,
        limit,
        rtol=rtol,
        certificate=proof,
        schedule=best.schedules[0] if alone else None,
        answer=None if alone else PlaneSchedules(schedules=best.schedules),
        stats=stats | {"slots": sum(schedule.n_slots for schedule in best.schedules)},
    )


class Candidate(NamedTuple):
    """Schedules of all planes, and when they have carried everything."""

    schedules: tuple[Schedule, ...]  # one for each plane
    objective: float  # the completion time of all planes and packets, in seconds
    ticks: int  # the sum of all slots and delays, as if one plane held them one after the other


def _plain(problem: Demand) -> bool:
    """Tell whether only the slots and delays of a plan decide when it ends.

    That is so if every matching has routes, on one plane that stops as a whole, without packets.
    """
    return (
        holds_every_matching(problem.fabric)
        and problem.planes == 1
        and problem.packet_share == 0
        and problem.switching == "all-stop"
    )


def _finisher(problem: Demand) -> Callable[[Plan], Candidate]:
    """Choose how a plan becomes schedules: as it is, routed, or cut down to what has routes.

    Parameters
    ----------
    problem
        The demand; its fabric decides.

    Returns
    -------
    function
        Takes a plan that serves the demand on an ideal switch and returns its candidate. On an
        ideal switch it is used as it is. On a network of cells that holds every matching each slot
        is routed. On others slots whose circuits do not fit side by side are split.
    """
    fabric = problem.fabric
    if not holds_every_matching(fabric):
        with uncounted():
            from optmatch.solvers.demands.realisable import (
                Realiser,  # other fabrics need no router
            )

        realiser = Realiser(problem)

        def finish(plan: Plan) -> Candidate:
            """Route a plan; pairings on a switch that holds all of them stay as they are."""
            if fabric.graph is None and is_mutual(plan):
                return candidate(problem, plan)
            return candidate(problem, realiser.realise(plan), realiser.states)

        return finish
    if fabric.graph is None:
        return lambda plan: candidate(problem, plan)
    with uncounted():
        from optmatch.solvers.feedforward.router import route_cheaply  # loads its kernels

    return lambda plan: candidate(
        problem, plan, lambda share: route_cheaply(fabric, share.matchings).states
    )


def candidate(
    problem: Demand,
    plan: Plan,
    states: Callable[[Plan], NDArray[np.int8] | None] | None = None,
) -> Candidate:
    """Make the schedules of a plan, one for each plane.

    Slots of the same matching become one, and what a packet network should carry is taken out.
    The rest is spread over the planes. Where circuits that stay keep carrying data, and there is
    one plane without packets, slots are ordered and shortened (`keep_circuits`).

    Parameters
    ----------
    problem
        The demand.
    plan
        Slots that the fabric can hold, in ticks, which serve the whole demand.
    states
        Returns ``cell_states[slot, cell]`` of a plan's slots, by their matchings; None for a
        fabric without cells.

    Returns
    -------
    Candidate
        Its objective is the completion time of the schedules, in seconds. Its ticks are those of
        the plan without the part of packets, before it is spread and shortened.
    """
    plan = tidy(plan)
    if problem.packet_share > 0:
        plan = leave_to_packets(problem, plan)
    alone = problem.planes == 1 and problem.packet_share == 0
    schedules = []
    for share in spread(plan, problem):
        if alone and problem.switching == "per-circuit":
            share = keep_circuits(share, problem)
        schedules.append(problem.schedule(share.matchings, share.ticks, states and states(share)))
    ticks = plan.cost(problem.delay_ticks)
    return Candidate(tuple(schedules), completion_s(problem, schedules), ticks)
