"""Lower bounds: slots by counting, cells by shortest routes; recomputed without the solvers."""

from __future__ import annotations

import math
from collections import deque
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.model import ON_CHIP
from optmatch.problems import AllToAll, Routing
from optmatch.verify.routing.chips import bound_crosstalk, bound_power, sum_least


def count_slots(fabric: Fabric) -> int:
    """Count the slots that all pairs of live ports need at least.

    Bidirectional ports: N (N - 1) / 2 pairs, of which a slot holds N / 2, rounded down. Otherwise
    there are N (N - 1) pairs, of which a slot holds N.
    """
    n = fabric.n_ports - len(fabric.dead_ports)
    pairs, at_once = (n * (n - 1) // 2, n // 2) if fabric.bidirectional else (n * (n - 1), n)
    return pairs // at_once if pairs else 0  # no circuit is left


def bound_objective(problem: AllToAll | Routing) -> float:
    """Bound the objective by the shortest route of each circuit, as if it were alone.

    In its unit; infinite if two ports that must meet cannot.
    """
    fabric = problem.fabric
    if isinstance(problem, AllToAll):
        live = ~np.isin(np.arange(fabric.n_ports), fabric.dead_ports)
        wanted = live[:, None] & live & ~np.eye(fabric.n_ports, dtype=bool)
    else:
        wanted = problem.matching[:, None] == np.arange(fabric.n_ports)
    if fabric.bidirectional:
        wanted = np.triu(wanted)
    cells = route_lengths(fabric)[wanted]
    if problem.objective in ON_CHIP:
        assert problem.cells is not None
        if np.isinf(cells).any():
            return math.inf
        if problem.objective == "worst-loss-db":
            return max(sum_least(fabric, problem.cells.loss_db, wanted), default=0.0)
        if problem.objective == "power-mw":
            slots = count_slots(fabric) if isinstance(problem, AllToAll) else 1
            return bound_power(fabric, problem.cells, wanted, slots)
        if isinstance(problem, AllToAll):
            return 0.0
        assert fabric.graph is not None
        twice = _count_passed_twice(problem)
        return bound_crosstalk(fabric.graph, problem.cells, twice, len(cells))
    if isinstance(problem, AllToAll):
        return float(cells.sum())
    if problem.objective == "worst-cells":
        return float(cells.max(initial=0))
    if np.isinf(cells).any():
        return math.inf  # also where cells lose nothing
    total = max(float(cells.sum()), 2.0 * _count_passed_twice(problem))
    if problem.objective == "total-cells":
        return total
    return total * min(problem.bar_loss_db, problem.cross_loss_db)


def _count_passed_twice(problem: Routing) -> int:
    """Count cells of which both ends are lit, as far as that follows from the ports alone.

    Both terminals a of a cell are lit if each of them is a source, or joined to a terminal b of a
    cell of which that is known. The walk follows only where light goes forward.
    """
    fabric, graph = problem.fabric, problem.fabric.graph
    if graph is None or fabric.bidirectional or (problem.matching < 0).any():
        return 0
    starts, ends = fabric.source_terminals, fabric.destination_terminals
    if forward_lengths(graph, starts[:1], ends[:1]) is None:
        return 0
    lit = np.zeros(len(graph.mate), dtype=bool)
    lit[starts] = True
    while True:
        both = lit[0::4] & lit[1::4]
        left = np.flatnonzero(np.repeat(both, 2))
        after = graph.mate[left // 2 * 4 + 2 + left % 2]
        after = after[after >= 0]
        if lit[after].all():
            return int(both.sum())
        lit[after] = True


@lru_cache(maxsize=16)
def route_lengths(fabric: Fabric) -> NDArray[np.float64]:
    """Count the cells on shortest routes between ports: ``cells[source, destination]``.

    Infinite where no states of the cells connect the two, 0 where both are one terminal, and
    everywhere on a fabric without cells.

    A route passes each link once at most: states that lead light over a link in both directions
    would lead it back to where it came from. Conversely, a walk that passes each link once is a
    route, as two ways through a cell in different states share a link. The shortest walk is
    therefore the shortest route unless it passes a link twice; such pairs are looked at singly.
    """
    graph = fabric.graph
    table = np.zeros((fabric.n_ports, fabric.n_ports))
    if graph is None:
        return table
    starts, ends = fabric.source_terminals, fabric.destination_terminals
    one_way = forward_lengths(graph, starts, ends)
    if one_way is not None:
        one_way[starts[:, None] == ends] = 0
        one_way.flags.writeable = False
        return one_way
    cells, entered = _walk(graph, starts)
    twice = _passes_a_link_twice(graph, entered, ends)
    same, found = starts[:, None] == ends, cells[:, ends]
    table = np.where(same, 0.0, np.where(found > 0, found, math.inf))
    for i, j in np.argwhere(twice & ~same):
        table[i, j] = shortest_route(graph, int(starts[i]), int(ends[j]))
    table.flags.writeable = False
    return table


def _walk(
    graph: CellGraph, starts: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Breadth first search from all ports side by side, one step of all walks at a time.

    ``cells[port, terminal]`` counts the cells until light leaves by a terminal, 0 if it never
    does; ``entered[port, terminal]`` is where the last of these was entered, -1 if it never was.
    """
    n_terminals, exits = len(graph.mate), graph.exits
    cells = np.zeros((len(starts), n_terminals), dtype=np.int32)
    entered = np.full_like(cells, -1)
    port, at = np.arange(len(starts)), starts.astype(np.int64)
    distance = 0
    while len(at):
        distance += 1
        port, came, left = np.repeat(port, 2), np.repeat(at, 2), exits[at].ravel()
        new = cells[port, left] == 0
        port, came, left = port[new], came[new], left[new]
        cells[port, left] = distance
        entered[port, left] = came
        places = np.sort(port * n_terminals + left)
        port, left = np.divmod(places[np.diff(places, prepend=-1) > 0], n_terminals)
        port, left = port[graph.mate[left] >= 0], left[graph.mate[left] >= 0]
        at = graph.mate[left].astype(np.int64)
    return cells, entered


def _passes_a_link_twice(
    graph: CellGraph, entered: NDArray[np.int32], ends: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Follow each found walk back to its start, and compare the links that it passes."""
    shape = len(entered), len(ends)
    port, end = (index.ravel() for index in np.indices(shape))
    walk_number, left = np.arange(len(port)), ends[end].astype(np.int64)
    passed = list[NDArray[np.int64]]()
    while len(left):
        passed.append(walk_number * graph.links.count + graph.links.of_terminal[left])
        came = entered[port, left].astype(np.int64)
        before = np.where(came >= 0, graph.mate[came], -1)
        on = before >= 0
        walk_number, port, left = walk_number[on], port[on], before[on].astype(np.int64)
    places, counts = np.unique(np.concatenate(passed), return_counts=True)
    twice = np.zeros(shape[0] * shape[1], dtype=bool)
    twice[places[counts > 1] // graph.links.count] = True
    return twice.reshape(shape)


def shortest_route(graph: CellGraph, start: int, end: int) -> float:
    """Count the cells on the shortest route between two terminals; infinite if there is none.

    Where the shortest walk passes a link in both directions, one of the two is closed: first the
    one, then the other. The shortest walk of all these cases that has no such link is the route.
    """
    best = math.inf
    cases = [frozenset[int]()]
    while cases:
        closed = cases.pop()
        way = shortest_walk(graph, start, end, closed)
        if way is None or len(way) >= best:
            continue
        clash = next((left for left in way if int(graph.mate[left]) in way), None)
        if clash is None:
            best = len(way)
        else:
            cases += [closed | {clash}, closed | {int(graph.mate[clash])}]
    return best


def shortest_walk(
    graph: CellGraph, start: int, end: int, closed: frozenset[int]
) -> list[int] | None:
    """Return the terminals by which a shortest walk leaves its cells, none of them closed."""
    exits, mate = graph.exits, graph.mate
    came_from: dict[int, int | None] = {}  # terminal left: the terminal left before
    waiting: deque[tuple[int, int | None]] = deque([(start, None)])
    while waiting:
        at, before = waiting.popleft()
        for left in exits[at].tolist():
            if left in closed or left in came_from:
                continue
            came_from[left] = before
            if left == end:
                way = [left]
                while (earlier := came_from[way[-1]]) is not None:
                    way.append(earlier)
                return way[::-1]
            if mate[left] >= 0:
                waiting.append((int(mate[left]), left))
    return None


_MOST = 2**22
"""Lengths are kept for so many pairs of a cell and a port at a time."""


def forward_lengths(
    graph: CellGraph, starts: NDArray[np.int32], ends: NDArray[np.int32]
) -> NDArray[np.float64] | None:
    """Count the cells on shortest routes, if all light goes from ends a to ends b.

    Cells are taken when all cells that lead to them are done. Each terminal b then knows how many
    cells are behind light from each port. Returns ``cells[source, destination]``, infinite where
    there is no route; None where a route may use a cell in the other direction, or come back to
    one.
    """
    mate = graph.mate.reshape(-1, 4)
    one_way = (mate[:, :2] % 4 >= 2).all()  # so is -1
    one_way &= ((mate[:, 2:] < 0) | (mate[:, 2:] % 4 < 2)).all()
    if not one_way or (starts % 4 >= 2).any():
        return None
    waves = _sort_cells(mate)
    if waves is None:
        return None
    found = np.empty((len(starts), len(ends)))
    share = max(1, _MOST // max(1, graph.n_cells))
    for first in range(0, len(starts), share):
        found[first : first + share] = _spread(graph, waves, starts[first : first + share])[ends].T
    return found


def _sort_cells(mate: NDArray[np.int32]) -> list[NDArray[np.int64]] | None:
    """List cells in waves, each after all cells that lead to it; None if some lead in a ring."""
    waiting = (mate[:, :2] >= 0).sum(axis=1)
    wave, waves, done = np.flatnonzero(waiting == 0), [], 0
    while len(wave):
        waves.append(wave)
        done += len(wave)
        following = mate[wave, 2:].ravel()
        following = following[following >= 0] // 4
        np.subtract.at(waiting, following, 1)
        wave = np.unique(following[waiting[following] == 0])
    return waves if done == len(mate) else None


def _spread(
    graph: CellGraph, waves: list[NDArray[np.int64]], starts: NDArray[np.int32]
) -> NDArray[np.float32]:
    """``cells[terminal, port]``: passed by light from a port until it is there."""
    exits = graph.exits
    reached = np.full((len(graph.mate), len(starts)), np.inf, dtype=np.float32)
    reached[starts, np.arange(len(starts))] = 0
    for wave in waves:
        for side in (0, 1):
            at = 4 * wave + side
            led = graph.mate[at] >= 0
            reached[at[led]] = reached[graph.mate[at[led]]]
            for state in (0, 1):
                left = exits[at, state]
                reached[left] = np.minimum(reached[left], reached[at] + 1)
    return reached
