"""Blocks of large matrices and examples of long lists: what is drawn where not all can be seen.

A picture is about a thousand pixels wide. With more ports than that nobody can tell one from the
next, so a block of ports becomes one square, or some ports are chosen, and the picture says which.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.plotting import palette
from optmatch.plotting.drawing import Axes, figure_of

MOST_BLOCKS = 128
"""A matrix with more rows or columns is drawn block by block."""
MOST_ROWS = 48
"""A chart over time has a row for each port or rank up to this number."""


class Blocks(NamedTuple):
    """A matrix in which a square stands for a block of rows and columns."""

    values: NDArray[np.float64]
    """``values[row block, column block]``; NaN where no entry of the block has a value."""
    size: int
    """Rows, and columns, of a block; those at the ends may have fewer."""


def merge_blocks(
    matrix: NDArray[Any], how: Literal["sum", "mean"], most: int = MOST_BLOCKS
) -> Blocks:
    """Merge the entries of a matrix block by block, so that it can be drawn with fewer squares.

    A block gets the sum or the mean (`how`) of its values; entries that are NaN have none, and
    blocks without any are NaN. There are `most` blocks along the longer side at most.

    Examples
    --------
    >>> merge_blocks(np.arange(16.0).reshape(4, 4), "mean", most=2).values.tolist()
    [[2.5, 4.5], [10.5, 12.5]]
    """
    n_rows, n_columns = matrix.shape
    size = max(1, math.ceil(max(n_rows, n_columns) / most))
    values = np.asarray(matrix, dtype=np.float64)
    if size == 1:
        return Blocks(values, 1)

    # Sums over blocks of rows and then of columns, of the values and of their number.
    starts_of_rows = np.arange(0, n_rows, size)
    starts_of_columns = np.arange(0, n_columns, size)

    def add_up(entries: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of the entries of each block."""
        by_rows = np.add.reduceat(entries, starts_of_rows, axis=0)
        sums: NDArray[np.float64] = np.add.reduceat(by_rows, starts_of_columns, axis=1)
        return sums

    # A mean counts only entries that have a value. Blocks without any stay NaN.
    is_known = ~np.isnan(values)
    sums = add_up(np.where(is_known, values, 0.0))
    counts = add_up(is_known.astype(np.float64))
    divisor = counts if how == "mean" else np.ones_like(counts)
    merged = np.full(sums.shape, np.nan)
    np.divide(sums, divisor, out=merged, where=counts > 0)
    return Blocks(merged, size)


def draw_blocks(ax: Axes, blocks: Blocks, n_entries: int, label: str, norm: Any = None) -> None:
    """Draw merged entries of a matrix as squares, with a bar that explains their colours.

    NaN stays white. Ticks count the `n_entries` rows and columns of the matrix before it was
    merged. The label says what the colours mean, with the unit; `norm` is how values become
    colours, a ``Normalize`` of matplotlib, None for an even scale.
    """
    n_rows, n_columns = blocks.values.shape

    # Squares cover the rows and columns that they stand for: of blocks of 16, the first reaches
    # from -0.5 to 15.5.
    end_of_columns = n_columns * blocks.size - 0.5
    end_of_rows = n_rows * blocks.size - 0.5
    image = ax.imshow(
        np.ma.masked_invalid(blocks.values),
        cmap="cividis",
        norm=norm,
        interpolation="nearest",
        extent=(-0.5, end_of_columns, end_of_rows, -0.5),
    )
    ticks = choose_ticks(n_entries, 6)
    ax.set(xticks=ticks, yticks=ticks)
    ax.tick_params(labelsize=9)
    bar = figure_of(ax).colorbar(image, ax=ax, shrink=0.85, pad=0.02)
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=9)


def explain_blocks(size: int, noun: str) -> str:
    """Say what a square stands for; nothing where it is a single entry.

    Examples
    --------
    >>> explain_blocks(16, "pairs of ports"), explain_blocks(1, "pairs of ports")
    ('a square: 16 x 16 pairs of ports', '')
    """
    return f"a square: {size} x {size} {noun}" if size > 1 else ""


def choose_evenly(n_all: int, most: int) -> NDArray[np.int64]:
    """Choose numbers below `n_all`, evenly spread, with the first and the last one.

    Examples
    --------
    >>> choose_evenly(100, 4).tolist(), choose_evenly(3, 4).tolist()
    ([0, 33, 66, 99], [0, 1, 2])
    """
    spread = np.linspace(0, n_all - 1, min(n_all, most)).round()
    return np.unique(spread.astype(np.int64))


def choose_ticks(n_all: int, most: int) -> NDArray[np.int64]:
    """Choose round numbers from 0 on for an axis, at most `most` of them.

    Examples
    --------
    >>> choose_ticks(2000, 6).tolist(), choose_ticks(5, 6).tolist()
    ([0, 500, 1000, 1500], [0, 1, 2, 3, 4])
    """
    step = 1
    while n_all > most * step:
        # 1, 2, 5, 10, 20, 50, ...: the leading digit says by what the next one is larger.
        step = step * 5 // 2 if str(step).startswith("2") else step * 2
    return np.arange(0, n_all, step, dtype=np.int64)


def mean_by_group(
    values: NDArray[Any], most: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return where groups of consecutive entries begin and end across, and their means.

    There are at most `most` groups; entry k reaches from k - 0.5 to k + 0.5.

    Examples
    --------
    >>> [part.tolist() for part in mean_by_group(np.array([2, 4, 9]), 2)]
    [[-0.5, 1.5], [1.5, 2.5], [3.0, 9.0]]
    """
    starts = np.arange(0, len(values), max(1, math.ceil(len(values) / most)))
    edges = np.append(starts, len(values)) - 0.5
    means = np.add.reduceat(values, starts) / np.diff(edges)
    return edges[:-1], edges[1:], means


def draw_groups(
    ax: Axes, total: NDArray[Any], part: NDArray[Any] | None, names: tuple[str, str], most: int
) -> None:
    """Draw means of consecutive entries as bars, and a part of each over them in another colour.

    `names` are those of what is not in the part, and of what is; without `part` the first one is
    of the whole bars, of which there are `most` at most.
    """
    for values, name, colour in zip(
        (total, part), names, (palette.TOGGLED_FILL, palette.circuit_colour(0)), strict=True
    ):
        if values is not None:
            starts, ends, means = mean_by_group(values, most)
            edges = np.append(starts, ends[-1:])
            ax.stairs(means, edges, fill=True, color=colour, label=name)
    ax.set_xlim(-0.5, len(total) - 0.5)
    ax.set_ymargin(0.15)
