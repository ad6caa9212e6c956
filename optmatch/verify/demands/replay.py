"""The rules of schedules and solutions of demands: whole ticks, enough of them for each pair.

Each plane is replayed by `_replay_plane`, in this order:

1. Delay and switching are those of the problem, and each slot is a matching (`check_matchings`).
2. A slot lasts a whole number of ticks, and no fewer than allowed (`_count_ticks`).
3. Light goes where circuits lead (`check_light`).

Then all planes together serve the demand, or leave what packets can carry (`_check_completion`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Schedule, Solution
from optmatch.problems import Demand, PlaneSchedules
from optmatch.verify.bounds import check_solution
from optmatch.verify.demands.bounds import (
    add_group_figures,
    bound_demand,
    check_proof,
)
from optmatch.verify.light import check_light, check_matchings, check_shapes, find_staying
from optmatch.verify.report import Findings

WHOLE = 1e-9
"""A duration is this close to a whole number of ticks, beside the rounding of float64."""

MOST = 2.0**53
"""No slot lasts so many ticks: float64 could not tell how many they are."""

MOST_TOGETHER = 2**62
"""The slots of all planes together, with delays, take less ticks."""


class Circuits(NamedTuple):
    """Circuits of one plane, an entry for each circuit of each slot."""

    sources: NDArray[np.int64]
    destinations: NDArray[np.int32]
    ticks: NDArray[np.int64]
    """For how long it carries data; packets are not counted."""


def _replay(problem: Demand, answer: Any, findings: Findings, *, is_claimed: bool) -> bool:
    """Replay one schedule or those of all planes; False if the objective is not known.

    An answer that a solution claims to have (`is_claimed`) has to be of the class of the problem.
    """
    expected: type = PlaneSchedules if problem.planes > 1 else Schedule
    if is_claimed and not isinstance(answer, expected):
        rule = "the answer is a schedule for each plane"
        findings.refuse(rule, "answer", type(answer).__name__, expected.__name__)
        return False
    schedules = answer.schedules if isinstance(answer, PlaneSchedules) else (answer,)
    return _replay_demand(problem, schedules, findings)


def _replay_demand(problem: Demand, schedules: Sequence[Schedule], findings: Findings) -> bool:
    """Check the schedules that carry a demand, one for each plane, and compute the objective.

    What is wrong on a plane is told with its number. A figure that each plane has is the largest
    of all planes. False if the slots of some plane are no matchings: then the objective is not
    known.
    """
    findings.expect(
        "there is a schedule for each plane", "schedules", len(schedules), problem.planes
    )
    ends: list[int] = []  # when the last slot of each plane ends, in ticks
    circuits: list[Circuits] = []  # those of each plane
    for number, schedule in enumerate(schedules):
        # Each plane has findings of its own, which get its number in messages. Without matchings
        # (None) it is not known what it serves.
        of_plane = Findings()
        replayed = _replay_plane(problem, schedule, of_plane)
        prefix = f"plane {number}: " if problem.planes > 1 else ""
        findings.include(of_plane, prefix)
        for name, value in of_plane.figures.items():
            findings.figures[name] = max(value, findings.figures.get(name, value))
        if replayed is not None:
            plane_end, plane_circuits = replayed
            ends.append(plane_end)
            circuits.append(plane_circuits)
    if len(ends) < len(schedules):
        findings.skipped.append("what is served: slots that are no matchings define no circuits")
        return False
    if not problem.exact:
        findings.notes.append(f"demands were rounded to ticks of {problem.tick_s:g} s")

    # All planes together: how many slots they have, when the last one ends, and what they carry.
    # With "weighted-completion-s" the objective is set already, by `_replay_plane`.
    n_slots = sum(len(schedule.durations_s) for schedule in schedules)
    findings.figures["slots"] = n_slots
    end_ticks = max(ends, default=0)
    findings.figures["makespan_s"] = end_ticks * problem.tick_s
    completion_s = _check_completion(problem, schedules, circuits, end_ticks, findings)
    findings.figures["completion_s"] = completion_s
    if problem.objective == "completion-s":
        findings.figures["objective"] = completion_s
    elif problem.objective == "matchings":
        findings.figures["objective"] = float(n_slots)
    return True


def _replay_plane(
    problem: Demand, schedule: Schedule, findings: Findings
) -> tuple[int, Circuits] | None:
    """Apply the rules of demands to the schedule of one plane, and list its circuits.

    With the objective "weighted-completion-s", entries are in groups and this is the only plane:
    the figure ``objective``, the sum of weights times lateness of groups, is set here. Returns the
    tick at which the last slot ends, and the circuits; None if arrays have wrong shapes, slots are
    no matchings, or int64 could not hold sums of their ticks.
    """
    for name in ("delay_s", "switching"):
        rule = f"the {name.removesuffix('_s')} is the problem's"
        findings.expect(rule, name, getattr(schedule, name), getattr(problem, name))
    if not check_shapes(problem.fabric, schedule, findings):
        return None
    if not check_matchings(problem.fabric, schedule.matchings, findings):
        return None
    ticks = _count_ticks(problem, schedule, findings)
    matchings = schedule.matchings

    # Ticks of all planes are added up in int64, so each may take an equal part of `MOST_TOGETHER`.
    end_ticks: int = sum(ticks.tolist()) + problem.delay_ticks * len(ticks)
    if end_ticks >= MOST_TOGETHER // problem.planes:
        rule = f"< {MOST_TOGETHER // problem.planes:g} ticks"
        findings.refuse("slots can be added up", "durations_s", end_ticks, rule)
        return None
    check_light(problem.fabric, matchings, schedule.cell_states, findings)

    # ``ticks_of_port[slot, source]``: what its circuit carries, the ticks of the slot. With
    # per-circuit switching a circuit whose ports and light stay carries during the delay before
    # the slot, too. If the objective is the number of matchings it does not count: the demand has
    # to be the sum of the matchings, each times the ticks of its slot.
    ticks_of_port = np.broadcast_to(ticks[:, None], matchings.shape).copy()
    if problem.switching == "per-circuit" and problem.objective != "matchings":
        stays = find_staying(problem.fabric, matchings, schedule.cell_states)
        ticks_of_port += stays * problem.delay_ticks
    slot, source = np.nonzero(matchings != IDLE)
    circuits = Circuits(source, matchings[slot, source], ticks_of_port[slot, source])
    if problem.objective == "weighted-completion-s":
        add_group_figures(problem, matchings, ticks, findings)
    return end_ticks, circuits


def _count_ticks(problem: Demand, schedule: Schedule, findings: Findings) -> NDArray[np.int64]:
    """Count the ticks of each slot, and check that they are whole and not too few.

    0.3 s are 3 ticks of 0.1 s, up to rounding. A duration out of range (below 0, from `MOST` ticks
    on, or NaN) is no whole number of ticks, and counts 0.
    """
    # `exact` has fractions of ticks, -1 for a duration out of range. It may be off by the rounding
    # of float64, for which 2**-50 of it is allowed, and by `WHOLE` besides.
    tick_s = problem.tick_s
    exact = schedule.durations_s / tick_s
    exact = np.where((exact >= 0) & (exact < MOST), exact, -1.0)
    ticks = np.rint(exact)
    is_whole = (exact >= 0) & (np.abs(exact - ticks) <= WHOLE + ticks * 2.0**-50)
    findings.expect_none(
        "a slot lasts a whole number of ticks",
        ~is_whole,
        "durations_s[{}]",
        schedule.durations_s,
        f"a multiple of {tick_s:g} s",
        most=None,
    )
    findings.expect_none(
        "no slot is shorter than allowed",
        is_whole & (ticks < problem.min_slot_ticks),
        "durations_s[{}]",
        schedule.durations_s,
        f">= {problem.min_slot_ticks * tick_s:g} s",
        most=None,
    )
    return np.maximum(ticks, 0).astype(np.int64)


def _check_completion(
    problem: Demand,
    schedules: Sequence[Schedule],
    circuits: Sequence[Circuits],
    end_ticks: int,
    findings: Findings,
) -> float:
    """Compare served and wanted demand in ticks, and return when the last data arrive, in s.

    `schedules` and `circuits` are those of each plane, and `end_ticks` is when the last slot ends.
    If 10 ticks are wanted and circuits serve 7, a packet network carries the other 3; without one
    this is a violation, and the result is infinite. Where matchings are counted, circuits have to
    serve exactly what is wanted.

    Sets the figures ``demand_s`` and ``circuit_s``, how long circuits would need for the demand
    and need for what they carry, and ``packet_s``, how long the packet network needs for the rest.
    """
    # Pairs of ports that have a demand or a circuit, each once, as ``source * n_ports +
    # destination``: `pairs`. `served` has the ticks of all circuits of each. `entry_places` are
    # the pairs with a demand where these are few, and None where they are many.
    tick_s = problem.tick_s
    n_ports = problem.fabric.n_ports
    circuit_pairs = np.concatenate([c.sources * n_ports + c.destinations for c in circuits])
    circuit_ticks = np.concatenate([c.ticks for c in circuits])
    entry_places = problem.entry_places
    if entry_places is None:
        # Many pairs may have a demand: circuits are added up by pair, for all pairs. `needed`
        # tells which have one; where matchings are counted, a circuit carries both directions.
        needed = problem.ticks if problem.objective == "matchings" else problem.directed_ticks
        served_by_place = np.zeros(needed.size, dtype=np.int64)
        np.add.at(served_by_place, circuit_pairs, circuit_ticks)
        pairs = np.flatnonzero((needed.ravel() != 0) | (served_by_place != 0))
        served = served_by_place[pairs]
    else:
        # The same for pairs with a demand or a circuit alone, as the matrix of all pairs would be
        # too large: ``number[k]`` is the place in `pairs` of the k-th one that is listed.
        listed = np.concatenate([circuit_pairs, entry_places])
        pairs, number = np.unique(listed, return_inverse=True)
        served = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(served, number[: len(circuit_pairs)], circuit_ticks)

    # What is wanted in each direction, and how much of it circuits carry or leave: in ticks.
    sources, destinations = np.divmod(pairs, n_ports)
    wanted = problem.directed_ticks[sources, destinations]
    carried = np.minimum(wanted, served)
    left = wanted - carried
    findings.figures["demand_s"] = float(wanted.sum()) * tick_s
    findings.figures["circuit_s"] = float(carried.sum()) * tick_s

    # A packet network carries what is left, at `packet_share` times the rate of a circuit; its
    # busiest port decides, by what it sends (row 0) or receives (row 1).
    if problem.packet_bytes_per_s > 0:
        left_of_line = np.zeros((2, n_ports), dtype=np.int64)
        np.add.at(left_of_line[0], sources, left)
        np.add.at(left_of_line[1], destinations, left)
        packet_ticks = int(left_of_line.max()) / problem.packet_share
        findings.figures["packet_s"] = packet_ticks * tick_s
        return max(float(end_ticks), packet_ticks) * tick_s

    # Where matchings are counted, circuits add up to the demand exactly.
    rule = "all demand is served"
    is_wrong = left > 0
    if problem.objective == "matchings":
        rule = "the circuits add up to the demand"
        wanted = problem.ticks[sources, destinations]
        is_wrong = served != wanted

    # Amounts are in the unit of the demand: seconds at the rate 1. The slots that have the circuit
    # of an entry are listed plane by plane.
    rate = problem.rate_bytes_per_s
    unit = "s" if rate == 1 else "bytes"
    for entry in np.flatnonzero(is_wrong):
        slots = [
            str(np.flatnonzero(schedule.matchings[:, sources[entry]] == destinations[entry]))
            for schedule in schedules
        ]
        findings.refuse(
            rule,
            f"from port {sources[entry]} to port {destinations[entry]}",
            f"{served[entry] * tick_s * rate:.12g} {unit} by circuits in slots {', '.join(slots)}",
            f"{wanted[entry] * tick_s * rate:.12g} {unit}",
        )
    if left.any():
        return math.inf
    return float(end_ticks) * tick_s


def verify_demand(
    problem: Demand, subject: Schedule | PlaneSchedules | Solution, findings: Findings
) -> None:
    """Check schedules that are to carry a demand, and the claims of a solution about them.

    The figure ``lower_bound_recomputed`` is a bound of the objective that needs no certificate.
    """
    # The objective is a multiple of a step: packets alone may end between two ticks.
    if problem.objective == "matchings":
        findings.step = 1.0
    elif problem.objective == "completion-s" and problem.packet_share == 0:
        findings.step = problem.tick_s

    # The answer is replayed. Of a solution `prove` checks the certificate, and its claims are
    # compared with what is found; a bound below the counted one breaks the rule `floor`.
    findings.figures["lower_bound_recomputed"] = bound_demand(problem)
    is_claimed = isinstance(subject, Solution)
    check_solution(
        subject,
        findings,
        replay=partial(_replay, problem, findings=findings, is_claimed=is_claimed),
        form="answer" if problem.planes > 1 else "schedule",
        prove=partial(check_proof, problem),
        floor="the lower bound is not below what ports need",
    )
