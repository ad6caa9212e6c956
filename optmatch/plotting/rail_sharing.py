"""Pictures and tables of training jobs on the same rails: their steps, ports and turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Solution
from optmatch.plotting import palette
from optmatch.plotting.blocks import choose_ticks
from optmatch.plotting.drawing import blank_figure
from optmatch.plotting.slots import answered
from optmatch.plotting.viewer import scene
from optmatch.problems import RailShares, RailSharing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_JOBS = 24
"""A picture has a bar for each of so many jobs."""


_MOST_ROWS = 200
_MOST_BARS = 400
"""A page has rows for so many jobs, and bars for so many steps of each."""


class RailSharingData(NamedTuple):
    """The steps of all jobs alone and beside the others, and where or when they use a rail."""

    names: tuple[str, ...]
    alone_s: NDArray[np.float64]
    """``alone_s[job]``: its step alone on the rails."""
    beside_s: NDArray[np.float64]
    """``beside_s[job]``: the time from one of its steps to the next beside the others."""
    start: NDArray[np.float64]
    """``start[job]``: its first port of its first rail or, in turns, when its turn begins (s)."""
    end: NDArray[np.float64]
    """``end[job]``: the port after its last one or, in turns, when its turn ends (s)."""
    whole: float
    """The ports of the switch or, in turns, the time of a round (s)."""


def rail_sharing_data(solution: Solution) -> RailSharingData:
    """Lay out the steps of jobs that share rails, and their ports of a rail or their turns.

    Jobs share the switches of rails by ports, each with a range of its own, or by time: they take
    turns of several training steps, each with all ports.

    Parameters
    ----------
    solution
        The solution of a `RailSharing`, with an answer.

    Returns
    -------
    RailSharingData
        By job: its name, the length of its step alone and beside the others in seconds, and start
        and end of its ports (numbers) or of its turn (seconds); and the whole, which is the number
        of ports of a switch, or the time of a round in seconds.

    Raises
    ------
    InputError
        If it is of another kind, or has no answer.
    """
    problem, answer = answered(solution, RailSharing, RailShares)
    n_jobs = len(problem.jobs)
    own_s = np.array([share.plan.step_s for share in answer.beside])
    if problem.by == "time":
        # Turns and the rests between them follow each other.
        turn_s = own_s * np.array(answer.steps)
        whole = turn_s + np.array(problem.measure_handovers(answer))
        start = np.concatenate([[0.0], np.cumsum(whole)[:-1]])
        end = start + turn_s
        total = float(whole.sum())
    else:
        # A job that is on no rail has an empty range.
        start = np.zeros(n_jobs)
        end = np.zeros(n_jobs)
        total = float(problem.radix)
        for job, (named, share) in enumerate(zip(problem.jobs, answer.beside, strict=True)):
            ports = problem.ports_of_rails(named.job, share.ports_per_gpu, share.replicas)
            first_port = _first_port_of(answer, job)
            if first_port != IDLE:
                start[job] = first_port
                end[job] = first_port + ports[_first_rail_of(answer, job)]
    return RailSharingData(
        names=tuple(named.name for named in problem.jobs),
        alone_s=np.array([share.plan.step_s for share in answer.alone]),
        beside_s=np.array(problem.measure_steps(answer)),
        start=start,
        end=end,
        whole=total,
    )


def _first_rail_of(answer: RailShares, job: int) -> int:
    """Return the lowest rail on which a job has ports, -1 for none."""
    rails = np.flatnonzero(answer.first_port[job] != IDLE)
    return int(rails[0]) if len(rails) else IDLE


def _first_port_of(answer: RailShares, job: int) -> int:
    """Return the first port that a job has on its first rail, -1 if it is on no rail."""
    rail = _first_rail_of(answer, job)
    return IDLE if rail == IDLE else int(answer.first_port[job, rail])


def _count_ports(problem: RailSharing, answer: RailShares) -> int:
    """Count the ports that jobs have together on the rail on which they have most.

    Parameters
    ----------
    problem
        The jobs, which run at once on ports of their own.
    answer
        Their shares: ports of each GPU, and replicas.

    Returns
    -------
    int
        Ports of one switch; 0 if no job is on a rail.
    """
    n_ports_of_rail: dict[int, int] = {}
    for named, share in zip(problem.jobs, answer.beside, strict=True):
        ports = problem.ports_of_rails(named.job, share.ports_per_gpu, share.replicas)
        for rail, n_ports in ports.items():
            n_ports_of_rail[rail] = n_ports_of_rail.get(rail, 0) + n_ports
    return max(n_ports_of_rail.values(), default=0)


def draw(solution: Solution, slot: int | None = None) -> Figure:
    """Draw how much longer steps take where jobs share a network, and what share each job gets.

    Jobs share the ports of switches (rails), or take turns in using all of them. On the left each
    job has two bars: the time of its training step alone, and beside the others.

    Parameters
    ----------
    solution
        The solution of a `RailSharing`, with an answer.
    slot
        Not used: there are no time slots.

    Returns
    -------
    Figure
        On the left the times in seconds; on the right the ports that each job has of its first
        rail, or its turn in a round, in seconds. At most 24 jobs are drawn, and the title says so.
    """
    problem, answer = answered(solution, RailSharing, RailShares)
    data = rail_sharing_data(solution)
    n_jobs = len(data.names)
    n_shown = min(n_jobs, MOST_JOBS)
    rows = np.arange(n_shown)
    figure = blank_figure(9.6, 2.2 + 0.32 * n_shown)
    left, right = figure.subplots(1, 2, sharey=True)

    # Steps: the pale bar is the step alone.
    left.barh(rows - 0.2, data.alone_s[:n_shown], 0.36, color=palette.TOGGLED_FILL, label="alone")
    colours = [palette.circuit_colour(job) for job in range(n_shown)]
    left.barh(rows + 0.2, data.beside_s[:n_shown], 0.36, color=colours, label="beside the others")
    names = [name if len(name) <= 24 else f"{name[:23]}..." for name in data.names[:n_shown]]
    left.set_yticks(rows, names, fontsize=9)
    left.set_ylim(n_shown - 0.5, -0.5)
    left.set_xlim(left=0)
    left.set_xlabel("step, s", fontsize=9)
    slowdown = _find_slowdown(data)
    left.set_title(f"pale: alone; at most {slowdown:.3g} times as long", fontsize=9)

    # Where a job has ports, or when it has them.
    for job in range(n_shown):
        width = data.end[job] - data.start[job]
        right.barh(job, width, 0.6, left=data.start[job], color=colours[job])
    right.set_xlim(0, max(data.whole, 1e-12))
    if problem.by == "time":
        right.set_xlabel("a round of turns, s", fontsize=9)
        right.set_title(f"steps in a turn: {_list_steps(answer)}", fontsize=9)
    else:
        # Jobs may begin on different rails, whose ports are not to be added up.
        is_same_rail = len({_first_rail_of(answer, job) for job in range(n_jobs)}) == 1
        of_rail = "the first rail" if is_same_rail else "the first rail of each job"
        right.set_xlabel(f"ports of {of_rail}", fontsize=9)
        right.set_xticks(choose_ticks(problem.radix + 1, 8))
        n_used = _count_ports(problem, answer)
        right.set_title(f"{n_used:,} of {problem.radix:,} ports of a rail are used", fontsize=9)
    for axes in (left, right):
        axes.tick_params(labelsize=9)
    title = f"{n_jobs:,} jobs share rails by {problem.by}"
    if n_jobs > n_shown:
        title += f": the first {n_shown}"
    figure.suptitle(title, fontsize=11)
    return figure


def _find_slowdown(data: RailSharingData) -> float:
    """Return the largest step beside the others over that alone; 1 where steps take no time."""
    takes_time = data.alone_s > 0
    return float((data.beside_s[takes_time] / data.alone_s[takes_time]).max(initial=1.0))


def _list_steps(answer: RailShares) -> str:
    """Write how many steps the first jobs run in a turn, as a part of a title."""
    text = ", ".join(map(str, answer.steps[:6]))
    return f"{text}, ..." if len(answer.steps) > 6 else text


def page(solution: Solution) -> dict[str, Any]:
    """Collect what a web page shows of jobs that share switches: their training steps over time.

    Jobs share the ports of switches (rails), and run at once, or take turns in using all of them.
    The page has a row for each job, and in it a bar for each training step.

    Parameters
    ----------
    solution
        The solution of a `RailSharing`, with an answer.

    Returns
    -------
    dict
        The page as `viewer_page` embeds it, plain values of JSON. Its main entries are

        - `rows`, `row_of`: a name and a row for each job;
        - `bars`: for each job three numbers for each step, one after the other: colour, start and
          length in millionths of the time that is shown;
        - `span_s`: that time in seconds. It is one round for jobs in turns, and twice the longest
          step for jobs that run at once;
        - `steps`: what is said at which time, such as the begin of a turn.
    """
    problem, answer = answered(solution, RailSharing, RailShares)
    data = rail_sharing_data(solution)
    n_shown = min(len(data.names), _MOST_ROWS)
    in_turns = problem.by == "time"
    span_s = data.whole if in_turns else 2 * float(data.beside_s.max(initial=0.0))
    span_s = max(span_s, 1e-12)

    # A bar is three numbers: colour, start and length, in millionths of the time on the page. The
    # steps of a job follow each other in two colours by turns; only the first ones are drawn.
    bars: list[list[int]] = []
    changes: list[tuple[float, str]] = []
    for job in range(n_shown):
        step_s = answer.beside[job].plan.step_s
        first_s = float(data.start[job]) if in_turns else 0.0
        n_steps = answer.steps[job] if in_turns else int(span_s / max(step_s, 1e-12))
        bars_of_job: list[int] = []
        for step in range(min(n_steps, _MOST_BARS)):
            start = round((first_s + step * step_s) / span_s * 1e6)
            end = round((first_s + (step + 1) * step_s) / span_s * 1e6)
            bars_of_job += [step % 2, start, end - start]
        bars.append(bars_of_job)
        if in_turns:
            changes.append((first_s, f"turn of {data.names[job]}: {n_steps} steps"))
    if not in_turns:
        changes = [(0.0, "all jobs run at once, on ports of their own")]
        changes.append((span_s / 2, "the longest step is over"))

    hidden = len(data.names) - n_shown
    return scene(
        solution,
        subtitle=f"{len(data.names)} jobs share rails of {problem.radix} ports by {problem.by}",
        legend=[("a step", palette.circuit_colour(0), 2), ("the next", palette.TOGGLED_FILL, 2)],
        noun="turn" if in_turns else "time",
        row_noun="job",
        rows=list(data.names[:n_shown]),
        bars=bars,
        row_of=list(range(n_shown)),
        span_s=span_s,
        steps=[{"say": text, "at": time_s} for time_s, text in changes],
        note=f"{hidden} of {len(data.names)} jobs are left out." if hidden else "",
    )


def tabulate(solution: Solution) -> dict[str, Any]:
    """List the jobs of an answer: their shares, and their steps with and without the others.

    Parameters
    ----------
    solution
        The solution of a `RailSharing`, with an answer.

    Returns
    -------
    dict
        Columns with an entry for each job. Its first port is that of its first rail, -1 if it is
        on no rail.
    """
    data = rail_sharing_data(solution)
    problem, answer = answered(solution, RailSharing, RailShares)
    return {
        "job": list(data.names),
        "replicas": [share.replicas for share in answer.beside],
        "ports_per_gpu": [share.ports_per_gpu for share in answer.beside],
        "first_port": [_first_port_of(answer, job) for job in range(len(data.names))],
        "steps_per_round": list(answer.steps),
        "alone_s": data.alone_s.tolist(),
        "beside_s": data.beside_s.tolist(),
        "stretch": problem.measure_stretches(answer),
    }


def draw_problem(problem: RailSharing) -> Figure:
    """Draw how many ports of a rail each job asks for, and how many there are.

    Parameters
    ----------
    problem
        The jobs. At most 24 are drawn, and the title says so.

    Returns
    -------
    Figure
        A bar for each job; a line stands at the number of ports of a switch.
    """
    columns = tabulate_problem(problem)
    n_jobs = len(problem.jobs)
    n_shown = min(n_jobs, MOST_JOBS)
    figure = blank_figure(7.2, 1.8 + 0.32 * n_shown)
    axes = figure.add_subplot()
    rows = np.arange(n_shown)
    colours = [palette.circuit_colour(job) for job in range(n_shown)]
    axes.barh(rows, columns["ports"][:n_shown], 0.6, color=colours)
    axes.axvline(problem.radix, color=palette.TOGGLED_FILL)
    names = [name if len(name) <= 24 else f"{name[:23]}..." for name in columns["job"][:n_shown]]
    axes.set_yticks(rows, names, fontsize=9)
    axes.set_ylim(n_shown - 0.5, -0.5)
    axes.set_xlabel(f"ports of a rail that a job asks for, of {problem.radix:,}", fontsize=9)
    title = f"{n_jobs:,} jobs share rails by {problem.by}"
    if n_jobs > n_shown:
        title += f": the first {n_shown}"
    axes.set_title(title, fontsize=10)
    return figure


def tabulate_problem(problem: RailSharing) -> dict[str, Any]:
    """List a row for each job that shares rails.

    Returns
    -------
    dict
        Columns of equal length: its name, its GPUs, its replicas, and the ports that it asks for
        of the rail on which it asks for most.
    """
    ports = []
    for named in problem.jobs:
        job = named.job
        asked_ports = problem.ports_of_rails(job, job.network.ports_per_gpu, job.parallelism.dp)
        ports.append(max(asked_ports.values(), default=0))
    return {
        "job": [named.name for named in problem.jobs],
        "gpus": [named.job.n_gpus for named in problem.jobs],
        "replicas": [named.job.parallelism.dp for named in problem.jobs],
        "ports": ports,
    }
