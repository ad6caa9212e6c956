"""`optmatch compare`: methods side by side on problems, or fabrics on the same matchings."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared.interrupt import unbroken
from optmatch.commands.shared.options import (
    FABRICS_BY_SIZE,
    Duration,
    SectionedCommand,
    count,
    draw_ports,
    with_options,
)
from optmatch.commands.shared.outcome import INTERRUPTED, SOLVED, name_of, read_problem
from optmatch.commands.shared.progress import listening
from optmatch.commands.shared.studies import STUDY_OPTIONS, check_output, read_names, show_study

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
@with_options(STUDY_OPTIONS)
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
    check_output(options["output"], force=options["force"])
    study: Study
    if are_fabrics:
        study = _measure_fabrics(options)
    else:
        from optmatch.studies.comparisons import compare_methods

        problems = {name_of(file): read_problem(file) for file in files}
        names = None if options["methods"] is None else read_names(options["methods"])
        with listening("methods", quiet=options["quiet"]) as listen:
            study = compare_methods(
                problems,
                names,
                seed=options["seed"],
                time_limit_s=options["time_limit_s"],
                on_event=listen,
            )
    show_study(study, options["output"], as_json=options["as_json"])
    ctx.exit(SOLVED if study.complete else INTERRUPTED)


def _measure_fabrics(options: dict[str, Any]) -> Study:
    """Route the same random matchings on every fabric, and measure loss and crosstalk of circuits.

    `options` are those of the command, by name: `fabrics`, names with commas between them; `size`,
    the ports of each; `count`, how many matchings are drawn; `pairs`, whether a matching exchanges
    ports in pairs (a to b and b to a), over bidirectional ports of meshes; `device`, the model of
    the cells; `seed`; and `time_limit_s` for one matching on one fabric. After Ctrl-C the study
    has the fabrics that are done.
    """
    from optmatch.commands.shared.chip import choose_device
    from optmatch.commands.shared.optics import use_one_thread
    from optmatch.studies.comparisons import FabricComparison, compare_fabrics

    if options["size"] is None:
        raise click.UsageError("--size: needed with --fabrics")
    size = options["size"]
    seed = options["seed"]
    pairs = options["pairs"]
    use_one_thread()
    device = choose_device(options["device"])
    names = read_names(options["fabrics"])
    fabrics = {name: build(name, size, pairs) for name in names}

    # All fabrics get the same matchings, which are drawn with consecutive seeds.
    matchings = [draw_ports(size, pairs, seed + k) for k in range(options["count"])]
    study = FabricComparison()
    with listening("fabrics", quiet=options["quiet"]) as listen:
        try:
            for name, fabric in fabrics.items():
                study += compare_fabrics(
                    {name: fabric},
                    matchings,
                    device,
                    seed=seed,
                    time_limit_s=options["time_limit_s"],
                    on_event=listen,
                )
        except KeyboardInterrupt:
            return FabricComparison(study, complete=False)
    return study


def build(text: str, size: int, pairs: bool = False) -> Any:
    """Make a fabric from its name, of a mesh with rows and columns as ``hex-mesh:9x9``.

    `text` is this name, and `size` its number of ports. With `pairs` the ports of a mesh are
    bidirectional, else each has a terminal to send and one to receive.
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
