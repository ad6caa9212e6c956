"""The waveguides between cells, as drawn: how long they are, how they bend, what they cross."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.cellgraph import CellGraph

_SIDE = 0.25
"""From the axis of a cell to its sides, in lengths of a cell; parallel lines are two apart."""


class Waveguides(NamedTuple):
    """The links of a cell graph, by their numbers; links of meshes are corners without length."""

    length: NDArray[np.float64]
    """``length[link]``, in lengths of a cell."""
    bends: NDArray[np.int64]
    """``bends[link]``: two where a link leads to another height, else none."""
    crossings: NDArray[np.int64]
    """``crossings[link]``: how many other links it crosses."""


@lru_cache(maxsize=64)
def measure_waveguides(graph: CellGraph) -> Waveguides:
    """Measure the links between cells that lie apart, drawn as straight lines.

    Parameters
    ----------
    graph
        The cells. Stubs behind free terminals, and joins at a common corner, have no length.

    Returns
    -------
    Waveguides
        Read-only arrays with an entry for each link.

    Notes
    -----
    Every two links are compared: time is quadratic in their number, memory linear.

    Examples
    --------
    The middle of a Benes network for 4 ports: each of 2 links crosses 1 on the left, 1 on the
    right.

    >>> from optmatch.fabrics import Benes
    >>> int(measure_waveguides(Benes(4).graph).crossings.sum())
    4
    """
    links = graph.links
    length = np.zeros(links.count)
    bends, crossings = np.zeros((2, links.count), dtype=np.int64)
    first = np.flatnonzero(graph.mate > np.arange(len(graph.mate)))
    corner = graph.ends.reshape(-1, 2)[np.arange(len(graph.mate)) // 2]
    apart = np.linalg.norm(corner[first] - corner[graph.mate[first]], axis=1) > 1e-6
    first = first[apart]
    point = graph.terminal_positions(inset=0.0, offset=_SIDE)
    start, end = point[first], point[graph.mate[first]]
    number = links.of_terminal[first]
    length[number] = np.linalg.norm(end - start, axis=1)
    axis = graph.ends[first // 4, 1] - graph.ends[first // 4, 0]
    along = end - start
    bends[number] = 2 * (np.abs(axis[:, 0] * along[:, 1] - axis[:, 1] * along[:, 0]) > 1e-6)
    for k, n in enumerate(number):
        crossings[n] = _count_crossed(start[k], end[k], start, end)
    for array in (length, bends, crossings):
        array.flags.writeable = False
    return Waveguides(length, bends, crossings)


def _count_crossed(
    p: NDArray[np.float64],
    q: NDArray[np.float64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
) -> int:
    """Count the lines that have their ends on both sides of pq, and p and q on both of theirs."""

    def side(
        a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        u, v = b - a, c - a
        area: NDArray[np.float64] = u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]
        return np.where(np.abs(area) < 1e-9, 0.0, area)

    split = side(p, q, start) * side(p, q, end) < 0
    splits = side(start, end, p) * side(start, end, q) < 0
    return int(np.count_nonzero(split & splits))
