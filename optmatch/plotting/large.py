"""Pictures of switches with many ports: blocks of ports, chosen circuits, and figures by slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import FREE, IDLE
from optmatch.plotting import palette
from optmatch.plotting.blocks import (
    MOST_ROWS,
    choose_evenly,
    choose_ticks,
    draw_blocks,
    explain_blocks,
    merge_blocks,
)
from optmatch.plotting.drawing import blank_figure, frame
from optmatch.plotting.geometry import MeshData, mesh_data
from optmatch.plotting.slots import (
    CircuitData,
    Drawable,
    SlotData,
    parts,
    schedule_data,
    slot_data,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CELLS = 5000
"""The cells of a larger fabric are below two points on a picture of usual size."""
_MOST_EXAMPLES = 16
_MOST_CHORDS = 128
_FONT = 9


def is_large(fabric: Fabric) -> bool:
    """Tell whether ports or cells of a fabric are too many to be drawn one by one."""
    if fabric.graph is None:
        return fabric.n_ports > MOST_ROWS
    return fabric.n_cells > MOST_CELLS


def is_large_matching(fabric: Fabric) -> bool:
    """Tell whether a chord diagram of all ports would be a grey disk."""
    return fabric.n_ports > _MOST_CHORDS


def draw_large_switch(ax: Axes, fabric: Fabric) -> None:
    """Draw a switch of many ports as a box with its first and last six ports.

    A fabric is drawn as its outline, too: the cells would be a grey area.
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
    ax.set_xlim(-2.0, 14.0)
    ax.set_ylim(-0.3, height + 0.3)
    ax.set_axis_off()


def draw_large_matching(fabric: Fabric, matching: NDArray[Any], title: str) -> Figure:
    """Draw the number of circuits between blocks of ports, and 16 circuits as chords.

    Ports stand clockwise on a ring, port 0 at the top. The chosen circuits are evenly spread over
    their sources, which have a dot.
    """
    figure = blank_figure(9.0, 4.6)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
    sources = np.flatnonzero(matching != IDLE)
    _draw_circuits_by_block(left, fabric.n_ports, sources, matching[sources])

    # Chosen circuits as chords of a ring; positions are clockwise from the top.
    examples = choose_examples(sources)
    ring = 2 * np.pi * np.linspace(0, 1, 200)
    right.plot(np.sin(ring), np.cos(ring), color=palette.FAINT_INK, lw=1.0)
    for place, source in enumerate(examples.tolist()):
        ends = np.array([source, int(matching[source])])
        angle = 2 * np.pi * ends / fabric.n_ports
        x = np.sin(angle)
        y = np.cos(angle)
        colour = palette.circuit_colour(place)
        right.plot(x, y, color=colour, lw=1.4)
        right.plot(x[0], y[0], "o", color=colour, ms=4)
    for port in choose_ticks(fabric.n_ports, 8).tolist():
        # The last number would stand on the 0 at the top.
        if port > 0.95 * fabric.n_ports:
            continue
        angle_of_port = 2 * np.pi * port / fabric.n_ports
        x_of_port = 1.16 * np.sin(angle_of_port)
        y_of_port = 1.1 * np.cos(angle_of_port)
        right.text(x_of_port, y_of_port, f"{port}", ha="center", va="center", fontsize=_FONT)
    right.set_xlim(-1.35, 1.35)
    right.set_ylim(-1.25, 1.25)
    right.set_aspect("equal")
    right.set_axis_off()
    right.set_title(
        f"{len(examples)} chosen circuits of {len(sources):,}\na dot: the source",
        fontsize=_FONT,
    )
    figure.suptitle(title, fontsize=_FONT + 2)
    return figure


def choose_examples(sources: NDArray[np.int64]) -> NDArray[np.int64]:
    """Choose circuits that are evenly spread over their sources."""
    return sources[choose_evenly(len(sources), _MOST_EXAMPLES)]


def _draw_circuits_by_block(
    ax: Axes, n_ports: int, sources: NDArray[np.int64], destinations: NDArray[Any]
) -> None:
    """Draw circuits between blocks of ports as shades: destinations across, sources down."""
    matrix = np.zeros((n_ports, n_ports), dtype=np.float32)
    matrix[sources, destinations] = 1.0
    blocks = merge_blocks(matrix, "sum", most=48)

    # Squares without circuits stay white.
    shown_blocks = blocks._replace(values=np.where(blocks.values > 0, blocks.values, np.nan))
    draw_blocks(ax, shown_blocks, n_ports, "circuits")
    ax.set_xlabel("destination port", fontsize=_FONT)
    ax.set_ylabel("source port", fontsize=_FONT)
    square = explain_blocks(blocks.size, "pairs of ports")
    ax.set_title(f"all circuits\n{square}", fontsize=_FONT)


