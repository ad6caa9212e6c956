"""The rules of schedules and solutions of demands: whole ticks, enough of them for each pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Schedule, Solution
from optmatch.problems import Demand, PlaneSchedules
from optmatch.verify.bounds import check_solution
from optmatch.verify.demands.bounds import (
    bound_demand,
    check_proof,
    count_late,
    end_groups,
    weigh_ends,
)
from optmatch.verify.report import Findings
from optmatch.verify.routing.light import check_light
from optmatch.verify.routing.matchings import check_matchings, check_shapes

WHOLE = 1e-9
"""A duration is this close to a whole number of ticks, beside the rounding of float64."""

MOST = 2.0**53
"""No slot lasts so many ticks: float64 could not tell how many they are."""


def replay_demand(problem: Demand, schedules: Sequence[Schedule], findings: Findings) -> bool:
    """Apply all rules to the schedules of all planes; tell whether they define what is served.

    The figure ``objective`` is the recomputed one.
    """
    rule = "there is a schedule for each plane"
    findings.expect(rule, "schedules", len(schedules), problem.planes)
    served = np.zeros((problem.fabric.n_ports,) * 2, dtype=np.int64)
    weighted = 0.0
    ends, slots, defined = [0], 0, True
    for plane, schedule in enumerate(schedules):
        inner = Findings()
        if _check_slots(problem, schedule, inner):
            ticks = _durations(problem, schedule, inner)
            served += _circuit_ticks(problem, schedule.matchings, ticks)
            ends.append(int(ticks.sum()) + problem.delay_ticks * len(ticks))
            slots += len(ticks)
            if problem.objective == "weighted-completion-s":
                groups_end = end_groups(problem, schedule.matchings, ticks)
                weighted = weigh_ends(problem, groups_end)
                if problem.deadlines_s:
                    findings.figures["groups_late"] = count_late(problem, groups_end)
            check_light(problem.fabric, schedule, inner)
        else:
            defined = False
        findings.include(inner, f"plane {plane}: " if problem.planes > 1 else "")
        for name, value in inner.figures.items():
            findings.figures[name] = max(value, findings.figures.get(name, value))
    if not defined:
        findings.skipped.append("what is served: slots that are no matchings define no circuits")
        return False
    if not problem.exact:
        findings.notes.append(f"demands were rounded to ticks of {problem.tick_s:g} s")
    findings.figures["slots"] = slots
    findings.figures["makespan_s"] = max(ends) * problem.tick_s
    done = _check_completion(problem, served, max(ends), findings)
    findings.figures["completion_s"] = done
    found = {"completion-s": done, "matchings": float(slots), "weighted-completion-s": weighted}
    findings.figures["objective"] = found[problem.objective]
    return True


def _check_slots(problem: Demand, schedule: Schedule, findings: Findings) -> bool:
    """Check shapes, matchings, and the times that the problem fixes."""
    for name in ("delay_s", "switching"):
        rule = f"the {name.removesuffix('_s')} is the problem's"
        findings.expect(rule, name, getattr(schedule, name), getattr(problem, name))
    sound = check_shapes(problem.fabric, schedule, findings)
    return sound and check_matchings(problem.fabric, schedule, findings)


def _durations(problem: Demand, schedule: Schedule, findings: Findings) -> NDArray[np.int64]:
    """Count the ticks of each slot, and check that they are whole and not too few."""
    exact = schedule.durations_s / problem.tick_s
    exact = np.where((exact >= 0) & (exact < MOST), exact, -1.0)
    ticks = np.rint(exact)
    fits = (exact >= 0) & (np.abs(exact - ticks) <= WHOLE + ticks * 2.0**-50)
    shortest, tick_s = problem.min_slot_ticks, problem.tick_s
    whole = "a slot lasts a whole number of ticks", f"a multiple of {tick_s:g} s"
    long_enough = "no slot is shorter than allowed", f">= {shortest * tick_s:g} s"
    for (rule, wanted), wrong in ((whole, ~fits), (long_enough, fits & (ticks < shortest))):
        for slot in np.flatnonzero(wrong):
            got = float(schedule.durations_s[slot])
            findings.refuse(rule, f"durations_s[{slot}]", got, wanted)
    return np.maximum(ticks, 0).astype(np.int64)


def _circuit_ticks(
    problem: Demand, matchings: NDArray[np.int32], ticks: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Add up the time of each pair over all slots, per circuit with the delays it went through."""
    n_ports = problem.fabric.n_ports
    times = np.broadcast_to(ticks[:, None], matchings.shape).copy()
    if problem.switching == "per-circuit" and len(matchings):
        times[1:] += (matchings[1:] == matchings[:-1]) * problem.delay_ticks
    slot, source = np.nonzero(matchings != IDLE)
    served = np.zeros(n_ports * n_ports, dtype=np.int64)
    np.add.at(served, source * n_ports + matchings[slot, source], times[slot, source])
    return served.reshape(n_ports, n_ports)


def _check_completion(
    problem: Demand, served: NDArray[np.int64], end: int, findings: Findings
) -> float:
    """Compare served and wanted demand; return the time of the last arrival, in seconds."""
    asked, tick_s = problem.directed_ticks, problem.tick_s
    left = np.maximum(asked - served, 0)
    findings.figures["demand_s"] = float(asked.sum()) * tick_s
    findings.figures["circuit_s"] = float(np.minimum(asked, served).sum()) * tick_s
    if problem.packet_bytes_per_s > 0:
        busiest = max(int(left.sum(axis=1).max()), int(left.sum(axis=0).max()))
        packets = busiest / problem.packet_share
        findings.figures["packet_s"] = packets * tick_s
        return max(float(end), packets) * tick_s
    exactly = problem.objective == "matchings"
    for i, j in np.argwhere(served != problem.ticks if exactly else left > 0):
        findings.refuse(
            "the circuits add up to the demand" if exactly else "all demand is served",
            f"from port {i} to port {j}",
            f"{served[i, j] * tick_s:g} s of circuit",
            f"{asked[i, j] * tick_s:g} s",
        )
    return math.inf if left.any() else float(end) * tick_s


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
    form, wanted = ("answer", PlaneSchedules) if problem.planes > 1 else ("schedule", Schedule)

    def replay(answer: Schedule | PlaneSchedules) -> bool:
        if not isinstance(answer, wanted if isinstance(subject, Solution) else object):
            rule = "the answer is a schedule for each plane"
            findings.refuse(rule, form, type(answer).__name__, wanted.__name__)
            return False
        schedules = answer.schedules if isinstance(answer, PlaneSchedules) else (answer,)
        return replay_demand(problem, schedules, findings)

    findings.figures["lower_bound_recomputed"] = bound_demand(problem)
    if not isinstance(subject, Solution):
        replay(subject)
        return
    check_solution(
        problem,
        subject,
        findings,
        replay=replay,
        form=form,
        prove=partial(check_proof, problem),
        floor="the lower bound is not below what ports need",
    )
