"""Planar networks of neighbouring cells: a brick pattern, and the triangle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from optmatch.fabrics.feedforward.fabric import Blocking, ColumnBuilder, FeedForward


@dataclass(frozen=True, slots=True, eq=False)
class SpankeBenes(FeedForward):
    """The planar network of n columns like a brick pattern: no waveguides cross.

    There are ``n*(n-1)/2`` cells; a route passes at most n.

    Parameters
    ----------
    n
        The number of inputs and of outputs, at least 2.

    Examples
    --------
    >>> SpankeBenes(8).n_cells, SpankeBenes(8).n_stages
    (28, 8)
    """

    type: ClassVar[str] = "spanke-benes"
    blocking: ClassVar[Blocking] = "rearrangeable"

    @staticmethod
    def _wire(builder: ColumnBuilder, n: int) -> list[int]:
        wires = [~port for port in range(n)]
        for column in range(n):
            for k in range(column % 2, n - 1, 2):
                wires[k : k + 2] = builder.place(wires[k], wires[k + 1], line=k)
        return wires


@dataclass(frozen=True, slots=True, eq=False)
class Clements(SpankeBenes):
    """The rectangular mesh of universal interferometers; its cells join as in `SpankeBenes`.

    Parameters
    ----------
    n
        The number of inputs and of outputs, at least 2.

    Examples
    --------
    >>> Clements(8).n_cells, Clements(8).n_stages
    (28, 8)
    """

    type: ClassVar[str] = "clements"


@dataclass(frozen=True, slots=True, eq=False)
class Reck(FeedForward):
    """The triangular mesh of universal interferometers: planar, routes of unequal length.

    There are ``n*(n-1)/2`` cells; a route passes at most ``2*n - 3``.

    Parameters
    ----------
    n
        The number of inputs and of outputs, at least 2.

    Examples
    --------
    >>> Reck(8).n_cells, Reck(8).n_stages
    (28, 13)
    """

    type: ClassVar[str] = "reck"
    blocking: ClassVar[Blocking] = "rearrangeable"

    @staticmethod
    def _wire(builder: ColumnBuilder, n: int) -> list[int]:
        wires = [~port for port in range(n)]
        for stop in range(n - 1, 0, -1):
            for k in range(stop):
                wires[k : k + 2] = builder.place(wires[k], wires[k + 1], line=k)
        return wires
