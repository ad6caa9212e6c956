"""CP-SAT with the clock, events and interrupts of this package; circuits as flows of light.

`minimise` runs CP-SAT in a thread of its own, because Python handles signals only between two
instructions of the main thread, and none comes while that thread is inside native code.

`LightFlow` models the route of one circuit as a unit flow. A Boolean variable for each terminal
says whether light goes out of a cell there, and as much light goes out of a cell by one end as has
come in at the other. The state of a cell needs no variable. A link carries one circuit at most,
and two routes that need a cell in different states would share one of its links.

A cell is a 2 x 2 switch with two terminals at each of its ends a and b (0 and 1 in this module). A
circuit enters a cell by a terminal of one end and goes out by one of the other end. In a
`CellGraph`, ``graph.mate[terminal]`` is the joined terminal of the next cell, -1 at the edge of
the fabric; ``graph.exits[terminal]`` are the terminals of the other end to which light from here
comes, one for each state; ``graph.stuck[cell]`` is the state of a cell that cannot change, else
FREE.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from optmatch.fabrics import CellGraph
from optmatch.model import FREE, Bound, Clock, Limit, NewBest, OnEvent, SolverError, Tick

WORKERS = 4
"""Strategies that take turns, whatever the number of processors: runs are the same everywhere."""

_POLL_S = 0.05
"""How often the caller's thread looks for events, for Ctrl-C and at the clock."""

_START_PATIENCE_S = 1.0
"""How long an interrupted start of a thread is waited for; a thread begins within milliseconds."""

_SMALL_MODEL_VARIABLES = 5_000
"""Models of at most so many variables go to a single worker first."""

_FIRST_WORK = 0.01
"""The deterministic time that this single worker gets, in the seconds that CP-SAT counts."""

_WORK_PER_CONFLICT = 0.05
"""The deterministic time that a limit on conflicts allows for each of them, in the same seconds.

Several strategies may work without a conflict for ever. An easy conflict takes a thousandth of it.
"""

_SETTLED = (cp_model.OPTIMAL, cp_model.INFEASIBLE, cp_model.MODEL_INVALID)

Literal = Any
"""A Boolean variable of CP-SAT, or 0 or 1."""


class Outcome:
    """The outcome of a run of CP-SAT.

    Parameters
    ----------
    solver
        The solver after the run; it has the solution.
    status
        What it returned; None if it was stopped before it returned anything.
    limit
        Why the run stopped early; None if it ended by itself.

    Attributes
    ----------
    infeasible, optimal, found
        Whether it is proved that there is no solution; whether the solution is proved to be
        optimal; whether there is a solution at all.
    lower_bound
        The proved bound on the objective, rounded up to a whole number, which all our objectives
        are; infinite if the model is infeasible, minus infinity if nothing is proved.
    limit
        Why the run stopped early; None if it ended by itself.
    """

    def __init__(self, solver: cp_model.CpSolver, status: Any, limit: Limit | None) -> None:
        """Read the status and the bound; values of variables are read when they are asked for."""
        self.infeasible = status == cp_model.INFEASIBLE
        self.optimal = status == cp_model.OPTIMAL
        self.found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        self.limit = limit
        self.lower_bound = -np.inf
        if self.infeasible:
            self.lower_bound = np.inf
        elif status is not None:
            # A bound that is a whole number may come with a rounding error of the relaxation.
            self.lower_bound = float(np.ceil(solver.best_objective_bound - 1e-6))
        self._solver = solver

    def holds(self, literal: Literal) -> bool:
        """Tell whether a literal is true in the solution."""
        return bool(self._solver.value(literal))

    def value(self, variable: Any) -> int:
        """Return the value of a variable in the solution."""
        return int(self._solver.value(variable))


class _SolutionListener(cp_model.CpSolverSolutionCallback):
    """Puts the objective of each new solution on a queue; CP-SAT calls it from its own threads."""

    def __init__(self, objectives: SimpleQueue[float]) -> None:
        """Take the queue, from which another thread reads."""
        super().__init__()
        self._objectives = objectives

    def on_solution_callback(self) -> None:
        """Pass the objective on to the thread that reports."""
        self._objectives.put(self.objective_value)


