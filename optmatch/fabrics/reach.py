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
from optmatch.model import brief_tuple, check_size, check_time, read_only

MOST_AT_ONCE = 1 << 22
"""The most terminals, over all sources together, that one walk looks at."""


@brief_tuple
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
    """Count the fewest cells from some terminals to all others: breadth-first search.

    A cell is a 2 x 2 switch with four terminals: light enters at one of them and leaves by one of
    two others, depending on the state of the cell. The search may use each state at each passage.
    A walk may therefore pass a link (a waveguide between two cells) in both directions, which no
    circuit can. Its length is a lower bound for circuits. Time O(k * cells).

    The body uses two tables of the graph:

    - ``mate[terminal]``: the terminal that a waveguide joins it to, -1 if it is free;
    - ``exits[terminal, state]``: where light that enters at the terminal leaves its cell.

    Parameters
    ----------
    graph
        The cells and the joins between their terminals.
    sources
        The terminals at which light enters, shape (k,).
    closed
        Terminals by which light may not leave a cell.

    Returns
    -------
    Walks
        ``cells[source, terminal]``: the cells that are passed until light leaves by the terminal,
        ``UNREACHED`` where it cannot; ``entered[source, terminal]``: where the last of these cells
        was entered, -1 where it cannot. Both int32, shape (k, terminals).
    """
    n_terminals = len(graph.mate)
    # Both tables are flat during the search: the entry of a source and a terminal is at
    # ``source * n_terminals + terminal``.
    cells = np.full(len(sources) * n_terminals, UNREACHED, dtype=np.int32)
    entered = np.full(len(sources) * n_terminals, -1, dtype=np.int32)
    for terminal in closed:
        cells[terminal::n_terminals] = -1  # neither reached nor fresh
    exits = graph.exits
    # The beams of the search front: beam i belongs to the source at offset[i] // n_terminals, and
    # enters a cell at terminal_entered[i].
    offset = np.arange(len(sources)) * n_terminals
    terminal_entered = np.asarray(sources, dtype=np.int64)
    distance = 0
    while len(terminal_entered):
        check_time()
        distance += 1

        # Light leaves each cell by both terminals of its other end.
        leaving = (offset[:, None] + exits[terminal_entered]).ravel()
        entered_by = np.repeat(terminal_entered, 2)
        is_fresh = cells[leaving] == UNREACHED
        leaving = leaving[is_fresh]
        cells[leaving] = distance
        entered[leaving] = entered_by[is_fresh]  # the last of equal ones wins, on every machine

        # Each terminal is left once, then light enters the cell that is joined there. NumPy's
        # `unique` hashes first, which takes five times as long as sorting.
        leaving = np.sort(leaving)
        leaving = leaving[np.diff(leaving, prepend=-1) > 0]
        offset = leaving - leaving % n_terminals
        terminal_entered = graph.mate[leaving % n_terminals].astype(np.int64)
        is_inside = terminal_entered >= 0
        offset = offset[is_inside]
        terminal_entered = terminal_entered[is_inside]
    if closed:
        cells[cells == -1] = UNREACHED
    return Walks(cells.reshape(-1, n_terminals), entered.reshape(-1, n_terminals))


