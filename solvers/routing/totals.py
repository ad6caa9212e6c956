"""Costs of routes of a matching: the least longest route, and the totals of all routes.

The length of a route is the number of its cells. Routes come from negotiations, that is, rip-up
and reroute at rising prices of links that two circuits want; CP-SAT refutes shorter ones, with a
flow of light for each circuit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from optmatch.fabrics import UNREACHED, walk
from optmatch.model import Clock, Limit, NewBest, OnEvent, Solution
from optmatch.problems import Routing
from optmatch.problems.routing import loss_units
from optmatch.solvers.cpsat import LightFlow, Outcome, share_links
from optmatch.solvers.exact_models import Asked, ExactModel, draw_seed, refute_in_turn
from optmatch.solvers.frame import stoppable, take_best
from optmatch.solvers.routing.columns import cost_step
from optmatch.solvers.routing.negotiation import Negotiation, Routes, conclude_routes
from optmatch.solvers.routing.pathfinder import UNIT
from optmatch.solvers.routing.router import CellRouter

RESTARTS = 40
"""Negotiations before lengths of worst routes are refuted."""


def shorten_longest_route(
    problem: Routing,
    clock: Clock,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Routes | None,
) -> Solution:
    """Find routes of which the longest is as short as possible.

    `start` are routes to begin with, None for none. No longest route is shorter than the longest
    of the shortest routes of all circuits. If that is not reached, lengths are refuted one by one
    from there by CP-SAT; such a bound is not certified (``stats["bound_by"]``).
    """
    negotiation = Negotiation(problem)
    bound = int(problem.lower_bound())
    first: tuple[float, Routes] | None = None
    if start is not None:
        order = negotiation.order
        routes = Routes(problem, negotiation.router, order, start.routes, start.lengths)
        first = routes.objective, routes

    # Negotiations, until one meets the bound; iterations count what comes afterwards. `best` is
    # None if all have failed; `limit` is None if the bound is met, and else says why they ended.
    endless = replace(clock, limits=replace(clock.limits, iterations=None))
    attempts = negotiation.attempts(rng, RESTARTS)
    best, limit, _ = take_best(
        attempts, bound, endless, on_event, "negotiate", RESTARTS, start=first
    )
    if best is None or limit is not Limit.EXHAUSTED:
        return conclude_routes(problem, best, bound, limit, "ilp")

    # Lengths below the best one are refuted one by one, from the bound on. An answer of the model
    # is ``route[circuit]``, the terminals left; each refuted length raises the bound by one cell.
    least_cells = bound
    refuted_lengths: list[int] = []
    with stoppable() as stop:
        lengths = range(bound, int(best.objective))
        ask = partial(_ask_for_length, negotiation, clock, rng, on_event)
        verdict = refute_in_turn(lengths, ask, clock, refuted_lengths.append)
        limit = verdict.limit
        if verdict.answer is not None:
            sources = negotiation.circuits[:, 0].tolist()
            best = negotiation.routes_of(dict(zip(sources, verdict.answer, strict=True)))
            limit = None
            on_event(NewBest(best.objective))
    bound = least_cells + len(refuted_lengths)
    limit = stop.limit or limit
    stats: dict[str, object] = {"bound_by": "cp-sat"} if refuted_lengths else {}
    return conclude_routes(problem, best, bound, limit, "ilp", stats=stats)


def _ask_for_length(
    negotiation: Negotiation,
    clock: Clock,
    rng: np.random.Generator,
    on_event: OnEvent,
    most_cells: int,
) -> Asked[list[list[int]]]:
    """Ask CP-SAT for routes of all circuits, each of at most `most_cells` cells."""
    model = RouteModel(negotiation, most_cells)
    return model, model.solve(clock, on_event, seed=draw_seed(rng))


class RouteModel(ExactModel[list[list[int]]]):
    """The CP-SAT model of routes of all circuits, none longer than a number of cells.

    It minimises nothing. Light of each circuit flows from its source to its destination, and each
    link carries one circuit at most.

    Parameters
    ----------
    negotiation
        The circuits, and the router with the cells and their links.
    most_cells
        No route has more cells.
    """

    def __init__(self, negotiation: Negotiation, most_cells: int) -> None:
        """Write the flows of all circuits, each of at most `most_cells`, without a shared link.

        Each circuit is a flow of light through cells. It gets a literal only for terminals on ways
        that are short enough: cells from its source, plus the fewest cells from there to its
        destination. ``flows[circuit]`` are these flows, in the order of ``negotiation.circuits``.
        """
        super().__init__()
        router = negotiation.router
        graph = router.graph
        circuits = negotiation.circuits
        sources = router.wiring.source[circuits[:, 0]]
        targets = router.wiring.target[circuits[:, 1]]

        # Light of a circuit may leave a cell by a terminal if the cells so far, and those still to
        # come on the shortest path from there, are not too many together. All three arrays are
        # ``[circuit, terminal]``. Light that leaves by a terminal enters the next cell at
        # ``mate[terminal]``, which is -1 at a port. A walk goes either way, hence `to_target`,
        # which begins at the target, counts the cells for light that enters at a terminal.
        from_source = walk(graph, sources.tolist()).cells.astype(np.int64)
        to_target = walk(graph, targets.tolist()).cells
        from_terminal = np.where(graph.mate >= 0, to_target[:, graph.mate], UNREACHED)
        is_near = from_source + from_terminal <= most_cells
        self.flows = []
        for circuit, (source, target) in enumerate(zip(sources, targets, strict=True)):
            allowed = np.flatnonzero(is_near[circuit] & (graph.mate >= 0)).tolist()
            flow = LightFlow(self.model, graph, int(source), 1, {int(target): 1}, allowed)
            self.model.add(sum(flow.exit_literals.values()) <= most_cells)
            self.flows.append(flow)
        share_links(self.model, graph, [(flow, 1) for flow in self.flows])

    def read(self, outcome: Outcome) -> list[list[int]]:
        """Return ``route[circuit]``: the terminals by which its light leaves the cells."""
        return [flow.terminals(outcome) for flow in self.flows]


_TINY = 1e-6  # in units of `loss_units`: rounding errors of bounds
_ROUNDING = 1 - 1e-12  # a total is below another one if it is below this share of it


class LossTotals:
    """Totals of losses: some number of bar losses, and some number of cross losses.

    Totals of cells are the same, with a loss of 1 in either state.

    Parameters
    ----------
    bar_loss_db, cross_loss_db
        The loss of a cell in each state, in dB.
    even
        Whether the number of all cells on all routes is even: True, False (odd), or None for
        either.

    Attributes
    ----------
    dear, cheap : float
        The loss of a cell in the state that loses more, and in the other one, in dB.
    per_db : int
        How many units of `loss_units` make a dB: bounds are in these.

    Notes ----- A total is ``times * dear + counts * cheap``, with whole numbers of cells in either
    state. With 0.5 and 0.3 dB the totals are 0, 0.3, 0.5, 0.6, 0.8, 0.9, ...: a bound between 0.6
    and 0.8 rises to 0.8.
    """

    def __init__(self, bar_loss_db: float, cross_loss_db: float, even: bool | None = None) -> None:
        """Keep the losses of a cell in dB, the less first, and the parity of the cells."""
        self.cheap, self.dear = sorted((bar_loss_db, cross_loss_db))
        self.per_db = loss_units(bar_loss_db, cross_loss_db).per_db
        self.even = even

    def rise(self, value: float) -> float:
        """Return the least total of losses, in dB, that is not below a bound.

        `value` is the bound, in the units of `loss_units`, of which ``per_db`` make a dB.
        """
        # For each number of dear cells (`n_dear`: 0, 1, 2, ...), the fewest cheap ones (`n_cheap`)
        # with which the total reaches the bound: they have to lose `to_reach_db`. If the parity of
        # all cells is known and does not fit, there is one more. Dear cells alone reach it with
        # one or two less than `max_dear`, which is therefore enough.
        loss = max(0.0, (value - _TINY) / self.per_db)
        if not loss or not self.dear:
            return loss
        max_dear = math.ceil(loss / self.dear) + 2
        n_dear = np.arange(max_dear, dtype=np.float64)
        to_reach_db = np.maximum(0.0, loss * _ROUNDING - n_dear * self.dear)
        if self.cheap:
            n_cheap = np.ceil(to_reach_db / self.cheap)
        else:
            n_dear = n_dear[to_reach_db <= 0]
            n_cheap = np.zeros(np.count_nonzero(to_reach_db <= 0))
        if self.even is not None:
            n_cheap += (n_dear + n_cheap) % 2 != (0 if self.even else 1)
        return float((n_dear * self.dear + n_cheap * self.cheap).min(initial=max_dear * self.dear))

    def enough(self, objective: float) -> float:
        """Return the bound above which no total of losses is less than an objective.

        `objective` is in dB, the result in units, of which ``per_db`` make a dB. A case whose
        bound is larger than the result holds no better routes: with losses of 0.5 and 0.3 dB and
        an objective of 0.8 dB it is that of 0.6 dB, the largest total below.
        """
        # The largest total below the objective: for each number of dear cells (`n_dear`), as many
        # cheap ones (`n_cheap`) as still fit into what is `room_db`. If the parity of all cells is
        # known and does not fit, there is one less.
        if not self.dear:
            return -math.inf
        below = objective * _ROUNDING
        n_dear = np.arange(math.ceil(below / self.dear) + 2, dtype=np.float64)
        room_db = below - n_dear * self.dear
        n_dear = n_dear[room_db >= 0]
        room_db = room_db[room_db >= 0]
        n_cheap = np.floor(room_db / self.cheap) if self.cheap else np.zeros(len(n_dear))
        if self.even is not None and self.cheap:
            n_cheap -= (n_dear + n_cheap) % 2 != (0 if self.even else 1)
        totals = (n_dear * self.dear + n_cheap * self.cheap)[n_cheap >= 0]
        return float(totals.max(initial=-math.inf)) * self.per_db + _TINY


def totals_of(problem: Routing) -> LossTotals:
    """Return the values that the objective of a matching can have, to which bounds are rounded.

    The cells on all routes are a whole number, and losses sums of bar and cross losses. On meshes
    where all ways between two ports have an even number of cells, or all an odd one, so have all
    routes together: a bound of 73.2 cells then rises to 75 if the shortest routes have 73.
    """
    circuits = problem.circuits.astype(np.int64)
    router = CellRouter(problem.fabric)
    even = None
    if cost_step(router, circuits) > UNIT:
        even = int(router.least[tuple(circuits.T)].sum()) // UNIT % 2 == 0
    if problem.objective == "loss-db":
        return LossTotals(problem.bar_loss_db, problem.cross_loss_db, even)
    return LossTotals(1.0, 1.0, even)
