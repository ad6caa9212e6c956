"""What a small mesh holds side by side: all ways of light are tried, one cell after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.model import FREE

MOST_PORTS, MOST_CELLS = 6, 28
"""Of more all ways of light are too many; of so many they take a second."""

Pairs = tuple[tuple[int, int], ...]


class HeldCircuits:
    """Tells which circuits of bidirectional ports are held side by side, and remembers it."""

    def __init__(self, fabric: Fabric, graph: CellGraph) -> None:
        self._n_cells = graph.n_cells
        self._mate: list[int] = graph.mate.tolist()
        self._exits: list[set[int]] = [set(row) for row in graph.exits.tolist()]
        self._terminals: list[int] = fabric.source_terminals.tolist()
        self._known: dict[Pairs, bool] = {}

    def earn_more(self, worth: NDArray[np.int64], most: int) -> bool:
        """Tell whether circuits that are held together are worth more than `most`.

        ``worth[port, port]`` >= 0 counts in both directions. Ports are looked at one by one; once
        pairs are worth too much, the light decides.
        """
        both = np.triu(worth + worth.T, 1)
        rows, ports = both.tolist(), range(len(both))
        to_come = [int(both[port:].max(axis=1).sum()) for port in ports]

        def take(port: int, chosen: Pairs, total: int) -> bool:
            if total > most:
                return self._hold(chosen)
            if total + to_come[port] <= most:  # so for the last port
                return False
            busy = {end for pair in chosen for end in pair}
            free = [] if port in busy else [far for far in ports if far not in busy]
            return take(port + 1, chosen, total) or any(
                take(port + 1, (*chosen, (port, far)), total + rows[port][far])
                for far in free
                if rows[port][far]
            )

        return take(0, (), 0)

    def _hold(self, pairs: Pairs) -> bool:
        """Tell whether some states of the cells connect all these pairs."""
        if pairs not in self._known:
            circuits = [(self._terminals[i], self._terminals[j]) for i, j in pairs]
            states = [FREE] * self._n_cells
            self._known[pairs] = self._lead(circuits, circuits[0][0], states)
        return self._known[pairs]

    def _lead(self, circuits: list[tuple[int, int]], at: int, states: list[int]) -> bool:
        """Lead light on from the terminal where it enters a cell: of the first circuit, then all.

        ``states[cell]`` is put back where there is no way.
        """
        cell, end = at >> 2, circuits[0][1]
        if any(not self._reach(start, end, states) for start, end in [(at, end), *circuits[1:]]):
            return False
        before = states[cell]
        for left in self._exits[at]:
            state = (left ^ at) & 1
            if before not in (FREE, state):
                continue
            states[cell] = state
            if left == end:
                rest = circuits[1:]
                if not rest or self._lead(rest, rest[0][0], states):
                    return True
            elif self._mate[left] >= 0 and self._lead(circuits, self._mate[left], states):
                return True
        states[cell] = before
        return False

    def _reach(self, start: int, end: int, states: list[int]) -> bool:
        """Tell whether light could come to a terminal, were it free to change cells as it goes."""
        found, waiting = {start}, [start]
        for at in waiting:  # grows while it is walked
            for left in self._exits[at]:
                if states[at >> 2] in (FREE, (left ^ at) & 1):
                    if left == end:
                        return True
                    entered = self._mate[left]
                    if entered >= 0 and entered not in found:
                        found.add(entered)
                        waiting.append(entered)
        return False
