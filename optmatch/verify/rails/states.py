"""The states of a timeline in a rail plan: they fit the switch, its cells, and their times."""

from __future__ import annotations

import numpy as np

from optmatch.model import FREE, IDLE, Schedule
from optmatch.problems.rails.execution.plan import RailTimeline
from optmatch.verify.rails.context import MOST_TOLD, Context
from optmatch.verify.routing.light import check_light


def check_timeline(context: Context, number: int, n_gpus: int) -> bool:
    """Check the states of a timeline and their times; False if they fit no rail."""
    job, findings, timeline = context.job, context.findings, context.plan.rails[number]
    where, matchings = f"rails[{number}]", timeline.matchings
    needed = n_gpus * job.network.ports_per_gpu
    expected = needed if job.fabric is None else job.fabric.n_ports
    width = matchings.shape[1]
    if not findings.expect("the switch has its ports", f"{where}.matchings", width, expected):
        return False
    if job.network.radix is not None and needed > job.network.radix:
        findings.refuse("a rail fits its switch", where, needed, job.network.radix)
    live = np.arange(expected) if job.fabric is None else job.fabric.live_ports
    foreign = np.isin(np.arange(expected), live[:needed], invert=True)
    strange = (matchings != IDLE) & (foreign | foreign[matchings])
    for state, port in np.argwhere(strange)[:MOST_TOLD]:
        at, got = f"{where}.matchings[{state}, {port}]", int(matchings[state, port])
        findings.refuse("only ports of GPUs have circuits", at, got, IDLE)
    if not np.array_equal(matchings[0], matchings[-1]):
        rule = "a step ends with the circuits it begins with"
        findings.refuse(
            rule, f"{where}.matchings[-1]", "other circuits", "those of the first state"
        )
    _check_state_times(context, timeline, where)
    _check_states(context, timeline, where)
    return True


def _check_state_times(context: Context, timeline: RailTimeline, where: str) -> None:
    job, findings, slack = context.job, context.findings, context.slack_s
    asked, starts = timeline.asked_s, timeline.starts_s
    findings.expect("the first state is there", f"{where}.starts_s[0]", float(starts[0]), 0.0)
    findings.expect("the first state is there", f"{where}.asked_s[0]", float(asked[0]), 0.0)
    for state in np.flatnonzero((asked < 0) | (asked > starts + slack))[:MOST_TOLD]:
        findings.refuse(
            "a state is asked for before it is set up",
            f"{where}.asked_s[{state}]",
            float(asked[state]),
            f"from 0 to {starts[state]:g}",
        )
    if job.network.switching == "all-stop":
        for state in (
            np.flatnonzero(np.diff(starts[1:]) < job.network.delay_s - slack)[:MOST_TOLD] + 2
        ):
            findings.refuse(
                "reconfigurations follow one another",
                f"{where}.starts_s[{state}]",
                float(starts[state]),
                float(starts[state - 1] + job.network.delay_s),
            )


def _check_states(context: Context, timeline: RailTimeline, where: str) -> None:
    """Trace the light of every state, and check that bidirectional circuits are mutual."""
    matchings, fabric, findings = timeline.matchings, context.job.fabric, context.findings
    if fabric is not None and fabric.bidirectional:
        back = np.where(matchings == IDLE, IDLE, np.take_along_axis(matchings, matchings, 1))
        own = np.broadcast_to(np.arange(matchings.shape[1]), matchings.shape)
        for state, port in np.argwhere((matchings != IDLE) & ((back != own) | (matchings == own))):
            findings.refuse(
                "circuits of bidirectional ports are mutual",
                f"{where}.matchings[{state}, {port}]",
                int(matchings[state, port]),
                "a port that comes back",
            )
            return
    if fabric is None or fabric.graph is None:
        findings.expect("an ideal switch has no cells", where, timeline.cell_states, None)
        return
    shape = len(matchings), fabric.n_cells
    states = timeline.cell_states
    got: tuple[int, ...] | None = None if states is None else states.shape
    if not findings.expect("every cell has a state", f"{where}.cell_states", got, shape):
        return
    clipped = None if states is None else np.clip(states, FREE, 1)
    every = Schedule(matchings=matchings, durations_s=np.ones(len(matchings)), cell_states=clipped)
    check_light(fabric, every, findings)
