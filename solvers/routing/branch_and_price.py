"""Branch and price on routes of one matching, with a proof that can be checked.

The linear programme over routes (`columns`) is nearly tight on meshes, so most matchings are
proved at the root. Where it is not, cases are split in two (`RoutingProof`): a link is closed to
one circuit or to all others, or to one circuit one way or the other way. Every case keeps the link
prices (dual values) that bound it, and together they are the proof.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from optmatch.model import (
    Bound,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Solution,
    Status,
    Tick,
)
from optmatch.problems import Routing, RoutingProof
from optmatch.problems.routing import loss_units
from optmatch.solvers.frame import near_enough, only_ticks, stoppable
from optmatch.solvers.routing.columns import Closed, Column, Master, PriceBound
from optmatch.solvers.routing.negotiation import (
    WARM_STARTS,
    Negotiation,
    Routes,
    answer_at_once,
    conclude_routes,
)
from optmatch.solvers.routing.pathfinder import UNIT
from optmatch.solvers.routing.router import CellRouter
from optmatch.solvers.routing.totals import shorten_longest_route, totals_of

_TRIES_AT_ROOT = 40  # negotiations near the solution of the linear programme of the first case
_TRIES = 4  # the same in each further case
_TINY = 1e-6  # a weight that lacks less of 1 than this is a whole route


class CaseSplit(NamedTuple):
    """How a case is divided into two: by one circuit and one link."""

    circuit: int
    terminal: int
    """One of the two terminals at the link."""
    one_way: bool
    """Whether the circuit is closed out of one direction of the link or of the other; if not,
    the link is closed to this circuit, or to all others."""


@dataclass
class ProofNode:
    """A case of the search, which is a node of the proof.

    A case is the matching with some links closed to some circuits.
    """

    closed: Closed
    """For a circuit the terminals by which its light may not leave a cell."""
    bound: PriceBound
    """The best bound of the case so far, and the link prices that prove it."""
    split: CaseSplit | None = None
    """How the case is divided; None if it is not."""
    children: list[int] = field(default_factory=list)
    """The numbers of the two cases that it is divided into; none if it is not."""


def search(
    problem: Routing,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
) -> Solution:
    """Route one matching as well as possible by branch and price, or prove that it cannot be done.

    An iteration is one case of the proof; the objective is a total, or "worst-cells". The routes
    of `start`, a former solution, are kept where they fit. `on_event` hears of better routes, of
    higher bounds, and of the number of cases. Where faults of the fabric leave no routing, the
    solution does not name them.
    """
    decided = answer_at_once(problem, "ilp")
    if decided is not None:
        return decided
    if problem.objective != "worst-cells":
        return _ProofSearch(problem, limits, rng, on_event).run(start)

    # For the longest route, the shortest routes come first: without these there is nothing to do.
    clock = limits.start()
    shortest_routes = replace(problem, objective="total-cells")
    search = _ProofSearch(shortest_routes, limits, rng, only_ticks(on_event))
    shortest = search.run(start)
    if shortest.schedule is None:
        infeasible = shortest.status is Status.INFEASIBLE
        bound = math.inf if infeasible else problem.lower_bound()
        return replace(shortest, problem=problem, lower_bound=bound)
    return shorten_longest_route(problem, clock, rng, on_event, search.best)


class _ProofSearch:
    """Branch and price for one matching.

    Bounds and costs of cases are whole numbers: in 1/`UNIT` of a cell, or where losses are
    minimised in the units of `loss_units`.

    Attributes
    ----------
    per_unit : int
        How many of these make a cell, or a dB.
    least : int
        What the cheapest routes cost together, each as if it were alone.
    cases : list of ProofNode
        All cases so far, the root first.
    best : Routes or None
        The best routes so far, with their objective in cells or dB.
    master : Master
        The linear programme over routes.
    negotiation : Negotiation
        Finds routes by rip-up and reroute.
    router : CellRouter
        The router at the costs of the objective, whose links have prices.
    totals : LossTotals
        Knows which totals the costs of all routes can have.
    """

    def __init__(
        self, problem: Routing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
    ) -> None:
        """Make the router at the costs of the objective, and the programme over routes."""
        # Losses are searched at costs that are whole units; negotiation rounds them to `UNIT`.
        self.problem = problem
        self.clock = limits.start()
        self.rng = rng
        self.on_event = on_event
        self.negotiation = Negotiation(problem)
        units = loss_units(problem.bar_loss_db, problem.cross_loss_db)
        losses = problem.objective == "loss-db"
        self.per_unit = units.per_db if losses else UNIT
        self.router = CellRouter(problem.fabric, *units[1:]) if losses else self.negotiation.router
        self.master = Master(self.router, self.negotiation.circuits)
        self.least = int(self.router.least[tuple(self.negotiation.circuits.T)].sum())
        self.totals = totals_of(problem)
        self.best: Routes | None = None

        # The first case begins without prices: no circuit costs less than if it were alone.
        no_prices = np.zeros(len(self.router.workspace.use), dtype=np.int64)
        self.cases = [ProofNode({}, PriceBound(float(self.least), no_prices))]

    def run(self, start: Solution | None = None) -> Solution:
        """Search until the best routes are proved, or a limit is reached.

        The routes of `start`, if given, are the first to be beaten. First comes a negotiation of
        routes, as good ones let most cases be left out; then branch and price over cases, in which
        links are closed to circuits.
        """
        limit: Limit | None = None
        with stoppable() as stop:
            self._keep_if_best(None if start is None else self.negotiation.take_up(start))

            # A few negotiations, until their routes are proved to be the best.
            for turn in range(WARM_STARTS):
                self._keep_if_best(self.negotiation.attempt(turn, self.rng))
                if self.least > self._cutoff():
                    break
                if self.clock.remaining_s <= 0:
                    limit = Limit.TIME
                    break
            if limit is None:
                limit = self._search_cases()
        if stop.limit is not None:
            limit = stop.limit
        return self._conclude(limit)

    def _cutoff(self) -> float:
        """Return the bound above which a case has no better routes; infinite before the first."""
        return math.inf if self.best is None else self.totals.enough(self.best.objective)

    def _keep_if_best(self, routes: Routes | None) -> None:
        """Keep routes if they are the best so far, and put them into the pool of columns.

        None is the result of a negotiation that failed, and changes nothing.
        """
        if routes is None:
            return
        if self.best is None or routes.objective < self.best.objective:
            self.best = routes
            self.on_event(NewBest(routes.objective))
        for k, (source, _) in enumerate(self.master.circuits):
            self.master.add(k, tuple(routes.routes[source, : routes.lengths[source]].tolist()))

    def _search_cases(self) -> Limit | None:
        """Search the cases best first: bound the one of the lowest bound, and split it if needed.

        A case needs no further search if it is infeasible, or if its bound is above the cutoff:
        then no routing in it beats the best one. The result is the limit that ended the search.
        None says that no case is left: ``self.best`` is optimal, or if that is None as well, the
        matching cannot be routed.
        """
        # The shortest routes of all circuits, each alone, may prove enough already.
        if self.least > self._cutoff():
            return None

        # The queue is a heap of (bound, number of the case): the lowest bound comes first.
        queue = [(-math.inf, 0)]
        bounded = 0  # cases that were bounded so far
        while queue:
            limit = self.clock.exceeded(bounded)
            if limit is None and self.best is not None:
                bound = max(self.problem.lower_bound(), self._in_unit(self._proved_bound()))
                limit = near_enough(self.best.objective, bound, self.clock.limits.gap)
            if limit is not None:
                return limit

            # The case of the lowest bound is bounded anew, by prices of its own.
            value, case_number = heapq.heappop(queue)
            if value > self._cutoff():
                continue
            bounded += 1
            case = self.cases[case_number]
            case.bound = self.master.bound(case.closed, self._cutoff(), self.clock, case.bound)
            proved = self._proved_bound()
            if proved > -math.inf:
                self.on_event(Bound(self._in_unit(proved)))
            self.on_event(Tick("cases", bounded))

            # A better routing found near the solution lowers the cutoff: that may settle the case.
            if case.bound.infeasible or case.bound.value > self._cutoff():
                continue
            self._round_solution(case.bound, _TRIES_AT_ROOT if bounded == 1 else _TRIES)
            if case.bound.value > self._cutoff():
                continue
            if not case.bound.converged or case.bound.weights is None:
                # The time was up before the programme was solved. The case stays open, so that
                # the limit is found and reported at the head of this loop.
                heapq.heappush(queue, (case.bound.value, case_number))
                continue
            if min(case.bound.weights.values()) > 1 - _TINY:
                # Each circuit takes one whole route: this is the best routing of the case, and
                # `_round_solution` has kept it. Its bound would be above the cutoff, were
                # losses not rounded to whole units.
                continue

            # No circuit passes a link in both directions, and no two circuits pass one link. So
            # there are two ways to split: the circuit does without the one direction of the link,
            # or without the other (`one_way`); or it does without the link, or all others do. A
            # half is the circuits that do without, and the terminals that are closed to them.
            split = self._where_to_split(case.bound.weights)
            case.split = split
            mate = int(self.router.wiring.mate[split.terminal])
            circuits = range(len(self.master.circuits))
            if split.one_way:
                halves = [([split.circuit], {split.terminal}), ([split.circuit], {mate})]
            else:
                both_ends = {split.terminal, mate} - {-1}  # at the rim a link has one end
                rivals = [rival for rival in circuits if rival != split.circuit]
                halves = [([split.circuit], both_ends), (rivals, both_ends)]

            # Each half is a case of its own, in which some circuits are kept from more terminals.
            # It begins with the bound and the prices of this case, which hold there as well.
            for closed_circuits, terminals in halves:
                closed = dict(case.closed)
                for circuit in closed_circuits:
                    closed[circuit] = closed.get(circuit, frozenset()) | terminals
                case.children.append(len(self.cases))
                self.cases.append(
                    ProofNode(closed, PriceBound(case.bound.value, case.bound.prices))
                )
                heapq.heappush(queue, (case.bound.value, case.children[-1]))
        return None

    def _round_solution(self, bound: PriceBound, tries: int) -> None:
        """Look for a routing near the solution of the linear programme, and keep it if it is best.

        A solution of whole routes (each weight is 1) is a routing itself. Otherwise circuits are
        negotiated, at most `tries` times, at the prices of the links, so that they avoid those
        that the programme finds scarce. `bound` is that of a case, with its weights and prices.
        """
        # Each circuit takes one whole route.
        if bound.weights is not None and min(bound.weights.values()) > 1 - _TINY:
            sources = [source for source, _ in self.master.circuits]
            terminals = {sources[column.circuit]: column.terminals for column in bound.weights}
            self._keep_if_best(self.negotiation.routes_of(terminals))
            return

        # Negotiations at the prices of the links, which for losses are in units of `loss_units`
        # and are scaled to those of the router of negotiations.
        for turn in range(1, tries + 1):
            prices = None if bound.prices is None else bound.prices * UNIT // self.per_unit
            self._keep_if_best(self.negotiation.attempt(turn, self.rng, prices))
            if bound.value > self._cutoff() or self.clock.remaining_s <= 0:
                return

    def _where_to_split(self, weights: dict[Column, float]) -> CaseSplit:
        """Pick a circuit and a link that it half uses; one that it uses both ways comes first.

        ``weights[column]`` is how much of a route the linear programme takes, from 0 to 1. A
        circuit whose route passes a link in both directions is kept from one of them in each case.
        Example: a circuit with two routes at 0.5 each half uses the links that only one of them
        has; one of these links that other circuits need most is closed to it in one case, and to
        all others in the other case.
        """
        # ``use[circuit, link]`` is how much of the circuit passes the link, ``total[link]`` that
        # of all circuits. A link is worth a split if two circuits share it.
        use: dict[tuple[int, int], float] = {}
        for column, weight in weights.items():
            links = self.master.links_of(column)
            for link, times in zip(*np.unique(links, return_counts=True), strict=True):
                if times > 1:
                    terminal = next(
                        t for t in column.terminals if self.router.wiring.link[t] == link
                    )
                    return CaseSplit(column.circuit, terminal, one_way=True)
                key = column.circuit, int(link)
                use[key] = use.get(key, 0.0) + weight
        total: dict[int, float] = {}
        for (_, link), share in use.items():
            total[link] = total.get(link, 0.0) + share

        # A link is contested as far as both the circuit and others pass it; where nobody else
        # does, one of the cases changes nothing. The most contested link comes first, then the
        # share that is nearest to 1/2.
        ranks = []
        for (circuit, link), share in use.items():
            contested = min(share, total[link] - share)
            ranks.append((-round(contested, 6), abs(share - 0.5), circuit, link))
        _, _, circuit, link = min(ranks)
        terminal = int(self.router.wiring.ends[link, 0])
        return CaseSplit(circuit, terminal, one_way=False)

    def _proved_bound(self) -> float:
        """Return the lower bound of all routings, in the units of bounds.

        Every routing is in one of the cases that have not been split, hence it is the least bound
        of these: infinite if all of them are infeasible.
        """
        leaves = [case.bound for case in self.cases if case.split is None]
        values = [math.inf if bound.infeasible else bound.value for bound in leaves]
        return min(values)

    def _in_unit(self, value: float) -> float:
        """Lift a bound to the next total that routes can have, in cells or dB.

        Where all totals are odd numbers of cells, a bound of 73.2 cells becomes 75.
        """
        return math.inf if value == math.inf else self.totals.rise(value)

    def _conclude(self, limit: Limit | None) -> Solution:
        """Make the solution of the best routes, with the proof where one is needed.

        `limit` is what ended the search, None if it came to its end.
        """
        least_cost = self.problem.lower_bound()
        proved = self._proved_bound()
        proof = self._write_proof() if self._in_unit(proved) > least_cost else None
        stats: dict[str, object] = {"cases": len(self.cases)}
        if proved == math.inf:
            stats |= self._explain()
        return conclude_routes(
            self.problem,
            self.best,
            max(least_cost, self._in_unit(proved)),
            limit,
            "ilp",
            certificate=proof,
            stats=stats,
        )

    def _write_proof(self) -> RoutingProof | None:
        """Write the cases as the tree of a proof; None if the prices of a leaf are not known.

        A case whose own bound is enough is a leaf, even if it was split. A root that is split into
        two leaves, for example, has the children (1, 2) in row 0. Rows 1 and 2 have the children
        (-1, -1), and -1 for the circuit and the terminal of a split, as leaves have none.
        """
        # The tree has a row for each case, breadth first: ``case_numbers[row]`` is its place in
        # ``self.cases``, and grows by two children for each case that is split. Each entry of
        # `kept_nodes` is a case, its split or None for a leaf, and the row of its first child; the
        # second child is in the next row. `needed` is the bound that is to be proved, in cells or
        # dB: a case that reaches it by its own prices is a leaf.
        needed = self._in_unit(self._proved_bound())
        case_numbers = [0]
        kept_nodes: list[tuple[ProofNode, CaseSplit | None, int]] = []
        while len(kept_nodes) < len(case_numbers):
            case = self.cases[case_numbers[len(kept_nodes)]]
            value = math.inf if case.bound.infeasible else self._in_unit(case.bound.value)
            split = case.split if case.split is not None and value < needed else None
            kept_nodes.append((case, split, len(case_numbers)))
            if split is not None:
                case_numbers += case.children

        # A leaf needs prices of its own.
        if any(split is None and case.bound.prices is None for case, split, _ in kept_nodes):
            return None

        # The columns of `splits` are circuit, terminal and one_way. A case that is split needs no
        # prices of its own, as its children prove it: its prices are 0.
        splits = np.array([split or (-1, -1, 0) for _, split, _ in kept_nodes])
        unused = np.zeros(len(self.router.workspace.use), dtype=np.int64)
        return RoutingProof(
            circuit=splits[:, 0],
            terminal=splits[:, 1],
            one_way=splits[:, 2],
            children=np.array(
                [
                    (first_child, first_child + 1) if split else (-1, -1)
                    for _, split, first_child in kept_nodes
                ]
            ),
            prices=np.array(
                [unused if split else case.bound.prices for case, split, _ in kept_nodes]
            ),
            infeasible=np.array(
                [split is None and case.bound.infeasible for case, split, _ in kept_nodes]
            ).astype(np.int8),
        )

    def _explain(self) -> dict[str, object]:
        """Say why there is no routing, as entries of the stats: by a cut if there is one.

        The prices of the root are the cut: the circuits have to pass the priced links more often
        than those carry circuits. With all prices the same, they count passages. The entries are a
        sentence (``reason``) and, with a cut, its circuits as pairs of ports (``cut_circuits``)
        and its links as names of their terminals (``cut_links``).
        """
        root = self.cases[0]
        if root.split is not None or root.bound.prices is None:
            return {
                "reason": f"each of {len(self.cases)} cases of a search has a cut of its own,"
                " no single cut forbids the matching"
            }

        # The circuits that have to pay, for the links that have a price: `costs` has the least sum
        # of prices on any path of each circuit, cells not counted.
        prices = root.bound.prices
        graph = self.router.graph
        links = np.flatnonzero(prices)
        costs = self.master.pay_prices(prices)
        unit = int(prices[links].min())
        circuits = [self.master.circuits[k] for k in np.flatnonzero(costs)]
        names = [
            " to ".join(graph.terminal_name(end) for end in ends if end >= 0)
            for ends in self.router.wiring.ends[links].tolist()
        ]
        weighted = "" if (prices[links] == unit).all() else ", some counted more than once,"
        return {
            "reason": f"circuits {_join_names([f'{i}-{j}' for i, j in circuits])} must pass the"
            f" links {_join_names(names)}{weighted} {sum(costs) / unit:g} times in all,"
            f" but each carries one circuit, {int(prices.sum()) / unit:g} in all",
            "cut_circuits": [list(pair) for pair in circuits],
            "cut_links": names,
        }


def _join_names(names: list[str], most: int = 24) -> str:
    """Join names for a sentence, at most `most` of them, and count the others."""
    n_unnamed = len(names) - most
    return ", ".join(names[:most]) + (f" and {n_unnamed} more" if n_unnamed > 0 else "")
