"""Lengths of routes where light cannot turn back; a thousand ports take about a second."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph

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
    one_way = ((mate[:, :2] < 0) | (mate[:, :2] % 4 >= 2)).all()
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
