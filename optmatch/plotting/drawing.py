"""How a slot is drawn in axes of matplotlib, and blocks of large matrices as squares."""

from __future__ import annotations

import io
import math
import sys
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import BAR, CROSS, FREE, InputError, SolverUnavailable
from optmatch.plotting import palette
from optmatch.plotting.slots import MeshData, Points, PortMark, SlotData

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure as Figure
    from matplotlib.image import AxesImage
else:
    Axes = Figure = Any  # matplotlib is loaded where something is drawn


def blank_figure(width: float, height: float) -> Figure:
    """Make an empty figure without pyplot, in inches, whose parts make room for each other.

    A SolverUnavailable says that matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as exc:
        raise SolverUnavailable("pictures need matplotlib: pip install 'optmatch[plot]'") from exc
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)

    def png(figure: Figure) -> bytes:
        """Return a figure as a PNG file."""
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()

    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:  # Jupyter shows figures only once pyplot is loaded
        png_formatter = shell.display_formatter.formatters["image/png"]
        if Figure not in png_formatter:
            png_formatter.for_type(Figure, png)
    return figure


def wrap_text(ax: Axes, text: str, font: float) -> str:
    """Break a text of a font, in points, into lines that are no wider than axes.

    A letter is about half as wide as it is high.
    """
    width_inches, _ = size_in_inches(ax)
    return textwrap.fill(text, max(1, int(72 * width_inches / (font / 2))))


def axes_of(ax: Axes | None, width_inches: float, height_inches: float) -> Axes:
    """Return `ax`, which must be axes of matplotlib, or axes of a new figure of this size."""
    if ax is None:
        return blank_figure(width_inches, height_inches).add_subplot()
    if not hasattr(ax, "set_xlim"):
        raise InputError(f"ax = {ax!r:.60}: axes of matplotlib are expected", where="ax")
    return ax


def axes_within(fig: Figure | None, ax: Axes | None) -> Axes | None:
    """Return `ax`, or axes that fill an empty figure; None for neither, and both are refused."""
    if fig is not None and ax is not None:
        raise InputError("either fig or ax", where="ax")
    return ax if fig is None else fig.add_subplot()


def row_of_axes(
    ax: Axes | None, n_axes: int, width_inches: float, height_inches: float
) -> list[Axes]:
    """Return axes beside each other in a new figure of this size, or `ax` alone, for the last."""
    if ax is None:
        return list(
            blank_figure(width_inches, height_inches).subplots(1, n_axes, squeeze=False)[0]
        )
    return [axes_of(ax, width_inches, height_inches)]


def figure_of(drawn: Axes | Figure) -> Figure:
    """Return the whole figure that axes are in, or the figure itself."""
    return cast("Figure", drawn.get_figure(root=True))


def frame(ax: Axes, data: MeshData) -> float:
    """Prepare axes in lengths of a cell, without ticks, and return the inches of a cell."""
    left, lower, right, upper = data.bounds
    ax.set(xlim=(left, right), ylim=(lower, upper), aspect="equal", xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_visible(False)
    width, height = size_in_inches(ax)
    return min(width / (right - left), height / (upper - lower))


def size_in_inches(ax: Axes) -> tuple[float, float]:
    """Return width and height of axes in inches."""
    box = ax.get_position()
    width, height = figure_of(ax).get_size_inches() * (box.width, box.height)
    return float(width), float(height)


def readable_font(ax: Axes) -> float:
    """Return the smallest font that is read: 8 points where a picture is 1,200 pixels wide."""
    return max(8.0, 0.64 * figure_of(ax).get_figwidth())


def draw_slot(
    ax: Axes, fabric: Fabric, data: MeshData, light: SlotData, cell_inches: float
) -> None:
    """Draw a slot into axes that `frame` has prepared; a cell is `cell_inches` long there.

    Without a graph of cells, only light and ports are drawn.
    """
    stroke = 72 * cell_inches  # a cell's length in points
    if fabric.graph is not None:
        _draw_cells(ax, data, light, stroke)

        # A spot on each broken cell, in the middle of its four terminals, with its name where
        # spots are larger than 8 points.
        broken = np.flatnonzero(fabric.graph.stuck != FREE).tolist()
        x, y = data.terminals.reshape(-1, 4, 2)[broken].mean(axis=1).T
        spot_size = 0.6 * stroke
        if broken:
            ax.plot(
                x, y, "o", color=palette.BROKEN, markersize=spot_size, zorder=3.5, label="faults"
            )
        for k, cell in enumerate(broken):
            if spot_size > 8.0:
                ax.text(
                    x[k],
                    y[k],
                    fabric.cell_names[cell],
                    color="white",
                    fontsize=0.45 * spot_size,
                    ha="center",
                    va="center_baseline",
                    zorder=3.6,
                    parse_math=False,
                )
    _draw_light(ax, light, stroke)
    _draw_ports(ax, fabric, data, light, cell_inches)


def _draw_cells(ax: Axes, data: MeshData, light: SlotData, stroke: float) -> None:
    """Draw links and cells: parallel lines for bar, an X for cross, light grey for free.

    ``light.states[cell]`` is the state of a cell, and `stroke` the length of a cell in points.
    """
    # Terminals of a cell are a1, a2 at one end and b1, b2 at the other. Bar joins a1 with b1 and
    # a2 with b2, cross a1 with b2 and a2 with b1.
    terminals = data.terminals.reshape(-1, 4, 2)
    bar_lines = terminals[:, [[0, 2], [1, 3]]]
    cross_lines = terminals[:, [[0, 3], [1, 2]]]
    thin = thin_line(stroke)

    # Links and free cells are thin lines, paler where there is light to be seen.
    free_lines = bar_lines[light.states == FREE].reshape(-1, 2, 2)
    pale = palette.STATE_COLOURS["free"] if light.circuits else palette.FAINT_INK
    t = np.linspace(0, 1, 6)[None, :, None]
    start, handle_of_start, handle_of_end, end = (data.links[:, k, None] for k in range(4))
    link_lines = (
        (1 - t) ** 3 * start
        + 3 * t * (1 - t) ** 2 * handle_of_start
        + 3 * t**2 * (1 - t) * handle_of_end
        + t**3 * end
    )
    draw_lines(ax, [*link_lines, *free_lines], pale, thin, "free")
    # Cells that have a state stand on a plate, a thick line along their axis.
    lit = terminals[light.states != FREE]
    middle = lit.mean(axis=1)
    half_axis = 0.52 * (lit[:, 2:].mean(axis=1) - lit[:, :2].mean(axis=1))
    plates = np.stack([middle - half_axis, middle + half_axis], axis=1)
    style: dict[str, Any] = {"capstyle": "round", "zorder": 1.5}
    draw_lines(ax, plates, palette.CELL_FILL, 0.4 * stroke, "cells", **style)

    for name, state, lines in (("bar", BAR, bar_lines), ("cross", CROSS, cross_lines)):
        chosen = lines[light.states == state].reshape(-1, 2, 2)
        draw_lines(ax, chosen, palette.STATE_COLOURS[name], 1.6 * thin, name, zorder=2)


def count(number: int, noun: str) -> str:
    """Write a number of things; a noun of one thing has no plural.

    Examples
    --------
    >>> count(1, "circuit"), count(1200, "circuit")
    ('1 circuit', '1,200 circuits')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def thin_line(stroke: float) -> float:
    """Return the width of a waveguide in points, for cells of a length in points."""
    return max(0.25, 0.022 * stroke)


