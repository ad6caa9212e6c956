"""Charts over time: which port sends to which, when, and when it has nothing left to send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, InputError, Schedule, Solution
from optmatch.plotting import palette
from optmatch.plotting.figures import chart_axes, draw_bars, draw_schedule, label_time
from optmatch.problems import Demand, PlaneSchedules

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LABELS = 600
"""With more circuits than this, bars have colours but no numbers."""


class GanttData(NamedTuple):
    """The circuits of a demand's schedule as bars; one entry for each circuit and slot."""

    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    plane: NDArray[np.int64]
    start_s: NDArray[np.float64]
    """When the circuit can begin to send."""
    sent_s: NDArray[np.float64]
    """Until when it has something to send; `start_s` if it never has."""
    end_s: NDArray[np.float64]
    """When its slot ends."""
    makespan_s: float
    lower_bound_s: float
    n_ports: int
    planes: int


def gantt_data(solution: Solution) -> GanttData:
    """Lay out the answer to a demand over time.

    Parameters
    ----------
    solution
        Of a `Demand`, with a schedule or one for each plane.

    Raises
    ------
    InputError
        If it is of another kind, or has no answer.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> from optmatch.model import Status
    >>> problem = Demand(IdealSwitch(2), [[0, 3], [2, 0]], delay_s=1.0)
    >>> schedule = problem.schedule([[1, 0]], [3])
    >>> data = gantt_data(Solution(problem=problem, schedule=schedule, status=Status.OPTIMAL,
    ...                            objective=4.0, lower_bound=4.0, method="by hand"))
    >>> data.start_s.tolist(), data.sent_s.tolist(), data.end_s.tolist()
    ([1.0, 1.0], [4.0, 3.0], [4.0, 4.0])
    """
    problem = solution.problem
    if not isinstance(problem, Demand):
        raise InputError(f"a solution of kind {problem.kind}: charts over time are of demands")
    answer = solution.schedule or solution.answer
    if answer is None:
        raise InputError(
            f"nothing to draw: the status is {solution.status.value}, without a schedule"
        )
    schedules = answer.schedules if isinstance(answer, PlaneSchedules) else (answer,)
    bars = [_bars(problem, schedule, plane) for plane, schedule in enumerate(schedules)]
    table = np.concatenate(bars)
    table = table[np.argsort(table[:, 3], kind="stable")]
    source, destination, plane = table[:, :3].astype(np.int64).T
    return GanttData(
        source=source,
        destination=destination,
        plane=plane,
        start_s=table[:, 3],
        sent_s=_sent(problem, table),
        end_s=table[:, 4],
        makespan_s=max(float(schedule.makespan_s) for schedule in schedules),
        lower_bound_s=solution.lower_bound,
        n_ports=problem.fabric.n_ports,
        planes=len(schedules),
    )


def _bars(problem: Demand, schedule: Schedule, plane: int) -> NDArray[np.float64]:
    """List source, destination, plane, start and end of each circuit in each slot."""
    slot, source = np.nonzero(schedule.matchings != IDLE)
    destination = schedule.matchings[slot, source]
    ends = np.cumsum(schedule.durations_s + schedule.delay_s)
    starts = ends - schedule.durations_s
    start = starts[slot]
    if problem.switching == "per-circuit" and schedule.n_slots:
        stays = np.zeros(schedule.matchings.shape, dtype=bool)
        stays[1:] = schedule.matchings[1:] == schedule.matchings[:-1]
        start = start - schedule.delay_s * stays[slot, source]
    columns = (source, destination, np.full(len(source), plane), start, ends[slot])
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


def _sent(problem: Demand, table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return until when each bar has something to send, bars in the order of their starts."""
    left = problem.demand_bytes / problem.rate_bytes_per_s
    sent = np.empty(len(table))
    for k, (source, destination, _, start, end) in enumerate(table.tolist()):
        flow = int(source), int(destination)
        used = min(float(left[flow]), end - start)
        left[flow] -= used
        sent[k] = start + used
    return sent


def plot_gantt(solution: Solution, *, ax: Axes | None = None) -> Axes:
    """Draw a bar for each circuit: coloured while it sends, pale when nothing is left.

    Parameters
    ----------
    solution
        Of a `Demand`, with a schedule or one for each plane.
    ax
        Where to draw; None makes a new figure.

    Returns
    -------
    Axes
        Time in seconds to the right; source ports downwards, each with a line for each plane.
        Numbers and colours are destinations; gaps are delays or idle ports.

    See Also
    --------
    gantt_data : What is drawn.
    plot_rails : A training step over time.
    """
    data = gantt_data(solution)
    rows = data.n_ports * data.planes
    ax = chart_axes(ax, rows, 0.22)
    row = data.source * data.planes + data.plane
    colours = np.array([palette.circuit_colour(port) for port in range(data.n_ports)])
    for ends, alpha in ((data.end_s, 0.25), (data.sent_s, 1.0)):
        style: dict[str, Any] = {"facecolors": colours[data.destination], "alpha": alpha}
        draw_bars(ax, data.start_s, ends, row - 0.4, row + 0.4, **style)
    span = data.makespan_s or 1.0
    if len(row) <= MOST_LABELS:
        for k in np.flatnonzero(data.end_s - data.start_s > 0.015 * span):
            middle, port = (data.start_s[k] + data.end_s[k]) / 2, int(data.destination[k])
            ink = palette.ink_on(str(colours[port]))
            ax.text(middle, row[k], str(port), ha="center", va="center", fontsize=6, color=ink)
    if np.isfinite(data.lower_bound_s) and solution.problem.objective == "completion-s":  # type: ignore[attr-defined]
        bound, ink = data.lower_bound_s, palette.INK
        ax.axvline(bound, color=ink, linestyle="--", linewidth=0.8)
        ax.text(bound, -0.8, "lower bound", ha="right", va="bottom", fontsize=7, color=ink)
    label_time(ax, span, rows)
    every = max(1, data.n_ports // 32)
    ports = np.arange(0, data.n_ports, every)
    ax.set_yticks(ports * data.planes + (data.planes - 1) / 2, [str(port) for port in ports])
    ax.set_ylabel("source port")
    on = f" on {data.planes} planes" if data.planes > 1 else ""
    ax.set_title(f"circuits over {data.makespan_s:.4g} s{on}; pale: nothing left to send")
    return ax


def draw(solution: Solution, slot: int | None = None) -> Figure:
    """Draw circuits over time, or one slot."""
    if slot is not None:
        return draw_schedule(solution, slot)
    return cast("Figure", plot_gantt(solution).figure)
