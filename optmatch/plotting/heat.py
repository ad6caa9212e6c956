"""Cells of a fabric coloured by a figure: where the critical ones are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import InputError
from optmatch.plotting import palette
from optmatch.plotting.figures import new_figure
from optmatch.plotting.geometry import MeshData, Points, mesh_data
from optmatch.plotting.strokes import frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = "cividis"  # even in lightness, and for readers who do not see red or green


class HeatData(NamedTuple):
    """A fabric with a figure for each cell."""

    mesh: MeshData
    bodies: Points
    """``bodies[cell]``: both ends of what is drawn of a cell, shape (cells, 2, 2)."""
    values: NDArray[np.float64]
    """``values[cell]``; NaN where there is none."""


def heat_data(fabric: Fabric, values: NDArray[np.float64]) -> HeatData:
    """Lay out a fabric with a figure for each cell.

    Parameters
    ----------
    fabric
        A fabric with cells.
    values
        Shape (cells,); NaN where there is none.

    Raises
    ------
    InputError
        If there are no cells, or not one figure for each.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> heat_data(HexMesh(1, 1), np.arange(6.0)).bodies.shape
    (6, 2, 2)
    """
    graph = fabric.graph
    given = np.asarray(values, dtype=np.float64)
    if graph is None or given.shape != (fabric.n_cells,):
        raise InputError(
            f"values of shape {given.shape}: one for each of {fabric.n_cells} cells",
            where="values",
        )
    a, b = graph.ends[:, 0], graph.ends[:, 1]
    inset = 0.2 * (b - a)
    return HeatData(mesh_data(fabric), np.stack([a + inset, b - inset], axis=1), given)


def plot_heat(
    fabric: Fabric,
    values: NDArray[np.float64],
    *,
    label: str,
    ax: Axes | None = None,
) -> Axes:
    """Draw a fabric with every cell coloured by its figure; cells without one are hollow.

    Parameters
    ----------
    fabric, values
        As for `heat_data`.
    label
        What the colours mean, with the unit.
    ax
        Where to draw; None makes a new figure.
    """
    from matplotlib.collections import LineCollection

    data = heat_data(fabric, values)
    ax = ax or new_figure(fabric).add_subplot()
    stroke = 72 * frame(ax, data.mesh)
    links = data.mesh.links[:, [0, 3]]
    ax.add_collection(
        LineCollection(
            list(links),
            colors=palette.STATE_COLOURS["free"],
            linewidths=max(0.25, 0.022 * stroke),
            label="links",
        )
    )
    known = ~np.isnan(data.values)
    shape: dict[str, Any] = {"linewidths": 0.34 * stroke, "capstyle": "butt", "zorder": 2}
    ax.add_collection(
        LineCollection(
            list(data.bodies[~known]), colors=palette.CELL_FILL, label="unknown", **shape
        )
    )
    cells = LineCollection(list(data.bodies[known]), cmap=COLOURS, label="cells", **shape)
    cells.set_array(data.values[known])
    cells.set_clim(0.0, max(1e-12, float(np.nanmax(data.values, initial=0.0))))
    ax.add_collection(cells)
    for mark in data.mesh.ports:
        ax.plot(*mark.position, marker="o", markersize=3, color=palette.FAINT_INK)
    figure: Any = ax.get_figure(root=True)
    figure.colorbar(cells, ax=ax, label=label, shrink=0.8)
    return ax
