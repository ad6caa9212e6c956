"""Tables of the cells of a chip: CSV or JSON, beside the fabric."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.fabric import numbers_of_names
from optmatch.io.contents import read_bytes
from optmatch.io.fields import check_object, choose, shorten
from optmatch.io.text import layout, parse_json, pointer
from optmatch.model import (
    CELL_FIELDS,
    CellDevice,
    Device,
    FormatError,
    InputError,
    naming,
    number,
)
from optmatch.model.files import path_name

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
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
    read_rows = _json_rows if content.lstrip()[:1] == b"{" else _csv_rows
    measured: dict[int, dict[str, float]] = {}
    place_of_cell: dict[int, str] = {}
    with naming(name):
        for place, row in read_rows(content, name, numbers_of_names(names)):
            cell = row.pop("cell", None)
            if cell is None or cell != int(cell) or not 0 <= cell < n_cells:
                text = "is missing" if cell is None else f"= {cell:g}"
                raise FormatError(f"cell {text}: cells are 0 .. {n_cells - 1}", where=place)
            if cell in measured:
                message = f"cell {cell:g}: is there already, {place_of_cell[cell]}"
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


def _csv_rows(
    content: bytes, path: str, number_of_name: Mapping[str, int]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the numbers by column of each line; empty entries are left out."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FormatError("neither CSV nor JSON: no UTF-8", path=path) from None
    reader = csv.reader(io.StringIO(text))
    # An entry between quotes may go over several lines: the place is the last line of its row.
    try:
        rows = [(f"line {reader.line_num}", row) for row in reader]
    except csv.Error as exc:
        raise FormatError(f"not CSV: {exc}", where=f"line {reader.line_num}") from None
    names = rows.pop(0)[1] if rows else []
    _check_names(names, "line 1")
    for place, row in rows:
        if not row:
            continue
        if len(row) != len(names):
            raise FormatError(f"{len(row)} entries, {len(names)} names", where=place)
        values = {}
        for key, entry in zip(names, row, strict=True):
            text = entry.strip()
            if key == "cell" and text in number_of_name:
                values[key] = float(number_of_name[text])
            elif text:
                values[key] = _read_number(key, text, place)
        yield place, values


def _read_number(key: str, text: str, place: str) -> float:
    """Read a finite number as spreadsheets write it."""
    if _NUMBER.fullmatch(text) is None:
        message = f"{key} = {shorten(text)}: a number is expected"
        raise FormatError(message, where=place)
    return number(f"{place}, {key}", float(text), at_least=-float("inf"))


def _json_rows(
    content: bytes, path: str, number_of_name: Mapping[str, int]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the JSON pointer and the numbers by key of each object in the list of cells."""
    tree = parse_json(content, path)
    check_object(tree, "")
    choose(tree, "format", {CELLS_FORMAT: CellDevice}, "")
    for key in tree.keys() - {"format", "cells"}:
        raise FormatError(f"unknown key {key!r}: known are format, cells", where=pointer("", key))
    if not isinstance(tree.get("cells"), list):
        raise FormatError("a list of objects is expected", where="/cells")
    for k, row in enumerate(tree["cells"]):
        place = pointer("/cells", k)
        check_object(row, place)
        _check_names(list(row), place)
        cell = row.get("cell")
        if isinstance(cell, str) and cell in number_of_name:
            row = {**row, "cell": number_of_name[cell]}
        # By type, since a truth value would pass for a number otherwise.
        for key, value in row.items():
            if type(value) not in (int, float):
                message = f"{key} = {shorten(value)}: a number is expected"
                raise FormatError(message, where=pointer(place, key))
            number(pointer(place, key), value, at_least=-float("inf"))
        yield place, dict(row)


def _check_names(names: list[str], place: str) -> None:
    """Refuse columns that are unknown or there twice."""
    for name in names:
        if name not in ("cell", *CELL_FIELDS):
            columns = ", ".join(("cell", *CELL_FIELDS))
            raise FormatError(f"{shorten(name)}: unknown; known are {columns}", where=place)
        if names.count(name) > 1:
            raise FormatError(f"{name} is there twice", where=place)


def write_cells(cells: CellDevice, *, names: Sequence[str] = (), as_json: bool = False) -> str:
    """Write a table with the devices of all cells, CSV or JSON.

    Columns that are ideal in every cell are left out where `CellDevice` has a default for them.
    Cells have numbers where these are their names.
    """
    keys: Sequence[int | str] = range(cells.n_cells)
    if names and list(names) != [str(cell) for cell in keys]:
        keys = names
    stated = [name for name in CELL_FIELDS if getattr(cells, name) is not None]
    columns = [keys, *(cells.column(name).tolist() for name in stated)]
    header = ("cell", *stated)
    if as_json:
        rows = [dict(zip(header, row, strict=True)) for row in zip(*columns, strict=True)]
        return layout({"format": CELLS_FORMAT, "cells": rows}) + "\n"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()
