"""`optmatch report`: what a store of sweeps says, as tables, one page, CSV or Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from optmatch.commands.shared.options import FORCE, JSON, with_options
from optmatch.commands.shared.outcome import print_object, print_table, say
from optmatch.model.files import check_target, replace_file

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