def draw_lines(
    ax: Axes, lines: Iterable[Points], colour: str | None, width: float, label: str, **style: Any
) -> LineCollection:
    """Add lines to axes as one collection, much faster than one by one."""
    from matplotlib.collections import LineCollection

    colours: dict[str, Any] = {} if colour is None else {"colors": colour}
    drawn = LineCollection(list(lines), linewidths=width, label=label, **colours, **style)
    ax.add_collection(drawn)
    return drawn


def _draw_light(ax: Axes, light: SlotData, stroke: float) -> None:
    """Draw the route of each circuit in its colour; light that is lost is dotted.

    ``circuit.curve`` is a chain of Bezier pieces, and `stroke` the length of a cell in points.
    """
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    if not light.circuits:
        return

    # The first point is where the pen starts; each further three are a cubic Bezier piece.
    paths = []
    for circuit in light.circuits:
        codes = np.full(len(circuit.curve), Path.CURVE4, dtype=np.uint8)
        codes[0] = Path.MOVETO
        paths.append(Path(circuit.curve, codes))
    colours = [light.colour(k) for k in range(len(paths))]
    dashes = ["solid" if circuit.arrives else (0, (1.0, 1.0)) for circuit in light.circuits]
    width = min(3.5, max(0.6, 0.11 * stroke)) if len(light.states) else 1.6

    # A white halo below each route parts it from those that it crosses.
    halo: dict[str, Any] = {"edgecolors": "white", "linewidths": 1.6 * width}
    route: dict[str, Any] = {"edgecolors": colours, "linewidths": width}
    for zorder, label, style in ((2.8, "halo", halo), (3, "light", route)):
        ax.add_collection(
            PathCollection(
                paths,
                facecolors="none",
                linestyles=dashes,
                capstyle="round",
                joinstyle="round",
                zorder=zorder,
                label=label,
                **style,
            )
        )


