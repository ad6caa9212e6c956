"""`optmatch simulate` of rail jobs and their plans: step time, windows, exposed switches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared.outcome import SOLVED, name_of, print_object, print_rows
from optmatch.model import InputError, Solution

if TYPE_CHECKING:
    from optmatch.problems import RailJob
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
    """Print what happens in one step: of a plan as it stands, or of a job under a policy."""
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
