"""The rules of solutions of demands: what is claimed must follow from what is recomputed."""

from __future__ import annotations

from functools import partial

from optmatch.model import Schedule, Solution
from optmatch.problems import Demand, PlaneSchedules
from optmatch.verify.bounds import check_solution
from optmatch.verify.demands.bounds import bound_demand, check_proof
from optmatch.verify.demands.replay import replay_demand
from optmatch.verify.report import Findings


def verify_demand(
    problem: Demand, subject: Schedule | PlaneSchedules | Solution, findings: Findings
) -> None:
    """Replay an answer to a demand and, of a solution, check its claims."""
    if problem.objective == "matchings":
        findings.step = 1.0
    elif (
        problem.objective == "completion-s" and problem.packet_share == 0
    ):  # packets may end between two ticks
        findings.step = problem.tick_s
    form, wanted = ("answer", PlaneSchedules) if problem.planes > 1 else ("schedule", Schedule)

    def replay(answer: Schedule | PlaneSchedules) -> bool:
        if not isinstance(answer, wanted if isinstance(subject, Solution) else object):
            rule = "the answer is a schedule for each plane"
            findings.refuse(rule, form, type(answer).__name__, wanted.__name__)
            return False
        schedules = answer.schedules if isinstance(answer, PlaneSchedules) else (answer,)
        return replay_demand(problem, schedules, findings)

    findings.figures["lower_bound_recomputed"] = bound_demand(problem)
    if not isinstance(subject, Solution):
        replay(subject)
        return
    check_solution(
        problem,
        subject,
        findings,
        replay=replay,
        form=form,
        prove=partial(check_proof, problem),
        floor="the lower bound is not below what ports need",
    )
