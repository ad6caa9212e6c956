"""Shares of resources: how many each job wants, and how many it gets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Solution
from optmatch.plotting import palette
from optmatch.plotting.blocks import choose_ticks, draw_groups
from optmatch.plotting.drawing import blank_figure
from optmatch.plotting.figures import draw_schedule
from optmatch.plotting.slots import answered
from optmatch.plotting.viewer import scene
from optmatch.problems import Assignment, PortSharing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def plot_shares(solution: Solution, *, fig: Figure | None = None) -> Figure:
    """Draw a bar for each job: its part of the resources that it wants.

    Parameters
    ----------
    solution
        The solution of a `PortSharing`, with an answer.
    fig
        Where to draw; None makes a new figure. With more than 40 jobs it shows shares in the order
        of service instead; with `fig` each job has a bar.

    Returns
    -------
    Figure
        Jobs across, first served first.
    """
    data = shares_data(solution)
    if fig is None and len(data.job) > _MOST_NAMED_JOBS:
        return _draw_many_shares(data)
    if fig is None:
        fig = _blank_chart(len(data.job))
    ax = fig.add_subplot()
    edges = np.arange(len(data.job) + 1) - 0.5
    ax.stairs(data.demand, edges, fill=True, color=palette.TOGGLED_FILL, label="not served")
    ax.stairs(data.served, edges, fill=True, color=palette.circuit_colour(0), label="served")
    _name_jobs(ax, data.job)

    # The title has the sums.
    n_served = int(data.served.sum())
    n_wanted = int(data.demand.sum())
    title = f"{n_served:,} of {n_wanted:,} wanted are served, unused: {data.unused:,}"
    ax.set_title(title, fontsize=9)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return fig


# Jobs that have a bar each.
_MOST_NAMED_JOBS = 40


def _draw_many_shares(data: SharesData) -> Figure:
    """Draw means of consecutive jobs, and how many jobs get which share of their demand."""
    figure = blank_figure(9.6, 4.2)
    left, right = figure.subplots(1, 2, width_ratios=(1.4, 1.0))
    size = draw_groups(left, data.demand, data.served, ("not served", "served"))
    _label_groups(left, len(data.job), size)
    left.legend(frameon=False, fontsize=9, loc="upper left", ncols=2)
    left.set_ylim(top=1.25 * left.get_ylim()[1])

    # A histogram of shares, in steps of 10 %, of the jobs that want anything.
    wants = data.demand > 0
    share = 100 * data.served[wants] / data.demand[wants]
    right.hist(share, bins=np.linspace(0, 100, 11), color=palette.circuit_colour(0))
    right.yaxis.get_major_locator().set_params(integer=True)
    right.tick_params(labelsize=9)
    right.set_xlabel("% of what a job wants", fontsize=9)
    right.set_ylabel("jobs", fontsize=9)
    n_all = int((share == 100).sum())
    n_none = int((share == 0).sum())
    right.set_title(f"what jobs get: all {n_all:,}, nothing {n_none:,}", fontsize=9)
    n_served = int(data.served.sum())
    n_wanted = int(data.demand.sum())
    figure.suptitle(
        f"{n_served:,} of {n_wanted:,} wanted are served, unused: {data.unused:,}", fontsize=11
    )
    return figure


def _label_groups(ax: Any, n_jobs: int, size: int) -> None:
    """Label a chart in which a bar is the mean of `size` consecutive jobs."""
    ax.set_xticks(choose_ticks(n_jobs, 8))
    ax.tick_params(labelsize=9)
    ax.set_xlabel("jobs, first served first", fontsize=9)
    ax.set_ylabel("resources", fontsize=9)
    bar = "a bar: one job" if size == 1 else f"a bar: the mean of {size} jobs"
    ax.set_title(f"{n_jobs:,} jobs; {bar}", fontsize=9)


def _draw_many_jobs(problem: PortSharing) -> Figure:
    """Draw means of the demands of consecutive jobs, and how scarce resources are.

    If the curve goes through (10, 80), there are 80 jobs for which no more than 10 resources are
    suitable.
    """
    # `supply[job]` is how many resources could serve a job; both arrays are in the order of
    # service.
    order = problem.ranking
    demand = problem.jobs.demand[order]
    supply = problem.classes.supply[order]
    figure = blank_figure(9.6, 4.2)
    left, right = figure.subplots(1, 2, width_ratios=(1.4, 1.0))
    size = draw_groups(left, demand, None, ("wanted", ""))
    _label_groups(left, len(demand), size)

    # Sorted supplies are the steps of the curve: k jobs have at most the k-th of them.
    rising = np.sort(supply)
    right.stairs(np.arange(1, len(rising) + 1), np.append(rising, rising[-1] + 1), lw=1.5,
                 color=palette.circuit_colour(0))  # fmt: skip
    right.set_xlim(0, 1.05 * max(1, problem.resources.n_resources))
    right.set_ylim(0, 1.1 * len(rising))
    right.tick_params(labelsize=9)
    right.set_xlabel("resources that fit a job", fontsize=9)
    right.set_ylabel("jobs that have so many or fewer", fontsize=9)
    right.set_title("how scarce resources are", fontsize=9)
    n_resources = problem.resources.n_resources
    figure.suptitle(
        f"{demand.sum():,} resources are wanted, {n_resources:,} are there", fontsize=11
    )
    return figure


_MOST_NODES = 3000
"""More resources are drawn folded: those that are alike as one box."""
_JOBS_OF_ONE_COLUMN = 24
_UNUSED = "#ffffff"
_TIGHT = "#ffd57a"
_CLASS = "#eef1f5"


def page(solution: Solution) -> dict[str, Any]:
    """Collect the page of jobs and resources: who serves whom, and the cut of the proof.

    With more than 3,000 resources, those of a class that serve the same job are one box.
    """
    problem, answer = answered(solution, PortSharing, Assignment)

    # A box is one resource or several alike ones. `served[job]` counts the resources of a job.
    n_jobs = problem.jobs.n_jobs
    boxes = _list_boxes(problem, answer, folded=len(answer.job_of) > _MOST_NODES)
    jobs = problem.ranking.tolist()
    served = answer.served(n_jobs)
    node_of_job = {job: node for node, job in enumerate(jobs)}
    legend, first_hue = _list_legend(n_jobs)
    hue_of_job = [first_hue + job % len(palette.CIRCUIT_COLOURS) for job in range(n_jobs)]

    # Jobs stand on the left, in several columns where there are many, first served first;
    # resources stand by their class on the right.
    nodes: list[list[Any]] = []
    jobs_per_column = max(_JOBS_OF_ONE_COLUMN, math.ceil((3.5 * n_jobs) ** 0.5))
    for place, job in enumerate(jobs):
        column, row = divmod(place, jobs_per_column)
        text = f"{job}: {served[job]}/{problem.jobs.demand[job]}"
        corner = (3.8 * column, 1.1 * row)
        nodes.append([*corner, 3.4, 0.9, text, hue_of_job[job], f"job {job}"])
    node_of_box = _place_boxes(boxes, nodes)

    # A box that serves a job (-1: none) gets its colour and a line to it, hidden at first.
    links: list[list[Any]] = []
    hue_of_node: dict[str, int] = {}
    hue_of_link: dict[str, int] = {}
    for box, node in zip(boxes, node_of_box, strict=True):
        if box.job >= 0:
            hue_of_node[str(node)] = hue_of_job[box.job]
            hue_of_link[str(len(links))] = hue_of_job[box.job]
            title = f"{box.name} serves job {box.job}"
            links.append([node_of_job[box.job], node, -1, 0.03, title])

    # The captions count what is served. The yellow nodes of the cut are shown last.
    n_served = int(served.sum())
    n_wanted = int(problem.jobs.demand.sum())
    n_classes = len(problem.classes.sizes)
    shares = f"who has what: {n_served} of {n_wanted} wanted are served"
    steps: list[dict[str, Any]] = [
        {"say": f"{len(answer.job_of)} resources in {n_classes} classes, {n_jobs} jobs"},
        {"say": shares, "nodes": hue_of_node, "links": hue_of_link},
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
    name: str


def _list_legend(n_jobs: int) -> tuple[list[tuple[str, str]], int]:
    """Return the names and colours of the legend, and the place of the colour of job 0 in it."""
    legend = [("free, or not used", _UNUSED), ("counted in the cut", _TIGHT), ("class", _CLASS)]
    first_hue = len(legend)
    hues = palette.CIRCUIT_COLOURS
    for job in range(min(n_jobs, len(hues))):
        # Where there are more jobs than colours, several share one.
        name = f"jobs {job}, {job + len(hues)}, ..." if n_jobs > len(hues) else f"job {job}"
        legend.append((name, hues[job]))
    return legend, first_hue


def _place_boxes(boxes: list[_Box], nodes: list[list[Any]]) -> list[int]:
    """Append a small square for each box to `nodes`, and return their places.

    A class begins a new row::

        class 0   [ ] [ ] [ ] [ ]
                  [ ] [ ]
        class 1   [ ] [ ] [ ]
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

    Counted are jobs that are tight on every plane, and resources that may serve another job. Nodes
    are strings, as keys of JSON are.
    """
    tight = getattr(solution.certificate, "tight", None)
    if tight is None:
        return {}
    n_jobs = problem.jobs.n_jobs
    cut = {}

    # A job is open if resources of some plane are counted for it, not its own demand.
    is_open = np.zeros(n_jobs, dtype=bool)
    if len(tight) == n_jobs:
        is_open = (np.asarray(tight) == 0).any(axis=1)
        cut = {str(node_of_job[job]): 1 for job in np.flatnonzero(~is_open).tolist()}
    open_groups = np.unique(problem.classes.group_of[is_open])
    for box, node in zip(boxes, node_of_box, strict=True):
        if problem.classes.eligible[box.group][open_groups].any():
            cut[str(node)] = 1
    return cut


def _list_boxes(problem: PortSharing, answer: Assignment, *, folded: bool) -> list[_Box]:
    """List boxes of resources class by class.

    If `folded`, all that serve the same job are one box with their number.
    """
    class_of = problem.classes.class_of
    job_of = answer.job_of
    if folded:
        class_and_job = np.stack([class_of, job_of], axis=1)
        pairs, counts = np.unique(class_and_job, axis=0, return_counts=True)
        return [
            _Box(group, job, count, f"{count} resources of class {group}")
            for (group, job), count in zip(pairs.tolist(), counts.tolist(), strict=True)
        ]
    order = np.lexsort((job_of, class_of)).tolist()
    return [
        _Box(int(class_of[resource]), int(job_of[resource]), 1, f"resource {resource}")
        for resource in order
    ]


def draw_problem(problem: PortSharing) -> Figure:
    """Draw for each job what it wants and how many resources could serve it.

    Jobs that are served first come first; of more than 40, means are drawn.
    """
    jobs = problem.jobs
    if jobs.n_jobs > _MOST_NAMED_JOBS:
        return _draw_many_jobs(problem)
    order = problem.ranking
    supply = problem.classes.supply[order]  # by job: the resources that could serve it
    figure = _blank_chart(jobs.n_jobs)
    ax = figure.add_subplot()

    # A bar for what a job wants, and a line at the number of resources that could serve it.
    edges = np.arange(jobs.n_jobs + 1) - 0.5
    ax.stairs(jobs.demand[order], edges, fill=True, color=palette.TOGGLED_FILL, label="wanted")
    ax.hlines(supply, edges[:-1], edges[1:], color=palette.INK, label="resources that fit it")
    _name_jobs(ax, order)

    # On an even scale a small demand beside a large supply would not be seen.
    if supply.max(initial=0) > 40 * np.median(jobs.demand):
        ax.set_yscale("symlog", linthresh=1)
        ax.set_ylim(bottom=0)
    n_resources = problem.resources.n_resources
    title = f"{jobs.demand.sum():,} resources are wanted, {n_resources:,} are there"
    ax.set_title(title, fontsize=10)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def tabulate_problem(problem: PortSharing) -> dict[str, Any]:
    """List a row for each job: when it asks, what it wants, and how many could serve it."""
    jobs = problem.jobs
    return {"job": np.arange(jobs.n_jobs), "arrival_s": jobs.arrivals_s, "wanted": jobs.demand,
            "fitting": problem.classes.supply}  # fmt: skip


def _blank_chart(n_jobs: int) -> Figure:
    """Return an empty figure, wider for more jobs."""
    return blank_figure(max(6.0, min(12.0, 4 + 0.15 * n_jobs)), 3.6)


def _name_jobs(ax: Any, order: NDArray[Any]) -> None:
    """Name about 30 jobs below a chart; ``order[place]`` is the number of a job."""
    step = -(-len(order) // 30)
    positions = range(0, len(order), step)
    ax.set_xticks(positions, [str(order[position]) for position in positions], fontsize=8)
    ax.set_xlim(-0.5, len(order) - 0.5)
    ax.set_xlabel("job, first served first")
    ax.set_ylabel("resources")
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.set_ymargin(0.1)


def draw(solution: Solution, slot: int | None = None) -> Figure:
    """Draw the number of resources of each job."""
    if slot is not None or not isinstance(solution.answer, Assignment):
        return draw_schedule(solution, slot)
    return plot_shares(solution)


def tabulate(solution: Solution) -> dict[str, Any]:
    """List a row for each resource, with its job."""
    answer: Any = solution.answer
    return {"resource": np.arange(len(answer.job_of)), "job": answer.job_of}
