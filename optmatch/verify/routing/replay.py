"""The rules of schedules of all pairs, and of one matching: circuits, light, lengths, claims.

`_replay` checks a schedule in this order:

1. Its arrays fit the switch (`check_shapes`), and each slot is a matching (`check_matchings`);
   without that nothing else is checked.
2. Slots and delays last as long as the problem says (`_check_times`, `_check_stated_times`).
3. Each pair meets exactly once (`_check_coverage`), or the one slot holds the given matching.
4. Light reaches its partner, comes back, and shares no link (`check_light`).

Figures are those of the traced light. The slots of a solution are compared with the fewest that
are proved (`_check_slots`), after its certificate was checked (`check_proof`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.light import Light
from optmatch.model import FREE, IDLE, ON_CHIP, Schedule, Solution, Status
from optmatch.problems import AllToAll, Routing, RoutingProof
from optmatch.problems.routing import OBJECTIVES
from optmatch.verify.bounds import SEARCHES, check_solution
from optmatch.verify.light import check_light, check_matchings, check_shapes
from optmatch.verify.report import Findings, ProofError
from optmatch.verify.routing.bounds import (
    Circuit,
    ProofChecker,
    bound_objective,
    chip_figures,
    count_slots,
    list_pairs,
    measure_quality,
    sum_power,
)


def verify_schedule(
    problem: AllToAll | Routing, subject: Schedule | Solution, findings: Findings
) -> None:
    """Check a schedule of a switch, and every claim that a solution makes about it.

    Adds the figure ``lower_bound_recomputed``, which bounds the objective by the best route of
    each circuit as if it were alone, and for an all-to-all ``slots_lower_bound``, which bounds the
    slots that all pairs need.
    """
    # Objectives and bounds that are whole numbers, such as cells, are compared as such.
    if OBJECTIVES[problem.objective].whole:
        findings.step = 1.0

    # The bounds that need no certificate: of slots, by counting pairs, and of the objective.
    if isinstance(problem, AllToAll):
        findings.figures["slots_lower_bound"] = count_slots(problem.fabric)
    findings.figures["lower_bound_recomputed"] = bound_objective(problem)
    stats: Mapping[str, Any] = getattr(subject, "stats", {})  # a schedule claims nothing
    has_schedule = getattr(subject, "schedule", None) is not None

    # A schedule alone is replayed, and that is all. Of a solution, `check_solution` replays the
    # field that `form` names, checks the certificate (`prove`), and compares the claimed bound and
    # objective with what both have shown. A claimed bound below the counted one breaks the rule
    # `floor`, of which this is the text; an empty text is no rule. The result says whether the
    # replay has set the objective.
    replayed = check_solution(
        subject,
        findings,
        replay=partial(_replay, problem, findings=findings),
        form="schedule",
        prove=partial(
            check_proof, problem, findings, claimed_slots=stats.get("slots_lower_bound")
        ),
        floor="the lower bound is not below the shortest routes" if has_schedule else "",
    )

    # The certificate may have proved that more slots are needed than counting shows, and raised
    # the figure ``slots_lower_bound``: the slots of an optimal schedule are compared only now.
    is_optimal = getattr(subject, "status", None) is Status.OPTIMAL
    if replayed and is_optimal and isinstance(problem, AllToAll):
        _check_slots(stats, findings)


def _replay(problem: AllToAll | Routing, schedule: Schedule | None, findings: Findings) -> bool:
    """Check a schedule by all rules, and add its figures; None is a violation.

    False if no light could be traced: then there is no objective.
    """
    if schedule is None:
        findings.refuse("the answer is a schedule", "schedule", None, "a schedule")
        return False
    findings.figures["slots"] = len(schedule.matchings)

    # Without matchings of the right shape there are no circuits, and nothing else to check. A
    # schedule states a delay of each slot where these depend on the cells that are set ("cells").
    own_delays = isinstance(problem, AllToAll) and problem.delay_s == "cells"
    if not (
        check_shapes(problem.fabric, schedule, findings, own_delays=own_delays)
        and check_matchings(problem.fabric, schedule.matchings, findings)
    ):
        findings.skipped.append(
            "times, pairs and light: slots that are no matchings define no circuits"
        )
        return False

    if isinstance(problem, AllToAll):
        _check_times(problem, schedule, findings)
        _check_coverage(problem, schedule, findings)
    else:
        _check_stated_times(
            schedule,
            "a matching that is asked for alone lasts 1 s",
            slot_s=1.0,
            delay_s=0.0,
            findings=findings,
        )
        # The one slot holds the matching that was asked for.
        if findings.expect("there is one slot", "matchings", len(schedule.matchings), 1):
            matching = schedule.matchings[0]
            expected = problem.matching
            findings.expect_none(
                "the slot holds the given matching",
                matching != expected,
                "matchings[0, {}]",
                matching,
                expected,
                most=None,
            )
    light = check_light(problem.fabric, schedule.matchings, schedule.cell_states, findings)
    _add_figures(problem, schedule, light, findings)
    return True


def _check_times(problem: AllToAll, schedule: Schedule, findings: Findings) -> None:
    """Check durations, delays and the kind of switching, and add the figure ``makespan_s``."""
    # The only text that stands for a delay is "cells": each slot waits for its slowest cell.
    if isinstance(problem.delay_s, str):
        delays_s = _check_delays(problem, schedule, findings)
        delay_s = max(delays_s, default=0.0)
        waited_s = math.fsum(delays_s)
        findings.figures["total_settling_s"] = waited_s
    else:
        delay_s = problem.delay_s
        waited_s = len(schedule.matchings) * float(schedule.delay_s)
    _check_stated_times(schedule, "a slot lasts slot_s", problem.slot_s, delay_s, findings)
    findings.figures["makespan_s"] = float(schedule.durations_s.sum()) + waited_s


def _check_stated_times(
    schedule: Schedule, rule: str, slot_s: float, delay_s: float, findings: Findings
) -> None:
    """Check that each slot lasts `slot_s` after a delay of `delay_s` in which all circuits wait.

    `rule` is the text of a violation of the first of these.
    """
    durations_s = schedule.durations_s
    findings.expect_none(
        rule, durations_s != slot_s, "durations_s[{}]", durations_s, slot_s, most=None
    )
    findings.expect("the delay is the problem's", "delay_s", float(schedule.delay_s), delay_s)
    # No pair meets in two slots, so no circuit could go on through a reconfiguration.
    findings.expect("all circuits change together", "switching", schedule.switching, "all-stop")


def _check_delays(problem: AllToAll, schedule: Schedule, findings: Findings) -> list[float]:
    """Check that slots wait for the slowest cell that they set anew; return the delays in s.

    Cells count that get another state than they were last driven to; free cells stay as they were,
    and the first setting always counts.
    """
    graph = problem.fabric.graph
    states = schedule.cell_states
    stated_s = schedule.delays_s
    assert graph is not None and problem.cells is not None
    assert states is not None and stated_s is not None  # as `check_shapes` found

    # By cell how long it takes to settle, in s; stuck cells take no time. A slot waits for the
    # slowest of the cells that it sets anew: `set_anew` is by slot and cell.
    settling_s = np.where(graph.stuck == FREE, problem.cells.settling_s, 0.0)
    set_anew = (states != FREE) & (states != _driven_before(states))
    delays_s = np.where(set_anew, settling_s, 0.0).max(axis=1, initial=0.0)
    findings.expect_none(
        "a slot waits for the slowest cell that it sets anew",
        stated_s != delays_s,
        "delays_s[{}]",
        stated_s,
        delays_s,
        most=None,
    )
    return cast("list[float]", delays_s.tolist())


def _driven_before(states: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return by slot and cell the state that each cell was last driven to before the slot.

    A free cell stays as it was. `FREE` before the first setting.
    """
    driven = np.full_like(states, FREE)
    for slot in range(1, len(states)):
        before = states[slot - 1]
        driven[slot] = np.where(before == FREE, driven[slot - 1], before)
    return driven


