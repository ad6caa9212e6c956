"""Shares of resources: how many each job wants, and how many it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Solution
from optmatch.plotting import palette
from optmatch.plotting.figures import blank_figure, draw_schedule
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
    """Lay out the number of resources of each job.

    Parameters
    ----------
    solution
        Of a `PortSharing`, with an answer.

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
    demand, served = problem.jobs.demand[order], answer.served(problem.jobs.n_jobs)[order]
    if not demand.any():
        raise InputError("nothing to draw: no job wants anything")
    unused = int((answer.job_of < 0).sum())
    return SharesData(order.astype(np.int64), demand.astype(np.int64), served, unused)


def plot_shares(solution: Solution, *, fig: Figure | None = None) -> Figure:
    """Draw a bar for each job: its part of the resources that it wants.

    Parameters
    ----------
    solution
        Of a `PortSharing`, with an answer.
    fig
        Where to draw; None makes a new figure.
    """
    data = shares_data(solution)
    fig = (
        fig
        if fig is not None
        else blank_figure(max(6.0, min(12.0, 4 + 0.15 * len(data.job))), 3.6)
    )
    ax = fig.add_subplot()
    edges = np.arange(len(data.job) + 1) - 0.5
    ax.stairs(data.demand, edges, fill=True, color=palette.TOGGLED_FILL, label="not served")
    ax.stairs(data.served, edges, fill=True, color=palette.circuit_colour(0), label="served")
    _name_jobs(ax, data.job)
    served, wanted = int(data.served.sum()), int(data.demand.sum())
    total = f"{served:,} of {wanted:,} wanted are served, unused: {data.unused:,}"
    ax.set_title(total, fontsize=9)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return fig


_MOST_NODES = 3000
_UNUSED, _TIGHT, _CLASS = "#ffffff", "#ffd57a", "#eef1f5"


def page(solution: Solution) -> dict[str, Any]:
    """Collect the page: jobs, resources by their class, who has what, and the cut."""
    problem, answer = answered(solution, PortSharing, Assignment)
    n_jobs, classes = problem.jobs.n_jobs, problem.classes
    served = answer.served(n_jobs)
    legend = [("free, or not used", _UNUSED), ("counted in the cut", _TIGHT), ("class", _CLASS)]
    first = len(legend)
    hues = palette.CIRCUIT_COLOURS
    legend += [
        (f"jobs {k}, {k + len(hues)}, ..." if n_jobs > len(hues) else f"job {k}", hues[k])
        for k in range(min(n_jobs, len(hues)))
    ]
    nodes: list[list[Any]] = []
    jobs = problem.ranking.tolist()
    for row, job in enumerate(jobs):
        text = f"{job}: {served[job]}/{problem.jobs.demand[job]}"
        nodes.append([0.0, 1.1 * row, 3.4, 0.9, text, first + job % len(hues), f"job {job}"])
    node_of = {job: k for k, job in enumerate(jobs)}
    boxes = _boxes(problem, answer, folded=len(answer.job_of) > _MOST_NODES)
    across = max(12, round((2.2 * len(boxes)) ** 0.5))
    y, takes, links, last, x = 0.0, {}, [], -1, 0
    cuts = {}
    tight = getattr(solution.certificate, "tight", None)
    open_jobs = np.zeros(n_jobs, dtype=bool)
    if tight is not None and len(tight) == n_jobs:
        open_jobs = (np.asarray(tight) == 0).any(axis=1)
        cuts = {str(node_of[job]): 1 for job in np.flatnonzero(~open_jobs).tolist()}
    open_groups = np.unique(classes.group_of[open_jobs])
    for group, job, count, name in boxes:
        if group != last:
            y += 1.4 if last >= 0 else 0.0
            nodes.append([6.0, y, 2.6, 0.9, f"class {group}", 2, f"class {group}"])
            last, x = group, 0
        elif x == across:
            y, x = y + 1.0, 0
        node = str(len(nodes))
        text = str(count) if count > 1 else ""
        nodes.append([9.0 + x, y, 0.9, 0.9, text, 0, name])
        x += 1
        if job >= 0:
            takes[node] = first + job % len(hues)
            title = f"{name} serves job {job}"
            links.append([node_of[job], int(node), -1, 0.03, title])
        if tight is not None and classes.eligible[group][open_groups].any():
            cuts[node] = 1
    on = {str(k): first + jobs[link[0]] % len(hues) for k, link in enumerate(links)}
    bound = solution.lower_bound if isinstance(solution.lower_bound, float) else 0.0
    at_most = problem.jobs.demand.sum() - bound
    steps: list[dict[str, Any]] = [
        {"say": f"{len(answer.job_of)} resources in {len(classes.sizes)} classes, {n_jobs} jobs"},
        {"say": f"who has what: {served.sum()} of {problem.jobs.demand.sum()} wanted are served",
         "nodes": takes, "links": on},
    ]  # fmt: skip
    if cuts:
        said = f"the cut: what is yellow bounds all that can be served, to {at_most:g}"
        steps.append({"say": said, "nodes": cuts})
    size = max(node[0] + node[2] for node in nodes), max(node[1] + node[3] for node in nodes)
    rows = [
        [[f"job {job}", f"{served[job]}", f"{problem.jobs.demand[job]}"], {"node": node_of[job]}]
        for job in jobs
    ]
    return scene(
        solution,
        legend=legend,
        bounds=[-0.4, -0.4, size[0] + 0.8, size[1] + 0.8],
        nodes=[[*(round(v, 2) for v in node[:4]), *node[4:]] for node in nodes],
        links=links,
        steps=steps,
        list={"title": "Jobs, first served first", "heads": ["", "served", "wanted"],
              "rows": rows},
    )  # fmt: skip


