"""Drawings of transitions: a rack with the circuits that change, or a mesh before and after."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import RackFabric
from optmatch.model import FREE, IDLE, InputError, Schedule, Solution
from optmatch.plotting import palette
from optmatch.plotting.figures import blank_figure, draw_schedule, plot_slot
from optmatch.plotting.geometry import mesh_data
from optmatch.plotting.slots import answered, keep_colours
from optmatch.plotting.viewer import page_data, panel, scene
from optmatch.problems import Reroute, Transition
from optmatch.problems.reroutes.transition import DROP, RAISE, SET

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
    return _rack_data(*answered(solution, Reroute, Transition))


def _rack_data(problem: Reroute, answer: Transition) -> RackData:
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
    ("lost", palette.CIRCUIT_COLOURS[2], "s"),
    ("takes over", palette.CIRCUIT_COLOURS[1], "D"),
    ("in reserve", palette.TOGGLED_FILL, "D"),
    ("failed", palette.INK, "s"),
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
    problem, answer = answered(solution, Reroute, Transition)
    if isinstance(problem.fabric, RackFabric):
        data = transition_data(solution)
        size = np.ptp(data.servers, axis=0) + 1.5
        fig = fig or blank_figure(*_rack_inches(size))
        moves = ", ".join(f"chip {lost} to {spare}" for lost, spare in answer.moves.tolist())
        _draw_rack(
            fig.add_subplot(),
            data,
            f"{moves or 'no chip moves'}: {len(answer.changed)} circuits change",
        )
        return fig
    fig = fig or blank_figure(13.0, 6.5)
    schedule, owners = _before_and_after(problem, answer), keep_colours(problem, answer)
    for slot, name in enumerate(("after the failure", "after the transition")):
        shown = problem.fabric, schedule, owners
        ax = plot_slot(shown, slot, ax=fig.add_subplot(1, 2, slot + 1))
        lit = int((schedule.matchings[slot] >= 0).sum())
        count = lit // 2 if problem.fabric.bidirectional else lit
        ax.set_title(f"{name}: {count} circuits")
        _mark_failed(ax, problem)
    return fig


def _before_and_after(problem: Reroute, answer: Transition) -> Schedule:
    """Put the circuits that still have light in one slot, and all after the change in another."""
    first, after = _after_the_failure(problem), problem.after(answer)
    second = _lit(after, np.arange(len(after.circuits)))
    states = None
    if first.cell_states is not None:
        states = np.concatenate([first.cell_states, second.cell_states])
    return Schedule(
        matchings=np.concatenate([first.matchings, second.matchings]),
        durations_s=np.ones(2),
        cell_states=states,
    )


def _after_the_failure(problem: Reroute) -> Schedule:
    return _lit(problem, np.flatnonzero(~problem.hit))


def _lit(problem: Reroute, ways: NDArray[np.intp]) -> Schedule:
    """Put some circuits in a slot, with the cells that they pass."""
    matching = _matching(problem, problem.circuits[ways])
    if problem.cell_states is None:
        return Schedule(matchings=[matching], durations_s=[1.0])
    lit = np.array(
        [t // 4 for k in ways.tolist() for t in problem.circuit_routes[k]], dtype=np.int64
    )
    row = np.full(problem.fabric.n_cells, FREE)
    row[lit] = np.array(problem.cell_states)[lit]
    return Schedule(matchings=[matching], durations_s=[1.0], cell_states=[row])


def _matching(problem: Reroute, circuits: NDArray[np.int32]) -> NDArray[np.int64]:
    matching = np.full(problem.fabric.n_ports, IDLE)
    matching[circuits[:, 0]] = circuits[:, 1]
    if problem.fabric.bidirectional:
        matching[circuits[:, 1]] = circuits[:, 0]
    return matching


def _rack_inches(size: NDArray[np.float64]) -> tuple[float, float]:
    scale = min(1.1, 24.0 / float(size.max()))
    return max(6.5, scale * float(size[0])), max(3.0, scale * float(size[1]) + 1.4)


def _mark_failed(ax: Axes, problem: Reroute) -> None:
    """Put a cross on each port that has failed, and on cells that are dead or stuck."""
    data, graph = mesh_data(problem.fabric), problem.fabric.graph
    at = [mark.position for mark in data.ports if mark.port in problem.failed_ports]
    cells = [*problem.dead_cells, *problem.stuck]
    if graph is not None:
        at += [tuple(graph.ends[cell].mean(axis=0)) for cell in cells]
    if at:
        x, y = np.array(at).T
        ax.scatter(x, y, marker="X", s=150, c=palette.BROKEN, edgecolors="white", zorder=7,
                   label="failed")  # fmt: skip
        figure: Any = ax.get_figure(root=True)
        if not figure.legends:  # one for all axes, where no port is
            style: dict[str, Any] = {"fontsize": 9, "markerscale": 0.7, "frameon": False}
            figure.legend(handles=[ax.collections[-1]], loc="outside lower left", **style)


def _draw_rack(ax: Axes, data: RackData, title: str) -> None:
    from matplotlib.patches import Rectangle

    for x, y in data.servers:
        corner = (x - 0.42, y - 0.42)
        ax.add_patch(Rectangle(corner, 0.84, 0.84, facecolor=palette.CELL_FILL, edgecolor="none"))
    blue = palette.CIRCUIT_COLOURS[0]
    for at, ends, colour, width, name in (
        (data.servers, data.fibres, "#d5dbe3", 5.0, "fibres of new circuits"),
        (data.chips, data.circuits, blue, 1.1, "new circuits, one way or both"),
    ):
        style: dict[str, Any] = {"color": colour, "linewidth": width, "zorder": 1}
        for k, pair in enumerate(ends):
            ax.plot(*at[pair].T, label="_" * (k > 0) + name, **style)
    figure: Any = ax.get_figure(root=True)
    wide = figure.get_figwidth()
    font = max(8.0, 0.64 * wide)  # 8 points where the picture is 1,200 pixels wide
    room = 72 * 0.9 * wide * 2 * SPREAD / max(1.0, float(np.ptp(data.chips[:, 0])) + 1)
    for role, (name, colour, marker) in enumerate(_ROLES):
        at = data.chips[data.role == role]
        if len(at):
            ax.scatter(
                at[:, 0], at[:, 1], c=colour, marker=marker, s=(2.0 * font) ** 2,
                edgecolors=palette.INK, linewidths=0.6, zorder=3, label=name,
            )  # fmt: skip
    numbers = data.chips.tolist() if room > 1.7 * font else ()
    for chip, (x, y) in enumerate(numbers):
        ink = palette.ink_on(_ROLES[data.role[chip]][1])
        ax.text(x, y, str(chip), ha="center", va="center", fontsize=font, color=ink, zorder=4)
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, frameon=False, fontsize=font,
        markerscale=0.6,
    )  # fmt: skip
    ax.set_title(title, fontsize=font + 1, color=palette.INK)


_SEEN = ("kept", "gone", "new")
_WAYS = (palette.FAINT_INK, palette.BROKEN, palette.CIRCUIT_COLOURS[0])


def page(solution: Solution) -> dict[str, Any]:
    """Collect the page: before, after the failure, and after each step of the transition."""
    problem, answer = answered(solution, Reroute, Transition)
    if not isinstance(problem.fabric, RackFabric):
        return _mesh_page(solution, problem, answer)
    rack, data = problem.fabric, transition_data(solution)
    before = np.zeros(rack.n_chips, dtype=np.int64)
    before[np.unique(problem.circuits // rack.ports_per_chip)] = 1
    before[list(problem.spares)] = 5
    side, plate = 1.7 * SPREAD, len(_ROLES)
    nodes: list[list[Any]] = [
        [x - 0.46, y - 0.46, 0.92, 0.92, "", plate, f"server {k}"]
        for k, (x, y) in enumerate(_down(data.servers))
    ]
    nodes += [
        [x - side / 2, y - side / 2, side, side, str(k), int(before[k]), f"chip {k}"]
        for k, (x, y) in enumerate(_down(data.chips))
    ]
    kept = plate + 1
    links: list[list[Any]] = []

    def way(circuit: int, ends: NDArray[np.int32], kind: int) -> int:
        one, two = (int(end) // rack.ports_per_chip for end in ends)
        name = f"circuit {circuit}: chip {one} to chip {two}"
        links.append([len(data.servers) + one, len(data.servers) + two, kind, 0.02, name])
        return len(links) - 1

    old = [way(k, ends, kept) for k, ends in enumerate(problem.circuits)]
    fresh = {
        int(k): way(int(k), ends, -1)
        for k, ends in zip(answer.changed, answer.circuits, strict=True)
    }
    role = {len(data.servers) + k: int(r) for k, r in enumerate(data.role) if r != before[k]}
    failed = {node: kind for node, kind in role.items() if kind in (3, 6)}
    hit = {str(old[k]): kept + 1 for k in np.flatnonzero(problem.hit).tolist()}
    steps: list[dict[str, Any]] = [
        {"say": "before the failure"},
        {
            "say": f"the failure: {len(hit)} circuits lose their light",
            "nodes": failed,
            "links": hit,
        },
    ]
    texts = answer.describe()
    for text, (kind, which, _) in zip(texts, answer.steps.tolist(), strict=True):
        changed = {}
        if kind == DROP:
            changed = {str(old[which]): -1}
        elif kind == RAISE:
            changed = {str(old[which]): -1, str(fresh[which]): kept + 2}
        steps.append({"say": text, "links": changed})
    steps[min(2, len(steps) - 1)]["nodes"] = role
    names = [name for name, _, _ in _ROLES]
    colours = [colour for _, colour, _ in _ROLES]
    corner = data.servers.min(axis=0)[0] - 0.7, -data.servers.max(axis=0)[1] - 0.7
    size = np.ptp(data.servers, axis=0) + 1.4
    return scene(
        solution,
        legend=list(zip([*names, "server", *(f"circuit {name}" for name in _SEEN)],
                        [*colours, palette.CELL_FILL, *_WAYS], strict=True)),
        bounds=[*map(float, corner), *map(float, size)],
        nodes=[[*(round(float(v), 3) for v in node[:4]), *node[4:]] for node in nodes],
        links=links,
        steps=steps,
        list={"title": "Steps", "heads": ["step"],
              "rows": [[[f"{k}: {step['say']}"], {"step": k}] for k, step in enumerate(steps)]},
    )  # fmt: skip


def _down(places: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Turn places upside down: on a page y grows downwards."""
    return [(float(x), -float(y)) for x, y in places]


