"""Bounds of schedules on a switch, recomputed without the solvers, and the check of link prices.

1. Slots (`count_slots`): pairs over pairs in a slot.
2. Cells and losses (`bound_objective`): each circuit passes at least its shortest route
   (`route_lengths`, breadth-first; `sum_least`, Dijkstra).
3. Cells passed twice (`_count_passed_twice`): where light goes one way, a cell with light at both
   ends a has light at both ends b; by induction from the inputs.
4. Power (`bound_power`): dark cells take their cheaper state, and each circuit adds half of what
   its cheapest route adds, since two may share a cell.
5. Crosstalk (`bound_crosstalk`): r g + r / g >= 2 r in a cell of leak r; the worst is no less than
   the mean.
6. Link prices (`ProofChecker`): Lagrangian relaxation of "a link carries one circuit"; cases that
   exclude each other have prices of their own, and the weakest counts.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric, break_cells
from optmatch.fabrics.cellgraph import state_between
from optmatch.fabrics.light import Light
from optmatch.fabrics.reach import fit_stuck
from optmatch.model import FREE, CellDevice, read_only
from optmatch.problems import AllToAll, Routing, RoutingProof
from optmatch.problems.routing import PRICE_UNITS, loss_units
from optmatch.verify.light import find_over_budget
from optmatch.verify.report import ProofError


class Quality(NamedTuple):
    """Loss and crosstalk of the beams of a schedule, by slot and source."""

    loss_db: NDArray[np.float64]
    """``loss_db[slot, source]``: of all cells passed."""
    crosstalk: NDArray[np.float64]
    """``crosstalk[slot, source]``: power that leaks into the circuit once, over its signal."""


def measure_quality(light: Light, cells: CellDevice) -> Quality:
    """Compute the loss and the crosstalk of each beam of a schedule, by slot and source.

    Two beams in one cell leak into each other. A leak loses the same as the beam that it has
    joined, so its share of that beam stays what it is in the cell: if a cell leaks 1 %, and the
    other beam has twice the power there, it adds 2 %.
    """
    # The loss of each beam (a pair of slot and source): the sum over the cells that it passes.
    # `light` has an entry for each passage; those of a beam stand together, in the order of its
    # way. Cell c has the terminals 4 c to 4 c + 3: 4 c and 4 c + 1 are the two sides of one end,
    # 4 c + 2 and 4 c + 3 those of the other. From 4 c to 4 c + 3 light changes sides: bit 0
    # differs, and the cell is cross.
    shape = light.arrived.shape
    n_sources = shape[1]
    beam = light.slot * n_sources + light.beam
    cell = light.entered // 4
    state = (light.entered ^ light.left) & 1  # sides differ in cross: 1
    loss_db = cells.loss_db[cell, state]
    total_db = np.zeros(shape[0] * n_sources)
    np.add.at(total_db, beam, loss_db)

    # The loss of a beam before each of its cells: the running sum over all entries, less what it
    # was at the first cell of the beam.
    before_db = np.cumsum(loss_db) - loss_db
    first_of_beam = np.flatnonzero(np.diff(beam, prepend=-1))
    n_cells_of_beam = np.diff(np.append(first_of_beam, len(beam)))
    before_db -= np.repeat(before_db[first_of_beam], n_cells_of_beam)

    # For each passage (`receiver`) the one, if any, that enters the same cell beside it
    # (`leaker`): in the same slot, at the other side of the same end. `place` is one number for a
    # slot and a terminal, and ``place ^ 1`` that of the terminal beside it. If passage 0 enters at
    # place 6 and passage 5 at place 7, the pairs of receiver and leaker are 0, 5 and 5, 0. A beam
    # that meets itself makes no crosstalk, nor does a cell that leaks nothing.
    place = light.slot * (4 * cells.n_cells) + light.entered
    _, receiver, leaker = np.intersect1d(place, place ^ 1, assume_unique=True, return_indices=True)
    leak = cells.leak[cell[leaker], state[leaker]]
    is_counted = (beam[leaker] != beam[receiver]) & (leak > 0)
    leaker = leaker[is_counted]
    receiver = receiver[is_counted]

    # Both beams start with the same power; their losses before the cell decide the ratio. One of
    # more than 3,000 dB, which no float may hold, counts as 3,000 dB.
    ratio_db = np.minimum(before_db[receiver] - before_db[leaker], 3000.0)
    power_ratio = 10 ** (ratio_db / 10)
    crosstalk = np.zeros_like(total_db)
    np.add.at(crosstalk, beam[receiver], leak[is_counted] * power_ratio)
    return Quality(total_db.reshape(shape), crosstalk.reshape(shape))


def sum_least(fabric: Fabric, cost: NDArray[np.float64], pairs: NDArray[np.bool_]) -> list[float]:
    """Return the least cost of each circuit as if it were alone (Dijkstra).

    ``pairs[source, destination]`` says which circuits there are: the result has an entry for each,
    by source, then by destination. ``cost[cell, state]`` is added for each cell passed. Infinite
    without a way; empty without cells.
    """
    graph = fabric.graph
    sums: list[float] = []
    if graph is None:
        return sums
    checker = ProofChecker(graph)
    no_prices = [0] * checker.n_links
    for source in np.flatnonzero(pairs.any(axis=1)).tolist():
        start = int(fabric.source_terminals[source])
        cost_at = checker.search_costs(start, Case(), no_prices, cost.tolist())
        for destination in np.flatnonzero(pairs[source]).tolist():
            sums.append(cost_at.get(int(fabric.destination_terminals[destination]), math.inf))
    return sums


def sum_power(
    graph: CellGraph | None, cells: CellDevice, states: NDArray[np.int8] | None
) -> list[float]:
    """Add up the power of all heaters in mW, by slot; a free cell is in its cheaper state.

    ``states[slot, cell]``: 0 bar, 1 cross, -1 free.
    """
    if graph is None:
        return []
    assert states is not None
    # ``power_mw[cell, state]``, of a stuck cell that of its own state in either.
    power_mw = fit_stuck(graph, cells.power_mw)
    least_mw = power_mw.min(axis=1)
    every_cell = np.arange(graph.n_cells)
    slots_mw = []
    for row in states:
        stated_mw = power_mw[every_cell, np.maximum(row, 0)]  # of free cells it does not count
        slots_mw.append(math.fsum(np.where(row == FREE, least_mw, stated_mw)))
    return slots_mw


def bound_power(fabric: Fabric, cells: CellDevice, pairs: NDArray[np.bool_], slots: int) -> float:
    """Bound the heater power of all slots together from below, in mW.

    It is the power of all cells in their cheaper states, once for each of the `slots`, and what
    each circuit adds alone on its cheapest route. Two circuits may pass a cell, so each counts
    half of what the dearer state adds there. Infinite if a circuit has no route, 0 without cells.
    """
    if fabric.graph is None:
        return 0.0
    power_mw = fit_stuck(fabric.graph, cells.power_mw)
    dark_mw = power_mw.min(axis=1)
    half_added_mw = (power_mw - dark_mw[:, None]) / 2
    circuits_mw = sum_least(fabric, half_added_mw, pairs)
    return slots * math.fsum(dark_mw) + math.fsum(circuits_mw)


def bound_crosstalk(
    graph: CellGraph, cells: CellDevice, passed_twice: int, circuits: int
) -> float:
    """Bound the worst crosstalk over signal from below, by the mean of all circuits.

    It is 0 unless two circuits pass every cell. `circuits` and `passed_twice` are numbers, of
    circuits and of the cells that two of them pass. Two circuits whose powers have the ratio g
    leak r g and r / g into each other in a cell of leak r, which is at least 2 r together: the
    mean is at least twice the sum of the least leaks over the number of circuits.
    """
    if not circuits or passed_twice < graph.n_cells:
        return 0.0
    least_leak = 0.0
    for leaks, stuck in zip(cells.leak.tolist(), graph.stuck.tolist(), strict=True):
        # No cell is dead here: one that is lets no circuit pass.
        least_leak += min(leaks) if stuck == FREE else leaks[stuck]
    return 2 * least_leak / circuits


def chip_figures(
    problem: AllToAll | Routing, quality: Quality, power_mw: list[float]
) -> dict[str, float]:
    """Return the figures of the worst circuit and the heaters by name, and the objective.

    ``power_mw[slot]`` is that of all heaters. The figure ``objective`` is there if one of the
    three is that of the problem. For the worst signal to noise it is the ratio of noise to signal,
    of which less is better; the figure itself is in dB, infinite without noise.
    """
    worst_loss_db = float(quality.loss_db.max(initial=0.0))
    worst_ratio = float(quality.crosstalk.max(initial=0.0))
    worst_snr_db = -10 * math.log10(worst_ratio) if worst_ratio > 0 else math.inf
    total_mw = math.fsum(power_mw)
    figures = {
        "worst_loss_db": worst_loss_db,
        "worst_snr_db": worst_snr_db,
        "power_mw": total_mw,
    }
    objectives = {
        "worst-loss-db": worst_loss_db,
        "worst-snr-db": worst_ratio,
        "power-mw": total_mw,
    }
    if problem.objective in objectives:
        figures["objective"] = objectives[problem.objective]
    return figures


# Slots by counting, cells by shortest routes


def count_slots(fabric: Fabric) -> int:
    """Count the slots that all pairs of live ports need at least; a slot holds one matching.

    Each of N ports meets N - 1 others, one in a slot. Of an odd number of bidirectional ports one
    is idle in each slot, and as each is idle once, they need N.
    """
    n_live = fabric.n_ports - len(fabric.dead_ports)
    if fabric.bidirectional and n_live % 2 and n_live > 1:
        return n_live
    return max(n_live - 1, 0)


def bound_objective(problem: AllToAll | Routing) -> float:
    """Bound the objective from below by the best route of each circuit, as if it were alone.

    Infinite if two ports that must meet cannot.
    """
    pairs = list_pairs(problem)
    if np.isinf(route_lengths(problem.fabric)[pairs]).any():
        return math.inf
    return BOUNDS[problem.objective](problem, pairs)


def list_pairs(problem: AllToAll | Routing) -> NDArray[np.bool_]:
    """List the pairs of ports that have to meet, as ``pairs[source, destination]``.

    A circuit between bidirectional ports is listed once, with source < destination.
    """
    fabric = problem.fabric
    if isinstance(problem, AllToAll):
        live = ~np.isin(np.arange(fabric.n_ports), fabric.dead_ports)
        pairs = live[:, None] & live & ~np.eye(fabric.n_ports, dtype=bool)
    else:
        pairs = problem.matching[:, None] == np.arange(fabric.n_ports)
    return np.triu(pairs) if fabric.bidirectional else pairs


def _bound_total_cells(problem: AllToAll | Routing, pairs: NDArray[np.bool_]) -> float:
    """Bound the cells on all routes from below: by shortest routes, or by cells passed twice.

    Each circuit passes its shortest route at least, and two circuits pass each of certain cells
    (`_count_passed_twice`), which counts such a cell twice: the larger number counts.
    """
    total = float(route_lengths(problem.fabric)[pairs].sum())
    if isinstance(problem, AllToAll):
        return total
    return max(total, 2.0 * _count_passed_twice(problem))


def _bound_worst_cells(problem: AllToAll | Routing, pairs: NDArray[np.bool_]) -> float:
    """Return the cells of the longest circuit, if each takes its shortest route."""
    return float(route_lengths(problem.fabric)[pairs].max(initial=0))


def _bound_total_loss(problem: AllToAll | Routing, pairs: NDArray[np.bool_]) -> float:
    """Count the fewest cells on all routes, each in the state that loses less."""
    assert isinstance(problem, Routing)
    cheaper_db = min(problem.bar_loss_db, problem.cross_loss_db)
    return _bound_total_cells(problem, pairs) * cheaper_db


def _bound_worst_loss(problem: AllToAll | Routing, pairs: NDArray[np.bool_]) -> float:
    """Return the largest loss in dB, if each circuit takes the way that loses least."""
    assert problem.cells is not None
    return max(sum_least(problem.fabric, problem.cells.loss_db, pairs), default=0.0)


def _bound_worst_crosstalk(problem: AllToAll | Routing, pairs: NDArray[np.bool_]) -> float:
    """Bound the worst crosstalk over signal from below, a ratio of powers; 0 for all pairs."""
    if isinstance(problem, AllToAll):
        return 0.0
    graph = problem.fabric.graph
    assert graph is not None and problem.cells is not None
    n_circuits = int(np.count_nonzero(pairs))
    return bound_crosstalk(graph, problem.cells, _count_passed_twice(problem), n_circuits)


def _bound_power(problem: AllToAll | Routing, pairs: NDArray[np.bool_]) -> float:
    """Bound the power of all heaters from below, in mW, added up over the slots."""
    assert problem.cells is not None
    slots = count_slots(problem.fabric) if isinstance(problem, AllToAll) else 1
    return bound_power(problem.fabric, problem.cells, pairs, slots)


BOUNDS: dict[str, Callable[[AllToAll | Routing, NDArray[np.bool_]], float]] = {
    "total-cells": _bound_total_cells,
    "worst-cells": _bound_worst_cells,
    "loss-db": _bound_total_loss,
    "worst-loss-db": _bound_worst_loss,
    "worst-snr-db": _bound_worst_crosstalk,
    "power-mw": _bound_power,
}
"""For each objective its bound; called with the problem and ``pairs[source, destination]``."""


def _count_passed_twice(problem: Routing) -> int:
    """Count the cells that two circuits pass in any case, as far as the ports alone show it.

    Cell c has the terminals a1, a2, b1 and b2, numbered 4 c to 4 c + 3. It is passed twice if each
    of a1 and a2 is a source, or is joined to a terminal b of such a cell. 0 where a port is idle,
    light may go both ways, or there are no cells.
    """
    fabric = problem.fabric
    graph = fabric.graph
    if graph is None or fabric.bidirectional or (problem.matching < 0).any():
        return 0
    if not leads_one_way(graph):
        return 0

    # ``lit[terminal]``: light enters there in any case. It grows by the terminals that are joined
    # to b1 and b2 of cells both of whose terminals a are lit, until there are no more.
    lit = np.zeros(len(graph.mate), dtype=bool)
    lit[fabric.source_terminals] = True
    while True:
        passed_twice = lit[0::4] & lit[1::4]
        cells = np.flatnonzero(passed_twice)
        exits = np.concatenate([4 * cells + 2, 4 * cells + 3])
        next_terminals = graph.mate[exits]
        next_terminals = next_terminals[next_terminals >= 0]
        if lit[next_terminals].all():
            return len(cells)
        lit[next_terminals] = True


def leads_one_way(graph: CellGraph) -> bool:
    """Tell whether links join ends a of cells to ends b alone: light never comes back over a link.

    Terminals of cell c are 4 c and 4 c + 1 (ends a), 4 c + 2 and 4 c + 3 (ends b).
    """
    is_b = np.arange(len(graph.mate)) % 4 >= 2
    return not (is_b[graph.mate] == is_b)[graph.mate >= 0].any()


_MAX_ENTRIES = 2**24
"""Walks are searched for at most so many pairs of a port and a terminal at a time."""


@lru_cache(maxsize=16)
def route_lengths(fabric: Fabric, faults: tuple[int, ...] | None = None) -> NDArray[np.float64]:
    """Count the cells on the shortest routes, as ``cells[source, destination]``.

    Infinite where there is no route, 0 where both ports have the same terminal; without cells
    infinite over the link budget, else 0. A walk that passes each link once is a route, so only
    shortest walks that pass a link twice are searched anew. The array is kept, and cannot be
    written.

    Parameters
    ----------
    faults
        ``faults[cell]``: `DEAD`, the state in which a cell is stuck, or `FREE` if it works; None
        for the faults that the fabric itself has.
    """
    graph = fabric.graph
    if graph is None:
        return read_only(np.where(find_over_budget(fabric), np.inf, 0.0))

    if faults is not None:
        graph = break_cells(graph, np.array(faults, dtype=np.int8))
    starts = fabric.source_terminals
    ends = fabric.destination_terminals
    same_terminal = starts[:, None] == ends
    lengths = np.empty(same_terminal.shape)
    chunk = max(1, _MAX_ENTRIES // len(graph.mate))
    for first in range(0, len(starts), chunk):
        rows = slice(first, first + chunk)
        # ``cells[row, terminal]``: the cells until light of a port leaves there, 0 if it never
        # does; ``entered[row, terminal]``: where it has entered the last of them.
        cells, entered = _search_breadth_first(graph, starts[rows])
        cells_to_ends = cells[:, ends]
        lengths[rows] = np.where(cells_to_ends > 0, cells_to_ends, math.inf)
        if leads_one_way(graph):
            continue
        # A shortest walk that passes a link twice is no route: these pairs are searched anew.
        passes_twice = _passes_a_link_twice(graph, entered, ends) & ~same_terminal[rows]
        for source, destination in np.argwhere(passes_twice):
            start = int(starts[first + source])
            end = int(ends[destination])
            lengths[first + source, destination] = shortest_route(graph, start, end)
    lengths[same_terminal] = 0.0
    return read_only(lengths)


def _search_breadth_first(
    graph: CellGraph, starts: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Find the fewest cells from each port to each terminal, for all ports side by side.

    ``starts[port]`` is the terminal where its light enters. Returns, by port and terminal, the
    cells until light leaves there (0: never), and where the last of them was entered (-1: never).
    A walk may pass a link twice, once each way.
    """
    n_terminals = len(graph.mate)
    cells = np.zeros((len(starts), n_terminals), dtype=np.int32)
    entered = np.full_like(cells, -1)

    # The walks of the current round: whose light it is, and where it enters its next cell.
    port = np.arange(len(starts))
    terminal = starts.astype(np.int64)
    distance = 0
    while len(terminal):
        # Each walk goes on in both states of the cell that it has come to: `entry` is where it
        # enters the cell, `left` where it leaves, in bar and in cross by turns.
        distance += 1
        port = np.repeat(port, 2)
        entry = np.repeat(terminal, 2)
        left = graph.exits[terminal].ravel()

        # A walk ends where light of the same port has left by the terminal in an earlier round.
        new = cells[port, left] == 0
        port = port[new]
        left = left[new]
        cells[port, left] = distance
        entered[port, left] = entry[new]

        # Several walks of a port may have reached the same terminal in this round: one of them
        # goes on, at the terminal that is joined to it, if there is one.
        places = np.sort(port * n_terminals + left)
        places = places[np.diff(places, prepend=-1) > 0]
        port = places // n_terminals
        left = places % n_terminals
        joined = graph.mate[left] >= 0
        port = port[joined]
        terminal = graph.mate[left[joined]].astype(np.int64)
    return cells, entered


