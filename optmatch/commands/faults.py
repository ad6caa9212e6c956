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
    count,
    executing,
    with_options,
)
from optmatch.commands.shared.outcome import (
    INTERRUPTED,
    SOLVED,
    csv_text,
    name_of,
    print_object,
    read,
    say,
)
from optmatch.commands.shared.progress import listening
from optmatch.model import Limit, naming

if TYPE_CHECKING:
    from optmatch.studies.all_to_all import YieldStudy

_KINDS = ("stuck-bar", "stuck-cross", "dead-cell")
_SHOWN = 10


@click.command()
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
    from optmatch.model.files import PICTURES, check_target, replace_file
    from optmatch.plotting.figures import blank_figure
    from optmatch.studies.all_to_all import study_yield

    wanted = {output: (".json", ".csv"), picture: PICTURES}
    targets = {
        path: check_target(path, force=force, endings=endings)
        for path, endings in wanted.items()
        if path is not None
    }
    if picture is not None:
        blank_figure(1.0, 1.0)  # tells of a missing matplotlib before the work
    subject: Any = read(file)
    options["kinds"] = options["kinds"] or _KINDS
    with (
        naming(name_of(file)),
        executing(jobs, dask) as executor,
        listening(name_of(file), quiet=quiet) as listen,
    ):
        study = study_yield(subject, n_faults, executor=executor, on_event=listen, **options)
    if as_json:
        print_object("yield", {"file": file, **to_tree(study)})
    else:
        _print(name_of(file), study)
    if output is not None:
        replace_file(targets[output], _table(study, PurePath(output).suffix).encode())
        say(f"{output}: written")
    if picture is not None:
        from optmatch.plotting import plot_heat, save_figure

        fabric = getattr(subject, "problem", subject).fabric
        label = "share of samples lost with this cell broken"
        share = study.share_lost()
        save_figure(lambda: _figure(plot_heat(fabric, share, label=label)), picture, force=force)
        say(f"{picture}: written")
    stopped = study.limit is Limit.INTERRUPTED
    if stopped:
        say("interrupted: the figures are of what was done")
    ctx.exit(INTERRUPTED if stopped else SOLVED)


def _figure(ax: Any) -> Any:
    return ax.get_figure(root=True)


def to_tree(study: YieldStudy) -> dict[str, Any]:
    """Return a study as a JSON object; cells in the order of their ranking."""
    low, high = study.interval
    share = study.share_lost().tolist()
    cells = [
        {
            "cell": cell,
            "share_lost": share[cell],
            "kinds": {
                kind: {
                    "broken": int(study.broken[cell, k]),
                    "failed": int(study.lost[cell, k]),
                    "unrepaired": int(study.open_[cell, k]),
                    "alone": {1: "survives", 0: "fails", -1: None}[int(study.alone[cell, k])],
                }
                for k, kind in enumerate(study.kinds)
            },
        }
        for cell in study.ranking()
        if study.broken[cell].any()
    ]
    return {
        "faults": study.n_faults,
        "kinds": list(study.kinds),
        "slots": study.slots,
        "samples": study.samples,
        "survived": study.survived,
        "failed": study.failed,
        "unrepaired": study.unrepaired,
        "yield_low": low,
        "yield_high": high,
        "confidence": 0.95,
        "how": dict(study.how),
        "seed": study.seed,
        "limit": None if study.limit is None else study.limit.value,
        "time_s": study.time_s,
        "cells": cells,
    }


def _table(study: YieldStudy, suffix: str) -> str:
    tree = to_tree(study)
    if suffix == ".json":
        from optmatch.io.text import layout

        return layout({"format": "optmatch/yield/1", **tree}) + "\n"
    rows = [
        [entry["cell"], kind, *counts.values()]
        for entry in tree["cells"]
        for kind, counts in entry["kinds"].items()
    ]
    return csv_text([["cell", "kind", "broken", "failed", "unrepaired", "alone"], *rows])


def _print(name: str, study: YieldStudy) -> None:
    low, high = study.interval
    many = "1 cell" if study.n_faults == 1 else f"{study.n_faults} cells"
    click.echo(f"{name}: {many} broken, {study.samples} samples, seed {study.seed}")
    for what in ("survived", "failed", "unrepaired"):
        count = getattr(study, what)
        click.echo(f"  {what:<10}  {count:>7}  {count / max(1, study.samples):>6.1%}")
    click.echo(f"  yield       {low:.1%} to {high:.1%} (95 %), in {study.slots} slots")
    click.echo(f"  decided by  {', '.join(f'{how} {n}' for how, n in study.how.items())}")
    worst = [cell for cell in study.ranking()[:_SHOWN] if (study.lost + study.open_)[cell].any()]
    if not worst:
        return
    click.echo("  critical cells  (samples lost of those with the cell broken; alone fatal)")
    for cell in worst:
        lost = int((study.lost + study.open_)[cell].sum())
        fatal = [kind for k, kind in enumerate(study.kinds) if study.alone[cell, k] == 0]
        click.echo(
            f"    cell {cell:<5} {lost:>6} of {int(study.broken[cell].sum()):<6}"
            f" {', '.join(fatal)}".rstrip()
        )
