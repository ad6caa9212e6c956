"""Bars of comparisons and of uneven computations, and curves of costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.plotting import palette
from optmatch.plotting.drawing import Figure, blank_figure
from optmatch.problems.costs import DESIGNS, CostComparison


class Panel(NamedTuple):
    """A chart: at each label a group of bars, one for each series."""

    title: str
    ylabel: str
    labels: list[str]
    """Along the x axis."""
    series: dict[str, list[float]]
    """Heights of bars by name, in the order of the labels."""


def jitter_data(rows: Sequence[Mapping[str, Any]]) -> Panel:
    """Lay out the step times of many runs in which computations last unevenly long.

    Parameters
    ----------
    rows
        By policy, when rails are switched: ``policy``, ``planned_s``, ``mean_s`` and ``p99_s``,
        the 99th percentile.
    """
    return Panel(
        "step time with uneven computations",
        "seconds",
        [row["policy"] for row in rows],
        {
            "planned": [row["planned_s"] for row in rows],
            "mean": [row["mean_s"] for row in rows],
            "99th percentile": [row["p99_s"] for row in rows],
        },
    )


def plot_jitter(rows: Sequence[Mapping[str, Any]], *, fig: Figure | None = None) -> Figure:
    """Draw step times with uneven computations as bars.

    Parameters
    ----------
    rows
        Rows as of `jitter_data`.
    fig
        Where to draw; None makes a new figure.
    """
    return draw_bars_by_label(jitter_data(rows), fig=fig)


def draw_bars_by_label(panel: Panel, *, fig: Figure | None = None) -> Figure:
    """Draw a chart of grouped bars into an empty figure, or a new one; a value of NaN has no bar.

    ``panel.series[name][group]`` is the height of the bar of a series in the group that
    ``panel.labels[group]`` names.
    """
    width_inches = 12.0 if len(panel.labels) > 9 else 5.0
    figure = blank_figure(width_inches, 4.0) if fig is None else fig
    font = max(8.0, 0.64 * width_inches)
    ax = figure.add_subplot()
    n_series = len(panel.series)
    bar_width = 0.8 / max(1, n_series)
    for k, (name, values) in enumerate(panel.series.items()):
        # The bars of a group lie around its label.
        offset = (k - (n_series - 1) / 2) * bar_width
        places = [group + offset for group in range(len(values))]
        ax.bar(places, values, bar_width, color=palette.circuit_colour(k), label=name)

    n_letters = sum(len(label) for label in panel.labels)
    rotation = 90 if n_letters > 50 else 0
    ax.set_xticks(range(len(panel.labels)), panel.labels, rotation=rotation)
    ax.set_title(panel.title, fontsize=font + 2)
    ax.set_ylabel(panel.ylabel, fontsize=font)
    ax.tick_params(labelsize=font)
    ax.set_ylim(bottom=0.0)
    if n_series > 1:
        ax.legend(fontsize=font, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


class CostsData(NamedTuple):
    """Curves by design: a row for each of `DESIGNS`, a column for each size."""

    n_gpus: NDArray[np.int64]
    cost_usd: NDArray[np.float64]
    power_w: NDArray[np.float64]


def costs_data(rows: Sequence[CostComparison]) -> CostsData:
    """Lay out comparisons of the costs of networks as curves.

    Parameters
    ----------
    rows
        One for each number of GPUs, with a network for each design.

    Returns
    -------
    CostsData
        Numbers of GPUs, ascending, and arrays of shape (designs, sizes) with costs in US dollars
        and power in watts.

    Examples
    --------
    >>> from optmatch.problems.costs import PRICES, compare_costs
    >>> costs_data(compare_costs([2048, 1024], PRICES["h200"])).n_gpus.tolist()
    [1024, 2048]
    """
    ordered = sorted(rows, key=lambda row: row.n_gpus)
    networks = [row.networks for row in ordered]
    return CostsData(
        n_gpus=np.array([row.n_gpus for row in ordered], dtype=np.int64),
        cost_usd=np.array([[network.cost_usd for network in row] for row in networks]).T,
        power_w=np.array([[network.power_w for network in row] for row in networks]).T,
    )


def plot_costs(rows: Sequence[CostComparison], *, fig: Figure | None = None) -> Figure:
    """Draw cost and power side by side, on logarithmic axes.

    Parameters
    ----------
    rows
        Comparisons of `compare_costs`.
    fig
        Where to draw; None makes a new figure.

    Returns
    -------
    Figure
        Millions of dollars at the left, kilowatts at the right, by number of GPUs.
    """
    data = costs_data(rows)
    fig = fig if fig is not None else blank_figure(9.0, 3.6)
    panels = fig.subplots(1, 2)
    sides = (
        (data.cost_usd / 1e6, "cost in million US dollars"),
        (data.power_w / 1e3, "power in kW"),
    )
    for ax, (values, label) in zip(panels, sides, strict=True):
        for k, design in enumerate(DESIGNS):
            ax.loglog(
                data.n_gpus,
                values[k],
                marker="os^"[k],
                color=palette.circuit_colour(k),
                label=design.replace("-", " "),
            )
        ax.set(xlabel="GPUs", ylabel=label)
        ax.set_xticks(data.n_gpus, [f"{size:,}" for size in data.n_gpus], fontsize=8, rotation=45)
        ax.minorticks_off()
        ax.grid(color=palette.FAINT_INK, alpha=0.25)
    panels[0].legend(frameon=False, fontsize=8)
    return fig
