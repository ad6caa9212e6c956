r"""The graph of cells under every fabric: how 2x2 cells join, and where light can enter.

A cell has four terminals::

        a1 ---\ /--- b1        bar    a1-b1  a2-b2
               X               cross  a1-b2  a2-b1
        a2 ---/ \--- b2        light passes both ways

Terminal ``4 * cell + k`` is a1, a2, b1, b2 for k = 0, 1, 2, 3. A *link* is the waveguide between
two joined terminals, or the stub behind a free one. Light *enters* a cell at a terminal and
*leaves* it by a terminal of the other end; leaving by terminal ``u`` it enters the next cell at
``mate[u]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    BAR,
    CROSS,
    FREE,
    InputError,
    Value,
    brief_tuple,
    frozen,
    integer,
    read_only,
)
from optmatch.model.numbers import check_length, refuse_entries

TERMINAL_NAMES = ("a1", "a2", "b1", "b2")

EXITS = np.array([[2, 3], [3, 2], [0, 1], [1, 0]], dtype=np.int32)
"""``EXITS[k, state]``: entering at terminal k of a cell in this state, light leaves here."""
EXITS.flags.writeable = False

DEAD = 2
"""The entry of `CellGraph.stuck` for a cell that carries no light."""


@brief_tuple
class Links(NamedTuple):
    """The numbering of the waveguides of a cell graph."""

    of_terminal: NDArray[np.int32]
    """``of_terminal[terminal]``: the link that ends there; joined terminals share one."""
    count: int  # type: ignore[assignment]  # not the method of tuples


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellGraph(Value):
    """Cells, the joins between their terminals, and their place on the chip.

    Parameters
    ----------
    mate
        ``mate[terminal]``: the terminal it is joined to, -1 if free; int32, shape (4 * cells,).
    ends
        ``ends[cell, end]``: position of end a (0) and end b (1), in lengths of a cell; float64,
        shape (cells, 2, 2). Side 1 of a cell lies to the left of the way from a to b.
    perimeter
        The free terminals, in the order in which they are numbered from outside.
    stuck
        ``stuck[cell]``: -1 (`FREE`) where the cell works, `BAR` or `CROSS` where it stays in that
        state whatever it is told, `DEAD` where it carries no light and so is joined to nothing;
        int8, shape (cells,). None if all cells work.
    names
        A name for each cell, for messages and tables; None where cells have only numbers.
    placed
        Whether `ends` are where cells lie on the chip, as a netlist places them; else they are
        drawn, for the eye.

    Raises
    ------
    InputError
        If joins are not mutual, a terminal is joined to itself, `perimeter` is not the free
        terminals, or a dead cell is joined to another.

    Examples
    --------
    One cell with nothing joined has four free terminals and four links:

    >>> cell = CellGraph(mate=[-1] * 4, ends=[[[0, 0], [1, 0]]], perimeter=[0, 1, 3, 2])
    >>> cell.n_cells, cell.links.count
    (1, 4)
    """

    mate: NDArray[np.int32]
    ends: NDArray[np.float64]
    perimeter: NDArray[np.int32]
    stuck: NDArray[np.int8] = None  # type: ignore[assignment]  # never None once built
    names: tuple[str, ...] | None = None
    placed: bool = False

    def __post_init__(self) -> None:
        """Check the arrays of a mesh of cells (2 x 2 switches), and make them read-only."""
        self._set(
            mate=frozen("mate", self.mate, 1, np.int32),
            perimeter=frozen("perimeter", self.perimeter, 1, np.int32),
            ends=frozen("ends", self.ends, 3, np.float64),
        )
        mate = self.mate
        ends = self.ends
        if len(mate) % 4 or ends.shape != (len(mate) // 4, 2, 2):
            raise InputError(f"mate has {len(mate)} terminals, ends the shape {ends.shape}")

        # Terminals are joined in pairs, and those that are free are the perimeter.
        joined = np.flatnonzero(mate >= 0)
        if (mate[joined] >= len(mate)).any() or (mate[mate[joined]] != joined).any():
            bad = next(t for t in joined if mate[t] >= len(mate) or mate[mate[t]] != t)
            raise InputError(f"mate[{bad}] = {mate[bad]}: joins are mutual")
        if (mate[joined] == joined).any():
            raise InputError("a terminal is joined to itself")
        if not np.array_equal(np.sort(self.perimeter), np.flatnonzero(mate < 0)):
            raise InputError("perimeter must list each free terminal once")

        # Which cells are broken; a dead one may lead light to no other.
        works = np.full(len(mate) // 4, FREE, dtype=np.int8)
        stuck = frozen("stuck", works if self.stuck is None else self.stuck, 1, np.int8)
        if stuck.shape != works.shape or ((stuck < FREE) | (stuck > DEAD)).any():
            raise InputError(f"stuck has an entry from {FREE} to {DEAD} for each cell")
        refuse_entries(
            "mate",
            np.repeat(stuck == DEAD, 4) & (mate >= 0),
            lambda terminal: f" = {mate[terminal]}: a dead cell is joined to nothing",
        )
        self._set(stuck=stuck)
        check_length("names", self.names, self.n_cells, "cells")

    @property
    def n_cells(self) -> int:
        """The number of cells."""
        return len(self.mate) // 4

    @property
    @lru_cache(maxsize=64)  # noqa: B019 - equal graphs share it
    def links(self) -> Links:
        """The waveguides: joins first come, first numbered, by their lower terminal.

        A link joins two terminals, which have its number both, or is the stub behind a free one.
        Those of the last few graphs are kept.
        """
        terminals = np.arange(len(self.mate))
        # A link is told by the lower of its terminals, and numbered in the order of these.
        lower = np.where(self.mate < 0, terminals, np.minimum(terminals, self.mate))
        numbers, of_terminal = np.unique(lower, return_inverse=True)
        return Links(read_only(of_terminal.astype(np.int32)), len(numbers))

    @property
    @lru_cache(maxsize=64)  # noqa: B019 - equal graphs share it
    def exits(self) -> NDArray[np.int32]:
        """``exits[terminal, state]``: where light that enters at a terminal leaves its cell.

        A stuck cell leads light one way in both states; a dead one back to where it came from.
        Those of the last few graphs are kept.
        """
        first = 4 * np.arange(self.n_cells, dtype=np.int32)[:, None, None]
        # At first with the shape (cells, 4, 2).
        exits: NDArray[np.int32] = first + EXITS[None]
        for state in (BAR, CROSS):
            exits[self.stuck == state] = exits[self.stuck == state][:, :, [state]]
        same_terminal = first + np.arange(4, dtype=np.int32)[:, None]
        exits[self.stuck == DEAD] = same_terminal[self.stuck == DEAD]
        return read_only(exits.reshape(-1, 2))

    def terminal_name(self, terminal: int) -> str:
        """Return a name for messages, such as ``"cell 40 a2"``."""
        return f"{self.describe_cell(terminal // 4)} {TERMINAL_NAMES[terminal % 4]}"

    def describe_cell(self, cell: int) -> str:
        """Return a cell for messages, by its number or its name: ``"cell 40"``, ``"cell m1"``."""
        return f"cell {cell if self.names is None else self.names[cell]}"

    def list_cells(self, cells: Sequence[int]) -> list[int] | list[str]:
        """Return cells for messages: their names, or numbers where cells have no names."""
        return list(cells) if self.names is None else [self.names[cell] for cell in cells]

    def terminal_positions(self, inset: float = 0.18, offset: float = 0.12) -> NDArray[np.float64]:
        """Positions of all terminals for drawing, shape (4 * cells, 2).

        Parameters
        ----------
        inset
            Distance from the end of the cell, along the cell, in lengths of a cell.
        offset
            Distance from the axis of the cell, to the side, in lengths of a cell.

        Returns
        -------
        NDArray
            x and y of each terminal, in lengths of a cell; float64. Terminals 4 * cell + 0 to 3
            are a1, a2, b1, b2: a is the end where the cell begins, and 1 the side to the left of
            the way from a to b.
        """
        end_a = self.ends[:, 0]
        end_b = self.ends[:, 1]
        axis = end_b - end_a
        inward = inset * axis
        to_left = offset * np.stack([-axis[:, 1], axis[:, 0]], axis=1)
        positions = [
            end_a + inward + to_left,
            end_a + inward - to_left,
            end_b - inward + to_left,
            end_b - inward - to_left,
        ]
        return np.stack(positions, axis=1).reshape(-1, 2)


def state_between(entered: int, left: int) -> int:
    """Which state carries light between two terminals of one cell.

    Parameters
    ----------
    entered, left
        Terminals of the same cell, one at end a and one at end b.

    Returns
    -------
    int
        ``BAR`` or ``CROSS``.

    Examples
    --------
    >>> state_between(0, 3) == CROSS
    True
    """
    return BAR if (entered ^ left) & 1 == 0 else CROSS


def check_parts(
    name: str, numbers: Any, count: int, nouns: str, taken: dict[int, str] | None = None
) -> tuple[int, ...]:
    """Check a list of numbers of parts, such as cells or ports: each exists, and none is twice.

    Parameters
    ----------
    name
        The argument, for messages.
    numbers
        The list, as the caller gave it.
    count
        How many parts there are; they are numbered from 0.
    nouns
        The parts, for messages, such as ``"ports"``.
    taken
        By number where a part was listed before, as in another argument; the parts of this list
        are added. None if there is no other list.

    Returns
    -------
    tuple of int

    Raises
    ------
    InputError
        Naming the entry that is no number of a part, or was listed before.
    """
    if isinstance(numbers, (str, bytes)) or not isinstance(numbers, (Sequence, np.ndarray)):
        raise InputError(f"{name} = {numbers!r}: a list of {nouns}", where=name)
    taken = {} if taken is None else taken
    checked = []
    for k, value in enumerate(numbers):
        place = f"{name}[{k}]"
        number = integer(place, value, at_least=0)
        if number >= count:
            exist = f"0 .. {count - 1}" if count else "none"
            raise InputError(f"{place} = {number}: {nouns} are {exist}", where=place)

        # No part is listed twice, not even under another name.
        if number in taken:
            raise InputError(f"{place} = {number}: is {taken[number]} already", where=place)
        taken[number] = place
        checked.append(number)
    return tuple(checked)
