"""Recirculating meshes: the cells are the edges of a hexagonal, square or triangular grid.

Ports are perimeter terminals, as listed, or spread so that all can be used.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.cellgraph import CellGraph, check_parts
from optmatch.fabrics.fabric import Ends, Fabric
from optmatch.fabrics.reach import UNREACHED, forced_links, shortest_routes
from optmatch.model import Count, Index, InputError, check_fields, check_size

Point = tuple[float, float]
Edge = tuple[Point, Point]
Ports = Count | Sequence[Index] | None
Terminals = tuple[int, ...]


def _build_grid(edges: Iterable[Edge], corner_deg: float) -> CellGraph:
    """Make a mesh of cells (2 x 2 switches), one on every edge of a lattice, such as hexagons.

    A cell lies along its edge and has two terminals at each end, one on either side of the edge.
    Where two edges meet in a corner of the lattice, such as 120 degrees, the two terminals inside
    that corner are joined. Wider corners are the outside of the mesh: both terminals stay free,
    for ports. Points are equal if they are closer than about 1e-6; edges do not cross.

    Parameters
    ----------
    edges
        Pairs of points, where a cell begins (end a) and ends (end b), in lengths of a cell.
    corner_deg
        The corner of the lattice in degrees: 120 for hexagons, 90 for squares, 60 for triangles.

    Returns
    -------
    CellGraph
        Cells in the order of `edges`; terminals a1, a2, b1, b2 of a cell have the numbers 4 * cell
        + 0 to 3. Its ``perimeter`` lists the free ones along the outer boundary, from the lowest
        (and of these the leftmost) one on.
    """
    cells = list(edges)

    # Each vertex has a spoke for each cell that ends there.
    spokes_of_vertex: dict[tuple[int, int], list[_Spoke]] = {}
    for cell, (end_a, end_b) in enumerate(cells):
        heading = math.atan2(end_b[1] - end_a[1], end_b[0] - end_a[0])
        opposite = heading - math.pi if heading > 0 else heading + math.pi
        # Seen from end a, terminal 1 of that end is on the left; seen from end b, terminal 2.
        from_a = _Spoke(heading, left=4 * cell, right=4 * cell + 1)
        from_b = _Spoke(opposite, left=4 * cell + 3, right=4 * cell + 2)
        spokes_of_vertex.setdefault(_vertex(end_a), []).append(from_a)
        spokes_of_vertex.setdefault(_vertex(end_b), []).append(from_b)

    # mate[terminal]: the one that it is joined to in a corner of the lattice; across_corner: the
    # one on the other side of a wider corner; -1 for none. Two spokes that follow each other
    # anticlockwise have a corner between them.
    mate = np.full(4 * len(cells), -1, dtype=np.int32)
    across_corner = np.full(4 * len(cells), -1, dtype=np.int32)
    widest_rad = math.radians(corner_deg) + 1e-6
    for spokes in spokes_of_vertex.values():
        spokes.sort()
        for spoke, following in zip(spokes, spokes[1:] + spokes[:1], strict=True):
            corner_rad = (following.heading - spoke.heading) % (2 * math.pi)
            if corner_rad == 0:  # a vertex where one cell ends
                corner_rad = 2 * math.pi
            # The left of a spoke and the right of the next one lie on the two sides of this
            # corner.
            partner = mate if corner_rad <= widest_rad else across_corner
            partner[spoke.left] = following.right
            partner[following.right] = spoke.left
    return CellGraph(
        mate=mate,
        ends=np.array(cells, dtype=np.float64).reshape(-1, 2, 2),
        perimeter=np.array(_walk_boundary(mate, across_corner, cells), dtype=np.int32),
    )


class _Spoke(NamedTuple):
    """A cell as it leaves a vertex; spokes are sorted by their heading."""

    heading: float
    """Its direction in radians, anticlockwise from the x axis."""
    left: int
    """The terminal at this end that is on the left of who looks along the cell."""
    right: int
    """The terminal at this end that is on the right."""


def _vertex(point: Point) -> tuple[int, int]:
    """Return a key that points closer than 1e-6 share."""
    return round(point[0] * 1e6), round(point[1] * 1e6)


def _walk_boundary(
    mate: NDArray[np.int32], across_corner: NDArray[np.int32], cells: Sequence[Edge]
) -> list[int]:
    """List the free terminals of a mesh as one passes them on a walk along its outer boundary.

    A mesh is made of cells with four terminals, 4 * cell + 0 to 3, two at each end. The walk
    repeats three steps: note a free terminal; go along the outer side, through all cells that are
    joined there, and note the free terminal at its end; go across the corner to the next side.

    Parameters
    ----------
    mate
        ``mate[terminal]``: the terminal it is joined to, -1 for a free one.
    across_corner
        ``across_corner[terminal]``: the free terminal on the other side of its outer corner.
    cells
        The two ends of each cell.

    Returns
    -------
    list of int
        The free terminals, from the lowest and of these the leftmost one on. A drawing of several
        parts is walked part by part.
    """

    def lowest_left(terminal: int) -> tuple[float, float, int]:
        """Return a key that sorts terminals by height, then from left to right."""
        x, y = cells[terminal // 4][terminal % 4 // 2]
        return round(y, 6), round(x, 6), terminal

    unvisited = set(np.flatnonzero(mate < 0).tolist())
    order: list[int] = []
    while unvisited:
        start = terminal = min(unvisited, key=lowest_left)
        while True:
            order.append(terminal)
            # Terminals of the same side of a cell, at its two ends, differ by 2.
            terminal ^= 2
            while mate[terminal] >= 0:
                terminal = int(mate[terminal]) ^ 2
            order.append(terminal)
            terminal = int(across_corner[terminal])
            if terminal == start:
                break
        unvisited.difference_update(order)
    return order


class Mesh(Fabric):
    """A recirculating mesh with ports at some of its perimeter terminals.

    Perimeter terminals are numbered along the outer boundary from 0, starting at the lowest left
    one.
    """

    __slots__ = ("perimeter_ports",)
    perimeter_ports: tuple[Terminals, Terminals]
    """For each port the perimeter terminal where it sends, and where it receives."""
    ports: Ports
    tx: Ports
    rx: Ports

    @property
    @abstractmethod
    def graph(self) -> CellGraph:
        """The cells and how they join."""

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
        """Check the choice of ports, and find the perimeter terminals of each port.

        Either `ports` chooses ports that send and receive at one terminal, or `tx` and `rx`
        together choose where they send and where they receive. Each is None, a number of ports
        that are spread evenly, or a list of perimeter terminals. If nothing is chosen, each
        perimeter terminal is a port.
        """
        if (self.tx is None) != (self.rx is None):
            raise InputError("tx and rx come together", where="rx" if self.rx is None else "tx")
        if self.tx is not None and self.ports is not None:
            raise InputError("either ports, or tx and rx", where="ports")

        # Numbers of ports are not too large; lists name each terminal once, and become tuples.
        n_terminals = len(self.graph.perimeter)
        taken: dict[int, str] = {}
        for name in ("ports", "tx", "rx"):
            value = getattr(self, name)
            # A port with a terminal to send and one to receive takes two.
            most = n_terminals if name == "ports" else n_terminals // 2
            if isinstance(value, int) and value > most:
                raise InputError(
                    f"{name} = {value}: at most {most}, the mesh has {n_terminals} perimeter"
                    " terminals",
                    where=name,
                )
            if value is not None and not isinstance(value, int):
                value = check_parts(name, value, n_terminals, "perimeter terminals", taken)
                if not value:
                    raise InputError(
                        f"{name} is empty: a switch has at least one port", where=name
                    )
                self._set(**{name: value})

        # The terminals of all ports are chosen once: a number that cannot be spread is refused.
        ports: Any = self.ports
        senders: Any = self.tx
        receivers: Any = self.rx

        if senders is None:
            if ports is None:
                ports = tuple(range(n_terminals))
            elif isinstance(ports, int):
                ports = spread(self.graph, ports)
            senders = ports
            receivers = ports

        # Ports that send and receive at different terminals.
        elif isinstance(senders, int) and senders == receivers:
            terminals = spread(self.graph, 2 * senders, alternating=True)
            senders = terminals[0::2]
            receivers = terminals[1::2]
        elif (
            isinstance(senders, int)
            or isinstance(receivers, int)
            or len(senders) != len(receivers)
        ):
            raise InputError(
                "tx and rx: two equal numbers, or two lists of one length", where="rx"
            )
        self._set(perimeter_ports=(senders, receivers))


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

        Parameters
        ----------
        ports
            How many ports it has, evenly spread, or the perimeter terminals of bidirectional
            ports; None for all.
        tx, rx
            In place of `ports`: the terminals of ports that send and of those that receive, or
            their number.

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
    """Return the corners of a hexagon, clockwise from the one on top.

    Its sides have length 1, and y falls from row to row.

    The middles of neighbours in a row are sqrt(3) apart, rows 1.5; odd rows are half a hexagon to
    the right.
    """
    x = math.sqrt(3) * (col + row % 2 / 2)
    y = -1.5 * row
    turns_rad = [math.radians(90 - 60 * k) for k in range(6)]
    return [(x + math.cos(turn_rad), y + math.sin(turn_rad)) for turn_rad in turns_rad]


def _outlines(polygons: Iterable[list[Point]]) -> list[Edge]:
    """List each edge of the polygons once, as the first polygon that has it directs it."""
    edges: dict[frozenset[tuple[int, int]], Edge] = {}
    for corners in polygons:
        for corner, following in zip(corners, corners[1:] + corners[:1], strict=True):
            # Rounded corners tell an edge, so that neighbours agree on it.
            vertices = frozenset((_vertex(corner), _vertex(following)))
            edges.setdefault(vertices, (corner, following))
    return list(edges.values())


@lru_cache(maxsize=32)
def _hex_graph(rows: int, cols: int) -> CellGraph:
    return _build_grid(_outlines(_hexagon(*place) for place in np.ndindex(rows, cols)), 120)


@lru_cache(maxsize=1)
def _smartlight_graph() -> CellGraph:
    """Return the graph of the chip: cells of three rows of hexagons, and four that dangle.

    A cell is an edge of a hexagon, and neighbours share one. The rows have 6, 5 and 6 hexagons.
    """
    places = [(row, col) for row, width in enumerate((6, 5, 6)) for col in range(width)]
    edges = _outlines(_hexagon(*place) for place in places)

    # At both ends of the short row a cell dangles from the row above and one from the row below:
    # there the sides of a further hexagon would begin.
    # Corners of a hexagon count clockwise from the top one, 0: 1 and 2 are on the right, 4 and 5
    # on the left. Each cell leads outward from such a corner.
    outward = math.sqrt(3) / 2
    for col, corner_above, corner_below, x in ((0, 4, 5, -outward), (5, 2, 1, outward)):
        above = _hexagon(0, col)[corner_above]
        below = _hexagon(2, col)[corner_below]
        edges.append((above, (above[0] + x, above[1] - 0.5)))
        edges.append((below, (below[0] + x, below[1] + 0.5)))
    return _build_grid(edges, 120)


@lru_cache(maxsize=32)
def _square_graph(rows: int, cols: int) -> CellGraph:
    """Return the cells of a mesh of squares, whose sides are cells of length 1."""
    squares = (
        [(j, -i), (j + 1.0, -i), (j + 1.0, -i - 1.0), (float(j), -i - 1.0)]
        for i, j in np.ndindex(rows, cols)
    )
    return _build_grid(_outlines(squares), 90)


@lru_cache(maxsize=32)
def _triangular_graph(rows: int, cols: int) -> CellGraph:
    """Return the cells of a mesh of triangles, which are slanted squares cut by a diagonal."""

    def corner(i: int, j: int) -> Point:
        """Return x and y of a corner of the lattice, in row i and column j."""
        return j - i / 2, -i * math.sqrt(3) / 2

    # The diagonal from (i, j) to (i + 1, j + 1) cuts a slanted square; each half has one further
    # corner.
    triangles = (
        [corner(i, j), corner(*third), corner(i + 1, j + 1)]
        for i, j in np.ndindex(rows, cols)
        for third in ((i, j + 1), (i + 1, j))
    )
    return _build_grid(_outlines(triangles), 60)


_GRAPHS = {
    "hex-mesh": _hex_graph,
    "square-mesh": _square_graph,
    "triangular-mesh": _triangular_graph,
}


@lru_cache(maxsize=128)
def spread(graph: CellGraph, count: int, alternating: bool = False) -> Terminals:
    """Choose perimeter terminals, evenly spread, that can all be used at the same time.

    Perimeter terminals are where light can come in and out of a mesh, numbered along its boundary.
    Two terminals that must meet have to be joined by some way of light, and no two chosen ones may
    need the same link (a waveguide between two cells) to get into the mesh.

    1. The first choice is spread evenly over the boundary.
    2. While two terminals are in each other's way, one of them moves to the unused terminal with
       the fewest such conflicts; of equal ones to the nearest.
    3. If that fails, the same is tried with a few more ports, of which some are left out again,
       evenly. A part of the ports can be used if all of them can.

    The result depends on the arguments alone.

    Parameters
    ----------
    graph
        The cells of the mesh.
    count
        How many terminals are chosen.
    alternating
        Whether the choice is sender, receiver, sender, ... of ports 0, 0, 1, ...: then only
        senders and receivers of different ports must meet, otherwise all.

    Returns
    -------
    tuple of int
        Numbers along the perimeter; with `alternating` those of a port follow each other.

    Raises
    ------
    InputError
        If no such choice is found.
    """
    # First as many ports as are wanted, then one more with each try. `chosen` has the terminals of
    # a port one after the other.
    n_terminals = len(graph.perimeter)
    terminals_per_port = 2 if alternating else 1
    n_ports = count // terminals_per_port
    most_ports = min(n_terminals // terminals_per_port, n_ports + _MORE_PORTS)
    for n_tried in range(n_ports, most_ports + 1):
        chosen = _spread_evenly(graph, n_tried * terminals_per_port, alternating)
        if chosen is None:
            continue
        # Where more ports are there than were asked for, leave out some, evenly.
        places = [k * n_tried // n_ports for k in range(n_ports)]
        return tuple(
            chosen[place * terminals_per_port + offset]
            for place in places
            for offset in range(terminals_per_port)
        )

    name = "tx" if alternating else "ports"
    if not alternating and _has_two_classes(graph):
        raise InputError(
            f"{name} = {n_ports}: the {n_terminals} perimeter terminals are of two classes, and"
            " light connects those of different classes alone, so at most 2 ports can all meet"
            " each other; give tx and rx, or list the ports, of which some pairs are then dead",
            where=name,
        )
    raise InputError(
        f"{name} = {n_ports}: no even spread over the {n_terminals} perimeter terminals was found"
        " in which all can be used at the same time; a list of ports is accepted, also with pairs"
        " that cannot meet",
        where=name,
    )


_MORE_PORTS = 8
"""The number of larger choices that are tried where a number of ports cannot be spread. With 8, no
number is refused on hexagonal, square and triangular meshes of up to 5 x 5 of which a larger one
is accepted; without, 32 of 950 numbers of tx ports were."""


def _spread_evenly(graph: CellGraph, count: int, alternating: bool) -> list[int] | None:
    """Choose terminals that are spread evenly over the perimeter and can all be used.

    The result has places in ``graph.perimeter``, `count` of them. Single ones are moved until
    light connects all pairs of ports that have to be connected; None if that fails. With
    `alternating`, places 0 and 1 are the transmitter and the receiver of port 0, and so on, and
    only transmitters and receivers of different ports have to be connected; else all of them, in
    ascending order.
    """
    n_terminals = len(graph.perimeter)
    index = np.arange(count)
    must_meet = index[:, None] != index[None, :]
    if alternating:
        port = index // 2
        is_receiver = index % 2
        must_meet &= is_receiver[:, None] != is_receiver[None, :]
        must_meet &= port[:, None] != port[None, :]

    # Free terminals 2 v - 1 and 2 v are the two sides of vertex v: take vertices evenly, and
    # their sides in turn; where that fails, take terminals evenly.
    # With 40 terminals and 8 of them wanted, these are vertices 0, 2, 5, 7, ... of 20.
    vertex = index * (n_terminals // 2) // count
    sides_in_turn = (2 * vertex - 1 + index % 2) % n_terminals
    for start in (sides_in_turn, index * n_terminals // count):
        chosen = _exchange_terminals(graph, start.tolist(), must_meet)
        if chosen is not None:
            return chosen if alternating else sorted(chosen)
    return None


def _has_two_classes(graph: CellGraph) -> bool:
    """Tell whether the graph of terminals that meet is bipartite: no light inside either class.

    That is so if no two terminals that meet are also an even number of steps apart (odd cycle).
    """
    everywhere = list(range(len(graph.perimeter)))
    meets = (~_cannot_meet(graph, everywhere, everywhere)).astype(np.float32)
    np.fill_diagonal(meets, 0.0)

    # even[first, second]: 1 if an even number of steps leads from one to the other, else 0.
    even = np.eye(len(everywhere), dtype=np.float32)
    former = np.zeros_like(even)
    while (even != former).any():
        former = even
        even = np.minimum(even + meets @ even @ meets, 1.0)
    return not (even * meets).any()


def _exchange_terminals(
    graph: CellGraph, chosen: list[int], must_meet: NDArray[np.bool_]
) -> list[int] | None:
    """Improve a choice of terminals for the ports, one exchange at a time, until all can be used.

    Terminals are counted along the boundary: ``chosen[place]`` is a place in ``graph.perimeter``,
    and so is each terminal below. Two places of the list are a bad pair if their ports must be
    connected (``must_meet[place, place]``) and no light leads from one to the other, or if both
    need the same link to get into the mesh. Each round of this local search exchanges one terminal
    of `chosen`, which is changed in place, for an unused one, if that leaves fewer bad pairs
    there. The result is `chosen`, or None if no single exchange leaves fewer, or a terminal is
    chosen twice.
    """
    n_terminals = len(graph.perimeter)
    if len(set(chosen)) < len(chosen):
        return None
    check_size("entries", n_terminals * len(chosen), "ports")
    # forced[terminal]: the links that its light cannot avoid on its way in. Turned round, these
    # are for each link the terminals that need it.
    forced = forced_links(graph, graph.perimeter.tolist())
    terminals_of_link: dict[int, list[int]] = {}
    for terminal, links in enumerate(forced):
        for link in links:
            terminals_of_link.setdefault(link, []).append(terminal)

    # no_light[k, l]: whether no light leads between the terminals at places k and l. The same from
    # each terminal chosen so far to all terminals: no_light_from[terminal][other].
    no_light = _cannot_meet(graph, chosen, chosen)
    no_light_from: dict[int, NDArray[np.bool_]] = {}
    while True:
        # shares_link[terminal, place]: whether the terminal needs a link that the terminal at
        # this place needs, too; False for that terminal itself. A choice of two may share a link,
        # since the two only ever have one circuit, with each other.
        shares_link = np.zeros((n_terminals, len(chosen)), dtype=bool)
        if len(chosen) > 2:
            for place, terminal in enumerate(chosen):
                for link in forced[terminal]:
                    shares_link[terminals_of_link[link], place] = True
                shares_link[terminal, place] = False
        # is_bad[k, l]: whether places k and l are a bad pair.
        is_bad = shares_link[chosen] | (no_light & must_meet)
        if not is_bad.any():
            return chosen

        # no_light_to_any[place, terminal] has all terminals, no_light_unused[unused, place] those
        # that are not chosen. Light goes either way, so that one direction is enough. A terminal
        # that was chosen before has its row already.
        unknown = [terminal for terminal in chosen if terminal not in no_light_from]
        rows = _cannot_meet(graph, unknown, list(range(n_terminals)))
        no_light_from |= zip(unknown, rows, strict=True)
        no_light_to_any = np.stack([no_light_from[terminal] for terminal in chosen])
        unused = np.setdiff1d(np.arange(n_terminals), chosen)
        no_light_unused = no_light_to_any[:, unused].T

        # Begin with the place of most bad pairs; move it to the terminal with the fewest, of
        # equal ones to the nearest along the boundary.
        for place in np.argsort(-is_bad.sum(axis=1), kind="stable"):
            # How many bad pairs each unused terminal would have at this place.
            other_places = np.arange(len(chosen)) != place
            bad_pairs = (shares_link[unused] & other_places) | (no_light_unused & must_meet[place])
            n_bad = bad_pairs.sum(axis=1)
            steps = np.abs(unused - chosen[place])
            distance = np.minimum(steps, n_terminals - steps)
            order = np.lexsort((unused, distance, n_bad))
            # Exchange only if fewer bad pairs are left. The new columns are then right in all rows
            # but that of this place, whose terminal is new: its row is equal to its column.
            if len(order) and n_bad[order[0]] < is_bad[place].sum():
                chosen[place] = int(unused[order[0]])
                no_light = no_light_to_any[:, chosen]
                no_light[place] = no_light[:, place]
                break
        else:
            return None


def _cannot_meet(graph: CellGraph, first: list[int], second: list[int]) -> NDArray[np.bool_]:
    """Tell between which perimeter terminals no state of the cells leads light.

    The result is ``dead[k, l]``, from terminal first[k] to second[l].
    """
    lengths = shortest_routes(graph, graph.perimeter[first], graph.perimeter[second])
    return np.asarray(lengths == UNREACHED)