def _draw_ports(
    ax: Axes, fabric: Fabric, data: MeshData, light: SlotData, cell_inches: float
) -> None:
    """Draw a dot for each port, with its number in or beside it, and its name.

    Texts that could not be read are left out: 8 points is the least, and more where the figure is
    over 12.5 inches wide. Places and radii in `data` are in lengths of a cell, and `cell_inches`
    is what such a length takes in the figure. ``light.circuits`` tells the colours of ports. A
    mark is the dot of a port: its `role` is "in" or "out" where it sends or receives there, "both"
    where it does both, and `outward` is the direction away from the mesh.
    """
    from matplotlib.collections import EllipseCollection

    # Ports have the colour of the circuit that they send or receive; those without one are grey.
    colour_of_mark: dict[tuple[int, str], str] = {}
    for k, circuit in enumerate(light.circuits):
        ports = {"in": circuit.source, "out": circuit.destination}
        for role, port in ports.items():
            colour_of_mark[port, "both" if fabric.bidirectional else role] = light.colour(k)
    fills = [colour_of_mark.get((mark.port, mark.role), palette.FAINT_INK) for mark in data.ports]

    diameter = 2 * data.port_radius
    positions = np.array([mark.position for mark in data.ports])
    ax.add_collection(
        EllipseCollection(
            diameter,
            diameter,
            0,
            units="xy",
            facecolors=fills,
            edgecolors="white",
            linewidths=0.4,
            offsets=positions,
            offset_transform=ax.transData,
            zorder=4,
            label="ports",
        )
    )

    # The smallest font that can be read: 8 points where the picture is 1,200 pixels wide.
    cell_points = 72 * cell_inches
    least_font = readable_font(ax)

    # Without room for such a font between neighbours, ports have no numbers.
    distance = np.hypot(*(positions[:, None] - positions).T)
    np.fill_diagonal(distance, np.inf)
    if cell_points * distance.min() < 0.95 * least_font:
        return

    # A digit is 0.62 of its font wide and 0.72 high: the largest font that fits into a dot.
    n_digits = len(str(max(mark.port for mark in data.ports)))
    dot_points = cell_points * data.port_radius
    fitting_font = 1.9 * dot_points / math.hypot(0.62 * n_digits, 0.72)

    # If the dots are too small, all numbers stand beside them, unless some would overlap.
    if fitting_font < least_font:
        _write_numbers_beside(ax, data, positions, least_font, cell_points)
        return

    # Numbers fit into the dots. Names are added where they are wanted and have room.
    for mark, fill in zip(data.ports, fills, strict=True):
        ax.text(
            *mark.position,
            str(mark.port),
            ha="center",
            va="center_baseline",
            color=palette.ink_on(fill),
            zorder=5,
            fontsize=min(max(9.0, least_font), fitting_font),
            fontweight="bold",
        )

        # The name stands beside the dot if it is no number and meets no other port.
        half_size = np.array([0.6 * len(mark.name), 0.9]) * least_font / (2 * cell_points)
        centre = np.array(mark.position) + (data.port_radius + 0.1 + half_size) * mark.outward
        reach = half_size + 0.8 * data.port_radius
        is_near = (np.abs(positions - centre) < reach).all(axis=1)
        is_other = (positions != mark.position).any(axis=1)
        meets_other = (is_near & is_other).any()
        has_name = mark.name != str(mark.port)
        if has_name and dot_points >= 0.7 * least_font and not meets_other:
            _write_outside(ax, data, mark, mark.name, least_font, color=palette.FAINT_INK)


