"""Heaters in files: calibrations, and drive tables."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optmatch.fabrics import Fabric
from optmatch.fabrics.heaters import HeaterTable, plan_heater_steps
from optmatch.fabrics.netlists.circuits import cell_circuits
from optmatch.io.contents import read_bytes
from optmatch.io.fields import shorten
from optmatch.io.netlists.phases import stated_cells
from optmatch.io.records import csv_records, json_records, read_entry
from optmatch.io.text import csv_text
from optmatch.model import DEVICES, CellDevice, FormatError, InputError, Solution, naming
from optmatch.model.accounts import Level, accounting, assume, take
from optmatch.model.files import path_name
from optmatch.model.heaters import ARMS, Heater

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

_COMMENT = re.compile(rb"^[ \t]*#.*", re.MULTILINE)


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
        if content.lstrip()[:1] == b"{":
            records = json_records(content, name, _HEATERS_FORMAT, "heaters")
        else:
            records = csv_records(_COMMENT.sub(b"", content), name)

        # By cell and arm: what the lines so far have stated, and where the first one stands.
        points: dict[tuple[int, int], dict[str, Any]] = {}
        places: dict[tuple[int, int], str] = {}
        for place, _, entries in records:
            row = {key: entry for key, entry in entries.items() if entry is not None}
            take(_LEVEL, row, place)
            cell = _find_cell(fabric, row.get("cell", ""), place)
            arm = _find_arm(fabric, cell, row.get("arm", ""), place)
            fields = _fields_of_row(row, place)
            former = points.setdefault((cell, arm), {"volts": [], "phases_rad": []})

            # Points of further lines are appended; all else must be as in the first line.
            for field, value in fields.items():
                if field in ("volts", "phases_rad"):
                    former[field] += list(np.atleast_1d(value))
                elif former.setdefault(field, value) != value:
                    message = f"{field} = {value:g}: {former[field]:g} stands above"
                    raise FormatError(message, where=place)
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


def _fields_of_row(row: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the fields of `Heater` that a row states, as numbers or lists of numbers."""
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

    # A point is a voltage and the phase at it.
    if ("volts" in fields) != ("phases_rad" in fields):
        raise FormatError("v and phase_rad go together", where=place)
    return fields


def _find_cell(fabric: Fabric, name: Any, place: str) -> int:
    """Find a cell by its name or its number."""
    text = str(name).strip()
    if not text:
        raise FormatError("cell is missing", where=place)
    try:
        cell = fabric.find_cell(text)
    except InputError as exc:
        raise FormatError(exc.message, where=place) from None
    if not 0 <= cell < fabric.n_cells:
        allowed = f"cells are 0 .. {fabric.n_cells - 1}"
        raise FormatError(f"cell {shorten(text)}: {allowed}", where=place)
    return cell


def _find_arm(fabric: Fabric, cell: int, name: Any, place: str) -> int:
    """Find the arm, 1 or 2, of a cell by its number or the name of a heater on it.

    If none is stated, it is the one arm that has a heater; and arm 1, which the account says,
    where the heaters of the cell are not known. An arm without a heater is refused, as is a
    missing name where both arms have one.
    """
    text = str(name).strip()
    circuit = cell_circuits(fabric)[cell]
    if text in ("1", "2") and (circuit is None or _is_assumed(fabric, cell)):
        return int(text)
    if circuit is None:
        if text:
            raise FormatError(f"arm {shorten(text)}: arms are 1, 2", where=place)
        assume(f"cell {fabric.cell_names[cell]}: no arm is stated, and arm 1 is taken")
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
        f"{stated}: the heaters of cell {fabric.cell_names[cell]} are on arms {allowed}",
        where=place,
    )


def _is_assumed(fabric: Fabric, cell: int) -> bool:
    """Tell whether the circuit of a cell is that of a switch of which only the name is known."""
    circuit = cell_circuits(fabric)[cell]
    name = fabric.cell_names[cell]
    return circuit is not None and circuit.parts[0].name == f"{name}.splitter"


def _arm_name(fabric: Fabric, cell: int, arm: int) -> str:
    """Return the name of the heater on an arm, or its number if it has none or several."""
    circuit = cell_circuits(fabric)[cell]
    if circuit is not None and len(circuit.arms[arm - 1]) == 1:
        return str(circuit.arms[arm - 1][0])
    return str(arm)


_DRIVE_CONVENTION = (
    "lines are steps in their order; a heater turns the phase of its arm by turn_rad from that"
    " without voltage; the difference of a cell is arm 1 less arm 2: pi is bar and 0 is cross, or"
    " what its netlist says"
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
    table = HeaterTable(
        heaters=read_heaters(heaters, fabric),
        cells=CellDevice.of(DEVICES["ideal"], fabric.n_cells) if cells is None else cells,
    )

    # The convention stands in the first line, the names of columns in the second one.

    # A line for each heater that changes, empty where a number is not known.
    rows: list[Sequence[Any]] = [
        ("slot", "cell", "arm", "state", "turn_rad", "v", "power_mw", "total_mw", "settling_s")
    ]
    for step in plan_heater_steps(fabric, states, table, most_mw=most_mw):
        name = _arm_name(fabric, step.cell, step.arm)
        state_name = "cross" if step.state else "bar"
        numbers = (step.turn_rad, step.volts, step.power_mw, step.total_mw, step.settling_s)
        entries = [None if math.isnan(number) else float(number) for number in numbers]
        rows.append((step.slot, fabric.cell_names[step.cell], name, state_name, *entries))
    return csv_text(rows, note=_DRIVE_CONVENTION, quoted=False)
