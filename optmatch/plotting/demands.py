"""Pictures of demands: circuits over time, and matrices of what is to be carried or left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import InputError, Solution, brief_tuple, frozen, scale_of, write_amount
from optmatch.plotting import palette
from optmatch.plotting.drawing import (
    MOST_BLOCKS,
    MOST_ROWS,
    Axes,
    Figure,
    choose_evenly,
    choose_ticks,
    draw_blocks,
    explain_blocks,
    figure_of,
    merge_blocks,
    row_of_axes,
)
from optmatch.plotting.scenes import WHOLE_ROW, BarLook, draw_rows
from optmatch.plotting.slots import answered
from optmatch.plotting.viewer import pack_bars, page_data, scene
from optmatch.problems import Demand
from optmatch.problems.topologies import answer_of, list_carried, schedules_of

_PATTERNS = ("", "////", "....", "xxxx", "\\\\\\\\", "----", "oo", "++")
"""Of destinations 0 to 7, 8 to 15, and so on."""


@brief_tuple
class GanttData(NamedTuple):
    """The circuits of a demand's schedule as bars; one entry for each circuit and slot."""

    source: NDArray[np.int64]
    """``source[bar]``: a port, as is the destination."""
    destination: NDArray[np.int64]
    plane: NDArray[np.int64]
    """The switch that holds the circuit, from 0."""
    start_s: NDArray[np.float64]
    """When the circuit can begin to send."""
    sent_s: NDArray[np.float64]
    """Until when it has something to send; `start_s` if it never has."""
    end_s: NDArray[np.float64]
    """When its slot ends."""
    makespan_s: float
    """When the last circuit ends."""
    lower_bound_s: float
    n_ports: int
    planes: int
    """How many switches there are side by side."""


