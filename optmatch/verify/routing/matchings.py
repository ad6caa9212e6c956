"""The rules of slots: shapes, and that each holds a matching."""

from __future__ import annotations

import numpy as np

from optmatch.fabrics import Fabric
from optmatch.model import CROSS, FREE, IDLE, Schedule
from optmatch.verify.report import Findings


def check_shapes(
    fabric: Fabric, schedule: Schedule, findings: Findings, *, own_delays: bool = False
) -> bool:
    """Check that the arrays fit the fabric; without that nothing else can be checked.

    With `own_delays` each slot has a delay of its own.
    """
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
    delays_s = schedule.delays_s
    right &= findings.expect(
        "each slot has a delay where cells say it, and only there",
        "delays_s.shape",
        None if delays_s is None else list(delays_s.shape),
        [slots] if own_delays else None,
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
