"""The rules of schedules of all pairs, and of one matching: circuits, light, lengths, bounds."""

from __future__ import annotations

from functools import partial

import numpy as np

from optmatch.model import FREE, Schedule, Solution
from optmatch.problems import AllToAll, Routing
from optmatch.verify.bounds import check_solution
from optmatch.verify.report import Findings
from optmatch.verify.routing.bounds import bound_objective, count_slots
from optmatch.verify.routing.claims import check_proof, check_slots
from optmatch.verify.routing.light import Traced, check_light
from optmatch.verify.routing.matchings import (
    check_coverage,
    check_given_matching,
    check_matchings,
    check_shapes,
    check_times,
)


def verify_schedule(
    problem: AllToAll | Routing, subject: Schedule | Solution, findings: Findings
) -> None:
    """Check a schedule of all pairs, or of one matching, and what a solution says of it."""
    if isinstance(problem, AllToAll) or problem.objective != "loss-db":
        findings.step = 1.0  # a cell
    if isinstance(problem, AllToAll):
        findings.figures["slots_lower_bound"] = count_slots(problem.fabric)
    findings.figures["lower_bound_recomputed"] = bound_objective(problem)
    if not isinstance(subject, Solution):
        _replay(problem, subject, findings)
        return

    def replay(schedule: Schedule | None) -> bool:
        replayed = _replay(problem, schedule, findings)
        if replayed:
            check_slots(subject, findings)
        return replayed

    check_solution(
        problem,
        subject,
        findings,
        replay=replay,
        form="schedule",
        prove=partial(check_proof, problem, findings),
        floor="the lower bound is not below the shortest routes" if subject.schedule else "",
    )


def _replay(problem: AllToAll | Routing, schedule: Schedule | None, findings: Findings) -> bool:
    """Apply all rules of schedules; False if no light could be traced."""
    if schedule is None:
        findings.refuse("the answer is a schedule", "schedule", None, "a schedule")
        return False
    findings.figures["slots"] = len(schedule.matchings)
    defined = check_shapes(problem.fabric, schedule, findings)
    defined = defined and check_matchings(problem.fabric, schedule, findings)
    if not defined:
        findings.skipped.append(
            "times, pairs and light: slots that are no matchings define no circuits"
        )
        return False
    check_times(problem, schedule, findings)
    if isinstance(problem, AllToAll):
        check_coverage(problem, schedule, findings)
    else:
        check_given_matching(problem, schedule, findings)
    traced = check_light(problem.fabric, schedule, findings)
    _add_figures(problem, schedule, traced, findings)
    return True


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
