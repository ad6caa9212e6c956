"""Options that say what chip it is: a device, a table of its cells, and what is too bad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from optmatch.commands.shared.options import take
from optmatch.fabrics import Fabric
from optmatch.fabrics.faults import close_weak_cells
from optmatch.model import DEVICES, ON_CHIP, CellDevice, Device, InputError, find_device
from optmatch.model.device import DEFAULT_DEVICE

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
    """Return the device of a name or of a JSON file, None for the default one."""
    from optmatch.io import read_device

    if name is not None and name not in DEVICES and Path(name).suffix == ".json":
        return read_device(name)
    return find_device(name or DEFAULT_DEVICE)


def choose_cells(
    name: str | None,
    table: str | None,
    fabric: Fabric | None,
    stated: CellDevice | None = None,
) -> CellDevice:
    """Return the devices that a name and a table give the cells of a fabric.

    Each is that of a name or of a JSON file (None: the default one), but for what `table` says of
    single cells, a file that may call them by name; None for none. Without both they are those
    that a problem has `stated`, if it has. A fabric without cells is an `InputError`.
    """
    from optmatch.fabrics.netlists.circuits import find_differences
    from optmatch.io.cells import read_cells

    if name is None and table is None and stated is not None:
        return stated
    device = choose_device(name)
    if fabric is None or not fabric.n_cells:
        raise InputError("a fabric without cells has no device", where="device")
    if table is None:
        return CellDevice.of(device, fabric.n_cells)
    phases_rad = find_differences(fabric)
    return read_cells(table, fabric.n_cells, device, fabric.cell_names, phases_rad)


def take_chip(fabric: Fabric, options: dict[str, Any]) -> tuple[Fabric, CellDevice | None]:
    """Take `CHIP_OPTIONS` out of the options of a command, and do what they say.

    The options are a device, a table of what was measured of each cell (`device_cells`), and the
    least extinction: how many dB less light leaks than goes where it should. In the fabric that is
    returned, states that leak more than ``--min-extinction-db`` allows are faults. Beside it
    stands the device of each cell, None where neither objective nor delay depend on it.
    """
    chip = take(options, ("device", "device_cells", "min_extinction_db"))
    objective = options["objective"]
    delay_is_of_cells = options.get("delay_s") == "cells"
    needs_cells = objective in ON_CHIP or delay_is_of_cells

    # Losses of all cells alike stand in the place of a device.
    source_of = click.get_current_context().get_parameter_source
    losses = [
        name
        for name in ("bar_loss_db", "cross_loss_db")
        if source_of(name) is ParameterSource.COMMANDLINE
    ]
    if losses:
        option = f"--{losses[0].replace('_', '-')}"
        if chip["device"] is not None or chip["device_cells"] is not None:
            raise click.UsageError(f"{option}: not with --device or --device-cells, which say it")
        if objective == "total-cells":
            raise click.UsageError(f"{option}: does not matter for --objective {objective}")

    cells = None
    if chip["device_cells"] is not None:
        cells = choose_cells(chip["device"], chip["device_cells"], fabric)
    elif chip["device"] is not None and not needs_cells:
        raise click.UsageError(
            f"--device: does not matter for --objective {objective}; it needs --device-cells, or"
            f" one of the objectives {', '.join(ON_CHIP)}"
        )
    elif needs_cells and fabric.n_cells and not losses:
        cells = choose_cells(chip["device"], None, fabric)

    min_extinction_db = chip["min_extinction_db"]
    if min_extinction_db is not None:
        if chip["device_cells"] is None:
            raise click.UsageError("--min-extinction-db: only with --device-cells")
        assert cells is not None
        fabric = close_weak_cells(fabric, cells, min_extinction_db)

    # A problem of another objective has no cells: these would not change its answer.
    if objective not in (*ON_CHIP, "total-cells"):
        cells = None
    return fabric, cells
