"""Planar networks of neighbouring cells, routed by sorting with the fewest exchanges.

A cell that exchanges two neighbours only if they are out of order makes the fewest exchanges there
are: each undoes one inversion, and no exchange undoes two. The columns of `SpankeBenes` and
`Clements` are those of odd-even transposition sort, the diagonals of `Reck` the passes of bubble
sort; both sort every input. Idle inputs are taken to go to idle outputs in order. So they never
cross each other, and light crosses as few of them as it can.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import kernel


@lru_cache(maxsize=64)
def lines_of_cells(n: int, *, triangle: bool = False) -> NDArray[np.int32]:
    """List the upper line of each cell, in the order in which cells are numbered.

    A triangle is `Reck`; else cells stand as in `SpankeBenes`.
    """
    if triangle:
        lines = [k for stop in range(n - 1, 0, -1) for k in range(stop)]
    else:
        lines = [k for column in range(n) for k in range(column % 2, n - 1, 2)]
    table = np.array(lines, dtype=np.int32)
    table.flags.writeable = False
    return table


def route_by_sorting(matchings: NDArray[np.int32], *, triangle: bool = False) -> NDArray[np.int8]:
    """Route matchings on a planar network with the fewest cells in cross.

    A triangle is `Reck`; else cells stand as in `SpankeBenes`.

    Time O(n squared) for each matching. Of cells that light passes, as many are in cross as there
    are inversions with light in them: no routes need fewer.
    """
    lines = lines_of_cells(matchings.shape[1], triangle=triangle)
    states = np.empty((len(matchings), len(lines)), dtype=np.int8)
    space = np.empty((2, matchings.shape[1]), dtype=np.int32)
    sort(lines, matchings, states, space)
    return states


@kernel
def sort(lines, matchings, states, space):
    """Compare and exchange lines, for which `space` has two rows."""
    taken, line = space[0], space[1]  # line[k]: twice the output of line k, plus 1 if it has light
    for row in range(len(matchings)):
        taken[:] = 0
        for o in matchings[row]:
            if o >= 0:
                taken[o] = 1
        idle = 0
        for i in range(len(line)):
            if matchings[row, i] >= 0:
                line[i] = 2 * matchings[row, i] + 1
            else:
                while taken[idle]:
                    idle += 1
                line[i] = 2 * idle
                idle += 1
        for cell in range(len(lines)):
            k = lines[cell]
            above, below = line[k], line[k + 1]
            line[k], line[k + 1] = min(above, below), max(above, below)
            lit = (above | below) & 1
            states[row, cell] = (1 if above > below else 0) if lit else -1
