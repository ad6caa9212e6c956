"""Feed-forward fabrics: light enters on the left, passes column after column, leaves on the right.

All have n inputs and n outputs of their own. A cell that splits or joins only (1x2 or 2x1) is a
2x2 cell with a terminal that stays free.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.cellgraph import CellGraph
from optmatch.fabrics.fabric import Ends, Fabric
from optmatch.model import Range, check_fields, check_size

LINE = 0.5
"""Between two parallel waveguides, in lengths of a cell."""
GAP = 0.5
"""Between two columns, at least, in lengths of a cell."""
_SLOPE = 0.45
"""Between two columns, at least, as a share of the height that a link climbs there; with a smaller
one the curves of steep links would turn back."""

Wire = int | None
"""The light of a cell: the terminal that it comes from, ``~k`` for input k, None for dark."""


class Columns(NamedTuple):
    """A feed-forward fabric that is wired."""

    graph: CellGraph
    sources: NDArray[np.int32]
    """``sources[input]``: the terminal where its light enters."""
    destinations: NDArray[np.int32]
    """``destinations[output]``: the terminal where its light leaves."""
    count: int  # type: ignore[assignment]  # not the method of tuples


class ColumnBuilder:
    """Places cells one by one, each in the first column to the right of all that lead to it.

    Inputs are the wires ``~0``, ``~1``, ... By cell, `_columns` and `_lines` are its column and
    the height of its upper side in lines; ``_mate[terminal]`` is the terminal that one is joined
    to, -1 for none, and ``_sources[k]`` the terminal at which input k enters.
    """

    def __init__(self, n_inputs: int) -> None:
        """Begin a network without cells: inputs are the wires ``~0``, ``~1``, ..."""
        self._sources = [-1] * n_inputs
        self._mate: list[int] = []
        self._columns: list[int] = []
        self._lines: list[float] = []

    def place(self, upper: Wire, lower: Wire, line: float, column: int = 0) -> tuple[int, int]:
        """Place a cell: its side 1 is the upper one, its end a looks to the left.

        A wire is the number of the terminal that light leaves, ``~k`` of input k, or None; the two
        of the result leave by b1 and b2. The cell is right of all that lead to it, and not left of
        `column`; `line` is the height of its upper side, in lines from the top.
        """
        first = len(self._mate)
        self._mate += [-1] * 4
        for terminal, wire in ((first, upper), (first + 1, lower)):
            if wire is None:
                continue
            # ~k is negative for every input k.
            if wire < 0:
                self._sources[~wire] = terminal
            else:
                self._mate[terminal] = wire
                self._mate[wire] = terminal
                column = max(column, self._columns[wire // 4] + 1)
        self._columns.append(column)
        self._lines.append(line)
        return first + 2, first + 3

    def finish(self, outputs: Sequence[int]) -> Columns:
        """End the construction: place the cells, and list inputs and outputs.

        ``outputs[k]`` is the free terminal at which light leaves as output k. Columns are drawn
        far enough apart that no waveguide between them is too steep. Free terminals are listed in
        this order: inputs, outputs, those without a port.
        """
        mate = np.array(self._mate, dtype=np.int32)
        columns = np.array(self._columns)
        lines = np.array(self._lines)
        free = np.flatnonzero(mate < 0)
        perimeter = [*self._sources, *outputs]
        perimeter += np.setdiff1d(free, perimeter).tolist()

        # The steepest link out of a column decides how far the next one is.
        # Terminals b1 and b2 of a cell (4 * cell + 2 and 3) lead to the right.
        b_terminal = np.flatnonzero((mate >= 0) & (np.arange(len(mate)) % 4 >= 2))
        left_cell = b_terminal // 4
        right_cell = mate[b_terminal] // 4
        height = LINE * np.abs(lines[left_cell] - lines[right_cell])
        climbs = np.zeros(columns.max() + 1)
        np.maximum.at(climbs, columns[left_cell], height)
        steps = 1 + np.maximum(GAP, _SLOPE * climbs)
        x = np.concatenate([[0.0], np.cumsum(steps)])[columns]
        y = -LINE * (lines + 0.5)
        ends = np.stack([np.stack([x, y], axis=1), np.stack([x + 1, y], axis=1)], axis=1)
        return Columns(
            CellGraph(mate=mate, ends=ends, perimeter=np.array(perimeter, dtype=np.int32)),
            np.array(self._sources, dtype=np.int32),
            np.array(outputs, dtype=np.int32),
            int(columns.max()) + 1,
        )


Blocking = Literal["rearrangeable", "wide-sense", "strict-sense"]


@dataclass(frozen=True, slots=True, eq=False)
class FeedForward(Fabric):
    """A fabric of n inputs and n outputs; subclasses say how its cells are wired."""

    n: Annotated[int, Range(2)]
    bidirectional: ClassVar[bool] = False
    blocking: ClassVar[Blocking]
    """What holds any permutation: ``"rearrangeable"`` if circuits in use may have to move for a
    new one, ``"wide-sense"`` if none moves as long as routes are chosen by the rule of the fabric,
    ``"strict-sense"`` if none ever has to."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_size("cells", type(self).most_cells(self.n), "n")

    @staticmethod
    def most_cells(n: int) -> int:
        """Bound the number of cells by that of ports, before any is built."""
        return n * n

    @property
    def n_ports(self) -> int:
        """The number of ports: port k is input k and output k."""
        return self.n

    @property
    def graph(self) -> CellGraph:
        """The cells and how they join; end a of each looks to the left."""
        return _wired(self).graph

    @property
    def n_stages(self) -> int:
        """The number of columns of cells, which is the most cells that any route passes."""
        return _wired(self).count

    @property
    def port_names(self) -> tuple[str, ...]:
        """Input and output, as ``"in 3>out 3"``."""
        return tuple(f"in {port}>out {port}" for port in range(self.n))

    def _ends(self) -> Ends:
        return _wired(self).sources, _wired(self).destinations

    @staticmethod
    @abstractmethod
    def _wire(builder: ColumnBuilder, n: int) -> list[int]:
        """Place all cells; return the wires of the outputs."""


@lru_cache(maxsize=64)
def _wired(fabric: FeedForward) -> Columns:
    builder = ColumnBuilder(fabric.n)
    return builder.finish(fabric._wire(builder, fabric.n))
