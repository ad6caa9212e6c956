"""The rules of schedules of all pairs, and of one matching: circuits, light, lengths, claims."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from optmatch.model import FREE, IDLE, ON_CHIP, Schedule, Solution, Status
from optmatch.problems import AllToAll, Routing, RoutingProof
from optmatch.verify.bounds import SEARCHES, check_solution
from optmatch.verify.report import Findings, ProofError
from optmatch.verify.routing.bounds import bound_objective, count_slots
from optmatch.verify.routing.chips import chip_figures, measure_quality, sum_power
from optmatch.verify.routing.light import Traced, check_light
from optmatch.verify.routing.matchings import check_matchings, check_shapes
from optmatch.verify.routing.proofs import Circuit, ProofChecker


def verify_schedule(
    problem: AllToAll | Routing, subject: Schedule | Solution, findings: Findings
) -> None:
    """Check a schedule of all pairs, or of one matching, and the claims of a solution about it."""
    if problem.objective not in (*ON_CHIP, "loss-db"):
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
    own = isinstance(problem, AllToAll) and problem.delay_s == "cells"
    defined = check_shapes(problem.fabric, schedule, findings, own_delays=own)
    defined = defined and check_matchings(problem.fabric, schedule, findings)
    if not defined:
        findings.skipped.append(
            "times, pairs and light: slots that are no matchings define no circuits"
        )
        return False
    _check_times(problem, schedule, findings)
    if isinstance(problem, AllToAll):
        _check_coverage(problem, schedule, findings)
    else:
        _check_given_matching(problem, schedule, findings)
    traced = check_light(problem.fabric, schedule, findings)
    _add_figures(problem, schedule, traced, findings)
    return True


def _check_times(problem: AllToAll | Routing, schedule: Schedule, findings: Findings) -> None:
    """Check durations, delay and the kind of switching, and add up the time."""
    rule, slot_s, delay_s = "a matching that is asked for alone lasts 1 s", 1.0, 0.0
    waited_s = len(schedule.matchings) * float(schedule.delay_s)
    if isinstance(problem, AllToAll):
        rule, slot_s = "a slot lasts slot_s", problem.slot_s
        if isinstance(problem.delay_s, str):
            delays_s = _check_delays(problem, schedule, findings)
            delay_s, waited_s = max(delays_s, default=0.0), math.fsum(delays_s)
            findings.figures["total_settling_s"] = waited_s
        else:
            delay_s = problem.delay_s
    for slot, duration in enumerate(schedule.durations_s.tolist()):
        findings.expect(rule, f"durations_s[{slot}]", duration, slot_s)
    findings.expect("the delay is the problem's", "delay_s", float(schedule.delay_s), delay_s)
    # no pair meets in two slots, so no circuit could go on through a reconfiguration
    findings.expect("all circuits change together", "switching", schedule.switching, "all-stop")
    if isinstance(problem, AllToAll):
        findings.figures["makespan_s"] = float(schedule.durations_s.sum()) + waited_s


def _check_delays(problem: AllToAll, schedule: Schedule, findings: Findings) -> list[float]:
    """Check that each slot waits for the slowest cell that it sets anew; return what each waits.

    A free cell is left as it was, and what a cell is before it is first driven is not known.
    """
    graph: Any = problem.fabric.graph  # there are cells, and their shapes are right
    device: Any = problem.cells
    states: Any = schedule.cell_states
    stated_s: Any = schedule.delays_s
    driven, delays_s = np.full(graph.n_cells, FREE), list[float]()
    settling_s = np.where(graph.stuck == FREE, device.settling_s, 0.0)
    for slot, row in enumerate(states):
        delays_s.append(float(settling_s[(row != FREE) & (row != driven)].max(initial=0.0)))
        driven = np.where(row == FREE, driven, row)
        rule, place = "a slot waits for the slowest cell that it sets anew", f"delays_s[{slot}]"
        findings.expect(rule, place, float(stated_s[slot]), delays_s[slot])
    return delays_s


def _check_coverage(problem: AllToAll, schedule: Schedule, findings: Findings) -> None:
    """Check that each two different live ports meet exactly once, and that nothing else does."""
    n_ports = problem.fabric.n_ports
    slots, sources = np.nonzero(schedule.matchings != IDLE)
    destinations = schedule.matchings[slots, sources]
    meetings = np.zeros((n_ports, n_ports), dtype=np.int64)
    np.add.at(meetings, (sources, destinations), 1)
    wanted = np.ones_like(meetings) - np.eye(n_ports, dtype=np.int64)
    wanted[list(problem.fabric.dead_ports)] = wanted[:, list(problem.fabric.dead_ports)] = 0
    for i, j in np.argwhere(meetings != wanted):
        if problem.fabric.bidirectional and i > j:
            continue  # the same circuit as (j, i)
        held = slots[(sources == i) & (destinations == j)].tolist()
        findings.refuse(
            "every pair meets exactly once, and no port meets itself",
            f"ports {i} and {j}" if problem.fabric.bidirectional else f"from port {i} to port {j}",
            f"slots {held}" if held else "no slot",
            "one slot" if wanted[i, j] else "no slot",
        )


def _check_given_matching(problem: Routing, schedule: Schedule, findings: Findings) -> None:
    """Check that the one slot holds the matching that was asked for."""
    if not findings.expect("there is one slot", "matchings", len(schedule.matchings), 1):
        return
    held, asked = schedule.matchings[0], problem.matching
    for port in np.flatnonzero(held != asked):
        findings.refuse(
            "the slot holds the given matching",
            f"matchings[0, {port}]",
            int(held[port]),
            int(asked[port]),
        )


def _add_figures(
    problem: AllToAll | Routing, schedule: Schedule, traced: Traced, findings: Findings
) -> None:
    """Add up the cells on the way of the light."""
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
    if problem.cells is not None and traced.light is not None:
        power_mw = sum_power(problem.fabric.graph, problem.cells, schedule.cell_states)
        quality = measure_quality(traced.light, problem.cells)
        figures |= chip_figures(problem, quality, power_mw)
    if not isinstance(problem, Routing):
        return
    if problem.objective == "worst-cells":
        figures["objective"] = float(figures["worst_route_cells"])
    if problem.objective == "loss-db":
        crossed = int(traced.crossed.sum())
        loss_db = (total - crossed) * problem.bar_loss_db + crossed * problem.cross_loss_db
        figures["objective"] = figures["total_loss_db"] = loss_db


def count_toggles(schedule: Schedule) -> int:
    """Count how often a cell is driven to the other state.

    A free cell keeps the state it was last driven to; the first setting of a cell is no toggle.
    """
    if schedule.cell_states is None:
        return 0
    toggles = 0
    driven = np.full(schedule.cell_states.shape[1], FREE)
    for states in schedule.cell_states:
        toggles += int(np.count_nonzero((states != FREE) & (driven != FREE) & (states != driven)))
        driven = np.where(states == FREE, driven, states)
    return toggles


def check_proof(problem: AllToAll | Routing, findings: Findings, proof: Any) -> float:
    """Return the bound that a proof shows, in the unit of the objective."""
    graph = problem.fabric.graph
    if graph is None or not isinstance(proof, RoutingProof):
        raise ProofError(
            f"a {type(proof).__name__}, where only a RoutingProof on cells can be checked"
        )
    checker = ProofChecker(graph)
    if problem.objective in ON_CHIP:
        if isinstance(problem, Routing) and checker.show_infeasible(proof, list_circuits(problem)):
            return math.inf
        return 0.0
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
    """Return the bound that link prices show for all slots together, if there are the fewest."""
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
    if solution.status is not Status.OPTIMAL or "slots_lower_bound" not in figures:
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
