"""`optmatch simulate`: replay schedules of demands, lists of flows, and steps of rail jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from optmatch.commands.shared.options import (
    FORCE,
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
    say,
    write_text,
)
from optmatch.model import InputError, Limit, Solution, Status, schedule_of, write_amount
from optmatch.model.files import suffix_of

if TYPE_CHECKING:
    from optmatch.problems import RailJob
    from optmatch.problems.rails.execution.plan import RailPlan
    from optmatch.simulation.rails.replay import RailSimulation

_TABLES = (".csv", ".tsv", ".txt")
# Options of lists of flows alone, and of rail jobs alone.
_FLOW_OPTIONS = ("rate_bytes_per_s", "aim", "planes")
_RAIL_OPTIONS = ("policy", "phases", "jitter", "runs", "triggers", "seed", "output")
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
@click.option(
    "--at",
    "at_s",
    type=Duration(),
    help="Demands: print what is left of each flow at this time; with -o x.csv also write it as"
    " a matrix for `generate demand`.",
)
@click.option(
    "--rate",
    "rate_bytes_per_s",
    type=RATE,
    help="Lists of flows: bytes per second of a circuit, or as 100Gbit/s.  [default: 1]",
)
@click.option(
    "--aim",
    type=click.Choice(["wait", "completion"]),
    help="Lists of flows: short waits in the mean, or all that is known complete early."
    "  [default: wait]",
)
@click.option(
    "--planes", type=click.IntRange(min=1), help="Lists of flows: switches side by side."
)
@click.option(
    "--policy",
    type=click.Choice(("on-demand", "provisioned", "static", "all-links")),
    help="Rail jobs: when rails are switched.  [default: on-demand; a plan says it itself]",
)
@click.option(
    "--phases", is_flag=True, default=None, help="Rail jobs: print a line for each phase."
)
@click.option(
    "--jitter",
    type=float,
    help="Rail jobs: standard deviation of the factor drawn for each computation; prints mean"
    " and 99th percentile of the step time under each policy, or of a plan. Circuits change one"
    " by one as soon as they can, so that a mean may be below the plan.",
)
@click.option("--runs", type=int, help="With --jitter: how many steps.  [default: 100]")
@click.option(
    "--triggers",
    type=click.Path(),
    help="Rail jobs: replay what follows from these triggers, if nothing is late.",
)
@click.option("--seed", type=int, help="The seed of everything random.  [default: 0]")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="With --jitter: draw it, as .png, .svg or .pdf. With --at: write what is left, as .csv.",
)
@with_options((FORCE, JSON_LINES))
@click.pass_context
def simulate(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    flows: bool,
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

    # With --at, -o names the matrix of what is left; rail jobs have an -o of their own.
    at_s = changes.pop("at_s")
    matrix_file = None
    if at_s is not None:
        matrix_file = rail_options.pop("output")
    has_rail_options = bool(without_none(rail_options))
    changed_fields = without_none(changes)

    def simulate_file(file: str) -> int:
        """Simulate one file: a list of flows, a rail job or its plan, or a schedule.

        Options that are set for another kind of file are an `InputError`.
        """
        from optmatch.problems import RailJob

        # The ending of a table, which may be gzipped, tells a list of flows.
        if suffix_of(file) in _TABLES:
            if has_rail_options:
                raise InputError(_FOR_RAIL_JOBS)
            if at_s is not None:
                raise InputError("--at is for schedules of demands")
            options = {**changed_fields, **flow_options}
            return _simulate_flows(file, options, each_flow=flows, as_json=as_json)
        if flow_options:
            raise InputError("--rate, --aim and --planes are for lists of flows")

        # A problem or an answer: its kind tells whether it is a job or a demand.
        content: Any = read(file)
        problem = content.problem if isinstance(content, Solution) else content
        if at_s is not None:
            if changed_fields or has_rail_options or flows:
                raise InputError(
                    "--at takes the schedule as it is: not with --flows, nor with options that"
                    " change the problem or are for rail jobs; only with -o and --json"
                )
            return _print_left(file, as_solution(content, file), at_s, matrix_file, force, as_json)

        # A step of a rail job, or the schedule of a demand.
        if isinstance(problem, RailJob):
            if flows:
                raise InputError("--flows is for demands and lists of flows; see --phases")
            options = {**rail_options, "force": force}
            return _simulate_rails(file, content, changed_fields, options, as_json)
        if has_rail_options:
            raise InputError(_FOR_RAIL_JOBS)
        return _simulate_demand(file, as_solution(content, file), changed_fields, flows, as_json)

    ctx.exit(for_each(files, simulate_file, as_json=as_json))


def _print_figures(
    file: str,
    title: str,
    figures: Mapping[str, Any],
    in_title: str,
    series: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Print the figures of a simulation, as rows below a title or as one object with its series.

    The figure `in_title` stands in the title, and has no row.
    """
    if as_json:
        print_object("simulation", {"file": file, **figures, **series})
        return
    click.echo(f"{name_of(file)}: {title}")
    print_rows({name: value for name, value in figures.items() if name != in_title})


