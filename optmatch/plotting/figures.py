"""Drawing with matplotlib: one slot, all slots, and who meets whom when."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from optmatch.fabrics import Fabric
from optmatch.model import FREE, SolverUnavailable
from optmatch.plotting import palette
from optmatch.plotting.geometry import MeshData, mesh_data
from optmatch.plotting.slots import (
    Drawable,
    SlotData,
    all_slots_data,
    parts,
    schedule_data,
    slot_data,
)
from optmatch.plotting.strokes import draw_slot, frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> from optmatch.model import Schedule
    >>> schedule = Schedule(matchings=[[1, 0]], durations_s=[1.0])
    >>> plot_slot((IdealSwitch(2), schedule)).get_title()
    'slot 1 of 1: 2 circuits'
    """
    fabric, _ = parts(shown)
    data, light = mesh_data(fabric), slot_data(shown, slot)
    ax = ax or _new_figure(data).add_subplot()
    cell_inches = frame(ax, data)
    draw_slot(ax, fabric, data, light, cell_inches)
    if fabric.graph is not None:
        ax.set_xlabel("distances in lengths of a cell", fontsize=8, color=palette.FAINT_INK)
    lost = sum(not circuit.arrives for circuit in light.circuits)
    said = [_count(len(light.circuits), "circuit")]
    if fabric.graph is not None:
        said.append(f"{light.cells_used} of {fabric.n_cells} cells")
    if lost:
        said.append(f"light lost: {lost}")
    ax.set_title(f"slot {slot + 1} of {light.n_slots}: {', '.join(said)}")
    return ax


def plot_contact_sheet(shown: Drawable, *, fig: Figure | None = None) -> Figure:
    """Draw all slots side by side.

    Parameters
    ----------
    shown
        A solution, or a fabric and a schedule.
    fig
        An empty figure to draw in; None makes a new one.

    Returns
    -------
    Figure
        One axes for each slot, by rows.
    """
    fabric, schedule = parts(shown)
    data = mesh_data(fabric)
    left, lower, right, upper = data.bounds
    aspect = (right - left) / (upper - lower)
    columns, rows = _sheet(schedule.n_slots, aspect)
    if fig is None:
        width = 3.2 if schedule.n_slots > 1 else 8.0
        fig = blank_figure(width * columns, width / aspect * rows + 0.25 * rows + 0.6)
    fig.set_layout_engine("constrained")
    toggles = schedule_data(shown).toggles
    cell_inches = fig.get_figwidth() / columns / (right - left)
    for light in all_slots_data(shown):
        ax = fig.add_subplot(rows, columns, light.slot + 1)
        frame(ax, data)
        draw_slot(ax, fabric, data, light, cell_inches)
        ax.set_title(f"{light.slot + 1}", fontsize=9, loc="left", fontweight="bold")
        if fabric.graph is not None and light.slot:
            text = _count(len(light.toggled), "toggle")
            ax.set_title(text, fontsize=8, loc="right", color=palette.FAINT_INK)
    if fabric.graph is not None:
        fig.supxlabel("distances in lengths of a cell", fontsize=9, color=palette.FAINT_INK)
    fig.suptitle(_headline(fabric, schedule.n_slots, int(toggles.sum())), fontsize=12)
    return fig


def plot_matchings(shown: Drawable, *, ax: Axes | None = None) -> Axes:
    """Draw who meets whom in which slot, as a table of sources and destinations.

    Parameters
    ----------
    shown
        A solution, or a fabric and a schedule; also of a switch without cells.
    ax
        Where to draw; None makes a new figure.

    Returns
    -------
    Axes
        Rows are sources, columns destinations; entries are slots, counted from 1.
    """
    fabric, schedule = parts(shown)
    meets = schedule_data(shown).meets
    n = fabric.n_ports
    if ax is None:
        side = min(14.0, max(4.0, 0.3 * n + 1.5))
        ax = blank_figure(side, side).add_subplot()
    shade = np.ma.masked_less(meets + 1, 1)
    image = ax.imshow(shade, cmap="cividis", vmin=1, vmax=max(2, schedule.n_slots))
    if n <= 48:
        ax.set_xticks(range(n))
        ax.set_yticks(range(n))
        ax.tick_params(labelsize=7, length=0)
        for i, j in np.argwhere(meets >= 0):
            red, green, blue, _ = image.cmap(image.norm(meets[i, j] + 1))
            ink = palette.INK if 0.3 * red + 0.6 * green + 0.1 * blue > 0.45 else "white"
            ax.text(j, i, f"{meets[i, j] + 1}", ha="center", va="center", fontsize=7, color=ink)
    ax.set_xlabel("destination port")
    ax.set_ylabel("source port")
    ax.set_title(f"slot in which each pair first meets, of {schedule.n_slots}")
    return ax


def draw_fabric(ax: Axes, fabric: Fabric) -> None:
    """Draw a fabric without light into `ax`: all cells free, ports in grey."""
    data = mesh_data(fabric)
    states = np.full(fabric.n_cells, FREE, dtype=np.int8)
    dark = SlotData(0, 1, (), states, np.empty(0, dtype=np.int64))
    draw_slot(ax, fabric, data, dark, frame(ax, data))


def new_figure(fabric: Fabric) -> Figure:
    """Make a figure, without pyplot, in the size that suits a fabric."""
    return _new_figure(mesh_data(fabric))


def _new_figure(data: MeshData) -> Figure:
    left, lower, right, upper = data.bounds
    scale = min(INCHES_PER_CELL, 16.0 / max(right - left, upper - lower))
    return blank_figure(max(3.0, scale * (right - left)), max(2.5, scale * (upper - lower) + 0.9))


def blank_figure(width: float, height: float) -> Figure:
    """Make an empty figure, without pyplot; sizes in inches."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as exc:
        raise SolverUnavailable("pictures need matplotlib: pip install 'optmatch[plot]'") from exc
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _sheet(n_slots: int, aspect: float) -> tuple[int, int]:
    """Choose columns and rows: a sheet in landscape with few places left empty."""

    def cost(columns: int) -> float:
        rows = math.ceil(n_slots / columns)
        shape = math.log(columns * aspect / rows / 1.5)
        return shape**2 + 2 * (columns * rows - n_slots) / n_slots

    columns = min(range(1, n_slots + 1), key=cost)
    return columns, math.ceil(n_slots / columns)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _headline(fabric: Fabric, n_slots: int, toggles: int) -> str:
    said = [_count(fabric.n_ports, "port"), _count(n_slots, "slot")]
    if fabric.graph is not None:
        said += [_count(fabric.n_cells, "cell"), _count(toggles, "toggle")]
    return f"{fabric.type}: {', '.join(said)}"
