"""Shares of resources: how many each job wants, and how many it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Solution
from optmatch.plotting import palette
from optmatch.plotting.figures import blank_figure, draw_schedule
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
    problem, answer = solution.problem, solution.answer
    if not isinstance(problem, PortSharing) or not isinstance(answer, Assignment):
        raise InputError(f"nothing to draw: the status is {solution.status.value}")
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
    fig = fig if fig is not None else blank_figure(min(12.0, 4 + 0.15 * len(data.job)), 3.6)
    ax = fig.add_subplot()
    edges = np.arange(len(data.job) + 1) - 0.5
    ax.stairs(data.demand, edges, fill=True, color=palette.TOGGLED_FILL, label="wanted")
    ax.stairs(data.served, edges, fill=True, color=palette.circuit_colour(0), label="served")
    if len(data.job) <= 40:
        ax.set_xticks(range(len(data.job)), map(str, data.job.tolist()), fontsize=7)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_xlabel("job, first served first")
    ax.set_ylabel("resources")
    total = f"{data.served.sum():,} of {data.demand.sum():,} wanted, {data.unused:,} unused"
    ax.set_title(total, fontsize=9)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return fig


def draw(solution: Solution, slot: int | None = None) -> Figure:
    """Draw the number of resources of each job."""
    if slot is not None or not isinstance(solution.answer, Assignment):
        return draw_schedule(solution, slot)
    return plot_shares(solution)


def tabulate(solution: Solution) -> dict[str, Any]:
    """List a row for each resource, with its job."""
    answer: Any = solution.answer
    return {"resource": np.arange(len(answer.job_of)), "job": answer.job_of}
