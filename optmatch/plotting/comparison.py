"""Comparisons of fabrics, methods and costs: dots, curves, and performance profiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Score, brief_tuple
from optmatch.model.comparison import FabricRow
from optmatch.model.problem import split_unit, write_amount
from optmatch.plotting import palette
from optmatch.plotting.drawing import (
    Axes,
    Figure,
    axes_of,
    axes_within,
    blank_figure,
    choose_evenly,
    count,
    figure_of,
)
from optmatch.problems.costs import DESIGNS, CostComparison

if TYPE_CHECKING:
    from matplotlib.axis import Axis


class Panel(NamedTuple):
    """A chart: at each label a row of dots, one for each series."""

    title: str
    quantity: str
    """What the dots measure, with its unit."""
    labels: list[str]
    """The names of the rows, from above."""
    series: dict[str, list[float]]
    """Values by name, in the order of the labels."""


def jitter_data(rows: Sequence[Mapping[str, Any]]) -> Panel:
    """Lay out step times of training jobs with random durations of computations as rows of dots.

    Parameters
    ----------
    rows
        One for each policy, the rule by which rails change circuits: its name ``policy``, the step
        time without jitter ``planned_s``, and over all runs the mean ``mean_s`` and the 99th
        percentile ``p99_s``.
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
    """Draw as dots the step times of training jobs whose computations take random times.

    Parameters
    ----------
    rows
        One for each policy, the rule by which rails change circuits, as of `jitter_data`.
    fig
        Where to draw; None makes a new figure.
    """
    return draw_dots_by_label(jitter_data(rows), fig=fig)


def draw_dots_by_label(
    panel: Panel, *, fig: Figure | None = None, ax: Axes | None = None
) -> Figure:
    """Draw a chart of rows of dots into axes, an empty figure or a new one; NaN has no dot.

    ``panel.series[name][row]`` is the value of a series in the row that ``panel.labels[row]``
    names. The axis begins near the least value, not at 0, so that small differences are seen.
    """
    n_rows = len(panel.labels)
    is_new = ax is None
    ax = axes_of(axes_within(fig, ax), 8.0, min(30.0, 1.6 + 0.4 * n_rows))
    for number, (name, values) in enumerate(panel.series.items()):
        # The dots of a row lie below each other, so that equal ones are all seen.
        offset = 0.6 * ((number + 0.5) / len(panel.series) - 0.5)
        places = np.arange(n_rows) + offset
        colour = palette.circuit_colour(number)
        ax.plot(values, places, _MARKERS[number % 5], color=colour, label=name, markersize=5)

    # Rows downwards, with lines between them.
    ax.set_yticks(range(n_rows), panel.labels, fontsize=8)
    ax.tick_params(left=False)
    ax.set(ylim=(n_rows - 0.5, -0.5), xlabel=panel.quantity)
    for row in range(1, n_rows):
        ax.axhline(row - 0.5, color=palette.CELL_FILL)
    _scale_axis(ax.xaxis, chain(*panel.series.values()), largest_linear_factor=10.0)
    ax.set_title(panel.title, fontsize=10)
    ax.grid(axis="x", color=palette.CELL_FILL)
    ax.set_axisbelow(True)
    _add_legend(ax, has_room=is_new)
    return figure_of(ax)


_MARKERS = "os^Dv"


def _add_legend(ax: Axes, *, has_room: bool) -> None:
    """Add a legend, beside the axes if there is room, as in a figure of our own, else in them."""
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    ax.legend(fontsize=8, frameon=False, **(place if has_room else {}))


