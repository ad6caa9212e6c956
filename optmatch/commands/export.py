"""`optmatch export`: write a solution for other tools."""

from __future__ import annotations

import click

from optmatch.commands.outcome import STDIN, name_of, read_solution, say
from optmatch.io.exports import EXPORTERS
from optmatch.model import InputError


@click.command(epilog="Formats: " + "; ".join(f"{k}: {e.what}" for k, e in EXPORTERS.items()))
@click.argument("file", metavar="SCHEDULE", type=click.Path())
@click.option(
    "--to", required=True, type=click.Choice(list(EXPORTERS)), help="The format, see below."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    default="-",
    show_default="stdout",
    help="The file; with several files what their names begin with.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def export(file: str, to: str, output: str, force: bool) -> None:
    """Write a schedule or a plan of rails for other tools. `-` is stdin."""
    from optmatch.io.exports import export as write
    from optmatch.io.exports import exported

    solution = read_solution(file)
    try:
        if output != STDIN:
            say(f"{', '.join(write(solution, to, output, force=force))}: written")
            return
        content = exported(solution, to)
    except InputError as exc:
        exc.path = exc.path or name_of(file)
        raise
    if not isinstance(content, str):
        raise InputError(f"{to}: several files; -o says what their names begin with")
    click.echo(content, nl=False)
