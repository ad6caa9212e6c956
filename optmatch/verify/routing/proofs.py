"""Check the proof that no routing of a matching is better, by cheapest walks in whole numbers."""

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


class Circuit(NamedTuple):
    """Where the light of a circuit enters and leaves the fabric."""

    start: int
    end: int


class Case(NamedTuple):
    """The moves that one circuit may not make in a case of the proof."""

    exits: frozenset[int] = frozenset()
    """Terminals by which it does not leave a cell."""
    links: frozenset[int] = frozenset()
    """Links that it does not pass in either direction."""


class ProofChecker:
    """Checks proofs about routings on one graph of cells; a void proof is a `ProofError`."""

    def __init__(self, graph: CellGraph) -> None:
        self.links = graph.links.count
        self.link_of: list[int] = graph.links.of_terminal.tolist()
        self.mate: list[int] = graph.mate.tolist()
        self.exits: list[list[int]] = graph.exits.tolist()
        self._parities: dict[int, list[set[int]]] = {}

    def bound_cells(self, proof: RoutingProof, circuits: list[Circuit]) -> float:
        """Bound the number of cells on all routes together; infinite if there is no routing."""
        costs = (PRICE_UNITS, PRICE_UNITS)
        return self._bound(proof, circuits, costs, lambda u: self._round_up_cells(u, circuits))

    def _round_up_cells(self, units: float, circuits: list[Circuit]) -> float:
        """Turn price units into whole cells, of the parity that all routes together have."""
        parity = self.total_parity(circuits)
        cells = -(-units // PRICE_UNITS)
        return cells if parity is None or cells % 2 == parity else cells + 1

    def bound_loss(
        self,
        proof: RoutingProof,
        circuits: list[Circuit],
        bar_loss_db: float,
        cross_loss_db: float,
    ) -> float:
        """Bound the loss of all routes together, in dB; infinite if there is no routing.

        Losses are rounded down to whole price units. Routes lose some number of times what bar
        loses, and some number of times what cross loses, so the bound rises to the next such sum;
        where all ways have one parity, to the next with that parity of all cells.
        """
        units = loss_units(bar_loss_db, cross_loss_db)
        parity = self.total_parity(circuits)
        most = len(self.exits) // 2  # both ways through every cell

        def round_up(value: float) -> float:
            loss = value / units.per_db
            if loss <= 0:
                return loss
            cheap, dear = sorted((bar_loss_db, cross_loss_db))
            if dear * most < loss:
                return loss
            sums = (
                _next_sum(loss, (times, dear), cheap, most, parity)
                for times in range(math.ceil(loss / dear) + 1)
            )
            return min(sums)

        return self._bound(proof, circuits, (units.bar, units.cross), round_up)

    def bound_slots(self, proof: RoutingProof, circuits: list[Circuit], slots: int) -> float:
        """Bound the cells on the routes of all circuits, shared out among so many slots.

        Each link carries one circuit in a slot, so its price counts `slots` times. Infinite if the
        proof shows that so many slots cannot hold the circuits.
        """
        self._check_sizes(proof, len(circuits))
        if len(proof.circuit) != 1:
            raise ProofError(f"{len(proof.circuit)} cases, where all slots together have one")
        prices, infeasible = proof.prices[0].tolist(), bool(proof.infeasible[0])
        cell_costs = (0, 0) if infeasible else (PRICE_UNITS, PRICE_UNITS)
        walks: dict[int, dict[int, int]] = {}
        total: float = -slots * sum(prices)
        for start, end in circuits:
            if start not in walks:
                walks[start] = self._walks(start, Case(), prices, cell_costs)
            total += walks[start].get(end, math.inf)
        if infeasible and total <= 0:
            raise ProofError(
                f"claims that {slots} slots do not do, but the circuits pay {total} more than all"
                " links are worth, which is not > 0"
            )
        return math.inf if infeasible else self._round_up_cells(total, circuits)

    def show_infeasible(self, proof: RoutingProof, circuits: list[Circuit]) -> bool:
        """Tell whether the proof shows that there is no routing, whatever a cell costs."""
        return self._bound(proof, circuits, (0, 0), lambda units: 0.0) == math.inf

    def _bound(
        self,
        proof: RoutingProof,
        circuits: list[Circuit],
        cell_costs: tuple[int, int],
        convert: Callable[[float], float],
    ) -> float:
        """Take the least bound of all leaves."""
        self._check_sizes(proof, len(circuits))
        bounds = []
        open_nodes = [(0, [Case()] * len(circuits))]
        while open_nodes:
            node, cases = open_nodes.pop()
            if proof.circuit[node] >= 0:
                for case in (0, 1):
                    narrower = self._restrict(proof, node, case, cases)
                    open_nodes.append((int(proof.children[node, case]), narrower))
                continue
            infeasible = bool(proof.infeasible[node])
            value = self._value(
                proof.prices[node].tolist(), circuits, cases, (0, 0) if infeasible else cell_costs
            )
            if infeasible and value <= 0:
                raise ProofError(
                    f"leaf {node} claims that there is no routing, but its circuits pay"
                    f" {value} more than all links are worth, which is not > 0"
                )
            bounds.append(math.inf if infeasible or value == math.inf else convert(value))
        return min(bounds)

    def _check_sizes(self, proof: RoutingProof, n_circuits: int) -> None:
        if proof.prices.shape[1] != self.links:
            raise ProofError(
                f"prices for {proof.prices.shape[1]} links, the fabric has {self.links}"
            )
        if proof.circuit.max() >= n_circuits:
            raise ProofError(f"splits on circuit {proof.circuit.max()} of {n_circuits}")
        splits = proof.terminal[proof.circuit >= 0]
        if ((splits < 0) | (splits >= len(self.mate))).any():
            raise ProofError(f"splits at a terminal that is not 0 .. {len(self.mate) - 1}")

    def _restrict(
        self, proof: RoutingProof, node: int, case: int, cases: list[Case]
    ) -> list[Case]:
        """Add the rules of a node to those that its circuits have already."""
        chosen, terminal = int(proof.circuit[node]), int(proof.terminal[node])
        narrower = list(cases)
        if proof.one_way[node]:  # the circuit does not go this way, or not the other way
            shut = terminal if case == 0 else self.mate[terminal]
            narrower[chosen] = cases[chosen]._replace(exits=cases[chosen].exits | {shut})
            return narrower
        for k, before in enumerate(cases):  # not this circuit, or no other
            if (k == chosen) == (case == 0):
                narrower[k] = before._replace(links=before.links | {self.link_of[terminal]})
        return narrower

    def _value(
        self,
        prices: list[int],
        circuits: list[Circuit],
        cases: list[Case],
        cell_costs: tuple[int, int],
    ) -> float:
        """Add up the cheapest walks and take off all prices: each link is paid once at most."""
        total: float = -sum(prices)
        for circuit, case in zip(circuits, cases, strict=True):
            total += self.cheapest_walk(circuit, case, prices, cell_costs)
        return total

    def cheapest_walk(
        self, circuit: Circuit, case: Case, prices: list[int], cell_costs: tuple[int, int]
    ) -> float:
        """Find the least cost from start to end by Dijkstra, with that of the links of both.

        `cell_costs` are those of a cell in bar and in cross. Infinite where there is no way.
        """
        return self._walks(circuit.start, case, prices, cell_costs, circuit.end).get(
            circuit.end, math.inf
        )

    def _walks(
        self,
        start: int,
        case: Case,
        prices: list[int],
        cell_costs: tuple[int, int],
        end: int = -1,
    ) -> dict[int, int]:
        """Find the least costs of leaving by the terminals, as far as `end` if there is one."""
        best: dict[int, int] = {}
        if self.link_of[start] in case.links:
            return best
        waiting: list[tuple[int, int]] = []

        def enter(terminal: int, cost: int) -> None:
            for left in self.exits[terminal]:
                cell_cost = cell_costs[(left ^ terminal) & 1]  # a stuck cell has one state only
                link = self.link_of[left]
                if left in case.exits or link in case.links:
                    continue
                reached = cost + cell_cost + prices[link]
                if reached < best.get(left, reached + 1):
                    best[left] = reached
                    heapq.heappush(waiting, (reached, left))

        enter(start, prices[self.link_of[start]])
        while waiting:
            cost, left = heapq.heappop(waiting)
            if left == end:
                break
            if self.mate[left] >= 0:
                enter(self.mate[left], cost)
        return best

    def total_parity(self, circuits: list[Circuit]) -> int | None:
        """Tell whether all routes together pass an even (0) or odd (1) number of cells."""
        parities = [self._parity_of_walks(circuit.start)[circuit.end] for circuit in circuits]
        if any(len(found) != 1 for found in parities):
            return None
        return sum(min(found) for found in parities) % 2

    def _parity_of_walks(self, start: int) -> list[set[int]]:
        """For each terminal, the parities of the walks that leave by it."""
        if start not in self._parities:
            found: list[set[int]] = [set() for _ in self.mate]
            waiting = deque([(start, 0)])
            while waiting:
                at, parity = waiting.popleft()
                for left in self.exits[at]:
                    if 1 - parity not in found[left]:
                        found[left].add(1 - parity)
                        if self.mate[left] >= 0:
                            waiting.append((self.mate[left], 1 - parity))
            self._parities[start] = found
        return self._parities[start]


def _next_sum(
    loss: float, paid: tuple[int, float], cheap: float, most: int, parity: int | None
) -> float:
    """Add the cheaper loss to so many dear ones until it is enough; infinite if `most` are not.

    A sum that is less than `loss` by no more than rounding is taken: no bound is too high so.
    """
    times, dear = paid
    left = loss * _ROUNDING - times * dear
    if left > cheap * most:
        return math.inf
    count = math.ceil(left / cheap) if left > 0 else 0
    count += parity is not None and (times + count) % 2 != parity
    return times * dear + count * cheap
