"""Cell states and phases of a schedule for the tools that drive a chip: CSV, JSON, SmartLight."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph
from optmatch.fabrics.netlists.circuits import CellCircuit, cell_circuits, find_differences
from optmatch.io.text import csv_text, layout
from optmatch.model import BAR, CROSS, FREE, InputError, Solution

_log = logging.getLogger("optmatch")

CONVENTION = (
    "T = j e^{j phi} [[sin theta, cos theta], [cos theta, -sin theta]], from (a1, a2) to (b1, b2):"
    " theta is half the difference of the phases of both arms, phi half their sum;"
    " theta = 0 is cross, theta = pi/2 is bar"
)
"""The convention of phases; `Device` computes with the same."""

_STATE_NAMES = {BAR: "bar", CROSS: "cross"}
_SMARTLIGHT = {BAR: "=", CROSS: "x"}


def stated_cells(solution: Solution) -> NDArray[np.int8]:
    """Return ``states[slot, cell]`` of a solution; one without a schedule or cells is refused."""
    if solution.schedule is None:
        outcome = f"{solution.problem.kind}, {solution.status.value}"
        raise InputError(f"{outcome}: there is no schedule with cell states")
    if solution.schedule.cell_states is None:
        raise InputError("a switch without cells: there are no cell states to write")
    return solution.schedule.cell_states


def _cell_labels(solution: Solution) -> list[int] | list[str]:
    """Return how cells are called in files: by their names, or by numbers if they have none."""
    graph: CellGraph = solution.problem.fabric.graph
    return graph.list_cells(range(graph.n_cells))


class _CellPhases(NamedTuple):
    """The phases that set one cell in one slot."""

    slot: int
    cell: int | str
    """The name of the cell, or its number."""
    state: int
    theta_rad: float | None
    """Half the phase of arm 1 less that of arm 2; None where the arms are of unlike length, and
    the phase without power is not known."""
    phi_rad: float | None
    """Half their sum; 0 where both arms have a phase shifter, which share the difference."""
    shifters: dict[str, float]
    """The phase of each phase shifter of the cell by name, from 0 to a whole turn; empty where the
    parts of the cell are not known."""


def _find_phases(solution: Solution) -> Iterator[_CellPhases]:
    """Yield the phases of every cell that is set, slot by slot; free cells are left out.

    Where the arms of a cell differ in length, its phases depend on the wavelength, and are left
    out with a warning.
    """
    fabric = solution.problem.fabric
    labels = _cell_labels(solution)
    circuits = cell_circuits(fabric)
    difference_rad = find_differences(fabric)
    for slot, row in enumerate(stated_cells(solution).tolist()):
        for cell, state in enumerate(row):
            if state == FREE:
                continue
            circuit = circuits[cell]
            if circuit is not None and circuit.longer_um:
                _log.warning(
                    "cell %s: no phases are written, since its arms differ by %.6g um",
                    labels[cell],
                    abs(circuit.longer_um),
                )
                yield _CellPhases(slot, labels[cell], state, None, None, {})
                continue

            # Half of the difference between both arms, as in the convention of interferometers.
            theta_rad = float(difference_rad[cell, state]) / 2
            phi_rad, shifters = _share_phase(circuits[cell], theta_rad)
            yield _CellPhases(slot, labels[cell], state, theta_rad, phi_rad, shifters)


def _share_phase(circuit: CellCircuit | None, theta_rad: float) -> tuple[float, dict[str, float]]:
    """Return half the sum of both arms' phases, and the phase of each shifter by name.

    An arm without a shifter has the phase 0. The first shifter of an arm has all its phase.
    """
    if circuit is None:
        return 0.0, {}
    arm_1, arm_2 = circuit.arms

    # The phases of the arms are phi + theta and phi - theta.
    phi_rad = 0.0
    if not arm_2:
        phi_rad = theta_rad
    elif not arm_1:
        phi_rad = -theta_rad
    phases = dict.fromkeys((*arm_1, *arm_2), 0.0)
    for arm, phase_rad in ((arm_1, phi_rad + theta_rad), (arm_2, phi_rad - theta_rad)):
        if arm:
            phases[arm[0]] = math.fmod(phase_rad + 2 * math.pi, 2 * math.pi)
    return phi_rad, phases


def write_smartlight(solution: Solution) -> str:
    """Write the set cells of each slot as the SmartLight API takes them.

    A slot is a line with a JSON list of ``[cell, "x" | "="]``, cross and bar, as for
    ``manual_circuit_configuration``.
    """
    states = stated_cells(solution)
    labels = _cell_labels(solution)
    lines = []
    for row in states.tolist():
        entries = [
            [labels[cell], _SMARTLIGHT[state]] for cell, state in enumerate(row) if state != FREE
        ]
        lines.append(json.dumps(entries) + "\n")
    return "".join(lines)


def write_phases_csv(solution: Solution) -> str:
    """Write slot, cell, state and both phases of every set cell as CSV."""
    rows: list[Sequence[Any]] = [("slot", "cell", "state", "theta_rad", "phi_rad")]
    for entry in _find_phases(solution):
        state = _STATE_NAMES[entry.state]
        rows.append((entry.slot, entry.cell, state, entry.theta_rad, entry.phi_rad))
    return csv_text(rows, note=CONVENTION, quoted=False)


def write_phases_json(solution: Solution) -> str:
    """Write the phases of every set cell as one JSON object, with the convention of the phases."""
    slots: list[list[dict[str, object]]] = [[] for _ in stated_cells(solution)]
    for entry in _find_phases(solution):
        row: dict[str, object] = {
            "cell": entry.cell,
            "state": _STATE_NAMES[entry.state],
            "theta_rad": entry.theta_rad,
            "phi_rad": entry.phi_rad,
        }
        if entry.shifters:
            row["shifters_rad"] = entry.shifters
        slots[entry.slot].append(row)
    tree = {"format": "optmatch/phases/1", "convention": CONVENTION, "slots": slots}
    return layout(tree) + "\n"