def _write_numbers_beside(
    ax: Axes, data: MeshData, positions: Points, font: float, cell_points: float
) -> None:
    """Write the numbers of ports beside their dots, away from the mesh; none if two would overlap.

    ``positions[mark]`` is the middle of a dot, in lengths of a cell, as are all positions here. A
    number is a rectangle, 0.7 of the font wide for each digit, and 0.9 high. The font is in
    points, of which a cell takes `cell_points`.
    """
    font_cells = font / cell_points

    # A number goes where it meets no port: outwards, else down or up. The limits of the axes grow
    # for it. If it meets a port in all three directions it goes outwards, the fourth trial.
    turned_marks = []
    middles = np.empty((len(data.ports), 2))
    half_sizes = np.empty((len(data.ports), 2))
    for number, mark in enumerate(data.ports):
        n_digits = len(str(mark.port))
        text_size = np.array([0.7 * n_digits, 0.9]) * font_cells
        for outward in (mark.outward, (0.0, -1.0), (0.0, 1.0), mark.outward):
            turned_mark = mark._replace(outward=outward)
            begin, side, half_size = _place_text(data, turned_mark, text_size, n_digits > 1)
            middle = begin + side * half_size
            meets_port = np.abs(positions - middle) < half_size + 0.9 * data.port_radius
            if not meets_port.all(axis=1).any():
                low, high = ax.get_ylim()
                bottom = middle[1] - half_size[1]
                ax.set_ylim(min(low, bottom), max(high, bottom + 2 * half_size[1]))
                break
        turned_marks.append(turned_mark)
        middles[number] = middle
        half_sizes[number] = half_size

    # Two numbers overlap if their middles are nearer than the sum of half sizes, and 0.05 of
    # the font, in x and in y.
    gaps = np.abs(middles[:, None] - middles) - (half_sizes[:, None] + half_sizes)
    overlaps: NDArray[np.bool_] = np.all(gaps < 0.05 * font_cells, axis=2)
    np.fill_diagonal(overlaps, False)
    if overlaps.any():
        return
    for mark in turned_marks:
        style: dict[str, Any] = {"weight": "bold", "color": palette.INK}
        _write_outside(ax, data, mark, str(mark.port), font, **style)


def _place_text(
    data: MeshData, mark: PortMark, size: Points, turned: bool
) -> tuple[Points, NDArray[np.int64], Points]:
    """Place a text of a width and height beside a port, away from the mesh; in lengths of a cell.

    Returns the point next to the port where it begins; in x and in y whether it ends (-1) or
    begins (1) there, or is centred (0); and half of its size. A direction counts as up or down if
    it is within about 37 degrees of the vertical. With `turned` the text is turned by 90 degrees
    above and below a port.
    """
    outward = np.array(mark.outward)
    side = np.where(np.abs(outward) >= 0.6, np.sign(outward), 0).astype(np.int64)
    half_size = size[::-1] / 2 if turned and side[0] == 0 else size / 2
    begin = np.array(mark.position) + (data.port_radius + 0.1) * outward
    return begin, side, half_size


def _write_outside(
    ax: Axes, data: MeshData, mark: PortMark, text: str, font: float, **style: Any
) -> None:
    """Write a number or name beside a port, away from the mesh; the font is in points.

    Numbers (bold, of several digits) are turned by 90 degrees above and below a row of ports,
    where they would meet their neighbours.
    """
    begin, side, _ = _place_text(data, mark, np.zeros(2), False)
    x, y = begin.tolist()
    across, up = side.tolist()
    is_turned = across == 0 and "weight" in style and len(text) > 1
    ax.text(
        x,
        y,
        text,
        fontsize=font,
        zorder=5,
        rotation=90 if is_turned else 0,
        ha={-1: "right", 0: "center", 1: "left"}[across],
        va={-1: "top", 0: "center", 1: "bottom"}[up],
        **style,
    )


