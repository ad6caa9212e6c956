"""Benes networks: the fewest columns in which circuits can always be rearranged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from optmatch.fabrics.feedforward.fabric import Blocking, ColumnBuilder, FeedForward, Wire

Pair = tuple[Wire, Wire]


@dataclass(frozen=True, slots=True, eq=False)
class Benes(FeedForward):
    """A Benes network of any size: two half networks between a column of cells on each side.

    An odd wire goes straight to the larger, lower half (Chang and Melhem, 1997). For n = 2^r there
    are ``n*r - n/2`` cells; a route passes at most ``2*ceil(log2(n)) - 1``.

    Parameters
    ----------
    n
        The number of inputs and of outputs, at least 2.

    Examples
    --------
    >>> Benes(8).n_cells, Benes(8).n_stages, Benes(3).n_cells
    (20, 5, 3)
    """

    type: ClassVar[str] = "benes"
    blocking: ClassVar[Blocking] = "rearrangeable"

    @staticmethod
    def most_cells(n: int) -> int:
        """Bound the number of cells by that of ports."""
        return n * n.bit_length()

    @staticmethod
    def _wire(builder: ColumnBuilder, n: int) -> list[int]:
        return _halve(builder, [~port for port in range(n)], 0, _levels(n) - 1)


def _halve(builder: ColumnBuilder, wires: list[int], line: int, middle: int) -> list[int]:
    """Wire a network of two halves; `line` is its first, `middle` its middle column."""
    n = len(wires)
    side = _levels(n) - 1
    if n == 1:
        return wires
    if n == 2:
        return list(builder.place(wires[0], wires[1], line, middle))
    placed = [
        builder.place(wires[k], wires[k + 1], line + k, middle - side) for k in range(0, n - 1, 2)
    ]
    odd = wires[2 * len(placed) :]
    upper = _halve(builder, [above for above, _ in placed], line, middle)
    lower = _halve(builder, [below for _, below in placed] + odd, line + len(placed), middle)
    outputs: list[int] = []
    for k, (above, below) in enumerate(zip(upper, lower, strict=False)):
        outputs += builder.place(above, below, line + 2 * k, middle + side)
    return outputs + lower[len(upper) :]


def _levels(n: int) -> int:
    """How often n wires are halved, the larger part counting, until one is left."""
    return (n - 1).bit_length()


@dataclass(frozen=True, slots=True, eq=False)
class DilatedBenes(FeedForward):
    """A Benes network where no two circuits need to pass the same cell, and leak into each other.

    Of `Benes` every cell becomes two, and those of the middle column four; a half of one wire
    becomes a cell. For n = 2^r there are ``2*n*r`` cells; a route passes at most
    ``2*ceil(log2(n))``.

    Parameters
    ----------
    n
        The number of inputs and of outputs, at least 2.

    Examples
    --------
    >>> DilatedBenes(8).n_cells, DilatedBenes(8).n_stages
    (48, 6)
    """

    type: ClassVar[str] = "dilated-benes"
    blocking: ClassVar[Blocking] = "rearrangeable"

    @staticmethod
    def most_cells(n: int) -> int:
        """Bound the number of cells by that of ports."""
        return 2 * n * (1 + n.bit_length())

    @staticmethod
    def _wire(builder: ColumnBuilder, n: int) -> list[int]:
        wires: list[Pair] = [(~port, None) for port in range(n)]
        return [first for first, _ in _dilate(builder, wires, 0, _levels(n))]


def _dilate(
    builder: ColumnBuilder, pairs: list[Pair], line: int, middle: int
) -> list[tuple[int, int]]:
    """Wire a network in which each input is a pair of wires, of which one at most is lit."""
    n = len(pairs)
    even, side = n - n % 2, _levels(n)
    if n == 1:
        return [builder.place(*pairs[0], line)]
    placed = [
        builder.place(*pair, line + 2 * k, middle - side) for k, pair in enumerate(pairs[:even])
    ]
    # what leaves two neighbours on one side is a pair again: one of them at most is lit
    above, below = (
        [(i[k], j[k]) for i, j in zip(placed[0::2], placed[1::2], strict=True)] for k in (0, 1)
    )
    odd: list[tuple[int, int]] = []
    if n == 2:
        joined = above + below
    else:
        upper = _dilate(builder, list(above), line, middle)
        lower = _dilate(builder, [*below, *pairs[even:]], line + even, middle)
        joined = [(i[k], j[k]) for i, j in zip(upper, lower, strict=False) for k in (0, 1)]
        odd = lower[even // 2 :]
    outputs = [
        builder.place(*pair, line + 2 * k, middle + side - 1) for k, pair in enumerate(joined)
    ]
    return outputs + odd