def _simulate_flows(file: str, options: dict[str, Any], *, each_flow: bool, as_json: bool) -> int:
    """Serve the flows of a file by a rolling schedule, print the figures, return the exit code.

    The file is CSV of flows with their times, or a trace of coflow-benchmark; `options` are
    parameters of `RollingSchedule` that are set, of which ``delay_s`` has to be. With `each_flow`
    a line for each flow follows; with `as_json` all is one JSON object.
    """
    from optmatch.control import replay_flows
    from optmatch.io import read_flows

    if "delay_s" not in options:
        raise InputError("--delay: a list of flows needs the reconfiguration delay; 0 if none")
    flows = read_flows(file)
    replay = replay_flows(flows, **options)

    # A coflow is a group of flows that count as done together. The wait of a flow or coflow is its
    # time from arrival to completion.
    wait_s = replay.wait_s
    coflow_wait_s = replay.coflow_wait_s
    has_flows = np.isin(np.arange(len(coflow_wait_s)), flows.coflow)
    figures: dict[str, Any] = {
        "flows": len(wait_s),
        "bytes": float(flows.size_bytes.sum()),
        "completion_s": float(replay.completion_s.max(initial=0.0)),
        "mean_wait_s": _mean(wait_s),
        "p99_wait_s": float(np.quantile(wait_s, 0.99)) if len(wait_s) else 0.0,
        "max_wait_s": float(wait_s.max(initial=0.0)),
        "slots": len(replay.slots),
    }
    if flows.weight is not None:
        figures["weighted_wait_s"] = replay.figures["weighted_wait_s"]
    if flows.deadline_s is not None:
        figures["with_deadline"] = replay.figures["with_deadline"]
        figures["late"] = replay.figures["late"]

    # Coflows of one flow each would only repeat the figures of flows.
    if has_flows.sum() < len(wait_s):
        figures["coflows"] = int(has_flows.sum())
        figures["mean_coflow_wait_s"] = float(coflow_wait_s[has_flows].mean())
    series = {
        "flow_completion_s": replay.completion_s.tolist(),
        "coflow_wait_s": replay.coflow_wait_s.tolist(),
    }
    _print_figures(file, f"{len(wait_s)} flows", figures, "flows", series, as_json)
    if as_json or not each_flow:
        return SOLVED

    # A line for each flow: its ports by name, its bytes, arrival and completion.
    names = flows.names or tuple(map(str, range(flows.n_ports)))
    for source, destination, size_bytes, arrival_s, completion_s in zip(
        flows.source.tolist(),
        flows.destination.tolist(),
        flows.size_bytes.tolist(),
        flows.time_s.tolist(),
        replay.completion_s.tolist(),
        strict=True,
    ):
        click.echo(
            f"  {names[source]} -> {names[destination]}: {write_amount(size_bytes, 'B')},"
            f" from {write_amount(arrival_s, 's')} to {write_amount(completion_s, 's')}"
        )
    return SOLVED