@brief_tuple
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
            ax.plot(
                data.n_gpus,
                values[k],
                marker=_MARKERS[k],
                markersize=6 - 1.5 * k,  # lines that lie on each other are all seen
                linewidth=2.5 - 0.7 * k,
                color=palette.circuit_colour(k),
                label=design.replace("-", " "),
            )
        ax.set(xlabel="GPUs", ylabel=label)
        _scale_axis(ax.xaxis, data.n_gpus, largest_linear_factor=1.0)
        _scale_axis(ax.yaxis, values.ravel(), largest_linear_factor=1.0)
        ax.grid(color=palette.FAINT_INK, alpha=0.25)
    panels[0].legend(frameon=False, fontsize=8)
    return fig


_LOSS, _RATIO, _CELLS, _TOGGLES = (palette.CIRCUIT_COLOURS[k] for k in (0, 4, 5, 14))
_LOSS_LABEL = "insertion loss, dB\n(diamond: the worst circuit)"
_RATIO_LABEL = "signal to crosstalk, dB\n(diamond: the worst)"


@brief_tuple
class FabricsData(NamedTuple):
    """Fabrics by rising worst loss; those that route nothing come last."""

    names: tuple[str, ...]
    loss_db: tuple[NDArray[np.float64], ...]
    """``loss_db[fabric]``: the losses of all its circuits."""
    ratio_db: tuple[NDArray[np.float64], ...]
    """Signal over crosstalk of all circuits of each fabric, where finite."""
    cells: NDArray[np.int64]
    """``cells[fabric]``: how many cells it has."""
    area_cells: NDArray[np.float64]
    """Its area, in squares of the length of a cell."""
    toggles: NDArray[np.int64]
    """How many cells change their state over all matchings."""
    routed: tuple[str, ...]
    """A note such as ``"; routed 9 of 10"``, empty where all matchings are routed."""


def fabrics_data(rows: Sequence[FabricRow]) -> FabricsData:
    """Lay out a comparison of fabrics, the one with the lowest worst loss first.

    Parameters
    ----------
    rows
        One for each fabric, as `compare_fabrics` returns them: losses in dB and signal to
        crosstalk in dB of all its circuits, numbers of cells and toggles, and area in lengths of a
        cell squared.

    Returns
    -------
    FabricsData
        These figures by fabric, and a note where not all matchings were routed. Signal to
        crosstalk of circuits without crosstalk, which is infinite, is left out.

    Raises
    ------
    InputError
        If there are no rows.

    Examples
    --------
    >>> row = FabricRow(name="benes", ports=2, cells=1, stages=1, crossings=0, area_cells=1.0,
    ...     matchings=1, routed=1, route_cells=[1, 1], insertion_loss_db=[3.0, 4.0],
    ...     signal_to_crosstalk_db=[np.inf, 24.0], toggles=0, time_s=0.1)
    >>> fabrics_data([row]).ratio_db[0].tolist()
    [24.0]
    """
    if not rows:
        raise InputError("no fabrics to draw", where="rows")

    def key(row: FabricRow) -> float:
        """Return the worst loss of a fabric in dB, infinite where nothing was routed."""
        worst = row.worst_insertion_loss_db
        return np.inf if worst is None else worst

    # Fabrics whose worst circuit loses least come first.
    ordered = sorted(rows, key=key)
    ratios = [row.signal_to_crosstalk_db for row in ordered]
    return FabricsData(
        names=tuple(row.name for row in ordered),
        loss_db=tuple(row.insertion_loss_db for row in ordered),
        ratio_db=tuple(ratio[np.isfinite(ratio)] for ratio in ratios),
        cells=np.array([row.cells for row in ordered]),
        area_cells=np.array([row.area_cells for row in ordered]),
        toggles=np.array([row.toggles for row in ordered]),
        routed=tuple(
            "" if row.routed == row.matchings else f"; routed {row.routed} of {row.matchings}"
            for row in ordered
        ),
    )


