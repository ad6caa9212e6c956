"""Shortest routes where light only goes forward: whole columns of cells at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.cellgraph import CellGraph

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

    That is so where light only goes forward and each end of a cell is joined or has a port.
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

    `columns` are what `count_cells` tells ahead. The result is ``UNREACHED`` where no light comes
    through. No link can be passed twice here, so the shortest walk is a route. Time O(cells * m)
    for m destinations.
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
