"""`optmatch faults`: how likely a schedule survives random faults, and which cells matter."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared.interrupt import unbroken
from optmatch.commands.shared.options import (
    EXECUTOR_OPTIONS,
    FORCE,
    JSON,
    QUIET,
    Duration,
    SectionedCommand,
    count,
    executing,
    with_options,
)
from optmatch.commands.shared.outcome import (
    INTERRUPTED,
    name_of,
    print_object,
    read,
    say,
)
from optmatch.commands.shared.progress import listening
from optmatch.commands.shared.studies import check_picture, draw_study
from optmatch.io.text import csv_text, layout
from optmatch.model import Limit, naming
from optmatch.model.files import replace_file

if TYPE_CHECKING:
    from optmatch.studies.all_to_all import YieldStudy

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
    from optmatch.model.files import check_target
    from optmatch.studies.all_to_all import study_yield

    # Files that cannot be written are refused before the work.
    table_file = None
    if output is not None:
        table_file = check_target(output, force=force, endings=(".json", ".csv"))
    if picture is not None:
        check_picture(picture, force=force)

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
    if table_file is not None:
        # All figures of the study, or a row for each cell and kind of fault.
        if PurePath(str(output)).suffix == ".json":
            text = layout({"format": "optmatch/yield/1", **study.to_object()}) + "\n"
        else:
            rows = [row.values() for row in study.tables["cells"]]
            text = csv_text([_CELL_COLUMNS, *rows])
        replace_file(table_file, text.encode())
        say(f"{output}: written")
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
