"""Figures of schedules: one slot, all slots, and a table of partners by port and slot."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import FREE, scale_of
from optmatch.plotting import palette
from optmatch.plotting.drawing import blank_figure, count, draw_slot, frame
from optmatch.plotting.geometry import MeshData, mesh_data
from optmatch.plotting.large import (
    draw_large_schedule,
    is_large,
)
from optmatch.plotting.slots import (
    Drawable,
    SlotData,
    all_slots_data,
    parts,
    schedule_data,
    slot_data,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_SLOTS = 12
"""A sheet shows so many slots in full."""
_LEAST_WIDTH = 5.4
"""Inches that the title and the line below a picture take."""
INCHES_PER_CELL = 0.46
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
    if ax is None:
        ax = new_figure(data).add_subplot()
    cell_inches = frame(ax, data)
    draw_slot(ax, fabric, data, light, cell_inches)

    if fabric.graph is not None:
        width_inches = _figure_width(ax)
        ax.set_xlabel(
            _explain_marks(ax, data, width_inches),
            fontsize=max(8.0, 0.64 * width_inches),
            color=palette.STATE_COLOURS["bar"],
        )

    counts = [count(len(light.circuits), "circuit")]
    if fabric.graph is not None:
        counts.append(f"{light.cells_used} of {fabric.n_cells} cells")
    n_lost = sum(not circuit.arrives for circuit in light.circuits)
    if n_lost:
        counts.append(f"light lost: {n_lost}")
    ax.set_title(f"slot {slot} (0 to {light.n_slots - 1}): {', '.join(counts)}")
    return ax


def _explain_marks(ax: Axes, data: MeshData, width_inches: float) -> str:
    """Explain the marks of cells and, if some are written, the names of terminals, as t12.

    Parameters
    ----------
    ax
        The axes, whose texts are already there.
    data
        The layout of the fabric, with the names of ports.
    width_inches
        The width of the figure; on one of at most 6.5 inches the explanation has two lines.
    """
    written = {text.get_text() for text in ax.texts}
    terminal_names = []
    for mark in data.ports:
        if mark.name in written and mark.name.startswith("t"):
            terminal_names.append(mark.name)
    if not terminal_names:
        return _MARKS

    # On a narrow figure one line would be cut off.
    separator = " " if width_inches > 6.5 else "\n"
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
        One axes for each slot, by rows; of more than twelve slots for twelve of them, and below
        a strip of thumbnails of all.

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
    n_shown = min(MOST_SLOTS, len(lights))
    has_strip = n_shown < len(lights)
    evenly_spread = np.linspace(0, len(lights) - 1, n_shown).round().astype(int)
    shown_slots = np.unique(evenly_spread).tolist()

    # The grid of pictures is about 1.5 times as wide as high, without empty columns. Below it a
    # last row may hold the strip of thumbnails.
    n_columns = math.ceil(math.sqrt(1.5 * n_shown / aspect))
    n_rows = math.ceil(n_shown / n_columns)
    n_columns = math.ceil(n_shown / n_rows)
    width_inches = min(3.2, 12.5 / n_columns) if n_shown > 1 else 8.0
    row_inches = width_inches / aspect + 0.25
    row_heights = [1.0] * n_rows
    strip_inches = 0.0
    if has_strip:
        strip_inches = _strip_height(len(lights), width_inches * n_columns, aspect)
        row_heights.append(strip_inches / row_inches)
    if fig is None:
        fig = blank_figure(width_inches * n_columns, row_inches * n_rows + 0.6 + strip_inches)
    fig.set_layout_engine("constrained")
    grid = fig.add_gridspec(len(row_heights), n_columns, height_ratios=row_heights)

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
    if has_strip:
        counts.append(f"{n_shown} slots in full, all below")
        _draw_strip(fig.add_subplot(grid[-1, :]), data, lights, fig.get_figwidth())
    fig.suptitle(f"{fabric.title}: {', '.join(counts)}", fontsize=12)
    return fig


_MARKS = "two strokes: a cell in bar; X: in cross; pale: without light"

# Inches from one thumbnail of a strip to the next.
_THUMBNAIL_INCHES = 0.5

# Slots of a strip that have their numbers.
_MAX_NUMBERED_THUMBNAILS = 40


def _figure_width(ax: Axes) -> float:
    """Return the width of the whole figure in inches."""
    figure: Any = ax.get_figure(root=True)
    return float(figure.get_figwidth())


def _thumbnails_per_row(width_inches: float) -> int:
    return max(1, int(width_inches / _THUMBNAIL_INCHES))


def _strip_height(n_slots: int, width_inches: float, aspect: float) -> float:
    """Return the height in inches of a strip of thumbnails; `aspect` is width over height."""
    n_rows = math.ceil(n_slots / _thumbnails_per_row(width_inches))
    return n_rows * (_THUMBNAIL_INCHES / aspect + 0.13) + 0.1


def _draw_strip(
    ax: Axes, data: MeshData, lights: tuple[SlotData, ...], width_inches: float
) -> None:
    """Draw the light of every slot as a thumbnail with its number.

    Parameters
    ----------
    ax
        The axes, over the whole width of the figure.
    data
        The layout of the fabric, whose bounds in lengths of a cell are those of a thumbnail.
    lights
        All slots, each with its number and the curves of its circuits, cubic Bezier pieces of
        shape (1 + 3 * pieces, 2).
    width_inches
        The width of the figure, which says how many thumbnails stand beside each other.
    """
    from matplotlib.collections import LineCollection

    # Thumbnails have gaps of 12 %, and above them room for numbers; of very many slots only some
    # have numbers.
    left, lower, right, upper = data.bounds
    per_row = _thumbnails_per_row(width_inches)
    pitch_x = 1.12 * (right - left)
    pitch_y = 1.12 * (upper - lower + 0.16 * (right - left))
    numbered_every = max(1, math.ceil(len(lights) / _MAX_NUMBERED_THUMBNAILS))

    # Each slot is moved to its place: with ten thumbnails in a row, slot 23 is the fourth one of
    # the third row.
    lines = []
    colours = []
    for light in lights:
        shift_x = light.slot % per_row * pitch_x
        shift_y = -(light.slot // per_row) * pitch_y
        for k, circuit in enumerate(light.circuits):
            # Every third point lies on the curve, the others are its handles.
            lines.append(circuit.curve[::3] + np.array([shift_x, shift_y]))
            colours.append(light.colour(k))
        if light.slot % numbered_every == 0:
            x = shift_x + (left + right) / 2
            y = shift_y + upper + 0.01 * pitch_y
            ax.text(x, y, str(light.slot), fontsize=8, ha="center", va="bottom")

    # All lines are one collection, which is drawn quickly.
    ax.add_collection(LineCollection(lines, colors=colours, linewidths=0.5))
    ax.set_xlim(left, left + per_row * pitch_x)
    ax.set_ylim(lower - (len(lights) - 1) // per_row * pitch_y, upper + 0.3 * pitch_y)
    ax.set_aspect("equal")
    ax.set_axis_off()


def plot_matchings(shown: Drawable, *, ax: Axes | None = None) -> Axes:
    """Draw a table of sources and destinations: in which slot each pair first has a circuit.

    Parameters
    ----------
    shown
        A solution, or a fabric and a schedule; also of a switch without cells.
    ax
        Where to draw; None makes a new figure.

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
    meets = schedule_data(shown).meets
    n = fabric.n_ports
    if ax is None:
        side = min(14.0, max(4.0, 0.3 * n + 1.5))
        ax = blank_figure(side, side).add_subplot()
    shade = np.ma.masked_less(meets, 0)
    image = ax.imshow(shade, cmap="cividis", vmin=0, vmax=max(1, schedule.n_slots - 1))

    # Few ports have room for numbers.
    if n <= 48:
        ax.set_xticks(range(n))
        ax.set_yticks(range(n))
        font = max(8.0, 0.64 * _figure_width(ax))
        ax.tick_params(labelsize=font, length=0)
        for i, j in np.argwhere(meets >= 0):
            ink = palette.ink_on(image.cmap(image.norm(meets[i, j])))
            ax.text(j, i, f"{meets[i, j]}", ha="center", va="center", fontsize=font, color=ink)
    ax.set_xlabel("destination port")
    ax.set_ylabel("source port")
    ax.set_title(f"slot in which each pair first meets (0 to {schedule.n_slots - 1})")
    return ax


