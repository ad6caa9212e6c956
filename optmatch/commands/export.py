"""`optmatch export`: write a solution for other tools."""

from __future__ import annotations

import click

from optmatch.commands.shared.options import FORCE
from optmatch.commands.shared.outcome import STDIN, name_of, read_solution, say
from optmatch.model import InputError, naming


def _complete_format(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from optmatch.io.exports import EXPORTERS

    return [name for name in EXPORTERS if name.startswith(incomplete)]


class Export(click.Command):
    """A command whose help ends with the list of formats."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the formats."""
        from optmatch.io.exports import EXPORTERS

        with formatter.section("Formats"):
            formatter.write_dl([(name, each.what) for name, each in EXPORTERS.items()])


@click.command(cls=Export)
@click.argument("file", metavar="SCHEDULE", type=click.Path())
@click.option(
    "--to", required=True, shell_complete=_complete_format, help="Name of the format, see below."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    default="-",
    show_default="stdout",
    help="File to write; if there are several, how their names begin.",
)
@FORCE
def export(file: str, to: str, output: str, force: bool) -> None:
    """Write a schedule or a plan of rails for other tools. `-` is stdin."""
    from optmatch.io.exports import export as write, exported

    solution = read_solution(file)
    with naming(name_of(file)):
        if output != STDIN:
            first, *others = write(solution, to, output, force=force)
            more = f" to {others[-1]}, {len(others) + 1} files" if others else ""
            say(f"{first}{more}: written")
            return
        content = exported(solution, to)
    if not isinstance(content, str):
        raise InputError(f"{to}: several files; -o says what their names begin with")
    click.echo(content, nl=False)
