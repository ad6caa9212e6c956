"""`optmatch sweep` and `optmatch report`: tasks into a store, and the figures of the store."""

from __future__ import annotations

import io
import shlex
from collections import Counter
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from optmatch.commands.shared.options import (
    EXECUTOR_OPTIONS,
    FORCE,
    JSON,
    JSON_LINES,
    QUIET,
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
from optmatch.model.files import check_target, replace_file


@click.command()
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
    from optmatch.sweeps.specs import read_spec
    from optmatch.sweeps.sweep import sweep as run

    tasks = read_spec(spec, generated)
    store = output or str(Path(spec).with_suffix(".sqlite"))
    found: Counter[str] = Counter()
    code = SOLVED
    with ExitStack() as stack:
        executor = stack.enter_context(executing(jobs if dask else None, dask))
        try:
            listen = stack.enter_context(listening("sweep", quiet=quiet))
            for row in run(
                tasks, executor, store=store, n_workers=jobs, retry=retry, on_event=listen
            ):
                found[row.status] += 1
                if as_json:
                    print_object("row", row.figures())
        except KeyboardInterrupt:
            say(f"interrupted: {store} has what was done; run it again to go on")
            code = INTERRUPTED
    if not as_json:
        click.echo(f"{store}: {found.total()} of {len({task.key() for task in tasks})} tasks")
        print_rows(dict(sorted(found.items())))
    ctx.exit(code or (OTHER if found["failed"] else SOLVED))


def generated(command: str) -> Problem:
    """Make a problem of a command, as it stands behind `optmatch generate`.

    It is what the command prints; with ``-o`` a file of a folder that is made for it.
    """
    from optmatch.commands.generate import generate
    from optmatch.io import load, loads

    text = io.StringIO()
    with TemporaryDirectory() as folder:
        try:
            with redirect_stdout(text):
                words = shlex.split(command)
                generate.main(words, "optmatch generate", standalone_mode=False, obj=Path(folder))
            written = [file for file in Path(folder).iterdir() if file.suffix != ".npz"]
            problem = load(written[0]) if written else loads(text.getvalue(), path=command)
        except (click.ClickException, OSError, ValueError) as exc:
            why = exc.format_message() if isinstance(exc, click.ClickException) else str(exc)
            raise InputError(f"{command!r}: {why}", where="generate") from exc
    assert isinstance(problem, Problem)
    return problem


_SHOWN = 5


@click.command()
@click.argument("store", metavar="STORE", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), help="A page x.html; all rows as x.csv or x.parquet."
)
@with_options((FORCE, JSON))
def report(store: str, output: str | None, force: bool, as_json: bool) -> None:
    """Compare the methods of a sweep: gap, rank, time, and how often each is near the best."""
    from optmatch.sweeps.reports import csv_table, html_page, make_report, parquet_table
    from optmatch.sweeps.store import Store

    endings = ".html", ".csv", ".parquet"
    target = None if output is None else check_target(output, force=force, endings=endings)
    with Store(store, read_only=True) as kept:
        rows = list(kept.rows())
    found = make_report(rows)
    if target is not None:
        suffix = Path(str(output)).suffix.lower()
        if suffix == ".html":
            content = html_page(found, Path(store).name).encode()
        else:
            content = csv_table(rows) if suffix == ".csv" else parquet_table(rows)
        replace_file(target, content)
        say(f"{output}: written")
    if as_json:
        told = {"store": store, **found._asdict()}
        told["kinds"] = {
            kind.kind: {"methods": kind.table, "within": kind.shares()} for kind in found.kinds
        }
        told["failures"] = [row.figures() for row in found.failures]
        print_object("sweep-report", told)
        return
    counts = ", ".join(f"{count} {status}" for status, count in found.statuses.items())
    click.echo(f"{store}: {found.rows} tasks of {found.problems} problems: {counts or 'none'}")
    for kind in found.kinds:
        click.echo(f"\n{kind.kind}")
        _print(kind.table)
        if len(kind.table) > 1:
            click.echo("  part of the tasks within so many times the best objective")
            _print(kind.shares())
    for row in found.failures[:_SHOWN]:
        click.echo(f"{row.status}: {row.name}, {row.method}, seed {row.seed}: {row.error}")
    if len(found.failures) > _SHOWN:
        click.echo(f"... and {len(found.failures) - _SHOWN} more")


def _print(table: list[dict[str, Any]]) -> None:
    from optmatch.sweeps.reports import show

    names = list(table[0])
    lines = [[show(row[name]) for name in names] for row in table]
    print_table([[name.replace("_", " ") for name in names], *lines], indent=2)