def plot_fabrics(rows: Sequence[FabricRow], *, fig: Figure | None = None) -> Figure:
    """Draw a comparison: losses and crosstalk of all circuits, cells, area and toggles.

    Parameters
    ----------
    rows
        The rows that `compare_fabrics` returns, one for each fabric.
    fig
        An empty figure to draw in; None makes a new one.

    Returns
    -------
    Figure
        Four axes with a common row for each fabric; the lowest worst loss is on top.

    See Also
    --------
    fabrics_data : What is drawn.
    optmatch.compare_fabrics : Makes the rows.
    """
    data = fabrics_data(rows)
    n_fabrics = len(data.names)
    fig = fig or blank_figure(12.0, 1.6 + 0.45 * n_fabrics)
    left, middle, third, right = fig.subplots(1, 4, sharey=True, width_ratios=[3, 3, 2, 2])
    _draw_spread(left, data.loss_db, _LOSS, _LOSS_LABEL, worst=np.max)
    _draw_spread(middle, data.ratio_db, _RATIO, _RATIO_LABEL, worst=np.min)

    # Counts, with their numbers beside the bars.
    areas = [f"{n:,} ({area:,.0f})" for n, area in zip(data.cells, data.area_cells, strict=True)]
    _draw_bars(third, data.cells, _CELLS, areas, "cells (area in their lengths²)")
    notes = [f"{n:,}{routed}" for n, routed in zip(data.toggles, data.routed, strict=True)]
    _draw_bars(right, data.toggles, _TOGGLES, notes, "toggles")

    # All rows are of the same matchings, so the first one tells their number.
    first_row = rows[0]
    fig.suptitle(
        f"{first_row.matchings} matchings of {first_row.ports} ports on each fabric", fontsize=11
    )
    left.set_yticks(range(n_fabrics), data.names)
    left.set_ylim(n_fabrics - 0.5, -0.5)
    return fig


def plot_optics(optics: Any, *, ax: Axes | None = None, title: str | None = None) -> Figure:
    """Draw the loss and the crosstalk of every circuit of a schedule, a row for each slot.

    Parameters
    ----------
    optics
        What `measure_optics` returns.
    ax
        Where to draw the losses; None makes a new figure with crosstalk beside them.
    title
        What stands above it; None says how many circuits and slots there are.

    Returns
    -------
    Figure
        A pale line is a circuit, a diamond the worst one of its slot, with its value. Circuits
        without crosstalk are left out. Of more than 24 slots evenly chosen ones are drawn.

    See Also
    --------
    plot_fabrics : The same figures of several fabrics.
    """
    slots = choose_evenly(len(optics.matchings), _MOST_SLOTS)
    if ax is None:
        figure = blank_figure(9.0, 1.6 + 0.45 * len(slots))
        ax, crosstalk_axes = figure.subplots(1, 2, sharey=True)
        ratios = [row[np.isfinite(row)] for row in optics.signal_to_crosstalk_db[slots]]
        _draw_spread(crosstalk_axes, ratios, _RATIO, _RATIO_LABEL, worst=np.min)

    # The losses of each slot, as a row.
    ax = axes_of(ax, 0.0, 0.0)
    losses = [row[np.isfinite(row)] for row in optics.insertion_loss_db[slots]]
    _draw_spread(ax, losses, _LOSS, _LOSS_LABEL, worst=np.max)
    ax.set_yticks(range(len(slots)), [str(slot) for slot in slots])
    ax.set_ylim(len(slots) - 0.5, -0.5)
    ax.set_ylabel("slot")
    words = f"{count(int(optics.lit.sum()), 'circuit')} in {count(len(optics.matchings), 'slot')}"
    ax.set_title(words if title is None else title, fontsize=11)
    return figure_of(ax)


_MOST_SLOTS = 24


