"""Check the certificate that no routing of a matching is better: link prices and cases.

The prices are a solution of the dual problem (Lagrangian relaxation of "a link carries one
circuit"): see `RoutingProof`. All sums are of whole numbers, so checking involves no rounding.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from optmatch.fabrics import CellGraph
from optmatch.problems import RoutingProof
from optmatch.problems.routing import PRICE_UNITS, loss_units
from optmatch.verify.report import ProofError

_ROUNDING = 1 - 1e-12
"""A sum of losses that is less than a bound by this factor is taken as equal to it."""


class Circuit(NamedTuple):
    """The terminals where the light of a circuit enters and leaves the fabric."""

    start: int
    end: int


class Case(NamedTuple):
    """What one circuit may not do in a case of the proof."""

    exits: frozenset[int] = frozenset()
    """Terminals by which it does not leave a cell."""
    links: frozenset[int] = frozenset()
    """Links that it does not pass in either direction."""


class CellCosts(NamedTuple):
    """The cost of passing a cell, in price units."""

    bar: int
    cross: int


class JointBound(NamedTuple):
    """What link prices prove of all slots of an all-to-all together."""

    cells: float
    """A bound of the cells on all routes; infinite if so many slots cannot hold the circuits."""
    slots: int
    """The fewest slots that can hold the circuits by these prices; 0 if nothing is shown."""


_EXACT_IN_FLOAT = 2**53
"""Whole numbers below this one are exact as floats, and so are their sums below it."""

_MIN_STEPS_IN_SCIPY = 500_000
"""Searches of fewer steps take less time in Python than SciPy takes to be imported, 0.35 s."""

WHOLE_CELLS = CellCosts(PRICE_UNITS, PRICE_UNITS)
FREE_CELLS = CellCosts(0, 0)


class ProofChecker:
    """Checks proofs about routings on one graph of cells; a void proof is a `ProofError`."""

    def __init__(self, graph: CellGraph) -> None:
        self.n_links = graph.links.count
        self.link_of: list[int] = graph.links.of_terminal.tolist()
        self.mate: list[int] = graph.mate.tolist()
        self.exits: list[list[int]] = graph.exits.tolist()
        self._parities: dict[int, list[set[int]]] = {}

    def bound_cells(self, proof: RoutingProof, circuits: list[Circuit]) -> float:
        """Compute the lower bound of the cells on all routes together that a proof shows.

        It is a whole number of the parity that all routes have; infinite if there is no routing.
        """

        def to_cells(units: float) -> float:
            return self._round_up_cells(units, circuits)

        return self._bound_leaves(proof, circuits, WHOLE_CELLS, to_cells)

    def _round_up_cells(self, units: float, circuits: list[Circuit]) -> float:
        """Turn price units into whole cells, of the parity that all routes together have."""
        parity = self.total_parity(circuits)
        cells = -(-units // PRICE_UNITS)
        if parity is None or cells % 2 == parity:
            return cells
        return cells + 1

    def bound_loss(
        self,
        proof: RoutingProof,
        circuits: list[Circuit],
        bar_loss_db: float,
        cross_loss_db: float,
    ) -> float:
        """Bound the loss of all routes together in dB; infinite if there is no routing.

        The bound rises to the next sum that whole numbers of cells in bar and in cross can have:
        with losses of 2 and 3 dB, 4.1 dB becomes 5 dB. If the parity of the number of cells is
        known, only such sums count.
        """
        units = loss_units(bar_loss_db, cross_loss_db)
        cell_costs = CellCosts(units.bar, units.cross)
        parity = self.total_parity(circuits)
        max_passages = len(self.exits) // 2  # both ways through every cell
        cheap_db, dear_db = sorted((bar_loss_db, cross_loss_db))

        def to_loss_db(value: float) -> float:
            """Turn price units into the next loss in dB that routes can have."""
            loss_db = value / units.per_db
            if loss_db <= 0 or dear_db * max_passages < loss_db:
                return loss_db
            return min(
                _next_sum(loss_db, (n_dear, dear_db), cheap_db, max_passages, parity)
                for n_dear in range(math.ceil(loss_db / dear_db) + 1)
            )

        return self._bound_leaves(proof, circuits, cell_costs, to_loss_db)

    def bound_slots(self, proof: RoutingProof, circuits: list[Circuit], slots: int) -> JointBound:
        """Bound the cells on the routes of all circuits, which are divided among some time slots.

        All circuits together pay the price of a link at most `slots` times. Hence the cheapest
        walks of all circuits, less the prices of all links in all slots, bound the cells. If cells
        cost nothing and this is still above 0, so many slots cannot hold the circuits.

        Parameters
        ----------
        proof
            The certificate, of a single case; others are a `ProofError`, as are prices that do not
            show
            what it claims.
        """
        self._check_sizes(proof, len(circuits))
        if len(proof.circuit) != 1:
            raise ProofError(f"{len(proof.circuit)} cases, where all slots together have one")
        prices = proof.prices[0].tolist()
        worth_of_slot = sum(prices)
        infeasible = bool(proof.infeasible[0])
        cell_costs = FREE_CELLS if infeasible else WHOLE_CELLS

        paid = self._sum_of_circuits(circuits, prices, cell_costs)
        if paid == math.inf:
            return JointBound(math.inf, 0)  # two ports cannot meet in any number of slots
        total = paid - slots * worth_of_slot
        if not infeasible:
            return JointBound(self._round_up_cells(total, circuits), 0)
        if total <= 0:
            raise ProofError(
                f"claims that {slots} slots do not do, but the circuits pay {total} more than all"
                " links are worth, which is not > 0"
            )
        return JointBound(math.inf, -(-int(paid) // worth_of_slot))

    def _sum_of_circuits(
        self, circuits: list[Circuit], prices: list[int], cell_costs: CellCosts
    ) -> float:
        """Add up what the cheapest walks of all circuits cost, exactly.

        Infinite if some circuit has no walk. One search serves all circuits of a start. Large sums
        are left to SciPy where floats are exact.
        """
        # A cheapest walk leaves by a terminal once at most, which bounds what it costs.
        n_terminals = len(self.mate)
        dearest_step = max(prices) + max(cell_costs)
        is_exact_in_float = (n_terminals + 1) * dearest_step < _EXACT_IN_FLOAT
        n_steps = len({circuit.start for circuit in circuits}) * n_terminals
        if is_exact_in_float and n_steps > _MIN_STEPS_IN_SCIPY:
            return self._sum_of_circuits_in_float(circuits, prices, cell_costs)

        costs_from: dict[int, dict[int, int]] = {}
        total: float = 0
        for circuit in circuits:
            if circuit.start not in costs_from:
                costs_from[circuit.start] = self._search_costs(
                    circuit.start, Case(), prices, cell_costs
                )
            total += costs_from[circuit.start].get(circuit.end, math.inf)
        return total

    def _sum_of_circuits_in_float(
        self, circuits: list[Circuit], prices: list[int], cell_costs: CellCosts
    ) -> float:
        """Add up the costs of the cheapest walks of all circuits, by Dijkstra's method of SciPy.

        Its nodes are the terminals by which light leaves cells, then the starts of circuits; an
        edge leads through the next cell, and costs that cell and the link behind it.
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        n_terminals = len(self.mate)
        starts = sorted({circuit.start for circuit in circuits})
        entered_from = {n_terminals + k: start for k, start in enumerate(starts)}
        entered_from |= {left: mate for left, mate in enumerate(self.mate) if mate >= 0}

        # An edge leads through the cell that is entered, in bar or in cross. In a stuck cell both
        # states have the same exit, and count once. The first link of a circuit is paid as well.
        weight_of_edge: dict[tuple[int, int], int] = {}
        for node, entered in entered_from.items():
            toll = prices[self.link_of[entered]] if node >= n_terminals else 0
            for left in self.exits[entered]:
                state = (left ^ entered) & 1
                weight = toll + cell_costs[state] + prices[self.link_of[left]]
                weight_of_edge[node, left] = weight
        rows, columns = zip(*weight_of_edge, strict=True)
        size = n_terminals + len(starts)
        weights = list(map(float, weight_of_edge.values()))
        graph = csr_array((weights, (rows, columns)), shape=(size, size))

        # All numbers are whole, and Python's integers add them up.
        costs = dijkstra(graph, indices=range(n_terminals, size))
        row_of = {start: k for k, start in enumerate(starts)}
        walks = [costs[row_of[circuit.start], circuit.end] for circuit in circuits]
        if math.inf in walks:
            return math.inf
        return sum(map(int, walks))

    def show_infeasible(self, proof: RoutingProof, circuits: list[Circuit]) -> bool:
        """Return whether the proof shows that there is no routing, whatever a cell costs."""
        return self._bound_leaves(proof, circuits, FREE_CELLS, lambda units: 0.0) == math.inf

    def _bound_leaves(
        self,
        proof: RoutingProof,
        circuits: list[Circuit],
        cell_costs: CellCosts,
        convert: Callable[[float], float],
    ) -> float:
        """Return a lower bound on the cost of every routing, as a tree of cases proves it.

        Each leaf bounds the routings of its own case, and every routing falls into one of them,
        hence the least bound holds for all: leaves that prove 12, 14 and "no routing" (infinite)
        prove 12.

        Parameters
        ----------
        convert
            Turns a finite sum in price units into the unit of the result, such as whole cells.
        """
        self._check_sizes(proof, len(circuits))

        # Depth-first search of the tree. An entry of `open_nodes` is a node, and what is forbidden
        # to each circuit there; at the root nothing is.
        bounds = []
        open_nodes = [(0, [Case()] * len(circuits))]
        while open_nodes:
            node, cases = open_nodes.pop()

            # An inner node hands its two cases on. A leaf adds its bound: infinite if its case has
            # no routing, else the cheapest paths (links paid for) less the prices of all links.
            if proof.circuit[node] >= 0:
                for branch in (0, 1):
                    child = int(proof.children[node, branch])
                    open_nodes.append((child, self._restrict(proof, node, branch, cases)))
            elif proof.infeasible[node]:
                self._check_infeasible_leaf(proof, node, circuits, cases)
                bounds.append(math.inf)
            else:
                prices = proof.prices[node].tolist()
                value = self._sum_cheapest(prices, circuits, cases, cell_costs)
                bounds.append(math.inf if value == math.inf else convert(value))
        return min(bounds)

    def _check_infeasible_leaf(
        self, proof: RoutingProof, node: int, circuits: list[Circuit], cases: list[Case]
    ) -> None:
        """Refuse a leaf whose prices do not show that its case has no routing.

        If the circuits on their cheapest routes pay more than all links are worth, they cannot
        have links of their own (Farkas' lemma).
        """
        prices = proof.prices[node].tolist()
        value = self._sum_cheapest(prices, circuits, cases, FREE_CELLS)
        if value <= 0:
            raise ProofError(
                f"leaf {node} claims that there is no routing, but its circuits pay"
                f" {value} more than all links are worth, which is not > 0"
            )

    def _check_sizes(self, proof: RoutingProof, n_circuits: int) -> None:
        """Refuse a proof about other links, circuits or terminals than there are."""
        n_prices = proof.prices.shape[1]
        if n_prices != self.n_links:
            raise ProofError(f"prices for {n_prices} links, the fabric has {self.n_links}")
        if proof.circuit.max() >= n_circuits:
            raise ProofError(f"splits on circuit {proof.circuit.max()} of {n_circuits}")
        splits = proof.terminal[proof.circuit >= 0]
        if ((splits < 0) | (splits >= len(self.mate))).any():
            raise ProofError(f"splits at a terminal that is not 0 .. {len(self.mate) - 1}")

    def _restrict(
        self, proof: RoutingProof, node: int, branch: int, cases: list[Case]
    ) -> list[Case]:
        """Return what is forbidden to each circuit in branch 0 or 1 of a node, as a new list.

        A *one way* node forbids its circuit to pass the link in one direction, or in the other
        one. Any other node forbids the link to its circuit (branch 0), or to all others (branch
        1).
        """
        chosen = int(proof.circuit[node])
        terminal = int(proof.terminal[node])
        narrower = list(cases)

        # Light of a circuit passes a link in one direction at most.
        if proof.one_way[node]:
            closed_exit = terminal if branch == 0 else self.mate[terminal]
            exits = cases[chosen].exits | {closed_exit}
            narrower[chosen] = cases[chosen]._replace(exits=exits)
            return narrower

        # Of all circuits at most one passes a link: the chosen one, or another.
        closed_link = self.link_of[terminal]
        for circuit, case in enumerate(cases):
            forbidden = circuit == chosen if branch == 0 else circuit != chosen
            if forbidden:
                narrower[circuit] = case._replace(links=case.links | {closed_link})
        return narrower

    def _sum_cheapest(
        self,
        prices: list[int],
        circuits: list[Circuit],
        cases: list[Case],
        cell_costs: CellCosts,
    ) -> float:
        """Bound the cost of all routings in a case: cheapest walks, less the prices of all links.

        In a routing each link is paid once at most (Lagrangian relaxation). Infinite if some
        circuit has no walk.
        """
        total: float = -sum(prices)
        for circuit, case in zip(circuits, cases, strict=True):
            total += self.cheapest_walk(circuit, case, prices, cell_costs)
        return total

    def cheapest_walk(
        self, circuit: Circuit, case: Case, prices: list[int], cell_costs: tuple[int, int]
    ) -> float:
        """Find the least cost of a walk, links at both ends included; infinite without one."""
        costs = self._search_costs(circuit.start, case, prices, cell_costs, circuit.end)
        return costs.get(circuit.end, math.inf)

    def _search_costs(
        self,
        start: int,
        case: Case,
        prices: list[int],
        cell_costs: tuple[int, int],
        end: int = -1,
    ) -> dict[int, int]:
        """Return the least cost at which light can leave a cell by each terminal, by Dijkstra.

        The price of the first link is paid too. Terminals out of reach are absent. If the search
        stops at `end` (-1: at none), only costs up to that of `end` are final.
        """
        # The queue `waiting` has pairs (cost, terminal). A terminal may be there several times;
        # the first one that is taken is the cheapest.
        cost_at: dict[int, int] = {}
        if self.link_of[start] in case.links:
            return cost_at
        waiting: list[tuple[int, int]] = []

        def enter(terminal: int, cost_before: int) -> None:
            """Put all exits of a cell that is entered at a terminal into the queue."""
            # A stuck cell has the same exit in both states.
            for left in self.exits[terminal]:
                link = self.link_of[left]
                if left in case.exits or link in case.links:
                    continue
                state = (left ^ terminal) & 1
                cost = cost_before + cell_costs[state] + prices[link]
                if left not in cost_at or cost < cost_at[left]:
                    cost_at[left] = cost
                    heapq.heappush(waiting, (cost, left))

        enter(start, prices[self.link_of[start]])
        while waiting:
            cost, left = heapq.heappop(waiting)
            if left == end:
                break
            if self.mate[left] >= 0:
                enter(self.mate[left], cost)
        return cost_at

    def total_parity(self, circuits: list[Circuit]) -> int | None:
        """Tell whether all routes together pass an even (0) or an odd (1) number of cells.

        None if a circuit has walks of both parities, or none at all.
        """
        # The parity of a sum is the sum of the parities, modulo 2.
        total = 0
        for circuit in circuits:
            parities = self._parities_of_walks(circuit.start)[circuit.end]
            if len(parities) != 1:
                return None
            total += min(parities)
        return total % 2

    def _parities_of_walks(self, start: int) -> list[set[int]]:
        """Tell which parities of cells (0, 1) walks to each terminal have.

        Breadth-first search over terminals and parities. The result is kept for each start.
        """
        if start not in self._parities:
            parities: list[set[int]] = [set() for _ in self.mate]
            waiting = deque([(start, 0)])
            while waiting:
                terminal, parity_before = waiting.popleft()
                parity = 1 - parity_before
                for left in self.exits[terminal]:
                    if parity in parities[left]:
                        continue
                    parities[left].add(parity)
                    if self.mate[left] >= 0:
                        waiting.append((self.mate[left], parity))
            self._parities[start] = parities
        return self._parities[start]


def _next_sum(
    loss_db: float,
    dear: tuple[int, float],
    cheap_db: float,
    max_passages: int,
    parity: int | None,
) -> float:
    """Return the least sum of cell losses that reaches a loss, with so many dear cells in it.

    A sum that falls short by rounding alone is taken too, so that no bound becomes too high. It is
    infinite if `max_passages` cheap cells do not reach the loss.

    Parameters
    ----------
    dear
        The number of dear cells in the sum, and the loss of each in dB.
    parity
        Of the number of all cells, 0 or 1; None if it may be either.
    """
    n_dear, dear_db = dear
    missing_db = loss_db * _ROUNDING - n_dear * dear_db
    if missing_db > cheap_db * max_passages:
        return math.inf
    n_cheap = math.ceil(missing_db / cheap_db) if missing_db > 0 else 0
    if parity is not None and (n_dear + n_cheap) % 2 != parity:
        n_cheap += 1
    return n_dear * dear_db + n_cheap * cheap_db
