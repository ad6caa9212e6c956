"""`optmatch instances`: the library of problems, and the best known value of each."""

from __future__ import annotations

import click

from optmatch.commands.shared.options import JSON, with_options
from optmatch.commands.shared.outcome import Group, print_object, print_rows
from optmatch.io.fields import to_object
from optmatch.model import InputError

_NAME_WIDTH = 40
"""Columns of a list for the names of instances; a longer name moves its own line alone."""


@click.group(cls=Group)
def instances() -> None:
    """List problems with best known answers."""


@instances.command("list")
@click.option("--kind", help="Only instances of one kind of problem.")
@click.option("--markdown", is_flag=True, help="Print the tables of docs/instances.md.")
@with_options((JSON,))
def list_(kind: str | None, markdown: bool, as_json: bool) -> None:
    """List the instances with their best known values."""
    from optmatch.sweeps.library import Library, describe_best

    library = Library()
    if markdown:
        click.echo(library.table(), nl=False)
        return
    entries = [entry for entry in library if kind in (None, entry.kind)]
    if not entries:
        kinds = ", ".join(sorted({entry.kind for entry in library}))
        raise InputError(f"--kind {kind!r}: one of {kinds}", where="kind")
    if as_json:
        print_object("instances", {"instances": [to_object(entry) for entry in entries]})
    else:
        for entry in entries:
            # The method and its time stand in `show`: a line fits a terminal of 100 columns.
            best_known = describe_best(entry, brief=True)
            click.echo(f"{entry.name:<{_NAME_WIDTH}}  {best_known}")


@instances.command()
@click.argument("name")
@with_options((JSON,))
def show(name: str, as_json: bool) -> None:
    """Show the known values of an instance."""
    from optmatch.sweeps.library import Library

    entry = Library().entry(name)
    if as_json:
        print_object("instance", to_object(entry))
        return
    tree = to_object(entry)
    best = tree.pop("best") or {"best": "nothing is known"}
    print_rows({k: v for k, v in (tree | best).items() if v is not None}, indent=0)


@instances.command()
@click.argument("name")
def path(name: str) -> None:
    """Print the file of an instance, for other commands."""
    from optmatch.sweeps.library import Library

    click.echo(Library().path(name))