def _draw_spread(
    ax: Axes,
    values: Sequence[NDArray[np.float64]],
    colour: str,
    label: str,
    *,
    worst: Callable[[NDArray[np.float64]], float],
) -> None:
    """Draw every circuit of a row as a pale line, and the worst one as a diamond with its value.

    ``values[row]`` are those of a fabric or a slot, in dB; a row without any says so.
    """
    for k, of_fabric in enumerate(values):
        if not len(of_fabric):
            ax.text(0.02, k, "none", transform=ax.get_yaxis_transform(), va="center", fontsize=8)
            continue
        ax.plot(of_fabric, np.full(len(of_fabric), k), "|", color=colour, alpha=0.3, ms=12)

        # The diamond stands on the line of the worst circuit.
        extreme = float(worst(of_fabric))
        ax.plot([extreme], [k], "D", color=colour, ms=5)
        _note(ax, f"{extreme:.1f}", extreme, k, xytext=(0, 8), ha="center", va="baseline")
    _scale_axis(ax.xaxis, chain(*values), largest_linear_factor=math.inf)
    ax.set_xlabel(label)
    ax.grid(axis="x", color=palette.CELL_FILL)
    ax.set_axisbelow(True)


def _note(ax: Axes, text: str, x: float, y: float, **style: Any) -> None:
    """Write a text beside a point."""
    style = {"xytext": (4, 0), "va": "center"} | style
    ax.annotate(text, (x, y), textcoords="offset points", fontsize=8, **style)


def _draw_bars(
    ax: Axes, values: NDArray[np.int64], colour: str, texts: Sequence[str], label: str
) -> None:
    """Draw a bar to the right for each value, with a text behind it, for which there is room."""
    ax.barh(range(len(values)), values, height=0.55, color=colour, alpha=0.85)
    for row, text in enumerate(texts):
        _note(ax, text, values[row], row)
    ax.set(xlim=(0, max(1.0, 2.1 * float(values.max()))), xlabel=label)
    ax.grid(axis="x", color=palette.CELL_FILL)
    ax.set_axisbelow(True)


class MethodResult(Protocol):
    """What a row says of a method on a problem."""

    @property
    def name(self) -> str:
        """The name of the problem."""

    @property
    def method(self) -> str:
        """The name of the method."""

    @property
    def objective(self) -> Score | None:
        """The objective; None without an answer."""

    @property
    def slots(self) -> int | None:
        """The slots of an all-to-all, which come before the objective; None of other kinds."""


def methods_data(rows: Sequence[MethodResult]) -> Panel:
    """Lay out a comparison of methods as a chart: a row of dots for each problem.

    Parameters
    ----------
    rows
        A row for each method on each problem, as `compare_methods` returns them.

    Returns
    -------
    Panel
        For each method its objectives by problem, each over the smallest one of that problem: 1 is
        the best. It is NaN where a method has no answer. Problems whose objectives have levels or
        are not positive are left out. Where the slots of all-to-alls differ, these are compared
        instead, and the label of the problem says so.

    Raises
    ------
    InputError
        If there is no objective to draw.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> rows = [SimpleNamespace(name="a", method=method, objective=objective, slots=None)
    ...     for method, objective in [("eclipse", 4.0), ("bvn", 6.0)]]
    >>> methods_data(rows).series
    {'eclipse': [1.0], 'bvn': [1.5]}
    """
    # Levels of an objective, which are a tuple, have no ratio.
    objective_of: dict[tuple[str, str], float] = {}
    slots_of: dict[str, dict[str, int]] = {}
    for row in rows:
        if isinstance(row.objective, (int, float)):
            objective_of[row.name, row.method] = row.objective
            if row.slots is not None:
                slots_of.setdefault(row.name, {})[row.method] = row.slots

    # Fewer slots come before the objective: where their numbers differ, these are drawn.
    label_of = {row.name: row.name for row in rows}
    for name, slots_of_method in slots_of.items():
        if len(set(slots_of_method.values())) > 1:
            label_of[name] += ", slots"
            for method, slots in slots_of_method.items():
                objective_of[name, method] = slots
    smallest_of: dict[str, float] = {}
    for (name, _), objective in objective_of.items():
        smallest_of[name] = min(objective, smallest_of.get(name, np.inf))
    names = [name for name, smallest in smallest_of.items() if smallest > 0]
    if not names:
        raise InputError("no objectives to draw", where="rows")

    series = {}
    for method in dict.fromkeys(method for _, method in objective_of):
        series[method] = [
            objective_of.get((name, method), np.nan) / smallest_of[name] for name in names
        ]
    labels = [label_of[name] for name in names]
    return Panel("objectives of methods", "objective over the smallest one", labels, series)


