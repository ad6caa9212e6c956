"""Charts over time: which port sends to which, when, and when it has nothing left to send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Schedule, Solution, write_amount
from optmatch.plotting import palette
from optmatch.plotting.figures import (
    chart_axes,
    draw_bars,
    draw_schedule,
    label_time,
)
from optmatch.plotting.slots import answered
from optmatch.plotting.viewer import page_data, scene
from optmatch.problems import Demand

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL_INCHES = 0.13
"""Rows that are lower than this have colours but no numbers."""
PATTERNS = ("", "////", "....", "xxxx", "\\\\\\\\", "----", "oo", "++")
"""Of destinations 0 to 7, 8 to 15, and so on."""


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
    problem, _ = answered(solution, Demand, object)
    answer: Any = solution.schedule or solution.answer
    schedules: tuple[Schedule, ...] = getattr(answer, "schedules", (answer,))
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
    start = (schedule.ends_s - schedule.durations_s)[slot]
    if problem.switching == "per-circuit" and schedule.n_slots:
        stays = np.zeros(schedule.matchings.shape, dtype=bool)
        stays[1:] = schedule.matchings[1:] == schedule.matchings[:-1]
        start = start - schedule.delay_s * stays[slot, source]
    columns = (source, destination, np.full(len(source), plane), start, schedule.ends_s[slot])
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
        Time to the right; source ports downwards, each with a line for each plane. Numbers, and
        colours with patterns, are destinations; gaps are delays or idle ports.

    See Also
    --------
    gantt_data : What is drawn.
    plot_rails : A training step over time.
    """
    data = gantt_data(solution)
    rows = data.n_ports * data.planes
    ax = chart_axes(ax, rows, 0.22)
    row = data.source * data.planes + data.plane
    hues = palette.CIRCUIT_COLOURS[:8]  # told apart by everybody; beyond eight with patterns
    colours = np.array([hues[port % len(hues)] for port in range(data.n_ports)])
    span = data.makespan_s or 1.0
    for ends, alpha in ((data.end_s, 0.25), (data.sent_s, 1.0)):
        times = data.start_s, ends, row - 0.4, row + 0.4
        draw_bars(ax, *times, facecolors=colours[data.destination], alpha=alpha, linewidths=0.0)
    _draw_patterns(ax, data, row, len(hues), _inches(ax)[0] / span)
    _label_bars(ax, data, row, colours, span)
    if np.isfinite(data.lower_bound_s) and solution.problem.objective == "completion-s":  # type: ignore[attr-defined]
        bound, ink = data.lower_bound_s, palette.INK
        ax.axvline(bound, color=ink, linestyle="--", linewidth=1.0, label="lower bound")
    label_time(ax, span, rows)
    inches = float(ax.get_figure(root=True).get_size_inches()[1])  # type: ignore[union-attr]
    every = max(1, -(-data.n_ports // max(1, int(0.8 * inches / 0.14))))
    ports = np.arange(0, data.n_ports, every)
    labels = solution.problem.fabric.labels
    ax.set_yticks(ports * data.planes + (data.planes - 1) / 2, [labels[port] for port in ports])
    ax.set_ylabel("source port" if data.planes == 1 else "source port, a row for each plane")
    on = f" on {data.planes} planes" if data.planes > 1 else ""
    span_text = write_amount(data.makespan_s, "s")
    ax.set_title(f"circuits over {span_text}{on}; colours and numbers: destinations; "
                 "pale: nothing left to send", fontsize=10)  # fmt: skip
    _explain_hues(ax, data.n_ports, hues)
    return ax


def _inches(ax: Axes) -> tuple[float, float]:
    figure: Any = ax.get_figure(root=True)
    box = ax.get_position()
    width, height = figure.get_size_inches() * (box.width, box.height)
    return float(width), float(height)


def _draw_patterns(ax: Axes, data: GanttData, row: Any, n_hues: int, inches: float) -> None:
    """Draw the pattern of each eight destinations over all their bars at once, where it is seen.

    A second has so many `inches`.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    wide = (data.end_s - data.start_s) * inches > 0.05
    for turn in range(1, -(-data.n_ports // n_hues)):
        own = wide & (data.destination // n_hues == turn)
        left, right, middle = data.start_s[own], data.end_s[own], row[own]
        x = np.stack([left, right, right, left], axis=1)
        y = np.stack([middle - 0.4, middle - 0.4, middle + 0.4, middle + 0.4], axis=1)
        if len(x):
            outline = Path.make_compound_path_from_polys(np.stack([x, y], axis=2))
            pattern = PATTERNS[turn % len(PATTERNS)]
            ax.add_patch(PathPatch(outline, fill=False, hatch=pattern, edgecolor="white", lw=0.0))


def _label_bars(ax: Axes, data: GanttData, row: Any, colours: Any, span: float) -> None:
    """Write the destination into each bar, or its longer part, where its digits have room."""
    width, height = _inches(ax)
    rows = data.n_ports * data.planes
    if height / rows < LABEL_INCHES:
        return
    digits = np.char.str_len(data.destination.astype(str))
    pale = data.end_s - data.sent_s > data.sent_s - data.start_s  # the part without data is longer
    low, high = np.where(pale, data.sent_s, data.start_s), np.where(pale, data.end_s, data.sent_s)
    for k in np.flatnonzero((high - low) / span * width > 0.075 * digits + 0.03):
        port = int(data.destination[k])
        plated = port >= 8 and not pale[k]
        plate = {"boxstyle": "square,pad=0.1", "fc": str(colours[port]), "ec": "none"}
        ax.text(
            (low[k] + high[k]) / 2, row[k], str(port), ha="center", va="center", fontsize=8,
            color=palette.INK if pale[k] else palette.ink_on(str(colours[port])),
            bbox=plate if plated else None,  # patterns would hide the digits
        )  # fmt: skip


def _explain_hues(ax: Axes, n_ports: int, hues: Any) -> None:
    """Tell which colour and pattern is which destination."""
    from matplotlib.patches import Patch

    turns = min(len(PATTERNS), -(-n_ports // len(hues)))
    marks: list[Any] = [
        Patch(facecolor=hue, label=f"to {k}") for k, hue in enumerate(hues[:n_ports])
    ]
    marks += [
        Patch(facecolor="#8a94a3", edgecolor="white", hatch=PATTERNS[turn], linewidth=0,
              label=f"+ {turn * len(hues)}")
        for turn in range(1, turns)
    ]  # fmt: skip
    marks += [line for line in ax.get_lines() if line.get_label() == "lower bound"]
    ax.legend(handles=marks, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False,
              fontsize=8)  # fmt: skip


_MOST_BARS = 60_000


def page(solution: Solution) -> dict[str, Any]:
    """Collect the page: slot by slot with what is left, or the circuits of planes over time."""
    data = gantt_data(solution)
    problem: Any = solution.problem
    carried = (data.sent_s - data.start_s) * problem.rate_bytes_per_s
    ends = np.unique(data.end_s)
    left = problem.demand_bytes.sum() - np.cumsum(
        np.bincount(np.searchsorted(ends, data.end_s), carried, minlength=len(ends))
    )
    left = np.where(left > 1e-9 * max(1.0, problem.demand_bytes.sum()), left, 0.0)
    unit = "B" if problem.rate_bytes_per_s != 1 else ""
    said = [f"{write_amount(float(amount), unit)} left to carry" for amount in left]
    if solution.schedule is not None:
        last_s = solution.schedule.ends_s
        at = np.clip(np.searchsorted(ends, last_s * (1 - 1e-12)), 0, max(0, len(ends) - 1))
        return page_data(solution, names=[said[k] for k in at] if said else ())
    span_s = data.makespan_s or 1.0
    hues = palette.CIRCUIT_COLOURS[:8]
    rows: list[list[int]] = [[] for _ in range(data.n_ports * data.planes)]
    for k in range(min(len(data.source), _MOST_BARS)):
        row = rows[data.source[k] * data.planes + data.plane[k]]
        start = round(data.start_s[k] * 1e6 / span_s)
        row += [int(data.destination[k] % len(hues)), start,
                round(data.end_s[k] * 1e6 / span_s) - start]  # fmt: skip
    circuits = zip(data.source, data.destination, data.plane, carried, strict=True)
    pairs = [
        [
            [f"{i} to {j}, plane {p}", write_amount(float(size), unit)],
            {"row": int(i * data.planes + p)},
        ]
        for i, j, p, size in circuits
    ]
    return scene(
        solution,
        legend=[(f"to ports {k}, {k + 8}, ...", hue, 2) for k, hue in enumerate(hues)],
        noun="slot",
        row_noun="port",
        rows=[f"{k // data.planes}, plane {k % data.planes}" for k in range(len(rows))],
        bars=rows,
        row_of=[port * data.planes for port in range(data.n_ports)],
        span_s=span_s,
        steps=[
            {"say": text, "at": float(end)} for text, end in zip(said, ends, strict=True)
        ] or [{"say": "nothing to carry", "at": 0.0}],
        list={"title": "Circuits in order", "heads": ["circuit", "carries"], "rows": pairs[:4000]},
    )  # fmt: skip


def draw(solution: Solution, slot: int | None = None) -> Figure:
    """Draw circuits over time, or one slot."""
    if slot is not None:
        return draw_schedule(solution, slot)
    return cast("Figure", plot_gantt(solution).figure)
