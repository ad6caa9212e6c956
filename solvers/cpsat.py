"""CP-SAT with clock, events and Ctrl-C of this package, and the model of circuits as flows.

Light of one circuit that enters a cell at one end leaves it at the other, so a circuit is a flow
over the terminals it leaves by: for each cell and direction, as much goes out as came in. The
state of the cell needs no variable: links carry one circuit, so two ways through a cell in
different states would share one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from optmatch.fabrics import CellGraph
from optmatch.model import FREE, Bound, Clock, Limit, NewBest, OnEvent, SolverError, Tick

WORKERS = 4  # interleaved, so that a run is the same on every machine
_POLL_S = 0.05
_SMALL = 5_000  # variables
_FIRST_WORK = 0.01  # seconds that CP-SAT counts by its steps
_CONFLICT_WORK = 0.05  # the same seconds, for each step that a limit allows

_SETTLED = (cp_model.OPTIMAL, cp_model.INFEASIBLE, cp_model.MODEL_INVALID)

Literal = Any  # a Boolean variable of CP-SAT, or 0 or 1


class Outcome:
    """The outcome of CP-SAT: its status, values by variable, and why it stopped."""

    def __init__(self, solver: cp_model.CpSolver, status: Any, limit: Limit | None) -> None:
        self.infeasible = status == cp_model.INFEASIBLE
        self.optimal = status == cp_model.OPTIMAL
        self.found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        self.limit = limit
        bound = np.inf if self.infeasible else solver.best_objective_bound
        self.lower_bound = float(np.ceil(bound - 1e-6))  # objectives are whole numbers of cells
        self._solver = solver

    def holds(self, literal: Literal) -> bool:
        """Tell whether a literal is true in the solution."""
        return bool(self._solver.value(literal))

    def value(self, variable: Any) -> int:
        """Return the value of a variable in the solution."""
        return int(self._solver.value(variable))


def minimise(
    model: cp_model.CpModel,
    clock: Clock,
    on_event: OnEvent,
    *,
    seed: int,
    workers: int = WORKERS,
    linear: bool = True,
    work: float = np.inf,
    tell: bool = True,
) -> Outcome:
    """Run CP-SAT until it is done, a limit is reached, or Ctrl-C.

    Parameters
    ----------
    clock
        The time limit bounds the run; the iterations bound the conflicts, and the steps.
    on_event
        Called from this thread for each better solution, and with the bound at the end.
    linear
        Whether linear relaxations help; without them, models of conditions are searched faster.
    work
        A limit on the work, in seconds that CP-SAT counts by its steps: without a clock.
    tell
        Whether events report found values; not where CP-SAT has another objective than the
        problem.
    """
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = workers
    parameters.interleave_search = workers > 1  # one worker ignores a limit of conflicts
    parameters.random_seed = seed
    if not linear:
        parameters.linearization_level = 0
    parameters.catch_sigint_signal = False
    if np.isfinite(clock.remaining_s):
        parameters.max_time_in_seconds = max(clock.remaining_s, 1e-3)
    if clock.limits.iterations is not None:
        # several strategies may work for ever without a conflict
        parameters.max_number_of_conflicts = clock.limits.iterations
        work = min(work, _FIRST_WORK + _CONFLICT_WORK * clock.limits.iterations)
    parameters.max_deterministic_time = work
    best: list[float] = []
    limit: Limit | None = None

    class Note(cp_model.CpSolverSolutionCallback):
        """Notes the objective of each solution."""

        def on_solution_callback(self) -> None:
            """Keep the objective for the thread that reports."""
            best.append(self.objective_value)

    status: list[Any] = []

    def run() -> None:
        """Solve the model; a small one goes to a single worker first, which may settle it."""
        # CP-SAT 9.15 aborts if a worker beside others settles the model as it loads it:
        # https://github.com/google/or-tools/issues/5025
        if workers > 1 and len(model.proto.variables) <= _SMALL:
            parameters.num_workers = 1
            parameters.max_deterministic_time = min(work, _FIRST_WORK)
            first = solver.solve(model)
            if first in _SETTLED or limit is not None:
                best.extend([solver.objective_value] if first == cp_model.OPTIMAL else [])
                status.append(first)
                return
            parameters.num_workers = workers
            parameters.max_deterministic_time = work
        status.append(solver.solve(model, Note()))

    worker = threading.Thread(target=run, daemon=True)
    told = 0
    worker.start()
    on_event(Tick("cp-sat", 0))
    while worker.is_alive() or told < len(best):
        try:
            worker.join(_POLL_S)
            for objective in best[told:]:
                told += 1
                if tell:
                    on_event(NewBest(objective))
        except KeyboardInterrupt:
            limit = Limit.INTERRUPTED
            solver.stop_search()
    if not status or status[0] == cp_model.MODEL_INVALID:
        raise SolverError("CP-SAT refused the model or failed")
    outcome = Outcome(solver, status[0], limit)
    if not (outcome.optimal or outcome.infeasible) and limit is None:
        outcome.limit = Limit.TIME if clock.limits.iterations is None else Limit.ITERATIONS
    if tell and np.isfinite(outcome.lower_bound):
        on_event(Bound(outcome.lower_bound))
    return outcome


class LightFlow:
    """The light of one circuit as variables: ``leaves[terminal]`` is true where it leaves a cell.

    `ends` says for each free terminal at which it may leave the fabric whether it does; `allowed`
    are the terminals by which it may leave a cell and go on.
    """

    def __init__(
        self,
        model: cp_model.CpModel,
        graph: CellGraph,
        source: int,
        lit: Literal,
        ends: dict[int, Literal],
        allowed: Iterable[int],
    ) -> None:
        self.source = source
        self.leaves: dict[int, Literal] = {t: model.new_bool_var("") for t in allowed}
        self.leaves.update(ends)
        self.graph = graph
        mate = graph.mate
        entered_at = [int(mate[t]) for t in self.leaves if mate[t] >= 0] + [source]
        passages = {(t >> 2, (t >> 1) & 1) for t in self.leaves}
        passages |= {(t >> 2, 1 - ((t >> 1) & 1)) for t in entered_at}
        for cell, end in sorted(passages):  # light that crosses a cell towards this end
            entered = (4 * cell + 2 * (1 - end), 4 * cell + 2 * (1 - end) + 1)
            left = (4 * cell + 2 * end, 4 * cell + 2 * end + 1)
            for came, gone in (
                [(entered, left)]
                if graph.stuck[cell] == FREE
                else [((t,), (int(graph.exits[t, 0]),)) for t in (*entered, *left)]
            ):
                comes = [self.leaves[int(mate[t])] for t in came if int(mate[t]) in self.leaves]
                comes += [lit] if source in came else []
                model.add(sum(comes) == sum(self.leaves[t] for t in gone if t in self.leaves))

    def terminals(self, outcome: Outcome) -> list[int]:
        """Follow the light from the source; loops beside the route are left out."""
        found: list[int] = []
        entered = self.source
        while entered >= 0:
            ways = [int(t) for t in self.graph.exits[entered] if t in self.leaves]
            taken = [t for t in ways if outcome.holds(self.leaves[t]) and t not in found]
            if not taken:
                raise SolverError("a flow of CP-SAT ends inside the fabric")
            found.append(taken[0])
            entered = int(self.graph.mate[taken[0]])
        return found


def share_links(
    model: cp_model.CpModel, graph: CellGraph, flows: Iterable[tuple[LightFlow, Literal]]
) -> None:
    """Let each link carry one circuit at most; flows come with whether they are lit."""
    users: dict[int, list[Literal]] = {}
    for flow, lit in flows:
        users.setdefault(int(graph.links.of_terminal[flow.source]), []).append(lit)
        for terminal, leaves in flow.leaves.items():
            users.setdefault(int(graph.links.of_terminal[terminal]), []).append(leaves)
    for literals in users.values():
        if len(literals) > 1:
            model.add(sum(literals) <= 1)
