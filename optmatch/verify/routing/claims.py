"""The rules of solutions: what is claimed about an answer must follow from what is recomputed."""

from __future__ import annotations

import math
from typing import Any

from optmatch.model import Solution, Status
from optmatch.problems import AllToAll, Routing, RoutingProof
from optmatch.verify.bounds import SEARCHES, check_objective, check_stats, check_support
from optmatch.verify.report import Findings, ProofError
from optmatch.verify.routing.light import Traced
from optmatch.verify.routing.proofs import Circuit, ProofChecker


def check_claims(
    problem: AllToAll | Routing, solution: Solution, traced: Traced | None, findings: Findings
) -> None:
    """Check everything that a solution says besides its schedule.

    Parameters
    ----------
    problem
        The question that was asked.
    solution
        Its alleged answer.
    traced
        The light of its schedule; None if there is none, or it could not be traced.
    findings
        Has the recomputed figures, receives violations and notes.
    """
    findings.expect(
        "the solution is one of this problem", "problem", solution.problem == problem, True
    )
    answered = solution.status in (Status.OPTIMAL, Status.FEASIBLE)
    if solution.schedule is None and answered:
        findings.refuse("the answer is a schedule", "schedule", None, "a schedule")
    findings.expect("the schedule is the whole answer", "answer", solution.answer, None)
    if not answered and solution.schedule is not None:
        findings.refuse(
            "a schedule answers the problem",
            "status",
            solution.status.value,
            "optimal or feasible",
        )
    checked = _support_bound(problem, solution, findings)
    findings.figures["lower_bound_checked"] = checked
    floor = "the lower bound is not below the shortest routes" if solution.schedule else ""
    check_support(solution, checked, findings, floor=floor)
    if solution.status is Status.UNKNOWN:
        findings.notes.append("status unknown: there is no answer to check")
    elif answered and traced is not None:
        _check_answer(solution, findings)
    elif answered:
        findings.skipped.append("objective: no light could be traced")
    check_stats(solution, findings)


def _support_bound(problem: AllToAll | Routing, solution: Solution, findings: Findings) -> float:
    """Find the best lower bound that can be shown: by shortest routes, or by the certificate."""
    checked = float(findings.figures["lower_bound_recomputed"])
    if solution.certificate is None:
        return checked
    try:
        if isinstance(problem, Routing):
            return max(checked, _check_proof(problem, solution.certificate))
        return max(checked, _check_joint_proof(problem, solution, findings))
    except ProofError as exc:
        findings.refuse("the certificate is a proof", "certificate", str(exc), "a valid proof")
    return checked


def _check_proof(problem: Routing, proof: Any) -> float:
    """Return what a proof shows, in the unit of the objective."""
    graph = problem.fabric.graph
    if graph is None or not isinstance(proof, RoutingProof):
        raise ProofError(_no_proof(proof))
    checker = ProofChecker(graph)
    circuits = list_circuits(problem)
    if problem.objective == "total-cells":
        return checker.bound_cells(proof, circuits)
    if problem.objective == "loss-db":
        return checker.bound_loss(proof, circuits, problem.bar_loss_db, problem.cross_loss_db)
    return math.inf if checker.show_infeasible(proof, circuits) else 0.0


def _no_proof(given: Any) -> str:
    return f"a {type(given).__name__}, where only a RoutingProof on cells can be checked"


def _check_joint_proof(problem: AllToAll, solution: Solution, findings: Findings) -> float:
    """Return what prices on the links show of all slots together, if there are the fewest."""
    graph, fewest = problem.fabric.graph, int(findings.figures["slots_lower_bound"])
    if graph is None or not isinstance(solution.certificate, RoutingProof):
        raise ProofError(_no_proof(solution.certificate))
    starts = problem.fabric.source_terminals.tolist()
    ends = problem.fabric.destination_terminals.tolist()
    circuits = [Circuit(starts[i], ends[j]) for i, j in problem.pairs.tolist()]
    bound = ProofChecker(graph).bound_slots(solution.certificate, circuits, fewest)
    if bound == math.inf:
        findings.notes.append(f"the certificate proves that {fewest} slots do not do")
        return 0.0
    return bound if findings.figures.get("slots", fewest) == fewest else 0.0


def list_circuits(problem: Routing) -> list[Circuit]:
    """List the circuits of the matching by source port, of bidirectional ports each once."""
    starts = problem.fabric.source_terminals.tolist()
    ends = problem.fabric.destination_terminals.tolist()
    return [
        Circuit(starts[source], ends[partner])
        for source, partner in enumerate(problem.matching.tolist())
        if partner >= 0 and not (problem.fabric.bidirectional and partner < source)
    ]


def _check_answer(solution: Solution, findings: Findings) -> None:
    """Check the objective, and that optimal is optimal in slots first."""
    check_objective(solution, findings)
    figures = findings.figures
    if solution.status is not Status.OPTIMAL:
        return
    if "slots_lower_bound" not in figures or figures["slots"] == figures["slots_lower_bound"]:
        return
    if (
        solution.stats.get("bound_by") in SEARCHES
        and figures["slots"] > figures["slots_lower_bound"]
    ):
        findings.doubt(
            f"status optimal: that fewer than {figures['slots']} slots do not do is from a search"
            f" without a certificate; {figures['slots_lower_bound']} was checked"
        )
    else:
        findings.expect(
            "optimal means the fewest slots",
            "matchings",
            figures["slots"],
            figures["slots_lower_bound"],
        )
