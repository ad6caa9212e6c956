"""The rules of slots: shapes, and that each holds a matching."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import CROSS, FREE, IDLE, Schedule
from optmatch.verify.report import Findings, Rule

# Shapes
ENTRY_PER_PORT = Rule("a slot has an entry for each port")
DURATION_PER_SLOT = Rule("each slot has a duration")
DELAY_PER_SLOT = Rule("each slot has a delay where cells say it, and only there")
STATE_PER_CELL = Rule("a slot has a state for each cell")
NO_CELLS_NO_STATES = Rule("a fabric without cells has no states")
STATE_IS_KNOWN = Rule("a state is 0 (bar), 1 (cross) or -1 (free)")

# Matchings
PARTNER_IS_PORT = Rule("a partner is a port, or -1 where idle")
DEAD_PORT_IS_IDLE = Rule("a dead port takes part in no circuit")
ONE_SOURCE = Rule("a port is the destination of one circuit")
MUTUAL = Rule("circuits of bidirectional ports are mutual")
NOT_ITSELF = Rule("a bidirectional port does not meet itself")


def check_shapes(
    fabric: Fabric, schedule: Schedule, findings: Findings, *, own_delays: bool = False
) -> bool:
    """Check that the arrays of a schedule fit the switch; else nothing else can be checked.

    ``delays_s`` is expected with `own_delays` alone, and ``cell_states`` (-1, 0 or 1) with cells
    alone.
    """
    n_slots = len(schedule.matchings)
    shape = list(schedule.matchings.shape)
    fits = findings.expect(ENTRY_PER_PORT, "matchings.shape", shape, [n_slots, fabric.n_ports])
    shape = list(schedule.durations_s.shape)
    fits &= findings.expect(DURATION_PER_SLOT, "durations_s.shape", shape, [n_slots])

    # Only where each slot has a delay of its own, there is one for each slot.
    delays_shape = None if schedule.delays_s is None else list(schedule.delays_s.shape)
    expected = [n_slots] if own_delays else None
    fits &= findings.expect(DELAY_PER_SLOT, "delays_s.shape", delays_shape, expected)

    states = schedule.cell_states
    if fabric.graph is None:
        given = None if states is None else "given"
        fits &= findings.expect(NO_CELLS_NO_STATES, "cell_states", given, None)
    else:
        states_shape = None if states is None else list(states.shape)
        expected = [n_slots, fabric.n_cells]
        fits &= findings.expect(STATE_PER_CELL, "cell_states.shape", states_shape, expected)
    # -1 is free, 0 bar and 1 cross.
    if states is not None:
        for slot, cell in np.argwhere((states < FREE) | (states > CROSS)):
            where = f"cell_states[{slot}, {cell}]"
            findings.refuse(STATE_IS_KNOWN, where, int(states[slot, cell]), "-1 .. 1")
            fits = False
    return fits


def check_matchings(fabric: Fabric, schedule: Schedule, findings: Findings) -> bool:
    """Check that each slot is a matching; without that circuits are not defined.

    Each live port has one destination or is idle, no two have the same one, and bidirectional
    ports face each other in pairs.
    """
    violations_before = len(findings.violations)
    matchings = schedule.matchings
    for slot, port in np.argwhere((matchings < IDLE) | (matchings >= fabric.n_ports)):
        where = f"matchings[{slot}, {port}]"
        partner = int(matchings[slot, port])
        findings.refuse(PARTNER_IS_PORT, where, partner, f"-1 .. {fabric.n_ports - 1}")
    if len(findings.violations) > violations_before:
        return False

    # All entries are ports or idle, and may now be used as indices.
    for slot, matching in enumerate(matchings):
        _check_dead_ports(fabric, slot, matching, findings)
        _check_destinations(slot, matching, findings)
        if fabric.bidirectional:
            _check_mutual(slot, matching, findings)
    return len(findings.violations) == violations_before


def _check_dead_ports(
    fabric: Fabric, slot: int, matching: NDArray[np.int32], findings: Findings
) -> None:
    """Check that dead ports send nothing and that nothing is sent to them."""
    for port in fabric.dead_ports:
        sources = np.flatnonzero(matching == port).tolist()
        if matching[port] != IDLE or sources:
            got = f"to {matching[port]}, from {sources}"
            findings.refuse(DEAD_PORT_IS_IDLE, f"slot {slot}, port {port}", got, "idle")


def _check_destinations(slot: int, matching: NDArray[np.int32], findings: Findings) -> None:
    """Check that no two circuits of a slot have the same destination."""
    n_uses = np.bincount(matching[matching != IDLE], minlength=len(matching))
    for port in np.flatnonzero(n_uses > 1):
        sources = np.flatnonzero(matching == port).tolist()
        where = f"slot {slot}, destination {port}"
        findings.refuse(ONE_SOURCE, where, f"sources {sources}", "one source")


def _check_mutual(slot: int, matching: NDArray[np.int32], findings: Findings) -> None:
    """Check that the circuit of a bidirectional port leads back to it, from another port."""
    for port in np.flatnonzero(matching != IDLE):
        partner = int(matching[port])
        where = f"matchings[{slot}, {partner}]"
        findings.expect(MUTUAL, where, int(matching[partner]), int(port))
        if partner == port:
            findings.refuse(NOT_ITSELF, where, int(port), "another port")
