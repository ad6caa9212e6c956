"""Charts of the studies of racks, of shared devices and of uneven computations, and of costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.plotting import palette
from optmatch.plotting.figures import blank_figure
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
        ``"slices"``, ``"spares"``, ``"blast-radius"``, ``"sharing"`` or ``"jitter"``.
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


def _slices(tables: Tables) -> list[Panel]:
    names, rules = ("fragmentation", "unusable", "rejected_part"), tables["rules"]
    by_rule: dict[str, list[Mapping[str, Any]]] = {}
    for row in tables["fragmented"]:
        by_rule.setdefault(row["rule"], []).append(row)
    tenants = tables["tenants"]
    return [
        Panel(
            "requests that come and go",
            "part of free servers, of requests",
            ["fragmented", "unusable", "rejected"],
            {row["rule"]: [row[name] for name in names] for row in rules},
            {row["rule"]: [row[f"{name}_half_width"] for name in names] for row in rules},
        ),
        Panel(
            "slices that a fragmented pod still holds",
            "slices placed",
            list(dict.fromkeys(row["shape"] for row in tables["fragmented"])),
            {rule: [row["placed"] for row in rows] for rule, rows in by_rule.items()},
            {rule: [row["placed_half_width"] for row in rows] for rule, rows in by_rule.items()},
            "chips of a slice",
        ),
        Panel(
            "bandwidth of a tenant's chip",
            "part of its ports in use",
            [row["shape"] for row in tenants],
            {
                "fixed torus": [row["fixed"] for row in tenants],
                "steered": [row["steered"] for row in tenants],
            },
            xlabel="chips of its slice",
        ),
    ]


def _spares(tables: Tables) -> list[Panel]:
    series: dict[str, list[float]] = {}
    for row in tables["cover"]:
        series.setdefault(row["unit"], []).append(row["covered_failures"])
    most = max((row["spares"] for row in tables["cover"]), default=0)
    return [
        Panel(
            "failures that the spares of a rack cover",
            "covered part of the time in which something is down",
            [str(spares) for spares in range(most + 1)],
            {f"a spare is a {unit}": values for unit, values in series.items()},
            xlabel="spares of a rack",
            lines=True,
        )
    ]


def _blast(tables: Tables) -> list[Panel]:
    rows = tables["blast"]
    return [
        Panel(
            "blast radius of a failed chip",
            "chips whose circuits change",
            [row["repair"] for row in rows],
            {"mean": [row["chips"] for row in rows]} if rows else {},
            {"mean": [row["chips_half_width"] for row in rows]},
        )
    ]


def _sharing(tables: Tables) -> list[Panel]:
    rows = tables["completion"]
    varied = ("mix", "supply", "response", "scale", "baseline")
    told = [[str(row[name]) for name in varied if name in row] for row in rows]
    label = [", ".join(words) for words in told]
    xlabel = ", ".join(name for name in varied if name in rows[0]) if rows else ""
    row_of = {(mix, row["policy"]): row for mix, row in zip(label, rows, strict=True)}
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    whole = [mix for mix in label if all((mix, policy) in row_of for policy in policies)]
    mixes = list(dict.fromkeys(whole))  # an interrupted study may lack some

    def panel(title: str, ylabel: str, name: str) -> Panel:
        known = {p: [row_of[mix, p] for mix in mixes] for p in policies}
        series = {p: [row[name] for row in rows] for p, rows in known.items()}
        errors = {p: [row[f"{name}_half_width"] for row in rows] for p, rows in known.items()}
        return Panel(title, ylabel, mixes, series, errors, xlabel)

    ratio = panel("mean completion time", "random over policy", "ratio")
    venn = [row_of[mix, "venn"]["published"] for mix in mixes if (mix, "venn") in row_of]
    if len(venn) == len(mixes):
        ratio.series["venn, published"] = venn
    return [ratio, panel("distance to the lower bound", "completion over its bound", "of_bound")]


def _jitter(tables: Tables) -> list[Panel]:
    rows = tables["policies"]
    names = {"planned_s": "planned", "mean_s": "mean", "p99_s": "99th percentile"}
    return [
        Panel(
            "step time with uneven computations",
            "seconds",
            [row["policy"] for row in rows],
            {told: [row[name] for row in rows] for name, told in names.items()},
        )
    ]


_PANELS = {
    "slices": _slices,
    "spares": _spares,
    "blast-radius": _blast,
    "sharing": _sharing,
    "jitter": _jitter,
}


def plot_study(name: str, tables: Tables, *, fig: Figure | None = None) -> Figure:
    """Draw the tables of a study, one chart beside the other.

    Parameters
    ----------
    name
        ``"slices"``, ``"spares"``, ``"blast-radius"``, ``"sharing"`` or ``"jitter"``.
    tables
        Rows of figures, as the study returns them.
    fig
        Where to draw; None makes a new figure.

    See Also
    --------
    study_data : What is drawn.
    optmatch.studies : The studies that make the tables.
    """
    panels = study_data(name, tables)
    many = max(len(panel.labels) for panel in panels) > 9  # each has a row of its own
    size = (12.0, 4.2 * len(panels)) if many else (5.0 * len(panels), 3.6)
    figure = blank_figure(*size) if fig is None else fig
    shape = (len(panels), 1) if many else (1, len(panels))
    for number, panel in enumerate(panels, 1):
        _draw(figure.add_subplot(*shape, number), panel, max(8.0, 0.64 * size[0]))
    return figure


def _draw(ax: Axes, panel: Panel, font: float) -> None:
    width = 0.8 / max(1, len(panel.series))
    for k, (name, values) in enumerate(panel.series.items()):
        colour = palette.circuit_colour(k)
        if panel.lines:
            style: Any = {"lw": max(1.0, 3.0 - k), "ms": max(4.0, 8.0 - 2 * k)}  # all are seen
            ax.plot(range(len(values)), values, marker="o", color=colour, label=name, **style)
            continue
        places = [i + (k - (len(panel.series) - 1) / 2) * width for i in range(len(values))]
        errors = panel.errors.get(name) or None
        ax.bar(places, values, width, yerr=errors, color=colour, label=name, capsize=2)
    turned = 90 if sum(map(len, panel.labels)) > 50 else 0
    ax.set_xticks(range(len(panel.labels)), panel.labels, rotation=turned)
    ax.set_title(panel.title + ("; black: 95 %" if panel.errors else ""), fontsize=font + 2)
    ax.set_xlabel(panel.xlabel, fontsize=font)
    ax.set_ylabel(panel.ylabel, fontsize=font)
    ax.tick_params(labelsize=font)
    ax.set_ylim(bottom=0.0)
    if len(panel.series) > 1:
        place: Any = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        ax.legend(fontsize=font, frameon=False, **place)


class CostsData(NamedTuple):
    """Curves by design: a row for each of `DESIGNS`, a column for each size."""

    n_gpus: NDArray[np.int64]
    cost_usd: NDArray[np.float64]
    power_w: NDArray[np.float64]


def costs_data(rows: Sequence[CostComparison]) -> CostsData:
    """Lay out comparisons as curves, sizes ascending.

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
