"""The part of `optmatch verify --optics`: the options, the measurement, and its output."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import click

from optmatch.commands.shared.chip import DEVICE, DEVICE_CELLS, choose_device, read_chip
from optmatch.commands.shared.options import AMOUNTS, count
from optmatch.commands.shared.outcome import paint, print_rows
from optmatch.fabrics import Fabric
from optmatch.model import CellDevice, Device, Solution

OPTIONS = (
    click.option("--optics", is_flag=True, help="Measure losses, crosstalk, delays and loops."),
    DEVICE,
    DEVICE_CELLS,
    click.option(
        "--idle",
        type=click.Choice(["least-leak", "cross", "bar", "keep"]),
        help="States of free cells; keep: as they were last driven.  [default: least-leak]",
    ),
    click.option(
        "--frequencies",
        "frequencies_hz",
        metavar="HZ,...",
        type=AMOUNTS,
        help="Distances from the central frequency in Hz; the worst one counts.  [default: 0]",
    ),
    click.option(
        "--wavelengths",
        "wavelengths_nm",
        metavar="NM,...",
        type=AMOUNTS,
        help="Instead: wavelengths in nm; couplers change with them as the device says.",
    ),
    count("--chip-seed", None, "Seed of the phase errors.  [default: 0]"),
    *(
        click.option(flag, type=click.FloatRange(min=0), help=f"Budget: {text}.")
        for flag, text in (
            ("--max-loss-db", "largest insertion loss of a circuit"),
            ("--min-signal-to-crosstalk-db", "least signal to crosstalk, all inputs loaded"),
            ("--max-delay-spread", "largest difference of delays, in seconds"),
        )
    ),
    click.option("--per-slot", is_flag=True, help="Print the worst values of each slot."),
)


class Measured(NamedTuple):
    """The measured optics of one schedule, and the margins to the budget of the user."""

    optics: Any
    margins: list[Any]
    fabric: Fabric
    """The fabric, which may name its ports."""

    @property
    def ok(self) -> bool:
        """Whether the budget is kept."""
        return all(margin.ok for margin in self.margins)


def check_options(options: dict[str, Any]) -> None:
    """Refuse options of optics that are set without `--optics`."""
    if options["optics"]:
        return
    for name, value in options.items():
        is_set = value is not None and value is not False
        if is_set:
            # The field has its unit in its name, the option has not.
            units = {"frequencies_hz": "frequencies", "wavelengths_nm": "wavelengths"}
            option = units.get(name, name)
            raise click.UsageError(f"--{option.replace('_', '-')}: only with --optics")


def use_one_thread() -> None:
    """Keep SciPy from threads, unless the user wants them; called before SciPy is loaded.

    The systems of optics are many and small. Threads that share one of them wait for each other,
    on a busy machine for longer than all the rest takes.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def measure(solution: Solution, options: dict[str, Any]) -> Measured:
    """Compute losses, crosstalk, delays and loops of light in a valid schedule.

    `options` are those of ``verify --optics`` by name, among them the device of the cells, or a
    table of what was measured of each; `idle`, what cells without light do; and the seed of the
    errors of a chip. The margins say how they keep the limits of the options: of loss and signal
    to crosstalk in dB, and of the spread of delays in seconds, None for no limit.
    """
    from optmatch import settle_free_cells
    from optmatch.optics import Budget, measure_optics

    use_one_thread()
    problem = solution.problem
    fabric = problem.fabric

    # One device for all cells, or what was measured of each of them.
    chip = choose_device(options["device"])
    device: Device | CellDevice = chip
    if options["device_cells"] is not None and fabric is not None:
        device = read_chip(options["device_cells"], fabric, chip)

    # Cells without light are free to take the state that leaks least.
    frequencies_hz = _frequencies_of_options(chip, options)
    idle: Any = options["idle"]
    if idle in (None, "least-leak"):
        idle = settle_free_cells(
            problem,
            solution,
            device,
            frequencies_hz=frequencies_hz,
            seed=options["chip_seed"],
        )

    optics = measure_optics(
        problem,
        solution,
        device,
        idle=idle,
        frequencies_hz=frequencies_hz,
        seed=options["chip_seed"] or 0,
    )
    budget = Budget(
        insertion_loss_db=options["max_loss_db"],
        signal_to_crosstalk_db=options["min_signal_to_crosstalk_db"],
        delay_spread_s=options["max_delay_spread"],
    )
    return Measured(optics, budget.margins(optics), fabric)


def _frequencies_of_options(device: Device, options: dict[str, Any]) -> list[float]:
    """Return the optical frequencies at which light is measured, relative to the device.

    They are those of "frequencies_hz" or "wavelengths_nm" in Hz, [0.0] if neither is set. Both
    together, or a wavelength of 0, are a usage error.
    """
    from optmatch.model.device import frequency_of_nm

    if options["wavelengths_nm"] is None:
        return options["frequencies_hz"] or [0.0]
    if options["frequencies_hz"] is not None:
        raise click.UsageError("either --frequencies or --wavelengths")
    if 0.0 in options["wavelengths_nm"]:
        raise click.UsageError("--wavelengths: a wavelength of 0 nm: must be > 0")
    center_hz = frequency_of_nm(device.wavelength_nm)
    return [frequency_of_nm(nm) - center_hz for nm in options["wavelengths_nm"]]


