"""`optmatch study`: slices that come and go, spares, and blast radii, as tables and pictures."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.interrupt import at_events
from optmatch.commands.options import with_options
from optmatch.commands.outcome import INTERRUPTED, SOLVED, print_object, say
from optmatch.commands.progress import Progress
from optmatch.fabrics import RackFabric
from optmatch.model import InputError, OnEvent, ignore

if TYPE_CHECKING:
    from optmatch.problems.slices.shape import Shape
    from optmatch.studies.outcome import Study

RACK_OPTIONS = (
    click.option(
        "--racks", type=int, help="How many racks.  [default: 1, of a study of slices 64]"
    ),
    click.option("--chips", metavar="AxBxC", help="Chips of a rack.  [default: 4x4x4]"),
    click.option("--server", metavar="AxBxC", help="Chips of a server.  [default: 2x2x1]"),
    click.option("--fibres", type=int, help="From a server to each neighbour.  [default: 8]"),
)
_OUTPUT_OPTIONS = (
    click.option("--csv", "as_csv", is_flag=True, help="The tables as CSV, one after another."),
    click.option("--json", "as_json", is_flag=True, help="One object, with the parameters."),
    click.option("-o", "--output", type=click.Path(), help="A picture too: x.png, .svg or .pdf"),
    click.option("--force", is_flag=True, help="Replace a file that is there."),
)
_RUN_OPTIONS = (
    click.option(
        "--runs",
        type=click.IntRange(min=1),
        default=5,
        show_default=True,
        help="Independent repetitions; intervals are of 95 %.",
    ),
    click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all runs."
    ),
    click.option(
        "--mix",
        metavar="AxBxC=W,...",
        help="How often each slice comes.  [default: five, equally]",
    ),
    click.option("-q", "--quiet", is_flag=True, help="No progress."),
)


@click.group()
def study() -> None:
    """Study racks: how slices fit, how many spares do, what a failure disturbs."""


@study.command()
@with_options(RACK_OPTIONS)
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="How many come in each run.",
)
@click.option(
    "--load",
    type=float,
    default=0.9,
    show_default=True,
    help="Servers asked for at a time, as a part of all.",
)
@click.option(
    "--trace", type=click.Path(), help="CSV of arrival_time, shape, duration instead; one run."
)
@click.option(
    "--rule",
    "rules",
    type=click.Choice(["first-fit", "best-fit", "optical", "optical-joined"]),
    multiple=True,
    help="Which to compare; repeatable.  [default: all]",
)
@click.option(
    "--warm-up",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.25,
    show_default=True,
    help="Part of the requests that is not counted.",
)
@click.option(
    "--free",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="Part of the fragmented pod that is free.",
)
@with_options(_RUN_OPTIONS)
@with_options(_OUTPUT_OPTIONS)
@click.pass_context
def slices(
    ctx: click.Context,
    /,
    trace: str | None,
    rules: tuple[str, ...],
    mix: str | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Send the same requests through first fit, best fit and the optical allocator.

    The latter twice: within racks, and with racks that are joined by optical switches.
    """
    from optmatch.studies.slices.arrivals import read_arrivals
    from optmatch.studies.slices.replay import RULES
    from optmatch.studies.slices.tables import study_slices

    fabric = build_racks(options, racks=64)
    arrivals = None if trace is None else read_arrivals(trace)
    parameters = {
        name: options[name] for name in ("requests", "load", "runs", "seed", "warm_up", "free")
    }
    chosen: dict[str, Any] = {} if mix is None else {"mix": read_mix(mix)}

    def run(listen: OnEvent) -> Study:
        return study_slices(
            fabric, trace=arrivals, rules=rules or RULES, on_event=listen, **parameters, **chosen
        )

    told = {**parameters, "trace": trace, "mix": mix}
    ctx.exit(_run(run, fabric, told, quiet=quiet, options=options))


@study.command()
@with_options(RACK_OPTIONS)
@click.option(
    "--most", type=click.IntRange(min=0), default=8, show_default=True, help="Spares at most."
)
@click.option(
    "--chip-failures",
    "chip_failures_per_year",
    type=float,
    default=0.09,
    show_default=True,
    help="Per year, of one chip by itself.",
)
@click.option(
    "--server-failures",
    "server_failures_per_year",
    type=float,
    default=0.03,
    show_default=True,
    help="Per year, of a server with all its chips.",
)
@click.option(
    "--repair-days",
    type=float,
    default=7.0,
    show_default=True,
    help="Until what has failed is back.",
)
@with_options(_OUTPUT_OPTIONS)
@click.pass_context
def spares(ctx: click.Context, /, **options: Any) -> None:
    """Compute how often so many spares of a rack cover all that is down in it."""
    from optmatch.studies.reroutes.tables import study_spares

    fabric = build_racks(options, racks=1)
    names = ("most", "chip_failures_per_year", "server_failures_per_year", "repair_days")
    parameters = {name: options[name] for name in names}
    ctx.exit(
        _run(
            lambda listen: study_spares(fabric, **parameters),
            fabric,
            parameters,
            quiet=True,
            options=options,
        )
    )


