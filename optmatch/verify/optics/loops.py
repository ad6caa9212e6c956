"""Loops: ways through set cells that no port leads to, where light that leaks in goes round."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph
from optmatch.model import InputError


class Loop(NamedTuple):
    """A closed way, in one of its two directions."""

    entered: tuple[int, ...]
    """The terminals at which cells are entered, in order."""
    left: tuple[int, ...]
    """The terminals by which they are left."""

    @property
    def cells(self) -> tuple[int, ...]:
        """The cells, in order; one that is passed twice is there twice."""
        return tuple(terminal // 4 for terminal in self.entered)


def find_loops(graph: CellGraph, states: NDArray[np.int8]) -> list[Loop]:
    """Find the loops of one setting of all cells.

    Parameters
    ----------
    graph
        The cells.
    states
        ``states[cell]``: 0 bar, 1 cross. What is said of a stuck or dead cell does not matter.

    Returns
    -------
    list of Loop
        Each once, from the lowest of its terminals; by these.

    Raises
    ------
    InputError
        If a cell is free.

    Notes
    -----
    Set cells lead each way in to a way out of its own. So light from a free terminal comes out at
    another, and the ways that none of it passes are loops. Time is proportional to the number of
    cells.

    Examples
    --------
    Six cells in bar around a hexagon lead light round inside, and round outside along the ports:

    >>> from optmatch.fabrics import HexMesh
    >>> [sorted(loop.cells) for loop in find_loops(HexMesh(1, 1).graph, np.zeros(6, np.int8))]
    [[0, 1, 2, 3, 4, 5]]
    """
    if ((states < 0) & (graph.stuck < 0)).any():
        raise InputError("a free cell leads light nowhere: loops are found in set cells only")
    left = graph.exits[np.arange(len(graph.mate)), np.repeat(np.clip(states, 0, 1), 4)]
    onward = graph.mate[left].tolist()
    dark = np.ones(len(graph.mate), dtype=bool)
    dark[np.repeat(graph.stuck > 1, 4)] = False  # dead cells
    at = graph.perimeter
    while len(at):
        dark[at] = False
        at = graph.mate[left[at]]
        at = at[at >= 0]
    loops = []
    for first in np.flatnonzero(dark).tolist():
        way = []
        while dark[first]:
            dark[first] = dark[left[first]] = False  # the loop, and the loop turned round
            way.append(first)
            first = onward[first]
        if way:
            loops.append(Loop(tuple(way), tuple(int(left[terminal]) for terminal in way)))
    return loops