def _simulate_demand(
    file: str, solution: Solution, changes: dict[str, Any], flows: bool, as_json: bool
) -> int:
    """Replay the schedule of a demand, with `changes` of its fields, and print its figures.

    `changes` are new values of fields by name, as ``{"delay_s": 2e-5}``. With `flows` a line for
    each flow follows. The exit code is that of a failed check if some bytes are not delivered.
    """
    from optmatch.problems import Demand
    from optmatch.simulation.demands import simulate as replay

    if not isinstance(solution.problem, Demand):
        raise InputError(
            f"a schedule of kind {solution.problem.kind}: only demands and rail jobs are simulated"
        )

    # The schedule stays as it is; fields of the problem, such as its rates, may be others.
    problem = replace(solution.problem, **changes)
    outcome = replay(problem, solution)

    # Flows that never end have the completion time -1, and no part in the mean.
    is_complete = (problem.demand_bytes > 0) & (outcome.flow_completion_s >= 0)

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
        "mean_flow_completion_s": _mean(outcome.flow_completion_s[is_complete]),
        "mean_busy": _mean(outcome.busy),
        "reconfiguring": outcome.reconfiguring,
        "mean_queue_bytes": mean_queue_bytes,
    }
    arrays = ("flow_completion_s", "times_s", "queue_bytes", "busy")
    series = {name: getattr(outcome, name).tolist() for name in arrays}
    verdict = paint("complete" if outcome.complete else "INCOMPLETE", outcome.complete)
    _print_figures(file, verdict, figures, "complete", series, as_json)
    code = SOLVED if outcome.complete else CHECK_FAILED
    if as_json or not flows:
        return code

    # A line for each flow: its ports by name, its bytes, and when it is complete.
    labels = problem.fabric.labels
    for source, destination in np.argwhere(problem.demand_bytes > 0).tolist():
        completion_s = outcome.flow_completion_s[source, destination]
        end = write_amount(float(completion_s), "s")
        if completion_s < 0:
            end = write_amount(float(outcome.left_bytes[source, destination]), "B") + " left over"
        size = write_amount(float(problem.demand_bytes[source, destination]), "B")
        click.echo(f"  {labels[source]} -> {labels[destination]}: {size}, {end}")
    return code


def _print_left(
    file: str,
    solution: Solution,
    at_s: float,
    output: str | None,
    force: bool,
    as_json: bool,
) -> int:
    """Print what is left of each flow of a demand at a time, and write it as a matrix.

    `output` is a CSV file, None for none. The exit code is 0.
    """
    from optmatch.io.text import csv_text
    from optmatch.plotting import left_bytes
    from optmatch.plotting.demands import unit_of_amounts
    from optmatch.problems import Demand

    problem = solution.problem
    if not isinstance(problem, Demand):
        raise InputError(f"--at is for schedules of demands, not of kind {problem.kind}")
    if problem.packet_bytes_per_s:
        raise InputError("--at: only where circuits carry all, without a packet network")
    schedule_of(solution)  # refuses a solution without an answer
    (left,) = left_bytes(solution, [at_s])
    labels = problem.fabric.labels
    # A matrix has all ports, also those of which nothing is left, so that they keep their numbers.
    if output is not None:
        # Bytes that are whole but for rounding stand as whole numbers.
        rows = [
            [label, *(f"{amount:.12g}" for amount in row)]
            for label, row in zip(labels, left.tolist(), strict=True)
        ]
        text = csv_text([["", *labels], *rows])
        write_text(text, output, force=force, endings=(".csv",))
        dead = ",".join(labels[port] for port in problem.fabric.dead_ports)
        if dead:
            say(f"{output}: a matrix does not say which ports are dead: add --dead-ports {dead}")

    demand_bytes = problem.demand_bytes
    unit = unit_of_amounts(problem)
    if as_json:
        figures = {"at_s": at_s, "left_bytes": left.tolist(), "ports": list(labels)}
        print_object("simulation", {"file": file, **figures})
    else:
        # A line for each flow of which something is left.
        all_amount = write_amount(float(demand_bytes.sum()), unit)
        left_amount = write_amount(float(left.sum()), unit)
        title = f"at {write_amount(at_s, 's')} {left_amount} of {all_amount} are left"
        click.echo(f"{name_of(file)}: {title}")
        for source, destination in np.argwhere(left > 0).tolist():
            left_amount = write_amount(float(left[source, destination]), unit)
            all_amount = write_amount(float(demand_bytes[source, destination]), unit)
            flow = f"{labels[source]} -> {labels[destination]}"
            click.echo(f"  {flow}: {left_amount} of {all_amount}")
    return SOLVED


def _mean(values: Any) -> float:
    return float(values.mean()) if values.size else 0.0


