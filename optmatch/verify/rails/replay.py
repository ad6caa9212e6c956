"""The replay of a rail plan: states of the switches, circuits of each operation, times, bound."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Schedule, Solution
from optmatch.problems import RailJob, RailPlan
from optmatch.problems.rails.execution.plan import ranks_of_rails
from optmatch.problems.rails.training.step import ALL_TO_ALL, RECV
from optmatch.verify.bounds import check_solution
from optmatch.verify.rails.circuits import Rail, Sent, check_timeline, open_rail
from optmatch.verify.rails.context import Context
from optmatch.verify.rails.exchanges import check_exchanges, check_in_rounds, check_stages
from optmatch.verify.rails.routes import check_forwarded, check_routes
from optmatch.verify.rails.times import bound_changes, bound_step, check_times, list_load
from optmatch.verify.report import Findings

_AT_ONCE = 1 << 18
"""The number of all-to-alls that are followed at once, to bound memory."""


@np.errstate(over="ignore", invalid="ignore")  # of times far beyond all: they are refused
def verify_rails(
    problem: RailJob, subject: Schedule | RailPlan | Solution, findings: Findings
) -> None:
    """Replay a plan and, of a solution, check its claims."""
    findings.figures["lower_bound_recomputed"] = bound_step(problem)
    if not isinstance(subject, Solution):
        _replay(problem, subject, findings)
        return
    floor = "the lower bound is not below that of all links"
    network, least = problem.network, findings.figures["lower_bound_recomputed"]
    one_way = problem.fabric is None or not problem.fabric.bidirectional
    if network.ports_per_gpu == 1 and network.switching == "per-circuit" and one_way:
        checked = bound_changes(problem)
        if checked > least:
            findings.figures["lower_bound_checked"] = checked
            findings.proof = "counting"
    replay = partial(_replay, problem, findings=findings)
    check_solution(problem, subject, findings, replay=replay, floor=floor)


def _replay(job: RailJob, plan: object, findings: Findings) -> bool:
    """Apply all rules of plans; False if there is nothing to apply them to."""
    step = job.step()
    if not isinstance(plan, RailPlan):
        findings.refuse("the answer is a plan", "answer", type(plan).__name__, "RailPlan")
        return False
    if not findings.expect(
        "every operation has its times", "start_s", len(plan.start_s), step.n_operations
    ):
        return False
    members = ranks_of_rails(step)
    planned = sorted(rail for timeline in plan.rails for rail in timeline.rails)
    if not findings.expect("every rail has a timeline", "rails", planned, list(members)):
        return False
    context = Context(job, step, plan, findings)
    check_times(context)
    loud = np.flatnonzero((step.rail < 0) & (plan.ports != 0))
    rule = "what rides no rail uses no port"
    context.refuse(rule, loud, np.ones(len(loud), bool), plan.ports[loud], 0)
    sound = [
        check_timeline(context, k, len(members[timeline.rails[0]]))
        for k, timeline in enumerate(plan.rails)
        if timeline.rails
    ]
    if not all(sound):
        findings.skipped.append("circuits: states that are no matchings of a rail define none")
        return False
    if not check_forwarded(context):
        findings.skipped.append("circuits: what is forwarded has no route")
        return False
    known: dict[tuple[str, bytes], int] = {}
    for timeline in plan.rails:
        load = None
        for number in timeline.rails:
            riding = np.flatnonzero(step.rail == number)
            own = list_load(context, members[number], riding, known)
            if load is None or not all(map(np.array_equal, own, load)):  # else: as checked
                _check_rail(context, open_rail(job, members[number], timeline), riding)
            load = load or own
    _add_figures(plan, findings)
    return True


def _check_rail(context: Context, rail: Rail, riding: NDArray[np.int64]) -> None:
    """Apply all rules of circuits to the operations on one rail."""
    job, step, ports = context.job, context.step, context.plan.ports
    wrong = (ports[riding] <= 0) | (ports[riding] >> job.network.ports_per_gpu != 0)
    rule = "an operation on a rail uses ports of its GPU"
    context.refuse(rule, riding, wrong, ports[riding], 1)
    if wrong.any():
        return
    senders = riding[step.kind[riding] != RECV]
    several = context.group_size[step.group[senders]] > 2
    scattered = senders[(step.kind[senders] == ALL_TO_ALL) & several]
    forwarded = np.unique(step.match[context.plan.relays[:, 0]])
    scattered = scattered[~np.isin(step.match[scattered], forwarded)]  # these go around a ring
    parts = np.array_split(scattered, 1 + len(scattered) // _AT_ONCE)
    exchanges = [check_exchanges(context, rail, part) for part in parts]
    staged = np.concatenate([scattered[:0], *(stages for _, stages in exchanges)])
    check_stages(context, rail, staged)
    changing = np.concatenate(
        [*(rounds for rounds, _ in exchanges), staged, check_in_rounds(context, rail, riding)]
    )
    staying = senders[~np.isin(senders, changing)]
    sent = check_routes(context, rail, riding, staying)
    _check_sharing(context, rail, changing, sent)


def _check_sharing(context: Context, rail: Rail, changing: NDArray[np.int64], sent: Sent) -> None:
    """Check that a port sends for one operation at a time."""
    step, plan = context.step, context.plan
    row, _, ports = rail.list_ports(step.rank[changing], plan.ports[changing])
    operation = np.concatenate([sent.operation, changing[row]])
    port = np.concatenate([sent.port, ports])
    order = np.lexsort([plan.end_s[operation], plan.start_s[operation], port])
    operation, port = operation[order], port[order]
    start, end = plan.start_s[operation][1:], plan.end_s[operation][:-1]
    overlap = (np.diff(port) == 0) & (start < end - context.slack_s)
    rule = "a port sends for one operation at a time"
    context.refuse(rule, operation[1:], overlap, start, end)


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
