"""Lower bounds: slots by counting, cells by shortest routes; recomputed without the solvers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.problems import AllToAll, Routing
from optmatch.verify.budgets import find_over_budget
from optmatch.verify.routing.chips import bound_crosstalk, bound_power, sum_least


def count_slots(fabric: Fabric) -> int:
    """Count the slots that all pairs of live ports need at least; a slot holds one matching.

    N bidirectional ports have N (N - 1) / 2 pairs, N / 2 in a slot; others N (N - 1), N in a slot.
    """
    n_live = fabric.n_ports - len(fabric.dead_ports)
    if fabric.bidirectional:
        n_pairs = n_live * (n_live - 1) // 2
        pairs_per_slot = n_live // 2
    else:
        n_pairs = n_live * (n_live - 1)
        pairs_per_slot = n_live
    return n_pairs // pairs_per_slot if n_pairs else 0


def bound_objective(problem: AllToAll | Routing) -> float:
    """Bound the objective by the best route of each circuit, as if it were alone.

    Infinite if two ports that must meet cannot.
    """
    pairs = _list_pairs(problem)
    if np.isinf(route_lengths(problem.fabric)[pairs]).any():
        return math.inf
    return BOUNDS[problem.objective](problem, pairs)


def _list_pairs(problem: AllToAll | Routing) -> NDArray[np.bool_]:
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
    """Sum the shortest routes, or take twice the cells that two circuits must pass."""
    total = float(route_lengths(problem.fabric)[pairs].sum())
    if isinstance(problem, AllToAll):
        return total
    return max(total, 2.0 * _count_passed_twice(problem))


def _bound_worst_cells(problem: AllToAll | Routing, pairs: NDArray[np.bool_]) -> float:
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
    """Bound the worst crosstalk over signal, a ratio of powers; 0 for all pairs."""
    if isinstance(problem, AllToAll):
        return 0.0
    graph = problem.fabric.graph
    assert graph is not None and problem.cells is not None
    n_circuits = int(np.count_nonzero(pairs))
    return bound_crosstalk(graph, problem.cells, _count_passed_twice(problem), n_circuits)


def _bound_power(problem: AllToAll | Routing, pairs: NDArray[np.bool_]) -> float:
    """Bound the power of all heaters in mW, added up over the slots."""
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

    A cell is passed twice if each of its terminals a is a source, or is joined to a terminal b of
    such a cell. 0 where a port is idle, light may go both ways, or there are no cells.
    """
    fabric = problem.fabric
    graph = fabric.graph
    if graph is None or fabric.bidirectional or (problem.matching < 0).any():
        return 0
    starts = fabric.source_terminals
    ends = fabric.destination_terminals
    if forward_lengths(graph, starts[:1], ends[:1]) is None:
        return 0

    # Terminals of a cell are 4 c + 0, 1 (ends a) and 4 c + 2, 3 (ends b).
    lit = np.zeros(len(graph.mate), dtype=bool)
    lit[starts] = True
    while True:
        passed_twice = lit[0::4] & lit[1::4]
        cells = np.flatnonzero(passed_twice)
        exits = np.concatenate([4 * cells + 2, 4 * cells + 3])
        next_terminals = graph.mate[exits]
        next_terminals = next_terminals[next_terminals >= 0]
        if lit[next_terminals].all():
            return len(cells)
        lit[next_terminals] = True


@lru_cache(maxsize=16)
def route_lengths(fabric: Fabric) -> NDArray[np.float64]:
    """Count the cells on the shortest routes, as ``cells[source, destination]``.

    Infinite where there is no route; without cells infinite over the link budget, else 0. A walk
    that passes each link once is a route, so only shortest walks that pass a link twice are
    searched anew. The array is kept, and cannot be written.
    """
    graph = fabric.graph
    if graph is None:
        lengths = np.where(find_over_budget(fabric), np.inf, 0.0)
    else:
        lengths = _measure_routes(graph, fabric.source_terminals, fabric.destination_terminals)
    lengths.flags.writeable = False
    return lengths


