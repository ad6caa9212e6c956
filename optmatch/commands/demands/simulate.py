"""`optmatch simulate`: replay schedules of demands, and steps of rail jobs, in time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from optmatch.commands.rails.simulate import (
    OPTIONS,
    POLICIES,
    replay_triggers,
    shake_job,
    simulate_job,
)
from optmatch.commands.shared.options import JSON_LINES, Duration, with_options
from optmatch.commands.shared.outcome import (
    CHECK_FAILED,
    SOLVED,
    as_solution,
    for_each,
    name_of,
    paint,
    print_object,
    print_rows,
    read,
)
from optmatch.model import InputError, Solution

_CHANGES = {"switching": "switching", "delay": "delay_s", "packet_rate": "packet_bytes_per_s"}

_RAILS = ("jitter", "runs", "triggers", "seed", "output")


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--switching",
    type=click.Choice(["all-stop", "per-circuit"]),
    help="Replace the switching of the problem.",
)
@click.option("--delay", type=Duration(), help="Replace the reconfiguration delay.")
@click.option("--packet-rate", type=float, help="Replace the rate of the packet network.")
@click.option("--flows", is_flag=True, help="Print when each flow is complete.")
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    help="Rail jobs: when rails are switched.  [default: on-demand; a plan says it itself]",
)
@click.option("--phases", is_flag=True, help="Rail jobs: print a line for each phase.")
@with_options(OPTIONS)
@JSON_LINES
@click.pass_context
def simulate(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    flows: bool,
    policy: str | None,
    phases: bool,
    force: bool,
    as_json: bool,
    **changes: Any,
) -> None:
    """Replay schedules of demands, or one step of rail jobs or their plans. `-` is stdin.

    Of demands: when each flow ends, what waits, what is left; exit code 5 if something is. Of
    rail jobs: the time of a step, and how much of it waits for switches; with --jitter many
    steps.
    """
    rails = {name: changes.pop(name) for name in _RAILS}
    given = {_CHANGES[name]: value for name, value in changes.items() if value is not None}

    def run(file: str) -> int:
        from optmatch.problems import RailJob

        subject = read(file)
        problem = subject.problem if isinstance(subject, Solution) else subject
        if isinstance(problem, RailJob):
            chosen: Any = problem if subject is problem else subject
            if given and (rails["triggers"] is not None or rails["jitter"] is not None):
                raise InputError("--jitter and --triggers take the job as it is")
            if rails["output"] is not None and rails["jitter"] is None:
                raise InputError("-o is for --jitter")
            if rails["triggers"] is not None:
                chosen = replay_triggers(rails["triggers"], chosen)
            if rails["jitter"] is not None:
                return shake_job(file, chosen, policy, {**rails, "force": force}, as_json)
            return simulate_job(file, chosen, policy, given, phases, as_json)
        if policy is not None or phases or any(each is not None for each in rails.values()):
            raise InputError("--policy, --phases, --jitter, --triggers and -o are for rail jobs")
        return _run(file, as_solution(subject, file), given, flows, as_json)

    ctx.exit(for_each(files, run, as_json=as_json))


def _run(
    file: str, solution: Solution, changes: dict[str, Any], flows: bool, as_json: bool
) -> int:
    from optmatch.problems import Demand
    from optmatch.simulation.demands import simulate as replay

    if not isinstance(solution.problem, Demand):
        kind = solution.problem.kind
        raise InputError(f"a schedule of kind {kind}: only demands and rail jobs are simulated")
    problem = replace(solution.problem, **changes)
    outcome = replay(problem, solution)
    asked = problem.demand_bytes
    figures = {
        "complete": outcome.complete,
        "completion_s": outcome.completion_s,
        "makespan_s": outcome.makespan_s,
        "circuit_bytes": outcome.circuit_bytes,
        "packet_bytes": outcome.packet_bytes,
        "left_bytes": float(outcome.left_bytes.sum()),
        "mean_flow_completion_s": _mean(outcome.flow_completion_s[asked > 0]),
        "mean_busy": _mean(outcome.busy),
        "reconfiguring": outcome.reconfiguring,
        "mean_queue_bytes": _mean_queue(outcome),
    }
    if as_json:
        arrays = ("flow_completion_s", "times_s", "queue_bytes", "busy")
        series = {name: getattr(outcome, name).tolist() for name in arrays}
        print_object("simulation", {"file": file, **figures, **series})
    else:
        verdict = "complete" if outcome.complete else "INCOMPLETE"
        click.echo(f"{name_of(file)}: {paint(verdict, outcome.complete)}")
        print_rows({name: value for name, value in figures.items() if name != "complete"})
        if flows:
            _print_flows(outcome, problem)
    return SOLVED if outcome.complete else CHECK_FAILED


def _print_flows(outcome: Any, problem: Any) -> None:
    """Print a line for each demand: its ports by name, its bytes, and when it is complete."""
    demand_bytes = problem.demand_bytes
    names = problem.fabric.port_names if problem.fabric.graph is None else None
    for source, destination in zip(
        *(ends.tolist() for ends in demand_bytes.nonzero()), strict=True
    ):
        left = outcome.left_bytes[source, destination]
        completion_s = outcome.flow_completion_s[source, destination]
        end = f"{completion_s:.6g} s" if completion_s >= 0 else f"{left:.6g} left over"
        ends = (names[source], names[destination]) if names else (source, destination)
        size_bytes = demand_bytes[source, destination]
        click.echo(f"  {ends[0]} -> {ends[1]}: {size_bytes:.6g} bytes, {end}")


def _mean(values: Any) -> float:
    return float(values.mean()) if values.size else 0.0


def _mean_queue(outcome: Any) -> float:
    """Average the waiting demand over time; between events queues change at constant rates."""
    import numpy as np

    total = outcome.queue_bytes.sum(axis=1)
    lasted = np.diff(outcome.times_s)
    if not lasted.sum():
        return 0.0
    return float(((total[1:] + total[:-1]) / 2 * lasted).sum() / lasted.sum())
