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

import math

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.feedforward.loop_search import (
    EXACT,
    LoopChoice,
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


def choose_loops(
    matchings: NDArray[np.int32],
    cell_cost: NDArray[np.int64],
    *,
    dilated: bool = False,
    worst: bool = False,
    visits: int = MOST_VISITS,
) -> LoopChoice:
    """Route matchings on a Benes network at the least cost.

    Circuits that share a cell of an outer column of a block go to different halves. Hence circuits
    hang together in loops, and each loop can be laid in two directions. All ways to route a
    matching are choices of directions, which a branch and bound tries. Its result is exact up to
    ``EXACT`` lines, unless there are so many loops that `visits` do not suffice. ``cell_cost[cell,
    state, shared]`` is what a cell in this state costs each circuit that passes it, alone (0) or
    with another one (1). With `worst` the largest cost of a circuit counts, not the sum.
    """
    net = network(matchings.shape[1], dilated=dilated)
    depths = int(net.blocks[-1, DEPTH]) + 2
    space = new_workspace(depths, net.width + 2, net.cells)

    # A lower bound of what a circuit costs in each block, from the cheapest use of each cell.
    least = np.zeros(len(net.blocks), dtype=np.int64)
    cheapest = cell_cost.min(axis=(1, 2), initial=_NEVER)
    bound_blocks(net.blocks, dilated, cheapest, least)
    choice = LoopChoice(
        np.empty((len(matchings), net.cells), dtype=np.int8),
        np.empty(len(matchings), dtype=np.int64),
        np.empty(len(matchings), dtype=np.bool_),
    )

    # Larger networks are halved without a search until blocks have `EXACT` lines or fewer. Each of
    # these is searched by itself, with an equal share of the visits.
    n_searched = math.ceil(matchings.shape[1] / EXACT)
    visits_of_block = max(1, visits // n_searched)
    costs = np.ascontiguousarray(cell_cost)
    task = LoopTask(net.blocks, dilated, worst, visits_of_block, costs, least)
    search(matchings, 0, _NEVER, task, space, choice)
    return choice
