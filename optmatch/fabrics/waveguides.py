"""The waveguides between cells: their lengths, bends and crossings, and the heat between cells.

Where a netlist places its cells, these places count, and so does a mesh, whose cells touch. Other
fabrics are drawn in columns for the eye, a cell as high as it is long. On a chip an interferometer
is long and narrow, so there heights, and the channels between columns, count for a fifth.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics.cellgraph import CellGraph
from optmatch.model import CellDevice, Device, read_only

_SHRINK = 0.2
"""A height or channel on a chip over the same in the drawing: a cell on a chip is five times as
long as it is high."""

_SIDE = 0.25
"""From the axis of a cell to its sides as drawn, in lengths of a cell; lines are two apart."""


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
    """Measure the waveguides of a chip as straight lines, in read-only arrays by link.

    A link between cells that touch at a corner, and one behind a free terminal (where light comes
    in and out), have length 0, no bends and no crossings. Every two links are compared: time is
    quadratic in their number.

    All lengths are in lengths of a cell. In the drawing the terminals of a cell lie `_SIDE` (0.25)
    beside its axis; on a chip heights are `_SHRINK` (a fifth) of the drawn ones, hence 0.05.
    """
    links = graph.links
    n_terminals = len(graph.mate)
    length = np.zeros(links.count)
    bends, crossings = np.zeros((2, links.count), dtype=np.int64)

    # Each link with a length once, by the lower one of its two terminals, `first`. Terminals of a
    # cell are 4 * cell + 0 to 3, two at each end. The ends of the axes tell whether cells touch,
    # before terminals move to the sides: a corner has no length.
    first = np.flatnonzero(graph.mate > np.arange(n_terminals))
    end_of_terminal = places_on_chip(graph).reshape(-1, 2)[np.arange(n_terminals) // 2]
    vector = end_of_terminal[first] - end_of_terminal[graph.mate[first]]
    has_length = np.linalg.norm(vector, axis=1) > 1e-6
    first = first[has_length]
    vector = vector[has_length]
    number = links.of_terminal[first]
    if not graph.placed:
        # In columns terminals of side 1 (even numbers) lie above the axis of the cell.
        height = np.where(np.arange(n_terminals) % 2 == 0, _SIDE, -_SIDE) * _SHRINK
        vector[:, 1] += height[first] - height[graph.mate[first]]
    length[number] = np.linalg.norm(vector, axis=1)

    # Crossings are counted where `graph.ends` lie: a netlist has them on the chip, with sides at
    # 0.05; all other fabrics have them in the drawing, with sides at 0.25. A layout does not say
    # whether its cells are mirrored (a negative offset). They are taken the way in which links
    # cross less often, hence a mirrored layout has the same crossings.
    if graph.placed:
        ways = [_cross(graph, first, side) for side in (_SIDE * _SHRINK, -_SIDE * _SHRINK)]
        crossed, bent = min(ways, key=lambda way: (int(way[0].sum()), *way[0], *way[1]))
    else:
        crossed, bent = _cross(graph, first, _SIDE)
    crossings[number] = crossed
    bends[number] = bent
    return Waveguides(read_only(length), read_only(bends), read_only(crossings))


def _cross(
    graph: CellGraph, first: NDArray[np.intp], offset: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the crossings and bends of the links that begin at the terminals `first`.

    Terminals a1 and b1 lie to the left of the axis of their cell by `offset`, in lengths of a cell
    as in `graph.ends`, and a2 and b2 as far to the right. The first result is how many of the
    other links each link crosses, the second how often it bends, both by place in `first`. A link
    bends twice unless it is parallel to its cell.
    """
    point = graph.terminal_positions(inset=0.0, offset=offset)
    start = point[first]
    end = point[graph.mate[first]]
    axis = graph.ends[first // 4, 1] - graph.ends[first // 4, 0]
    drawn = end - start
    # The area between the link and the axis of its cell is 0 if both are parallel.
    area = axis[:, 0] * drawn[:, 1] - axis[:, 1] * drawn[:, 0]
    bends = 2 * (np.abs(area) > 1e-6).astype(np.int64)

    def side(
        a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return twice the area of the triangle abc, whose sign tells on which side of ab c lies.

        Areas below 1e-9 are 0: c is on the line. Points have the shape (..., 2).
        """
        to_b = b - a
        to_c = c - a
        area: NDArray[np.float64] = to_b[..., 0] * to_c[..., 1] - to_b[..., 1] * to_c[..., 0]
        return np.where(np.abs(area) < 1e-9, 0.0, area)

    # Two links cross if each has the ends of the other one on both of its sides; links that only
    # touch do not.
    crossings = np.zeros(len(first), dtype=np.int64)
    for k, (p, q) in enumerate(zip(start, end, strict=True)):
        split = side(p, q, start) * side(p, q, end) < 0
        splits = side(start, end, p) * side(start, end, q) < 0
        crossings[k] = np.count_nonzero(split & splits)
    return crossings, bends


def waveguide_loss_db(graph: CellGraph, device: Device) -> NDArray[np.float64]:
    """Return what each waveguide between cells loses by its length, bends and crossings, in dB."""
    guides = measure_waveguides(graph)
    loss_db = guides.length * device.cell_length_m * device.waveguide_loss_db_per_m
    loss_db += guides.bends * device.bend_loss_db + guides.crossings * device.crossing_loss_db
    return np.asarray(loss_db, dtype=np.float64)


def heat_turns(graph: CellGraph, cells: CellDevice, states: ArrayLike) -> NDArray[np.float64]:
    """Return by how many rad the heat of all other cells turns the phase of each cell.

    A heater sets the state of a cell by turning a phase, and each other cell gets a share of that
    turn; all shares add up, as phases grow with heat [1]_. That shares fall off exponentially is
    an assumption; with trenches between cells they are measured to fall faster [2]_.

    References
    ----------
    .. [1] Teofilovic et al. (2024). Thermal crosstalk modelling and compensation methods for
       programmable photonic integrated circuits. https://arxiv.org/abs/2404.10589
    .. [2] Jacques et al. (2019). Optimization of thermo-optic phase-shifter design and mitigation
       of thermal crosstalk on the SOI platform. https://doi.org/10.1364/OE.27.010456
    """
    own_turn_rad = cells.turn_rad[np.arange(graph.n_cells), np.asarray(states)]
    if not cells.device.thermal_crosstalk:
        return np.zeros_like(own_turn_rad)
    return np.asarray(own_turn_rad @ heat_shares(graph, cells.device))


def heat_shares(graph: CellGraph, device: Device) -> NDArray[np.float64]:
    """Return ``share[heated, cell]``: the part of a heater's turn that another cell's phase gets.

    It falls off exponentially with the distance of the middles of both cells.
    """
    middle = places_on_chip(graph).mean(axis=1)
    distance = np.linalg.norm(middle[:, None] - middle, axis=2)
    share: NDArray[np.float64] = device.thermal_crosstalk * np.exp(
        -distance / device.thermal_decay_cells
    )
    np.fill_diagonal(share, 0.0)
    return share


def measure_area(graph: CellGraph) -> float:
    """Measure the rectangle around all cells, in squares of the length of a cell."""
    # A cell is a fifth as high as it is long, and reaches 0.1 to either side of its axis. In
    # meshes, whose cells lie in all directions, the rectangle is half a length wider and higher.
    ends = places_on_chip(graph)
    if graph.placed or _is_drawn_in_columns(graph):
        axis = ends[:, 1] - ends[:, 0]
        to_side = 2 * _SHRINK * _SIDE * np.stack([-axis[:, 1], axis[:, 0]], axis=1)[:, None]
        corners = np.concatenate([ends + to_side, ends - to_side])
        width, height = np.ptp(corners.reshape(-1, 2), axis=0)
        return float(width * height)
    width, height = np.ptp(ends.reshape(-1, 2), axis=0)
    return float((width + 2 * _SIDE) * (height + 2 * _SIDE))


def places_on_chip(graph: CellGraph) -> NDArray[np.float64]:
    """Return ``ends[cell, end]``, where cells lie on the chip, in lengths of a cell.

    Places of a netlist and meshes stay as they are. In columns that are drawn for the eye, heights
    and the channels between columns are `_SHRINK` times as long on a chip.
    """
    ends = graph.ends
    if graph.placed or not _is_drawn_in_columns(graph):
        return ends

    # Along x the stretches that no cell covers are those of waveguides.
    left = ends[..., 0].min(axis=1)
    right = ends[..., 0].max(axis=1)
    marks = np.unique(np.concatenate([left, right]))
    middle = (marks[:-1] + marks[1:]) / 2
    # Between two marks, ends of cells along x, lies a stretch; its middle tells whether a cell
    # covers it.
    covered = ((left <= middle[:, None]) & (middle[:, None] <= right)).any(axis=1)
    steps = np.diff(marks) * np.where(covered, 1.0, _SHRINK)
    x = np.concatenate([[0.0], np.cumsum(steps)])[np.searchsorted(marks, ends[..., 0])]
    return np.stack([x, _SHRINK * ends[..., 1]], axis=-1)


def _is_drawn_in_columns(graph: CellGraph) -> bool:
    """Tell whether all cells lie along x; those of meshes lie in all directions."""
    return bool((np.abs(graph.ends[:, 0, 1] - graph.ends[:, 1, 1]) <= 1e-9).all())
