"""Figures of schedules: one slot, all slots, and a table of partners by port and slot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import FREE, scale_of
from optmatch.plotting import palette
from optmatch.plotting.blocks import (
    MOST_ROWS,
    choose_evenly,
    draw_blocks,
    explain_blocks,
    merge_blocks,
)
from optmatch.plotting.drawing import (
    Axes,
    Figure,
    axes_of,
    blank_figure,
    count,
    draw_slot,
    figure_of,
    frame,
    readable_font,
)
from optmatch.plotting.geometry import MeshData, mesh_data
from optmatch.plotting.large import draw_large_switch, draw_some_light, is_large, range_of
from optmatch.plotting.slots import (
    Drawable,
    SlotData,
    all_slots_data,
    parts,
    schedule_data,
    slot_data,
)

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
    'slot 0 (0 to 0): 2 circuits'
    """
    fabric, _ = parts(shown)
    data = mesh_data(fabric)
    light = slot_data(shown, slot)
    ax = axes_for(data, ax)
    cell_inches = frame(ax, data)
    draw_slot(ax, fabric, data, light, cell_inches)

    if fabric.graph is not None:
        marks = _explain_marks(ax, data)
        ax.set_xlabel(marks, fontsize=readable_font(ax), color=palette.STATE_COLOURS["bar"])

    counts = [count(len(light.circuits), "circuit")]
    if fabric.graph is not None:
        counts.append(f"{light.cells_used} of {fabric.n_cells} cells")
    n_lost = sum(not circuit.arrives for circuit in light.circuits)
    if n_lost:
        counts.append(f"light lost: {n_lost}")
    ax.set_title(f"slot {slot} (0 to {light.n_slots - 1}): {', '.join(counts)}")
    return ax


def _explain_marks(ax: Axes, data: MeshData) -> str:
    """Explain the marks of cells and, if some are written, the names of terminals, as t12.

    The texts of `ax` are already there. The explanation has two lines on a narrow figure.
    """
    written = {text.get_text() for text in ax.texts}
    terminal_names = []
    for mark in data.ports:
        if mark.name in written and mark.name.startswith("t"):
            terminal_names.append(mark.name)
    if not terminal_names:
        return _MARKS

    # On a narrow figure one line would be cut off.
    separator = " " if figure_of(ax).get_figwidth() > 6.5 else "\n"
    name = min(terminal_names)
    return f"{_MARKS};{separator}{name}: terminal {name[1:]} of the boundary"


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
    ax.set(xlabel="destination port", ylabel="source port")

    # Of few ports each pair has the number of its slot.
    if n_ports <= MOST_ROWS:
        shade = np.ma.masked_less(data.meets, 0)
        image = ax.imshow(shade, cmap="cividis", vmin=0, vmax=max(1, last_slot))
        ax.set(xticks=range(n_ports), yticks=range(n_ports))
        font = readable_font(ax)
        ax.tick_params(labelsize=font, length=0)
        for source, destination in np.argwhere(data.meets >= 0):
            slot = data.meets[source, destination]
            ink = palette.ink_on(image.cmap(image.norm(slot)))
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": font}
            ax.text(destination, source, f"{slot}", color=ink, **style)
        ax.set_title(f"slot in which each pair first meets (0 to {last_slot})")
        return ax

    # Of many ports blocks have the mean slot of their pairs. Pairs that never meet are NaN.
    blocks = merge_blocks(np.where(data.meets >= 0, data.meets, np.nan), "mean")
    words = "slot" if blocks.size == 1 else "slot, the mean of a square"
    draw_blocks(ax, blocks, n_ports, words)
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
        The switch. Of very many cells or ports the first and the last ports are drawn.
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
        ax = axes_of(ax, 6.0, 4.2)
        draw_large_switch(ax, fabric)
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


def draw_bars(
    ax: Axes,
    start: NDArray[np.floating],
    end: NDArray[np.floating],
    low: NDArray[np.floating],
    high: NDArray[np.floating],
    **style: Any,
) -> None:
    """Draw many rectangles at once, such as bars over time.

    Each reaches across from `start` to `end`, and up from `low` to `high`, arrays of shape
    (bars,). The style has properties of a ``PolyCollection``, such as colours.
    """
    from matplotlib.collections import PolyCollection

    x = np.stack([start, end, end, start], axis=1)
    y = np.stack([low, low, high, high], axis=1)
    ax.add_collection(PolyCollection(list(np.stack([x, y], axis=2)), **style))


def label_time(ax: Axes, span_s: float, rows: int) -> None:
    """Set limits and units of a chart over time: time to the right, rows downwards.

    What is drawn is in seconds; ticks are written in a unit that suits the span. The middles of
    the rows are at 0, 1, 2, ...
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    scale, unit = scale_of(span_s, "s")
    ticks = MaxNLocator(8, steps=[1, 2, 5, 10]).tick_values(0.0, span_s / scale or 1.0)
    ax.set(xlim=(0, (span_s or 1.0) * 1.01), ylim=(rows - 0.4, -0.6))
    ax.tick_params(labelsize=8)
    ax.set_xticks([tick * scale for tick in ticks if tick * scale <= 1.01 * (span_s or 1.0)])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda time_s, _: f"{time_s / scale:.4g}"))
    ax.set_xlabel(f"time in {unit}")


def chart_axes(ax: Axes | None, rows: int, row_inches: float) -> Axes:
    """Return `ax`, or axes of a new figure for a chart over time of so many rows."""
    return axes_of(ax, 10.0, min(30.0, max(2.5, row_inches * rows + 1.2)))


def draw_schedule(shown: Drawable, slot: int | None = None, ax: Axes | None = None) -> Figure:
    """Draw one slot, or all: the picture of a kind that has no other.

    All slots are drawn on one sheet, and with `ax` as a table of the pairs that meet in them.
    Where ports or cells are too many to be told apart, blocks of ports and chosen circuits are
    drawn instead. A slot that is asked for by its number is drawn whole.
    """
    fabric, schedule = parts(shown)
    if slot is not None or (schedule.n_slots == 1 and not is_large(fabric)):
        return figure_of(plot_slot(shown, slot or 0, ax=ax))
    if schedule.n_slots == 1:
        return figure_of(draw_some_light(shown, ax))
    if ax is None and not is_large(fabric):
        return plot_contact_sheet(shown)
    return figure_of(plot_matchings(shown, ax=ax))