def _simulate_rails(
    file: str,
    subject: RailJob | Solution,
    changes: dict[str, Any],
    options: dict[str, Any],
    as_json: bool,
) -> int:
    """Simulate one training step of a rail job or its plan, print it, and return the exit code.

    `changes` are fields of the network that are replaced, by name. The step is that of a plan as
    it stands, or of a job under a policy: the rule by which switches change circuits between
    phases. A boundary is where a stage of a rail goes from one phase, with its circuits, to the
    next; its window lasts from the end of the phase before until an operation of the next one is
    ready, and the wait of that operation for its circuits is exposed.
    """
    with_jitter = options["jitter"] is not None
    has_order = options["triggers"] is not None or isinstance(subject, Solution)
    if (options["triggers"] is not None or with_jitter) and (
        changes or (has_order and options["policy"] is not None)
    ):
        raise InputError(
            "--jitter and --triggers take the job as it is, and a plan with its order"
        )
    if not with_jitter and {options["runs"], options["seed"], options["output"]} != {None}:
        raise InputError("--runs, --seed and -o are for --jitter")
    if with_jitter and options["phases"]:
        raise InputError("--phases: a line for each phase of one step; not with --jitter")
    if options["triggers"] is not None:
        subject = _replay_triggers(options["triggers"], subject)
    if with_jitter:
        return _simulate_with_jitter(file, subject, options, as_json)
    job, outcome = _time_step(subject, options["policy"], changes)

    # Windows count at boundaries alone at which circuits change.
    switches = outcome.switches_per_rank(job)
    windows = outcome.window_s[outcome.switched]
    figures = {
        "policy": outcome.policy,
        "delay_s": outcome.delay_s,
        "step_s": outcome.step_s,
        "all_links_s": job.lower_bound(),
        "exposed_s": outcome.step_s - job.lower_bound(),
        "phases": len(job.phases()),
        "boundaries_switched": int(outcome.switched.sum()),
        "boundaries_exposed": int((outcome.exposed_s > 0).sum()),
        "switches_per_rank": int(switches.max(initial=0)),
        "circuits_changed": outcome.circuits_changed,
        "window_min_s": float(windows.min(initial=np.inf)) if len(windows) else 0.0,
        "window_median_s": float(np.median(windows)) if len(windows) else 0.0,
        "window_max_s": float(windows.max(initial=0.0)),
    }

    # A row for each phase, in which a stage of a rail needs the same circuits: where it is, which
    # circuits are switched before it, and when these are asked for, begun and ready.
    rows = []
    for k, phase in enumerate(job.phases()):
        is_switched = bool(outcome.switched[k])
        row: dict[str, Any] = {
            "rail": phase.rail,
            "stage": phase.stage,
            "position": phase.position,
            "dimension": phase.dimension,
            "operations": phase.n_operations,
            "switched": is_switched,
            "circuits": int(outcome.circuits[k]) if is_switched else 0,
        }
        for name in ("asked_s", "begun_s", "ready_s", "window_s", "exposed_s"):
            row[name] = float(getattr(outcome, name)[k])
        rows.append(row)
    _print_figures(file, outcome.policy, figures, "policy", {"boundaries": rows}, as_json)
    if options["phases"] and not as_json:
        for row in rows:
            click.echo(
                f"  rail {row['rail']} stage {row['stage']} {row['dimension']}"
                f" ({row['operations']} operations): window {row['window_s']:.6g} s,"
                f" exposed {row['exposed_s']:.6g} s, {row['circuits']} new circuits"
            )
    return SOLVED


def _time_step(
    subject: RailJob | Solution, policy: str | None, changes: dict[str, Any]
) -> tuple[RailJob, RailSimulation]:
    """Return the job, with the changed network, and the times of a step.

    They are those of a plan, or of a simulation under a policy, None for on demand. `changes` are
    fields of the network by name. A plan, whose times are given, can have no other network.
    """
    from optmatch.problems.rails.execution.plan import RailPlan
    from optmatch.simulation.rails.replay import read_plan, simulate_rails

    job: Any = subject.problem if isinstance(subject, Solution) else subject
    if "packet_bytes_per_s" in changes:
        raise InputError("--packet-rate: there is no packet network beside rails")
    if policy is None and isinstance(subject, Solution) and isinstance(subject.answer, RailPlan):
        if changes:
            raise InputError("a plan has its times: give --policy to simulate its job anew")
        return job, read_plan(job, subject.answer)
    job = replace(job, network=replace(job.network, **changes))
    chosen_policy: Any = policy or "on-demand"
    return job, simulate_rails(job, chosen_policy)


