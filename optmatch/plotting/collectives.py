"""Plans of a collective round by round, and time against delay with the map of winners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Solution
from optmatch.plotting import palette
from optmatch.plotting.figures import blank_figure, draw_schedule
from optmatch.problems import CollectivePlan
from optmatch.problems.collectives.plan import KINDS, plan_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IDLE, COPIES, ADDS = 0, 1, 2
"""The task of a rank in a round: it receives nothing, copies, or adds data to its own."""


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
    if solution.answer.shares_bytes.size:
        return _plot_shares(solution.answer)
    return plot_rounds(plan_of(solution))


def _plot_shares(plan: CollectivePlan) -> Figure:
    """Draw a row for each plane, and what it carries of each round against time."""
    n_planes = plan.shares_bytes.shape[1]
    fig = blank_figure(8.0, 1.2 + 0.5 * n_planes)
    ax = fig.add_subplot()
    for turn, plane in np.argwhere(plan.shares_bytes).tolist():
        start_s, end_s = float(plan.start_s[turn, plane]), float(plan.end_s[turn, plane])
        colour = palette.circuit_colour(turn)
        ax.barh(plane, end_s - start_s, left=start_s, color=colour, height=0.7)
        look: Any = {"ha": "center", "va": "center", "color": palette.ink_on(colour)}
        ax.text((start_s + end_s) / 2, plane, str(turn), fontsize=8, **look)
    ax.set_xlim(0, plan.time_s)
    ax.set_yticks(range(n_planes))
    ax.invert_yaxis()
    ax.set_xlabel("time (s); a number is the round that a plane carries a share of")
    ax.set_ylabel("plane")
    return fig


def tabulate(solution: Solution) -> dict[str, Any]:
    """List a row for each send, or for each share of a plane where a plan has no sends."""
    plan: Any = solution.answer
    if plan.shares_bytes.size:
        turn, plane = at = np.nonzero(plan.shares_bytes)
        times = {"start_s": plan.start_s[at], "end_s": plan.end_s[at]}
        return {"round": turn, "plane": plane, "share_bytes": plan.shares_bytes[at]} | times
    names = "round", "source", "destination", "chunk", "kind"
    columns = dict(zip(names, plan.sends.T, strict=True))
    columns["kind"] = np.array(KINDS)[columns["kind"]]
    return columns | {"size_bytes": plan.sent_bytes}


Tables = Mapping[str, Sequence[Mapping[str, Any]]]


class DelaysData(NamedTuple):
    """Curves by method, and the winner of each size and delay."""

    delays_s: NDArray[np.float64]
    time_s: dict[str, NDArray[np.float64]]
    """``time_s[method][delay]``; ``"bound"`` is the lower bound."""
    sizes_bytes: NDArray[np.float64]
    winner: list[list[str]]
    """``winner[size][delay]``."""


def delays_data(tables: Tables) -> DelaysData:
    """Lay out the tables of `optmatch.studies.collectives.study_collectives`.

    Raises
    ------
    InputError
        If there is nothing to draw.

    Examples
    --------
    >>> rows = [{"method": "ring", "delay_s": 1.0, "time_s": 2.0}]
    >>> best = [{"size_bytes": 8.0, "delay_s": 1.0, "winner": "ring"}]
    >>> delays_data({"times": rows, "winners": best}).winner
    [['ring']]
    """
    rows, best = tables["times"], tables["winners"]
    if not rows or not best:
        raise InputError("nothing to draw: the study has no rows")
    delays = sorted({row["delay_s"] for row in best})
    sizes = sorted({row["size_bytes"] for row in best})
    known = {(row["size_bytes"], row["delay_s"]): row["winner"] for row in best}
    names = dict.fromkeys(row["method"] for row in rows)
    by_name = {
        name: {row["delay_s"]: row["time_s"] for row in rows if row["method"] == name}
        for name in names
    }
    return DelaysData(
        np.array(delays),
        {name: np.array([times[delay] for delay in delays]) for name, times in by_name.items()},
        np.array(sizes),
        [[known.get((size, delay), "") for delay in delays] for size in sizes],
    )


def plot_delays(tables: Tables, *, fig: Figure | None = None) -> Figure:
    """Draw both side by side.

    Parameters
    ----------
    tables
        As for `delays_data`.
    fig
        Where to draw; None makes a new figure.
    """
    data = delays_data(tables)
    fig = fig if fig is not None else blank_figure(11.0, 4.2)
    left, right = fig.subplots(1, 2)
    names = [name for name in data.time_s if name != "bound"]
    colours = {name: palette.circuit_colour(k) for k, name in enumerate(names)}
    for name in names:
        left.loglog(data.delays_s, data.time_s[name], color=colours[name], marker="o", label=name)
    if "bound" in data.time_s:
        left.loglog(data.delays_s, data.time_s["bound"], color=palette.INK, ls="--", label="bound")
    left.set_xlabel("delay in s")
    left.set_ylabel("time in s")
    left.legend(frameon=False, fontsize=7)
    for row, winners in enumerate(data.winner):
        for column, name in enumerate(winners):
            colour = colours.get(name, palette.FAINT_INK)
            right.fill(
                [column, column + 1, column + 1, column], [row, row, row + 1, row + 1], colour
            )
            right.text(
                column + 0.5, row + 0.5, name, ha="center", va="center", fontsize=6, rotation=45,
                color=palette.ink_on(colour),
            )  # fmt: skip
    right.set_xticks(np.arange(len(data.delays_s)) + 0.5, [f"{d:.0e}" for d in data.delays_s])
    right.set_yticks(
        np.arange(len(data.sizes_bytes)) + 0.5, [f"{s:.0e}" for s in data.sizes_bytes]
    )
    right.set_xlabel("delay in s")
    right.set_ylabel("size in bytes")
    right.set_title("the fastest", fontsize=10)
    for ax in (left, right):
        ax.tick_params(labelsize=7)
    return fig
