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


def find_loops(graph: CellGraph, states: NDArray[np.int8]) -> list[list[Loop]]:
    """Find the closed loops of light, by slot, each once, in the order of their lowest terminals.

    Light is sent in at free terminals and out of cells that are not set; terminals of set cells
    that stay dark form the loops. A stuck cell is as it is, whatever `states` says. Time is
    proportional to the number of cells.
    """
    # A cell guides light if it is set or stuck in a state; cells of four terminals each.
    guides = ((states != FREE) | (graph.stuck != FREE)) & (graph.stuck != DEAD)
    guides_at = np.repeat(guides, 4, axis=1)  # (slots, terminals): of the cell of the terminal
    crossed_at = np.repeat(states == CROSS, 4, axis=1).astype(np.int64)
    exit_at = graph.exits[np.arange(len(graph.mate)), crossed_at]  # (slots, terminals)
    next_at = graph.mate[exit_at]  # the terminal of the next cell that is entered, -1 outside

    dark = _find_dark_terminals(graph, guides_at, next_at)

    loops: list[list[Loop]] = [[] for _ in states]
    for slot, first in np.argwhere(dark):
        entered = []
        terminal = int(first)
        while dark[slot, terminal]:
            # The exits are taken off too: they belong to the same loop, turned round.
            dark[slot, terminal] = False
            dark[slot, exit_at[slot, terminal]] = False
            entered.append(terminal)
            terminal = int(next_at[slot, terminal])
        if entered:
            left = exit_at[slot, entered].tolist()
            loops[slot].append(Loop(tuple(entered), tuple(left)))
    return loops


def _find_dark_terminals(
    graph: CellGraph, guides_at: NDArray[np.bool_], next_at: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Find the entries of set cells that no light from outside reaches, by slot and terminal.

    ``next_at[slot, terminal]`` is the entry to which light goes on, -1 if it leaves the graph.
    """
    fed_by_set_cell = (graph.mate >= 0) & guides_at[:, graph.mate]
    dark = guides_at.copy()
    slot, terminal = np.nonzero(guides_at & ~fed_by_set_cell)
    while len(terminal):
        dark[slot, terminal] = False
        following = next_at[slot, terminal].astype(np.int64)
        goes_on = (following >= 0) & guides_at[slot, following]
        slot = slot[goes_on]
        terminal = following[goes_on]
    return dark
