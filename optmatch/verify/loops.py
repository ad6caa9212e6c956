"""Loops: ways through set cells that no light from outside takes, where stray light goes round."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import DEAD, CellGraph
from optmatch.model import CROSS, FREE


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


def find_loops(graph: CellGraph, states: NDArray[np.int8]) -> list[list[Loop]]:
    """Find the closed loops of light in some settings of the cells.

    ``states[slot, cell]`` is 0 bar, 1 cross, -1 free; a stuck cell is as it is, whatever is said
    of it, and a dead one leads nowhere. Returns for each slot its loops, each once, from the
    lowest of its terminals; by these.

    Light is sent in wherever it can come in: at free terminals of the graph, and from free cells.
    Each way into a set cell has a way out of its own, so the ways that remain dark are loops. Time
    is proportional to the number of cells.
    """
    leads_on = ((states != FREE) | (graph.stuck != FREE)) & (graph.stuck != DEAD)
    is_set = np.repeat(leads_on, 4, axis=1)  # index: slot, and terminal entered
    crossed = np.repeat(states == CROSS, 4, axis=1).astype(np.int64)
    left = graph.exits[np.arange(len(graph.mate)), crossed]
    onward = graph.mate[left]
    fed = (graph.mate >= 0) & is_set[:, graph.mate]
    dark = is_set.copy()
    slot, at = np.nonzero(is_set & ~fed)
    while len(at):
        dark[slot, at] = False
        following = onward[slot, at].astype(np.int64)
        on = (following >= 0) & is_set[slot, following]
        slot, at = slot[on], following[on]
    loops: list[list[Loop]] = [[] for _ in states]
    for k, first in np.argwhere(dark):
        entered, terminal = [], int(first)
        while dark[k, terminal]:
            dark[k, [terminal, left[k, terminal]]] = False  # the loop, and the loop turned round
            entered.append(terminal)
            terminal = int(onward[k, terminal])
        if entered:
            loops[k].append(Loop(tuple(entered), tuple(left[k, entered].tolist())))
    return loops