MOST_BLOCKS = 128
"""A matrix with more rows or columns is drawn block by block."""
MOST_ROWS = 48
"""A chart over time has a row for each port or rank up to this number."""


class Blocks(NamedTuple):
    """A matrix in which a square stands for a block of rows and columns."""

    values: NDArray[np.float64]
    """``values[row block, column block]``; NaN where no entry of the block has a value."""
    size: int
    """Rows, and columns, of a block; those at the ends may have fewer."""


def merge_blocks(
    matrix: NDArray[Any], how: Literal["sum", "mean"], most: int = MOST_BLOCKS
) -> Blocks:
    """Merge the entries of a matrix block by block, so that it can be drawn with fewer squares.

    A block gets the sum or the mean (`how`) of its values; entries that are NaN have none, and
    blocks without any are NaN. There are `most` blocks along the longer side at most.

    Examples
    --------
    >>> merge_blocks(np.arange(16.0).reshape(4, 4), "mean", most=2).values.tolist()
    [[2.5, 4.5], [10.5, 12.5]]
    """
    n_rows, n_columns = matrix.shape
    size = max(1, math.ceil(max(n_rows, n_columns) / most))
    values = np.asarray(matrix, dtype=np.float64)
    if size == 1:
        return Blocks(values, 1)

    # Sums over blocks of rows and then of columns, of the values and of their number.
    starts_of_rows = np.arange(0, n_rows, size)
    starts_of_columns = np.arange(0, n_columns, size)

    def add_up(entries: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of the entries of each block."""
        by_rows = np.add.reduceat(entries, starts_of_rows, axis=0)
        sums: NDArray[np.float64] = np.add.reduceat(by_rows, starts_of_columns, axis=1)
        return sums

    # A mean counts only entries that have a value. Blocks without any stay NaN.
    is_known = ~np.isnan(values)
    sums = add_up(np.where(is_known, values, 0.0))
    counts = add_up(is_known.astype(np.float64))
    divisor = counts if how == "mean" else np.ones_like(counts)
    merged = np.full(sums.shape, np.nan)
    np.divide(sums, divisor, out=merged, where=counts > 0)
    return Blocks(merged, size)


def draw_blocks(ax: Axes, blocks: Blocks, norm: Any = None) -> AxesImage:
    """Draw merged entries of a matrix as squares; NaN stays white.

    `norm` is how values become colours, a ``Normalize`` of matplotlib, None for an even scale.
    """
    # Squares cover the rows and columns that they stand for: of blocks of 16, the first reaches
    # from -0.5 to 15.5.
    bottom, right = np.array(blocks.values.shape) * blocks.size - 0.5
    return ax.imshow(
        np.ma.masked_invalid(blocks.values),
        cmap="cividis",
        norm=norm,
        interpolation="nearest",
        extent=(-0.5, right, bottom, -0.5),
    )


def explain_blocks(size: int, noun: str) -> str:
    """Say what a square stands for; nothing where it is a single entry.

    Examples
    --------
    >>> explain_blocks(16, "pairs of ports"), explain_blocks(1, "pairs of ports")
    ('a square: 16 x 16 pairs of ports', '')
    """
    return f"a square: {size} x {size} {noun}" if size > 1 else ""


def choose_evenly(n_all: int, most: int) -> NDArray[np.int64]:
    """Choose numbers below `n_all`, evenly spread, with the first and the last one.

    Examples
    --------
    >>> choose_evenly(100, 4).tolist(), choose_evenly(3, 4).tolist()
    ([0, 33, 66, 99], [0, 1, 2])
    """
    spread = np.linspace(0, n_all - 1, min(n_all, most)).round()
    return np.unique(spread.astype(np.int64))


def choose_ticks(n_all: int, most: int) -> NDArray[np.int64]:
    """Choose round numbers from 0 on for an axis, at most `most` of them.

    Examples
    --------
    >>> choose_ticks(2000, 6).tolist(), choose_ticks(5, 6).tolist()
    ([0, 500, 1000, 1500], [0, 1, 2, 3, 4])
    """
    step = 1
    while n_all > most * step:
        # 1, 2, 5, 10, 20, 50, ...: the leading digit says by what the next one is larger.
        step = step * 5 // 2 if str(step).startswith("2") else step * 2
    return np.arange(0, n_all, step, dtype=np.int64)
