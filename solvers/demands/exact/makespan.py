"""The least completion time: CP-SAT gets a model for each number of slots that could do."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from ortools.sat.python import cp_model

from optmatch.model import (
    Bound,
    Clock,
    Event,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Solution,
)
from optmatch.problems import Demand, LineProof
from optmatch.solvers.cpsat import Outcome, minimise
from optmatch.solvers.demands.configuration import certify
from optmatch.solvers.demands.exact.plane_model import MOST_PORTS, finish_small
from optmatch.solvers.demands.exact.slot_model import SlotModel
from optmatch.solvers.demands.plans import Plan, only_demanded, tidy, trim
from optmatch.solvers.demands.portfolio import rebuild
from optmatch.solvers.demands.scheduling import CoverTask, solve_demand
from optmatch.solvers.frame import ROUNDING, conclude

_WARM_STARTS = 200
_FEW_STARTS = 30  # before the model of planes
_LARGEST = 20_000  # circuits in all slots of a model


def solve_makespan(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Finish a demand as early as possible, and prove it.

    The model is of all-stop switching on one plane of an ideal switch, without packet network.
    Other small demands on ideal switches go to a model of all planes; the rest gets the plans of
    `best`. Slots last whole ticks, and iterations are conflicts of CP-SAT, for each number of
    slots. The solution is OPTIMAL where the line bound or prices prove it, or where CP-SAT refutes
    all else: ``stats["bound_by"]`` is "cp-sat" then.
    """
    plain = problem.fabric.graph is None and not problem.fabric.bidirectional
    alone = problem.planes == 1 and problem.packet_share == 0
    if not (plain and alone and problem.switching == "all-stop"):
        if not plain or problem.fabric.n_ports > MOST_PORTS:
            return solve_demand(problem, limits, rng, on_event, "ilp", rebuild)
        clock = limits.start()
        half = limits.time_s and limits.time_s / 2
        few = replace(limits, time_s=half, iterations=min(_FEW_STARTS, limits.iterations or 10**9))
        start = solve_demand(problem, few, rng, on_event, "ilp", rebuild)
        if start.limit is Limit.INTERRUPTED:
            return start
        return finish_small(problem, start, clock, rng, on_event)
    search = _MakespanSearch(problem, limits, rng, on_event)
    limit: Limit | None = None
    try:
        limit = search.run()
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    return certify(search.conclude(limit), search.clock)


class _MakespanSearch:
    """Best plan and bound, in ticks."""

    def __init__(
        self, problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
    ) -> None:
        self.problem, self.rng, self.on_event = problem, rng, on_event
        self.clock: Clock = limits.start()
        self.demand, self.delay = problem.ticks, problem.delay_ticks
        self.shortest = problem.min_slot_ticks
        lines = np.concatenate([self.demand, self.demand.T])
        self.busiest = int(lines.sum(axis=1).max())
        self.fewest = int((lines > 0).sum(axis=1).max())
        self.best: Plan | None = None
        self.bound = round(problem.lower_bound() / problem.tick_s)
        self.by_search = False

    def run(self) -> Limit | None:
        """Warm start, then CP-SAT for each number of slots."""
        if not self.demand.any():
            self.best = Plan.of([], [], len(self.demand))
            return None
        self._warm_start()
        return None if self._proved() else self._by_model()

    def _proved(self) -> bool:
        return self.best is not None and self.best.cost(self.delay) <= self.bound

    def _take(self, plan: Plan) -> None:
        if self.best is None or plan.cost(self.delay) < self.best.cost(self.delay):
            self.best = plan
            self.on_event(NewBest(plan.cost(self.delay) * self.problem.tick_s))

    def _lift(self, bound: int) -> None:
        if bound > self.bound:
            self.bound, self.by_search = bound, True
            self.on_event(Bound(bound * self.problem.tick_s))

    def _warm_start(self) -> None:
        work = CoverTask(
            self.problem, self.demand, self.delay, self.shortest, self.rng, self.clock
        )
        most = self.clock.limits.iterations
        most = _WARM_STARTS if most is None else min(most, _WARM_STARTS)
        for plan in itertools.islice(rebuild(work), most):
            self._take(tidy(only_demanded(plan, self.demand, self.shortest)))
            if self._proved() or self.clock.remaining_s <= 0:
                return

    def _by_model(self) -> Limit | None:
        """Ask for each number of slots whether it does better, until more delays alone cannot."""
        busiest, slots = self.busiest, self.fewest
        while self.best is not None:
            upper = self.best.cost(self.delay)
            if slots * self.delay + busiest >= upper:
                self._lift(upper)
                return None
            limit = self.clock.exceeded(0)
            if limit is not None:
                return limit
            if slots * np.count_nonzero(self.demand) > _LARGEST:
                return Limit.MEMORY
            later = (slots + 1) * self.delay + busiest
            outcome, terms = self._ask(slots, upper)
            if outcome.found:
                self._take(trim(terms.read(outcome), self.demand, self.shortest))
            if not (outcome.infeasible or outcome.optimal):
                least = min(later, slots * self.delay + max(busiest, int(outcome.lower_bound)))
                self._lift(min(least, self.best.cost(self.delay)))
                return outcome.limit
            self._lift(min(later, self.best.cost(self.delay)))
            slots += 1
        return Limit.EXHAUSTED

    def _ask(self, slots: int, upper: int) -> tuple[Outcome, SlotModel]:
        model = cp_model.CpModel()
        most = upper - 1 - slots * self.delay
        terms = SlotModel(model, self.demand, slots, shortest=self.shortest, most=most)
        model.minimize(terms.total)

        def tell(event: Event) -> None:  # objectives there are ticks of slots alone
            if not isinstance(event, NewBest | Bound):
                self.on_event(event)

        seed = int(self.rng.integers(1 << 30))
        return minimise(model, self.clock, tell, seed=seed, workers=1, linear=False), terms

    def conclude(self, limit: Limit | None) -> Solution:
        """Say what is found and proved."""
        tick, best = self.problem.tick_s, self.best
        stats: dict[str, object] = {"bound_by": "cp-sat"} if self.by_search else {}
        bound = max(self.problem.lower_bound(), self.bound * tick)
        if best is None:
            return conclude(self.problem, "ilp", None, bound, limit, stats=stats)
        return conclude(
            self.problem,
            "ilp",
            best.cost(self.delay) * tick,
            bound,
            limit,
            rtol=ROUNDING,
            schedule=self.problem.schedule(best.matchings, best.ticks),
            certificate=_busiest_line(self.problem),
            stats=stats | {"slots": len(best.ticks)},
        )


def _busiest_line(problem: Demand) -> LineProof | None:
    lines = np.concatenate([problem.ticks, problem.ticks.T])
    if not lines.any():
        return None
    loads = lines.sum(axis=1) + problem.delay_ticks * (lines > 0).sum(axis=1)
    line, n = int(loads.argmax()), problem.fabric.n_ports
    return LineProof("source", line) if line < n else LineProof("destination", line - n)
