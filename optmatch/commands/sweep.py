"""`optmatch sweep` and `optmatch report`: tasks into a store, and the figures of the store."""

from __future__ import annotations

import io
import shlex
from collections import Counter
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from optmatch.commands.shared.options import (
    EXECUTOR_OPTIONS,
    FORCE,
    JSON,
    JSON_LINES,
    QUIET,
    SectionedCommand,
    executing,
    with_options,
)
from optmatch.commands.shared.outcome import (
    INTERRUPTED,
    OTHER,
    SOLVED,
    print_object,
    print_rows,
    print_table,
    say,
)
from optmatch.commands.shared.progress import listening
from optmatch.model import InputError, Problem
from optmatch.model.display import write_table
from optmatch.model.files import check_target, replace_file
from optmatch.problems import AllToAll

if TYPE_CHECKING:
    from optmatch.sweeps.reports import SweepReport


@click.command(cls=SectionedCommand)
@click.argument("spec", metavar="SPEC.toml", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), help="The store.  [default: SPEC.sqlite beside the spec]"
)
@with_options(EXECUTOR_OPTIONS)
@click.option("--retry", is_flag=True, help="Run again what was refused or failed before.")
@with_options((JSON_LINES, QUIET))
@click.pass_context
def sweep(
    ctx: click.Context,
    /,
    spec: str,
    output: str | None,
    jobs: int | None,
    dask: str | None,
    retry: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Solve the problems of a spec by its methods, and keep each answer in a store.

    Run it again to go on: what is in the store is not run twice. `optmatch report STORE` shows
    what was found. Code 1 if a task failed.
    """
    # `spec` is the file that lists problems and methods, and `output` the store of answers (None:
    # named like the spec). `jobs` is the number of processes, and `dask` the address of a cluster,
    # None for none. `retry` says whether tasks that failed are run again.
    from optmatch.sweeps.sweep import read_spec, sweep as run

    tasks = read_spec(spec, generated)
    store = output or str(Path(spec).with_suffix(".sqlite"))
    n_of_status: Counter[str] = Counter()
    is_interrupted = False
    with ExitStack() as stack:
        # Without Dask the sweep starts processes of its own, which outlive a crash of one of them.
        executor = stack.enter_context(executing(jobs if dask else None, dask))
        try:
            listen = stack.enter_context(listening("sweep", quiet=quiet))
            for row in run(
                tasks, executor, store=store, n_workers=jobs, retry=retry, on_event=listen
            ):
                n_of_status[row.status] += 1
                if as_json:
                    print_object("row", row.figures())
        except KeyboardInterrupt:
            say(f"interrupted: {store} has what was done; run it again to go on")
            is_interrupted = True

    # How many tasks have a row in the store, and how many of them by status.
    if not as_json:
        n_tasks = len({task.key() for task in tasks})
        click.echo(f"{store}: {n_of_status.total()} of {n_tasks} tasks")
        print_rows(dict(sorted(n_of_status.items())))
    if is_interrupted:
        ctx.exit(INTERRUPTED)
    ctx.exit(OTHER if n_of_status["failed"] else SOLVED)


def generated(command: str) -> Problem:
    """Make a problem by running a command in this process, as it stands behind `generate`.

    The command writes no problem file, with ``-o`` or without. One that is refused, or makes no
    problem, is an `InputError`.
    """
    from optmatch.commands.generate import generate

    problems: list[Problem] = []  # `write_problem` fills it
    try:
        words = shlex.split(command)
        if words[:1] == ["device"]:
            raise click.UsageError("makes no problem, but the cells of a chip")
        with redirect_stdout(io.StringIO()):
            generate.main(words, "optmatch generate", standalone_mode=False, obj=problems)
    except click.ClickException as exc:
        raise InputError(f"{command!r}: {exc.format_message()}", where="generate") from exc
    except (OSError, ValueError) as exc:
        raise InputError(f"{command!r}: {exc}", where="generate") from exc
    if not problems:
        raise InputError(f"{command!r}: makes no problem", where="generate")
    return problems[0]


# Failures that `report` prints.
_MAX_FAILURES = 5


@click.command()
@click.argument("store", metavar="STORE", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), help="A page x.html; all rows as x.csv or x.parquet."
)
@with_options((FORCE, JSON))
def report(store: str, output: str | None, force: bool, as_json: bool) -> None:
    """Compare the methods of a sweep: gap, rank, time, and how often each is near the best."""
    # `store` is the file of the answers of a sweep. `output` is a page (.html) or a table of all
    # answers (.csv, .parquet), None for none.
    from optmatch.sweeps.reports import csv_table, html_page, make_report, parquet_table
    from optmatch.sweeps.store import Store

    target = None
    if output is not None:
        target = check_target(output, force=force, endings=(".html", ".csv", ".parquet"))

    with Store(store, read_only=True) as open_store:
        # All-to-alls are compared by slots first, which their answers have.
        rows = [
            open_store.row(row.key) if row.kind == AllToAll.kind else row
            for row in open_store.rows()
        ]
    figures = make_report(rows)
    if target is not None:
        suffix = Path(str(output)).suffix.lower()
        if suffix == ".html":
            page_or_table = html_page(figures, Path(store).name).encode()
        elif suffix == ".csv":
            page_or_table = csv_table(rows)
        else:
            page_or_table = parquet_table(rows)
        replace_file(target, page_or_table)
        say(f"{output}: written")

    if as_json:
        kinds = {
            kind.kind: {"methods": kind.table, "within": kind.shares()} for kind in figures.kinds
        }
        failures = [row.figures() for row in figures.failures]
        content = {"store": store, **figures._asdict(), "kinds": kinds, "failures": failures}
        print_object("sweep-report", content)
    else:
        _print_report(store, figures)


def _print_report(store: str, report: SweepReport) -> None:
    """Print a report: a table for each kind of problem, and the first failures.

    `store` is the name of the file. A grid is a family of problems whose names differ in numbers,
    such as ``mesh-*``; its table has the mean gap of each method by one of these numbers, or by a
    parameter that varied.
    """
    counts = ", ".join(f"{count} {status}" for status, count in report.statuses.items())
    click.echo(f"{store}: {report.rows} tasks of {report.problems} problems: {counts or 'none'}")

    for kind in report.kinds:
        click.echo("\n" + ": ".join(filter(None, (kind.kind, kind.note))))
        print_table(write_table(kind.table), indent=2)
        for grid in kind.grids:
            click.echo(f"  {grid.family}: mean gap by {grid.title}")
            print_table(write_table(grid.table()), indent=2)
        if len(kind.table) > 1:
            click.echo("  part of the tasks within so many times the best objective")
            print_table(write_table(kind.shares()), indent=2)

    for row in report.failures[:_MAX_FAILURES]:
        click.echo(f"{row.status}: {row.name}, {row.method}, seed {row.seed}: {row.error}")
    if len(report.failures) > _MAX_FAILURES:
        click.echo(f"... and {len(report.failures) - _MAX_FAILURES} more")
