"""The rules of slots: shapes, matchings, times, and which pairs meet."""

from __future__ import annotations

import numpy as np

from optmatch.fabrics import Fabric
from optmatch.model import CROSS, FREE, IDLE, Schedule
from optmatch.problems import AllToAll, Routing
from optmatch.verify.report import Findings


def check_shapes(fabric: Fabric, schedule: Schedule, findings: Findings) -> bool:
    """Check that the arrays fit the fabric; without that nothing else can be checked."""
    slots = len(schedule.matchings)
    right = findings.expect(
        "a slot has an entry for each port",
        "matchings.shape",
        list(schedule.matchings.shape),
        [slots, fabric.n_ports],
    )
    right &= findings.expect(
        "each slot has a duration",
        "durations_s.shape",
        list(schedule.durations_s.shape),
        [slots],
    )
    states = schedule.cell_states
    if fabric.graph is None:
        right &= findings.expect(
            "a fabric without cells has no states",
            "cell_states",
            "given" if states is not None else None,
            None,
        )
    else:
        right &= findings.expect(
            "a slot has a state for each cell",
            "cell_states.shape",
            None if states is None else list(states.shape),
            [slots, fabric.n_cells],
        )
    if states is not None:
        for slot, cell in np.argwhere((states < FREE) | (states > CROSS)):
            right = findings.expect(
                "a state is 0 (bar), 1 (cross) or -1 (free)",
                f"cell_states{[int(slot), int(cell)]}",
                int(states[slot, cell]),
                "-1 .. 1",
            )
    return right


def check_matchings(fabric: Fabric, schedule: Schedule, findings: Findings) -> bool:
    """Check that each slot is a matching; without that circuits are not defined."""
    matchings, n_ports = schedule.matchings, fabric.n_ports
    before = len(findings.violations)
    for slot, port in np.argwhere((matchings < IDLE) | (matchings >= n_ports)):
        findings.refuse(
            "a partner is a port, or -1 where idle",
            f"matchings[{slot}, {port}]",
            int(matchings[slot, port]),
            f"-1 .. {n_ports - 1}",
        )
    if len(findings.violations) > before:
        return False
    for slot, row in enumerate(matchings):
        for port in fabric.dead_ports:
            if row[port] != IDLE or (row == port).any():
                sources = np.flatnonzero(row == port).tolist()
                findings.refuse(
                    "a dead port takes part in no circuit",
                    f"slot {slot}, port {port}",
                    f"to {row[port]}, from {sources}",
                    "idle",
                )
        uses = np.bincount(row[row != IDLE], minlength=n_ports)
        for port in np.flatnonzero(uses > 1):
            findings.refuse(
                "a port is the destination of one circuit",
                f"slot {slot}, destination {port}",
                f"sources {np.flatnonzero(row == port).tolist()}",
                "one source",
            )
        if not fabric.bidirectional:
            continue
        for port in np.flatnonzero(row != IDLE):
            findings.expect(
                "circuits of bidirectional ports are mutual",
                f"matchings[{slot}, {row[port]}]",
                int(row[row[port]]),
                int(port),
            )
            if row[port] == port:
                findings.refuse(
                    "a bidirectional port does not meet itself",
                    f"matchings[{slot}, {port}]",
                    int(port),
                    "another port",
                )
    return len(findings.violations) == before


def check_times(problem: AllToAll | Routing, schedule: Schedule, findings: Findings) -> None:
    """Check durations, delay and the kind of switching, and add up the time."""
    rule, slot_s, delay_s = "a matching that is asked for alone lasts 1 s", 1.0, 0.0
    if isinstance(problem, AllToAll):
        rule, slot_s, delay_s = "a slot lasts slot_s", problem.slot_s, problem.delay_s
    for slot, duration in enumerate(schedule.durations_s.tolist()):
        findings.expect(rule, f"durations_s[{slot}]", duration, slot_s)
    findings.expect("the delay is the problem's", "delay_s", float(schedule.delay_s), delay_s)
    # no pair meets in two slots, so no circuit could go on through a reconfiguration
    findings.expect("all circuits change together", "switching", schedule.switching, "all-stop")
    if isinstance(problem, AllToAll):
        findings.figures["makespan_s"] = float(schedule.durations_s.sum()) + (
            len(schedule.matchings) * float(schedule.delay_s)
        )


def check_coverage(problem: AllToAll, schedule: Schedule, findings: Findings) -> None:
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
            continue  # named as (j, i): circuits are mutual
        held = slots[(sources == i) & (destinations == j)].tolist()
        findings.refuse(
            "every pair meets exactly once, and no port meets itself",
            f"ports {i} and {j}" if problem.fabric.bidirectional else f"from port {i} to port {j}",
            f"slots {held}" if held else "no slot",
            "one slot" if wanted[i, j] else "no slot",
        )


def check_given_matching(problem: Routing, schedule: Schedule, findings: Findings) -> bool:
    """Check that the one slot holds the matching that was asked for."""
    if not findings.expect("there is one slot", "matchings", len(schedule.matchings), 1):
        return False
    held, asked = schedule.matchings[0], problem.matching
    for port in np.flatnonzero(held != asked):
        findings.refuse(
            "the slot holds the given matching",
            f"matchings[0, {port}]",
            int(held[port]),
            int(asked[port]),
        )
    return True