def draw_fabric(ax: Axes, fabric: Fabric) -> None:
    """Draw a fabric without light into `ax`: all cells free, ports in grey."""
    data = mesh_data(fabric)
    states = np.full(fabric.n_cells, FREE, dtype=np.int8)
    dark = SlotData(0, 1, (), states, np.empty(0, dtype=np.int64))
    draw_slot(ax, fabric, data, dark, frame(ax, data))


def new_figure(data: MeshData) -> Figure:
    """Make a figure, without pyplot, in the size that suits a fabric."""
    left, lower, right, upper = data.bounds
    scale = min(INCHES_PER_CELL, 16.0 / max(right - left, upper - lower))
    width_inches = max(_LEAST_WIDTH, scale * (right - left))
    return blank_figure(width_inches, max(2.5, scale * (upper - lower) + 0.9))


def draw_bars(
    ax: Axes,
    start: NDArray[np.floating],
    end: NDArray[np.floating],
    low: NDArray[np.floating],
    high: NDArray[np.floating],
    **style: Any,
) -> None:
    """Draw many rectangles at once, such as bars over time.

    Parameters
    ----------
    ax
        The axes.
    start, end : array, shape (bars,)
        Where each bar begins and ends across.
    low, high : array, shape (bars,)
        Its lower and its upper edge.
    **style
        Properties of a ``PolyCollection``, such as colours.
    """
    from matplotlib.collections import PolyCollection

    x = np.stack([start, end, end, start], axis=1)
    y = np.stack([low, low, high, high], axis=1)
    ax.add_collection(PolyCollection(list(np.stack([x, y], axis=2)), **style))


