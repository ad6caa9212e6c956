"""Method `negotiated` for all-to-all: a local search over 1-factorisations, with restarts.

The sum of all shortest routes is the same for every 1-factorisation, so the search has to remove
the excess alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import numpy as np

from optmatch.model import IDLE, Bound, Limit, Limits, OnEvent, Solution, Tick, TimeUp, uncounted
from optmatch.problems import AllToAll
from optmatch.solvers import frame
from optmatch.solvers.all_to_all.conclusion import (
    answer_at_once,
    conclude,
    place_leftovers,
    prove_bound,
)
from optmatch.solvers.all_to_all.factors import relabel, tournament
from optmatch.solvers.all_to_all.packing import PACKING, QUICK_ROUNDS, bound_slots, pack_slots
from optmatch.solvers.all_to_all.planner import (
    FAILED,
    QUICK,
    RoutedSlot,
    SlotPlanner,
    yield_exchanges,
)
from optmatch.solvers.all_to_all.slot_shortage import with_faults
from optmatch.solvers.frame import limit_of, near_enough, stoppable, take_best
from optmatch.solvers.params import AllToAllParams
from optmatch.solvers.routing.negotiation import ProvedBound
from optmatch.solvers.routing.pathfinder import UNIT
from optmatch.solvers.routing.router import CellRouter

_SEARCH = 0.9
"""Which part of the time is for the search; the rest is for the order of the slots."""

_PROBED = 3
"""So many slots are tried at first: if all fail, link prices may prove a shortage."""

_NEAR = 0.0005
"""Without a limit, a plan whose cells are so near to their bound is not begun anew.