class _CpSatSearch:
    """One search by CP-SAT in a thread of its own, which can be stopped at any moment.

    A search that still runs native code when the process ends would abort the process, so whoever
    starts one calls `end` before leaving, however that comes about.

    Attributes
    ----------
    solver
        The solver, with its parameters; after the run it has the solution.
    status
        What the solver returned; None before.
    error
        The exception that ended the thread; None if there was none.
    objectives
        The objectives of new solutions, until `take_objectives` takes them.
    ended
        Set when the thread has ended.
    """

    def __init__(self, model: cp_model.CpModel, solver: cp_model.CpSolver) -> None:
        """Take the model and the solver; the thread is started by `start`."""
        self.solver = solver
        self.status: Any = None
        self.error: BaseException | None = None
        self.objectives: SimpleQueue[float] = SimpleQueue()
        # The waiting is for events, never by `join`: up to Python 3.12 a thread counts as dead
        # once a `join` with a timeout was interrupted (CPython issue 90882).
        self.ended = threading.Event()
        self._begun = threading.Event()
        self._stopped = False
        self._model = model

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="optmatch-cp-sat", daemon=True).start()

    def stop(self) -> None:
        """Ask CP-SAT to stop; asking again is allowed, and needed if the search had not begun."""
        self._stopped = True
        self.solver.stop_search()

    def end(self) -> None:
        """Stop the search if it still runs, and wait until it has; further interrupts wait too."""
        polls_left = int(_START_PATIENCE_S / _POLL_S)
        while not self.ended.is_set():
            try:
                self.stop()
                self.ended.wait(_POLL_S)
                # An interrupted start may have started nothing. A thread that begins later finds
                # that it has been stopped, and runs no native code.
                polls_left -= 1
                if polls_left <= 0 and not self._begun.is_set():
                    return
            except KeyboardInterrupt:
                continue

    def take_objectives(self) -> list[float]:
        """Return the objectives of the solutions that are new since the last call."""
        objectives = []
        while True:
            try:
                objectives.append(self.objectives.get_nowait())
            except Empty:
                return objectives

    def _run(self) -> None:
        """Solve the model, and say that the thread has ended whatever happens."""
        self._begun.set()
        try:
            if not self._stopped:
                self._solve()
        except BaseException as error:
            self.error = error  # raised again in the thread of the caller
        finally:
            self.ended.set()

    def _solve(self) -> None:
        """Solve the model; a small one goes to a single worker first, which may settle it.

        CP-SAT 9.15 aborts the process if one of several workers settles the model while it loads
        it: https://github.com/google/or-tools/issues/5025
        """
        parameters = self.solver.parameters
        workers = parameters.num_workers
        work = parameters.max_deterministic_time
        if workers > 1 and len(self._model.proto.variables) <= _SMALL_MODEL_VARIABLES:
            parameters.num_workers = 1
            parameters.max_deterministic_time = min(work, _FIRST_WORK)
            self.status = self.solver.solve(self._model)

            # This run has no listener, so an optimum is told here.
            if self.status == cp_model.OPTIMAL:
                self.objectives.put(self.solver.objective_value)
            if self.status in _SETTLED or self._stopped:
                return
            parameters.num_workers = workers
            parameters.max_deterministic_time = work
        self.status = self.solver.solve(self._model, _SolutionListener(self.objectives))


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
    """Run CP-SAT until it is done, a limit is reached, or Ctrl-C, which is not raised again.

    Events come in the thread of the caller. SolverError says that CP-SAT refuses the model or
    fails: a defect of the caller.

    Parameters
    ----------
    clock
        Its time limit bounds the run. Its limit of iterations bounds the conflicts, and the work.
    workers
        How many strategies take turns.
    linear
        Whether to use linear relaxations; without them, models of conditions are searched faster.
    work
        A limit on the work, in seconds that CP-SAT counts by its steps: no clock is read, so the
        outcome is the same on every machine.
    tell
        Whether events report objectives and bounds; not where the model has another objective than
        the problem.
    """
    solver = _make_solver(clock, seed, workers, linear, work)
    search = _CpSatSearch(model, solver)

    # CP-SAT works in its own thread, and this one waits, so that Ctrl-C comes through. The inner
    # `finally` stops the thread before anything leaves this function.
    limit: Limit | None = None
    try:
        try:
            search.start()
            on_event(Tick("cp-sat", 0))
            while not search.ended.wait(_POLL_S):
                _report(search, on_event, tell)
                if clock.stopped:
                    raise KeyboardInterrupt
            _report(search, on_event, tell)
        finally:
            search.end()
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED

    if search.error is not None:
        raise SolverError(f"CP-SAT failed: {search.error}") from search.error
    if search.status == cp_model.MODEL_INVALID:
        raise SolverError(f"CP-SAT refused the model: {model.validate()}")

    # A run without a proof and without Ctrl-C has reached the limit that it was given.
    outcome = Outcome(solver, search.status, limit)
    if not (outcome.optimal or outcome.infeasible) and limit is None:
        outcome.limit = Limit.TIME if clock.limits.iterations is None else Limit.ITERATIONS
    if tell and np.isfinite(outcome.lower_bound):
        try:
            on_event(Bound(outcome.lower_bound))
        except KeyboardInterrupt:
            outcome.limit = Limit.INTERRUPTED
    return outcome


