"""Matrices of demands: what is to be carried, and what is left at some times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import InputError, Solution, frozen, scale_of, write_amount
from optmatch.plotting import palette
from optmatch.plotting.blocks import MOST_BLOCKS, draw_blocks, explain_blocks, merge_blocks
from optmatch.plotting.demands.charts import gantt_data, unit_of_amounts
from optmatch.plotting.drawing import blank_figure
from optmatch.problems import Demand

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Matrices that are drawn beside each other.
_MAX_TIMES = 8


def draw_problem(problem: Demand) -> Figure:
    """Draw the matrix of a demand: source ports down, destination ports across.

    Parameters
    ----------
    problem
        The demand. For many ports, blocks are drawn, and how amounts are distributed.
    """
    if problem.fabric.n_ports > MOST_BLOCKS:
        return _draw_large_problem(problem)
    matrix = problem.demand_bytes
    total = write_amount(float(matrix.sum()), unit_of_amounts(problem))
    title = f"what is to be carried: {total} in all"
    if (matrix == 0).any():
        title += "; white: nothing"
    return draw_matrices(problem, [matrix], [title])


def _draw_large_problem(problem: Demand) -> Figure:
    """Draw a large matrix of traffic by blocks of ports, and how unequal its entries are.

    Parameters
    ----------
    problem
        A demand with more ports than a picture has squares. ``demand_bytes[source, destination]``
        is what is to be sent, shape (ports, ports).

    Returns
    -------
    Figure
        On the left the sum of each block of ports, as colours on a logarithmic scale; white is
        nothing. On the right a curve: if it goes through (10, 80), the largest 10 % of the entries
        are 80 % of all that is to be sent.
    """
    from matplotlib.colors import LogNorm

    matrix = problem.demand_bytes
    n_ports = problem.fabric.n_ports
    unit = unit_of_amounts(problem)
    flows = np.sort(matrix[matrix > 0])
    figure = blank_figure(9.6, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1.0))

    # Left: at most 64 blocks in each direction. Blocks without traffic are NaN, which is white.
    blocks = merge_blocks(matrix, "sum", most=64)
    scale, unit_name = scale_of(float(blocks.values.max()), unit)
    sums = np.where(blocks.values > 0, blocks.values / scale, np.nan)
    norm = None
    if np.isfinite(sums).any():
        norm = LogNorm(float(np.nanmin(sums)), float(np.nanmax(sums)))
    draw_blocks(left, blocks._replace(values=sums), n_ports, unit_name, norm)
    left.set_xlabel("destination port", fontsize=9)
    left.set_ylabel("source port", fontsize=9)
    square = explain_blocks(blocks.size, "pairs, their sum")
    left.set_title(f"who sends to whom; white: nothing\n{square}", fontsize=9)

    # Right: the share of the total that the largest entries have together, entry by entry.
    share = np.cumsum(flows[::-1]) / max(1e-300, float(flows.sum()))
    part = np.arange(1, len(flows) + 1) / max(1, len(flows))
    right.plot(100 * part, 100 * share, color=palette.circuit_colour(0))
    right.set_xlim(0, 100)
    right.set_ylim(0, 102)
    right.tick_params(labelsize=9)
    right.set_xlabel("largest entries, % of all", fontsize=9)
    right.set_ylabel("% of what is to be carried", fontsize=9)
    median = write_amount(float(np.median(flows)), unit) if len(flows) else "0"
    largest = write_amount(float(flows.max(initial=0.0)), unit)
    right.set_title(f"{len(flows):,} entries: median {median},\nlargest {largest}", fontsize=9)
    total = write_amount(float(matrix.sum()), unit)
    figure.suptitle(f"what is to be carried: {total} between {n_ports:,} ports", fontsize=11)
    return figure


def draw_matrices(
    problem: Demand, matrices: Sequence[NDArray[np.float64]], titles: Sequence[str]
) -> Figure:
    """Draw matrices of a demand beside each other, with the same colours.

    Parameters
    ----------
    problem
        The demand, for the names of ports and the unit.
    matrices : sequence of arrays, shape (sources, destinations)
        Amounts in bytes or, where the rate is 1, in seconds; zeros stay white.
    titles
        The title of each.

    Returns
    -------
    Figure
        Source ports down, destination ports across, and one bar of colours for all.
    """
    from matplotlib.colors import PowerNorm

    labels = problem.fabric.labels
    n_ports = len(labels)
    n_matrices = len(matrices)
    is_single = n_matrices == 1
    side_inches = min(10.0 if is_single else 5.0, max(4.0, 0.3 * n_ports + 1.5))
    figure = blank_figure(side_inches * n_matrices + 1.2, side_inches)

    # Where a few amounts are far larger than the others, an even scale would draw all others
    # black.
    largest = max(float(matrix.max(initial=0.0)) for matrix in matrices)
    scale, unit_name = scale_of(largest, unit_of_amounts(problem))
    amounts = np.concatenate([matrix[matrix > 0] for matrix in matrices])
    is_skewed = len(amounts) > 0 and largest > 10 * float(np.median(amounts))
    norm = PowerNorm(0.35 if is_skewed else 1.0, vmin=0.0, vmax=largest / scale or 1.0)

    # As many ports are named as there is room for; long names across are turned.
    most_names = 24 if is_single else 12
    ticks = np.arange(0, n_ports, max(1, math.ceil(n_ports / most_names)))
    names = [labels[port] for port in ticks]
    longest_name = max(len(name) for name in names)
    rotation = 90 if len(ticks) > 12 or longest_name > 3 else 0

    axes = figure.subplots(1, n_matrices, squeeze=False)[0]
    for ax, matrix, title in zip(axes, matrices, titles, strict=True):
        image = ax.imshow(np.ma.masked_equal(matrix / scale, 0.0), cmap="cividis", norm=norm)
        ax.set_xticks(ticks, names, fontsize=8, rotation=rotation)
        ax.set_yticks(ticks, names, fontsize=8)
        ax.set_xlabel("destination port")
        ax.set_title(title, fontsize=11)
    axes[0].set_ylabel("source port")
    figure.colorbar(image, ax=list(axes), label=unit_name, shrink=0.8)
    return figure


def tabulate_problem(problem: Demand) -> dict[str, Any]:
    """List a row for each flow: two ports between which there is something to send.

    Returns
    -------
    dict
        Columns of equal length: numbers of ports, their names, and bytes.
    """
    source, destination = np.nonzero(problem.demand_bytes)
    names = np.array(problem.fabric.labels)
    return {"source": source, "destination": destination, "from": names[source],
            "to": names[destination],
            "size_bytes": problem.demand_bytes[source, destination]}  # fmt: skip


def left_bytes(solution: Solution, times_s: ArrayLike) -> NDArray[np.float64]:
    """Return what is left of a demand at some times.

    Parameters
    ----------
    solution
        The solution of a `Demand`, with a schedule or one for each plane.
    times_s : array-like, shape (times,)
        Times of the schedule, in seconds.

    Returns
    -------
    array, shape (times, sources, destinations)
        The bytes that are still to be sent.

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
    data = gantt_data(solution)
    problem = solution.problem
    assert isinstance(problem, Demand)
    times = np.asarray(times_s, dtype=np.float64)
    if times.ndim != 1 or not (np.isfinite(times) & (times >= 0)).all():
        raise InputError("must be a list of finite numbers >= 0", where="times_s")

    # Until a time each circuit has sent since its start, at most as long as it had something.
    left = np.repeat(problem.demand_bytes[None].astype(np.float64), len(times), axis=0)
    for k, time_s in enumerate(times):
        sending_s = np.clip(time_s - data.start_s, 0.0, data.sent_s - data.start_s)
        sent_bytes = sending_s * problem.rate_bytes_per_s
        np.subtract.at(left[k], (data.source, data.destination), sent_bytes)

    # Differences of rounding are not left over.
    rounding_bytes = 1e-9 * float(problem.demand_bytes.max(initial=0.0))
    return np.where(left > rounding_bytes, left, 0.0)


def plot_left(solution: Solution, times_s: ArrayLike | None = None) -> Figure:
    """Draw what is left of a demand before, during and after its schedule, as matrices.

    Parameters
    ----------
    solution
        The solution of a `Demand`, with a schedule or one for each plane.
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
    end_s = gantt_data(solution).makespan_s
    problem = solution.problem
    assert isinstance(problem, Demand)
    if times_s is None:
        times = [0.0, end_s / 2, end_s]
        prefixes = ["before, ", "during, ", "after, "]
    else:
        times = frozen("times_s", times_s, 1, np.float64).tolist()
        prefixes = [""] * len(times)

    left = left_bytes(solution, times)
    if not 1 <= len(left) <= _MAX_TIMES:
        raise InputError(f"1 to {_MAX_TIMES} times are drawn", where="times_s")
    titles = []
    for prefix, time_s, matrix in zip(prefixes, times, left, strict=True):
        total = write_amount(float(matrix.sum()), unit_of_amounts(problem))
        titles.append(f"{prefix}at {write_amount(time_s, 's')}: {total} left")
    return draw_matrices(problem, list(left), titles)