def _mesh_page(solution: Solution, problem: Reroute, answer: Transition) -> dict[str, Any]:
    """Show each step of a transition on a mesh as a slot: circuits that shine, cells as set."""
    circuits = np.array(problem.circuits)
    has_cells = problem.cell_states is not None
    states = np.array(problem.cell_states if has_cells else [], dtype=np.int8)
    shines = np.ones(len(circuits), dtype=bool)
    names, matchings, rows = [], [], []

    def show(name: str) -> None:
        names.append(name)
        matchings.append(_matching(problem, circuits[shines]))
        rows.append(states.copy())

    show("before the failure")
    shines &= ~problem.hit
    for cell, state in problem.stuck.items():
        states[cell] = state
    states[list(problem.dead_cells)] = FREE
    show(f"the failure: {int(problem.hit.sum())} circuits lose their light")
    ends = dict(zip(answer.changed.tolist(), answer.circuits, strict=True))
    for text, (kind, which, state) in zip(answer.describe(), answer.steps.tolist(), strict=True):
        if kind == SET:
            states[which] = state
        else:
            shines[which] = kind == RAISE
            if kind == RAISE:
                circuits[which] = ends[which]
        show(text)
    schedule = Schedule(
        matchings=np.array(matchings),
        durations_s=np.ones(len(rows)),
        cell_states=np.array(rows) if has_cells else None,
    )
    data = page_data((problem.fabric, schedule, keep_colours(problem, answer)), names=names)
    title = problem.kind.capitalize()
    return data | {"title": title, "figures": panel(solution), "durations": [""] * len(rows)}


def draw_problem(problem: Reroute) -> Figure:
    """Draw what runs, what is spare and what has failed."""
    nothing = Transition(moves=[], changed=[], circuits=[], routes=[], steps=[])  # type: ignore[arg-type]
    if isinstance(problem.fabric, RackFabric):
        data = _rack_data(problem, nothing)
        size = np.ptp(data.servers, axis=0) + 1.5
        figure = blank_figure(*_rack_inches(size))
        _draw_rack(figure.add_subplot(), data, f"hit circuits: {int(problem.hit.sum())}")
        return figure
    ax = plot_slot((problem.fabric, _after_the_failure(problem), keep_colours(problem)), 0)
    told = f"{int((~problem.hit).sum())} circuits; hit: {int(problem.hit.sum())}"
    ax.set_title(f"after the failure: {told}")
    _mark_failed(ax, problem)
    return cast("Figure", ax.figure)


def tabulate_problem(problem: Reroute) -> dict[str, Any]:
    """List a row for each circuit that ran."""
    source, destination = problem.circuits.T
    return {"source": source, "destination": destination, "owner": problem.owners,
            "hit": problem.hit}  # fmt: skip


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
