"""Pictures and tables of problems on one switch, before anything is solved."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from optmatch.model import IDLE, InputError
from optmatch.plotting import large, palette
from optmatch.plotting.blocks import choose_ticks
from optmatch.plotting.drawing import Axes, Figure, axes_of, count, figure_of
from optmatch.plotting.figures import plot_fabric


def draw_fabric(problem: Any, ax: Axes | None = None) -> Figure:
    """Draw the switch that a problem is asked of, without light, into `ax` or a new figure.

    An `InputError` says that the problem has no switch.
    """
    if problem.fabric is None:
        raise InputError(f"nothing to draw: a problem of kind {problem.kind} has no switch")
    fabric = problem.fabric
    title = f"{problem.kind} on {fabric.title}"
    if large.is_large(fabric):
        title += f" of {fabric.n_ports:,} ports"
    return plot_fabric(fabric, ax=ax, title=title)


def list_ports(problem: Any) -> dict[str, Any]:
    """List a row for each port."""
    names = [] if problem.fabric is None else problem.fabric.port_names
    return {"port": np.arange(len(names)), "name": names}


def list_pairs(problem: Any) -> dict[str, Any]:
    """List a row for each pair that has to meet."""
    source, destination = np.array(problem.pairs, dtype=np.int64).reshape(-1, 2).T
    return {"source": source, "destination": destination}


def list_circuits(problem: Any) -> dict[str, Any]:
    """List a row for each circuit that is asked for."""
    source = np.flatnonzero(problem.matching != IDLE)
    return {"source": source, "destination": problem.matching[source]}


_MOST_CHORDS = 128
"""A chord diagram of more ports would be a grey disk: chosen circuits stand for all."""


def draw_circuits(problem: Any, ax: Axes | None = None) -> Figure:
    """Draw ports on a ring, and a curve between the two ports of each circuit (a chord diagram).

    ``problem.matching[source]`` is the port that a source is joined to, `IDLE` for none. Port 0 is
    at the top, the others follow clockwise. On a switch whose circuits go one way, an arrow shows
    where light leaves. With more than 128 ports the picture has 16 circuits, evenly spread over
    their sources.
    """
    fabric = problem.fabric
    n_ports = fabric.n_ports
    ax = axes_of(ax, 6.0, 6.0)

    # Port 0 is at the top, the others follow clockwise on a ring of radius 1.
    angle = 2 * np.pi * np.arange(n_ports) / n_ports
    positions = np.stack([np.sin(angle), np.cos(angle)], axis=1)

    # A circuit of both ways is drawn from its lower port.
    sources = np.flatnonzero(problem.matching != IDLE)
    if fabric.bidirectional:
        sources = sources[sources <= problem.matching[sources]]
    n_circuits = len(sources)
    is_large = n_ports > _MOST_CHORDS
    if is_large:
        sources = sources[large.choose_examples(n_circuits)]

    # A curve is a quadratic Bezier curve that is pulled to the centre of the ring: t = 0 is at the
    # source port, t = 1 at the destination port.
    t = np.linspace(0, 1, 40)[:, None]
    for place, source in enumerate(sources):
        colour = palette.circuit_colour(place)
        curve = (1 - t) ** 2 * positions[source] + t**2 * positions[problem.matching[source]]
        ax.plot(curve[:, 0], curve[:, 1], color=colour, lw=1.6)
        if not fabric.bidirectional:
            arrow = {"arrowstyle": "-|>", "color": colour, "lw": 0.8}
            ax.annotate("", curve[-2], curve[-4], arrowprops=arrow)

    # Ports are dots, and 64 of them at most have their names.
    size = 2 if is_large else 24
    ax.scatter(positions[:, 0], positions[:, 1], s=size, c=palette.INK, zorder=3)
    labels = fabric.labels
    named = choose_ticks(n_ports, 16) if is_large else range(0, n_ports, math.ceil(n_ports / 64))
    for port in named:
        x, y = 1.09 * positions[port]
        # Long names begin or end at the ring, so that they do not cover it.
        side = "center" if len(labels[port]) <= 3 else ("left" if x > 0 else "right")
        ax.text(x, y, labels[port], ha=side, va="center", fontsize=8)
    ax.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
    ax.set_axis_off()
    title = f"{count(n_circuits, 'circuit')} of {n_ports:,} ports on {fabric.title}"
    if len(sources) < n_circuits:
        title = f"{len(sources)} chosen circuits of {n_circuits:,}\n{title}"
    if not fabric.bidirectional:
        title += "; arrows: where light leaves"
    ax.set_title(title, fontsize=11)
    return figure_of(ax)
