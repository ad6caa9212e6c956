"""Method `ilp` for all-to-all on small meshes: pairs, slots and routes in one model.

For every slot and source port there is a flow of light (`cpsat`) that is lit if the port starts a
circuit in the slot, and that ends where the pair that was chosen ends.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from ortools.sat.python import cp_model

from optmatch.model import Clock, Limit, Limits, OnEvent, Solution, Status, ignore
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all.factorise import schedule_all, without_routing
from optmatch.solvers.all_to_all.factory import REFUTED_BY_SEARCH, SHORT, Factory, Slot
from optmatch.solvers.all_to_all.live import on_live_ports
from optmatch.solvers.all_to_all.slot_shortage import names_faults
from optmatch.solvers.cpsat import Flow, Literal, Outcome, minimise, share_links
from optmatch.solvers.routing.router import Router

MOST_LITERALS = 150_000
"""Larger models are not built: CP-SAT would not get anywhere with them."""


def decide_fewest(
    problem: AllToAll, clock: Clock, rng: np.random.Generator, most_literals: int = MOST_LITERALS
) -> list[Slot] | bool:
    """Find a schedule in the fewest slots, or tell whether it is refuted that there is one.

    Parameters
    ----------
    problem
        On live ports.
    clock
        Limits time and conflicts of CP-SAT.
    rng
        Source of its seed.
    most_literals
        Larger models are not built.

    Returns
    -------
    list of Slot or bool
        The slots; True if there are none; False if that stays open.
    """
    model = _Model(problem, problem.min_slots)
    if model.n_literals > most_literals:
        return False
    model.add_slots()
    outcome = minimise(model.model, clock, ignore, seed=int(rng.integers(1 << 30)))
    if not outcome.found:
        return bool(outcome.infeasible)
    return model.plan(outcome, Factory(problem, Router(problem.fabric), clock, rng, ignore))


@names_faults(decide_fewest)
@on_live_ports
def solve(
    problem: AllToAll, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve an all-to-all problem exactly.

    Parameters
    ----------
    problem
        The problem.
    limits
        An iteration is a conflict of CP-SAT.
    rng
        Source of randomness of the warm start, and of the seeds of CP-SAT.
    on_event
        Listener.

    Returns
    -------
    Solution
        The method `negotiated` goes first; where its total meets the bound of the problem, that is
        the answer. Otherwise the fewest slots are sought one by one, then the least total in them.
        What CP-SAT refutes has no short certificate: ``stats["bound_by"]`` says so.
    """
    clock = limits.start()
    decided = without_routing(problem, "ilp")
    if decided is not None:
        return decided
    start = schedule_all(
        problem, replace(limits, iterations=None), rng, on_event, name="ilp", search=True
    )
    if start.schedule is None or start.limit in (None, Limit.TIME, Limit.INTERRUPTED):
        return start
    return _Search(problem, start, clock, rng, on_event).run()


class _Search:
    """The fewest slots, then the fewest cells, by one model after the other."""

    def __init__(
        self,
        problem: AllToAll,
        start: Solution,
        clock: Clock,
        rng: np.random.Generator,
        on_event: OnEvent,
    ) -> None:
        self.problem = problem
        self.start = start
        self.clock = clock
        self.rng = rng
        self.on_event = on_event

    def run(self) -> Solution:
        """Refute or solve each number of slots up to that of the start."""
        known = self.start.schedule.n_slots if self.start.schedule is not None else 0
        refuted = str(self.start.stats.get(SHORT, "")).startswith("refuted")
        for slots in range(self.problem.min_slots + refuted, known + 1):
            model = _Model(self.problem, slots)
            if model.n_literals > MOST_LITERALS:
                return replace(self.start, limit=Limit.MEMORY)
            model.build(below=self.start.objective if slots == known else None)
            seed = int(self.rng.integers(1 << 30))
            outcome = minimise(model.model, self.clock, self.on_event, seed=seed)
            if outcome.found:
                found = self._schedule(model, outcome)
                return _claim(found, outcome.lower_bound, outcome.limit, slots)
            if not outcome.infeasible:
                bound = outcome.lower_bound if slots == known else self.start.lower_bound
                return _claim(self.start, bound, outcome.limit, slots)
        return _claim(self.start, self.start.objective or 0.0, None, known)

    def _schedule(self, model: _Model, outcome: Outcome) -> Solution:
        """Order the slots of a solution and count, by the means of the search."""
        factory = Factory(
            self.problem, Router(self.problem.fabric), self.clock, self.rng, self.on_event
        )
        factory.plan = model.plan(outcome, factory)
        return factory.finish(outcome.limit, "ilp", polish=outcome.limit is not Limit.INTERRUPTED)


