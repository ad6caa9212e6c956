"""Charts of training steps on rails: the operations of each rank, and its reconfigurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Solution, write_amount
from optmatch.plotting import palette
from optmatch.plotting.figures import (
    blank_figure,
    chart_axes,
    draw_bars,
    draw_schedule,
    label_time,
)
from optmatch.plotting.slots import answered
from optmatch.plotting.viewer import scene
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
        Time to the right, ranks downwards; colours are dimensions of parallelism, dark
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
                edgecolors="none" if kind in (_COMPUTATION, _RECONFIGURATION) else _COLOURS[kind],
                linewidths=0.4,  # so that a microsecond of a long step is seen
                alpha=0.35 if kind == _RECONFIGURATION else 1.0,
                label=name,
            )
    label_time(ax, data.step_s, len(data.ranks))
    ax.set_yticks(np.arange(len(data.ranks)), [str(rank) for rank in data.ranks])
    ax.set_ylabel("rank")
    every = f": {len(data.ranks)} of {job.n_gpus:,} ranks" if len(data.ranks) < job.n_gpus else ""
    ax.set_title(f"a step of {write_amount(data.step_s, 's')}{every}")
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


_FORWARDS = len(KINDS)
_MOST_ROWS, _MOST_BARS, _MOST_CIRCUITS = 400, 60_000, 40_000
"""What a page holds of rows, of bars in them, and of circuits in all states; it stays small."""


def page(solution: Solution) -> dict[str, Any]:
    """Collect the page: rows over time, ranks that do the same in one row, and the circuits."""
    job, plan = answered(solution, RailJob, RailPlan)
    span_s = max(plan.step_s, 1e-12)
    alike = _alike(job, plan)
    rows: list[str] = []
    bars: list[list[int]] = []
    row_of, n_bars = [-1] * job.n_gpus, 0
    for part, members in alike:
        n_bars += len(part)
        if len(rows) >= _MOST_ROWS or n_bars > _MOST_BARS:
            break
        for rank in members:
            row_of[rank] = len(rows)
        rows.append(_named(members))
        bars.append(part.ravel().tolist())
    left_out = row_of.count(-1)
    note = f"{left_out} of {job.n_gpus} ranks are left out." if left_out else ""
    alone = "Ranks that do the same at the same time share a row. "
    names = (*KINDS, "forwards for others")
    colours = (*_COLOURS, "#c2410c")
    lanes = (0, *(1 for _ in DIMENSIONS), 2, 1)
    circuits, steps = _circuits(job, plan)
    return scene(
        solution,
        subtitle=f"{job.n_gpus} ranks, {len(ranks_of_rails(job.step()))} rails",
        legend=list(zip(names, colours, lanes, strict=True)),
        noun="state",
        row_noun="rank",
        rows=rows,
        bars=bars,
        row_of=row_of,
        span_s=span_s,
        circuits=circuits,
        steps=steps,
        note=alone + note,
    )


def _named(members: list[int]) -> str:
    return str(members[0]) if len(members) == 1 else f"{members[0]} and {len(members) - 1} more"


def _alike(job: RailJob, plan: RailPlan) -> list[tuple[NDArray[np.int64], list[int]]]:
    """List what ranks do, and the ranks that do it, in order of their first.

    An entry is rows of kind, start and length in millionths of the step.
    """
    ranks = np.arange(job.n_gpus)
    data = rail_gantt_data(job, plan, ranks.tolist())
    table = np.stack([data.row, data.kind, data.start_s, data.end_s], axis=1)
    if len(plan.relays):
        operation, via = plan.relays[:, 0], plan.relays[:, 1]
        at = plan.start_s[operation], plan.end_s[operation]
        table = np.concatenate([table, np.stack([via, np.full(len(via), _FORWARDS), *at], axis=1)])
    table[:, 2:] = np.rint(table[:, 2:] * 1e6 / max(plan.step_s, 1e-12))
    table[:, 3] -= table[:, 2]
    table = table[np.lexsort((table[:, 1], table[:, 2], table[:, 0]))].astype(np.int64)
    parts = np.split(table[:, 1:], np.searchsorted(table[:, 0], ranks[1:]))
    alike: dict[bytes, list[int]] = {}
    for rank, part in enumerate(parts):
        alike.setdefault(part.tobytes(), []).append(rank)
    return [(parts[members[0]], members) for members in alike.values()]


def _circuits(job: RailJob, plan: RailPlan) -> tuple[list[list[list[int]]], list[dict[str, Any]]]:
    """List the circuits of each state of the first rail of each timeline, and when they change."""
    ranks, ports = ranks_of_rails(job.step()), job.network.ports_per_gpu
    circuits, changes, left = [], [], _MOST_CIRCUITS
    for k, timeline in enumerate(plan.rails):
        members = ranks[timeline.rails[0]]
        states = []
        for state, matching in enumerate(timeline.matchings):
            source = np.flatnonzero(matching >= 0)
            pairs = np.stack([source // ports, matching[source] // ports], axis=1)
            pairs = members[pairs[(pairs < len(members)).all(axis=1)]][: max(0, left)]
            left -= len(pairs)
            states.append(pairs.ravel().tolist())
            changes.append((float(timeline.starts_s[state]), k, state))
        circuits.append(states)
    now = [0] * len(plan.rails)
    steps: list[dict[str, Any]] = [{"say": "the step begins", "at": 0.0, "states": [*now]}]
    for at_s, k, state in sorted(change for change in changes if change[2]):
        now[k] = state
        named = plan.rails[k].rails
        which = f"rail {named[0]}"
        which += f" and {len(named) - 1} more like it" if len(named) > 1 else ""
        steps.append({"say": f"{which}: circuits change", "at": at_s, "states": [*now]})
    return circuits, steps


def draw_problem(job: RailJob) -> Figure:
    """Draw the phases of the first rail: a row for each stage, a box for each phase in order."""
    rails = {phase.rail for phase in job.phases()}
    rail = min(rails, default=0)
    phases = [phase for phase in job.phases() if phase.rail == rail]
    stages = sorted({phase.stage for phase in phases})
    figure = blank_figure(10.0, min(14.0, 1.6 + 0.42 * max(1, len(stages))))
    ax = figure.add_subplot()
    most = 1
    for row, stage in enumerate(stages):
        own = [phase for phase in phases if phase.stage == stage]
        most = max(most, len(own))
        for place, phase in enumerate(own[:MOST_RANKS]):
            colour = _COLOURS[1 + DIMENSIONS.index(phase.dimension)]
            ax.barh(row, 0.94, left=place, height=0.8, color=colour)
            ink = palette.ink_on(colour)
            text = f"{phase.dimension} {phase.n_operations}"
            ax.text(place + 0.47, row, text, ha="center", va="center", fontsize=8, color=ink)
    ax.set_xlim(0, min(most, MOST_RANKS))
    ax.set_ylim(len(stages) - 0.4, -0.6)
    ax.set_yticks(range(len(stages)), [str(stage) for stage in stages], fontsize=8)
    ax.set_xticks([])
    ax.set_xlabel("phases in order: dimension and operations")
    ax.set_ylabel("stage")
    told = f"what rail {rail} of {len(rails)} carries in a step of {job.n_gpus:,} GPUs"
    told += f": the first {MOST_RANKS} of {most} phases" if most > MOST_RANKS else ""
    ax.set_title(told, fontsize=10)
    return figure


def tabulate_problem(job: RailJob) -> dict[str, Any]:
    """List a row for each phase."""
    names = "rail", "stage", "dimension", "n_operations"
    return {name: [getattr(phase, name) for phase in job.phases()] for name in names}


def draw(solution: Solution, slot: int | None = None) -> Figure:
    """Draw the step of a plan."""
    problem, answer = solution.problem, solution.answer
    if not isinstance(problem, RailJob) or not isinstance(answer, RailPlan):
        return draw_schedule(solution, slot)
    if slot is not None:
        raise InputError("a plan of rails has no slots", where="slot")
    alike = [members for _, members in _alike(problem, answer)]
    shown = alike[:MOST_RANKS]
    ax = plot_rails(problem, answer, ranks=[members[0] for members in shown])
    ax.set_yticks(range(len(shown)), [_named(members) for members in shown])
    told = (
        f"{sum(map(len, shown)):,} of {problem.n_gpus:,} ranks; those that do the same share a row"
    )
    ax.set_title(f"a step of {write_amount(answer.step_s, 's')}: {told}", fontsize=10)
    if np.isfinite(solution.lower_bound):
        ax.axvline(solution.lower_bound, color=palette.INK, ls="--", lw=1.0, label="lower bound")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    return cast("Figure", ax.figure)
