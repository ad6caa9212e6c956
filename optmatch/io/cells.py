"""The cells of a chip in files: what was measured of them, their phases, and their heaters."""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.fabrics.fabric import numbers_of_names
from optmatch.fabrics.heaters import plan_heater_steps
from optmatch.fabrics.netlists.circuits import cell_circuits, find_differences
from optmatch.io.fields import read_entry, read_records, shorten
from optmatch.io.text import csv_text, layout, read_bytes, refused_at
from optmatch.model import (
    BAR,
    CELL_FIELDS,
    CROSS,
    DEVICES,
    FREE,
    CellDevice,
    Device,
    FormatError,
    InputError,
    Solution,
    naming,
)
from optmatch.model.accounts import Level, accounting, assume, take
from optmatch.model.device import DEFAULT_DEVICE
from optmatch.model.files import path_name
from optmatch.model.heaters import ARMS, Heater

CELLS_FORMAT = "optmatch/cell-device/1"
_PHASES = ("bar_phase_rad", "cross_phase_rad")


def read_cells(
    path: str | os.PathLike[str],
    n_cells: int,
    device: Device | str = DEFAULT_DEVICE,
    names: Sequence[str] = (),
    phases_rad: NDArray[np.float64] | None = None,
) -> CellDevice:
    """Read the measured losses, and other figures, of the cells of a fabric.

    Parameters
    ----------
    path
        CSV with a line of names, ``cell`` and some of the columns of `CellDevice`; or JSON with
        ``"format": "optmatch/cell-device/1"`` and under ``"cells"`` a list of objects with the
        same names. What is empty or absent was not measured.
    n_cells
        The number of cells of the fabric.
    device
        What a cell does that was not measured, and what waveguides and facets do.
    names
        The names of the cells. An instance of a recursive netlist that holds exactly one cell
        stands for it.
    phases_rad
        ``phases_rad[cell, state]`` of a cell for which the file does not state its phases; None
        for ideal cells.
    """
    name = path_name(path)
    content = read_bytes(path)
    number_of_name = numbers_of_names(names)
    columns = ("cell", *CELL_FIELDS)
    measured: dict[int, dict[str, float]] = {}
    place_of_cell: dict[int, str] = {}
    with naming(name):
        records = read_records(content, name, CELLS_FORMAT, "cells", columns)
        # A row is of one cell, by its number or its name, and of no cell twice.
        for place, _, entries in records:
            cell_name = entries.get("cell")
            if isinstance(cell_name, str) and cell_name in number_of_name:
                entries = {**entries, "cell": number_of_name[cell_name]}
            row = {key: read_entry(key, entry, place) for key, entry in entries.items()}

            # Each row has the number of a cell, and no two rows have the same one.
            cell = row.pop("cell", None)
            if cell is None or cell != int(cell) or not 0 <= cell < n_cells:
                text = "is missing" if cell is None else f"= {cell:g}"
                raise FormatError(f"cell {text}: cells are 0 .. {n_cells - 1}", where=place)
            if cell in measured:
                raise FormatError(
                    f"cell {cell:g}: is there already, {place_of_cell[int(cell)]}", where=place
                )
            measured[int(cell)] = row
            place_of_cell[int(cell)] = place

        # Cells for which the file states no phases are as the netlist says.
        states_phases = any(key in row for row in measured.values() for key in _PHASES)
        if phases_rad is not None and states_phases:
            for cell, phases in enumerate(phases_rad.tolist()):
                row = measured.setdefault(cell, {})
                measured[cell] = dict(zip(_PHASES, phases, strict=True)) | row
        try:
            return CellDevice.of(device, n_cells, measured)
        except InputError as exc:
            # The message has the number of a cell, as in "bar_loss_db[2] = -3", but not its line.
            cell_in_brackets = re.search(r"\[(\d+)\]", exc.message)
            if cell_in_brackets is None:
                raise
            place = place_of_cell.get(int(cell_in_brackets[1]), "")
            raise InputError(exc.message, where=place) from None


