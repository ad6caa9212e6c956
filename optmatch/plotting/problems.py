"""Pictures and tables of problems on one switch, before anything is solved."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from optmatch.model import IDLE, InputError
from optmatch.plotting import palette
from optmatch.plotting.figures import blank_figure, draw_fabric as draw_switch, new_figure
from optmatch.plotting.geometry import mesh_data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_JOBS = 16
"""A picture of a tenancy names so many."""


def draw_fabric(problem: Any) -> Figure:
    """Draw the switch that a problem is asked of, without light."""
    if problem.fabric is None:
        raise InputError(f"nothing to draw: a problem of kind {problem.kind} has no switch")
    figure = new_figure(mesh_data(problem.fabric))
    ax = figure.add_subplot()
    draw_switch(ax, problem.fabric)
    tenants = getattr(problem, "tenants", ())
    jobs = [f"{_cut(tenant.name)}: {tenant.n_ports} ports" for tenant in tenants[:MOST_JOBS]]
    jobs += [f"and {len(tenants) - MOST_JOBS} more jobs"] if len(tenants) > MOST_JOBS else []
    font = max(11.0, 0.64 * figure.get_figwidth())
    lines = wrap(", ".join(jobs), int(110 * figure.get_figwidth() / font))
    figure.set_figheight(figure.get_figheight() + len(lines) * font / 60)
    ax.set_title("\n".join([f"{problem.kind} on {problem.fabric.title}", *lines]), fontsize=font)
    return figure


def _cut(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:11]}...{name[-10:]}"


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
    """Draw the chord diagram of a matching: ports on a ring, a chord for each circuit."""
    rows, n = list_circuits(problem), problem.fabric.n_ports
    figure = blank_figure(6.0, 6.0)
    ax = figure.add_subplot()
    angle = 2 * np.pi * np.arange(n) / n
    at = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    t = np.linspace(0, 1, 40)[:, None]
    n_circuits = 0
    for k, (one, two) in enumerate(zip(rows["source"], rows["destination"], strict=True)):
        if problem.fabric.bidirectional and one > two:
            continue
        curve = (1 - t) ** 2 * at[one] + t**2 * at[two]
        n_circuits += 1
        ax.plot(*curve.T, color=palette.circuit_colour(k), lw=1.6)
        if not problem.fabric.bidirectional:
            arrow = {"arrowstyle": "-|>", "color": palette.circuit_colour(k), "lw": 0.8}
            ax.annotate("", curve[-2], curve[-4], arrowprops=arrow)
    ax.scatter(at[:, 0], at[:, 1], s=24, c=palette.INK, zorder=3)
    every = -(-n // 64)
    for port in range(0, n, every):
        ax.text(
            1.09 * at[port, 0], 1.09 * at[port, 1], str(port), ha="center", va="center", fontsize=8
        )
    ax.set_xlim(-1.2, 1.2)
    ax.set_ylim(-1.2, 1.2)
    ax.set_aspect("equal")
    ax.set_axis_off()
    way = "" if problem.fabric.bidirectional else "; arrows: where light leaves"
    ax.set_title(f"{n_circuits} circuits of {n} ports on {problem.fabric.title}{way}", fontsize=11)
    return figure


def list_tenants(problem: Any) -> dict[str, Any]:
    """List a row for each job."""
    tenants = problem.tenants
    names = "name", "n_ports", "question", "size_bytes"
    return {name: [getattr(tenant, name) for tenant in tenants] for name in names}
