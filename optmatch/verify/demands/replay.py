"""The rules of schedules and solutions of demands: whole ticks, enough of them for each pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

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
from optmatch.verify.report import Findings, Rule
from optmatch.verify.routing.light import check_light
from optmatch.verify.routing.matchings import check_matchings, check_shapes

# The answer
SCHEDULE_FOR_EACH_PLANE = Rule("there is a schedule for each plane")
ANSWER_IS_OF_PLANES = Rule("the answer is a schedule for each plane")
BOUND_OF_PORTS = Rule("the lower bound is not below what ports need")

# Slots
VALUE_IS_GIVEN = Rule("the {value} is the problem's")
WHOLE_TICKS = Rule("a slot lasts a whole number of ticks")
LONG_ENOUGH = Rule("no slot is shorter than allowed")

# Completeness
SERVED = Rule("all demand is served")
ADDS_UP = Rule("the circuits add up to the demand")

WHOLE = 1e-9
"""A duration is this close to a whole number of ticks, beside the rounding of float64."""

MOST = 2.0**53
"""No slot lasts so many ticks: float64 could not tell how many they are."""


class ServedPlane(NamedTuple):
    """What the schedule of one plane serves, and when."""

    served_ticks: NDArray[np.int64]
    """``served_ticks[source, destination]``: how long each circuit carries."""
    end_ticks: int
    """When its last slot ends."""
    weighted_s: float
    """What groups cost together; 0 unless they have weights."""


def replay_demand(problem: Demand, schedules: Sequence[Schedule], findings: Findings) -> bool:
    """Check the schedules that carry a demand, and compute when all of it has been carried.

    A *plane* is a switch. Planes stand side by side and share the demand; each has a schedule of
    its own. Each schedule is checked by itself, and what all of them carry is added up.

    Parameters
    ----------
    problem
        The demand, in whole ticks (``tick_s`` seconds each) for each pair of ports.
    schedules
        A schedule for each plane.
    findings
        The report, to which violations, notes and figures are added. The figure ``objective`` is
        the recomputed one; a figure that each plane has is the largest of all planes.

    Returns
    -------
    bool
        False if the slots of some plane are no matchings: then the objective is not known.
    """
    findings.expect(SCHEDULE_FOR_EACH_PLANE, "schedules", len(schedules), problem.planes)
    planes = list[ServedPlane]()
    for number, schedule in enumerate(schedules):
        findings_of_plane = Findings()
        plane = _replay_plane(problem, schedule, findings, findings_of_plane)
        if plane is not None:
            planes.append(plane)
        prefix = f"plane {number}: " if problem.planes > 1 else ""
        findings.include(findings_of_plane, prefix)
        for name, value in findings_of_plane.figures.items():
            findings.figures[name] = max(value, findings.figures.get(name, value))
    if len(planes) < len(schedules):
        findings.skipped.append("what is served: slots that are no matchings define no circuits")
        return False
    if not problem.exact:
        findings.notes.append(f"demands were rounded to ticks of {problem.tick_s:g} s")

    # All planes together: how many slots they have, when the last one ends, and what they carry.
    n_slots = sum(len(schedule.durations_s) for schedule in schedules)
    end_ticks = max((plane.end_ticks for plane in planes), default=0)
    served_ticks = np.zeros((problem.fabric.n_ports,) * 2, dtype=np.int64)
    for plane in planes:
        served_ticks += plane.served_ticks
    findings.figures["slots"] = n_slots
    findings.figures["makespan_s"] = end_ticks * problem.tick_s
    completion_s = _check_completion(problem, served_ticks, end_ticks, findings)
    findings.figures["completion_s"] = completion_s
    objectives = {
        "completion-s": completion_s,
        "matchings": float(n_slots),
        "weighted-completion-s": planes[-1].weighted_s if planes else 0.0,
    }
    findings.figures["objective"] = objectives[problem.objective]
    return True


def _replay_plane(
    problem: Demand, schedule: Schedule, findings: Findings, findings_of_plane: Findings
) -> ServedPlane | None:
    """Apply the rules of demands to the schedule of one of several switches, called a plane.

    Parameters
    ----------
    problem
        The demand.
    schedule
        The slots of this plane: a matching and a duration each.
    findings
        Those of the whole answer; the number of late groups is added here as ``groups_late``.
    findings_of_plane
        Violations and all other figures of this plane are added here.

    Returns
    -------
    ServedPlane or None
        The ticks that the plane serves of each pair, its end in ticks, and the weighted
        lateness of groups in seconds, 0 for other objectives. None if its slots are no matchings.
    """
    if not _check_slots(problem, schedule, findings_of_plane):
        return None
    ticks = _count_ticks(problem, schedule, findings_of_plane)
    weighted_s = 0.0
    if problem.objective == "weighted-completion-s":
        ends = end_groups(problem, schedule.matchings, ticks)
        weighted_s = weigh_ends(problem, ends)
        if problem.deadlines_s:
            findings.figures["groups_late"] = count_late(problem, ends)
    check_light(problem.fabric, schedule, findings_of_plane)
    return ServedPlane(
        served_ticks=_add_up_circuits(problem, schedule.matchings, ticks),
        end_ticks=int(ticks.sum()) + problem.delay_ticks * len(ticks),
        weighted_s=weighted_s,
    )


def _check_slots(problem: Demand, schedule: Schedule, findings: Findings) -> bool:
    """Check the shapes and matchings of a schedule, and the values that the problem fixes.

    Parameters
    ----------
    problem
        The demand, with a delay in seconds and a kind of switching.
    schedule
        The schedule of one plane.
    findings
        Violations are added to it.

    Returns
    -------
    bool
        Whether its slots are matchings of the ports.
    """
    for name in ("delay_s", "switching"):
        rule = VALUE_IS_GIVEN.format(value=name.removesuffix("_s"))
        findings.expect(rule, name, getattr(schedule, name), getattr(problem, name))
    has_shapes = check_shapes(problem.fabric, schedule, findings)
    return has_shapes and check_matchings(problem.fabric, schedule, findings)


def _count_ticks(problem: Demand, schedule: Schedule, findings: Findings) -> NDArray[np.int64]:
    """Count the ticks of each slot, and check that they are whole and not too few.

    A tick is the unit of time of a problem. Durations of slots are stated in seconds; 0.3 s are 3
    ticks of 0.1 s, up to rounding.

    Parameters
    ----------
    problem
        The demand, with the length of a tick in seconds and the fewest ticks of a slot.
    schedule
        The schedule of one plane.
    findings
        The report, to which violations are added.

    Returns
    -------
    NDArray
        ``ticks[slot]``, the nearest whole numbers; 0 where a duration is out of range.
    """
    tick_s = problem.tick_s
    exact = schedule.durations_s / tick_s
    exact = np.where((exact >= 0) & (exact < MOST), exact, -1.0)
    ticks = np.rint(exact)
    is_whole = (exact >= 0) & (np.abs(exact - ticks) <= WHOLE + ticks * 2.0**-50)
    for slot in np.flatnonzero(~is_whole):
        duration_s = float(schedule.durations_s[slot])
        findings.refuse(
            WHOLE_TICKS, f"durations_s[{slot}]", duration_s, f"a multiple of {tick_s:g} s"
        )
    shortest_ticks = problem.min_slot_ticks
    for slot in np.flatnonzero(is_whole & (ticks < shortest_ticks)):
        duration_s = float(schedule.durations_s[slot])
        findings.refuse(
            LONG_ENOUGH, f"durations_s[{slot}]", duration_s, f">= {shortest_ticks * tick_s:g} s"
        )
    return np.maximum(ticks, 0).astype(np.int64)


def _add_up_circuits(
    problem: Demand, matchings: NDArray[np.int32], ticks: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Add up how long each circuit carries over all slots of a plane.

    Parameters
    ----------
    problem
        Where circuits change one by one, those that stay carry during the delays too.
    matchings
        ``matchings[slot, source] = destination``, -1 idle.
    ticks
        ``ticks[slot]``.

    Returns
    -------
    NDArray
        ``served[source, destination]`` in ticks.
    """
    n_ports = problem.fabric.n_ports
    ticks_of_port = np.broadcast_to(ticks[:, None], matchings.shape).copy()
    if problem.switching == "per-circuit" and len(matchings):
        ticks_of_port[1:] += (matchings[1:] == matchings[:-1]) * problem.delay_ticks
    slot, source = np.nonzero(matchings != IDLE)
    served = np.zeros(n_ports * n_ports, dtype=np.int64)
    circuit = source * n_ports + matchings[slot, source]
    np.add.at(served, circuit, ticks_of_port[slot, source])  # a circuit may be there many times
    return served.reshape(n_ports, n_ports)