def write_cells(cells: CellDevice, *, names: Sequence[str] = (), as_json: bool = False) -> str:
    """Write a table with the devices of all cells, CSV or JSON.

    Columns that are ideal in every cell are left out where `CellDevice` has a default for them.
    Cells have numbers where these are their names.
    """
    keys: Sequence[int | str] = range(cells.n_cells)
    if names and list(names) != [str(cell) for cell in keys]:
        keys = names

    # A column is left out where it is ideal in every cell.
    stated = [name for name in CELL_FIELDS if getattr(cells, name) is not None]
    columns = [keys, *(cells.column(name).tolist() for name in stated)]
    header = ("cell", *stated)
    if as_json:
        rows = [dict(zip(header, row, strict=True)) for row in zip(*columns, strict=True)]
        return layout({"format": CELLS_FORMAT, "cells": rows}) + "\n"
    return csv_text([header, *zip(*columns, strict=True)], quoted=False)


_HEATERS_FORMAT = "optmatch/heaters/1"

_COLUMNS = {
    "a_rad": "a_rad",
    "a": "a_rad",
    "b_rad_per_v2": "b_rad_per_v2",
    "b": "b_rad_per_v2",
    "v": "volts",
    "phase_rad": "phases_rad",
    "phase": "phases_rad",
    "resistance_ohm": "resistance_ohm",
    "resistance": "resistance_ohm",
    "max_v": "max_v",
    "settling_s": "settling_s",
}
"""Columns of a calibration, and fields of `Heater`; short names without units are taken, too."""

_LEVEL = Level(
    "column",
    ("cell", "arm", *_COLUMNS),
    dict.fromkeys(("a_within_rad", "b_within_rad_per_v2"), "how certain a calibration is"),
)


def read_heaters(path: str | os.PathLike[str], fabric: Fabric) -> dict[tuple[int, int], Heater]:
    """Read how the heaters of a chip turn the phase of light, by pairs of cell and arm.

    The file is CSV with the columns ``cell`` and ``arm``, and either ``a_rad, b_rad_per_v2`` (one
    line for a heater) or ``v, phase_rad`` (a line for each point); ``resistance_ohm``, ``max_v``
    and ``settling_s`` may follow. Or it is JSON with ``"format": "optmatch/heaters/1"`` and under
    ``"heaters"`` objects with the same names, where ``v`` and ``phase_rad`` are lists. Cells and
    heaters are stated by name or number.
    """
    name = path_name(path)
    content = read_bytes(path)
    with naming(name), accounting(name):
        records = read_records(content, name, _HEATERS_FORMAT, "heaters")
        # By cell and arm: what the lines so far have stated, and where the first one stands.
        points: dict[tuple[int, int], dict[str, Any]] = {}
        places: dict[tuple[int, int], str] = {}
        for place, _, entries in records:
            row = {key: entry for key, entry in entries.items() if entry is not None}
            take(_LEVEL, row, place)

            # A cell is stated by its name or its number.
            text = str(row.get("cell", "")).strip()
            if not text:
                raise FormatError("cell is missing", where=place)
            with refused_at(place):
                cell = fabric.find_cell(text)
            if not 0 <= cell < fabric.n_cells:
                allowed = f"cells are 0 .. {fabric.n_cells - 1}"
                raise FormatError(f"cell {shorten(text)}: {allowed}", where=place)

            arm = _find_arm(fabric, cell, row.get("arm", ""), place)

            # The fields of `Heater` that the row states. A point is a voltage and the phase at it.
            fields: dict[str, Any] = {}
            for key, entry in row.items():
                if key not in _COLUMNS:
                    continue
                field = _COLUMNS[key]
                if field in fields:
                    raise FormatError(f"{key}: the same is there by another name", where=place)
                if isinstance(entry, list) and field in ("volts", "phases_rad"):
                    fields[field] = [read_entry(key, number, place) for number in entry]
                else:
                    fields[field] = read_entry(key, entry, place)

            # A heater may have several lines, each with a voltage and its phase.
            if ("volts" in fields) != ("phases_rad" in fields):
                raise FormatError("v and phase_rad go together", where=place)
            former = points.setdefault((cell, arm), {"volts": [], "phases_rad": []})

            # Points of further lines are appended; all else must be as in the first line.
            for field, value in fields.items():
                if field in ("volts", "phases_rad"):
                    former[field] += list(np.atleast_1d(value))
                elif former.setdefault(field, value) != value:
                    raise FormatError(
                        f"{field} = {value:g}: {former[field]:g} stands above", where=place
                    )
            # Only a heater with points may have several lines.
            if not former["volts"] and (cell, arm) in places:
                message = f"cell {fabric.cell_names[cell]}, arm {arm}: is there already"
                raise FormatError(f"{message}, {places[cell, arm]}", where=place)
            places.setdefault((cell, arm), place)
        # Fields of points are left out of a heater with coefficients.
        heaters = {}
        for (cell, arm), fields in points.items():
            if not fields["volts"]:
                del fields["volts"], fields["phases_rad"]
            with naming(f"{name}: {places[cell, arm]}"):
                heaters[cell, arm] = Heater(cell=cell, arm=arm, **fields)
        return heaters


