"""Where things are drawn: waveguides, curves of light, and the ports around the boundary.

All curves are chains of cubic Bezier pieces: an array of shape (3 * pieces + 1, 2) in which every
third point lies on the curve. The curves leave and enter terminals along the axis of the cell, so
they are smooth.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric

INSET = 0.18
"""From the end of a cell to its terminals, along the cell; see `CellGraph.terminal_positions`."""
OFFSET = 0.12
"""From the axis of a cell to its terminals, in lengths of a cell."""
_PORT_DISTANCE = 0.72
"""From the corner of a mesh to the ports that belong to it, in lengths of a cell."""
_PORT_SPREAD = 0.25
"""From the middle to each of two ports at one corner."""
HANDLE = 0.38
"""Bezier handles as a share of the chord; 0.36 to 0.44 draws arcs of 60 to 120 degrees."""
_SWITCH_WIDTH = 0.62
"""Width of a switch without cells, as a share of its height."""

Points = NDArray[np.float64]


class PortMark(NamedTuple):
    """Where a port is drawn, outside the boundary."""

    port: int
    role: Literal["both", "in", "out"]
    """Whether light enters here, leaves here, or both."""
    terminal: int
    """-1 on a fabric without cells."""
    name: str
    position: tuple[float, float]
    outward: tuple[float, float]
    """The unit normal of the boundary: the name stands further out in this direction."""


class MeshData(NamedTuple):
    """The drawing of a fabric without any light; lengths in cells."""

    terminals: Points
    """Positions of the terminals, shape (4 * cells, 2)."""
    headings: Points
    """Unit vectors out of the cell at each terminal, along its axis."""
    links: Points
    """The joins between cells as Bezier pieces, shape (joins, 4, 2)."""
    ports: tuple[PortMark, ...]
    port_radius: float
    """The radius of round port marks, such that no two touch."""
    bounds: tuple[float, float, float, float]
    """Left, lower, right, upper end of all that is drawn."""

    def port(self, port: int, role: Literal["in", "out"]) -> PortMark:
        """Return the mark where light of a port enters ("in") or leaves ("out")."""
        return next(
            mark for mark in self.ports if mark.port == port and mark.role in ("both", role)
        )


def mesh_data(fabric: Fabric) -> MeshData:
    """Lay out a fabric: a mesh with its ports, or two columns of ports for a switch without cells.

    Parameters
    ----------
    fabric
        The switch.

    Returns
    -------
    MeshData
        Arrays are empty on a fabric without cells.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> data = mesh_data(HexMesh(2, 2, ports=4))
    >>> data.terminals.shape, len(data.ports)
    ((76, 2), 4)
    """
    graph = fabric.graph
    if graph is None:
        nothing = np.empty((0, 2))
        ports = _ports_in_columns(fabric)
        return _with_bounds(nothing, nothing, np.empty((0, 4, 2)), ports)
    terminals = graph.terminal_positions(INSET, OFFSET)

    # Light leaves the terminals a1 and a2 of a cell against its axis, b1 and b2 along it.
    axis = graph.ends[:, 1] - graph.ends[:, 0]
    axis = axis / np.linalg.norm(axis, axis=1, keepdims=True)
    headings = np.repeat(np.stack([-axis, axis], axis=1), 2, axis=1).reshape(-1, 2)

    # Each join once, from its terminal of the lower number.
    lower = np.flatnonzero(graph.mate > np.arange(len(graph.mate)))
    upper = graph.mate[lower]
    links = _bezier(terminals[lower], headings[lower], terminals[upper], headings[upper])
    return _with_bounds(terminals, headings, links, _ports_around_mesh(fabric, graph))


def _bezier(start: Points, leaving: Points, end: Points, arriving: Points) -> Points:
    """Join points by Bezier pieces that start towards `leaving` and come in from `arriving`."""
    handle = HANDLE * np.linalg.norm(end - start, axis=1, keepdims=True)
    return np.stack([start, start + handle * leaving, end + handle * arriving, end], axis=1)


def light_curve(
    data: MeshData, source: PortMark, destination: PortMark, passed: NDArray[np.int64]
) -> Points:
    """Draw the route of light from the mark of one port to that of another, as Bezier pieces.

    `passed` are the terminals on the way, in the order of the light: entered, left, entered, left,
    ... The result has shape (3 * pieces + 1, 2).
    """
    first = np.array([source.position])
    last = np.array([destination.position])
    positions = data.terminals[passed]
    starts = np.concatenate([first, positions])
    ends = np.concatenate([positions, last])

    # Headings point out of a cell. A piece before a terminal that is entered lies outside of the
    # cell, the next one inside; a handle points from its end into the piece.
    is_entered = np.arange(len(passed))[:, None] % 2 == 0
    outwards = data.headings[passed]
    into_piece_before = np.where(is_entered, outwards, -outwards)
    into_mesh = -np.array([source.outward, destination.outward])
    handles_of_starts = np.concatenate([into_mesh[:1], -into_piece_before])
    handles_of_ends = np.concatenate([into_piece_before, into_mesh[1:]])
    pieces = _bezier(starts, handles_of_starts, ends, handles_of_ends)

    # A piece begins where the one before it ends, so its first point is left out.
    return np.concatenate([pieces[:1, 0], pieces[:, 1:].reshape(-1, 2)])


def _with_bounds(
    terminals: Points, headings: Points, links: Points, ports: tuple[PortMark, ...]
) -> MeshData:
    """Complete the layout of a fabric: the radius of port marks, the bounds of the drawing.

    ``terminals[terminal]`` is the place of a terminal, ``headings[terminal]`` the direction out of
    its cell, and `links` are Bezier pieces. All lengths are in lengths of a cell.
    """
    positions = np.array([mark.position for mark in ports])
    outwards = np.array([mark.outward for mark in ports])
    names = positions + _PORT_DISTANCE * outwards
    drawn = np.concatenate([terminals, positions - 0.5, positions + 0.5, names])
    left, lower = drawn.min(axis=0).tolist()
    right, upper = drawn.max(axis=0).tolist()

    # Marks are large enough to be seen on a big mesh, and do not touch each other.
    largest = min(0.6, max(0.3, (right - left) / 100))
    distances = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    is_pair = ~np.eye(len(positions), dtype=bool)
    nearest = float(distances[is_pair].min(initial=1.0))
    radius = min(largest, 0.46 * nearest)
    return MeshData(terminals, headings, links, ports, radius, (left, lower, right, upper))


def _ports_in_columns(fabric: Fabric) -> tuple[PortMark, ...]:
    """Put inputs on the left of a switch without cells, and outputs on the right, port 0 on top.

    All inputs come first; columns are further apart for more ports.
    """
    width = max(3.0, _SWITCH_WIDTH * fabric.n_ports)
    inputs = []
    outputs = []
    for port, name in enumerate(fabric.port_names):
        y = -float(port)
        inputs.append(PortMark(port, "in", -1, name, (0.0, y), (-1.0, 0.0)))
        outputs.append(PortMark(port, "out", -1, name, (width, y), (1.0, 0.0)))
    return (*inputs, *outputs)


class _Corner(NamedTuple):
    """Where light enters or leaves the boundary of a mesh."""

    position: tuple[float, float]
    outward: tuple[float, float]
    """The unit vector into the middle of the gap between cells."""
    side: int
    """On which side of the middle its terminal lies: 1 left of it, -1 right."""


def _ports_around_mesh(fabric: Fabric, graph: CellGraph) -> tuple[PortMark, ...]:
    """Put each port before the corner of the mesh at which its terminal is free.

    A port that sends and receives at two terminals has two marks, a bidirectional one has one. Its
    name may be that of both, as ``"A>B"``. A corner is a place with the gap between cells in which
    the port lies: its direction `outward`, and `side`, 1 or -1, where two ports share the gap.
    """
    # Each mark so far: port, role, terminal and name.
    marks: list[tuple[int, Literal["both", "in", "out"], int, str]] = []
    for port, name in enumerate(fabric.port_names):
        source = int(fabric.source_terminals[port])
        destination = int(fabric.destination_terminals[port])
        if fabric.bidirectional:
            marks.append((port, "both", source, name))
        else:
            sender, _, receiver = name.partition(">")
            marks.append((port, "in", source, sender))
            marks.append((port, "out", destination, receiver))

    # ``directions[corner]``: those of the cells that meet there, in radians.
    directions = defaultdict(list)
    for (ax, ay), (bx, by) in graph.ends.tolist():
        directions[_key(ax, ay)].append(math.atan2(by - ay, bx - ax))
        directions[_key(bx, by)].append(math.atan2(ay - by, ax - bx))

    corners = [_find_corner(graph, directions, terminal) for _, _, terminal, _ in marks]

    # Two ports may lie in the same gap of a corner, which then stand beside each other.
    n_ports_in_gap = Counter(_key(*corner.position, *corner.outward) for corner in corners)
    placed_marks = []
    for (port, role, terminal, name), corner in zip(marks, corners, strict=True):
        is_shared = n_ports_in_gap[_key(*corner.position, *corner.outward)] > 1
        spread = corner.side * _PORT_SPREAD if is_shared else 0.0
        out_x, out_y = corner.outward
        x = corner.position[0] + _PORT_DISTANCE * out_x - spread * out_y
        y = corner.position[1] + _PORT_DISTANCE * out_y + spread * out_x
        placed_marks.append(PortMark(port, role, terminal, name, (x, y), corner.outward))
    return tuple(placed_marks)


def _find_corner(
    graph: CellGraph, directions: dict[tuple[float, ...], list[float]], terminal: int
) -> _Corner:
    """Find where the port that is joined to a terminal of a cell is drawn.

    A cell is drawn as a line between two corners of the mesh, with two terminals at each end::

        0                    2
          first --- second
        1                    3

    The port stands before the corner, in the gap between this cell and the next one around the
    corner; at terminal 0 that is the next cell counterclockwise, at terminal 1 clockwise. Terminal
    14 is terminal 2 of cell 3. ``directions[corner]``, by its rounded place, has the angles in
    radians at which cells leave it.
    """
    # The end at which the terminal lies, and the angle at which the cell leaves it.
    cell, number = divmod(terminal, 4)
    near_end = number // 2
    x, y = graph.ends[cell, near_end].tolist()
    far_x, far_y = graph.ends[cell, 1 - near_end].tolist()
    direction = math.atan2(far_y - y, far_x - x)

    # Seen from the corner, terminals 0 and 3 face the gap to the left of the cell, which ends at
    # the next cell counterclockwise; 1 and 2 face that to the right.
    turn = 1 if number in (0, 3) else -1

    # The gap is the least angle to another cell, turned left or right; a full turn without one.
    full = 2 * math.pi
    gap = full
    for other_direction in directions[_key(x, y)]:
        angle = (turn * (other_direction - direction)) % full
        if 1e-6 < angle < full - 1e-6:
            gap = min(gap, angle)
    middle = direction + turn * gap / 2

    # At a cell without neighbours, ports go straight left, right, up or down.
    if gap == full:
        middle = round(middle * 2 / math.pi) * math.pi / 2

    # The terminal lies beside its cell. If the middle of the gap is left of the cell, then the
    # terminal is right of the middle: hence the sign.
    return _Corner((x, y), (math.cos(middle), math.sin(middle)), -turn)


def _key(*numbers: float) -> tuple[float, ...]:
    """Return rounded numbers, which are equal for equal points; 0.0 replaces -0.0."""
    return tuple(round(number, 4) + 0.0 for number in numbers)
