"""Feed-forward fabrics: light enters on the left, passes column after column, leaves on the right.

All have n inputs and n outputs of their own: Benes networks, crossbars, planar networks of
neighbours. A cell that splits or joins only (1x2 or 2x1) is a 2x2 cell with a terminal that stays
free. A *wire* is a number of the terminal that light comes from, ``~k`` for input k, or None for
dark; a `ColumnBuilder` places cells and joins their wires. Lines are heights of the drawing,
counted from the top.
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
Pair = tuple[Wire, Wire]


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
        return self._wired.graph

    @property
    def n_stages(self) -> int:
        """The number of columns of cells, which is the most cells that any route passes."""
        return self._wired.count

    @property
    def port_names(self) -> tuple[str, ...]:
        """Input and output, as ``"in 3>out 3"``."""
        return tuple(f"in {port}>out {port}" for port in range(self.n))

    def _ends(self) -> Ends:
        return self._wired.sources, self._wired.destinations

    @staticmethod
    @abstractmethod
    def _wire(builder: ColumnBuilder, n: int) -> list[int]:
        """Place all cells; return the wires of outputs 0 to n - 1, each the terminal it leaves."""

    @property
    @lru_cache(maxsize=64)  # noqa: B019 - equal fabrics share it
    def _wired(self) -> Columns:
        """All cells, wired; those of the last few fabrics are kept."""
        builder = ColumnBuilder(self.n)
        columns = builder.finish(self._wire(builder, self.n))
        columns.sources.flags.writeable = False
        columns.destinations.flags.writeable = False
        return columns


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
    """Place and wire the cells of a Benes network of any size, by recursion.

    A first column of cells sends each wire to an upper or to a lower network of half the size, and
    a last column joins their outputs in pairs::

        wires -- first column --< upper network >-- last column -- outputs
                                < lower network >

    `wires` come from the left, from the top downwards, and the first one lies at `line`; all
    networks have the column `middle` in common. The wires that leave are returned from the top.
    """
    # The network reaches `side` columns to the left and to the right of the middle one.
    n = len(wires)
    side = _levels(n) - 1
    if n == 1:
        return wires
    if n == 2:
        return list(builder.place(wires[0], wires[1], line, middle))

    # The first column sends one wire of each two to either half. An odd wire goes to the lower
    # half as it is.
    placed = [
        builder.place(wires[k], wires[k + 1], line + k, middle - side) for k in range(0, n - 1, 2)
    ]
    odd = wires[2 * len(placed) :]
    upper = _halve(builder, [above for above, _ in placed], line, middle)
    lower = _halve(builder, [below for _, below in placed] + odd, line + len(placed), middle)

    # The last column joins the outputs of the halves in pairs.
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

    Every cell of `Benes` becomes two cells, and each one of the middle column four; a half of one
    wire becomes a cell. For n = 2^r there are ``2*n*r`` cells; a route passes at most
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
    """Place and wire the cells of a dilated Benes network, by recursion.

    As in a Benes network, a first column of cells leads each circuit to an upper or to a lower
    network of half the size, and a last column leads it to its output::

        inputs -- first column --< upper network >-- last column -- outputs
                                 < lower network >

    In a dilated network no cell ever carries two circuits, which keeps crosstalk low. To this end
    each input and each output is a pair of wires of which at most one has light, and has a cell of
    its own. A network inside lies on both sides of the middle column, too.

    `builder` places cells and joins wires. ``pairs[k]`` are the two wires of input k, whose cell
    lies at line ``line + 2 * k``, and the result has the two wires that leave at each output, from
    the top; `middle` is the column that all networks have in common.
    """
    # The columns are those from ``middle - half_depth`` up to ``middle + half_depth - 1``.
    n = len(pairs)
    n_even = n - n % 2
    half_depth = _levels(n)
    if n == 1:
        return [builder.place(*pairs[0], line)]
    first_column = [
        builder.place(*pair, line + 2 * k, middle - half_depth)
        for k, pair in enumerate(pairs[:n_even])
    ]

    # Cells 0 and 1 are neighbours, 2 and 3, and so on. Both send one wire to the upper network, at
    # most one of them with light, which is a pair again; the same holds for the lower network.
    # With an odd number, the last input has no neighbour and goes to the lower one as it is.
    neighbours = list(zip(first_column[0::2], first_column[1::2], strict=True))
    to_upper: list[Pair] = [(first[0], second[0]) for first, second in neighbours]
    to_lower: list[Pair] = [(first[1], second[1]) for first, second in neighbours]
    unpaired: list[tuple[int, int]] = []
    to_last_column: list[Pair]
    if n == 2:
        to_last_column = to_upper + to_lower
    else:
        from_upper = _dilate(builder, to_upper, line, middle)
        from_lower = _dilate(builder, [*to_lower, *pairs[n_even:]], line + n_even, middle)
        to_last_column = [
            (upper[side], lower[side])
            for upper, lower in zip(from_upper, from_lower, strict=False)
            for side in (0, 1)
        ]
        unpaired = from_lower[n_even // 2 :]

    # Cells of the last column join what both halves hand back.
    last_column = [
        builder.place(*pair, line + 2 * k, middle + half_depth - 1)
        for k, pair in enumerate(to_last_column)
    ]
    return last_column + unpaired


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
        """Place the cells of a crossbar, a row for each input and a column for each output.

        Light goes along its row until a cell turns it into a column. Rows lead from cell to cell
        to the right, and so do columns; on the drawing the grid stands on its corner. A cell has
        the column above and the row below, and in cross the row leaves above.
        """
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
        """Place the cells of a PILOSS switch: in each of n stages every row meets another column.

        Paths of all circuits pass equally many cells (path-independent loss): in stage s row i
        meets column (i + s) mod n, and after n stages each row has met each column once. Light
        comes in on a row, and a cell in bar leads it into its column. Returns the wires of the
        columns as they leave the last stage, from the top: that of row i is column i - 1.
        """
        # The rows are a ring that is folded flat, so that neighbours on the ring are two lines
        # apart at most. With n = 4 the rows 0, 3, 1 and 2 lie below each other (`order`), and row
        # i lies at ``place[i]``, the number of its input: 0, 2, 3 and 1. A cell has the wire of
        # its column above and that of its row below; in cross the two change places, so that what
        # leaves above is the row again.
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
    passes at most ``2*ceil(log2(n))``. Light that one cell leaks is blocked by a second one.

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
        """Place a tree of cells that splits each input, and one that merges each output.

        Leaf k of the tree of input i leads to leaf i of the tree of output k.
        """
        leaves = [_split(builder, ~port, n, port * n) for port in range(n)]
        return [
            _merge(builder, list(wires), port * n, _levels(n))
            for port, wires in enumerate(zip(*leaves, strict=True))
        ]


def _split(builder: ColumnBuilder, wire: int, n: int, line: int) -> list[int]:
    """Lead a wire to n leaves by a tree of cells, and return the wires of the leaves.

    The first leaf lies at `line`.
    """
    if n == 1:
        return [wire]
    above, below = builder.place(wire, None, line + n / 2 - 1)
    half = (n + 1) // 2
    return _split(builder, above, half, line) + _split(builder, below, n - half, line + half)


def _merge(builder: ColumnBuilder, wires: list[int], line: int, column: int) -> int:
    """Join wires by a tree of cells, and return the wire at its root.

    The first wire lies at `line`; no cell is to the left of `column`.
    """
    n = len(wires)
    if n == 1:
        return wires[0]
    half = (n + 1) // 2
    above = _merge(builder, wires[:half], line, column)
    below = _merge(builder, wires[half:], line + half, column)
    return builder.place(above, below, line + n / 2 - 1, column)[0]


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
        """Place n columns of cells, which join neighbouring wires in pairs.

        Even columns join wires 0 and 1, 2 and 3, ..., odd ones 1 and 2, 3 and 4, ... (as odd-even
        transposition sort does).
        """
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
        """Place a triangle of cells: a row over all n wires, one over the first n - 1, and so on.

        Each row joins neighbouring wires one after the other, 0 and 1, 1 and 2, ...
        """
        wires = [~port for port in range(n)]
        for stop in range(n - 1, 0, -1):
            for k in range(stop):
                wires[k : k + 2] = builder.place(wires[k], wires[k + 1], line=k)
        return wires