def _passes_a_link_twice(
    graph: CellGraph, entered: NDArray[np.int32], ends: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Tell which shortest walks pass a link twice, by source and destination; these are no routes.

    ``ends[destination]`` is a terminal. All walks are followed back at once by
    ``entered[port, terminal]``: where the walk enters the cell that it leaves by the terminal, -1
    if it does not come there.
    """
    # All walks that still go on: the number of each, its port, and where it leaves its cell. A
    # visit of a link is noted as one number, of walk and link.
    shape = (len(entered), len(ends))
    port = np.repeat(np.arange(len(entered)), len(ends))
    left = np.tile(ends.astype(np.int64), len(entered))
    walk = np.arange(len(port))
    passed = list[NDArray[np.int64]]()  # keys of (walk, link)
    while len(left):
        # Each walk passes the link at the terminal by which it leaves its cell. Before that it has
        # left another cell, at the mate of where it enters this one; at a free terminal it begins.
        passed.append(walk * graph.links.count + graph.links.of_terminal[left])
        entry = entered[port, left].astype(np.int64)
        before = np.where(entry >= 0, graph.mate[entry], -1)
        goes_on = before >= 0
        walk = walk[goes_on]
        port = port[goes_on]
        left = before[goes_on].astype(np.int64)

    keys, counts = np.unique(np.concatenate(passed), return_counts=True)
    passes_twice = np.zeros(shape, dtype=bool)
    passes_twice.flat[keys[counts > 1] // graph.links.count] = True
    return passes_twice


def shortest_route(graph: CellGraph, start: int, end: int) -> float:
    """Count the cells on the shortest route between two terminals; infinite if there is none.

    Branch and bound: where the shortest walk passes a link in both directions, a route lacks one
    of them, and each is closed in a case of its own.
    """
    best = math.inf
    open_cases = [frozenset[int]()]  # for each case the terminals that light may not leave by
    while open_cases:
        closed = open_cases.pop()
        walk = shortest_walk(graph, start, end, closed)
        if walk is None or len(walk) >= best:
            continue
        # A link that the walk passes both ways: it leaves a cell by either of its terminals.
        passed_back = next((left for left in walk if int(graph.mate[left]) in walk), None)
        if passed_back is None:
            best = len(walk)
        else:
            other_direction = int(graph.mate[passed_back])
            open_cases += [closed | {passed_back}, closed | {other_direction}]
    return best


def shortest_walk(
    graph: CellGraph, start: int, end: int, closed: frozenset[int]
) -> list[int] | None:
    """Find a shortest walk that leaves no cell by a closed terminal; None if there is none.

    Light enters at the terminal `start`, and leaves its last cell by `end`. The walk is the
    terminals by which its cells are left, in order; it may pass a link both ways. Breadth-first.
    """
    reached = set(closed)
    waiting: deque[tuple[int, list[int]]] = deque([(start, [])])  # the next entry, and its walk
    while waiting:
        entry, walk = waiting.popleft()
        for left in graph.exits[entry].tolist():
            if left == end and left not in closed:
                return [*walk, left]
            if left not in reached and graph.mate[left] >= 0:
                reached.add(left)
                waiting.append((int(graph.mate[left]), [*walk, left]))
    return None


# The certificate that no routing of a matching is better: link prices and cases
#
# The prices are a solution of the dual problem (Lagrangian relaxation of "a link carries one
# circuit"): see `RoutingProof`. All sums are of whole numbers, so checking involves no rounding.

_ROUNDING = 1 - 1e-12
"""A sum of losses that is less than a bound by this factor is taken as equal to it."""


class Circuit(NamedTuple):
    """The terminals where the light of a circuit enters and leaves the fabric."""

    start: int
    end: int


class Case(NamedTuple):
    """The exits and links that a circuit may not use in a case of the proof."""

    exits: frozenset[int] = frozenset()
    """Terminals by which it does not leave a cell."""
    links: frozenset[int] = frozenset()
    """Links that it does not pass in either direction."""


class CellCosts(NamedTuple):
    """The cost of passing a cell, in price units."""

    bar: int
    cross: int


class JointBound(NamedTuple):
    """A bound that link prices prove for all slots of an all-to-all together."""

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
    """Checks proofs about routings on one graph of cells; a void proof is a `ProofError`.

    A proof is a tree of cases. At an inner node it splits on ``proof.circuit[node]``, which is -1
    at a leaf; a leaf has ``proof.prices[node, link]``, and ``proof.infeasible[node]`` says whether
    it claims that its case has no routing.

    Cell c has the terminals 4 c to 4 c + 3. By terminal, `link_of` is its link, `mate` the
    terminal it is joined to (-1: none), and `exits` those by which light leaves that enters here,
    in bar and in cross.
    """

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
        to_cells = partial(self._round_up_cells, circuits)
        return self._bound_leaves(proof, circuits, WHOLE_CELLS, to_cells)

    def _round_up_cells(self, circuits: list[Circuit], units: float) -> float:
        """Round `units` of price up to whole cells, of the parity that all routes together have.

        `PRICE_UNITS` are one cell. If all routes together pass an odd number of cells, 3.2 cells
        become 5; if the parity is not known, 4.
        """
        parity = self.total_parity(circuits)
        cells = -(-units // PRICE_UNITS)  # rounded up
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
        """Bound the loss of all routes together from below, in dB; infinite without a routing.

        ``circuits[k]`` is a source and a destination. The bound rises to the next sum that whole
        numbers of cells in bar and in cross can have: with losses of 2 and 3 dB, 4.1 dB becomes 5
        dB. If the parity of the number of cells is known, only such sums count.
        """
        # The prices of links in `proof` and the costs of cells are whole numbers, of which
        # `units.per_db` make one dB; a sum of these is rounded up to a possible loss.
        units = loss_units(bar_loss_db, cross_loss_db)
        parity = self.total_parity(circuits)
        to_loss_db = partial(
            self._round_up_loss, (bar_loss_db, cross_loss_db), units.per_db, parity
        )
        return self._bound_leaves(proof, circuits, CellCosts(units.bar, units.cross), to_loss_db)

    def _round_up_loss(
        self, losses_db: tuple[float, float], per_db: float, parity: int | None, units: float
    ) -> float:
        """Round `units` of price, `per_db` to a dB, up to the next loss that routes can have.

        `losses_db` are those of a cell in bar and in cross, and `parity` is that of the number of
        cells, None if it is not known. A loss of 0 or less, or above that of all cells, stays.
        Each number of cells in the dearer state is tried, with as few others as reach the loss.
        """
        cheap_db, dear_db = sorted(losses_db)
        max_passages = len(self.exits) // 2  # both ways through every cell
        loss_db = units / per_db
        if loss_db <= 0 or dear_db * max_passages < loss_db:
            return loss_db
        return min(
            _next_sum(loss_db, (n_dear, dear_db), cheap_db, max_passages, parity)
            for n_dear in range(math.ceil(loss_db / dear_db) + 1)
        )

    def bound_slots(self, proof: RoutingProof, circuits: list[Circuit], slots: int) -> JointBound:
        """Bound from below the cells on the routes of all circuits, divided among some slots.

        The circuits of a slot share no link, so that all circuits together pay the price of a link
        at most `slots` times. Hence the cheapest walks of all circuits, which pay for cells and
        links, less the prices of all links in all slots, bound the cells. If cells cost nothing
        and this is still above 0, so many slots cannot hold the circuits: the bound is infinite,
        with the fewest slots that may hold them.

        Parameters
        ----------
        proof
            The certificate, of a single case; others are a `ProofError`, as are prices that do not
            show what it claims.
        """
        # The only leaf of the proof has the prices. If it claims that so many slots cannot hold
        # the circuits (`infeasible`), cells cost nothing.
        self._check_sizes(proof, len(circuits))
        if len(proof.circuit) != 1:
            raise ProofError(f"{len(proof.circuit)} cases, where all slots together have one")
        prices = proof.prices[0].tolist()
        worth_of_slot = sum(prices)
        infeasible = bool(proof.infeasible[0])
        cell_costs = FREE_CELLS if infeasible else WHOLE_CELLS

        # What is paid beyond the worth of all links in all slots bounds the cells; for the claim
        # it must be above 0.
        paid = self._sum_of_circuits(circuits, prices, cell_costs)
        total = paid - slots * worth_of_slot
        if not infeasible:
            return JointBound(self._round_up_cells(circuits, total), 0)
        if total <= 0:
            raise ProofError(
                f"claims that {slots} slots do not do, but the circuits pay {total} more than all"
                " links are worth, which is not > 0"
            )
        # The fewest slots whose links are worth what is paid, rounded up: if links are worth 10 in
        # a slot and 35 is paid, 4 slots.
        return JointBound(math.inf, -(-int(paid) // worth_of_slot))

    def _sum_of_circuits(
        self, circuits: list[Circuit], prices: list[int], cell_costs: CellCosts
    ) -> float:
        """Add up what the cheapest walks of all circuits cost, exactly.

        ``prices[link]`` and `cell_costs` are in price units. A circuit without a walk adds
        nothing: counting shows that there is no answer then. One search serves all circuits of a
        start. Large sums are left to SciPy where floats are exact.
        """
        # A cheapest walk leaves by a terminal once at most, which bounds what it costs.
        n_terminals = len(self.mate)
        dearest_step = max(prices) + max(cell_costs)
        is_exact_in_float = (n_terminals + 1) * dearest_step < _EXACT_IN_FLOAT
        starts = sorted({circuit.start for circuit in circuits})
        if is_exact_in_float and len(starts) * n_terminals > _MIN_STEPS_IN_SCIPY:
            return self._sum_of_circuits_in_float(circuits, prices, cell_costs)

        costs_of_cells = [cell_costs] * (n_terminals // 4)
        costs_from = {
            start: self.search_costs(start, Case(), prices, costs_of_cells) for start in starts
        }
        return sum(costs_from[circuit.start].get(circuit.end, 0) for circuit in circuits)

    def _sum_of_circuits_in_float(
        self, circuits: list[Circuit], prices: list[int], cell_costs: CellCosts
    ) -> float:
        """Add up the costs of the cheapest walks of all circuits, by Dijkstra's method of SciPy.

        A node of its graph is where light is before a cell: at a terminal by which it has left
        another cell or, before its first one, at the start of a circuit. An edge leads through the
        cell, and costs the cell and the link behind it; from a start it costs the first link, too.
        The caller has seen to it that float64 holds all costs, whole numbers, exactly.
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        # Node t is terminal t, and node ``n_terminals + k`` start number k. Light from a node
        # enters the next cell at the terminal ``entered_from[node]``.
        n_terminals = len(self.mate)
        starts = sorted({circuit.start for circuit in circuits})
        entered_from = {n_terminals + k: start for k, start in enumerate(starts)}
        entered_from |= {left: mate for left, mate in enumerate(self.mate) if mate >= 0}

        # A cell has an edge to its exit in bar and to that in cross. In a stuck cell both are the
        # same, and a sparse matrix would add up equal entries: hence a dictionary.
        weight_of_edge: dict[tuple[int, int], int] = {}
        for node, entered in entered_from.items():
            is_start = node >= n_terminals
            first_link = prices[self.link_of[entered]] if is_start else 0
            for left in self.exits[entered]:
                cell = cell_costs[state_between(entered, left)]
                weight_of_edge[node, left] = first_link + cell + prices[self.link_of[left]]
        rows, columns = zip(*weight_of_edge, strict=True)
        size = n_terminals + len(starts)
        weights = list(map(float, weight_of_edge.values()))
        graph = csr_array((weights, (rows, columns)), shape=(size, size))

        # Circuits from one start share a row of costs. A circuit without a walk has an infinite
        # cost, and adds nothing. All other costs are added up as integers, without rounding.
        costs = dijkstra(graph, indices=range(n_terminals, size))
        row_of = {start: k for k, start in enumerate(starts)}
        walks = [costs[row_of[circuit.start], circuit.end] for circuit in circuits]
        return sum(int(walk) for walk in walks if walk < math.inf)

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
        prove 12. Passing a cell costs `cell_costs` in price units; `convert` turns a finite sum of
        such units into the unit of the result, such as whole cells. A leaf that does not show what
        it claims is a `ProofError`.
        """
        self._check_sizes(proof, len(circuits))

        # Depth-first search of the tree. An entry of `open_nodes` is a node, and what is forbidden
        # to each circuit there; at the root nothing is.
        bounds = []
        open_nodes = [(0, [Case()] * len(circuits))]
        while open_nodes:
            node, cases = open_nodes.pop()

            # An inner node hands its two cases on.
            if proof.circuit[node] >= 0:
                for branch in (0, 1):
                    child = int(proof.children[node, branch])
                    open_nodes.append((child, self._restrict(proof, node, branch, cases)))
                continue

            # A leaf that claims that its case has no routing lets cells cost nothing.
            infeasible = bool(proof.infeasible[node])
            node_costs = FREE_CELLS if infeasible else cell_costs
            prices = proof.prices[node].tolist()

            # In a routing each link is paid once at most (Lagrangian relaxation): the cheapest
            # walks, less the prices of all links, bound the cost. Infinite if one has no walk.
            value: float = -sum(prices)
            for circuit, case in zip(circuits, cases, strict=True):
                value += self.cheapest_walk(circuit, case, prices, node_costs)

            # If the circuits on their cheapest routes pay more than all links are worth, they
            # cannot have links of their own (Farkas' lemma).
            if infeasible and value <= 0:
                raise ProofError(
                    f"leaf {node} claims that there is no routing, but its circuits pay"
                    f" {value} more than all links are worth, which is not > 0"
                )
            bounds.append(math.inf if infeasible or value == math.inf else convert(value))
        return min(bounds)

    def _check_sizes(self, proof: RoutingProof, n_circuits: int) -> None:
        """Refuse a proof about other links, circuits or terminals than there are."""
        n_prices = proof.prices.shape[1]
        if n_prices != self.n_links:
            raise ProofError(f"prices for {n_prices} links, the fabric has {self.n_links}")
        if proof.prices.min() < 0:
            raise ProofError(f"a price of {proof.prices.min()}, below 0")
        if proof.circuit.max() >= n_circuits:
            raise ProofError(f"splits on circuit {proof.circuit.max()} of {n_circuits}")
        splits = proof.terminal[proof.circuit >= 0]
        if ((splits < 0) | (splits >= len(self.mate))).any():
            raise ProofError(f"splits at a terminal that is not 0 .. {len(self.mate) - 1}")

    def _restrict(
        self, proof: RoutingProof, node: int, branch: int, cases: list[Case]
    ) -> list[Case]:
        """Return what is forbidden to each circuit in branch 0 or 1 of a node, as a new list.

        ``cases[circuit]`` is what is forbidden at the node itself. A *one way* node forbids its
        circuit to pass the link in one direction, or in the other one. Any other node forbids the
        link to its circuit (branch 0), or to all others (branch 1).
        """
        chosen = int(proof.circuit[node])
        terminal = int(proof.terminal[node])
        narrower = list(cases)

        # Light of a circuit passes a link in one direction at most: it leaves a cell by the
        # terminal at one end of the link, or by that at the other end.
        if proof.one_way[node]:
            closed_exit = terminal if branch == 0 else self.mate[terminal]
            exits = cases[chosen].exits | {closed_exit}
            narrower[chosen] = cases[chosen]._replace(exits=exits)
            return narrower

        # At most one circuit passes a link: the chosen one, or another.
        closed_link = self.link_of[terminal]
        for circuit, case in enumerate(cases):
            forbidden = circuit == chosen if branch == 0 else circuit != chosen
            if forbidden:
                narrower[circuit] = case._replace(links=case.links | {closed_link})
        return narrower

    def cheapest_walk(
        self, circuit: Circuit, case: Case, prices: list[int], cell_costs: tuple[int, int]
    ) -> float:
        """Find the least cost of a walk of a circuit, in price units; infinite without one.

        The links at both of its ends count. `cell_costs` are those of a cell in bar and in cross.
        """
        costs = self.search_costs(
            circuit.start, case, prices, [cell_costs] * (len(self.mate) // 4), circuit.end
        )
        return costs.get(circuit.end, math.inf)

    def search_costs(
        self,
        start: int,
        case: Case,
        prices: list[int],
        cell_costs: Sequence[Sequence[float]],
        end: int = -1,
    ) -> dict[int, float]:
        """Return the least cost at which light can leave a cell by each terminal, by Dijkstra.

        ``cell_costs[cell][state]`` is paid for each cell, ``prices[link]`` for each link, the
        first one too; `case` forbids exits and links. The result is by terminal, without those out
        of reach. If the search stops at `end` (-1: at none), only costs up to that of `end` are
        final.
        """
        cost_at: dict[int, float] = {}
        if self.link_of[start] in case.links:
            return cost_at
        # The queue `waiting` has pairs (cost until there, terminal where a cell is entered). A
        # terminal may be there several times; the first one that is taken is the cheapest. All
        # that is left in the queue costs as much as what is taken, or more.
        waiting: list[tuple[float, int]] = [(prices[self.link_of[start]], start)]
        while waiting and waiting[0][0] < cost_at.get(end, math.inf):
            cost_before, entered = heapq.heappop(waiting)
            # A stuck cell has the same exit in both states, and a dead one leads nowhere.
            costs_of_cell = cell_costs[entered // 4]
            for left in self.exits[entered]:
                link = self.link_of[left]
                if left in case.exits or link in case.links:
                    continue
                state = (left ^ entered) & 1
                cost = cost_before + costs_of_cell[state] + prices[link]
                if cost < cost_at.get(left, math.inf):
                    cost_at[left] = cost
                    if self.mate[left] >= 0:
                        heapq.heappush(waiting, (cost, self.mate[left]))
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
        """Tell whether walks from a start pass an even (0) or an odd (1) number of cells.

        ``parities[terminal]`` has 0, 1 or both, for the walks that leave a cell at the terminal;
        it is empty if there are none. Breadth-first search. The result is kept for each start.
        """
        if start not in self._parities:
            parities: list[set[int]] = [set() for _ in self.mate]
            # Pairs of a terminal where light enters a cell, and the parity of the number of cells
            # up to this one; the list grows while it is walked.
            waiting = [(start, 1)]
            for terminal, parity in waiting:
                for left in self.exits[terminal]:
                    if parity in parities[left]:
                        continue
                    parities[left].add(parity)
                    if self.mate[left] >= 0:
                        waiting.append((self.mate[left], 1 - parity))
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

    To 4.1 dB, with 1 cell of 3 dB and others of 2 dB, one of these is missing: the sum is 5 dB. If
    the number of cells has to be odd, it is 7 dB. A sum that falls short by rounding alone is
    taken too, so that no bound becomes too high. It is infinite if `max_passages` cheap cells do
    not reach the loss.

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
