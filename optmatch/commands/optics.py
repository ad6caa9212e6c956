"""`optmatch optics`: a measured chip against its model."""

from __future__ import annotations

import io
from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared.chip import DEVICE, DEVICE_CELLS, choose_device
from optmatch.commands.shared.optics import describe_ports, use_one_thread
from optmatch.commands.shared.options import (
    FORCE,
    JSON,
    NETLIST_OPTIONS,
    NETLIST_PORT_OPTIONS,
    SectionedCommand,
    count,
    fabric_of,
    with_options,
)
from optmatch.commands.shared.outcome import name_of, print_object, say
from optmatch.fabrics import Fabric
from optmatch.model import CALIBRATION_DB, CellDevice, Device, Measurement

if TYPE_CHECKING:
    from optmatch.verify.optics.bands import BandFigure, BandFigures
    from optmatch.verify.optics.deviation import ChipComparison
    from optmatch.verify.optics.fitting import ChipFit

_SHOWN_PAIRS = 8


@click.command(cls=SectionedCommand)
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--choose", metavar="K", type=click.IntRange(1, 1000), help="Choose K states.")
@click.option(
    "--half-turned", is_flag=True, help="With --choose: states to fit a whole chip to (--fit)."
)
@count("--seed", 0, "With --choose and --fit: seed of the states, and of where fits start.")
@click.option(
    "-o", "--output", type=click.Path(), help="Where states (an .npz) or tables (CSV) go."
)
@click.option(
    "--measured",
    metavar="FILE",
    multiple=True,
    type=click.Path(),
    help="What was measured, an .npz; or states alone, then a file for each of them: Touchstone,"
    " CSV of dB, or Lumerical's .sparam.",
)
@click.option(
    "--fit",
    "fitted",
    metavar="FILE",
    type=click.Path(),
    help="With --measured: fit all cells, and write their device as a table, .csv or .json.",
)
@click.option(
    "--sweeps",
    metavar="FILE",
    type=click.Path(),
    help="Calibrate heaters from sweeps: CSV with cell, arm, v and the power in cross or bar.",
)
@click.option(
    "--calibration-db",
    type=click.FloatRange(0, 10),
    default=CALIBRATION_DB,
    show_default=True,
    help="By how much powers may exceed what went in.",
)
@with_options((DEVICE, DEVICE_CELLS))
@with_options(NETLIST_OPTIONS)
@with_options(NETLIST_PORT_OPTIONS)
@with_options((FORCE, JSON))
def optics(
    file: str,
    choose: int | None,
    half_turned: bool,
    seed: int,
    output: str | None,
    measured: tuple[str, ...],
    fitted: str | None,
    sweeps: str | None,
    calibration_db: float,
    device: str | None,
    device_cells: str | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare measured transfer matrices with the model of a chip, the fabric of FILE.

    First --choose K states of all cells that tell cells apart; measure the chip in them; then
    --measured says where chip and model disagree, and which one cell would explain it. With
    --choose K --half-turned, and then --measured and --fit, all cells are fitted together.
    --sweeps calibrates heaters, for export --to heaters.
    """
    # One of three tasks is set: `choose`, a number of states to measure a chip in; `measured`,
    # files of what was measured; `sweeps`, a file of sweeps of heaters. `output` is the file that
    # the first and the last one write, and `fitted` that of a fit. `calibration_db` says by how
    # many dB measured powers may exceed what went in. `options` say how `file` is read.
    has_output = output is not None
    if [choose is not None, bool(measured), sweeps is not None].count(True) != 1 or (
        has_output == bool(measured)
    ):
        raise click.UsageError(
            "either --choose and --output, or --measured, or --sweeps and --output"
        )
    if half_turned and choose is None:
        raise click.UsageError("--half-turned: only with --choose")
    if fitted is not None and not measured:
        raise click.UsageError("--fit: only with --measured")

    # Neither calibrations nor states need what was measured of the whole chip.
    use_one_thread()
    fabric = fabric_of(file, options)
    if sweeps is not None and output is not None:
        calibrate_heaters(fabric, sweeps, output, force=force)
        return
    if choose is not None and output is not None:
        write_states(fabric, choose, seed, output, half_turned=half_turned, force=force)
        return

    from optmatch.io.cells import read_cells
    from optmatch.io.measurements import read_measurement
    from optmatch.verify.optics.bands import model_band
    from optmatch.verify.optics.deviation import compare_chip

    # The model of the chip: one device for all cells or, from a file, one for each.
    chip: Device | CellDevice = choose_device(device)
    if device_cells is not None:
        chip = read_cells(device_cells, fabric.n_cells, choose_device(device), fabric.cell_names)
    measurement = read_measurement(fabric, measured, calibration_db=calibration_db)

    # With --fit all cells are fitted together; otherwise one cell at most is suspected.
    if fitted is not None:
        fit = write_fit(fabric, measurement, chip, fitted, seed=seed, force=force)
        if as_json:
            print_fit_as_json(file, fit)
        else:
            print_fit(file, fabric, fit)
        return
    comparison = compare_chip(fabric, measurement, chip)
    modelled_band = model_band(fabric, measurement, chip)
    if as_json:
        print_comparison_as_json(file, fabric, measurement, comparison, modelled_band)
    else:
        print_comparison(file, fabric, measurement, comparison, modelled_band)


def write_states(
    fabric: Fabric, count: int, seed: int, output: str, *, half_turned: bool, force: bool
) -> None:
    """Choose states of cells in which to measure a chip, and write them as an archive of NumPy.

    Parameters
    ----------
    fabric
        The chip.
    count
        The number of states.
    seed
        Draws the states, and the cells that are half turned.
    output
        The file, which ends with .npz. Its array is ``cell_states[state, cell]``.
    half_turned
        Whether 70 % of the cells are half turned in each state, between bar and cross, where light
        divides; a fit of all cells needs that.
    force
        Whether a file that is there is replaced.
    """
    import numpy as np

    from optmatch.model.files import check_target, replace_file
    from optmatch.verify.optics.deviation import choose_states
    from optmatch.verify.optics.fitting import half_turn_cells

    target = check_target(output, force=force, endings=(".npz",))
    cell_states = choose_states(fabric, count, seed=seed)
    if half_turned:
        cell_states = half_turn_cells(cell_states, seed=seed)
    stream = io.BytesIO()
    np.savez_compressed(stream, cell_states=cell_states)
    replace_file(target, stream.getvalue())
    say(f"{output}: written")


def write_fit(
    fabric: Fabric,
    measurement: Measurement,
    chip: Device | CellDevice,
    output: str,
    *,
    seed: int,
    force: bool,
) -> ChipFit:
    """Fit all cells of a chip to measured powers, and write their device as a table.

    Parameters
    ----------
    fabric
        The chip.
    measurement
        The powers.
    chip
        The model that the fit starts from.
    output
        The table, whose ending is .csv or .json.
    seed
        Draws where the fits start.
    force
        Whether a file that is there is replaced.

    Returns
    -------
    ChipFit
        The fit, whose device of each cell has been written.
    """
    from optmatch.io.cells import write_cells
    from optmatch.model.files import check_target, replace_file
    from optmatch.verify.optics.fitting import fit_chip

    target = check_target(output, force=force, endings=(".csv", ".json"))
    fit = fit_chip(fabric, measurement, chip, seed=seed)
    as_json = output.endswith(".json")
    text = write_cells(fit.cells, names=fabric.cell_names, as_json=as_json)
    replace_file(target, text.encode())
    say(f"{output}: written")
    return fit


def print_fit_as_json(file: str, fit: ChipFit) -> None:
    """Print one JSON object: how well a fit explains the powers, and how certain each value is.

    ``within`` has half the width of the 95 % interval of each column and cell. ``unique`` is false
    if some cell was half turned (between bar and cross) in no state, which ``never_half_turned``
    lists, or if no two fits ended in the best minimum.

    Parameters
    ----------
    file
        The file of the fabric.
    fit
        The fit of the devices of all cells to measured powers.
    """
    content = {
        "file": file,
        "pairs": fit.n_pairs,
        "off_db": fit.off_db,
        "noise_db": fit.noise_db,
        "unique": fit.is_unique,
        "never_half_turned": list(fit.never_half_turned),
        "within": dict(fit.within),
    }
    print_object("chip-fit", content)


def print_fit(file: str, fabric: Fabric, fit: ChipFit) -> None:
    """Print how well a fit explains the powers, and how certain its values are.

    A cell is half turned in a state between bar and cross, where light divides: the sign of its
    phase error can be seen there alone.

    Parameters
    ----------
    file
        The file of the fabric.
    fabric
        The chip, which names its cells.
    fit
        The fit of all its cells; ``within[column]`` has half the width of the 95 % interval of
        each cell.
    """
    from statistics import median

    click.echo(
        f"{name_of(file)}: {fit.n_pairs} powers leave {fit.off_db:.3g} dB, root mean square;"
        f" noise where there is light: {fit.noise_db:.3g} dB"
    )

    # For each figure of cells, how certain it is in the median cell and in the worst one.
    for column, within in fit.within.items():
        least_certain = max(range(len(within)), key=within.__getitem__)
        click.echo(
            f"  {column}: within {median(within):.2g} in the median cell (95 %), within"
            f" {within[least_certain]:.2g} in cell {fabric.cell_names[least_certain]}"
        )

    # More certainty needs states that were not measured, or more of them.
    if fit.never_half_turned:
        names = ", ".join(fabric.cell_names[cell] for cell in fit.never_half_turned)
        click.echo(
            f"  half turned in no state: cells {names}; the signs of their phase errors are"
            " guesses, and the table may be wrong by more than that"
        )
        click.echo(
            f"  for states that tell them: optmatch optics {file} --choose 40 --half-turned -o"
            " states.npz"
        )
    elif not fit.is_unique:
        click.echo(
            "  no two fits end in the best minimum: the table may be wrong by more than that;"
            " measure more states with half-turned cells (--choose K --half-turned)"
        )


def calibrate_heaters(fabric: Fabric, sweeps: str, output: str, *, force: bool) -> None:
    """Fit the sweeps of heaters, print each fit, and write the calibrations as CSV.

    A heater turns the phase of light in one arm of the interferometer that a cell is. A sweep is
    the power at an output of the cell over the voltage of its heater.

    Parameters
    ----------
    fabric
        The chip, which names its cells and the arms of their interferometers.
    sweeps
        The file of sweeps.
    output
        The CSV file, with a row for each heater.
    force
        Whether a file that is there is replaced.
    """
    from optmatch.io.heaters import arm_name, read_sweeps, write_heaters
    from optmatch.model import naming
    from optmatch.model.files import check_target, replace_file
    from optmatch.verify.optics.sweeps import fit_sweep, heaters_of_fits

    target = check_target(output, force=force)

    # Heaters are told apart by their cell and arm.
    fits = {}
    largest_volts = {}
    resistance_ohm = {}
    for sweep in read_sweeps(sweeps, fabric):
        heater = (sweep.cell, sweep.arm)
        arm = arm_name(fabric, sweep.cell, sweep.arm)
        name = f"cell {fabric.cell_names[sweep.cell]}, arm {arm}"
        with naming(sweeps), naming(name):
            fit = fit_sweep(sweep.volts, sweep.power, sweep.is_cross)
        fits[heater] = fit
        largest_volts[heater] = float(sweep.volts.max())
        resistance_ohm[heater] = sweep.resistance_ohm

        # The phase is a_rad + b_rad_per_v2 * volts**2.
        within_rad = fit.within_rad(sweep.volts).max()
        visibility = ", ".join(f"{value:.3f}" for value in fit.visibility)
        click.echo(
            f"  {name}: {fit.a_rad:.4f} + {fit.b_rad_per_v2:.5g} V^2 rad, within {within_rad:.3g}"
            f" rad (95 %), visibility {visibility}"
        )
    heaters = heaters_of_fits(fits, largest_volts=largest_volts, resistance_ohm=resistance_ohm)
    replace_file(target, write_heaters(heaters, fabric).encode())
    say(f"{output}: written")


def print_comparison_as_json(
    file: str,
    fabric: Fabric,
    measurement: Measurement,
    comparison: ChipComparison,
    modelled_band: BandFigures | None,
) -> None:
    """Print one JSON object: how a chip differs from its model, and its worst values over a band.

    ``hint`` names another order of the ports if that would leave less than half of the difference,
    else it is null; ``band`` is there only if a circuit was measured, and ``modelled_band`` only
    if it was measured over a band. Cells have their numbers; ``cell_names`` has the names of all
    cells if the fabric is a netlist.

    Parameters
    ----------
    file
        The file of the fabric.
    fabric
        The chip.
    measurement
        The measured powers between ports, in several states of the cells.
    comparison
        How they differ from those of the model, and which cells would explain that.
    modelled_band
        The worst values of the model over the measured frequencies; None without a band.
    """
    from optmatch.io.fields import to_object
    from optmatch.verify.optics.bands import measure_band, suggest_port_order

    content = {"file": file, **to_object(comparison)}
    if fabric.graph is not None and fabric.graph.names is not None:
        content["cell_names"] = list(fabric.cell_names)
    content["hint"] = suggest_port_order(fabric, measurement, comparison)
    band = measure_band(fabric, measurement)
    if band is not None:
        content["band"] = _band_object(band)
    if modelled_band is not None:
        content["modelled_band"] = _band_object(modelled_band)
    print_object("chip-comparison", content)


def print_comparison(
    file: str,
    fabric: Fabric,
    measurement: Measurement,
    comparison: ChipComparison,
    modelled_band: BandFigures | None,
) -> None:
    """Print what a chip and its model disagree about, in lines.

    Parameters
    ----------
    file
        The file of the fabric.
    fabric
        The chip, which names its cells and ports.
    measurement
        The measured powers between ports, in several states of the cells.
    comparison
        How they differ from those of the model in dB; `suspects`, the cells that would explain it
        alone; `second_suspects`, those that explain the rest beside the first one; and `unseen`,
        cells by figure that no measured light tells anything about.
    modelled_band
        The worst values of the model over the measured frequencies; None without a band.
    """
    from optmatch.verify.optics.bands import measure_band, suggest_port_order

    # The pairs of ports that differ most, and the worst values over the band.
    click.echo(f"{name_of(file)}: off by {comparison.off_db:.3g} dB, root mean square")
    for state, source, destination, off_db in comparison.worst_pairs(_SHOWN_PAIRS):
        ports = describe_ports(fabric, source, destination)
        click.echo(f"  state {state}, {ports}: {off_db:+.2f} dB")
    band = measure_band(fabric, measurement)
    if band is not None:
        loss = describe_figure(fabric, band.insertion_loss)
        crosstalk = describe_figure(fabric, band.signal_to_crosstalk)
        click.echo(f"  worst insertion loss: {loss}")
        click.echo(f"  worst signal to crosstalk: {crosstalk}")
    if modelled_band is not None:
        loss = describe_figure(fabric, modelled_band.insertion_loss)
        crosstalk = describe_figure(fabric, modelled_band.signal_to_crosstalk)
        click.echo(f"  as modelled over this band: worst insertion loss {loss}")
        click.echo(f"    worst signal to crosstalk {crosstalk}")
    click.echo(f"  noise where there is light: {comparison.noise_db:.3g} dB")

    # The cells that would explain the difference, and those that no light can tell apart.
    if not comparison.suspects:
        click.echo("  no single cell explains more than chance would")
    for suspect in comparison.suspects:
        cell_name = f"cell {fabric.cell_names[suspect.cell]}"
        click.echo(f"  {suspect.describe(cell_name)}")
    if comparison.several:
        click.echo("  one cell does not explain it; with the first one as above, the next is")
    for suspect in comparison.second_suspects:
        cell_name = f"cell {fabric.cell_names[suspect.cell]}"
        click.echo(f"  {suspect.describe(cell_name)}")
    for figure, cells in comparison.unseen.items():
        if cells:
            names = ", ".join(fabric.cell_names[cell] for cell in cells)
            click.echo(f"  no light tells the {figure} of cells {names}")
    hint = suggest_port_order(fabric, measurement, comparison)
    if hint is not None:
        click.echo(f"  hint: {hint}")


def describe_figure(fabric: Fabric, figure: BandFigure) -> str:
    """Return a value of a band in words, and where it is.

    Parameters
    ----------
    fabric
        The chip, which names its ports.
    figure
        The value in decibels, the state and the ports of its circuit, and its frequency in Hz,
        which is not finite where the value belongs to no single frequency.
    """
    circuit = f"state {figure.state}, {describe_ports(fabric, figure.source, figure.destination)}"
    frequency = ""
    if isfinite(figure.frequency_hz):
        frequency = f", {figure.frequency_hz / 1e12:.4f} THz"
    return f"{figure.decibels:.2f} dB ({circuit}{frequency})"


def _band_object(band: BandFigures) -> dict[str, Any]:
    """Return the worst values of a band for JSON, by the names of the figures."""
    return {name: _finite(figure._asdict()) for name, figure in band._asdict().items()}


def _finite(figures: dict[str, Any]) -> dict[str, Any]:
    """Replace what JSON has no number for (no crosstalk, no frequency) by null."""
    return {name: value if isfinite(value) else None for name, value in figures.items()}
