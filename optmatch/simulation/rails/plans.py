"""What a plan of rails says: windows, exposed delays and changed circuits, as of a simulation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, InputError
from optmatch.problems import RailJob
from optmatch.problems.rails.plan import RailPlan, RailTimeline, ranks_of_rails
from optmatch.simulation.rails.replay import RailSimulation


def read_plan(job: RailJob, plan: RailPlan) -> RailSimulation:
    """Measure a plan at the boundaries of phases.

    Parameters
    ----------
    job
        What the plan answers.
    plan
        The plan. That it is true is for ``verify`` to say.

    Returns
    -------
    RailSimulation
        With policy ``"plan"``. A boundary is switched if a port of its stage has another
        partner when the phase begins than it had in the last operation of the one before.

    Raises
    ------
    InputError
        If the plan has not as many operations as the step, or lacks a rail.
    """
    step, phases = job.step(), job.phases()
    if len(plan.start_s) != step.n_operations:
        raise InputError(
            f"a plan of {len(plan.start_s)} operations, the step has {step.n_operations}",
            where="start_s",
        )
    given = job.events()
    ready = np.zeros(len(given.part))
    np.maximum.at(ready, given.after, plan.end_s[given.part][given.before])
    ready_s = ready[given.event_of]
    timelines = {rail: timeline for timeline in plan.rails for rail in timeline.rails}
    places = ranks_of_rails(step)
    rows = []
    for k, phase in enumerate(phases):
        if phase.rail not in timelines:
            raise InputError(f"the plan lacks rail {phase.rail}", where="rails")
        before = phases[k - 1] if phase.position else None
        ended = float(plan.end_s[before.last].max()) if before else 0.0
        first = phase.first[np.argmin(ready_s[phase.first])]
        wanted, began = float(ready_s[first]), float(plan.start_s[first])
        members = np.searchsorted(places[phase.rail], phase.ranks)
        used = float(plan.start_s[before.last].max()) if before else -np.inf
        state, changed, circuits = _change(timelines[phase.rail], job, members, used, began)
        timeline = timelines[phase.rail]
        asked = (timeline.asked_s[state], timeline.starts_s[state]) if changed else (0.0, 0.0)
        done = asked[1] + job.network.delay_s if changed else 0.0
        window, exposed = max(0.0, wanted - ended), max(0.0, began - max(wanted, ended))
        rows.append((*asked, done, window, exposed, circuits, changed))
    table = np.array(rows, dtype=np.float64).reshape(-1, 7)
    names = ("asked_s", "begun_s", "ready_s", "window_s", "exposed_s")
    return RailSimulation(
        policy="plan",
        delay_s=job.network.delay_s,
        step_s=plan.step_s,
        start_s=plan.start_s,
        end_s=plan.end_s,
        switched=table[:, 6] != 0,
        circuits=table[:, 5].astype(np.int64),
        **dict(zip(names, table[:, :5].T, strict=True)),
    )


def _change(
    timeline: RailTimeline, job: RailJob, members: NDArray[np.int64], used: float, began: float
) -> tuple[int, bool, int]:
    """Return the state at a moment, whether ports changed since another, and new circuits."""
    k = job.network.ports_per_gpu
    ports = (members[:, None] * k + np.arange(k)).reshape(-1)
    states = np.searchsorted(timeline.starts_s, [used, began], side="right") - 1
    states = np.maximum(states, 0)  # before the step: what the first state is
    rows = timeline.matchings[states]
    (old, new), (old_from, new_from) = (
        rows[:, ports],
        np.stack(list(map(_inverse, rows)))[:, ports],
    )
    changed = bool((new != old).any() or (new_from != old_from).any())
    return int(states[1]), changed, int(((new != old) & (new != IDLE)).sum())


def _inverse(matching: NDArray[np.int32]) -> NDArray[np.int64]:
    senders = np.flatnonzero(matching != IDLE)
    found = np.full(len(matching), IDLE, np.int64)
    found[matching[senders]] = senders
    return found
