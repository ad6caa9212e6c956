"""How a slot is drawn in axes of matplotlib: waveguides of cells, light, and port marks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optmatch.fabrics import Fabric
from optmatch.model import BAR, CROSS, FREE
from optmatch.plotting import palette
from optmatch.plotting.geometry import MeshData, Points, PortMark
from optmatch.plotting.slots import Owners, SlotData

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure


def frame(ax: Axes, data: MeshData) -> float:
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


def draw_slot(
    ax: Axes, fabric: Fabric, data: MeshData, light: SlotData, cell_inches: float
) -> None:
    """Draw a slot into `ax`, which `frame` has prepared; widths of lines follow `cell_inches`."""
    stroke = 72 * cell_inches  # a cell's length in points
    if fabric.graph is not None:
        _draw_cells(ax, data, light, stroke)
        broken = np.flatnonzero(fabric.graph.stuck != FREE).tolist()
        _mark_faults(ax, data, broken, fabric.cell_names, stroke)
    _draw_light(ax, light, stroke)
    _draw_ports(ax, fabric, data, light, cell_inches)


def _draw_cells(ax: Axes, data: MeshData, light: SlotData, stroke: float) -> None:
    """Draw cells and links: parallel lines for bar, an X for cross, light grey for free."""
    terminals = data.terminals.reshape(-1, 4, 2)
    straight, crossed = terminals[:, [[0, 2], [1, 3]]], terminals[:, [[0, 3], [1, 2]]]
    thin = thin_line(stroke)
    free = straight[light.states == FREE].reshape(-1, 2, 2)
    pale = palette.STATE_COLOURS["free"] if light.circuits else palette.FAINT_INK
    draw_lines(ax, [*_sample(data.links), *free], pale, thin, "free")
    lit = terminals[light.states != FREE]
    half = 0.52 * (lit[:, 2:].mean(axis=1) - lit[:, :2].mean(axis=1))
    middle = lit.mean(axis=1)
    bodies = np.stack([middle - half, middle + half], axis=1)
    style: dict[str, Any] = {"capstyle": "round", "zorder": 1.5}
    draw_lines(ax, bodies, palette.CELL_FILL, 0.4 * stroke, "cells", **style)
    for name, state, pairs in (("bar", BAR, straight), ("cross", CROSS, crossed)):
        lines = pairs[light.states == state].reshape(-1, 2, 2)
        draw_lines(ax, lines, palette.STATE_COLOURS[name], 1.6 * thin, name, zorder=2)


def _mark_faults(
    ax: Axes, data: MeshData, cells: list[int], names: Sequence[str], stroke: float
) -> None:
    """Put a spot on each broken cell, with its name or number where there is room."""
    if not cells:
        return
    x, y = data.terminals.reshape(-1, 4, 2)[cells].mean(axis=1).T
    size = 0.6 * stroke
    ax.plot(x, y, "o", color=palette.BROKEN, markersize=size, zorder=3.5, label="faults")
    style: dict[str, Any] = {"fontsize": 0.45 * size, "ha": "center", "va": "center_baseline"}
    for k, cell in enumerate(cells if size > 8.0 else ()):
        ax.text(x[k], y[k], names[cell], color="white", zorder=3.6, parse_math=False, **style)


def name_owners(where: Axes | Figure, owners: Owners | None, **place: Any) -> None:
    """Say below a picture which colour is which job; nothing where ports have no owners."""
    from matplotlib.lines import Line2D

    if owners is None or not owners.names:
        return
    dots = [
        Line2D([], [], color=palette.circuit_colour(k), marker="o", label=name)
        for k, name in enumerate(owners.names)
    ]
    where.legend(handles=dots, frameon=False, fontsize=8, **place)


def thin_line(stroke: float) -> float:
    """Return the width of a waveguide in points, for cells of a length in points."""
    return max(0.25, 0.022 * stroke)


def draw_lines(
    ax: Axes, lines: Iterable[Points], colour: str | None, width: float, label: str, **style: Any
) -> LineCollection:
    """Draw many lines at once."""
    from matplotlib.collections import LineCollection

    colours: dict[str, Any] = {} if colour is None else {"colors": colour}
    drawn = LineCollection(list(lines), linewidths=width, label=label, **colours, **style)
    ax.add_collection(drawn)
    return drawn


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
    colours = [light.colour(k) for k in range(len(paths))]
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
            colours[port, role] = light.colour(k)
            if fabric.bidirectional:
                colours[port, "both"] = light.colour(k)
    if light.owners is not None and light.owners.names:  # ports at rest have their colour, too
        for port in np.flatnonzero(light.owners.of_port >= 0).tolist():
            own = palette.circuit_colour(int(light.owners.of_port[port]))
            marks = (port, "in"), (port, "out"), (port, "both")
            colours |= dict.fromkeys(marks, own)
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
    points = 72 * cell_inches * data.port_radius
    figure: Any = ax.get_figure(root=True)
    least = max(8.0, 0.64 * figure.get_figwidth())  # so that 1,200 pixels have 8 points
    at = np.array([mark.position for mark in data.ports])
    apart = np.hypot(*(at[:, None] - at).T) + np.where(np.eye(len(at)), np.inf, 0.0)
    if 72 * cell_inches * apart.min() < 0.95 * least:
        return  # neighbours would touch
    digits = len(str(max(mark.port for mark in data.ports)))
    fits = 1.9 * points / math.hypot(0.62 * digits, 0.72)  # the same place for all
    box = np.array([0.7 * digits, 0.9]) * least / (72 * cell_inches)
    for mark, fill in zip(data.ports, fills, strict=True):
        if fits < least:
            free = _turn_away(ax, data, mark, at, box)
            _write_outside(ax, data, free, str(mark.port), least, weight="bold", color=palette.INK)
            continue
        ax.text(
            *mark.position,
            str(mark.port),
            ha="center",
            va="center_baseline",
            color=palette.ink_on(fill),
            zorder=5,
            fontsize=min(max(9.0, least), fits),
            fontweight="bold",
        )
        half = np.array([0.6 * len(mark.name), 0.9]) * least / (144 * cell_inches)
        centre = np.array(mark.position) + (data.port_radius + 0.1 + half) * mark.outward
        near = (np.abs(at - centre) < half + 0.8 * data.port_radius).all(axis=1)
        alone = not near[(at != mark.position).any(axis=1)].any()
        if mark.name != str(mark.port) and points >= 0.7 * least and alone:
            _write_outside(ax, data, mark, mark.name, least, color=palette.FAINT_INK)


def _turn_away(ax: Axes, data: MeshData, mark: PortMark, at: Points, box: Any) -> PortMark:
    """Turn a mark to where a text of this size meets no other port, and make room for the text."""
    for outward in (mark.outward, (0.0, -1.0), (0.0, 1.0)):
        level = abs(outward[0]) < 0.6
        half = (box[::-1] if level else box) / 2
        centre = np.array(mark.position) + (data.port_radius + 0.1) * np.array(outward)
        centre[int(level)] += half[int(level)] * np.sign(outward[int(level)])
        if not (np.abs(at - centre) < half + 0.9 * data.port_radius).all(axis=1).any():
            break
    else:
        return mark
    low, high = ax.get_ylim()
    ax.set_ylim(min(low, centre[1] - half[1]), max(high, centre[1] + half[1]))
    return mark._replace(outward=outward)


def _write_outside(
    ax: Axes, data: MeshData, mark: PortMark, text: str, size: float, **style: Any
) -> None:
    """Write beside a port, away from the mesh; what stands in a row is turned where it is long."""
    reach = data.port_radius + 0.1
    x, y = np.array(mark.position) + reach * np.array(mark.outward)
    across, up = mark.outward
    level = abs(across) < 0.6
    ax.text(
        x,
        y,
        text,
        fontsize=size,
        zorder=5,
        rotation=90 if level and style.get("weight") and len(text) > 1 else 0,
        ha="center" if level else ("left" if across > 0 else "right"),
        va="center" if abs(up) < 0.6 else ("bottom" if up > 0 else "top"),
        **style,
    )


def _sample(pieces: Points, steps: int = 6) -> list[Points]:
    t = np.linspace(0, 1, steps)[None, :, None]
    p, q, r, s = (pieces[:, k, None] for k in range(4))
    lines = (1 - t) ** 3 * p + 3 * t * (1 - t) ** 2 * q + 3 * t**2 * (1 - t) * r + t**3 * s
    return list(lines)
