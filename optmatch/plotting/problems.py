"""Pictures and tables of problems on one switch, before anything is solved."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from optmatch.model import IDLE, InputError
from optmatch.plotting import palette
from optmatch.plotting.drawing import blank_figure
from optmatch.plotting.figures import draw_fabric as draw_switch, new_figure
from optmatch.plotting.geometry import mesh_data
from optmatch.plotting.large import (
    draw_large_matching,
    draw_large_switch,
    is_large,
    is_large_matching,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_fabric(problem: Any) -> Figure:
    """Draw the switch that a problem is asked of, without light.

    Parameters
    ----------
    problem
        Any problem on one switch.

    Returns
    -------
    Figure
        All cells and ports; of a large switch its first and last ports.

    Raises
    ------
    InputError
        If the problem has no switch.
    """
    if problem.fabric is None:
        raise InputError(f"nothing to draw: a problem of kind {problem.kind} has no switch")
    if is_large(problem.fabric):
        return _draw_large_problem(problem)
    figure = new_figure(mesh_data(problem.fabric))
    ax = figure.add_subplot()
    draw_switch(ax, problem.fabric)
    font = max(11.0, 0.64 * figure.get_figwidth())
    ax.set_title(f"{problem.kind} on {problem.fabric.title}", fontsize=font)
    return figure


def _draw_large_problem(problem: Any) -> Figure:
    """Draw the first and the last ports of a switch with too many ports or cells to draw all."""
    figure = blank_figure(6.0, 4.2)
    title = f"{problem.kind} on {problem.fabric.title} of {problem.fabric.n_ports:,} ports"
    figure.suptitle(title, fontsize=11)
    draw_large_switch(figure.add_subplot(), problem.fabric)
    return figure


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


def draw_circuits(problem: Any) -> Figure:
    """Draw ports on a ring, and a curve between the two ports of each circuit (a chord diagram).

    Parameters
    ----------
    problem
        A routing problem. Its `fabric` is the switch, and ``matching[port]`` is the destination of
        each source port, -1 if it is idle.

    Returns
    -------
    Figure
        Port 0 is at the top, the others follow clockwise. On a switch whose circuits go one way,
        an arrow shows where light leaves. With more than 128 ports the picture has the number of
        circuits between blocks of ports, and some circuits as examples.
    """
    fabric = problem.fabric
    n_ports = fabric.n_ports
    if is_large_matching(fabric):
        n_circuits = int((problem.matching != IDLE).sum()) // (2 if fabric.bidirectional else 1)
        title = f"{n_circuits:,} circuits of {n_ports:,} ports on {fabric.title}"
        return draw_large_matching(fabric, problem.matching, title)
    figure = blank_figure(6.0, 6.0)
    ax = figure.add_subplot()

    # Port 0 is at the top, the others follow clockwise on a ring of radius 1.
    angle = 2 * np.pi * np.arange(n_ports) / n_ports
    positions = np.stack([np.sin(angle), np.cos(angle)], axis=1)

    # A curve is a quadratic Bezier curve that is pulled to the centre of the ring: t = 0 is at the
    # source port, t = 1 at the destination port.
    t = np.linspace(0, 1, 40)[:, None]
    circuits = list_circuits(problem)
    n_circuits = 0
    for k, source in enumerate(circuits["source"]):
        destination = circuits["destination"][k]
        if fabric.bidirectional and source > destination:
            continue  # drawn with its other port
        n_circuits += 1
        colour = palette.circuit_colour(k)
        curve = (1 - t) ** 2 * positions[source] + t**2 * positions[destination]
        ax.plot(curve[:, 0], curve[:, 1], color=colour, lw=1.6)
        if not fabric.bidirectional:
            arrow = {"arrowstyle": "-|>", "color": colour, "lw": 0.8}
            ax.annotate("", curve[-2], curve[-4], arrowprops=arrow)

    # Ports are dots, and 64 of them at most have their names.
    ax.scatter(positions[:, 0], positions[:, 1], s=24, c=palette.INK, zorder=3)
    labels = fabric.labels
    for port in range(0, n_ports, math.ceil(n_ports / 64)):
        x, y = 1.09 * positions[port]
        # Long names begin or end at the ring, so that they do not cover it.
        side = "center" if len(labels[port]) <= 3 else ("left" if x > 0 else "right")
        ax.text(x, y, labels[port], ha=side, va="center", fontsize=8)
    ax.set_xlim(-1.2, 1.2)
    ax.set_ylim(-1.2, 1.2)
    ax.set_aspect("equal")
    ax.set_axis_off()
    title = f"{n_circuits} circuits of {n_ports} ports on {fabric.title}"
    if not fabric.bidirectional:
        title += "; arrows: where light leaves"
    ax.set_title(title, fontsize=11)
    return figure
