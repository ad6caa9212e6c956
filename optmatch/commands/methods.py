"""`optmatch methods`: which methods there are."""

from __future__ import annotations

import click

from optmatch.commands.outcome import print_object


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def methods(as_json: bool) -> None:
    """List the methods and the problems they accept."""
    from optmatch.solvers import methods as find

    found = find()
    if as_json:
        keys = ("name", "exact", "deterministic", "summary")
        entries = [
            {**{key: getattr(method, key) for key in keys}, "accepts": sorted(method.accepts)}
            for method in found.values()
        ]
        print_object("methods", {"methods": entries})
        return
    for method in found.values():
        marks = ["exact" if method.exact else "heuristic"]
        if method.deterministic:
            marks.append("deterministic")
        click.echo(f"{method.name}: {method.summary}")
        click.echo(f"  {', '.join(marks)}; accepts {', '.join(sorted(method.accepts))}")
