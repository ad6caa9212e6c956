"""Fabrics in which no circuit in use has to move for a new one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optmatch.fabrics.feedforward.fabric import Blocking, ColumnBuilder, FeedForward, Wire


@dataclass(frozen=True, slots=True, eq=False)
class Crossbar(FeedForward):
    """A planar crossbar: input i meets output j in one cell, which is in bar to connect the two.

    There are ``n*n`` cells, all others on the way in cross; a route of this kind from i to j
    passes ``n - i + j``. No waveguides cross.

    Parameters
    ----------
    n
        The number of inputs and of outputs, at least 2.

    Examples
    --------
    >>> Crossbar(8).n_cells, Crossbar(8).n_stages
    (64, 15)
    """

    type: ClassVar[str] = "crossbar"
    blocking: ClassVar[Blocking] = "wide-sense"

    @staticmethod
    def _wire(builder: ColumnBuilder, n: int) -> list[int]:
        columns: list[Wire] = [None] * n
        for i in range(n):
            row: Wire = ~i
            for j in range(n):
                row, columns[j] = builder.place(columns[j], row, line=i - j)
        return [wire for wire in columns if wire is not None]


@dataclass(frozen=True, slots=True, eq=False)
class Piloss(FeedForward):
    """A crossbar wound round so that every route passes n cells (path-independent loss).

    There are ``n*n`` cells, n in each column. Input i and output j meet in one cell, which is in
    bar to connect the two; all others on the way are in cross.

    Parameters
    ----------
    n
        The number of inputs and of outputs, at least 2.

    Examples
    --------
    >>> Piloss(8).n_cells, Piloss(8).n_stages, int(Piloss(8).route_cells().min())
    (64, 8, 8)
    """

    type: ClassVar[str] = "piloss"
    blocking: ClassVar[Blocking] = "strict-sense"

    @staticmethod
    def _wire(builder: ColumnBuilder, n: int) -> list[int]:
        # rows of a ring, folded flat: neighbours on the ring are two apart at most
        order = [k // 2 if k % 2 == 0 else n - 1 - k // 2 for k in range(n)]
        place = np.argsort(order).tolist()
        rows: list[int] = [~port for port in place]
        columns: list[Wire] = [None] * n
        for stage in range(n):
            for i in range(n):
                j = (i + stage) % n
                rows[i], columns[j] = builder.place(columns[j], rows[i], line=2 * place[i])
        last = [columns[(i - 1) % n] for i in order]
        return [wire for wire in last if wire is not None]


@dataclass(frozen=True, slots=True, eq=False)
class SwitchAndSelect(FeedForward):
    """A tree of 1x2 cells behind each input, a tree of 2x1 cells before each output.

    Each leaf of an input meets one leaf of each output. There are ``2*n*(n-1)`` cells; a route
    passes at most ``2*ceil(log2(n))``. What one cell leaks, a second one blocks.

    Parameters
    ----------
    n
        The number of inputs and of outputs, at least 2.

    Examples
    --------
    >>> SwitchAndSelect(8).n_cells, SwitchAndSelect(8).n_stages
    (112, 6)
    """

    type: ClassVar[str] = "switch-and-select"
    blocking: ClassVar[Blocking] = "strict-sense"

    @staticmethod
    def most_cells(n: int) -> int:
        """Bound the number of cells by that of ports."""
        return 2 * n * n

    @staticmethod
    def _wire(builder: ColumnBuilder, n: int) -> list[int]:
        leaves = [_split(builder, ~port, n, port * n) for port in range(n)]
        return [
            _merge(builder, list(wires), port * n, (n - 1).bit_length())
            for port, wires in enumerate(zip(*leaves, strict=True))
        ]


def _split(builder: ColumnBuilder, wire: int, n: int, line: int) -> list[int]:
    """Lead a wire to n leaves by a tree of cells."""
    if n == 1:
        return [wire]
    above, below = builder.place(wire, None, line + n / 2 - 1)
    half = (n + 1) // 2
    return _split(builder, above, half, line) + _split(builder, below, n - half, line + half)


def _merge(builder: ColumnBuilder, wires: list[int], line: int, column: int) -> int:
    """Join wires by a tree of cells, none of which is to the left of `column`."""
    n = len(wires)
    if n == 1:
        return wires[0]
    half = (n + 1) // 2
    above = _merge(builder, wires[:half], line, column)
    below = _merge(builder, wires[half:], line + half, column)
    return builder.place(above, below, line + n / 2 - 1, column)[0]
