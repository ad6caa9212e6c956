"""All slots of an all-to-all on a small mesh in one CP-SAT model, and the search by it.

A Boolean variable says for each slot and pair whether the pair meets in the slot. A flow
(`cpsat.LightFlow`) for each slot and source port is its route: a unit of light from the port to
its partner, if the port has one in the slot.

The terminals of cell k are 4 * k + 0 to 3; a route is a list of those by which light leaves cells.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from optmatch.model import Clock, Limit, OnEvent, Solution, Status, ignore
from optmatch.problems import AllToAll
from optmatch.solvers.all_to_all.conclusion import (
    FEWEST_SLOTS,
    REFUTED_BY_PRICES,
    REFUTED_BY_SEARCH,
    conclude,
)
from optmatch.solvers.all_to_all.planner import Decision, RoutedSlot, SlotPlanner
from optmatch.solvers.cpsat import LightFlow, Literal, Outcome, share_links
from optmatch.solvers.exact_models import Asked, ExactModel, draw_seed, refute_in_turn
from optmatch.solvers.frame import stoppable
from optmatch.solvers.routing.router import CellRouter

RoutedPairs = list[dict[tuple[int, int], list[int]]]
"""``routed[slot][source, destination]``: the pairs that meet in a slot, each with the terminals by
which its light leaves the cells of its route."""

MOST_LITERALS = 150_000
"""Larger models are not built: CP-SAT would not get anywhere with them."""


def decide_fewest(
    problem: AllToAll,
    clock: Clock,
    rng: np.random.Generator,
    most_literals: int = MOST_LITERALS,
    slots: int | None = None,
) -> Decision:
    """Find a schedule in `slots` slots (None: the fewest) by CP-SAT, or prove that there is none.

    With a model of more than `most_literals` the question stays open.
    """
    model = JointModel(problem, problem.min_slots if slots is None else slots)
    if model.n_literals > most_literals:
        return Decision(None, refuted=False)
    model.add_slots()
    outcome = model.solve(clock, ignore, seed=draw_seed(rng))
    if not outcome.found:
        return Decision(None, outcome.infeasible)
    planner = SlotPlanner(problem, CellRouter(problem.fabric), clock, rng, ignore)
    return Decision(_make_slots(model.read(outcome), planner), refuted=False)


class JointModel(ExactModel[RoutedPairs]):
    """The model of a schedule in a given number of slots, which `build` writes.

    Attributes
    ----------
    joined : list of int
        The terminals that a waveguide joins to another one.
    meets : list of dict
        ``meets[slot][source, destination]``: the literal that the pair meets in the slot.
    flows : list of dict
        ``flows[slot][source]``: the light of a port in the slot.
    n_literals : int
        About how many literals the model has, known before it is built: one for each slot, each
        sending port and each joined terminal.
    """

    tells = True

    def __init__(self, problem: AllToAll, slots: int) -> None:
        """Begin a model without variables, and estimate its size."""
        super().__init__()
        self.problem = problem
        self.slots = slots
        self.fabric = problem.fabric
        self.graph = CellRouter(problem.fabric).graph
        self.pairs = [(int(i), int(j)) for i, j in problem.pairs]
        self.sources = sorted({i for i, _ in self.pairs})
        self.joined = np.flatnonzero(self.graph.mate >= 0).tolist()
        self.n_literals = slots * len(self.sources) * len(self.joined)
        self.meets: list[dict[tuple[int, int], Literal]] = []
        self.flows: list[dict[int, LightFlow]] = []

    def build(self, below: float | None) -> None:
        """Add all constraints and the objective; schedules have fewer cells than `below`."""
        self.add_slots()

        # A literal of ``exit_literals`` is 1 if light leaves a cell by some terminal. Each cell on
        # a route is left once, hence the literals of all slots add up to the cells passed.
        n_cells_passed = sum(
            sum(flow.exit_literals.values()) for flows in self.flows for flow in flows.values()
        )
        if below is not None:
            self.model.add(n_cells_passed <= round(below) - 1)
        self.model.minimize(n_cells_passed)

    def add_slots(self) -> None:
        """Add all slots to the model, and let every pair meet in exactly one."""
        for _ in range(self.slots):
            self._add_slot()
        for pair in self.pairs:
            self.model.add_exactly_one(slot[pair] for slot in self.meets)

        # Slots can be renamed without any change. The pairs of port 0 meet in different slots; to
        # fix these slots rules out all schedules that differ in names only.
        pairs_of_first_port = [pair for pair in self.pairs if pair[0] == 0]
        for slot, pair in enumerate(pairs_of_first_port):
            self.model.add(self.meets[slot][pair] == 1)

    def _add_slot(self) -> None:
        """Add the variables and constraints of one slot: a matching, and light that follows it.

        The light of a source port ends at its partner, and no two share a link.
        """
        # `lit` has each flow with the literal that it has light.
        meets = {pair: self.model.new_bool_var("") for pair in self.pairs}
        source = self.fabric.source_terminals
        target = self.fabric.destination_terminals
        flows: dict[int, LightFlow] = {}
        lit = []
        for port in range(self.fabric.n_ports):
            sends = [meets[pair] for pair in self.pairs if pair[0] == port]
            receives = [meets[pair] for pair in self.pairs if pair[1] == port]

            # A port sends to one other at most, and receives from one.
            if self.fabric.bidirectional:
                self.model.add_at_most_one(sends + receives)
            else:
                self.model.add_at_most_one(receives)
                self.model.add_at_most_one(sends)
            if not sends:
                continue

            # The light of a port is on in this slot if one of its pairs meets.
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

    def read(self, outcome: Outcome) -> RoutedPairs:
        """Read out of a solution which pairs meet in each slot, and their routes."""
        routed = []
        for meets, flows in zip(self.meets, self.flows, strict=True):
            meeting = [pair for pair, literal in meets.items() if outcome.holds(literal)]
            routed.append({pair: flows[pair[0]].terminals(outcome) for pair in meeting})
        return routed


def _make_slots(routed: RoutedPairs, planner: SlotPlanner) -> list[RoutedSlot]:
    """Make the slots of a schedule from the pairs that meet in each, and their routes."""
    slots = []
    for route_of_pair in routed:
        slot = planner.empty_slot()
        for (source, destination), terminals in route_of_pair.items():
            slot = planner.with_circuit(slot, source, destination, terminals)
        slots.append(slot)
    return slots


_SECONDS_LITERALS = 3_000
"""Models of this size are solved in seconds: 19 cells with 6 ports."""
_MINUTES_LITERALS = 10_000
"""Models of this size take minutes at most: 38 cells with 8 ports."""


def is_small(problem: AllToAll, clock: Clock, slots: int | None = None) -> bool:
    """Tell whether CP-SAT solves the model in seconds, or in minutes if the time is limited."""
    max_literals = _SECONDS_LITERALS if clock.limits.time_s is None else _MINUTES_LITERALS
    return JointModel(problem, slots or problem.min_slots).n_literals <= max_literals


def finish_small(
    problem: AllToAll,
    solution: Solution,
    clock: Clock,
    rng: np.random.Generator,
    on_event: OnEvent,
) -> Solution:
    """Let the exact model improve on a schedule, or prove it optimal, where the model is small."""
    with stoppable() as stop:
        if solution.schedule is None or not is_small(problem, clock, solution.schedule.n_slots):
            return solution
        return improve(problem, solution, clock, rng, on_event)
    return replace(solution, limit=stop.limit)


def improve(
    problem: AllToAll, start: Solution, clock: Clock, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Improve on a schedule by an exact model (CP-SAT): fewer slots first, then fewer cells.

    CP-SAT is asked for a schedule in k slots, for one k after another, from the fewest that are
    not refuted to as many as `start` has; with as many, for one of fewer cells. With a start of 7
    slots, of which 5 are the fewest, it is asked for 5, for 6, and for 7 with fewer cells. An
    iteration is a conflict of CP-SAT. The result is `start` with what was proved about it, or a
    better solution.
    """
    assert start.schedule is not None
    start_slots = start.schedule.n_slots
    fewest = problem.min_slots
    verdict_on_fewest = str(start.stats.get(FEWEST_SLOTS, ""))
    if verdict_on_fewest.startswith((REFUTED_BY_PRICES, REFUTED_BY_SEARCH)):
        fewest = max(fewest + 1, start.stats["slots_lower_bound"])
    ask = partial(_ask_for_slots, problem, start, clock, rng, on_event)
    verdict = refute_in_turn(range(fewest, start_slots + 1), ask, clock)
    limit = verdict.limit

    # All is refuted, also fewer cells in as many slots: the start is optimal.
    if verdict.count is None:
        return _with_proof(start, start.objective or 0.0, None, start_slots)

    # A limit came before CP-SAT ran for this number of slots: nothing is known about it.
    if verdict.outcome is None:
        return replace(start, limit=limit)

    # A limit came while it ran. Its bound on cells is one for this number of slots, hence of use
    # only if the start has as many.
    if verdict.answer is None:
        bound = start.lower_bound
        if verdict.count == start_slots:
            bound = verdict.outcome.lower_bound
        return _with_proof(start, bound, limit, verdict.count)

    # A better schedule was found. Its cells may be polished, unless Ctrl-C has come.
    planner = SlotPlanner(problem, CellRouter(problem.fabric), clock, rng, on_event)
    planner.plan = _make_slots(verdict.answer, planner)
    with stoppable() as stop:
        solution = conclude(planner, limit, "ilp", polish=limit is not Limit.INTERRUPTED)
    if stop.limit is not None:
        limit = stop.limit
        solution = conclude(planner, limit, "ilp", polish=False)

    # The certificate of the start stays if it proves more slots than the new one does; the bound
    # on cells is then that of the problem.
    if start.stats["slots_lower_bound"] > solution.stats["slots_lower_bound"]:
        bounds = {name: start.stats[name] for name in ("slots_lower_bound", FEWEST_SLOTS)}
        solution = replace(
            solution,
            lower_bound=problem.lower_bound(),
            certificate=start.certificate,
            stats={**solution.stats, **bounds},
        )
    return _with_proof(solution, verdict.outcome.lower_bound, limit, verdict.count)


