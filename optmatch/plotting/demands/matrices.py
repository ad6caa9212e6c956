"""Matrices of demands: what is to be carried, and what is left at some times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import InputError, Solution, frozen, scale_of, write_amount
from optmatch.plotting.blocks import MOST_BLOCKS, choose_ticks, explain_blocks, merge_blocks
from optmatch.plotting.demands.charts import gantt_data, unit_of_amounts
from optmatch.plotting.drawing import Axes, Figure, figure_of, row_of_axes
from optmatch.problems import Demand

# Matrices that are drawn beside each other.
_MAX_TIMES = 8


def draw_problem(problem: Demand, ax: Axes | None = None) -> Figure:
    """Draw the matrix of a demand, of many ports block by block, into `ax` or a new figure.

    Source ports are down, destination ports across; white is nothing. The title of many ports says
    how unequal the entries are.
    """
    unit = unit_of_amounts(problem)
    flows = np.sort(problem.demand_bytes[problem.demand_bytes > 0])[::-1]
    total = float(flows.sum())
    title = f"what is to be carried: {write_amount(total, unit)} in all"
    if len(flows) < problem.demand_bytes.size:
        title += "; white: nothing"
    if problem.fabric.n_ports > MOST_BLOCKS and total > 0:
        share = 100 * float(flows[: math.ceil(len(flows) / 10)].sum()) / total
        median = write_amount(float(np.median(flows)), unit)
        largest = write_amount(float(flows[0]), unit)
        title += f"\n{len(flows):,} entries: median {median}, largest {largest}"
        title += f"; the largest 10 % are {share:.0f} % of all"
    return _draw_matrices(problem, [problem.demand_bytes], [title], ax)


def _draw_matrices(
    problem: Demand,
    matrices: Sequence[NDArray[np.float64]],
    titles: Sequence[str],
    ax: Axes | None = None,
) -> Figure:
    """Draw matrices of a demand beside each other, each with its title, and one bar of colours.

    ``matrices[k][source, destination]`` is in bytes or, where the rate is 1, in seconds; zeros
    stay white. ``titles[k]`` stands above matrix k. With more than 128 ports a square is the sum
    of a block of pairs. A single matrix may be drawn into `ax`.
    """
    from matplotlib.colors import LogNorm, Normalize

    labels = problem.fabric.labels
    n_ports = len(labels)
    n_matrices = len(matrices)
    is_single = n_matrices == 1
    side_inches = min(10.0 if is_single else 5.0, max(4.0, 0.3 * n_ports + 1.5))
    if n_ports > MOST_BLOCKS:
        side_inches = 5.0
    axes = row_of_axes(ax, n_matrices, side_inches * n_matrices + 1.2, side_inches)

    # Where a few amounts are far larger than the others, an even scale would draw all others
    # black.
    blocks = [merge_blocks(matrix, "sum", MOST_BLOCKS) for matrix in matrices]
    largest = max(float(block.values.max(initial=0.0)) for block in blocks)
    scale, unit_name = scale_of(largest, unit_of_amounts(problem))
    amounts = np.concatenate([block.values[block.values > 0] for block in blocks])
    is_skewed = len(amounts) > 0 and largest > 10 * float(np.median(amounts))
    norm = Normalize(0.0, largest / scale or 1.0)
    if is_skewed:
        norm = LogNorm(max(1e-4 * largest, float(amounts.min())) / scale, largest / scale)

    # As many ports are named as there is room for; long names across are turned.
    most_names = 24 if is_single else 12
    ticks = np.arange(0, n_ports, max(1, math.ceil(n_ports / most_names)))
    if n_ports > MOST_BLOCKS:
        ticks = choose_ticks(n_ports, most_names // 3)
    names = [labels[port] for port in ticks]
    longest_name = max(len(name) for name in names)
    rotation = 90 if len(ticks) > 12 or longest_name > 3 else 0

    # A square of 16 ports reaches from -0.5 to 15.5.
    square = explain_blocks(blocks[0].size, "pairs, their sum")
    for panel, block, title in zip(axes, blocks, titles, strict=True):
        end = len(block.values) * block.size - 0.5
        image = panel.imshow(
            np.ma.masked_equal(block.values / scale, 0.0),
            cmap="cividis",
            norm=norm,
            interpolation="nearest",
            extent=(-0.5, end, end, -0.5),
        )
        panel.set_xticks(ticks, names, fontsize=8, rotation=rotation)
        panel.set_yticks(ticks, names, fontsize=8)
        panel.set_xlabel("destination port")
        panel.set_title(f"{title}\n{square}".strip(), fontsize=9 if square else 11)
    axes[0].set_ylabel("source port")
    figure = figure_of(axes[0])
    figure.colorbar(image, ax=axes, label=unit_name, shrink=0.8)
    return figure


def tabulate_problem(problem: Demand) -> dict[str, Any]:
    """List a row for each flow, a pair of ports that has something to send."""
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
    return _draw_matrices(problem, list(left), titles)