def optics_object(measured: Measured) -> dict[str, Any]:
    """Return the object that `--json` prints: figures, band, budget, slots and notes.

    The band has a row for each frequency; the budget has a row for each limit, with its margin.
    """
    optics = measured.optics
    return {
        "device": optics.device.name,
        "frequencies_hz": optics.frequencies_hz,
        "figures": optics.figures,
        "band": optics.band_rows(),
        "budget_ok": measured.ok,
        "budget": [margin._asdict() | {"ok": margin.ok} for margin in measured.margins],
        "slots": optics.slot_rows(),
        "notes": list(optics.notes),
    }


def print_optics(measured: Measured, *, per_slot: bool) -> None:
    """Print figures, budget and notes and, if asked for (`per_slot`), a line for each slot.

    A margin says how a figure keeps its limit. At several frequencies, a line for each follows.
    """
    optics = measured.optics
    click.echo(f"  optics of {optics.device.name}:")
    print_rows(_describe_figures(measured), indent=4)
    if len(optics.frequencies_hz) > 1:
        for row in optics.band_rows():
            click.echo(
                f"    {row['wavelength_nm']:.2f} nm: loss {row['worst_insertion_loss_db']:.2f} dB,"
                f" signal to crosstalk {row['worst_signal_to_crosstalk_db']:.1f} dB"
            )
    for margin in measured.margins:
        verdict = paint("ok" if margin.ok else "FAILED", margin.ok)
        click.echo(f"    budget {verdict}: {margin}")
    if per_slot:
        for row in optics.slot_rows():
            click.echo(f"    slot {row['slot']}: {_describe_slot(row, measured.fabric)}")
    for note in optics.notes:
        click.echo(f"    note: {note}")


def _describe_figures(measured: Measured) -> dict[str, str]:
    """Return the figures of all slots in words, by their names.

    Worst loss and worst signal to crosstalk also name the slot, and the ports of the circuit.
    """
    rows_with_circuits = [row for row in measured.optics.slot_rows() if row["circuits"]]
    place_of_figure = {}
    if rows_with_circuits:
        faint = max(rows_with_circuits, key=lambda row: row["worst_insertion_loss_db"])
        noisy = min(rows_with_circuits, key=lambda row: row["worst_signal_to_crosstalk_db"])
        for figure, row, circuit in (
            ("worst_insertion_loss_db", faint, "worst_loss_circuit"),
            ("worst_signal_to_crosstalk_db", noisy, "worst_crosstalk_circuit"),
        ):
            ports = _describe_ports(measured.fabric, *row[circuit])
            place_of_figure[figure] = f"  (slot {row['slot']}, {ports})"

    return {
        figure: f"{value:.4g}{place_of_figure.get(figure, '')}"
        for figure, value in measured.optics.figures.items()
    }


def _describe_ports(fabric: Fabric, source: int, destination: int) -> str:
    """Return a pair of ports in words, by their names if the fabric is a netlist."""
    if fabric.graph is None or fabric.graph.names is None:
        return f"port {source} to port {destination}"
    # A port that sends at one pin and receives at another has both names: in0>out0.
    sends = fabric.port_names[source].partition(">")[0]
    receives = fabric.port_names[destination].rpartition(">")[2]
    return f"port {sends} to port {receives}"


def _describe_slot(row: dict[str, Any], fabric: Fabric) -> str:
    """Describe the worst values of a slot in one line, each with its circuit.

    `row` has these values by name, as ``"worst_insertion_loss_db"``, and circuits as source and
    destination port.
    """
    if not row["circuits"]:
        return "no circuit"
    loss_circuit = _describe_ports(fabric, *row["worst_loss_circuit"])
    crosstalk_circuit = _describe_ports(fabric, *row["worst_crosstalk_circuit"])
    route_mm = 1e3 * row["longest_route_m"]
    delay_ps = 1e12 * row["longest_delay_s"]
    parts = [
        f"loss {row['worst_insertion_loss_db']:.2f} dB ({loss_circuit})",
        f"signal to crosstalk {row['worst_signal_to_crosstalk_db']:.1f} dB ({crosstalk_circuit})",
        f"route {route_mm:.3g} mm, {delay_ps:.4g} ps",
    ]
    if row["loops"]:
        n_loops = len(row["loops"])
        loops = "1 loop" if n_loops == 1 else f"{n_loops} loops"
        parts.append(f"{loops} with at most {row['loop_power_db']:.1f} dB")
    return ", ".join(parts)
