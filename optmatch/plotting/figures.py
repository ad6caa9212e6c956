"""Drawing with matplotlib: one slot, all slots, and who meets whom when."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from optmatch.fabrics import Fabric
from optmatch.model import BAR, CROSS, FREE, SolverUnavailable
from optmatch.plotting import palette
from optmatch.plotting.geometry import MeshData, Points, PortMark, mesh_data
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

INCHES_PER_CELL = 0.46
"""Size of new figures: a cell of a 9 x 9 mesh is about a centimetre long."""
LABELLED_INCHES = 0.09
"""Below this length of a cell, ports are drawn as dots without number."""


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
    cell_inches = _frame(ax, data)
    _draw(ax, fabric, data, light, cell_inches)
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
        fig = _figure(width * columns, width / aspect * rows + 0.25 * rows + 0.6)
    fig.set_layout_engine("constrained")
    toggles = schedule_data(shown).toggles
    cell_inches = fig.get_figwidth() / columns / (right - left)
    for light in all_slots_data(shown):
        ax = fig.add_subplot(rows, columns, light.slot + 1)
        _frame(ax, data)
        _draw(ax, fabric, data, light, cell_inches)
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
        ax = _figure(side, side).add_subplot()
    shade = np.ma.masked_less(meets + 1, 1)
    ax.imshow(
        shade, cmap="cividis", vmin=1, vmax=max(2, schedule.n_slots), interpolation="nearest"
    )
    if n <= 48:
        dark = (schedule.n_slots + 1) / 2
        for i, j in np.argwhere(meets >= 0):
            ink = "white" if meets[i, j] + 1 < dark else palette.INK
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
    _draw(ax, fabric, data, dark, _frame(ax, data))


def new_figure(fabric: Fabric) -> Figure:
    """Make a figure, without pyplot, in the size that suits a fabric."""
    return _new_figure(mesh_data(fabric))


def _new_figure(data: MeshData) -> Figure:
    left, lower, right, upper = data.bounds
    scale = min(INCHES_PER_CELL, 16.0 / max(right - left, upper - lower))
    return _figure(max(3.0, scale * (right - left)), max(2.5, scale * (upper - lower) + 0.9))


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as exc:
        raise SolverUnavailable("pictures need matplotlib: pip install 'optmatch[plot]'") from exc
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _frame(ax: Axes, data: MeshData) -> float:
    """Set limits and units; return the length of a cell in inches."""
    left, lower, right, upper = data.bounds
    ax.set_xlim(left, right)
    ax.set_ylim(lower, upper)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)
    figure: Any = ax.get_figure(root=True)
    box = ax.get_position()
    width, height = figure.get_size_inches() * (box.width, box.height)
    return float(min(width / (right - left), height / (upper - lower)))


def _draw(ax: Axes, fabric: Fabric, data: MeshData, light: SlotData, cell_inches: float) -> None:
    stroke = 72 * cell_inches  # a cell's length in points
    if fabric.graph is not None:
        _draw_cells(ax, data, light, stroke)
    _draw_light(ax, light, stroke)
    _draw_ports(ax, fabric, data, light, cell_inches)


def _draw_cells(ax: Axes, data: MeshData, light: SlotData, stroke: float) -> None:
    """Draw rails and joins: parallel strokes for bar, an X for cross, light grey for free."""
    from matplotlib.collections import LineCollection

    rails = data.terminals.reshape(-1, 4, 2)
    straight, crossed = rails[:, [[0, 2], [1, 3]]], rails[:, [[0, 3], [1, 2]]]
    joins = _sample(data.links)
    free = straight[light.states == FREE].reshape(-1, 2, 2)
    faint = [*joins, *free]
    thin = max(0.25, 0.022 * stroke)
    ax.add_collection(
        LineCollection(faint, colors=palette.STATE_COLOURS["free"], linewidths=thin, label="free")
    )
    lit = rails[light.states != FREE].mean(axis=1)
    axes = (rails[:, 2:].mean(axis=1) - rails[:, :2].mean(axis=1))[light.states != FREE]
    bodies = np.stack([lit - 0.52 * axes, lit + 0.52 * axes], axis=1)
    ax.add_collection(
        LineCollection(
            list(bodies),
            colors=palette.CELL_FILL,
            linewidths=0.4 * stroke,
            capstyle="round",
            zorder=1.5,
        )
    )
    for name, state, strokes in (("bar", BAR, straight), ("cross", CROSS, crossed)):
        lines = strokes[light.states == state].reshape(-1, 2, 2)
        colour = palette.STATE_COLOURS[name]
        ax.add_collection(
            LineCollection(list(lines), colors=colour, linewidths=1.6 * thin, label=name, zorder=2)
        )


def _draw_light(ax: Axes, light: SlotData, stroke: float) -> None:
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    if not light.circuits:
        return
    paths = []
    for circuit in light.circuits:
        codes = np.full(len(circuit.curve), Path.CURVE4, dtype=np.uint8)
        codes[0] = Path.MOVETO
        paths.append(Path(circuit.curve, codes))
    colours = [palette.circuit_colour(k) for k in range(len(paths))]
    dashes = ["solid" if circuit.arrives else (0, (1.0, 1.0)) for circuit in light.circuits]
    width = min(3.5, max(0.6, 0.11 * stroke)) if len(light.states) else 1.6
    for zorder, edge, extra in ((2.8, "white", 1.6), (3, colours, 1.0)):  # a halo parts crossings
        ax.add_collection(
            PathCollection(
                paths,
                facecolors="none",
                edgecolors=edge,
                linewidths=extra * width,
                linestyles=dashes,
                capstyle="round",
                joinstyle="round",
                zorder=zorder,
                label="light" if extra == 1.0 else "halo",
            )
        )


def _draw_ports(
    ax: Axes, fabric: Fabric, data: MeshData, light: SlotData, cell_inches: float
) -> None:
    from matplotlib.collections import EllipseCollection

    colours: dict[tuple[int, str], str] = {}
    for k, circuit in enumerate(light.circuits):
        for port, role in ((circuit.source, "in"), (circuit.destination, "out")):
            colours[port, role] = palette.circuit_colour(k)
            if fabric.bidirectional:
                colours[port, "both"] = palette.circuit_colour(k)
    fills = [colours.get((mark.port, mark.role), palette.FAINT_INK) for mark in data.ports]
    size = 2 * data.port_radius
    ax.add_collection(
        EllipseCollection(
            size,
            size,
            0,
            units="xy",
            facecolors=fills,
            edgecolors="white",
            linewidths=0.4,
            offsets=[mark.position for mark in data.ports],
            offset_transform=ax.transData,
            zorder=4,
            label="ports",
        )
    )
    if cell_inches < LABELLED_INCHES:
        return
    points = 72 * cell_inches * data.port_radius
    for mark, fill in zip(data.ports, fills, strict=True):
        digits = len(str(mark.port))
        ink = "white" if _luminance(fill) < 0.36 else palette.INK
        ax.text(
            *mark.position,
            str(mark.port),
            ha="center",
            va="center_baseline",
            color=ink,
            zorder=5,
            fontsize=min(9.0, points * (1.15 if digits < 3 else 0.85)),
            fontweight="bold",
        )
        _name_port(ax, data, mark, min(6.5, 0.75 * points))


def _name_port(ax: Axes, data: MeshData, mark: PortMark, size: float) -> None:
    if mark.name == str(mark.port) or size < 2.8:
        return
    reach = data.port_radius + 0.1
    x, y = np.array(mark.position) + reach * np.array(mark.outward)
    across, up = mark.outward
    ax.text(
        x,
        y,
        mark.name,
        fontsize=size,
        color=palette.FAINT_INK,
        zorder=5,
        ha="center" if abs(across) < 0.3 else ("left" if across > 0 else "right"),
        va="center" if abs(up) < 0.6 else ("bottom" if up > 0 else "top"),
    )


def _sample(pieces: Points, steps: int = 6) -> list[Points]:
    t = np.linspace(0, 1, steps)[None, :, None]
    p, q, r, s = (pieces[:, k, None] for k in range(4))
    lines = (1 - t) ** 3 * p + 3 * t * (1 - t) ** 2 * q + 3 * t**2 * (1 - t) * r + t**3 * s
    return list(lines)


def _luminance(colour: str) -> float:
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return float(0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2)


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
