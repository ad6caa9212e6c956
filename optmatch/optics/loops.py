"""Closed loops of light: ways through set cells that no light from outside takes.

A loop breaks no rule. Stray light that leaks into one goes round in it, as in a ring resonator.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import DEAD, CellGraph
from optmatch.model import CROSS, FREE


class Loop(NamedTuple):
    """A closed way of light, in one of its two directions."""

    entered: tuple[int, ...]
    """The terminals at which cells are entered, in order."""
    left: tuple[int, ...]
    """The terminals by which they are left."""

    @property
    def cells(self) -> tuple[int, ...]:
        """The cells, in order; one that is passed twice is there twice."""
        return tuple(terminal // 4 for terminal in self.entered)


def find_loops(graph: CellGraph, states: NDArray[np.int8]) -> list[Loop]:
    """Find the closed loops of light, each once, in the order of their lowest terminals.

    Light is sent in at free terminals and out of cells that are not set (``states[cell]`` is
    free); terminals of set cells that stay dark form the loops. A stuck cell is as it is, whatever
    `states` says. Time is proportional to the number of cells.
    """
    # By terminal: whether its cell guides light, where light that enters leaves the cell, and
    # where it then enters the next one (-1 outside).
    guides = ((states != FREE) | (graph.stuck != FREE)) & (graph.stuck != DEAD)
    guides_at = np.repeat(guides, 4)
    crossed_at = np.repeat(states == CROSS, 4).astype(np.int64)
    exits = graph.exits[np.arange(len(graph.mate)), crossed_at]
    exit_at = exits.tolist()
    next_at = graph.mate[exits].tolist()

    # Light from outside, or out of a cell that is not set, makes all terminals on its way lit.
    dark = set(np.flatnonzero(guides_at).tolist())
    fed_by_set_cell = (graph.mate >= 0) & guides_at[graph.mate]
    for terminal in np.flatnonzero(guides_at & ~fed_by_set_cell).tolist():
        while terminal in dark:
            dark.remove(terminal)
            terminal = next_at[terminal]

    loops = []
    for first in sorted(dark):
        entered = []
        terminal = first
        while terminal in dark:
            # The exits are taken off too: they belong to the same loop, turned round.
            dark -= {terminal, exit_at[terminal]}
            entered.append(terminal)
            terminal = next_at[terminal]
        if entered:
            loops.append(Loop(tuple(entered), tuple(exit_at[entry] for entry in entered)))
    return loops
