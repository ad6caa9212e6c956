"""Solutions of collectives: a plan, the schedule of its switch, and what is proved.

A *plane* is a switch of its own with ports of all ranks, and a *lane* a port of every rank on some
plane. An *epoch* is the rounds in a row with the same circuits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    IDLE,
    RTOL,
    Clock,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Schedule,
    Solution,
    Tick,
    TimeUp,
    ignore,
    uncounted,
)
from optmatch.problems import Collective, CollectivePlan, Routing
from optmatch.problems.collectives.problem import facing_lanes
from optmatch.solvers.collectives.plans import Laid
from optmatch.solvers.frame import conclude, limit_of


class FoundPlan(NamedTuple):
    """The plan that a method has found, and what is proved."""

    laid: Laid | None
    """The plan, and for how long its circuits are held; None if no plan was found."""
    stats: dict[str, Any]
    """The statistics of the solution, by name."""
    lower_bound: float = 0.0
    """The lower bound that a search has proved, in seconds; that of the problem counts in any
    case."""
    limit: Limit | None = None
    """Why it stopped early, if it did."""

    @property
    def time_s(self) -> float:
        """The seconds of the plan; infinity if there is none."""
        return math.inf if self.laid is None else self.laid.time_s


NO_ORDER = "no order of ranks was found whose circuits all keep to their link budgets"
"""The reason that a solution without a plan states where link budgets forbid all orders."""
NO_ROUTES = "the fabric has no routes for all circuits of the plan at once"
"""The reason where the switch holds no plan."""


LOSS_BOUND = "circuit_loss_bound_db"
"""The statistic that says how little the worst circuit of a plan can lose, in dB."""


def keep_to_budgets(problem: Collective, found_plan: FoundPlan, clock: Clock) -> FoundPlan:
    """Renumber the ranks of a plan so that all its circuits keep to the link budget of the switch.

    The result has a lower bound of the worst loss as a statistic (`LOSS_BOUND`), and no plan if no
    order of ranks was found that keeps to the budget. A plan that has been placed before stays,
    and so does each plan of a switch without losses.
    """
    is_placed = LOSS_BOUND in found_plan.stats
    if found_plan.laid is None or is_placed or problem.fabric.circuit_loss_db is None:
        return found_plan
    with uncounted():
        from optmatch.solvers.collectives.budgets import (
            place_ranks,
        )

    # A plan that stores the sends of some ranks for those of all gets the sends of all: ranks are
    # not alike any more.
    spelled_out = found_plan.laid._replace(
        plan=found_plan.laid.plan.spelled_out(problem.operation)
    )
    laid, bound_db = place_ranks(problem, spelled_out, clock)
    if laid is None:
        return FoundPlan(None, {**found_plan.stats, "reason": NO_ORDER}, limit=Limit.EXHAUSTED)
    return found_plan._replace(laid=laid, stats={**found_plan.stats, LOSS_BOUND: bound_db})


def run(
    problem: Collective,
    limits: Limits,
    on_event: OnEvent,
    name: str,
    search: Callable[[Clock], FoundPlan],
) -> Solution:
    """Run the search of a method, and make a solution of the plan that it finds.

    The search ends by itself, at a limit or at Ctrl-C. Its plan counts only if the link budgets
    and the switch allow its circuits; without a plan the solution has a lower bound alone. `name`
    is that of the method, in events and in the solution.
    """
    clock = limits.start()
    limit = clock.exceeded(0)  # a time of 0 s is over at once
    found_plan = FoundPlan(None, {})
    schedule: Schedule | None = None
    laid: Laid | None = None  # the plan, once its switch is known to hold it
    try:
        if limit is None:
            on_event(Tick(name, 0, 1))

            # A rank that no circuit within the link budget reaches: there is no plan at all.
            if problem.fabric.over_budget is not None:
                with uncounted():
                    from optmatch.solvers.collectives.budgets import (
                        explain_unreachable,
                    )

                unreachable = explain_unreachable(problem)
                if unreachable:
                    return conclude(problem, name, None, math.inf, stats={"reason": unreachable})

            # The plan, with its ranks in an order in which all circuits keep to the budgets.
            found_plan = keep_to_budgets(problem, search(clock), clock)

            # It counts if the fabric has routes for all of its circuits.
            if found_plan.laid is not None:
                is_held, schedule = hold(problem, found_plan.laid)
                if is_held:
                    laid = found_plan.laid
                    on_event(NewBest(found_plan.time_s))
                else:
                    found_plan = FoundPlan(None, {**found_plan.stats, "reason": NO_ROUTES})
    except (KeyboardInterrupt, TimeUp) as stop:
        limit = limit_of(stop)

    # The lower bound of the problem counts, unless a search has proved a higher one.
    terms = problem.bounds()
    stats = dict(found_plan.stats) | {"bound_name": terms.name}
    bound = terms.seconds
    if found_plan.lower_bound > bound * (1 + RTOL):
        bound = found_plan.lower_bound
        stats["bound_by"] = "search"

    # The solution has the plan and its schedule; without a plan the lower bound alone.
    limit = limit or found_plan.limit
    if laid is None:
        return conclude(problem, name, None, bound, limit, stats=stats)
    plan = laid.plan
    stats |= {
        "rounds": plan.n_rounds,
        "rounds_late": plan.n_rounds_late,
        "reconfigurations": _count_changes(problem, plan),
    }
    return conclude(
        problem,
        name,
        plan.time_s,
        bound,
        limit,
        answer=plan,
        schedule=schedule,
        stats=stats,
    )


def _count_changes(problem: Collective, plan: CollectivePlan) -> int:
    """Count how often circuits change between rounds; of planes with shares, over all planes.

    The first circuits are no change.

    Example: plane 0 has the circuits A, A and B in three rounds, and plane 1 has A, B and B. That
    is one change each, 2 in all.
    """
    if not plan.shares_bytes.size:
        return max(0, plan.n_epochs - 1)

    # circuits_of_round[round, lane, rank]: what each port leads to. Steps that the problem gives
    # have no circuits but the number of a configuration, which then stands for them at every lane.
    circuits_of_round: NDArray[np.generic] = plan.circuits
    if problem.steps is not None:
        circuits_of_round = np.asarray(problem.steps)[:, :1, None].repeat(problem.lanes, axis=1)

    # Each plane by itself, over the rounds in which it has a share.
    n_changes = 0
    for plane in range(problem.planes):
        lanes = slice(plane * problem.ports, (plane + 1) * problem.ports)
        held_of_plane = circuits_of_round[plan.shares_bytes[:, plane] > 0, lanes]
        is_changed = (held_of_plane[1:] != held_of_plane[:-1]).any(axis=(1, 2))
        n_changes += int(np.count_nonzero(is_changed))
    return n_changes


def hold(problem: Collective, laid: Laid) -> tuple[bool, Schedule | None]:
    """Return whether the fabric has routes for the circuits of a plan, and the schedule of it.

    Port ``lane`` of a rank is port ``rank * ports + lane`` of the switch. There is no schedule,
    and routes are not looked for, where there are several switches, or these change circuits by
    themselves.
    """
    plan = laid.plan
    if problem.planes > 1 or laid.held_s is None:
        return True, None
    fabric = problem.fabric
    ports = problem.ports
    matchings = np.full((plan.n_epochs, fabric.n_ports), IDLE, dtype=np.int32)
    if plan.n_epochs:
        # A circuit leads to a rank; now the port of that rank is wanted, too: with two ports lane
        # 1 of rank 3 is port 7. One-way circuits lead to the lane of the same number. For two-way
        # circuits `facing_lanes` tells the lane at the other end.
        n_used_ports = problem.n_ranks * ports
        peer = plan.circuits.swapaxes(1, 2)  # [epoch, rank, lane]
        peer_lane = np.arange(ports, dtype=np.int32)
        if problem.two_way:
            facing = facing_lanes(plan.circuits.astype(np.int64), ports)
            peer_lane = facing.swapaxes(1, 2).astype(np.int32)
        peer_port = np.where(peer == IDLE, IDLE, peer * ports + peer_lane)
        matchings[:, :n_used_ports] = peer_port.reshape(plan.n_epochs, n_used_ports)
    # A fabric of cells holds the circuits only if all of them have routes through it at once.
    states = None
    if fabric.graph is not None:
        states = _route(problem, matchings)
        if states is None:
            return False, None
    return True, Schedule(
        matchings=matchings,
        durations_s=laid.held_s,
        delay_s=problem.delay_s,
        cell_states=states,
    )


def _route(problem: Collective, matchings: NDArray[np.int32]) -> NDArray[np.int8] | None:
    """Route all matchings through a fabric of cells.

    An exact router is taken where there is one for the fabric, else routing by negotiation.
    ``matchings[epoch, port]`` is the port that it faces, -1 if it is dark. Returns
    ``states[epoch, cell]``; None, and ends early, if some matching finds no routes.
    """
    with uncounted():
        from optmatch.solvers.feedforward import has_exact_router
        from optmatch.solvers.routing.methods import route_by_negotiation, route_forward

    # Each matching is a routing problem of its own. One without routes makes the plan impossible.
    rng = np.random.default_rng(0)
    states = np.zeros((len(matchings), problem.fabric.n_cells), dtype=np.int8)
    for epoch, matching in enumerate(matchings):
        routing = Routing(problem.fabric, matching)
        route: Callable[..., Solution] = route_by_negotiation
        if has_exact_router(routing):
            route = route_forward
        routed = route(routing, Limits(), rng, ignore).schedule
        if routed is None or routed.cell_states is None:
            return None
        states[epoch] = routed.cell_states[0]
    return states
