"""Drawings of slices in racks: the owner of each server, and the fibres that join servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import RackFabric
from optmatch.model import Solution
from optmatch.plotting import palette
from optmatch.plotting.figures import blank_figure, draw_schedule
from optmatch.plotting.slots import answered
from optmatch.plotting.viewer import scene
from optmatch.problems import Allocation, SliceAllocation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP = 0.8
"""Between two layers of servers."""


class SliceData(NamedTuple):
    """The racks that a slice lies in, one below the other, layer by layer from left to right."""

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
    """Lay out the racks of a slice.

    Parameters
    ----------
    solution
        Of a `SliceAllocation`, with an answer.

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
    per_rack = fabric.n_servers // fabric.racks
    racks = np.unique(answer.servers // per_rack)
    shown = (racks[:, None] * per_rack + np.arange(per_rack)).ravel()
    places = fabric.server_coordinates[shown, 1:]
    grid = fabric.server_grid
    row = np.repeat(np.arange(len(racks)), per_rack)
    centres = np.stack(
        [places[:, 0] + (grid[0] + GAP) * places[:, 2], -places[:, 1] - (grid[1] + 2 * GAP) * row],
        axis=1,
    )
    owner = _owners(problem)
    owner[answer.servers] = 0
    slot = np.full(fabric.n_servers, -1, dtype=np.int64)
    slot[answer.servers] = np.arange(len(answer.servers))
    new = _count_steps(fabric, [answer])
    before = _count_steps(fabric, problem.placed)
    spot = {server: k for k, server in enumerate(shown.tolist())}
    lit = [step for step in sorted(new | before) if step[0] in spot and step[1] in spot]
    return SliceData(
        centres=centres.astype(np.float64),
        owner=owner[shown],
        slot=slot[shown],
        edges=np.array([(spot[u], spot[v]) for u, v in lit], dtype=np.int64).reshape(-1, 2),
        new=np.array([new[step] for step in lit], dtype=np.int64),
        before=np.array([before[step] for step in lit], dtype=np.int64),
        racks=tuple(racks.tolist()),
        servers=shown,
    )


def _count_steps(fabric: RackFabric, slices: Iterable[Allocation]) -> Counter[tuple[int, int]]:
    """Count the circuits from server to server; two fibres over a switch are one step."""
    steps: Counter[tuple[int, int]] = Counter()
    for slice_ in slices:
        ends = fabric.edges[fabric.edge_of_fibre[slice_.fibres[:, 1]]].tolist()
        for (tail, head), (_, after) in zip(ends, [*ends[1:], (0, 0)], strict=False):
            if tail < fabric.n_servers:
                steps[tail, head if head < fabric.n_servers else after] += 1
    return steps


def plot_slice(solution: Solution, *, ax: Axes | None = None) -> Axes:
    """Draw the racks of a slice: its servers with their slots, and its light over that before.

    Parameters
    ----------
    solution
        Of a `SliceAllocation`, with an answer.
    ax
        Where to draw; None makes a new figure.

    Returns
    -------
    Axes
        Layers of servers along z from left to right, racks one below the other. The new slice has
        numbers; dark lines are its circuits, as wide as they are many, pale ones those that were
        there.
    """
    data = slice_data(solution)
    size = np.ptp(data.centres, axis=0) + 2
    scale = min(0.8, 16 / float(size.max()))
    if ax is None:
        inches = max(4.5, scale * float(size[0])), max(2.8, scale * float(size[1]) + 1.5)
        ax = blank_figure(*inches).add_subplot()
    joined = len(data.racks) > 1
    for edge, (u, v) in enumerate(data.edges.tolist()):
        if joined and not data.new[edge]:
            continue  # circuits of others between racks would hide all else
        for count, colour in ((data.before[edge], palette.FAINT_INK), (data.new[edge], "#266ec3")):
            if count:
                ax.annotate(
                    "",
                    data.centres[v],
                    data.centres[u],
                    arrowprops={
                        "arrowstyle": "->",
                        "color": colour,
                        "linewidth": 0.4 * float(count) ** 0.5,
                        "connectionstyle": "arc3,rad=0.15",
                        "shrinkA": 8,
                        "shrinkB": 8,
                    },
                )
    if not joined and data.before.any():
        ax.plot([], [], color=palette.FAINT_INK, label="circuits that were there")
    if data.new.any():
        ax.plot([], [], color="#266ec3", label="circuits of the new slice")
    _draw_servers(ax, data.centres, data.owner, data.slot, 72 * scale, data.servers)
    many = len(data.racks) > 8
    racks = f"{len(data.racks)} racks" if many else (
        f"rack{'s' if joined else ''} {', '.join(map(str, data.racks))}"
    )  # fmt: skip
    below = "\ncircuits of others between racks are left out" if joined else ""
    ax.set_title(
        f"{racks}: servers by number, #k is slot k of the slice; "
        f"worst load {solution.objective:g} circuits{below}",
        fontsize=9,
    )
    return ax


_MOST_NODES, _MOST_LINKS = 6000, 400
_FREE, _SLICE, _OTHERS, _RESERVED, _SWITCH, _OLD, _NEW = range(7)
_LEGEND = (
    ("free", "#ffffff"),
    ("the new slice", "#266ec3"),
    ("other slices", "#d9dee5"),
    ("reserved", "#8a94a3"),
    ("switch between racks", "#ffe3a3"),
    ("circuits that were there", "#8a94a3"),
    ("circuits of the new slice", "#266ec3"),
)


def page(solution: Solution) -> dict[str, Any]:
    """Collect the page: all racks and the switches between them, before and with the slice."""
    problem, answer = answered(solution, SliceAllocation, Allocation)
    fabric = problem.fabric
    places, n = _places(fabric), fabric.n_servers
    kinds = np.full(n + fabric.n_rack_switches, _SWITCH)
    kinds[:n] = _FREE
    kinds[list(problem.reserved)] = _RESERVED
    names = [f"server {k}" for k in range(n)]
    for number, placed in enumerate(problem.placed, 1):
        kinds[placed.servers] = _OTHERS
        for server in placed.servers.tolist():
            names[server] = f"slice {number}, server {server}"
    axes = "xyz"
    names += [f"switch {axes[a]} ({i}, {j})" for a, i, j in fabric.rack_switches.tolist()]
    shown = np.arange(len(places))
    if len(shown) > _MOST_NODES:  # the racks of the slice alone
        racks = np.isin(fabric.server_coordinates[:, 0], answer.servers // (n // fabric.racks))
        shown = np.concatenate([np.flatnonzero(racks), np.arange(n, len(places))])
    spot = {node: k for k, node in enumerate(shown.tolist())}
    nodes = []
    for node in shown.tolist():
        x, y = places[node].tolist()
        text = str(node) if node < n else ""
        nodes.append([round(x, 3), round(y, 3), 0.8, 0.8, text, int(kinds[node]), names[node]])
    steps_of: dict[int, Counter[tuple[int, int]]] = {_OLD: Counter(), _NEW: Counter()}
    for kind, slices in ((_OLD, problem.placed), (_NEW, (answer,))):
        for slice_ in slices:
            ends = fabric.edges[fabric.edge_of_fibre[slice_.fibres[:, 1]]]
            steps_of[kind].update(map(tuple, ends.tolist()))
    links: list[list[Any]] = []
    fresh: dict[str, int] = {}
    for kind, counts in steps_of.items():
        for (tail, head), count in sorted(counts.items()):
            if tail in spot and head in spot:
                name = f"{names[tail]} to {names[head]}: {count} circuits"
                if kind == _NEW:
                    fresh[str(len(links))] = kind
                width = round(0.02 + 0.02 * min(count, 8) ** 0.5, 3)
                links.append([spot[tail], spot[head], kind if kind == _OLD else -1, width, name])
    taken = {str(spot[server]): _SLICE for server in answer.servers.tolist()}
    size = places[shown].max(axis=0) + 1.6
    x, y, z = answer.shape
    rows = [
        [
            [f"{k}: server {server}", f"chips {server * fabric.chips_per_server} on"],
            {"node": spot[server]},
        ]
        for k, server in enumerate(answer.servers.tolist())
    ]
    left_out = len(places) - len(shown)
    quiet = {_OLD, _NEW} if len(fresh) > _MOST_LINKS else {_OLD} if fabric.joined else set[int]()
    return scene(
        solution,
        legend=[(*entry, "quiet") if k in quiet else entry for k, entry in enumerate(_LEGEND)],
        bounds=[-0.8, -0.8, *map(float, size)],
        nodes=nodes,
        links=links,
        steps=[
            {"say": f"before: {int((kinds[:n] == _FREE).sum())} of {n} servers are free"},
            {
                "say": f"a slice of {x} x {y} x {z} chips takes {len(taken)} servers",
                "nodes": taken,
            },
            {"say": f"its {len(answer.circuits)} circuits", "links": fresh},
        ],
        list={"title": "Servers of the slice", "heads": ["slot", ""], "rows": rows},
        note=(f"{left_out} servers of other racks are left out. " if left_out else "")
        + ("Most circuits are shown for the server that is clicked." if quiet else ""),
    )


def _places(fabric: RackFabric) -> NDArray[np.float64]:
    """Put racks on a grid, their layers beside each other, and below them the switches."""
    nx, ny, nz = fabric.server_grid
    rack, x, y, z = fabric.server_coordinates.T.astype(float)
    across = max(1, round((fabric.racks * (ny + 2) / (nz * (nx + GAP) + 1)) ** 0.5))
    column, row = rack % across, rack // across
    servers = np.stack(
        [x + (nx + GAP) * z + column * (nz * (nx + GAP) + 1), y + row * (ny + 1.5)], axis=1
    )
    if not fabric.n_rack_switches:
        return servers
    axis, i, j = fabric.rack_switches.T.astype(float)
    below, wide = servers[:, 1].max() + 2.0, np.array([ny, nx, nx])  # places i of x, y and z
    left = np.concatenate([[0.0], np.cumsum(wide + 1.0)])[axis.astype(int)]
    return np.concatenate([servers, np.stack([left + i, below + j], axis=1)])


def draw_problem(problem: SliceAllocation) -> Figure:
    """Draw all racks: free servers, those of other slices, and those that are kept out."""
    fabric = problem.fabric
    places = _places(fabric)[: fabric.n_servers]
    owner = _owners(problem)
    size = places.max(axis=0) + 1.6
    scale = min(0.55, 14 / size.max())
    figure = blank_figure(max(4.0, scale * size[0]), max(2.5, scale * size[1] + 0.8))
    ax = figure.add_subplot()
    _draw_servers(ax, places * [1, -1], owner, np.full(len(owner), -1), 72 * scale)
    free, wanted = int((owner == -1).sum()), " x ".join(map(str, problem.shape))
    font = max(8.0, 0.64 * figure.get_figwidth())
    for rack in range(fabric.racks if fabric.racks > 1 else 0):
        x, y = places[fabric.server_coordinates[:, 0] == rack].min(axis=0)
        ax.text(x - 0.4, 0.5 - y, f"rack {rack}", fontsize=font, va="bottom", zorder=4)
    told = f"{wanted} chips are wanted; {free:,} of {len(owner):,} servers are free"
    ax.set_title(f"{told}\na square is a server, layers of a rack side by side", fontsize=font + 1)
    return figure


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


def _draw_servers(
    ax: Axes, centres: Any, owner: Any, slot: Any, points: float, named: Any = None
) -> None:
    """Draw a square for each server, with its number where there is room, and a legend."""
    from matplotlib.lines import Line2D

    looks = {0: ("#266ec3", "the new slice"), 1: ("#d9dee5", "other slices"),
             -1: ("white", "free"), -2: (palette.FAINT_INK, "reserved")}  # fmt: skip
    kind = np.minimum(owner, 1)
    for value, (fill, _) in looks.items():
        at = centres[kind == value]
        ax.scatter(at[:, 0], at[:, 1], s=(0.72 * points) ** 2, marker="s", c=fill,
                   edgecolors=palette.INK, linewidths=0.6, zorder=3)  # fmt: skip
    if points >= 22:
        for server, (x, y) in enumerate(centres.tolist()):
            number = server if named is None else named[server]
            text = f"{number}" if slot[server] < 0 else f"{number}\n#{slot[server]}"
            ink = "white" if owner[server] == 0 else palette.INK
            ax.text(x, y, text, ha="center", va="center", fontsize=8, color=ink, zorder=4)
    marks = [
        Line2D([], [], marker="s", ls="", mfc=fill, mec=palette.INK, label=name)
        for value, (fill, name) in looks.items()
        if (kind == value).any()
    ]
    marks += ax.get_lines()
    ax.legend(handles=marks, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3,
              frameon=False, fontsize=9)  # fmt: skip
    ax.set_aspect("equal")
    (left, low), (right, high) = centres.min(axis=0), centres.max(axis=0)
    ax.set_xlim(left - 0.8, right + 0.8)
    ax.set_ylim(low - 1.1, high + 1.1)  # arcs around the ring along z leave the grid
    ax.set_axis_off()


def draw(solution: Solution, slot: int | None = None) -> Figure:
    """Draw the racks of a slice."""
    if slot is not None or not isinstance(solution.answer, Allocation):
        return draw_schedule(solution, slot)
    return cast("Figure", plot_slice(solution).figure)


def tabulate(solution: Solution) -> dict[str, Any]:
    """List a row for each circuit, with its ports and fibres."""
    answer: Any = solution.answer
    sources, destinations = answer.circuits.T
    fibres = [
        answer.fibres[answer.fibres[:, 0] == circuit, 1].tolist()
        for circuit in range(len(sources))
    ]
    return {"source": sources, "destination": destinations, "fibres": fibres}