@study.command("blast-radius")
@with_options(RACK_OPTIONS)
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="How many slices ask for a place in each run.",
)
@with_options(_RUN_OPTIONS)
@with_options(_OUTPUT_OPTIONS)
@click.pass_context
def blast_radius(ctx: click.Context, /, mix: str | None, quiet: bool, **options: Any) -> None:
    """Let each chip in use fail, and count the chips whose circuits change."""
    from optmatch.studies.reroutes.tables import study_blast

    fabric = build_racks(options, racks=1)
    parameters = {name: options[name] for name in ("requests", "runs", "seed")}
    chosen: dict[str, Any] = {} if mix is None else {"mix": read_mix(mix)}

    def run(listen: OnEvent) -> Study:
        return study_blast(fabric, on_event=listen, **parameters, **chosen)

    ctx.exit(_run(run, fabric, {**parameters, "mix": mix}, quiet=quiet, options=options))


def build_racks(options: dict[str, Any], *, racks: int) -> RackFabric:
    """Make the racks that the options describe."""
    from optmatch.studies.slices.arrivals import parse_shape

    given: dict[str, Any] = {"racks": racks}
    for name in ("racks", "fibres"):
        if options[name] is not None:
            given[name] = options[name]
    for name in ("chips", "server"):
        if options[name] is not None:
            try:
                given[name] = parse_shape(options[name])
            except InputError as exc:
                raise InputError(f"--{name} {exc.message}", where=name) from exc
    return RackFabric(**given)


def read_mix(text: str) -> dict[Shape, float]:
    """Read weights of shapes as ``2x2x1=3,2x2x2=1``; a shape without weight has 1."""
    from optmatch.studies.slices.arrivals import parse_shape

    mix: dict[Shape, float] = {}
    for part in text.split(","):
        name, _, weight = part.partition("=")
        try:
            mix[parse_shape(name)] = float(weight or 1)
        except ValueError as exc:  # InputError is one
            raise InputError(f"--mix {part!r}: a shape and its weight as 2x2x4=1") from exc
    return mix


def _run(
    run: Callable[[OnEvent], Study],
    fabric: RackFabric,
    parameters: dict[str, Any],
    *,
    quiet: bool,
    options: dict[str, Any],
) -> int:
    """Run a study, then write its tables and its picture, also those of an interrupted one."""
    if options["as_csv"] and options["as_json"]:
        raise click.UsageError("either --csv or --json")
    progress = Progress("study", terminal=sys.stderr.isatty())
    try:
        with at_events(ignore if quiet else progress) as listen:
            found = run(listen)
    finally:
        progress.close()
    if options["as_json"]:
        racks = {"chips": fabric.chips, "server": fabric.server, "fibres": fabric.fibres}
        print_object(
            "study",
            {
                "study": found.name,
                "fabric": {**racks, "racks": fabric.racks},
                "parameters": parameters,
                "complete": found.complete,
                "tables": found.tables,
            },
        )
    elif options["as_csv"]:
        _print_csv(found)
    else:
        _print_tables(found)
    done = found.complete or any(found.tables.values())
    if options["output"] is not None and done:
        from optmatch.plotting import plot_study, save_figure

        save_figure(
            lambda: plot_study(found.name, found.tables), options["output"], force=options["force"]
        )
        say(f"{options['output']}: written")
    if not found.complete:
        say(f"interrupted: {'the tables are of what' if done else 'nothing'} was done")
    return SOLVED if found.complete else INTERRUPTED


def _print_tables(found: Study) -> None:
    for title, rows in found.tables.items():
        if not rows:
            continue
        click.echo(f"{title}")
        names = [name for name in rows[0] if not name.endswith("_half_width")]
        lines = [[name.replace("_", " ") for name in names]]
        lines += [[_cell(row, name) for name in names] for row in rows]
        widths = [max(len(line[k]) for line in lines) for k in range(len(names))]
        for line in lines:
            cells = zip(line, widths, strict=True)
            click.echo("  " + "  ".join(f"{text:>{width}}" for text, width in cells))


def _cell(row: dict[str, Any], name: str) -> str:
    value, half = row[name], row.get(f"{name}_half_width")
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{text} +- {half:.2g}" if half else text


def _print_csv(found: Study) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for title, rows in found.tables.items():
        if rows:
            writer.writerow(["table", *rows[0]])
            writer.writerows([title, *row.values()] for row in rows)
    click.echo(text.getvalue(), nl=False)
