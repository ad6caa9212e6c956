"""Time against delay for all methods, and the map of winners over size and delay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.plotting import palette
from optmatch.plotting.figures import blank_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
