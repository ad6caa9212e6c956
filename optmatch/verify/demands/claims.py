"""The rules of solutions of demands: what is claimed must follow from what is recomputed."""

from __future__ import annotations

from collections.abc import Sequence

from optmatch.model import Schedule, Solution, Status
from optmatch.problems import Demand, PlaneSchedules
from optmatch.verify.bounds import check_objective, check_stats, check_support
from optmatch.verify.demands.bounds import bound_demand, check_proof
from optmatch.verify.demands.replay import replay_demand
from optmatch.verify.report import Findings, ProofError


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
    if not isinstance(subject, Solution):
        replay_demand(problem, _schedules(subject), findings)
        findings.figures["lower_bound_recomputed"] = bound_demand(problem)
        return
    findings.expect(
        "the solution is one of this problem", "problem", subject.problem == problem, True
    )
    answered = subject.status in (Status.OPTIMAL, Status.FEASIBLE)
    form, wanted = ("answer", PlaneSchedules) if problem.planes > 1 else ("schedule", Schedule)
    answer, other = getattr(subject, form), "schedule" if form == "answer" else "answer"
    replayed = False
    if isinstance(answer, wanted):
        replayed = replay_demand(problem, _schedules(answer), findings)
    elif answered:
        rule = "the answer is a schedule for each plane"
        findings.refuse(rule, form, type(answer).__name__, wanted.__name__)
    findings.expect("there is one answer", other, getattr(subject, other), None)
    if not answered and (subject.schedule is not None or subject.answer is not None):
        rule = "a schedule answers the problem"
        findings.refuse(rule, "status", subject.status.value, "optimal or feasible")
    _check_bound(problem, subject, findings)
    if subject.status is Status.UNKNOWN:
        findings.notes.append("status unknown: there is no answer to check")
    elif replayed:
        check_objective(subject, findings)
    elif answered:
        findings.skipped.append("objective: nothing could be replayed")
    check_stats(subject, findings)


def _schedules(answer: Schedule | PlaneSchedules) -> Sequence[Schedule]:
    return answer.schedules if isinstance(answer, PlaneSchedules) else (answer,)


def _check_bound(problem: Demand, solution: Solution, findings: Findings) -> None:
    """Check that the claimed bound is the line bound, or shown by a proof, or a search's."""
    recomputed = checked = bound_demand(problem)
    if solution.certificate is not None:
        try:
            checked = max(checked, check_proof(problem, solution.certificate))
        except ProofError as exc:
            findings.refuse("the certificate is a proof", "certificate", str(exc), "a valid proof")
    findings.figures["lower_bound_recomputed"] = recomputed
    findings.figures["lower_bound_checked"] = checked
    floor = "the lower bound is not below the busiest line"
    check_support(solution, checked, findings, floor=floor)
