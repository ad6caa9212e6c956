"""The least completion time: CP-SAT gets a model for each number of slots that could do.

A plan with k slots takes the sum of their durations and k delays, so the number of slots is fixed
first: the model of k slots then minimises the sum of durations alone. A pair is a source and a
destination; how long its circuit is up over all slots may exceed its demand, by its *spare* ticks
at most. A *line* is a source or a destination with all its entries.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count, pairwise, takewhile

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from optmatch.model import (
    Bound,
    Clock,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Solution,
)
from optmatch.problems import Demand
from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.demands.configuration import certify
from optmatch.solvers.demands.plane_model import MOST_PORTS, finish_small
from optmatch.solvers.demands.plans import Plan, read_plan, trim
from optmatch.solvers.demands.portfolio import yield_plans
from optmatch.solvers.demands.scheduling import former_plan, solve_demand
from optmatch.solvers.exact_models import Asked, ExactModel, draw_seed, refute_in_turn
from optmatch.solvers.frame import conclude, stoppable, tick_rtol


class SlotModel(ExactModel[Plan]):
    """The CP-SAT model of k slots, the longest first, with at most `most` ticks together.

    The sum of all durations is minimised.

    Attributes
    ----------
    ticks
        The duration of each slot, a list of k variables that does not rise.
    total
        The sum of all durations in ticks.
    uses
        For each slot, by pair, whether the slot has the circuit of the pair.
    parts
        For each slot, by pair, the duration of the slot if it has the circuit, else 0.
    ticks_up
        By pair, the sum of its parts: how many ticks its circuit is up.
    """

    workers = 1
    uses_relaxations = False

    def __init__(self, demand: NDArray[np.int64], k: int, *, shortest: int, most: int) -> None:
        """Write a model for CP-SAT: serve a demand by exactly k slots that are shortest together.

        ``demand[source, destination]`` is in ticks; each slot lasts at least `shortest` ticks, and
        the sum of all slots is at most `most`. Each pair is connected for its demand or longer,
        and each port has at most one circuit in a slot. ``longest`` is the upper limit of a slot.
        """
        super().__init__()
        model = self.model
        self.n = len(demand)

        # ``sums[source, destination]``: the total demand of the busier of the two ports, which
        # leaves it ``spare_ticks`` idle. A circuit is up for its demand and all of these at most:
        # with demands of 4 and 3 ticks at a port, and 10 ticks in all, the first for 4 + 3 ticks.
        # Each slot has some circuit, hence it is no longer than the longest circuit may be up.
        sums = np.maximum.outer(demand.sum(axis=1), demand.sum(axis=0))
        spare_ticks = most - sums
        largest = max(int((demand + spare_ticks)[demand > 0].max()), shortest)
        self.longest = min(largest, most)
        self.ticks = [model.new_int_var(shortest, self.longest, "") for _ in range(k)]

        # An order of the slots by duration leaves one of k! equal plans.
        for longer, shorter in pairwise(self.ticks):
            model.add(longer >= shorter)
        self.total = model.new_int_var(int(sums.max()), most, "")
        model.add(sum(self.ticks) == self.total)
        model.minimize(self.total)

        # Each pair is connected for its demand or longer, by as many ticks as the busier of its
        # ports has to spare.
        pairs = [(int(i), int(j)) for i, j in np.argwhere(demand)]
        self.uses = [{pair: model.new_bool_var("") for pair in pairs} for _ in range(k)]
        self.parts: list[dict[tuple[int, int], cp_model.IntVar]] = [{} for _ in range(k)]
        self.ticks_up: dict[tuple[int, int], cp_model.IntVar] = {}
        for pair in pairs:
            # A part is the duration of the slot if the slot has the circuit, else 0.
            for ticks, uses, parts in zip(self.ticks, self.uses, self.parts, strict=True):
                parts[pair] = self.new_amount_if(uses[pair], ticks, self.longest)
            least = int(demand[pair])
            self.ticks_up[pair] = model.new_int_var(least, least + int(spare_ticks[pair]), "")
            model.add(sum(parts[pair] for parts in self.parts) == self.ticks_up[pair])
            model.add_bool_or([uses[pair] for uses in self.uses])

        # Each source (axis 0) and each destination (axis 1) has one circuit at a time; its line
        # is a row or a column of the demand.
        for line in range(self.n):
            for axis, entries in ((0, demand[line]), (1, demand[:, line])):
                if entries.any():
                    pairs_of_line = [pair for pair in pairs if pair[axis] == line]
                    self._share_port(pairs_of_line, entries[entries > 0])

    def _share_port(self, pairs: list[tuple[int, int]], sizes: NDArray[np.int64]) -> None:
        """Let a port have one circuit or none at a time, and bound its slots by its entries.

        `pairs` are all pairs of the port that have a demand, and ``sizes`` their ticks, in any
        order.
        """
        model = self.model
        n_slots = len(self.ticks)

        # In each slot the port serves one pair or is idle, and this takes the whole slot.
        idle_ticks = []
        for ticks, uses, parts in zip(self.ticks, self.uses, self.parts, strict=True):
            is_idle = model.new_bool_var("")
            model.add_exactly_one([uses[pair] for pair in pairs] + [is_idle])
            idle_ticks.append(self.new_amount_if(is_idle, ticks, self.longest))
            model.add(sum(parts[pair] for pair in pairs) + idle_ticks[-1] == ticks)
        model.add(sum(self.ticks_up[pair] for pair in pairs) + sum(idle_ticks) == self.total)

        # The rows that follow are implied by the others, and help the solver. The smaller entries
        # of the line need a slot each, so that the m largest ones share at most
        # n_slots - len(pairs) + m slots, which last no longer than the longest ones. As an
        # example, entries of 5, 3 and 2 ticks share 4 slots: the 5 ticks are served by 2 slots at
        # most (m = 1), so that the 2 longest slots last 5 ticks or more.
        n_spare_slots = n_slots - len(pairs)
        ascending = np.sort(sizes)
        for m, largest in enumerate(np.cumsum(ascending[::-1]).tolist(), start=1):
            model.add(sum(self.ticks[: n_spare_slots + m]) >= largest)

        # All slots but the m shortest last as long as all entries but the m smallest, or longer.
        for m, smallest in enumerate(np.cumsum(ascending).tolist(), start=1):
            all_but_smallest = int(ascending.sum()) - smallest
            model.add(sum(self.ticks[n_slots - m :]) <= self.total - all_but_smallest)

        # The other circuits of the line need a slot each.
        for pair in pairs:
            model.add(sum(uses[pair] for uses in self.uses) <= n_spare_slots + 1)

    def read(self, outcome: Outcome) -> Plan:
        """Return the plan of a solution of CP-SAT."""
        return read_plan(outcome, self.uses, self.ticks, self.n)


_WARM_STARTS = 200  # plans before the first model
_FEW_STARTS = 30  # the same before the model of planes, or after a former plan
_LARGEST = 20_000  # the most circuits in all slots of a model: larger ones are refused
_WRITTEN_PER_S = 8_000  # circuits written and presolved in a second, during which no clock is read


def solve_makespan(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
) -> Solution:
    """Finish a demand as early as possible, and prove it.

    There are three cases, by the switch and the size of the demand:

    1. one plane of an ideal switch, which holds every permutation, without packet network, and
       where all circuits stop while any changes (all-stop): an exact search by CP-SAT over the
       number of slots, which are matchings held for some ticks each;
    2. at most `MOST_PORTS` ports on other ideal switches: plans from quick rules for half of the
       time, then an exact model of all planes;
    3. the rest: the plans of the method `best`, with the lower bound of the problem.
    """
    holds_permutations = problem.fabric.graph is None and not problem.fabric.bidirectional
    has_one_plane = problem.planes == 1 and problem.packet_share == 0
    is_plain = holds_permutations and has_one_plane and problem.switching == "all-stop"

    # No exact model for these: plans of the search, with the bound of the problem.
    if not is_plain and (not holds_permutations or problem.fabric.n_ports > MOST_PORTS):
        return solve_demand(problem, limits, rng, on_event, "ilp", yield_plans, start=start)

    # A few plans of quick rules, of which a former plan leaves less to find: the exact models then
    # look for better ones alone. The model of all planes takes long, and has half of the time.
    clock = limits.start()
    few = limits.at_most(_WARM_STARTS if is_plain and start is None else _FEW_STARTS)
    if not is_plain and limits.time_s is not None:
        few = replace(few, time_s=limits.time_s / 2)
    solution = solve_demand(problem, few, rng, on_event, "ilp", yield_plans, start=start)
    if solution.limit in (None, Limit.INTERRUPTED) or solution.objective is None:
        return solution
    if is_plain:
        return prove_by_slot_counts(problem, solution, clock, rng, on_event)
    return finish_small(problem, solution, clock, rng, on_event)


def prove_by_slot_counts(
    problem: Demand, solution: Solution, clock: Clock, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Improve on a schedule by exact models of all numbers of slots, or prove it the best.

    `solution` has the schedule, and the result keeps the name of its method.
    """
    search = _MakespanSearch(problem, solution, clock, rng, on_event)
    with stoppable() as stop:
        stop.limit = search.refute_slot_counts()
    best = search.best
    stats = {**solution.stats, "slots": len(best.ticks)}
    if search.by_search:
        stats["bound_by"] = "cp-sat"
    bound_s = max(problem.lower_bound(), search.bound * problem.tick_s)
    proved = conclude(
        problem,
        solution.method,
        best.cost(search.delay) * problem.tick_s,
        bound_s,
        stop.limit,
        rtol=tick_rtol(bound_s, problem.tick_s),
        schedule=problem.schedule(best.matchings, best.ticks),
        stats=stats,
    )
    return certify(proved, clock)