def shortest_routes(
    graph: CellGraph, sources: NDArray[np.int32], destinations: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Count the cells on the shortest route from each source to each destination.

    A cell is a 2 x 2 switch with four terminals; a link is a waveguide between two cells. A route
    may pass each link once at most. Shortest walks without this rule are found for all pairs at
    once. Only where such a walk passes a link twice, the route of the pair is searched by itself.

    Parameters
    ----------
    graph
        The cells and the joins between their terminals.
    sources, destinations
        Free terminals, where light comes in and out; shapes (k,) and (m,).

    Returns
    -------
    NDArray
        ``cells[source, destination]``; int32, shape (k, m), read-only. ``UNREACHED`` where no
        state of the cells connects the two (a dead pair), 0 where they are the same terminal.

    Examples
    --------
    >>> cell = CellGraph(mate=[-1] * 4, ends=[[[0, 0], [1, 0]]], perimeter=[0, 1, 3, 2])
    >>> shortest_routes(cell, np.array([0]), np.array([0, 1, 2, 3])).tolist()
    [[0, 2147483647, 1, 1]]
    """
    is_same = np.asarray(sources)[:, None] == np.asarray(destinations)[None, :]

    # Where light only goes forward, no link is passed twice, and columns are far quicker.
    columns = count_cells(graph.mate, ahead=True)
    if columns is not None and (np.asarray(sources) % 4 < 2).all():
        table = forward_routes(graph, columns, sources, destinations)
        table[is_same] = 0
        return read_only(table)

    # Shortest walks, from some sources at a time, since their tables are large. `is_doubtful`
    # marks walks that pass a link twice.
    check_size("entries", len(sources) * len(graph.mate), "ports")
    table = np.empty(is_same.shape, dtype=np.int32)
    is_doubtful = np.zeros(is_same.shape, dtype=np.bool_)
    at_once = max(1, MOST_AT_ONCE // max(len(graph.mate), 64 * len(destinations)))
    for start in range(0, len(sources), at_once):
        rows = slice(start, start + at_once)
        walks = walk(graph, sources[rows])
        table[rows] = walks.cells[:, destinations]
        is_doubtful[rows] = _reuses_a_link(graph, walks, destinations)

    # A walk that passes a link both ways is no route; its length is only a lower bound.
    is_doubtful &= (table != UNREACHED) & ~is_same
    table[is_same] = 0
    for source, destination in np.argwhere(is_doubtful):
        table[source, destination] = _find_shortest_route(
            graph, int(sources[source]), int(destinations[destination])
        )
    return read_only(table)


def forced_links(graph: CellGraph, terminals: Sequence[int]) -> list[frozenset[int]]:
    """Find for each free terminal the links that its light cannot avoid on the way into the mesh.

    A cell is a 2 x 2 switch, a link a waveguide between two cells. Light that enters a cell may
    leave it by two terminals, of which one may lead out of the mesh at once. As long as only one
    way leads on inside, its links are *forced*. Two ports with a forced link in common can never
    have circuits at the same time, except with each other.

    Parameters
    ----------
    graph
        The cells and the joins between their terminals.
    terminals
        Free terminals, at which light enters.

    Returns
    -------
    list of frozenset
        For each of them the numbers of its forced links, as ``graph.links`` counts them.

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
    exits = graph.exits.tolist()
    mate = graph.mate.tolist()
    link_of = graph.links.of_terminal.tolist()

    # From each terminal light is followed inward as long as it has one way to go, and not round.
    forced = []
    for terminal in terminals:
        links: set[int] = set()
        ways_inward = [way for way in set(exits[terminal]) if mate[way] >= 0]
        while len(ways_inward) == 1 and link_of[ways_inward[0]] not in links:
            (way,) = ways_inward
            links.add(link_of[way])
            ways_inward = [onward for onward in set(exits[mate[way]]) if mate[onward] >= 0]
        forced.append(frozenset(links))
    return forced


def _reuses_a_link(
    graph: CellGraph, walks: Walks, destinations: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Tell which shortest walks pass a link twice, which the light of a circuit cannot do.

    `destinations` are the terminals at which walks end. A walk may pass a link in both directions.
    All walks are followed back from their ends, side by side. The result is ``reuses[source,
    destination]``, by places in the sources of `walks` and in `destinations`, false where there is
    no walk.
    """
    # pair = source number * number of destinations + destination number. Pairs drop out as soon
    # as their walk is back at its source.
    links = graph.links
    n_sources = len(walks.cells)
    source = np.repeat(np.arange(n_sources), len(destinations))
    terminal_left = np.tile(np.asarray(destinations, dtype=np.int64), n_sources)
    pair = np.arange(len(source))

    # Walk back from all destinations, one cell a round. A visit of a link is noted as the number
    # pair * links.count + link.
    visits = []
    while len(pair):
        check_time()
        entered = walks.entered[source, terminal_left]
        is_reached = entered >= 0
        pair = pair[is_reached]
        source = source[is_reached]
        entered = entered[is_reached]

        # A visit is a pair and a link: one that comes twice is a link that is used again.
        visits.append(pair * links.count + links.of_terminal[terminal_left[is_reached]])
        terminal_left = graph.mate[entered].astype(np.int64)
        is_inside = terminal_left >= 0
        pair = pair[is_inside]
        source = source[is_inside]
        terminal_left = terminal_left[is_inside]

    # A pair that has noted a link twice is twice in the sorted list.
    visit = np.sort(np.concatenate(visits or [pair]))
    repeated = visit[1:][visit[1:] == visit[:-1]]
    reuses = np.zeros(n_sources * len(destinations), dtype=bool)
    reuses[repeated // links.count] = True
    return reuses.reshape(n_sources, len(destinations))


def _find_shortest_route(graph: CellGraph, source: int, destination: int) -> int:
    """Count the cells of the shortest route between two terminals, by branch and bound.

    Light enters at the terminal `source` and leaves its last cell by `destination`. A route may
    use a link in one direction at most; a walk may use both, and is never longer. If the shortest
    walk uses a link in both, there are two branches: one direction is closed, or the other. The
    shortest walk of a branch is its bound; one that is no better than the best route is dropped.
    Without a route the result is `UNREACHED`.
    """
    # A branch is the set of terminals by which light may not leave a cell.
    best = UNREACHED
    link_of = graph.links.of_terminal.tolist()
    open_branches = [frozenset[int]()]
    while open_branches:
        closed = open_branches.pop()
        walks = walk(graph, [source], closed)
        length = int(walks.cells[0, destination])
        if length >= best:
            continue

        # Follow the walk back from its end, one cell at a time, to a link that it passes twice:
        # a route passes it from one of its two ends at most. Without one the walk is a route.
        terminal_left = destination
        passed = set[int]()
        while terminal_left >= 0 and link_of[terminal_left] not in passed:
            passed.add(link_of[terminal_left])
            terminal_left = int(graph.mate[walks.entered[0, terminal_left]])
        if terminal_left < 0:
            best = length
        else:
            far_end = int(graph.mate[terminal_left])
            open_branches += [closed | {terminal_left}, closed | {far_end}]
    return best


UNREACHED = np.iinfo(np.int32).max
_AT_ONCE = 256  # destinations: a table of all would take gigabytes for a thousand ports


def count_cells(mate: NDArray[np.int32], *, ahead: bool) -> NDArray[np.int64] | None:
    """Count the most cells that light can pass after each cell of a network, or before it.

    ``mate[terminal]`` is the terminal that one is joined to, -1 for none; the result is by cell.
    In a feed-forward network light goes from ends a of cells to ends b, and the count is the
    longest path from each cell: it numbers the columns from the last one (0) to the left, or,
    unless `ahead`, from the first one to the right. None says that the network is not
    feed-forward: ends of a kind are joined, or light can come round.
    """
    # Light goes only forward if each join leads from an end b to an end a.
    b_terminal = np.flatnonzero((mate >= 0) & (np.arange(len(mate)) % 4 >= 2))
    a_terminal = mate[b_terminal].astype(np.int64)
    all_lead_forward = 2 * len(b_terminal) == np.count_nonzero(mate >= 0)
    if not all_lead_forward or (a_terminal % 4 >= 2).any():
        return None

    # Longest paths by relaxation (Bellman and Ford): more rounds than cells mean a cycle.
    # The count of a cell is one more than that of the cell at the other end of a join.
    left_cell = b_terminal // 4
    right_cell = a_terminal // 4
    counted, neighbour = (left_cell, right_cell) if ahead else (right_cell, left_cell)
    counts = np.zeros(len(mate) // 4, dtype=np.int64)
    for _ in range(len(counts) + 1):
        former = counts.copy()
        np.maximum.at(counts, counted, former[neighbour] + 1)
        if np.array_equal(counts, former):
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
    """Count the cells on the shortest routes of a feed-forward network.

    `sources` are the terminals that light enters at, `destinations` those by which it leaves.
    Dynamic programming from the last column back to the first, in time O(cells * destinations).
    ``columns[cell]`` is the most cells that light can still pass after this one, 0 in the last
    column. The result is ``cells[source, destination]``, `UNREACHED` where no light comes through.
    """
    table = np.empty((len(sources), len(destinations)), dtype=np.int32)
    exits = graph.exits
    order = np.argsort(columns, kind="stable")
    # stages[i]: the cells after which light passes i more cells at most, the last column first.
    stages = np.split(order, np.flatnonzero(np.diff(columns[order])) + 1)
    for first in range(0, len(destinations), _AT_ONCE):
        part = destinations[first : first + _AT_ONCE]
        # cells_ahead[terminal, destination]: the fewest cells from the terminal to the
        # destination. Where light leaves the network at the destination there are none.
        cells_ahead = np.full((len(graph.mate), len(part)), UNREACHED, dtype=np.int32)
        cells_ahead[part, np.arange(len(part))] = 0

        # Entries of both right terminals of these cells are known: they were set by the cells
        # further right that they are joined to, or are destinations.
        for cells in stages:
            for side in (0, 1):  # light enters at a1 or at a2
                entered = 4 * cells + side
                length = cells_ahead[exits[entered]].min(axis=1)
                length[length != UNREACHED] += 1
                cells_ahead[entered] = length
                # Light that leaves the cell before by the joined terminal has as many ahead.
                joined = graph.mate[entered]
                cells_ahead[joined[joined >= 0]] = length[joined >= 0]
        table[:, first : first + _AT_ONCE] = cells_ahead[sources]
    return table


def cheapest_ways(
    graph: CellGraph, starts: ArrayLike, cell_cost: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Add up what the cheapest way through cells costs, from some terminals to all others.

    Shortest paths by Bellman and Ford. `starts` are the terminals at which light enters. A way may
    pass a link twice, which no circuit can: the result, ``cost[start, terminal left]``, is a lower
    bound for circuits, infinite for no way. ``cell_cost[cell, state]`` is not negative; for a
    stuck cell its own state counts.
    """
    cost_of_state = fit_stuck(graph, cell_cost)
    # The first cell on each way: light leaves it by the exit of either state.
    first_entered = np.asarray(starts, dtype=np.int64)
    cost = np.full((len(first_entered), len(graph.mate)), np.inf)
    rows = np.arange(len(first_entered))
    for state in (0, 1):
        exit_ = graph.exits[first_entered, state]
        first_cost = cost_of_state[first_entered // 4, state]
        cost[rows, exit_] = np.minimum(cost[rows, exit_], first_cost)

    # Relaxation of all joins at once (Bellman and Ford), until nothing gets cheaper.
    entered = np.flatnonzero(graph.mate >= 0)
    while True:
        former = cost.copy()
        cost_before = former[:, graph.mate[entered]]
        for state in (0, 1):
            exit_ = graph.exits[entered, state]
            cost_here = cost_before + cost_of_state[entered // 4, state]
            cost[:, exit_] = np.minimum(cost[:, exit_], cost_here)
        if np.array_equal(former, cost):
            return cost


def fit_stuck(graph: CellGraph, table: NDArray[Any]) -> NDArray[Any]:
    """Give stuck cells in a copy of ``table[cell, state]`` the entry of their own state."""
    fitted = table.copy()
    for state in (0, 1):
        fitted[graph.stuck == state] = fitted[graph.stuck == state][:, [state]]
    return fitted
