"""Where to draw cells that come without a drawing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.forward import count_cells

APART = 1.8
"""Between the middles of two joined cells, on average, in lengths of a cell."""

_SWEEPS = 4


def lay_out(mate: NDArray[np.int32]) -> NDArray[np.float64]:
    """Place cells so that joined ones are near each other, and point them along their joins.

    Takes `mate` and returns `ends`, as of `CellGraph`; the result depends on `mate` alone.

    Cells through which light goes from end a to end b only stand in columns, each to the right of
    all that lead to it, and are sorted by the heights of their neighbours [2]_. Of others the two
    slowest modes of the Laplacian are the coordinates [1]_, in time cubic in their number.

    References
    ----------
    .. [1] Hall (1970). An r-dimensional quadratic placement algorithm. *Management Science* 17,
       219. https://doi.org/10.1287/mnsc.17.3.219
    .. [2] Sugiyama, Tagawa and Toda (1981). Methods for visual understanding of hierarchical
       system structures. *IEEE Trans. SMC* 11, 109. https://doi.org/10.1109/TSMC.1981.4308636
    """
    cells = len(mate) // 4
    columns = count_cells(mate, ahead=False)
    if columns is not None and (mate >= 0).any():
        return _stack(mate, columns)
    first = np.flatnonzero(mate >= 0)
    near = np.zeros((cells, cells))
    np.add.at(near, (first // 4, mate[first] // 4), 1.0)
    np.fill_diagonal(near, 0.0)
    middle = np.zeros((cells, 2))
    if cells > 1:
        laplacian = np.diag(near.sum(axis=1)) - near
        modes = np.linalg.eigh(laplacian)[1][:, 1:3]
        signs = np.sign(modes[np.abs(modes).argmax(axis=0), np.arange(modes.shape[1])])
        middle[:, : modes.shape[1]] = modes * signs  # the same on every machine, not mirrored
    i, j = np.nonzero(near)
    lengths = np.linalg.norm(middle[i] - middle[j], axis=1)
    if len(lengths) and lengths.mean() > 1e-9:
        middle *= APART / lengths.mean()
    ends = _point(mate, _spread(middle))
    if (ends[:, 1, 0] - ends[:, 0, 0]).sum() < 0:
        ends[:, :, 0] *= -1  # light that goes from a to b goes to the right
    return ends


def _stack(mate: NDArray[np.int32], columns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sort the cells of each column by the mean height of what they are joined to."""
    height = np.zeros(len(columns))
    for column in range(columns.max() + 1):
        here = np.flatnonzero(columns == column)
        height[here] = np.arange(len(here)) - (len(here) - 1) / 2
    for sweep in range(2 * _SWEEPS):
        order = range(columns.max() + 1) if sweep % 2 == 0 else range(columns.max(), -1, -1)
        for column in order:
            here = np.flatnonzero(columns == column)
            ends = 4 * here[:, None] + (np.array([0, 1]) if sweep % 2 == 0 else np.array([2, 3]))
            mates = mate[ends]
            side = np.where(mates & 1, 0.25, -0.25)
            beside = np.where(mates >= 0, height[mates // 4] + side, height[here][:, None])
            ranks = np.argsort(np.argsort(beside.mean(axis=1), kind="stable"), kind="stable")
            height[here] = ranks - (len(here) - 1) / 2
    start = np.stack([columns * (1.0 + APART / 2), -height], axis=1)
    return np.stack([start, start + np.array([1.0, 0.0])], axis=1)


def _spread(middle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move cells apart that are less than a length from each other."""
    apart = middle.copy()
    for _ in range(50):
        gap = apart[:, None] - apart[None]
        distance = np.linalg.norm(gap, axis=2)
        close = (distance < 1.0) & ~np.eye(len(apart), dtype=bool)
        if not close.any():
            break
        turn = np.arange(len(apart))[:, None] - np.arange(len(apart))[None]
        aside = np.stack([np.cos(turn), np.sin(turn)], axis=2) * np.sign(turn)[:, :, None]
        way = np.where((distance > 1e-6)[:, :, None], gap, aside)
        way /= np.maximum(np.linalg.norm(way, axis=2, keepdims=True), 1e-6)
        push = np.where(close, (1.05 - distance) / 2, 0.0)
        apart += (way * push[:, :, None]).sum(axis=1) / np.maximum(close.sum(axis=1), 1)[:, None]
    return apart


def _point(mate: NDArray[np.int32], middle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn each cell from what is joined to its end a towards what is joined to its end b."""
    ends = np.zeros((len(middle), 2, 2))
    for cell in range(len(middle)):
        sides = []
        for end in (0, 1):
            mates = mate[4 * cell + 2 * end : 4 * cell + 2 * end + 2]
            joined = mates[mates >= 0] // 4
            sides.append(middle[joined].mean(axis=0) if len(joined) else None)
        a, b = sides
        along = np.array([1.0, 0.0])
        if a is not None or b is not None:
            start = middle[cell] if a is None else a
            along = (middle[cell] if b is None else b) - start
        length = float(np.linalg.norm(along))
        along = along / length if length > 1e-9 else np.array([1.0, 0.0])
        ends[cell] = middle[cell] - along / 2, middle[cell] + along / 2
    return ends