def _find_arm(fabric: Fabric, cell: int, name: Any, place: str) -> int:
    """Find the arm, 1 or 2, of a cell by its number or the name of a heater on it.

    If none is stated, it is the one arm that has a heater; and arm 1, which the account says,
    where the heaters of the cell are not known. An arm without a heater is refused, as is a
    missing name where both arms have one.
    """
    text = str(name).strip()
    circuit = cell_circuits(fabric)[cell]
    cell_name = fabric.cell_names[cell]

    # The circuit of a switch of which only the name is known is assumed.
    is_assumed = circuit is not None and circuit.parts[0].name == f"{cell_name}.splitter"
    if text in ("1", "2") and (circuit is None or is_assumed):
        return int(text)
    if circuit is None:
        if text:
            raise FormatError(f"arm {shorten(text)}: arms are 1, 2", where=place)
        assume(f"cell {cell_name}: no arm is stated, and arm 1 is taken")
        return 1

    # A heater may be called without the instance that it is in, which the cell tells.
    heated = [arm for arm, heaters in zip(ARMS, circuit.arms, strict=True) if heaters]
    if not text and len(heated) == 1:
        return heated[0]
    for arm in heated:
        heaters = circuit.arms[arm - 1]
        short_names = [heater.rpartition(".")[2] for heater in heaters]
        if text in (str(arm), *heaters, *short_names):
            return arm
    allowed = ", ".join(
        f"{arm} ({', '.join(circuit.arms[arm - 1])})" if arm in heated else f"no heater on {arm}"
        for arm in sorted(ARMS, key=lambda arm: arm not in heated)
    )
    stated = f"arm {shorten(text)}" if text else "arm is missing"
    raise FormatError(
        f"{stated}: the heaters of cell {cell_name} are on arms {allowed}",
        where=place,
    )


_DRIVE_CONVENTION = (
    "lines are steps in their order; a heater turns the phase of its arm by turn_rad from that"
    " without voltage; the difference of a cell is arm 1 less arm 2: pi is bar and 0 is cross, or"
    " what its netlist says; heaters begin at 0 V, and one without a line in a slot keeps its"
    " voltage"
)
"""The convention of drive tables."""


