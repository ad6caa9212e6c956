"""Several plans over one axis of time, and how a search came to its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    Bound,
    InputError,
    Problem,
    Solution,
    Tick,
    scale_of,
    unit_of,
    write_amount,
    write_score,
)
from optmatch.model.limits import Event
from optmatch.plotting import palette
from optmatch.plotting.drawing import blank_figure
from optmatch.plotting.figures import label_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Plans that are drawn below each other.
_MAX_PLANS = 8


def plot_plans(solutions: Sequence[Solution], names: Sequence[str] | None = None) -> Figure:
    """Draw several plans over time below each other, on one axis of time.

    Parameters
    ----------
    solutions
        Two to eight answers, each of a `Demand` or a `RailJob`.
    names
        The text above each; None takes the methods.

    Returns
    -------
    Figure
        One chart for each plan, with time to the right and its lower bound as a dashed line: bars
        of circuits for a `Demand`, of operations for a `RailJob`.

    Raises
    ------
    InputError
        If one is of another kind or has no answer, or their number does not fit.
    """
    from optmatch.plotting import gantt_data, plot_gantt, plot_rails

    if not 2 <= len(solutions) <= _MAX_PLANS:
        raise InputError(f"2 to {_MAX_PLANS} plans are drawn", where="solutions")
    if names is None:
        names = [solution.method for solution in solutions]
    if len(names) != len(solutions):
        raise InputError(f"{len(names)} names of {len(solutions)} plans", where="names")

    # One below the other, with the legend beside the first one.
    figure = blank_figure(10.0, min(30.0, 2.6 * len(solutions) + 0.6))
    axes = figure.subplots(len(solutions), 1, squeeze=False)[:, 0]
    spans_s = []
    for ax, solution, name in zip(axes, solutions, names, strict=True):
        problem: Any = solution.problem
        answer: Any = solution.answer
        is_rail_plan = hasattr(answer, "step_s")
        if is_rail_plan:
            plot_rails(problem, answer, ax=ax)
            span_s = answer.step_s
            ax.axvline(solution.lower_bound, color=palette.INK, ls="--", lw=1.0)
        else:
            plot_gantt(solution, ax=ax)
            span_s = gantt_data(solution).makespan_s
        spans_s.append(span_s)
        ax.set_title(f"{name}: {write_amount(span_s, 's')}", fontsize=10)
        if ax is not axes[0]:
            ax.get_legend().remove()

    # All have the axis of the longest one; `label_time` puts the lower limit 0.4 above the rows.
    for ax in axes:
        n_rows = round(ax.get_ylim()[0] + 0.4)
        label_time(ax, max(spans_s), n_rows)
    return figure


def plot_progress(
    events: Sequence[tuple[float, Event]],
    problem: Problem | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw the best objective and the lower bound of a search against its time.

    Parameters
    ----------
    events
        Pairs of a time in seconds and an event, as `optmatch.solve` tells them by ``on_event``.
    problem
        The problem that was solved, for the unit of its objective; None draws numbers.
    ax
        Where to draw; None makes a new figure.

    Returns
    -------
    Axes
        Two stairs, and the gap between them shaded. Of objectives with levels the first is drawn.

    Raises
    ------
    InputError
        If there is neither a best nor a bound among the events.

    Examples
    --------
    >>> import time
    >>> import optmatch as om
    >>> problem, events = om.AllToAll(om.HexMesh(4, 4, ports=8)), []
    >>> begin_s = time.perf_counter()
    >>> _ = om.solve(problem, seed=0, on_event=lambda event: events.append(
    ...     (time.perf_counter() - begin_s, event)))
    >>> plot_progress(events, problem).get_xlabel()[:7]
    'time in'
    """
    scores = [(time_s, event) for time_s, event in events if not isinstance(event, Tick)]
    if not scores:
        raise InputError("neither a best answer nor a bound among them", where="events")
    if ax is None:
        ax = blank_figure(8.0, 3.6).add_subplot()
    end_s = max(time_s for time_s, _ in events)

    # Best answers and bounds over time, each until the next one.
    best = _Stair([], [])
    bound = _Stair([], [])
    for time_s, event in scores:
        if isinstance(event, Bound):
            stair = bound
            score = event.lower_bound
        else:
            stair = best
            score = event.objective
        value = score[0] if isinstance(score, tuple) else score
        if np.isfinite(value):
            stair.times_s.append(time_s)
            stair.values.append(float(value))

    # The unit of several levels is a list of their names, with commas.
    unit = "" if problem is None else unit_of(problem)
    has_levels = ", " in unit
    largest = max((abs(value) for value in best.values + bound.values), default=0.0)
    scale, scaled_unit = scale_of(largest, unit)
    best_colour, bound_colour = palette.CIRCUIT_COLOURS[:2]
    for stair, colour, name in ((best, best_colour, "best"), (bound, bound_colour, "lower bound")):
        if stair.values:
            last_value = stair.values[-1]
            ax.step(
                [*stair.times_s, end_s],
                np.array([*stair.values, last_value]) / scale,
                where="post",
                color=colour,
                marker=".",
                label=f"{name}: {write_score(last_value, '' if has_levels else unit)}",
            )
    if best.values and bound.values:
        _shade_gap(ax, best, bound, end_s, scale)
    ax.set_xlim(0.0, end_s or 1.0)
    ax.set_xlabel("time in s")
    ax.set_ylabel("first of the levels" if has_levels else scaled_unit or "objective")
    ax.legend(frameon=False, fontsize=8)
    return ax


class _Stair(NamedTuple):
    """A value over time that holds until the next one: ``values[k]`` from ``times_s[k]`` on."""

    times_s: list[float]
    values: list[float]

    def values_at(self, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the value at each of some times, none of them before the first one."""
        step = np.searchsorted(self.times_s, times_s, side="right") - 1
        return np.array(self.values)[step]


def _shade_gap(ax: Axes, best: _Stair, bound: _Stair, end_s: float, scale: float) -> None:
    """Fill the area between best and bound, from where both are known.

    Parameters
    ----------
    ax
        The axes, seconds across.
    best, bound
        The objective of the best answer and its lower bound over time, each a value that holds
        until the next one.
    end_s
        When the chart ends, in seconds.
    scale
        The divisor of values, for the unit of the axis.
    """
    first_s = max(best.times_s[0], bound.times_s[0])
    times_s = np.unique([*best.times_s, *bound.times_s, end_s])
    times_s = times_s[times_s >= first_s]
    ax.fill_between(
        times_s,
        best.values_at(times_s) / scale,
        bound.values_at(times_s) / scale,
        step="post",
        color="#8a94a3",
        alpha=0.25,
        lw=0,
        label="gap",
    )
