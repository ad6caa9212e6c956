"""Where things are drawn: waveguides, curves of light, and the ports around the boundary.

All curves are chains of cubic Bezier pieces: an array of shape (3 * pieces + 1, 2) in which every
third point lies on the curve. The curves leave and enter terminals along the axis of the cell, so
they are smooth.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric

INSET, OFFSET = 0.18, 0.12
"""Where terminals lie on a cell, in lengths of a cell; see `CellGraph.terminal_positions`."""
PORT_DISTANCE = 0.72
"""From the corner of a mesh to the ports that belong to it, in lengths of a cell."""
PORT_SPREAD = 0.25
"""From the middle to each of two ports at one corner."""
HANDLE = 0.38
"""Bezier handles as a share of the chord; 0.36 to 0.44 draws arcs of 60 to 120 degrees."""
SWITCH_WIDTH = 0.62
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
        ports = _columns(fabric)
        return _framed(nothing, nothing, np.empty((0, 4, 2)), ports)
    terminals = graph.terminal_positions(INSET, OFFSET)
    along = graph.ends[:, 1] - graph.ends[:, 0]
    along = along / np.linalg.norm(along, axis=1, keepdims=True)
    headings = np.repeat(np.stack([-along, along], axis=1), 2, axis=1).reshape(-1, 2)
    lower = np.flatnonzero(graph.mate > np.arange(len(graph.mate)))
    upper = graph.mate[lower]
    links = _bezier(terminals[lower], headings[lower], terminals[upper], headings[upper])
    return _framed(terminals, headings, links, _around(fabric, graph))


def _bezier(start: Points, leaving: Points, end: Points, arriving: Points) -> Points:
    """Join points by Bezier pieces that start towards `leaving` and come in from `arriving`."""
    handle = HANDLE * np.linalg.norm(end - start, axis=1, keepdims=True)
    return np.stack([start, start + handle * leaving, end + handle * arriving, end], axis=1)


def light_curve(data: MeshData, source: PortMark, destination: PortMark, passed: Points) -> Points:
    """Draw the route of light from the mark of one port to that of another.

    `passed` are the terminals in the order of the light: entered, left, entered, left, ... The
    result is a chain of Bezier pieces, shape (3 * pieces + 1, 2).
    """
    into = -np.array([source.outward, destination.outward])
    ends = np.array([source.position, destination.position])
    at = data.terminals[passed]
    outside = np.resize([1.0, -1.0], len(passed))[:, None]  # a link lies outside, a cell inside
    axis = data.headings[passed]
    start = np.concatenate([ends[:1], at])
    end = np.concatenate([at, ends[1:]])
    leaving = np.concatenate([into[:1], -outside * axis])
    arriving = np.concatenate([outside * axis, into[1:]])
    pieces = _bezier(start, leaving, end, arriving)
    return np.concatenate([pieces[:1, 0], pieces[:, 1:].reshape(-1, 2)])


def _framed(
    terminals: Points, headings: Points, links: Points, ports: tuple[PortMark, ...]
) -> MeshData:
    places = np.array([mark.position for mark in ports])
    names = places + PORT_DISTANCE * np.array([mark.outward for mark in ports])
    drawn = np.concatenate([terminals, places - 0.5, places + 0.5, names])
    (left, lower), (right, upper) = drawn.min(axis=0), drawn.max(axis=0)
    bounds = (float(left), float(lower), float(right), float(upper))
    largest = min(0.6, max(0.3, (right - left) / 100))  # on a big mesh, large enough to be seen
    between = np.linalg.norm(places[:, None] - places[None], axis=2)
    nearest = between[~np.eye(len(places), dtype=bool)].min(initial=1.0)
    radius = min(float(largest), 0.46 * float(nearest))
    return MeshData(terminals, headings, links, ports, radius, bounds)


def _columns(fabric: Fabric) -> tuple[PortMark, ...]:
    width, names = max(3.0, SWITCH_WIDTH * fabric.n_ports), fabric.port_names
    ports = range(fabric.n_ports)
    left = [PortMark(k, "in", -1, names[k], (0.0, -float(k)), (-1.0, 0.0)) for k in ports]
    return *left, *(
        PortMark(k, "out", -1, names[k], (width, -float(k)), (1.0, 0.0)) for k in ports
    )


def _around(fabric: Fabric, graph: CellGraph) -> tuple[PortMark, ...]:
    """Put each port before the corner of the mesh at which its terminal is free."""
    spokes = _spokes(graph)
    wanted: list[tuple[int, Literal["both", "in", "out"], int, str]] = []
    for port in range(fabric.n_ports):
        source, destination = fabric.source_terminals[port], fabric.destination_terminals[port]
        if fabric.bidirectional:
            wanted.append((port, "both", int(source), fabric.port_names[port]))
        else:
            sends, _, receives = fabric.port_names[port].partition(">")
            wanted.append((port, "in", int(source), sends))
            wanted.append((port, "out", int(destination), receives))
    corners = [_corner(graph, spokes, terminal) for _, _, terminal, _ in wanted]
    shared: defaultdict[tuple[float, ...], int] = defaultdict(int)
    for corner, outward, _ in corners:
        shared[_key(*corner, *outward)] += 1
    marks = []
    for labels, (corner, outward, side) in zip(wanted, corners, strict=True):
        spread = side * PORT_SPREAD if shared[_key(*corner, *outward)] > 1 else 0.0
        x = corner[0] + PORT_DISTANCE * outward[0] - spread * outward[1]
        y = corner[1] + PORT_DISTANCE * outward[1] + spread * outward[0]
        marks.append(PortMark(*labels, (x, y), outward))
    return tuple(marks)


def _spokes(graph: CellGraph) -> dict[tuple[float, ...], list[float]]:
    """Collect the directions of the cells that meet at each corner, in radians."""
    spokes = defaultdict(list)
    for (ax, ay), (bx, by) in graph.ends.tolist():
        spokes[_key(ax, ay)].append(math.atan2(by - ay, bx - ax))
        spokes[_key(bx, by)].append(math.atan2(ay - by, ax - bx))
    return spokes


def _corner(
    graph: CellGraph, spokes: dict[tuple[float, ...], list[float]], terminal: int
) -> tuple[tuple[float, float], tuple[float, float], int]:
    """Find the corner of a free terminal, the middle of the gap it faces, and its side there."""
    near = terminal % 4 // 2
    x, y = graph.ends[terminal // 4, near].tolist()
    far_x, far_y = graph.ends[terminal // 4, 1 - near].tolist()
    spoke = math.atan2(far_y - y, far_x - x)
    turn = 1 if terminal % 4 in (0, 3) else -1  # seen from the corner: left of its cell, or right
    full = 2 * math.pi
    gaps = ((turn * (other - spoke)) % full for other in spokes[_key(x, y)])
    gap = min((gap for gap in gaps if 1e-6 < gap < full - 1e-6), default=full)
    middle = spoke + turn * gap / 2
    if gap == full:  # a dangling cell: its ports go straight left, right, up or down
        middle = round(middle * 2 / math.pi) * math.pi / 2
    return (x, y), (math.cos(middle), math.sin(middle)), -turn


def _key(*numbers: float) -> tuple[float, ...]:
    return tuple(round(number, 4) + 0.0 for number in numbers)
