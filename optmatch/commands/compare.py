"""`optmatch compare`: methods side by side on problems, or fabrics on the same matchings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from optmatch.commands.shared.interrupt import unbroken
from optmatch.commands.shared.options import (
    FABRICS_BY_SIZE,
    FORCE,
    JSON,
    QUIET,
    Duration,
    count,
    draw_ports,
    with_options,
)
from optmatch.commands.shared.outcome import (
    INTERRUPTED,
    SOLVED,
    csv_text,
    name_of,
    print_object,
    print_table,
    read_problem,
    say,
)
from optmatch.commands.shared.progress import listening
from optmatch.model import write_score
from optmatch.model.comparison import FabricRow, MethodRow
from optmatch.model.files import PICTURES, check_target, replace_file

FABRIC_COLUMNS = (
    *("name", "cells", "stages", "crossings", "area_cells", "routed", "matchings"),
    *("worst_route_cells", "worst_insertion_loss_db", "worst_signal_to_crosstalk_db"),
    *("toggles", "time_s"),
)
METHOD_COLUMNS = tuple(field.name for field in fields(MethodRow))


@click.command()
@click.argument("files", metavar="[FILE...]", nargs=-1, type=click.Path())
@click.option(
    "--methods",
    metavar="NAME,...",
    help="Methods to try on each FILE.  [default: all that accept it]",
)
@click.option(
    "--fabrics",
    metavar="NAME,...",
    help="Fabrics to compare, instead of FILEs: benes, crossbar, hex-mesh:9x9, ...",
)
@count("--size", None, "Number of ports of each fabric.", least=2)
@count("--count", 10, "Number of random matchings for the fabrics.", least=1)
@click.option(
    "--pairs",
    is_flag=True,
    help="Matchings that exchange ports in pairs, and meshes with bidirectional ports.",
)
@click.option(
    "--device",
    metavar="NAME|FILE",
    help="The device model of the cells.  [default: smartlight]",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    metavar="TIME",
    type=Duration(),
    default=10.0,
    help="Limit for one method on one FILE, or one matching on one fabric.",
)
@count("--seed", 0, "Seed of methods, matchings and devices.")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="Table as x.csv; of fabrics also a picture: x.png, .svg, .pdf.  [default: none]",
)
@with_options((FORCE, JSON, QUIET))
@click.pass_context
@unbroken()
def compare(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:
    """Put methods side by side on problem files, or fabrics on the same random matchings.

    Ctrl-C ends with the rows that are there.
    """
    of_fabrics = options["fabrics"] is not None
    if of_fabrics == bool(files) or (of_fabrics and options["methods"] is not None):
        raise click.UsageError(
            "either FILE..., with --methods NAME,... to choose, or --fabrics NAME,... --size N"
        )
    if options["output"] is not None:
        endings = (".csv", *PICTURES) if of_fabrics else (".csv",)
        check_target(options["output"], force=options["force"], endings=endings)
    rows: list[Any] = []
    run = _run_fabrics if of_fabrics else _run_methods
    code = SOLVED
    try:
        run(files, options, rows.append)
    except KeyboardInterrupt:
        say("interrupted: these rows are there")
        code = INTERRUPTED
    columns = FABRIC_COLUMNS if of_fabrics else METHOD_COLUMNS
    table = [{name: getattr(row, name) for name in columns} for row in rows]
    if options["as_json"]:
        print_object("comparison", {"of": "fabrics" if of_fabrics else "methods", "rows": table})
    else:
        _print(table)
    if options["output"] is not None and rows:
        _save(options["output"], table, rows)
    ctx.exit(code)


def _run_methods(
    files: Sequence[str], options: dict[str, Any], keep: Callable[[MethodRow], None]
) -> None:
    """Solve every file by every method."""
    from optmatch.studies.comparisons import compare_methods

    problems = {name_of(file): read_problem(file) for file in files}

    def listen_and_keep(row: MethodRow) -> None:
        keep(row)
        if row.reason == "interrupted":
            raise KeyboardInterrupt

    with listening("methods", quiet=options["quiet"]) as listen:
        compare_methods(
            problems,
            None if options["methods"] is None else _names(options["methods"]),
            seed=options["seed"],
            time_limit_s=options["time_limit_s"],
            on_event=listen,
            on_row=listen_and_keep,
        )


def _run_fabrics(
    files: Sequence[str], options: dict[str, Any], keep: Callable[[FabricRow], None]
) -> None:
    """Measure every fabric on the same matchings."""
    from optmatch.commands.shared.chip import choose_device
    from optmatch.commands.shared.optics import use_one_thread
    from optmatch.studies.comparisons import compare_fabrics

    if options["size"] is None:
        raise click.UsageError("--size: needed with --fabrics")
    size = options["size"]
    seed = options["seed"]
    use_one_thread()
    device = choose_device(options["device"])
    fabrics = {name: build(name, size, options["pairs"]) for name in _names(options["fabrics"])}
    matchings = [draw_ports(size, options["pairs"], seed + k) for k in range(options["count"])]
    with listening("fabrics", quiet=options["quiet"]) as listen:
        for name, fabric in fabrics.items():
            (row,) = compare_fabrics(
                {name: fabric},
                matchings,
                device,
                seed=seed,
                time_limit_s=options["time_limit_s"],
                on_event=listen,
            )
            keep(row)


def build(text: str, size: int, pairs: bool = False) -> Any:
    """Make a fabric of so many ports from its name, meshes with rows and columns."""
    from optmatch.fabrics import SWITCHES

    name, _, extent = text.partition(":")
    if name not in FABRICS_BY_SIZE:
        raise click.UsageError(f"--fabrics: {name!r}: known are {', '.join(FABRICS_BY_SIZE)}")
    known = {field.name for field in fields(SWITCHES[name])}  # type: ignore[arg-type]
    ports = {"ports": size} if pairs else {"tx": size, "rx": size}
    given = {"n": size} if "n" in known else ports
    try:
        if "rows" in known or extent:
            given["rows"], given["cols"] = map(int, extent.split("x"))
    except ValueError:
        given.clear()
    if not given or not set(given) <= known:
        raise click.UsageError(
            f"--fabrics: {text!r}: rows and columns, of meshes alone, as in hex-mesh:9x9"
        )
    return SWITCHES[name](**given)


def _names(text: str) -> list[str]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names or len(set(names)) < len(names):
        raise click.UsageError(f"{text!r}: different names, separated by commas")
    return names


def _save(output: str, table: list[dict[str, Any]], rows: list[Any]) -> None:
    if Path(output).suffix.lower() == ".csv":
        text = csv_text([table[0], *(row.values() for row in table)])
        replace_file(Path(output), text.encode())
    else:
        from optmatch.plotting import plot_fabrics, save_figure

        save_figure(lambda: plot_fabrics(rows), output, force=True)  # before the work
    say(f"{output}: written")


def _print(table: list[dict[str, Any]]) -> None:
    """Print rows as a table; reasons of refusals below it."""
    names = [name for name in (table[0] if table else ()) if name != "reason"]
    lines = [[_text(row[name], name) for name in names] for row in table]
    print_table([[name.replace("_", " ") for name in names], *lines] if table else [])
    for row in table:
        if row.get("status") == "refused":
            click.echo(f"{row['name']}: {row['method']}: {row['reason']}")


def _text(value: Any, name: str) -> str:
    if value is None:
        return "-"
    if name == "gap":
        return f"{100 * value:.3g} %"
    if isinstance(value, tuple):
        return write_score(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
