"""Column generation for circuits that share links: link prices, and bounds that can be checked.

The linear programme picks for each circuit a mix of routes such that no link carries more than its
capacity. Routes are added as their reduced cost asks for them, each by one shortest-path search at
the prices of the links. For any prices that are not negative

    sum over circuits of the cheapest path including prices - capacity * sum of all prices

is a lower bound (Lagrange), so a search may stop as soon as some prices prove enough, converged or
not.

A *column* is a variable of the programme: how much of one route of one circuit is taken, from 0 to
1. For each circuit there is a row, the routes of a circuit add up to 1; for each link another one,
routes over it add up to `capacity` at most. To *price* routes is to look for those that would
improve the programme at the present dual values: the price of a link is the dual value of its row,
the *share* of a circuit that of the row of the circuit. The *pool* is the set of columns so far.

A *case* is the matching with some links closed to some circuits, as branch and price makes them.

All pairs of an all-to-all are routed in one linear programme, in which each link may be passed as
often as there are slots. Every schedule is a solution of it, hence its bound holds for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from ortools.linear_solver import pywraplp

from optmatch.fabrics import UNREACHED, walk
from optmatch.model import Clock, SolverError
from optmatch.problems import AllToAll, RoutingProof
from optmatch.solvers.kernels.arrays import make_read_only
from optmatch.solvers.routing.negotiation import ProvedBound
from optmatch.solvers.routing.pathfinder import FAR, UNIT, MeshArrays, find_route
from optmatch.solvers.routing.router import CellRouter

Closed = dict[int, frozenset[int]]
"""For a circuit the terminals by which its light may not leave a cell."""

_TINY = 1e-7  # parts of a circuit, or of a unit of price, below this are rounding errors
_ROUNDS = 10_000  # of pricing: no search needs so many, it converges or its time is over before


@dataclass(frozen=True, slots=True)
class Column:
    """One route of one circuit."""

    circuit: int
    """The number of the circuit."""
    cost: int
    """What the cells on the route cost, in 1/`UNIT` of a cell."""
    terminals: tuple[int, ...]
    """The terminals by which light leaves the cells of the route, in order."""


@dataclass(slots=True)
class PriceBound:
    """The result of the linear programme for a case."""

    value: float = -np.inf
    """The best lower bound of all prices tried, in 1/`UNIT` of a cell."""
    prices: NDArray[np.int64] | None = None
    """(links,): the prices that prove it, in the same unit."""
    infeasible: bool = False
    """Whether the prices prove that the case has no routing; `value` is then no cost of routes."""
    converged: bool = False
    """Whether no further route could improve the programme."""
    weights: dict[Column, float] | None = None
    """How much of each route is taken, more than 0 and up to 1; None unless it has converged."""


class Master:
    """The linear programme over routes, with a pool of columns that lasts from case to case.

    Parameters
    ----------
    router
        Has the wiring of the fabric, and arrays for searches, which are overwritten.
    circuits
        ``circuits[k] = source, destination``: ports, int64, shape (circuits, 2).
    capacity
        How many circuits a link carries: 1 in a single matching, the number of slots where all
        matchings are bounded together.

    Attributes
    ----------
    circuits : list of (int, int)
        The source and the destination port of each circuit.
    port_links : int64 array, shape (circuits,)
        The link at the source of each circuit, which no terminal of its route names.
    wiring : MeshArrays
        The graph with the costs of cells.
    without_cell_costs : MeshArrays
        The same graph where cells cost nothing: then only prices of links count, as in a proof
        that there is no routing.

    Notes
    -----
    ``_variables[column]`` is the variable of each column in ``_lp``, the linear programme; its
    keys are the pool. ``_through[cell]`` lists the columns through a cell, ``_shut`` are terminals
    that faults close to all circuits, and ``_broken`` the columns that faults break.
    """

    def __init__(self, router: CellRouter, circuits: NDArray[np.int64], capacity: int = 1) -> None:
        """Make the programme without any routes; each circuit may be left out at a high cost."""
        self.router = router
        self.circuits = [(int(i), int(j)) for i, j in circuits]
        self.capacity = capacity
        self.wiring = router.wiring
        self.port_links = self.wiring.link[self.wiring.source[[i for i, _ in self.circuits]]]
        nothing = np.zeros_like(router.wiring.cell_cost)
        to_go = np.where(router.wiring.to_go < FAR, 0, FAR)
        make_read_only(nothing, to_go)
        self.without_cell_costs = router.wiring._replace(cell_cost=nothing, to_go=to_go)

        # The pool is empty. To leave a circuit out costs more than four times the longest of the
        # shortest routes.
        self._route = np.zeros(len(router.graph.mate), dtype=np.int32)
        self._variables: dict[Column, Any] = {}
        self._through: dict[int, list[Column]] = {}
        self._shut: frozenset[int] = frozenset()
        self._broken: set[Column] = set()
        longest = max(int(router.least[i, j]) for i, j in self.circuits) / UNIT
        self._lp = _Programme(
            len(circuits), len(router.workspace.use), capacity, dear=4 * longest + 1
        )

    def links_of(self, column: Column) -> NDArray[np.int64]:
        """List the links of a route, by number, as often as it passes them; its port's is last."""
        port_link = self.port_links[column.circuit]
        return np.append(self.wiring.link[list(column.terminals)], port_link)

    def add(self, circuit: int, terminals: tuple[int, ...]) -> bool:
        """Put a route of a circuit into the pool of columns; tell if it is new.

        `circuit` is a number of ``self.circuits``, and `terminals` are those by which its light
        leaves the cells of the route, in order.
        """
        cost = self.cost_of(circuit, terminals)
        column = Column(circuit, cost, terminals)
        if column in self._variables:
            return False
        self._variables[column] = self._lp.add(circuit, cost / UNIT, self.links_of(column))
        for cell in {terminal // 4 for terminal in terminals}:  # four to a cell
            self._through.setdefault(cell, []).append(column)
        return True

    def break_cells(self, wiring: MeshArrays, shut: frozenset[int], cells: Iterable[int]) -> None:
        """Replace the faults of the fabric, and mark the known routes that the new ones break.

        Columns that a fault breaks stay in the pool for other faults, but take no part from now
        on: they are in ``self._broken``.

        Parameters
        ----------
        wiring
            The graph of the same fabric, in which a stuck cell leads light one way in both states.
        shut
            The terminals by which no light leaves a cell.
        cells
            All cells that are broken, stuck or dead. Faults of other cells are no longer there.
        """
        # Only columns through broken cells have to be checked.
        self.wiring = wiring
        self.without_cell_costs = self.without_cell_costs._replace(exits=wiring.exits)
        self._shut = shut
        self._broken = {
            column
            for cell in cells
            for column in self._through.get(cell, ())
            if not self._passes(column)
        }

    def _passes(self, column: Column) -> bool:
        """Tell whether light can still take a route, cell by cell, with the present faults.

        ``exits[entered]`` are the two terminals by which light may leave that enters a cell there:
        twice the same where the cell is stuck.
        """
        entered = int(self.wiring.source[self.circuits[column.circuit][0]])
        for leaving in column.terminals:
            if leaving in self._shut or leaving not in self.wiring.exits[entered]:
                return False
            entered = int(self.wiring.mate[leaving])
        return True

    def bound(
        self,
        closed: Closed,
        enough: float,
        clock: Clock,
        start: PriceBound | None = None,
        rounds: int = _ROUNDS,
    ) -> PriceBound:
        """Bound a case from below, by column generation on routes.

        The programme mixes routes of each circuit so that no link is overdrawn; it begins with the
        routes that are known, and each round of pricing adds those that are cheap at the prices of
        links of the last one.

        Parameters
        ----------
        closed
            The case: for a circuit the terminals by which its light may not leave a cell.
        enough
            The search ends once the bound is more than this, in `UNIT`.
        clock
            The search ends when its time is over, with the best bound so far.
        start
            The bound of a case that this one is part of; it holds here, too.
        rounds
            The most rounds of pricing. With fewer than `_ROUNDS` the caller wants a quick bound:
            it is returned where the programme would have to be solved anew at a higher cost of
            leaving circuits out.

        Returns
        -------
        PriceBound
            With `infeasible`, its prices prove that the case has no routing. The mix of routes is
            known only if it has `converged`.
        """
        # A column that faults break, or that passes a terminal closed to its circuit, is left out
        # of this case by an upper bound of 0 for its variable.
        best = PriceBound(start.value, start.prices) if start is not None else PriceBound()
        for column, variable in self._variables.items():
            shut = closed.get(column.circuit)
            lost = column in self._broken or (shut and not shut.isdisjoint(column.terminals))
            variable.SetUb(0.0 if lost else np.inf)

        # ``_lp.lacking[circuit]`` is the part of a circuit without a route, and costs ``_lp.dear``
        # cells.
        while self._iterate(best, closed, enough, clock, rounds, feasibility=False):
            if sum(variable.solution_value() for variable in self._lp.lacking) <= _TINY:
                best.converged = True
                best.weights = {
                    column: weight
                    for column, variable in self._variables.items()
                    if (weight := variable.solution_value()) > _TINY
                }
                break

            # The programme is solved, but leaves out part of some circuits. Either that cannot be
            # helped, which other prices then prove by a bound above 0, or it costs too little.
            proof = PriceBound()
            self._iterate(proof, closed, 0.0, clock, rounds, feasibility=True)
            if proof.value > 0:
                return proof
            if clock.remaining_s <= 0 or rounds < _ROUNDS:
                break
            self._lp.dear *= 8.0  # leaving circuits out cost too little
        return best

    def _iterate(
        self,
        best: PriceBound,
        closed: Closed,
        enough: float,
        clock: Clock,
        rounds: int,
        *,
        feasibility: bool,
    ) -> bool:
        """Solve the programme and price routes in turn; `best` receives the best bound.

        ``closed[circuit]`` are terminals by which the light of a circuit may not leave a cell. It
        ends once the bound is more than `enough`, in 1/`UNIT` of a cell, the time of `clock` is
        over, or after so many `rounds`. With `feasibility` only the part of the circuits counts
        that gets no route: cells cost nothing, and a bound above 0 proves that the case has no
        routing. True if no route improves the programme any more; False if the bound is enough, or
        the time or the rounds are used up.
        """
        self._lp.set_costs({v: c.cost / UNIT for c, v in self._variables.items()}, feasibility)
        wiring = self.without_cell_costs if feasibility else self.wiring
        for _ in range(rounds):
            shares, prices = self._lp.solve()

            # The bound (Lagrange): the cheapest paths of all circuits, of which one without any
            # counts `FAR`, less all that the links could be paid. Routes of negative reduced cost,
            # whose cost with prices is below the dual value ``shares[k]`` of their circuit, join
            # the pool.
            value = -float(self.capacity * int(prices.sum()))
            has_new_columns = False
            for k in range(len(self.circuits)):
                closed_to_circuit = closed.get(k, frozenset())
                cost, terminals = self.find_cheapest_path(wiring, k, prices, closed_to_circuit)
                value += cost
                if terminals and cost / UNIT < shares[k] - 1e-6:
                    has_new_columns |= self.add(k, terminals)
            if value > best.value:
                best.value = value
                best.prices = prices
                # Without any path of a circuit the bound is `FAR` or more.
                best.infeasible = feasibility or value > FAR // 2
            if best.value > enough or clock.remaining_s <= 0:
                return False
            if not has_new_columns:
                return True
        return False

    def pay_prices(self, prices: NDArray[np.int64]) -> list[int]:
        """List what each circuit pays at ``prices[link]`` alone, on its cheapest path.

        The prices are a proof that there are no routes if the circuits have to pay more than all
        links together would get that are passed as often as their capacity allows.
        """
        wiring = self.without_cell_costs
        numbers = range(len(self.circuits))
        return [self.find_cheapest_path(wiring, k, prices)[0] for k in numbers]

    def find_cheapest_path(
        self,
        wiring: MeshArrays,
        circuit: int,
        prices: NDArray[np.int64],
        closed: frozenset[int] = frozenset(),
    ) -> tuple[int, tuple[int, ...]]:
        """Find the cheapest path of a circuit at ``prices[link]``; return its cost and terminals.

        `wiring` is one of the two graphs of this class, with the costs of cells or without. Light
        may not leave a cell by a terminal in `closed` or in ``self._shut``. The cost, in 1/`UNIT`
        of a cell, includes the prices of all links passed. It is `FAR`, and there are no
        terminals, if there is no path.
        """
        source, destination = self.circuits[circuit]
        space = self.router.workspace
        np.copyto(space.exit_cost, prices[self.wiring.link])
        space.exit_cost[list(closed | self._shut)] = FAR
        count = find_route(wiring, space, source, destination, self._route)
        if not count:
            return FAR, ()

        # A search charges links where light leaves a cell. The link between the source port and
        # the first cell is passed before that, hence its price is added.
        cost = int(space.cost[self.wiring.target[destination]]) + int(
            prices[self.port_links[circuit]]
        )
        return cost, tuple(self._route[:count].tolist())

    def cost_of(self, circuit: int, terminals: ArrayLike) -> int:
        """Add up the cost of a route without prices, in 1/`UNIT` of a cell.

        `terminals` are those by which light leaves its cells, in order.
        """
        # Light enters each cell but the first at the mate of the terminal that it left before.
        # Bits above the second one are the cell; the state is 1 (cross) if the lowest bits differ.
        leaving = np.asarray(terminals)
        source = self.wiring.source[self.circuits[circuit][0]]
        entering = np.append(source, self.wiring.mate[leaving[:-1]])
        return int(self.wiring.cell_cost[leaving >> 2, (leaving ^ entering) & 1].sum())


def cost_step(router: CellRouter, circuits: NDArray[np.int64]) -> int:
    """Find a step such that every routing costs the shortest routes plus a multiple of it.

    ``circuits[circuit]`` are a source and a destination port. The step is in 1/`UNIT` of a cell.
    It is two cells if all ways between the same two ports have an even number of cells, or all an
    odd one, as on grids of hexagons or squares; else one cell. Where cells cost different amounts,
    it is the greatest common divisor of these. If the step is two cells and the shortest routes
    have 73 cells in all, no routing has 74.
    """
    costs = np.unique(router.wiring.cell_cost)
    if len(costs) > 1:
        return int(np.gcd.reduce(costs))

    # Light that leaves a cell at ``before`` enters the next one at ``entered``, and leaves that at
    # ``after``: each terminal stands twice in `before`, first for bar, then for cross.
    # ``walks.cells[source, terminal]`` is the fewest cells from a source port to a terminal.
    #
    # A way grows by one cell from ``before`` to ``after``. If the fewest cells to these two always
    # differ by an odd number, as 4 and 5 or 4 and 3, the length of any way is even or odd as the
    # fewest cells to its end are: all ways to a terminal have one parity.
    graph = router.graph
    walks = walk(graph, np.unique(router.wiring.source[circuits[:, 0]]).tolist())
    before = np.repeat(np.arange(len(graph.mate)), 2)
    entered = graph.mate[before]
    after = graph.exits[entered, np.arange(len(before)) % 2]
    reached = (entered >= 0) & (walks.cells[:, before] != UNREACHED)
    changes_parity = (walks.cells[:, before] + walks.cells[:, after]) % 2 == 1
    step = int(costs[0])
    if (changes_parity | ~reached).all():
        step *= 2
    return max(1, step)


class _Programme:
    """The linear programme itself, kept in CLP and solved again from its last basis.

    It minimises the cells on all routes, or only the parts of circuits that are left out. Each
    circuit may be left out in part, at a high cost: hence there is a solution even while circuits
    have no routes, or too few.

    Parameters
    ----------
    circuits, links
        How many circuits and how many links there are: a row for each.
    capacity
        How many circuits a link carries.
    dear
        The cost of leaving out a circuit, in cells.

    Attributes
    ----------
    solver, objective
        The programme and its objective, as OR-tools has them.
    rows, links : list
        The constraints: ``rows[circuit]`` and ``links[link]``.
    lacking : list
        The variable ``lacking[circuit]`` is the part of a circuit that gets no route, 0 to 1.
    feasibility : bool
        Whether these parts alone cost anything, 1 each; otherwise they cost `dear`.
    """

    def __init__(self, circuits: int, links: int, capacity: int, dear: float) -> None:
        """Make a row for each circuit and each link, and a variable for leaving each circuit out.

        The row of a circuit says that its parts make a whole, that of a link that no more than
        `capacity` circuits pass it.
        """
        # Rows: the routes of a circuit add up to 1, and those on a link to its capacity at most.
        self.solver = pywraplp.Solver.CreateSolver("CLP")
        self.objective = self.solver.Objective()
        self.objective.SetMinimization()
        self.rows = [self.solver.Constraint(1.0, 1.0) for _ in range(circuits)]
        infinity = self.solver.infinity()
        self.links = [self.solver.Constraint(-infinity, float(capacity)) for _ in range(links)]

        # A circuit may be left out in part.
        self.lacking = []
        self.dear = dear
        self.feasibility = False
        for row in self.rows:
            variable = self.solver.NumVar(0.0, infinity, "")
            row.SetCoefficient(variable, 1.0)
            self.lacking.append(variable)

    def add(self, circuit: int, cost: float, links: NDArray[np.int64]) -> Any:
        """Add the variable of a route of a circuit, how much of it is taken, and return it.

        `cost` is in cells; `links` are those that the route passes, as often as it does.
        """
        variable = self.solver.NumVar(0.0, self.solver.infinity(), "")
        self.rows[circuit].SetCoefficient(variable, 1.0)
        for link, times in zip(*np.unique(links, return_counts=True), strict=True):
            self.links[link].SetCoefficient(variable, float(times))
        self.objective.SetCoefficient(variable, 0.0 if self.feasibility else cost)
        return variable

    def set_costs(self, costs: dict[Any, float], feasibility: bool) -> None:
        """Set what is minimised: the cost of routes, or with `feasibility` what is left out.

        ``costs[variable]`` is the cost of the route of each variable, in cells.
        """
        self.feasibility = feasibility
        for variable, cost in costs.items():
            self.objective.SetCoefficient(variable, 0.0 if feasibility else cost)
        for variable in self.lacking:
            self.objective.SetCoefficient(variable, 1.0 if feasibility else self.dear)

    def solve(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Solve the programme as it is now.

        Returns
        -------
        shares : float array, shape (circuits,)
            The dual value of each circuit, in cells.
        prices : int64 array, shape (links,)
            The price of each link in 1/`UNIT` of a cell, rounded down, not negative. Any prices
            prove a bound; rounded ones prove it without errors of rounding.
        """
        status = self.solver.Solve()
        if status != self.solver.OPTIMAL:  # CLP failed from the last basis: start afresh
            afresh = pywraplp.MPSolverParameters()
            afresh.SetIntegerParam(afresh.INCREMENTALITY, afresh.INCREMENTALITY_OFF)
            status = self.solver.Solve(afresh)
        if status != self.solver.OPTIMAL:
            raise SolverError("CLP did not solve the linear programme over routes")
        shares = np.array([row.dual_value() for row in self.rows])
        prices = np.array([-row.dual_value() for row in self.links])
        return shares, np.floor(np.maximum(prices, 0.0) * UNIT + _TINY).astype(np.int64)


_JOINT_ROUNDS = 60
"""Rounds of pricing; most instances need ten."""

_MOST_PRICED = 600_000
"""The most pairs times links of a linear programme; larger ones take minutes."""


def refute_again(problem: AllToAll, router: CellRouter, by_terminal: NDArray[np.int64]) -> bool:
    """Tell whether prices prove that there is no schedule in the fewest slots.

    ``by_terminal[terminal]`` is the price of the link at a terminal, in 1/`UNIT` of a cell: links
    have other numbers on other fabrics. The prices have proved the same for the same pairs on a
    fabric with other faults. Most faults have no part in such a proof, so that it often holds
    without them. To check it takes a shortest path for each pair.
    """
    n_slots = problem.min_slots
    master = Master(router, problem.pairs.astype(np.int64), capacity=n_slots)
    prices = np.zeros(len(router.workspace.use), dtype=np.int64)
    np.maximum.at(prices, router.wiring.link, by_terminal)

    # Each link may be passed once in each slot. If the pairs have to pay more than the prices of
    # all links in all slots add up to, there is no schedule.
    return sum(master.pay_prices(prices)) > n_slots * int(prices.sum())


def bound_jointly(
    problem: AllToAll, router: CellRouter, target_cells: float, clock: Clock
) -> ProvedBound:
    """Find a lower bound of the cells on all routes in the fewest slots, by column generation.

    `target_cells` is the number of cells on all routes of a known schedule, infinite if none is
    known: the search ends once the bound proves that no schedule has fewer. Where prices do not
    improve on the bound of the problem itself, or the linear programme would be too large, that
    bound is returned.
    """
    pairs = problem.pairs.astype(np.int64)
    least = problem.lower_bound()
    if len(pairs) * len(router.workspace.use) > _MOST_PRICED:
        return ProvedBound(least, None)
    step = cost_step(router, pairs)
    master = Master(router, pairs, capacity=problem.min_slots)

    # Every schedule costs the shortest routes plus a multiple of `step`, in 1/`UNIT` of a cell. A
    # bound above `target_cells` less one step therefore proves that no schedule has fewer cells.
    # No links are closed to any circuit, {}.
    outcome = master.bound({}, target_cells * UNIT - step, clock, rounds=_JOINT_ROUNDS)
    if outcome.prices is None:
        return ProvedBound(least, None)
    proof = RoutingProof.of_prices(outcome.prices, infeasible=outcome.infeasible)
    if outcome.infeasible:
        return ProvedBound(np.inf, proof)

    # For the same reason the bound rises to the next possible cost. What exceeds a multiple by
    # less than 1e-6 is an error of rounding.
    steps = np.ceil((outcome.value - 1e-6 - least * UNIT) / step)
    bound = least + max(0, int(steps)) * step / UNIT
    if bound <= least:
        return ProvedBound(least, None)
    return ProvedBound(bound, proof)