def _check_coverage(problem: AllToAll, schedule: Schedule, findings: Findings) -> None:
    """Check that each two different live ports meet exactly once, and that no others do."""
    # ``n_slots[source, destination]``: the number of slots that have this circuit.
    fabric = problem.fabric
    slots, sources = np.nonzero(schedule.matchings != IDLE)
    destinations = schedule.matchings[slots, sources]
    n_slots = np.zeros((fabric.n_ports, fabric.n_ports), dtype=np.int64)
    np.add.at(n_slots, (sources, destinations), 1)
    if fabric.bidirectional:
        n_slots = np.triu(n_slots)  # the other half are the same circuits from their other ends

    expected = list_pairs(problem).astype(np.int64)
    findings.expect_none(
        "every pair meets exactly once, and no port meets itself",
        n_slots != expected,
        "slots from port {} to port {}",
        n_slots,
        expected,
        most=None,
    )


def _add_figures(
    problem: AllToAll | Routing, schedule: Schedule, light: Light | None, findings: Findings
) -> None:
    """Add the figures of a schedule to a report, and its objective, which is one of them.

    Adds ``circuits``, cells on routes (in all, of the longest and on average), ``toggles`` and,
    where cells have a device, the worst loss, crosstalk and power. `light` has all beams, None
    without cells. A circuit counts once, also where both of its ends send: at the port of the
    lower number.
    """
    figures = findings.figures
    is_counted = schedule.matchings != IDLE
    if problem.fabric.bidirectional:
        is_counted &= np.arange(problem.fabric.n_ports) < schedule.matchings
    n_circuits = int(np.count_nonzero(is_counted))

    # ``cells[slot, source]``: the cells that the light from there passes.
    cells = np.zeros(is_counted.shape, dtype=np.int64)
    if light is not None:
        np.add.at(cells, (light.slot, light.beam), is_counted[light.slot, light.beam])
    total_cells = int(cells.sum())
    figures |= {
        "circuits": n_circuits,
        "total_cells": total_cells,
        "worst_route_cells": int(cells.max(initial=0)),
        "mean_route_cells": total_cells / max(n_circuits, 1),
        "toggles": count_toggles(schedule),
    }

    if isinstance(problem, Routing) and problem.objective == "loss-db":
        figures["total_loss_db"] = _sum_losses(problem, light, is_counted)
    if problem.objective not in ON_CHIP:
        figures["objective"] = float(figures[OBJECTIVES[problem.objective].figure])

    # The three objectives on a chip are among the figures of its cells.
    if problem.cells is not None and light is not None:
        power_mw = sum_power(problem.fabric.graph, problem.cells, schedule.cell_states)
        quality = measure_quality(light, problem.cells)
        figures |= chip_figures(problem, quality, power_mw)