def write_drive_table(
    solution: Solution,
    *,
    heaters: str | os.PathLike[str] | None = None,
    most_mw: float | None = None,
    cells: CellDevice | None = None,
) -> str:
    """Write which heater gets which voltage in each slot, in the order of the steps, as CSV.

    `cells` is the chip, for heat that reaches other cells, for phases, and for power and settling
    times of heaters that the calibrations do not state. Numbers that are not known are empty.
    """
    states = stated_cells(solution)
    fabric = solution.problem.fabric
    if heaters is None:
        raise InputError("calibrations of the heaters are needed (--heaters)", where="heaters")
    if cells is None:
        cells = CellDevice.of(DEVICES["ideal"], fabric.n_cells)
    calibrated = read_heaters(heaters, fabric)

    # The convention stands in the first line, the names of columns in the second one; then a line
    # for each heater that changes, empty where a number is not known.
    rows: list[Sequence[Any]] = [
        ("slot", "cell", "arm", "state", "turn_rad", "v", "power_mw", "total_mw", "settling_s")
    ]
    circuits = cell_circuits(fabric)
    for step in plan_heater_steps(fabric, states, calibrated, cells, most_mw=most_mw):
        # The name of the heater on an arm, or the number of the arm if it has none or several.
        circuit = circuits[step.cell]
        names = () if circuit is None else circuit.arms[step.arm - 1]
        name = names[0] if len(names) == 1 else str(step.arm)
        state_name = "cross" if step.state else "bar"
        numbers = (step.turn_rad, step.volts, step.power_mw, step.total_mw, step.settling_s)
        entries = [None if math.isnan(number) else float(number) for number in numbers]
        rows.append((step.slot, fabric.cell_names[step.cell], name, state_name, *entries))
    return csv_text(rows, note=_DRIVE_CONVENTION, quoted=False)


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


def _find_phases(solution: Solution) -> list[list[dict[str, Any]]]:
    """List the phases of every cell that is set, slot by slot; free cells are left out.

    A cell has its name or number, its state, and two phases: ``theta_rad`` is half the phase of
    arm 1 less that of arm 2, and ``phi_rad`` half their sum, 0 where both arms have a phase
    shifter, which share the difference. Where its parts are known, ``shifters_rad`` has the phase
    of each phase shifter by name, from 0 to a whole turn. Where the arms of a cell differ in
    length, its phases depend on the wavelength: they are None, with a warning.
    """
    cell_states = stated_cells(solution)
    fabric = solution.problem.fabric
    labels = _cell_labels(solution)
    circuits = cell_circuits(fabric)
    difference_rad = find_differences(fabric)
    slots: list[list[dict[str, Any]]] = []
    for states in cell_states.tolist():
        rows: list[dict[str, Any]] = []
        slots.append(rows)
        for cell, state in enumerate(states):
            if state == FREE:
                continue
            circuit = circuits[cell]
            row: dict[str, Any] = {"cell": labels[cell], "state": _STATE_NAMES[state]}
            row |= dict.fromkeys(("theta_rad", "phi_rad"))
            rows.append(row)
            if circuit is not None and circuit.longer_um:
                _log.warning(
                    "cell %s: no phases are written, since its arms differ by %.6g um",
                    labels[cell],
                    abs(circuit.longer_um),
                )
                continue

            # Half of the difference between both arms, as in the convention of interferometers.
            # Their phases are phi + theta and phi - theta; an arm without a shifter has the phase
            # 0, and the first shifter of an arm has all its phase.
            theta_rad = float(difference_rad[cell, state]) / 2
            arm_1, arm_2 = ((), ()) if circuit is None else circuit.arms

            # An arm without a shifter cannot share the difference.
            phi_rad = 0.0
            if circuit is not None and not arm_2:
                phi_rad = theta_rad
            elif circuit is not None and not arm_1:
                phi_rad = -theta_rad
            shifters = dict.fromkeys((*arm_1, *arm_2), 0.0)
            for arm, phase_rad in ((arm_1, phi_rad + theta_rad), (arm_2, phi_rad - theta_rad)):
                if arm:
                    shifters[arm[0]] = math.fmod(phase_rad + 2 * math.pi, 2 * math.pi)

            row |= {"theta_rad": theta_rad, "phi_rad": phi_rad}
            if shifters:
                row["shifters_rad"] = shifters
    return slots


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
    columns = ("cell", "state", "theta_rad", "phi_rad")
    rows: list[Sequence[Any]] = [("slot", *columns)]
    for slot, cells in enumerate(_find_phases(solution)):
        rows += [(slot, *(cell[column] for column in columns)) for cell in cells]
    return csv_text(rows, note=CONVENTION, quoted=False)


def write_phases_json(solution: Solution) -> str:
    """Write the phases of every set cell as one JSON object, with the convention of the phases."""
    slots = _find_phases(solution)
    tree = {"format": "optmatch/phases/1", "convention": CONVENTION, "slots": slots}
    return layout(tree) + "\n"
