"""Drawings of slices in racks: the owner of each server, and the fibres that join servers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import RackFabric
from optmatch.model import Solution, brief_tuple
from optmatch.plotting import palette
from optmatch.plotting.drawing import (
    Axes,
    Figure,
    figure_of,
    readable_font,
)
from optmatch.plotting.scenes import draw_map
from optmatch.plotting.slots import answered
from optmatch.plotting.viewer import scene
from optmatch.problems import Allocation, SliceAllocation

GAP = 0.8
"""Between two layers of servers."""


@brief_tuple
class SliceData(NamedTuple):
    """The racks that a slice lies in, each layer by layer from left to right."""

    centres: NDArray[np.float64]
    """``centres[server] = x, y``; servers counted rack by rack, here as below."""
    owner: NDArray[np.int64]
    """``owner[server]``: 0 the new slice, k the k-th placed one, -1 free, -2 reserved."""
    slot: NDArray[np.int64]
    """``slot[server]`` of the new slice, -1 elsewhere."""
    edges: NDArray[np.int64]
    """``edges[edge] = server, server``: between which there is light, perhaps over a switch."""
    new: NDArray[np.int64]
    """``new[edge]``: circuits of the new slice."""
    before: NDArray[np.int64]
    """``before[edge]``: circuits that were there."""
    racks: tuple[int, ...]
    servers: NDArray[np.int64]
    """The number of each server in all racks."""


def slice_data(solution: Solution) -> SliceData:
    """Lay out the racks of a slice: a group of chips, on whole servers, that a job gets.

    Parameters
    ----------
    solution
        The solution of a `SliceAllocation`, with an answer.

    Returns
    -------
    SliceData
        The drawn racks are those in which the slice lies. For each of their servers:

        - `centres`: where it is drawn, x and y;
        - `owner`: 0 if it is in the new slice, k for the k-th of the slices that were there (from
          1), -1 if it is free, -2 if it is reserved;
        - `slot`: its place in the new slice, -1 if it has none.

        A row of `edges` is two of these servers; `new` and `before` are the numbers of circuits
        between them, of the new slice and of those that were there.

    Raises
    ------
    InputError
        If it is of another kind, or has no answer.

    Examples
    --------
    >>> from optmatch.fabrics import RackFabric
    >>> from optmatch import solve
    >>> data = slice_data(solve(SliceAllocation(RackFabric(), (2, 2, 2)), seed=0))
    >>> data.slot[:5].tolist(), data.edges.tolist(), data.new.tolist()
    ([0, -1, -1, -1, 1], [[0, 4], [4, 0]], [4, 4])
    """
    problem, answer = answered(solution, SliceAllocation, Allocation)
    fabric = problem.fabric

    # Only the racks of the slice are drawn. A server's place counts the drawn ones from 0.
    servers_per_rack = fabric.n_servers // fabric.racks
    racks = np.unique(answer.servers // servers_per_rack)
    servers = (racks[:, None] * servers_per_rack + np.arange(servers_per_rack)).ravel()
    place_of_server = {server: place for place, server in enumerate(servers.tolist())}

    # Owners and slots of all servers, with those of the new slice on top.
    owner = _owners(problem)
    owner[answer.servers] = 0
    slot = np.full(fabric.n_servers, -1, dtype=np.int64)
    slot[answer.servers] = np.arange(len(answer.servers))

    # Pairs of drawn servers between which there is light, new or old.
    n_new = _count_circuits(fabric, [answer], past_switches=True)
    n_before = _count_circuits(fabric, problem.placed, past_switches=True)
    hops = []
    edges = []
    for tail, head in sorted(n_new | n_before):
        if tail in place_of_server and head in place_of_server:
            hops.append((tail, head))
            edges.append((place_of_server[tail], place_of_server[head]))
    return SliceData(
        centres=place_servers(fabric, racks)[servers] * [1, -1],
        owner=owner[servers],
        slot=slot[servers],
        edges=np.array(edges, dtype=np.int64).reshape(-1, 2),
        new=np.array([n_new[hop] for hop in hops], dtype=np.int64),
        before=np.array([n_before[hop] for hop in hops], dtype=np.int64),
        racks=tuple(racks.tolist()),
        servers=servers,
    )


def _count_circuits(
    fabric: RackFabric, slices: Iterable[Allocation], *, past_switches: bool
) -> Counter[tuple[int, int]]:
    """Count circuits by pair of nodes, which are servers and then switches between racks.

    If `past_switches`, pairs are of servers alone, and two fibres over a switch are one hop.
    """
    n_circuits: Counter[tuple[int, int]] = Counter()
    for slice_ in slices:
        fibre_ends = fabric.edges[fabric.edge_of_fibre[slice_.fibres[:, 1]]].tolist()
        for number, (tail, head) in enumerate(fibre_ends):
            if past_switches and tail >= fabric.n_servers:
                continue  # the second fibre of a hop over a switch

            # From a switch the next fibre leads on.
            if past_switches and head >= fabric.n_servers:
                _, head = fibre_ends[number + 1]
            n_circuits[tail, head] += 1
    return n_circuits


def plot_slice(solution: Solution, *, ax: Axes | None = None) -> Axes:
    """Draw the racks of a slice: its servers with their slots, and its light over that before.

    Parameters
    ----------
    solution
        The solution of a `SliceAllocation`, with an answer.
    ax
        Where to draw; None makes a new figure. A slice of more than four racks is drawn rack by
        rack.

    Returns
    -------
    Axes
        Layers of servers along z from left to right, rack by rack. The new slice has numbers; dark
        lines are its circuits, as wide as they are many, pale ones those that were there.
    """
    data = slice_data(solution)
    if len(data.racks) > _MAX_DRAWN_RACKS:
        return _draw_large_slice(solution, ax)

    # The racks of the slice alone. In several, circuits of others would hide all else.
    problem, answer = answered(solution, SliceAllocation, Allocation)
    places = place_servers(problem.fabric, np.array(data.racks))
    chart = _servers_chart(problem, answer, places, data.servers)
    has_many_racks = len(data.racks) > 1
    if has_many_racks:
        chart["legend"][_OLD_CIRCUITS] += ("quiet",)
    for node, slot in enumerate(data.slot.tolist()):
        if slot >= 0:
            chart["nodes"][node][4] += f"\n#{slot}"
    ax = draw_map(chart, ax)

    noun = "racks" if has_many_racks else "rack"
    title = (
        f"{noun} {', '.join(map(str, data.racks))}: servers by number, #k is slot k of the slice; "
        f"worst load {solution.objective:g} circuits"
    )
    if has_many_racks:
        title += "\ncircuits of others between racks are left out"
    ax.set_title(title, fontsize=readable_font(ax) + 1)
    return ax


# Racks whose servers are drawn one by one: of a slice, and of a problem.
_MAX_DRAWN_RACKS = 4
_MAX_RACKS_OF_PROBLEM = 24


def _draw_large_slice(solution: Solution, ax: Axes | None) -> Axes:
    """Draw how many servers of a slice each rack gives, and its circuits as wide arcs.

    An arc joins two racks, and is the wider the more circuits lie between them. ``answer.servers``
    lists the servers of the slice, and a row of ``answer.circuits`` has the two ports of a
    circuit, counted chip by chip.
    """
    # ``n_given[rack]``: the servers of the slice in a rack.
    problem, answer = answered(solution, SliceAllocation, Allocation)
    fabric = problem.fabric
    rack_of_server = fabric.server_coordinates[:, 0].astype(np.int64)
    n_given = np.bincount(rack_of_server[answer.servers], minlength=fabric.racks)
    servers_per_rack = fabric.n_servers // fabric.racks

    # How many circuits there are between two racks, either way; `ends` are the racks of each
    # circuit, shape (circuits, 2).
    chips = answer.circuits // fabric.ports_per_chip
    ends = np.sort(rack_of_server[fabric.server_of_chip[chips]], axis=1)
    pairs, n_circuits = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0, return_counts=True)
    chart = _racks_chart(n_given, servers_per_rack, "servers of the new slice")
    for (tail, head), count in zip(pairs.tolist(), n_circuits.tolist(), strict=True):
        name = f"rack {tail} to rack {head}: {count} circuits"
        chart["links"].append([tail, head, _ARC, 0.1 * count / max(n_circuits), name])
    ax = draw_map(chart, ax)

    n_racks = int((n_given > 0).sum())
    n_inside = int((ends[:, 0] == ends[:, 1]).sum())
    between = f"{int(n_circuits.sum()):,} circuits between racks are lines"
    ax.set_title(
        f"a slice of {len(answer.servers)} servers in {n_racks} of {fabric.racks} racks; "
        f"worst load {solution.objective:g} circuits\n"
        f"{between}, {n_inside:,} within racks are left out",
        fontsize=readable_font(ax) + 1,
    )
    return ax


_ARC = 5
"""The kind of a line between racks: a place in the legend, after five shades."""


def _racks_chart(values: NDArray[np.int64], most: int, noun: str) -> dict[str, Any]:
    """Lay out a square for each rack with its number of servers, as parts of a scene.

    There are ``values[rack]`` servers of `most`; the more, the darker is the square. `noun` says
    what is counted.
    """
    # Of 16 servers, shade 0 is for none, shade 1 for 1 to 4, shade 4 for 13 to 16.
    shade = -(-4 * values // most)
    legend = [(f"no {noun}", _SHADES[0])]
    for number in range(1, 5):
        low = (number - 1) * most // 4 + 1
        legend.append((f"{low} to {number * most // 4} of {most} {noun}", _SHADES[number]))
    legend.append(("circuits between racks", palette.INK))

    # The racks lie in a grid that is wider than high.
    racks = np.arange(len(values))
    n_columns = max(1, round((1.8 * len(values)) ** 0.5))
    places = np.stack([racks % n_columns, racks // n_columns], axis=1)
    nodes = []
    for rack, (x, y) in enumerate(places.tolist()):
        text = str(values[rack])
        nodes.append([x, y, 0.92, 0.92, text, int(shade[rack]), f"rack {rack}"])
    width, height = (places.max(axis=0) + 2).tolist()
    return {
        "legend": legend,
        "bounds": [-0.5, -0.5, width, height],
        "nodes": nodes,
        "links": [],
        "steps": [{}],
    }


_SLICE_COLOUR = "#266ec3"
_SHADES = ("#f4f6f9", "#cddcf0", "#9bbce3", "#5f92d1", _SLICE_COLOUR)

# Servers of a page, beyond which it has the racks of the slice alone; and circuits of the slice
# that it shows at once.
_MAX_NODES = 6000
_MAX_LINKS = 400

# The kinds of nodes and links of a page: places in its legend.
_FREE, _SLICE, _OTHER_SLICES, _RESERVED, _SWITCH, _OLD_CIRCUITS, _NEW_CIRCUITS = range(7)
_HIDDEN = -1
_LEGEND = (
    ("free", "#ffffff"),
    ("the new slice", _SLICE_COLOUR),
    ("other slices", "#d9dee5"),
    ("reserved", "#8a94a3"),
    ("switch between racks", "#ffe3a3"),
    ("circuits that were there", "#8a94a3"),
    ("circuits of the new slice", _SLICE_COLOUR),
)


def page(solution: Solution) -> dict[str, Any]:
    """Collect a page of racks: before, with the servers of the slice, and with its circuits.

    With more than 6,000 servers and switches, only servers in the racks of the slice are shown,
    with all switches.
    """
    problem, answer = answered(solution, SliceAllocation, Allocation)
    fabric = problem.fabric
    n_servers = fabric.n_servers
    places = _place_servers_and_switches(fabric)

    # Of very many racks, those of the slice are shown alone, with all switches.
    shown = np.arange(len(places))
    if len(shown) > _MAX_NODES:
        racks_of_slice = answer.servers // (n_servers // fabric.racks)
        is_shown = np.isin(fabric.server_coordinates[:, 0], racks_of_slice)
        shown = np.concatenate([np.flatnonzero(is_shown), np.arange(n_servers, len(places))])
    chart = _servers_chart(problem, answer, places, shown)

    # Quiet kinds of links are shown only for the server that is clicked.
    _, _, new_links = (step.get("links", {}) for step in chart["steps"])
    quiet_kinds: set[int] = set()
    if len(new_links) > _MAX_LINKS:
        quiet_kinds = {_OLD_CIRCUITS, _NEW_CIRCUITS}
    elif fabric.joined:
        quiet_kinds = {_OLD_CIRCUITS}
    for kind in quiet_kinds:
        chart["legend"][kind] += ("quiet",)

    # The list of the servers of the slice, with their chips.
    number_on_page = {node: number for number, node in enumerate(shown.tolist())}
    rows = []
    for slot, server in enumerate(answer.servers.tolist()):
        first_chip = server * fabric.chips_per_server
        last_chip = first_chip + fabric.chips_per_server - 1
        chips = f"chip {first_chip}" if last_chip == first_chip else f"{first_chip} to {last_chip}"
        rows.append([[f"{slot}: server {server}", chips], {"node": number_on_page[server]}])
    notes = []
    n_left_out = len(places) - len(shown)
    if n_left_out:
        notes.append(f"{n_left_out} servers of other racks are left out. ")
    if quiet_kinds:
        notes.append("Most circuits are shown for the server that is clicked.")
    return scene(
        solution,
        **chart,
        list={"title": "Servers of the slice", "heads": ["slot", "chips"], "rows": rows},
        note="".join(notes),
    )


def _servers_chart(
    problem: SliceAllocation,
    answer: Allocation | None,
    places: NDArray[np.float64],
    drawn: NDArray[np.int64],
) -> dict[str, Any]:
    """Lay out servers and switches between racks as squares, as parts of a scene.

    Nodes are servers and then switches: ``places[node]`` is a corner in widths of a server, and
    `drawn` lists those that have one. Without switches, lines join the servers beside them. Of
    three steps the second has the servers of the answer, the third its circuits; without an answer
    there is only the first.
    """
    fabric = problem.fabric
    n_servers = fabric.n_servers

    # All placed slices, which are numbered from 1, look alike.
    kind_of_owner = {1: _OTHER_SLICES, -1: _FREE, -2: _RESERVED}
    owners = _owners(problem).tolist()
    kinds = [kind_of_owner[min(owner, 1)] for owner in owners]
    kinds += [_SWITCH] * fabric.n_rack_switches
    names = _names_of_nodes(problem)
    number_on_page = {node: number for number, node in enumerate(drawn.tolist())}
    nodes = []
    for node in drawn.tolist():
        x, y = places[node].tolist()
        text = str(node) if node < n_servers else ""
        nodes.append([round(x, 3), round(y, 3), 0.8, 0.8, text, kinds[node], names[node]])

    # Links are circuits that were there, then those of the slice, which are hidden at first.
    links: list[list[Any]] = []
    new_links: dict[str, int] = {}
    new_slices = [] if answer is None else [answer]
    for first_kind, slices in ((_OLD_CIRCUITS, problem.placed), (_HIDDEN, new_slices)):
        counts = _count_circuits(fabric, slices, past_switches=bool(drawn.max() < n_servers))
        for (tail, head), n_circuits in sorted(counts.items()):
            if tail in number_on_page and head in number_on_page:
                if first_kind == _HIDDEN:
                    new_links[str(len(links))] = _NEW_CIRCUITS

                # More circuits make a wider line, up to eight of them.
                width = round(0.02 + 0.02 * min(n_circuits, 8) ** 0.5, 3)
                name = f"{names[tail]} to {names[head]}: {n_circuits} circuits"
                links.append([number_on_page[tail], number_on_page[head], first_kind, width, name])

    n_free = kinds[:n_servers].count(_FREE)
    steps: list[dict[str, Any]] = [{"say": f"before: {n_free} of {n_servers} servers are free"}]
    if answer is not None:
        x, y, z = answer.shape
        taking = f"a slice of {x} x {y} x {z} chips takes {len(answer.servers)} servers"
        slice_nodes = {str(number_on_page[server]): _SLICE for server in answer.servers.tolist()}
        steps.append({"say": taking, "nodes": slice_nodes})
        steps.append({"say": f"its {len(answer.circuits)} circuits", "links": new_links})

    # Nodes are 0.8 wide; around them there is 0.8 on every side.
    left, top = (places[drawn].min(axis=0) - 0.8).tolist()
    width, height = (np.ptp(places[drawn], axis=0) + 0.8 + 2 * 0.8).tolist()
    return {
        "legend": list(_LEGEND),
        "bounds": [left, top, width, height],
        "nodes": nodes,
        "links": links,
        "steps": steps,
        "is_directed": True,
    }


def _names_of_nodes(problem: SliceAllocation) -> list[str]:
    """Return names of servers, "slice 2, server 17", and switches, "switch x (1, 3)".

    A switch is named by the axis that it joins, and the two coordinates on its face.
    """
    fabric = problem.fabric
    names = [f"server {server}" for server in range(fabric.n_servers)]
    for number, placed in enumerate(problem.placed, 1):
        for server in placed.servers.tolist():
            names[server] = f"slice {number}, server {server}"
    for axis, i, j in fabric.rack_switches.tolist():
        names.append(f"switch {'xyz'[axis]} ({i}, {j})")
    return names


def place_servers(fabric: RackFabric, racks: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return ``places[server]``, x and y in sides of a server, y downwards; NaN in other racks.

    The layers of a rack along z stand beside each other, and as many racks as make the whole about
    square.
    """
    n_x, n_y, n_z = fabric.server_grid
    rack, x, y, z = fabric.server_coordinates.T
    rack_size = np.array([n_z * (n_x + GAP) + 1, n_y + 1.5])
    n_columns = max(1, math.ceil((len(racks) * rack_size[1] / rack_size[0]) ** 0.5))
    corner_of_rack = np.full((fabric.racks, 2), np.nan)
    number = np.arange(len(racks))
    corner_of_rack[racks] = np.stack([number % n_columns, number // n_columns], axis=1) * rack_size
    return np.asarray(corner_of_rack[rack] + np.stack([x + (n_x + GAP) * z, y], axis=1))


def _place_servers_and_switches(fabric: RackFabric) -> NDArray[np.float64]:
    """Return ``places[node]`` of servers (`place_servers`) and of switches between racks below."""
    servers = place_servers(fabric, np.arange(fabric.racks))
    if not fabric.n_rack_switches:
        return servers

    # The switches of an axis form a block; the blocks of x, y and z stand beside each other.
    n_x, n_y, _ = fabric.server_grid
    axis, i, j = fabric.rack_switches.T.astype(float)
    block_widths = np.array([n_y, n_x, n_x]) + 1.0
    left_of_block = np.concatenate([[0.0], np.cumsum(block_widths)])
    top = servers[:, 1].max() + 2.0
    switches = np.stack([left_of_block[axis.astype(int)] + i, top + j], axis=1)
    return np.concatenate([servers, switches])


def draw_problem(problem: SliceAllocation, ax: Axes | None = None) -> Figure:
    """Draw a square for each server (free, taken or reserved), or for each of over 24 racks.

    The layers of a rack stand side by side. The square of a rack is coloured by how many of its
    servers are free.
    """
    fabric = problem.fabric
    is_free = _owners(problem) == -1
    shape = " x ".join(map(str, problem.shape))
    title = f"{shape} chips are wanted; {is_free.sum():,} of {len(is_free):,} servers are free"
    if fabric.racks > _MAX_RACKS_OF_PROBLEM:
        rack_of_server = fabric.server_coordinates[:, 0].astype(np.int64)
        n_free_of_rack = np.bincount(rack_of_server[is_free], minlength=fabric.racks)
        most = fabric.n_servers // fabric.racks
        ax = draw_map(_racks_chart(n_free_of_rack, most, "free servers"), ax)
        title += f"\na square is one of {fabric.racks} racks, from rack 0 at the top by rows"
    else:
        # Few racks are drawn server by server.
        places = _place_servers_and_switches(fabric)[: fabric.n_servers]
        chart = _servers_chart(problem, None, places, np.arange(fabric.n_servers))
        chart["legend"][_OLD_CIRCUITS] += ("quiet",)
        ax = draw_map(chart, ax)
        title += "\na square is a server, layers of a rack side by side"
        for rack in range(fabric.racks if fabric.racks > 1 else 0):
            x, y = places[fabric.server_coordinates[:, 0] == rack].min(axis=0)
            ax.text(x, y - 0.1, f"rack {rack}", fontsize=readable_font(ax), va="bottom", zorder=4)
    ax.set_title(title, fontsize=readable_font(ax) + 1)
    return figure_of(ax)


def tabulate_problem(problem: SliceAllocation) -> dict[str, Any]:
    """List a row for each server: its place, and the slice that has it (-1 free, -2 reserved)."""
    owner = _owners(problem)
    rack, x, y, z = problem.fabric.server_coordinates.T
    return {"server": np.arange(len(owner)), "rack": rack, "x": x, "y": y, "z": z, "slice": owner}


def _owners(problem: SliceAllocation) -> NDArray[np.int64]:
    """``owner[server]``: k for the k-th placed slice from 1, -1 free, -2 reserved."""
    owner = np.full(problem.fabric.n_servers, -1, dtype=np.int64)
    owner[list(problem.reserved)] = -2
    for number, placed in enumerate(problem.placed, 1):
        owner[placed.servers] = number
    return owner


def tabulate(solution: Solution) -> dict[str, Any]:
    """List a row for each circuit: source and destination port, and the fibres that it passes."""
    answer: Any = solution.answer
    sources, destinations = answer.circuits.T
    circuit_of_fibre, fibre = answer.fibres.T
    fibres_of_circuits = []
    for circuit in range(len(sources)):
        fibres_of_circuits.append(fibre[circuit_of_fibre == circuit].tolist())
    return {"source": sources, "destination": destinations, "fibres": fibres_of_circuits}