def _claim(found: Solution, bound: float, limit: Limit | None, refuted_below: int) -> Solution:
    """Say what CP-SAT refuted about a schedule: fewer slots, and totals below the bound."""
    objective = found.objective or 0.0
    bound = min(max(bound, found.lower_bound), objective)
    slots = found.schedule.n_slots if found.schedule is not None else 0
    optimal = bound >= objective and slots == refuted_below
    stats = {**found.stats, "bound_by": "cp-sat"}
    if found.stats["slots_lower_bound"] < min(slots, refuted_below):
        stats[SHORT] = REFUTED_BY_SEARCH
    return replace(
        found,
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        limit=None if optimal else (limit or Limit.EXHAUSTED),
        lower_bound=bound,
        stats=stats,
    )


class _Model:
    """The model for a given number of slots."""

    def __init__(self, problem: AllToAll, slots: int) -> None:
        self.problem = problem
        self.slots = slots
        self.fabric = problem.fabric
        self.graph = Router(problem.fabric).graph
        self.pairs = [(int(i), int(j)) for i, j in problem.pairs]
        self.sources = sorted({i for i, _ in self.pairs})
        self.joined = np.flatnonzero(self.graph.mate >= 0).tolist()
        self.n_literals = slots * len(self.sources) * len(self.joined)
        self.model = cp_model.CpModel()
        self.meets: list[dict[tuple[int, int], Literal]] = []
        self.flows: list[dict[int, Flow]] = []

    def build(self, below: float | None) -> None:
        """Add all constraints and the objective; with `below`, only better totals count."""
        self.add_slots()
        cells = sum(sum(flow.leaves.values()) for flows in self.flows for flow in flows.values())
        if below is not None:
            self.model.add(cells <= round(below) - 1)
        self.model.minimize(cells)

    def add_slots(self) -> None:
        """Let every pair meet in one slot, by whatever routes."""
        for _ in range(self.slots):
            self._add_slot()
        for pair in self.pairs:
            self.model.add_exactly_one(slot[pair] for slot in self.meets)
        first = [pair for pair in self.pairs if pair[0] == 0]
        for slot, pair in enumerate(first):  # slots are alike, and port 0 meets one in each
            self.model.add(self.meets[slot][pair] == 1)

    def _add_slot(self) -> None:
        """Choose a matching, and let light flow along it."""
        meets = {pair: self.model.new_bool_var("") for pair in self.pairs}
        source, target = self.fabric.source_terminals, self.fabric.destination_terminals
        flows: dict[int, Flow] = {}
        lit = []
        for port in range(self.fabric.n_ports):
            sends = [meets[pair] for pair in self.pairs if pair[0] == port]
            receives = [meets[pair] for pair in self.pairs if pair[1] == port]
            if self.fabric.bidirectional:
                self.model.add_at_most_one(sends + receives)
            else:
                self.model.add_at_most_one(receives)
                self.model.add_at_most_one(sends)
            if not sends:
                continue
            on = self.model.new_bool_var("")
            self.model.add(sum(sends) == on)
            ends = {int(target[j]): meets[i, j] for i, j in self.pairs if i == port}
            flows[port] = Flow(self.model, self.graph, int(source[port]), on, ends, self.joined)
            lit.append((flows[port], on))
        share_links(self.model, self.graph, lit)
        self.meets.append(meets)
        self.flows.append(flows)

    def plan(self, outcome: Outcome, factory: Factory) -> list[Slot]:
        """Read the slots out of a solution."""
        plan = []
        for meets, flows in zip(self.meets, self.flows, strict=True):
            slot = factory.empty_slot()
            for (i, j), literal in meets.items():
                if outcome.holds(literal):
                    terminals = flows[i].terminals(outcome)
                    slot = factory.with_circuit(slot, i, j, terminals)
            plan.append(slot)
        return plan
