"""What solutions of all pairs, and of one matching, claim: proofs of bounds, fewest slots."""

from __future__ import annotations

import math
from typing import Any

from optmatch.model import Solution, Status
from optmatch.problems import AllToAll, Routing, RoutingProof
from optmatch.verify.bounds import SEARCHES
from optmatch.verify.report import Findings, ProofError
from optmatch.verify.routing.proofs import Circuit, ProofChecker


def check_proof(problem: AllToAll | Routing, findings: Findings, proof: Any) -> float:
    """Return what a proof shows, in the unit of the objective."""
    graph = problem.fabric.graph
    if graph is None or not isinstance(proof, RoutingProof):
        raise ProofError(
            f"a {type(proof).__name__}, where only a RoutingProof on cells can be checked"
        )
    checker = ProofChecker(graph)
    if isinstance(problem, AllToAll):
        return _bound_jointly(problem, checker, proof, findings)
    circuits = list_circuits(problem)
    if problem.objective == "total-cells":
        return checker.bound_cells(proof, circuits)
    if problem.objective == "loss-db":
        return checker.bound_loss(proof, circuits, problem.bar_loss_db, problem.cross_loss_db)
    return math.inf if checker.show_infeasible(proof, circuits) else 0.0


def _bound_jointly(
    problem: AllToAll, checker: ProofChecker, proof: RoutingProof, findings: Findings
) -> float:
    """Return what prices on the links show of all slots together, if there are the fewest."""
    fewest = int(findings.figures["slots_lower_bound"])
    starts = problem.fabric.source_terminals.tolist()
    ends = problem.fabric.destination_terminals.tolist()
    circuits = [Circuit(starts[i], ends[j]) for i, j in problem.pairs.tolist()]
    bound = checker.bound_slots(proof, circuits, fewest)
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


def check_slots(solution: Solution, findings: Findings) -> None:
    """Check that optimal is optimal in slots first."""
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
