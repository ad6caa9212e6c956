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
    SectionedCommand,
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


@click.command(cls=SectionedCommand)
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
    are_fabrics = options["fabrics"] is not None
    has_files = bool(files)
    if are_fabrics == has_files or (are_fabrics and options["methods"] is not None):
        raise click.UsageError(
            "either FILE..., with --methods NAME,... to choose, or --fabrics NAME,... --size N"
        )
    output = options["output"]
    if output is not None:
        endings = (".csv", *PICTURES) if are_fabrics else (".csv",)
        check_target(output, force=options["force"], endings=endings)

    # Rows are collected one by one, so that those before Ctrl-C are not lost.
    rows: list[Any] = []
    code = SOLVED
    try:
        if are_fabrics:
            _measure_fabrics(options, rows.append)
        else:
            _solve_by_methods(files, options, rows.append)
    except KeyboardInterrupt:
        say("interrupted: these rows are there")
        code = INTERRUPTED

    columns = FABRIC_COLUMNS if are_fabrics else METHOD_COLUMNS
    table = [{name: getattr(row, name) for name in columns} for row in rows]
    if options["as_json"]:
        print_object("comparison", {"of": "fabrics" if are_fabrics else "methods", "rows": table})
    else:
        _print_comparison(table)
    if output is not None and rows:
        _save_comparison(output, table, rows)
    ctx.exit(code)


def _solve_by_methods(
    files: Sequence[str], options: dict[str, Any], on_row: Callable[[MethodRow], None]
) -> None:
    """Solve every file by every method, one after the other.

    Parameters
    ----------
    files
        Problem files.
    options
        The options of the command: names of methods between commas, None for all that take the
        problem; seed; limit in seconds for each method; and whether progress is shown.
    on_row
        Takes the row of each file and method when it is done.

    Raises
    ------
    KeyboardInterrupt
        After the row of a method that Ctrl-C has ended; no other method runs then.
    """
    from optmatch.studies.comparisons import compare_methods

    problems = {name_of(file): read_problem(file) for file in files}
    methods = None
    if options["methods"] is not None:
        methods = _read_names(options["methods"])

    def on_row_unless_interrupted(row: MethodRow) -> None:
        # A method returns its best answer after Ctrl-C; the other methods are not to run then.
        """Pass a row on; end the comparison if the row says that Ctrl-C came."""
        on_row(row)
        if row.reason == "interrupted":
            raise KeyboardInterrupt

    with listening("methods", quiet=options["quiet"]) as listen:
        compare_methods(
            problems,
            methods,
            seed=options["seed"],
            time_limit_s=options["time_limit_s"],
            on_event=listen,
            on_row=on_row_unless_interrupted,
        )


def _measure_fabrics(options: dict[str, Any], on_row: Callable[[FabricRow], None]) -> None:
    """Route the same random matchings on every fabric, and measure their light.

    Parameters
    ----------
    options
        The options of the command: names of fabrics between commas, their number of ports, how
        many matchings are drawn, the device of cells, seed, and limit in seconds for each routing.
    on_row
        Takes the row of each fabric when it is done.
    """
    from optmatch.commands.shared.chip import choose_device
    from optmatch.commands.shared.optics import use_one_thread
    from optmatch.studies.comparisons import compare_fabrics

    if options["size"] is None:
        raise click.UsageError("--size: needed with --fabrics")
    size = options["size"]
    seed = options["seed"]
    pairs = options["pairs"]
    use_one_thread()
    device = choose_device(options["device"])
    names = _read_names(options["fabrics"])
    fabrics = {name: build(name, size, pairs) for name in names}

    # All fabrics get the same matchings, which are drawn with consecutive seeds.
    matchings = [draw_ports(size, pairs, seed + k) for k in range(options["count"])]
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
            on_row(row)


def build(text: str, size: int, pairs: bool = False) -> Any:
    """Make a fabric from its name and its number of ports.

    Parameters
    ----------
    text
        The name; of a mesh with rows and columns, as ``hex-mesh:9x9``.
    size
        The number of ports.
    pairs
        Whether a mesh has bidirectional ports; else each port has a terminal to send and one to
        receive.

    Returns
    -------
    Fabric
        The fabric.

    Raises
    ------
    click.UsageError
        If there is no such fabric, or rows and columns are missing or do not belong to it.
    """
    from optmatch.fabrics import SWITCHES

    name, _, extent = text.partition(":")
    if name not in FABRICS_BY_SIZE:
        raise click.UsageError(f"--fabrics: {name!r}: known are {', '.join(FABRICS_BY_SIZE)}")
    field_names = {field.name for field in fields(SWITCHES[name])}  # type: ignore[arg-type]

    # Each class names its size in its own way: n ports, bidirectional ports, or terminals that
    # send and receive.
    sizes: dict[str, int]
    if "n" in field_names:
        sizes = {"n": size}
    elif pairs:
        sizes = {"ports": size}
    else:
        sizes = {"tx": size, "rx": size}

    # Rows and columns are needed by meshes, and refused for all others.
    extent_is_right = True
    if "rows" in field_names or extent:
        try:
            sizes["rows"], sizes["cols"] = map(int, extent.split("x"))
        except ValueError:
            extent_is_right = False
    if not extent_is_right or not set(sizes) <= field_names:
        raise click.UsageError(
            f"--fabrics: {text!r}: rows and columns, of meshes alone, as in hex-mesh:9x9"
        )
    return SWITCHES[name](**sizes)


def _read_names(text: str) -> list[str]:
    """Read different names, separated by commas."""
    parts = [part.strip() for part in text.split(",")]
    names = [part for part in parts if part]
    if not names or len(set(names)) < len(names):
        raise click.UsageError(f"{text!r}: different names, separated by commas")
    return names


def _save_comparison(output: str, table: list[dict[str, Any]], rows: list[Any]) -> None:
    """Write a comparison as CSV or, where fabrics are compared, as a picture.

    Parameters
    ----------
    output
        The file, which was checked before the work; its ending decides.
    table
        The rows as dictionaries, in the order of the columns.
    rows
        The same rows as records.
    """
    if Path(output).suffix.lower() == ".csv":
        text = csv_text([table[0], *(row.values() for row in table)])
        replace_file(Path(output), text.encode())
    else:
        from optmatch.plotting import plot_fabrics, save_figure

        save_figure(lambda: plot_fabrics(rows), output, force=True)
    say(f"{output}: written")


def _print_comparison(table: list[dict[str, Any]]) -> None:
    """Print rows as a table; reasons of refusals below it.

    Parameters
    ----------
    table
        The rows by name of column. A row whose status is "refused" has the reason why its method
        does not take the problem.
    """
    if not table:
        return
    names = [name for name in table[0] if name != "reason"]
    titles = [name.replace("_", " ") for name in names]
    lines = [[_write_cell(row[name], name) for name in names] for row in table]
    print_table([titles, *lines])
    for row in table:
        if row.get("status") == "refused":
            click.echo(f"{row['name']}: {row['method']}: {row['reason']}")


def _write_cell(value: Any, name: str) -> str:
    """Write a value for a cell of a table.

    Parameters
    ----------
    value
        A number, a text, a tuple of levels of an objective, or None, which is written "-".
    name
        The name of the column; a gap is a share, and is written in percent.
    """
    if value is None:
        return "-"
    if name == "gap":
        return f"{100 * value:.3g} %"
    if isinstance(value, tuple):
        return write_score(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