def plot_methods(
    rows: Sequence[MethodResult], *, fig: Figure | None = None, ax: Axes | None = None
) -> Figure:
    """Draw a comparison of methods: for each problem a dot for the objective of each method.

    Parameters
    ----------
    rows
        The rows that `compare_methods` returns.
    fig
        An empty figure to draw in; None makes a new one.
    ax
        Axes to draw in instead.

    See Also
    --------
    methods_data : What is drawn.
    optmatch.compare_methods : Makes the rows.
    """
    return draw_dots_by_label(methods_data(rows), fig=fig, ax=ax)


_MAX_FACTOR = 10.0
"""Methods that are further from the best are not told apart."""


class ProfileData(NamedTuple):
    """The steps of a performance profile."""

    most: float
    """The last factor on the axis."""
    lines: dict[str, list[tuple[float, float]]]
    """By method: points (factor, share of the tasks within it), rising."""


def profile_data(ratios: Mapping[str, Sequence[float]]) -> ProfileData:
    """Lay out how often each method is within a factor of the best.

    Parameters
    ----------
    ratios
        By method, for each task, how many times the best it is; infinite if it has no answer.

    Examples
    --------
    >>> profile_data({"a": [1.0, 2.0], "b": [math.inf, 1.0]}).lines["a"]
    [(1.0, 0.5), (2.0, 1.0), (2.1, 1.0)]
    """
    finite = [ratio for row in ratios.values() for ratio in row if math.isfinite(ratio)]
    most = min(_MAX_FACTOR, max([*finite, 1.02]) * 1.05)
    lines = {}
    for method, row in ratios.items():
        points = [(1.0, 0.0)]
        for n_tasks, ratio in enumerate(sorted(row), start=1):
            if ratio <= most:
                points.append((ratio, n_tasks / len(row)))
        points.append((most, points[-1][1]))
        share_at = dict(points)  # of equal factors the last share counts
        lines[method] = [(factor, share_at[factor]) for factor in sorted(share_at)]
    return ProfileData(most, lines)


def plot_profiles(
    quality: Mapping[str, Sequence[float]],
    time: Mapping[str, Sequence[float]],
    *,
    fig: Figure | None = None,
) -> Figure:
    """Draw performance profiles (Dolan and More, 2002): how often methods are near the best.

    Parameters
    ----------
    quality, time
        By method, for each problem, how many times the best objective and the shortest time it
        has; infinite without an answer. Times count where the best objective was found.
    fig
        An empty figure to draw in; None makes a new one.

    Returns
    -------
    Figure
        The share of the problems within each factor, of objectives at the left, of times at the
        right.
    """
    fig = fig if fig is not None else blank_figure(9.0, 3.6)
    panels = fig.subplots(1, 2, sharey=True)
    labels = ("objective over the best", "time over the shortest, with the best objective")
    for ax, ratios, label in zip(panels, (quality, time), labels, strict=True):
        draw_profile(ax, ratios, label)
    panels[0].set_ylabel("% of the problems")
    panels[1].legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return fig


def draw_profile(ax: Axes, ratios: Mapping[str, Sequence[float]], label: str) -> None:
    """Draw a performance profile into axes: a staircase for each method."""
    data = profile_data(ratios)
    for number, (method, points) in enumerate(data.lines.items()):
        factors, shares = zip(*points, strict=True)
        colour = palette.circuit_colour(number)
        ax.step(factors, 100 * np.array(shares), where="post", color=colour, label=method)
    _scale_axis(ax.xaxis, [1.0, data.most])
    ax.set(ylim=(0.0, 105.0), xlabel=label)
    ax.grid(color=palette.CELL_FILL)