def draw_large_schedule(shown: Drawable) -> Figure:
    """Draw by blocks of ports in which slot pairs first meet, and the circuits of each slot.

    A schedule of one slot shows where its circuits lead, and the light of some of them.
    """
    fabric, schedule = parts(shown)

    # A single slot has no course of time: its circuits are drawn instead.
    if schedule.n_slots == 1:
        return _draw_large_slot(shown)
    # The left panel is as high as all panels on the right together.
    data = schedule_data(shown)
    n_panels = 1 if fabric.graph is None else 2
    figure = blank_figure(9.6, 4.6)
    panels = figure.subplot_mosaic([["meets", f"by slot {k}"] for k in range(n_panels)])

    # Pairs that never meet are NaN, and do not count in the mean of their block.
    meets = np.where(data.meets >= 0, data.meets, np.nan)
    blocks = merge_blocks(meets, "mean")
    words = "slot" if blocks.size == 1 else "slot, the mean of a square"
    draw_blocks(panels["meets"], blocks, fabric.n_ports, words)
    panels["meets"].set_xlabel("destination port", fontsize=_FONT)
    panels["meets"].set_ylabel("source port", fontsize=_FONT)
    square = explain_blocks(blocks.size, "pairs")
    panels["meets"].set_title(f"when pairs first meet\n{square}".strip(), fontsize=_FONT)

    # Right: circuits over slots and, on a mesh, cells that light passes.
    _draw_by_slot(panels["by slot 0"], data.circuits, "circuits")
    if fabric.graph is not None:
        _draw_by_slot(panels["by slot 1"], data.cells_used, "cells with light")
    figure.suptitle(
        f"{fabric.title}: {fabric.n_ports:,} ports, {schedule.n_slots:,} slots; "
        "single circuits are left out",
        fontsize=_FONT + 2,
    )
    return figure


def _draw_by_slot(ax: Axes, counts: NDArray[np.int64], name: str) -> None:
    """Draw a figure of each slot as stairs."""
    from matplotlib.ticker import MaxNLocator

    edges = np.arange(len(counts) + 1) - 0.5
    ax.stairs(counts, edges, fill=True, color=palette.circuit_colour(0))
    ax.set_ylim(0, 1.15 * max(1, int(counts.max())))
    ax.set_xlim(-0.5, len(counts) - 0.5)
    ax.set_xticks(choose_ticks(len(counts), 5))
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    ax.tick_params(labelsize=_FONT)
    ax.set_xlabel("slot", fontsize=_FONT)
    ax.set_title(f"{name} of each slot", fontsize=_FONT)


def _draw_large_slot(shown: Drawable) -> Figure:
    """Draw slot 0 of many ports: circuits by blocks of ports, and the light of 16 of them."""
    fabric, _ = parts(shown)
    light = slot_data(shown, 0)
    ends = np.array([(circuit.source, circuit.destination) for circuit in light.circuits])
    figure = blank_figure(9.6, 4.8)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
    _draw_circuits_by_block(left, fabric.n_ports, ends[:, 0], ends[:, 1])

    data = mesh_data(fabric)

    # On the right, circuits that are evenly spread over all.
    chosen = choose_evenly(len(light.circuits), _MOST_EXAMPLES)
    _draw_chosen_light(right, data, light, chosen.tolist())
    n_cells = [len(light.circuits[k].cells) for k in range(len(light.circuits))]
    passed = "" if fabric.graph is None else f"\na circuit passes {_range_of(n_cells)} cells"
    right.set_title(
        f"the light of {len(chosen)} chosen circuits of {len(ends):,}{passed}", fontsize=_FONT
    )
    n_lit = int((light.states != FREE).sum())
    lit = "" if fabric.graph is None else f", {n_lit:,} of {fabric.n_cells:,} cells"
    figure.suptitle(f"{fabric.title}: {len(ends):,} circuits{lit}", fontsize=_FONT + 2)
    return figure


def _range_of(numbers: list[int]) -> str:
    """Write the least and the largest number, or the one that all are."""
    low = min(numbers)
    high = max(numbers)
    return f"{low}" if low == high else f"{low} to {high}"


def _draw_chosen_light(ax: Axes, data: MeshData, light: SlotData, chosen: list[int]) -> None:
    """Draw the light of chosen circuits over the outline of their fabric.

    The scales across and upwards differ.
    """
    from matplotlib.patches import Rectangle

    # Fabrics of many ports are far higher than wide: the scales of both axes differ.
    frame(ax, data)
    ax.set_aspect("auto")
    left, lower, right, upper = data.bounds
    box = Rectangle(
        (left, lower), right - left, upper - lower, fc="none", ec=palette.FAINT_INK, lw=0.8
    )
    ax.add_patch(box)
    for place, k in enumerate(chosen):
        circuit = light.circuits[k]
        points = circuit.curve[::3]  # every third point lies on the curve
        ax.plot(points[:, 0], points[:, 1], color=palette.circuit_colour(place), lw=1.3)
    if _is_feed_forward(data):
        _name_ends(ax, data, [light.circuits[k] for k in chosen])
    ax.margins(0.1, 0.02)
    ax.autoscale_view()


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


def _is_feed_forward(data: MeshData) -> bool:
    """Tell whether all light enters on the left and leaves on the right of a fabric."""
    inputs = [mark.position[0] for mark in data.ports if mark.role == "in"]
    outputs = [mark.position[0] for mark in data.ports if mark.role == "out"]
    return bool(inputs) and bool(outputs) and max(inputs) < min(outputs)
