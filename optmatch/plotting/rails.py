"""Charts of training steps on rails: the operations of each rank, and its reconfigurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Solution, brief_tuple, write_amount
from optmatch.plotting import palette
from optmatch.plotting.drawing import Axes, Figure, axes_of, figure_of
from optmatch.plotting.scenes import LOWER_HALF, UPPER_HALF, WHOLE_ROW, BarLook, draw_rows
from optmatch.plotting.slots import answered
from optmatch.plotting.viewer import pack_bars, scene
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailPlan, ranks_of_rails
from optmatch.problems.rails.training.step import COMPUTE, DIMENSIONS

KINDS = ("computation", *DIMENSIONS, "reconfiguration")
"""The kinds of bars; the number of a kind is its place here."""

MOST_RANKS = 24
"""The number of ranks that are shown unless others are chosen."""

_COMPUTATION = 0
_RECONFIGURATION = len(KINDS) - 1
_COLOURS = ("#d5dbe3", *palette.CIRCUIT_COLOURS[:5], palette.INK)

# The kind of bars, after those of `KINDS`, in which a rank forwards data of others.
_FORWARDS = len(KINDS)
LOOKS = (
    BarLook("computation", _COLOURS[0], UPPER_HALF),
    *(
        BarLook(dimension, colour, LOWER_HALF)
        for dimension, colour in zip(DIMENSIONS, _COLOURS[1:], strict=False)
    ),
    BarLook("reconfiguration", _COLOURS[-1], WHOLE_ROW),
    BarLook("forwards for others", palette.CIRCUIT_COLOURS[5], LOWER_HALF),
)
"""How bars are drawn, by kind: those of `KINDS`, and forwarding."""


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


@brief_tuple
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
    """Lay out a training step over time: a bar for each operation and each change of circuits.

    Parameters
    ----------
    job
        The job, whose step has operations: computations of a rank (a GPU), and transfers within
        groups of ranks.
    run
        A plan, or a simulation, with ``start_s[operation]`` and ``end_s[operation]``.
    ranks
        Which ranks are shown; None for the first of the lowest rail.

    Returns
    -------
    RailGanttData
        Arrays of shape (bars,): `row`, a place in the shown ranks; `kind`, a place in `KINDS`
        (computation, each dimension of groups, reconfiguration); `start_s` and `end_s` in seconds;
        and the shown ranks, and the length of the step.

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

    # Unless others are chosen, the ranks of the lowest rail; of all where nothing uses a rail.
    ranks_of_rail = ranks_of_rails(step)
    if ranks is not None:
        shown_ranks = np.array(ranks, dtype=np.int64)
    elif ranks_of_rail:
        shown_ranks = ranks_of_rail[min(ranks_of_rail)][:MOST_RANKS]
    else:
        shown_ranks = np.arange(step.n_ranks)[:MOST_RANKS]

    # `row_of_rank[rank]` is the row of a shown rank, -1 of the others.
    wrong_ranks = shown_ranks[(shown_ranks < 0) | (shown_ranks >= step.n_ranks)]
    if len(wrong_ranks):
        raise InputError(
            f"rank {wrong_ranks[0]}: ranks are 0 .. {step.n_ranks - 1}", where="ranks"
        )
    row_of_rank = np.full(step.n_ranks, -1)
    row_of_rank[shown_ranks] = np.arange(len(shown_ranks))

    # The kind of an operation is the dimension of its group; computations have the group -1, which
    # takes the 0 at the end of the list.
    dimensions = [DIMENSIONS.index(group.dimension) for group in step.groups]
    dimension = np.array([*dimensions, 0])[step.group]
    kind = np.where(step.kind == COMPUTE, _COMPUTATION, 1 + dimension)

    # Bars: operations of shown ranks that take some time, then reconfigurations.
    is_shown = (row_of_rank[step.rank] >= 0) & (run.end_s > run.start_s)
    changes = np.array(_list_reconfigurations(job, run), dtype=np.float64).reshape(-1, 3)
    row_of_change = row_of_rank[changes[:, 0].astype(np.int64)]
    changes = changes[row_of_change >= 0]
    row_of_change = row_of_change[row_of_change >= 0]
    return RailGanttData(
        row=np.concatenate([row_of_rank[step.rank[is_shown]], row_of_change]),
        kind=np.concatenate([kind[is_shown], np.full(len(changes), _RECONFIGURATION)]),
        start_s=np.concatenate([run.start_s[is_shown], changes[:, 1]]),
        end_s=np.concatenate([run.end_s[is_shown], changes[:, 2]]),
        ranks=shown_ranks,
        step_s=float(run.step_s),
    )