class Spread(NamedTuple):
    """A figure of a method over sizes: its mean, and its least and largest value."""

    sizes: list[float]
    """Ascending; the other lists have an entry for each size."""
    means: list[float]
    lows: list[float]
    highs: list[float]


def draw_spreads(ax: Axes, spreads: Mapping[str, Spread], label: str) -> None:
    """Draw how well several methods do over the size of their problems.

    Each method is a line through its means; a thin upright line through a mean leads from the
    least to the largest value.
    """
    for number, (method, spread) in enumerate(spreads.items()):
        means = np.array(spread.means)
        reach = np.array([means - spread.lows, spread.highs - means])
        colour = palette.circuit_colour(number)
        ax.errorbar(spread.sizes, means, reach, marker="o", color=colour, label=method, lw=1.5)
    _scale_axis(ax.xaxis, [size for spread in spreads.values() for size in spread.sizes])
    ax.set_ylim(bottom=0.0)
    ax.set_xlabel(label)
    ax.grid(color=palette.CELL_FILL)


class Line(NamedTuple):
    """The objectives of a method over values of a field."""

    method: str
    words: str
    """What the other fields of words are, as ``"dp ring"``."""
    others: str
    """What the other fields of numbers are; lines that share both have the same bounds."""
    fixed: Mapping[str, Any]
    """The values of all fields at one point of the line."""
    values: list[Any]
    objectives: list[float]
    bounds: list[float]
    """NaN where none is known."""
    slots_of: dict[Any, int]
    """Of all-to-alls: the slots at each value, which come before the objective; else empty."""

    @property
    def label(self) -> str:
        """The method, and what other fields are."""
        return ", ".join(filter(None, (self.method, self.words, self.others)))