def _sum_losses(problem: Routing, light: Light | None, is_counted: NDArray[np.bool_]) -> float:
    """Add up the losses of all cells on the ways of counted circuits, in dB; 0 without cells.

    ``is_counted[slot, source]`` tells which beams are counted: one for each circuit.
    """
    if light is None:
        return 0.0
    # Light that crosses a cell enters and leaves on different sides, of which bit 0 tells.
    passages = is_counted[light.slot, light.beam]
    is_crossed = ((light.entered ^ light.left) & 1).astype(bool)
    n_crossed = int(np.count_nonzero(passages & is_crossed))
    n_bar = int(np.count_nonzero(passages)) - n_crossed
    return n_bar * problem.bar_loss_db + n_crossed * problem.cross_loss_db


def count_toggles(schedule: Schedule) -> int:
    """Count how often cells are driven to their other state in the course of a schedule.

    A free cell keeps its state; the first setting of a cell is no toggle.
    """
    states = schedule.cell_states
    if states is None:
        return 0
    driven = _driven_before(states)
    toggled = (states != FREE) & (driven != FREE) & (states != driven)
    return int(np.count_nonzero(toggled))


def check_proof(
    problem: AllToAll | Routing, findings: Findings, proof: object, claimed_slots: object = None
) -> float:
    """Check the link prices of a certificate; return the lower bound, in cells or dB, they prove.

    It is 0 if they say nothing about this objective, and infinite if a routing has no answer. A
    wrong certificate is a `ProofError`. Prices of an all-to-all may bound its slots instead
    (`_check_prices_of_pairs`).
    """
    graph = problem.fabric.graph
    if graph is None or not isinstance(proof, RoutingProof):
        raise ProofError(
            f"a {type(proof).__name__}, where only a RoutingProof on cells can be checked"
        )
    checker = ProofChecker(graph)
    if isinstance(problem, AllToAll):
        return _check_prices_of_pairs(problem, checker, findings, proof, claimed_slots)

    # A matching is bounded in cells or in dB. With any other objective only a proof that there is
    # no routing counts.
    circuits = list_circuits(problem)
    if problem.objective == "total-cells":
        return checker.bound_cells(proof, circuits)
    if problem.objective == "loss-db":
        return checker.bound_loss(proof, circuits, problem.bar_loss_db, problem.cross_loss_db)
    return math.inf if checker.show_infeasible(proof, circuits) else 0.0


