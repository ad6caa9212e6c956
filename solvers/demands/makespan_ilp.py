"""Method `ilp` for the completion time: all numbers of slots that could do are searched.

A search of our own (`refutation`) excludes one completion after the other. Where lines are busy to
different degrees it may get lost in what idle ports could do; then, and where it has no room,
CP-SAT gets a model for each number of slots. Beside the search, walks (`annealing`) look for plans
without waste, which it would meet last.

There every slot is accounted for on every line: its whole duration goes to one entry, or is idle.
So what a line holds too long and what it idles add up to the same sum, that of the slots, less its
demand; near the optimum this is little, and propagates far.

The m largest of d entries have at most k - d + m of k slots, so the longest that many hold them
together. The m smallest have at least m slots, so the shortest m together are no longer than they
are, but for what is held too long. These inequalities contain the line bound and much more where
delays are long.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
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
    Status,
)
from optmatch.problems import Demand, LineProof
from optmatch.solvers.cpsat import Outcome, minimise
from optmatch.solvers.demands.annealing import Walks
from optmatch.solvers.demands.configuration import bound_by_prices, bound_of
from optmatch.solvers.demands.plans import Plan, only_demanded, tidy, trim
from optmatch.solvers.demands.portfolio import rebuild
from optmatch.solvers.demands.refutation import (
    PORTION,
    fits,
    promising_lines,
    quickest_lines,
    seek,
)
from optmatch.solvers.demands.scheduling import Work, solve_demand

_WARM_STARTS = 200
_WORKERS = 2
_STEPS = 6  # from the bound to the first plan, at first
_GROWTH = 3.0  # times the work of one step the next should be
_SMALL, _LARGE = 500, 50_000  # programmes of a search that shows which line should be first
_MORE = 4  # times as many show it better
_PER_BURST = 300  # programmes for each burst of a walk: some fifth of the time goes to these
_PATIENCE = 200_000  # programmes of a search that gets nowhere, where CP-SAT may do better
_LARGEST = 20_000  # circuits in all slots of a model


def solve_makespan(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Finish a demand as early as possible, and prove it.

    Parameters
    ----------
    problem
        The search is for all-stop switching on one plane of an ideal switch, without packet
        network; other problems get the plans of `best`. Slots last whole ticks.
    limits
        Iterations are linear programmes of the search, all together and in whole portions; then
        conflicts of CP-SAT, for each number of slots.
    rng, on_event
        As for every method.

    Returns
    -------
    Solution
        OPTIMAL where the line bound or prices (`ConfigurationProof`) prove it, or where all else
        was searched: ``stats["bound_by"]`` is "search" or "cp-sat" then.
    """
    if not _exact(problem):
        return solve_demand(problem, limits, rng, on_event, "ilp", rebuild)
    search = _Search(problem, limits, rng, on_event)
    limit: Limit | None = None
    try:
        limit = search.run()
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    return search.conclude(limit)


def _exact(problem: Demand) -> bool:
    """Tell whether the models here say all that there is to the problem."""
    return (
        problem.fabric.graph is None
        and not problem.fabric.bidirectional
        and problem.planes == 1
        and problem.packet_share == 0
        and problem.switching == "all-stop"
    )


@dataclass
class _Refutation:
    """A search for plans of so many slots that goes on, portion by portion."""

    slots: int
    most: int
    steps: Generator[tuple[int, Plan | None], int | None, None]
    solved: int = 0  # linear programmes

    def go_on(self, most: int | None) -> tuple[int, Plan | None] | None:
        """Return what comes of another portion, None at the end; plans must be no longer."""
        try:
            return self.steps.send(most)
        except StopIteration:
            return None


