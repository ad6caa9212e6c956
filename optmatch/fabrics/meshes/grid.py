"""From a flat drawing to a cell graph: each edge becomes a cell, each corner joins two."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from optmatch.fabrics.cellgraph import CellGraph

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
    while free:  # once, unless the drawing has several parts
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
