"""`optmatch verify`: replay schedules independently of the methods that made them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared.chip import DEVICE, DEVICE_CELLS, choose_cells
from optmatch.commands.shared.options import (
    AMOUNTS,
    JSON_LINES,
    SectionedCommand,
    count,
    with_options,
)
from optmatch.commands.shared.outcome import (
    CHECK_FAILED,
    SEVERITY,
    SOLVED,
    UNPROVED,
    for_each,
    name_of,
    paint,
    print_object,
    print_rows,
    print_table,
    read_solution,
)
from optmatch.fabrics import Fabric
from optmatch.model import Problem, Solution, unit_of, write_score
from optmatch.model.display import name_ports, write_table
from optmatch.model.problem import split_unit, write_amount

if TYPE_CHECKING:
    from optmatch.io.switches.plans import NearestState
    from optmatch.verify import Report

_OPTICS_OPTIONS = (
    click.option("--optics", is_flag=True, help="Measure losses, crosstalk, delays and loops."),
    DEVICE,
    DEVICE_CELLS,
    click.option(
        "--idle",
        type=click.Choice(["least-leak", "cross", "bar", "keep"]),
        help="States of free cells; keep: as they were last driven; least-leak: searched, so that"
        " circuits disturb each other least.  [default: cross]",
    ),
    click.option(
        "--frequencies",
        metavar="HZ,...",
        type=AMOUNTS,
        help="Distances from the central frequency in Hz; the worst one counts.  [default: 0]",
    ),
    click.option(
        "--wavelengths",
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
    click.option(
        "--per-slot", is_flag=True, help="Print each slot: its worst values, and its circuits."
    ),
)


def use_one_thread() -> None:
    """Keep SciPy from threads, unless the user wants them; called before SciPy is loaded.

    The systems of optics are many and small. Threads that share one of them wait for each other,
    on a busy machine for longer than all the rest takes.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _measure(solution: Solution, options: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Compute losses, crosstalk, delays and loops of light in a valid schedule, and their margins.

    `options` are those of ``verify --optics`` by name, among them the device of the cells, or a
    table of what was measured of each; `idle`, what cells without light do; and the seed of the
    errors of a chip. The margins say how the optics keep the limits of the options: of loss and
    signal to crosstalk in dB, and of the spread of delays in seconds, None for no limit.
    """
    from optmatch import settle_free_cells
    from optmatch.optics import Budget, measure_optics

    use_one_thread()
    problem = solution.problem
    cells = choose_cells(
        options["device"],
        options["device_cells"],
        problem.fabric,
        getattr(problem, "cells", None),
    )

    # Optical frequencies at which light is measured, in Hz from that of the device.
    if options["wavelengths"] is not None and options["frequencies"] is not None:
        raise click.UsageError("either --frequencies or --wavelengths")
    light: dict[str, Any] = {
        "frequencies_hz": options["frequencies"] or [0.0],
        "wavelengths_nm": options["wavelengths"],
    }

    idle: Any = options["idle"] or "cross"
    if idle == "least-leak":
        idle = settle_free_cells(
            problem,
            solution,
            cells,
            **light,
            seed=options["chip_seed"],
        )

    optics = measure_optics(
        problem,
        solution,
        cells,
        idle=idle,
        **light,
        seed=options["chip_seed"] or 0,
    )
    budget = Budget(
        insertion_loss_db=options["max_loss_db"],
        signal_to_crosstalk_db=options["min_signal_to_crosstalk_db"],
        delay_spread_s=options["max_delay_spread"],
    )
    return optics, budget.margins(optics)


def _print_optics(optics: Any, margins: list[Any], fabric: Fabric, *, per_slot: bool) -> None:
    """Print figures, budget and notes and, if asked for (`per_slot`), a line for each slot.

    A margin says how a figure keeps its limit. At several frequencies, a line for each follows.
    """
    click.echo(f"  optics of {optics.device.name}:")

    # Worst loss and worst signal to crosstalk also name the slot, and the ports of the circuit.
    rows_with_circuits = [row for row in optics.slot_rows() if row["circuits"]]
    place_of_figure = {}
    if rows_with_circuits:
        faint = max(rows_with_circuits, key=lambda row: row["worst_insertion_loss_db"])
        noisy = min(rows_with_circuits, key=lambda row: row["worst_signal_to_crosstalk_db"])
        for figure, row, circuit in (
            ("worst_insertion_loss_db", faint, "worst_loss_circuit"),
            ("worst_signal_to_crosstalk_db", noisy, "worst_crosstalk_circuit"),
        ):
            ports = _describe_ports(fabric, *row[circuit])
            place_of_figure[figure] = f"  (slot {row['slot']}, {ports})"
    figures = {}
    for figure, value in optics.figures.items():
        words, unit = split_unit(figure)
        figures[words] = f"{write_amount(value, unit)}{place_of_figure.get(figure, '')}"
    print_rows(figures, indent=4)

    # Frequencies, margins and slots, a line for each.
    if len(optics.frequencies_hz) > 1:
        for row in optics.band_rows():
            click.echo(
                f"    {row['wavelength_nm']:.2f} nm: loss {row['worst_insertion_loss_db']:.2f} dB,"
                f" signal to crosstalk {row['worst_signal_to_crosstalk_db']:.1f} dB"
            )
    for margin in margins:
        verdict = paint("ok" if margin.ok else "FAILED", margin.ok)
        click.echo(f"    budget {verdict}: {margin}")
    if per_slot:
        columns = optics.circuit_columns()
        for row in optics.slot_rows():
            click.echo(f"    slot {row['slot']}: {_describe_slot(row, fabric)}")

            # A table of the circuits of the slot.
            in_slot = columns["slot"] == row["slot"]
            values = zip(*(column[in_slot].tolist() for column in columns.values()), strict=True)
            rows = [dict(zip(columns, circuit, strict=True)) for circuit in values]
            if rows:
                print_table(write_table(rows), indent=6)
    for note in optics.notes:
        click.echo(f"    note: {note}")


def _describe_ports(fabric: Fabric, source: int, destination: int) -> str:
    """Return a pair of ports in words, by their names if the fabric is a netlist."""
    receives = fabric.name_port(destination, receives=True)
    return f"port {fabric.name_port(source)} to port {receives}"


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


_WORDS_OF_FIGURE = {
    "lower_bound_recomputed": "lower bound by counting",
    "lower_bound_checked": "lower bound by counting or certificate",
}
"""Figures that are printed in other words than the names of their fields."""


@click.command(cls=SectionedCommand)
@click.argument("files", metavar="SCHEDULE...", nargs=-1, required=True, type=click.Path())
@with_options(_OPTICS_OPTIONS)
@click.option(
    "--accept-unproved",
    is_flag=True,
    help="Exit code 0, not 6, where a claim rests on a search without a certificate.",
)
@click.option("--all", "whole_store", is_flag=True, help="Verify all answers of a STORE.")
@click.option(
    "--discard",
    is_flag=True,
    help="With --all: remove what does not hold, so that a sweep runs it again.",
)
@click.option(
    "--against",
    type=click.Path(),
    help="A config_db.json of a switch: which slot it holds, or how the nearest one differs.",
)
@click.option(
    "--ports", type=click.Path(), help="With --against: CSV with the sides of each port: port,A,B."
)
@click.option(
    "--switch",
    "switch_name",
    help="With --against: which switch of the plan the file is of, as plane-1.  [default: any]",
)
@JSON_LINES
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    accept_unproved: bool,
    against: str | None,
    ports: str | None,
    switch_name: str | None,
    whole_store: bool,
    discard: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Replay schedules: coverage, light, lengths and bounds. `-` is stdin. With --all, STOREs.

    Exit code 5 if a rule does not hold, with --optics the budget is not kept, or with --against
    the switch holds no slot of the schedule; else 6 if a status or a lower bound rests on a search
    without a certificate.
    """
    # `files` are solutions or, with `whole_store`, stores of sweeps. `against` is a configuration
    # of a switch to compare with, `ports` a file with the two sides of each port, and
    # `switch_name` the switch of the plan; None for none. `options` are those of the check of
    # light.
    for name, value in options.items():
        if not options["optics"] and value is not None and value is not False:
            raise click.UsageError(f"--{name.replace('_', '-')}: only with --optics")
    if discard and not whole_store:
        raise click.UsageError("--discard: only with --all")
    if against is None and (ports is not None or switch_name is not None):
        raise click.UsageError("--ports, --switch: only with --against")
    if whole_store and (options["optics"] or against is not None):
        raise click.UsageError("either --all, or --optics or --against")

    def verify_file(file: str) -> int:
        """Verify one file, and return the worst exit code of its schedule and of the switch.

        With ``--all`` the file is a store of sweeps.
        """
        if whole_store:
            code = _verify_store(file, discard, as_json)
        else:
            # It is read once, as stdin cannot be read twice.
            solution = read_solution(file)
            code = _verify_schedule(file, solution, options, as_json)
            if against is not None:
                from optmatch.io.switches.plans import compare_with_config

                nearest = compare_with_config(
                    solution, against, ports=ports, switch_name=switch_name
                )
                code_of_switch = _print_comparison(file, nearest, against, as_json)
                code = max(code, code_of_switch, key=SEVERITY.index)
        if accept_unproved and code == UNPROVED:
            return SOLVED
        return code

    ctx.exit(for_each(files, verify_file, as_json=as_json))


def _print_comparison(file: str, nearest: NearestState, config: str, as_json: bool) -> int:
    """Print which slot a switch holds, or how its circuits differ from the nearest one.

    The nearest slot is the one that needs the fewest changes of `config_db.json`. The exit code is
    0 if it holds a slot, else that of a failed check.
    """
    removals = [circuit.name for circuit in nearest.difference.removals]
    additions = [circuit.name for circuit in nearest.difference.additions]
    if as_json:
        print_object(
            "comparison",
            {
                "file": file,
                "switch": nearest.switch,
                "slot": nearest.state,
                "not_in_the_plan": removals,
                "missing": additions,
            },
        )
    else:
        verdict = "holds" if nearest.difference.is_empty else "is nearest to"
        click.echo(f"{config}: {verdict} slot {nearest.state} of {nearest.switch}")
        for name in removals:
            click.echo(f"  not in the plan: {name}")
        for name in additions:
            click.echo(f"  missing: {name}")
    return SOLVED if nearest.difference.is_empty else CHECK_FAILED


def _verify_store(file: str, discard: bool, as_json: bool) -> int:
    """Verify all answers of a store of sweeps, and print how many hold.

    With `discard` those that do not are removed. The exit code is that of a failed check if an
    answer is wrong or damaged, else that of unproved claims if there are any, else 0.
    """
    from optmatch.sweeps.store import Store
    from optmatch.sweeps.sweep import check_store

    # All verdicts are there from the start, so that the JSON object names each of them.
    rows_of_verdict: dict[str, list[dict[str, str]]] = {
        verdict: [] for verdict in ("ok", "unproved", "violated", "damaged", "none")
    }
    with Store(file, read_only=not discard) as store:
        for row, verdict, complaint in check_store(store):
            rows_of_verdict[verdict].append(
                {"key": row.key, "name": row.name, "method": row.method, "complaint": complaint}
            )
            if discard and verdict in ("violated", "damaged"):
                store.discard(row.key)

    # What is wrong and what is unproved is named, of all others the number is told.
    wrong_rows = [*rows_of_verdict["violated"], *rows_of_verdict["damaged"]]
    unproved_rows = rows_of_verdict["unproved"]
    n_of_verdict = {verdict: len(rows) for verdict, rows in rows_of_verdict.items()}

    if as_json:
        rows = {"wrong": wrong_rows, "without_proof": unproved_rows}
        print_object("store-report", {"file": file, **n_of_verdict, **rows})
    else:
        word = "FAILED" if wrong_rows else "ok"
        counts = [f"{n} {verdict}" for verdict, n in n_of_verdict.items() if n]
        summary = ", ".join(counts) or "empty"
        click.echo(f"{file}: {paint(word, not wrong_rows)}: {summary}")
        for entry in [*wrong_rows, *unproved_rows]:
            name = ", ".join(filter(None, (entry["name"], entry["method"])))
            click.echo(f"  {entry['key'][:12]} {name}: {entry['complaint']}")

    if wrong_rows:
        return CHECK_FAILED
    return UNPROVED if unproved_rows else SOLVED


def _verify_schedule(file: str, solution: Solution, options: dict[str, Any], as_json: bool) -> int:
    """Replay one schedule, with `--optics` measure its light, and print the report.

    `options` are those of the check of light, by name. The exit code is that of a failed check if
    a rule does not hold or the optical budget is not kept, else that of unproved claims if there
    are any, else 0.
    """
    from optmatch.entrances import verify as replay

    report = replay(solution.problem, solution)

    # Light through wrong states means nothing, so a refused schedule is not measured.
    optics = None
    margins: list[Any] = []
    if options["optics"] and report.valid:
        optics, margins = _measure(solution, options)
    budget_is_kept = all(margin.ok for margin in margins)

    if as_json:
        content = {"file": file, **report.to_json()}
        if options["optics"]:
            content["optics"] = None
        if optics is not None:
            content["optics"] = {
                "device": optics.device.name,
                "frequencies_hz": optics.frequencies_hz,
                "figures": optics.figures,
                "band": optics.band_rows(),
                "budget_ok": budget_is_kept,
                "budget": [margin._asdict() | {"ok": margin.ok} for margin in margins],
                "slots": optics.slot_rows(),
                "circuits": {name: c.tolist() for name, c in optics.circuit_columns().items()},
                "notes": list(optics.notes),
            }
        print_object("report", content)
    else:
        # The report comes first, and below it the optics of what is valid.
        _print_report(name_of(file), report, solution.problem, budget_is_kept=budget_is_kept)
        if optics is not None:
            fabric = solution.problem.fabric
            _print_optics(optics, margins, fabric, per_slot=options["per_slot"])
        elif options["optics"]:
            click.echo("  optics: not measured, since the schedule is refused")

    if not report.valid or not budget_is_kept:
        return CHECK_FAILED
    return SOLVED if report.ok else UNPROVED


def _print_report(name: str, report: Report, problem: Problem, *, budget_is_kept: bool) -> None:
    """Print a report: the verdict, violations, figures, and what is unproved.

    `name` is that of the file. Ports in violations have their names beside their numbers. Unproved
    are claims of a search that has no certificate. An optical budget that is not kept is a failed
    check, too.
    """
    if not report.valid:
        verdict = paint("FAILED", False)
    elif not budget_is_kept:
        verdict = paint("FAILED: an optical budget, see below", False)
    elif report.ok:
        verdict = paint("ok", True)
    else:
        verdict = click.style("UNPROVED", fg="yellow")
    click.echo(f"{name}: {verdict}")

    labels = () if problem.fabric is None else problem.fabric.labels
    for violation in report.violations:
        click.echo(f"  {name_ports(str(violation), labels)}")

    # Objectives and bounds have the unit of the problem, or the names of their levels.
    rows: dict[str, Any] = {}
    for figure, value in report.figures.items():
        words = _WORDS_OF_FIGURE.get(figure, figure)
        is_score = isinstance(value, tuple) or figure.startswith(("objective", "lower_bound"))
        rows[words] = write_score(value, unit_of(problem)) if is_score else value
    # Without a late rank no round is late.
    print_rows(
        {name: value for name, value in rows.items() if (name, value) != ("rounds_late", 0)}
    )

    for check in report.skipped:
        click.echo(f"  not checked: {check}")
    for claim in report.unproved:
        click.echo(f"  unproved: {claim}")
    for note in report.notes:
        click.echo(f"  note: {note}")