def plot_variation(
    lines: Sequence[Line],
    field: str,
    unit: str,
    crossings: Sequence[Any] = (),
    *,
    fig: Figure | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw objectives over the values of a field, with bounds, and between which ones lines cross.

    Parameters
    ----------
    lines
        One for each method. Their bounds are dotted, the highest of all methods at each value.
    field
        The name of the field. Its ending tells its unit: ``_s`` of seconds, ``_bytes`` and
        ``_bytes_per_s``.
    unit
        The unit of objectives.
    crossings
        Where lines cross, of `MethodComparison.crossings`: a band from value to value,
        with both of them.
    fig
        An empty figure to draw in; None makes a new one.
    ax
        Axes to draw in instead.

    Returns
    -------
    Figure
        Values that span more than a factor of 30 have a logarithmic axis, objectives one from a
        factor of 10 on, so that it is seen where they begin to rise. Values that are no numbers
        stand beside each other in their order.
    """
    is_new = ax is None
    ax = axes_of(axes_within(fig, ax), 8.0, 4.0)
    words, unit_of_field = split_unit(field)

    # Values that are no numbers are drawn at their places, with their names below.
    # ``bound_of[fields][place]`` is the highest bound of the lines that share all other fields.
    values = list(dict.fromkeys(value for line in lines for value in line.values))
    are_numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    place_of = {value: value if are_numbers else k for k, value in enumerate(values)}
    bound_of: dict[tuple[str, str], dict[Any, float]] = {}
    line_style = "-" if are_numbers else "none"

    # Objectives of different numbers of slots do not compare.
    has_several_slots = len({n for line in lines for n in line.slots_of.values()}) > 1

    # A line for each method, the thinner the later, so that those on each other are all seen;
    # bounds of lines that belong together are one.
    widths = np.linspace(3.0, 1.0, len(lines)) if len(lines) > 1 else [1.5]
    for number, line in enumerate(lines):
        places = [place_of[value] for value in line.values]
        order = np.argsort(places, kind="stable")
        ax.plot(
            np.array(places)[order],
            np.array(line.objectives)[order],
            marker=_MARKERS[number % 5],
            markersize=widths[number] + 3,
            linewidth=widths[number],
            linestyle=line_style,
            color=palette.circuit_colour(number),
            label=line.label,
        )
        bounds = bound_of.setdefault((line.words, line.others), {})
        for place, bound in zip(places, line.bounds, strict=True):
            if np.isfinite(bound):
                bounds[place] = max(bound, bounds.get(place, bound))

        # The number of slots stands where it changes along the line.
        last_slots = 0
        for place, value, objective in sorted(
            zip(places, line.values, line.objectives, strict=True)
        ):
            slots = line.slots_of.get(value, 0)
            if slots != last_slots and has_several_slots:
                _note(ax, count(slots, "slot"), place, objective, xytext=(3, 5))
            last_slots = slots
    for number, bounds in enumerate(filter(None, bound_of.values())):
        ax.plot(
            *zip(*sorted(bounds.items()), strict=True),
            ":" if are_numbers else "_",
            markersize=16,
            color=palette.INK,
            linewidth=1,
            label=None if number else "lower bound",
        )

    if are_numbers:
        _scale_axis(ax.xaxis, values, unit_of_field)
    else:
        ax.set_xticks(range(len(values)), [str(value) for value in values])
    heights = [height for line in lines for height in (*line.objectives, *line.bounds)]
    _scale_axis(ax.yaxis, heights, unit, largest_linear_factor=10.0)

    # Where two lines cross is known to lie between two values.
    for number, crossing in enumerate(crossings):
        last = crossing.last_value
        ax.axvspan(last, crossing.next_value, color=palette.CELL_FILL, zorder=0)
        ends = (last, crossing.next_value)
        span = " to ".join(write_amount(end, unit_of_field, digits=3) for end in ends)
        ax.annotate(
            f"{crossing.before}, then {crossing.after}: {span}",
            (0.0, 1.0),
            xycoords="axes fraction",
            xytext=(3, -3 - 10 * number),  # below each other, where there is room for the text
            textcoords="offset points",
            va="top",
            fontsize=8,
        )

    # Axes with grid and legend.
    ylabel = "objective"
    if has_several_slots:
        ylabel += "; fewer slots come before it"
    ax.set(xlabel=words, ylabel=ylabel)
    ax.grid(color=palette.CELL_FILL)
    ax.set_axisbelow(True)
    _add_legend(ax, has_room=is_new)
    return figure_of(ax)


def _scale_axis(
    axis: Axis, values: Iterable[float], unit: str = "", largest_linear_factor: float = 30.0
) -> None:
    """Scale an axis by its values, and write ticks at 1, 2 and 5 with their unit.

    It is logarithmic where positive values span more than `largest_linear_factor`, with ticks at 1
    alone where those at 2 and 5 have no room: over more than two powers of ten across, or three
    up.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    finite = [value for value in values if np.isfinite(value)]

    # So many digits that neighbouring ticks differ: 319.8 and 320.2 ms are not both 320 ms.
    digits = 3
    largest = max(map(abs, finite), default=0.0)
    span = max(finite, default=0.0) - min(finite, default=0.0)
    if span > 1e-9 * largest:  # else they differ by rounding alone
        digits += int(math.log10(largest / span) + 0.5)
    factor = max(finite) / min(finite) if finite and min(finite) > 0 else 0.0
    if factor > largest_linear_factor:
        axis._set_axes_scale("log")  # type: ignore[attr-defined]
        largest_with_fives = 100.0 if axis is axis.axes.xaxis else 1000.0
        subs = (1.0,) if factor > largest_with_fives else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: write_amount(value, unit, digits=digits))
    )
