"""Drawings of transitions: a rack with the circuits that change, or a mesh before and after."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import RackFabric
from optmatch.model import FREE, IDLE, InputError, Schedule, Solution
from optmatch.plotting import palette
from optmatch.plotting.figures import blank_figure, draw_schedule, plot_slot
from optmatch.problems import Reroute, Transition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPREAD = 0.22
"""From the middle of a server to its chips."""


class RackData(NamedTuple):
    """A rack in which circuits change, layer by layer from left to right."""

    chips: NDArray[np.float64]
    """``chips[chip] = x, y``"""
    servers: NDArray[np.float64]
    """``servers[server] = x, y`` of the middle."""
    role: NDArray[np.int64]
    """``role[chip]``: 0 idle, 1 in use, 2 a neighbour that has a new circuit, 3 lost, 4 the spare
    that takes over, 5 a spare in reserve, 6 failed."""
    circuits: NDArray[np.int64]
    """``circuits[k] = chip, chip`` of those that change, each pair once, after the change."""
    fibres: NDArray[np.int64]
    """``fibres[k] = server, server``: edges that new routes pass."""


def transition_data(solution: Solution) -> RackData:
    """Lay out a rack and the changes in it.

    Parameters
    ----------
    solution
        Of a `Reroute` in a rack, with an answer.

    Raises
    ------
    InputError
        If it is of another kind, or has no answer.
    """
    problem, answer = _parts(solution)
    rack = problem.fabric
    if not isinstance(rack, RackFabric):
        raise InputError("a drawing of a rack needs one")
    x, y, _ = rack.server_grid
    place = rack.server_coordinates.astype(float)
    servers = np.stack(
        [place[:, 1] + (x + 0.6) * place[:, 3], -place[:, 2] - (y + 0.6) * place[:, 0]], axis=1
    )
    inside = np.arange(rack.n_chips) % rack.chips_per_server
    columns = max(1, rack.server[0])
    offset = np.stack([inside % columns, -(inside // columns)], axis=1).astype(float)
    offset -= (offset.max(axis=0) + offset.min(axis=0)) / 2
    chips = servers[rack.server_of_chip] + 2 * SPREAD * offset
    role = np.zeros(rack.n_chips, dtype=np.int64)
    role[np.unique(problem.circuits // rack.ports_per_chip)] = 1
    ends = answer.circuits // rack.ports_per_chip
    role[np.unique(ends)] = 2
    role[list(problem.spares)] = 5
    role[list(problem.failed_chips)] = 6
    role[answer.moves[:, 0]] = 3
    role[answer.moves[:, 1]] = 4
    joined: set[tuple[int, int]] = set()
    for route in answer.routes:
        fibres: NDArray[np.int32] = np.array(route, dtype=np.int32)
        if rack.graph is not None:
            fibres = rack.fibre_of_terminal[fibres]
        passed = rack.edges[rack.edge_of_fibre[fibres[fibres >= 0]]].ravel()
        along = pairwise(passed[passed < len(servers)].tolist())  # without switches
        joined.update((tail, head) for tail, head in along if tail != head)
    pairs = np.unique(np.sort(ends, axis=1), axis=0).reshape(-1, 2)
    lines = np.array(sorted(joined), dtype=np.int64).reshape(-1, 2)
    return RackData(chips, servers, role, pairs.astype(np.int64), lines)


_ROLES = (
    ("idle", "#ffffff", "o"),
    ("in use", palette.STATE_COLOURS["free"], "o"),
    ("has new circuits", palette.CIRCUIT_COLOURS[0], "o"),
    ("lost", palette.CIRCUIT_COLOURS[2], "X"),
    ("takes over", palette.CIRCUIT_COLOURS[1], "D"),
    ("in reserve", palette.TOGGLED_FILL, "D"),
    ("failed", palette.INK, "X"),
)


def plot_transition(solution: Solution, *, fig: Figure | None = None) -> Figure:
    """Draw a transition: of a rack on one sheet, of a mesh before and after.

    Parameters
    ----------
    solution
        Of a `Reroute`, with an answer.
    fig
        Where to draw; None makes a new figure.

    Raises
    ------
    InputError
        If it has no answer, or is of another kind.
    """
    problem, answer = _parts(solution)
    if isinstance(problem.fabric, RackFabric):
        data = transition_data(solution)
        size = np.ptp(data.servers, axis=0) + 1.5
        fig = fig or blank_figure(max(5.0, size[0]), max(3.0, size[1] + 1.2))
        _draw_rack(fig.add_subplot(), data, answer)
        return fig
    fig = fig or blank_figure(13.0, 6.5)
    schedule = _before_and_after(problem, answer)
    for slot, name in enumerate(("after the failure", "after the transition")):
        ax = plot_slot((problem.fabric, schedule), slot, ax=fig.add_subplot(1, 2, slot + 1))
        lit = int((schedule.matchings[slot] >= 0).sum())
        count = lit // 2 if problem.fabric.bidirectional else lit
        ax.set_title(f"{name}: {count} circuits")
    return fig


def _parts(solution: Solution) -> tuple[Reroute, Transition]:
    problem, answer = solution.problem, solution.answer
    if not isinstance(problem, Reroute) or not isinstance(answer, Transition):
        raise InputError("a drawing of a transition needs one")
    return problem, answer


def _before_and_after(problem: Reroute, answer: Transition) -> Schedule:
    """Put the circuits that still have light in one slot, and all after the change in another."""
    after = problem.after(answer)
    slots, states = [], []
    for circuits, ways, cells in (
        (problem.circuits[~problem.hit], np.flatnonzero(~problem.hit), problem),
        (after.circuits, np.arange(len(after.circuits)), after),
    ):
        matching = np.full(problem.fabric.n_ports, IDLE)
        matching[circuits[:, 0]] = circuits[:, 1]
        if problem.fabric.bidirectional:
            matching[circuits[:, 1]] = circuits[:, 0]
        lit = np.array(
            [t // 4 for k in ways.tolist() for t in cells.circuit_routes[k]], dtype=np.int64
        )
        row = np.full(problem.fabric.n_cells, FREE)
        row[lit] = np.array(cells.cell_states)[lit]
        slots.append(matching)
        states.append(row)
    return Schedule(matchings=slots, durations_s=[1.0, 1.0], cell_states=states)  # type: ignore[arg-type]


def _draw_rack(ax: Axes, data: RackData, answer: Transition) -> None:
    from matplotlib.patches import Rectangle

    for x, y in data.servers:
        corner = (x - 0.42, y - 0.42)
        ax.add_patch(Rectangle(corner, 0.84, 0.84, facecolor=palette.CELL_FILL, edgecolor="none"))
    for tail, head in data.fibres:
        ax.plot(*data.servers[[tail, head]].T, color="#d5dbe3", linewidth=5, zorder=1)
    for first, second in data.circuits:
        colour = palette.CIRCUIT_COLOURS[0]
        ax.plot(*data.chips[[first, second]].T, color=colour, linewidth=1.1, alpha=0.8, zorder=2)
    for role, (name, colour, marker) in enumerate(_ROLES):
        at = data.chips[data.role == role]
        if len(at):
            ax.scatter(
                at[:, 0], at[:, 1], c=colour, marker=marker, s=60, edgecolors=palette.INK,
                linewidths=0.6, zorder=3, label=name,
            )  # fmt: skip
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, frameon=False, fontsize=8)
    moves = ", ".join(f"{lost} to {spare}" for lost, spare in answer.moves.tolist())
    said = f"{moves or 'no chip moves'}: {len(answer.changed)} circuits change"
    ax.set_title(said, fontsize=10, color=palette.INK)


def draw(solution: Solution, slot: int | None = None) -> Figure:
    """Draw what changes."""
    if not isinstance(solution.answer, Transition):
        return draw_schedule(solution, slot)
    return plot_transition(solution)


def tabulate(solution: Solution) -> dict[str, Any]:
    """List a row for each step, with what changes."""
    answer: Any = solution.answer
    kind, which, state = answer.steps.T
    return {"step": answer.describe(), "kind": kind, "which": which, "state": state}
