"""Drawings of slices in racks: the owner of each server, and the fibres that join servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import RackFabric
from optmatch.model import InputError, Solution
from optmatch.plotting import palette
from optmatch.plotting.figures import blank_figure, draw_schedule
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
    problem, answer = solution.problem, solution.answer
    if not isinstance(problem, SliceAllocation) or not isinstance(answer, Allocation):
        raise InputError("a drawing of a slice needs an allocation")
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
    owner = np.full(fabric.n_servers, -1, dtype=np.int64)
    owner[list(problem.reserved)] = -2
    for number, placed in enumerate(problem.placed, 1):
        owner[placed.servers] = number
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
        f"{'rack' if len(data.racks) == 1 else 'racks'} {', '.join(map(str, data.racks))}:"
        f" the new slice by slots, others s1, s2, ..."
        f"; worst load {solution.objective:g}",
        fontsize=9,
    )
    ax.margins(0.12, 0.4 / len(data.racks))  # arcs around the ring along z leave the grid
    ax.set_axis_off()
    return ax


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
