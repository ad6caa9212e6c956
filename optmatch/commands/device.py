"""`optmatch generate device`: the cells of one chip, drawn from a spread."""

from __future__ import annotations

from typing import Any

import click

from optmatch.commands.shared.chip import DEVICE, choose_cells
from optmatch.commands.shared.options import (
    CONDITION_OPTIONS,
    FABRIC_OPTIONS,
    FILE_OPTIONS,
    SectionedCommand,
    build_fabric,
    count,
    listed,
    pair,
    with_options,
)
from optmatch.commands.shared.outcome import write_text
from optmatch.model import CELL_FIELDS


@click.command(cls=SectionedCommand)
@with_options(FABRIC_OPTIONS)
@with_options(CONDITION_OPTIONS)
@DEVICE
@click.option(
    "--sigma",
    "sigmas",
    type=listed(pair("=", str, float), "name=number"),
    help=f"Standard deviations, as bar_loss_db=0.1. Names: {', '.join(CELL_FIELDS)}.",
)
@count("--seed", 0, "Seed of the chip.")
@with_options(FILE_OPTIONS)
def device(
    type_: str,
    output: str,
    force: bool,
    device: str | None,
    sigmas: Any,
    seed: int,
    **options: Any,
) -> None:
    """Write the device of each cell: a CSV table, or JSON if FILE ends so."""
    # `device` is the name of a device model, None for the default. `sigmas` has pairs (name of a
    # figure, standard deviation), by which `seed` draws each cell. `options` are of the fabric.
    from optmatch.io.cells import write_cells

    fabric = build_fabric(type_, options)
    cells = choose_cells(device, None, fabric).draw(dict(sigmas or ()), seed)
    text = write_cells(cells, names=fabric.cell_names, as_json=output.endswith(".json"))
    write_text(text, output, force=force, endings=(".csv", ".json"))