def label_time(ax: Axes, span_s: float, rows: int) -> None:
    """Set limits and units of a chart over time: time to the right, rows downwards.

    Parameters
    ----------
    ax
        The axes, which are drawn in seconds; ticks are written in a unit that suits the span.
    span_s
        The time that is shown, in seconds.
    rows
        The number of rows, whose middles are at 0, 1, 2, ...
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    scale, unit = scale_of(span_s, "s")
    ticks = MaxNLocator(8, steps=[1, 2, 5, 10]).tick_values(0.0, span_s / scale or 1.0)
    ax.set_xlim(0, (span_s or 1.0) * 1.01)
    ax.set_ylim(rows - 0.4, -0.6)
    ax.tick_params(labelsize=8)
    ax.set_xticks([tick * scale for tick in ticks if tick * scale <= 1.01 * (span_s or 1.0)])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda time_s, _: f"{time_s / scale:.4g}"))
    ax.set_xlabel(f"time in {unit}")


def chart_axes(ax: Axes | None, rows: int, row_inches: float) -> Axes:
    """Return `ax`, or axes of a new figure for a chart over time of so many rows."""
    if ax is not None:
        return ax
    return blank_figure(10.0, min(30.0, max(2.5, row_inches * rows + 1.2))).add_subplot()


def draw_schedule(shown: Drawable, slot: int | None = None) -> Figure:
    """Draw one slot, or all on one sheet: the picture of a kind that has no other.

    Where ports or cells are too many to be told apart, blocks of ports and chosen circuits are
    drawn instead. A slot that is asked for by its number is drawn whole.

    Parameters
    ----------
    shown
        A solution, or a fabric and a schedule.
    slot
        The number of the slot; None for all of them.
    """
    fabric, schedule = parts(shown)
    if slot is None and is_large(fabric):
        return draw_large_schedule(shown)
    if slot is None and schedule.n_slots > 1:
        return plot_contact_sheet(shown)
    return cast("Figure", plot_slot(shown, slot or 0).figure)
