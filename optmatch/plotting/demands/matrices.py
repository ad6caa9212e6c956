"""Matrices of demands: what is to be carried, and what is left at some times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import InputError, Solution, frozen, scale_of, write_amount
from optmatch.plotting.demands.charts import gantt_data
from optmatch.plotting.figures import blank_figure
from optmatch.problems import Demand

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_TIMES = 8


def draw_problem(problem: Demand) -> Figure:
    """Draw the matrix of a demand: sources down, destinations across."""
    matrix = problem.demand_bytes
    total = write_amount(float(matrix.sum()), "B" if problem.rate_bytes_per_s != 1 else "")
    nothing = "; white: nothing" if (matrix == 0).any() else ""
    return draw_matrices(problem, [matrix], [f"what is to be carried: {total} in all{nothing}"])


def draw_matrices(
    problem: Demand, matrices: Sequence[NDArray[np.float64]], titles: Sequence[str]
) -> Figure:
    """Draw amounts for each pair of ports beside each other, with the same colours."""
    from matplotlib.colors import PowerNorm

    labels, unit = problem.fabric.labels, "B" if problem.rate_bytes_per_s != 1 else ""
    n, count = len(labels), len(matrices)
    side = min(10.0 if count == 1 else 5.0, max(4.0, 0.3 * n + 1.5))
    figure = blank_figure(side * count + 1.2, side)
    most = max(float(matrix.max(initial=0.0)) for matrix in matrices)
    scale, name = scale_of(most, unit)
    some = np.concatenate([matrix[matrix > 0] for matrix in matrices])
    skewed = len(some) and most > 10 * float(np.median(some))  # else all but a few would be black
    norm = PowerNorm(0.35 if skewed else 1.0, vmin=0.0, vmax=most / scale or 1.0)
    ticks = np.arange(0, n, max(1, -(-n // (24 if count == 1 else 12))))
    names = [labels[k] for k in ticks]
    turned = 90 if len(ticks) > 12 or max(map(len, names)) > 3 else 0
    axes = figure.subplots(1, count, squeeze=False)[0]
    for ax, matrix, title in zip(axes, matrices, titles, strict=True):
        image = ax.imshow(np.ma.masked_equal(matrix / scale, 0.0), cmap="cividis", norm=norm)
        ax.set_xticks(ticks, names, fontsize=8, rotation=turned)
        ax.set_yticks(ticks, names, fontsize=8)
        ax.set_xlabel("destination port")
        ax.set_title(title, fontsize=11)
    axes[0].set_ylabel("source port")
    figure.colorbar(image, ax=list(axes), label=name or "demand", shrink=0.8)
    return figure


def tabulate_problem(problem: Demand) -> dict[str, Any]:
    """List a row for each flow."""
    source, destination = np.nonzero(problem.demand_bytes)
    names = np.array(problem.fabric.labels)
    return {"source": source, "destination": destination, "from": names[source],
            "to": names[destination],
            "size_bytes": problem.demand_bytes[source, destination]}  # fmt: skip


def left_bytes(solution: Solution, times_s: ArrayLike) -> NDArray[np.float64]:
    """Return what is left of a demand: ``left_bytes[time, source, destination]``.

    Parameters
    ----------
    solution
        Of a `Demand`, with a schedule or one for each plane.
    times_s
        Times of the schedule, in seconds.

    Raises
    ------
    InputError
        If it is of another kind, has no answer, or a time is no finite number >= 0.

    Examples
    --------
    >>> import optmatch as om
    >>> solution = om.solve(om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=1), seed=0)
    >>> left_bytes(solution, [0, 3, 4]).tolist()
    [[[0.0, 3.0], [2.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]
    """
    data, problem = gantt_data(solution), solution.problem
    assert isinstance(problem, Demand)
    times = np.asarray(times_s, dtype=np.float64)
    if times.ndim != 1 or not (np.isfinite(times) & (times >= 0)).all():
        raise InputError("must be a list of finite numbers >= 0", where="times_s")
    left = np.repeat(problem.demand_bytes[None].astype(np.float64), len(times), axis=0)
    for k, time_s in enumerate(times):
        sent_s = np.clip(time_s - data.start_s, 0.0, data.sent_s - data.start_s)
        np.subtract.at(left[k], (data.source, data.destination), sent_s * problem.rate_bytes_per_s)
    rounding = 1e-9 * float(problem.demand_bytes.max(initial=0.0))
    return np.where(left > rounding, left, 0.0)


def plot_left(solution: Solution, times_s: ArrayLike | None = None) -> Figure:
    """Draw what is left of a demand before, during and after its schedule, as matrices.

    Parameters
    ----------
    solution
        Of a `Demand`, with a schedule or one for each plane.
    times_s
        When, in seconds, at most eight times; None takes the begin, the middle, and the end.

    Returns
    -------
    Figure
        A matrix for each time, sources downwards, all with the same colours.

    Raises
    ------
    InputError
        As of `left_bytes`, and for too many times or none.

    See Also
    --------
    left_bytes : What is drawn.
    """
    end_s, problem = gantt_data(solution).makespan_s, solution.problem
    assert isinstance(problem, Demand)
    times = [0.0, end_s / 2, end_s]
    if times_s is not None:
        times = frozen("times_s", times_s, 1, np.float64).tolist()
    left = left_bytes(solution, times)
    if not 1 <= len(left) <= _MOST_TIMES:
        raise InputError(f"1 to {_MOST_TIMES} times are drawn", where="times_s")
    names = [f"at {write_amount(time_s, 's')}" for time_s in times]
    if times_s is None:
        names = [
            f"{when}, {name}"
            for when, name in zip(("before", "during", "after"), names, strict=True)
        ]
    totals = [
        write_amount(float(matrix.sum()), "B" if problem.rate_bytes_per_s != 1 else "")
        for matrix in left
    ]
    titles = [f"{name}: {total} left" for name, total in zip(names, totals, strict=True)]
    return draw_matrices(problem, list(left), titles)