def _boxes(
    problem: PortSharing, answer: Assignment, *, folded: bool
) -> list[tuple[int, int, int, str]]:
    """List class, job, number and name of what is drawn; `folded` counts what is alike."""
    group, job = problem.classes.class_of, answer.job_of
    if folded:
        pairs, counts = np.unique(np.stack([group, job], axis=1), axis=0, return_counts=True)
        return [
            (int(g), int(j), int(n), f"{n} resources of class {g}")
            for (g, j), n in zip(pairs.tolist(), counts.tolist(), strict=True)
        ]
    order = np.lexsort((job, group)).tolist()
    return [(int(group[k]), int(job[k]), 1, f"resource {k}") for k in order]


def draw_problem(problem: PortSharing) -> Figure:
    """Draw a bar for each job: what it wants, and how many resources could serve it."""
    order, jobs = problem.ranking, problem.jobs
    figure = blank_figure(max(6.0, min(12.0, 4 + 0.15 * jobs.n_jobs)), 3.6)
    ax = figure.add_subplot()
    edges, fit = np.arange(jobs.n_jobs + 1) - 0.5, problem.classes.supply[order]
    ax.stairs(jobs.demand[order], edges, fill=True, color=palette.TOGGLED_FILL, label="wanted")
    ax.hlines(fit, edges[:-1], edges[1:], color=palette.INK, label="resources that fit it")
    _name_jobs(ax, order)
    if fit.max(initial=0) > 40 * np.median(jobs.demand):  # else what is wanted would not be seen
        ax.set_yscale("symlog", linthresh=1)
        ax.set_ylim(bottom=0)
    total = (
        f"{jobs.demand.sum():,} resources are wanted, {problem.resources.n_resources:,} are there"
    )
    ax.set_title(total, fontsize=10)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def tabulate_problem(problem: PortSharing) -> dict[str, Any]:
    """List a row for each job: when it asks, what it wants, and how many could serve it."""
    jobs = problem.jobs
    return {"job": np.arange(jobs.n_jobs), "arrival_s": jobs.arrivals_s, "wanted": jobs.demand,
            "fitting": problem.classes.supply}  # fmt: skip


def _name_jobs(ax: Any, order: NDArray[Any]) -> None:
    """Name as many jobs below a chart as there is room for."""
    every = -(-len(order) // 30)
    at = range(0, len(order), every)
    ax.set_xticks(at, [str(order[k]) for k in at], fontsize=8)
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
