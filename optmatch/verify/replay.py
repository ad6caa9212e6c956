"""The replay of an answer against its problem: the one entrance of this package."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from optmatch.model import InputError, Problem, Schedule, Solution, Value
from optmatch.problems import ANSWERS, PROBLEMS
from optmatch.verify.report import Findings, Report

_CHECKS = {
    "all-to-all": "optmatch.verify.routing.schedules:verify_schedule",
    "demand": "optmatch.verify.demands.claims:verify_demand",
    "rail-job": "optmatch.verify.rails.replay:verify_rails",
    "reroute": "optmatch.verify.reroutes.claims:verify_reroute",
    "routing": "optmatch.verify.routing.schedules:verify_schedule",
    "slice-allocation": "optmatch.verify.slices.replay:verify_slice",
}
"""What checks the answers to each kind of problem: imported where it is used."""


def verify(problem: Problem, subject: Schedule | Value | Solution) -> Report:
    """Check an answer by replaying it, with code that no method shares.

    Parameters
    ----------
    problem
        The question.
    subject
        A schedule, an answer of the problem's own kind (a `PlaneSchedules` of a `Demand`), or a
        solution with all that it claims.

    Returns
    -------
    Report
        Violations by rule and place, recomputed figures, notes, and what could not be checked. A
        wrong answer is never an exception. ``ok`` only where nothing is violated or skipped.

    Raises
    ------
    InputError
        If the problem is of a kind unknown here, or `subject` is no schedule or solution.

    Notes
    -----
    Of a schedule: each slot is a matching; the wanted pairs meet, each once; the light of each
    circuit, traced through the stated cells, reaches the partner and comes back; no link carries
    two circuits; cells without light are stated free. Duration and delay of a `Routing` are not
    part of its question and not checked. Of a `Demand`: slots last whole ticks, the light of each
    circuit reaches its partner, and all is carried.

    Of a solution moreover: objective, lower bound, status, and every statistic of which there is a
    recomputed figure. A bound is supported if the shortest routes or the certificate show it. One
    from an exhaustive search (``stats["bound_by"]``) has no short proof: a note says so, and the
    figure ``lower_bound_checked`` has what could be shown.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> from optmatch.problems import AllToAll
    >>> problem = AllToAll(IdealSwitch(2), slot_s=1.0)
    >>> verify(problem, Schedule(matchings=[[1, 0]], durations_s=[1.0])).ok
    True
    >>> print(verify(problem, Schedule(matchings=[[1, 0]], durations_s=[2.0])).violations[0])
    durations_s[0]: a slot lasts slot_s: got 2.0, expected 1.0
    """
    if not isinstance(problem, PROBLEMS.get(getattr(problem, "kind", ""), ())):
        raise InputError(
            f"problem of type {type(problem).__name__}: cannot be verified", where="problem"
        )
    answer = ANSWERS.get(problem.kind)
    forms = (Schedule, Solution) if answer is None else (Schedule, answer, Solution)
    if not isinstance(subject, forms):
        raise InputError(
            f"subject of type {type(subject).__name__}:"
            f" {' or '.join(form.__name__ for form in forms)} is expected",
            where="subject",
        )
    module, function = _CHECKS[problem.kind].split(":")
    check: Callable[..., None] = getattr(import_module(module), function)
    findings = Findings()
    check(problem, subject, findings)
    return findings.report()
