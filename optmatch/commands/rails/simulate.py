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


def simulate_job(
    file: str,
    subject: RailJob | Solution,
    policy: str | None,
    changes: dict[str, Any],
    phases: bool,
    as_json: bool,
) -> int:
    """Print the events of one step: of a plan as it stands, or of a job under a policy."""
    import numpy as np

    job, outcome = _outcome(subject, policy, changes)
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
        print_object("simulation", {"file": file, **figures, "boundaries": _rows(job, outcome)})
        return SOLVED
    click.echo(f"{name_of(file)}: {outcome.policy}")
    print_rows({name: value for name, value in figures.items() if name != "policy"})
    if phases:
        for row in _rows(job, outcome):
            click.echo(
                f"  rail {row['rail']} stage {row['stage']} {row['dimension']}"
                f" ({row['operations']} operations): window {row['window_s']:.6g} s,"
                f" exposed {row['exposed_s']:.6g} s, {row['circuits']} new circuits"
            )
    return SOLVED


def _outcome(
    subject: RailJob | Solution, policy: str | None, changes: dict[str, Any]
) -> tuple[RailJob, RailSimulation]:
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
    chosen: Any = policy or "on-demand"
    return job, simulate_rails(job, chosen)


def _rows(job: RailJob, outcome: RailSimulation) -> list[dict[str, Any]]:
    names = ("asked_s", "begun_s", "ready_s", "window_s", "exposed_s")
    return [
        {
            "rail": phase.rail,
            "stage": phase.stage,
            "position": phase.position,
            "dimension": phase.dimension,
            "operations": phase.n_operations,
            "switched": bool(outcome.switched[k]),
            "circuits": int(outcome.circuits[k]) if outcome.switched[k] else 0,
            **{name: float(getattr(outcome, name)[k]) for name in names},
        }
        for k, phase in enumerate(job.phases())
    ]


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
_PLANNED = ("on-demand", "provisioned", "prefetch")


def shake_job(
    file: str,
    subject: RailJob | Solution,
    policy: str | None,
    options: dict[str, Any],
    as_json: bool,
) -> int:
    """Print the step times of many runs: of a plan, or of policies and all links at once."""
    import numpy as np

    from optmatch.entrances import solve
    from optmatch.simulation.rails.replay import simulate_jitter

    drawn = {name: options[name] for name in ("runs", "seed") if options[name] is not None}
    job: Any = subject.problem if isinstance(subject, Solution) else subject
    plans: dict[str, Any] = {}
    if isinstance(subject, Solution):
        plans["plan"] = _plan_of(subject)
    else:
        for method in _PLANNED if policy is None else [policy]:
            plans[method] = None if method == "all-links" else _plan_of(solve(job, method=method))
    plans |= {"all-links": None}
    rows = {}
    for name, plan in plans.items():
        step_s = simulate_jitter(job, plan, options["jitter"], **drawn)
        planned = job.lower_bound() if plan is None else plan.step_s
        rows[name] = {
            "planned_s": planned,
            "mean_s": float(step_s.mean()),
            "p99_s": float(np.percentile(step_s, 99)),
            "most_s": float(step_s.max()),
        }
    if options["output"] is not None:
        from optmatch.plotting import plot_study, save_figure

        tables = {"policies": [{"policy": name, **figures} for name, figures in rows.items()]}
        draw = partial(plot_study, "jitter", tables)
        save_figure(draw, options["output"], force=options["force"])
        say(f"{options['output']}: written")
    if as_json:
        print_object("jitter", {"file": file, "jitter": options["jitter"], "policies": rows})
    else:
        for name, figures in rows.items():
            click.echo(f"{name_of(file)}: {name}")
            print_rows(figures)
    return SOLVED


def replay_triggers(path: str, subject: RailJob | Solution) -> Solution:
    """Return the plan that follows from a file of triggers, with the times of its replay.

    Raises
    ------
    InputError
        If the file is none of this job, or no valid plan follows from its order.
    """
    from optmatch.entrances import verify
    from optmatch.io.rails.triggers import read_triggers
    from optmatch.problems.rails.execution.orders import check_triggers, retime

    job: Any = subject.problem if isinstance(subject, Solution) else subject
    triggers = read_triggers(path, job)
    plan = retime(job, check_triggers(job, triggers), triggers)
    for violation in verify(job, plan).violations[:1]:
        raise InputError(f"no valid plan follows from its order: {violation}", path=path)
    return Solution(
        problem=job,
        answer=plan,
        status=Status.FEASIBLE,
        limit=Limit.EXHAUSTED,
        objective=plan.step_s,
        method="triggers",
    )


def _plan_of(solution: Solution) -> RailPlan:
    from optmatch.problems.rails.execution.plan import RailPlan

    if not isinstance(solution.answer, RailPlan):
        raise InputError("there is no plan in it")
    return solution.answer
