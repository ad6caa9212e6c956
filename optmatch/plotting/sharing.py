"""Shares of resources: how many each job wants, and how many it gets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Solution, brief_tuple
from optmatch.plotting import palette
from optmatch.plotting.drawing import Axes, Figure, figure_of
from optmatch.plotting.figures import range_of
from optmatch.plotting.scenes import LOWER_HALF, UPPER_HALF, WHOLE_ROW, BarLook, draw_rows
from optmatch.plotting.slots import answered
from optmatch.plotting.viewer import pack_bars, scene
from optmatch.problems import Assignment, PortSharing


@brief_tuple
class SharesData(NamedTuple):
    """A bar for each job, first served first."""

    job: NDArray[np.int64]
    """``job[bar]``"""
    demand: NDArray[np.int64]
    """``demand[bar]``: how many resources it wants."""
    served: NDArray[np.int64]
    """``served[bar]``: how many it gets."""
    unused: int
    """Resources that serve no job."""


def shares_data(solution: Solution) -> SharesData:
    """Lay out how many resources each job wants and gets.

    Parameters
    ----------
    solution
        The solution of a `PortSharing`, with an answer.

    Returns
    -------
    SharesData
        Arrays of shape (jobs,), first served first: the number of the job, how many resources it
        wants and how many it gets; and the number of resources that serve no job.

    Raises
    ------
    InputError
        If it is of another kind, has no answer, or no job wants anything.

    Examples
    --------
    >>> import optmatch as om
    >>> from optmatch.problems import Jobs, Resources
    >>> ports = Resources([[100.0, 400, 400, 800]])
    >>> solution = om.solve(om.PortSharing(ports, Jobs([2, 3], [[400.0, 400]])), seed=0)
    >>> data = shares_data(solution)
    >>> data.demand.tolist(), int(data.served.sum()), data.unused
    ([2, 3], 3, 1)
    """
    problem, answer = answered(solution, PortSharing, Assignment)
    order = problem.ranking
    demand = problem.jobs.demand[order]
    if not demand.any():
        raise InputError("nothing to draw: no job wants anything")
    return SharesData(
        job=order.astype(np.int64),
        demand=demand.astype(np.int64),
        served=answer.served(problem.jobs.n_jobs)[order],
        unused=int((answer.job_of < 0).sum()),
    )


def plot_shares(solution: Solution, *, ax: Axes | None = None) -> Figure:
    """Draw a bar for each job: its part of the resources that it wants.

    Parameters
    ----------
    solution
        The solution of a `PortSharing`, with an answer.
    ax
        Where to draw; None makes a new figure.

    Returns
    -------
    Figure
        Resources to the right, jobs downwards, first served first. With more than 40 jobs a row
        is the mean of several.
    """
    data = shares_data(solution)
    bars = {
        BarLook("served", palette.circuit_colour(0), WHOLE_ROW): (0 * data.served, data.served),
        BarLook("not served", palette.TOGGLED_FILL, WHOLE_ROW): (data.served, data.demand),
    }
    ax = _draw_jobs(data.job, bars, ax)
    n_served = int(data.served.sum())
    n_wanted = int(data.demand.sum())
    title = f"{n_served:,} of {n_wanted:,} wanted are served, unused: {data.unused:,}"

    # Of the jobs that want anything, those that get all of it, and those that get nothing.
    wants = data.demand > 0
    n_all = int((data.served == data.demand)[wants].sum())
    n_none = int((data.served == 0)[wants].sum())
    title += f"\njobs that get all they want: {n_all:,}, nothing: {n_none:,}"
    ax.set_title(title, fontsize=10)
    return figure_of(ax)


_MOST_ROWS = 40
"""Of more jobs a row is the mean of several."""


def _draw_jobs(
    order: NDArray[Any],
    bars: Mapping[BarLook, tuple[NDArray[Any], NDArray[Any]]],
    ax: Axes | None,
) -> Axes:
    """Draw numbers of resources as bars, a row for each job or for some that follow each other.

    ``order[place]`` is the number of a job. A value of `bars` is two arrays, ``begins[place]`` and
    ``ends[place]``: from where to where the bar of this job reaches, in resources.
    """
    size = math.ceil(len(order) / _MOST_ROWS)
    starts = np.arange(0, len(order), size)
    n_jobs = np.diff(starts, append=len(order))
    names = []
    for place, n_together in zip(starts.tolist(), n_jobs.tolist(), strict=True):
        more = f" and {n_together - 1} more" if n_together > 1 else ""
        names.append(f"{order[place]}{more}")

    # The means of the jobs of each row, for all bars.
    begins, ends = np.swapaxes(list(bars.values()), 0, 1)
    begin = np.add.reduceat(begins, starts, axis=1) / n_jobs
    end = np.add.reduceat(ends, starts, axis=1) / n_jobs
    kind, row = np.indices(begin.shape)
    span = max(1.0, float(end.max()))
    bars_of_rows = pack_bars(
        row.ravel(), kind.ravel(), begin.ravel(), end.ravel(), len(names), span
    )
    unit = "resources; the job on top is served first"
    if size > 1:
        unit += ", a row is the mean of its jobs"
    chart = {
        "legend": list(bars),
        "row_noun": "job",
        "rows": names,
        "bars": bars_of_rows,
        "span_s": span,
        "unit": unit,
    }
    return draw_rows(chart, ax)


_MOST_NODES = 3000
"""More resources are drawn folded: those that are alike as one box."""
_JOBS_OF_ONE_COLUMN = 24
_UNUSED = "#ffffff"
_TIGHT = "#ffd57a"
_CLASS = "#eef1f5"


def page(solution: Solution) -> dict[str, Any]:
    """Collect the page of jobs and resources: who serves whom, and the cut of the proof.

    With more than 3,000 resources, those of a class that serve the same job are one box. Jobs and
    boxes are nodes; a link leads from a job to a box that serves it. Each step of the page has a
    caption `say`, and gives some nodes and links other colours: places in `legend`, by the place
    of a node or link as a string. `_find_cut` gives the nodes of a minimum cut, whose capacity
    bounds what can be served; there is none without a proof.
    """
    problem, answer = answered(solution, PortSharing, Assignment)

    # A box is one resource or several alike ones. ``class_of[resource]`` is its class, and
    # ``job_of[resource]`` the job that it serves, -1 for none.
    n_jobs = problem.jobs.n_jobs
    class_of = problem.classes.class_of
    if len(answer.job_of) > _MOST_NODES:
        class_and_job = np.stack([class_of, answer.job_of], axis=1)
        pairs, counts = np.unique(class_and_job, axis=0, return_counts=True)
        boxes = [
            _Box(group, job, n_alike, f"{n_alike} resources of class {group}")
            for (group, job), n_alike in zip(pairs.tolist(), counts.tolist(), strict=True)
        ]
    else:
        boxes = [
            _Box(int(class_of[resource]), int(answer.job_of[resource]), 1, f"resource {resource}")
            for resource in np.lexsort((answer.job_of, class_of)).tolist()
        ]
    # ``served[job]`` counts the resources of a job; jobs in the order in which they are served.
    jobs = problem.ranking.tolist()
    served = answer.served(n_jobs)
    node_of_job = {job: node for node, job in enumerate(jobs)}

    # The legend: where there are more jobs than colours, several share one: with 3 colours, job 4
    # has that of job 1. Jobs stand in it behind the three entries that every page has.
    hues = palette.CIRCUIT_COLOURS
    legend = [("free, or not used", _UNUSED), ("counted in the cut", _TIGHT), ("class", _CLASS)]
    legend_place_of_job = [len(legend) + job % len(hues) for job in range(n_jobs)]
    for job, hue in enumerate(hues[:n_jobs]):
        name = f"jobs {job}, {job + len(hues)}, ..." if n_jobs > len(hues) else f"job {job}"
        legend.append((name, hue))

    # Jobs stand on the left, in several columns where there are many, first served first;
    # resources stand by their class on the right.
    nodes: list[list[Any]] = []
    jobs_per_column = max(_JOBS_OF_ONE_COLUMN, math.ceil((3.5 * n_jobs) ** 0.5))
    for place, job in enumerate(jobs):
        column, row = divmod(place, jobs_per_column)
        text = f"{job}: {served[job]}/{problem.jobs.demand[job]}"
        corner = (3.8 * column, 1.1 * row)
        nodes.append([*corner, 3.4, 0.9, text, legend_place_of_job[job], f"job {job}"])
    node_of_box = _place_boxes(boxes, nodes)

    # A box that serves a job (-1: none) gets its colour and a line to it, hidden at first.
    links: list[list[Any]] = []
    node_colours: dict[str, int] = {}
    link_colours: dict[str, int] = {}
    for box, node in zip(boxes, node_of_box, strict=True):
        if box.job >= 0:
            node_colours[str(node)] = legend_place_of_job[box.job]
            link_colours[str(len(links))] = legend_place_of_job[box.job]
            title = f"{box.name} serves job {box.job}"
            links.append([node_of_job[box.job], node, -1, 0.03, title])

    # The captions count what is served. The yellow nodes of the cut are shown last.
    n_served = int(served.sum())
    n_wanted = int(problem.jobs.demand.sum())
    n_classes = len(problem.classes.sizes)
    shares = f"who has what: {n_served} of {n_wanted} wanted are served"
    steps: list[dict[str, Any]] = [
        {"say": f"{len(answer.job_of)} resources in {n_classes} classes, {n_jobs} jobs"},
        {"say": shares, "nodes": node_colours, "links": link_colours},
    ]
    cut = _find_cut(solution, problem, boxes, node_of_box, node_of_job)
    if cut:
        bound = solution.lower_bound if isinstance(solution.lower_bound, float) else 0.0
        caption = f"the cut: what is yellow bounds all that can be served, to {n_wanted - bound:g}"
        steps.append({"say": caption, "nodes": cut})

    # The bounds of the page, and its table of jobs.
    width = max(node[0] + node[2] for node in nodes)
    height = max(node[1] + node[3] for node in nodes)
    rows = [
        [
            [f"job {job}", f"{served[job]}", f"{problem.jobs.demand[job]}"],
            {"node": node_of_job[job]},
        ]
        for job in jobs
    ]
    return scene(
        solution,
        legend=legend,
        bounds=[-0.4, -0.4, width + 0.8, height + 0.8],
        nodes=[[*(round(size, 2) for size in node[:4]), *node[4:]] for node in nodes],
        links=links,
        steps=steps,
        list={
            "title": "Jobs, first served first",
            "heads": ["", "served", "wanted"],
            "rows": rows,
        },
    )


class _Box(NamedTuple):
    """A resource, or several that are alike, as a box of the page."""

    group: int
    """Its class."""
    job: int
    """The job that it serves, -1 if none."""
    n_resources: int
    """How many resources it stands for."""
    name: str


def _place_boxes(boxes: list[_Box], nodes: list[list[Any]]) -> list[int]:
    """Append a small square for each box to `nodes`, and return their places there.

    A box is one resource, or several alike ones of a class (its `group`); `boxes` are sorted by
    class. A class begins a new row::

        class 0   [ ] [ ] [ ] [ ]
                  [ ] [ ]
        class 1   [ ] [ ] [ ]

    A node is [left, top, width, height, text, colour, name], with lengths in units of a box.
    """
    # Boxes stand to the right of all that is there, in rows that make them about square.
    left = max((node[0] + node[2] for node in nodes), default=3.4) + 2.6
    per_row = max(12, round((2.2 * len(boxes)) ** 0.5))
    node_of_box = []
    group = -1
    column = 0
    y = 0.0
    for box in boxes:
        if box.group != group:
            # A class begins a row, with its name in front.
            y += 1.4 if group >= 0 else 0.0
            group = box.group
            column = 0
            nodes.append([left, y, 2.6, 0.9, f"class {group}", 2, f"class {group}"])
        elif column == per_row:
            y += 1.0
            column = 0
        text = str(box.n_resources) if box.n_resources > 1 else ""
        node_of_box.append(len(nodes))
        nodes.append([left + 3.0 + column, y, 0.9, 0.9, text, 0, box.name])
        column += 1
    return node_of_box


def _find_cut(
    solution: Solution,
    problem: PortSharing,
    boxes: list[_Box],
    node_of_box: list[int],
    node_of_job: dict[int, int],
) -> dict[str, int]:
    """Return the nodes that the certificate counts, as colour 1 by node; empty without one.

    The certificate is a cut, ``tight[job, plane]``: 1 where the demand of the job is counted on a
    plane, 0 where resources are. Counted are jobs that are tight on every plane, and resources
    that may serve another job. ``node_of_box[k]``, that of ``boxes[k]``, and ``node_of_job[job]``
    are places of nodes on the page; in the result they are strings, as keys of JSON are.
    """
    tight = getattr(solution.certificate, "tight", None)
    # Without rows for all jobs nothing is known of any.
    if tight is None or len(tight) != problem.jobs.n_jobs:
        return {}

    # A job is open if resources of some plane are counted for it, not its own demand.
    is_open = (np.asarray(tight) == 0).any(axis=1)
    cut = {str(node_of_job[job]): 1 for job in np.flatnonzero(~is_open).tolist()}
    open_groups = np.unique(problem.classes.group_of[is_open])
    for box, node in zip(boxes, node_of_box, strict=True):
        if problem.classes.eligible[box.group][open_groups].any():
            cut[str(node)] = 1
    return cut


def draw_problem(problem: PortSharing, ax: Axes | None = None) -> Figure:
    """Draw what each job wants and how many resources could serve it, into `ax` or a new figure.

    Jobs that are served first come first; of more than 40, means are drawn.
    """
    order = problem.ranking
    demand = problem.jobs.demand[order]
    supply = problem.classes.supply[order]  # by job: the resources that could serve it
    bars = {
        BarLook("wanted", palette.circuit_colour(0), UPPER_HALF): (0 * demand, demand),
        BarLook("resources that fit it", _TIGHT, LOWER_HALF): (0 * supply, supply),
    }
    ax = _draw_jobs(order, bars, ax)
    n_resources = problem.resources.n_resources
    title = f"{demand.sum():,} resources are wanted, {n_resources:,} are there"
    title += f"\nresources that fit a job: {range_of(supply)}"
    ax.set_title(title, fontsize=10)
    return figure_of(ax)


def tabulate_problem(problem: PortSharing) -> dict[str, Any]:
    """List a row for each job: when it asks, what it wants, and how many could serve it."""
    jobs = problem.jobs
    return {"job": np.arange(jobs.n_jobs), "arrival_s": jobs.arrivals_s, "wanted": jobs.demand,
            "fitting": problem.classes.supply}  # fmt: skip


def tabulate(solution: Solution) -> dict[str, Any]:
    """List a row for each resource, with its job."""
    answer: Any = solution.answer
    return {"resource": np.arange(len(answer.job_of)), "job": answer.job_of}
