"""`optmatch study`: racks and collectives, as tables and pictures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from optmatch.commands.shared.interrupt import unbroken
from optmatch.commands.shared.options import (
    AMOUNTS,
    EXECUTOR_OPTIONS,
    FORCE,
    JSON,
    PICTURE,
    QUIET,
    TIMES,
    count,
    executing,
    take,
    with_options,
)
from optmatch.commands.shared.outcome import (
    INTERRUPTED,
    SOLVED,
    Group,
    print_object,
    read_problem,
    say,
)
from optmatch.commands.shared.progress import listening
from optmatch.commands.shared.studies import check_picture, draw_study, print_rows, rows_as_csv
from optmatch.fabrics import RackFabric
from optmatch.model import InputError

if TYPE_CHECKING:
    from optmatch.problems.slices.shape import Shape
    from optmatch.studies.outcome import Study

RACK_OPTIONS = (
    click.option("--racks", type=int, help="Number of racks.  [default: 1; 64 for slices]"),
    click.option("--chips", metavar="AxBxC", help="Chips of a rack.  [default: 4x4x4]"),
    click.option("--server", metavar="AxBxC", help="Chips of a server.  [default: 2x2x1]"),
    click.option("--fibres", type=int, help="Fibres to each neighbour.  [default: 8]"),
)
_OUTPUT_OPTIONS = (
    *EXECUTOR_OPTIONS,
    click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one table after another."),
    *(JSON, PICTURE, FORCE),
)
_RUN_OPTIONS = (
    count("--runs", 5, "Number of independent runs; intervals are of 95 %.", least=1),
    count("--seed", 0, "Seed of all runs."),
    click.option(
        "--mix",
        metavar="AxBxC=W,...",
        help="How often each slice comes.  [default: five, equally]",
    ),
    QUIET,
)


@click.group(cls=Group)
def study() -> None:
    """Study racks (slices, spares, failures) and collectives."""


@study.command()
@with_options(RACK_OPTIONS)
@count("--requests", 2000, "Number of requests in each run.", least=1)
@click.option(
    "--load", type=float, default=0.9, help="Mean part of the servers that is asked for at a time."
)
@click.option(
    "--trace", type=click.Path(), help="Requests from a CSV: arrival_time, shape, duration."
)
@click.option(
    "--rule",
    "rules",
    type=click.Choice(["first-fit", "optical", "optical-joined"]),
    multiple=True,
    help="A rule to compare; repeatable.  [default: all]",
)
@click.option(
    "--warm-up",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.25,
    help="First part of the requests, which is not counted.",
)
@click.option(
    "--free", type=click.FloatRange(0, 1), default=0.5, help="Free part of the fragmented pod."
)
@with_options(_RUN_OPTIONS)
@with_options(_OUTPUT_OPTIONS)
@click.pass_context
def slices(ctx: click.Context, /, rules: tuple[str, ...], **options: Any) -> None:
    """Send the same requests through first fit and the optical allocator.

    The latter twice: within racks, and with racks that are joined by optical switches.
    """
    from optmatch.studies.slices.arrivals import read_arrivals
    from optmatch.studies.slices.tables import study_slices

    arguments: dict[str, Any] = {}
    if rules:
        arguments["rules"] = rules
    if options["trace"] is not None:
        arguments["trace"] = read_arrivals(options["trace"])
    ctx.exit(_study_racks(study_slices, options, racks=64, **arguments))


@study.command()
@with_options(RACK_OPTIONS)
@count("--most", 8, "Largest number of spares.")
@click.option(
    "--chip-failures",
    "chip_failures_per_year",
    type=float,
    default=0.09,
    help="Failures of one chip by itself, per year.",
)
@click.option(
    "--server-failures",
    "server_failures_per_year",
    type=float,
    default=0.03,
    help="Failures of a server with all its chips, per year.",
)
@click.option("--repair-days", type=float, default=7.0, help="Mean days of a repair.")
@with_options(_OUTPUT_OPTIONS)
@click.pass_context
def spares(ctx: click.Context, /, **options: Any) -> None:
    """Compute how often so many spares of a rack cover all that is down in it."""
    from optmatch.studies.reroutes import study_spares

    def run(fabric: RackFabric, on_event: Any, **arguments: Any) -> Study:
        # The study is a formula, which takes no time and has no events.
        return study_spares(fabric, **arguments)

    ctx.exit(_study_racks(run, options))


@study.command("blast-radius")
@with_options(RACK_OPTIONS)
@count("--requests", 200, "Number of slices that ask for a place in each run.", least=1)
@with_options(_RUN_OPTIONS)
@with_options(_OUTPUT_OPTIONS)
@click.pass_context
def blast_radius(ctx: click.Context, /, **options: Any) -> None:
    """Let each chip in use fail, and count the chips whose circuits change."""
    from optmatch.studies.reroutes import study_blast

    ctx.exit(_study_racks(study_blast, options))


@study.command()
@click.argument("file", metavar="COLLECTIVE", type=click.Path())
@click.option(
    "--delays",
    "delays_s",
    type=TIMES,
    metavar="S,...",
    help="Delays to try.  [default: 1e-7 .. 0.1]",
)
@click.option(
    "--sizes",
    "sizes_bytes",
    type=AMOUNTS,
    metavar="B,...",
    help="Sizes of the map of winners.  [default: 1/100, 1 and 100 times]",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    help="A method to compare; repeatable.  [default: all that fit]",
)
@QUIET
@with_options(_OUTPUT_OPTIONS)
@click.pass_context
def collectives(
    ctx: click.Context,
    /,
    file: str,
    **options: Any,
) -> None:
    """Compare the methods of a collective over delays and sizes; find where they break even."""
    from optmatch.problems import Collective
    from optmatch.studies.collectives import study_collectives

    output = _take_output(options)
    problem = read_problem(file)
    if not isinstance(problem, Collective):
        raise InputError(f"a problem of kind {problem.kind}: a collective is expected", path=file)
    arguments = {name: value for name, value in options.items() if value is not None}
    request = {"problem": file, "parameters": arguments}
    ctx.exit(_run_study(partial(study_collectives, problem, **arguments), request, output))


def build_racks(options: dict[str, Any], *, racks: int) -> RackFabric:
    """Make the racks that the options of a command describe.

    Parameters
    ----------
    options
        The options of the command, from which those of racks are removed: "racks" and "fibres",
        numbers, and "chips" and "server", shapes as 4x4x4; None where they are not set.
    racks
        The number of racks where `--racks` is missing.

    Returns
    -------
    RackFabric
        The racks.

    Raises
    ------
    InputError
        If a shape cannot be read, or the racks are not possible.
    """
    from optmatch.studies.slices.arrivals import parse_shape

    rack_options = take(options, ("racks", "fibres", "chips", "server"))
    arguments: dict[str, Any] = {"racks": racks}
    for name, value in rack_options.items():
        if value is None:
            continue
        if name in ("chips", "server"):
            try:
                value = parse_shape(value)
            except InputError as exc:
                raise InputError(f"--{name} {exc.message}", where=name) from exc
        arguments[name] = value
    return RackFabric(**arguments)


def _read_mix(text: str) -> dict[Shape, float]:
    """Read weights of shapes of slices, as ``2x2x1=3,2x2x2=1``.

    Returns
    -------
    dict
        The weight of each shape, a tuple of three numbers of chips; a shape without weight has 1.

    Raises
    ------
    InputError
        If a part of the text is no shape with a weight.
    """
    from optmatch.studies.slices.arrivals import parse_shape

    mix: dict[Shape, float] = {}
    for part in text.split(","):
        name, _, weight = part.partition("=")
        try:
            mix[parse_shape(name)] = float(weight or 1)
        except ValueError as exc:  # InputError is one
            raise InputError(f"--mix {part!r}: a shape and its weight as 2x2x4=1") from exc
    return mix


def _study_racks(
    study: Callable[..., Study], options: dict[str, Any], *, racks: int = 1, **given: Any
) -> int:
    """Run a study of racks.

    Parameters
    ----------
    study
        The study, which takes the racks and its parameters.
    options
        All options of the command.
    racks
        The number of racks where `--racks` is missing.
    **given
        Parameters of the study that replace those of the options.

    Returns
    -------
    int
        The exit code.
    """
    output = _take_output(options)
    fabric = build_racks(options, racks=racks)
    arguments = {name: value for name, value in options.items() if value is not None}
    arguments |= given
    if "mix" in arguments:
        arguments["mix"] = _read_mix(arguments["mix"])

    fabric_object = {
        "chips": fabric.chips,
        "server": fabric.server,
        "fibres": fabric.fibres,
        "racks": fabric.racks,
    }
    request = {"fabric": fabric_object, "parameters": options}
    return _run_study(partial(study, fabric, **arguments), request, output)


class _Output(NamedTuple):
    """How tables and pictures are written, and what does the work."""

    as_csv: bool
    as_json: bool
    picture: str | None
    force: bool
    quiet: bool
    jobs: int | None
    dask: str | None


def _take_output(options: dict[str, Any]) -> _Output:
    """Take the options of output and executor out of the options of a command.

    Parameters
    ----------
    options
        The options by name; those that are taken are removed from it.

    Returns
    -------
    _Output
        How results are written, and which workers compute them.

    Raises
    ------
    click.UsageError
        If both CSV and JSON are asked for.
    """
    output = _Output(
        as_csv=options.pop("as_csv"),
        as_json=options.pop("as_json"),
        picture=options.pop("output"),
        force=options.pop("force"),
        quiet=options.pop("quiet", False),  # a study without events has no such option
        jobs=options.pop("jobs"),
        dask=options.pop("dask"),
    )
    if output.as_csv and output.as_json:
        raise click.UsageError("either --csv or --json")
    return output


@unbroken()
def _run_study(study: Callable[..., Study], request: dict[str, Any], output: _Output) -> int:
    """Run a study, then write its tables and its picture, also those of an interrupted one.

    Parameters
    ----------
    study
        The study with all parameters but `executor` and `on_event`.
    request
        The question, as `--json` repeats it.
    output
        How the results are written.

    Returns
    -------
    int
        The exit code.
    """
    if output.picture is not None:
        check_picture(output.picture, force=output.force)

    with (
        executing(output.jobs, output.dask) as executor,
        listening("study", quiet=output.quiet) as listen,
    ):
        result = study(executor=executor, on_event=listen)

    if output.as_json:
        print_object("study", {"study": result.name, **request, **result.to_object()})
    else:
        for title, rows in result.tables.items():
            if rows and output.as_csv:
                click.echo(rows_as_csv(rows, title=title), nl=False)
            elif rows:
                click.echo(title)
                print_rows(rows, indent=2)

    has_rows = result.complete or any(result.tables.values())
    if output.picture is not None and has_rows:
        draw_study(result, output.picture, force=output.force)
    if not result.complete:
        say(f"interrupted: {'the tables are of what' if has_rows else 'nothing'} was done")
    return SOLVED if result.complete else INTERRUPTED
