"""The rules of solutions: what is claimed about an answer must follow from what is recomputed."""

from __future__ import annotations

import math
from typing import Any

from optmatch.model import Solution, Status
from optmatch.problems import AllToAll, Routing, RoutingProof
from optmatch.verify.bounds import SEARCHES, check_objective, check_stats, check_support
from optmatch.verify.report import Findings, agree
from optmatch.verify.routing.light import Traced
from optmatch.verify.routing.proofs import Circuit, ProofChecker, ProofError


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
    if not answered and solution.schedule is not None:
        findings.refuse(
            "a schedule answers the problem",
            "status",
            solution.status.value,
            "optimal or feasible",
        )
    checked = _support_bound(problem, solution, traced, findings)
    findings.figures["lower_bound_checked"] = checked
    _check_bound(solution, checked, findings)
    if solution.status is Status.UNKNOWN:
        findings.notes.append("status unknown: there is no answer to check")
    elif answered and traced is not None:
        _check_answer(solution, findings)
    elif answered:
        findings.skipped.append("objective: no light could be traced")
    check_stats(solution, findings)


def _support_bound(
    problem: AllToAll | Routing, solution: Solution, traced: Traced | None, findings: Findings
) -> float:
    """Find the best lower bound that can be shown: by shortest routes, or by the certificate."""
    checked = float(findings.figures["lower_bound_recomputed"])
    if solution.certificate is None:
        return checked
    try:
        if isinstance(problem, Routing):
            return max(checked, _check_proof(problem, solution.certificate))
        if isinstance(solution.certificate, RoutingProof):
            return max(checked, _check_joint_proof(problem, solution, findings))
        findings.figures["slots_proved_optimal"] = _check_slot_proofs(
            problem, solution, traced, findings
        )
    except ProofError as exc:
        findings.refuse("the certificate is a proof", "certificate", str(exc), "a valid proof")
    return checked


def _check_proof(problem: Routing, proof: Any) -> float:
    """Return what a proof shows, in the unit of the objective."""
    graph = problem.fabric.graph
    if graph is None or not isinstance(proof, RoutingProof):
        raise ProofError(
            f"a {type(proof).__name__}, where only a RoutingProof on cells can be checked"
        )
    checker = ProofChecker(graph)
    circuits = _circuits(problem, problem.matching.tolist())
    if problem.objective == "total-cells":
        return checker.bound_cells(proof, circuits)
    if problem.objective == "loss-db":
        return checker.bound_loss(proof, circuits, problem.bar_loss_db, problem.cross_loss_db)
    return math.inf if checker.show_infeasible(proof, circuits) else 0.0


def _check_joint_proof(problem: AllToAll, solution: Solution, findings: Findings) -> float:
    """Return what prices on the links show of all slots together, if there are the fewest."""
    graph, fewest = problem.fabric.graph, int(findings.figures["slots_lower_bound"])
    if graph is None:
        raise ProofError("a RoutingProof, where there are no cells")
    starts = problem.fabric.source_terminals.tolist()
    ends = problem.fabric.destination_terminals.tolist()
    circuits = [Circuit(starts[i], ends[j]) for i, j in problem.pairs.tolist()]
    bound = ProofChecker(graph).bound_slots(solution.certificate, circuits, fewest)
    if bound == math.inf:
        findings.notes.append(f"the certificate proves that {fewest} slots do not do")
        return 0.0
    return bound if findings.figures.get("slots", fewest) == fewest else 0.0


def _check_slot_proofs(
    problem: AllToAll, solution: Solution, traced: Traced | None, findings: Findings
) -> int:
    """Count the slots that are proved to have the shortest routes of their own matching."""
    graph, proofs = problem.fabric.graph, solution.certificate
    if graph is None or not isinstance(proofs, (tuple, list)):
        raise ProofError(
            f"a {type(proofs).__name__}, where there is one proof or None for each slot"
        )
    if solution.schedule is None or traced is None:
        raise ProofError("proofs of slots, but no slots that can be traced")
    if len(proofs) != len(solution.schedule.matchings):
        raise ProofError(f"{len(proofs)} proofs for {len(solution.schedule.matchings)} slots")
    checker = ProofChecker(graph)
    proved = 0
    for slot, proof in enumerate(proofs):
        if proof is None:
            continue
        if not isinstance(proof, RoutingProof):
            raise ProofError(f"slot {slot} has a {type(proof).__name__}, not a RoutingProof")
        matching = solution.schedule.matchings[slot].tolist()
        bound = checker.bound_cells(proof, _circuits(problem, matching))
        cells = int(traced.cells[slot].sum())
        proved += bound == cells
        if bound < cells:
            findings.notes.append(
                f"slot {slot}: {cells} cells, its proof shows that {bound} are needed"
            )
    return proved


def _circuits(problem: AllToAll | Routing, matching: list[int]) -> list[Circuit]:
    """List the circuits of a matching by source port, of bidirectional ports each once."""
    starts = problem.fabric.source_terminals.tolist()
    ends = problem.fabric.destination_terminals.tolist()
    return [
        Circuit(starts[source], ends[partner])
        for source, partner in enumerate(matching)
        if partner >= 0 and not (problem.fabric.bidirectional and partner < source)
    ]


def _check_bound(solution: Solution, checked: float, findings: Findings) -> None:
    """Check that the claimed bound is supported, and not below what everybody can see."""
    claimed = check_support(solution, checked, findings)
    recomputed = float(findings.figures["lower_bound_recomputed"])
    strong = claimed >= recomputed or agree(claimed, recomputed)
    if solution.schedule is not None and not strong:
        findings.refuse(
            "the lower bound is not below the shortest routes", "lower_bound", claimed, recomputed
        )


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
        findings.notes.append(
            f"that fewer than {figures['slots']} slots do not do comes from an exhaustive search;"
            f" by counting, {figures['slots_lower_bound']} are needed"
        )
    else:
        findings.expect(
            "optimal means the fewest slots",
            "matchings",
            figures["slots"],
            figures["slots_lower_bound"],
        )
