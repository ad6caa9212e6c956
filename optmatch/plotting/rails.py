"""Charts of training steps on rails: the operations of each rank, and its reconfigurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Solution
from optmatch.plotting import palette
from optmatch.plotting.figures import chart_axes, draw_bars, draw_schedule, label_time
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailPlan, ranks_of_rails
from optmatch.problems.rails.training.step import COMPUTE, DIMENSIONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("computation", *DIMENSIONS, "reconfiguration")
"""The kinds of bars; the number of a kind is its place here."""

MOST_RANKS = 24
"""The number of ranks that are shown unless others are chosen."""

_COMPUTATION, _RECONFIGURATION = 0, len(KINDS) - 1
_COLOURS = ("#d5dbe3", *palette.CIRCUIT_COLOURS[:5], "#1f2937")


class Run(Protocol):
    """A step in time: a `RailPlan`, or a `RailSimulation`."""

    @property
    def start_s(self) -> NDArray[np.float64]:
        """``start_s[operation]``."""

    @property
    def end_s(self) -> NDArray[np.float64]:
        """``end_s[operation]``."""

    @property
    def step_s(self) -> float:
        """When the last operation ends."""


class RailGanttData(NamedTuple):
    """Bars; one entry for each operation or reconfiguration of the ranks that are shown."""

    row: NDArray[np.int64]
    """A place in `ranks`."""
    kind: NDArray[np.int64]
    """A place in `KINDS`."""
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    ranks: NDArray[np.int64]
    step_s: float


def rail_gantt_data(job: RailJob, run: Run, ranks: Sequence[int] | None = None) -> RailGanttData:
    """Lay out a step over time; see `plot_rails`.

    Raises
    ------
    InputError
        If `run` is of another job, or a rank is none of it.
    """
    step = job.step()
    if len(run.start_s) != step.n_operations:
        raise InputError(
            f"{len(run.start_s)} operations in time, but the job has {step.n_operations}"
        )
    shown = _shown(job) if ranks is None else np.array(ranks, dtype=np.int64)
    for rank in shown[(shown < 0) | (shown >= step.n_ranks)][:1]:
        raise InputError(f"rank {rank}: ranks are 0 .. {step.n_ranks - 1}", where="ranks")
    row_of = np.full(step.n_ranks, -1)
    row_of[shown] = np.arange(len(shown))
    dimension = np.array([*(DIMENSIONS.index(g.dimension) for g in step.groups), 0])[step.group]
    kinds = np.where(step.kind == COMPUTE, _COMPUTATION, 1 + dimension)
    at = np.flatnonzero((row_of[step.rank] >= 0) & (run.end_s > run.start_s))
    bars = np.stack([row_of[step.rank[at]], kinds[at], run.start_s[at], run.end_s[at]], axis=1)
    changes = [
        (row_of[rank], _RECONFIGURATION, start, end)
        for rank, start, end in _changes(job, run)
        if row_of[rank] >= 0
    ]
    table = np.concatenate([bars, np.array(changes, dtype=np.float64).reshape(-1, 4)])
    row, kind = table[:, :2].astype(np.int64).T
    return RailGanttData(row, kind, table[:, 2], table[:, 3], shown, float(run.step_s))


def plot_rails(
    job: RailJob, run: Run, *, ranks: Sequence[int] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw a row for each rank: above what it computes, below what it communicates.

    Parameters
    ----------
    job
        The job.
    run
        A plan, or a simulation.
    ranks
        Which ranks are shown; None for the first of the lowest rail.
    ax
        Where to draw; None makes a new figure.

    Returns
    -------
    Axes
        Time in seconds to the right, ranks downwards; colours are dimensions of parallelism, dark
        bars across a row reconfigurations that it sees.
    """
    data = rail_gantt_data(job, run, ranks)
    ax = chart_axes(ax, len(data.ranks), 0.32)
    low = np.where(data.kind == _COMPUTATION, -0.42, 0.02)
    high = np.where(data.kind == _COMPUTATION, -0.02, 0.42)
    low, high = (
        np.where(data.kind == _RECONFIGURATION, edge, side)
        for edge, side in ((-0.46, low), (0.46, high))
    )
    for kind, name in enumerate(KINDS):
        chosen = data.kind == kind
        if chosen.any():
            edges = data.start_s, data.end_s, data.row + low, data.row + high
            draw_bars(
                ax,
                *(edge[chosen] for edge in edges),
                facecolors=_COLOURS[kind],
                edgecolors="none",
                alpha=0.35 if kind == _RECONFIGURATION else 1.0,
                label=name,
            )
    label_time(ax, data.step_s, len(data.ranks))
    ax.set_yticks(np.arange(len(data.ranks)), [str(rank) for rank in data.ranks])
    ax.set_ylabel("rank")
    ax.set_title(f"a step of {data.step_s:.4g} s")
    ax.legend(
        loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8, borderaxespad=0.2
    )
    return ax


def _shown(job: RailJob) -> NDArray[np.int64]:
    rails = ranks_of_rails(job.step())
    ranks = rails[min(rails)] if rails else np.arange(job.step().n_ranks)
    return ranks[:MOST_RANKS]


def _changes(job: RailJob, run: Run) -> list[tuple[int, float, float]]:
    """List rank, start and end of each reconfiguration."""
    if isinstance(run, RailPlan):
        return _planned(job, run)
    begun, ready = getattr(run, "begun_s", ()), getattr(run, "ready_s", ())
    switched = getattr(run, "switched", ())
    return [
        (rank, float(begun[k]), float(ready[k]))
        for k, phase in enumerate(job.phases())
        if len(switched) and switched[k]
        for rank in phase.ranks
    ]


def _planned(job: RailJob, plan: RailPlan) -> list[tuple[int, float, float]]:
    ranks = ranks_of_rails(job.step())
    found = []
    for timeline in plan.rails:
        for state in range(1, len(timeline.matchings)):
            before, after = timeline.matchings[state - 1], timeline.matchings[state]
            gpus = np.unique(np.flatnonzero(before != after) // job.network.ports_per_gpu)
            start = float(timeline.starts_s[state])
            for rail in timeline.rails:
                members = ranks[rail]
                found += [
                    (int(members[gpu]), start, start + job.network.delay_s)
                    for gpu in gpus
                    if gpu < len(members)
                ]
    return found


def draw(solution: Solution, slot: int | None = None) -> Figure:
    """Draw the step of a plan."""
    problem, answer = solution.problem, solution.answer
    if not isinstance(problem, RailJob) or not isinstance(answer, RailPlan):
        return draw_schedule(solution, slot)
    if slot is not None:
        raise InputError("a plan of rails has no slots", where="slot")
    return cast("Figure", plot_rails(problem, answer).figure)
