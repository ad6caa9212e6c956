"""The rules that the claims of every solution obey: about its bound, and its objective."""

from __future__ import annotations

import math

from optmatch.model import PROOFS, Solution, Status
from optmatch.verify.report import Findings, agree, as_number

SEARCHES = ("cp-sat", "search")
"""Values of ``stats["bound_by"]`` that say: by exhaustive search, without a certificate."""


def check_support(solution: Solution, checked: float, findings: Findings) -> float:
    """Check that the claimed bound follows from the checked one, or is said to be a search's.

    What a search says without a certificate is no violation and no proof: it is unproved.

    Parameters
    ----------
    solution
        Its bound may be any value, also one that is no number.
    checked
        The best bound that could be shown.
    findings
        Has the figure ``lower_bound_recomputed``; receives violations, what is unproved, and what
        the claim rests on.

    Returns
    -------
    float
        The bound claimed, NaN if it is no number; infinite for what is claimed infeasible.
    """
    claimed = as_number(solution.lower_bound)
    if solution.status is Status.INFEASIBLE:
        findings.expect(
            "of an infeasible problem the bound is infinite", "lower_bound", claimed, math.inf
        )
        claimed = math.inf
    counted = float(findings.figures["lower_bound_recomputed"])
    if claimed <= counted or agree(claimed, counted):
        findings.proof = "counting"
    elif claimed <= checked or agree(claimed, checked):
        findings.proof = "certificate"
    elif solution.stats.get("bound_by") in SEARCHES and not math.isnan(claimed):
        infeasible = solution.status is Status.INFEASIBLE
        claim = "status infeasible" if infeasible else f"lower bound {claimed:g}"
        findings.doubt(f"{claim}: from a search without a certificate; {checked:g} was checked")
    elif solution.status is Status.INFEASIBLE:
        findings.refuse(
            "infeasibility is supported", "status", "infeasible", "a dead pair or a proof"
        )
    else:
        findings.refuse("the lower bound is supported", "lower_bound", claimed, checked)
    return claimed


def check_objective(solution: Solution, findings: Findings) -> None:
    """Check the objective, that the bound is not above it, and that optimal means they meet."""
    objective = float(findings.figures["objective"])
    claimed = as_number(solution.lower_bound)
    if not agree(solution.objective, objective):
        findings.refuse(
            "the objective is as recomputed", "objective", solution.objective, objective
        )
    if not (claimed <= objective or agree(claimed, objective)):
        findings.refuse(
            "the lower bound is not above the objective", "lower_bound", claimed, objective
        )
    if solution.status is Status.OPTIMAL and not agree(claimed, objective):
        findings.refuse(
            "optimal means that the bound is reached", "lower_bound", claimed, objective
        )


def check_stats(solution: Solution, findings: Findings) -> None:
    """Check the statistics that are figures of the replay, too, and the stated kind of proof."""
    for name, value in solution.stats.items():
        got = findings.figures.get(name)
        if got is not None and not agree(value, got):
            findings.refuse("statistics are as recomputed", f"stats[{name!r}]", value, got)
    stated, found = solution.proof, findings.proof
    if stated not in (None, found) and stated not in PROOFS[PROOFS.index(found or PROOFS[0]) :]:
        findings.refuse("the proof is of the kind that is stated", "proof", stated, found)