def _check_prices_of_pairs(
    problem: AllToAll,
    checker: ProofChecker,
    findings: Findings,
    proof: RoutingProof,
    claimed_slots: object,
) -> float:
    """Check the prices of an all-to-all, which bound either its slots or its cells.

    Returns the lower bound of its cells, 0 if there is none. A bound of slots is set as the figure
    ``slots_lower_bound``, which so far has the number by counting, and the certificate is noted as
    its proof. The figure stays if the solution states that number itself (`claimed_slots`), and so
    claims less than its prices prove.
    """
    # Either the prices prove that the number by counting is too low. Such prices say nothing about
    # cells.
    fewest_slots = int(findings.figures["slots_lower_bound"])
    bound = checker.bound_slots(proof, list_circuits(problem), fewest_slots)
    if bound.cells == math.inf:
        findings.notes.append(f"the certificate proves that {fewest_slots} slots do not do")
        if claimed_slots != fewest_slots:
            findings.figures["slots_lower_bound"] = bound.slots
            findings.proof = "certificate"
        return 0.0

    # Or they bound the cells of schedules with so few slots: in more slots, links are worth more.
    # The schedule at hand has to be one of these: if there were none, the prices times a large
    # factor would prove any number of cells. Objectives on a chip are not counted in cells.
    if problem.objective in ON_CHIP or findings.figures.get("slots") != fewest_slots:
        return 0.0
    return bound.cells


def list_circuits(problem: AllToAll | Routing) -> list[Circuit]:
    """List the circuits of a problem by source port, of bidirectional ports each once."""
    starts = problem.fabric.source_terminals.tolist()
    ends = problem.fabric.destination_terminals.tolist()
    pairs = np.argwhere(list_pairs(problem)).tolist()
    return [Circuit(starts[source], ends[destination]) for source, destination in pairs]


def _check_slots(stats: Mapping[str, Any], findings: Findings) -> None:
    """Check that a schedule of all pairs that is claimed to be optimal has the fewest slots.

    It is a doubt where the number rests on a search without a certificate, as `stats` of the
    solution tell.
    """
    slots = findings.figures["slots"]
    fewest_slots = findings.figures["slots_lower_bound"]
    if slots > fewest_slots and stats.get("bound_by") in SEARCHES:
        findings.doubt(
            f"status optimal: that fewer than {slots} slots do not do is from a search"
            f" without a certificate; {fewest_slots} was checked"
        )
    else:
        findings.expect("optimal means the fewest slots", "matchings", slots, fewest_slots)
