"""`optmatch compare`, `vary` and `faults`: studies, shown as tables, CSV and pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared.interrupt import unbroken
from optmatch.commands.shared.options import (
    EXECUTOR_OPTIONS,
    FABRICS_BY_SIZE,
    FORCE,
    JSON,
    NAMES,
    QUIET,
    Duration,
    SectionedCommand,
    count,
    draw_ports,
    executing,
    type_of_field,
    with_options,
)
from optmatch.commands.shared.outcome import (
    INTERRUPTED,
    SOLVED,
    name_of,
    print_object,
    print_table,
    read,
    read_problem,
    say,
    write_text,
)
from optmatch.commands.shared.progress import listening
from optmatch.io.text import csv_text, layout
from optmatch.model import Limit, naming, unit_of
from optmatch.model.files import PICTURES, check_target

if TYPE_CHECKING:
    from optmatch.studies.all_to_all import YieldStudy
    from optmatch.studies.outcome import Study

STUDY_OPTIONS = (
    click.option(
        "-o",
        "--output",
        type=click.Path(),
        help="Table as x.csv, or a picture: x.png, .svg, .pdf.  [default: none]",
    ),
    FORCE,
    JSON,
    QUIET,
)
"""Where a study goes, and what is printed of it."""


def show_study(study: Study, output: str | None, *, as_json: bool) -> None:
    """Print the first table of a study or its object, and write it as CSV or as a picture.

    `output` is a file, whose ending tells a table from a picture, or None. Rows that were refused
    or failed are explained below the table. The file was checked before the work; nothing is
    written of a study without rows.
    """
    rows = next(iter(study.tables.values()))
    if not study.complete:
        say("interrupted: these rows are there")
    if as_json:
        print_object("comparison", study.to_object())
    elif rows:
        print_table(study.written_rows())
        for line in study.explanations():
            click.echo(line)

    # The file: a table, or a picture.
    if output is None or not rows:
        return
    if Path(output).suffix.lower() == ".csv":
        text = csv_text([rows[0], *(row.values() for row in rows)])
        write_text(text, output, force=True)
    else:
        draw_study(study, output, force=True)


def check_output(
    output: str | None, *, force: bool, endings: Sequence[str] = (".csv", *PICTURES)
) -> None:
    """Refuse a table or a picture that cannot be written or drawn, before the work.

    Its ending may be wrong, the file be there already, or matplotlib not be installed.
    """
    if output is None:
        return
    check_target(output, force=force, endings=endings)
    if Path(output).suffix.lower() in PICTURES:
        from optmatch.plotting.drawing import blank_figure

        blank_figure(1.0, 1.0)  # raises an error where matplotlib is missing


def draw_study(study: Study, picture: str, *, force: bool) -> None:
    """Draw a study into a file, whose ending says the format."""
    from optmatch.plotting import save_figure

    save_figure(study.plot, picture, force=force)
    say(f"{picture}: written")


@click.command(cls=SectionedCommand)
@click.argument("files", metavar="[FILE...]", nargs=-1, type=click.Path())
@click.option(
    "--methods",
    metavar="NAME,...",
    type=NAMES,
    help="Methods to try on each FILE.  [default: all that accept it]",
)
@click.option(
    "--fabrics",
    metavar="NAME,...",
    type=NAMES,
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
        with listening("methods", quiet=options["quiet"]) as listen:
            study = compare_methods(
                problems,
                options["methods"],
                seed=options["seed"],
                time_limit_s=options["time_limit_s"],
                on_event=listen,
            )
    show_study(study, options["output"], as_json=options["as_json"])
    ctx.exit(SOLVED if study.complete else INTERRUPTED)


def _measure_fabrics(options: dict[str, Any]) -> Study:
    """Route the same random matchings on every fabric, and measure loss and crosstalk of circuits.

    `options` are those of the command, by name: `fabrics`, their names; `size`, the ports of each;
    `count`, how many matchings are drawn; `pairs`, whether a matching exchanges ports in pairs (a
    to b and b to a), over bidirectional ports of meshes; `device`, the model of the cells; `seed`;
    and `time_limit_s` for one matching on one fabric.
    """
    from optmatch.commands.shared.chip import choose_device
    from optmatch.commands.verify import use_one_thread
    from optmatch.studies.comparisons import compare_fabrics

    if options["size"] is None:
        raise click.UsageError("--size: needed with --fabrics")
    size = options["size"]
    pairs = options["pairs"]
    use_one_thread()
    device = choose_device(options["device"])
    fabrics = {name: build(name, size, pairs) for name in options["fabrics"]}

    # All fabrics get the same matchings, which are drawn with consecutive seeds.
    matchings = [draw_ports(size, pairs, options["seed"] + k) for k in range(options["count"])]
    with listening("fabrics", quiet=options["quiet"]) as listen:
        return compare_fabrics(
            fabrics,
            matchings,
            device,
            seed=options["seed"],
            time_limit_s=options["time_limit_s"],
            on_event=listen,
        )


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


_MOST_VALUES = 1000
"""So many values are filled in for dots."""


@click.command(cls=SectionedCommand)
@click.argument("file", metavar="PROBLEM", type=click.Path())
@click.option(
    "--field",
    "names",
    multiple=True,
    required=True,
    metavar="NAME",
    help="A field of the problem, as delay_s; of a part of it where several have it, as"
    " network.delay_s; an entry of a field that has several, as late_s.63. Several fields, each"
    " with --values: all combinations.",
)
@click.option(
    "--values",
    multiple=True,
    required=True,
    metavar="V,...",
    help="Its values, as 1us,10us,...,1s, where dots go on by the same factor or step.",
)
@click.option(
    "--method", metavar="NAME,...", type=NAMES, help="Methods.  [default: that of the kind]"
)
@click.option(
    "--time-limit", "time_limit_s", metavar="TIME", type=Duration(), help="Limit of each solve."
)
@count("--seed", 0, "Seed of each solve.")
@click.option(
    "--store",
    type=click.Path(),
    help="A file that keeps the answers: what it has is not solved again, and `optmatch report`"
    " reads it.",
)
@with_options(EXECUTOR_OPTIONS)
@with_options(STUDY_OPTIONS)
@click.pass_context
@unbroken()
def vary(ctx: click.Context, /, file: str, **options: Any) -> None:
    """Solve a problem for each value of a field: how the objective depends on it.

    Of several methods it says where one falls below another. Ctrl-C ends with what is there.
    """
    # `options` are those of the command: `names` and `values` are lists of the same length, a
    # field and its values in one text, as "delay_s" and "1us,10us"; `jobs` and `dask` are where
    # tasks run, and `store` keeps their results, None for none.
    from optmatch.studies.comparisons import find_field, vary as run

    problem = read_problem(file)
    if len(options["names"]) != len(options["values"]):
        raise click.UsageError("--field and --values: as many of one as of the other")
    check_output(options["output"], force=options["force"])

    # Values are typed as those of the options of `generate`, with their units.
    values: dict[str, list[Any]] = {}
    for name, text in zip(options["names"], options["values"], strict=True):
        value: Any = problem
        for part in find_field(problem, name):
            # All entries of a mapping are of the type that its field says.
            if not isinstance(value, Mapping):
                record = value
                field = part
                value = getattr(record, field)
        if isinstance(value, Mapping) and field == part:
            raise click.UsageError(f"--field {name}: name one entry of it, as {name}.KEY")
        try:
            field_type = type_of_field(type(record), field)
        except TypeError as exc:
            raise click.UsageError(f"--field {name}: neither number nor word") from exc
        values[name] = read_values(text, field_type)

    with (
        executing(options["jobs"], options["dask"]) as executor,
        listening("values", quiet=options["quiet"], unit=lambda: unit_of(problem)) as listen,
    ):
        study = run(
            problem,
            values,
            options["method"],
            seed=options["seed"],
            time_limit_s=options["time_limit_s"],
            store=options["store"],
            executor=executor,
            on_event=listen,
        )
    output = options["output"]
    if output is not None and options["store"] is not None and not study.complete:
        # The same command goes on with what the store has: no file stands in its way.
        say(f"{output}: not written; {options['store']} has what was done, run it again to go on")
        output = None
    show_study(study, output, as_json=options["as_json"])
    if not options["as_json"]:
        for line in study.conclusions():
            click.echo(line)
    ctx.exit(SOLVED if study.complete else INTERRUPTED)


def read_values(text: str, field_type: Any) -> list[Any]:
    """Read values between commas; dots between them go on until the value behind them.

    They go on by the step of the values before them, or by their factor: whole numbers by the step
    where both would do, others by the factor. `text` is the option as it was typed, and
    `field_type` a type of click or Python.

    Examples
    --------
    >>> read_values("1,2,...,5", int), read_values("1,2,4,...,32", int)
    ([1, 2, 3, 4, 5], [1, 2, 4, 8, 16, 32])
    >>> read_values("1us,10us,...,10ms", Duration())
    [1e-06, 1e-05, 0.0001, 0.001, 0.01]
    """
    read_value = click.types.convert_type(field_type)
    values: list[Any] = []
    words = [word.strip() for word in text.split(",")]
    for place, word in enumerate(words):
        if word != "...":
            values.append(read_value(word, None, None))
            continue
        if len(values) < 2 or place + 1 == len(words):
            raise click.UsageError(f"--values {text}: dots stand after two values and before one")
        last = read_value(words[place + 1], None, None)
        values += _fill_in(values, last, text)
    return values


def _fill_in(values: list[Any], last: Any, text: str) -> list[Any]:
    """Return the values between the last of `values` and `last`, by their step or factor.

    A step needs equal differences, a factor equal ratios of all values before the dots. `text` is
    the option as it was typed, for the error.
    """
    former, latest = values[-2:]
    for is_step in (isinstance(last, int), not isinstance(last, int)):
        n_steps = 0.0
        if is_step and all(math.isclose(b - a, latest - former) for a, b in pairwise(values)):
            n_steps = (last - latest) / (latest - former or math.inf)
        elif not is_step and min(*values, last) > 0 and latest != former:
            is_factor = all(math.isclose(b * former, a * latest) for a, b in pairwise(values))
            n_steps = math.log(last / latest) / math.log(latest / former) if is_factor else 0.0

        # A whole number of steps, or of factors, leads to the last value.
        if 1 <= round(n_steps) <= _MOST_VALUES and abs(n_steps - round(n_steps)) <= 1e-6:
            filled = []
            for k in range(1, round(n_steps)):
                step, factor = latest - former, latest / (former or 1)
                value = latest + k * step if is_step else latest * factor**k
                filled.append(type(last)(float(f"{value:.12g}")))
            return filled
    raise click.UsageError(f"--values {text}: neither a step nor a factor leads to the last value")


_KINDS = ("stuck-bar", "stuck-cross", "dead-cell")

_CELL_COLUMNS = ("cell", "kind", "broken", "failed", "unrepaired", "alone")
# Critical cells that are printed.
_MAX_CELLS = 10


@click.command(cls=SectionedCommand)
@click.argument("file", metavar="FILE", type=click.Path())
@click.option(
    "-k",
    "--faults",
    "n_faults",
    type=click.IntRange(min=0),
    default=1,
    help="How many cells break in each sample.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(_KINDS),
    help="Draw this kind of fault; repeatable.  [default: all]",
)
@count("--samples", 1000, "Number of samples.")
@count("--seed", None, "Seed of the faults.  [default: drawn and reported]")
@click.option("--time-limit", "time_limit_s", type=Duration(), help="Stop after so many seconds.")
@click.option("--fixed", is_flag=True, help="No pair may move to another slot.")
@click.option("-o", "--output", type=click.Path(), help="Write figures by cell: x.json or x.csv.")
@click.option("--plot", "picture", type=click.Path(), help="Draw a heat map: x.png, .svg or .pdf.")
@with_options((*EXECUTOR_OPTIONS, FORCE, JSON, QUIET))
@click.pass_context
@unbroken()
def faults(
    ctx: click.Context,
    /,
    file: str,
    n_faults: int,
    output: str | None,
    picture: str | None,
    force: bool,
    as_json: bool,
    quiet: bool,
    jobs: int | None,
    dask: str | None,
    **options: Any,
) -> None:
    """Break random cells again and again, and count how often the schedule can be repaired.

    FILE is a schedule, or an all-to-all or routing problem, which is solved first. `-` is stdin.
    Ctrl-C reports what was done so far.
    """
    # `n_faults` is the number of cells that break at once. `output` is a table of cells and
    # `picture` a chart, None for none. `jobs` is the number of processes, and `dask` the address
    # of a cluster instead. `options` go to the study by name, such as its kinds of faults.
    from optmatch.studies.all_to_all import study_yield

    check_output(output, force=force, endings=(".json", ".csv"))
    check_output(picture, force=force, endings=PICTURES)

    # The study, in other processes if there are some.
    subject = read(file)
    options["kinds"] = options["kinds"] or _KINDS
    with (
        naming(name_of(file)),
        executing(jobs, dask) as executor,
        listening(name_of(file), quiet=quiet) as listen,
    ):
        study = study_yield(subject, n_faults, executor=executor, on_event=listen, **options)

    # The figures are printed, and written where that is wanted.
    if as_json:
        print_object("yield", {"file": file, **study.to_object()})
    else:
        _print_study(name_of(file), study)
    if output is not None:
        # All figures of the study, or a row for each cell and kind of fault.
        if PurePath(output).suffix == ".json":
            text = layout({"format": "optmatch/yield/1", **study.to_object()}) + "\n"
        else:
            rows = [row.values() for row in study.tables["cells"]]
            text = csv_text([_CELL_COLUMNS, *rows])
        write_text(text, output, force=True)
    if picture is not None:
        draw_study(study, picture, force=force)

    if study.limit is Limit.INTERRUPTED:
        say("interrupted: the figures are of what was done")
        ctx.exit(INTERRUPTED)


def _print_study(name: str, study: YieldStudy) -> None:
    """Print how many samples survived, the yield with its interval, and the worst cells.

    A sample is some cells that break at once. ``study.lost[cell, kind]`` and ``study.open_`` count
    the samples with this fault that are proved to be lost, or not repaired; ``study.alone`` is 0
    where the fault alone is fatal.
    """
    broken = "1 cell" if study.n_faults == 1 else f"{study.n_faults} cells"
    click.echo(f"{name}: {broken} broken, {study.samples} samples, seed {study.seed}")
    for row in study.tables["samples"]:
        click.echo(f"  {row['outcome']:<10}  {row['samples']:>7}  {row['share']:>6.1%}")
    low, high = study.interval
    click.echo(f"  yield       {low:.1%} to {high:.1%} (95 %), in {study.slots} slots")
    decided_by = ", ".join(f"{rule} {n_samples}" for rule, n_samples in study.how.items())
    click.echo(f"  decided by  {decided_by}")

    # A sample is lost if no repair exists, or none was found.
    n_lost = (study.lost + study.open_).sum(axis=1)
    n_broken = study.broken.sum(axis=1)
    critical_cells = [cell for cell in study.ranking()[:_MAX_CELLS] if n_lost[cell]]
    if not critical_cells:
        return
    click.echo("  critical cells  (samples lost of those with the cell broken; alone fatal)")
    for cell in critical_cells:
        fatal_kinds = [kind for k, kind in enumerate(study.kinds) if study.alone[cell, k] == 0]
        cell_name = study.cell_name(cell) or str(cell)
        line = f"    cell {cell_name:<5} {n_lost[cell]:>6} of {n_broken[cell]:<6}"
        click.echo(f"{line} {', '.join(fatal_kinds)}".rstrip())
