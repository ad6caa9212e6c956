"""The replay of an answer against its problem: the one entrance of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optmatch.model import FREE, InputError, Problem, Schedule, Solution, Value
from optmatch.problems import (
    ANSWERS,
    AllToAll,
    Demand,
    RailJob,
    Reroute,
    Routing,
    SliceAllocation,
)
from optmatch.verify.bounds import bound_objective, count_slots
from optmatch.verify.claims import check_claims
from optmatch.verify.demand_claims import verify_demand
from optmatch.verify.light import Traced, check_light
from optmatch.verify.matchings import (
    check_coverage,
    check_given_matching,
    check_matchings,
    check_shapes,
    check_times,
)
from optmatch.verify.rails import verify_rails
from optmatch.verify.report import Findings, Report
from optmatch.verify.reroute_claims import verify_reroute
from optmatch.verify.slices import verify_slice


def verify(problem: Problem, subject: Schedule | Value | Solution) -> Report:
    """Check an answer by replaying it, with code that no method shares.

    Parameters
    ----------
    problem
        The question: `AllToAll`, `Routing` or `Demand`.
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
    >>> problem = AllToAll(IdealSwitch(2), slot_s=1.0)
    >>> verify(problem, Schedule(matchings=[[1, 0]], durations_s=[1.0])).ok
    True
    >>> print(verify(problem, Schedule(matchings=[[1, 0]], durations_s=[2.0])).violations[0])
    durations_s[0]: a slot lasts slot_s: got 2.0, expected 1.0
    """
    check = next((c for kind, c in _CHECKS.items() if isinstance(problem, kind)), None)
    if check is None:
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
    findings = Findings()
    check(problem, subject, findings)
    return findings.report()


def _verify_schedule(
    problem: AllToAll | Routing, subject: Schedule | Solution, findings: Findings
) -> None:
    """Check a schedule of all pairs, or of one matching, and what a solution says of it."""
    if isinstance(subject, Solution):
        traced = None
        if subject.schedule is not None:
            traced = replay(problem, subject.schedule, findings)
        _add_bounds(problem, findings)
        check_claims(problem, subject, traced, findings)
    else:
        replay(problem, subject, findings)
        _add_bounds(problem, findings)


_CHECKS: dict[type[Problem], Callable[[Any, Any, Findings], None]] = {
    AllToAll: _verify_schedule,
    Demand: verify_demand,
    RailJob: verify_rails,
    Reroute: verify_reroute,
    Routing: _verify_schedule,
    SliceAllocation: verify_slice,
}
"""What checks the answers to each kind of problem."""


def replay(problem: AllToAll | Routing, schedule: Schedule, findings: Findings) -> Traced | None:
    """Apply all rules of schedules; None if no light could be traced."""
    findings.figures["slots"] = len(schedule.matchings)
    defined = check_shapes(problem.fabric, schedule, findings)
    defined = defined and check_matchings(problem.fabric, schedule, findings)
    if not defined:
        findings.skipped.append(
            "times, pairs and light: slots that are no matchings define no circuits"
        )
        return None
    if isinstance(problem, AllToAll):
        check_times(problem, schedule, findings)
        check_coverage(problem, schedule, findings)
    else:
        check_given_matching(problem, schedule, findings)
    traced = check_light(problem.fabric, schedule, findings)
    _add_figures(problem, schedule, traced, findings)
    return traced


def _add_figures(
    problem: AllToAll | Routing, schedule: Schedule, traced: Traced, findings: Findings
) -> None:
    """Add up what the light passed."""
    figures = findings.figures
    circuits = int(np.count_nonzero(schedule.matchings >= 0))
    circuits //= 2 if problem.fabric.bidirectional else 1
    total = int(traced.cells.sum())
    figures["circuits"] = circuits
    figures["total_cells"] = total
    figures["worst_route_cells"] = int(traced.cells.max(initial=0))
    figures["mean_route_cells"] = total / circuits if circuits else 0.0
    figures["toggles"] = count_toggles(schedule)
    figures["objective"] = float(total)
    if isinstance(problem, Routing) and problem.objective == "worst-cells":
        figures["objective"] = float(figures["worst_route_cells"])
    if isinstance(problem, Routing) and problem.objective == "loss-db":
        crossed = int(traced.crossed.sum())
        loss_db = (total - crossed) * problem.bar_loss_db + crossed * problem.cross_loss_db
        figures["objective"] = figures["total_loss_db"] = loss_db


def _add_bounds(problem: AllToAll | Routing, findings: Findings) -> None:
    if isinstance(problem, AllToAll):
        findings.figures["slots_lower_bound"] = count_slots(problem.fabric)
    findings.figures["lower_bound_recomputed"] = bound_objective(problem)


def count_toggles(schedule: Schedule) -> int:
    """Count how often a cell is driven to the other state.

    A free cell keeps the state it was last driven to; the first setting of a cell is no toggle.

    Examples
    --------
    >>> states = [[0, 1, -1], [-1, 0, 1], [1, 0, -1]]
    >>> schedule = Schedule(matchings=[[-1]] * 3, durations_s=[1.0] * 3, cell_states=states)
    >>> count_toggles(schedule)
    2
    """
    if schedule.cell_states is None:
        return 0
    toggles = 0
    driven = np.full(schedule.cell_states.shape[1], FREE)
    for states in schedule.cell_states:
        toggles += int(np.count_nonzero((states != FREE) & (driven != FREE) & (states != driven)))
        driven = np.where(states == FREE, driven, states)
    return toggles
