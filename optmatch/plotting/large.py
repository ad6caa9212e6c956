"""Pictures of switches with many ports or cells: an outline, some ports, and some circuits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.plotting import palette
from optmatch.plotting.blocks import MOST_ROWS, choose_evenly
from optmatch.plotting.drawing import Axes, axes_of, frame
from optmatch.plotting.geometry import MeshData, mesh_data
from optmatch.plotting.slots import (
    CircuitData,
    Drawable,
    parts,
    slot_data,
)

MOST_CELLS = 5000
"""The cells of a larger fabric are below two points on a picture of usual size."""
_MOST_EXAMPLES = 16
_FONT = 9


def is_large(fabric: Fabric) -> bool:
    """Tell whether ports or cells of a fabric are too many to be drawn one by one."""
    if fabric.graph is None:
        return fabric.n_ports > MOST_ROWS
    return fabric.n_cells > MOST_CELLS


def draw_large_switch(ax: Axes, fabric: Fabric) -> None:
    """Draw a switch of many ports as a box with its first and last six ports.

    A fabric is drawn as its outline, too: the cells would be a grey area. Heights are in rows of a
    port, and the box reaches from x = 2 to 10.
    """
    n_ports = fabric.n_ports
    n_named = 6
    rows = [*range(n_named), *range(n_ports - n_named, n_ports)]
    height = 2 * n_named + 1.0

    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((2.0, 0.0), 8.0, height, fc=palette.CELL_FILL, ec=palette.INK, lw=0.8))
    inside = fabric.title if fabric.graph is None else f"{fabric.title}\n{fabric.n_cells:,} cells"
    ax.text(6.0, height / 2, inside, ha="center", va="center", fontsize=_FONT + 2)
    for place, port in enumerate(rows):
        # The gap between the first and the last ports is as high as one of them.
        y = height - 0.5 - place - (place >= n_named)
        ax.plot([1.4, 2.0], [y, y], color=palette.INK, lw=1.0)
        ax.plot([10.0, 10.6], [y, y], color=palette.INK, lw=1.0)
        for x, side in ((1.2, "right"), (10.8, "left")):
            ax.text(x, y, fabric.labels[port], ha=side, va="center", fontsize=_FONT)

    # The gap says how many ports are left out, on both sides of the box.
    n_left_out = n_ports - len(rows)
    for x, side in ((1.8, "right"), (10.2, "left")):
        ax.text(
            x, height / 2, f"{n_left_out:,} more", ha=side, va="center", fontsize=_FONT,
            color=palette.FAINT_INK,
        )  # fmt: skip
    ax.set(xlim=(-2.0, 14.0), ylim=(-0.3, height + 0.3))
    ax.set_axis_off()


def choose_examples(n_circuits: int) -> list[int]:
    """Choose circuits that stand for all, evenly spread, by their places."""
    examples: list[int] = choose_evenly(n_circuits, _MOST_EXAMPLES).tolist()
    return examples


def range_of(numbers: Sequence[int] | NDArray[np.int64]) -> str:
    """Write the least and the largest number, or the one that all are."""
    low = int(min(numbers))
    high = int(max(numbers))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def draw_some_light(shown: Drawable, ax: Axes | None) -> Axes:
    """Draw the light of 16 circuits of slot 0 over the outline of a large fabric.

    `shown` is a solution, or a fabric and a schedule. The scales across and upwards differ, as
    fabrics of many ports are far higher than wide.
    """
    from matplotlib.patches import Rectangle

    fabric, _ = parts(shown)
    data = mesh_data(fabric)
    light = slot_data(shown, 0)
    ax = axes_of(ax, 7.2, 4.8)
    frame(ax, data)
    ax.set_aspect("auto")
    left, lower, right, upper = data.bounds
    style: dict[str, Any] = {"fc": "none", "ec": palette.FAINT_INK, "lw": 0.8}
    ax.add_patch(Rectangle((left, lower), right - left, upper - lower, **style))

    # Circuits that are evenly spread over all; every third point of a curve lies on it.
    chosen = [light.circuits[place] for place in choose_examples(len(light.circuits))]
    for place, circuit in enumerate(chosen):
        ax.plot(*circuit.curve[::3].T, color=palette.circuit_colour(place), lw=1.3)

    # Where all light enters on the left and leaves on the right, circuits have their ports.
    inputs = [mark.position[0] for mark in data.ports if mark.role == "in"]
    outputs = [mark.position[0] for mark in data.ports if mark.role == "out"]
    if inputs and outputs and max(inputs) < min(outputs):
        _name_ends(ax, data, chosen)
    ax.margins(0.1, 0.02)
    ax.autoscale_view()

    n_circuits = len(light.circuits)
    title = f"{fabric.title}: the light of {len(chosen)} chosen circuits of {n_circuits:,}"
    if fabric.graph is not None and n_circuits:
        title += f"\n{light.cells_used:,} of {fabric.n_cells:,} cells; "
        title += f"a circuit passes {range_of([len(c.cells) for c in light.circuits])} cells"
    ax.set_title(title, fontsize=_FONT + 1)
    return ax


def _name_ends(ax: Axes, data: MeshData, circuits: list[CircuitData]) -> None:
    """Write sources on the left and destinations on the right, where numbers do not meet."""
    left, lower, right, upper = data.bounds
    least_distance = 0.05 * (upper - lower)
    gap = 0.02 * (right - left)
    named = [
        [(float(c.curve[0, 1]), float(c.curve[0, 0]) - gap, c.source) for c in circuits],
        [(float(c.curve[-1, 1]), float(c.curve[-1, 0]) + gap, c.destination) for c in circuits],
    ]
    for ends, side in zip(named, ("right", "left"), strict=True):
        # From below upwards, a number is left out if it would touch the last one written.
        last_y = -np.inf
        for y, x, port in sorted(ends):
            if y - last_y >= least_distance:
                ax.text(x, y, f"{port}", fontsize=_FONT, ha=side, va="center")
                last_y = y