class _Search:
    """Best plan and bound, in ticks."""

    def __init__(
        self, problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
    ) -> None:
        self.problem, self.rng, self.on_event = problem, rng, on_event
        self.clock: Clock = limits.start()
        self.demand, self.delay = problem.ticks, problem.delay_ticks
        self.best: Plan | None = None
        self.bound = round(problem.lower_bound() / problem.tick_s)
        self.certificate: object = None
        self.bound_by: str | None = None
        self.solved, self.bursts = 0, 0  # linear programmes; bursts of walks
        self.given_up = False
        self.lines: list[int] = []  # that searches could begin with, the best first
        self.tried = 0  # programmes of the search that showed which are good
        self.walks: Walks | None = None  # for demands whose lines have all the same sum

    def run(self) -> Limit | None:
        """Warm start, prices, our own search, then CP-SAT for each number of slots."""
        if not self.demand.any():
            n = len(self.demand)
            self.best = Plan(np.empty((0, n), dtype=np.int32), np.empty(0, dtype=np.int64))
            return None
        self._warm_start()
        if self._proved():
            return None
        proof = bound_by_prices(self.problem, self.clock)
        if proof is not None:
            value = round(bound_of(proof, self.problem) / self.problem.tick_s)
            if value > self.bound:
                self.certificate = proof
                self._lift(value)
        if self._proved():
            return None
        self.lines = promising_lines(self.demand)
        lines = np.concatenate([self.demand, self.demand.T]).sum(axis=1)
        if self.delay > 0 and (lines == lines[0]).all():
            self.walks = Walks(self.demand, self.delay, self.problem.min_slot_ticks, self.rng)
        limit = self._by_refutation()
        return limit if limit is not None or self._proved() else self._by_slots()

    def _proved(self) -> bool:
        return self.best is not None and self.best.cost(self.delay) <= self.bound

    def _take(self, plan: Plan) -> None:
        if self.best is None or plan.cost(self.delay) < self.best.cost(self.delay):
            self.best = plan
            self.on_event(NewBest(plan.cost(self.delay) * self.problem.tick_s))

    def _lift(self, bound: int) -> None:
        self.bound = bound
        self.on_event(Bound(bound * self.problem.tick_s))

    def _warm_start(self) -> None:
        shortest = self.problem.min_slot_ticks
        work = Work(self.problem, self.demand, self.delay, shortest, self.rng, self.clock)
        most = self.clock.limits.iterations
        most = _WARM_STARTS if most is None else min(most, _WARM_STARTS)
        for plan in itertools.islice(rebuild(work), most):
            self._take(tidy(only_demanded(plan, self.demand, shortest)))
            if self._proved() or self.clock.remaining_s <= 0:
                return

    def _by_refutation(self) -> Limit | None:
        """Exclude one completion after the other, from the bound up.

        A search gets much longer with every tick that may be wasted. So those for completions that
        are far too early cost little, and the first plan that is found is nearly the best.
        """
        assert self.best is not None
        step, last = (self.best.cost(self.delay) - self.bound) / _STEPS, 0
        while not self._proved():
            before = self.bound + max(1, round(step))
            if before + step / 2 > self.best.cost(self.delay):
                before = self.best.cost(self.delay)
            solved = self.solved
            try:
                limit = self._exclude(before)
            except MemoryError:
                return None
            if limit is not None or self.given_up:
                return limit
            self._raise_by_search(min(before, self.best.cost(self.delay)), "search")
            work = self.solved - solved
            growth = work / max(last, _SMALL)
            step *= min(2.0, max(0.4, np.log(_GROWTH) / np.log(growth))) if growth > 1 else 2.0
            last = work
        return None

    def _exclude(self, before: int) -> Limit | None:
        """Take plans that end before a time, for each number of slots, until there is none."""
        lines = np.concatenate([self.demand, self.demand.T])
        busiest, least = lines.sum(axis=1).max(), (lines > 0).sum(axis=1).max()
        even = bool((lines.sum(axis=1) == busiest).all())
        # what two threads find first differs from run to run, so repeatable searches have one
        workers = 1 if self.clock.limits.iterations is not None else _WORKERS
        parts = (
            (slots, first, part)
            for slots in itertools.count(int(least))
            for first in (self.lines[0],)  # the same for all parts
            for part in range(workers)
        )
        running: dict[Future[tuple[int, Plan | None] | None], _Refutation] = {}
        with ThreadPoolExecutor(workers) as threads:
            while True:
                while len(running) < workers:
                    assert self.best is not None
                    slots, first, part = next(parts)
                    upper = min(before, self.best.cost(self.delay))
                    most = upper - 1 - slots * self.delay
                    if most < busiest or not fits(self.demand, slots):
                        self.given_up = self.given_up or most >= busiest
                        break
                    search = self._refute(slots, most, first, part, workers)
                    running[threads.submit(search.go_on, None)] = search
                if not running:
                    return None
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    search, found = running.pop(future), future.result()
                    if found is None:
                        self._choose_line(search, workers)
                        continue
                    self._note(search, *found)
                    self._walk_on(before)
                    limit = self.clock.exceeded(self.solved)
                    if limit is not None or (search.solved > _PATIENCE and not even):
                        self.given_up = limit is None
                        return limit
                    assert self.best is not None
                    most = self.best.cost(self.delay) - 1 - search.slots * self.delay
                    running[threads.submit(search.go_on, most)] = search

    def _refute(self, slots: int, most: int, first: int, part: int, parts: int) -> _Refutation:
        portion = min(PORTION, self.clock.limits.iterations or PORTION)
        shortest = self.problem.min_slot_ticks
        steps = seek(self.demand, slots, shortest, most, first, portion, part, parts)
        return _Refutation(slots, most, steps)

    def _note(self, search: _Refutation, solved: int, plan: Plan | None) -> None:
        search.solved += solved
        self.solved += solved
        if plan is not None:
            self._take(trim(plan, self.demand, self.problem.min_slot_ticks))

    def _walk_on(self, before: int) -> None:
        """Look for plans without waste, beside those which are being searched."""
        while self.walks is not None and self.bursts < self.solved // _PER_BURST:
            assert self.best is not None
            self.bursts += 1
            plan = self.walks.go_on(self.bound, before, self.best.cost(self.delay))
            if plan is not None:
                self._take(plan)

    def _choose_line(self, search: _Refutation, parts: int) -> None:
        """Learn from a search that took neither too little nor too long which line comes first."""
        work, shortest = search.solved * parts, self.problem.min_slot_ticks
        if len(self.lines) > 1 and max(_SMALL, _MORE * self.tried) < work < _LARGE:
            self.tried, asked = work, (search.slots, shortest, search.most, self.lines)
            found = quickest_lines(self.demand, *asked, 5 * work // 4, self.clock)
            self.lines = found or self.lines

    def _by_slots(self) -> Limit | None:
        """Ask for each number of slots whether it does better, until more delays alone cannot."""
        lines = np.concatenate([self.demand, self.demand.T])
        busiest, slots = int(lines.sum(axis=1).max()), int((lines > 0).sum(axis=1).max())
        while self.best is not None:
            upper = self.best.cost(self.delay)
            if slots * self.delay + busiest >= upper:
                self._raise_by_search(upper, "cp-sat")
                return None
            limit = self.clock.exceeded(0)
            if limit is not None:
                return limit
            if slots * np.count_nonzero(self.demand) > _LARGEST:
                return Limit.MEMORY
            later = (slots + 1) * self.delay + busiest
            outcome, terms = self._ask(slots, upper)
            if outcome.found:
                self._take(trim(terms.read(outcome), self.demand, self.problem.min_slot_ticks))
            if not (outcome.infeasible or outcome.optimal):
                least = min(later, slots * self.delay + max(busiest, int(outcome.lower_bound)))
                self._raise_by_search(min(least, self.best.cost(self.delay)), "cp-sat")
                return outcome.limit
            self._raise_by_search(min(later, self.best.cost(self.delay)), "cp-sat")
            slots += 1
        return Limit.EXHAUSTED

    def _raise_by_search(self, bound: int, by: str) -> None:
        if bound > self.bound:
            self.bound_by = by
            self._lift(bound)

    def _ask(self, slots: int, upper: int) -> tuple[Outcome, _Slots]:
        model = cp_model.CpModel()
        most = upper - 1 - slots * self.delay
        shortest = self.problem.min_slot_ticks
        terms = _Slots(model, self.demand, slots, shortest=shortest, most=most)
        model.minimize(terms.total)

        def tell(event: Event) -> None:  # objectives there are ticks of slots alone
            if not isinstance(event, NewBest | Bound):
                self.on_event(event)

        seed = int(self.rng.integers(1 << 30))
        return minimise(model, self.clock, tell, seed=seed, workers=1, linear=False), terms

    def conclude(self, limit: Limit | None) -> Solution:
        """Say what is found and proved."""
        tick = self.problem.tick_s
        bound = max(self.problem.lower_bound(), self.bound * tick)
        stats: dict[str, object] = {} if self.bound_by is None else {"bound_by": self.bound_by}
        if self.best is None:
            return Solution(
                problem=self.problem,
                status=Status.UNKNOWN,
                limit=limit or Limit.EXHAUSTED,
                lower_bound=bound,
                method="ilp",
                certificate=self.certificate,
                stats=stats,
            )
        objective = self.best.cost(self.delay) * tick
        proved = self._proved()
        return Solution(
            problem=self.problem,
            schedule=self.problem.schedule(self.best.matchings, self.best.ticks),
            status=Status.OPTIMAL if proved else Status.FEASIBLE,
            limit=None if proved else (limit or Limit.EXHAUSTED),
            objective=objective,
            lower_bound=min(bound, objective),
            method="ilp",
            certificate=self.certificate or _busiest_line(self.problem),
            stats=stats | {"slots": len(self.best.ticks)},
        )


def _busiest_line(problem: Demand) -> LineProof | None:
    lines = np.concatenate([problem.ticks, problem.ticks.T])
    if not lines.any():
        return None
    loads = lines.sum(axis=1) + problem.delay_ticks * (lines > 0).sum(axis=1)
    line, n = int(loads.argmax()), problem.fabric.n_ports
    return LineProof("source", line) if line < n else LineProof("destination", line - n)


class _Slots:
    """The variables of k slots, the longest first, that last at most `most` ticks together."""

    def __init__(
        self,
        model: cp_model.CpModel,
        demand: NDArray[np.int64],
        k: int,
        *,
        shortest: int,
        most: int,
    ) -> None:
        self.n, self.model = len(demand), model
        sums = np.maximum.outer(demand.sum(axis=1), demand.sum(axis=0))
        largest = max(int((demand + most - sums)[demand > 0].max()), shortest)
        self.longest = min(largest, most)
        self.ticks = [model.new_int_var(shortest, self.longest, "") for _ in range(k)]
        for longer, shorter in itertools.pairwise(self.ticks):
            model.add(longer >= shorter)
        self.total = model.new_int_var(int(sums.max()), most, "")
        model.add(sum(self.ticks) == self.total)
        pairs = [(int(i), int(j)) for i, j in np.argwhere(demand)]
        self.uses = [{pair: model.new_bool_var("") for pair in pairs} for _ in range(k)]
        self.parts: list[dict[tuple[int, int], cp_model.IntVar]] = [{} for _ in range(k)]
        self.held = {
            pair: self._hold(pair, int(demand[pair]), int(most - sums[pair])) for pair in pairs
        }
        for line in range(self.n):
            for axis, entries in ((0, demand[line]), (1, demand[:, line])):
                if entries.any():
                    self._share([p for p in pairs if p[axis] == line], entries[entries > 0])

    def _hold(self, pair: tuple[int, int], size: int, spare: int) -> cp_model.IntVar:
        """Hold a circuit long enough, over all slots; what is spare on its lines bounds it."""
        model = self.model
        for ticks, uses, parts in zip(self.ticks, self.uses, self.parts, strict=True):
            parts[pair] = self._duration_if(uses[pair], ticks)
        held = model.new_int_var(size, size + spare, "")
        model.add(sum(parts[pair] for parts in self.parts) == held)
        model.add_bool_or([uses[pair] for uses in self.uses])
        return held

    def _duration_if(self, holds: cp_model.IntVar, ticks: cp_model.IntVar) -> cp_model.IntVar:
        """Return what is the duration of a slot if a literal holds, and zero otherwise."""
        part = self.model.new_int_var(0, self.longest, "")
        self.model.add(part == ticks).only_enforce_if(holds)
        self.model.add(part == 0).only_enforce_if(~holds)
        return part

    def _share(self, pairs: list[tuple[int, int]], sizes: NDArray[np.int64]) -> None:
        """Let a port have one circuit or none at a time, and bound its slots by its entries."""
        model, k = self.model, len(self.ticks)
        idle_ticks = []
        for ticks, uses, parts in zip(self.ticks, self.uses, self.parts, strict=True):
            idle = model.new_bool_var("")
            model.add_exactly_one([uses[pair] for pair in pairs] + [idle])
            idle_ticks.append(self._duration_if(idle, ticks))
            model.add(sum(parts[pair] for pair in pairs) + idle_ticks[-1] == ticks)
        model.add(sum(self.held[pair] for pair in pairs) + sum(idle_ticks) == self.total)
        ascending = np.sort(sizes)
        for m, largest in enumerate(np.cumsum(ascending[::-1]).tolist(), start=1):
            model.add(sum(self.ticks[: k - len(pairs) + m]) >= largest)
        for m, smallest in enumerate(np.cumsum(ascending).tolist(), start=1):
            model.add(sum(self.ticks[k - m :]) <= self.total - int(ascending.sum()) + smallest)
        for pair in pairs:  # the others need a slot each
            model.add(sum(uses[pair] for uses in self.uses) <= k - len(pairs) + 1)

    def read(self, outcome: Outcome) -> Plan:
        """Return the plan of a solution."""
        matchings = np.full((len(self.uses), self.n), -1, dtype=np.int32)
        for slot, uses in enumerate(self.uses):
            for (i, j), use in uses.items():
                if outcome.holds(use):
                    matchings[slot, i] = j
        ticks = [outcome.value(ticks) for ticks in self.ticks]
        return Plan(matchings, np.array(ticks, dtype=np.int64))
