"""`optmatch simulate` of rail jobs and their plans: step time, windows, exposed switches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared.options import FORCE
from optmatch.commands.shared.outcome import (
    CHECK_FAILED,
    SOLVED,
    name_of,
    paint,
    print_object,
    print_rows,
    say,
)
from optmatch.commands.shared.progress import listening
from optmatch.model import InputError, Solution

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
        "--execute",
        "steps",
        type=int,
        help="Rail jobs: let controllers, one for each rail, run so many steps of a plan.",
    ),
    click.option(
        "--triggers", type=click.Path(), help="With --execute: the triggers, instead of a plan's."
    ),
    click.option(
        "--loss",
        type=float,
        help="With --execute: the part of messages that is lost, late, and doubled.  "
        "[default: 0.01]",
    ),
    click.option("--seed", type=int, help="The seed of everything random.  [default: 0]"),
    click.option(
        "-o", "--output", type=click.Path(), help="With --jitter: draw it, as .png, .svg or .pdf"
    ),
    FORCE,
)
_PLANNED = ("on-demand", "provisioned", "prefetch")
_COUNTS = ("sent_bytes", "dark_bytes", "messages", "lost", "fallbacks")


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


def execute_job(
    file: str, subject: RailJob | Solution, options: dict[str, Any], as_json: bool
) -> int:
    """Print what happens while controllers play triggers; a check fails if data meet the dark."""
    import numpy as np

    from optmatch.control.rails.executor import execute
    from optmatch.control.rails.ranks import Faults
    from optmatch.io.rails.triggers import read_triggers
    from optmatch.problems.rails.execution.derivation import derive_triggers

    job: Any = subject.problem if isinstance(subject, Solution) else subject
    if options["triggers"] is not None:
        plan = read_triggers(options["triggers"], job)
    elif isinstance(subject, Solution):
        plan = derive_triggers(job, _plan_of(subject))
    else:
        raise InputError("--execute needs a plan, or --triggers")
    given: dict[str, Any] = {}
    if options["jitter"] is not None:
        given["jitter"] = options["jitter"]
    if options["loss"] is not None:
        given |= dict.fromkeys(("loss", "late", "twice"), options["loss"])
    with listening(name_of(file)) as listen:
        done = execute(
            job,
            plan,
            steps=options["steps"],
            faults=Faults(**given),
            seed=options["seed"] or 0,
            on_event=listen,
        )
    figures = {
        "steps": len(done.step_s),
        "mean_s": float(done.step_s.mean()),
        "p99_s": float(np.percentile(done.step_s, 99)),
        **{name: getattr(done, name) for name in _COUNTS},
    }
    dark = done.dark_bytes > 0
    if as_json:
        print_object("execution", {"file": file, **figures})
    else:
        verdict = "DATA INTO THE DARK" if dark else "no data into the dark"
        click.echo(f"{name_of(file)}: {paint(verdict, not dark)}")
        print_rows(figures)
    return CHECK_FAILED if dark else SOLVED


def _plan_of(solution: Solution) -> RailPlan:
    from optmatch.problems.rails.execution.plan import RailPlan

    if not isinstance(solution.answer, RailPlan):
        raise InputError("there is no plan in it")
    return solution.answer
