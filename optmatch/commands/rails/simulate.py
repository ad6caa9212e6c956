"""`optmatch simulate` of rail jobs and their plans: step time, windows, exposed switches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared.options import FORCE
from optmatch.commands.shared.outcome import (
    SOLVED,
    name_of,
    print_object,
    print_rows,
    say,
)
from optmatch.model import InputError, Limit, Solution, Status

if TYPE_CHECKING:
    from optmatch.problems import RailJob
    from optmatch.problems.rails.execution.plan import RailPlan
    from optmatch.simulation.rails.replay import RailSimulation

POLICIES = ("on-demand", "provisioned", "static", "all-links")


def simulate_rail_file(
    file: str,
    subject: RailJob | Solution,
    changes: dict[str, Any],
    options: dict[str, Any],
    as_json: bool,
) -> int:
    """Simulate a rail job or its plan, print the figures, and return the exit code.

    Fields of the network are replaced by `changes`. `options` has the values of `OPTIONS`, and
    ``policy`` and ``phases``.
    """
    with_jitter = options["jitter"] is not None
    if changes and (options["triggers"] is not None or with_jitter):
        raise InputError("--jitter and --triggers take the job as it is")
    if options["output"] is not None and not with_jitter:
        raise InputError("-o is for --jitter")

    if options["triggers"] is not None:
        subject = _replay_triggers(options["triggers"], subject)
    if with_jitter:
        return _simulate_with_jitter(file, subject, options, as_json)
    return _simulate_step(file, subject, changes, options, as_json)


def _simulate_step(
    file: str,
    subject: RailJob | Solution,
    changes: dict[str, Any],
    options: dict[str, Any],
    as_json: bool,
) -> int:
    """Print the events of one training step.

    It is that of a plan as it stands, or of a job under a policy: the rule by which switches
    change circuits between phases. `changes` are fields of the network that are replaced, by name;
    the option "phases" lists each phase. A boundary is where a stage of a rail goes from one
    phase, with its circuits, to the next; its window lasts from the end of the phase before until
    an operation of the next one is ready, and the wait of that operation for its circuits is
    exposed.
    """
    import numpy as np

    job, outcome = _simulate(subject, options["policy"], changes)

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
    if as_json:
        boundaries = _phase_rows(job, outcome)
        print_object("simulation", {"file": file, **figures, "boundaries": boundaries})
        return SOLVED

    click.echo(f"{name_of(file)}: {outcome.policy}")
    print_rows({name: value for name, value in figures.items() if name != "policy"})
    if options["phases"]:
        for row in _phase_rows(job, outcome):
            click.echo(
                f"  rail {row['rail']} stage {row['stage']} {row['dimension']}"
                f" ({row['operations']} operations): window {row['window_s']:.6g} s,"
                f" exposed {row['exposed_s']:.6g} s, {row['circuits']} new circuits"
            )
    return SOLVED


def _simulate(
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


def _phase_rows(job: RailJob, outcome: RailSimulation) -> list[dict[str, Any]]:
    """Return a row for each phase of a step, in which a stage of a rail needs the same circuits.

    It says where the phase is, whether and which circuits are switched before it, and when these
    are asked for, begun and ready. ``window_s`` is the time between the phase before and the first
    operation that is ready, ``exposed_s`` how long this operation waits for its circuits, in
    seconds.
    """
    rows = []
    for k, phase in enumerate(job.phases()):
        is_switched = bool(outcome.switched[k])
        row = {
            "rail": phase.rail,
            "stage": phase.stage,
            "position": phase.position,
            "dimension": phase.dimension,
            "operations": phase.n_operations,
            "switched": is_switched,
            "circuits": int(outcome.circuits[k]) if is_switched else 0,
            "asked_s": float(outcome.asked_s[k]),
            "begun_s": float(outcome.begun_s[k]),
            "ready_s": float(outcome.ready_s[k]),
            "window_s": float(outcome.window_s[k]),
            "exposed_s": float(outcome.exposed_s[k]),
        }
        rows.append(row)
    return rows


OPTIONS = (
    click.option(
        "--jitter",
        type=float,
        help="Rail jobs: standard deviation of the factor drawn for each computation; prints mean"
        " and 99th percentile of the step time under each policy, or of a plan.",
    ),
    click.option("--runs", type=int, help="With --jitter: how many steps.  [default: 100]"),
    click.option(
        "--triggers",
        type=click.Path(),
        help="Rail jobs: replay what follows from these triggers, if nothing is late.",
    ),
    click.option("--seed", type=int, help="The seed of everything random.  [default: 0]"),
    click.option(
        "-o", "--output", type=click.Path(), help="With --jitter: draw it, as .png, .svg or .pdf"
    ),
    FORCE,
)
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
    job: Any = subject.problem if isinstance(subject, Solution) else subject
    figures_of_policy = {}
    for policy, plan in _plans_to_compare(subject, options["policy"]).items():
        figures_of_policy[policy] = _jitter_figures(job, plan, options)

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


def _jitter_figures(
    job: RailJob, plan: RailPlan | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Return the planned step time and figures of runs with uneven computations.

    They are mean, 99th percentile and maximum, in seconds. A plan of None has all links up at all
    times.
    """
    import numpy as np

    from optmatch.simulation.rails.replay import simulate_jitter

    draw_options = {name: options[name] for name in ("runs", "seed") if options[name] is not None}
    step_s = simulate_jitter(job, plan, options["jitter"], **draw_options)
    return {
        "planned_s": job.lower_bound() if plan is None else plan.step_s,
        "mean_s": float(step_s.mean()),
        "p99_s": float(np.percentile(step_s, 99)),
        "most_s": float(step_s.max()),
    }


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