def _measure_routes(
    graph: CellGraph, starts: NDArray[np.int32], ends: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Count the cells on shortest routes, shape (sources, destinations).

    Infinite where there is no route, 0 where both ports have the same terminal.
    """
    same_terminal = starts[:, None] == ends
    forward = forward_lengths(graph, starts, ends)
    if forward is not None:
        return np.where(same_terminal, 0.0, forward)

    # Shortest walks are shortest routes, but for those that pass a link twice. Branch and bound
    # finds the routes of these pairs.
    cells, entered = _search_breadth_first(graph, starts)
    cells_to_ends = cells[:, ends]
    lengths = np.where(cells_to_ends > 0, cells_to_ends, math.inf)
    lengths = np.where(same_terminal, 0.0, lengths)
    passes_twice = _passes_a_link_twice(graph, entered, ends)
    for source, destination in np.argwhere(passes_twice & ~same_terminal):
        start = int(starts[source])
        end = int(ends[destination])
        lengths[source, destination] = shortest_route(graph, start, end)
    return lengths


def _search_breadth_first(
    graph: CellGraph, starts: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Find the fewest cells from each port to each terminal, for all ports side by side.

    Returns, by port and terminal, the cells until light leaves there (0: never), and where the
    last of them was entered (-1: never).
    """
    n_terminals = len(graph.mate)
    cells = np.zeros((len(starts), n_terminals), dtype=np.int32)
    entered = np.full_like(cells, -1)

    # The walks of the current round: whose light it is, and where it enters its next cell.
    port = np.arange(len(starts))
    terminal = starts.astype(np.int64)
    distance = 0
    while len(terminal):
        # Each walk goes on in both states of the cell that it has come to.
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

        # Several walks may have reached the same terminal in this step: one of them goes on.
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

    All walks are followed back at once by ``entered[port, terminal]``: where the walk enters the
    cell that it leaves by the terminal.
    """
    # All walks that still go on: the number of each, its port, and where it leaves its cell. A
    # visit of a link is noted as one number, of walk and link.
    shape = (len(entered), len(ends))
    port = np.repeat(np.arange(len(entered)), len(ends))
    left = np.tile(ends.astype(np.int64), len(entered))
    walk = np.arange(len(port))
    passed = list[NDArray[np.int64]]()  # keys of (walk, link)
    while len(left):
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

    It is the terminals by which the cells are left, in order. A link may be passed both ways.
    """
    left_before: dict[int, int | None] = {}  # by terminal: the one that the last cell was left by
    waiting: deque[tuple[int, int | None]] = deque([(start, None)])
    while waiting:
        entry, before = waiting.popleft()
        for left in graph.exits[entry].tolist():
            if left in closed or left in left_before:
                continue
            left_before[left] = before
            if left == end:
                return _follow_back(left_before, left)
            if graph.mate[left] >= 0:
                waiting.append((int(graph.mate[left]), left))
    return None


def _follow_back(left_before: dict[int, int | None], end: int) -> list[int]:
    """List the terminals of a walk in order, from its last one and the one before each."""
    walk = []
    terminal: int | None = end
    while terminal is not None:
        walk.append(terminal)
        terminal = left_before[terminal]
    return walk[::-1]


_MAX_ENTRIES = 2**22
"""Lengths are kept for at most so many pairs of a cell and a port at a time, to bound memory."""


def forward_lengths(
    graph: CellGraph, starts: NDArray[np.int32], ends: NDArray[np.int32]
) -> NDArray[np.float64] | None:
    """Count the cells on shortest routes if light goes one way only, else return None.

    Light has to enter each cell at 4 * cell + 0 or 1, leave it at + 2 or 3, and never come back to
    a cell. Then each cell is looked at once, in topological order.
    """
    mate = graph.mate.reshape(-1, 4)
    ends_a = mate[:, :2]
    ends_b = mate[:, 2:]
    a_leads_from_b = bool((ends_a % 4 >= 2).all())  # a free terminal, -1, passes too
    b_leads_to_a = bool(((ends_b < 0) | (ends_b % 4 < 2)).all())
    if not a_leads_from_b or not b_leads_to_a or (starts % 4 >= 2).any():
        return None
    waves = _sort_cells(mate)
    if waves is None:
        return None

    lengths = np.empty((len(starts), len(ends)))
    chunk = max(1, _MAX_ENTRIES // max(1, graph.n_cells))
    for first in range(0, len(starts), chunk):
        chosen = slice(first, first + chunk)
        lengths[chosen] = _count_forward(graph, waves, starts[chosen])[ends].T
    return lengths


def _sort_cells(mate: NDArray[np.int32]) -> list[NDArray[np.int64]] | None:
    """Sort the cells in waves, each led to by earlier waves alone (Kahn 1962).

    None if there is a cycle. ``mate[cell, place]``: light enters at the places 0 and 1, and leaves
    at 2 and 3.
    """
    n_waiting_for = (mate[:, :2] >= 0).sum(axis=1)  # by cell
    wave = np.flatnonzero(n_waiting_for == 0)
    waves = []
    n_sorted = 0
    while len(wave):
        waves.append(wave)
        n_sorted += len(wave)
        following = mate[wave, 2:].ravel()
        following = following[following >= 0] // 4
        np.subtract.at(n_waiting_for, following, 1)
        wave = np.unique(following[n_waiting_for[following] == 0])
    return waves if n_sorted == len(mate) else None


def _count_forward(
    graph: CellGraph, waves: list[NDArray[np.int64]], starts: NDArray[np.int32]
) -> NDArray[np.float32]:
    """Count the fewest cells from some ports to every terminal, shape (terminals, ports).

    Cells are taken in waves. Infinite where no light comes; exact as far as 2**24.
    """
    cells = np.full((len(graph.mate), len(starts)), np.inf, dtype=np.float32)
    cells[starts, np.arange(len(starts))] = 0
    for wave in waves:
        for side in (0, 1):
            entry = 4 * wave + side
            joined = graph.mate[entry] >= 0
            cells[entry[joined]] = cells[graph.mate[entry[joined]]]
            for state in (0, 1):
                left = graph.exits[entry, state]
                cells[left] = np.minimum(cells[left], cells[entry] + 1)
    return cells
