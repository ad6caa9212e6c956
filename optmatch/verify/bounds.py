"""The rules that the claims of every solution obey: its answer, its bound, its objective."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from optmatch.model import PROOFS, Limit, Score, Solution, Status, is_levels, write_score
from optmatch.verify.report import Findings, ProofError, agree, as_number

SEARCHES = ("cp-sat", "search")
"""Values of ``stats["bound_by"]`` that say: by exhaustive search, without a certificate."""


def check_solution(
    problem: Any,
    solution: Solution,
    findings: Findings,
    *,
    replay: Callable[[Any], bool],
    form: str = "answer",
    prove: Callable[[Any], Score] | None = None,
    floor: str = "",
) -> None:
    """Replay the answer of a solution, and check everything else that it says.

    `findings` has the figure ``lower_bound_recomputed``, which anybody can count, and may have a
    better one that was counted: ``lower_bound_checked``. `replay` applies
    all rules to the answer, and tells whether its objective could be recomputed. The answer is in
    the field `form`: ``"schedule"``, ``"answer"``, or ``"both"``: then `replay` is given the
    solution. `prove` returns the bound that a certificate shows, or raises `ProofError`; None if
    bounds of such problems need none. `floor` is that of `check_support`.
    """
    same = solution.problem == problem
    findings.expect("the solution is one of this problem", "problem", same, True)
    parts = {"schedule": solution.schedule, "answer": solution.answer}
    answered = solution.status in (Status.OPTIMAL, Status.FEASIBLE)
    replayed = answered and replay(parts.get(form, solution))
    for name, part in parts.items():
        if form not in (name, "both"):
            findings.expect(f"the {form} is the whole answer", name, part, None)
        elif part is not None and not answered:
            status = solution.status.value
            findings.refuse("who has an answer says so", "status", status, "optimal or feasible")
    figures = findings.figures
    checked = figures.get("lower_bound_checked", figures["lower_bound_recomputed"])
    if prove is None:
        findings.expect("this bound needs no proof", "certificate", solution.certificate, None)
    elif solution.certificate is not None:
        try:
            shown = prove(solution.certificate)
            checked = shown if compare(shown, checked) == 1 else checked
        except ProofError as exc:
            findings.refuse("the certificate is a proof", "certificate", str(exc), "a valid proof")
    findings.figures["lower_bound_checked"] = checked
    check_support(solution, checked, findings, floor=floor)
    if replayed:
        check_objective(solution, findings)
    elif answered:
        findings.skipped.append("objective: nothing could be replayed")
    else:
        findings.notes.append(f"status {solution.status.value}: there is no answer to check")
    check_stats(solution, findings)


def compare(claimed: Any, found: Score, step: float | None = None) -> int | None:
    """Compare a claim, which may be anything, with the found value, a number or levels.

    Levels are compared exactly, and so are numbers that are whole multiples of a `step`; those
    without a step are sums of floats, which agree up to rounding. Returns -1 if the claim is
    lower, 0 if it agrees, 1 if it is higher; None if it is no such amount.
    """
    if is_levels(claimed) and isinstance(found, tuple):
        return (claimed > found) - (claimed < found) if len(claimed) == len(found) else None
    number = 0.0 if is_levels(claimed) else as_number(claimed)  # levels are finite
    other = 0.0 if isinstance(found, tuple) else found
    mixed = is_levels(claimed) or isinstance(found, tuple)
    if math.isnan(number) or (mixed and math.isfinite(number) and math.isfinite(other)):
        return None
    if step is not None:
        number, other = _count_steps(number, step), _count_steps(other, step)
    elif agree(number, other):
        return 0
    return (number > other) - (number < other)


def _count_steps(number: float, step: float) -> float:
    """Divide by a step; whole up to the rounding of one product and one division of floats."""
    if step == 1.0 or not math.isfinite(number):
        return number
    steps = number / step
    return round(steps) if abs(steps - round(steps)) <= abs(steps) * 2.0**-50 else steps


def _write(claimed: Any) -> str:
    return write_score(claimed) if is_levels(claimed) else f"{as_number(claimed):g}"


def check_support(solution: Solution, checked: Score, findings: Findings, *, floor: str) -> None:
    """Check that the claimed bound follows from the checked one, or is said to be a search's.

    The claim may be any value, also one that is no number. The word of a search without a
    certificate is no violation and no proof: it is unproved. `floor` is the rule that an answer
    owes at least the bound that anybody can count; empty if not. A run that was stopped before the
    count claims no bound.
    """
    claimed: Any = solution.lower_bound
    infeasible = solution.status is Status.INFEASIBLE
    if infeasible:
        rule = "of an infeasible problem the bound is infinite"
        findings.expect(rule, "lower_bound", claimed, math.inf)
        claimed = math.inf
    counted = findings.figures["lower_bound_recomputed"]
    over_counted = compare(claimed, counted, findings.step)
    over_checked = compare(claimed, checked, findings.step)
    if over_counted is not None and over_counted <= 0:
        findings.proof = findings.proof or "counting"
    elif over_checked is not None and over_checked <= 0:
        findings.proof = findings.proof or "certificate"
    elif solution.stats.get("bound_by") in SEARCHES and over_checked is not None:
        claim = "status infeasible" if infeasible else f"lower bound {_write(claimed)}"
        was = f"{_write(checked)} was checked"
        findings.doubt(f"{claim}: from a search without a certificate; {was}")
    elif infeasible:
        findings.refuse(
            "infeasibility is supported", "status", "infeasible", "a dead pair or a proof"
        )
    else:
        findings.refuse("the lower bound is supported", "lower_bound", claimed, checked)
    stopped = solution.limit in (Limit.TIME, Limit.INTERRUPTED) and claimed == -math.inf
    if floor and over_counted in (None, -1) and not stopped:
        findings.refuse(floor, "lower_bound", claimed, counted)


def check_objective(solution: Solution, findings: Findings) -> None:
    """Check the objective, that the bound is not above it, and that optimal means they meet."""
    objective = findings.figures["objective"]
    bound = compare(solution.lower_bound, objective, findings.step)
    if compare(solution.objective, objective, findings.step) != 0:
        findings.refuse(
            "the objective is as recomputed", "objective", solution.objective, objective
        )
    if bound not in (-1, 0):
        findings.refuse(
            "the lower bound is not above the objective",
            "lower_bound",
            solution.lower_bound,
            objective,
        )
    if solution.status is Status.OPTIMAL and bound != 0:
        findings.refuse(
            "optimal means that the bound is reached",
            "lower_bound",
            solution.lower_bound,
            objective,
        )


def check_stats(solution: Solution, findings: Findings) -> None:
    """Check the statistics that are figures of the replay, too, and the stated kind of proof."""
    for name, value in solution.stats.items():
        got = findings.figures.get(name)
        if got is not None and compare(value, got, 1.0 if type(got) is int else None) != 0:
            findings.refuse("statistics are as recomputed", f"stats[{name!r}]", value, got)
    stated, found = solution.proof, findings.proof
    if stated not in (None, found) and stated not in PROOFS[PROOFS.index(found or PROOFS[0]) :]:
        findings.refuse("the proof is of the kind that is stated", "proof", stated, found)
