"""`optmatch optics`: a measured chip against its model."""

from __future__ import annotations

import io
from typing import Any

import click

from optmatch.commands.shared.chip import DEVICE, DEVICE_CELLS, choose_device
from optmatch.commands.shared.optics import use_one_thread
from optmatch.commands.shared.options import (
    FORCE,
    JSON,
    NETLIST_OPTIONS,
    count,
    fabric_of,
    with_options,
)
from optmatch.commands.shared.outcome import name_of, print_object, say
from optmatch.model import CellDevice, Device

_SHOWN = 8


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--choose", metavar="K", type=click.IntRange(1, 1000), help="Choose K states.")
@count("--seed", 0, "With --choose: seed of the states.")
@click.option("-o", "--output", type=click.Path(), help="With --choose: where they go, an .npz.")
@click.option(
    "--measured",
    metavar="FILE",
    multiple=True,
    type=click.Path(),
    help="What was measured, an .npz; or states alone, then a Touchstone file for each of them.",
)
@with_options((DEVICE, DEVICE_CELLS))
@with_options(NETLIST_OPTIONS)
@with_options((FORCE, JSON))
def optics(
    file: str,
    choose: int | None,
    seed: int,
    output: str | None,
    measured: tuple[str, ...],
    device: str | None,
    device_cells: str | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare measured transfer matrices with the model of a chip, the fabric of FILE.

    First --choose K states of all cells that tell cells apart; measure the chip in them; then
    --measured says where chip and model disagree, and which one cell would explain it.
    """
    if (choose is None) == (not measured) or (choose is None) != (output is None):
        raise click.UsageError("either --choose and --output, or --measured")
    import numpy as np

    from optmatch.io.cells import read_cells
    from optmatch.io.fields import to_object
    from optmatch.io.measurements import read_measurement
    from optmatch.model.files import check_target, replace_file
    from optmatch.verify.optics.deviation import choose_states, compare_chip

    use_one_thread()
    fabric = fabric_of(file, options)
    if choose is not None and output is not None:
        target, stream = check_target(output, force=force, endings=(".npz",)), io.BytesIO()
        np.savez_compressed(stream, cell_states=choose_states(fabric, choose, seed=seed))
        replace_file(target, stream.getvalue())
        say(f"{output}: written")
        return
    chip: Device | CellDevice = choose_device(device)
    if device_cells is not None:
        chip = read_cells(device_cells, fabric.n_cells, choose_device(device))
    compared = compare_chip(fabric, read_measurement(fabric, measured), chip)
    if as_json:
        print_object("chip-comparison", {"file": file, **to_object(compared)})
        return
    click.echo(f"{name_of(file)}: off by {compared.off_db:.3g} dB, root mean square")
    for k, i, j, off in compared.worst_pairs(_SHOWN):
        click.echo(f"  state {k}, port {i} to port {j}: {off:+.2f} dB")
    click.echo(f"  noise where there is light: {compared.noise_db:.3g} dB")
    if not compared.suspects:
        click.echo("  no single cell explains more than chance would")
    for suspect in compared.suspects:
        click.echo(f"  {suspect.describe(f'cell {fabric.cell_names[suspect.cell]}')}")
    if compared.several:
        click.echo("  one cell does not explain it; with the first one as above, the next is")
    for suspect in compared.second_suspects:
        click.echo(f"  {suspect.describe(f'cell {fabric.cell_names[suspect.cell]}')}")
    for what, cells in compared.unseen.items():
        if cells:
            names = ", ".join(fabric.cell_names[cell] for cell in cells)
            click.echo(f"  no light tells the {what} of cells {names}")