On 17x17 with 64 ports three further starts saved 0.007 % of the cells in three quarters of the
time; at half of this share they are made. With more than 32 slots the share grows with their
number: on 26x26 with 96 ports the first of four starts ends at 0.067 %, and a second one saved
0.007 % in as much time.
"""

_PACKINGS = 4
"""Packings with patience without a limit: eight save one slot in a hundred in twice the time."""


@with_faults
def solve(
    problem: AllToAll,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
    params: AllToAllParams | None = None,
) -> Solution:
    """Solve an all-to-all by search over 1-factorisations; an iteration is one exchange of pairs.

    The search goes on until the cells on all routes meet their lower bound, or a limit is reached.
    The bound is the sum of the shortest routes of all pairs, or a higher one that link prices
    prove (`prove_bound`). Without a limit of time or iterations the whole search takes a second
    for 32 ports, half a minute for 64, and a few minutes for 128. A small mesh goes to the exact
    model of `ilp` afterwards, also with limits.

    The solution is OPTIMAL if it has the fewest slots and its cells equal the bound, and
    INFEASIBLE if no state of the cells connects some pair. It has no schedule if a limit came
    before all slots were routed. If a shortage is proved on a fabric with faults, the statistics
    ``causes`` name faults that are to blame.
    """
    clock = limits.start()
    solution = schedule_all(
        problem, limits, rng, on_event, name="negotiated", start=start, params=params
    )
    if solution.limit is not Limit.EXHAUSTED:
        return solution
    with uncounted():
        from optmatch.solvers.all_to_all.joint_model import finish_small  # loads OR-tools

    return finish_small(problem, solution, clock, rng, on_event)


def schedule_all(
    problem: AllToAll,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    *,
    name: str,
    starts: int | None = None,
    start: Solution | None = None,
    params: AllToAllParams | None = None,
) -> Solution:
    """Find a schedule of an all-to-all in which each pair of ports meets in one of few slots.

    The search has these steps:

    1. The first slots are the rounds of a tournament of ports under random names, or those of
       `start`.
    2. Each slot is routed. If a shortage is proved, all pairs are packed into more slots instead.
    3. Otherwise pairs are exchanged between slots where circuits have no routes or long ones. If
       that brings nothing, the search begins anew under other names.
    4. Leftovers get further slots; the plan counts that has fewer slots.
    5. Slots are put in an order with few changes of cells.

    `name` is the method that calls, "negotiated" or "ilp". `starts` is how often the search
    begins; None for as often as `params` says, or, with limits on a mesh that is not small, until
    a limit is reached.
    """
    clock = limits.start()
    trivial = answer_at_once(problem, name)
    if trivial is not None:
        return trivial

    # A tenth of the time is kept for the order of the slots.
    searched = limits if limits.time_s is None else replace(limits, time_s=_SEARCH * limits.time_s)
    router = CellRouter(problem.fabric)
    planner = SlotPlanner(problem, router, searched.start(), rng, on_event)
    search = _SlotExchange(planner, starts, params or AllToAllParams())
    limit: Limit | None
    try:
        limit = search.start_from(start) if start else search.start()
    except (KeyboardInterrupt, TimeUp) as stop:
        limit = limit_of(stop)

    # If the time was up before all slots of the tournament were routed, a plan of more slots that
    # was packed meanwhile is the answer.
    if len(planner.plan) < search.slots and search.packed is not None:
        planner.plan = search.packed

    # With a shortage pairs are packed into more slots; any number of these will do.
    n_needed = search.slots
    if search.has_shortage:
        n_needed = 1
        limit = limit or search.pack()
        planner.plan = search.packed or planner.plan
    if len(planner.plan) < n_needed:
        stats = {"slots_routed": len(planner.plan), "slots_lower_bound": problem.min_slots}
        return frame.conclude(problem, name, None, problem.lower_bound(), limit, stats=stats)

    # Else pairs are exchanged, unless a limit was met. `best` is None if no plan had all routes.
    if not search.has_shortage and limit is None:
        best, limit, _ = take_best(
            search.answers(),
            problem.lower_bound(),
            planner.clock,
            on_event,
            "exchange",
            start=search.answer(),
        )
        planner.plan = search.least_failed if best is None else best
        if best is None and search.bound is not None and search.bound.cells == np.inf:
            # The shortage was proved in the end only: a plan that is packed now competes with the
            # one that has failed, which stays in ``planner.plan``.
            search.packed = pack_slots(planner, problem.pairs, patient=False)
            limit = search.pack()
    planner.clock = clock

    # Two plans may compete: the fewest slots with leftovers in further ones, and packed slots.
    if search.packed is not None and not search.has_shortage:
        place_leftovers(planner)
        planner.plan = min(planner.plan, search.packed, key=_plan_size)
    try:
        return conclude(planner, limit, name, search.bound, polish=limit is not Limit.INTERRUPTED)
    except (KeyboardInterrupt, TimeUp) as stop:
        return conclude(planner, limit_of(stop), name, search.bound, polish=False)


class _SlotExchange:
    """The local search in ``planner.plan``, and what is proved about all plans.

    Attributes
    ----------
    factors : int64 array, shape (slots, vertices)
        The tournament before ports get random names.
    slots : int
        The number of its slots, the fewest.
    counted_cells : float
        The cells on the shortest routes of all pairs.
    bound : ProvedBound or None
        The result of `prove_bound`, once it was called.
    has_shortage : bool
        Whether it is proved that the fewest slots are not enough.
    packed : list of RoutedSlot or None
        The best plan of more slots than the fewest, if one was made: at once where the first slots
        all fail, else where a shortage is proved.
    least_failed : list of RoutedSlot
        The plan of the least excess among those in which circuits have no routes.
    """

    def __init__(self, planner: SlotPlanner, starts: int | None, params: AllToAllParams) -> None:
        """Make the tournament; nothing is routed yet. `starts` is as in `schedule_all`."""
        fabric = planner.problem.fabric
        self.planner = planner
        self.starts: float | None = starts
        self.params = params
        self.counted_cells = planner.problem.lower_bound()
        self.factors = tournament(fabric.n_ports, fabric.bidirectional)
        self.slots = len(self.factors)
        self.bound: ProvedBound | None = None
        self.least_failed: list[RoutedSlot] = []
        self.has_shortage = False
        self.packed: list[RoutedSlot] | None = None

    def start(self) -> Limit | None:
        """Route the tournament under random names, or prove a shortage; return a limit if met.

        The result is None if a shortage is proved, or if all slots were tried before any limit.
        ``planner.plan`` receives the slots, also those that leave circuits without a route. With a
        shortage ``bound`` and ``packed`` are set, too.
        """
        names = self.planner.draw_names(self.factors.shape[1])
        self.planner.plan = []
        factors = relabel(self.factors, names)

        # At the first start alone: `all_fail` says that none of the first `_PROBED` factors can be
        # routed with little effort, and that there is time left.
        all_fail = self.bound is None and len(factors) > 0
        for partner in factors[:_PROBED] if all_fail else ():
            slot = self.planner.route_slot(partner, *self.planner.router.empty_routes(), QUICK)
            if slot.excess < FAILED or self.planner.clock.remaining_s <= 0:
                all_fail = False
                break
        if all_fail:
            # Then links may be too few. A plan of more slots is packed at once, as an answer if
            # there is no time for more. An infinite bound proves the shortage.
            pairs = self.planner.problem.pairs
            self.packed = pack_slots(self.planner, pairs, patient=False)
            bound = prove_bound(self.planner, FAILED)
            if bound.cells == np.inf:
                self.bound = bound
                self.has_shortage = True
                return None
        limit = self.planner.route_all(factors)
        self.least_failed = self.least_failed or self.planner.plan
        if limit is None and self.bound is None:
            self._test_shortage()
        return limit

    def _test_shortage(self) -> None:
        """Test by link prices for a shortage, where some slots of the plan have failed.

        If it is proved, to exchange pairs between the fewest slots would be in vain: ``packed``
        gets a first plan of more slots.
        """
        planner = self.planner
        if all(slot.excess < FAILED for slot in planner.plan) or planner.clock.remaining_s <= 0:
            return
        problem = planner.problem
        shortage = bound_slots(problem, planner.router, planner.clock, QUICK_ROUNDS)
        if shortage is None:
            return
        self.has_shortage = True
        self.packed = pack_slots(planner, problem.pairs, patient=False)

        # More rounds may prove more slots; their prices are kept if they do.
        longer = bound_slots(problem, planner.router, planner.clock)
        if longer is not None and longer.slots > shortage.slots:
            shortage = longer
        planner.slots_bound = shortage.slots
        self.bound = ProvedBound(np.inf, shortage.proof)

    def pack(self) -> Limit:
        """Pack all pairs into slots again and again; return why that ended.

        Better plans take the place of the first one in ``packed``. Without a limit of time there
        are `_PACKINGS` further ones; an iteration is one of them.
        """
        # Without a first plan the time is up.
        planner = self.planner
        clock = planner.clock
        if self.packed is None:
            return Limit.TIME
        n_packings = clock.limits.iterations
        if n_packings is None:
            n_packings = _PACKINGS if clock.limits.time_s is None else sys.maxsize
        with stoppable() as stop:
            for packing in range(n_packings):
                # No plan has fewer slots than the bound.
                if len(self.packed) <= planner.slots_bound:
                    break
                planner.on_event(Tick(PACKING, packing))
                phase = f"{len(self.packed)} slots, at least {planner.slots_bound}, pack"
                plan = pack_slots(planner, planner.problem.pairs, patient=True, phase=phase)
                if plan is None:
                    return Limit.TIME
                if _plan_size(plan) < _plan_size(self.packed):
                    self.packed = plan
        if stop.limit is not None:
            return stop.limit
        return Limit.ITERATIONS if clock.limits.iterations is not None else Limit.EXHAUSTED

    def start_from(self, former: Solution) -> Limit | None:
        """Keep the slots of a former solution, and route again what has no route any more.

        If `former` is no solution in the fewest slots, in which each pair meets once, the search
        begins with a tournament instead. Writes and returns what `start` does.
        """
        planner = self.planner
        schedule = former.schedule
        fabric = planner.problem.fabric

        # The schedule has to have the fewest slots, and the ports and cells of this fabric. In
        # each slot all ports are in use, but for one of an odd number of bidirectional ports.
        states = None if schedule is None else schedule.cell_states
        expected_shapes = (self.slots, fabric.n_ports), (self.slots, fabric.n_cells)
        if states is None or (schedule.matchings.shape, states.shape) != expected_shapes:
            return self.start()
        n_idle = 0
        if fabric.bidirectional:
            n_idle = fabric.n_ports % 2
        if ((schedule.matchings == IDLE).sum(axis=1) != n_idle).any():
            return self.start()

        # Each vertex has to have the same partners as in the tournament, in whatever slots: then
        # each pair meets once. ``factors[slot, vertex]`` is the partner of a vertex.
        factors = np.stack([planner.factor(matching) for matching in schedule.matchings])
        if (np.sort(factors, axis=0) != np.sort(self.factors, axis=0)).any():
            return self.start()

        # Routes are read out of the states. What this fabric does not carry is negotiated, first
        # with little effort, then with more.
        for partner, matching, row in zip(factors, schedule.matchings, states, strict=True):
            if planner.clock.remaining_s <= 0.0:
                return Limit.TIME
            routes = planner.router.follow(matching, row)
            planner.plan.append(planner.route_slot(partner, *routes, QUICK))
        planner.reroute_failed()
        self.least_failed = planner.plan
        return None

    def answer(self) -> tuple[float, list[RoutedSlot]] | None:
        """Return the cells on all routes of the plan, and the plan; None where routes are missing.

        A plan without all routes is kept in ``least_failed`` if it has the least excess so far.
        """
        excess = self.planner.excess
        plan = self.planner.plan
        if any(slot.excess >= FAILED for slot in plan):
            if excess < sum(slot.excess for slot in self.least_failed):
                self.least_failed = plan
            return None
        return self.counted_cells + excess / UNIT, plan

    def answers(self) -> Iterator[tuple[float, list[RoutedSlot]] | Bound | None]:
        """Exchange pairs, and begin anew where that brings nothing (random restarts).

        Yields `answer` after each exchange, and a `Bound` in cells once it is proved. If
        ``starts`` becomes infinite, as it may with limits, there is no last start: the caller
        takes no more answers once a limit is met, and `TimeUp` is raised if a new beginning meets
        one.
        """
        clock = self.planner.clock
        for n_starts in count(1):
            # `yield_exchanges` yields before each move, hence each answer is that of the moves
            # before. After too many moves without a lower excess the search begins anew.
            least_excess = self.planner.excess
            n_vain_moves = 0
            for _ in yield_exchanges(self.planner):
                yield self.answer()
                n_vain_moves += 1
                if self.planner.excess < least_excess:
                    least_excess = self.planner.excess
                    n_vain_moves = 0
                if n_vain_moves > self.params.moves_per_slot * self.slots:
                    break

                # A bound may end the search early. To prove it takes time, hence the first half of
                # a limited time is for exchanges alone.
                if self.bound is None and clock.remaining_s < clock.elapsed_s:
                    yield Bound(self._bound_cells().cells)

            # Slots that still lack routes are routed once more, with more effort.
            self.planner.reroute_failed()
            yield self.answer()
            proved = self.bound or self._bound_cells()
            yield Bound(proved.cells)

            # With limits the search has no last start, unless the problem is so small that an
            # exact search follows, which needs its part of the time.
            if self.starts is None:
                with uncounted():
                    from optmatch.solvers.all_to_all.joint_model import is_small  # loads OR-tools

                is_limited = clock.limits.time_s is not None or clock.limits.iterations is not None
                is_endless = is_limited and not is_small(self.planner.problem, clock)
                self.starts = np.inf if is_endless else self.params.starts

            # Fewer than three slots can be filled in one way only, and an infinite bound proves a
            # shortage. With a last start in view, a plan whose cells are near their bound is not
            # begun anew; how near grows with slots beyond 32.
            if self.slots < 3 or proved.cells == np.inf or n_starts >= self.starts:
                return
            cells = self.counted_cells + self.planner.excess / UNIT
            near = _NEAR * max(1.0, self.slots / 32)
            if self.starts < np.inf and near_enough(cells, proved.cells, near):
                return
            if self.start() is not None:  # a limit was met while its slots were routed
                raise TimeUp("the time is up")

    def _bound_cells(self) -> ProvedBound:
        """Bound the cells of all plans in the fewest slots, and keep the bound with its proof."""
        self.bound = prove_bound(self.planner, self.planner.excess)
        return self.bound


def _plan_size(plan: list[RoutedSlot]) -> tuple[int, int]:
    """Return the key by which plans are compared, less is better: (slots, cells on all routes)."""
    return len(plan), sum(int(slot.lengths.sum()) for slot in plan)
