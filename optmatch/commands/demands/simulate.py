"""`optmatch simulate`: replay schedules of demands, flows, and steps of rail jobs, in time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from optmatch.commands.demands.flows import FLOW_OPTIONS, is_flow_file, simulate_flow_file
from optmatch.commands.rails.simulate import OPTIONS, POLICIES, simulate_rail_file
from optmatch.commands.shared.options import (
    JSON_LINES,
    RATE,
    Duration,
    SectionedCommand,
    take,
    with_options,
    without_none,
)
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

# Parameters of `RollingSchedule` that options of lists of flows alone have.
_FLOW_OPTIONS = ("rate_bytes_per_s", "aim", "planes")

# Options of rail jobs alone.
_RAIL_OPTIONS = ("jitter", "runs", "triggers", "seed", "output")
_FOR_RAIL_JOBS = "--policy, --phases, --jitter, --triggers and -o are for rail jobs"


@click.command(cls=SectionedCommand)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--switching",
    type=click.Choice(["all-stop", "per-circuit"]),
    help="Replace the switching of the problem.",
)
@click.option("--delay", "delay_s", type=Duration(), help="Replace the reconfiguration delay.")
@click.option(
    "--packet-rate",
    "packet_bytes_per_s",
    type=RATE,
    help="Replace the rate of the packet network.",
)
@click.option("--flows", is_flag=True, help="Print when each flow is complete.")
@with_options(FLOW_OPTIONS)
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
    """Replay schedules of demands, flows, or one step of rail jobs or their plans. `-` is stdin.

    Of demands: when each flow ends, what waits, what is left; exit code 5 if something is. Of
    lists of flows with arrival times (.csv, coflow-benchmark .txt): how long they wait if slots
    are chosen as they come. Of rail jobs: the time of a step, and how much of it waits for
    switches; with --jitter many steps.
    """
    # Options are told apart: those of lists of flows, those of rail jobs, and fields of a problem
    # that are replaced, such as its delay in seconds. None stands for options that are not set.
    flow_options = without_none(take(changes, _FLOW_OPTIONS))
    rail_options = take(changes, _RAIL_OPTIONS)
    has_rail_options = policy is not None or phases or bool(without_none(rail_options))
    changed_fields = without_none(changes)

    def simulate_file(file: str) -> int:
        """Simulate one file: a list of flows, a rail job or its plan, or a schedule.

        Options that are set for another kind of file are an `InputError`.
        """
        from optmatch.problems import RailJob

        if is_flow_file(file):
            if has_rail_options:
                raise InputError(_FOR_RAIL_JOBS)
            options = {**changed_fields, **flow_options}
            return simulate_flow_file(file, options, each_flow=flows, as_json=as_json)
        if flow_options:
            raise InputError("--rate, --aim and --planes are for lists of flows")
        content = read(file)
        problem = content.problem if isinstance(content, Solution) else content
        if isinstance(problem, RailJob):
            subject: Any = content
            options_of_rails = {**rail_options, "policy": policy, "phases": phases, "force": force}
            return simulate_rail_file(file, subject, changed_fields, options_of_rails, as_json)
        if has_rail_options:
            raise InputError(_FOR_RAIL_JOBS)
        return _simulate_demand(file, as_solution(content, file), changed_fields, flows, as_json)

    ctx.exit(for_each(files, simulate_file, as_json=as_json))


def _simulate_demand(
    file: str, solution: Solution, changes: dict[str, Any], flows: bool, as_json: bool
) -> int:
    """Replay the schedule of a demand, with `changes` of its fields, and print its figures.

    `changes` are new values of fields by name, as ``{"delay_s": 2e-5}``. With `flows` a line for
    each flow follows. The exit code is that of a failed check if some bytes are not delivered.
    """
    import numpy as np

    from optmatch.problems import Demand
    from optmatch.simulation.demands import simulate as replay

    if not isinstance(solution.problem, Demand):
        kind = solution.problem.kind
        raise InputError(f"a schedule of kind {kind}: only demands and rail jobs are simulated")

    # The schedule stays as it is; fields of the problem, such as its rates, may be others.
    problem = replace(solution.problem, **changes)
    outcome = replay(problem, solution)
    is_flow = problem.demand_bytes > 0

    # Between events queues change at constant rates, so that the trapezoidal rule is exact.
    queued_byte_s = np.trapezoid(outcome.queue_bytes.sum(axis=1), outcome.times_s)
    mean_queue_bytes = float(queued_byte_s) / max(1e-300, float(np.ptp(outcome.times_s)))
    figures = {
        "complete": outcome.complete,
        "completion_s": outcome.completion_s,
        "makespan_s": outcome.makespan_s,
        "circuit_bytes": outcome.circuit_bytes,
        "packet_bytes": outcome.packet_bytes,
        "left_bytes": float(outcome.left_bytes.sum()),
        "mean_flow_completion_s": _mean(outcome.flow_completion_s[is_flow]),
        "mean_busy": _mean(outcome.busy),
        "reconfiguring": outcome.reconfiguring,
        "mean_queue_bytes": mean_queue_bytes,
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
    fabric = problem.fabric
    names = range(fabric.n_ports) if fabric.graph is not None else fabric.port_names
    sources, destinations = demand_bytes.nonzero()
    for source, destination in zip(sources.tolist(), destinations.tolist(), strict=True):
        completion_s = outcome.flow_completion_s[source, destination]
        if completion_s >= 0:
            end = f"{completion_s:.6g} s"
        else:
            end = f"{outcome.left_bytes[source, destination]:.6g} left over"
        size_bytes = demand_bytes[source, destination]
        click.echo(f"  {names[source]} -> {names[destination]}: {size_bytes:.6g} bytes, {end}")


def _mean(values: Any) -> float:
    return float(values.mean()) if values.size else 0.0
