"""The rules that the claims of every solution obey: its answer, its bound, its objective."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from optmatch.model import (
    PROOFS,
    Limit,
    Score,
    Solution,
    Status,
    is_levels,
    write_score,
)
from optmatch.verify.report import Findings, ProofError, agree, as_number

BELOW = -1
EQUAL = 0
ABOVE = 1
"""What `compare` says of a claim: it is below the recomputed amount, equal to it, or above."""

SEARCHES = ("cp-sat", "search")
"""Values of ``stats["bound_by"]`` that say: by exhaustive search, without a certificate."""


def check_solution(
    solution: Any,
    findings: Findings,
    *,
    replay: Callable[[Any], bool],
    form: str = "answer",
    prove: Callable[[Any], Score] | None = None,
    floor: str = "",
) -> bool:
    """Replay an answer; of a solution, check everything else that it says too.

    Returns whether there is an objective that could be recomputed. Before the call the figure
    ``lower_bound_recomputed``, the bound that anybody can count, has to be set in `findings`;
    ``lower_bound_checked`` may be, to a better counted bound. `replay` sets ``objective``. Of a
    solution, ``lower_bound_checked`` and ``findings.proof`` are set.

    Parameters
    ----------
    solution
        A solution, or an answer alone: anything else is handed to `replay`, and that is all.
    replay
        Applies all rules to the answer, and returns whether its objective could be recomputed.
    form
        The field that `replay` is given: ``"schedule"``, ``"answer"``, or ``"both"``, the
        solution.
    prove
        Returns the bound that a certificate shows, or raises `ProofError`; None if bounds of such
        problems need no certificate.
    floor
        The text of the rule that a claimed bound below the counted one breaks; empty for no rule.
    """
    if not isinstance(solution, Solution):
        return replay(solution)

    # An answer, which the status tells of, is in the field `form` alone; the other field is empty.
    answered = solution.status in (Status.OPTIMAL, Status.FEASIBLE)
    replayed = answered and replay(solution if form == "both" else getattr(solution, form))
    for name, part in (("schedule", solution.schedule), ("answer", solution.answer)):
        if form not in (name, "both"):
            findings.expect(f"the {form} is the whole answer", name, part, None)
        elif part is not None and not answered:
            findings.refuse(
                "who has an answer says so",
                "status",
                solution.status.value,
                "optimal or feasible",
            )

    # `checked` is the higher one of the counted bound and the one that the certificate shows.
    counted: Score = findings.figures["lower_bound_recomputed"]
    checked: Score = findings.figures.get("lower_bound_checked", counted)
    if prove is None:
        findings.expect("this bound needs no proof", "certificate", solution.certificate, None)
    elif solution.certificate is not None:
        try:
            proved = prove(solution.certificate)
            if compare(proved, checked) == ABOVE:
                checked = proved
        except ProofError as exc:
            findings.refuse("the certificate is a proof", "certificate", str(exc), "a valid proof")
    findings.figures["lower_bound_checked"] = checked
    check_support(solution, checked, findings, floor=floor)

    # The objective can be compared only if the replay has set it. It is infinite if the answer
    # leaves something undone, which is a violation of its own.
    if replayed and findings.figures["objective"] != math.inf:
        _check_objective(solution, findings)
    elif answered:
        findings.skipped.append("objective: this answer has none to compare it with")
    else:
        findings.notes.append(f"status {solution.status.value}: there is no answer to check")
        findings.expect("who has an answer says so", "objective", solution.objective, None)
    _check_stats(solution, findings)
    return replayed


def compare(claimed: Any, recomputed: Score, step: float | None = None) -> int | None:
    """Tell whether a claim is `BELOW` a recomputed amount, `EQUAL` to it, or `ABOVE` it.

    Both are numbers or levels. Levels, such as (0, 5, 2) < (1, 0, 0), and whole multiples of
    `step` are compared exactly; without a step, numbers that differ by rounding are equal. None if
    one is no number, or they are levels of different lengths.
    """
    if is_levels(claimed) and isinstance(recomputed, tuple):
        if len(claimed) != len(recomputed):
            return None
        return int(claimed > recomputed) - int(claimed < recomputed)

    # Levels are finite: against them only an infinite number can be compared, and any level stands
    # as 0 then.
    mixed = is_levels(claimed) or isinstance(recomputed, tuple)
    number = 0.0 if is_levels(claimed) else as_number(claimed)
    other = 0.0 if isinstance(recomputed, tuple) else recomputed
    if math.isnan(number) or math.isnan(other):
        return None
    if mixed and math.isfinite(number) and math.isfinite(other):
        return None

    if step is not None:
        number = _count_steps(number, step)
        other = _count_steps(other, step)
    elif agree(number, other):
        return 0
    return (number > other) - (number < other)


def _count_steps(number: float, step: float) -> float:
    """Return a number in steps, as a whole number if it is one up to rounding.

    Rounding is that of one product and one division of floats.
    """
    steps = number / step
    if step == 1.0 or not math.isfinite(steps):
        return steps
    nearest = round(steps)
    return nearest if abs(steps - nearest) <= abs(steps) * 2.0**-50 else steps


def _write_claim(claimed: Any) -> str:
    return write_score(claimed) if is_levels(claimed) else f"{as_number(claimed):g}"


def check_support(solution: Solution, checked: Score, findings: Findings, *, floor: str) -> None:
    """Check that the lower bound that a solution claims is supported by something.

    Counting shows ``findings.figures["lower_bound_recomputed"]``, which has to be set; `checked`
    is the best bound that counting and the certificate show. If they are 10 and 12, claims up to
    12 are right, and 13 is a violation, or a doubt if a search without a certificate claims it.
    Sets ``findings.proof``. A solution may have to claim at least what counting shows: `floor` is
    then the text of this rule, which a claim below 10 breaks; else it is empty. Only a run that
    was stopped before it could count may claim minus infinity.
    """
    infeasible = solution.status is Status.INFEASIBLE
    claimed: Any = solution.lower_bound
    if infeasible:
        findings.expect(
            "of an infeasible problem the bound is infinite", "lower_bound", claimed, math.inf
        )
        claimed = math.inf

    # The claim is supported by counting, by a certificate, or by nothing but a search.
    counted = findings.figures["lower_bound_recomputed"]
    against_counted = compare(claimed, counted, findings.step)
    against_checked = compare(claimed, checked, findings.step)
    if against_counted in (BELOW, EQUAL):
        findings.proof = findings.proof or "counting"
    elif against_checked in (BELOW, EQUAL):
        findings.proof = findings.proof or "certificate"
    elif against_checked == ABOVE and solution.stats.get("bound_by") in SEARCHES:
        claim = "status infeasible" if infeasible else f"lower bound {_write_claim(claimed)}"
        findings.doubt(
            f"{claim}: from a search without a certificate; {_write_claim(checked)} was checked"
        )
    else:
        findings.refuse("the lower bound is supported", "lower_bound", claimed, checked)

    # A claim below what anybody can count, or one that is no number at all (`compare` is None).
    stopped = solution.limit in (Limit.TIME, Limit.INTERRUPTED) and claimed == -math.inf
    if floor and against_counted in (None, BELOW) and not stopped:
        findings.refuse(floor, "lower_bound", claimed, counted)


def _check_objective(solution: Solution, findings: Findings) -> None:
    """Check the objective, that the bound is not above it, and that optimal means they meet.

    The figures ``objective`` and ``lower_bound_checked``, which others have recomputed, are there.
    """
    objective = findings.figures["objective"]
    if compare(solution.objective, objective, findings.step) != EQUAL:
        findings.refuse(
            "the objective is as recomputed", "objective", solution.objective, objective
        )
    checked = findings.figures["lower_bound_checked"]
    if compare(objective, checked, findings.step) == BELOW:
        findings.refuse("no answer is below what is proved", "objective", objective, checked)

    bound = solution.lower_bound
    against_objective = compare(bound, objective, findings.step)
    if against_objective not in (BELOW, EQUAL):
        findings.refuse(
            "the lower bound is not above the objective", "lower_bound", bound, objective
        )
    if solution.status is Status.OPTIMAL and against_objective != EQUAL:
        findings.refuse("optimal means that the bound is reached", "lower_bound", bound, objective)


def _check_stats(solution: Solution, findings: Findings) -> None:
    """Compare each statistic of a solution with the figure of the same name, if there is one."""
    for name in sorted(solution.stats.keys() & findings.figures.keys()):
        claimed = solution.stats[name]
        recomputed = findings.figures[name]
        # Counts have to agree exactly; other numbers to rounding errors.
        step = 1.0 if type(recomputed) is int else None
        if compare(claimed, recomputed, step) != EQUAL:
            findings.refuse(
                "statistics are as recomputed", f"stats[{name!r}]", claimed, recomputed
            )


def check_stated_proof(solution: Solution, findings: Findings) -> None:
    """Check that the stated kind of proof is no stronger than the one found, which is final."""
    stated = solution.proof
    # `PROOFS` lists the kinds from the strongest to the weakest: a solution may state the kind
    # that was found, or a weaker one.
    strongest = PROOFS.index(findings.proof or PROOFS[0])
    if stated not in (None, findings.proof) and stated not in PROOFS[strongest:]:
        findings.refuse("the proof is of the kind that is stated", "proof", stated, findings.proof)