# Policies that are compared where none is chosen, beside all links at once.
_COMPARED_POLICIES = ("on-demand", "provisioned", "prefetch")


def _simulate_with_jitter(
    file: str, subject: RailJob | Solution, options: dict[str, Any], as_json: bool
) -> int:
    """Print the step times of many runs in which computations last unevenly long.

    `subject` is a job, or the solution with its plan. Runs are those of a plan, or of the plans of
    several policies, and of all links at once. The option "jitter" is the standard deviation of
    the factor of each computation, and "output" a picture.
    """
    from optmatch.simulation.rails.replay import simulate_jitter

    job: Any = subject.problem if isinstance(subject, Solution) else subject
    draw_options = {name: options[name] for name in ("runs", "seed") if options[name] is not None}
    figures_of_policy = {}
    for policy, plan in _plans_to_compare(subject, options["policy"]).items():
        step_s = simulate_jitter(job, plan, options["jitter"], **draw_options)
        figures_of_policy[policy] = {
            "planned_s": job.lower_bound() if plan is None else plan.step_s,
            "mean_s": float(step_s.mean()),
            "p99_s": float(np.percentile(step_s, 99)),
            "most_s": float(step_s.max()),
        }

    if options["output"] is not None:
        from optmatch.plotting import plot_jitter, save_figure

        table = [{"policy": name, **figures} for name, figures in figures_of_policy.items()]
        draw = partial(plot_jitter, table)
        save_figure(draw, options["output"], force=options["force"])
        say(f"{options['output']}: written")

    if as_json:
        content = {"file": file, "jitter": options["jitter"], "policies": figures_of_policy}
        print_object("jitter", content)
    else:
        for name, figures in figures_of_policy.items():
            click.echo(f"{name_of(file)}: {name}")
            print_rows(figures)
    return SOLVED


def _plans_to_compare(
    subject: RailJob | Solution, policy: str | None
) -> dict[str, RailPlan | None]:
    """Return the plans whose step times are compared, by name.

    They are that of a solution, or those of a job under a policy, None for all that are usually
    compared. The last one, "all-links", is None: every circuit is up at all times.
    """
    from optmatch.entrances import solve

    plans: dict[str, RailPlan | None] = {}
    if isinstance(subject, Solution):
        plans["plan"] = _plan_of(subject)
    else:
        policies = _COMPARED_POLICIES if policy is None else [policy]
        for name in policies:
            if name != "all-links":
                plans[name] = _plan_of(solve(subject, method=name))
    plans["all-links"] = None
    return plans


def _replay_triggers(path: str, subject: RailJob | Solution) -> Solution:
    """Return the valid plan that follows from a file of triggers, with the times of a replay.

    A trigger is one change of the circuits of a rail. The file does not say when a trigger comes,
    but has one order of all triggers and operations; it is an `InputError` if no plan follows from
    it.
    """
    from optmatch.entrances import verify
    from optmatch.io.rails.triggers import read_triggers
    from optmatch.problems.rails.execution.orders import check_triggers, retime

    job: Any = subject.problem if isinstance(subject, Solution) else subject
    triggers = read_triggers(path, job)
    plan = retime(job, check_triggers(job, triggers), triggers)

    # A file of another program may order things so that they cannot be.
    violations = verify(job, plan).violations
    if violations:
        raise InputError(f"no valid plan follows from its order: {violations[0]}", path=path)
    return Solution(
        problem=job,
        answer=plan,
        status=Status.FEASIBLE,
        limit=Limit.EXHAUSTED,
        objective=plan.step_s,
        method="triggers",
    )


def _plan_of(solution: Solution) -> RailPlan:
    """Return the plan of a solution of a rail job; an `InputError` if it has none."""
    from optmatch.problems.rails.execution.plan import RailPlan

    if not isinstance(solution.answer, RailPlan):
        raise InputError("there is no plan in it")
    return solution.answer
