"""Charts of the studies of racks and of uneven computations, and of costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.plotting import palette
from optmatch.plotting.drawing import blank_figure
from optmatch.problems.costs import DESIGNS, CostComparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Tables = Mapping[str, Sequence[Mapping[str, Any]]]


class Panel(NamedTuple):
    """A chart: a line or a group of bars for each series."""

    title: str
    ylabel: str
    labels: list[str]
    """Along the x axis."""
    series: dict[str, list[float]]
    errors: Mapping[str, list[float]] = {}
    """Half widths of confidence intervals, where there are any."""
    xlabel: str = ""
    lines: bool = False
    """Whether lines are drawn instead of bars."""


def study_data(name: str, tables: Tables) -> list[Panel]:
    """Lay out the tables of a study as charts.

    Parameters
    ----------
    name
        ``"slices"``, ``"spares"``, ``"blast-radius"`` or ``"jitter"``.
    tables
        Rows of figures, as the study returns them.

    Raises
    ------
    InputError
        If there is nothing to draw.

    Examples
    --------
    >>> rows = [{"spares": 0, "unit": "chip", "covered_failures": 0.5}]
    >>> study_data("spares", {"cover": rows})[0].series
    {'a spare is a chip': [0.5]}
    """
    panels = _PANELS[name](tables)
    if not any(panel.series for panel in panels):
        raise InputError("nothing to draw: the study has no rows")
    return panels


def _slices_panels(tables: Tables) -> list[Panel]:
    """Lay out the charts of a study of slices, the boxes of chips that jobs get in racks.

    A rule says which servers a slice gets. The charts show what remains free under each rule, how
    many slices find a place among servers of which some are taken, and the bandwidth of a slice.

    Parameters
    ----------
    tables
        The tables of the study, lists of rows with

        - ``rules``: the parts of free servers that are fragmented or unusable, the part of
          requests that is rejected, and half the width of the 95 % interval of each;
        - ``fragmented``: the slices placed, by rule and shape, with half the width;
        - ``tenants``: by shape the part of a chip's ports in use, in a fixed torus or steered.

    Returns
    -------
    list of Panel
        Three charts with a bar for each value, in this order; parts are shares from 0 to 1.
    """
    # A group of bars for each figure, a colour for each rule.
    columns = ("fragmentation", "unusable", "rejected_part")
    figures = {}
    half_widths = {}
    for row in tables["rules"]:
        figures[row["rule"]] = [row[column] for column in columns]
        half_widths[row["rule"]] = [row[f"{column}_half_width"] for column in columns]
    requests = Panel(
        "requests that come and go",
        "part of free servers, of requests",
        ["fragmented", "unusable", "rejected"],
        figures,
        half_widths,
    )

    # A group of bars for each shape, a colour for each rule.
    placed: dict[str, list[float]] = {}
    placed_half_width: dict[str, list[float]] = {}
    for row in tables["fragmented"]:
        placed.setdefault(row["rule"], []).append(row["placed"])
        placed_half_width.setdefault(row["rule"], []).append(row["placed_half_width"])
    fragmented = Panel(
        "slices that a fragmented pod still holds",
        "slices placed",
        _unique(row["shape"] for row in tables["fragmented"]),
        placed,
        placed_half_width,
        "chips of a slice",
    )

    # A group of two bars for each shape.
    tenants = tables["tenants"]
    bandwidth = Panel(
        "bandwidth of a tenant's chip",
        "part of its ports in use",
        [row["shape"] for row in tenants],
        {
            "fixed torus": [row["fixed"] for row in tenants],
            "steered": [row["steered"] for row in tenants],
        },
        xlabel="chips of its slice",
    )
    return [requests, fragmented, bandwidth]


def _unique(names: Iterable[str]) -> list[str]:
    """Return different names in the order of their first appearance."""
    return list(dict.fromkeys(names))


def _spares_panels(tables: Tables) -> list[Panel]:
    """Lay out a study of spares: a line for each unit (such as a chip) that a spare may be.

    Parameters
    ----------
    tables
        "cover" has rows of unit, number of spares, and the part that these cover of the time in
        which something is down.

    Returns
    -------
    list of Panel
        One chart, numbers of spares across.
    """
    series: dict[str, list[float]] = {}
    most_spares = 0
    for row in tables["cover"]:
        series.setdefault(f"a spare is a {row['unit']}", []).append(row["covered_failures"])
        most_spares = max(most_spares, row["spares"])
    return [
        Panel(
            "failures that the spares of a rack cover",
            "covered part of the time in which something is down",
            [str(n_spares) for n_spares in range(most_spares + 1)],
            series,
            xlabel="spares of a rack",
            lines=True,
        )
    ]


def _blast_panels(tables: Tables) -> list[Panel]:
    """Lay out a study of failures: the chips whose circuits change by each kind of repair.

    Parameters
    ----------
    tables
        "blast" has rows of repair, mean number of chips, and half the width of its interval.

    Returns
    -------
    list of Panel
        One chart, kinds of repair across.
    """
    rows = tables["blast"]
    series = {}
    if rows:
        series["mean"] = [row["chips"] for row in rows]
    return [
        Panel(
            "blast radius of a failed chip",
            "chips whose circuits change",
            [row["repair"] for row in rows],
            series,
            {"mean": [row["chips_half_width"] for row in rows]},
        )
    ]


def _jitter_panels(tables: Tables) -> list[Panel]:
    """Lay out the step times of many runs in which computations last unevenly long.

    Parameters
    ----------
    tables
        "policies" has rows of a policy, when rails are switched, with planned, mean and 99th
        percentile of the step time in seconds.

    Returns
    -------
    list of Panel
        One chart, policies across.
    """
    rows = tables["policies"]
    return [
        Panel(
            "step time with uneven computations",
            "seconds",
            [row["policy"] for row in rows],
            {
                "planned": [row["planned_s"] for row in rows],
                "mean": [row["mean_s"] for row in rows],
                "99th percentile": [row["p99_s"] for row in rows],
            },
        )
    ]


_PANELS = {
    "slices": _slices_panels,
    "spares": _spares_panels,
    "blast-radius": _blast_panels,
    "jitter": _jitter_panels,
}


def plot_study(name: str, tables: Tables, *, fig: Figure | None = None) -> Figure:
    """Draw the tables of a study, one chart beside the other.

    Parameters
    ----------
    name
        ``"slices"``, ``"spares"``, ``"blast-radius"`` or ``"jitter"``.
    tables
        Rows of figures, as the study returns them.
    fig
        Where to draw; None makes a new figure.

    See Also
    --------
    study_data : What is drawn.
    optmatch.studies : The studies that make the tables.
    """
    return draw_panels(study_data(name, tables), fig=fig)


def draw_panels(panels: Sequence[Panel], *, fig: Figure | None = None) -> Figure:
    """Draw charts beside each other or, where one has many labels, below each other.

    Parameters
    ----------
    panels
        The charts, one or more, each with labels, series of values, and titles.
    fig
        Where to draw; None makes a new figure.

    Returns
    -------
    Figure
        The figure, with axes for each chart.
    """
    # Panels stand side by side or, if one of them has many labels, below each other.
    n_labels = max(len(panel.labels) for panel in panels)
    if n_labels > 9:
        n_rows = len(panels)
        n_columns = 1
        width_inches = 12.0
        height_inches = 4.2 * n_rows
    else:
        n_rows = 1
        n_columns = len(panels)
        width_inches = 5.0 * n_columns
        height_inches = 3.6
    figure = blank_figure(width_inches, height_inches) if fig is None else fig
    font = max(8.0, 0.64 * width_inches)
    for number, panel in enumerate(panels, 1):
        _draw_panel(figure.add_subplot(n_rows, n_columns, number), panel, font)
    return figure


def _draw_panel(ax: Axes, panel: Panel, font: float) -> None:
    """Draw a chart: a line or a group of bars for each series.

    Parameters
    ----------
    ax
        The axes.
    panel
        Labels across; `series`, values by name, one for each label; `errors`, half the widths of
        95 % intervals by the same names; titles; and whether lines are drawn instead of bars.
    font
        The size of letters in points.
    """
    n_series = len(panel.series)
    bar_width = 0.8 / max(1, n_series)
    for k, (name, values) in enumerate(panel.series.items()):
        colour = palette.circuit_colour(k)
        if panel.lines:
            # Later lines are thinner, so that equal ones are seen beside each other.
            ax.plot(
                range(len(values)),
                values,
                marker="o",
                color=colour,
                label=name,
                lw=max(1.0, 3.0 - k),
                ms=max(4.0, 8.0 - 2 * k),
            )
        else:
            # The bars of a group lie around its label.
            offset = (k - (n_series - 1) / 2) * bar_width
            places = [group + offset for group in range(len(values))]
            errors = panel.errors.get(name) or None
            ax.bar(places, values, bar_width, yerr=errors, color=colour, label=name, capsize=2)

    n_letters = sum(len(label) for label in panel.labels)
    rotation = 90 if n_letters > 50 else 0
    ax.set_xticks(range(len(panel.labels)), panel.labels, rotation=rotation)
    title = f"{panel.title}; black: 95 %" if panel.errors else panel.title
    ax.set_title(title, fontsize=font + 2)
    ax.set_xlabel(panel.xlabel, fontsize=font)
    ax.set_ylabel(panel.ylabel, fontsize=font)
    ax.tick_params(labelsize=font)
    ax.set_ylim(bottom=0.0)
    if n_series > 1:
        ax.legend(fontsize=font, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


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
        ax.set_xlabel("GPUs")
        ax.set_ylabel(label)
        ax.set_xticks(data.n_gpus, [f"{size:,}" for size in data.n_gpus], fontsize=8, rotation=45)
        ax.minorticks_off()
        ax.grid(color=palette.FAINT_INK, alpha=0.25)
    panels[0].legend(frameon=False, fontsize=8)
    return fig
