"""Places the cells of a netlist that has no placements, for drawings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.racks.wiring import count_hops
from optmatch.fabrics.reach import count_cells

APART = 1.8
"""Between the middles of two joined cells, about, in lengths of a cell."""

_SWEEPS = 4  # through all columns and back; in Sugiyama's method the order hardly changes later
_ROUNDS = 200
_STILL = 0.01
"""Stress majorization ends when no cell moves by so many lengths any more, or after these rounds.
It takes 9 to 165 on meshes of up to 643 cells; with a tenth of it the longest join changes by 1 %
at most."""


def lay_out(mate: NDArray[np.int32]) -> NDArray[np.float64]:
    """Place cells so that joined ones are near each other, and return ``ends[cell, end]``.

    Cells through which light goes from end a to end b only stand in columns, each to the right of
    all that lead to it, and are sorted by the heights of their neighbours [2]_. Others are as far
    apart as the joins between them say (stress majorization [1]_), in time quadratic in their
    number. Positions are in lengths of a cell, and depend on `mate` alone.

    References
    ----------
    .. [1] Gansner, Koren and North (2004). Graph drawing by stress majorization. *Graph Drawing*,
       LNCS 3383, 239. https://doi.org/10.1007/978-3-540-31843-9_25
    .. [2] Sugiyama, Tagawa and Toda (1981). Methods for visual understanding of hierarchical
       system structures. *IEEE Trans. SMC* 11, 109. https://doi.org/10.1109/TSMC.1981.4308636
    """
    columns = count_cells(mate, ahead=False)
    if columns is not None and (mate >= 0).any():
        return _stack_columns(mate, columns)
    middle = _place_by_hops(mate)

    # Each cell is turned from the neighbours of its end a towards those of its end b, else to the
    # right. neighbours[cell, end, side]: the cell that a terminal is joined to, -1 for none (-1 //
    # 4 is -1).
    neighbours = mate.reshape(-1, 2, 2) // 4
    is_joined = (neighbours >= 0)[..., None]
    n_joined = is_joined.sum(axis=2)
    mean = np.where(is_joined, middle[neighbours], 0.0).sum(axis=2) / np.maximum(n_joined, 1)
    beyond_end = np.where(n_joined > 0, mean, middle[:, None])
    vector = beyond_end[:, 1] - beyond_end[:, 0]
    length = np.linalg.norm(vector, axis=1, keepdims=True)
    direction = np.where(length > 1e-9, vector / np.maximum(length, 1e-9), [1.0, 0.0])
    ends = np.stack([middle - direction / 2, middle + direction / 2], axis=1)
    if (ends[:, 1, 0] - ends[:, 0, 0]).sum() < 0:
        ends[:, :, 0] *= -1  # light that goes from a to b goes to the right
    return ends


def _place_by_hops(mate: NDArray[np.int32]) -> NDArray[np.float64]:
    """Place the middles of cells as far apart as the netlist says, by stress majorization.

    ``mate[terminal]`` is the terminal that one is joined to, -1 for none. The result is
    ``middle[cell]``, x and y. Cells that are k joins apart want to be ``k * APART`` apart. The sum
    of (distance - wanted)^2 / wanted over all pairs is made small: in each round all cells move to
    the mean, weighted by 1 / wanted, of the places where the others want them.
    """
    n_cells = len(mate) // 4
    joined = np.flatnonzero(mate >= 0)
    wanted = APART * count_hops(n_cells, np.stack([joined // 4, mate[joined] // 4], axis=1))
    weight = 1.0 / np.where(np.eye(n_cells, dtype=bool), np.inf, wanted)
    total_weight = np.maximum(weight.sum(axis=1, keepdims=True), 1e-9)

    # At first x is the distance from the cell that is farthest from cell 0, and y from one that is
    # far from both. Cells with the same neighbours would stay at one place but for an offset.
    far = wanted[0].argmax()
    apart = np.minimum(wanted[0], wanted[far]).argmax()
    number = np.arange(n_cells)
    middle = np.stack([wanted[far] + np.cos(number), wanted[apart] + np.sin(number)], axis=1)
    for _ in range(_ROUNDS):
        former = middle
        gap = former[:, None] - former
        distance = np.maximum(np.linalg.norm(gap, axis=2, keepdims=True), 1e-9)
        # Cell j wants cell i at x_j + wanted * (x_i - x_j) / distance, and weight * wanted is 1.
        middle = (weight @ former + (gap / distance).sum(axis=1)) / total_weight
        if np.abs(middle - former).max() < _STILL:
            break
    return middle


def _stack_columns(mate: NDArray[np.int32], columns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Draw cells in given columns such that few joins between them cross (barycentre method).

    ``mate[terminal]`` is the terminal that one is joined to, -1 for none, and ``columns[cell]``
    the column of a cell, from 0 on the left. The result is ``ends[cell, end]``, x and y. Each
    column is sorted by the mean height of the cells that its cells are joined to in the columns on
    one side. Sweeps go to the right, with the joins to the left, then back.
    """
    n_columns = int(columns.max()) + 1
    cells_of_column = [np.flatnonzero(columns == column) for column in range(n_columns)]
    height = np.zeros(len(columns))
    for cells in cells_of_column:
        height[cells] = _centred_ranks(len(cells))

    # Heights count downward. A sweep to the right looks at terminals a1, a2 (0, 1), which lead to
    # the left; one to the left looks at b1, b2.
    sweep_right = ([0, 1], cells_of_column)
    sweep_left = ([2, 3], cells_of_column[::-1])
    for sides, columns_in_order in (sweep_right, sweep_left) * _SWEEPS:
        for cells in columns_in_order:
            neighbour = mate[4 * cells[:, None] + sides]
            # The upper terminal of a neighbour (a1 or b1, an even number) lies a quarter above its
            # middle, the lower one below.
            offset = np.where(neighbour & 1, 0.25, -0.25)
            neighbour_height = height[neighbour // 4] + offset
            # A terminal that is joined to nothing leaves the cell where it is.
            best_height = np.where(neighbour >= 0, neighbour_height, height[cells][:, None])
            order = np.argsort(best_height.mean(axis=1), kind="stable")
            height[cells[order]] = _centred_ranks(len(cells))

    start = np.stack([columns * (1.0 + APART / 2), -height], axis=1)
    return np.stack([start, start + np.array([1.0, 0.0])], axis=1)


def _centred_ranks(count: int) -> NDArray[np.float64]:
    """Return heights one apart, with 0 in the middle."""
    return np.arange(count, dtype=np.float64) - (count - 1) / 2
