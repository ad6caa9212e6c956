"""Drawings of slices in racks: who has which server, and the fibres that join them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Solution
from optmatch.plotting import palette
from optmatch.plotting.figures import blank_figure
from optmatch.problems import Allocation, SliceAllocation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAP = 0.8
"""Between two layers of servers."""


class SliceData(NamedTuple):
    """The rack that a slice lies in, layer by layer from left to right."""

    centres: NDArray[np.float64]
    """``centres[server] = x, y``; servers counted from the first of the rack."""
    owner: NDArray[np.int64]
    """``owner[server]``: 0 the new slice, k the k-th placed one, -1 free, -2 reserved."""
    slot: NDArray[np.int64]
    """``slot[server]`` of the new slice, -1 elsewhere."""
    edges: NDArray[np.int64]
    """``edges[edge] = server, server``: those with light."""
    new: NDArray[np.int64]
    """``new[edge]``: circuits of the new slice."""
    before: NDArray[np.int64]
    """``before[edge]``: circuits that were there."""
    rack: int


def slice_data(solution: Solution) -> SliceData:
    """Lay out the rack of a slice.

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
    >>> from optmatch.solve import solve
    >>> data = slice_data(solve(SliceAllocation(RackFabric(), (2, 2, 2)), seed=0))
    >>> data.slot[:5].tolist(), data.edges.tolist(), data.new.tolist()
    ([0, -1, -1, -1, 1], [[0, 4], [4, 0]], [4, 4])
    """
    problem, answer = solution.problem, solution.answer
    if not isinstance(problem, SliceAllocation) or not isinstance(answer, Allocation):
        raise InputError("a drawing of a slice needs an allocation")
    fabric = problem.fabric
    per_rack = fabric.n_servers // fabric.racks
    rack = int(answer.servers[0]) // per_rack
    first = rack * per_rack
    places = fabric.server_coordinates[first : first + per_rack, 1:]
    width = fabric.server_grid[0] + GAP
    centres = np.stack([places[:, 0] + width * places[:, 2], -places[:, 1]], axis=1)
    owner = np.full(fabric.n_servers, -1, dtype=np.int64)
    owner[list(problem.reserved)] = -2
    for number, placed in enumerate(problem.placed, 1):
        owner[placed.servers] = number
    owner[answer.servers] = 0
    slot = np.full(fabric.n_servers, -1, dtype=np.int64)
    slot[answer.servers] = np.arange(len(answer.servers))
    count = len(fabric.edges) // fabric.racks
    span = slice(rack * count, (rack + 1) * count)
    passed = fabric.edge_of_fibre[answer.fibres[:, 1]]
    new = np.bincount(passed, minlength=len(fabric.edges))[span]
    before = problem.loads[span]
    lit = np.flatnonzero(new + before)
    return SliceData(
        centres=centres.astype(np.float64),
        owner=owner[first : first + per_rack],
        slot=slot[first : first + per_rack],
        edges=fabric.edges[span][lit].astype(np.int64) - first,
        new=new[lit],
        before=before[lit],
        rack=rack,
    )


def plot_slice(solution: Solution, *, ax: Axes | None = None) -> Axes:
    """Draw the rack of a slice: its servers with their slots, and its fibres over those before.

    Parameters
    ----------
    solution
        Of a `SliceAllocation`, with an answer.
    ax
        Where to draw; None makes a new figure.

    Returns
    -------
    Axes
        Layers of servers along z from left to right. The new slice has numbers; dark lines are its
        circuits, as wide as they are many, pale ones those that were there.
    """
    data = slice_data(solution)
    if ax is None:
        size = np.ptp(data.centres, axis=0) + 2
        ax = blank_figure(max(4.0, float(size[0])), max(2.5, float(size[1]))).add_subplot()
    for edge, (u, v) in enumerate(data.edges.tolist()):
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
    for server, (x, y) in enumerate(data.centres.tolist()):
        owner = int(data.owner[server])
        fill = {0: "#266ec3", -1: "white", -2: palette.FAINT_INK}.get(owner, "#d9dee5")
        ax.scatter([x], [y], s=260, marker="s", c=fill, edgecolors=palette.INK, zorder=3)
        text = str(data.slot[server]) if owner == 0 else {-1: "", -2: "x"}.get(owner, f"s{owner}")
        ink = "white" if owner == 0 else palette.INK
        ax.text(x, y, text, ha="center", va="center", fontsize=7, color=ink, zorder=4)
    ax.set_title(
        f"rack {data.rack}: the new slice by slots, others s1, s2, ..."
        f"; worst load {solution.objective:g}",
        fontsize=9,
    )
    ax.margins(0.12, 0.4)  # arcs around the ring along z leave the grid
    ax.set_axis_off()
    return ax