def _check_completion(
    problem: Demand, served: NDArray[np.int64], end_ticks: int, findings: Findings
) -> float:
    """Compare served and wanted demand, and find when the last data arrive.

    Demand is measured in ticks, the time that a circuit takes for it. If a pair of ports wants 10
    ticks and circuits serve 7, then 3 are left. A packet network carries them, if there is one;
    else this is a violation.

    Parameters
    ----------
    problem
        The demand. The fields that are read here:

        - ``directed_ticks[source, destination]``: what is wanted;
        - ``tick_s``: the seconds of a tick;
        - ``packet_bytes_per_s``, ``packet_share``: the rate of the packet network, 0 for none, and
          this rate over that of a circuit;
        - ``objective``: if it is ``"matchings"``, circuits have to serve exactly what is wanted.
    served
        ``served[source, destination]``: how long circuits carry over all planes, in ticks.
    end_ticks
        The end of the last slot of all planes, in ticks.
    findings
        Violations are added to it, and figures in seconds of a circuit: ``demand_s``, what is
        wanted; ``circuit_s``, what circuits carry of it; ``packet_s``, how long packets take.

    Returns
    -------
    float
        Seconds; infinite if something is left and there is no packet network.
    """
    demand_ticks = problem.directed_ticks
    tick_s = problem.tick_s
    left = np.maximum(demand_ticks - served, 0)
    findings.figures["demand_s"] = float(demand_ticks.sum()) * tick_s
    findings.figures["circuit_s"] = float(np.minimum(demand_ticks, served).sum()) * tick_s

    # A packet network carries what is left; its busiest port decides.
    if problem.packet_bytes_per_s > 0:
        busiest_ticks = max(int(left.sum(axis=1).max()), int(left.sum(axis=0).max()))
        packet_ticks = busiest_ticks / problem.packet_share
        findings.figures["packet_s"] = packet_ticks * tick_s
        return max(float(end_ticks), packet_ticks) * tick_s

    # Where matchings are counted, circuits add up to the demand exactly.
    rule = SERVED
    is_wrong = left > 0
    if problem.objective == "matchings":
        rule = ADDS_UP
        is_wrong = served != problem.ticks
    for source, destination in np.argwhere(is_wrong):
        findings.refuse(
            rule,
            f"from port {source} to port {destination}",
            f"{served[source, destination] * tick_s:g} s of circuit",
            f"{demand_ticks[source, destination] * tick_s:g} s",
        )
    if left.any():
        return math.inf
    return float(end_ticks) * tick_s


