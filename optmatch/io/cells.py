"""Tables of the cells of a chip: CSV or JSON, beside the fabric."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.fabric import numbers_of_names
from optmatch.io.contents import read_bytes
from optmatch.io.records import check_names, csv_records, json_records, read_entry
from optmatch.io.text import csv_text, layout
from optmatch.model import CELL_FIELDS, CellDevice, Device, FormatError, InputError, naming
from optmatch.model.files import path_name

CELLS_FORMAT = "optmatch/cell-device/1"
_PHASES = ("bar_phase_rad", "cross_phase_rad")


def read_cells(
    path: str | os.PathLike[str],
    n_cells: int,
    device: Device | str = "smartlight",
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
        if content.lstrip()[:1] == b"{":
            records = json_records(content, name, CELLS_FORMAT, "cells")
            for record in records:
                check_names("key", list(record.entries), columns, record.place)
        else:
            records = csv_records(content, name, columns, needed=columns[:1])

        # A row is of one cell, by its number or its name, and of no cell twice.
        for place, _, entries in records:
            cell_name = entries.get("cell")
            if isinstance(cell_name, str) and cell_name in number_of_name:
                entries = {**entries, "cell": number_of_name[cell_name]}
            row = {key: read_entry(key, entry, place) for key, entry in entries.items()}
            cell = row.pop("cell", None)
            if cell is None or cell != int(cell) or not 0 <= cell < n_cells:
                text = "is missing" if cell is None else f"= {cell:g}"
                raise FormatError(f"cell {text}: cells are 0 .. {n_cells - 1}", where=place)
            if cell in measured:
                message = f"cell {cell:g}: is there already, {place_of_cell[int(cell)]}"
                raise FormatError(message, where=place)
            measured[int(cell)] = row
            place_of_cell[int(cell)] = place
            # Each row is tried as a chip of one cell, since its place is known only here. That
            # cell has the number 0, which is taken out of the message.
            try:
                CellDevice.of(device, 1, {0: row})
            except InputError as exc:
                field = exc.message.split("[0]")[0].split("cell 0, ")[-1]
                raise InputError(
                    exc.message.replace("[0]", ""), where=f"{place} {field}"
                ) from None
        # Cells for which the file states no phases are as the netlist says.
        states_phases = any(key in row for row in measured.values() for key in _PHASES)
        if phases_rad is not None and states_phases:
            for cell, phases in enumerate(phases_rad.tolist()):
                row = measured.setdefault(cell, {})
                measured[cell] = dict(zip(_PHASES, phases, strict=True)) | row
        return CellDevice.of(device, n_cells, measured)


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