def _make_solver(
    clock: Clock, seed: int, workers: int, linear: bool, work: float
) -> cp_model.CpSolver:
    """Make a solver of CP-SAT with the parameters of `minimise`.

    What `clock` has left of time and of iterations (conflicts) limits it. `work` limits its
    deterministic time, which does not depend on the machine; `linear` tells whether linear
    relaxations are used.
    """
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = workers
    parameters.interleave_search = workers > 1  # a single worker would ignore limits of conflicts
    parameters.random_seed = seed
    parameters.catch_sigint_signal = False  # Ctrl-C is Python's, which tells `minimise`
    if not linear:
        parameters.linearization_level = 0

    # The limits. Conflicts are limited by work too, as a strategy may go on without any.
    if np.isfinite(clock.remaining_s):
        parameters.max_time_in_seconds = max(clock.remaining_s, 1e-3)
    if clock.limits.iterations is not None:
        parameters.max_number_of_conflicts = clock.limits.iterations
        work = min(work, _FIRST_WORK + _WORK_PER_CONFLICT * clock.limits.iterations)
    parameters.max_deterministic_time = work
    return solver


def _report(search: _CpSatSearch, on_event: OnEvent, tell: bool) -> None:
    """Report the objectives of new solutions; without `tell` they are only taken off the queue."""
    for objective in search.take_objectives():
        if tell:
            on_event(NewBest(objective))


