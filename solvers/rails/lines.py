"""The uses of each lane of each end, one after another, and the changes between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.rails.paths import Ints
from optmatch.solvers.rails.transfers import Uses


class Turns(NamedTuple):
    """Ends of classes are turned to face others, each on one lane: columns of a table."""

    starts_s: NDArray[np.float64]
    asked_s: NDArray[np.float64]
    end: Ints
    lane: Ints
    place: Ints
    """With `number` the spot, which tells the peer."""
    number: Ints


class Lines(NamedTuple):
    """The uses of each lane of each end, which are a line of rows, one after another."""

    uses: Uses
    line: Ints
    """``line[row]``, ascending from 0."""
    first: Ints
    """``first[line]``: the first row of the line."""
    last: Ints
    place: Ints
    """``place[row]``: the greater the later."""
    before: Ints
    """``before[row]``: the node before it on its line, -1 of the first."""

    def faced(self, standing: Ints) -> Ints:
        """Return by row the peer of its line before; `standing` rows tell the first peers."""
        faced = np.roll(self.uses.peer, 1)
        faced[self.first] = self.uses.peer[standing]
        return faced

    def turns(
        self, rows: Ints, starts_s: NDArray[np.float64], asked_s: NDArray[np.float64]
    ) -> Turns:
        """Turn lines to the peers that rows need."""
        _, end, lane, _, place, number = (column[rows] for column in self.uses)
        return Turns(starts_s, asked_s, end, lane, place, number)

    def standing(self) -> Turns:
        """Return the peer of each line when a step begins, as the step before has left it."""
        at_once = np.zeros(len(self.last))
        return self.turns(self.last, at_once, at_once)

    def pairs(self) -> Ints:
        """List which nodes follow each other on a line."""
        rows = np.flatnonzero((self.before >= 0) & (self.before != self.uses.node))
        return np.stack([self.before[rows], self.uses.node[rows]], axis=1)


def draw_lines(uses: Uses, place: Ints, lanes: Mapping[int, int]) -> Lines:
    """Put those that use an end into an order: by row its place; `lanes` are bits by node."""
    taken = np.zeros(1 + int(uses.node.max(initial=0)), np.int64)
    taken[list(lanes)] = list(lanes.values())
    rows = np.flatnonzero(taken[uses.node] >> uses.lane & 1)
    line = uses.end[rows] * (1 + int(uses.lane.max(initial=0))) + uses.lane[rows]
    order = np.lexsort([place[rows], line])
    begins = np.diff(line[order], prepend=-1) > 0
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(rows))[: len(first)] - 1
    sorted_uses = Uses(*(column[rows[order]] for column in uses))
    before = np.roll(sorted_uses.node, 1)
    before[first] = -1
    return Lines(sorted_uses, np.cumsum(begins) - 1, first, last, place[rows[order]], before)