def verify_demand(
    problem: Demand, subject: Schedule | PlaneSchedules | Solution, findings: Findings
) -> None:
    """Check schedules that are to carry a demand, and the claims of a solution about them.

    A demand says how many bytes each port sends to each other one. A *plane* is a switch; several
    planes side by side share the demand, and each has a schedule. A solution claims more: the
    value of its objective, a lower bound with a certificate, a status, and statistics. Each claim
    is compared with a value that is computed anew.

    Parameters
    ----------
    problem
        The demand.
    subject
        The schedule of one plane, the schedules of several, or a solution that has them.
    findings
        The report, to which violations, notes and figures are added. The figure
        ``lower_bound_recomputed`` is a bound of the objective that needs no certificate.
    """
    # The objective is a multiple of a step: packets alone may end between two ticks.
    if problem.objective == "matchings":
        findings.step = 1.0
    elif problem.objective == "completion-s" and problem.packet_share == 0:
        findings.step = problem.tick_s

    field = "schedule"
    expected_class: type = Schedule
    if problem.planes > 1:
        field = "answer"
        expected_class = PlaneSchedules

    def replay(answer: Schedule | PlaneSchedules) -> bool:
        """Replay the answer; that of a solution has to be of the class of the problem."""
        if isinstance(subject, Solution) and not isinstance(answer, expected_class):
            name = type(answer).__name__
            findings.refuse(ANSWER_IS_OF_PLANES, field, name, expected_class.__name__)
            return False
        if isinstance(answer, PlaneSchedules):
            return replay_demand(problem, answer.schedules, findings)
        return replay_demand(problem, (answer,), findings)

    findings.figures["lower_bound_recomputed"] = bound_demand(problem)
    if not isinstance(subject, Solution):
        replay(subject)
        return
    check_solution(
        problem,
        subject,
        findings,
        replay=replay,
        form=field,
        prove=partial(check_proof, problem),
        floor=BOUND_OF_PORTS,
    )