def gantt_data(solution: Solution) -> GanttData:
    """Lay out the answer to a demand over time: a bar for each circuit in each slot.

    Parameters
    ----------
    solution
        The solution of a `Demand`, with a schedule or one for each plane.

    Returns
    -------
    GanttData
        Arrays of shape (bars,), in the order of starts: source, destination and plane of the
        circuit; when it can begin to send, until when it has something to send, and when its slot
        ends, in seconds. Also the makespan, the lower bound, and the numbers of ports and planes.

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
    schedules = schedules_of(answer_of(solution))
    circuits, carried_bytes = list_carried(solution)
    sending_s = carried_bytes / problem.rate_bytes_per_s
    return GanttData(
        source=circuits.source,
        destination=circuits.destination,
        plane=circuits.switch,
        start_s=circuits.start_s,
        sent_s=np.minimum(circuits.start_s + sending_s, circuits.end_s),
        end_s=circuits.end_s,
        makespan_s=max(float(schedule.makespan_s) for schedule in schedules),
        lower_bound_s=solution.lower_bound,
        n_ports=problem.fabric.n_ports,
        planes=len(schedules),
    )


def plot_gantt(solution: Solution, *, ax: Axes | None = None) -> Axes:
    """Draw a bar for each circuit: coloured while it sends, pale when nothing is left.

    Parameters
    ----------
    solution
        The solution of a `Demand`, with a schedule or one for each plane.
    ax
        Where to draw; None makes a new figure.

    Returns
    -------
    Axes
        Time to the right; source ports downwards, each with a line for each plane. Numbers, and
        colours with patterns, are destinations; gaps are delays or idle ports. With more than 48
        rows it has chosen ports, evenly from the one that sends longest to the one that sends
        least, and destinations have one colour.

    See Also
    --------
    gantt_data : What is drawn.
    plot_rails : A training step over time.
    """
    data = gantt_data(solution)
    problem: Any = solution.problem
    labels = problem.fabric.labels
    is_large = data.n_ports * data.planes > MOST_ROWS
    ports = np.arange(data.n_ports)
    if is_large:
        # Evenly chosen ones, from the one that sends longest to the one that sends least.
        busy_s = np.bincount(data.source, data.sent_s - data.start_s, minlength=data.n_ports)
        ranking = np.argsort(-busy_s, kind="stable")
        ports = ranking[choose_evenly(data.n_ports, _MOST_EXAMPLES)]
    chart = _circuits_chart(data, labels, ports, 1 if is_large else 8 * len(_PATTERNS))
    n_rows = len(chart["rows"])
    span_s = chart["span_s"]

    # Too many bars to be drawn one by one become shades: the share of each 400th of the time that
    # each row sends, by the overlaps of its bars with it.
    has_shades = is_large and int(np.isin(data.source, ports).sum()) > _MOST_BARS_OF_EXAMPLES
    share_of_row = np.zeros((n_rows, 400))
    if has_shades:
        # A bar is kind, start and length, in millionths of the span; kind 0 sends.
        edges = np.linspace(0, 1_000_000, 401)
        for row, numbers in enumerate(chart["bars"]):
            kind, start, length = np.array(numbers, dtype=np.int64).reshape(-1, 3).T[:, :, None]
            sent = np.clip(edges, start, start + length * (kind == 0))
            share_of_row[row] = np.diff(sent).sum(axis=0) * (400 / 1_000_000)
        chart["bars"] = [[] for _ in range(n_rows)]
        chart["texts"] = ()

    # Of other objectives the bound is no time.
    if np.isfinite(data.lower_bound_s) and problem.objective == "completion-s":
        chart["bounds_s"] = [data.lower_bound_s]
    ax = draw_rows(chart, ax, 0.22)
    if has_shades:
        from matplotlib.colors import LinearSegmentedColormap

        # From nearly white to blue, where a port sends for all of the time.
        shades = LinearSegmentedColormap.from_list("sends", ["#f4f6f9", _HUES[0]])
        extent = (0.0, span_s, n_rows - 0.5, -0.5)
        style: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest", "extent": extent}
        ax.imshow(share_of_row, cmap=shades, vmin=0.0, vmax=1.0, **style)
    ax.set_ylabel("source port" if data.planes == 1 else "source port, a row for each plane")

    title = f"circuits over {write_amount(data.makespan_s, 's')}"
    if data.planes > 1:
        title += f" on {data.planes} planes"
    if has_shades:
        title += "; darker: a port sends for more of the time"
    else:
        title += "; in a bar: the destination; pale: nothing left to send"
    if is_large:
        up_s = max(1e-300, float((data.end_s - data.start_s).sum()))
        share = 100 * float((data.sent_s - data.start_s).sum()) / up_s
        title += (
            f"\n{len(ports)} of {data.n_ports:,} source ports, the one that sends longest first"
        )
        title += f"; all circuits send for {share:.0f} % of the time that they are up"
    ax.set_title(title, fontsize=10)
    return ax


# Source ports that stand for all in a chart of many, and bars that they may have together.
_MOST_EXAMPLES = 14
_MOST_BARS_OF_EXAMPLES = 2500


# Eight colours that everybody can tell apart; further destinations have patterns as well.
_HUES = palette.CIRCUIT_COLOURS[:8]


def _circuits_chart(
    data: GanttData, labels: Sequence[str], ports: NDArray[np.int64], n_kinds: int
) -> dict[str, Any]:
    """Lay out the circuits of some source ports as rows of a scene: planes within ports.

    A circuit has two bars: while it sends, and pale when nothing is left. Their kinds are
    destinations; with more than `n_kinds` of them, every `n_kinds`-th has the same. The name of
    the destination, ``labels[port]``, stands in the longer bar.
    """
    # Full bars, then pale ones, in the same order of destinations.
    n_ports = len(labels)
    n_kinds = min(n_kinds, n_ports)
    looks = []
    for ending in ("", ": nothing left to send"):
        for port, label in enumerate(labels[:n_kinds]):
            name = f"to {label}"
            if n_kinds == 1:
                name = "sends"
            elif port + n_kinds < n_ports:
                name += ", ..."

            # Eight hues, and patterns beyond them.
            hue = _HUES[port % len(_HUES)]
            colour = palette.mix_with_white(hue) if ending else hue
            pattern = _PATTERNS[port // len(_HUES)]
            look = BarLook(f"{name}{ending}", colour, WHOLE_ROW, pattern, is_unlisted=bool(ending))
            looks.append(look)

    # Rows count planes within ports: with 2 planes, the port at place 3 has rows 6 and 7. Circuits
    # of other ports have row -1, and are left out below.
    first_row = np.full(n_ports, -1)
    first_row[ports] = np.arange(len(ports)) * data.planes
    row_of_circuit = np.where(first_row[data.source] < 0, -1, first_row[data.source] + data.plane)
    kind_of_circuit = data.destination % n_kinds

    # Bars that send, then pale ones; sorted by row and start, without those that last no time.
    row = np.tile(row_of_circuit, 2)
    kind = np.concatenate([kind_of_circuit, kind_of_circuit + n_kinds])
    start_s = np.concatenate([data.start_s, data.sent_s])
    end_s = np.concatenate([data.sent_s, data.end_s])
    order = np.lexsort((start_s, row))
    order = order[(row >= 0)[order] & (end_s > start_s)[order]]
    sends_longer = data.sent_s - data.start_s >= data.end_s - data.sent_s
    has_name = np.concatenate([sends_longer, ~sends_longer])
    n_circuits = len(row_of_circuit)
    texts = [labels[data.destination[bar % n_circuits]] if has_name[bar] else "" for bar in order]

    # Rows are named by ports, and by planes where there are several.
    names = []
    for port in ports.tolist():
        for plane in range(data.planes):
            names.append(f"{labels[port]}, plane {plane}" if data.planes > 1 else labels[port])
    span_s = data.makespan_s or 1.0
    bars = pack_bars(row[order], kind[order], start_s[order], end_s[order], len(names), span_s)
    return {
        "legend": looks,
        "row_noun": "port",
        "rows": names,
        "bars": bars,
        "texts": texts,
        "span_s": span_s,
    }


# Limits of a page, so that it stays small: bars, and circuits in its list.
_MAX_BARS = 60_000
_BAR_FIELDS = "source", "destination", "plane", "start_s", "sent_s", "end_s"
_MAX_LISTED = 4000


def page(solution: Solution) -> dict[str, Any]:
    """Collect the page: slot by slot with what is left, or the circuits of planes over time.

    A bar is a circuit that sends from `start_s` to `sent_s` and is up until `end_s`. A problem on
    one plane has a schedule: its page steps through the slots, and ``page["carried"][slot]`` says
    what each source port carries, as ``{"3": "5 kB"}``; it is empty with too many bars. With
    several planes (`_planes_page`) the page steps through the ends of circuits, each with a
    caption and a time in seconds.
    """
    data = gantt_data(solution)
    problem: Any = solution.problem
    unit = unit_of_amounts(problem)
    carried_bytes = (data.sent_s - data.start_s) * problem.rate_bytes_per_s
    total_bytes = problem.demand_bytes.sum()

    # The bytes that are left at the end of each bar; rounding leaves no crumbs.
    ends_s, end_of_bar = np.unique(data.end_s, return_inverse=True)
    carried_until_end = np.cumsum(np.bincount(end_of_bar, carried_bytes, minlength=len(ends_s)))
    left_bytes = total_bytes - carried_until_end
    left_bytes = np.where(left_bytes > 1e-9 * max(1.0, total_bytes), left_bytes, 0.0)
    texts = [f"{write_amount(float(amount), unit)} left to carry" for amount in left_bytes]
    if solution.schedule is not None:
        if not texts:
            return page_data(solution)
        slot_ends_s = solution.schedule.ends_s * (1 - 1e-12)
        end_of_slot = np.searchsorted(ends_s, slot_ends_s).clip(0, len(ends_s) - 1)
        slots = page_data(solution, names=[texts[k] for k in end_of_slot])
        if len(data.source) > _MAX_BARS:
            slots["carried"] = []
            return slots

        # What each circuit carries, such as "3 kB", by slot and source port; ports are strings, as
        # keys of JSON are. The slot of a bar is the one that ends when the bar ends, a little
        # earlier, so that rounding cannot put a bar into the slot before.
        slot_ends_s = solution.schedule.ends_s * (1 - 1e-9)
        slot_of_bar = np.searchsorted(slot_ends_s, data.end_s, side="right") - 1
        slots["carried"] = [{} for _ in slot_ends_s]
        for bar, slot in enumerate(slot_of_bar.tolist()):
            amount = write_amount(float(carried_bytes[bar]), unit)
            slots["carried"][slot][str(int(data.source[bar]))] = amount
        return slots
    return _planes_page(solution, data, carried_bytes, unit, list(zip(texts, ends_s, strict=True)))


def unit_of_amounts(problem: Demand) -> str:
    """Return the unit of the amounts of a demand: where the rate is 1 they are seconds."""
    return "B" if problem.rate_bytes_per_s != 1 else "s"


def _planes_page(
    solution: Solution,
    data: GanttData,
    carried_bytes: NDArray[np.float64],
    unit: str,
    steps: list[tuple[str, float]],
) -> dict[str, Any]:
    """Collect the page of planes: a row for each source port and plane, a bar for each circuit.

    Bars and listed circuits beyond the limits of a page are left out. ``carried_bytes[bar]`` is in
    `unit`, "B" or, where demands are times, "s". `steps` has the caption and the time in seconds
    of each step of the page.
    """
    # The list of circuits beside the picture: a name, an amount, and the row to be marked. Rows
    # count planes within ports: with 2 planes, port 3 on plane 1 has row 7.
    labels = solution.problem.fabric.labels
    row = data.source * data.planes + data.plane
    lines = []
    for k in range(min(len(row), _MAX_LISTED)):
        source = labels[data.source[k]]
        destination = labels[data.destination[k]]
        name = f"{source} to {destination}, plane {data.plane[k]}"
        size = write_amount(float(carried_bytes[k]), unit)
        lines.append([[name, size], {"row": int(row[k])}])

    page_steps = [{"say": text, "at": float(time_s)} for text, time_s in steps]
    first = data._replace(**{name: getattr(data, name)[:_MAX_BARS] for name in _BAR_FIELDS})
    return scene(
        solution,
        **_circuits_chart(first, labels, np.arange(data.n_ports), len(_HUES)),
        noun="slot",
        row_of=[port * data.planes for port in range(data.n_ports)],
        steps=page_steps or [{"say": "nothing to carry", "at": 0.0}],
        list={"title": "Circuits in order", "heads": ["circuit", "carries"], "rows": lines},
    )


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
    if n_ports > MOST_BLOCKS:
        most_names //= 3
    ticks = choose_ticks(n_ports, most_names)
    names = [labels[port] for port in ticks]
    longest_name = max(len(name) for name in names)
    rotation = 90 if len(ticks) > 12 or longest_name > 3 else 0

    square = explain_blocks(blocks[0].size, "pairs, their sum")
    for panel, block, title in zip(axes, blocks, titles, strict=True):
        amount = np.where(block.values > 0, block.values / scale, np.nan)
        image = draw_blocks(panel, block._replace(values=amount), norm)
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
    columns = {"source": source, "destination": destination, "from": names[source],
               "to": names[destination],
               "size_bytes": problem.demand_bytes[source, destination]}  # fmt: skip
    if problem.groups is not None:
        columns["group"] = problem.groups[source, destination]
    return columns


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

    # Less than 1e-9 of the largest demand is a difference of rounding, and counts as 0.
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
