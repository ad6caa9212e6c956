"""Several plans over one axis of time, and how a search came to its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

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
from optmatch.plotting.figures import blank_figure, label_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_PLANS = 8


def plot_plans(solutions: Sequence[Solution], names: Sequence[str] | None = None) -> Figure:
    """Draw several plans over time below each other, on one axis of time.

    Parameters
    ----------
    solutions
        Two to eight answers, each of a `Demand` or a `RailJob`.
    names
        What stands above each; None takes the methods.

    Returns
    -------
    Figure
        Axes for each as of `plot_gantt` or `plot_rails`, with its lower bound as a dashed line.

    Raises
    ------
    InputError
        If one is of another kind or has no answer, or their number does not fit.
    """
    from optmatch.plotting import gantt_data, plot_gantt, plot_rails

    if not 2 <= len(solutions) <= _MOST_PLANS:
        raise InputError(f"2 to {_MOST_PLANS} plans are drawn", where="solutions")
    names = [solution.method for solution in solutions] if names is None else names
    if len(names) != len(solutions):
        raise InputError(f"{len(names)} names of {len(solutions)} plans", where="names")
    figure = blank_figure(10.0, min(30.0, 2.6 * len(solutions) + 0.6))
    stacked = figure.subplots(len(solutions), 1, squeeze=False)[:, 0]
    spans = []
    for ax, solution, name in zip(stacked, solutions, names, strict=True):
        answer: Any = solution.answer
        if hasattr(answer, "step_s"):
            plot_rails(solution.problem, answer, ax=ax)  # type: ignore[arg-type]
            spans.append(answer.step_s)
            ax.axvline(solution.lower_bound, color=palette.INK, ls="--", lw=1.0)
        else:
            plot_gantt(solution, ax=ax)
            spans.append(gantt_data(solution).makespan_s)
        ax.set_title(f"{name}: {write_amount(spans[-1], 's')}", fontsize=10)
        if ax is not stacked[0]:
            ax.get_legend().remove()
    for ax in stacked:
        rows = round(ax.get_ylim()[0] + 0.4)
        label_time(ax, max(spans), rows)
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
    told = [(time_s, event) for time_s, event in events if not isinstance(event, Tick)]
    if not told:
        raise InputError("neither a best answer nor a bound among them", where="events")
    ax = ax or blank_figure(8.0, 3.6).add_subplot()
    unit = "" if problem is None else unit_of(problem)
    end_s = max(time_s for time_s, _ in events)
    stairs: list[list[tuple[float, float]]] = [[], []]
    for time_s, event in told:
        score = event.lower_bound if isinstance(event, Bound) else event.objective
        value = score[0] if isinstance(score, tuple) else score
        if np.isfinite(value):
            stairs[isinstance(event, Bound)].append((time_s, float(value)))
    scale, name = scale_of(max((abs(v) for stair in stairs for _, v in stair), default=0.0), unit)
    for stair, colour, what in zip(
        stairs, palette.CIRCUIT_COLOURS[:2], ("best", "lower bound"), strict=True
    ):
        if stair:
            times, values = zip(*stair, (end_s, stair[-1][1]), strict=True)
            last = write_score(stair[-1][1], "" if ", " in unit else unit)
            ax.step(times, np.array(values) / scale, where="post", color=colour, marker=".",
                    label=f"{what}: {last}")  # fmt: skip
    _shade_gap(ax, stairs, end_s, scale)
    ax.set_xlim(0.0, end_s or 1.0)
    ax.set_xlabel("time in s")
    ax.set_ylabel(("first of the levels" if ", " in name else name) or "objective")
    ax.legend(frameon=False, fontsize=8)
    return ax


def _shade_gap(
    ax: Axes, stairs: list[list[tuple[float, float]]], end_s: float, scale: float
) -> None:
    """Fill what is between best and bound, from where both are known."""
    if not all(stairs):
        return
    times = np.unique([time_s for stair in stairs for time_s, _ in stair] + [end_s])
    times = times[times >= max(stair[0][0] for stair in stairs)]
    at = [
        np.array([value for _, value in stair])[
            np.searchsorted([time_s for time_s, _ in stair], times, side="right") - 1
        ]
        for stair in stairs
    ]
    ax.fill_between(times, at[0] / scale, at[1] / scale, step="post", color="#8a94a3", alpha=0.25,
                    lw=0, label="gap")  # fmt: skip
