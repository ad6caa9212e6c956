"""Which ports can be connected at all, and by how few cells: exact, and apart from the solvers.

Light may walk through one link twice, once each way; no fixed state of the cells can do that. So
the shortest *walk* is only a lower bound for the shortest *route*, and a pair with a walk may
still be dead. Both questions are settled here by branching on the direction of a link that a walk
uses both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics.cellgraph import CellGraph
from optmatch.model import check_size, check_time

MOST_AT_ONCE = 1 << 22
"""The most terminals, over all sources together, that one walk looks at."""


class Walks(NamedTuple):
    """Shortest walks from some terminals to everywhere."""

    cells: NDArray[np.int32]
    """``cells[k, u]``: cells passed from source k until light leaves by terminal u."""
    entered: NDArray[np.int32]
    """``entered[k, u]``: the terminal at which the last of these cells was entered."""


def walk(
    graph: CellGraph,
    sources: Sequence[int] | NDArray[np.int32],
    closed: frozenset[int] = frozenset(),
) -> Walks:
    """Walk breadth first from several terminals at once, in one NumPy pass per distance.

    Light enters at `sources`, shape (k,), and may not leave a cell by the terminals `closed`.
    Arrays of the result have the shape (k, terminals), with ``UNREACHED`` and -1 where light
    cannot come. Time O(k * cells).
    """
    n_terminals = len(graph.mate)
    cells = np.full(len(sources) * n_terminals, UNREACHED, dtype=np.int32)
    entered = np.full(len(sources) * n_terminals, -1, dtype=np.int32)
    for terminal in closed:
        cells[terminal::n_terminals] = -1
    exits = graph.exits
    base = np.arange(len(sources)) * n_terminals
    at = np.asarray(sources, dtype=np.int64)  # terminals entered, and the source they belong to
    distance = 0
    while len(at):
        check_time()
        distance += 1
        leaving = (base[:, None] + exits[at]).ravel()
        came = np.repeat(at, 2)
        fresh = cells[leaving] == UNREACHED
        leaving, came = leaving[fresh], came[fresh]
        cells[leaving] = distance
        entered[leaving] = came  # the last of equal ones wins, on every machine alike
        leaving = np.sort(leaving)  # NumPy's `unique` hashes first, which takes five times as long
        leaving = leaving[np.diff(leaving, prepend=-1) > 0]
        base = leaving - leaving % n_terminals
        at = graph.mate[leaving % n_terminals].astype(np.int64)
        base, at = base[at >= 0], at[at >= 0]
    if closed:
        cells[cells == -1] = UNREACHED
    return Walks(cells.reshape(-1, n_terminals), entered.reshape(-1, n_terminals))


def shortest_routes(
    graph: CellGraph, sources: NDArray[np.int32], destinations: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Count the cells on the shortest route from each source to each destination.

    All are free terminals. int32; ``UNREACHED`` where no state of the cells connects the
    two (a dead pair), 0 where they are the same terminal.

    Examples
    --------
    >>> cell = CellGraph(mate=[-1] * 4, ends=[[[0, 0], [1, 0]]], perimeter=[0, 1, 3, 2])
    >>> shortest_routes(cell, np.array([0]), np.array([0, 1, 2, 3])).tolist()
    [[0, 2147483647, 1, 1]]
    """
    same = np.asarray(sources)[:, None] == np.asarray(destinations)[None, :]
    columns = count_cells(graph.mate, ahead=True)
    if columns is not None and (np.asarray(sources) % 4 < 2).all():
        table = forward_routes(graph, columns, sources, destinations)
        table[same] = 0
        table.flags.writeable = False
        return table
    check_size("entries", len(sources) * len(graph.mate), "ports")
    table = np.empty(same.shape, dtype=np.int32)
    doubtful = np.zeros(same.shape, dtype=np.bool_)
    at_once = max(1, MOST_AT_ONCE // max(len(graph.mate), 64 * len(destinations)))
    for start in range(0, len(sources), at_once):
        rows = slice(start, start + at_once)
        walks = walk(graph, sources[rows])
        table[rows] = walks.cells[:, destinations]
        doubtful[rows] = _reuses_a_link(graph, walks, destinations)
    doubtful &= (table != UNREACHED) & ~same
    table[same] = 0
    for i, j in np.argwhere(doubtful):
        table[i, j] = _shortest_route(graph, int(sources[i]), int(destinations[j]))
    table.flags.writeable = False
    return table


def forced_links(graph: CellGraph, terminals: Sequence[int]) -> list[frozenset[int]]:
    """Find for each free terminal the links that its light cannot avoid on the way into the mesh.

    These are the links passed as long as there is one way that does not leave the mesh at once.
    Two ports with a common one can never have circuits at the same time, except with each other.

    Examples
    --------
    Behind a corner where only two cells meet, light from both far ends needs the one link between
    them:

    >>> from optmatch.fabrics.meshes.mesh import HexMesh
    >>> graph = HexMesh(2, 2).graph
    >>> first, second = forced_links(graph, graph.perimeter[[2, 5]].tolist())
    >>> len(first & second)
    1
    """
    exits, mate, link = graph.exits.tolist(), graph.mate.tolist(), graph.links.of_terminal.tolist()
    forced = []
    for terminal in terminals:
        found: set[int] = set()
        inward = [u for u in set(exits[terminal]) if mate[u] >= 0]
        while len(inward) == 1 and link[inward[0]] not in found:
            found.add(link[inward[0]])
            inward = [u for u in set(exits[mate[inward[0]]]) if mate[u] >= 0]
        forced.append(frozenset(found))
    return forced


def _reuses_a_link(
    graph: CellGraph, walks: Walks, destinations: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Tell which of the walks pass some link both ways; all are traced side by side."""
    links, n_sources = graph.links, len(walks.cells)
    rows = np.repeat(np.arange(n_sources), len(destinations))
    left = np.tile(np.asarray(destinations, dtype=np.int64), n_sources)
    pair = np.arange(len(rows))
    visits = []
    while len(pair):
        check_time()
        entered = walks.entered[rows, left]
        more = entered >= 0
        pair, rows, left, entered = pair[more], rows[more], left[more], entered[more]
        visits.append(pair * links.count + links.of_terminal[left])
        left = graph.mate[entered].astype(np.int64)
        more = left >= 0
        pair, rows, left = pair[more], rows[more], left[more]
    found = np.sort(np.concatenate(visits or [pair]))
    twice = np.zeros(n_sources * len(destinations), dtype=bool)
    twice[found[1:][found[1:] == found[:-1]] // links.count] = True
    return twice.reshape(n_sources, len(destinations))


def _shortest_route(graph: CellGraph, source: int, destination: int) -> int:
    """Branch and bound: a route uses a link in one direction at most, so one of two is closed."""
    best = UNREACHED
    open_cases = [frozenset[int]()]
    while open_cases:
        closed = open_cases.pop()
        walks = walk(graph, [source], closed)
        length = int(walks.cells[0, destination])
        if length >= best:
            continue
        left, passed, clash = destination, set[int](), -1
        while left >= 0 and clash < 0:
            link = int(graph.links.of_terminal[left])
            if link in passed:
                clash = left
            passed.add(link)
            left = int(graph.mate[walks.entered[0, left]])
        if clash < 0:
            best = length
        else:
            open_cases += [closed | {clash}, closed | {int(graph.mate[clash])}]
    return best


UNREACHED = np.iinfo(np.int32).max
_AT_ONCE = 256  # destinations: a table of all would take gigabytes for a thousand ports


def count_cells(mate: NDArray[np.int32], *, ahead: bool) -> NDArray[np.int64] | None:
    """Count the cells that light may still have to pass after each cell, or before it.

    None if ends of a kind are joined, or if light can come round.
    """
    left = np.flatnonzero((mate >= 0) & (np.arange(len(mate)) % 4 >= 2))
    entered = mate[left].astype(np.int64)
    if 2 * len(left) != np.count_nonzero(mate >= 0) or (entered % 4 >= 2).any():
        return None
    one, other = (left // 4, entered // 4) if ahead else (entered // 4, left // 4)
    counts = np.zeros(len(mate) // 4, dtype=np.int64)
    for _ in range(len(counts) + 1):
        before = counts.copy()
        np.maximum.at(counts, one, before[other] + 1)
        if np.array_equal(counts, before):
            return counts
    return None


def lights_every_cell(
    graph: CellGraph, sources: NDArray[np.int32], destinations: NDArray[np.int32]
) -> bool:
    """Tell whether light from all sources passes each cell twice, whatever the states.

    Light does so where it only goes forward and each end of a cell is joined or has a port.
    """
    ends = np.concatenate([sources, destinations])
    free = np.flatnonzero(graph.mate < 0)
    forward = (sources % 4 < 2).all() and (destinations % 4 >= 2).all()
    return bool(
        forward and np.isin(free, ends).all() and count_cells(graph.mate, ahead=True) is not None
    )


def forward_routes(
    graph: CellGraph,
    columns: NDArray[np.int64],
    sources: NDArray[np.int32],
    destinations: NDArray[np.int32],
) -> NDArray[np.int32]:
    """Count the cells on the shortest route between terminals: ``cells[source, destination]``.

    `columns` are the columns that `count_cells` has found. The result is ``UNREACHED`` where no
    light comes through. No link can be passed twice here, so the shortest walk is a route. Time
    O(cells * m) for m destinations.
    """
    table = np.empty((len(sources), len(destinations)), dtype=np.int32)
    exits = graph.exits
    order = np.argsort(columns, kind="stable")
    stages = np.split(order, np.flatnonzero(np.diff(columns[order])) + 1)
    for first in range(0, len(destinations), _AT_ONCE):
        some = destinations[first : first + _AT_ONCE]
        to_go = np.full((len(graph.mate), len(some)), UNREACHED, dtype=np.int32)
        to_go[some, np.arange(len(some))] = 0  # of light that leaves there
        for cells in stages:
            for k in (0, 1):
                entered = 4 * cells + k
                cost = to_go[exits[entered]].min(axis=1)
                cost[cost != UNREACHED] += 1
                to_go[entered] = cost
                before = graph.mate[entered]
                to_go[before[before >= 0]] = cost[before >= 0]
        table[:, first : first + _AT_ONCE] = to_go[sources]
    return table


def cheapest_ways(
    graph: CellGraph, starts: ArrayLike, cell_cost: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Add up what the cheapest way costs: ``cost[start, terminal left]``, infinite for no way.

    ``cell_cost[cell, state]`` is not negative; of a stuck cell its own state counts. A way may
    pass a link twice, so it costs no more than any route.
    """
    fitted = fit_stuck(graph, cell_cost)
    begun = np.asarray(starts, dtype=np.int64)
    cost = np.full((len(begun), len(graph.mate)), np.inf)
    rows = np.arange(len(begun))
    entered = np.flatnonzero(graph.mate >= 0)
    for state in (0, 1):
        left = graph.exits[begun, state]
        cost[rows, left] = np.minimum(cost[rows, left], fitted[begun >> 2, state])
    while True:
        before = cost.copy()
        came = before[:, graph.mate[entered]]
        for state in (0, 1):
            left = graph.exits[entered, state]
            cost[:, left] = np.minimum(cost[:, left], came + fitted[entered >> 2, state])
        if np.array_equal(before, cost):
            return cost


def fit_stuck(graph: CellGraph, table: NDArray[Any]) -> NDArray[Any]:
    """Give stuck cells in ``table[cell, state]`` the entry of the state in which they are."""
    fitted = table.copy()
    for state in (0, 1):
        fitted[graph.stuck == state] = fitted[graph.stuck == state][:, [state]]
    return fitted
