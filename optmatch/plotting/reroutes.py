"""Drawings of transitions: a rack with the circuits that change, or a mesh before and after."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import RackFabric
from optmatch.model import FREE, IDLE, InputError, Schedule, Solution
from optmatch.plotting import palette
from optmatch.plotting.drawing import (
    Axes,
    Figure,
    count,
    figure_of,
    readable_font,
    row_of_axes,
)
from optmatch.plotting.figures import plot_slot
from optmatch.plotting.scenes import draw_map
from optmatch.plotting.slices import place_servers
from optmatch.plotting.slots import answered, keep_colours, mesh_data, schedule_data
from optmatch.plotting.viewer import page_data, panel, scene
from optmatch.problems import Reroute, Transition
from optmatch.problems.reroutes.transition import DROP, RAISE, SET

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
    """Lay out a rack and the changes in it after a failure.

    Parameters
    ----------
    solution
        The solution of a `Reroute` in a rack, with an answer.

    Returns
    -------
    RackData
        Places of chips and servers, the role of each chip, pairs of chips with new circuits, and
        pairs of servers that new routes pass.

    Raises
    ------
    InputError
        If it is of another kind, or has no answer.
    """
    return _rack_data(*answered(solution, Reroute, Transition))


def _rack_data(problem: Reroute, answer: Transition) -> RackData:
    """Lay out the chips of a rack after a repair; ``role[chip]`` is a place in `_ROLES`.

    The columns of ``answer.moves`` are a lost unit and the spare that takes over.
    """
    rack = problem.fabric
    if not isinstance(rack, RackFabric):
        raise InputError("a drawing of a rack needs one")
    servers, chips = _place_chips(rack, np.arange(rack.racks))

    # Later roles go before earlier ones: a neighbour of a new circuit may be a spare.
    chips_of_new_circuits = answer.circuits // rack.ports_per_chip
    role = _roles_before(problem, rack)
    role[np.unique(chips_of_new_circuits)] = _HAS_NEW_CIRCUITS
    role[list(problem.spares)] = _IN_RESERVE
    role[list(problem.failed_chips)] = _FAILED
    role[answer.moves[:, 0]] = _LOST
    role[answer.moves[:, 1]] = _TAKES_OVER

    # A circuit of either direction is one line.
    circuits = np.unique(np.sort(chips_of_new_circuits, axis=1), axis=0).reshape(-1, 2)

    # Each pair of servers once between which new routes pass. Routes are fibres or, on a fabric
    # with cells, terminals; nodes beyond the servers are switches between racks, not drawn.
    hops: set[tuple[int, int]] = set()
    for route in answer.routes:
        fibres: NDArray[np.int32] = np.array(route, dtype=np.int32)
        if rack.graph is not None:
            fibres = rack.fibre_of_terminal[fibres]
        nodes = rack.edges[rack.edge_of_fibre[fibres[fibres >= 0]]].ravel()
        for tail, head in pairwise(nodes[nodes < rack.n_servers].tolist()):
            if tail != head:
                hops.add((tail, head))
    hops_of_routes = np.array(sorted(hops), dtype=np.int64).reshape(-1, 2)
    return RackData(chips, servers, role, circuits.astype(np.int64), hops_of_routes)


def _place_chips(
    rack: RackFabric, racks: NDArray[np.integer]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the places of servers and of chips, y upwards in sides of a server; NaN elsewhere."""
    servers = place_servers(rack, racks) * [1, -1]

    # The chips of a server lie around its middle: of 2 by 2 chips they are half a step to each
    # side.
    chip_in_server = np.arange(rack.n_chips) % rack.chips_per_server
    n_columns = max(1, rack.server[0])
    offset = np.stack([chip_in_server % n_columns, -(chip_in_server // n_columns)], axis=1)
    offset = offset - (offset.max(axis=0) + offset.min(axis=0)) / 2
    return servers, servers[rack.server_of_chip] + 2 * SPREAD * offset


def _roles_before(problem: Reroute, rack: RackFabric) -> NDArray[np.int64]:
    """Return whether each chip is idle or in use, without regard to spares and failures."""
    role = np.full(rack.n_chips, _IDLE)
    role[np.unique(problem.circuits // rack.ports_per_chip)] = _IN_USE
    return role


# The roles of chips: places in the table of names and colours, with which legends begin.
_IDLE, _IN_USE, _HAS_NEW_CIRCUITS, _LOST, _TAKES_OVER, _IN_RESERVE, _FAILED = range(7)
_ROLES = (
    ("idle", "#ffffff"),
    ("in use", palette.STATE_COLOURS["free"]),
    ("has new circuits", palette.CIRCUIT_COLOURS[0]),
    ("lost", palette.CIRCUIT_COLOURS[2]),
    ("takes over", palette.CIRCUIT_COLOURS[1]),
    ("in reserve", palette.TOGGLED_FILL),
    ("failed", palette.INK),
)


def plot_transition(solution: Solution, *, ax: Axes | None = None) -> Figure:
    """Draw how circuits change after a failure: a rack on one sheet, a mesh before and after.

    Parameters
    ----------
    solution
        The solution of a `Reroute`, with an answer.
    ax
        Where to draw; None makes a new figure. Of a mesh, `ax` has the circuits after the change.

    Returns
    -------
    Figure
        For a rack: chips in the colours of their roles, and new circuits as lines. For a mesh: the
        circuits that the failure has left, and all circuits after the change.

    Raises
    ------
    InputError
        If it has no answer, or is of another kind.
    """
    problem, answer = answered(solution, Reroute, Transition)
    if isinstance(problem.fabric, RackFabric):
        # For a rack one sheet tells all: roles of chips, and the circuits that change.
        moves = [f"chip {lost} to {spare}" for lost, spare in answer.moves[:_MAX_MOVES].tolist()]
        if len(answer.moves) > _MAX_MOVES:
            moves.append(f"{len(answer.moves) - _MAX_MOVES} more")
        summary = ", ".join(moves) or "no chip moves"
        n_changed = len(answer.changed)
        change = "1 circuit changes" if n_changed == 1 else f"{n_changed} circuits change"
        return _draw_rack(problem, answer, f"{summary}: {change}", ax)

    # For a mesh there are two sheets, on which a circuit keeps its colour.
    _, slots = _list_slots(problem, answer)
    shown = problem.fabric, slots, keep_colours(problem, answer)
    n_circuits = schedule_data(shown).circuits
    panels = [(1, "after the failure"), (slots.n_slots - 1, "after the transition")]
    axes = row_of_axes(ax, 2, 13.0, 6.5)
    for sheet, (slot, name) in zip(axes, panels[-len(axes) :], strict=True):
        plot_slot(shown, slot, ax=sheet)
        sheet.set_title(f"{name}: {n_circuits[slot]} circuits")
        _mark_failed(sheet, problem)
    return figure_of(sheet)


# Racks of a picture, and moves that its title lists.
_MAX_RACKS = 3
_MAX_MOVES = 6


def _leave_out_racks(data: RackData, rack: RackFabric) -> tuple[RackData, str]:
    """Hide most racks of a large fabric by NaN as places, and say so in a text.

    Up to three (`_MAX_RACKS`) affected racks with the lowest numbers stay; rack 0 fills a free
    place. The results are the data with the shown racks moved together, and the end of the title,
    which begins a new line and is empty where all racks are shown.
    """
    if rack.racks <= _MAX_RACKS:
        return data, ""

    # A rack is affected if one of its chips failed, was lost, takes over or has new circuits.
    rack_of_server = rack.server_coordinates[:, 0].astype(np.int64)
    rack_of_chip = rack_of_server[rack.server_of_chip]
    is_affected = np.isin(data.role, (_HAS_NEW_CIRCUITS, _LOST, _TAKES_OVER, _FAILED))
    shown_racks = [*np.unique(rack_of_chip[is_affected]).tolist(), 0][:_MAX_RACKS]
    shown_racks = sorted(set(shown_racks))

    servers, chips = _place_chips(rack, np.array(shown_racks))
    numbers = ", ".join(map(str, shown_racks))
    text = f"\nracks: {numbers}; left out are {rack.racks - len(shown_racks)} racks"
    return data._replace(servers=servers, chips=chips), text


def _mark_failed(ax: Axes, problem: Reroute) -> None:
    """Put a cross on each failed port, and on dead and stuck cells.

    ``problem.stuck[cell]`` is the state in which a cell is stuck. The first call for a figure adds
    the legend.
    """
    data = mesh_data(problem.fabric)
    graph = problem.fabric.graph
    positions = [mark.position for mark in data.ports if mark.port in problem.failed_ports]
    if graph is not None:
        for cell in (*problem.dead_cells, *problem.stuck):
            positions.append(tuple(graph.ends[cell].mean(axis=0)))
    if not positions:
        return
    x, y = np.array(positions).T
    crosses = ax.scatter(
        x,
        y,
        marker="X",
        s=150,
        c=palette.BROKEN,
        edgecolors="white",
        zorder=7,
        label="failed",
    )

    # One legend for all axes of the figure, in a corner without ports.
    figure = figure_of(ax)
    if not figure.legends:
        style: dict[str, Any] = {"fontsize": 9, "markerscale": 0.7, "frameon": False}
        figure.legend(handles=[crosses], loc="outside lower left", **style)


def _draw_rack(problem: Reroute, answer: Transition, title: str, ax: Axes | None) -> Figure:
    """Draw a rack after an answer: servers, chips in their roles, and circuits that change.

    Most racks of a large fabric are left out, which the title says.
    """
    rack: Any = problem.fabric
    data, left_out = _leave_out_racks(_rack_data(problem, answer), rack)
    chart = _rack_chart(problem, answer, data)
    chart["legend"][_KEPT_CIRCUIT] += ("quiet",)
    ax = draw_map(chart, ax)
    ax.set_title(f"{title}{left_out}", fontsize=readable_font(ax) + 1, color=palette.INK)
    return figure_of(ax)


# Kinds of a map beyond the roles: places in its legend.
_SERVER = len(_ROLES)
_KEPT_CIRCUIT, _GONE_CIRCUIT, _NEW_CIRCUIT, _FIBRE = range(_SERVER + 1, _SERVER + 5)
_HIDDEN = -1
_LEGEND = (
    *_ROLES,
    ("server", palette.CELL_FILL),
    ("circuit kept", palette.FAINT_INK),
    ("circuit gone", palette.BROKEN),
    ("circuit new", palette.CIRCUIT_COLOURS[0]),
    ("fibre of new circuits", "#d9c2a0"),
)


def _rack_chart(problem: Reroute, answer: Transition, data: RackData) -> dict[str, Any]:
    """Lay out a rack before, after the failure, and after each step, as parts of a scene.

    A server and a chip are squares, a circuit is a link: ``[node, node, kind, width, name]``. A
    row of ``answer.steps`` is an action (`DROP` takes a circuit down, `RAISE` puts it up between
    new ports), the number of a circuit, and a third number that only cells have. Each step of the
    scene has a caption `say`, and gives some nodes and links new kinds (places in `_LEGEND`, -1
    hides a link):
    ``{"say": ..., "nodes": {12: 3}, "links": {"4": 8}}``.
    """
    rack: Any = problem.fabric

    # Nodes are servers, then chips in the roles that they had before the failure.
    role_before = _roles_before(problem, rack)
    role_before[list(problem.spares)] = _IN_RESERVE
    nodes: list[list[Any]] = []
    for server, place in enumerate(data.servers):
        nodes.append(_square_node(place, 0.92, text="", kind=_SERVER, title=f"server {server}"))
    node_of_chip_0 = len(nodes)
    for chip, place in enumerate(data.chips):
        role = int(role_before[chip])
        nodes.append(_square_node(place, 1.7 * SPREAD, str(chip), role, f"chip {chip}"))

    # Links are fibres that new routes pass, circuits that ran, and those that change; the first
    # and the last are hidden at first.
    links: list[list[Any]] = []
    for tail, head in data.fibres.tolist():
        links.append([tail, head, _HIDDEN, 0.14, f"fibre from server {tail} to server {head}"])
    fibre_links = {str(link): _FIBRE for link in range(len(links))}

    def add_link(circuit: int, ports: NDArray[np.int32], kind: int) -> int:
        """Add the link of a circuit between the chips of its ports, and return its place."""
        chip, other_chip = (int(port) // rack.ports_per_chip for port in ports)
        name = f"circuit {circuit}: chip {chip} to chip {other_chip}"
        links.append([node_of_chip_0 + chip, node_of_chip_0 + other_chip, kind, 0.02, name])
        return len(links) - 1

    # ``old_link[circuit]`` and ``new_link[circuit]``: the place of its link in `links`.
    old_link = [add_link(k, ports, _KEPT_CIRCUIT) for k, ports in enumerate(problem.circuits)]
    new_link = {}
    for circuit, ports in zip(answer.changed.tolist(), answer.circuits, strict=True):
        new_link[circuit] = add_link(circuit, ports, _HIDDEN)

    # At the failure, chips are lost and circuits lose their light. All other chips change their
    # roles at the first step of the transition.
    changed_roles = {}
    failed_roles = {}
    for chip in np.flatnonzero(data.role != role_before).tolist():
        role = int(data.role[chip])
        changed_roles[node_of_chip_0 + chip] = role
        if role in (_LOST, _FAILED):
            failed_roles[node_of_chip_0 + chip] = role
    hit_links = {str(old_link[k]): _GONE_CIRCUIT for k in np.flatnonzero(problem.hit).tolist()}
    failure = f"the failure: {count(len(hit_links), 'circuit')} without light"
    steps: list[dict[str, Any]] = [
        {"say": "before the failure"},
        {"say": failure, "nodes": failed_roles, "links": hit_links},
    ]

    # A circuit disappears with its old ports, and appears with its new ones.
    for text, (action, circuit, _) in zip(
        answer.describe(problem.fabric), answer.steps.tolist(), strict=True
    ):
        changed_links = {}
        if action in (DROP, RAISE):
            changed_links[str(old_link[circuit])] = _HIDDEN
        if action == RAISE:
            changed_links[str(new_link[circuit])] = _NEW_CIRCUIT
        steps.append({"say": text, "links": changed_links})
    # Step 0 is before the failure, step 1 the failure, step 2 the first of the repair.
    first_step = min(2, len(steps) - 1)
    steps[first_step]["nodes"] = changed_roles
    steps[first_step]["links"].update(fibre_links)

    # The bounds have a margin around the servers; y grows downwards on a page.
    left, low = (np.nanmin(data.servers, axis=0) - 0.7).tolist()
    right, high = (np.nanmax(data.servers, axis=0) + 0.7).tolist()
    return {
        "legend": list(_LEGEND),
        "bounds": [left, -high, right - left, high - low],
        "nodes": nodes,
        "links": links,
        "steps": steps,
    }


def page(solution: Solution) -> dict[str, Any]:
    """Collect the page of a repair: before, after the failure, and after each step.

    On a mesh of cells, each step is a slot; on racks, nodes and links change (`_rack_chart`).
    """
    problem, answer = answered(solution, Reroute, Transition)
    if not isinstance(problem.fabric, RackFabric):
        names, slots = _list_slots(problem, answer)
        data_of_slots = page_data(
            (problem.fabric, slots, keep_colours(problem, answer)), names=names
        )
        data_of_slots["title"] = problem.kind.capitalize()
        data_of_slots["figures"] = panel(solution)
        data_of_slots["durations"] = [""] * len(names)
        return data_of_slots

    # A rack is a map, which is gone through step by step.
    chart = _rack_chart(problem, answer, transition_data(solution))
    rows = [[[f"{k}: {step['say']}"], {"step": k}] for k, step in enumerate(chart["steps"])]
    return scene(solution, **chart, list={"title": "Steps", "heads": ["step"], "rows": rows})


def _square_node(
    place: NDArray[np.float64], side: float, text: str, kind: int, title: str
) -> list[Any]:
    """Return a node of a page, a square around a place; y grows downwards on a page."""
    x, y = place.tolist()
    corner = (round(x - side / 2, 3), round(-y - side / 2, 3))
    return [*corner, round(side, 3), round(side, 3), text, kind, title]


def _list_slots(problem: Reroute, answer: Transition) -> tuple[list[str], Schedule]:
    """List the captions of the states of a mesh, and these states as slots of 1 s.

    Slot 0 is before the failure, slot 1 after it, and each further one after a step of the answer.
    A row of ``answer.steps`` is an action and the number of a cell or circuit; ``SET`` sets a cell
    to the third number, ``RAISE`` puts a circuit up between its new ports, and any other action
    takes it down. ``answer.changed`` lists the circuits with new ports, ``answer.circuits`` these
    ports in the same order, and ``problem.hit[circuit]`` tells which ones the failure has cut.
    """
    # The state of the switch, which the steps below change one by one.
    circuits = np.array(problem.circuits)
    has_cells = problem.cell_states is not None
    cell_states = np.array(problem.cell_states if has_cells else [], dtype=np.int8)
    has_light = np.ones(len(circuits), dtype=bool)
    names = []
    matchings = []
    states_of_slots = []

    def add_slot(name: str) -> None:
        """Add a slot in which the switch is as it is now."""
        lit = circuits[has_light]
        matching = np.full(problem.fabric.n_ports, IDLE)
        matching[lit[:, 0]] = lit[:, 1]
        if problem.fabric.bidirectional:
            matching[lit[:, 1]] = lit[:, 0]
        names.append(name)
        matchings.append(matching)
        states_of_slots.append(cell_states.copy())

    add_slot("before the failure")

    # At the failure, cells are stuck or go dark, and circuits through them lose their light.
    has_light &= ~problem.hit
    for cell, state in problem.stuck.items():
        cell_states[cell] = state
    cell_states[list(problem.dead_cells)] = FREE
    add_slot(f"the failure: {count(int(problem.hit.sum()), 'circuit')} without light")

    # A step sets a cell, takes a circuit down, or puts one up between new ports.
    new_ports = dict(zip(answer.changed.tolist(), answer.circuits, strict=True))
    for text, (action, number, state) in zip(
        answer.describe(problem.fabric), answer.steps.tolist(), strict=True
    ):
        if action == SET:
            cell_states[number] = state
        elif action == RAISE:
            has_light[number] = True
            circuits[number] = new_ports[number]
        else:
            has_light[number] = False
        add_slot(text)

    return names, Schedule(
        matchings=np.array(matchings),
        durations_s=np.ones(len(names)),
        cell_states=np.array(states_of_slots) if has_cells else None,
    )


def draw_problem(problem: Reroute, ax: Axes | None = None) -> Figure:
    """Draw what runs after a failure, what is spare and what has failed, into `ax` if given.

    Chips of racks have the colours of their roles; a mesh shows the circuits that still have
    light.
    """
    n_hit = int(problem.hit.sum())
    no_change = Transition(moves=[], changed=[], circuits=[], routes=[], steps=[])  # type: ignore[arg-type]
    if isinstance(problem.fabric, RackFabric):
        return _draw_rack(problem, no_change, f"hit circuits: {n_hit}", ax)
    _, slots = _list_slots(problem, no_change)
    ax = plot_slot((problem.fabric, slots, keep_colours(problem)), 1, ax=ax)
    n_lit = len(problem.hit) - n_hit
    ax.set_title(f"after the failure: {n_lit} circuits; hit: {n_hit}")
    _mark_failed(ax, problem)
    return figure_of(ax)


def tabulate_problem(problem: Reroute) -> dict[str, Any]:
    """List a row for each circuit that ran."""
    source, destination = problem.circuits.T
    return {"source": source, "destination": destination, "owner": problem.owners,
            "hit": problem.hit}  # fmt: skip


def tabulate(solution: Solution) -> dict[str, Any]:
    """List a row for each step, with what changes."""
    answer: Any = solution.answer
    action, number, state = answer.steps.T
    steps = answer.describe(solution.problem.fabric)
    return {"step": steps, "kind": action, "which": number, "state": state}
