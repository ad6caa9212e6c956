"""Method `ilp` for the completion time: all numbers of slots that could do are searched.

A search of our own (`refutation`) excludes one completion after the other. Where lines are busy to
different degrees it may get lost in what idle ports could do; then, and where it has no room,
CP-SAT gets a model for each number of slots (`slots`). Beside the search, walks (`annealing`) look
for plans without waste, which it would meet last.
"""

from __future__ import annotations

import itertools
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait

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
    Refutation,
    choose_line,
    fits,
    promising_lines,
    quickest_lines,
    seek,
)
from optmatch.solvers.demands.scheduling import Work, solve_demand
from optmatch.solvers.demands.slots import Slots

_WARM_STARTS = 200
_WORKERS, _PARTS = 2, 8  # threads; parts of a search, so that none ends long before the other
_STEPS = 6  # from the bound to the first plan, at first
_GROWTH = 3.0  # times the work of one step the next should be
_SMALL, _LARGE = 500, 50_000  # programmes of a search that shows which line should be first
_MORE = 4  # times as many show it better
_LONG = 200_000  # programmes with a slot less, if it pays to sample a search for its first line
_TELLING = 20_000  # programmes of a step that tells how many the last would take
_LEAP = 300.0  # times the work of one step the last may be
_PATIENCE = 400_000  # programmes of a search that gets nowhere, where CP-SAT may do better
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
        self.solved = 0  # linear programmes
        self.searched_s = 0.0  # of both threads, without walks
        self.given_up = self.overtaken = False
        self.step = 0.0  # of completions that are excluded together
        self.steps: list[tuple[int, int]] = []  # before which time, by how many programmes
        self.lines: list[int] = []  # that searches could begin with, the best first
        self.tried = 0  # programmes of the search that showed which are good
        self.walks: Walks | None = None  # for demands whose lines have all the same sum
        self.walking: Future[Plan | None] | None = None

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
        if self.delay > 0 and self._is_even():
            self.walks = Walks(self.demand, self.delay, self.problem.min_slot_ticks, self.rng)
        limit = self._by_refutation()
        return limit if limit is not None or self._proved() else self._by_slots()

    def _is_even(self) -> bool:
        """Tell whether all lines have the same sum."""
        sums = np.concatenate([self.demand.sum(axis=0), self.demand.sum(axis=1)])
        return bool((sums == sums[0]).all())

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
        self.step = (self.best.cost(self.delay) - self.bound) / _STEPS
        self.steps.append((self.bound, _SMALL))
        while not self._proved():
            before, cost = self.bound + max(1, round(self.step)), self.best.cost(self.delay)
            if self.overtaken or self._is_within_reach(cost, before, 0):
                before = cost
            else:
                before = self._look_ahead(before)
            solved = self.solved
            try:
                limit = self._exclude(before)
            except MemoryError:
                return None
            self._meet_walks()
            if limit is not None or self.given_up:
                return limit
            if self.overtaken:
                continue
            before = min(before, self.best.cost(self.delay))
            self._raise_by_search(before, "search")
            work = max(self.solved - solved, _SMALL)
            growth = work / self.steps[-1][1]
            self.steps.append((before, work))
            factor = np.log(_GROWTH) / np.log(growth) if growth > 1 else 2.0
            self.step *= min(2.0, max(0.4, factor))
        return None

    def _look_ahead(self, before: int) -> int:
        """Take all that ends before the next plan without waste, if that is within reach.

        Walks may meet such a plan meanwhile.
        """
        if self.walks is None:
            return before
        busiest = int(self.demand[0].sum())
        cost = busiest - (busiest - before) // self.delay * self.delay
        return cost if self._is_within_reach(cost, before, 0) else before

    def _is_within_reach(self, cost: int, before: int, solved: int) -> bool:
        """Tell whether all that ends before a cost can be excluded at once.

        Work grows as in the last two steps, or as a step is meant to; programmes that were solved
        in the present one, for a completion `before` that cost, may show that it is more. Of
        small steps nothing is learnt.
        """
        if before + self.step / 2 > cost:
            return True
        (later, more), rate = self.steps[-1], np.log(_GROWTH) / self.step
        if len(self.steps) > 1:
            earlier, less = self.steps[-2]
            rate = max(rate, np.log(more / less) / (later - earlier))
        work = max(_grow(more, rate * (cost - later)), _grow(solved, rate * (cost - before)))
        large = max(more, solved) >= _TELLING
        return large and bool(work <= min(_LEAP * more, self._programmes_left()))

    def _programmes_left(self) -> float:
        """Estimate how many programmes the limits leave."""
        iterations = self.clock.limits.iterations
        if iterations is not None:
            return iterations - self.solved
        return _WORKERS * self.clock.remaining_s * self.solved / max(self.searched_s, 1e-3)

    def _exclude(self, before: int) -> Limit | None:
        """Take plans that end before a time, for each number of slots, until there is none.

        Overtaken if walks meet a plan that ends later, and all before it can be excluded at once:
        that is the proof, and includes this step.
        """
        assert self.best is not None
        self.overtaken, begun, cost = False, self.solved, self.best.cost(self.delay)
        lines = np.concatenate([self.demand, self.demand.T])
        busiest, least = lines.sum(axis=1).max(), (lines > 0).sum(axis=1).max()
        # what two threads find first differs from run to run, so repeatable searches have one
        workers = 1 if self.clock.limits.iterations is not None else _WORKERS
        parts = 1 if workers == 1 else _PARTS
        running: dict[Future[tuple[int, Plan | None] | None], Refutation] = {}
        spent: Counter[int] = Counter()  # programmes, by slots
        ended: Counter[int] = Counter()  # parts, by slots
        with ThreadPoolExecutor(workers) as threads:
            asked = (
                (slots, first, part)
                for slots in itertools.count(int(least))
                for first in (self._first_line(slots, before, spent[slots - 1], threads),)
                for part in range(parts)
            )
            while True:
                while len(running) < workers:
                    assert self.best is not None
                    slots, first, part = next(asked)
                    upper = min(before, self.best.cost(self.delay))
                    most = upper - 1 - slots * self.delay
                    if most < busiest or not fits(self.demand, slots):
                        self.given_up = self.given_up or most >= busiest
                        break
                    search = self._refute(slots, most, first, part, parts)
                    running[threads.submit(search.go_on, None)] = search
                if not running:
                    return None
                wait(running, return_when=FIRST_COMPLETED)
                self._meet_walks()
                met, solved = self.best.cost(self.delay), self.solved - begun
                if before < met < cost and self._is_within_reach(met, before, solved):
                    self.overtaken = True
                    return None
                for future in [future for future in running if future.done()]:  # as submitted
                    search, found = running.pop(future), future.result()
                    if found is None:
                        ended[search.slots] += 1
                        if ended[search.slots] == parts:
                            self._choose_line(search, spent[search.slots])
                        continue
                    self._note(search, *found)
                    spent[search.slots] += found[0]
                    self._send_walks(threads, search.slots, before)
                    limit = self.clock.exceeded(self.solved)
                    lost = spent[search.slots] > _PATIENCE and not self._is_even()
                    if limit is not None or lost:
                        self.given_up = limit is None
                        return limit
                    assert self.best is not None
                    most = self.best.cost(self.delay) - 1 - search.slots * self.delay
                    running[threads.submit(search.go_on, most)] = search

    def _first_line(self, slots: int, before: int, work: int, threads: Executor) -> int:
        """Choose the line that all parts of a search begin with."""
        assert self.best is not None
        most = min(before, self.best.cost(self.delay)) - 1 - slots * self.delay
        if work < _LONG or most < self.demand.sum(axis=0).max() or not fits(self.demand, slots):
            return self.lines[0]
        lines = [*self.lines, *(set(range(2 * len(self.demand))) - set(self.lines))]
        asked = slots, self.problem.min_slot_ticks, most, lines, work
        return choose_line(self.demand, *asked, self.clock, threads)

    def _refute(self, slots: int, most: int, first: int, part: int, parts: int) -> Refutation:
        portion = min(PORTION, self.clock.limits.iterations or PORTION)
        shortest = self.problem.min_slot_ticks
        steps = seek(self.demand, slots, shortest, most, first, portion, part, parts)
        return Refutation(slots, most, steps)

    def _note(self, search: Refutation, solved: int, plan: Plan | None) -> None:
        self.solved += solved
        self.searched_s += search.took_s
        if plan is not None:
            self._take(trim(plan, self.demand, self.problem.min_slot_ticks))

    def _send_walks(self, threads: ThreadPoolExecutor, slots: int, before: int) -> None:
        """Look for plans without waste, beside a search for plans of so many slots."""
        if self.walks is not None and self.walking is None:
            assert self.best is not None
            bursts = self.walks.allot(self.bound, self.solved)
            asked = slots, self.bound, before, self.best.cost(self.delay), bursts
            self.walking = threads.submit(self.walks.go_on, *asked)

    def _meet_walks(self) -> None:
        """Take what the walks came to, if they are back."""
        if self.walking is not None and self.walking.done():
            plan, self.walking = self.walking.result(), None
            if plan is not None:
                self._take(plan)

    def _choose_line(self, search: Refutation, work: int) -> None:
        """Learn from a search that took neither too little nor too long which line comes first."""
        shortest = self.problem.min_slot_ticks
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

    def _ask(self, slots: int, upper: int) -> tuple[Outcome, Slots]:
        model = cp_model.CpModel()
        most = upper - 1 - slots * self.delay
        shortest = self.problem.min_slot_ticks
        terms = Slots(model, self.demand, slots, shortest=shortest, most=most)
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


def _grow(work: int, power: float) -> float:
    return work * float(np.exp(min(power, 99.0)))  # more is out of reach in any case


def _busiest_line(problem: Demand) -> LineProof | None:
    lines = np.concatenate([problem.ticks, problem.ticks.T])
    if not lines.any():
        return None
    loads = lines.sum(axis=1) + problem.delay_ticks * (lines > 0).sum(axis=1)
    line, n = int(loads.argmax()), problem.fabric.n_ports
    return LineProof("source", line) if line < n else LineProof("destination", line - n)
