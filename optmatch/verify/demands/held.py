"""Which circuits a small mesh holds side by side: all ways of light are tried, cell after cell.

A switch without cells holds all circuits of different ports.

Terminals are numbered cell by cell, four to a cell, so ``terminal >> 2`` is the cell. Light that
enters at one terminal leaves on the other side of the cell: in bar straight on, in cross swapped.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.model import FREE

MOST_IDEAL_PORTS = 8
"""Of an ideal switch: there are 764 sets of pairs of so many ports."""
MOST_PORTS = 6
MOST_CELLS = 28
"""Of more ports or cells all ways of light are too many; of so many they take a second."""

Pairs = tuple[tuple[int, int], ...]
"""Pairs of ports that are connected."""


class HeldCircuits:
    """Tells which circuits of bidirectional ports are held side by side, and remembers it.

    Without a graph of cells the switch is ideal, and holds all circuits at once.
    """

    def __init__(self, fabric: Fabric, graph: CellGraph | None) -> None:
        self._holds_all = graph is None
        self._known: dict[Pairs, bool] = {}
        if graph is None:
            return
        self._n_cells = graph.n_cells
        self._mate: list[int] = graph.mate.tolist()
        self._exits: list[set[int]] = [set(row) for row in graph.exits.tolist()]
        self._terminals: list[int] = fabric.source_terminals.tolist()

    def earn_more(self, worth: NDArray[np.int64], most: int) -> bool:
        """Tell whether the switch can hold pairs at once that are worth more than a limit.

        Branch and bound: port after port is paired with a free one, or with none. Both entries of
        a pair count, ``worth[source, destination]`` >= 0.
        """
        # `rows[a][b]`: the worth of the pair of ports a < b, in both directions, else 0.
        # `to_come[a]`: no pairs with a smaller port >= a are worth more than this together.
        worth_of_pair = np.triu(worth + worth.T, 1)
        rows = worth_of_pair.tolist()
        ports = range(len(rows))
        to_come = [int(worth_of_pair[port:].max(axis=1).sum()) for port in ports]

        def pair_from(port: int, chosen: Pairs, total: int) -> bool:
            """Search on from the next port; the pairs of earlier ports are `chosen`.

            A branch ends where even the best pairs of all later ports are too little.
            """
            if total > most:
                return self._hold(chosen)
            if total + to_come[port] <= most:  # always so for the last port
                return False
            busy = {end for pair in chosen for end in pair}
            if pair_from(port + 1, chosen, total):
                return True
            if port in busy:
                return False
            return any(
                pair_from(port + 1, (*chosen, (port, partner)), total + rows[port][partner])
                for partner in ports
                if partner not in busy and rows[port][partner]
            )

        return pair_from(0, (), 0)

    def _hold(self, pairs: Pairs) -> bool:
        """Tell whether some states of the cells connect all these pairs; answers are kept."""
        if self._holds_all:
            return True
        if pairs not in self._known:
            circuits = [
                (self._terminals[port], self._terminals[partner]) for port, partner in pairs
            ]
            states = [FREE] * self._n_cells
            self._known[pairs] = self._lead_light(circuits, circuits[0][0], states)
        return self._known[pairs]

    def _lead_light(
        self, circuits: list[tuple[int, int]], entered: int, states: list[int]
    ) -> bool:
        """Find states of cells that lead the light of circuits, one after another, to their ends.

        Depth-first search: a free cell is tried in both states, a set one stays as it is. `states`
        is changed in place, and put back where there is no way.

        Parameters
        ----------
        circuits
            The first and the last terminal of each circuit that is not led to its end yet.
        entered
            The terminal where light of the first circuit enters its next cell.
        """
        cell = entered >> 2
        end = circuits[0][1]
        remaining = circuits[1:]

        # A circuit that cannot come to its end by itself ends the search here.
        for first, last in [(entered, end), *remaining]:
            if not self._can_reach(first, last, states):
                return False

        former_state = states[cell]
        for left in self._exits[entered]:
            state = _state_between(entered, left)
            if former_state not in (FREE, state):
                continue
            states[cell] = state
            next_terminal = self._mate[left]
            if left == end:
                if not remaining or self._lead_light(remaining, remaining[0][0], states):
                    return True
            elif next_terminal >= 0 and self._lead_light(circuits, next_terminal, states):
                return True
        states[cell] = former_state
        return False

    def _can_reach(self, first: int, last: int, states: list[int]) -> bool:
        """Tell whether light could come from one terminal to another past the cells that are set.

        Breadth-first search in which even one walk may pass a free cell in both states: True is no
        promise.
        """
        reached = {first}
        queue = [first]
        for entered in queue:  # it grows while it is walked
            for left in self._exits[entered]:
                if states[entered >> 2] not in (FREE, _state_between(entered, left)):
                    continue
                if left == last:
                    return True
                next_terminal = self._mate[left]
                if next_terminal >= 0 and next_terminal not in reached:
                    reached.add(next_terminal)
                    queue.append(next_terminal)
        return False


def _state_between(entered: int, left: int) -> int:
    """Return the state of a cell, 0 bar or 1 cross, that leads from one terminal to another."""
    return (left ^ entered) & 1