class LightFlow:
    """The route of one circuit, as a flow of Boolean variables.

    Parameters
    ----------
    model
        Receives the variables and the constraints of the flow.
    graph
        The cells, and which terminals are joined.
    source
        The terminal at which the light enters its first cell.
    lit
        The literal that is true if there is a circuit at all; 1 if there must be one.
    ends
        By free terminal, at which the light may leave the fabric: a literal that is true if the
        circuit goes out there.
    allowed
        The joined terminals by which light may leave a cell for the next one.

    Attributes
    ----------
    exit_literals : dict of int to literal
        By terminal: a literal that is true if the circuit goes out of a cell there. Terminals that
        are no key are not used.
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
        """Make the variables, and add the constraints to the model.

        A literal for each terminal in `allowed` says that light leaves a cell there;
        ``ends[terminal]`` are the literals of terminals at which it may leave the fabric, and
        `lit` says whether there is light at all. In each passage of a cell as much light goes out
        as comes in.
        """
        self.graph = graph
        self.source = source
        self.exit_literals: dict[int, Literal] = {}
        for terminal in allowed:
            self.exit_literals[terminal] = model.new_bool_var("")
        self.exit_literals.update(ends)
        self._lit = lit

        # Light that goes out by a terminal enters a cell by the terminal that is joined to it, so
        # both have one literal. A terminal at the edge of the fabric is joined to none (-1).
        self._entry_literals: dict[int, Literal] = {}
        for terminal, literal in self.exit_literals.items():
            joined_terminal = int(graph.mate[terminal])
            if joined_terminal >= 0:
                self._entry_literals[joined_terminal] = literal
        for cell, exit_end in self._passages():
            self._conserve(model, cell, exit_end)

    def _passages(self) -> list[tuple[int, int]]:
        """List the cells that the circuit may cross, each with the end by which it would go out.

        Each is (cell, end), the end 0 for a and 1 for b. A cell that it may cross in both
        directions is listed twice.
        """
        by_exit = {(_cell_of(terminal), _end_of(terminal)) for terminal in self.exit_literals}
        entries = [*self._entry_literals, self.source]
        by_entry = {(_cell_of(terminal), 1 - _end_of(terminal)) for terminal in entries}
        return sorted(by_exit | by_entry)

    def _conserve(self, model: cp_model.CpModel, cell: int, exit_end: int) -> None:
        """Constrain the light that goes out of a cell by one end to what came in at the other."""
        entries = _terminals_at(cell, 1 - exit_end)
        exits = _terminals_at(cell, exit_end)

        # In a cell that works, light from either entry may go out by either exit.
        if self.graph.stuck[cell] == FREE:
            self._balance(model, entries, exits)
            return

        # A stuck cell leads light from each of its terminals to one other, in both directions.
        for entry in (*entries, *exits):
            self._balance(model, (entry,), (int(self.graph.exits[entry, 0]),))

    def _balance(
        self, model: cp_model.CpModel, entries: tuple[int, ...], exits: tuple[int, ...]
    ) -> None:
        """Constrain the light through some terminals of a cell: as much goes out as comes in.

        Adds one linear constraint to `model`; terminals without a literal carry no light. The
        source of the circuit may be one of the entries.
        """
        arriving = [
            self._entry_literals[entry] for entry in entries if entry in self._entry_literals
        ]
        if self.source in entries:
            arriving.append(self._lit)
        leaving = [
            self.exit_literals[terminal] for terminal in exits if terminal in self.exit_literals
        ]
        model.add(sum(arriving) == sum(leaving))

    def terminals(self, outcome: Outcome) -> list[int]:
        """Trace the circuit in a solution: the terminals by which its light leaves each cell.

        The last one is at the edge of the fabric. Loops of light beside the route, which obey the
        constraints too, are left out. SolverError: the flow ends inside the fabric.
        """
        route: list[int] = []
        entry_terminal = self.source
        while entry_terminal >= 0:
            # Light goes out of a cell by one of two terminals, one for each state of the cell.
            exit_terminals = [int(terminal) for terminal in self.graph.exits[entry_terminal]]
            lit_exits = [
                terminal
                for terminal in exit_terminals
                if terminal in self.exit_literals
                and terminal not in route
                and outcome.holds(self.exit_literals[terminal])
            ]
            if not lit_exits:
                raise SolverError("a flow of CP-SAT ends inside the fabric")
            route.append(lit_exits[0])

            # The next cell is entered by the joined terminal; -1 says that the light is outside.
            entry_terminal = int(self.graph.mate[lit_exits[0]])
        return route


def _cell_of(terminal: int) -> int:
    """Return the cell of a terminal: terminals are numbered a1, a2, b1, b2 from cell to cell."""
    return terminal // 4


def _end_of(terminal: int) -> int:
    """Return the end of its cell that a terminal is at: 0 for a, 1 for b."""
    return terminal // 2 % 2


def _terminals_at(cell: int, end: int) -> tuple[int, int]:
    """Return the two terminals at one end of a cell."""
    first = 4 * cell + 2 * end
    return first, first + 1


def share_links(
    model: cp_model.CpModel, graph: CellGraph, flows: Iterable[tuple[LightFlow, Literal]]
) -> None:
    """Let each link carry at most one of the circuits whose literals are true.

    Adds the constraints to `model`; each flow comes with the literal that says whether its circuit
    exists, 1 if it must.
    """
    # Light that enters at the source of a circuit, or goes out by a terminal, is on the link of
    # that terminal. The literals of one link exclude each other.
    link_of_terminal = graph.links.of_terminal
    users_of_link: dict[int, list[Literal]] = {}
    for flow, lit in flows:
        users_of_link.setdefault(int(link_of_terminal[flow.source]), []).append(lit)
        for terminal, literal in flow.exit_literals.items():
            users_of_link.setdefault(int(link_of_terminal[terminal]), []).append(literal)
    for users in users_of_link.values():
        if len(users) > 1:
            model.add(sum(users) <= 1)
