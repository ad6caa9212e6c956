"""Routes of one matching on a chip of which each cell is known.

The worst circuit is to lose little, or to get little crosstalk; or heaters are to take little.
Routes come from negotiation at the losses of the cells, and on feed-forward fabrics from the exact
router, with loops turned for the same end. Each is then relieved (`relief`): the worst circuit and
those in its path are moved until that does not help.

Method `ilp` goes on with branch and bound over all routes, which ends on small fabrics. A
depth-first search follows the light of one circuit after the other, cell by cell. In a cell that
an earlier circuit has set it has one way; in others both states are tried. A branch is pruned
where the circuits so far, with the cheapest paths of those to come, cannot be better than the best
answer. Terminals are those by which light enters a cell here.

To turn a *loop* of a Benes network is to flip its cells together: its circuits stay connected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.fabrics.reach import cheapest_ways
from optmatch.model import (
    FREE,
    CellDevice,
    Clock,
    Limit,
    NewBest,
    OnEvent,
    Solution,
    Tick,
    TimeUp,
)
from optmatch.problems import AllToAll, Routing
from optmatch.problems.routing import split_power
from optmatch.solvers.feedforward.router import MICRO_DB, exact_router, route_cheaply
from optmatch.solvers.frame import conclude, limits_left, only_ticks, stoppable, take_best
from optmatch.solvers.method import Run
from optmatch.solvers.routing.negotiation import Negotiation, Routes, one_slot
from optmatch.solvers.routing.pathfinder import EFFORTS, UNIT
from optmatch.solvers.routing.relief import Relief
from optmatch.solvers.routing.router import CellRouter

_MAX_MOVES = 2000
"""Moves of circuits that `Relief` tries for each negotiation; most end long before."""

STARTS = 160
"""Negotiations without a limit of iterations."""

_PRICE_LEVELS = 5
"""Random prices of links are at most 0, 1/2, 1, 3/2 or 2 cells, in turn."""

_MICRO_MW = 1e-6  # powers are compared in whole numbers of this
_PICO = 1e-12  # leaks are compared in whole numbers of this


def route_worst(
    problem: Routing,
    clock: Clock,
    rng: np.random.Generator,
    on_event: OnEvent,
    name: str,
    route_exactly: Run,
) -> Solution:
    """Route a matching on a chip so that its worst circuit, or its heater power, is least.

    Many starts each find routes and improve them, and the best routes of all are returned; an
    iteration is one start. If no start finds routes, `route_exactly` finds any, or proves that
    there are none. Under method "ilp" a search of all routes follows, which ends on small fabrics.
    """
    bound = problem.lower_bound()
    limits = clock.limits
    n_starts = STARTS if limits.iterations is None else limits.iterations
    cells = _cells(problem)
    negotiation = Negotiation(problem)
    relief = Relief(negotiation.router, cells, problem.objective)
    starts = _starts(negotiation, relief, rng, n_starts)
    best, limit, _ = take_best(starts, bound, clock, on_event, "relieve", n_starts)

    # All starts are done, and none has found routes. The gap of 1 lets the exact method stop at
    # its first routes, since their number of cells is not what counts.
    if best is None and limit is Limit.EXHAUSTED:
        last_limits = replace(limits_left(limits, clock), gap=1.0)
        any_routes = replace(problem, objective="total-cells", cells=None)
        solution = route_exactly(any_routes, last_limits, rng, only_ticks(on_event))
        if solution.schedule is None:
            # Without a limit the bound is infinite: it is proved that there are no routes.
            if solution.limit is None:
                bound = solution.lower_bound
            return replace(solution, problem=problem, method=name, lower_bound=bound)
        states: Any = solution.schedule.cell_states
        best = _read_and_relieve(negotiation, relief, states[0])

    # The search of all routes begins with the best ones, unless a limit has ended the starts: None
    # says that the bound was reached, EXHAUSTED that all starts are done.
    stats: dict[str, Any] = {}
    if name == "ilp" and best is not None and limit in (None, Limit.EXHAUSTED):
        n_cells = int(best.lengths.sum())
        outcome = search_all(problem, (best.objective, n_cells), clock, on_event)
        limit = outcome.limit
        if outcome.limit is None:
            bound = max(bound, outcome.objective)
            stats = {"bound_by": "search", "nodes": outcome.nodes}
        if outcome.states is not None:
            schedule = one_slot(problem, outcome.states[None])
            return conclude(
                problem, name, outcome.objective, bound, limit, schedule=schedule, stats=stats
            )

    # Without a search, or if that has found nothing better, the routes of the starts count.
    if best is None:
        return conclude(problem, name, None, bound, limit)
    schedule = one_slot(problem, best.states[None])
    return conclude(problem, name, best.objective, bound, limit, schedule=schedule, stats=stats)


def _starts(
    negotiation: Negotiation, relief: Relief, rng: np.random.Generator, n_starts: int
) -> Iterator[tuple[float, Routes] | None]:
    """Yield routes improved by `Relief` with their objective; None for a start that failed.

    `relief` is for the chip and the objective of the problem; there are `n_starts` negotiations.
    On feed-forward fabrics, the routes of their exact router come first. All others come from
    negotiated congestion: each turn changes the prices of links, the order of the circuits, the
    costs of cells and the `Effort` (how fast prices of contested links rise), as different routes
    are needed to begin with.
    """
    problem = negotiation.problem
    for states in _turn_loops(problem):
        by_rule = _read_and_relieve(negotiation, relief, states)
        yield None if by_rule is None else (by_rule.objective, by_rule)
    router_by_cells = CellRouter(problem.fabric)
    router_by_losses = negotiation.router
    n_links = len(router_by_losses.workspace.use)
    for turn in range(n_starts):
        # The same ends may be joined in very different ways, by few cells or by good ones.
        # Random prices of links, from none to two cells, lead to others in each turn.
        largest_price = UNIT * (turn % _PRICE_LEVELS) // 2
        price_of_link = rng.integers(0, largest_price + 1, n_links)

        # The usual order has the longest routes first; another order leads to other routes.
        order = negotiation.order
        if turn % 2:
            order = rng.permutation(order)

        # In some turns all cells cost the same, in the others what they add to the losses, or to
        # the heater power. A status below 0 says that the negotiation has failed.
        router = router_by_cells if turn % 3 == 1 else router_by_losses
        routes, lengths = router_by_losses.empty_routes()
        status = router.settle(
            order,
            negotiation.partner,
            routes,
            lengths,
            base=price_of_link[router_by_losses.wiring.link],
            effort=EFFORTS[turn % len(EFFORTS)],
        )
        if status < 0:
            yield None
        else:
            relieved = _relieve(negotiation, relief, routes, lengths)
            yield relieved.objective, relieved


def _cells(problem: Routing) -> CellDevice:
    """Return the cells of a problem on a chip, which is known to have them."""
    assert problem.cells is not None
    return problem.cells


def _relieve(
    negotiation: Negotiation,
    relief: Relief,
    routes: NDArray[np.int32],
    lengths: NDArray[np.int64],
) -> Routes:
    """Relieve routes in place; return them with the states of cells, and their objective.

    ``routes[source, step]`` are the terminals by which light leaves its cells, and
    ``lengths[source]`` is the number of cells. All circuits have routes, before and afterwards.
    """
    relief.improve(negotiation.order, negotiation.partner, routes, lengths, _MAX_MOVES)
    return Routes(negotiation.problem, negotiation.router, negotiation.order, routes, lengths)


def _read_and_relieve(
    negotiation: Negotiation, relief: Relief, states: NDArray[np.int8]
) -> Routes | None:
    """Read routes out of ``states[cell]`` that hold the matching, and relieve them.

    None if a route is too long for the arrays: then its length is 0.
    """
    routes, lengths = negotiation.router.follow(negotiation.problem.matching, states)
    if not lengths[negotiation.order].all():
        return None
    return _relieve(negotiation, relief, routes, lengths)


_STATS_OF_STATES = {"toggles", "worst_route_cells"}
"""Statistics that are wrong once the states of cells have changed."""


def save_power_among_ties(problem: Routing | AllToAll, solution: Solution) -> Solution:
    """Choose routes that need less heater power among those with as many cells, slot by slot.

    The matchings, the number of cells in each slot and the bound are those of `solution`;
    statistics of the former states are left out.
    """
    schedule = solution.schedule
    cells = problem.cells
    if schedule is None or schedule.cell_states is None or cells is None:
        return replace(solution, problem=problem)

    states = schedule.cell_states.copy()
    for slot, matching in enumerate(schedule.matchings):
        negotiation = Negotiation(Routing(problem.fabric, matching))
        relief = Relief(negotiation.router, cells, "total-cells")
        relieved = _read_and_relieve(negotiation, relief, states[slot])
        if len(negotiation.order) and relieved is not None:
            states[slot] = relieved.states

    stats = {name: solution.stats[name] for name in solution.stats.keys() - _STATS_OF_STATES}
    schedule = replace(schedule, cell_states=states)
    return replace(solution, problem=problem, schedule=schedule, stats=stats)


def solve_with_ties(method: Run, problem: Routing, *args: Any, **options: Any) -> Solution:
    """Solve by a method, and break ties between routes of as many cells by heater power.

    That is done on a chip, if the objective is the cells on all routes: the problem is solved
    without the chip, then routes of less power are taken. `args` and `options` are those of all
    methods: limits, rng, on_event, and what the method takes besides.
    """
    if problem.cells is None or problem.objective != "total-cells":
        return method(problem, *args, **options)
    solution = method(replace(problem, cells=None), *args, **options)
    with stoppable():  # if this is interrupted, the routes before it are an answer, too
        return save_power_among_ties(problem, solution)
    return replace(solution, problem=problem)


def measure_states(problem: Routing, states: NDArray[np.int8]) -> float:
    """Return the objective of ``states[cell]`` that hold the matching, less is better.

    It is the worst loss in dB, the worst ratio of crosstalk to signal power, or the heater power
    in mW.
    """
    negotiation = Negotiation(problem)
    router = negotiation.router
    routes, lengths = router.follow(problem.matching, states)
    return Relief(router, _cells(problem), problem.objective).measure(
        negotiation.order, routes, lengths
    )


def _turn_loops(problem: Routing) -> Iterator[NDArray[np.int8]]:
    """Yield ``states[cell]`` that hold the matching, by the exact router of feed-forward fabrics.

    In a Benes network the cells along a loop may all be flipped together: the loop is turned.
    Loops are turned for the lowest sum of costs, and for the lowest worst circuit; where the worst
    loss is the objective, only for the latter. Nothing is yielded for fabrics that are not
    feed-forward, or if the exact router finds no routes.
    """
    if exact_router(problem.fabric) is None:
        return
    matchings = problem.matching[None]
    cost = cell_costs(problem.fabric, _cells(problem), problem.objective)
    is_worst_loss = problem.objective == "worst-loss-db"
    for by_worst in (True,) if is_worst_loss else (False, True):
        # A batch of one matching; ``held`` is False where a stuck cell is in the way.
        routed = route_cheaply(problem.fabric, matchings, cost, worst=by_worst)
        if routed.held[0]:
            yield routed.states[0]


def cell_costs(fabric: Fabric, cells: CellDevice, objective: str) -> NDArray[np.int64]:
    """Return ``cost[cell, state, shared]``, with `shared` 1 where two circuits pass the cell.

    The result has the shape (cells, 2, 2), int64; state 0 is bar, 1 cross, and the cost is that of
    each circuit that passes. Power: what the heater takes above a dark cell, in micro-mW, half for
    each of two. Loss: in micro-dB. Crosstalk: the leaked share of the power in 1e-12, and nothing
    for a circuit that is alone.
    """
    if objective == "power-mw":
        extra_mw = split_power(fabric, cells)[1] / _MICRO_MW
        cost = np.stack([extra_mw, extra_mw / 2], axis=2)
    elif objective == "worst-loss-db":
        cost = np.repeat(cells.loss_db[:, :, None] / MICRO_DB, 2, axis=2)
    else:
        cost = np.stack([np.zeros_like(cells.leak), cells.leak / _PICO], axis=2)

    # No cost may be so large that all cells together come to `FORBIDDEN` of `loop_search`.
    return np.minimum(np.rint(cost), 2.0**40 / (2 * fabric.n_cells)).astype(np.int64)


_ROUNDING = 1e-9
"""Objectives that differ by this share are equal: they are sums of the same parts."""

_MOST_RATIO_DB = 3000.0
"""Powers that differ by more count as this far apart: no float holds 10**309."""

_NODES_PER_LOOK = 1024
"""Nodes of the search between two looks at the clock."""


class Found(NamedTuple):
    """The best states that a search of all routes found, if any."""

    states: NDArray[np.int8] | None
    """None if nothing is better than what was known before."""
    objective: float
    """That of these states, or of what was known: in dB, as a ratio, or in mW."""
    limit: Limit | None
    """Why it stopped before the end."""
    nodes: int
    """Cells that were tried, over all branches."""


def search_all(
    problem: Routing, best_known: tuple[float, int], clock: Clock, on_event: OnEvent
) -> Found:
    """Search all routes of a matching for the least objective; the fewer cells decide a tie.

    `best_known` are the objective (in dB, as a ratio, or in mW) and the number of cells of the
    routes that are to be beaten. If ``limit`` of the result is None the search has ended, and its
    objective is the least one.
    """
    search = None  # it stays None if the time is up before its tables are made
    with stoppable() as stop:
        search = _Search(problem, best_known, clock, on_event)
        search.enter(0)
    if search is None:
        return Found(
            states=None,
            objective=best_known[0],
            limit=stop.limit,
            nodes=0,
        )
    return Found(
        states=search.states,
        objective=search.best[0],
        limit=stop.limit,
        nodes=search.nodes,
    )


class _Search:
    """The state of the search: cells as they are set now, and beams of circuits so far.

    A *beam* is the light of one end of a circuit: a list of the terminals at which it enters
    cells, each with what its circuit pays before. What a circuit *pays* is its loss in dB; if the
    objective is the heater power, it is half of the power of its heaters above that of dark cells,
    in mW: two circuits may share a cell.

    Attributes
    ----------
    set : list of int
        ``set[cell]``: the state of a cell at present, 0 bar, 1 cross, -1 free.
    exits, mate : lists
        Light that enters a cell at a terminal leaves it by ``exits[terminal][state]``, and enters
        the next cell at the ``mate[...]`` of that, -1 at the rim.
    cost : list
        ``cost[cell][state]``: what a circuit pays for a cell.
    extra_mw, leak : lists
        ``extra_mw[cell][state]``: the heater power above that of a dark cell;
        ``leak[cell][state]``: the power at the other output, of that at the wanted one.
    to_go : list
        ``to_go[0][port][terminal]``: the least that is paid for the cells from a terminal, by
        which light has left a cell, to the port; ``to_go[1]`` has the fewest cells.
    to_come : list of (float, float)
        ``to_come[k]``: the least that is paid for the circuits from the k-th on (the largest of
        their losses, or the sum of their powers), and the sum of their fewest cells.
    objective : float
        The objective of the circuits so far: the largest loss in dB, the largest ratio of
        crosstalk to signal, or the power of all heaters in mW.
    cells : int
        The number of cells on their routes.
    halves_mw : float
        What they pay and all dark cells take, if the objective is the heater power.
    best : (float, int)
        The objective and the number of cells of the best answer.
    states : int8 array, shape (cells,), or None
        The states of the best answer; None if it is the one that was known before.
    nodes : int
        Cells that were tried so far, over all branches.
    """

    def __init__(
        self, problem: Routing, best_known: tuple[float, int], clock: Clock, on_event: OnEvent
    ) -> None:
        """Look up what all branches of the search need, in plain lists, for speed.

        Circuits are sorted by their least cost alone, the dearest first, because they prune most;
        each is kept as (terminal of its source, terminal of its destination, number of its
        destination). The suffix bounds `to_come` follow this order.
        """
        fabric = problem.fabric
        cells = problem.cells
        graph = fabric.graph
        assert graph is not None
        assert cells is not None
        self.clock = clock
        self.on_event = on_event

        # The best answer so far; `states` are its states once the search has found a better one.
        self.best = best_known
        self.states: NDArray[np.int8] | None = None
        self.nodes = 0

        # The fabric: the joined terminal, -1 for none, and the exits of each in bar and in cross.
        self.mate: list[int] = graph.mate.tolist()
        self.exits: list[list[int]] = graph.exits.tolist()
        self.mutual = fabric.bidirectional

        # What a circuit pays for a cell, ``[cell][state]``.
        self.power = problem.objective == "power-mw"
        self.crosstalk = problem.objective == "worst-snr-db"
        dark_mw, extra_mw = split_power(fabric, cells)
        self.extra_mw: list[list[float]] = extra_mw.tolist()
        weights = cells.loss_db
        if self.power:
            weights = extra_mw / 2
        self.cost: list[list[float]] = weights.tolist()
        self.leak: list[list[float]] = cells.leak.tolist()

        # `to_go`: light comes back as it went, hence ways from the end are those to it.
        starts = fabric.source_terminals
        ends = fabric.destination_terminals
        cell_counts = np.ones_like(weights)
        self.to_go = []
        for costs in (weights, cell_counts):
            costs_from_end = cheapest_ways(graph, ends, costs)
            still_to_pay = np.where(graph.mate >= 0, costs_from_end[:, graph.mate], np.inf)
            still_to_pay[np.arange(len(ends)), ends] = 0.0
            self.to_go.append(still_to_pay.tolist())
        least_cost = cheapest_ways(graph, starts, weights)
        fewest_cells = cheapest_ways(graph, starts, cell_counts)

        # Circuits with the largest least cost come first: they prune most.
        circuits = sorted(
            problem.circuits.tolist(), key=lambda pair: -least_cost[pair[0], ends[pair[1]]]
        )
        self.circuits = [(int(starts[i]), int(ends[j]), j) for i, j in circuits]

        # Lower bounds for the circuits from the k-th on: worst loss or sum of power, and cells.
        self.to_come = [(0.0, 0.0)]
        for i, j in reversed(circuits):
            cost_of_later, cells_of_later = self.to_come[-1]
            cost = least_cost[i, ends[j]]
            cost_to_come = cost_of_later + cost if self.power else max(cost_of_later, cost)
            self.to_come.append((cost_to_come, cells_of_later + fewest_cells[i, ends[j]]))
        self.to_come.reverse()

        # The cells that are set at present, and the objective so far. With what the circuits to
        # come pay at least, `halves_mw` is a lower bound of the power.
        self.set = graph.stuck.tolist()  # a dead cell is never entered
        self.beams: list[list[tuple[int, float]]] = []
        self.objective = dark_mw if self.power else 0.0
        self.cells = 0
        self.halves_mw = self.objective

    def hopeless(self, objective: float, cells: float) -> bool:
        """Tell whether a branch is pruned, as no answer in it can beat the best one.

        `objective` and `cells` are lower bounds for all answers in the branch; the number of
        cells decides if objectives are equal.
        """
        best_objective, best_cells = self.best
        if objective > best_objective * (1 + _ROUNDING):
            return True
        return objective >= best_objective * (1 - _ROUNDING) and cells >= best_cells

    def enter(self, k: int) -> None:
        """Route the k-th circuit and all after it, in every way that may beat the best answer.

        The k-th, from 0 on, is ``self.circuits[k]``. If there is no k-th, all have routes, and
        these are kept as the best answer.
        """
        if k == len(self.circuits):
            self._keep_answer()
            return

        # All that is set on the way is undone, but for these three sums, which are put back.
        start, end, port = self.circuits[k]
        sums = self.objective, self.cells, self.halves_mw
        self._follow_circuit(k, start, end, port, [], 0.0)
        self.objective, self.cells, self.halves_mw = sums

    def _follow_circuit(
        self,
        k: int,
        entering: int,
        end: int,
        port: int,
        beam: list[tuple[int, float]],
        paid: float,
    ) -> None:
        """Set the cells on the way of the k-th circuit one after the other: branch and bound.

        Light of the circuit enters a cell at the terminal `entering`. If the cell is free, both of
        its states are tried, depth first; else it keeps its state. A branch is pruned as soon as a
        lower bound of the objective, or of the cells where that is equal, is no better than the
        best answer. The light has to leave the fabric by the terminal `end`, to `port`. `beam` is
        that of the circuit up to this cell, which it paid `paid` for. All that is set here is
        undone before it returns. At the end of the time it raises `TimeUp`, and after Ctrl-C,
        which stops the clock, `KeyboardInterrupt`.
        """
        self.nodes += 1
        if self.nodes % _NODES_PER_LOOK == 0:
            if self.clock.stopped:
                raise KeyboardInterrupt
            if self.clock.remaining_s <= 0.0:
                raise TimeUp("the time is up")
            self.on_event(Tick("nodes", self.nodes))

        # A cell that another circuit set before keeps its state; a free one takes both in turn.
        cell = entering // 4
        is_unset = self.set[cell] == FREE
        states = (0, 1) if is_unset else (self.set[cell],)
        beam.append((entering, paid))
        cost_to_come, cells_to_come = self.to_come[k + 1]
        for state in states:
            leaving = self.exits[entering][state]
            paid_here = paid + self.cost[cell][state]
            least_to_go = self.to_go[0][port][leaving]
            cells_to_go = self.to_go[1][port][leaving]
            if least_to_go == np.inf:
                continue

            # Prune by a lower bound of the objective and of the cells:
            # - power is at least what the cells that are set take, and at least what all circuits
            #   pay, those to come at their least: two that share a cell pay half of it each;
            # - the worst loss is at least that of each circuit, those to come at their least;
            # - crosstalk may stay 0 in the cells to come, so it is at least that until here.
            bound = self.objective
            heat_mw = 0.0
            if self.power:
                if is_unset:
                    heat_mw = self.extra_mw[cell][state]
                all_pay_mw = self.halves_mw + paid_here + least_to_go + cost_to_come
                bound = max(bound + heat_mw, all_pay_mw)
            elif not self.crosstalk:
                bound = max(bound, paid_here + least_to_go, cost_to_come)
            if self.hopeless(bound, self.cells + len(beam) + cells_to_go + cells_to_come):
                continue

            # Set the cell, go on, and undo it.
            self.set[cell] = state
            self.objective += heat_mw
            if leaving == end:
                self._go_on_after(k, beam, paid_here)
            elif self.mate[leaving] >= 0:
                self._follow_circuit(k, self.mate[leaving], end, port, beam, paid_here)
            if is_unset:
                self.set[cell] = FREE
            self.objective -= heat_mw
        beam.pop()

    def _go_on_after(self, k: int, beam: list[tuple[int, float]], paid: float) -> None:
        """Go on with the next circuit after the k-th has arrived, unless the branch is pruned.

        `paid` is what it pays for its whole route, and `beam` its light. The state of the search
        is as before again when this returns.
        """
        sums = self.objective, self.cells, self.halves_mw
        n_beams = 1
        self.beams.append(list(beam))
        if self.mutual:
            # The beam from the other end enters each cell where this one leaves it.
            n_beams = 2
            back = []
            for terminal, so_far in beam:
                state = self.set[terminal >> 2]
                back.append(
                    (self.exits[terminal][state], paid - so_far - self.cost[terminal >> 2][state])
                )
            self.beams.append(back)
        self.cells += len(beam)
        if self.power:
            self.halves_mw += paid
        else:
            self.objective = self._worst_ratio() if self.crosstalk else max(self.objective, paid)
        if not self.hopeless(self.objective, self.cells + self.to_come[k + 1][1]):
            self.enter(k + 1)
        self.objective, self.cells, self.halves_mw = sums
        del self.beams[-n_beams:]

    def _worst_ratio(self) -> float:
        """Return the largest ratio of crosstalk to signal of the circuits so far.

        Two beams that enter a cell side by side, at terminals that differ in the last bit, leak
        into each other: the ratio at that place is the leaked share times the ratio of their
        powers there: a beam that has lost 3 dB gets twice as much as one that has lost nothing
        from the same neighbour. The ratios of a beam add up.
        """
        # ``beam_at[terminal]``: the number of the beam that enters there, and its loss so far.
        beam_at = {
            entered: (beam_number, loss_db)
            for beam_number, beam in enumerate(self.beams)
            for entered, loss_db in beam
        }
        worst = 0.0
        for beam_number, beam in enumerate(self.beams):
            ratio = 0.0
            for entered, loss_db in beam:
                neighbour = beam_at.get(entered ^ 1)
                if neighbour is None or neighbour[0] == beam_number:
                    continue
                cell = entered // 4
                share = self.leak[cell][self.set[cell]]
                ratio_db = min(loss_db - neighbour[1], _MOST_RATIO_DB)
                ratio += share * 10 ** (ratio_db / 10)
            worst = max(worst, ratio)
        return worst

    def _keep_answer(self) -> None:
        """Keep the routes of all circuits as the best answer; cells without light are free."""
        is_better = self.objective < self.best[0] * (1 - _ROUNDING)
        self.best = self.objective, self.cells
        lit = np.zeros(len(self.set), dtype=bool)
        for beam in self.beams:
            lit[[terminal >> 2 for terminal, _ in beam]] = True
        self.states = np.where(lit, self.set, FREE).astype(np.int8)
        if is_better:  # told once it is kept: the listener may interrupt
            self.on_event(NewBest(self.objective))
