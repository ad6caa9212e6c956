"""The directions of the loops of a Benes network, chosen for the least cost.

Once the loops of the outer columns are set, the two halves do not know of each other. Hence the
best setting of a block is, over all settings of its own loops, the best of the upper half and the
best of the lower half together. The search is exhaustive, with bounds that leave most choices out.
On average over all permutations it visits some 40, 400, 6,000 and 100,000 blocks for 8, 16, 32 and
64 lines.

The cost of a cell for a circuit depends on the cell, its state, and whether another circuit passes
it too. Costs are whole numbers; the sum over all circuits is minimised, or the largest of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.feedforward.loop_search import (
    EXACT,
    LoopTask,
    bound_blocks,
    new_workspace,
    search,
)
from optmatch.solvers.feedforward.looping import DEPTH, network

MOST_VISITS = 400_000
"""After so many visits to blocks a search ends with the best it has."""
FORBIDDEN = 1 << 40
"""The cost of a state that a cell cannot take."""

_NEVER = 1 << 60


class LoopChoice(NamedTuple):
    """The states of the cells for some matchings, and proofs about them."""

    states: NDArray[np.int8]  # (k, cells): 0 bar, 1 cross, -1 where no light passes
    cost: NDArray[np.int64]  # ``cost[k]``: the cost of matching k
    exact: NDArray[np.bool_]
    """``exact[k]``: whether no routes of matching k cost less; on a dilated network, none of those
    on which no two circuits share a cell."""


def choose_loops(
    matchings: NDArray[np.int32],
    cell_cost: NDArray[np.int64],
    *,
    dilated: bool = False,
    worst: bool = False,
    visits: int = MOST_VISITS,
) -> LoopChoice:
    """Route matchings on a Benes network at the least cost.

    The choice is exact up to ``EXACT`` lines, unless there are so many loops that `visits` do not
    suffice: every way to route a matching on a Benes network is a choice of directions.

    Parameters
    ----------
    matchings
        ``matchings[k, source] = destination``, -1 where idle; int32, shape (k, n).
    cell_cost
        ``cell_cost[cell, state, shared]``: what a cell in this state costs each circuit that
        passes it, alone (0) or with another one (1); int64, not negative; shape (cells, 2, 2),
        state 0 being bar and 1 cross.
    dilated
        Whether the network is a `DilatedBenes`, each line of which is a pair of wires.
    worst
        Whether the cost of a matching is the largest of its circuits, not their sum.
    visits
        About how many blocks to visit for each matching.

    Returns
    -------
    LoopChoice
        The states of each matching, their cost in the unit of `cell_cost`, and whether no other
        states cost less.
    """
    net = network(matchings.shape[1], dilated=dilated)
    depths = int(net.blocks[-1, DEPTH]) + 2
    space = new_workspace(depths, net.width + 2, net.cells)
    least = np.zeros(len(net.blocks), dtype=np.int64)
    cheapest = cell_cost.min(axis=(1, 2), initial=_NEVER)
    bound_blocks(net.blocks, dilated, cheapest, least)
    choice = LoopChoice(
        np.empty((len(matchings), net.cells), dtype=np.int8),
        np.empty(len(matchings), dtype=np.int64),
        np.empty(len(matchings), dtype=np.bool_),
    )
    share = max(1, visits // -(-matchings.shape[1] // EXACT))  # of each block that is searched
    task = LoopTask(net.blocks, dilated, worst, share, np.ascontiguousarray(cell_cost), least)
    search(matchings, 0, _NEVER, task, space, *choice)
    return choice