def plot_rails(
    job: RailJob, run: Run, *, ranks: Sequence[int] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw what each GPU computes and communicates over a training step.

    Each rank (GPU) has a row: above what it computes, below what it communicates. Dark bars across
    a row are the times in which circuits that it uses change.

    Parameters
    ----------
    job
        The training job.
    run
        A plan, or a simulation of one.
    ranks
        Which ranks are shown; None for the first of the lowest rail (a switch between GPUs).
    ax
        Where to draw; None makes a new figure.

    Returns
    -------
    Axes
        Time to the right, ranks downwards. The colour of a bar is the dimension of parallelism
        (data, pipeline and others) that an operation is of.
    """
    data = rail_gantt_data(job, run, ranks)
    span_s = max(data.step_s, 1e-12)
    chart = {
        "legend": LOOKS,
        "row_noun": "rank",
        "rows": [str(rank) for rank in data.ranks],
        "bars": pack_bars(data.row, data.kind, data.start_s, data.end_s, len(data.ranks), span_s),
        "span_s": span_s,
    }
    ax = draw_rows(chart, ax)
    title = f"a step of {write_amount(data.step_s, 's')}"
    if len(data.ranks) < job.n_gpus:
        title += f": {len(data.ranks)} of {job.n_gpus:,} ranks"
    ax.set_title(title)
    return ax


def _list_reconfigurations(job: RailJob, run: Run) -> list[tuple[int, float, float]]:
    """List rank, start and end in seconds of each reconfiguration of a plan or simulation.

    A `Run` of another kind has none. A plan has a timeline for all rails that switch alike:
    ``matchings[state][port]`` is the port that a port sends to, and ``starts_s[state]`` is when
    the change to this state begins, which lasts for the delay. Each GPU with a port that changes
    has an entry, on every such rail. A simulation has, by phase, whether its circuits had to be
    set up (`switched`), and from when to when (`begun_s`, `ready_s`).
    """
    reconfigurations = []
    if isinstance(run, RailPlan):
        ranks_of_rail = ranks_of_rails(job.step())
        for timeline in run.rails:
            for state in range(1, len(timeline.matchings)):
                is_changed = timeline.matchings[state] != timeline.matchings[state - 1]
                changed_gpus = np.unique(np.flatnonzero(is_changed) // job.network.ports_per_gpu)
                start_s = float(timeline.starts_s[state])
                end_s = start_s + job.network.delay_s

                # A switch may have more ports than the rail has GPUs.
                for rail in timeline.rails:
                    ranks = ranks_of_rail[rail]
                    for gpu in changed_gpus[changed_gpus < len(ranks)]:
                        reconfigurations.append((int(ranks[gpu]), start_s, end_s))
        return reconfigurations

    # Runs that are neither plan nor simulation have no such arrays.
    switched = getattr(run, "switched", ())
    begun_s: Any = getattr(run, "begun_s", ())
    ready_s: Any = getattr(run, "ready_s", ())
    phases = job.phases()
    for k in np.flatnonzero(switched).tolist():
        for rank in phases[k].ranks:
            reconfigurations.append((rank, float(begun_s[k]), float(ready_s[k])))
    return reconfigurations


# Limits of a page, so that it stays small: rows, bars in them, and circuits in all states.
_MAX_ROWS = 400
_MAX_BARS = 60_000
_MAX_CIRCUITS = 40_000


def page(solution: Solution) -> dict[str, Any]:
    """Collect the page of a step: rows of ranks that do the same, with a bar for all that they do.

    `row_of_rank` is -1 for ranks that are left out.
    """
    # Rows are added while there is room for them and their bars.
    job, plan = answered(solution, RailJob, RailPlan)
    groups: list[tuple[NDArray[np.int64], list[int]]] = []
    row_of_rank = [-1] * job.n_gpus
    n_bars = 0
    for bars_of_ranks, ranks in _group_equal_ranks(job, plan):
        n_bars += len(bars_of_ranks)
        if len(groups) >= _MAX_ROWS or n_bars > _MAX_BARS:
            break
        for rank in ranks:
            row_of_rank[rank] = len(groups)
        groups.append((bars_of_ranks, ranks))

    note = "Ranks that do the same at the same time share a row. "
    n_left_out = row_of_rank.count(-1)
    if n_left_out:
        note += f"{n_left_out} of {job.n_gpus} ranks are left out."

    circuits, steps = _list_circuits(job, plan)
    return scene(
        solution,
        **_chart_of_groups(plan, groups),
        subtitle=f"{job.n_gpus} ranks, {len(ranks_of_rails(job.step()))} rails",
        noun="state",
        row_of=row_of_rank,
        circuits=circuits,
        steps=steps,
        note=note,
    )


def _chart_of_groups(
    plan: RailPlan, groups: Sequence[tuple[NDArray[np.int64], list[int]]]
) -> dict[str, Any]:
    """Lay out groups of ranks as rows of a scene (`optmatch.plotting.viewer.scene`).

    A group is (bars, ranks): `bars` has a row (kind, start, length) for each bar, times in
    millionths of the step, and its ranks share one row, named as ``8 and 3 more``.
    """
    names = []
    for _, ranks in groups:
        name = str(ranks[0])
        if len(ranks) > 1:
            name += f" and {len(ranks) - 1} more"
        names.append(name)
    # A scene has the bars of a row one after the other in one list, and divides by its span, which
    # therefore is not 0 even of a step that takes no time.
    return {
        "legend": LOOKS,
        "row_noun": "rank",
        "rows": names,
        "bars": [bars_of_ranks.ravel().tolist() for bars_of_ranks, _ in groups],
        "span_s": max(plan.step_s, 1e-12),
    }


def _group_equal_ranks(job: RailJob, plan: RailPlan) -> list[tuple[NDArray[np.int64], list[int]]]:
    """Group the ranks that do the same at the same time, in the order of their first rank.

    A group is the bars that its ranks have in common, an array (bars, 3), and the list of these
    ranks. A bar is its kind (a place in `KINDS`, or `_FORWARDS`), start and length, in millionths
    of the step. A row of `plan.relays` begins with an operation and a rank that forwards its data,
    which gets a bar for it.
    """
    all_ranks = np.arange(job.n_gpus)
    data = rail_gantt_data(job, plan, all_ranks.tolist())
    rank = data.row
    kind = data.kind
    start_s = data.start_s
    end_s = data.end_s

    # A rank also forwards the data of operations that are relayed by it.
    if len(plan.relays):
        operation = plan.relays[:, 0]
        relaying_rank = plan.relays[:, 1]
        rank = np.concatenate([rank, relaying_rank])
        kind = np.concatenate([kind, np.full(len(relaying_rank), _FORWARDS)])
        start_s = np.concatenate([start_s, plan.start_s[operation]])
        end_s = np.concatenate([end_s, plan.end_s[operation]])

    # All bars are sorted by rank, then time, and cut where the next rank begins. Times are whole
    # numbers, so that bars of ranks that do the same are equal.
    millionths_per_s = 1e6 / max(plan.step_s, 1e-12)
    start = np.rint(start_s * millionths_per_s)
    length = np.rint(end_s * millionths_per_s) - start
    order = np.lexsort((kind, start, rank))
    bars = np.stack([kind, start, length], axis=1)[order].astype(np.int64)
    bars_of_rank = np.split(bars, np.searchsorted(rank[order], all_ranks[1:]))

    # Bytes of equal tables of bars are equal, and can be keys.
    ranks_of_bars: dict[bytes, list[int]] = {}
    for number, own_bars in enumerate(bars_of_rank):
        ranks_of_bars.setdefault(own_bars.tobytes(), []).append(number)
    return [(bars_of_rank[ranks[0]], ranks) for ranks in ranks_of_bars.values()]


def _list_circuits(
    job: RailJob, plan: RailPlan
) -> tuple[list[list[list[int]]], list[dict[str, Any]]]:
    """List the circuits of each sequence of states, and the steps of the HTML page.

    Rails that switch alike share a sequence of states (matchings), a timeline of `plan.rails`; the
    first of these rails is shown. ``circuits[sequence][state]`` is a flat list of source and
    destination ranks; those beyond `_MAX_CIRCUITS` in all are left out. With 2 ports for a GPU,
    ports 6 and 7 are of GPU 3 of the rail.

    The page is gone through step by step, one for each change of circuits. A step is a dict:
    `say`, its caption; `at`, its time in seconds; `states`, where ``states[k]`` is the number of
    the state that sequence k is in from then on::

        {"say": "rail 0: circuits change", "at": 0.25, "states": [1, 0]}
    """
    ranks_of_rail = ranks_of_rails(job.step())
    ports_per_gpu = job.network.ports_per_gpu
    circuits = []
    changes = []
    n_left = _MAX_CIRCUITS
    for k, timeline in enumerate(plan.rails):
        ranks = ranks_of_rail[timeline.rails[0]]
        circuits_of_states = []
        for state, matching in enumerate(timeline.matchings):
            # Ports beyond the GPUs of the rail belong to no rank.
            source_port = np.flatnonzero(matching >= 0)
            source_gpu = source_port // ports_per_gpu
            destination_gpu = matching[source_port] // ports_per_gpu
            has_ranks = (source_gpu < len(ranks)) & (destination_gpu < len(ranks))
            gpus = np.stack([source_gpu, destination_gpu], axis=1)[has_ranks]
            pairs = ranks[gpus][: max(0, n_left)]
            n_left -= len(pairs)
            circuits_of_states.append(pairs.ravel().tolist())
            # State 0 is there when the step begins, and is no change.
            if state > 0:
                changes.append((float(timeline.starts_s[state]), k, state))
        circuits.append(circuits_of_states)

    # Each step of the page holds the states of all timelines, of which a change moves one on.
    state_of_timeline = [0] * len(plan.rails)
    begin = {"say": "the step begins", "at": 0.0, "states": [*state_of_timeline]}
    steps: list[dict[str, Any]] = [begin]
    for time_s, k, state in sorted(changes):
        state_of_timeline[k] = state
        rails = plan.rails[k].rails
        name = f"rail {rails[0]}"
        if len(rails) > 1:
            name += f" and {len(rails) - 1} more like it"
        step = {"say": f"{name}: circuits change", "at": time_s, "states": [*state_of_timeline]}
        steps.append(step)
    return circuits, steps


def draw_problem(job: RailJob, ax: Axes | None = None) -> Figure:
    """Draw the phases of the first rail in their order, a row for each stage, into `ax` if given.

    A box has the colour of its dimension and its number of operations. At most 24 phases of a
    stage are drawn; the title says where there are more.
    """
    rails = {phase.rail for phase in job.phases()}
    rail = min(rails, default=0)
    phases = [phase for phase in job.phases() if phase.rail == rail]
    stages = sorted({phase.stage for phase in phases})
    ax = axes_of(ax, 10.0, min(14.0, 1.6 + 0.42 * max(1, len(stages))))

    # One box for each phase, in the colour of its dimension, in the row of its stage. A box is its
    # kind, begin and length in millionths of the width, and leaves 6 % of its column free. The
    # stage with most phases decides the width.
    bars: list[list[int]] = []
    texts = []
    phases_of_stage = [[phase for phase in phases if phase.stage == stage] for stage in stages]
    most_phases = max(map(len, phases_of_stage), default=1)
    n_columns = min(most_phases, MOST_RANKS)
    for phases_of_row in phases_of_stage:
        bars.append([])
        for column, phase in enumerate(phases_of_row[:n_columns]):
            begin = 1_000_000 * column // n_columns
            bars[-1] += [DIMENSIONS.index(phase.dimension), begin, 940_000 // n_columns]
            texts.append(str(phase.n_operations))

    # The legend has a colour for each dimension.
    looks = zip(DIMENSIONS, _COLOURS[1:], strict=False)
    chart = {
        "legend": [BarLook(dimension, colour) for dimension, colour in looks],
        "row_noun": "stage",
        "rows": [str(stage) for stage in stages],
        "bars": bars,
        "texts": texts,
        "span_s": float(n_columns),
    }
    draw_rows(chart, ax)
    ax.set(xticks=[], xlabel="phases in order, and their numbers of operations")
    title = f"what rail {rail} of {len(rails)} carries in a step of {job.n_gpus:,} GPUs"
    if most_phases > MOST_RANKS:
        title += f": the first {MOST_RANKS} of {most_phases} phases"
    ax.set_title(title, fontsize=10)
    return figure_of(ax)


def tabulate_problem(job: RailJob) -> dict[str, Any]:
    """List a row for each phase."""
    phases = job.phases()
    names = "rail", "stage", "dimension", "n_operations"
    return {name: [getattr(phase, name) for phase in phases] for name in names}


def draw(solution: Solution, *, ax: Axes | None = None) -> Figure:
    """Draw a plan: at most 24 groups of ranks that do the same, and the lower bound.

    The axis is time; the lower bound of the step is a dashed line, if one is known.
    """
    problem, answer = answered(solution, RailJob, RailPlan)

    groups = _group_equal_ranks(problem, answer)[:MOST_RANKS]
    chart = _chart_of_groups(answer, groups)
    if np.isfinite(solution.lower_bound):
        chart["bounds_s"] = [solution.lower_bound]
    ax = draw_rows(chart, ax)
    n_shown = sum(len(ranks) for _, ranks in groups)
    step = write_amount(answer.step_s, "s")
    counts = f"{n_shown:,} of {problem.n_gpus:,} ranks"
    ax.set_title(f"a step of {step}: {counts}; those that do the same share a row", fontsize=10)
    return figure_of(ax)
