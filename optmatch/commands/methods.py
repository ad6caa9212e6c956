"""`optmatch methods`: which methods there are."""

from __future__ import annotations

import click

from optmatch.commands.shared.options import JSON
from optmatch.commands.shared.outcome import print_object


@click.command()
@JSON
def methods(as_json: bool) -> None:
    """List the methods, by the kind of problem that they accept."""
    from optmatch.kinds import all_kinds, all_methods

    if as_json:
        keys = ("name", "exact", "deterministic", "summary")
        entries = [
            {"kind": method.solves.kind, **{key: getattr(method, key) for key in keys}}
            for method in all_methods()
        ]
        print_object("methods", {"methods": entries})
        return
    for kind in all_kinds():
        click.echo(f"{kind.problem.kind}:")
        found = [method for method in all_methods() if method.solves is kind.problem]
        width = max(len(method.name) for method in found)
        for method in found:
            exact = " (exact)" if method.exact else ""
            click.echo(f"  {method.name:<{width}}  {method.summary}{exact}")
