"""Places the cells of a netlist that has no placements, for drawings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.reach import count_cells

APART = 1.8
"""Between the middles of two joined cells, on average, in lengths of a cell."""

_SWEEPS = 4  # through all columns and back; in Sugiyama's method the order hardly changes later
_PUSHES = 50  # steps in which cells that overlap are moved apart
_GAP = 1.05  # to which they are moved, in lengths of a cell


def lay_out(mate: NDArray[np.int32]) -> NDArray[np.float64]:
    """Place cells so that joined ones are near each other, and return ``ends[cell, end]``.

    Cells through which light goes from end a to end b only stand in columns, each to the right of
    all that lead to it, and are sorted by the heights of their neighbours [2]_. The coordinates
    of others are the two slowest modes of the Laplacian [1]_, in time cubic in their number.
    Positions are in lengths of a cell, and depend on `mate` alone.

    References
    ----------
    .. [1] Hall (1970). An r-dimensional quadratic placement algorithm. *Management Science* 17,
       219. https://doi.org/10.1287/mnsc.17.3.219
    .. [2] Sugiyama, Tagawa and Toda (1981). Methods for visual understanding of hierarchical
       system structures. *IEEE Trans. SMC* 11, 109. https://doi.org/10.1109/TSMC.1981.4308636
    """
    columns = count_cells(mate, ahead=False)
    if columns is not None and (mate >= 0).any():
        return _stack_columns(mate, columns)
    middle = _spread(_place_by_modes(mate))

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


def _place_by_modes(mate: NDArray[np.int32]) -> NDArray[np.float64]:
    """Place the middles of cells by a spectral layout, in which joins act like springs.

    ``mate[terminal]`` is the terminal that one is joined to, -1 for none. The result is
    ``middle[cell]``, x and y. x and y are the two eigenvectors of the graph Laplacian with the
    smallest eigenvalues above that of the constant one; neighbours are `APART` lengths of a cell
    apart in the mean.
    """
    n_cells = len(mate) // 4
    middle = np.zeros((n_cells, 2))
    joined = np.flatnonzero(mate >= 0)
    # n_joins[cell, cell]: how many joins lead from one to the other.
    n_joins = np.zeros((n_cells, n_cells))
    np.add.at(n_joins, (joined // 4, mate[joined] // 4), 1.0)
    np.fill_diagonal(n_joins, 0.0)
    if n_cells > 1:
        # The first mode is constant and has no place in the drawing; the next two give x and y.
        laplacian = np.diag(n_joins.sum(axis=1)) - n_joins
        modes = np.linalg.eigh(laplacian)[1][:, 1:3]
        # The sign of a mode is arbitrary: its largest entry is positive, on every machine.
        signs = np.sign(modes[np.abs(modes).argmax(axis=0), np.arange(modes.shape[1])])
        middle[:, : modes.shape[1]] = modes * signs

    # Scaled such that neighbours have the wanted distance in the mean.
    first, second = np.nonzero(n_joins)
    lengths = np.linalg.norm(middle[first] - middle[second], axis=1)
    if len(lengths) and lengths.mean() > 1e-9:
        middle *= APART / lengths.mean()
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


def _spread(middle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move cells apart that are less than a length from each other, for at most `_PUSHES` rounds.

    ``middle[cell]``: x and y, in lengths of a cell. Each pair that is too close moves apart by
    what it lacks; a cell moves by the mean of its pushes.
    """
    moved = middle.copy()
    n_cells = len(moved)
    turn = np.arange(n_cells)[:, None] - np.arange(n_cells)[None]
    # Cells at the same place are moved in directions that depend on their numbers.
    default = np.stack([np.cos(turn), np.sin(turn)], axis=2) * np.sign(turn)[:, :, None]
    for _ in range(_PUSHES):
        gap = moved[:, None] - moved[None]
        distance = np.linalg.norm(gap, axis=2)
        is_close = (distance < 1.0) & ~np.eye(n_cells, dtype=bool)
        if not is_close.any():
            break
        direction = np.where((distance > 1e-6)[:, :, None], gap, default)
        direction /= np.maximum(np.linalg.norm(direction, axis=2, keepdims=True), 1e-6)
        push = np.where(is_close, (_GAP - distance) / 2, 0.0)
        # Pushes of several neighbours are averaged, or a crowd would fly apart.
        n_close = np.maximum(is_close.sum(axis=1), 1)[:, None]
        moved += (direction * push[:, :, None]).sum(axis=1) / n_close
    return moved
