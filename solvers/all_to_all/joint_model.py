"""Pairs, slots and routes of an all-to-all on a small mesh, in one model for CP-SAT.

For every slot and source port there is a flow of light (`cpsat`) that is lit if the port starts a
circuit in the slot, and that ends where the pair that was chosen ends.
"""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from optmatch.model import Clock, ignore
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all.planner import RoutedSlot, SlotPlanner
from optmatch.solvers.cpsat import LightFlow, Literal, Outcome, minimise, share_links
from optmatch.solvers.routing.router import CellRouter

MOST_LITERALS = 150_000
"""Larger models are not built: CP-SAT would not get anywhere with them."""


def decide_fewest(
    problem: AllToAll,
    clock: Clock,
    rng: np.random.Generator,
    most_literals: int = MOST_LITERALS,
    slots: int | None = None,
) -> list[RoutedSlot] | bool:
    """Find a schedule in the fewest slots, or tell whether it is refuted that there is one.

    Returns the slots; True if there are none; False if that stays open, as it does for models of
    more than `most_literals`. `slots` is another number of them than the fewest by counting.
    """
    model = JointModel(problem, problem.min_slots if slots is None else slots)
    if model.n_literals > most_literals:
        return False
    model.add_slots()
    outcome = minimise(model.model, clock, ignore, seed=int(rng.integers(1 << 30)))
    if not outcome.found:
        return bool(outcome.infeasible)
    return model.plan(
        outcome, SlotPlanner(problem, CellRouter(problem.fabric), clock, rng, ignore)
    )


class JointModel:
    """The model for a given number of slots."""

    def __init__(self, problem: AllToAll, slots: int) -> None:
        self.problem = problem
        self.slots = slots
        self.fabric = problem.fabric
        self.graph = CellRouter(problem.fabric).graph
        self.pairs = [(int(i), int(j)) for i, j in problem.pairs]
        self.sources = sorted({i for i, _ in self.pairs})
        self.joined = np.flatnonzero(self.graph.mate >= 0).tolist()
        self.n_literals = slots * len(self.sources) * len(self.joined)
        self.model = cp_model.CpModel()
        self.meets: list[dict[tuple[int, int], Literal]] = []
        self.flows: list[dict[int, LightFlow]] = []

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
        flows: dict[int, LightFlow] = {}
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
            flows[port] = LightFlow(
                self.model, self.graph, int(source[port]), on, ends, self.joined
            )
            lit.append((flows[port], on))
        share_links(self.model, self.graph, lit)
        self.meets.append(meets)
        self.flows.append(flows)

    def plan(self, outcome: Outcome, planner: SlotPlanner) -> list[RoutedSlot]:
        """Read the slots out of a solution."""
        plan = []
        for meets, flows in zip(self.meets, self.flows, strict=True):
            slot = planner.empty_slot()
            for (i, j), literal in meets.items():
                if outcome.holds(literal):
                    terminals = flows[i].terminals(outcome)
                    slot = planner.with_circuit(slot, i, j, terminals)
            plan.append(slot)
        return plan
