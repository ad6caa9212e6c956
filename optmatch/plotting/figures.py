"""Figures of schedules, fabrics and problems on one switch: slots, tables, heat maps, outlines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import FREE, IDLE, InputError, brief_tuple
from optmatch.plotting import palette
from optmatch.plotting.drawing import (
    MOST_ROWS,
    Axes,
    Figure,
    axes_of,
    blank_figure,
    choose_evenly,
    choose_ticks,
    count,
    draw_blocks,
    draw_lines,
    draw_slot,
    explain_blocks,
    figure_of,
    frame,
    merge_blocks,
    readable_font,
    thin_line,
    wrap_text,
)
from optmatch.plotting.scenes import draw_map
from optmatch.plotting.slots import (
    Drawable,
    MeshData,
    Points,
    SlotData,
    all_slots_data,
    mesh_data,
    parts,
    schedule_data,
    slot_data,
)

MOST_CELLS = 5000
"""The cells of a larger fabric are below two points on a picture of usual size."""
_MOST_EXAMPLES = 16


def is_large(fabric: Fabric) -> bool:
    """Tell whether ports or cells of a fabric are too many to be drawn one by one."""
    if fabric.graph is None:
        return fabric.n_ports > MOST_ROWS
    return fabric.n_cells > MOST_CELLS


def range_of(numbers: Sequence[int] | NDArray[np.int64]) -> str:
    """Write the least and the largest number, or the one that all are."""
    low = int(min(numbers))
    high = int(max(numbers))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


MOST_SLOTS = 12
"""A sheet shows so many slots in full."""
_LEAST_WIDTH = 5.4
"""Inches that the title and the line below a picture take."""
_INCHES_PER_CELL = 0.46
"""Size of new figures: a cell of a 9 x 9 mesh is about a centimetre long."""


def plot_slot(shown: Drawable, slot: int = 0, *, ax: Axes | None = None) -> Axes:
    """Draw one slot: every cell, its state, and the light of each circuit.

    Parameters
    ----------
    shown
        A solution, or a fabric and a schedule.
    slot
        Which slot, from 0.
    ax
        Where to draw; None makes a new figure.

    Returns
    -------
    Axes
        In lengths of a cell, with equal scales.

    See Also
    --------
    slot_data : What is drawn.
    plot_contact_sheet : All slots side by side.
    viewer_page : All slots on a page that follows the light.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> from optmatch.model import Schedule
    >>> schedule = Schedule(matchings=[[1, 0]], durations_s=[1.0])
    >>> plot_slot((IdealSwitch(2), schedule)).get_title()
    '2 circuits'
    """
    fabric, _ = parts(shown)
    data = mesh_data(fabric)
    light = slot_data(shown, slot)
    ax = axes_for(data, ax)
    cell_inches = frame(ax, data)
    draw_slot(ax, fabric, data, light, cell_inches)

    if fabric.graph is not None:
        # The marks of cells and, if written, the names of terminals, as t12, are explained.
        explanation = _MARKS
        written = {text.get_text() for text in ax.texts}
        names = [mark.name for mark in data.ports if mark.name in written]
        terminal_names = [name for name in names if name.startswith("t")]
        if terminal_names:
            name = min(terminal_names)
            explanation += f"; {name}: terminal {name[1:]} of the boundary"
        font = readable_font(ax)
        footer = wrap_text(ax, explanation, font)
        ax.set_xlabel(footer, fontsize=font, color=palette.STATE_COLOURS["bar"])

    counts = [count(len(light.circuits), "circuit")]
    if fabric.graph is not None:
        counts.append(f"{light.cells_used} of {fabric.n_cells} cells")
    n_lost = sum(not circuit.arrives for circuit in light.circuits)
    if n_lost:
        counts.append(f"light lost: {n_lost}")
    number = f"slot {slot} (slots 0 to {light.n_slots - 1}): " if light.n_slots > 1 else ""
    ax.set_title(f"{number}{', '.join(counts)}")
    return ax


def plot_contact_sheet(shown: Drawable, *, fig: Figure | None = None) -> Figure:
    """Draw all slots of a schedule side by side: in each the circuits and the light of the switch.

    Parameters
    ----------
    shown
        A solution, or a fabric and a schedule.
    fig
        An empty figure to draw in; None makes a new one.

    Returns
    -------
    Figure
        One axes for each slot, by rows; of more than twelve slots for twelve of them.

    See Also
    --------
    plot_slot : One slot.
    all_slots_data : What is drawn.
    """
    # Width over height of the layout.
    fabric, schedule = parts(shown)
    data = mesh_data(fabric)
    left, lower, right, upper = data.bounds
    aspect = (right - left) / (upper - lower)

    # Of many slots some are shown in full, evenly spread and with the first and the last one.
    lights = all_slots_data(shown)
    shown_slots = choose_evenly(len(lights), MOST_SLOTS).tolist()
    n_shown = len(shown_slots)

    # The grid of pictures is about 1.5 times as wide as high, without empty columns.
    n_columns = math.ceil(math.sqrt(1.5 * n_shown / aspect))
    n_rows = math.ceil(n_shown / n_columns)
    n_columns = math.ceil(n_shown / n_rows)
    width_inches = min(3.2, 12.5 / n_columns) if n_shown > 1 else 8.0
    row_inches = width_inches / aspect + 0.25
    if fig is None:
        fig = blank_figure(width_inches * n_columns, row_inches * n_rows + 0.6)
    fig.set_layout_engine("constrained")
    grid = fig.add_gridspec(n_rows, n_columns)

    # One picture for each shown slot, row by row. On a mesh it also has the number of cells that
    # change their states (toggles).
    cell_inches = fig.get_figwidth() / n_columns / (right - left)
    for place, slot in enumerate(shown_slots):
        light = lights[slot]
        ax = fig.add_subplot(grid[place // n_columns, place % n_columns])
        frame(ax, data)
        draw_slot(ax, fabric, data, light, cell_inches)
        ax.set_title(f"{slot}", fontsize=9, loc="left", fontweight="bold", pad=16)
        if fabric.graph is not None and light.slot:
            toggles = count(len(light.toggled), "toggle")
            ax.set_title(toggles, fontsize=8, loc="right", color=palette.FAINT_INK, pad=16)

    # The title counts what the whole schedule has.
    counts = [count(fabric.n_ports, "port"), count(schedule.n_slots, "slot")]
    if fabric.graph is not None:
        n_toggles = int(schedule_data(shown).toggles.sum())
        counts += [count(fabric.n_cells, "cell"), count(n_toggles, "toggle")]
        has_numbers = bool(fig.axes[0].texts)
        hint = "" if has_numbers else "; a picture of one slot numbers the ports"
        fig.supxlabel(_MARKS + hint, fontsize=8, color=palette.STATE_COLOURS["bar"])
    if n_shown < len(lights):
        counts.append(f"{n_shown} of the slots, evenly chosen")
    fig.suptitle(f"{fabric.title}: {', '.join(counts)}", fontsize=12)
    return fig


_MARKS = "two strokes: a cell in bar; X: in cross; pale: without light"


def plot_matchings(shown: Drawable, *, ax: Axes | None = None) -> Axes:
    """Draw a table of sources and destinations: in which slot each pair first has a circuit.

    Parameters
    ----------
    shown
        A solution, or a fabric and a schedule; also of a switch without cells.
    ax
        Where to draw; None makes a new figure. With more than 48 ports a square stands for a block
        of pairs.

    Returns
    -------
    Axes
        Rows are sources, columns destinations; entries are slots, counted from 0.

    See Also
    --------
    schedule_data : The table as an array.
    plot_gantt : The circuits of a demand over time.
    """
    fabric, schedule = parts(shown)
    data = schedule_data(shown)
    n_ports = fabric.n_ports
    last_slot = schedule.n_slots - 1
    side_inches = 4.6 if n_ports > MOST_ROWS else max(4.0, 0.3 * n_ports + 1.5)
    room_for_bar = 1.2 if n_ports > MOST_ROWS else 0.0
    ax = axes_of(ax, side_inches + room_for_bar, side_inches)

    # Pairs that never meet are NaN, and white.
    blocks = merge_blocks(np.where(data.meets >= 0, data.meets, np.nan), "mean")
    image = draw_blocks(ax, blocks)
    image.set_clim(0, np.fmax.reduce(blocks.values, axis=None, initial=1.0))
    ticks = choose_ticks(n_ports, 6 if n_ports > MOST_ROWS else n_ports)
    font = readable_font(ax)
    ax.set(xticks=ticks, yticks=ticks)
    ax.set_xlabel("destination port", fontsize=max(10.0, font))
    ax.set_ylabel("source port", fontsize=max(10.0, font))
    ax.tick_params(labelsize=font, length=0)

    # Of few ports each pair has the number of its slot.
    if n_ports <= MOST_ROWS:
        for source, destination in np.argwhere(data.meets >= 0):
            slot = data.meets[source, destination]
            ink = palette.ink_on(image.cmap(image.norm(slot)))
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": font}
            ax.text(destination, source, f"{slot}", color=ink, **style)
        ax.set_title(f"slot in which each pair first meets (slots 0 to {last_slot})")
        return ax

    # Of many ports blocks have the mean slot of their pairs.
    words = "slot" if blocks.size == 1 else "slot, the mean of a square"
    figure_of(ax).colorbar(image, ax=ax, label=words, shrink=0.85, pad=0.02)
    title = f"{fabric.title}: {n_ports:,} ports, {schedule.n_slots:,} slots of "
    title += f"{range_of(data.circuits)} circuits"
    if fabric.graph is not None:
        title += f" and {range_of(data.cells_used)} lit cells"
    square = explain_blocks(blocks.size, "pairs")
    ax.set_title(f"{title};\nsingle circuits are left out\n{square}".strip(), fontsize=9)
    return ax


def plot_fabric(fabric: Fabric, *, ax: Axes | None = None, title: str | None = None) -> Figure:
    """Draw a fabric without light.

    Parameters
    ----------
    fabric
        The switch. Of one that is too large to draw cell by cell (`is_large`) the first and the
        last six ports are drawn, or all if there are no more.
    ax
        Where to draw; None makes a new figure.
    title
        What stands above it; None for the name of the fabric.

    Returns
    -------
    Figure
        The figure of the axes.

    Raises
    ------
    InputError
        If nothing of the fabric can be drawn.
    """
    if is_large(fabric):
        # A box, also for cells, which would be a grey area. It names six ports from either end, or
        # all, on both sides.
        n_first = min(6, (fabric.n_ports + 1) // 2)
        n_last = min(6, fabric.n_ports // 2)
        ports = [*range(n_first), *range(fabric.n_ports - n_last, fabric.n_ports)]
        texts = [fabric.labels[port] for port in ports]
        if len(ports) < fabric.n_ports:
            texts.insert(n_first, f"{fabric.n_ports - len(ports):,} more")
        inside = f"{fabric.title}\n{fabric.n_cells:,} cells" if fabric.n_cells else fabric.title
        height = 0.4 * len(texts)
        nodes: list[list[Any]] = [[1.4, 0.0, 4.0, height, inside, 0, ""]]
        for row, text in enumerate(texts):
            nodes += [[x, 0.4 * row + 0.05, 1.3, 0.3, text, 1, ""] for x in (0.0, 5.5)]
        chart = {
            "legend": [("switch", palette.CELL_FILL), ("ports", "#ffffff")],
            "bounds": [-0.2, -0.2, 7.2, height + 0.4],
            "nodes": nodes,
            "links": [],
            "steps": [{}],
        }
        ax = draw_map(chart, ax)
    else:
        # All cells are free, and ports grey.
        data = mesh_data(fabric)
        ax = axes_for(data, ax)
        states = np.full(fabric.n_cells, FREE, dtype=np.int8)
        dark = SlotData(0, 1, (), states, np.empty(0, dtype=np.int64))
        draw_slot(ax, fabric, data, dark, frame(ax, data))
    font = max(11.0, readable_font(ax))
    ax.set_title(fabric.title if title is None else title, fontsize=font)
    return figure_of(ax)


def axes_for(data: MeshData, ax: Axes | None) -> Axes:
    """Return `ax`, or axes of a new figure in the size that suits a fabric."""
    left, lower, right, upper = data.bounds
    scale = min(_INCHES_PER_CELL, 16.0 / max(right - left, upper - lower))
    width_inches = max(_LEAST_WIDTH, scale * (right - left))
    return axes_of(ax, width_inches, max(2.5, scale * (upper - lower) + 0.9))


def draw_schedule(shown: Drawable, slot: int | None = None, ax: Axes | None = None) -> Figure:
    """Draw one slot, or all: the picture of a kind that has no other.

    All slots are drawn on one sheet, and with `ax`, or of more than 16 ports without cells, as a
    table of the pairs that meet in them.
    Where ports or cells are too many to be told apart, blocks of ports and chosen circuits are
    drawn instead. A slot that is asked for by its number is drawn whole.
    """
    fabric, schedule = parts(shown)
    if slot is not None or (schedule.n_slots == 1 and not is_large(fabric)):
        return figure_of(plot_slot(shown, slot or 0, ax=ax))
    if schedule.n_slots == 1:
        return figure_of(_draw_ring(fabric, schedule.matchings[0], ax))
    if ax is None and not is_large(fabric) and (fabric.graph or fabric.n_ports <= _MOST_EXAMPLES):
        return plot_contact_sheet(shown)
    return figure_of(plot_matchings(shown, ax=ax))


_COLOURS = "cividis"  # even in lightness, and for readers who do not see red or green


@brief_tuple
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


def draw_fabric(problem: Any, ax: Axes | None = None) -> Figure:
    """Draw the switch that a problem is asked of, without light, into `ax` or a new figure.

    An `InputError` says that the problem has no switch.
    """
    if problem.fabric is None:
        raise InputError(f"nothing to draw: a problem of kind {problem.kind} has no switch")
    fabric = problem.fabric
    title = f"{problem.kind} on {fabric.title}"
    if is_large(fabric):
        title += f" of {fabric.n_ports:,} ports"
    return plot_fabric(fabric, ax=ax, title=title)


def list_ports(problem: Any) -> dict[str, Any]:
    """List a row for each port."""
    names = [] if problem.fabric is None else problem.fabric.port_names
    return {"port": np.arange(len(names)), "name": names}


def list_pairs(problem: Any) -> dict[str, Any]:
    """List a row for each pair that has to meet."""
    source, destination = np.array(problem.pairs, dtype=np.int64).reshape(-1, 2).T
    return _name_circuits(problem.fabric, source, destination)


def list_circuits(problem: Any) -> dict[str, Any]:
    """List a row for each circuit that is asked for."""
    source = np.flatnonzero(problem.matching != IDLE)
    return _name_circuits(problem.fabric, source, problem.matching[source])


def _name_circuits(
    fabric: Fabric, source: NDArray[np.int64], destination: NDArray[np.int64]
) -> dict[str, Any]:
    """List a row for each circuit, with the names of its ports."""
    names = np.array(fabric.labels)
    return {
        "source": source,
        "destination": destination,
        "from": names[source],
        "to": names[destination],
    }


_MOST_CHORDS = 128
"""A chord diagram of more ports would be a grey disk: chosen circuits stand for all."""


def draw_circuits(problem: Any, ax: Axes | None = None) -> Figure:
    """Draw the circuits that a problem asks for, into `ax` or a new figure."""
    return figure_of(_draw_ring(problem.fabric, problem.matching, ax))


def _draw_ring(fabric: Fabric, matching: NDArray[np.int32], ax: Axes | None) -> Axes:
    """Draw ports on a ring, and a line between the two ports of each circuit (a chord diagram).

    ``matching[source]`` is the port that a source is joined to, `IDLE` for none. Port 0 is at the
    top, the others follow clockwise. On a switch whose circuits go one way, arrows show where
    light goes. With more than 128 ports the picture has 16 circuits, evenly spread over their
    sources, with their ports.
    """
    # A circuit of both ways is drawn from its lower port.
    sources = np.flatnonzero(matching != IDLE)
    if fabric.bidirectional:
        sources = sources[sources <= matching[sources]]
    n_circuits = len(sources)
    ports = np.arange(fabric.n_ports)
    if fabric.n_ports > _MOST_CHORDS:
        sources = sources[choose_evenly(n_circuits, _MOST_EXAMPLES)]
        ports = np.union1d(sources, matching[sources])

    # Boxes are as wide as the longest name, and the ring has room for all.
    names = [fabric.labels[port] for port in ports]
    width = 0.3 + 0.15 * max(map(len, names), default=1)
    radius = max(1.5, (width + 0.15) * len(names) / (2 * np.pi))
    angle = 2 * np.pi * np.arange(len(names)) / max(1, len(names))
    corners = np.stack([np.sin(angle), -np.cos(angle)], axis=1) * radius - [width / 2, 0.2]
    nodes = []
    for (x, y), name in zip(corners.tolist(), names, strict=True):
        nodes.append([x, y, width, 0.4, name, 0, f"port {name}"])

    # Neighbouring circuits have different colours.
    hues = palette.CIRCUIT_COLOURS[:8]
    links = []
    for place, source in enumerate(sources.tolist()):
        tail, head = np.searchsorted(ports, [source, matching[source]]).tolist()
        links.append([tail, head, 1 + place % len(hues), 0.1, ""])
    side = 2 * radius + width + 0.4
    chart = {
        "legend": [("port", palette.CELL_FILL), *(("circuit", hue) for hue in hues)],
        "bounds": [-side / 2, -side / 2, side, side],
        "nodes": nodes,
        "links": links,
        "steps": [{}],
        "is_directed": not fabric.bidirectional,
    }
    ax = draw_map(chart, ax)
    title = f"{count(n_circuits, 'circuit')} of {fabric.n_ports:,} ports on {fabric.title}"
    if len(sources) < n_circuits:
        title = f"{len(sources)} chosen circuits of {n_circuits:,}\n{title}"
    ax.set_title(title, fontsize=readable_font(ax) + 1)
    return ax
