"""Recirculating meshes: the cells are the edges of a hexagonal, square or triangular grid."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from optmatch.fabrics.cellgraph import CellGraph
from optmatch.fabrics.fabric import Ends, Fabric
from optmatch.fabrics.meshes.ports import Ports, Terminals, check_ports, choose_terminals
from optmatch.model import Count, check_fields, check_size

Point = tuple[float, float]
Edge = tuple[Point, Point]


def build_grid(edges: Iterable[Edge], corner_deg: float) -> CellGraph:
    """Make a cell of every edge and join neighbours around each vertex.

    Equal points (to 1e-6) are one vertex; edges do not cross. Two edges that follow each other
    around a vertex are joined on their common side if the corner between them is one of the
    lattice: at most `corner_deg`, which is 120 for hexagons, 90 for squares, 60 for triangles.
    Wider corners are the outside, where both terminals stay free.

    Cells have the order of `edges`. The perimeter is numbered along the outer boundary, starting
    at the lowest left terminal.
    """
    cells = list(edges)
    around: dict[tuple[int, int], list[tuple[float, int, int]]] = {}
    for cell, (a, b) in enumerate(cells):
        heading = math.atan2(b[1] - a[1], b[0] - a[0])
        # seen from end a, side 1 is on the left; seen from end b, side 2 is
        around.setdefault(_key(a), []).append((heading, 4 * cell + 0, 4 * cell + 1))
        back = heading - math.pi if heading > 0 else heading + math.pi
        around.setdefault(_key(b), []).append((back, 4 * cell + 3, 4 * cell + 2))

    mate = np.full(4 * len(cells), -1, dtype=np.int32)
    across = np.full(
        4 * len(cells), -1, dtype=np.int32
    )  # the other free terminal of an outer corner
    limit = math.radians(corner_deg) + 1e-6
    for spokes in around.values():
        spokes.sort()
        for k, (heading, left, _) in enumerate(spokes):
            following, _, right = spokes[(k + 1) % len(spokes)]
            corner = (following - heading) % (2 * math.pi) or 2 * math.pi
            target = mate if corner <= limit else across
            target[left], target[right] = right, left
    return CellGraph(
        mate=mate,
        ends=np.array(cells, dtype=np.float64).reshape(-1, 2, 2),
        perimeter=np.array(_walk_boundary(mate, across, cells), dtype=np.int32),
    )


def _key(point: Point) -> tuple[int, int]:
    return round(point[0] * 1e6), round(point[1] * 1e6)


def _walk_boundary(mate: np.ndarray, across: np.ndarray, cells: Sequence[Edge]) -> list[int]:
    """Follow the outside: along each outer edge, and across each outer corner."""

    def position(terminal: int) -> tuple[float, float, int]:
        x, y = cells[terminal // 4][terminal % 4 // 2]
        return round(y, 6), round(x, 6), terminal

    free = set(np.flatnonzero(mate < 0).tolist())
    order: list[int] = []
    while free:  # one part, unless the drawing has several
        start = terminal = min(free, key=position)
        while True:
            order.append(terminal)
            terminal ^= 2  # the other end of the same side
            while mate[terminal] >= 0:
                terminal = int(mate[terminal]) ^ 2
            order.append(terminal)
            terminal = int(across[terminal])
            if terminal == start:
                break
        free.difference_update(order)
    return order


class Mesh(Fabric):
    """A recirculating mesh with ports at some of its perimeter terminals.

    Perimeter terminals are numbered along the outer boundary from 0, starting at the lowest left
    one.
    """

    __slots__ = ()
    ports: Ports
    tx: Ports
    rx: Ports

    @property
    @abstractmethod
    def graph(self) -> CellGraph:
        """The cells and how they join."""

    @property
    def perimeter_ports(self) -> tuple[Terminals, Terminals]:
        """For each port the perimeter terminal where it sends, and where it receives."""
        return choose_terminals(self.graph, self.ports, self.tx, self.rx)

    @property
    def n_ports(self) -> int:
        """The number of ports."""
        return len(self.perimeter_ports[0])

    @property
    def bidirectional(self) -> bool:
        """Whether each port is one terminal, for both directions."""
        return self.tx is None

    @property
    def port_names(self) -> tuple[str, ...]:
        """The perimeter terminals, as ``"t7"`` or ``"t7>t9"`` (sends, receives)."""
        sends, receives = self.perimeter_ports
        if self.bidirectional:
            return tuple(f"t{k}" for k in sends)
        return tuple(f"t{i}>t{j}" for i, j in zip(sends, receives, strict=True))

    def _ends(self) -> Ends:
        sends, receives = map(list, self.perimeter_ports)
        return self.graph.perimeter[sends], self.graph.perimeter[receives]

    def _choose(self) -> None:
        self._set(**check_ports(self.ports, self.tx, self.rx, len(self.graph.perimeter)))
        _ = self.perimeter_ports  # refuses a number of ports that cannot be spread


@dataclass(frozen=True, slots=True, eq=False)
class GridMesh(Mesh):
    """A mesh of rows x cols equal polygons; subclasses say which."""

    rows: Count
    cols: Count
    ports: Ports = None
    tx: Ports = None
    rx: Ports = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_size("cells", 3 * self.rows * self.cols, "rows")
        # Routes along a long thin mesh are as long as those of a square one of its length.
        check_size("cells", max(self.rows, self.cols) ** 2, "rows")
        self._choose()

    @property
    def graph(self) -> CellGraph:
        """The cells and how they join."""
        return _GRAPHS[self.type](self.rows, self.cols)


@dataclass(frozen=True, slots=True, eq=False)
class HexMesh(GridMesh):
    """A hexagonal mesh: rows of hexagons, every other row half a hexagon to the right.

    m rows of n hexagons have ``3*m*n + 2*m + 2*n - 1`` cells and ``4*(m + n + 1)`` perimeter
    terminals.

    Parameters
    ----------
    rows, cols
        The number of hexagons down and across, at least 1.
    ports
        Bidirectional ports: None for all perimeter terminals, a number for so many of them spread
        evenly such that no two form a dead pair, or the perimeter terminals themselves, in the
        order in which they become port 0, 1, ...
    tx, rx
        Ports that send and receive at different terminals: two equally long lists of perimeter
        terminals, or twice the same number for that many, alternating and spread evenly. Excludes
        `ports`.

    Raises
    ------
    InputError
        If a size is not positive, a terminal is out of range or used twice, or there are more
        ports than terminals.

    See Also
    --------
    SmartLightMesh : The mesh of a chip that can be bought.
    SquareMesh : Squares instead of hexagons.
    Faulty : A mesh with broken cells or ports.

    Examples
    --------
    >>> mesh = HexMesh(9, 9, ports=32)
    >>> mesh.n_cells, len(mesh.graph.perimeter), mesh.n_ports
    (278, 76, 32)
    >>> HexMesh(2, 2, tx=[0, 6], rx=[10, 15]).port_names
    ('t0>t10', 't6>t15')
    """

    type: ClassVar[str] = "hex-mesh"

    @staticmethod
    def smartlight(ports: Ports = None, tx: Ports = None, rx: Ports = None) -> SmartLightMesh:
        """Return the 72-cell mesh of the iPronics SmartLight processor.

        Examples
        --------
        >>> chip = HexMesh.smartlight()
        >>> chip.n_cells, len(chip.graph.perimeter)
        (72, 40)
        """
        return SmartLightMesh(ports=ports, tx=tx, rx=rx)


@dataclass(frozen=True, slots=True, eq=False)
class SmartLightMesh(Mesh):
    """The flattened hexagonal mesh of the iPronics SmartLight processor: 72 cells, 40 terminals.

    Rows of 6, 5 and 6 hexagons with a dangling cell at each of the four notches beside the short
    row: 56 vertices, of which 36 have degree 3, 16 have degree 2 and 4 dangle, as drawn for the
    chip [1]_.

    Parameters
    ----------
    ports, tx, rx
        As for `HexMesh`.

    References
    ----------
    .. [1] Sanchez-Jacome (2025), thesis, chapter 2, repository ricarvid1/dsj-thesis.

    Examples
    --------
    >>> SmartLightMesh(ports=12).n_ports
    12
    """

    ports: Ports = None
    tx: Ports = None
    rx: Ports = None
    type: ClassVar[str] = "smartlight"

    def __post_init__(self) -> None:
        check_fields(self)
        self._choose()

    @property
    def graph(self) -> CellGraph:
        """The cells and how they join."""
        return _smartlight_graph()


@dataclass(frozen=True, slots=True, eq=False)
class SquareMesh(GridMesh):
    """A square mesh: m rows of n squares have ``2*m*n + m + n`` cells and ``4*(m + n)`` terminals.

    Parameters
    ----------
    rows, cols, ports, tx, rx
        As for `HexMesh`.

    Examples
    --------
    >>> mesh = SquareMesh(4, 4)
    >>> mesh.n_cells, len(mesh.graph.perimeter)
    (40, 32)
    """

    type: ClassVar[str] = "square-mesh"


@dataclass(frozen=True, slots=True, eq=False)
class TriangularMesh(GridMesh):
    """A triangular mesh: m rows of n slanted squares, each cut in two triangles.

    It has ``3*m*n + m + n`` cells and ``4*(m + n)`` perimeter terminals.

    Parameters
    ----------
    rows, cols, ports, tx, rx
        As for `HexMesh`.

    Examples
    --------
    >>> mesh = TriangularMesh(4, 4)
    >>> mesh.n_cells, len(mesh.graph.perimeter)
    (56, 32)
    """

    type: ClassVar[str] = "triangular-mesh"


def _hexagon(row: int, col: float) -> list[Point]:
    """Corners of a hexagon with a vertex on top and edges of length 1."""
    x, y = math.sqrt(3) * (col + row % 2 / 2), -1.5 * row
    turns = [math.radians(90 - 60 * k) for k in range(6)]
    return [(x + math.cos(turn), y + math.sin(turn)) for turn in turns]


def _outlines(polygons: Iterable[list[Point]]) -> list[Edge]:
    """List each edge of the polygons once, in order of appearance."""
    edges: dict[frozenset[tuple[int, int]], Edge] = {}
    for points in polygons:
        for a, b in zip(points, points[1:] + points[:1], strict=True):
            edges.setdefault(
                frozenset((round(x * 1e6), round(y * 1e6)) for x, y in (a, b)), (a, b)
            )
    return list(edges.values())


@lru_cache(maxsize=32)
def _hex_graph(rows: int, cols: int) -> CellGraph:
    return build_grid(_outlines(_hexagon(*place) for place in np.ndindex(rows, cols)), 120)


@lru_cache(maxsize=1)
def _smartlight_graph() -> CellGraph:
    places = [(row, col) for row, width in enumerate((6, 5, 6)) for col in range(width)]
    edges = _outlines(_hexagon(*place) for place in places)
    half, outward = 0.5, math.sqrt(3) / 2
    for col, upper, lower, x in ((0, 4, 5, -outward), (5, 2, 1, outward)):  # ends of the short row
        top, bottom = _hexagon(0, col)[upper], _hexagon(2, col)[lower]
        edges.append((top, (top[0] + x, top[1] - half)))
        edges.append((bottom, (bottom[0] + x, bottom[1] + half)))
    return build_grid(edges, 120)


@lru_cache(maxsize=32)
def _square_graph(rows: int, cols: int) -> CellGraph:
    squares = (
        [(j, -i), (j + 1.0, -i), (j + 1.0, -i - 1.0), (float(j), -i - 1.0)]
        for i, j in np.ndindex(rows, cols)
    )
    return build_grid(_outlines(squares), 90)


@lru_cache(maxsize=32)
def _triangular_graph(rows: int, cols: int) -> CellGraph:
    def corner(i: int, j: int) -> Point:
        return j - i / 2, -i * math.sqrt(3) / 2

    triangles = (
        [corner(i, j), corner(*far), corner(i + 1, j + 1)]
        for i, j in np.ndindex(rows, cols)
        for far in ((i, j + 1), (i + 1, j))
    )
    return build_grid(_outlines(triangles), 60)


_GRAPHS = {
    "hex-mesh": _hex_graph,
    "square-mesh": _square_graph,
    "triangular-mesh": _triangular_graph,
}
