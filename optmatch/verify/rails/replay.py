"""The replay of a rail plan: states of the switches, circuits of each operation, times, bound."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import FREE, IDLE, Schedule, Solution, Status
from optmatch.problems import RailJob, RailPlan
from optmatch.problems.rails.plan import RailTimeline
from optmatch.verify.bounds import check_objective, check_support
from optmatch.verify.rails.circuits import check_rail, open_rail
from optmatch.verify.rails.relays import check_forwarded
from optmatch.verify.rails.times import SLACK, Work, bound_step, check_times, measure_work
from optmatch.verify.report import Findings, agree
from optmatch.verify.routing.light import check_light


def verify_rails(
    problem: RailJob, subject: Schedule | RailPlan | Solution, findings: Findings
) -> None:
    """Replay a plan and, of a solution, check its claims."""
    work = measure_work(problem)
    bound = findings.figures["lower_bound_recomputed"] = bound_step(problem, work)
    if not isinstance(subject, Solution):
        _replay(problem, subject, work, findings)
        return
    findings.expect(
        "the solution is one of this problem", "problem", subject.problem == problem, True
    )
    answered = subject.status in (Status.OPTIMAL, Status.FEASIBLE)
    replayed = answered and _replay(problem, subject.answer, work, findings)
    if not answered and subject.answer is not None:
        findings.refuse("a plan answers it", "status", subject.status.value, "optimal or feasible")
    findings.expect("there is no schedule beside a plan", "schedule", subject.schedule, None)
    findings.expect("bounds of rail jobs need no proof", "certificate", subject.certificate, None)
    findings.figures["lower_bound_checked"] = bound
    claimed = check_support(subject, bound, findings)
    if not (claimed >= bound or agree(claimed, bound)):
        findings.refuse(
            "the lower bound is not below that of all links", "lower_bound", claimed, bound
        )
    if replayed:
        check_objective(subject, findings)
    elif answered:
        findings.skipped.append("objective: nothing could be replayed")
    for name, value in subject.stats.items():
        got = findings.figures.get(name)
        if got is not None and not agree(value, got):
            findings.refuse("statistics are as recomputed", f"stats[{name!r}]", value, got)


def _replay(job: RailJob, plan: object, work: Work, findings: Findings) -> bool:
    """Apply all rules of plans; False if there is nothing to apply them to."""
    step = job.step()
    if not isinstance(plan, RailPlan):
        findings.refuse("the answer is a plan", "answer", type(plan).__name__, "RailPlan")
        return False
    if not findings.expect(
        "every operation has its times", "start_s", len(plan.start_s), step.n_operations
    ):
        return False
    members: dict[int, set[int]] = {}
    for group in step.groups:
        if group.rail >= 0:
            members.setdefault(group.rail, set()).update(group.ranks)
    planned = {rail: timeline for timeline in plan.rails for rail in timeline.rails}
    if not findings.expect("every rail has a timeline", "rails", sorted(planned), sorted(members)):
        return False
    check_times(job, plan, work, findings)
    _check_quiet(plan, work, findings)
    sound = [
        _check_timeline(job, plan, k, len(members[timeline.rails[0]]), findings)
        for k, timeline in enumerate(plan.rails)
        if timeline.rails
    ]
    if not all(sound):
        findings.skipped.append("circuits: states that are no matchings of a rail define none")
        return True
    if not check_forwarded(job, plan, work, findings):
        findings.skipped.append("circuits: what is forwarded has no way")
        return True
    for rail in sorted(planned):
        ranks = np.array(sorted(members[rail]), dtype=np.int64)
        check_rail(job, plan, open_rail(job, rail, ranks, planned[rail]), work, findings)
    _add_figures(plan, findings)
    return True


def _check_quiet(plan: RailPlan, work: Work, findings: Findings) -> None:
    """Check that what rides no rail uses no port."""
    for operation in np.flatnonzero(~work.on_rail & (plan.ports != 0))[:5]:
        findings.refuse(
            "what rides no rail uses no port",
            f"ports[{operation}]",
            int(plan.ports[operation]),
            0,
        )


def _check_timeline(
    job: RailJob, plan: RailPlan, number: int, n_gpus: int, findings: Findings
) -> bool:
    """Check the states of a timeline and their times; False if they fit no rail."""
    timeline = plan.rails[number]
    where, slack = f"rails[{number}]", SLACK * max(plan.step_s, 1e-9)
    needed = n_gpus * job.network.ports_per_gpu
    expected = needed if job.fabric is None else job.fabric.n_ports
    width = timeline.matchings.shape[1]
    if not findings.expect("the switch has its ports", f"{where}.matchings", width, expected):
        return False
    if job.network.radix is not None and needed > job.network.radix:
        findings.refuse("a rail fits its switch", where, needed, job.network.radix)
    live = np.arange(expected) if job.fabric is None else job.fabric.live_ports
    foreign = np.setdiff1d(np.arange(expected), live[:needed])
    for state, port in np.argwhere(timeline.matchings[:, foreign] != IDLE)[:5]:
        findings.refuse(
            "only ports of GPUs have circuits",
            f"{where}.matchings[{state}, {foreign[port]}]",
            int(timeline.matchings[state, foreign[port]]),
            IDLE,
        )
    used = timeline.matchings[timeline.matchings != IDLE]
    for port in np.setdiff1d(used, live[:needed])[:5]:
        findings.refuse("only ports of GPUs have circuits", f"{where}.matchings", int(port), IDLE)
    if not np.array_equal(timeline.matchings[0], timeline.matchings[-1]):
        findings.refuse(
            "a step ends with the circuits it begins with",
            f"{where}.matchings[-1]",
            "other circuits",
            "those of the first state",
        )
    _check_state_times(job, timeline, where, slack, findings)
    _check_states(job, timeline, where, findings)
    return True


def _check_state_times(
    job: RailJob,
    timeline: RailTimeline,
    where: str,
    slack: float,
    findings: Findings,
) -> None:
    asked, starts = timeline.asked_s, timeline.starts_s
    findings.expect("the first state is there", f"{where}.starts_s[0]", float(starts[0]), 0.0)
    findings.expect("the first state is there", f"{where}.asked_s[0]", float(asked[0]), 0.0)
    for state in np.flatnonzero((asked < 0) | (asked > starts + slack))[:5]:
        findings.refuse(
            "a state is asked for before it is set up",
            f"{where}.asked_s[{state}]",
            float(asked[state]),
            f"from 0 to {starts[state]:g}",
        )
    if job.network.switching == "all-stop":
        for state in np.flatnonzero(np.diff(starts[1:]) < job.network.delay_s - slack)[:5] + 2:
            findings.refuse(
                "reconfigurations follow one another",
                f"{where}.starts_s[{state}]",
                float(starts[state]),
                float(starts[state - 1] + job.network.delay_s),
            )


def _check_states(job: RailJob, timeline: RailTimeline, where: str, findings: Findings) -> None:
    """Trace the light of every state, and check that bidirectional circuits are mutual."""
    matchings, fabric = timeline.matchings, job.fabric
    if fabric is None:
        findings.expect("an ideal switch has no cells", where, timeline.cell_states, None)
        return
    if fabric.bidirectional:
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
    if fabric.graph is None:
        findings.expect("an ideal switch has no cells", where, timeline.cell_states, None)
        return
    shape = len(matchings), fabric.n_cells
    states = timeline.cell_states
    got: tuple[int, ...] | None = None if states is None else states.shape
    if not findings.expect("every cell has a state", f"{where}.cell_states", got, shape):
        return
    check_light(fabric, _as_schedule(matchings, states), findings)


def _as_schedule(matchings: NDArray[np.int32], states: NDArray[np.int8] | None) -> Schedule:
    clipped = None if states is None else np.clip(states, FREE, 1)
    return Schedule(matchings=matchings, durations_s=np.ones(len(matchings)), cell_states=clipped)


def _add_figures(plan: RailPlan, findings: Findings) -> None:
    figures = findings.figures
    figures["objective"] = plan.step_s
    figures["reconfigurations"] = sum(
        timeline.n_reconfigurations * len(timeline.rails) for timeline in plan.rails
    )
    changed = 0
    for timeline in plan.rails:
        rows = timeline.matchings
        new = (rows[1:] != rows[:-1]) & (rows[1:] != IDLE)
        changed += int(new.sum()) * len(timeline.rails)
    figures["circuits_changed"] = changed
