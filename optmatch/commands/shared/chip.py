"""Options that say what chip it is: a device, a table of its cells, and what is too bad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from optmatch.commands.shared.options import take
from optmatch.fabrics import Fabric
from optmatch.fabrics.faults import close_weak_cells
from optmatch.model import DEVICES, ON_CHIP, CellDevice, Device

DEVICE = click.option(
    "--device",
    metavar="NAME|FILE",
    help=f"Device: {', '.join(DEVICES)}, or a JSON file.  [default: smartlight]",
)
DEVICE_CELLS = click.option(
    "--device-cells",
    metavar="FILE",
    type=click.Path(),
    help="What was measured of each cell: CSV or JSON; --device for the rest.",
)
CHIP_OPTIONS = (
    DEVICE,
    DEVICE_CELLS,
    click.option(
        "--min-extinction-db",
        type=click.FloatRange(min=0),
        help="With --device-cells: a state that leaks more cannot be used; the cell is stuck.",
    ),
)


def choose_device(name: str | None) -> Device:
    """Return a preset, or the device of a file."""
    from optmatch.io import read_device
    from optmatch.model import find_device

    if name is not None and name not in DEVICES and Path(name).suffix == ".json":
        return read_device(name)
    return find_device(name or "smartlight")


def take_chip(fabric: Fabric, options: dict[str, Any]) -> tuple[Fabric, CellDevice | None]:
    """Take `CHIP_OPTIONS` out of `options`; the fabric gets weak cells as faults."""
    device, table, least = take(options, ("device", "device_cells", "min_extinction_db")).values()
    cells = None
    objective = options["objective"]
    if table is not None:
        from optmatch.io.cells import read_cells

        cells = read_cells(table, fabric.n_cells, choose_device(device), fabric.cell_names)
    if least is not None:
        if cells is None:
            raise click.UsageError("--min-extinction-db: only with --device-cells")
        fabric = close_weak_cells(fabric, cells, least)
    if (
        cells is None
        and fabric.n_cells
        and (objective in ON_CHIP or options.get("delay_s") == "cells")
    ):
        cells = CellDevice.of(choose_device(device), fabric.n_cells)
    return fabric, cells if objective in (*ON_CHIP, "total-cells") else None