def _ask_for_slots(
    problem: AllToAll,
    start: Solution,
    clock: Clock,
    rng: np.random.Generator,
    on_event: OnEvent,
    n_slots: int,
) -> Asked[RoutedPairs] | Limit:
    """Ask CP-SAT for a schedule of `n_slots`, of fewer cells than `start` if that has as many.

    Returns the model with its outcome, or `Limit.MEMORY` if the model would be too large.
    """
    model = JointModel(problem, n_slots)
    if model.n_literals > MOST_LITERALS:
        return Limit.MEMORY
    undercuts = start.schedule is not None and n_slots == start.schedule.n_slots
    model.build(below=start.objective if undercuts else None)
    return model, model.solve(clock, on_event, seed=draw_seed(rng))


def _with_proof(
    solution: Solution, bound: float, limit: Limit | None, refuted_below: int
) -> Solution:
    """Return a copy of a solution with the status and bound that CP-SAT has proved.

    `bound` is a lower bound of the cells of schedules with as many slots, and all schedules of
    fewer than `refuted_below` slots are refuted. The solution is optimal if it meets both.
    """
    objective = solution.objective or 0.0
    bound = min(max(bound, solution.lower_bound), objective)
    slots = solution.schedule.n_slots if solution.schedule is not None else 0
    optimal = bound >= objective and slots == refuted_below
    stats = {**solution.stats, "bound_by": "cp-sat"}
    if solution.stats["slots_lower_bound"] < min(slots, refuted_below):
        stats[FEWEST_SLOTS] = REFUTED_BY_SEARCH
    return replace(
        solution,
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        limit=None if optimal else (limit or Limit.EXHAUSTED),
        lower_bound=bound,
        stats=stats,
    )
