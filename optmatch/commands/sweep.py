"""`optmatch sweep`: the tasks of a spec, into a store, on as many machines as there are."""

from __future__ import annotations

import io
import shlex
from collections import Counter
from contextlib import ExitStack, redirect_stdout
from pathlib import Path

import click

from optmatch.commands.shared.options import (
    EXECUTOR_OPTIONS,
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
    say,
)
from optmatch.commands.shared.progress import listening
from optmatch.model import InputError, Problem


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
    """Make a problem of a command, as it stands behind `optmatch generate`."""
    from optmatch.commands.generate import generate
    from optmatch.io import loads

    text = io.StringIO()
    try:
        with redirect_stdout(text):
            generate.main(shlex.split(command), "optmatch generate", standalone_mode=False)
    except (click.ClickException, ValueError) as exc:
        why = exc.format_message() if isinstance(exc, click.ClickException) else str(exc)
        raise InputError(f"{command!r}: {why}", where="generate") from exc
    problem = loads(text.getvalue(), path=command)
    assert isinstance(problem, Problem)
    return problem
