"""Heat maps of a fabric: every cell coloured by a figure."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import InputError
from optmatch.plotting import palette
from optmatch.plotting.drawing import Axes, draw_lines, figure_of, frame, thin_line
from optmatch.plotting.figures import axes_for
from optmatch.plotting.geometry import MeshData, Points, mesh_data

_COLOURS = "cividis"  # even in lightness, and for readers who do not see red or green


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
    # A bar of heat is drawn inside its cell, a fifth of the cell away from both ends.
    end_a = graph.ends[:, 0]
    end_b = graph.ends[:, 1]
    inset = 0.2 * (end_b - end_a)
    bars = np.stack([end_a + inset, end_b - inset], axis=1)
    return HeatData(mesh_data(fabric), bars, given)


def plot_heat(
    fabric: Fabric, values: NDArray[np.float64], *, label: str, ax: Axes | None = None
) -> Axes:
    """Draw a fabric with every cell coloured by its figure; cells without one are pale.

    Parameters
    ----------
    fabric
        A fabric with cells.
    values : array, shape (cells,)
        The figure of each cell, 0 or more; NaN for none.
    label
        The meaning of the colours, with the unit.
    ax
        Where to draw; None makes a new figure.

    Returns
    -------
    Axes
        The axes, in lengths of a cell; the colours begin at 0.

    See Also
    --------
    heat_data : What is drawn.
    plot_slot : The states of the cells, and the light through them.
    """
    data = heat_data(fabric, values)
    ax = axes_for(data.mesh, ax)
    stroke = 72 * frame(ax, data.mesh)

    # Links between cells (x and y of both ends) are thin lines, and cells short thick ones.
    links = data.mesh.links[:, [0, 3]]
    draw_lines(ax, links, palette.STATE_COLOURS["free"], thin_line(stroke), "links")
    is_known = ~np.isnan(data.values)
    style: dict[str, Any] = {"capstyle": "butt", "zorder": 2}
    width = 0.34 * stroke
    draw_lines(ax, data.bodies[~is_known], palette.CELL_FILL, width, "unknown", **style)

    # Cells with a figure take their colours from a scale that begins at 0.
    cells = draw_lines(ax, data.bodies[is_known], None, width, "cells", cmap=_COLOURS, **style)
    cells.set_array(data.values[is_known])
    cells.set_clim(0.0, max(1e-12, float(np.nanmax(data.values, initial=0.0))))
    for mark in data.mesh.ports:
        ax.plot(*mark.position, marker="o", markersize=3, color=palette.FAINT_INK)
    figure_of(ax).colorbar(cells, ax=ax, label=label, shrink=0.8)
    return ax
