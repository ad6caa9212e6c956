"""Naive twins of functions of the package: slow, short, and written without looking there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.optics.scattering import Waves

BAR_WAYS = {"a1": "b1", "b1": "a1", "a2": "b2", "b2": "a2"}
CROSS_WAYS = {"a1": "b2", "b2": "a1", "a2": "b1", "b1": "a2"}
NAMES = ["a1", "a2", "b1", "b2"]

Step = tuple[int, int]  # terminal entered, terminal left


def follow(graph: CellGraph, states: Sequence[int], start: int) -> tuple[list[Step], int | None]:
    """Follow one beam; the end is None where it meets a free cell."""
    steps: list[Step] = []
    at = start
    while True:
        cell = at // 4
        if states[cell] == -1:
            return steps, None
        ways = BAR_WAYS if states[cell] == 0 else CROSS_WAYS
        left = 4 * cell + NAMES.index(ways[NAMES[at % 4]])
        steps.append((at, left))
        if graph.mate[left] < 0:
            return steps, left
        at = int(graph.mate[left])


def link_of(graph: CellGraph, terminal: int) -> frozenset[int]:
    """Name a link by the set of the terminals it joins."""
    return frozenset({terminal, int(graph.mate[terminal])} - {-1})


def routes(graph: CellGraph, start: int, end: int, most: int) -> Iterator[list[Step]]:
    """List all ways of at most so many cells that pass each link once."""

    def extend(at: int, steps: list[Step], passed: set[frozenset[int]]) -> Iterator[list[Step]]:
        if len(steps) == most:
            return
        cell = at // 4
        for k in (2, 3) if at % 4 < 2 else (0, 1):
            left = 4 * cell + k
            link = link_of(graph, left)
            if link in passed:
                continue
            if left == end:
                yield [*steps, (at, left)]
            elif graph.mate[left] >= 0:
                yield from extend(int(graph.mate[left]), [*steps, (at, left)], passed | {link})

    yield from extend(start, [], {link_of(graph, start)})


def circuits(fabric: Fabric, matching: Sequence[int]) -> list[tuple[int, int]]:
    """List the circuits of a matching, of bidirectional ports once."""
    return [
        (i, j) for i, j in enumerate(matching) if j >= 0 and not (fabric.bidirectional and i > j)
    ]


def best_states(
    graph: CellGraph, ends: Sequence[tuple[int, int]], cost: tuple[float, float] = (1, 1)
) -> tuple[float, int]:
    """Try all states of a tiny mesh: least total cost of these circuits, and least worst length.

    Both numbers are infinite where no state carries all circuits at once.
    """
    total: float = np.inf
    worst: float = np.inf
    for states in product((0, 1), repeat=graph.n_cells):
        found = [follow(graph, states, start) for start, _ in ends]
        if all(out == end for (_, out), (_, end) in zip(found, ends, strict=True)):
            total = min(total, sum(cost[states[at // 4]] for steps, _ in found for at, _ in steps))
            worst = min(worst, max((len(steps) for steps, _ in found), default=0))
    return total, worst  # type: ignore[return-value]


def cheapest_walk(
    graph: CellGraph,
    start: int,
    end: int,
    prices: Sequence[int],
    cell_costs: tuple[int, int],
    no_exit: frozenset[int] = frozenset(),
    no_link: frozenset[int] = frozenset(),
) -> float:
    """Relax all ways through all cells until nothing changes (Bellman and Ford)."""
    of_terminal = graph.links.of_terminal
    if int(of_terminal[start]) in no_link:
        return np.inf
    reach = {start: float(prices[of_terminal[start]])}  # by terminal entered
    best: float = np.inf
    changed = True
    while changed:
        changed = False
        for at, cost in list(reach.items()):
            for ways, cell_cost in zip((BAR_WAYS, CROSS_WAYS), cell_costs, strict=True):
                left = at - at % 4 + NAMES.index(ways[NAMES[at % 4]])
                link = int(of_terminal[left])
                if left in no_exit or link in no_link:
                    continue
                total = cost + cell_cost + prices[link]
                if left == end:
                    best = min(best, total)
                following = int(graph.mate[left])
                if following >= 0 and total < reach.get(following, np.inf):
                    reach[following] = total
                    changed = True
    return best


def random_states(rng: np.random.Generator, slots: int, graph: CellGraph) -> NDArray[np.int8]:
    """Draw bar or cross for every cell."""
    return rng.integers(0, 2, (slots, graph.n_cells)).astype(np.int8)


@dataclass(frozen=True, slots=True, eq=False)
class Wired(Fabric):
    """Any cells in any wiring; every free terminal is a port."""

    graph: CellGraph
    type: ClassVar[str] = "wired"
    bidirectional: ClassVar[bool] = True

    @property
    def n_ports(self) -> int:
        """The number of free terminals."""
        return len(self.graph.perimeter)

    @property
    def source_terminals(self) -> NDArray[np.int32]:
        """The free terminals in order."""
        return self.graph.perimeter

    @property
    def destination_terminals(self) -> NDArray[np.int32]:
        """The same."""
        return self.graph.perimeter


def random_fabric(rng: np.random.Generator, n_cells: int) -> Wired:
    """Join terminals at random, until two to six are free."""
    terminals = rng.permutation(4 * n_cells)
    mate = np.full(4 * n_cells, -1)
    joined = terminals[int(rng.integers(1, 4)) * 2 :].reshape(-1, 2)
    mate[joined[:, 0]], mate[joined[:, 1]] = joined[:, 1], joined[:, 0]
    free: Any = np.flatnonzero(mate < 0)
    joins: Any = mate
    return Wired(CellGraph(mate=joins, ends=np.zeros((n_cells, 2, 2)), perimeter=free))


def route_lengths(graph: CellGraph, ends: Sequence[int]) -> NDArray[np.float64]:
    """Count the cells of the shortest route between each two terminals by listing them all."""
    table = np.zeros((len(ends), len(ends)))
    for i, start in enumerate(ends):
        for j, end in enumerate(ends):
            if i != j:
                found = routes(graph, start, end, 2 * graph.n_cells)
                table[i, j] = min(map(len, found), default=np.inf)
    return table


def solve_densely(
    graph: CellGraph,
    cells: NDArray[np.complex128],
    waveguides: NDArray[np.complex128],
    inputs: NDArray[np.integer],
) -> Waves:
    """Write S and C of light down terminal by terminal, and solve by dense elimination."""
    n = len(graph.mate)
    scattering, joins = np.zeros((n, n), dtype=complex), np.zeros((n, n), dtype=complex)
    for cell in range(graph.n_cells):
        for end in (0, 2):
            for left in (0, 1):
                for entered in (0, 1):
                    out, into = 4 * cell + (2 - end) + left, 4 * cell + end + entered
                    matrix = cells[cell] if end == 0 else cells[cell].T  # cells are reciprocal
                    scattering[out, into] = matrix[left, entered]
    for terminal in range(n):
        if graph.mate[terminal] >= 0:
            factor = waveguides[graph.links.of_terminal[terminal]]
            joins[terminal, graph.mate[terminal]] = factor
    sent = np.zeros((n, len(inputs)))
    sent[inputs, np.arange(len(inputs))] = 1.0
    entering = np.linalg.solve(np.eye(n) - joins @ scattering, sent)
    return Waves(entering, scattering @ entering)
