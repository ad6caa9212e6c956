"""Rounds of a collective against ranks: who receives what, and where circuits change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Solution
from optmatch.plotting import palette
from optmatch.plotting.figures import blank_figure, draw_schedule
from optmatch.problems import CollectivePlan
from optmatch.problems.collectives.plan import plan_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IDLE, COPIES, ADDS = 0, 1, 2
"""What a rank does in a round: it receives nothing, copies, or what it adds to its own."""


class RoundsData(NamedTuple):
    """A cell for each rank and round."""

    does: NDArray[np.int8]
    """``does[rank, round]``: 0 nothing, 1 copies, 2 adds."""
    changes: NDArray[np.int64]
    """Rounds before which circuits change."""


def rounds_data(plan: CollectivePlan) -> RoundsData:
    """Lay out a plan.

    Raises
    ------
    InputError
        If it has no sends.

    Examples
    --------
    >>> import optmatch as om
    >>> plan = om.solve(om.Collective("all-reduce", 3, 3.0), "ring").answer
    >>> rounds_data(plan).does.tolist()
    [[2, 2, 1, 1], [2, 2, 1, 1], [2, 2, 1, 1]]
    """
    if not len(plan.sends):
        raise InputError("nothing to draw: the plan has no sends")
    does = np.zeros((plan.circuits.shape[2], plan.n_rounds), dtype=np.int8)
    turn, _, target, _, kind = plan.sends.T
    np.maximum.at(does, (target, turn), (kind + COPIES).astype(np.int8))
    return RoundsData(does, np.flatnonzero(np.diff(plan.epoch_of_round)) + 1)


def plot_rounds(plan: CollectivePlan, *, fig: Figure | None = None) -> Figure:
    """Draw a row for each rank and a column for each round.

    Parameters
    ----------
    plan
        The plan.
    fig
        Where to draw; None makes a new figure.
    """
    data = rounds_data(plan)
    ranks, rounds = data.does.shape
    fig = fig if fig is not None else blank_figure(min(12.0, 2 + 0.2 * rounds), 3.6)
    ax = fig.add_subplot()
    for value, name in ((COPIES, "copies"), (ADDS, "adds")):
        rank, turn = np.nonzero(data.does == value)
        colour = palette.circuit_colour(value - 1)
        ax.scatter(
            turn, rank, marker="s", s=12_000 / max(ranks, rounds) ** 2, color=colour, label=name
        )
    for change in data.changes.tolist():
        ax.axvline(change - 0.5, color=palette.FAINT_INK, lw=0.6)
    ax.set_xlim(-0.5, rounds - 0.5)
    ax.set_ylim(ranks - 0.5, -0.5)
    ax.set_xlabel("round; circuits change at the lines")
    ax.set_ylabel("rank")
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return fig


def draw(solution: Solution, slot: int | None = None) -> Figure:
    """Draw the rounds of a plan."""
    if slot is not None or not isinstance(solution.answer, CollectivePlan):
        return draw_schedule(solution, slot)
    return plot_rounds(plan_of(solution))


def tabulate(solution: Solution) -> dict[str, Any]:
    """List a row for each send."""
    plan: Any = solution.answer
    names = "round", "source", "destination", "chunk", "kind"
    columns = dict(zip(names, plan.sends.T, strict=True))
    columns["kind"] = np.where(columns["kind"] == 0, "copy", "reduce")
    return columns | {"size_bytes": plan.chunk_bytes[columns["chunk"]]}
