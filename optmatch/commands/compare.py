"""`optmatch compare`: methods side by side on problems, or fabrics on the same matchings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    name_of,
    print_object,
    read_problem,
    say,
)
from optmatch.commands.shared.progress import listening
from optmatch.commands.shared.studies import (
    check_picture,
    draw_study,
    print_rows,
    rows_as_csv,
)
from optmatch.model.comparison import FabricRow, MethodRow
from optmatch.model.files import PICTURES, check_target, replace_file

if TYPE_CHECKING:
    from optmatch.studies.outcome import Study


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
    help="Table as x.csv, or a picture: x.png, .svg, .pdf.  [default: none]",
)
@with_options((FORCE, JSON, QUIET))
@click.pass_context
@unbroken()
def compare(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:
    """Put methods side by side on problem files, or fabrics on the same random matchings.

    Ctrl-C ends with the rows that are there.
    """
    # `files` are problems, whose methods are compared; without them `options["fabrics"]` names
    # the fabrics that are. `options` are the options of the command, by name.
    are_fabrics = options["fabrics"] is not None
    has_files = bool(files)
    if are_fabrics == has_files or (are_fabrics and options["methods"] is not None):
        raise click.UsageError(
            "either FILE..., with --methods NAME,... to choose, or --fabrics NAME,... --size N"
        )
    from optmatch.studies.comparisons import FabricComparison, MethodComparison

    output = options["output"]
    if output is not None:
        check_target(output, force=options["force"], endings=(".csv", *PICTURES))
        if Path(output).suffix.lower() != ".csv":
            check_picture(output, force=options["force"])

    # Rows are collected one by one, so that those before Ctrl-C are not lost.
    complete = True
    fabric_rows: list[FabricRow] = []
    method_rows: list[MethodRow] = []
    try:
        if are_fabrics:
            _measure_fabrics(options, fabric_rows.append)
        else:
            _solve_by_methods(files, options, method_rows.append)
    except KeyboardInterrupt:
        say("interrupted: these rows are there")
        complete = False
    study: FabricComparison | MethodComparison
    if are_fabrics:
        study = FabricComparison(fabric_rows, complete=complete)
    else:
        study = MethodComparison(method_rows, complete=complete)

    # The rows are printed, and written to a file if one is named.
    if options["as_json"]:
        print_object("comparison", study.to_object())
    else:
        _print_comparison(study)
    if output is not None and study:
        _save_comparison(study, output)
    ctx.exit(SOLVED if study.complete else INTERRUPTED)


def _print_comparison(study: Study) -> None:
    """Print a comparison as a table; reasons of refusals below it.

    Parameters
    ----------
    study
        The comparison. In that of methods a row whose status is "refused" has the reason why the
        method does not take the problem.
    """
    (rows,) = study.tables.values()
    print_rows([{name: row[name] for name in row if name != "reason"} for row in rows])
    for row in rows:
        if row.get("status") == "refused":
            click.echo(f"{row['name']}: {row['method']}: {row['reason']}")


def _save_comparison(study: Study, output: str) -> None:
    """Write a comparison as CSV or as a picture.

    Parameters
    ----------
    study
        The comparison, with at least one row.
    output
        The file, which was checked before the work; its ending decides.
    """
    if Path(output).suffix.lower() != ".csv":
        draw_study(study, output, force=True)
        return
    (rows,) = study.tables.values()
    replace_file(Path(output), rows_as_csv(rows).encode())
    say(f"{output}: written")


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