class _MakespanSearch:
    """The search over numbers of slots, with the best plan and the bound so far.

    Attributes
    ----------
    demand
        ``demand[source, destination]`` in ticks, shape (n, n).
    delay, shortest
        The ticks before each slot, and those of the shortest slot.
    busiest
        The sum of the busiest line in ticks: all slots last at least so long together.
    fewest
        The most entries of a line: there are at least so many slots.
    best
        The best plan, at first that of the solution with which the search begins.
    bound
        No plan takes less, in ticks with delays.
    by_search
        Whether the bound comes from a refutation by CP-SAT rather than from a formula.
    """

    def __init__(
        self,
        problem: Demand,
        solution: Solution,
        clock: Clock,
        rng: np.random.Generator,
        on_event: OnEvent,
    ) -> None:
        """Prepare the search for a shorter plan than that of a solution of a demand.

        The search goes through the numbers of slots that a plan may have; the busiest lines give
        first lower bounds.
        """
        best = former_plan(problem, solution)
        assert best is not None  # the solution has a schedule
        self.problem = problem
        self.best: Plan = best
        self.clock = clock
        self.rng = rng
        self.on_event = on_event
        self.demand = problem.ticks
        self.delay = problem.delay_ticks
        self.shortest = problem.min_slot_ticks

        # All slots together last as long as the greatest sum of a line, and a line needs a slot
        # for each of its entries.
        lines = np.concatenate([self.demand, self.demand.T])
        self.busiest = int(lines.sum(axis=1).max())
        self.fewest = int((lines > 0).sum(axis=1).max())
        self.bound = round(problem.lower_bound() / problem.tick_s)
        self.by_search = False

    def _least_ticks(self) -> int:
        """Return the time of the best plan in ticks."""
        return self.best.cost(self.delay)

    def _raise_bound(self, bound: int) -> None:
        """Raise the bound to what CP-SAT has proved, if that is more."""
        if bound > self.bound:
            self.bound = bound
            self.by_search = True
            self.on_event(Bound(bound * self.problem.tick_s))

    def refute_slot_counts(self) -> Limit | None:
        """Ask CP-SAT for each number of slots, in rising order, whether a plan is better.

        The cost of a plan is the sum of all durations and delays, in ticks. A number of slots is
        settled when no plan of so many slots is cheaper than ``self.best``. Once all numbers up to
        k are settled, any better plan has k + 1 slots or more, so it costs at least k + 1 delays
        and the sum of the busiest line: this is what the lower bound ``self.bound`` is raised to
        (`_lift_beyond`). The search ends when that alone is no less than the cost of the best
        plan: the result is None, and else the limit that was met before.
        """
        # With more slots than these, delays and the busiest line alone take as long as the best
        # plan so far.
        slot_counts = takewhile(
            lambda k: k * self.delay + self.busiest < self._least_ticks(), count(self.fewest)
        )
        while True:
            verdict = refute_in_turn(
                slot_counts, self._ask_for_slots, self.clock, self._lift_beyond
            )

            # The verdict names the first number of slots that is not refuted: `count` is None
            # where all are. Its `answer` is the better plan that was found, its `outcome` the
            # run of CP-SAT, None if a limit came before it.
            if verdict.count is None:
                self._raise_bound(self._least_ticks())
                return None
            if verdict.outcome is None:
                return verdict.limit
            if verdict.answer is not None:
                self.best = trim(verdict.answer, self.demand, self.shortest)
                self.on_event(NewBest(self._least_ticks() * self.problem.tick_s))

            # A limit ended the run: even with a better plan this number of slots stays open.
            if not verdict.outcome.optimal:
                self._lift_beyond(verdict.count, verdict.outcome.lower_bound)
                return verdict.limit

            # The best plan of so many slots is known. More slots may be shorter together.
            self._lift_beyond(verdict.count)

    def _lift_beyond(self, slots: int, durations_bound: float = np.inf) -> None:
        """Raise the bound to what plans of so many slots and of more take, as fewer are settled.

        A plan takes the durations of its slots and a delay for each. Those of so many slots last
        at least `durations_bound`, infinite if such plans are settled, too; more slots take more
        delays, and last as long as the busiest line.
        """
        with_so_many = slots * self.delay + max(self.busiest, durations_bound)
        with_more = (slots + 1) * self.delay + self.busiest
        self._raise_bound(int(min(with_so_many, with_more, self._least_ticks())))

    def _ask_for_slots(self, slots: int) -> Asked[Plan] | Limit:
        """Ask CP-SAT for a plan of exactly so many slots that is better than the best one.

        Returns the model and its outcome, or the limit for which there is no model.
        """
        # A model that is too large, or takes longer to write than there is time, is not made.
        circuits = slots * np.count_nonzero(self.demand)
        if circuits > _LARGEST:
            return Limit.MEMORY
        if circuits > _WRITTEN_PER_S * self.clock.remaining_s:
            return Limit.TIME
        most = self._least_ticks() - 1 - slots * self.delay
        model = SlotModel(self.demand, slots, shortest=self.shortest, most=most)
        return model, model.solve(self.clock, self.on_event, seed=draw_seed(self.rng))
